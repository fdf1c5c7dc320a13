"""Pods that fit no node, and the nodes that are ordered for them."""

from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from evenkeel.domain.demand.scale_up import scale_up
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.model.demand import Demand, DemandPolicy, PoolOffer
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import (
    HOSTNAME,
    ZONE,
    Attachment,
    Claim,
    HostPort,
    NodeSelectorTerm,
    Owner,
    Pod,
    PodAffinityTerm,
    PodVolume,
    Requirement,
    StorageClass,
    Toleration,
    TopologySpreadConstraint,
    Unscheduled,
    Volume,
    Workload,
)
from tests.builders import MINUTE, NOW
from tests.parts import replace
from tests.workloads import (
    EVERYTHING,
    LONG_AGO,
    amounts,
    asked,
    container,
    group_key,
    node,
    offer,
    pod,
    pods,
    pool_id,
    pool_offer,
    said,
    selector,
    taint,
    template,
)

WEB = {"app": "web"}
OF_WEB = selector("app in web")
SECOND = timedelta(seconds=1)
TOGETHER = PodAffinityTerm(key=ZONE, selector=OF_WEB)
SPREAD = (TopologySpreadConstraint(key=ZONE, max_skew=1, selector=OF_WEB),)


def claimed(name: str = "data") -> PodVolume:
    return PodVolume("data", "persistentVolumeClaim", name)


def zonal(zone: str) -> Volume:
    return Volume(name=zone, terms=(NodeSelectorTerm((Requirement(ZONE, "In", (zone,)),)),))


def check(*waiting: Pod, pools: tuple[PoolOffer, ...] | None = None, **parts: Any) -> Demand:
    """Return the demand of these pods and the rest of the workload, by default in one empty pool of three zones."""
    policy = parts.pop("policy", DemandPolicy())
    standing = parts.pop("standing", ())
    workload = Workload(pods=(*waiting, *standing), **parts)
    return scale_up(Simulation(workload, (pool_offer(),) if pools is None else pools, policy, NOW))


def nodes_of(answer: Demand) -> dict[str, int]:
    return {name: count for pool in answer.pools for name, count in asked(pool.nodes).items()}


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({}, None),
        ({"unscheduled": None}, Rule.POD_NOT_TRIED_YET),
        ({"unscheduled": Unscheduled("")}, Rule.POD_NOT_TRIED_YET),
        ({"unscheduled": Unscheduled("SchedulingGated")}, Rule.POD_HELD_BACK),
        ({"unscheduled": Unscheduled("SchedulerError")}, Rule.POD_HELD_BACK),
        ({"gates": ("quota",)}, Rule.POD_GATED),
        ({"deleted_at": NOW}, Rule.POD_GOING),
        ({"priority": -11}, Rule.POD_EXPENDABLE),
        ({"priority": -10}, None),
        ({"owner": None}, None),
        ({"owner": Owner("DaemonSet", "ds")}, Rule.POD_COMES_WITH_NODE),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/daemonset-pod": "true"}}, Rule.POD_COMES_WITH_NODE),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, Rule.POD_COMES_WITH_NODE),
        ({"scheduler": "volcano"}, Rule.POD_OF_OTHER_SCHEDULER),
        ({"scheduler": "bin-packing-scheduler"}, None),
        ({"resource_claims": ("gpu",)}, Rule.POD_NEEDS_DEVICES),
        ({"unread": ("spec.future",)}, Rule.POD_NEEDS_UNKNOWN),
        ({"volumes": (PodVolume("v", "rbd"), PodVolume("w", "emptyDir"))}, Rule.POD_OF_UNKNOWN_VOLUME),
        ({"volumes": (PodVolume("v", "azureFile"), PodVolume("w", "cephfs"))}, None),
        ({"scale_up_delay": 10 * MINUTE}, Rule.POD_YOUNG),
        ({"scale_up_delay": 9 * MINUTE}, None),
    ],
)
def test_only_pods_that_a_scheduler_found_unschedulable_count(fields: dict[str, Any], rule: Rule | None) -> None:
    answer = check(pod(**fields))
    assert [item.reason.rule for item in answer.not_counted] == ([] if rule is None else [rule])
    assert answer.nodes == (1 if rule is None else 0)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_have_ended_do_not_count(phase: str) -> None:
    answer = check(pod(phase=phase))
    assert (answer.nodes, answer.not_counted) == (0, ())


