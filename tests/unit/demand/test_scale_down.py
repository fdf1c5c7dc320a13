"""Unneeded nodes: which, since when, which are removed first, and why each other one stays."""

from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest

from evenkeel.domain.demand.drainability import Budgets, DrainDecision, drain_decision
from evenkeel.domain.demand.scale_down import scale_down
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.model.demand import DemandPolicy, GroupOffer, KeptEmpty, PoolOffer, ScaleDownState, Unneeded
from evenkeel.domain.model.groups import Machine
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.templates import Taint
from evenkeel.domain.model.workload import (
    HOSTNAME,
    ZONE,
    Node,
    Owner,
    Pod,
    PodAffinityTerm,
    PodDisruptionBudget,
    PodVolume,
    TopologySpreadConstraint,
    Workload,
)
from tests.builders import MINUTE, NOW
from tests.workloads import (
    LONG_AGO,
    amounts,
    container,
    group_key,
    node,
    offer,
    pod,
    pool_id,
    pool_offer,
    said,
    selector,
    taint,
)

CA = "cluster-autoscaler.kubernetes.io"
LONG = {name: NOW - timedelta(hours=1) for name in (f"n{zone}{i}" for zone in "abc" for i in range(30))}


STAYS: dict[str, Any] = {"annotations": {f"{CA}/scale-down-disabled": "true"}}


def ours(name: str, zone: str = "a", **fields: Any) -> Node:
    return node(name, zone, group=group_key(zone), **fields)


def taken_away(since: datetime) -> Taint:
    """Return the taint of Cluster Autoscaler on a node that it drains."""
    return taint(f"ToBeDeletedByClusterAutoscaler={int(since.timestamp())}:NoSchedule")


def three(zones: str = "abc", **fields: Any) -> PoolOffer:
    return pool_offer(zones=zones, requested=3, **fields)


def check(
    *nodes: Node,
    running: tuple[Pod, ...] = (),
    clocks: dict[str, datetime] | None = None,
    pools: tuple[PoolOffer, ...] | None = None,
    now: datetime = NOW,
    **parts: Any,
) -> Unneeded:
    """Check once. By default, the clocks of all nodes have run for an hour."""
    policy = parts.pop("policy", DemandPolicy())
    memory = {name: parts.pop(name) for name in ("grew_at", "failed_at", "leaving") if name in parts}
    stored = ScaleDownState(clocks=LONG if clocks is None else clocks, **memory)
    workload = Workload(nodes=nodes, pods=running, **parts)
    return scale_down(Simulation(workload, (three(),) if pools is None else pools, policy, now), stored)


def one_pool(*groups: GroupOffer, **fields: Any) -> tuple[PoolOffer, ...]:
    return (PoolOffer(pool=pool_id(), groups=groups, **fields),)


def gone(answer: Unneeded) -> list[str]:
    return [removal.node for removal in answer.go]


# ---------------------------------------------------------------- the pods of a removed node


def volume(kind: str, *, in_memory: bool = False) -> dict[str, Any]:
    return {"volumes": (PodVolume("scratch", kind, in_memory=in_memory),)}


def annotated(**values: str) -> dict[str, Any]:
    return {"annotations": {f"{CA}/{name.replace('_', '-')}": value for name, value in values.items()}}


