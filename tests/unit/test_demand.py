"""Pods that find no node, and what their pools are asked for."""

from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from evenkeel.domain.demand.scale_up import scale_up
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
from tests.workloads import (
    pod as one,
)

WEB = {"app": "web"}
OF_WEB = selector("app in web")
SECOND = timedelta(seconds=1)


def look(*waiting: Pod, pools: tuple[PoolOffer, ...] | None = None, **parts: Any) -> Demand:
    """Demand of these pods beside what else is in the workload, by default in one empty pool of three zones."""
    policy = parts.pop("policy", DemandPolicy())
    standing = parts.pop("standing", ())
    workload = Workload(pods=(*waiting, *standing), **parts)
    return scale_up(workload, (pool_offer(),) if pools is None else pools, policy, NOW)


def nodes_of(answer: Demand) -> dict[str, int]:
    return {name: count for pool in answer.pools for name, count in asked(pool.nodes).items()}


# ---------------------------------------------------------------- which pods count


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
def test_only_what_a_scheduler_found_unschedulable_and_can_be_judged_counts(
    fields: dict[str, Any], rule: Rule | None
) -> None:
    answer = look(pod(**fields))
    assert [item.reason.rule for item in answer.not_counted] == ([] if rule is None else [rule])
    assert answer.nodes == (1 if rule is None else 0)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_what_has_ended_is_nowhere(phase: str) -> None:
    answer = look(pod(phase=phase))
    assert (answer.nodes, answer.not_counted) == (0, ())


def test_while_even_the_oldest_is_new_nobody_is_judged() -> None:
    young = pod("young", created_at=NOW - SECOND)
    answer = look(young)
    assert (answer.nodes, answer.look_again) == (0, NOW + SECOND)
    assert look(young, pod("old")).nodes == 1
    assert look(pod(created_at=NOW - 2 * SECOND)).nodes == 1


def test_pods_with_gpus_are_given_half_a_minute() -> None:
    gpu = pod("gpu", created_at=NOW - 20 * SECOND, containers=(container(nvidia_com__gpu=1),))
    assert look(gpu, pod("old")).look_again == NOW + 10 * SECOND


@pytest.mark.parametrize("ahead", [SECOND, 10 * MINUTE, timedelta(days=400)])
@pytest.mark.parametrize("resource", ["cpu", "nvidia_com__gpu"])
def test_a_pod_from_ahead_of_our_clock_gets_its_node_at_once(ahead: timedelta, resource: str) -> None:
    """Its age cannot be known, and its scheduler has tried it: with a slow clock it would wait until that caught up."""
    gpu = pool_offer(template=template(nvidia_com__gpu="1"))
    new = pod(created_at=NOW + ahead, containers=(container(**{resource: 1}),))
    answer = look(new, pools=(gpu,))
    assert (answer.nodes, answer.look_again) == (1, None)
    assert look(new, pod("young", created_at=NOW - SECOND), pools=(gpu,)).nodes >= 1


def test_a_pod_that_others_made_room_for_takes_that_room_and_no_node() -> None:
    there = node()
    answer = look(pod("preempting", cpu="3", nominated="n"), pod("second", cpu="3"), nodes=(there,))
    assert nodes_of(answer) == {"workers-a": 1}
    assert [waiting.pods for waiting in answer.pools[0].pending] == [("default/second",)]


def test_a_nominated_pod_has_its_node_while_the_pod_that_leaves_for_it_still_runs_there() -> None:
    leaving = pod("victim", cpu="3", node="n", deleted_at=NOW - SECOND)
    answer = look(pod("preempting", cpu="3", nominated="n"), nodes=(node(),), standing=(leaving,))
    assert (answer.nodes, answer.unmet) == (0, ())


def test_room_on_a_node_that_is_gone_is_no_room() -> None:
    assert look(pod(nominated="gone")).nodes == 1


def test_running_pods_that_are_expendable_leave_their_room() -> None:
    low = pod("low", cpu="4", priority=-11, node="n")
    assert look(pod(cpu="3"), nodes=(node(),), standing=(low,)).nodes == 0
    assert look(pod(cpu="3"), nodes=(node(),), standing=(replace(low, priority=-10),)).nodes == 1


