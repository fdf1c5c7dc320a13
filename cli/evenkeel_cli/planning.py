"""`evenkeel plan`: what Evenkeel would do, from files or read-only from a cluster."""

from dataclasses import replace
from datetime import datetime
from typing import Annotated

import typer

from evenkeel.application.errors import EvenkeelError
from evenkeel.application.rebalancing.decisions import plan_json
from evenkeel.application.rebalancing.plan import SeePods, with_pods
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import plan
from evenkeel.record import ClusterFile
from evenkeel.texts.english import problem_words
from evenkeel.validation import ConfigError, read_model
from evenkeel_cli.actions import plan_of_stack
from evenkeel_cli.answers import Output, print_plan
from evenkeel_cli.inputs import called, hint, read_growths, read_moment, read_text, read_yaml
from evenkeel_cli.objects import read_objects
from evenkeel_cli.state_file import StateFile
from evenkeel_cli.terminal import BAD_INPUT, CANNOT_READ, INVALID_POOL, fail, say_json

# Who has no record yet sees the pools that there could be: of groups that are alike, where no label says.
_WITHOUT = {"pools": {"discover": "similar"}}


def plan_command(  # noqa: PLR0913  typer makes an option of each
    file: Annotated[
        list[str] | None,
        typer.Option(
            "-f", "--objects", help="Objects as `kubectl get -o yaml|json` prints them; - reads standard input."
        ),
    ] = None,
    state: Annotated[
        str | None, typer.Option(help="What is remembered, JSON: `state` of an earlier plan, or written by hand.")
    ] = None,
    now: Annotated[str | None, typer.Option(help="The moment to plan for, RFC 3339; default: now.")] = None,
    cluster: Annotated[str | None, typer.Option(help="With --stack: the cluster's id in its record.")] = None,
    record: Annotated[
        str | None,
        typer.Option(help="The cluster's record, YAML or JSON: pools, strategy, discovery; - reads standard input."),
    ] = None,
    grow: Annotated[
        list[str] | None, typer.Option(help="Split K more nodes over a pool: pool=K or pool=K,only=group,group.")
    ] = None,
    shrink: Annotated[
        list[str] | None, typer.Option(help="Give K nodes of a pool back, written in the same way.")
    ] = None,
    output: Annotated[Output, typer.Option("-o", "--output")] = Output.TABLE,
    kubeconfig: Annotated[str | None, typer.Option(help="Read the cluster itself, with this kubeconfig.")] = None,
    context: Annotated[str | None, typer.Option(help="Read the cluster itself, with this context.")] = None,
    old_file: Annotated[list[str] | None, typer.Option("--file", hidden=True)] = None,
    stack: Annotated[str | None, typer.Option(help="Let this deployed stack plan, for a registered cluster.")] = None,
) -> None:
    """What Evenkeel would write, and why. Reads only; exit 3 means that some pool is invalid."""
    if stack is not None:
        if cluster is None or any((file, old_file, record, state, now, grow, shrink, kubeconfig, context)):
            fail(["--stack plans for a registered cluster: give --cluster with its id, and nothing else but -o"])
        plan_of_stack(stack, cluster, output)
        return
    if old_file:
        hint("--file", "--objects FILE")
    record = _record_file(record, cluster)
    try:
        policy = read_model(ClusterFile, _WITHOUT if record is None else read_yaml(record), called(record or "record"))
        before = StateFile.read(read_text(state), called(state)) if state is not None else StateFile()
        at = read_moment(now)
        scale_requests = [*read_growths("--grow", grow or [], 1, at), *read_growths("--shrink", shrink or [], -1, at)]
        remembered = replace(before.state(), scale_requests=tuple(scale_requests))
        looked = _observe([*(file or []), *(old_file or [])], policy, remembered, at, (kubeconfig, context))
    except ConfigError as error:
        fail(error.faults)
    except EvenkeelError as error:
        fail([str(error)], CANNOT_READ)
    _tell(_planned(looked, policy, remembered, at, at_cluster_time=now is None), before, output)


def _planned(
    looked: tuple[Observation, SeePods],
    policy: ClusterFile,
    state: ClusterState,
    now: datetime,
    *,
    at_cluster_time: bool,
) -> Plan:
    observation, see_pods = looked
    moment = now + observation.clock_skew if at_cluster_time else now
    _, planned = with_pods(lambda seen: plan(seen, state, policy.policy(), moment), observation, see_pods)
    return planned


def _record_file(record: str | None, cluster: str | None) -> str | None:
    """Where the record is; ``--cluster`` named it once."""
    if cluster is None:
        return record
    if record is not None:
        fail(["--cluster is an id, and goes with --stack: leave it out beside --record"])
    hint("--cluster with a file", "--record FILE; --cluster is an id, and goes with --stack")
    return cluster


def _tell(planned: Plan, before: StateFile, output: Output) -> None:
    """Print a plan, and leave with the exit code that it stands for."""
    if refused := [problem_words(refusal.problem) for refusal in planned.refusals if not refusal.waits]:
        fail(refused)
    _print(planned, before, output)
    code = INVALID_POOL if any(not pool.valid for pool in planned.pools) else 0
    if planned.refusals:  # they wait: for an invalid pool, or for another request of their pool
        fail([problem_words(refusal.problem) for refusal in planned.refusals], code or BAD_INPUT)
    if code:
        raise typer.Exit(code)


def _print(planned: Plan, before: StateFile, output: Output) -> None:
    if output is Output.JSON:
        say_json({**plan_json(planned), "state": before.after(planned)}, indent=2)
    else:
        print_plan(planned)


def _observe(
    files: list[str],
    policy: ClusterFile,
    state: ClusterState,
    now: datetime,
    at_cluster: tuple[str | None, str | None],
) -> tuple[Observation, SeePods]:
    kubeconfig, context = at_cluster
    live = kubeconfig is not None or context is not None
    if bool(files) == live:
        raise ConfigError(["give either -f with objects, or --kubeconfig or --context to read a cluster"])
    if live:
        from evenkeel_cli.live import observe

        return observe(policy, state, kubeconfig, context)
    # What the files hold of pods has been read.
    return read_objects([(called(name), read_text(name)) for name in files], policy, now), lambda found: found