SYSTEM = {"namespace": "kube-system"}
# A need of each kind that these rules do not know.
UNPLACEABLE: tuple[dict[str, Any], ...] = (
    {"resource_claims": ("gpu",)},
    {"unread": ("schedulingGroup",)},
    {"unread": ("workloadRef",)},
    {"unread": ("future",)},
    {"scheduler": "volcano"},
    volume("awsElasticBlockStore"),
    volume("rbd"),
)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, DrainDecision.MOVES),
        ({"annotations": {"kubernetes.io/config.mirror": ""}, "owner": None}, DrainDecision.ENDS),
        ({"deleted_at": NOW - 2 * MINUTE}, DrainDecision.ENDS),
        ({"deleted_at": NOW - 2 * MINUTE, "grace": 5 * MINUTE}, DrainDecision.MOVES),
        ({"owner": Owner("DaemonSet", "ds")}, DrainDecision.ENDS),
        ({"owner": Owner("DaemonSet", "ds"), **annotated(safe_to_evict="false")}, DrainDecision.ENDS),
        ({"owner": None, **annotated(safe_to_evict="true")}, DrainDecision.MOVES),
        ({"phase": "Failed", "owner": None}, DrainDecision.ENDS),
        ({"phase": "Succeeded", "owner": None}, DrainDecision.ENDS),
        ({"owner": None, **annotated(safe_to_evict="on-completion")}, DrainDecision.WAITED_FOR),
        ({"owner": None}, Rule.NOT_REPLICATED),
        ({"owner": Owner("Widget", "w")}, Rule.NOT_REPLICATED),
        ({"owner": Owner("StatefulSet", "s")}, DrainDecision.MOVES),
        ({"owner": Owner("Job", "j")}, DrainDecision.MOVES),
        ({"owner": Owner("ReplicationController", "r")}, DrainDecision.MOVES),
        ({**SYSTEM, "created_at": NOW - 59 * MINUTE}, Rule.SYSTEM_POD),
        ({**SYSTEM, "created_at": LONG_AGO}, DrainDecision.MOVES),
        (
            {**SYSTEM, "created_at": LONG_AGO, **annotated(safe_to_evict="false"), **volume("hostPath")},
            DrainDecision.MOVES,
        ),
        (annotated(safe_to_evict="false"), Rule.NOT_SAFE_TO_EVICT),
        (annotated(safe_to_evict="True"), DrainDecision.MOVES),
        ({"annotations": {"karpenter.sh/do-not-disrupt": "true"}}, DrainDecision.MOVES),
        (volume("emptyDir"), Rule.LOCAL_STORAGE),
        (volume("hostPath"), Rule.LOCAL_STORAGE),
        (volume("emptyDir", in_memory=True), DrainDecision.MOVES),
        (volume("configMap"), DrainDecision.MOVES),
        ({**volume("emptyDir"), **annotated(safe_to_evict_local_volumes="other,scratch")}, DrainDecision.MOVES),
        ({**volume("emptyDir"), **annotated(safe_to_evict_local_volumes="other, scratch")}, Rule.LOCAL_STORAGE),
        ({**volume("emptyDir"), **annotated(safe_to_evict="true")}, DrainDecision.MOVES),
        ({"labels": {"app": "db"}}, Rule.BUDGET_EXHAUSTED),
        ({**SYSTEM, "labels": {"app": "dns"}, "created_at": LONG_AGO}, Rule.BUDGET_EXHAUSTED),
        ({"labels": {"app": "web"}}, DrainDecision.MOVES),
        ({"labels": {"app": "web", "tier": "front"}}, Rule.TWO_BUDGETS),
        ({"labels": {"app": "web", "tier": "front"}, **annotated(safe_to_evict="true")}, Rule.TWO_BUDGETS),
        (
            {"labels": {"app": "web", "tier": "front"}, **annotated(safe_to_evict="on-completion")},
            DrainDecision.WAITED_FOR,
        ),
        ({"labels": {"app": "web", "tier": "front"}, "deleted_at": NOW}, DrainDecision.MOVES),
        *((fields, Rule.POD_NOT_PLACEABLE) for fields in UNPLACEABLE),
        ({"resource_claims": ("gpu",), "owner": Owner("DaemonSet", "ds")}, DrainDecision.ENDS),
        ({"resource_claims": ("gpu",), "annotations": {"kubernetes.io/config.mirror": ""}}, DrainDecision.ENDS),
        ({"resource_claims": ("gpu",), "phase": "Succeeded"}, DrainDecision.ENDS),
        ({"resource_claims": ("gpu",), "deleted_at": NOW - 2 * MINUTE}, DrainDecision.ENDS),
        ({"resource_claims": ("gpu",), "deleted_at": NOW}, Rule.POD_NOT_PLACEABLE),
        ({"resource_claims": ("gpu",), **annotated(safe_to_evict="true")}, Rule.POD_NOT_PLACEABLE),
        ({"resource_claims": ("gpu",), **annotated(safe_to_evict="on-completion")}, DrainDecision.WAITED_FOR),
        ({"resource_claims": ("gpu",), **SYSTEM, "created_at": LONG_AGO}, Rule.POD_NOT_PLACEABLE),
    ],
)
def test_the_first_rule_that_applies_to_a_pod_decides_its_drain(
    fields: dict[str, Any], expected: DrainDecision | Rule
) -> None:
    budgets = Budgets(
        [
            PodDisruptionBudget(namespace="default", name="db", selector=selector("app in db"), allowed=0),
            PodDisruptionBudget(namespace="default", name="web", selector=selector("app in web"), allowed=1),
            PodDisruptionBudget(namespace="default", name="front", selector=selector("tier in front"), allowed=1),
            PodDisruptionBudget(namespace="default", name="nobody", selector=None, allowed=0),
            PodDisruptionBudget(namespace="kube-system", name="dns", selector=selector("app in dns"), allowed=0),
        ]
    )
    found = drain_decision(pod(**{"node": "n", **fields}), budgets, NOW)
    assert (found.rule if isinstance(found, Reason) else found) == expected