def test_pods_wait_for_two_seconds_and_gpu_pods_for_half_a_minute() -> None:
    young = pod("young", created_at=NOW - SECOND)
    answer = check(young)
    assert (answer.nodes, answer.check_again) == (0, NOW + SECOND)
    assert check(young, pod("old")).nodes == 1
    assert check(pod(created_at=NOW - 2 * SECOND)).nodes == 1
    gpu = pod("gpu", created_at=NOW - 20 * SECOND, containers=(container(nvidia_com__gpu=1),))
    assert check(gpu, pod("old")).check_again == NOW + 10 * SECOND


@pytest.mark.parametrize("ahead", [SECOND, 10 * MINUTE, timedelta(days=400)])
@pytest.mark.parametrize("resource", ["cpu", "nvidia_com__gpu"])
def test_a_pod_from_the_future_gets_its_node_at_once(ahead: timedelta, resource: str) -> None:
    """Its age is unknown, and its scheduler has tried it: with a slow clock it would wait until the clock is later."""
    gpu = pool_offer(template=template(nvidia_com__gpu="1"))
    new = pod(created_at=NOW + ahead, containers=(container(**{resource: 1}),))
    answer = check(new, pools=(gpu,))
    assert (answer.nodes, answer.check_again) == (1, None)
    assert check(new, pod("young", created_at=NOW - SECOND), pools=(gpu,)).nodes >= 1


def test_a_nominated_pod_takes_its_room_and_no_node() -> None:
    answer = check(pod("preempting", cpu="3", nominated="n"), pod("second", cpu="3"), nodes=(node(),))
    assert nodes_of(answer) == {"workers-a": 1}
    assert [waiting.pods for waiting in answer.pools[0].pending] == [("default/second",)]
    leaving = pod("victim", cpu="3", node="n", deleted_at=NOW - SECOND)
    answer = check(pod("preempting", cpu="3", nominated="n"), nodes=(node(),), standing=(leaving,))
    assert (answer.nodes, answer.unmet) == (0, ())
    assert check(pod(nominated="gone")).nodes == 1


def test_running_pods_that_are_expendable_leave_their_room() -> None:
    low = pod("low", cpu="4", priority=-11, node="n")
    assert check(pod(cpu="3"), nodes=(node(),), standing=(low,)).nodes == 0
    assert check(pod(cpu="3"), nodes=(node(),), standing=(replace(low, priority=-10),)).nodes == 1


def test_pods_of_a_node_that_is_drained_count_if_they_fit_nowhere_else() -> None:
    seconds = int(NOW.timestamp())
    going = node("going", taints=(taint(f"ToBeDeletedByClusterAutoscaler={seconds}:NoSchedule"),))
    moved = pod("moved", cpu="3", node="going")
    assert check(moved, nodes=(going,)).nodes == 1
    assert check(moved, nodes=(going, node("free"))).nodes == 0
    assert check(replace(moved, deleted_at=NOW), nodes=(going,)).nodes == 0
    daemon = replace(moved, owner=Owner("DaemonSet", "ds"))
    assert check(daemon, nodes=(replace(going, deleting=True),)).nodes == 0


@pytest.mark.parametrize("since", [int((NOW - 5 * MINUTE).timestamp()), 1, 9999999999, 10**40, -1, "", "soon", "²"])
def test_a_stale_taint_of_an_autoscaler_does_not_make_its_pods_count(since: int | str) -> None:
    left = node("left", taints=(taint(f"ToBeDeletedByClusterAutoscaler={since}:NoSchedule"),), unschedulable=True)
    answer = check(pod("stays", cpu="3", node="left"), nodes=(left,))
    assert (answer.nodes, answer.fits_already, answer.unmet) == (0, (), ())
    assert check(pod("waits", cpu="1"), nodes=(left,)).nodes == 1


def test_free_room_is_given_once_and_to_the_highest_priority_first() -> None:
    answer = check(pod("low", cpu="3500m"), pod("high", cpu="3", priority=5), nodes=(node(),))
    assert answer.fits_already == ("default/high",)
    assert [waiting.pods for waiting in answer.pools[0].pending] == [("default/low",)]


