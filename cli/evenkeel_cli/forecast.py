"""`evenkeel forecast`: play the loss of one zone against the state of clusters. It writes nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import typer

from evenkeel.adapters.codec import unpack
from evenkeel.adapters.kubernetes.objects import ZONE_ID_LABEL
from evenkeel.application.errors import EvenkeelError
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.values import near, quote
from evenkeel.domain.model.workload import ZONE
from evenkeel.domain.model.zone_names import with_zone_labels, zone_called
from evenkeel.domain.plan import plan
from evenkeel.domain.survival.setting import SURVIVE_ZONES, SurviveZones
from evenkeel.texts.english import sentence
from evenkeel.validation import ConfigError, read_model
from evenkeel_cli.cluster_file import ClusterFile
from evenkeel_cli.console import progress
from evenkeel_cli.forecast_answers import Foreseen, fleet_json, forecast_json, print_fleet, print_forecast
from evenkeel_cli.inputs import default_stack, file_name, read_moment, read_text, read_yaml, refuse_two_standard_inputs
from evenkeel_cli.objects import read_objects
from evenkeel_cli.simulation.forecast import foresee
from evenkeel_cli.simulation.loss import Loss, zones_of
from evenkeel_cli.simulation.scale_down_now import without_unneeded
from evenkeel_cli.stack_client import ask_or_fail, pages
from evenkeel_cli.state_file import StateFile
from evenkeel_cli.terminal import CANNOT_READ, IN_TROUBLE, CommandError, Output, fail, say, say_document

_SAME: dict[str, Any] = {"access": {"kind": "same"}}  # reads pods and nodes from the machine objects' own API
_MOST_NODES = 20_000  # of all node groups


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The options of the command."""

    zone: str | None = None
    zone_id: str | None = None
    file: Sequence[str] = ()
    record: str | None = None
    state: str | None = None
    now: str | None = None
    kubeconfig: str | None = None
    context: str | None = None
    workload_context: str | None = None
    auto_scaling: bool = False
    role_arn: str | None = None
    stack: str | None = None
    cluster: str | None = None
    everything: bool = False

    @property
    def asks_stack(self) -> bool:
        """Return True if the stack reads the cluster. An option of the caller's own access replaces the stack's."""
        own = (self.kubeconfig, self.context, self.workload_context, self.role_arn)
        return self.stack is not None and not any(own)


class NothingLostError(CommandError):
    """A cluster has nothing in the zone."""


def forecast_command(inputs: Inputs, output: Output) -> None:
    """Print the forecast for the loss of a zone. Exit with 4 if pods get no place or nodes stay missing."""
    inputs = _with_defaults(inputs)
    _check(inputs)
    if inputs.everything:
        _forecast_all(inputs, output)
        return
    if inputs.stack is None:
        foreseen = _foreseen(inputs, *_read_files(inputs), inputs.context or "")
    else:
        foreseen = forecast_of_record(inputs, record_of(inputs.stack, inputs.cluster))
    if output.is_document:
        say_document(forecast_json(foreseen), output)
    else:
        print_forecast(foreseen)
    if not foreseen.outcome.survives:
        raise typer.Exit(IN_TROUBLE)


def _with_defaults(inputs: Inputs) -> Inputs:
    """Return the options with the stack of the environment, or with the current context, if they name no source."""
    if inputs.stack or inputs.file or inputs.kubeconfig or inputs.context or inputs.auto_scaling:
        return inputs
    if inputs.cluster is not None or inputs.everything:
        return replace(inputs, stack=default_stack())
    from evenkeel_cli.live import named_context

    return replace(inputs, context=named_context(None, None))


def record_of(stack: str, cluster: str | None) -> dict[str, Any]:
    """Return the record of a registered cluster. Raises CommandError."""
    records, unread = _records(stack, cluster)
    if unread:
        fail(list(unread.values()), CANNOT_READ)
    (record,) = records
    return record