def test_pods_of_a_node_that_goes_are_demand_if_they_fit_nowhere_else() -> None:
    seconds = int(NOW.timestamp())
    going = node("going", taints=(taint(f"ToBeDeletedByClusterAutoscaler={seconds}:NoSchedule"),))
    moved = pod("moved", cpu="3", node="going")
    assert look(moved, nodes=(going,)).nodes == 1
    assert look(moved, nodes=(going, node("free"))).nodes == 0
    assert look(replace(moved, deleted_at=NOW), nodes=(going,)).nodes == 0
    daemon = replace(moved, owner=Owner("DaemonSet", "ds"))
    assert look(daemon, nodes=(replace(going, deleting=True),)).nodes == 0


@pytest.mark.parametrize("since", [int((NOW - 5 * MINUTE).timestamp()), 1, 9999999999, 10**40, -1, "", "soon", "²"])
def test_pods_of_a_node_that_an_autoscaler_has_tainted_and_left_stay_where_they_are(since: int | str) -> None:
    left = node("left", taints=(taint(f"ToBeDeletedByClusterAutoscaler={since}:NoSchedule"),), unschedulable=True)
    answer = look(pod("stays", cpu="3", node="left"), nodes=(left,))
    assert (answer.nodes, answer.fits_already, answer.unmet) == (0, (), ())
    assert look(pod("waits", cpu="1"), nodes=(left,)).nodes == 1


# ---------------------------------------------------------------- what is there counts first


def test_room_that_is_there_is_given_once_and_the_highest_priority_first() -> None:
    answer = look(pod("low", cpu="3500m"), pod("high", cpu="3", priority=5), nodes=(node(),))
    assert answer.fits_already == ("default/high",)
    assert [waiting.pods for waiting in answer.pools[0].pending] == [("default/low",)]


def test_who_has_to_be_with_a_smaller_one_finds_the_room_that_is_there() -> None:
    follower = pod("follower", cpu="3", affinity=(PodAffinityTerm(key=ZONE, selector=OF_WEB),))
    assert look(follower, pod("web", cpu="1", labels=WEB), nodes=(node(),)).nodes == 0


def test_pods_with_the_same_port_of_a_host_get_a_node_each() -> None:
    port = (container(cpu="100m", ports=(HostPort(80),)),)
    assert look(*pods(3, containers=port)).nodes == 3
    assert look(*pods(3, containers=port), nodes=(node(),)).nodes == 2


def own_claims(number: int) -> tuple[tuple[Pod, ...], tuple[Claim, ...]]:
    """Pods with a claim each that waits for its pod, and the claims."""
    asking = tuple(
        pod(f"s-{i}", cpu="100m", volumes=(PodVolume("data", "persistentVolumeClaim", f"data-{i}"),))
        for i in range(number)
    )
    return asking, tuple(Claim(namespace="default", name=f"data-{i}", storage_class="gp3") for i in range(number))


def test_a_driver_s_limit_holds_for_many_pods_at_once() -> None:
    asking, claims = own_claims(5)
    storage = (StorageClass(name="gp3", provisioner="d", waits=True),)
    answer = look(*asking, claims=claims, storage_classes=storage, nodes=(node(attach_limits={"d": 3}),))
    assert len(answer.fits_already) == 3


def test_pods_that_differ_by_the_zone_of_their_volume_get_nodes_in_both_zones() -> None:
    asking, claims = own_claims(2)
    bound = tuple(replace(each, volume=zone) for each, zone in zip(claims, "bc", strict=True))
    volumes = tuple(Volume(name=zone, terms=(NodeSelectorTerm((Requirement(ZONE, "In", (zone,)),)),)) for zone in "bc")
    assert nodes_of(look(*asking, claims=bound, volumes=volumes)) == {"workers-b": 1, "workers-c": 1}


