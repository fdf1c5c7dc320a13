"""`evenkeel plan`: print a plan from files, from a cluster (read-only), or from a stack."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated

import typer

from evenkeel.adapters.kubernetes.objects import Object
from evenkeel.application.errors import NoMachineApiError
from evenkeel.application.rebalancing.decisions import plan_json
from evenkeel.application.rebalancing.plan import SeePods, with_pods
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import plan
from evenkeel.record import ClusterFile
from evenkeel.texts.english import problem_text
from evenkeel.validation import ConfigError, read_model
from evenkeel_cli.actions import plan_of_stack
from evenkeel_cli.answers import print_plan
from evenkeel_cli.inputs import file_name, read_growths, read_moment, read_text, read_yaml
from evenkeel_cli.objects import objects_of, read_objects
from evenkeel_cli.options import Output, OutputForm
from evenkeel_cli.proposals import Proposal, Target, heading, lines, propose_marks, propose_places
from evenkeel_cli.state_file import StateFile
from evenkeel_cli.terminal import BAD_INPUT, INVALID_POOL, fail, say, say_json

_NO_POOL = 4
# The default record. With it, a plan proposes a pool for similar node groups that have no label with a pool's name.
_WITHOUT = {"pools": {"discover": "similar"}}


def plan_command(  # noqa: PLR0913  one parameter per option
    file: Annotated[
        list[str] | None,
        typer.Option(
            "-f", "--objects", help="Objects as `kubectl get -o yaml|json` prints them; - reads standard input."
        ),
    ] = None,
    state: Annotated[
        str | None, typer.Option(help="The stored state, JSON: `state` of an earlier plan, or written by hand.")
    ] = None,
    now: Annotated[str | None, typer.Option(help="The time to plan for, RFC 3339; default: now.")] = None,
    cluster: Annotated[
        str | None, typer.Option(help="With --stack: the cluster's id. Without: a file, as --record.")
    ] = None,
    record: Annotated[
        str | None,
        typer.Option(help="The cluster's record, YAML or JSON: pools, strategy, discovery; - reads standard input."),
    ] = None,
    grow: Annotated[
        list[str] | None, typer.Option(help="Split K more nodes over a pool: pool=K or pool=K,only=group,group.")
    ] = None,
    shrink: Annotated[
        list[str] | None, typer.Option(help="Remove K nodes from a pool: pool=K or pool=K,only=group,group.")
    ] = None,
    output: OutputForm = Output.TABLE,
    kubeconfig: Annotated[str | None, typer.Option(help="Read the cluster itself, with this kubeconfig.")] = None,
    context: Annotated[str | None, typer.Option(help="Read the cluster itself, with this context.")] = None,
    stack: Annotated[str | None, typer.Option(help="Let this stack plan, for a registered cluster.")] = None,
) -> None:
    """Show the changes that Evenkeel would make, with reasons. Read-only.

    Exit code 3 means that a pool is invalid, and 4 that there is no pool; lines to paste then say what to do.
    """
    if stack is not None:
        if cluster is None or any((file, record, state, now, grow, shrink, kubeconfig, context)):
            fail(["--stack plans for a registered cluster: give --cluster with its id, and nothing else but -o"])
        plan_of_stack(stack, cluster, output)
        return
    if cluster is not None and record is not None:
        fail(["--cluster and --record both name the cluster's record: leave one out"])
    record = cluster if record is None else record
    policy = read_model(ClusterFile, _WITHOUT if record is None else read_yaml(record), file_name(record or "record"))
    before = StateFile.read(read_text(state), file_name(state)) if state is not None else StateFile()
    moment = read_moment(now)
    requests = (*read_growths("--grow", grow or [], 1, moment), *read_growths("--shrink", shrink or [], -1, moment))
    known = replace(before.state(), scale_requests=requests)
    target = Target(kubeconfig=kubeconfig, context=context)
    texts = _texts(file or [], target)
    observation, see_pods = _observe(texts, policy, known, moment, target)
    if now is None:
        moment += observation.clock_skew
    _, planned = with_pods(lambda seen: plan(seen, known, policy.policy(), moment), observation, see_pods)
    proposed: Sequence[Proposal] = ()
    if not planned.pools:
        proposed = propose_marks(observation.groups, planned.skipped, policy.policy().similarity)
        proposed = proposed or propose_places(() if observation.groups else _clues(texts, target))
    _print_and_exit(planned, before, output, _lines(proposed, target))


def _lines(proposals: Sequence[Proposal], target: Target) -> Sequence[str]:
    return [heading(proposals), *lines(proposals, target)] if proposals else []


def _print_and_exit(planned: Plan, before: StateFile, output: Output, proposed: Sequence[str]) -> None:
    """Print a plan. Exit with an error code if there is no pool, a pool is invalid, or a request is refused."""
    if refused := [problem_text(refusal.problem) for refusal in planned.refusals if not refusal.waits]:
        fail(refused)
    if output is Output.JSON:
        proposals = {} if planned.pools else {"proposals": proposed[1:]}
        say_json({**plan_json(planned), **proposals, "state": before.after(planned)}, indent=2)
    else:
        print_plan(planned)
        for line in proposed:
            say(line)
    code = INVALID_POOL if any(not pool.mode.valid for pool in planned.pools) else 0 if planned.pools else _NO_POOL
    if planned.refusals:  # these requests wait, because their pool is invalid or has another request
        fail([problem_text(refusal.problem) for refusal in planned.refusals], code or BAD_INPUT)
    if code:
        raise typer.Exit(code)


def _texts(files: Sequence[str], target: Target) -> list[tuple[str, str]]:
    """Return (name, text) pairs of the files. Raises ConfigError, also where both files and a cluster are given."""
    if bool(files) == target.is_live:
        raise ConfigError(["give either -f with objects, or --kubeconfig or --context to read a cluster"])
    return [(file_name(name), read_text(name)) for name in files]


def _observe(
    texts: Sequence[tuple[str, str]], policy: ClusterFile, state: ClusterState, now: datetime, target: Target
) -> tuple[Observation, SeePods]:
    """Return the observation of the files or the cluster. Exit with proposals if the cluster has no machine API."""
    if not target.is_live:
        return read_objects(texts, policy, now), lambda observed: observed
    from evenkeel_cli.live import observe

    try:
        return observe(policy, state, target.kubeconfig, target.context)
    except NoMachineApiError as error:
        places = propose_places(_clues(texts, target))
        say(f"evenkeel: {error}", err=True)
        for line in _lines(places, target):
            say(line, err=True)
        raise typer.Exit(_NO_POOL) from None


def _clues(texts: Sequence[tuple[str, str]], target: Target) -> Sequence[Object]:
    """Return objects that may show where the machine objects are, from a cluster without them or from files."""
    if target.is_live:
        from evenkeel_cli.live import clues

        return clues(target.kubeconfig, target.context)
    return [item for file, text in texts for _, item in objects_of(file, text, [])]
