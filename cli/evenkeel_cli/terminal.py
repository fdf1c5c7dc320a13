"""Output of the command line: lines, JSON, files, errors and exit codes.

Use these functions, and those of ``console``, for every text from a cluster, a stack or a file: they remove or escape
control characters. Help and completion import this module, so it does not import rich.
"""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, NoReturn

import typer

from evenkeel.domain.model.values import printable, quote

CANNOT_READ, BAD_INPUT, INVALID_POOL, IN_TROUBLE, NOT_READY, INTERRUPTED = 1, 2, 3, 4, 5, 130
_BEYOND_ASCII = re.compile(r"[^\n -~]")


class Output(StrEnum):
    """The output format of an answer."""

    TABLE = "table"
    WIDE = "wide"
    NAME = "name"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_document(self) -> bool:
        """Return True if the answer is one document for programs."""
        return self in (Output.JSON, Output.YAML)

    @property
    def is_piped(self) -> bool:
        """Return True if the answer is for programs, so that everything else goes to standard error."""
        return self.is_document or self is Output.NAME


class LookbackForm(StrEnum):
    """The output format of `evenkeel lookback`."""

    TABLE = "table"
    JSON = "json"
    SCENARIO = "scenario"


class CommandError(Exception):
    """A failure of a command: one text per fault, the exit code, and a heading with lines to paste."""

    def __init__(self, faults: Sequence[str], code: int = BAD_INPUT, proposed: Sequence[str] = ()) -> None:
        super().__init__(*faults)
        self.faults, self.code, self.proposed = [*faults], code, [*proposed]


def say(text: str, *, err: bool = False) -> None:
    """Print one line."""
    typer.echo(printable(text), err=err)


def say_lines(text: str) -> None:
    """Print a text line by line."""
    for line in text.splitlines():
        say(line)


def say_json(value: Any, indent: int | None = None) -> None:
    """Print JSON. Characters that could control a terminal become JSON escapes."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    typer.echo(_BEYOND_ASCII.sub(_as_json, text))


def say_document(value: Any, form: Output) -> None:
    """Print a value as JSON or YAML."""
    if form is not Output.YAML:
        say_json(value, indent=2)
        return
    import yaml  # slow, and few commands print it

    say_lines(yaml.safe_dump(json.loads(json.dumps(value)), sort_keys=False, allow_unicode=False, width=100))


def _as_json(match: re.Match[str]) -> str:
    character = match[0]
    return character if character.isprintable() else json.dumps(character)[1:-1]


def write_text(name: str, text: str) -> None:
    """Write a file. Raises CommandError."""
    try:
        # JSON may contain half a surrogate pair, which UTF-8 cannot encode. A question mark replaces it.
        with open(name, "w", encoding="utf-8", errors="replace") as target:  # noqa: PTH123 (the name exactly as given)
            target.write(text)
    except OSError as error:
        raise CommandError([f"{name}: cannot be written: {error.strerror or error}"]) from None


def fail(faults: Sequence[str], code: int = BAD_INPUT, proposed: Sequence[str] = ()) -> NoReturn:
    """Exit with the code, after a line per fault and the proposed lines, or a document.

    Raises CommandError, which ``main`` prints.
    """
    raise CommandError(faults, code, proposed)


def error_document(faults: Iterable[str], code: int) -> dict[str, Any]:
    """Return what ``-o json`` prints for a failure."""
    return {"error": {"code": code, "messages": [printable(fault) for fault in faults]}}


def fail_without_clusters(selector: str | None, clusters: object) -> None:
    """Exit if a selector matches no cluster, so that a typing error does not look like success."""
    if selector is not None and not clusters:
        fail([f"selector is {quote(selector)}: no registered cluster has such labels"])


def has_terminal() -> bool:
    """Return True if the user can answer a question."""
    return sys.stdin is not None and sys.stdin.isatty()  # None: it is closed


def confirm(question: str, *, yes: bool) -> None:
    """Exit unless the user agrees, by ``--yes`` or at the prompt."""
    if yes:
        return
    if not has_terminal():
        fail([f"{question}: not confirmed, nothing is done: say --yes"])
    try:
        agreed = typer.confirm(f"{question}. Go on?", err=True)
    except typer.Abort as end:
        agreed = False
        say("", err=True)  # ends the line of the prompt
        if isinstance(end.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
    if not agreed:
        fail(["nothing is done"])
