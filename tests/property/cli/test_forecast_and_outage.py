"""A forecast and the simulated outage of the same world: `simulate` loses the zone after the forecast.

The simulated outage has its own machines, scheduler and stored state of Evenkeel. Checks and the autoscaler's loops are
at other seconds than those of the forecast.
"""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import plan
from evenkeel.validation import read_model
from evenkeel_cli.cluster_file import ClusterFile
from evenkeel_cli.simulation.agenda import Turn
from evenkeel_cli.simulation.engine import Run, Variant, play
from evenkeel_cli.simulation.forecast import Outcome, foresee
from evenkeel_cli.simulation.loss import EVICTED, LASTING, PROVISIONED, Loss
from evenkeel_cli.simulation.scale_down_now import without_unneeded
from evenkeel_cli.simulation.scenario import Scenario, read_scenario
from evenkeel_cli.simulation.workload_view import WorkloadView

LOST_AT = 900  # by then, all pods have places
# One check and one loop of the autoscaler begin at other seconds than in the forecast. The autoscaler chooses at random
# among equal zones, and may order an extra node in a zone that does not help.
TOLERANCE = 60 + 10 + (PROVISIONED + 5)


class Outage(Run):
    """A run in which zone a loses its nodes, and its pods are created again after the eviction."""

    policy: ClusterFile
    outcome: Outcome  # the forecast, made when the zone is lost

    def fill_agenda(self) -> None:
        super().fill_agenda()
        self.agenda.enter(LOST_AT, Turn.WORLD, self._lose)

    def _lose(self) -> None:
        world, pods = self.world, self.world.pods
        assert pods is not None
        cluster = self.evenkeel.open(None, None)  # type: ignore[arg-type]
        workload = WorkloadView(world).read(cluster.nodes, judges_nodes=True)
        state = self.evenkeel.table.load("simulated").state
        observation = Observation(groups=cluster.observe().groups, workload=workload)
        known, now = ClusterState(groups=state.groups, pools=state.pools, zones=state.zones), world.time
        policy = self.policy.policy()
        planned = plan(observation, known, policy, now)
        seen = without_unneeded(observation, planned, known, policy, "a")
        self.outcome = foresee(Loss(seen, planned, now, "a"), self.policy, known)
        for group in [group for group in world.groups if group.zone == "a"]:
            for machine in list(group.machines):
                self._replace(group, machine)

    def _replace(self, group: Any, machine: Any) -> None:
        """End a machine and its pods. A controller replaces the machine at once, and the pods after the eviction."""
        world, pods = self.world, self.world.pods
        assert pods is not None
        group.machines.remove(machine)
        machine.gone = True
        if machine.node:
            group.running -= 1
            node = pods.scheduler.nodes[machine.name]
            for pod in [pod for pod in pods.all() if pod.node is node]:
                pods._end(pod)
                self.agenda.enter(world.now + EVICTED, Turn.WORLD, partial(pods._create, pod.kind))
            pods.scheduler.remove(node)
            pods._roomier = None
        world._give(group, -machine.launched)
        world.order(group, 1)


def scenario(pools: Mapping[str, int], kinds: Mapping[str, Any]) -> Scenario:
    return read_scenario(
        {
            "name": "loss",
            "duration": f"{LOST_AT + LASTING}s",
            "zones": [
                {"name": "a", "capacity": [{"at": "0s"}, {"at": f"{LOST_AT}s", "nodes": 0}]},
                {"name": "b"},
                {"name": "c"},
            ],
            "pools": [
                {"name": name, "max": most, "start": 3, "node": {"cpu": 4, "memory": "16Gi"}}
                for name, most in pools.items()
            ],
            "pods": [{"name": name, "memory": "1Gi", **fields} for name, fields in kinds.items()],
        },
        "test",
    )