def test_of_two_pods_with_a_claim_for_one_pod_one_gets_a_node() -> None:
    alone = Claim(namespace="default", name="data", volume="pv", access_modes=frozenset({"ReadWriteOncePod"}))
    asking = pods(2, cpu="100m", volumes=(PodVolume("data", "persistentVolumeClaim", "data"),))
    answer = look(*asking, claims=(alone,), volumes=(Volume(name="pv"),))
    assert answer.nodes == 1
    (unmet,) = answer.unmet
    assert said(unmet.reason).endswith("is limited to one pod, and another pod uses it")


def test_what_is_on_its_way_is_not_ordered_again() -> None:
    waiting = pods(4, cpu="3")
    assert look(*waiting).nodes == 4
    coming = PoolOffer(pool=pool_id(), groups=(offer("a", coming=3, requested=3), offer("b")), room=20)
    assert nodes_of(look(*waiting, pools=(coming,))) == {"workers-b": 1}


def test_what_is_on_its_way_to_the_wrong_zone_leaves_no_room_that_the_pool_has_not() -> None:
    groups = (offer("a", coming=1, requested=1), offer("b"), offer("c"))
    pool = PoolOffer(pool=pool_id(), groups=groups, room=1)
    answer = look(*pods(2, node_selector={ZONE: "b"}, cpu="3"), pools=(pool,))
    assert nodes_of(answer) == {"workers-b": 1}
    assert [unmet.pods for unmet in answer.unmet] == [("default/p-1",)]


def test_cordoned_unready_and_going_nodes_take_nobody() -> None:
    for away in (node(unschedulable=True), node(ready=False), node(deleting=True)):
        assert look(pod(tolerations=EVERYTHING), nodes=(away,)).nodes == 1


def test_a_young_node_that_still_starts_counts_as_what_it_will_be() -> None:
    startup = taint("startup-taint.cluster-autoscaler.kubernetes.io/gpu=x:NoSchedule")
    young = node(group=group_key(), created_at=NOW - MINUTE, taints=(startup,))
    assert look(pod(), nodes=(young,)).nodes == 0
    assert look(pod(), nodes=(replace(young, created_at=LONG_AGO),)).nodes == 1


def test_a_node_whose_gpu_is_not_there_yet_gets_no_second_one_beside_it() -> None:
    gpu = template(nvidia_com__gpu="1")
    pools = (pool_offer(zones="a", template=gpu),)
    asking = pod(containers=(container(nvidia_com__gpu=1),))
    young = node(group=group_key(), created_at=NOW - MINUTE)
    assert look(asking, pools=pools).nodes == 1
    assert look(asking, pools=pools, nodes=(young,)).nodes == 0
    assert look(asking, pools=pools, nodes=(replace(young, created_at=LONG_AGO),)).nodes == 1


# ---------------------------------------------------------------- how many, and where


def test_the_largest_are_placed_first_and_the_small_fill_what_is_left() -> None:
    assert look(*pods(4, "a-small", cpu="1"), *pods(4, "b-large", cpu="3")).nodes == 4


def test_new_nodes_go_to_the_emptiest_zones() -> None:
    groups = (offer("a", requested=3), offer("b", requested=1), offer("c", requested=2))
    pool = PoolOffer(pool=pool_id(), groups=groups, room=30)
    assert nodes_of(look(*pods(6, cpu="3"), pools=(pool,))) == {"workers-a": 1, "workers-b": 3, "workers-c": 2}


def test_a_pod_for_one_zone_gets_its_node_there_and_says_so() -> None:
    answer = look(pod(node_selector={ZONE: "b"}))
    assert nodes_of(answer) == {"workers-b": 1}
    assert answer.pools[0].pending[0].zones == ("b",)
    assert answer.pools[0].pending[0].since == NOW - 9 * MINUTE


def test_a_volume_of_one_zone_brings_the_node_there() -> None:
    volume = Volume(name="pv", terms=(NodeSelectorTerm((Requirement(ZONE, "In", ("c",)),)),))
    claim = Claim(namespace="default", name="data", volume="pv", bound=True)
    asking = pod(volumes=(PodVolume("data", "persistentVolumeClaim", "data"),))
    assert nodes_of(look(asking, claims=(claim,), volumes=(volume,))) == {"workers-c": 1}


