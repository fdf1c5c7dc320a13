"""Print plans and the answers of a stack. Pools are printed as tables, other answers as their messages."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from rich.console import Console
from rich.text import Text

from evenkeel.application.plan_documents import DecisionDocument, read_decisions
from evenkeel.application.rebalancing.decisions import plan_json
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.outcomes import Result
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.values import printable
from evenkeel.texts.english import ago, counted, rfc3339
from evenkeel_cli.terminal import cell, table, terminal

_Json = Mapping[str, Any]
_WIDE = 100  # the width of a console, in columns, from which tables have frames
_STYLES = {State.HEALTHY: "green", State.FENCED: "red", State.PROBING: "yellow", State.FROZEN: "blue"}
_NUMBERS = ("running", "requested", "min", "max")
_OUTCOMES: Mapping[str, str] = {Result.WRITTEN: "changed", Result.PLANNED: "would change"}


def print_answer(answer: _Json, console: Console | None = None) -> None:
    """Print the answer of any action, one cluster after the other."""
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
                plan = of_cluster["plan"]
                for pool in plan["pools"]:
                    _pool(console, pool, reasons=True)
                _summary(console, plan, "demand")
                _skipped(console, plan)
            case "explain":
                of_groups = chain.from_iterable(of_cluster["groups"].values())
                for sentence in (*of_cluster["sentences"], *of_groups, *of_cluster["history"]):
                    _line(console, sentence)
            case "validate":
                _findings(console, of_cluster)


def alike(answers: Iterable[_Json]) -> dict[str, str]:
    """Return one line for each text that several clusters' answers share, by text.

    The line has the text and the names of these clusters.
    """
    names: dict[str, list[str]] = {}
    for answer in answers:
        if answer.get("ok") and (text := answer.get("alike")):
            names.setdefault(text, []).append(answer["cluster"])
    return {text: f"{text}: {', '.join(clusters)}" for text, clusters in names.items() if len(clusters) > 1}


def _overview(console: Console, answer: _Json) -> None:
    """Print one line per cluster with an incident, the worst first, and one line for all others. No line wraps."""
    failing = [cluster for cluster in answer["clusters"] if cluster["state"] == "incident"]
    width = max((len(printable(cluster["cluster"])) for cluster in failing), default=0)
    width = min(width, console.width // 3)
    for cluster in failing:
        line = cell(cluster["cluster"], "bold red")
        line.truncate(width, overflow="ellipsis", pad=True)
        line.append(f"  {printable(cluster['message'])}", style="not bold default")
        line.truncate(console.width, overflow="ellipsis")
        console.print(line, no_wrap=True)
    counts, rest = answer["counts"], answer["counts"]["clusters"] - len(failing)
    states = {"well": "well", "paused": "paused", "unseen": "not checked yet"}
    of_rest = [f"{counts[state]} {words}" for state, words in states.items() if counts[state]]
    dry = f"; {counts['dryRun']} of {counts['clusters']} in dry run" if counts["dryRun"] else ""
    if not counts["clusters"]:
        _line(console, "no cluster is registered")
        return
    whose = "other" if failing else "cluster"
    _line(console, f"{counted(rest, whose)}: {', '.join(of_rest)}{dry}" if rest else f"no others{dry}")


def _status(console: Console, answer: _Json) -> None:
    now = datetime.fromisoformat(answer["now"])
    for pool in answer["pools"]:
        _pool(console, pool, now=now)
    _summary(console, answer, "demand")
    for decision in read_decisions(answer["decisions"], "status"):
        age = ago(now - decision.at)
        changes = "; ".join(_outcomes(decision)) or "nothing changed"
        _line(console, f"{rfc3339(decision.at)} ({age}) {decision.pool.name}: {changes} ({decision.cause})", "dim")
    for action in answer["actions"]:
        age = ago(now - datetime.fromisoformat(action["at"]))
        _line(console, f"{action['at']} ({age}) {_action(action)}", "dim")


def _history(console: Console, answers: Iterable[_Json]) -> None:
    """Print the actions of all clusters in order of time, and the error of each cluster that did not answer."""
    entries = [entry for answer in answers for entry in answer.get("actions", ())]
    for entry in sorted(entries, key=lambda entry: str(entry["id"])):
        _line(console, f"{entry['at']} {entry['cluster']} {_action(entry)}")
    for answer in answers:
        if not answer.get("ok"):
            _line(console, answer["message"], "red")
    if not entries:
        _line(console, "no actions in this time")


def _action(entry: _Json) -> str:
    """Return an operator's action as text, with its caller, reason and effect."""
    reason = f" ({entry['reason']})" if entry.get("reason") else ""
    return f"{entry['cause']} by {entry['by'] or 'an unnamed caller'}{reason}: {entry['what']}"


