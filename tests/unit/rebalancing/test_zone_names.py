"""One zone with two names: in the machine API, and in the label of its nodes."""

from collections.abc import Iterable
from datetime import timedelta

import pytest

from evenkeel.application.errors import BadRequestError
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.demand import DemandPolicy
from evenkeel.domain.model.groups import NodeGroup, State
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.templates import NodeTemplate
from evenkeel.domain.model.workload import ZONE, Node, Workload
from evenkeel.domain.model.zone_names import with_zone_labels, zone_called
from evenkeel.domain.plan import plan
from evenkeel.domain.survival.zone_loss import ZoneLosses, guard_zones
from evenkeel.texts.english import problem_text
from tests.builders import BALANCED, MINUTE, NOW, group, key, stated
from tests.fakes import FakeWorkload
from tests.parts import make, replace
from tests.stack import Stack
from tests.workloads import node, offer, pod, pool_offer, template

AZURE = NodeTemplate(labels={ZONE: "westeurope-1"})


def labels(groups: Iterable[NodeGroup], *nodes: Node) -> list[str | None]:
    observation = Observation(groups=tuple(groups), workload=Workload(nodes=nodes))
    return [found.identity.zone_label for found in with_zone_labels(observation).groups]


def in_zone(zone: str, *, of: str = "", pool: str = "workers") -> Node:
    return node(f"n-{zone}", zone, group=key(of or zone[-1], pool=pool))


def test_the_annotated_label_wins_over_the_nodes() -> None:
    assert labels([group("1", template=AZURE)], in_zone("other-1")) == ["westeurope-1"]


def test_the_label_is_learned_from_own_nodes_then_from_the_same_zone_then_from_other_zones() -> None:
    zones = [group(zone) for zone in "123"]
    assert labels(zones, in_zone("x", of="1"), in_zone("westeurope-2")) == ["x", "westeurope-2", "westeurope-3"]
    assert labels(zones, in_zone("westeurope-2")) == ["westeurope-1", "westeurope-2", "westeurope-3"]
    assert labels([*zones, group("1", pool="gpu")], in_zone("rack-7", of="1", pool="gpu"))[0] == "rack-7"
    assert labels([group("1", template=AZURE), group("2")]) == ["westeurope-1", "westeurope-2"]


def test_nodes_of_no_group_and_without_a_label_teach_nothing() -> None:
    strays = (replace(in_zone("westeurope-1"), group=None), replace(in_zone("x", of="2"), labels={}))
    assert labels([group("1"), group("2")], *strays) == [None, None]


def test_most_nodes_of_a_group_decide() -> None:
    nodes = [in_zone("westeurope-1"), in_zone("odd", of="1"), node("third", "westeurope-1", group=key("1"))]
    assert labels([group("1")], *nodes) == ["westeurope-1"]


def test_a_template_that_repeats_the_machine_apis_name_does_not_hide_the_nodes_name() -> None:
    repeats = NodeTemplate(labels={ZONE: "2"})
    assert labels([group("1"), group("2", template=repeats)], in_zone("westeurope-1"))[1] == "westeurope-2"


def test_clusters_of_two_regions_learn_nothing_from_each_other() -> None:
    other = group("1", key=key("1", namespace="shoot-2"))
    assert labels([group("1"), other], in_zone("westeurope-1")) == ["westeurope-1", None]
    assert labels([group(zone) for zone in "123"], in_zone("a-1"), in_zone("b-2")) == ["a-1", "b-2", None]


@pytest.mark.parametrize("nodes", [(), (in_zone("a"),)])
def test_a_zone_with_one_name_has_no_second_one(nodes: tuple[Node, ...]) -> None:
    observation = Observation(groups=(group("a"), group("b", in_zone=None)), workload=Workload(nodes=nodes))
    assert with_zone_labels(observation) is observation


def test_a_zone_is_called_by_either_name_and_the_machine_apis_name_is_first() -> None:
    groups = [group("1", zone_label="2"), group("2", zone_label="3")]
    assert [zone_called(name, groups) for name in ("1", "2", "3", "4")] == ["1", "2", "2", "4"]