def test_spread_over_zones_levels_the_new_nodes() -> None:
    constraint = TopologySpreadConstraint(key=ZONE, max_skew=1, selector=OF_WEB)
    answer = look(*pods(7, cpu="3", labels=WEB, spread=(constraint,)))
    assert sorted(nodes_of(answer).values()) == [2, 2, 3]


def test_one_pod_per_host_gets_one_node_each() -> None:
    alone = PodAffinityTerm(key=HOSTNAME, selector=OF_WEB)
    assert look(*pods(5, cpu="100m", labels=WEB, anti_affinity=(alone,))).nodes == 5


def test_one_pod_per_zone_gets_no_second_node_in_a_zone() -> None:
    alone = PodAffinityTerm(key=ZONE, selector=OF_WEB)
    answer = look(*pods(5, cpu="100m", labels=WEB, anti_affinity=(alone,)))
    assert nodes_of(answer) == {"workers-a": 1, "workers-b": 1, "workers-c": 1}
    assert [len(unmet.pods) for unmet in answer.unmet] == [2]
    assert "its anti-affinity excludes a pod" in said(answer.unmet[0].reason)


def test_pods_that_have_to_be_together_come_into_one_zone() -> None:
    together = PodAffinityTerm(key=ZONE, selector=OF_WEB)
    answer = look(*pods(4, cpu="3", labels=WEB, affinity=(together,)))
    assert list(nodes_of(answer).values()) == [4]


def test_who_has_to_be_with_a_smaller_one_follows_it() -> None:
    follower = pod("follower", cpu="3", affinity=(PodAffinityTerm(key=ZONE, selector=OF_WEB),))
    answer = look(follower, pod("web", cpu="2", labels=WEB))
    assert (answer.nodes, answer.unmet) == (2, ())
    assert len(nodes_of(answer)) == 1


def test_a_new_node_may_let_pods_that_spread_onto_what_was_there() -> None:
    """Zone b is full, so that zone a may have one only; a node more in b lets a take the other."""
    constraint = TopologySpreadConstraint(key=ZONE, max_skew=1, selector=OF_WEB)
    there = (node("na", "a"), node("nb", "b"))
    standing = (pod("w", labels=WEB, node="na"), pod("full", cpu="4", node="nb"))
    waiting = pods(2, cpu="3", labels=WEB, spread=(constraint,))
    answer = look(*waiting, nodes=there, standing=standing, pools=(pool_offer(zones="ab"),))
    assert nodes_of(answer) == {"workers-b": 1}


def test_pods_that_spread_fill_what_is_there_before_a_node_more_is_opened_for_them() -> None:
    """Each may stand in a zone only once the others have as many: all nodes are gone through again and again."""
    constraint = TopologySpreadConstraint(key=ZONE, max_skew=1, selector=OF_WEB)
    there = tuple(node(f"n{zone}", zone) for zone in "abc")
    full = (pod("full-b", cpu="4", node="nb"), pod("full-c", cpu="4", node="nc"))
    waiting = pods(30, cpu="300m", labels=WEB, spread=(constraint,))
    assert nodes_of(look(*waiting, nodes=there, standing=full)) == {"workers-b": 1, "workers-c": 1}


def test_limits_of_groups_pool_and_look_hold() -> None:
    waiting = pods(9, cpu="3")
    assert nodes_of(look(*waiting, pools=(pool_offer(room=30, zones="a"),))) == {"workers-a": 9}
    assert look(*waiting, pools=(pool_offer(room=4),)).nodes == 4
    groups = (offer("a", room=1), offer("b", room=2))
    short = look(*waiting, pools=(PoolOffer(pool=pool_id(), groups=groups, room=9),))
    assert nodes_of(short) == {"workers-a": 1, "workers-b": 2}
    assert said(short.unmet[0].reason) == (
        "6 pods like default/p-3 can have no node: cluster-api/default/workers: it is at its max"
    )
    assert look(*waiting, policy=DemandPolicy(most_nodes=2)).nodes == 2