def test_an_empty_selector_makes_a_budget_of_the_whole_namespace() -> None:
    budgets = Budgets([PodDisruptionBudget(namespace="default", name="all", selector=(), allowed=-1)])
    assert budgets.left == {"default/all": 0}
    reason = drain_decision(pod(node="n"), budgets, NOW)
    assert isinstance(reason, Reason)
    assert said(reason) == "disruption budget default/all allows no eviction of pod default/p now"


def test_a_pod_of_two_budgets_keeps_its_node() -> None:
    both = tuple(
        PodDisruptionBudget(namespace="default", name=name, selector=selector(f"{key} in x"), allowed=1)
        for name, key in (("one", "a"), ("two", "b"))
    )
    answer = check(ours("na0"), ours("nb0", "b"), running=(pod(node="na0", labels={"a": "x", "b": "x"}),), budgets=both)
    assert gone(answer) == ["nb0"]
    assert said(answer.needed["na0"]) == (
        "pod default/p is under several disruption budgets, default/one, default/two: "
        "the eviction API refuses such pods"
    )


def test_a_marked_node_stays_when_a_pod_that_cannot_be_placed_has_come() -> None:
    answer = check(ours("na0"), running=(pod(node="na0", resource_claims=("gpu",)),), leaving=frozenset({"na0"}))
    assert (gone(answer), "na0" in answer.clocks) == ([], False)
    assert said(answer.needed["na0"]) == (
        "Evenkeel cannot place pod default/p on another node: Evenkeel does not evaluate the pod's resource claims: gpu"
    )


@pytest.mark.parametrize("fields", UNPLACEABLE)
def test_an_expendable_pod_keeps_its_node_only_if_evenkeel_cannot_place_it(fields: dict[str, Any]) -> None:
    """Its priority means that it gets no node, and not that its work may be lost."""
    running = (pod(node="na0", priority=-11, **fields), pod(name="q", node="nb0", priority=-11))
    answer = check(ours("na0"), ours("nb0", "b"), running=running)
    assert (gone(answer), answer.needed["na0"].rule) == (["nb0"], Rule.POD_NOT_PLACEABLE)


# ---------------------------------------------------------------- which nodes are not needed


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (node("na0"), "the node is not a machine of a node group here"),
        (ours("na0", deleting=True), "the node is already being removed"),
        (ours("na0", taints=(taken_away(NOW - MINUTE),)), "the node is already being removed"),
        (ours("na0", **STAYS), f'the node is annotated {CA}/scale-down-disabled: "true"'),
        (ours("na0", allocatable={}), "the node's allocatable cpu and memory are unknown"),
        (ours("na0", allocatable=amounts(cpu="4", pods="9")), "the node's allocatable cpu and memory are unknown"),
    ],
)
def test_a_node_is_needed_whatever_runs_on_it(there: Node, words: str) -> None:
    answer = check(there)
    assert said(answer.needed["na0"]) == words
    assert (answer.clocks, answer.go) == ({}, ())


@pytest.mark.parametrize(
    ("pools", "words"),
    [
        ((three(min=9),), "the pool is at PoolMinimum 9"),
        (one_pool(offer("a", requested=3, min=3)), "the group is at its min 3"),
    ],
)
def test_a_node_of_a_group_or_pool_at_its_min_is_needed(pools: tuple[PoolOffer, ...], words: str) -> None:
    assert said(check(ours("na0"), pools=pools).needed["na0"]) == words


@pytest.mark.parametrize(
    ("pools", "words"),
    [
        ((pool_offer(zones="a", requested=4, coming=2, min=2),), "the pool is at PoolMinimum 2"),
        (one_pool(offer("a", requested=4, coming=2, min=2)), "the group is at its min 2"),
    ],
)
def test_an_ordered_node_does_not_count_for_a_minimum(pools: tuple[PoolOffer, ...], words: str) -> None:
    answer = check(ours("na0"), ours("na1"), pools=pools)
    assert answer.go == ()
    assert {said(reason) for reason in answer.waits.values()} == {words}


def test_a_node_that_is_being_removed_does_not_count_for_a_minimum() -> None:
    pools = one_pool(offer("a", requested=3, min=2))
    assert gone(check(ours("na0"), ours("na1"), ours("na2", deleting=True), pools=pools)) == []
    assert gone(check(ours("na0"), ours("na1"), ours("na2"), pools=pools)) == ["na0"]


@pytest.mark.parametrize(
    "pools",
    [one_pool(offer("a", requested=2, min=1)), (pool_offer(zones="a", requested=2, min=1),)],
    ids=["of the group", "of the pool"],
)
def test_a_node_that_is_no_longer_requested_does_not_count_for_a_minimum(pools: tuple[PoolOffer, ...]) -> None:
    assert gone(check(ours("na0"), ours("na1"), ours("na2"), pools=pools)) == ["na0"]