def test_pods_with_the_same_host_port_get_a_node_each() -> None:
    port = (container(cpu="100m", ports=(HostPort(80),)),)
    assert check(*pods(3, containers=port), nodes=(node(),)).nodes == 2


def own_claims(number: int) -> tuple[tuple[Pod, ...], tuple[Claim, ...]]:
    names = [f"data-{i}" for i in range(number)]
    claiming = tuple(pod(f"s-{name}", cpu="100m", volumes=(claimed(name),)) for name in names)
    return claiming, tuple(Claim(namespace="default", name=name, storage_class="gp3") for name in names)


def test_an_attach_limit_holds_for_many_pods_at_once() -> None:
    claiming, claims = own_claims(5)
    storage = (StorageClass(name="gp3", provisioner="d", waits=True),)
    answer = check(*claiming, claims=claims, storage_classes=storage, nodes=(node(attach_limits={"d": 3}),))
    assert len(answer.fits_already) == 3


@pytest.mark.parametrize(("limit", "own", "fit"), [(1, 0, 5), (0, 0, 0), (1, 1, 0), (4, 1, 3), (6, 1, 5)])
def test_a_claim_that_several_pods_share_is_attached_once_to_a_node(limit: int, own: int, fit: int) -> None:
    _, claims = own_claims(6)
    storage = (StorageClass(name="gp3", provisioner="d", waits=True),)
    own_claim = [(claimed(f"data-{number}"),) if own else () for number in range(5)]
    sharing = [pod(f"p{i}", cpu="100m", volumes=(claimed("data-5"), *own_claim[i])) for i in range(5)]
    there = (node(attach_limits={"d": limit}),)
    assert len(check(*sharing, claims=claims, storage_classes=storage, nodes=there).fits_already) == fit


def test_each_new_node_attaches_a_shared_claim_once() -> None:
    _, claims = own_claims(1)
    storage = (StorageClass(name="gp3", provisioner="d", waits=True),)
    sharing = [pod(f"p{number}", cpu="2", volumes=(claimed("data-0"),)) for number in range(5)]
    there = node(attach_limits={"d": 1})
    answer = check(*sharing, claims=claims, storage_classes=storage, nodes=(there,), standing=(pod(node="n", cpu="4"),))
    assert (answer.fits_already, answer.nodes) == ((), 3)


def test_pods_that_differ_by_the_zone_of_their_volume_get_nodes_in_both_zones() -> None:
    claiming, claims = own_claims(2)
    bound = tuple(replace(claim, volume=zone) for claim, zone in zip(claims, "bc", strict=True))
    volumes = tuple(map(zonal, "bc"))
    assert nodes_of(check(*claiming, claims=bound, volumes=volumes)) == {"workers-b": 1, "workers-c": 1}


def test_of_two_pods_with_a_claim_for_one_pod_one_gets_a_node() -> None:
    alone = Claim(namespace="default", name="data", volume="pv", access_modes=frozenset({"ReadWriteOncePod"}))
    answer = check(*pods(2, cpu="100m", volumes=(claimed(),)), claims=(alone,), volumes=(Volume(name="pv"),))
    assert answer.nodes == 1
    (unmet,) = answer.unmet
    assert said(unmet.reason).endswith("is limited to one pod, and another pod uses the claim")


def test_ordered_nodes_of_the_wrong_zone_count_toward_the_maximum() -> None:
    groups = (offer("a", coming=1, requested=1), offer("b"), offer("c"))
    pool = PoolOffer(pool=pool_id(), groups=groups, room=1)
    answer = check(*pods(2, node_selector={ZONE: "b"}, cpu="3"), pools=(pool,))
    assert nodes_of(answer) == {"workers-b": 1}
    assert [unmet.pods for unmet in answer.unmet] == [("default/p-1",)]


@pytest.mark.parametrize("field", [{"unschedulable": True}, {"ready": False}, {"deleting": True}], ids=str)
def test_cordoned_unready_and_deleted_nodes_have_no_room(field: dict[str, bool]) -> None:
    assert check(pod(tolerations=EVERYTHING), nodes=(node(**field),)).nodes == 1