# ---------------------------------------------------------------- which pool


LARGE = template(cpu="16", memory="64Gi")


def test_the_pool_with_the_least_waste_is_taken() -> None:
    pools = (pool_offer("large", template=LARGE), pool_offer("small"))
    assert nodes_of(look(pod(cpu="3"), pools=pools)) == {"small-a": 1}
    assert nodes_of(look(*pods(5, cpu="3", memory="12Gi"), pools=pools)) == {"large-a": 1}


def test_the_record_s_order_of_pools_goes_before_waste_by_name_or_id() -> None:
    pools = (pool_offer("large", template=LARGE), pool_offer("small"))
    for name in ("large", str(pool_id("large"))):
        ordered = DemandPolicy(order=("gone", name, "small"))
        assert nodes_of(look(pod(cpu="3"), pools=pools, policy=ordered)) == {"large-a": 1}
    assert nodes_of(look(pod(cpu="3"), pools=pools, policy=DemandPolicy(order=("small", "large")))) == {"small-a": 1}


def test_what_the_first_pool_of_the_order_cannot_take_goes_to_the_next() -> None:
    pools = (pool_offer("large", template=LARGE, room=1), pool_offer("small"))
    answer = look(*pods(8, cpu="3"), pools=pools, policy=DemandPolicy(order=("large", "small")))
    assert nodes_of(answer) == {"large-a": 1, "small-a": 1, "small-b": 1, "small-c": 1}


def test_pools_that_are_missing_in_the_order_come_last_by_least_waste() -> None:
    huge = template(cpu="64", memory="256Gi")
    pools = (pool_offer("huge", template=huge), pool_offer("large", template=LARGE), pool_offer("small"))
    assert nodes_of(look(pod(cpu="3"), pools=pools, policy=DemandPolicy(order=("huge",)))) == {"huge-a": 1}
    full = (pool_offer("huge", template=huge, room=0), *pools[1:])
    assert nodes_of(look(pod(cpu="3"), pools=full, policy=DemandPolicy(order=("huge",)))) == {"small-a": 1}


def test_what_one_pool_cannot_take_goes_to_the_next() -> None:
    pools = (pool_offer("large", template=LARGE, room=1), pool_offer("small"))
    answer = look(*pods(6, cpu="3", memory="12Gi"), pools=pools)
    assert nodes_of(answer) == {"large-a": 1, "small-a": 1}
    assert sorted(name for pool in answer.pools for waiting in pool.pending for name in waiting.pods) == [
        f"default/p-{i}" for i in range(6)
    ]


def test_who_got_a_node_in_one_pool_may_keep_others_out_of_another() -> None:
    pools = tuple(pool_offer(name, zones="a", template=template({"pool": name})) for name in ("late", "first"))
    web = pods(2, "web", labels=WEB, node_selector={"pool": "late"})
    away = {"anti_affinity": (PodAffinityTerm(key=ZONE, selector=OF_WEB),), "node_selector": {"pool": "first"}}
    answer = look(*web, pod("shy", cpu="3", memory="14Gi", **away), pools=pools)
    assert nodes_of(answer) == {"first-a": 1}
    assert [unmet.pods for unmet in answer.unmet] == [("default/web-0", "default/web-1")]


def test_a_node_without_capacity_does_not_win() -> None:
    empty = replace(template(), capacity=amounts(cpu="0", memory="0"))
    pools = (pool_offer("empty", template=empty), pool_offer("real"))
    assert nodes_of(look(pod(cpu="3"), pools=pools)) == {"real-a": 1}


def test_every_pool_says_why_it_would_not_do() -> None:
    tainted = template(taints=(taint("gpu=yes:NoSchedule"),))
    closed = Reason.of(Rule.IN_STATE, state="fenced")
    pools = (
        pool_offer("gpu", template=tainted),
        pool_offer("closed", closed=closed),
        pool_offer("unknown", template=None),
        pool_offer("full", room=0),
        pool_offer("small"),
    )
    answer = look(pod(cpu="64"), pools=pools)
    assert {pool.pool.name: said(pool.unfit[0].reason) for pool in answer.pools} == {
        "gpu": "it does not tolerate taint gpu=yes:NoSchedule",
        "closed": "it is fenced",
        "unknown": "the cpu and memory of its next node are unknown",
        "full": "the pool is at its max",
        "small": "it requests 64 of cpu, and 4 of 4 are free",
    }
    assert answer.nodes == 0


