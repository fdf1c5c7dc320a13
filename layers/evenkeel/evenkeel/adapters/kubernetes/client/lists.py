"""Lists as the API server has sent them. They are decoded only where their objects are needed.

A check spends most of its time on decoding JSON, and needs few fields. So it skips the others, such as
``metadata.managedFields``.
"""

import json
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from operator import attrgetter
from typing import Any, Generic, TypedDict, TypeVar

from msgspec import DecodeError, Struct
from msgspec.json import Decoder, Encoder

from evenkeel.adapters.kubernetes.fields import read_fields
from evenkeel.adapters.kubernetes.machine_object import MachineObject
from evenkeel.adapters.kubernetes.objects import name_of
from evenkeel.application.errors import ClusterUnavailableError
from evenkeel.domain.model.values import quote_without_secrets

_log = logging.getLogger("evenkeel.kubernetes")
_Item = TypeVar("_Item", bound=Struct)
# Matches the JSON escape of half a surrogate pair. Most matches are parts of valid pairs.
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")


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
    nodeTemplate: Any  # of a MachineClass


class _List(TypedDict, total=False):
    apiVersion: Any
    kind: Any
    metadata: Any
    items: list[_Object]


class _ListItself(TypedDict, total=False):
    metadata: Any


class ListOf(Struct, Generic[_Item]):
    """A page of a list of these objects."""

    items: list[_Item]


class _Version(Struct):
    uid: str
    resourceVersion: str  # noqa: N815


class _Versioned(Struct):
    metadata: _Version


class _Versions(Struct):
    items: list[_Versioned]


class _Settings(Struct):
    uid: str
    generation: int
    labels: Any = None
    annotations: Any = None


class _WithSettings(Struct):
    metadata: _Settings


class _SettingsList(Struct):
    items: list[_WithSettings]


_whole_list = Decoder().decode
_list_itself = Decoder(_ListItself).decode
# Decodes the fields that a check reads. Other fields are skipped at almost no cost.
_needed_fields = Decoder(_List).decode
_versions = Decoder(_Versions).decode
_settings = Decoder(_SettingsList).decode
_sorted_json = Encoder(order="sorted").encode


@dataclass(frozen=True)
class ReceivedList:
    """All pages of a list, not decoded."""

    source: str  # the request and the API server
    pages: tuple[bytes, ...]
    whole: bool = True  # False: the list is from a check, which decodes only the fields that it needs

    def objects(self) -> list[dict[str, Any]]:
        """Return the objects of the list. Raises ClusterUnavailableError where a page is no list of objects."""
        objects = [item for page in self.pages for item in self._objects(page)]
        # etcd returns objects in the order of namespace and name. The watch cache of an API server before 1.27 has no
        # order.
        return objects if self.whole else sorted(objects, key=name_of)

    def machines(self, shape: type[MachineObject]) -> list[MachineObject]:
        """Return the machines of a list, ordered as by ``objects``. Raises as ``objects`` does.

        An item that is no object is logged, and costs no other machine.
        """
        machines: list[MachineObject] = []
        for page in self.pages:
            try:
                machines += list_decoder(shape)(page).items
            except (DecodeError, UnicodeError, RecursionError):  # one of the machines needs to be read field by field
                for item in self._items(page):
                    if isinstance(item, dict):
                        machines.append(read_fields(shape, item))
                    else:
                        shown = quote_without_secrets(item)
                        _log.warning("%s: an item is %s, and no object; the item is ignored", self.source, shown)
        names = attrgetter("metadata.namespace", "metadata.name")
        return machines if self.whole else sorted(machines, key=names)

    def _objects(self, page: bytes) -> list[dict[str, Any]]:
        items = self._items(page)
        if not all(isinstance(item, dict) for item in items):
            raise self._is_no_list()
        return items

    def _items(self, page: bytes) -> list[Any]:
        answer = _decoded(_whole_list if self.whole else _needed_fields, page)
        if answer is None:
            raise ClusterUnavailableError(f"{self.source}: the answer is not JSON")
        items = answer.get("items")
        if not isinstance(items, list):
            raise self._is_no_list()
        kind, version = str(answer.get("kind", "")).removesuffix("List"), answer.get("apiVersion")
        # Items of a list have no kind in some API versions.
        return [{"apiVersion": version, "kind": kind, **item} if isinstance(item, dict) else item for item in items]

    def _is_no_list(self) -> ClusterUnavailableError:
        return ClusterUnavailableError(f"{self.source}: the answer is no list of objects")


@cache
def list_decoder(shape: Any) -> Callable[[bytes], ListOf[Any]]:
    """Return the function that decodes a page of objects with this shape."""
    return Decoder(ListOf[shape]).decode


def versions_of(lists: Iterable[ReceivedList]) -> str | None:
    """Return a fingerprint of the objects' uids and resourceVersions, which every write changes.

    The fingerprint does not depend on pages, order or skipped fields. Returns None where an object has no
    resourceVersion.
    """

    def versions(page: bytes) -> list[str]:
        return [f"{item.metadata.uid} {item.metadata.resourceVersion}" for item in _versions(page).items]

    return _fingerprint(lists, versions)


def settings_of(lists: Iterable[ReceivedList]) -> str | None:
    """Return a fingerprint like that of ``versions_of``, which a write of an object's status does not change.

    It covers the labels, the annotations and the generation, which the API server raises with each change of ``spec``.
    """

    def settings(page: bytes) -> list[str]:
        return [_sorted_json(item.metadata).decode() for item in _settings(page).items]

    return _fingerprint(lists, settings)


def _fingerprint(lists: Iterable[ReceivedList], read: Callable[[bytes], list[str]]) -> str | None:
    try:
        entries = [entry for received in lists for page in received.pages for entry in read(page)]
    except (DecodeError, UnicodeError, RecursionError):
        return None
    return sha256("\n".join(sorted(entries)).encode(errors="surrogatepass")).hexdigest()


def continuation_of(page: bytes) -> Any:
    """Return the continue token, which may have any type; empty or None on the last page."""
    metadata = (_decoded(_list_itself, page) or {}).get("metadata") or {}
    return metadata.get("continue") if isinstance(metadata, dict) else metadata


def _decoded(decode: Callable[[bytes], Any], page: bytes) -> dict[str, Any] | None:
    """Return the fields of a page; empty where the page is JSON but no object; None where the page is no JSON."""
    try:
        answer = decode(page)
    except (DecodeError, UnicodeError, RecursionError):  # invalid JSON, or JSON that only ``json`` decodes
        answer = read_json(page)
    return answer if isinstance(answer, dict) or answer is None else {}


def read_json(text: bytes) -> Any:
    """Return the decoded JSON of an answer, of any type: an empty dict for an empty answer, None for invalid JSON."""
    try:
        answer = json.loads(text) if text else {}
        return _without_halves(answer) if _HALF_CHARACTER.search(text) else answer
    except (ValueError, RecursionError):
        return None


def _without_halves(value: Any) -> Any:
    """Return the value with each half surrogate pair replaced. Such a half is valid in JSON, but not in UTF-8."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, list):
        return [_without_halves(item) for item in value]
    if isinstance(value, dict):
        return {_without_halves(key): _without_halves(item) for key, item in value.items()}
    return value
