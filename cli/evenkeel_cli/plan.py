"""`evenkeel plan`: print a plan from files, from a cluster (read-only), or from a stack."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer

from evenkeel.adapters.kubernetes.flavours import flavours_of
from evenkeel.adapters.kubernetes.objects import Object
from evenkeel.application.errors import NoMachineApiError
from evenkeel.application.rebalancing.decisions import plan_json, plan_message
from evenkeel.application.rebalancing.see_pods import SeePods, with_pods
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import plan
from evenkeel.record import DiscoveredPools
from evenkeel.texts.english import problem_text
from evenkeel.validation import ConfigError, read_model
from evenkeel_cli.as_if import Tags, mark_pools, tags_of, terraform, with_tags
from evenkeel_cli.aws_documents import AwsDocuments
from evenkeel_cli.cluster_file import ClusterFile
from evenkeel_cli.console import terminal
from evenkeel_cli.inputs import (
    default_stack,
    file_name,
    read_growths,
    read_moment,
    read_namespaces,
    read_text,
    read_yaml,
    refuse_two_standard_inputs,
)
from evenkeel_cli.objects import objects_of, read_objects
from evenkeel_cli.plan_tables import group_names, print_plan, print_pools
from evenkeel_cli.proposals import Target, heading, lines, propose_marks, propose_places
from evenkeel_cli.terminal import BAD_INPUT, INVALID_POOL, Output, error_document, fail, say, say_document, say_lines

if TYPE_CHECKING:
    from evenkeel_cli.split_groups import SplitGroup
    from evenkeel_cli.state_file import StateFile

_NO_POOL = 4
_OTHER_SOURCES = "--kubeconfig or --context to read a cluster, or --auto-scaling to read AWS"
_NO_GROUP = (
    "looked for tags eks:…, kubernetes.io/cluster/…, k8s.io/cluster-autoscaler/… and evenkeel.dev/…: "
    "check --region and the credentials, or set tag evenkeel.dev/pool on the groups of a pool"
)
# Answers of AWS without groups.
_OF_AWS = (Rule.UNUSED_ANSWER, Rule.NO_GROUP_ANSWERED, Rule.NODE_GROUPS_ALONE, Rule.ANSWER_ALONE)
# The default record. With it, a plan proposes a pool for similar node groups that have no label with a pool's name.
# It is made without validation, which would first build a schema of every field of a record.
_WITHOUT = ClusterFile.model_construct(pools=DiscoveredPools.model_construct(discover="similar"))
_DISCOVERY = ["pools: {discover: similar}"]


def plan_command(  # noqa: PLR0913  one parameter per option
    *,
    file: list[str],
    state: str | None,
    now: str | None,
    cluster: str | None,
    record: str | None,
    namespace: str | None,
    grow: list[str],
    shrink: list[str],
    output: Output,
    kubeconfig: str | None,
    context: str | None,
    stack: str | None,
    auto_scaling: bool,
    role_arn: str | None,
) -> None:
    """Print a plan, and exit with the code for it."""
    _refuse_misfits(auto_scaling, role_arn, stack, file, kubeconfig, context, namespace)
    others = (file, record, state, now, namespace, grow, shrink, kubeconfig, context, auto_scaling)
    if stack is None and cluster is not None and not any(others):
        stack = default_stack()
    if stack is not None:
        if cluster is None or any((file, record, state, now, namespace, grow, shrink, kubeconfig, context)):
            fail(["--stack plans for a registered cluster: give --cluster with its id, and no other input"])
        from evenkeel_cli.actions import plan_of_stack  # with the clients of AWS

        plan_of_stack(stack, cluster, output)
        return
    if cluster is not None and record is not None:
        fail(["--cluster and --record both name the cluster's record: leave one out"])
    record = cluster if record is None else record
    refuse_two_standard_inputs(*file, record, state)
    policy = _WITHOUT if record is None else read_model(ClusterFile, read_yaml(record), file_name(record))
    if namespace is not None:
        if file:
            fail(["--namespace reads one namespace of a cluster: leave it out with -f"])
        policy = policy.model_copy(update={"namespaces": read_namespaces([namespace])})
    before = None if state is None else _read_state(state)
    moment = read_moment(now)
    requests = (*read_growths("--grow", grow, 1, moment), *read_growths("--shrink", shrink, -1, moment))
    known = replace(ClusterState() if before is None else before.state(), scale_requests=requests)
    aws = _session(role_arn) if auto_scaling else None
    context = context if file or auto_scaling else _context(kubeconfig, context)
    target = Target(kubeconfig=kubeconfig, context=context, region=aws.region_name if aws else None)
    texts = _texts(file, target)
    try:
        observation, see_pods, of_aws = _observe(texts, policy, known, moment, target, aws)
    except NoMachineApiError as error:
        fail([str(error)], _NO_POOL, _places(texts, target))
    if now is None:
        moment += observation.clock_skew

    def make(seen: Observation) -> Plan:
        return plan(seen, known, policy.policy(), moment)

    observation, planned = with_pods(make, observation, see_pods)
    # Without a record, each plan proposes the next pools. A record says which pools its author wants.
    advice = _Advice()
    if not planned.pools or not record:
        split = _split(of_aws, policy, moment) if of_aws.groups else ()
        alike = replace(observation, groups=tuple(of_aws.with_purchases(observation.groups)))
        advice = replace(_advice(alike, planned, policy, texts, target), split=split)
    _print_and_exit(make(with_tags(observation, advice.tags)) if advice.tags else planned, before, output, advice)


def _refuse_misfits(auto_scaling: bool, role_arn: str | None, *others: object) -> None:
    """Fail if options are given that do not go with, or without, ``--auto-scaling``."""
    if role_arn is not None and not auto_scaling:
        fail(["--role-arn goes with --auto-scaling: it says who reads the Auto Scaling groups"])
    if auto_scaling and any(others):
        fail(["--auto-scaling reads AWS itself: leave out --stack, -f, --kubeconfig, --context and --namespace"])


@dataclass(frozen=True)
class _Advice:
    """What a plan without the wanted pools proposes."""

    lines: Sequence[str] = ()  # a heading, and lines to paste
    missing: Sequence[str] = ()  # what groups or files lack, if there are no lines
    tags: Tags = field(default_factory=dict)  # the plan is made as if Auto Scaling groups had these tags
    terraform: Sequence[str] = ()  # how to set these tags in Terraform
    left_out: Sequence[str] = ()  # the Auto Scaling groups that get no tag, and why
    split: "Sequence[SplitGroup]" = ()  # the groups that span zones

    def document(self) -> dict[str, Any]:
        """Return what is said about Auto Scaling groups, by the names that programs use."""
        split = [{"group": one.name, "pool": one.pool, "how": one.how} for one in self.split]
        found = {"terraform": "\n".join(self.terraform), "leftOut": self.left_out, "ifSplit": split}
        return {name: value for name, value in found.items() if value}

    def say(self, output: Output) -> None:
        """Print what people read."""
        for line in (*self.lines, *self.missing):
            say(line)
        if self.terraform:
            say_lines("\n".join(["or, in Terraform:", *self.terraform]))
        for line in self.left_out:
            say(f"left out: {line}")
        for one in self.split:
            print_pools(terminal(output), [one.pool], [one.pool_id])
            say(f"  {one.name} spans zones, so no plan changes it. To split it, {one.how}.")


def _advice(
    observation: Observation, planned: Plan, policy: ClusterFile, texts: Sequence[tuple[str, str]], target: Target
) -> _Advice:
    """Return what to do for node groups in no pool."""
    if policy.pools == () and any(group.key.flavour != AUTO_SCALING for group in observation.groups):
        return _Advice(["to get a pool, add to the record (a plan without a record has this line):", *_DISCOVERY])
    advice = propose_marks(observation.groups, planned, policy.policy().similarity)
    if advice.marks:
        tags = tags_of(advice.marks)
        return _Advice(
            lines=[heading(advice.marks, advice.lacking), *lines(advice.marks, target)],
            tags=tags,
            terraform=terraform(observation.groups, tags),
            left_out=advice.missing if tags else (),
        )
    if planned.pools:
        return _Advice()
    if observation.groups or any(one.namespace or one.reason.rule is Rule.NOT_OF_CLUSTER for one in planned.skipped):
        return _Advice(missing=advice.missing)
    if target.region is not None:
        nowhere = f"no Auto Scaling group of a cluster in {target.region} of this account"
        return _Advice(missing=[f"{nowhere}: {_NO_GROUP}"])
    kinds = (kind for flavour in flavours_of(policy.flavours) for kind in flavour.scalables)
    of_aws = ["AutoScalingGroups of AWS"] if texts and AUTO_SCALING in policy.flavours else []
    sought = ", ".join([*(f"{kind.plural}.{kind.group}" for kind in kinds), *of_aws])
    where = f"context {target.context}" if target.context else target.kubeconfig or "the files"
    if policy.namespaces:
        named = f"namespace {', '.join(policy.namespaces)} of {where}"
        advised = "name another namespace, or none for all namespaces"
        return _Advice(missing=[f"no node group in {named}: looked for {sought}: {advised}"])
    nothing = f"no node group in {where}: looked for {sought}: name the API server or file that has them"
    if any(one.reason.rule in _OF_AWS for one in planned.skipped):
        nothing = "no Auto Scaling group in the files: add the output of aws autoscaling describe-auto-scaling-groups"
    places = _places(texts, target)
    return _Advice(lines=places, missing=() if places else [nothing])


def _places(texts: Sequence[tuple[str, str]], target: Target) -> Sequence[str]:
    """Return a heading and the lines that read the API servers with the machine objects."""
    places = propose_places(_clues(texts, target))
    return [heading(places), *lines(places, target)] if places else []


def _print_and_exit(planned: Plan, before: "StateFile | None", output: Output, advice: _Advice) -> None:
    """Print a plan. Exit with an error code if there is no pool, a pool is invalid, or a request is refused."""
    if refused := [problem_text(refusal.problem) for refusal in planned.refusals if not refusal.waits]:
        fail(refused)
    # The other requests wait, because their pool is invalid or has another request.
    waiting = [problem_text(refusal.problem) for refusal in planned.refusals]
    is_invalid = any(not pool.mode.valid for pool in planned.pools)
    code = INVALID_POOL if is_invalid else _NO_POOL if not planned.pools else BAD_INPUT if waiting else 0
    document = plan_json(planned)
    mark_pools(document, planned, advice.tags)
    if output.is_document:
        from evenkeel_cli.state_file import StateFile  # with the codec of stored items, which tables do not need

        after = (before or StateFile()).after(planned)
        proposals = {} if planned.pools and not advice.lines else {"proposals": advice.lines[1:]}
        faults = waiting or advice.missing
        failure = error_document(faults, code) if faults else {}
        say_document({**document, **proposals, **advice.document(), "state": after, **failure}, output)
    elif output is Output.NAME:
        for name in group_names(document["pools"]):
            say(name)
        for line in (*advice.lines, *advice.missing):
            say(line, err=True)
    else:
        print_plan(terminal(output), document, [str(pool.id) for pool in planned.pools], plan_message(planned))
        advice.say(output)
    if waiting and not output.is_document:
        fail(waiting, code)
    if code:
        raise typer.Exit(code)


def _read_state(name: str) -> "StateFile":
    from evenkeel_cli.state_file import StateFile

    return StateFile.read(read_text(name), file_name(name))


def _split(of_aws: AwsDocuments, policy: ClusterFile, now: datetime) -> "Sequence[SplitGroup]":
    from evenkeel_cli.split_groups import split_groups

    return tuple(split_groups(of_aws.groups_of_clusters(policy), policy, now))


def _session(role_arn: str | None) -> Any:
    from evenkeel_cli.auto_scaling import own_session

    return own_session(role_arn)


def _context(kubeconfig: str | None, context: str | None) -> str | None:
    from evenkeel_cli.live import named_context  # its imports take 0.3 s

    try:
        return named_context(kubeconfig, context)
    except ConfigError as error:
        raise ConfigError([f"{error}: give either -f with objects, or {_OTHER_SOURCES}"]) from None


def _texts(files: Sequence[str], target: Target) -> list[tuple[str, str]]:
    """Return (name, text) pairs of the files. Raises ConfigError, also where both files and a cluster are given."""
    if files and (target.is_live or target.region is not None):
        raise ConfigError([f"give either -f with objects, or {_OTHER_SOURCES}"])
    return [(file_name(name), read_text(name)) for name in files]


def _observe(
    texts: Sequence[tuple[str, str]],
    policy: ClusterFile,
    state: ClusterState,
    now: datetime,
    target: Target,
    aws: Any,
) -> tuple[Observation, SeePods, AwsDocuments]:
    of_aws = AwsDocuments()
    if aws is not None:
        from evenkeel_cli import auto_scaling

        return auto_scaling.observe(policy, state, aws, of_aws), lambda observed: observed, of_aws
    if target.is_live:
        from evenkeel_cli.live import observe

        return *observe(policy, state, target.kubeconfig, target.context), of_aws
    return read_objects(texts, policy, now, of_aws), lambda observed: observed, of_aws


def _clues(texts: Sequence[tuple[str, str]], target: Target) -> Sequence[Object]:
    """Return objects that may show where the machine objects are, from a cluster without them or from files."""
    if target.region is not None:
        return ()
    if target.is_live:
        from evenkeel_cli.live import clues

        return clues(target.kubeconfig, target.context)
    return [item for file, text in texts for _, item in objects_of(file, text, [])]