def test_a_starting_node_counts_as_the_node_that_it_will_be() -> None:
    startup = taint("startup-taint.cluster-autoscaler.kubernetes.io/gpu=x:NoSchedule")
    young = node(group=group_key(), created_at=NOW - MINUTE, taints=(startup,))
    assert check(pod(), nodes=(young,)).nodes == 0
    assert check(pod(), nodes=(replace(young, created_at=LONG_AGO),)).nodes == 1


def test_a_node_whose_gpu_still_starts_gets_no_second_one_beside_it() -> None:
    pools = (pool_offer(zones="a", template=template(nvidia_com__gpu="1")),)
    gpu = pod(containers=(container(nvidia_com__gpu=1),))
    young = node(group=group_key(), created_at=NOW - MINUTE)
    assert check(gpu, pools=pools, nodes=(young,)).nodes == 0
    assert check(gpu, pools=pools, nodes=(replace(young, created_at=LONG_AGO),)).nodes == 1


def test_the_largest_pods_are_placed_first() -> None:
    assert check(*pods(4, "a-small", cpu="1"), *pods(4, "b-large", cpu="3")).nodes == 4


def test_new_nodes_go_to_the_emptiest_zones() -> None:
    groups = (offer("a", requested=3), offer("b", requested=1), offer("c", requested=2))
    pool = PoolOffer(pool=pool_id(), groups=groups, room=30)
    assert nodes_of(check(*pods(6, cpu="3"), pools=(pool,))) == {"workers-a": 1, "workers-b": 3, "workers-c": 2}


def test_a_pod_of_one_zone_gets_its_node_there() -> None:
    answer = check(pod(node_selector={ZONE: "b"}))
    assert nodes_of(answer) == {"workers-b": 1}
    (pending,) = answer.pools[0].pending
    assert (pending.zones, pending.since) == (("b",), NOW - 9 * MINUTE)
    claim = Claim(namespace="default", name="data", volume="c", bound=True)
    assert nodes_of(check(pod(volumes=(claimed(),)), claims=(claim,), volumes=(zonal("c"),))) == {"workers-c": 1}


@pytest.mark.parametrize(
    ("number", "fields", "nodes"),
    [
        pytest.param(7, {"cpu": "3", "spread": SPREAD}, [2, 2, 3], id="spread over zones"),
        pytest.param(4, {"cpu": "3", "affinity": (TOGETHER,)}, [4], id="together in one zone"),
        pytest.param(5, {"anti_affinity": (replace(TOGETHER, key=HOSTNAME),)}, [1, 2, 2], id="one per host"),
        pytest.param(5, {"anti_affinity": (TOGETHER,)}, [1, 1, 1], id="one per zone"),
    ],
)
def test_new_nodes_follow_affinity_and_spread(number: int, fields: dict[str, Any], nodes: list[int]) -> None:
    answer = check(*pods(number, **{"cpu": "100m", "labels": WEB, **fields}))
    assert sorted(nodes_of(answer).values()) == nodes
    assert sum(len(unmet.pods) for unmet in answer.unmet) == (2 if nodes == [1, 1, 1] else 0)
    assert all("the pod's anti-affinity excludes another pod" in said(unmet.reason) for unmet in answer.unmet)


def test_a_pod_follows_a_smaller_one_that_its_affinity_names() -> None:
    follower = pod("follower", cpu="3", affinity=(TOGETHER,))
    assert check(follower, pod("web", cpu="1", labels=WEB), nodes=(node(),)).nodes == 0
    answer = check(follower, pod("web", cpu="2", labels=WEB))
    assert (answer.nodes, answer.unmet, len(nodes_of(answer))) == (2, (), 1)


def test_a_new_node_lets_pods_that_spread_use_the_nodes_of_other_zones() -> None:
    """Zone b is full, so that zone a may have one only; a node more in b lets a take the other."""
    there = (node("na", "a"), node("nb", "b"))
    standing = (pod("w", labels=WEB, node="na"), pod("full", cpu="4", node="nb"))
    waiting = pods(2, cpu="3", labels=WEB, spread=SPREAD)
    answer = check(*waiting, nodes=there, standing=standing, pools=(pool_offer(zones="ab"),))
    assert nodes_of(answer) == {"workers-b": 1}