def _check(inputs: Inputs) -> None:
    """Fail for options that do not go together."""
    is_live = inputs.kubeconfig is not None or inputs.context is not None
    faults = {
        "name the zone that is lost, either by --zone or by --zone-id": (inputs.zone is None)
        == (inputs.zone_id is None),
        "--cluster goes with --stack; --context names a cluster without one": inputs.cluster is not None
        and inputs.stack is None,
        "--stack forecasts one cluster or all: give either --cluster or --all": inputs.stack is not None
        and (inputs.cluster is None) != inputs.everything,
        "--all reads each cluster itself: leave out -f, --context and --auto-scaling": inputs.everything
        and bool(inputs.file or inputs.context or inputs.workload_context or inputs.auto_scaling),
        "--stack has the record and the state: leave out -f, --record, --state and --auto-scaling": inputs.stack
        is not None
        and bool(inputs.file or inputs.record or inputs.state or inputs.auto_scaling),
        "--workload-context goes with --context or --stack": inputs.workload_context is not None
        and not (is_live or inputs.stack),
        "name what to read by one of -f FILE, --context NAME (or --kubeconfig FILE), --auto-scaling or "
        "--stack NAME": not (inputs.stack or inputs.everything)
        and sum((bool(inputs.file), is_live, inputs.auto_scaling)) != 1,
    }
    if found := [fault for fault, is_found in faults.items() if is_found]:
        fail(found[:1])
    refuse_two_standard_inputs(*inputs.file, inputs.record, inputs.state)


# Inputs


def _read_files(inputs: Inputs) -> tuple[ClusterFile, ClusterState]:
    record = {} if inputs.record is None else read_yaml(inputs.record)
    policy = read_model(ClusterFile, record, file_name(inputs.record or "record"))
    if inputs.state is None:
        return policy, StateFile().state()
    return policy, StateFile.read(read_text(inputs.state), file_name(inputs.state)).state()


