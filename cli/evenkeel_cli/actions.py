"""Ask a stack to perform operator actions: `evenkeel ACTION --stack NAME --cluster ID`."""

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from time import sleep
from typing import Any

import typer
from rich.console import Console

from evenkeel.texts.english import counted, rfc3339
from evenkeel_cli.answers import alike, print_in_form
from evenkeel_cli.console import print_line, terminal
from evenkeel_cli.stack_client import READERS, ask_of_all, ask_or_fail, pages, unchanged_since
from evenkeel_cli.terminal import (
    BAD_INPUT,
    CANNOT_READ,
    IN_TROUBLE,
    INVALID_POOL,
    NOT_READY,
    Output,
    confirm,
    fail,
    fail_without_clusters,
    say,
    write_text,
)

_WATCH_SECONDS = 5


def plan_of_stack(stack: str, cluster: str, output: Output) -> None:
    """Print the plan that a stack would make now."""
    answer = ask_or_fail("plan", stack, cluster)
    print_in_form(output, answer, answer["plan"])
    _fail_for_invalid_pools(answer["plan"])
    if not answer["plan"]["pools"]:
        raise typer.Exit(IN_TROUBLE)


def record_command(stack: str, cluster: str, since: str | None, out: str) -> None:
    """Print the decisions of a cluster, or write them to a file."""
    entries = [entry for page in pages("record", stack, cluster, {"since": since}) for entry in page["decisions"]]
    end = rfc3339(datetime.now(UTC))
    begin = since or (entries[0]["at"] if entries else end)
    history = json.dumps({"cluster": cluster, "from": begin, "to": end, "decisions": entries}, indent=1)
    if out == "-":
        typer.echo(history)
        return
    write_text(out, history + "\n")
    decisions = sum("pool" in entry for entry in entries)
    actions = f", {counted(len(entries) - decisions, 'action')}" if decisions < len(entries) else ""
    say(f"{counted(decisions, 'decision')}{actions} of {cluster} since {begin}: {out}")


def _print_status(stack: str, cluster: str, output: Output, fields: Mapping[str, Any]) -> dict[str, Any]:
    answer = ask_or_fail("status", stack, cluster, fields)
    fail_without_clusters(fields["selector"], answer.get("counts", answer).get("clusters"))
    shown = {**answer, "others": {}} if fields["unhealthy"] and "others" in answer else answer
    print_in_form(output, shown, shown)
    return answer


def status_command(
    stack: str, cluster: str, output: Output, fields: Mapping[str, Any], *, everything: bool, watch: bool
) -> None:
    """Print the status of one cluster or of all; with ``watch``, again and again."""
    _refuse_several(cluster, fields["selector"], everything=everything)
    answer = _print_status(stack, cluster, output, fields)
    with suppress(KeyboardInterrupt):  # an interrupt ends --watch
        while watch:
            sleep(_WATCH_SECONDS)
            Console().clear()  # has an effect only on a terminal; in a pipe, each status follows the last
            answer = _print_status(stack, cluster, output, fields)
    answers = answer.get("clusters", [answer])
    if not all(one.get("ok") for one in answers):
        raise typer.Exit(CANNOT_READ)
    if any(one.get("incident") for one in (answer, *answers)) or answer.get("unknown"):
        raise typer.Exit(IN_TROUBLE)