@pytest.mark.parametrize(
    ("size", "running", "words"),
    [
        ({}, {"cpu": "2"}, None),
        ({}, {"cpu": "2001m"}, "50 % of the node's cpu are requested, more than 50 %"),
        ({}, {"memory": "12Gi"}, "75 % of the node's memory are requested, more than 50 %"),
        ({}, {"cpu": "3", "owner": Owner("DaemonSet", "ds")}, "75 % of the node's cpu are requested, more than 50 %"),
        ({}, {"cpu": "3", "priority": -11}, None),
        ({}, {"cpu": "3", "deleted_at": NOW - 2 * MINUTE}, None),
        ({"nvidia_com__gpu": "2"}, {"cpu": "3"}, None),
        (
            {"nvidia_com__gpu": "2"},
            {"containers": (container(nvidia_com__gpu=2),)},
            "100 % of the node's nvidia.com/gpu are requested, more than 50 %",
        ),
    ],
)
def test_a_node_above_half_utilization_is_needed(
    size: dict[str, str], running: dict[str, Any], words: str | None
) -> None:
    there = ours("na0", size=size)
    other = ours("nb0", "b", size={"cpu": "9"}, **STAYS)
    answer = check(there, other, running=(pod(node="na0", **running),))
    assert (said(answer.needed["na0"]) if "na0" in answer.needed else None) == words
    assert ("na0" in answer.clocks) is (words is None)


@pytest.mark.parametrize(
    "label", ["cluster-api/accelerator", "gardener.cloud/accelerator", "k8s.amazonaws.com/accelerator"]
)
def test_a_gpu_that_is_not_allocatable_yet_is_not_used(label: str) -> None:
    """As in cluster-autoscaler (simulator/utilization/info.go); its label alone makes it a GPU node."""
    labelled = ours("na0", labels={label: "t4"})
    assert "na0" in check(labelled, ours("nb0", "b", **STAYS), running=(pod(node="na0", cpu="3"),)).clocks
    assert "na0" in check(replace(labelled, capacity=amounts(cpu="4"), allocatable=amounts(pods="9"))).clocks
    promised = ours("na0", capacity=amounts(cpu="4", memory="16Gi", nvidia_com__gpu="1"))
    assert "na0" in check(promised).clocks


def test_the_gpu_threshold_does_not_apply_to_a_node_without_gpus() -> None:
    pools = one_pool(offer("a", requested=3, gpu_threshold=Fraction(1)))
    reason = check(ours("na0"), running=(pod(node="na0", cpu="3"),), pools=pools).needed["na0"]
    assert said(reason) == "75 % of the node's cpu are requested, more than 50 %"


def test_pending_pods_are_placed_before_a_node_goes() -> None:
    answer = check(ours("na0"), running=(pod("waiting", cpu="1"),))
    assert said(answer.needed["na0"]) == "Evenkeel has placed pending or moving pods on this node"


def test_no_clock_starts_and_no_node_goes_while_pending_pods_are_too_new() -> None:
    new = pod("new", created_at=NOW - timedelta(seconds=1))
    answer = check(ours("na0"), running=(new,), clocks={"na0": LONG_AGO, "gone": LONG_AGO})
    assert answer.clocks == {"na0": LONG_AGO}
    assert answer.go == ()
    assert said(answer.waits["na0"]) == "no removal before 2026-01-15T12:00:01Z: pending pods are too new to evaluate"


def test_a_pod_with_a_creation_time_in_the_future_delays_nothing() -> None:
    new = pod("new", cpu="64", created_at=NOW + 10 * MINUTE)
    assert gone(check(ours("na0"), running=(new,))) == ["na0"]


def test_pods_are_not_placed_on_nodes_that_are_cordoned_unready_or_only_ordered() -> None:
    starting = ours("nb0", "b", created_at=NOW - MINUTE, ready=False)
    for other in (ours("nb0", "b", unschedulable=True), ours("nb0", "b", ready=False), starting):
        answer = check(ours("na0"), other, running=(pod(node="na0"),))
        assert said(answer.needed["na0"]) == "pod default/p fits no other node"
    assert said(answer.needed["nb0"]) == "the node is still starting"
    ordered = one_pool(offer("a", requested=3, coming=2))
    reason = check(ours("na0"), running=(pod(node="na0"),), pools=ordered).needed["na0"]
    assert said(reason) == "pod default/p fits no other node"