def test_pods_that_spread_fill_the_existing_nodes_first() -> None:
    """A zone takes a pod only once the others have as many, so all nodes are tried repeatedly."""
    there = tuple(node(f"n{zone}", zone) for zone in "abc")
    full = (pod("full-b", cpu="4", node="nb"), pod("full-c", cpu="4", node="nc"))
    waiting = pods(30, cpu="300m", labels=WEB, spread=SPREAD)
    assert nodes_of(check(*waiting, nodes=there, standing=full)) == {"workers-b": 1, "workers-c": 1}


def test_limits_of_groups_pool_and_check_hold() -> None:
    waiting = pods(9, cpu="3")
    assert nodes_of(check(*waiting, pools=(pool_offer(room=30, zones="a"),))) == {"workers-a": 9}
    assert check(*waiting, pools=(pool_offer(room=4),)).nodes == 4
    groups = (offer("a", room=1), offer("b", room=2))
    short = check(*waiting, pools=(PoolOffer(pool=pool_id(), groups=groups, room=9),))
    assert nodes_of(short) == {"workers-a": 1, "workers-b": 2}
    assert said(short.unmet[0].reason) == (
        "6 pods like default/p-3 cannot get a node: cluster-api/default/workers: the group is at its max"
    )
    assert check(*waiting, policy=DemandPolicy(most_nodes=2)).nodes == 2


LARGE = template(cpu="16", memory="64Gi")


HUGE = template(cpu="64", memory="256Gi")
BIG = {"cpu": "3", "memory": "12Gi"}


@pytest.mark.parametrize(
    ("waiting", "order", "room", "nodes"),
    [
        pytest.param(pods(1, cpu="3"), (), 9, {"small-a": 1}, id="least waste"),
        pytest.param(pods(5, **BIG), (), 9, {"large-a": 1}, id="least waste of many"),
        pytest.param(pods(6, **BIG), (), 1, {"large-a": 1, "small-a": 1}, id="rest to the next"),
        pytest.param(pods(1, cpu="3"), ("gone", "large", "small"), 9, {"large-a": 1}, id="order by name"),
        pytest.param(pods(1, cpu="3"), (str(pool_id("large")), "small"), 9, {"large-a": 1}, id="order by id"),
        pytest.param(pods(1, cpu="3"), ("small", "large"), 9, {"small-a": 1}, id="small first"),
        pytest.param(
            pods(8, cpu="3"),
            ("large", "small"),
            1,
            {"large-a": 1, "small-a": 1, "small-b": 1, "small-c": 1},
            id="rest to the next of the order",
        ),
    ],
)
def test_pools_are_taken_in_the_order_of_the_record_then_by_least_waste(
    waiting: tuple[Pod, ...], order: tuple[str, ...], room: int, nodes: dict[str, int]
) -> None:
    pools = (pool_offer("large", template=LARGE, room=room), pool_offer("small"))
    answer = check(*waiting, pools=pools, policy=DemandPolicy(order=order))
    assert nodes_of(answer) == nodes
    pending = [name for pool in answer.pools for waiting in pool.pending for name in waiting.pods]
    assert sorted(pending) == sorted(f"default/{each.name}" for each in waiting)


@pytest.mark.parametrize(("room", "nodes"), [(9, {"huge-a": 1}), (0, {"small-a": 1})])
def test_pools_that_are_missing_in_the_order_come_last_by_least_waste(room: int, nodes: dict[str, int]) -> None:
    pools = (pool_offer("huge", template=HUGE, room=room), pool_offer("large", template=LARGE), pool_offer("small"))
    assert nodes_of(check(pod(cpu="3"), pools=pools, policy=DemandPolicy(order=("huge",)))) == nodes


@pytest.mark.parametrize(
    ("room", "closed", "nodes"),
    [
        (9, None, {"large-a": 1}),  # although small wastes less
        (0, None, {"small-a": 1}),
        (9, Reason.of(Rule.IN_STATE, state="fenced"), {"small-a": 1}),
    ],
)
def test_a_fallback_gets_nodes_if_the_pool_before_it_gets_none(room, closed, nodes) -> None:
    first = pool_offer("large", template=LARGE, room=room, closed=closed)
    pools = (
        replace(pool_offer("small"), first_pools=(pool_id("large"), pool_id("gone"))),
        replace(pool_offer("huge", template=HUGE), first_pools=(pool_id("small"), pool_id("large"))),
        first,
    )
    for order in ((), ("small", "huge", "large")):
        answer = check(pod(cpu="3"), pools=pools, policy=DemandPolicy(order=order))
        assert nodes_of(answer) == nodes


