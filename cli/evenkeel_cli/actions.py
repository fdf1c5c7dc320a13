"""The commands `evenkeel ACTION --stack NAME --cluster ID`, made from the table of operator actions.

Each field of an action becomes an option of its command. A command with further options or steps has its own function
in ``_BY_HAND``.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from inspect import Parameter, Signature
from time import sleep
from typing import Annotated, Any, get_origin

import typer
from pydantic.fields import FieldInfo
from rich.console import Console

from evenkeel.application.actions.call import Action, Right
from evenkeel.application.actions.table import ACTIONS
from evenkeel.texts.english import counted, rfc3339
from evenkeel_cli.answers import alike, print_answer
from evenkeel_cli.fleet import apply_command, export_command
from evenkeel_cli.inputs import read_yaml
from evenkeel_cli.options import (
    AllClusters,
    ClusterId,
    ClusterIdOrAll,
    OneCluster,
    Output,
    OutputForm,
    Reason,
    StackName,
    Yes,
)
from evenkeel_cli.stack_client import ask_of_all, ask_or_fail, pages, unchanged_since
from evenkeel_cli.terminal import (
    BAD_INPUT,
    CANNOT_READ,
    IN_TROUBLE,
    INVALID_POOL,
    NOT_READY,
    confirm,
    fail,
    fail_without_clusters,
    say,
    say_json,
    write_text,
)

_WATCH_SECONDS = 5
_Option = tuple[str, Any, Any]
"""The name of a command's parameter, the annotation of the parameter, and its default."""
_Selector = Annotated[
    str | None,
    typer.Option("--selector", help="Clusters by labels: env=prod,tier!=test; instead of --cluster."),
]


def _help(action: str, field: str) -> str | None:
    return ACTIONS[action].fields.model_fields[field].description


def plan_of_stack(stack: str, cluster: str, output: Output) -> None:
    """Print the plan that a stack would make now."""
    answer = ask_or_fail("plan", stack, cluster)
    _print(answer, answer["plan"], output)
    _fail_for_invalid_pools(answer["plan"])


def _register_command(
    stack: StackName,
    cluster: ClusterId,
    record: Annotated[
        str, typer.Option("--record", help="The cluster's record, YAML or JSON; - reads standard input.")
    ],
    reason: Reason = None,
    output: OutputForm = Output.TABLE,
) -> None:
    _act("register", stack, cluster, output, {"record": read_yaml(record), "reason": reason})


def _record_command(
    stack: StackName,
    cluster: ClusterId,
    since: Annotated[str | None, typer.Option(help="A time, RFC 3339; default: everything stored, 30 days.")] = None,
    out: Annotated[str, typer.Option(help="The file to write, JSON; - is standard output.")] = "-",
) -> None:
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


def _print_status(
    stack: str, cluster: str, selector: str | None, output: Output, fields: Mapping[str, object]
) -> dict[str, Any]:
    answer = ask_or_fail("status", stack, cluster, {"selector": selector, **fields})
    fail_without_clusters(selector, answer.get("counts", answer).get("clusters"))
    _print(answer, answer, output)
    return answer


def _status_command(  # noqa: PLR0913 (one parameter per option)
    stack: StackName,
    cluster: ClusterIdOrAll = "*",
    everything: AllClusters = False,
    pool: Annotated[str | None, typer.Option(help=_help("status", "pool"))] = None,
    unhealthy: Annotated[bool, typer.Option("--unhealthy", help=_help("status", "unhealthy"))] = False,
    live: Annotated[bool, typer.Option("--live", help=_help("status", "live"))] = False,
    selector: _Selector = None,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat every few seconds, until interrupted.")] = False,
    output: OutputForm = Output.TABLE,
) -> None:
    _refuse_several(cluster, selector, everything=everything)
    fields = {"pool": pool, "unhealthy": unhealthy or None, "live": live or None}
    answer = _print_status(stack, cluster, selector, output, fields)
    with suppress(KeyboardInterrupt):  # an interrupt ends --watch
        while watch:
            sleep(_WATCH_SECONDS)
            Console().clear()  # has an effect only on a terminal; in a pipe, each status follows the last
            answer = _print_status(stack, cluster, selector, output, fields)
    answers = answer.get("clusters", [answer])
    if not all(one.get("ok") for one in answers):
        raise typer.Exit(CANNOT_READ)
    if any(one.get("incident") for one in (answer, *answers)) or answer.get("unknown"):
        raise typer.Exit(IN_TROUBLE)