@pytest.mark.parametrize(
    ("options", "gpus", "goes"),
    [
        ({}, 2, True),
        ({}, 3, False),
        ({"gpu_threshold": Fraction(3, 4)}, 3, True),
        ({"gpu_threshold": Fraction(1, 4)}, 2, False),
        ({"gpu_threshold": Fraction(0)}, 0, True),
        ({"threshold": Fraction(3, 4)}, 3, False),
        ({"threshold": Fraction(0)}, 2, True),
    ],
)
def test_a_groups_own_gpu_threshold_counts_for_nodes_with_gpus(options: dict[str, Any], gpus: int, goes: bool) -> None:
    there = ours("na0", size={"nvidia_com__gpu": "4"})
    other = ours("nb0", "b", size={"nvidia_com__gpu": "4"}, **STAYS)
    running = (pod(node="na0", containers=(container(nvidia_com__gpu=gpus),)),)
    pool = PoolOffer(pool=pool_id(), groups=(offer("a", requested=3, **options), offer("b", requested=3)))
    assert ("na0" in check(there, other, running=running, pools=(pool,)).clocks) is goes


def test_a_host_is_a_spread_domain_until_it_is_gone() -> None:
    """Spread over hosts that ignores taints: its successor would pend until the node object is gone."""
    web = {"app": "web"}
    constraint = TopologySpreadConstraint(key=HOSTNAME, max_skew=1, selector=selector("app in web"))
    hosts = [ours("na0"), ours("nb0", "b")]
    running = tuple(pod(f"w{each.name}", labels=web, spread=(constraint,), node=each.name) for each in hosts)
    assert len(check(*hosts, running=running).clocks) == 0
    honouring = tuple(
        replace(each, needs=replace(each.needs, spread=(replace(constraint, honors_taints=True),))) for each in running
    )
    assert len(check(*hosts, running=honouring).clocks) == 1


def test_a_zone_whose_last_node_goes_is_no_spread_domain() -> None:
    web = {"app": "web"}
    constraint = TopologySpreadConstraint(key=ZONE, max_skew=1, selector=selector("app in web"))

    nodes = [ours("nc0", "c"), ours("nb0", "b"), ours("nb1", "b", **STAYS), ours("na0", "a", **STAYS)]
    running = [
        pod(name, labels=web, spread=(constraint,), node=on)
        for name, on in (("w0", "nb0"), ("w1", "nb1"), ("w2", "na0"), ("w3", "na0"))
    ]
    assert set(check(*nodes, running=tuple(running)).clocks) == {"nc0", "nb0"}


def test_a_node_that_stays_returns_the_places_of_its_pods() -> None:
    tied = pod("tied", cpu="100m", node="na0", node_selector={HOSTNAME: "na0"})
    on_disk = {"node_selector": {"disk": "ssd"}, "cpu": "1"}
    only = ours("nz", "c", labels={"disk": "ssd"}, size={"cpu": "1"}, **STAYS)
    running = (tied, pod("first", node="na0", **on_disk), pod("second", node="nb0", **on_disk))
    answer = check(ours("na0"), ours("nb0", "b"), only, running=running)
    assert said(answer.needed["na0"]) == "pod default/tied fits no other node"
    assert answer.go[0].places == {"default/second": "nz"}


def test_empty_nodes_and_running_clocks_are_tried_first() -> None:
    light = pod("light", node="na0")
    answer = check(ours("na0"), ours("nb0", "b"), running=(light,))
    assert (set(answer.clocks), set(answer.needed)) == ({"nb0"}, {"na0"})
    only = ours("nz", "c", size={"cpu": "1"}, **STAYS)
    running = (pod("first", cpu="1", node="na0"), pod("second", cpu="1", node="nb0"))
    again = check(ours("na0"), ours("nb0", "b"), only, running=running, clocks={"nb0": LONG_AGO})
    assert again.clocks["nb0"] == LONG_AGO


def test_pods_of_the_fullest_zone_are_placed_first() -> None:
    only = ours("nz", "c", size={"cpu": "1"}, **STAYS)
    running = (pod("first", cpu="1", node="na0"), pod("second", cpu="1", node="nb0"))
    pool = three()
    uneven = replace(pool, groups=tuple(replace(each, requested=3 + (each.zone == "a")) for each in pool.groups))
    answer = check(ours("na0"), ours("nb0", "b"), only, running=running, clocks={"nb0": LONG_AGO}, pools=(uneven,))
    assert (set(answer.clocks), set(answer.needed)) == ({"na0"}, {"nb0", "nz"})


def test_a_node_whose_machine_is_preserved_stays() -> None:
    machine = Machine(name="na0", has_node=True, created_at=LONG_AGO)
    assert gone(check(ours("na0", machine=machine))) == ["na0"]
    answer = check(ours("na0", machine=replace(machine, preserved=True)))
    assert (gone(answer), answer.needed["na0"].rule) == ([], Rule.MACHINE_PRESERVED)