def test_a_pool_whose_room_ends_before_it_wastes_is_first() -> None:
    pools = (pool_offer("large", template=LARGE), pool_offer("odd", template=template(cpu="5"), room=1))
    waiting = (pod("full", cpu="5", memory="16Gi"), *pods(11, cpu="1", memory="0"))
    assert nodes_of(check(*waiting, pools=pools)) == {"large-a": 1, "odd-a": 1}


def test_a_pod_that_got_a_node_may_keep_others_out_of_another_pool() -> None:
    pools = tuple(pool_offer(name, zones="a", template=template({"pool": name})) for name in ("late", "first"))
    web = pods(2, "web", labels=WEB, node_selector={"pool": "late"})
    away = {"anti_affinity": (PodAffinityTerm(key=ZONE, selector=OF_WEB),), "node_selector": {"pool": "first"}}
    answer = check(*web, pod("shy", cpu="3", memory="14Gi", **away), pools=pools)
    assert nodes_of(answer) == {"first-a": 1}
    assert [unmet.pods for unmet in answer.unmet] == [("default/web-0", "default/web-1")]


def test_a_node_without_capacity_does_not_win() -> None:
    empty = replace(template(), capacity=amounts(cpu="0", memory="0"))
    pools = (pool_offer("empty", template=empty), pool_offer("real"))
    assert nodes_of(check(pod(cpu="3"), pools=pools)) == {"real-a": 1}


def test_every_pool_has_a_reason_why_it_takes_no_pod() -> None:
    pools = (
        pool_offer("gpu", template=template(taints=(taint("gpu=yes:NoSchedule"),))),
        pool_offer("closed", closed=Reason.of(Rule.IN_STATE, state="fenced")),
        pool_offer("unknown", template=None),
        pool_offer("bare", template=replace(template(), capacity=amounts(pods="9"))),
        pool_offer("full", room=0),
        pool_offer("small"),
    )
    answer = check(pod(cpu="64"), pools=pools)
    assert {pool.pool.name: said(pool.unfit[0].reason) for pool in answer.pools} == {
        "gpu": "the pod does not tolerate taint gpu=yes:NoSchedule",
        "closed": "the group is fenced",
        "unknown": "the cpu and memory of a new node are unknown",
        "bare": "the cpu and memory of a new node are unknown",
        "full": "the pool is at its max",
        "small": "the pod requests 64 of cpu, and 4 of 4 are free",
    }
    assert answer.nodes == 0


def test_a_pod_that_fits_nowhere_is_one_sentence_and_no_order() -> None:
    answer = check(pod("huge", cpu="64"), pod("fine", cpu="1"))
    assert answer.nodes == 1
    assert [said(unmet.reason) for unmet in answer.unmet] == [
        "pod default/huge cannot get a node: cluster-api/default/workers: "
        "the pod requests 64 of cpu, and 4 of 4 are free"
    ]
    assert set(answer.unmet[0].by_group) == {group_key(zone) for zone in "abc"}


def test_without_pools_every_pod_is_unmet() -> None:
    assert said(check(pod(), pools=()).unmet[0].reason) == "pod default/p cannot get a node: there is no pool"


def daemon(name: str = "ds", **fields: Any) -> Pod:
    return pod(name, owner=Owner("DaemonSet", name), **fields)


def test_daemons_of_the_sample_take_their_room_on_a_new_node() -> None:
    sample = node("full", group=group_key())
    standing = (daemon(cpu="2", node="full"), pod("busy", cpu="2", node="full"))
    answer = check(pod(cpu="3"), nodes=(sample,), standing=standing, pools=(pool_offer(zones="a"),))
    assert said(answer.unmet[0].reason).endswith("the pod requests 3 of cpu, and 2 of 4 are free")