def both(pools: Mapping[str, int], kinds: Mapping[str, Any], **record: Any) -> tuple[Outcome, Outage]:
    """Return the forecast, and the run in which it is tested."""
    alone = record["autoscaler"] == "none"
    stage = DemandStage(record["demand"]) if alone else DemandStage.OFF
    played = scenario(pools, kinds)
    run = Outage(played, Variant(name="outage", autoscaler=not alone, demand=stage))
    entries = [{"name": name, "max": most} for name, most in pools.items()]
    run.policy = read_model(ClusterFile, {**record, "flavours": ["cluster-api"], "pools": entries}, "record")
    play(run, is_over=lambda second: second > LOST_AT and second > LOST_AT + run.outcome.seconds + TOLERANCE)
    return run.outcome, run


def waiting_until(run: Outage, kind: str) -> int | None:
    """Return the seconds from the loss until no pod of a kind waits; None: some wait at the end."""
    waits = [(snapshot.at, snapshot.pods.waiting[kind]) for snapshot in run.snapshots if snapshot.pods is not None]
    if waits[-1][1]:
        return None
    return next((at - LOST_AT for (at, now), (_, before) in zip(waits[:0:-1], waits[-2::-1], strict=True) if before), 0)


def nodes(snapshots: Any) -> Counter[str]:
    running: Counter[str] = Counter()
    for group in snapshots[-1].groups:
        running[group.zone] += group.running
    return running


def agree(outcome: Outcome, run: Outage) -> None:
    assert run.world.pods is not None
    waiting = Counter(pod.kind.name for pod in run.world.pods.waiting())
    forecast = {waits.name.rpartition("/")[2]: waits for waits in outcome.waits}
    never = {name: waits.never for name, waits in forecast.items() if waits.never}
    bound = {name.rpartition("/")[2]: count for name, count in outcome.bound.items()}
    assert {name: count for name, count in waiting.items() if name not in bound} == never
    assert {name: count for name, count in waiting.items() if name in bound} == bound
    for name, waits in forecast.items():
        until = waiting_until(run, name)
        if until is not None and waits.longest is not None and until > EVICTED:
            assert abs(until - waits.longest) <= TOLERANCE, (name, until, waits.longest)
    after, forecast_nodes = nodes(run.snapshots), nodes(outcome.snapshots)
    assert forecast_nodes["a"] == after["a"] == 0
    for zone in "bc":
        assert abs(after[zone] - forecast_nodes[zone]) <= 1, (after, forecast_nodes)


RECORDS = {
    "demand": {"autoscaler": "none", "demand": "scale-up", "on_failure": "move"},
    "cluster-autoscaler": {"autoscaler": "cluster-autoscaler", "on_failure": "release"},
}
every_record = pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)


@every_record
@settings(max_examples=8)
@given(most=st.integers(6, 16), web=st.integers(4, 24), bound=st.integers(0, 3), spread=st.booleans())
def test_a_forecast_agrees_with_the_outage(
    record: dict[str, str], most: int, web: int, bound: int, spread: bool
) -> None:
    kinds: dict[str, Any] = {"web": {"cpu": 1, "count": web, **({"spread": {"zone": 1}} if spread else {})}}
    if bound:
        kinds["disk"] = {"cpu": 1, "count": bound, "zones": ["a"]}

    agree(*both({"workers": most}, kinds, **record))


@every_record
def test_the_limit_that_keeps_pods_waiting_is_that_of_the_outage(record: dict[str, str]) -> None:
    outcome, run = both({"workers": 6}, {"web": {"cpu": 2, "count": 12}}, **record)

    agree(outcome, run)
    requested = Counter(group.pool for group in run.world.groups for _ in group.machines)
    assert bool(outcome.at_maximum) is (requested["workers"] >= 6 and not outcome.survives)


@every_record
def test_nodes_that_scale_down_takes_are_no_places_for_the_pods_of_a_lost_zone(record: dict[str, str]) -> None:
    """The pods of zone a would fit idle nodes, which scale-down removes before the eviction."""
    kinds = {"web": {"cpu": 4, "count": [{"at": "0s", "pods": 6}, {"at": "540s", "pods": 3}]}}
    removes = {"demand": "full"} if record["autoscaler"] == "none" else {}

    outcome, run = both({"workers": 9}, kinds, **{**record, **removes})

    agree(outcome, run)
    (waits,) = outcome.waits
    assert waits.longest is not None
    assert waits.longest >= EVICTED + PROVISIONED