def test_a_hanging_drain_holds_nodes_with_pods_only() -> None:
    since = NOW - DemandPolicy().drain_takes - MINUTE
    machine = Machine(name="na0", has_node=True, created_at=LONG_AGO, deleting=True, deleting_since=since)
    hanging = ours("na0", machine=machine, deleting=True)
    running = (
        pod("stuck", cpu="100m", node="na0", node_selector={ZONE: "c"}),
        pod("small", cpu="100m", node="na1"),
        pod("large", cpu="2500m", node="nc0"),
    )
    answer = check(hanging, ours("na1"), ours("na2"), ours("nb0", "b"), ours("nc0", "c"), running=running)
    assert [each.node for each in answer.hanging] == ["na0"]
    assert (gone(answer), answer.waits["na1"].rule) == (["na2", "nb0"], Rule.DRAIN_HANGS)


@pytest.mark.parametrize(("beyond", "hangs"), [(timedelta(0), True), (-timedelta(seconds=1), False)])
def test_a_drain_hangs_once_it_has_taken_its_time(beyond: timedelta, hangs: bool) -> None:
    since = NOW - DemandPolicy().drain_takes - beyond
    machine = Machine(name="na0", has_node=True, created_at=LONG_AGO, deleting=True, deleting_since=since)
    answer = check(ours("na0", machine=machine, deleting=True), running=(pod("stuck", cpu="100m", node="na0"),))
    assert bool(answer.hanging) is hangs


def test_a_hanging_drain_stops_only_its_own_pool() -> None:
    since = NOW - DemandPolicy().drain_takes - MINUTE
    machine = Machine(name="na0", has_node=True, created_at=LONG_AGO, deleting=True, deleting_since=since)
    hanging = ours("na0", machine=machine, deleting=True)
    other = node("other", "b", group=group_key("b", "other"))
    running = (
        pod("stuck", cpu="100m", node="na0", node_selector={ZONE: "c"}),
        pod("small", cpu="100m", node="na1"),
        pod("of-other", cpu="100m", node="other"),
        pod("large", cpu="2500m", node="nc0"),
    )
    pools = (three(), pool_offer("other", zones="b", requested=2))
    clocks = LONG | {"other": LONG_AGO}
    answer = check(hanging, ours("na1"), other, ours("nc0", "c"), running=running, pools=pools, clocks=clocks)
    assert (gone(answer), answer.waits["na1"].rule) == (["other"], Rule.DRAIN_HANGS)


# ---------------------------------------------------------------- clocks


def test_a_clock_runs_while_a_node_is_unneeded() -> None:
    first = check(ours("na0"), clocks={})
    assert (first.clocks, first.go) == ({"na0": NOW}, ())
    assert (
        said(first.waits["na0"]) == "no removal before 2026-01-15T12:10:00Z: unneeded only since 2026-01-15T12:00:00Z"
    )
    busy = check(ours("na0"), running=(pod(cpu="3", node="na0"),), clocks=dict(first.clocks))
    assert busy.clocks == {}


def test_a_running_clock_goes_on_until_its_node_is_gone_or_recreated() -> None:
    answer = check(ours("na0"), clocks={"na0": LONG_AGO})
    assert (answer.clocks, gone(answer)) == ({"na0": LONG_AGO}, ["na0"])
    assert check(clocks={"na0": LONG_AGO}).clocks == {}
    answer = check(ours("na0", created_at=NOW - MINUTE), clocks={"na0": LONG_AGO})
    assert (answer.clocks, answer.go) == ({"na0": NOW}, ())
    assert check(ours("na0", created_at=LONG_AGO), clocks={"na0": LONG_AGO}).clocks == {"na0": LONG_AGO}


SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("options", "ready", "since", "goes"),
    [
        ({}, True, 10 * MINUTE, False),
        ({}, True, 10 * MINUTE + SECOND, True),
        ({}, False, 11 * MINUTE, False),
        ({}, False, 21 * MINUTE, True),
        ({"unneeded_for": timedelta(0)}, True, SECOND, True),
        ({"unneeded_for": timedelta(0)}, True, timedelta(0), True),
        ({"unneeded_for": SECOND}, True, timedelta(0), False),
        ({"unneeded_for": timedelta(0)}, False, 11 * MINUTE, False),
        ({"unneeded_for": 30 * MINUTE}, True, 29 * MINUTE, False),
        ({"unready_for": timedelta(0)}, False, timedelta(0), True),
        ({"unready_for": timedelta(0)}, True, 9 * MINUTE, False),
        ({"unready_for": 30 * MINUTE}, False, 29 * MINUTE, False),
        ({"unready_for": 30 * MINUTE}, False, 31 * MINUTE, True),
    ],
)
def test_a_node_goes_once_it_is_unneeded_for_longer_than_its_groups_time(
    options: dict[str, Any], ready: bool, since: timedelta, goes: bool
) -> None:
    pools = one_pool(offer("a", requested=3, **options))
    assert bool(check(ours("na0", ready=ready), clocks={"na0": NOW - since}, pools=pools).go) is goes