def _live_command(  # noqa: PLR0913 (one parameter per option)
    stack: StackName,
    cluster: OneCluster = None,
    everything: AllClusters = False,
    selector: _Selector = None,
    wave: Annotated[
        str | None,
        typer.Option(help="Clusters per wave, 5% or 3. The stack starts the next wave after the soak time."),
    ] = None,
    soak: Annotated[str | None, typer.Option(help=_help("rollout", "soak"))] = None,
    force: Annotated[bool, typer.Option("--force", help=_help("live", "force"))] = (False),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show which clusters would go live; change nothing.")] = (
        False
    ),
    yes: Yes = False,
    reason: Reason = None,
    output: OutputForm = Output.TABLE,
) -> None:
    named = cluster is not None
    scope = {"clusters": [cluster]} if named else {"selector": selector} if selector else {"all": everything or None}
    if sum((named, selector is not None, everything)) != 1:
        fail(["say which clusters: one of --cluster ID, --selector env=prod, --all"])
    if soak is not None and wave is None:
        fail(["--soak goes with --wave: how many go live at once?"])
    fields = {"force": force or None}
    clusters, _ = _confirmed("live", stack, {**scope, **fields}, output, yes=yes, shown_only=dry_run)
    if dry_run:
        return
    if wave is None:
        _act("live", stack, None, output, {**fields, "clusters": [*clusters], "reason": reason})
    else:
        rollout = {"clusters": [*clusters], "wave": wave, "soak": soak, "reason": reason}
        answer = ask_or_fail("rollout", stack, None, rollout)
        _print(answer, answer, output)


def _rollout_command(
    stack: StackName,
    abort: Annotated[bool, typer.Option("--abort", help=_help("rollout", "abort"))] = False,
    reason: Reason = None,
    output: OutputForm = Output.TABLE,
) -> None:
    if reason is not None and not abort:
        fail(["--reason goes with --abort"])
    answer = ask_or_fail("rollout", stack, None, {"abort": abort or None, "reason": reason})
    _print(answer, answer, output)
    if answer.get("phase") in ("halting", "halted") and not abort:
        raise typer.Exit(NOT_READY)


_BY_HAND: Mapping[str, Callable[..., None]] = {
    "register": _register_command,
    "record": _record_command,
    "status": _status_command,
    "apply": apply_command,
    "export": export_command,
    "live": _live_command,
    "rollout": _rollout_command,
}


def commands() -> dict[str, Callable[..., None]]:
    """Return the command of each action, by the action's name.

    The command `plan` is not included. The module ``plan`` defines it, because it also plans without a stack.
    """
    by_name = {name: _BY_HAND.get(name) or _command(action) for name, action in ACTIONS.items() if name != "plan"}
    for name, command in by_name.items():
        command.__doc__ = ACTIONS[name].summary
    return by_name


def _command(action: Action) -> Callable[..., None]:
    """Return the command of an action: a function whose parameters typer turns into options."""

    def command(stack: str, cluster: str | None, output: Output, **fields: Any) -> None:
        named = {alias: fields[name] for alias, name in action.fields.names().items() if name in fields}
        named |= {name: fields[name] for name in ("selector", "reason") if name in fields}
        everything, yes = fields.get("everything", False), fields.get("yes", False)
        _refuse_several(cluster, fields.get("selector"), everything=everything)
        if action.touches is None or cluster is not None:
            _act(action.name, stack, cluster, output, named)
        elif everything or fields.get("selector"):
            scope = {"all": True} if everything else {}
            _act_on_several(action.name, stack, {**scope, **named}, output, yes=yes)
        else:
            fail(["say which clusters: --cluster ID, --selector env=prod, or --all"])

    several: list[_Option] = [("everything", AllClusters, False)]
    if action.touches is not None:
        cluster_option: _Option = ("cluster", OneCluster, None)
        several += [("yes", Yes, False), ("selector", _Selector, None)]
    elif action.of_all:
        cluster_option = ("cluster", ClusterIdOrAll, "*")
        several += [("selector", _Selector, None)]
    else:
        cluster_option, several = ("cluster", ClusterId, Parameter.empty), []
    if action.right is not Right.READ:
        several += [("reason", Reason, None)]
    fields = {alias: (name, action.fields.model_fields[name]) for alias, name in action.fields.names().items()}
    options = [
        ("stack", StackName, Parameter.empty),
        cluster_option,
        *(
            _option(alias, name, field)
            for alias, (name, field) in fields.items()
            if get_origin(field.annotation) is not dict  # an event can have a mapping, but an option cannot
        ),
        *several,
        ("output", OutputForm, Output.TABLE),
    ]
    command.__annotations__ = {}
    command.__signature__ = Signature(  # type: ignore[attr-defined]  # inspect.signature returns this value
        [Parameter(name, Parameter.KEYWORD_ONLY, annotation=form, default=default) for name, form, default in options]
    )
    return command


