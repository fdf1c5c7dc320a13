"""`evenkeel drill`: forecast the loss of a zone, fence the zone for a limited time, and show the report."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import typer
from rich.console import Console

from evenkeel.texts.english import duration
from evenkeel_cli.answers import print_in_form
from evenkeel_cli.console import Table, print_line, print_table, terminal
from evenkeel_cli.stack_client import ask_or_fail
from evenkeel_cli.terminal import NOT_READY, CommandError, Output, confirm, fail, say

_USUAL = "30m"
_UNKNOWN = "-"


def drill_command(  # noqa: PLR0913  one parameter per option
    stack: str,
    cluster: str,
    *,
    zone: str | None,
    zone_id: str | None,
    lasting: str | None,
    abort: bool,
    dry_run: bool,
    yes: bool,
    reason: str | None,
    kubeconfig: str | None,
    context: str | None,
    output: Output,
) -> None:
    """Begin a drill after a confirmation, end it, or show its report."""
    if abort or (zone is None and zone_id is None):
        fields = {"zone": zone, "zone_id": zone_id, "for": lasting, "abort": abort or None, "reason": reason}
        _show(ask_or_fail("drill", stack, cluster, {**fields, "dry_run": dry_run or None}), output)
        return
    if reason is None and not dry_run:
        fail(["--reason is missing: a drill stores who begins it, and why"])
    fields = {"zone": zone, "zone_id": zone_id, "for": lasting, "reason": reason}
    checked = ask_or_fail("drill", stack, cluster, {**fields, "dry_run": True})
    if checked["drill"] is not None:  # the caller has begun this drill before, and repeats the command
        _show(checked, output)
        return
    forecast = _forecast(stack, cluster, checked["zone"], kubeconfig, context, output)
    is_dry = "plannedOnly" in checked
    if is_dry or dry_run:
        print_in_form(output, checked, {**checked, "forecast": forecast})
        if is_dry:
            raise typer.Exit(NOT_READY)
        return
    confirm(f"drill: fence zone {checked['zone']} of {cluster} for {lasting or _USUAL}", yes=yes)
    answer = ask_or_fail("drill", stack, cluster, {**fields, "forecast": forecast})
    print_in_form(output, answer, answer)


def _show(answer: Mapping[str, Any], output: Output) -> None:
    print_in_form(output, answer, answer)
    if answer["drill"] is not None and not output.is_piped:
        print_report(terminal(output), answer["drill"])


def _forecast(
    stack: str, cluster: str, zone: str, kubeconfig: str | None, context: str | None, output: Output
) -> dict[str, Any] | None:
    """Show the forecast for the loss of the zone, and return its numbers; None: the stack cannot read the cluster."""
    # Here, because the other forms of the command need neither the simulation nor a Kubernetes client.
    from evenkeel_cli.forecast import Inputs, NothingLostError, forecast_of_record, record_of
    from evenkeel_cli.forecast_answers import forecast_json, print_forecast

    record = record_of(stack, cluster)
    inputs = Inputs(zone=zone, kubeconfig=kubeconfig, context=context, stack=stack, cluster=cluster)
    try:
        foreseen = forecast_of_record(inputs, record)
    except CommandError as error:
        if inputs.asks_stack:
            say(f"no forecast: {'; '.join(error.faults)}", err=True)
            return None
        if isinstance(error, NothingLostError):
            fail([f"--context: that cluster has nothing in zone {zone}: name the context of {cluster}"])
        raise
    if not inputs.asks_stack and not foreseen.outcome.has_pods and record["access"]["kind"] != "auto-scaling":
        fail([f"pods and nodes cannot be read{f': {foreseen.unread}' if foreseen.unread else ''}: leave --context out"])
    if not output.is_piped:
        print_forecast(foreseen)
    return numbers_of(forecast_json(foreseen))


def numbers_of(forecast: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a forecast that a drill measures, too. Pods wait from their eviction on."""
    pods, timeline, knows_pods = forecast["pods"], forecast["nodes"], forecast["podsKnown"]
    waits = [max(0, each["longest"] - forecast["evictedAfter"]) for each in pods if each["longest"] is not None]
    return {
        "lostNodes": forecast["lostNodes"],
        "pods": sum(each["pods"] for each in pods) if knows_pods else None,
        "bound": sum(forecast["bound"].values()) if knows_pods else None,
        "withoutPlace": sum(each["withoutPlace"] for each in pods) if knows_pods else None,
        "longestWait": max(waits, default=None),
        "ordered": _ordered(timeline),
        "readyAfter": _ready_after(timeline),
        "atMaximum": forecast["atMaximum"][:20],
    }


def _ordered(timeline: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    ordered: dict[str, int] = {}
    for before, after in pairwise(timeline):
        for zone, requested in after["requested"].items():
            if (more := requested - before["requested"].get(zone, 0)) > 0:
                ordered[zone] = ordered.get(zone, 0) + more
    return ordered


def _ready_after(timeline: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the longest time in seconds in which a requested node did not run; None: its end is unknown."""
    since: int | None = None
    longest = 0
    for line in timeline:
        lacks = any(requested > line["running"].get(zone, 0) for zone, requested in line["requested"].items())
        if since is not None and not lacks:
            longest = max(longest, line["at"] - since)
        since = (line["at"] if since is None else since) if lacks else None
    return longest if since is None else None


def print_report(console: Console, report: Mapping[str, Any]) -> None:
    """Print the numbers of a drill as a table of at most 80 columns."""
    forecast, measured = report["forecast"] or {}, report["measured"]
    rows = [
        ("pods that wait", _number(forecast.get("pods")), _number(measured["waitingPods"])),
        ("longest wait", _time(forecast.get("longestWait")), _time(measured["longestWait"])),
        ("pods without a place", _number(forecast.get("withoutPlace")), _UNKNOWN),
        ("pods bound to the zone", _number(forecast.get("bound")), _UNKNOWN),
    ]
    ordered = forecast.get("ordered", {})
    for zone in sorted({*report["start"], *ordered, *measured["ordered"]}):
        of_forecast = str(ordered.get(zone, 0)) if forecast else _UNKNOWN
        rows.append((f"nodes ordered in {zone}", of_forecast, str(measured["ordered"].get(zone, 0))))
    rows += [
        ("until requested = running", _time(forecast.get("readyAfter")), _time(measured["readyAfter"])),
        ("pools at PoolMaximum", _names(forecast["atMaximum"]) if forecast else _UNKNOWN, _UNKNOWN),
        ("pools not at size", _UNKNOWN, _names(measured["notAtSize"])),
        ("incidents caused", _UNKNOWN, _names(measured["incidents"])),
    ]
    numbers = Table(("", "forecast", "measured"), right=("forecast", "measured"))
    for row in rows:
        numbers.add_row(*row)
    print_table(console, numbers)
    notes = ["forecast: the zone is lost; measured: the zone is fenced, and its nodes stay"]
    if measured["waitingPods"] is None:
        notes.append("pods are not measured, because the cluster's record has no workload")
    for note in notes:
        print_line(console, note, "dim")


def _number(number: int | None) -> str:
    return _UNKNOWN if number is None else str(number)


def _time(seconds: int | None) -> str:
    return _UNKNOWN if seconds is None else duration(seconds)


def _names(names: list[str]) -> str:
    """Return pools or incidents without the part of their names that is the same in the whole cluster."""
    return ", ".join("/".join(name.split("/")[2:]) or name for name in names) or "none"