def test_a_node_goes_in_the_check_that_finds_it_unneeded_if_its_groups_time_is_zero() -> None:
    answer = check(ours("na0"), clocks={}, pools=one_pool(offer("a", requested=3, unneeded_for=timedelta(0))))
    assert (gone(answer), answer.clocks) == (["na0"], {"na0": NOW})


@pytest.mark.parametrize(
    ("memory", "goes"),
    [
        ({"grew_at": NOW - 9 * MINUTE}, False),
        ({"grew_at": NOW - 10 * MINUTE}, True),
        ({"failed_at": NOW - 2 * MINUTE}, False),
        ({"failed_at": NOW - 3 * MINUTE}, True),
    ],
)
def test_growth_and_failures_delay_removal_and_stop_no_clock(memory: dict[str, Any], goes: bool) -> None:
    answer = check(ours("na0"), **memory)
    assert bool(answer.go) is goes
    assert answer.clocks == {"na0": LONG["na0"]}


def test_a_marked_node_goes_first_and_stays_once_it_is_needed_again() -> None:
    nodes, running = busy_world(3)
    assert gone(check(*nodes, running=running)) == ["na0"]
    assert gone(check(*nodes, running=running, leaving=frozenset({"na2"}))) == ["na2"]
    needed = pod(cpu="3", node="nb0")
    answer = check(ours("na0"), ours("nb0", "b"), running=(needed,), leaving=frozenset({"nb0"}))
    assert (gone(answer), answer.clocks.keys()) == (["na0"], {"na0"})


# ---------------------------------------------------------------- the order and the number of removals


def test_ten_empty_nodes_go_at_once_from_the_fullest_zone_first() -> None:
    empty = [ours(f"na{i}") for i in range(9)] + [ours(f"nb{i}", "b") for i in range(5)]
    answer = check(*empty, pools=one_pool(offer("a", requested=9), offer("b", requested=5), min=2))
    zones = [name[1] for name in gone(answer)]
    assert zones[:4] == ["a"] * 4
    assert (zones.count("a"), zones.count("b")) == (7, 3)
    assert {said(answer.waits[name]) for name in answer.clocks if name not in gone(answer)} == {
        "the limit of 10 empty nodes being removed at one time is reached"
    }
    going = [ours(f"nb{i}", "b", deleting=True) for i in range(3)]
    assert len(check(*(ours(f"na{i}") for i in range(12)), *going, pools=(pool_offer(requested=20),)).go) == 7


@pytest.mark.parametrize(("held", "goes"), [(0, 2), (1, 1), (2, 0), (3, 0)])
def test_a_group_keeps_as_many_empty_nodes_as_the_pool_needs_to_survive(held: int, goes: int) -> None:
    kept = KeptEmpty(held, Reason.of(Rule.HELD_TO_SURVIVE, nodes=held)) if held else None
    answer = check(ours("na0"), ours("na1"), pools=one_pool(offer("a", requested=2, kept_empty=kept)))
    assert len(answer.go) == goes
    assert {reason.rule for reason in answer.waits.values()} == ({Rule.HELD_TO_SURVIVE} if goes < 2 else set())


def test_a_trial_that_failed_leaves_its_places_to_the_next_node() -> None:
    """The pods of each node need the free cpu of both nodes that stay; one pod of the first fits no other node."""
    closed: dict[str, Any] = {"taints": (taint("closed=true:NoSchedule"),)}
    stay = [ours(f"nb{i}", "b", **STAYS) for i in range(2)]
    running = [pod(f"large{i}", cpu="3", node=f"nb{i}") for i in range(2)]
    running += [pod(f"p{name}{i}", cpu="900m", node=name) for name in ("na0", "na1") for i in range(2)]
    running += [pod("bound", cpu="100m", node="na0", node_selector={HOSTNAME: "na0"})]
    answer = check(ours("na0", **closed), ours("na1", **closed), *stay, running=tuple(running))
    assert answer.needed["na0"].rule is Rule.NO_PLACE_ELSEWHERE
    assert gone(answer) == ["na1"]


