"""Whatever runs in a cluster: advice does not change writes, and keeps the limits of the pools."""

from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters.kubernetes.read.pods import Pods, PodShape
from evenkeel.application.demand.summary import cluster_demand, pool_demand
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.values import BadValueError
from evenkeel.domain.model.workload import Node, Pod, PodDisruptionBudget, Workload
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.dry_run import is_pool_dry
from tests.builders import NOW, group, json_values, numbers
from tests.parts import replace
from tests.property.worlds import World, clusters
from tests.unit.kubernetes.test_workload_reader import pod_object
from tests.workloads import node, pod, pods, selector, template


@st.composite
def pods_on(draw: st.DrawFn, nodes: tuple[Node, ...]) -> tuple[Pod, ...]:
    found = []
    for number in range(draw(st.integers(0, 8))):
        fields: dict[str, Any] = {"cpu": draw(st.sampled_from(["100m", "1", "3", "64"]))}
        if nodes and draw(st.booleans()):
            fields["node"] = draw(st.sampled_from(nodes)).name
        elif draw(st.booleans()):
            fields["node_selector"] = {"topology.kubernetes.io/zone": draw(st.sampled_from("abcd"))}
        if draw(st.integers(0, 5)) == 0:
            fields["scheduler"] = "volcano"
        fields["created_at"] = NOW - timedelta(seconds=draw(st.sampled_from([0, 5, 600, 10_000])))
        found.append(pod(f"p{number}", labels={"app": draw(st.sampled_from("xy"))}, **fields))
    return tuple(found)


@st.composite
def checked_at(draw: st.DrawFn) -> tuple[World, Workload]:
    world = draw(clusters())
    members = tuple(
        replace(member, template=template()) if member.requested == 0 else member for member in world.observation.groups
    )
    world = replace(world, observation=replace(world.observation, groups=members))
    nodes = tuple(
        node(f"n{number}", member.identity.zone or "?", group=member.key)
        for number, member in enumerate(draw(st.lists(st.sampled_from(members), max_size=6)) if members else ())
    )
    budgets = (
        PodDisruptionBudget(
            namespace="default", name="x", selector=selector("app in x"), allowed=draw(st.integers(0, 1))
        ),
    )
    return world, Workload(nodes=nodes, pods=draw(pods_on(nodes)), budgets=budgets)


def planned(world: World, workload: Workload | None, stage: DemandStage) -> Plan:
    observation = replace(world.observation, workload=workload)
    return plan(observation, world.state, replace(world.policy, demand=stage), world.now)


STAGES = st.sampled_from([DemandStage.ADVISE, DemandStage.SCALE_UP, DemandStage.FULL])


@given(checked_at())
def test_advice_changes_no_plan(seen: tuple[World, Workload]) -> None:
    world, workload = seen
    with_pods = planned(world, workload, DemandStage.ADVISE)
    bare = replace(with_pods, demand=None, pools=tuple(replace(pool, demand=None) for pool in with_pods.pools))
    assert bare == planned(world, None, DemandStage.ADVISE)


def _asked_nodes(settings: list[bool | None], *, cluster: bool, waiting: int, stage: DemandStage) -> list[int]:
    """Return how many nodes the pending pods get from each pool; the pools differ in their own dry-run setting."""
    groups = [
        group(zone, pool=f"pool-{number}", dry_run=own, pool_min=0, pool_max=2, template=template())
        for number, own in enumerate(settings)
        for zone in "ab"
    ]
    observation = Observation(groups=tuple(groups), workload=Workload(pods=pods(waiting, cpu="3")))
    found = plan(observation, ClusterState(), replace(numbers(), demand=stage, is_dry=cluster), NOW)
    advised = [pool.demand.advice for pool in found.pools]
    return [0 if advice is None else sum(advice.asked.nodes.values()) for advice in advised]


@given(st.lists(st.sampled_from([None, True, False]), min_size=1, max_size=3), st.booleans(), st.integers(1, 7), STAGES)
def test_a_dry_run_pool_gets_nodes_only_while_no_pool_is_live(
    settings: list[bool | None], cluster: bool, waiting: int, stage: DemandStage
) -> None:
    """So a cluster in dry run shows its orders, and no pod waits for a node that a live pool could get."""
    found = _asked_nodes(settings, cluster=cluster, waiting=waiting, stage=stage)
    live = [not is_pool_dry(own, cluster) for own in settings]
    if not any(live):
        assert found == _asked_nodes([False] * len(settings), cluster=False, waiting=waiting, stage=stage)
    else:
        assert not any(nodes for nodes, is_live in zip(found, live, strict=True) if not is_live)
        assert sum(found) == min(waiting, 2 * sum(live))


@given(checked_at(), STAGES)
def test_advice_stays_within_room_and_open_groups(seen: tuple[World, Workload], stage: DemandStage) -> None:
    found = planned(*seen, stage)
    without = {pool.id: pool for pool in planned(seen[0], None, stage).pools}
    for pool in found.pools:
        if pool.demand.advice is None:
            continue
        states = {group.group.key: group.state for group in pool.groups}
        nodes = pool.demand.advice.asked.nodes
        assert all(states[group] in (State.HEALTHY, State.PROBING) for group in nodes)
        assert all(states[group] is State.HEALTHY or nodes[group] == 1 for group in nodes)
        if nodes:
            assert pool.mode.valid
            assert sum(group.requested for group in without[pool.id].groups) + sum(nodes.values()) <= pool.max
        frozen = {group for group, state in states.items() if state is State.FROZEN}
        assert not any(said.group in frozen for said in pool.demand.advice.nodes if said.needed is None)


@given(checked_at(), STAGES)
def test_each_pending_pod_is_reported_once(seen: tuple[World, Workload], stage: DemandStage) -> None:
    _, workload = seen
    found = planned(*seen, stage)
    if found.demand.unread is not None or found.demand.check_again is not None:
        return
    asked = [each for pool in found.pools if pool.demand.advice for each in pool.demand.advice.asked.pending]
    reported = [name for each in (*asked, *found.demand.unmet) for name in each.pods]
    reported += [each.pod for each in found.demand.not_counted]
    waiting = [each for each in workload.pods if not each.node]
    assert len(reported) == len(set(reported))
    assert len(reported) + found.demand.fit_already == len(waiting)


@given(checked_at(), STAGES)
def test_advice_has_complete_sentences(seen: tuple[World, Workload], stage: DemandStage) -> None:
    found = planned(*seen, stage)
    said = [document.says for pool in found.pools if (document := pool_demand(pool.demand.advice))]
    of_cluster = cluster_demand(found.demand)
    assert all(line.endswith(".") and "{" not in line for lines in (*said, of_cluster.says) for line in lines)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for name, item in inner for each in paths(item, (*path, name)))]


RICH = pod_object(
    spec={
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z", "labelSelector": {}}]
            }
        },
        "topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}],
        "tolerations": [{"operator": "Exists"}],
        "overhead": {"cpu": "1"},
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
    status={"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]},
)


@given(st.sampled_from(paths(RICH)[1:]), json_values())
def test_a_pod_with_any_value_is_read_or_refused(path: tuple[Any, ...], value: Any) -> None:
    item = msgspec.json.decode(msgspec.json.encode(RICH))
    target = item
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    try:
        text = msgspec.json.encode(item)
        found = Pods().read(msgspec.json.decode(text, type=PodShape))
    except (msgspec.MsgspecError, BadValueError, UnicodeError):
        return
    assert isinstance(found, Pod)
