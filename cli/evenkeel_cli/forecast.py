"""`evenkeel forecast`: play the loss of one zone against the state of a cluster. It writes nothing."""

from collections import Counter
from typing import Any, NoReturn

from evenkeel.adapters.kubernetes.objects import ZONE_ID_LABEL
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.values import near, quote
from evenkeel.domain.model.workload import ZONE
from evenkeel.domain.plan import plan
from evenkeel.record import ClusterFile
from evenkeel.texts.english import counted, sentence
from evenkeel.validation import read_model
from evenkeel_cli.inputs import file_name, read_moment, read_text, read_yaml
from evenkeel_cli.objects import read_objects
from evenkeel_cli.simulation.forecast import EVICTED, Loss, Outcome, foresee, zones_of
from evenkeel_cli.simulation.scenario import write_duration
from evenkeel_cli.state_file import StateFile
from evenkeel_cli.terminal import Output, cell, fail, say_document, table, terminal

_MOST_ROWS = 15  # of a table; JSON has all


def forecast_command(  # noqa: PLR0913  one parameter per option
    *,
    zone: str | None,
    zone_id: str | None,
    file: list[str],
    record: str | None,
    state: str | None,
    now: str | None,
    kubeconfig: str | None,
    context: str | None,
    output: Output,
) -> None:
    """Print what the loss of a zone would do."""
    if (zone is None) == (zone_id is None):
        fail(["name the zone that is lost, either by --zone or by --zone-id"])
    is_live = kubeconfig is not None or context is not None
    if bool(file) == is_live:
        fail(["give either -f with objects, pods and nodes, or --kubeconfig or --context to read a cluster"])
    if [*file, record, state].count("-") > 1:
        fail(["standard input is named more than once: it can be read only once"])
    policy = read_model(ClusterFile, {} if record is None else read_yaml(record), file_name(record or "record"))
    known = (StateFile.read(read_text(state), file_name(state)) if state is not None else StateFile()).state()
    moment = read_moment(now)
    # Without demand and workload, a plan reads no pods. A forecast needs them.
    reads = policy.model_copy(update={"workload": policy.workload or {"access": {"kind": "same"}}})
    if is_live:
        from evenkeel_cli.live import observe

        observation, see_pods = observe(reads, known, kubeconfig, context)
        observation = see_pods(observation)
        moment += observation.clock_skew
    else:
        observation = read_objects([(file_name(name), read_text(name)) for name in file], reads, moment)
    if observation.workload is None or not observation.workload.nodes:
        unread = observation.workload_unread
        fail(["pods and nodes are missing" + (f": {sentence(unread)}" if unread else ": add them to the files of -f")])
    planned = plan(observation, known, policy.policy(), moment)
    lost = _zone(observation, zone, zone_id)
    outcome = foresee(Loss(observation, planned, moment, lost), policy, known)
    if output.is_document:
        say_document(forecast_json(outcome, planned), output)
    else:
        print_forecast(outcome, planned)


def _zone(observation: Observation, zone: str | None, zone_id: str | None) -> str:
    """Return the zone's name; fail for an unknown zone."""
    zones = zones_of(observation)
    if zone is not None:
        return zone if zone in zones else _unknown("--zone", zone, zones)
    nodes = observation.workload.nodes if observation.workload is not None else ()
    ids = {node.labels[ZONE_ID_LABEL]: node.labels.get(ZONE, "") for node in nodes if ZONE_ID_LABEL in node.labels}
    assert zone_id is not None
    return ids.get(zone_id) or _unknown("--zone-id", zone_id, sorted(ids))


def _unknown(option: str, value: str, known: list[str]) -> NoReturn:
    choice = f"choose one of {', '.join(known)}{near(value, known)}" if known else "no node has one"
    fail([f"{option} is {quote(value)}: no such zone: {choice}"])


def _by_zone(outcome: Outcome, number: str) -> list[dict[str, int]]:
    found = []
    for snapshot in outcome.snapshots:
        nodes: Counter[str] = Counter()
        for group in snapshot.groups:
            nodes[group.zone] += getattr(group, number)
        found.append(dict(sorted(nodes.items())))
    return found


def _timeline(outcome: Outcome) -> list[dict[str, Any]]:
    """Return the nodes by zone and the waiting pods, once for each change."""
    lines: list[dict[str, Any]] = []
    requested, running = _by_zone(outcome, "requested"), _by_zone(outcome, "running")
    for snapshot, wanted, nodes in zip(outcome.snapshots, requested, running, strict=True):
        waiting = sum(snapshot.pods.waiting.values()) if snapshot.pods is not None else 0
        line = {"requested": wanted, "running": nodes, "waiting": waiting}
        if not lines or {**lines[-1], "at": 0} != {**line, "at": 0}:
            lines.append({"at": snapshot.at, **line})
    return lines


def forecast_json(outcome: Outcome, planned: Plan) -> dict[str, Any]:
    """Return the forecast as a document. Times are seconds since the loss."""
    return {
        "zone": outcome.zone,
        "seconds": outcome.seconds,
        "survives": outcome.survives,
        "evictedAfter": EVICTED,
        "lostNodes": outcome.lost_nodes,
        "pods": [
            {"owner": waits.name, "pods": waits.pods, "longest": waits.longest, "withoutPlace": waits.never}
            for waits in outcome.waits
        ],
        "bound": dict(outcome.bound),
        "nodes": _timeline(outcome),
        "atMaximum": list(outcome.at_maximum),
        "surviveZones": {str(pool.id): not pool.is_at_risk for pool in planned.pools if pool.survival is not None},
    }


def print_forecast(outcome: Outcome, planned: Plan) -> None:
    """Print the forecast as text of at most 80 columns."""
    console = terminal()

    def line(text: str) -> None:
        console.print(cell(text), soft_wrap=True)

    never = sum(waits.never for waits in outcome.waits)
    displaced = sum(waits.pods for waits in outcome.waits)
    bound = sum(outcome.bound.values())
    answer = "every pod that may run elsewhere gets a place" if outcome.survives else f"{never} pods get no place"
    line(f"zone {outcome.zone} is lost, {counted(outcome.lost_nodes)}: {answer}")
    line(f"{displaced} pods need a place from {write_duration(EVICTED)} on, when they are evicted")
    line(f"{bound} pods are bound to the zone and wait for it")
    for name in outcome.at_maximum:
        line(f"{name}: PoolMaximum is reached")
    for pool in planned.pools:
        if pool.survival is not None:
            line(f"{pool.id}: {sentence(pool.survival.note)}")
    pods = table()
    pods.add_column("pods of", overflow="ellipsis", max_width=44)
    for heading in ("pods", "placed by", "no place"):
        pods.add_column(heading, justify="right", no_wrap=True)
    for waits in outcome.waits[:_MOST_ROWS]:
        longest = "-" if waits.longest is None else write_duration(waits.longest)
        pods.add_row(cell(waits.name), str(waits.pods), longest, str(waits.never))
    if outcome.waits:
        console.print(pods)
    changes = table()
    zones = sorted({group.zone for group in outcome.snapshots[-1].groups})[:4]
    for heading in ("at", *zones, "waiting"):
        changes.add_column(heading, justify="right", overflow="ellipsis", max_width=16)
    for change in _timeline(outcome)[:_MOST_ROWS]:
        cells = [f"{change['running'][zone]} of {change['requested'][zone]}" for zone in zones]
        changes.add_row(write_duration(change["at"]), *cells, str(change["waiting"]))
    console.print(changes)
    line("at: since the loss; nodes by zone: running of requested; waiting: pods")