def busy_world(count: int) -> tuple[list[Node], tuple[Pod, ...]]:
    """Return so many nodes with a small pod each, and a large node that has room for all."""
    light = [ours(f"na{i}") for i in range(count)]
    large = ours("nb0", "b", size={"cpu": "64", "memory": "256Gi"}, **STAYS)
    return [*light, large], tuple(pod(f"p{each.name}", labels={"app": "web"}, node=each.name) for each in light)


def test_nodes_with_pods_go_one_by_one() -> None:
    nodes, running = busy_world(3)
    answer = check(*nodes, running=running)
    assert len(answer.clocks) == 3
    assert [dict(removal.places) for removal in answer.go] == [{"default/pna0": "nb0"}]
    assert {said(reason) for reason in answer.waits.values()} == {"another node is being drained"}
    for draining in (replace(nodes[0], deleting=True), replace(nodes[0], taints=(taken_away(NOW - 4 * MINUTE),))):
        assert check(draining, *nodes[1:], running=running).go == ()


def test_a_node_stays_while_its_pods_place_depends_on_another_removal() -> None:
    """One pod keeps the other out of its zone until its own node goes, whose clock has only begun."""
    kept_away = PodAffinityTerm(key=ZONE, selector=selector("app in web"))

    ssd, hdd = {"disk": "ssd"}, {"disk": "hdd"}
    nodes = [ours("na0", labels=hdd), ours("na1", labels=ssd, **STAYS)]
    nodes += [ours("nb0", "b", labels=ssd), ours("nc0", "c", labels=hdd, **STAYS)]
    loud = pod("loud", anti_affinity=(kept_away,), node_selector=hdd, node="na0")
    running = (loud, pod("web", labels={"app": "web"}, node_selector=ssd, node="nb0"))
    answer = check(*nodes, running=running, clocks={"na0": NOW - MINUTE, "nb0": LONG_AGO})
    assert (answer.clocks.keys(), gone(answer)) == ({"na0", "nb0"}, [])
    assert said(answer.waits["nb0"]) == "pod default/web fits no other node"
    assert gone(check(*nodes, running=running, clocks={"na0": LONG_AGO, "nb0": LONG_AGO})) == ["na0"]


def test_an_empty_node_that_a_moving_pod_needs_stays() -> None:
    """Marked nodes precede empty ones, and a node whose pod keeps another out of its zone stays for now."""
    kept_away = PodAffinityTerm(key=ZONE, selector=selector("app in loud"))

    ssd, hdd = {"disk": "ssd"}, {"disk": "hdd"}
    nodes = [ours("na0", labels=hdd), ours("na1", labels=ssd, **STAYS)]
    nodes += [ours("nb0", "b", labels=ssd), ours("nc0", "c", labels=ssd), ours("nc1", "c", labels=hdd, **STAYS)]
    web = pod("web", anti_affinity=(kept_away,), node_selector=ssd, node="nb0")
    running = (pod("loud", labels={"app": "loud"}, node_selector=hdd, node="na0"), web)
    answer = check(*nodes, running=running, clocks=LONG | {"na0": NOW - MINUTE}, leaving=frozenset({"na0", "nb0"}))
    assert [(each.node, dict(each.places)) for each in answer.go] == [("nb0", {"default/web": "nc0"})]
    assert answer.waits["nc0"].rule is Rule.NODE_AWAITED


def test_an_abandoned_drain_and_a_drain_in_no_pool_hold_no_node() -> None:
    nodes, running = busy_world(3)
    left = replace(nodes[0], taints=(taken_away(NOW - 5 * MINUTE),), unschedulable=True)
    answer = check(left, *nodes[1:], running=running)
    assert (len(answer.go), len(answer.clocks)) == (1, 3)
    unmanaged, stuck = node("unmanaged", deleting=True), pod("stuck", node="unmanaged", cpu="5")
    assert gone(check(*nodes, unmanaged, running=(*running, stuck))) == ["na0"]


def test_a_node_whose_budgets_forbid_evicting_all_pods_goes_last() -> None:
    nodes, running = busy_world(2)
    second = pod("second", cpu="100m", labels={"app": "db"}, node="na0")
    third = pod("third", cpu="100m", labels={"app": "db"}, node="na0")
    budget = PodDisruptionBudget(namespace="default", name="db", selector=selector("app in db"), allowed=1)
    answer = check(*nodes, running=(*running, second, third), budgets=(budget,))
    assert set(answer.clocks) == {"na0", "na1"}
    assert gone(answer) == ["na1"]


def test_a_node_waits_for_pods_that_are_to_complete() -> None:
    nodes, running = busy_world(1)
    job = pod("job", cpu="100m", node="na0", **annotated(safe_to_evict="on-completion"))
    answer = check(*nodes, running=(*running, job))
    assert said(answer.waits["na0"]) == "removed once pod default/job has completed"
