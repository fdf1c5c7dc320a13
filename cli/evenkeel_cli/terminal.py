"""What reaches a terminal. Whatever comes from a cluster, a stack or a file passes one of these three."""

import json
import re
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from evenkeel.domain.model.values import printable

_BEYOND_ASCII = re.compile(r"[^\n -~]")


# A terminal that says it is narrower says nothing about itself: 0 in many containers and CI runs.
_NARROWEST = 10
_USUAL = 80


def terminal() -> Console:
    """Standard output, as wide as it says it is."""
    console = Console()
    return console if console.width >= _NARROWEST else Console(width=_USUAL)


def cell(text: str, style: str = "") -> Text:
    """A text in a table, or a line of its own."""
    return Text(printable(text), style=style)


def say(text: str, *, err: bool = False) -> None:
    """One line."""
    typer.echo(printable(text), err=err)


def say_json(value: Any, indent: int | None = None) -> None:
    """JSON, in which characters that a terminal would obey are written as JSON writes them."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    typer.echo(_BEYOND_ASCII.sub(_as_json, text))


def _as_json(match: re.Match[str]) -> str:
    character = match[0]
    return character if character.isprintable() else json.dumps(character)[1:-1]
