"""No text controls a terminal or a page, and JSON stays the same JSON."""

import json
import re
import unicodedata
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from evenkeel.adapters.page.render import Theme, incident
from evenkeel.application.rebalancing.decisions import plan_json
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.values import printable
from evenkeel.domain.plan import plan
from evenkeel_cli.answers import print_answer
from evenkeel_cli.console import Table, cell, print_line, print_table
from evenkeel_cli.main import _print_failure
from evenkeel_cli.plan_tables import print_plan
from evenkeel_cli.terminal import CommandError, Output, say, say_json
from tests.builders import NOW, group, key, numbers
from tests.stack import Stack

ORDERS = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x1b]8;;https://x\x1b\\link",
    "\x1b[2J\x1b[H",
    "\x9b31m",
    "\x9d0;t\x9c",
    "\x07\x08\x0b\x0c\x0e",
    "\x00",
    "\x7f",
    "\x85",
    "\r\nevenkeel: all is well",
    "\u202eevil\u202c",
    "\u2066\u2069\u200e\u061c",
    "\u2028\u2029",
    "\ufeff\u200b",
    "\ud800",
    "[/bold]",
    "[link=https://x]",
]
EVIL = st.lists(st.sampled_from(ORDERS) | st.text(max_size=6) | st.characters(categories=["Cc", "Cf"])).map("".join)
#: read by the code, not only shown
MEANT = {"action", "state", "at", "now", "since", "until", "outcome", "cause"}


def obeyed(text: str) -> set[str]:
    """Return the characters that control a terminal, or that it cannot show."""
    return {one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")}


@given(EVIL)
def test_a_text_becomes_one_line_without_control_characters(text: str) -> None:
    quote = printable(text)
    assert obeyed(quote) == set()
    assert printable(quote) == quote
    assert obeyed(incident(text, Theme.LIGHT).partition("</style>")[2]) == set()


@given(st.text(st.characters(categories=["L", "N", "P", "S"], include_characters=" ")))
def test_a_text_without_control_characters_is_unchanged(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        ("\x1b[31mred\x1b[0m alert", "red alert"),
        ("\x1b]0;mine", "]0;mine"),
        ("name\x9b/zone: is fenced", "name/zone: is fenced"),
        ("no capacity\nin zone a\ttoday", "no capacity in zone a today"),
        ("a\u202eb", "ab"),
        ("wor\ud800kers", "wor?kers"),
        ("grün 有 ✓ →", "grün 有 ✓ →"),
    ],
)
def test_the_rest_of_a_text_is_readable(text: str, quote: str) -> None:
    assert printable(text) == quote


def spoilt(value: Any, evil: str, field: str = "") -> Any:
    """Return an answer with this text at the end of each of its texts."""
    if isinstance(value, dict):
        return {key if field != "groups" else key + evil: spoilt(one, evil, key) for key, one in value.items()}
    if isinstance(value, list):
        return [spoilt(one, evil) if isinstance(one, dict) else spoilt(one, evil, field) for one in value]
    return value + evil if isinstance(value, str) and field not in MEANT else value


@pytest.fixture(scope="module")
def answers() -> list[dict[str, Any]]:
    stack = Stack()
    stack.settle()
    asked = [stack.ask(action) for action in ("status", "plan", "validate")]
    return [*asked, stack.ask("explain", pool="workers"), stack.ask("status", "*"), stack.ask("pause")]


@given(EVIL, st.integers(40, 200))
def test_no_answer_of_a_stack_controls_a_terminal(answers: list[dict[str, Any]], evil: str, width: int) -> None:
    for answer in answers:
        quote = StringIO()
        print_answer(spoilt(answer, evil), Console(file=quote, width=width))
        assert obeyed(quote.getvalue()) <= {"\n"}


@given(EVIL)
def test_no_plan_controls_a_terminal(evil: str) -> None:
    groups = [group("a", 4), group(f"b{evil}", 1), group("c", pool=None, key=key("c", pool=f"p{evil}"))]
    planned = plan(Observation(groups=tuple(groups)), ClusterState(), numbers(3, 12), NOW)
    quote = StringIO()
    names = [str(pool.id) for pool in planned.pools]
    print_plan(Console(file=quote, width=120), plan_json(planned), names, evil)
    assert obeyed(quote.getvalue()) <= {"\n"}


