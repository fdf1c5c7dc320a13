"""Print the pools of plans as tables, each with the reasons for its numbers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from rich.console import Console
from rich.text import Text

from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import PROVISION_TIMEOUT, State
from evenkeel.domain.model.reasons import Rule
from evenkeel_cli.console import Table, print_line, print_table

_Json = Mapping[str, Any]
_STYLES = {
    State.HEALTHY: "green",
    State.FENCED: "red",
    State.PROBING: "yellow",
    State.UNHEALTHY: "red",
    State.FROZEN: "blue",
}
NUMBERS = ("running", "requested", "min", "max")


def print_plan(console: Console, plan: _Json, ids: Iterable[str], message: str) -> None:
    """Print the pools, then skipped objects and the message."""
    print_pools(console, plan["pools"], ids)
    print_advice(console, plan, "demand")
    for skipped in plan["skipped"]:
        name = "/".join(filter(None, (skipped["namespace"], skipped["name"] or "(no name)")))  # a kind has no namespace
        print_text(console, f"skipped {name}: {skipped['reason']}", "dim")
    print_text(console, message)


def print_pools(console: Console, pools: Iterable[_Json], ids: Iterable[str]) -> None:
    """Print a table for each pool under its id, then reasons."""
    for pool, name in zip(pools, ids, strict=True):
        print_pool(console, pool, name, {"running": [str(group["running"]) for group in pool["groups"]]})
        for note in pool.get("notes", ()):
            print_text(console, f"  note: {note}")
        for text in timeouts(pool):
            print_text(console, f"  {text}")
        for group in pool["groups"]:
            print_text(console, f"  {group['zone'] or '?'}: {'; '.join(group['reasons'])}")
        print_problems(console, pool)


def print_pool(console: Console, pool: _Json, name: str, columns: Mapping[str, Sequence[str]]) -> None:
    """Print a pool with these columns before its numbers, and the origins of PoolMinimum and PoolMaximum."""
    numbers = f"min {number_text(pool['min'])}, max {number_text(pool['max'])}"
    print_text(console, f"{name}: {pool['strategy']}, {numbers}{_as_if(pool.get('asIf') or {})}", "italic")
    rows = Table(("zone", "node group", "state", *columns, "requested", "min", "max"), right=NUMBERS)
    names = [*group_names([pool])]
    for number, group in enumerate(pool["groups"]):
        rows.add_row(
            group["zone"] or "?",
            names[number],
            Text(group["state"], style=_STYLES[State(group["state"])]),
            *(texts[number] for texts in columns.values()),
            *(_change(group[name]["from"], group[name]["to"]) for name in ("requested", "min", "max")),
        )
    print_table(console, rows)
    # If PoolMinimum is larger by the clock, a note says so. The origin is that of the number without the clock.
    without = next((note["without"] for note in pool.get("noteRules", ()) if "without" in note), pool["min"])
    for name, origin in (pool.get("numbersFrom") or {}).items():
        if origin is not None:
            print_text(console, f"  {name} {number_text(without if name == 'min' else pool[name])}: {origin['says']}")


def _as_if(change: _Json) -> str:
    """Return what a pool's plan takes for done; empty: nothing."""
    if group := change.get("splitByZone"):
        return f", as if {group} were split by zone"
    tags = " and ".join(f"{key}={value}" for key, value in change.get("tags", {}).items())
    return f", as if its groups had tag {tags}" if tags else ""


def timeouts(pool: _Json) -> list[str]:
    """Return the provision timeouts of a pool, with their reasons; the usual 15 minutes are not mentioned."""
    usual = {"rule": Rule.TIMEOUT_SET.value, "timeout": PROVISION_TIMEOUT.total_seconds(), "machines": 0}
    both = zip(pool.get("timeouts", ()), pool.get("timeoutRules", ()), strict=True)
    return [f"timeout: {text}" for text, facts in both if not usual.items() <= facts.items()]


def print_problems(console: Console, pool: _Json) -> None:
    """Print the advice for a pool, and its problems."""
    print_advice(console, pool, "level", "  ")
    print_advice(console, pool, "demand", "  ")
    for problem in pool["problems"]:
        print_text(console, f"{'!' if pool['valid'] else 'invalid:'} {problem}", "yellow" if pool["valid"] else "red")


def print_advice(console: Console, document: _Json, name: str, indent: str = "") -> None:
    """Print the sentences in the field ``name`` of a pool or a cluster. The name is ``demand`` or ``level``."""
    for text in (document.get(name) or {}).get("says", ()):
        print_text(console, f"{indent}{text}")


def group_names(pools: Iterable[_Json]) -> Iterator[str]:
    """Yield the namespace and name of each node group; of an Auto Scaling group only the name."""
    for group in chain.from_iterable(pool.get("groups", ()) for pool in pools):
        is_of_aws = group["flavour"] == AUTO_SCALING
        yield group["name"] if is_of_aws else f"{group['namespace']}/{group['name']}"


def print_text(console: Console, text: str, style: str = "") -> None:
    """Print a text as a line, if there is one."""
    if text:
        print_line(console, text, style)


def number_text(number: int | None) -> str:
    """Return a bound of a pool as text."""
    return "?" if number is None else str(number)


def _change(before: int | None, after: int | None) -> str | Text:
    if before == after:
        return "-" if after is None else str(after)
    return Text(f"{'-' if before is None else before} → {'-' if after is None else after}", style="bold")