def test_a_node_on_which_a_daemon_has_found_no_room_is_no_sample() -> None:
    full, whole = (node(name, group=group_key("a")) for name in ("full", "whole"))
    daemon = pod("daemon", cpu="500m", node="whole", owner=Owner("DaemonSet", "ds"))
    standing = (pod("large", cpu="4", node="full"), daemon, pod("other", cpu="3500m", node="whole"))
    answer = check(pod(cpu="3800m"), nodes=(full, whole), standing=standing, pools=(pool_offer(zones="a"),))
    assert (answer.nodes, len(answer.unmet)) == (0, 1)


def test_a_daemon_set_seen_elsewhere_counts_on_a_fresh_node_where_it_would_run() -> None:
    there = node("n", labels={"role": "x"})
    named = NodeSelectorTerm(fields=(Requirement("metadata.name", "In", ("n",)),))
    everywhere = daemon("all", cpu="1", node="n", node_terms=(named,))
    only_x = daemon("only-x", cpu="2", node="n", node_selector={"role": "x"})
    busy = pod("busy", cpu="1", node="n")
    answer = check(pod(cpu="4"), nodes=(there,), standing=(everywhere, only_x, busy), pools=(pool_offer(zones="a"),))
    assert said(answer.unmet[0].reason).endswith("the pod requests 4 of cpu, and 3 of 4 are free")


def test_daemons_that_do_not_tolerate_a_pools_taints_use_no_room_there() -> None:
    standing = (daemon("all", cpu="1", node="n"), pod("busy", cpu="3", node="n"))
    tainted = pool_offer(zones="a", template=template(taints=(taint("gpu=x:NoSchedule"),)))
    asking = pod(cpu="4", tolerations=(Toleration("gpu", "Exists"),))
    assert check(asking, nodes=(node(),), standing=standing, pools=(tainted,)).nodes == 1


@pytest.mark.parametrize(
    ("named", "nodes"),
    [
        ("cloud.google.com/impending-node-termination=:NoSchedule", 1),
        ("node.kubernetes.io/memory-pressure=:NoSchedule", 1),
        ("DeletionCandidateOfClusterAutoscaler=1:PreferNoSchedule", 1),
        ("startup-taint.cluster-autoscaler.kubernetes.io/x=:NoSchedule", 1),
        ("team=red:NoSchedule", 0),
    ],
)
def test_transient_taints_of_the_sample_are_not_on_the_next_node(named: str, nodes: int) -> None:
    sample = node("n", group=group_key(), taints=(taint(named),))
    busy, pools = pod("busy", cpu="4", node="n"), (pool_offer(zones="a", template=None),)
    assert check(pod(), nodes=(sample,), standing=(busy,), pools=pools).nodes == nodes


def test_a_sample_of_another_zone_changes_its_zone_under_every_key_and_its_hostname() -> None:
    labels = {"topology.ebs.csi.aws.com/zone": "a", "topology.k8s.aws/zone-id": "use1-az1", "disk": "ssd"}
    sample = node("n", "a", group=group_key(), labels=labels)
    busy = pod("busy", cpu="4", node="n")
    pools = (pool_offer(zones="ab", template=None),)

    def where(**wanted: str) -> dict[str, int]:
        node_selector = {name.replace("__", "/").replace("_", "."): value for name, value in wanted.items()}
        return nodes_of(check(pod(node_selector=node_selector), nodes=(sample,), standing=(busy,), pools=pools))

    assert where(topology_ebs_csi_aws_com__zone="b", disk="ssd") == {"workers-b": 1}
    assert where(kubernetes_io__hostname="n") == {}
    only_here = pod(node_selector={"topology.k8s.aws/zone-id": "use1-az1"})
    assert nodes_of(check(only_here, nodes=(sample,), standing=(busy,), pools=pools)) == {"workers-a": 1}
    fuller = PoolOffer(pool=pool_id(), groups=(offer("a", requested=9), offer("b")), room=9)
    assert nodes_of(check(only_here, nodes=(sample,), standing=(busy,), pools=(fuller,))) == {"workers-a": 1}


def test_where_only_capacity_is_known_a_reserve_is_kept() -> None:
    pools = (pool_offer(template=replace(template(), allocatable=None)),)
    assert check(pod(cpu="3600m"), pools=pools).nodes == 1
    assert check(pod(cpu="3601m"), pools=pools).nodes == 0
    assert check(pod(cpu="3601m"), pools=pools, policy=DemandPolicy(reserve=Fraction(0))).nodes == 1