@given(EVIL)
def test_no_fault_controls_a_terminal_and_each_is_one_line(evil: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        reported: list[str] = []
        patched.setattr(typer, "echo", lambda text, err=False: reported.append(text))
        for form in (Output.TABLE, Output.JSON):
            _print_failure(CommandError([f"field is {evil}", "another"]), form)
        say(evil)
    assert len(reported) == 4
    assert obeyed("".join(reported)) <= {"\n"}


@given(st.recursive(EVIL, lambda inner: st.lists(inner) | st.dictionaries(EVIL, inner), max_leaves=5))
def test_json_is_the_same_json_and_controls_nothing(value: object) -> None:
    with pytest.MonkeyPatch.context() as patched:
        reported: list[str] = []
        patched.setattr(typer, "echo", reported.append)
        say_json(value, indent=2)
    assert json.loads(reported[0]) == value or "\\ud800" in reported[0]
    assert obeyed(reported[0]) <= {"\n"}


def _sources() -> Iterator[tuple[str, str]]:
    for file in Path("cli/evenkeel_cli").rglob("*.py"):
        if file.name != "terminal.py":
            yield file.name, file.read_text(encoding="utf-8")


def test_commands_write_to_the_terminal_only_by_those_functions() -> None:
    for name, source in _sources():
        for call in re.findall(r"(?:typer|click)\.s?echo\(.*", source):
            assert call == "typer.echo(history)", f"{name}: {call}"  # JSON in ASCII, by json.dumps


def test_lines_wrap_at_words_on_a_terminal_and_stay_whole_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    text = " ".join(f"word-{number}" for number in range(40))
    for is_terminal in (True, False):
        quote = StringIO()
        print_line(Console(file=quote, width=80, force_terminal=is_terminal, no_color=True), cell(text))
        lines = quote.getvalue().splitlines()
        assert (len(lines) > 1) is is_terminal
        assert [word for line in lines for word in line.split()] == text.split()
        assert not is_terminal or max(map(len, lines)) <= 80


def test_a_table_of_80_columns_cuts_no_word_while_another_column_can_wrap() -> None:
    row = ("eu-central-1a", "prod/workers-of-eu-1a", "probing", "7 minutes ago", "2", "14 → 13", "100", "104 → 103")
    headings = ("zone", "node group", "state", "since", "running", "requested", "min", "max")
    rows, quote = Table(headings), StringIO()
    rows.add_row(*map(cell, row))
    print_table(Console(file=quote, width=80), rows)
    lines = quote.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) > 2
    assert sorted(" ".join(lines[1:]).split()) == sorted(" ".join(row).split())


def printed(width: int, headings: tuple[str, ...], *row: str) -> list[str]:
    table, out = Table(headings), StringIO()
    table.add_row(*map(cell, row))
    print_table(Console(file=out, width=width), table)
    return out.getvalue().splitlines()


def test_headings_and_plain_cells_of_a_table_do_not_control_the_terminal() -> None:
    table, out = Table(["\x1b[31mzone\n"]), StringIO()
    table.add_row("a\x1b[2J")
    print_table(Console(file=out, width=20), table)
    assert out.getvalue().split() == ["zone", "a"]


def test_a_table_as_wide_as_the_terminal_does_not_wrap() -> None:
    assert printed(13, ("zone", "max"), "eu-west-1", "100") == ["zone      max", "eu-west-1 100"]


def test_of_two_columns_with_long_words_the_longer_is_cut() -> None:
    lines = printed(20, ("zone", "node group"), "eu-west-1", "x" * 30)
    assert lines == ["zone      node group", *(f"{zone} {'x' * 10}" for zone in ("eu-west-1", " " * 9, " " * 9))]
    assert printed(20, ("zone", "name"), "z" * 10, "x" * 30)[1] == f"{'z' * 10} {'x' * 9}"


def test_a_narrow_table_keeps_wide_characters() -> None:
    lines = printed(10, tuple("abcdefg"), *["漢字" * 2] * 7)
    assert "".join(lines).count("漢") == "".join(lines).count("字") == 14


def test_a_line_of_the_overview_is_cut_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    message = " ".join(f"word-{number}" for number in range(40))
    counts = {"clusters": 1, "well": 0, "paused": 0, "unseen": 0, "incident": 1, "dryRun": 0}
    cluster = {"cluster": "blue", "state": "incident", "severity": "critical", "message": message}
    quote = StringIO()
    answer = {"action": "status", "counts": counts, "clusters": [cluster], "others": {}}
    print_answer(answer, Console(file=quote, width=80))
    first = quote.getvalue().splitlines()[0].rstrip()
    assert len(first) <= 80
    assert first.endswith(" …")
    assert set(first.split()[2:-1]) <= set(message.split())
