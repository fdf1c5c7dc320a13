"""The operator function's answers for people: tables where there are pools, else the message."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from itertools import chain
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evenkeel.application.plan_documents import DecisionDocument, read_decisions
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.outcomes import Result
from evenkeel.domain.model.values import printable
from evenkeel.texts.english import ago, counted, rfc3339
from evenkeel_cli.answers import STYLES, span
from evenkeel_cli.terminal import cell, terminal

_Json = Mapping[str, Any]
_WIDE = 100  # columns of a terminal
_OUTCOMES: Mapping[str, str] = {Result.WRITTEN: "changed", Result.PLANNED: "would change"}


class Output(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"


def print_answer(answer: _Json, console: Console | None = None) -> None:
    """An answer of any action; of all clusters, one after the other."""
    console = console or terminal()
    action = answer["action"]
    if "counts" in answer:
        _overview(console, answer)
        return
    if action == "history":
        _history(console, answer.get("clusters", [answer]))
        return
    answers, groups = answer.get("clusters", [answer]), alike(answer.get("clusters", ()))
    for line in groups.values():
        _line(console, line)
    for of_cluster in answers:
        if of_cluster.get("alike") in groups:
            continue
        _line(console, of_cluster["message"] if action != "explain" else "")
        match action if of_cluster.get("ok") else "":
            case "status":
                _status(console, of_cluster)
            case "plan":
                _plan(console, of_cluster["plan"])
            case "explain":
                of_groups = chain.from_iterable(of_cluster["groups"].values())
                for sentence in (*of_cluster["sentences"], *of_groups, *of_cluster["history"]):
                    _line(console, sentence)
            case "validate":
                _findings(console, of_cluster)


def alike(answers: Iterable[_Json]) -> dict[str, str]:
    """What several clusters have in common, told once with their names. What only one says is not among it."""
    names: dict[str, list[str]] = {}
    for answer in answers:
        if answer.get("ok") and (said := answer.get("alike")):
            names.setdefault(said, []).append(answer["cluster"])
    return {said: f"{said}: {', '.join(found)}" for said, found in names.items() if len(found) > 1}


def _overview(console: Console, answer: _Json) -> None:
    """A line for each cluster in trouble, the worst first, and one for all the rest; none wider than the terminal."""
    is_failing = [found for found in answer["clusters"] if found["state"] == "incident"]
    width = max((len(printable(found["cluster"])) for found in is_failing), default=0)
    width = min(width, console.width // 3)
    for found in is_failing:
        line = cell(found["cluster"], "bold red")
        line.truncate(width, overflow="ellipsis", pad=True)
        line.append(f"  {printable(found['message'])}", style="not bold default")
        line.truncate(console.width, overflow="ellipsis")
        console.print(line, no_wrap=True)
    counts, rest = answer["counts"], answer["counts"]["clusters"] - len(is_failing)
    states = {"well": "well", "paused": "paused", "unseen": "not looked at yet"}
    of_rest = [f"{counts[state]} {words}" for state, words in states.items() if counts[state]]
    dry = f"; {counts['dryRun']} of {counts['clusters']} in dry run" if counts["dryRun"] else ""
    if not counts["clusters"]:
        _line(console, "no cluster is registered")
        return
    whose = "other" if is_failing else "cluster"
    _line(console, f"{counted(rest, whose)}: {', '.join(of_rest)}{dry}" if rest else f"no others{dry}")


def _status(console: Console, answer: _Json) -> None:
    now = datetime.fromisoformat(answer["now"])
    for pool in answer["pools"]:
        _pool(console, pool, now=now)
    _say(console, answer, "demand")
    for decision in read_decisions(answer["decisions"], "status"):
        age = ago(now - decision.at)
        changes = "; ".join(_came_of(decision)) or "nothing changed"
        _line(console, f"{rfc3339(decision.at)} ({age}) {decision.pool.name}: {changes} ({decision.cause})", "dim")
    for action in answer["actions"]:
        age, asker = ago(now - datetime.fromisoformat(action["at"])), action["by"] or "nobody named"
        asker += f" ({action['reason']})" if action.get("reason") else ""
        _line(console, f"{action['at']} ({age}) {action['cause']} by {asker}: {action['what']}", "dim")


def _history(console: Console, answers: Iterable[_Json]) -> None:
    """Of all clusters in one order; of those without an answer why."""
    entries = [entry for answer in answers for entry in answer.get("actions", ())]
    for entry in sorted(entries, key=lambda entry: str(entry["id"])):
        why = f" ({entry['reason']})" if entry.get("reason") else ""
        asker = entry["by"] or "nobody named"
        _line(console, f"{entry['at']} {entry['cluster']} {entry['cause']} by {asker}{why}: {entry['what']}")
    for answer in answers:
        if not answer.get("ok"):
            _line(console, answer["message"], "red")
    if not entries:
        _line(console, "nobody did anything")


def _came_of(decision: DecisionDocument) -> Iterator[str]:
    """What a decision did: to which groups, and what stopped it."""
    names: dict[str, list[str]] = {}
    for group in decision.pool.groups:
        if not group.is_left_alone:
            outcome = _OUTCOMES.get(group.result or "", group.outcome or "")
            names.setdefault(outcome, []).append(group.name)
    for change in decision.mended or ():
        outcome = _OUTCOMES.get(change.result or "", change.outcome)
        names.setdefault(outcome, []).append(f"PoolMaximum of {change.object}")
    for outcome, changed in names.items():
        yield f"{', '.join(changed)} {outcome}"


def _plan(console: Console, plan: _Json) -> None:
    for pool in plan["pools"]:
        _pool(console, pool, reasons=True)
    _say(console, plan, "demand")
    for skipped in plan["skipped"]:
        _line(console, f"skipped {skipped['namespace']}/{skipped['name']}: {skipped['reason']}", "dim")


def _pool(console: Console, pool: _Json, *, now: datetime | None = None, reasons: bool = False) -> None:
    """A pool as it is planned; with ``now`` also what runs, and how long each state has lasted."""
    numbers = f"min {_shown(pool['min'])}, max {_shown(pool['max'])}"
    table = Table(title=cell(f"{pool['name']}: {pool['strategy']}, {numbers}"), title_justify="left")
    if console.width < _WIDE:  # frames would take the room of names, of which the end says most
        table.box, table.padding, table.pad_edge = None, (0, 1, 0, 0), False
    counts = (*(("running",) if now else ()), "requested", "min", "max")
    for heading in ("zone", "node group", "state", *(("since",) if now else ()), *counts):
        table.add_column(heading, justify="right" if heading in counts else "left", overflow="fold")
    for group in pool["groups"]:
        table.add_row(
            cell(group["zone"] or "?"),
            cell(f"{group['namespace']}/{group['name']}"),
            Text(group["state"], style=STYLES[State(group["state"])]),
            *([Text(_age(group["since"], now)), Text(str(group["running"]))] if now else []),
            *(span(group[name]["from"], group[name]["to"]) for name in ("requested", "min", "max")),
        )
    console.print(table)
    for name, origin in (pool.get("numbersFrom") or {}).items():
        if origin is not None:
            _line(console, f"  {name} {_shown(pool[name])}: {origin['says']}")
    for note in pool.get("notes", ()):
        _line(console, f"  note: {note}")
    for group in pool["groups"]:
        for sentence in group["reasons"] if reasons else group.get("held", []):
            _line(console, f"  {group['zone'] or '?'}: {sentence}")
        if (failure := group.get("failure")) and failure["message"] and group["state"] != State.HEALTHY:
            _line(console, f"  {group['zone'] or '?'}: the cloud says: {failure['message']}")
    _say(console, pool, "level", "  ")
    _say(console, pool, "demand", "  ")
    for problem in pool["problems"]:
        _line(console, f"{'!' if pool['valid'] else 'invalid:'} {problem}", "yellow" if pool["valid"] else "red")


def _say(console: Console, said: _Json, name: str, indent: str = "") -> None:
    """What pods say of a pool or of a cluster, where they were read; what converge makes of a pool."""
    for sentence in (said.get(name) or {}).get("says", ()):
        _line(console, f"{indent}{sentence}")


def _findings(console: Console, answer: _Json) -> None:
    for pool in answer["pools"]:
        for problem in pool["problems"]:
            _line(console, f"invalid: {pool['id']}: {problem}", "red")
        for warning in pool["warnings"]:
            _line(console, f"! {pool['id']}: {warning}", "yellow")
        if pool["left"]:
            _line(console, f"  not proposed: {pool['left']}")
    for line in answer["diff"]:
        _line(console, line, {"+": "green", "-": "red"}.get(line[0], ""))
    for command in answer.get("commands", ()):
        _line(console, command)


def _line(console: Console, text: str, style: str = "") -> None:
    if text:
        console.print(cell(text, style), soft_wrap=True)


def _age(since: str | None, now: datetime) -> str:
    return "" if since is None else ago(now - datetime.fromisoformat(since))


def _shown(number: int | None) -> str:
    return "?" if number is None else str(number)