@pytest.mark.parametrize(
    ("attached", "nodes"),
    [
        ([], 0),
        ([("n", "d", "left")], 1),
        ([("n", "d", "pg")], 0),
        ([("n", "d", "left"), ("n", "d", "pg")], 1),
        ([("n", "d", "pg"), ("n", "d", "pg")], 0),
        ([("other", "d", "left")], 0),
        ([("n", "other", "left")], 0),
        ([("n", "d", "gone"), ("n", "d", "")], 0),
        ([("n", "d", "asked")], 1),
    ],
    ids=str,
)
def test_a_volume_attached_without_a_pod_counts_once(attached: list[tuple[str, str, str]], nodes: int) -> None:
    """The node takes two, of which its pod has one. In the scheduler, one left by the pod itself also counts."""
    there = node(attach_limits={"d": 2})
    volumes = tuple(Volume(name=name, driver="d") for name in ("pg", "left", "asked"))
    claims = tuple(Claim(namespace="default", name=name, volume=name, bound=True) for name in ("pg", "asked"))
    running = pod("pg", node="n", cpu="100m", volumes=(claimed("pg"),))
    asking = pod(cpu="100m", volumes=(claimed("asked"),))
    attachments = tuple(Attachment(node=on, driver=driver, volume=volume) for on, driver, volume in attached)
    answer = check(asking, nodes=(there,), standing=(running,), claims=claims, volumes=volumes, attachments=attachments)
    assert answer.nodes == nodes


def test_a_claim_that_waits_for_its_pod_fits_a_new_node_in_its_topology() -> None:
    storage = StorageClass(name="gp3", provisioner="d", waits=True, allowed_topologies=(selector(f"{ZONE} in b"),))
    claim = Claim(namespace="default", name="data", storage_class="gp3")
    assert nodes_of(check(pod(volumes=(claimed(),)), claims=(claim,), storage_classes=(storage,))) == {"workers-b": 1}


def test_the_closing_reason_is_that_of_the_group_whose_node_would_fit() -> None:
    fenced = Reason.of(Rule.ZONE_IMPAIRED, zone="b", until=NOW + MINUTE)
    pool = replace(pool_offer(), groups=(offer("a"), offer("b", closed=fenced), offer("c")))
    (unfit,) = check(pod(node_selector={ZONE: "b"}), pools=(pool,)).unmet
    assert "workers-b: fenced until" in said(unfit.reason)
    assert "requires" not in said(unfit.reason)
    (unfit,) = check(pod(cpu="64"), pools=(pool,)).unmet
    assert "fenced" not in said(unfit.reason), "the end of the fence does not help this pod"
    closed = replace(pool, groups=tuple(replace(each, closed=fenced) for each in pool.groups))
    (unfit,) = check(pod(), pools=(closed,)).unmet
    assert "workers-" not in said(unfit.reason).replace("workers: ", ""), "one reason of all groups names none"
    later = Reason.of(Rule.IN_BACKOFF, kind="capacity", failures=3, until=NOW + 9 * MINUTE)
    closed = replace(pool, groups=(offer("a", closed=later), offer("b", closed=fenced), offer("c", room=0)))
    (unfit,) = check(pod(), pools=(closed,)).unmet
    assert "workers-b: fenced until" in said(unfit.reason), "the fence that ends first"


def test_a_taint_of_nodes_names_the_field_that_ignores_it() -> None:
    tainted = taint("recycle=true:NoSchedule")
    nodes = tuple(node(f"n-{zone}", zone, group=group_key(zone), taints=(tainted,)) for zone in "abc")
    answer = check(*pods(3, cpu="3"), nodes=nodes)
    assert answer.nodes == 0
    assert "add recycle to ignored_taints of the record" in said(answer.unmet[0].reason)
    own = pool_offer(template=template(taints=(tainted,)))
    assert "ignored_taints" not in said(check(pod(cpu="3"), nodes=nodes, pools=(own,)).unmet[0].reason)
    ignored = pool_offer(ignored_taints=frozenset({"recycle"}))
    assert check(*pods(3, cpu="3"), nodes=nodes, pools=(ignored,)).nodes == 3
