"""What every command reads and how it fails: files, moments, one line per fault."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import typer

from evenkeel.adapters.documents import UnreadableError, read_document
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.values import BadValueError, quote, read_count
from evenkeel.validation import ConfigError
from evenkeel_cli.terminal import say

CANNOT_READ, BAD_INPUT, INVALID_POOL, IN_TROUBLE, NOT_READY, INTERRUPTED = 1, 2, 3, 4, 5, 130


class Interrupted(SystemExit):
    """Leaves as an interrupt does, of which more was told than that."""


def fail(faults: list[str], code: int = BAD_INPUT) -> NoReturn:
    """One line per fault on standard error, and the exit code."""
    for fault in faults:
        say(f"evenkeel: {' '.join(fault.split())}", err=True)
    raise typer.Exit(code)


def refuse_nobody(selector: str) -> NoReturn:
    """A slip in a selector must not look as if all were well."""
    fail([f"selector is {quote(selector)}: no registered cluster has such labels"])


def hint(old: str, new: str) -> None:
    """Says that a command was given in a form that it had once, and what to write from now on."""
    say(f"evenkeel: {old} is an old form, and still understood: write {new}", err=True)


def called(name: str) -> str:
    """What faults call a file: who only sees ``-`` does not think of the command before the pipe."""
    return "standard input" if name == "-" else name


def refuse_empty(name: str) -> None:
    """A variable of a script that is not set must not mean the folder one stands in. Raises ConfigError."""
    if not name:
        raise ConfigError(["a file is '': name it, or - for standard input"])


def read_text(name: str) -> str:
    """A file's text; ``-`` is standard input. Raises ConfigError."""
    refuse_empty(name)
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError([f"{called(name)}: cannot be read: {error.strerror or error}"]) from None
    except UnicodeDecodeError:
        raise ConfigError([f"{called(name)}: not UTF-8 text"]) from None
    except ValueError as error:  # a name with a zero byte in it, as an include may have
        raise ConfigError([f"{called(name)}: cannot be read: {error}"]) from None


def read_yaml(name: str) -> object:
    """A YAML file; an empty one is an empty object. Raises ConfigError."""
    try:
        document = read_document(read_text(name), once=True)
    except UnreadableError as error:
        raise ConfigError([f"{called(name)}: {error}"]) from None
    return {} if document is None else document


def read_moment(text: str | None) -> datetime:
    """``--now``, or the real time where it is left out. Raises ConfigError."""
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
    """``pool=K`` or ``pool=K,only=group,group``, each a request of its own. Raises ConfigError."""
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