def test_a_pod_that_fits_nowhere_is_one_sentence_and_no_order() -> None:
    answer = look(pod("huge", cpu="64"), pod("fine", cpu="1"))
    assert answer.nodes == 1
    assert [said(unmet.reason) for unmet in answer.unmet] == [
        "pod default/huge can have no node: cluster-api/default/workers: it requests 64 of cpu, and 4 of 4 are free"
    ]
    assert set(answer.unmet[0].by_group) == {group_key(zone) for zone in "abc"}


def test_without_pools_every_pod_is_unmet() -> None:
    assert said(look(pod(), pools=()).unmet[0].reason) == "pod default/p can have no node: there is no pool"


# ---------------------------------------------------------------- what a fresh node looks like


def daemon(name: str = "ds", **fields: Any) -> Pod:
    return pod(name, owner=Owner("DaemonSet", name), **fields)


def test_what_comes_with_a_node_takes_its_room_first() -> None:
    sample = node("full", group=group_key())
    standing = (daemon(cpu="2", node="full"), pod("busy", cpu="2", node="full"))
    answer = look(pod(cpu="3"), nodes=(sample,), standing=standing, pools=(pool_offer(zones="a"),))
    assert said(answer.unmet[0].reason).endswith("it requests 3 of cpu, and 2 of 4 are free")


def test_a_node_on_which_a_daemon_has_found_no_room_is_no_sample() -> None:
    full, whole = (node(name, group=group_key("a")) for name in ("full", "whole"))
    daemon = pod("daemon", cpu="500m", node="whole", owner=Owner("DaemonSet", "ds"))
    standing = (pod("large", cpu="4", node="full"), daemon, pod("other", cpu="3500m", node="whole"))
    answer = look(one(cpu="3800m"), nodes=(full, whole), standing=standing, pools=(pool_offer(zones="a"),))
    assert (answer.nodes, len(answer.unmet)) == (0, 1)


def test_a_daemon_set_seen_elsewhere_counts_on_a_fresh_node_where_it_would_run() -> None:
    there = node("n", labels={"role": "x"})
    named = NodeSelectorTerm(fields=(Requirement("metadata.name", "In", ("n",)),))
    everywhere = daemon("all", cpu="1", node="n", node_terms=(named,))
    only_x = daemon("only-x", cpu="2", node="n", node_selector={"role": "x"})
    busy = pod("busy", cpu="1", node="n")
    answer = look(pod(cpu="4"), nodes=(there,), standing=(everywhere, only_x, busy), pools=(pool_offer(zones="a"),))
    assert said(answer.unmet[0].reason).endswith("it requests 4 of cpu, and 3 of 4 are free")


def test_daemons_tolerate_what_every_daemon_does_and_taints_of_the_pool_keep_the_others_away() -> None:
    standing = (daemon("all", cpu="1", node="n"), pod("busy", cpu="3", node="n"))
    tainted = pool_offer(zones="a", template=template(taints=(taint("gpu=x:NoSchedule"),)))
    asking = pod(cpu="4", tolerations=(Toleration("gpu", "Exists"),))
    assert look(asking, nodes=(node(),), standing=standing, pools=(tainted,)).nodes == 1


def test_what_is_passing_on_the_sample_is_not_on_the_next_node() -> None:
    passing = [
        "cloud.google.com/impending-node-termination=:NoSchedule",
        "node.kubernetes.io/memory-pressure=:NoSchedule",
        "DeletionCandidateOfClusterAutoscaler=1:PreferNoSchedule",
        "startup-taint.cluster-autoscaler.kubernetes.io/x=:NoSchedule",
    ]
    sample = node("n", group=group_key(), taints=tuple(map(taint, passing)))
    pools = (pool_offer(zones="a", template=None),)
    assert look(pod(), nodes=(sample,), pools=pools).nodes == 1
    lasting = replace(sample, taints=(taint("team=red:NoSchedule"),))
    assert look(pod(), nodes=(lasting,), pools=pools).nodes == 0


