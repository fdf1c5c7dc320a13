"""Read inputs of the command line: files, times and requests for nodes. Each fault is a line of a ConfigError."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evenkeel.adapters.documents import UnreadableError, read_document, read_documents
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.values import BadValueError, quote, read_count
from evenkeel.validation import ConfigError

_NAMESPACE = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def default_stack() -> str | None:
    """Return the stack of the environment, for commands that also work without a stack; None: it names none."""
    return os.environ.get("EVENKEEL_STACK") or None


def file_name(name: str) -> str:
    """Return a file's name for error messages; for ``-``, "standard input"."""
    return "standard input" if name == "-" else name


def documents_of(files: Sequence[tuple[str, str]], faults: list[str]) -> Iterator[tuple[str, int, Any]]:
    """Yield each document of files, given as (name, text), with file and number. Add a fault per unreadable file."""
    for file, text in files:
        try:
            documents = read_documents(text)
        except UnreadableError as error:
            faults.append(f"{file}: {error}")
            continue
        yield from ((file, number, document) for number, document in enumerate(documents, 1))


def refuse_empty(name: str) -> None:
    """Raise ConfigError for an empty file name: an unset variable in a script must not select the working folder."""
    if not name:
        raise ConfigError(["a file is '': name it, or - for standard input"])


def refuse_two_standard_inputs(*names: str | None) -> None:
    """Raise ConfigError if several of these files are standard input."""
    if names.count("-") > 1:
        raise ConfigError(["standard input is named more than once: it can be read only once"])


def read_text(name: str) -> str:
    """Return a file's text; ``-`` is standard input. Raises ConfigError."""
    refuse_empty(name)
    try:
        if name == "-":
            return "" if sys.stdin is None else sys.stdin.read()  # None: it is closed
        return Path(name).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError([f"{file_name(name)}: cannot be read: {error.strerror or error}"]) from None
    except UnicodeDecodeError:
        raise ConfigError([f"{file_name(name)}: not UTF-8 text"]) from None
    except ValueError as error:  # the name contains a zero byte
        raise ConfigError([f"{file_name(name)}: cannot be read: {error}"]) from None


def read_yaml(name: str) -> object:
    """Return the document of a YAML file; an empty file is an empty object. Raises ConfigError."""
    try:
        document = read_document(read_text(name), once=True)
    except UnreadableError as error:
        raise ConfigError([f"{file_name(name)}: {error}"]) from None
    return {} if document is None else document


def read_namespaces(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names given with ``--namespace``. Raises ConfigError for names that no namespace can have."""
    advice = "write lowercase letters, digits and -, or leave the option out for all namespaces"
    if faults := [f"--namespace is {quote(name)}: {advice}" for name in names if not _NAMESPACE.fullmatch(name)]:
        raise ConfigError(faults)
    return tuple(names)


def read_moment(text: str | None) -> datetime:
    """Return the time of ``--now``; for None, the current time. Raises ConfigError."""
    if text is None:
        return datetime.now(UTC)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError([f"--now is {quote(text)}: write RFC 3339, such as 2026-01-31T12:00:00Z"]) from None
    if moment.tzinfo is None:
        raise ConfigError([f"--now is {quote(text)}: it has no time zone; end it with Z or an offset"])
    if not 2000 <= moment.year < 2200:
        raise ConfigError([f"--now is {quote(text)}: choose a moment from 2000 to 2199"])
    return moment.astimezone(UTC)


def read_growths(option: str, texts: list[str], sign: int, now: datetime) -> list[ScaleRequest]:
    """Return scale requests from texts such as ``pool=K`` or ``pool=K,only=group,group``. Raises ConfigError.

    ``sign``: 1 to add nodes, -1 to remove nodes.
    """
    requests = []
    for number, text in enumerate(texts, 1):
        pair, comma, rest = text.partition(",")
        pool, _, nodes = pair.rpartition("=")
        only = [name.removeprefix("only=") for name in rest.split(",")] if comma else []
        if not pool or (comma and not rest.startswith("only=")) or not all(only):
            raise ConfigError([f"{option} is {quote(text)}: write pool=K, or pool=K,only=group,group"])
        try:
            count = read_count(nodes)
        except BadValueError as error:
            raise ConfigError([f"{option} is {quote(text)}: K is {quote(nodes)}: {error}"]) from None
        if not count:
            raise ConfigError([f"{option} is {quote(text)}: K is 0: ask for one node or more"])
        id = f"{option}-{number}" if len(texts) > 1 else option
        requests.append(ScaleRequest(id=id, nodes=sign * count, at=now, pool=pool, only=frozenset(only)))
    return requests