@pytest.mark.parametrize("workload", [Workload(nodes=(in_zone("westeurope-1"), in_zone("westeurope-3"))), None])
@pytest.mark.parametrize("name", ["2", "westeurope-2"])
def test_a_zone_signal_fences_by_either_name_whether_nodes_are_read_or_not(
    name: str, workload: Workload | None
) -> None:
    observation = Observation(groups=tuple(group(zone, pool_min=0, pool_max=9) for zone in "123"), workload=workload)
    states = (
        plan(observation, ClusterState(zones={name: NOW + MINUTE}), make(Policy, strategy=BALANCED), NOW)
        .pools[0]
        .groups
    )
    assert [each.state for each in states] == [State.HEALTHY, State.FENCED, State.HEALTHY]


def test_the_name_of_a_fence_teaches_nothing_where_nodes_do_or_where_it_fits_no_zone() -> None:
    groups = (group("1"), group("2"))
    known = Observation(groups=groups, workload=Workload(nodes=(in_zone("rack-1"),)))
    assert [each.identity.zone_label for each in with_zone_labels(known, ["x-2"]).groups] == ["rack-1", "rack-2"]
    unknown = Observation(groups=groups)
    for fenced in (["2"], ["x-3"], ["x2"], ["x-1", "y-2"]):
        assert with_zone_labels(unknown, fenced) is unknown


def azure(*nodes: Node) -> Stack:
    groups = [group(zone, bounds=(0, 9)) for zone in "123"]
    stack = Stack(groups, demand="scale-up", autoscaler="none", workload={"access": {"kind": "same"}})
    stack.clusters.workloads["demo"] = FakeWorkload(Workload(nodes=nodes))
    return stack


def test_an_operator_fences_and_lifts_by_either_name() -> None:
    stack = azure(in_zone("westeurope-1"))
    answer = stack.ask("fence-zone", zone="westeurope-2", until=(NOW + 9 * MINUTE).isoformat())
    assert "zone 2 of demo is fenced until" in answer["message"]
    assert stack.store.load("demo").state.zones == {"2": NOW + 9 * MINUTE}
    stack.clock.at += MINUTE
    assert "no longer fenced" in stack.ask("fence-zone", zone="2", until=NOW.isoformat())["message"]


def test_an_unknown_label_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(BadRequestError, match=r"'westeurpe-2': .* its zones are 1, 2, 3; .*westeurope-2"):
        azure(in_zone("westeurope-1")).ask("fence-zone", zone="westeurpe-2", until=(NOW + MINUTE).isoformat())


def test_a_drill_begins_by_either_name() -> None:
    nodes = [in_zone(f"westeurope-{zone}") for zone in "123"]
    stack = azure(*nodes)
    stack.ask("drill", zone="westeurope-2", by="jane", reason="test", **{"for": "30m"})
    drill = stack.store.load("demo").drill
    assert drill is not None
    assert drill.zone == "2"


def ordered(*groups: NodeGroup, nodes: tuple[Node, ...], wants: str) -> dict[str, int]:
    full = [pod(f"full-{each.name}", cpu="4", memory="1Gi", node=each.name) for each in nodes]
    waiting = pod("waiting", node_selector={ZONE: wants})
    observation = Observation(groups=groups, workload=Workload(pods=(waiting, *full), nodes=nodes))
    policy = make(
        Policy,
        strategy=BALANCED,
        demand=DemandStage.SCALE_UP,
        autoscaler=False,
        provision_timeout=timedelta(minutes=15),
    )
    pool = plan(observation, ClusterState(), policy, NOW).pools[0]
    return {each.group.identity.zone or "": each.requested - each.group.requested for each in pool.groups}