def test_a_sample_of_another_zone_changes_its_zone_under_every_key_and_its_hostname() -> None:
    labels = {"topology.ebs.csi.aws.com/zone": "a", "topology.k8s.aws/zone-id": "use1-az1", "disk": "ssd"}
    sample = node("n", "a", group=group_key(), labels=labels)
    busy = pod("busy", cpu="4", node="n")
    pools = (pool_offer(zones="ab", template=None),)

    def where(**wanted: str) -> dict[str, int]:
        node_selector = {name.replace("__", "/").replace("_", "."): value for name, value in wanted.items()}
        return nodes_of(look(one(node_selector=node_selector), nodes=(sample,), standing=(busy,), pools=pools))

    assert where(topology_ebs_csi_aws_com__zone="b", disk="ssd") == {"workers-b": 1}
    assert where(kubernetes_io__hostname="n") == {}
    only_here = one(node_selector={"topology.k8s.aws/zone-id": "use1-az1"})
    assert nodes_of(look(only_here, nodes=(sample,), standing=(busy,), pools=pools)) == {"workers-a": 1}
    fuller = PoolOffer(pool=pool_id(), groups=(offer("a", requested=9), offer("b")), room=9)
    assert nodes_of(look(only_here, nodes=(sample,), standing=(busy,), pools=(fuller,))) == {"workers-a": 1}


def test_a_template_without_cpu_and_memory_is_none() -> None:
    answer = look(pod(), pools=(pool_offer(template=replace(template(), capacity=amounts(pods="9"))),))
    assert said(answer.unmet[0].reason).endswith("the cpu and memory of its next node are unknown")


def test_where_only_capacity_is_known_something_of_it_is_kept_back() -> None:
    bare = replace(template(), allocatable=None)
    pools = (pool_offer(template=bare),)
    assert look(pod(cpu="3600m"), pools=pools).nodes == 1
    assert look(pod(cpu="3601m"), pools=pools).nodes == 0
    assert look(pod(cpu="3601m"), pools=pools, policy=DemandPolicy(reserve=Fraction(0))).nodes == 1


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
def test_a_volume_that_is_attached_without_a_pod_counts_once_toward_the_limit_of_its_driver(
    attached: list[tuple[str, str, str]], nodes: int
) -> None:
    """The node takes two: one is its pod's. As the scheduler has it, also one that the pod itself has left there."""
    there = node(attach_limits={"d": 2})
    volumes = tuple(Volume(name=name, driver="d") for name in ("pg", "left", "asked"))
    claims = tuple(Claim(namespace="default", name=name, volume=name, bound=True) for name in ("pg", "asked"))
    running = pod("pg", node="n", cpu="100m", volumes=(PodVolume("data", "persistentVolumeClaim", "pg"),))
    asking = pod(cpu="100m", volumes=(PodVolume("data", "persistentVolumeClaim", "asked"),))
    attachments = tuple(Attachment(node=on, driver=driver, volume=volume) for on, driver, volume in attached)
    answer = look(asking, nodes=(there,), standing=(running,), claims=claims, volumes=volumes, attachments=attachments)
    assert answer.nodes == nodes


def test_a_claim_that_waits_for_its_pod_is_no_obstacle_where_the_fresh_node_has_the_key() -> None:
    storage = StorageClass(name="gp3", provisioner="d", waits=True, allowed_topologies=(selector(f"{ZONE} in b"),))
    claim = Claim(namespace="default", name="data", storage_class="gp3")
    asking = pod(volumes=(PodVolume("data", "persistentVolumeClaim", "data"),))
    assert nodes_of(look(asking, claims=(claim,), storage_classes=(storage,))) == {"workers-b": 1}
