"""Output of the command line: lines, tables, JSON, files, errors and exit codes.

Use these functions for every text from a cluster, a stack or a file: they remove or escape control characters.
"""

import json
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from evenkeel.domain.model.values import printable, quote

CANNOT_READ, BAD_INPUT, INVALID_POOL, IN_TROUBLE, NOT_READY, INTERRUPTED = 1, 2, 3, 4, 5, 130
_BEYOND_ASCII = re.compile(r"[^\n -~]")
# Widths in columns. A console narrower than the first gets the second. Many containers and CI runs report 0 columns.
_NARROWEST, _USUAL = 10, 80


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


class CommandError(Exception):
    """A failure of a command: one text per fault, and the exit code."""

    def __init__(self, faults: Sequence[str], code: int = BAD_INPUT) -> None:
        super().__init__(*faults)
        self.faults, self.code = [*faults], code


class Interrupted(SystemExit):
    """An interrupt whose message is already printed."""


def terminal() -> Console:
    """Return a console for standard output, 80 columns wide if the reported width is implausible."""
    console = Console()
    return console if console.width >= _NARROWEST else Console(width=_USUAL)


def cell(text: str, style: str = "") -> Text:
    """Return a text for a table, or for a line of a console."""
    return Text(printable(text), style=style)


def table(title: str, *, frames: bool) -> Table:
    """Return an empty table. Without ``frames``, the columns have more space for long names."""
    plain: dict[str, Any] = {} if frames else {"box": None, "padding": (0, 1, 0, 0), "pad_edge": False}
    return Table(title=cell(title), title_justify="left", **plain)


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


def fail(faults: Sequence[str], code: int = BAD_INPUT) -> NoReturn:
    """Exit with the code, after a line per fault or a document. Raises CommandError, which ``main`` prints."""
    raise CommandError(faults, code)


def error_document(faults: Iterable[str], code: int) -> dict[str, Any]:
    """Return what ``-o json`` prints for a failure."""
    return {"error": {"code": code, "messages": [printable(fault) for fault in faults]}}


def fail_without_clusters(selector: str | None, clusters: object) -> None:
    """Exit if a selector matches no cluster, so that a typing error does not look like success."""
    if selector is not None and not clusters:
        fail([f"selector is {quote(selector)}: no registered cluster has such labels"])


def confirm(question: str, *, yes: bool) -> None:
    """Exit unless the user agrees, by ``--yes`` or at the prompt."""
    if yes:
        return
    try:
        agreed = typer.confirm(f"{question}. Go on?", err=True)
    except typer.Abort:
        say("", err=True)  # ends the line of the prompt
        fail([f"{question}: not confirmed, nothing is done: say --yes"])
    if not agreed:
        fail(["nothing is done"])