@pytest.mark.parametrize("own", [template(), None])
def test_a_zonal_pod_gets_its_node_from_zero(own: NodeTemplate | None) -> None:
    nodes = (in_zone("westeurope-1"), in_zone("westeurope-3"))
    groups = [group(zone, int(zone != "2"), bounds=(0, 9), template=own, pool_min=0, pool_max=9) for zone in "123"]
    assert ordered(*groups, nodes=nodes, wants="westeurope-2") == {"1": 0, "2": 1, "3": 0}


def test_annotations_alone_give_a_zonal_pod_its_node() -> None:
    groups = [
        group(zone, bounds=(0, 9), template=template(labels={ZONE: f"westeurope-{zone}"}), pool_min=0, pool_max=9)
        for zone in "123"
    ]
    assert ordered(*groups, nodes=(), wants="westeurope-2") == {"1": 0, "2": 1, "3": 0}


def test_a_group_at_zero_learns_cpu_and_memory_from_a_node_of_another_zone() -> None:
    unknown = stated("the cpu and memory of its nodes are unknown")
    closed = [group(zone, bounds=(0, 9), closed_because=unknown, pool_min=0, pool_max=9) for zone in "bc"]
    there = group("a", 1, bounds=(0, 9), pool_min=0, pool_max=9)
    assert ordered(there, *closed, nodes=(in_zone("a"),), wants="b") == {"a": 0, "b": 1, "c": 0}
    broken = replace(in_zone("a"), ready=False)
    assert ordered(there, *closed, nodes=(broken,), wants="b") == {"a": 0, "b": 0, "c": 0}


def test_a_node_of_no_group_is_lost_with_its_zone() -> None:
    stray = replace(in_zone("westeurope-2"), group=None)
    groups = tuple(offer(zone, zone_label=f"westeurope-{zone}") for zone in "12")
    pool = replace(pool_offer(), groups=groups, guard=guard_zones)
    simulation = Simulation(Workload(nodes=(stray,)), (pool,), DemandPolicy(), NOW)
    losses = ZoneLosses(simulation, [pool])
    assert losses.zone_of(simulation.snapshot.node_infos[stray.name]) == "2"


def test_a_group_whose_objects_name_no_zone_is_in_the_zone_of_its_nodes() -> None:
    unplaced = [group("a", 2, in_zone=None, bounds=(0, 4)), group("b", 2, bounds=(0, 4))]
    nodes = (node("n-1", "nova-1", group=key("a")), node("n-2", "nova-1", group=key("a")))
    policy = make(Policy, strategy=BALANCED)
    seen = plan(Observation(groups=tuple(unplaced), workload=Workload(nodes=nodes)), ClusterState(), policy, NOW)
    (pool,) = seen.pools
    assert [each.group.identity.zone for each in pool.groups] == ["b", "nova-1"]
    known = ClusterState(pools=dict(seen.pool_states))
    (pool,) = plan(Observation(groups=tuple(unplaced)), known, policy, NOW + MINUTE).pools
    assert [each.group.identity.zone for each in pool.groups] == ["b", "nova-1"], "unread nodes change nothing"
    spread = (*nodes, node("n-3", "nova-2", group=key("a")))
    seen = plan(Observation(groups=tuple(unplaced), workload=Workload(nodes=spread)), ClusterState(), policy, NOW)
    (problem,) = seen.pools[0].report.problems
    assert problem_text(problem) == (
        f"{key('a')} has no zone: set label topology.kubernetes.io/zone on the MachineDeployment. Setting "
        "spec.template.spec.failureDomain instead replaces all machines of the group"
    )


def test_a_group_of_another_api_without_a_zone_is_reported_to_set_the_label_only() -> None:
    unplaced = group("a", 1, in_zone=None, bounds=(0, 4), kind="MachineSet", key=key("a", flavour="openshift"))
    (pool,) = plan(Observation(groups=(unplaced,)), ClusterState(), make(Policy, strategy=BALANCED), NOW).pools
    (problem,) = pool.report.problems
    assert problem_text(problem).endswith("has no zone: set label topology.kubernetes.io/zone on the MachineSet")
