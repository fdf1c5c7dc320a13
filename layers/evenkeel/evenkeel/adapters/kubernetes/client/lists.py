"""Lists of the API as they were received: read into objects when it is their turn, or not at all.

Most of a look is JSON, and most of the JSON is what nobody reads; a look does without ``metadata.managedFields``, and
without reading a list anew that says what it said before.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypedDict

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from evenkeel.adapters.kubernetes.objects import name_of
from evenkeel.application.errors import ClusterUnavailableError

# An escape of one half of a character beyond the first plane; most come in pairs, which do no harm.
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")
# Behind the objects of a list of custom resources comes what the list says of itself: a kind, a version of the whole,
# and where the next page begins. An API server writes fields in the order of their names.
_BEHIND_OBJECTS = b'],"kind":'
_LONGEST_END = 4096


class _Metadata(TypedDict, total=False):
    name: Any
    namespace: Any
    uid: Any
    resourceVersion: Any
    labels: Any
    annotations: Any
    ownerReferences: Any
    creationTimestamp: Any
    deletionTimestamp: Any


class _Object(TypedDict, total=False):
    apiVersion: Any
    kind: Any
    metadata: _Metadata
    spec: Any
    status: Any
    # Of a MachineClass.
    nodeTemplate: Any
    provider: Any
    providerSpec: Any


class _List(TypedDict, total=False):
    apiVersion: Any
    kind: Any
    metadata: Any
    items: list[_Object]


class _ListItself(TypedDict, total=False):
    metadata: Any


class _Version(Struct):
    uid: str
    resourceVersion: str  # noqa: N815


class _Versioned(Struct):
    metadata: _Version


class _Versions(Struct):
    items: list[_Versioned]


# An empty list takes so much, with its place in another.
_VALUE_BYTES = 64
_whole_list = Decoder().decode
_list_itself = Decoder(_ListItself).decode
# What a look reads: fields that are not named here are skipped and cost next to nothing.
_looked_at = Decoder(_List).decode
_versions = Decoder(_Versions).decode


@dataclass(frozen=True)
class ReceivedList:
    """Every page of a list, unread."""

    source: str  # what was asked for, and of whom
    pages: tuple[bytes, ...]
    whole: bool = True  # False: what looks do not read is left out

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(len(page) for page in self.pages)

    @property
    def weight(self) -> int:
        """About what it takes in memory once it is read, in bytes: much more than its size where it is all brackets."""
        return max(self.size, sum(_VALUE_BYTES * (page.count(b"[") + page.count(b"{")) for page in self.pages))

    def objects(self) -> list[dict[str, Any]]:
        """Raises ClusterUnavailableError where a page is no list of objects."""
        objects: list[dict[str, Any]] = []
        for page in self.pages:
            answer = _decoded(_whole_list if self.whole else _looked_at, page)
            if answer is None:
                raise ClusterUnavailableError(f"{self.source}: the answer is not JSON")
            items = answer.get("items")
            if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
                raise ClusterUnavailableError(f"{self.source}: the answer is no list of objects")
            kind, version = str(answer.get("kind", "")).removesuffix("List"), answer.get("apiVersion")
            # Items of a list carry no kind of their own in some API versions.
            objects += [{"apiVersion": version, "kind": kind, **item} for item in items]
        # The store has them by namespace and name; the watch cache of a server before 1.27 has them in any order.
        return objects if self.whole else sorted(objects, key=name_of)


def fingerprint_of(lists: Iterable[ReceivedList], settings: str) -> bytes | None:
    """The same for the same settings and lists of the same objects, whatever versions the lists have as wholes.

    None where a list does not say which of it is its own.
    """
    digest = sha256(settings.encode())
    for received in lists:
        digest.update(f"{received.source} {received.whole} {len(received.pages)}".encode())
        for page in received.pages:
            parts = _split(page)
            if parts is None:
                return None
            objects, own = parts
            digest.update(b" %d " % len(objects))
            digest.update(objects)
            digest.update(repr(own["kind"]).encode(errors="backslashreplace"))
    return digest.digest()


def versions_of(lists: Iterable[ReceivedList]) -> str | None:
    """A fingerprint of which objects there are, and of what versions: every write makes another.

    The same in whatever pages and order they come, whole or without what looks do not read. None where an object has
    no version.
    """
    versions: list[str] = []
    for received in lists:
        for page in received.pages:
            try:
                items = _versions(page).items
            except (DecodeError, UnicodeError, RecursionError):
                return None
            versions += [f"{item.metadata.uid} {item.metadata.resourceVersion}" for item in items]
    return sha256("\n".join(sorted(versions)).encode(errors="surrogatepass")).hexdigest()


def continuation_of(page: bytes) -> Any:
    """Where the next page begins; empty or None where there is none. It may be of any type."""
    parts = _split(page)
    own = parts[1] if parts is not None else _decoded(_list_itself, page) or {}
    metadata = own.get("metadata") or {}
    return metadata.get("continue") if isinstance(metadata, dict) else metadata


def _split(page: bytes) -> tuple[memoryview, dict[str, Any]] | None:
    """The objects of a page, and what it says of itself; None where that does not come last.

    What is found is the end of a list at the outermost level, whatever else the page holds: within a text the quotation
    marks would be escaped, and deeper in, the rest would be no object of its own.
    """
    cut = page.rfind(_BEHIND_OBJECTS, max(0, len(page) - _LONGEST_END))
    if cut < 0:
        return None
    try:
        own = json.loads(b"{" + page[cut + 2 :])
    except (ValueError, RecursionError):
        return None
    return (memoryview(page)[:cut], own) if own.keys() == {"kind", "metadata"} else None


def _decoded(decode: Callable[[bytes], Any], page: bytes) -> dict[str, Any] | None:
    """The fields of a page; none where it is something else, None where it is no JSON."""
    try:
        answer = decode(page)
    except (DecodeError, UnicodeError, RecursionError):  # garbage, or only odd: read as everything else is
        answer = read_json(page)
    return answer if isinstance(answer, dict) or answer is None else {}


def read_json(text: bytes) -> Any:
    """What an answer says, of any shape; an empty one has no fields. None where it is no JSON."""
    try:
        answer = json.loads(text) if text else {}
        return _without_halves(answer) if _HALF_CHARACTER.search(text) else answer
    except (ValueError, RecursionError):
        return None


def _without_halves(value: Any) -> Any:
    """The same without half characters, which JSON may carry and UTF-8 has no bytes for: nobody could store them."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, list):
        return [_without_halves(item) for item in value]
    if isinstance(value, dict):
        return {_without_halves(key): _without_halves(item) for key, item in value.items()}
    return value