def _refuse_several(cluster: str | None, selector: str | None, *, everything: bool) -> None:
    if sum((cluster not in (None, "*"), bool(selector), everything)) > 1:
        fail(["--cluster, --selector and --all are three ways to name clusters: choose one"])


def _option(alias: str, name: str, field: FieldInfo) -> _Option:
    """Return the option of a field, under the name that the field has in events.

    Only the type of a value is checked here. The Lambda function validates the value itself.
    """
    forms: dict[Any, Any] = {bool: bool, int: int, tuple: list[str]}
    form = forms.get(get_origin(field.annotation) or field.annotation, str)
    # With only this name, a flag gets no --no- form. An option for a list is repeated, so its help is about one value.
    option = typer.Option(f"--{alias.replace('_', '-')}", help=field.description)
    if field.is_required():
        return name, Annotated[form, option], Parameter.empty
    if form is bool:
        return name, Annotated[bool, option], False
    return name, Annotated[form | None, option], None


def _act(
    action: str, stack: str, cluster: str | None, output: Output, fields: Mapping[str, Any], *, is_all: bool = True
) -> None:
    """Perform an action and print the answer. Exit with an error code if a cluster failed or is not ready.

    ``is_all``: False if a cluster had already failed when the clusters were listed.
    """
    answer = ask_of_all(action, stack, {"cluster": cluster, **fields})
    fail_without_clusters(fields.get("selector"), answer.get("clusters"))
    _print(answer, answer, output)
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
    answer = ask_of_all(action, stack, {**fields, "list": True})
    listed, untouched = answer["clusters"], answer.get("untouched", 0)
    # If the user named one cluster and this cluster fails, exit as an action on a single cluster does.
    if "clusters" in fields and listed and not listed[0]["ok"]:
        fail([listed[0]["message"]], CANNOT_READ if listed[0].get("retry") else BAD_INPUT)
    groups = alike(listed)
    for line in groups.values():
        say(line, err=output is Output.JSON)
    for cluster in listed:
        if cluster.get("alike") not in groups:
            say(f"{'' if cluster['ok'] else 'not: '}{cluster['message']}", err=output is Output.JSON)
    if untouched:
        say(f"left as they are: {counted(untouched, 'cluster')} ({ACTIONS[action].spares})", err=output is Output.JSON)
    touched = {cluster["cluster"]: cluster for cluster in listed if cluster["ok"]}
    if shown_only and output is Output.JSON:
        say_json(answer, indent=2)
    if not touched:
        fail([f"{action} touches none of these clusters: nothing is done"], CANNOT_READ if listed else BAD_INPUT)
    if not shown_only:
        confirm(f"{action}: {counted(len(touched), 'cluster')}", yes=yes)
    return touched, len(touched) == len(listed)


def _print(answer: dict[str, Any], as_json: Mapping[str, Any], output: Output) -> None:
    if output is Output.JSON:
        say_json(as_json, indent=2)
    else:
        print_answer(answer)


def _fail_for_invalid_pools(*answers: Mapping[str, Any]) -> None:
    if any(not pool["valid"] for answer in answers for pool in answer["pools"]):
        raise typer.Exit(INVALID_POOL)