def live_command(  # noqa: PLR0913 (what the command has)
    stack: str,
    cluster: str | None,
    output: Output,
    fields: Mapping[str, Any],
    *,
    everything: bool,
    selector: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Enable writes for clusters."""
    named = cluster is not None
    scope = {"clusters": [cluster]} if named else {"selector": selector} if selector else {"all": everything or None}
    if sum((named, selector is not None, everything)) != 1:
        fail(["say which clusters: one of --cluster ID, --selector env=prod, --all"])
    listed = {**scope, "force": fields["force"]}
    clusters, _ = _confirmed("live", stack, listed, output, yes=yes, shown_only=dry_run)
    if not dry_run:
        _act("live", stack, None, output, {**fields, "clusters": [*clusters]})


def perform(  # noqa: PLR0913 (what a command has)
    action: str,
    stack: str,
    cluster: str | None,
    output: Output,
    fields: Mapping[str, Any],
    *,
    everything: bool = False,
    yes: bool = False,
) -> None:
    """Perform an action on a cluster, or on the clusters of ``--all`` or ``--selector`` after a confirmation."""
    given = {name: value for name, value in fields.items() if value is not False}
    _refuse_several(cluster, given.get("selector"), everything=everything)
    if cluster is not None or not _touches_several(action):
        _act(action, stack, cluster, output, given)
    elif everything or given.get("selector"):
        _act_on_several(action, stack, {**({"all": True} if everything else {}), **given}, output, yes=yes)
    else:
        fail(["say which clusters: --cluster ID, --selector env=prod, or --all"])


def _touches_several(action: str) -> bool:
    if action in READERS:
        return False
    from evenkeel.application.actions.table import ACTIONS

    return ACTIONS[action].touches is not None


def _refuse_several(cluster: str | None, selector: str | None, *, everything: bool) -> None:
    if sum((cluster not in (None, "*"), bool(selector), everything)) > 1:
        fail(["--cluster, --selector and --all are three ways to name clusters: choose one"])


def _act(
    action: str, stack: str, cluster: str | None, output: Output, fields: Mapping[str, Any], *, is_all: bool = True
) -> None:
    """Perform an action and print the answer. Exit with an error code if a cluster failed or is not ready.

    ``is_all``: False if a cluster had already failed when the clusters were listed.
    """
    answer = ask_of_all(action, stack, {"cluster": cluster, **fields})
    fail_without_clusters(fields.get("selector"), answer.get("counts", answer).get("clusters"))
    print_in_form(output, answer, answer)
    answers = answer.get("clusters", [answer])
    if not is_all or not all(answer.get("ok") for answer in answers):
        raise typer.Exit(CANNOT_READ)
    if action == "validate":
        _fail_for_invalid_pools(*answers)
    if not all(answer.get("ready", True) for answer in answers) or any("plannedOnly" in answer for answer in answers):
        raise typer.Exit(NOT_READY)


def _act_on_several(action: str, stack: str, fields: Mapping[str, Any], output: Output, *, yes: bool) -> None:
    """Ask the user to confirm the clusters, and perform the action only on the confirmed ones."""
    touched, is_all = _confirmed(action, stack, fields, output, yes=yes)
    event = {name: value for name, value in fields.items() if name not in ("all", "selector")}
    event |= {"clusters": [*touched], **unchanged_since(touched.values())}
    _act(action, stack, None, output, event, is_all=is_all)


def _confirmed(
    action: str, stack: str, fields: Mapping[str, Any], output: Output, *, yes: bool, shown_only: bool = False
) -> tuple[dict[str, dict[str, Any]], bool]:
    """Show the clusters that an action changes. Ask for confirmation, unless ``shown_only`` is True.

    Returns the answers of the confirmed clusters by cluster id, and True if every listed cluster is one of them.
    """
    from evenkeel.application.actions.table import ACTIONS

    answer = ask_of_all(action, stack, {**fields, "list": True})
    listed, untouched = answer["clusters"], answer.get("untouched", 0)
    # If the user named one cluster and this cluster fails, exit as an action on a single cluster does.
    if "clusters" in fields and listed and not listed[0]["ok"]:
        fail([listed[0]["message"]], CANNOT_READ if listed[0].get("retry") else BAD_INPUT)
    groups = alike(listed)
    lines = [*groups.values()] if shown_only or not yes else []  # with --yes, the answer follows at once
    lines += [
        f"{'' if cluster['ok'] else 'left out: '}{cluster['message']}"
        for cluster in listed
        if cluster.get("alike") not in groups
    ]
    lines += [f"left as they are: {counted(untouched, 'cluster')} ({ACTIONS[action].spares})"] if untouched else []
    for line in lines:
        print_line(terminal(output, err=output.is_piped), line)
    touched = {cluster["cluster"]: cluster for cluster in listed if cluster["ok"]}
    if shown_only and output.is_piped:
        print_in_form(output, answer, answer)
    if not touched and not untouched:
        fail_without_clusters(fields.get("selector"), listed)
    if not touched:
        fail([f"{action} touches none of these clusters: nothing is done"], CANNOT_READ if listed else BAD_INPUT)
    if not shown_only:
        confirm(f"{action}: {counted(len(touched), 'cluster')}", yes=yes)
    return touched, len(touched) == len(listed)


def _fail_for_invalid_pools(*answers: Mapping[str, Any]) -> None:
    if any(not pool["valid"] for answer in answers for pool in answer["pools"]):
        raise typer.Exit(INVALID_POOL)