def _records(stack: str, cluster: str | None) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the records of a stack, and by cluster why its record cannot be read."""
    exported = pages("export", stack, cluster or "*")
    unread = {id: line for page in exported for id, line in page["unread"].items()}
    return [record for page in exported for record in page["records"]], unread


def forecast_of_record(inputs: Inputs, record: dict[str, Any]) -> Foreseen:
    """Return the forecast of a registered cluster."""
    assert inputs.stack is not None
    id = record["id"]
    policy = read_model(ClusterFile, record, f"record of {id}")
    answer = ask_or_fail("status", inputs.stack, id)
    known = StateFile.of_status(answer, f"status of {id}").state()
    if inputs.asks_stack:
        inputs = replace(inputs, cluster=id)
    elif AUTO_SCALING in policy.flavours:
        inputs = replace(inputs, auto_scaling=True)
    else:
        inputs = replace(inputs, context=inputs.context or id)
    return _foreseen(inputs, policy, known, id)


def _observe(inputs: Inputs, policy: ClusterFile, known: ClusterState, moment: datetime) -> Observation:
    """Return an observation, with pods and nodes if they can be read."""
    if inputs.asks_stack:
        assert inputs.stack is not None
        answer = ask_or_fail("plan", inputs.stack, inputs.cluster, {"observation": True})
        return unpack(Observation, answer["observation"], f"observation of {inputs.cluster}")
    if inputs.auto_scaling:
        from evenkeel_cli import auto_scaling

        return auto_scaling.observe(policy, known, auto_scaling.own_session(inputs.role_arn))
    # Without demand and workload, a plan reads no pods. A forecast needs them.
    reads = policy.model_copy(update={"workload": policy.workload or _SAME})
    if inputs.file:
        return read_objects([(file_name(name), read_text(name)) for name in inputs.file], reads, moment)
    from evenkeel_cli.live import observe

    observation, see_pods = observe(reads, known, inputs.kubeconfig, inputs.context, inputs.workload_context)
    return see_pods(observation)


def _foreseen(inputs: Inputs, policy: ClusterFile, known: ClusterState, name: str) -> Foreseen:
    """Return the forecast of one cluster. Raises CommandError, ConfigError, EvenkeelError."""
    moment = read_moment(inputs.now)
    observation = _observe(inputs, policy, known, moment)
    if inputs.now is None:
        moment += observation.clock_skew
    if observation.workload is not None and not observation.workload.nodes:
        observation = replace(observation, workload=None)
    if sum(group.requested for group in observation.groups) > _MOST_NODES:
        largest = max(observation.groups, key=lambda group: group.requested)
        text = f"{largest.key}: replicas is {largest.requested}: a forecast plays at most {_MOST_NODES} nodes"
        raise CommandError([text])
    observation = with_zone_labels(observation)
    lost = _zone(observation, inputs.zone, inputs.zone_id, policy.zone_ids)
    planned = plan(observation, known, policy.policy(), moment)
    loss = Loss(without_unneeded(observation, planned, known, policy.policy(), lost), planned, moment, lost)
    if not loss.lost:
        raise NothingLostError([f"zone {lost} has no node: nothing would be lost"])
    return Foreseen(
        name=name,
        outcome=foresee(loss, policy, known),
        planned=planned,
        surviving=_surviving(observation, policy, known, moment),
        unread="" if observation.workload_unread is None else sentence(observation.workload_unread),
    )


def _surviving(observation: Observation, policy: ClusterFile, known: ClusterState, moment: datetime) -> Plan:
    """Return the plan in which each pool survives the loss of a zone."""
    survives = {SURVIVE_ZONES.name: SurviveZones.ONE.value}
    groups = tuple(
        replace(group, annotations=replace(group.annotations, own={**group.annotations.own, **survives}))
        for group in observation.groups
    )
    return plan(replace(observation, groups=groups), known, policy.policy(), moment)


def _zone(observation: Observation, zone: str | None, zone_id: str | None, of_record: Mapping[str, str]) -> str:
    """Return the zone's name. Raises NothingLostError for an unknown zone. ``of_record``: the record's zone ids."""
    zones = zones_of(observation)
    if zone is not None:
        if (called := zone_called(zone, observation.groups)) in zones:
            return called
        raise _unknown("--zone", zone, zones)
    nodes = observation.workload.nodes if observation.workload is not None else ()
    of_nodes = {node.labels[ZONE_ID_LABEL]: node.labels.get(ZONE, "") for node in nodes if ZONE_ID_LABEL in node.labels}
    names = {id: zone_called(name, observation.groups) for id, name in {**of_record, **of_nodes}.items()}
    ids = {id: name for id, name in names.items() if name in zones}
    assert zone_id is not None
    if zone_id in ids:
        return ids[zone_id]
    in_use = {group.identity.zone for group in observation.groups if group.requested}
    in_use |= {zone_called(node.labels.get(ZONE, ""), observation.groups) for node in nodes}
    if unknown := sorted(zone for zone in in_use - {*ids.values()} if zone):
        text = f"--zone-id is {quote(zone_id)}: the ids of these zones are unknown: {', '.join(unknown[:20])}"
        raise CommandError([f"{text}: add them to zone_ids of the record"])
    raise _unknown("--zone-id", zone_id, sorted(ids))


def _unknown(option: str, value: str, known: list[str]) -> CommandError:
    if not known:
        missing = (
            "no node group names its zone: give its zone, or the nodes"
            if option == "--zone"
            else "zone ids are read from the labels of nodes, and no node was read: give --zone"
        )
        return CommandError([f"{option} is {quote(value)}: {missing}"])
    return NothingLostError(
        [f"{option} is {quote(value)}: no such zone: choose one of {', '.join(known)}{near(value, known)}"]
    )


# A fleet


def _clusters(inputs: Inputs, unread: dict[str, str]) -> Iterator[tuple[str, Callable[[], Foreseen]]]:
    """Yield the clusters of a stack, or the contexts of a kubeconfig, each with a function that makes its forecast.

    Add to ``unread`` why the record of a cluster cannot be read.
    """
    if inputs.stack is not None:
        records, of_records = _records(inputs.stack, None)
        unread.update(of_records)
        for record in records:
            yield record["id"], partial(forecast_of_record, inputs, record)
        return
    from evenkeel_cli.live import contexts

    policy, known = _read_files(inputs)
    for name in contexts(inputs.kubeconfig):
        yield name, partial(_foreseen, replace(inputs, context=name), policy, known, name)


def _forecast_all(inputs: Inputs, output: Output) -> None:
    """Print one line per cluster, the worst first. Clusters that cannot be read follow, one line each."""
    found: list[Foreseen] = []
    unread: dict[str, str] = {}
    clusters = list(_clusters(inputs, unread))
    spared: list[str] = []
    with progress("forecast", "clusters", len(clusters)) as report:
        for number, (name, make) in enumerate(clusters, 1):
            try:
                found.append(make())
            except NothingLostError:
                spared.append(name)
            except CommandError as error:
                unread[name] = "; ".join(error.faults)
            except (ConfigError, EvenkeelError) as error:
                unread[name] = "; ".join(str(error).splitlines())
            report(number)
    found.sort(key=lambda foreseen: foreseen.badness, reverse=True)
    if output.is_document:
        say_document(fleet_json(found, spared, unread), output)
    else:
        print_fleet(found, spared)
        for name, why in unread.items():
            say(f"{name}: not read: {why}", err=True)
    if unread or not clusters:
        raise typer.Exit(CANNOT_READ)
    if not all(foreseen.outcome.survives for foreseen in found):
        raise typer.Exit(IN_TROUBLE)