def _outcomes(decision: DecisionDocument) -> Iterator[str]:
    """Yield a text for each outcome of a decision, with the groups that have this outcome."""
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


def print_plan(plan: Plan, console: Console | None = None) -> None:
    """Print a plan that was made locally: a table for each pool, reasons, skipped objects and a summary."""
    console = console or terminal()
    document = plan_json(plan)
    for planned, pool in zip(plan.pools, document["pools"], strict=True):
        running = [group.group.running for group in planned.groups]
        _table(console, pool, str(planned.id), {"running": [Text(str(number)) for number in running]}, frames=True)
        _numbers_and_notes(console, pool)
        for group in pool["groups"]:
            _line(console, f"  {group['zone'] or '?'}: {'; '.join(group['reasons'])}")
        _summaries_and_problems(console, pool)
    _summary(console, document, "demand")
    _skipped(console, document)
    if not plan.pools:
        console.print("no pools found")
    else:
        console.print(f"{counted(len(plan.pools), 'pool')}, {counted(len(plan.changes), 'node group')} would change")


def _skipped(console: Console, plan: _Json) -> None:
    for skipped in plan["skipped"]:
        name = "/".join(filter(None, (skipped["namespace"], skipped["name"] or "(no name)")))  # a kind has no namespace
        _line(console, f"skipped {name}: {skipped['reason']}", "dim")


def _pool(console: Console, pool: _Json, *, now: datetime | None = None, reasons: bool = False) -> None:
    """Print a pool of an answer. If ``now`` is given, also print running nodes and the age of each group's state."""
    groups = pool["groups"]
    columns = {}
    if now is not None:
        since = [group["since"] and ago(now - datetime.fromisoformat(group["since"])) for group in groups]
        columns["since"] = [Text(age or "") for age in since]
        columns["running"] = [Text(str(group["running"])) for group in groups]
    _table(console, pool, pool["name"], columns, frames=console.width >= _WIDE)
    _numbers_and_notes(console, pool)
    for group in groups:
        for text in group["reasons"] if reasons else group.get("held", []):
            _line(console, f"  {group['zone'] or '?'}: {text}")
        if (failure := group.get("failure")) and failure["message"] and group["state"] != State.HEALTHY:
            _line(console, f"  {group['zone'] or '?'}: the cloud says: {failure['message']}")
    _summaries_and_problems(console, pool)


def _table(console: Console, pool: _Json, name: str, columns: Mapping[str, Sequence[Text]], *, frames: bool) -> None:
    numbers = f"min {_number(pool['min'])}, max {_number(pool['max'])}"
    rows = table(f"{name}: {pool['strategy']}, {numbers}", frames=frames)
    for heading in ("zone", "node group", "state", *columns, "requested", "min", "max"):
        rows.add_column(heading, justify="right" if heading in _NUMBERS else "left", overflow="fold")
    for number, group in enumerate(pool["groups"]):
        rows.add_row(
            cell(group["zone"] or "?"),
            cell(f"{group['namespace']}/{group['name']}"),
            Text(group["state"], style=_STYLES[State(group["state"])]),
            *(texts[number] for texts in columns.values()),
            *(_change(group[name]["from"], group[name]["to"]) for name in ("requested", "min", "max")),
        )
    console.print(rows)


def _numbers_and_notes(console: Console, pool: _Json) -> None:
    for name, origin in (pool.get("numbersFrom") or {}).items():
        if origin is not None:
            _line(console, f"  {name} {_number(pool[name])}: {origin['says']}")
    for note in pool.get("notes", ()):
        _line(console, f"  note: {note}")


def _summaries_and_problems(console: Console, pool: _Json) -> None:
    _summary(console, pool, "level", "  ")
    _summary(console, pool, "demand", "  ")
    for problem in pool["problems"]:
        _line(console, f"{'!' if pool['valid'] else 'invalid:'} {problem}", "yellow" if pool["valid"] else "red")


def _summary(console: Console, document: _Json, name: str, indent: str = "") -> None:
    """Print the sentences in the field ``name`` of a pool or a cluster. The name is ``demand`` or ``level``."""
    for text in (document.get(name) or {}).get("says", ()):
        _line(console, f"{indent}{text}")


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


def _number(number: int | None) -> str:
    return "?" if number is None else str(number)


def _change(before: int | None, after: int | None) -> Text:
    if before == after:
        return Text("-" if after is None else str(after))
    return Text(f"{'-' if before is None else before} → {'-' if after is None else after}", style="bold")
