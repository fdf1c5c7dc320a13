"""A pool's memory of nodes that it ordered for pods, check by check, with one pool and one zone."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from evenkeel.adapters.codec import dump_stored, read_stored
from evenkeel.domain.demand.scale_up import scale_up
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.incidents.health import pending_changes, with_pending_changes
from evenkeel.domain.model.demand import Demand, DemandPolicy, PoolOffer
from evenkeel.domain.model.incidents import ClusterHealth, Incident, IncidentKind
from evenkeel.domain.model.past_orders import MOST_ORDERS, PastOrder, wait_after
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import (
    HOSTNAME,
    ZONE,
    Claim,
    Node,
    NodeSelectorTerm,
    Owner,
    Pod,
    PodAffinityTerm,
    PodVolume,
    TopologySpreadConstraint,
    Volume,
    Workload,
)
from evenkeel.texts.incidents import incident_text
from tests.builders import MINUTE, NOW
from tests.parts import replace
from tests.workloads import group_key, node, offer, pod, pods, pool_offer, requirement, selector, taint, template

RACK = {"rack": "r1"}
A = group_key()
Orders = Mapping[str, PastOrder]


def check(
    waiting: tuple[Pod, ...],
    orders: Orders,
    *nodes: Node,
    at: datetime = NOW,
    coming: int = 0,
    promised: Mapping[str, str] | None = None,
    zone: str = "a",
    patience: timedelta = 15 * MINUTE,
    **parts: Any,
) -> Demand:
    """Check a pool of one zone, whose template has the promised labels."""
    one = offer(zone, template=template(labels=promised), requested=len(nodes) + coming, coming=coming, room=60)
    one = replace(one, provision_timeout=patience)
    pool = replace(pool_offer(zones=zone, room=60), groups=(one,), orders=orders)
    standing = parts.pop("standing", ())
    seen = Workload(pods=(*waiting, *standing), nodes=nodes, **parts)
    return scale_up(Simulation(seen, (pool,), DemandPolicy(), at))


def arrived(name: str = "new", *, age: timedelta = MINUTE, at: datetime = NOW, **fields: Any) -> Node:
    return node(name, group=A, created_at=at - age, **fields)


def first_order(waiting: tuple[Pod, ...], **fields: Any) -> Orders:
    found = check(waiting, {}, at=NOW - 5 * MINUTE, **fields)
    assert found.nodes > 0
    assert found.pools[0].orders == {}
    return found.pools[0].orders_after


RED = taint("team=red:NoSchedule")
WEB = pods(3, "web", cpu="3")
TAINTED = Rule.TAINT_NOT_TOLERATED
HOUR = timedelta(hours=1)


def refused(name: str = "new", **fields: Any) -> Node:
    """Return a new node that no pod of WEB tolerates."""
    return arrived(name, taints=(RED,), **fields)


def ineffective_once() -> Orders:
    """Return the orders for WEB after one node that did not help."""
    return check(WEB, first_order(WEB), refused()).pools[0].orders


def test_the_first_order_is_as_large_as_needed_and_is_stored() -> None:
    found = check(WEB, {})
    assert found.nodes == 3
    (order,) = found.pools[0].orders_after.values()
    assert (order.at, order.groups, order.is_open, order.failed) == (NOW, (str(A),), True, 0)


def test_a_node_that_does_not_help_ends_the_orders_and_is_named() -> None:
    found = check(WEB, first_order(WEB), refused())
    assert found.nodes == 0
    (order,) = found.pools[0].orders.values()
    assert (order.failed, order.is_open, order.node) == (1, False, "new")
    (reported,) = found.pools[0].ineffective
    assert (reported.pods, reported.node, reported.why.rule) == (
        ("default/web-0", "default/web-1", "default/web-2"),
        "new",
        TAINTED,
    )
    assert found.unmet[0].by_group[A].rule is TAINTED, "the newest node is the sample"
    assert check(WEB, found.pools[0].orders).unmet[0].by_group[A].rule is Rule.ORDER_DID_NOT_HELP


@pytest.mark.parametrize(
    ("ahead", "node", "counts"),
    [
        (False, refused("old", age=HOUR), False),
        (False, refused("old", age=NOW - WEB[0].created_at), False),
        (False, refused(deleting=True), False),
        (False, refused(), True),
        (True, refused(), True),
    ],
    ids=[
        "older than the order",
        "as old as the pods",
        "being deleted",
        "a new node",
        "the clock of the worker is ahead",
    ],
)
def test_only_a_new_node_counts_for_an_order(ahead: bool, node: Node, counts: bool) -> None:
    orders = first_order(WEB)
    if ahead:
        orders = {key: replace(order, at=NOW) for key, order in orders.items()}
    for _ in range(3):  # one node is one failure
        found = check(WEB, orders, node, coming=3).pools[0]
        orders = found.orders or orders
        assert [order.failed for order in found.orders.values()] == [int(counts)]
    assert bool(found.ineffective) is counts


def test_after_ten_minutes_one_node_is_ordered_at_a_time() -> None:
    orders = ineffective_once()
    due = NOW + 5 * MINUTE
    assert check(WEB, orders, at=due - MINUTE).nodes == 0
    assert check(WEB, orders, at=due - MINUTE).retry_at == due
    again = check(WEB, orders, at=due)
    assert again.nodes == 1
    kept = again.pools[0].orders_after
    assert [(order.is_open, order.failed) for order in kept.values()] == [(True, 1)]
    for later in (MINUTE, 14 * MINUTE, HOUR):
        assert check(WEB, kept, at=due + later, coming=1).nodes == 0
    # Stored, and never ordered: the worker died in between.
    assert check(WEB, kept, at=due + MINUTE).nodes == 1
    failed = check(WEB, kept, arrived(at=due + 3 * MINUTE, taints=(RED,)), at=due + 3 * MINUTE).pools[0].orders
    assert [order.failed for order in failed.values()] == [2]
    assert check(WEB, failed, at=due + 19 * MINUTE).nodes == 0
    assert check(WEB, failed, at=due + 20 * MINUTE).nodes == 1


def test_a_node_that_helps_ends_the_wait() -> None:
    orders = ineffective_once()
    full = pod("other", cpu="3", node="new")
    found = check(WEB, orders, arrived(at=NOW + MINUTE, age=2 * MINUTE), at=NOW + MINUTE, standing=(full,))
    assert found.nodes == 3
    assert found.pools[0].orders == {}


@pytest.mark.parametrize(
    "changed",
    [pods(3, "web", cpu="2500m"), pods(3, "web", cpu="3", priority=5, tolerations=())],
    ids=["another spec", "the same needs"],
)
def test_another_spec_is_ordered_for_at_once(changed: tuple[Pod, ...]) -> None:
    orders = ineffective_once()
    assert check(changed, orders).nodes == (0 if changed[0].priority else 3)


def _volume_of(rack: str) -> dict[str, Any]:
    term = NodeSelectorTerm(expressions=(requirement(f"rack in {rack}"),))
    return {
        "volumes": (Volume(name="v", terms=(term,), claim="default/data"),),
        "claims": (Claim(namespace="default", name="data", volume="v", bound=True),),
    }


KINDS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "spread": ({"spread": (TopologySpreadConstraint(key="rack", max_skew=1, selector=selector("app in web")),)}, {}),
    "affinity": ({"affinity": (PodAffinityTerm(key="rack", selector=selector("app in web")),)}, {}),
    "a shared volume": (
        {"volumes": (PodVolume(name="data", kind="persistentVolumeClaim", claim="data"),)},
        _volume_of("r1"),
    ),
    "a node selector": ({"node_selector": RACK}, {}),
}


@pytest.mark.parametrize("name", KINDS)
def test_pods_that_depend_on_others_are_remembered_too(name: str) -> None:
    needs, parts = KINDS[name]
    waiting = pods(3, "web", cpu="3", labels={"app": "web"}, **needs)
    orders = first_order(waiting, promised=RACK, **parts)
    found = check(waiting, orders, arrived(), promised=RACK, **parts)
    assert found.nodes == 0
    assert len(found.pools[0].ineffective) == 1
    assert check(waiting, found.pools[0].orders, promised=RACK, **parts).nodes == 0


def test_pods_for_one_node_belong_to_it() -> None:
    orders = first_order(WEB)
    agent = pod("agent", cpu="2", node="new", node_selector={HOSTNAME: "new"})
    found = check(WEB, orders, arrived(), standing=(agent,))
    assert found.pools[0].ineffective[0].why.rule is Rule.TOO_LITTLE_FREE
    moving = check(WEB, orders, arrived(), standing=(replace(agent, needs=pod(cpu="2").needs),))
    assert moving.pools[0].ineffective == ()


@pytest.mark.parametrize(
    ("owner", "age", "is_in_vain"),
    [
        (Owner("InstanceManager", "im"), MINUTE / 2, True),
        (Owner("PyTorchJob", "train"), 2 * MINUTE, False),
        (Owner("ReplicaSet", "web"), MINUTE / 2, False),
        (None, MINUTE / 2, False),
    ],
    ids=["made for the node", "it waited for the node", "replicated", "bare"],
)
def test_a_pod_of_a_controller_per_node_belongs_to_it(owner: Owner | None, age: timedelta, *, is_in_vain: bool) -> None:
    agent = pod("agent", cpu="2", node="new", owner=owner, created_at=NOW - age)
    found = check(WEB, first_order(WEB), arrived(), standing=(agent,))
    assert [each.why.rule for each in found.pools[0].ineffective] == [Rule.TOO_LITTLE_FREE] * is_in_vain


def test_other_pods_use_the_retried_node_and_get_their_own_at_once() -> None:
    """The pods whose orders did not help are larger, and would be packed first."""
    orders = ineffective_once()
    small = pods(8, "small", cpu="1")
    assert check((*WEB, *small), orders).nodes == 2
    due = check((*WEB, *small), orders, at=NOW + 5 * MINUTE)
    assert due.nodes == 3
    kept = due.pools[0].orders_after
    assert check((*WEB, *small), kept, at=NOW + 6 * MINUTE, coming=3).nodes == 0
    assert check((*WEB, *small), kept, at=NOW + 6 * MINUTE, coming=1).nodes == 1


def test_a_node_that_never_becomes_ready_makes_it_one_node_at_a_time() -> None:
    late = arrived(at=NOW, age=4 * MINUTE, ready=False)
    found = check(WEB, first_order(WEB), late, coming=2)
    assert found.pools[0].ineffective == (), "it is still starting"
    later = NOW + 12 * MINUTE
    found = check(WEB, first_order(WEB), late, at=later)
    assert found.pools[0].ineffective[0].why.rule is Rule.NODE_NOT_READY
    assert found.nodes == 1


def test_nodes_that_never_become_ready_are_15_minutes_apart() -> None:
    orders = check(WEB, first_order(WEB), arrived(age=4 * MINUTE, ready=False), patience=3 * MINUTE).pools[0].orders
    again = check(WEB, orders, patience=3 * MINUTE)
    assert again.nodes == 1, "a first node may have died"
    failed_at = NOW + 6 * MINUTE
    late = arrived("again", at=failed_at, age=4 * MINUTE, ready=False)
    failed = check(WEB, again.pools[0].orders_after, late, at=failed_at, patience=3 * MINUTE).pools[0].orders
    assert [order.failed for order in failed.values()] == [2]
    assert check(WEB, failed, at=NOW + 14 * MINUTE).nodes == 0
    assert check(WEB, failed, at=NOW + 14 * MINUTE).retry_at == NOW + 15 * MINUTE
    assert check(WEB, failed, at=NOW + 15 * MINUTE).nodes == 1


def test_other_pools_are_tried_at_once_until_four_orders_have_failed() -> None:
    def pools(failed: Mapping[str, PastOrder]) -> tuple[PoolOffer, ...]:
        names = [f"p{number}" for number in range(6)]
        return tuple(replace(pool_offer(name, zones="a"), orders=failed if name == "p0" else {}) for name in names)

    seen, key = Workload(pods=WEB), next(iter(first_order(WEB)))
    why = Reason.of(Rule.NODE_NOT_READY)
    fields: dict[str, Any] = {"at": NOW - MINUTE, "seen": NOW - MINUTE, "node": "n", "why": why, "is_open": False}
    for failed, ordered in ((1, True), (3, True), (4, False)):
        where = str(group_key("a", "p0"))
        order = PastOrder(groups=(where,), failed_in=(where,), failed=failed, **fields)
        found = scale_up(Simulation(seen, pools({key: order}), DemandPolicy(), NOW))
        assert (found.nodes > 0) == ordered, failed


def test_at_most_twenty_orders_are_stored() -> None:
    def kinds(count: int) -> tuple[Pod, ...]:
        return tuple(pod(f"p{number}", cpu=f"{2500 + number}m") for number in range(count))

    found = check(kinds(30), {})
    assert len(found.pools[0].orders_after) == MOST_ORDERS
    failed = check(kinds(30), found.pools[0].orders_after, arrived(at=NOW + MINUTE, age=timedelta(0), taints=(RED,)))
    orders = failed.pools[0].orders
    assert sum(order.failed for order in orders.values()) == MOST_ORDERS
    assert check(kinds(31)[30:], orders).nodes == 0
    again = check(kinds(31)[30:], orders, at=NOW + 10 * MINUTE)
    assert again.nodes == 1
    assert len(again.pools[0].orders_after) == MOST_ORDERS


def test_orders_are_stored_while_their_pods_wait_and_three_hours_longer() -> None:
    orders = ineffective_once()
    later = NOW + timedelta(hours=4)
    waiting = check(WEB, orders, at=later)
    assert (waiting.nodes, len(waiting.pools[0].ineffective)) == (1, 1)
    others = check((pod("other", cpu="2"),), orders, at=later).pools[0].orders_after
    assert len(others) == 1
    assert not others.keys() & orders.keys()
    ahead = {key: replace(order, at=NOW + timedelta(days=1)) for key, order in orders.items()}
    assert check(WEB, ahead).nodes == 0
    assert check(WEB, ahead).retry_at == NOW + 10 * MINUTE


def failed_order(
    waiting: tuple[Pod, ...] = WEB,
    *,
    failed: int,
    at: datetime = NOW - HOUR,
    rule: Rule = TAINTED,
    zones: str = "a",
    **fields: Any,
) -> Orders:
    """Return an order whose nodes did not help in these zones."""
    groups = tuple(str(group_key(zone)) for zone in zones)
    past: dict[str, Any] = {"groups": groups, "failed_in": groups, "is_open": False, "failed": failed, "node": "new"}
    return {
        key: replace(order, at=at, seen=at, why=Reason(rule), **past)
        for key, order in first_order(waiting, **fields).items()
    }


def test_the_wait_doubles_up_to_an_hour() -> None:
    assert [wait_after(failed) // MINUTE for failed in (0, 1, 2, 3, 4, 9, 50)] == [0, 10, 20, 40, 60, 60, 60]


@pytest.mark.parametrize("failed", [2, 3, 9])
@pytest.mark.parametrize(("rule", "nodes"), [(Rule.NODE_NOT_READY, 1), (TAINTED, 0)])
def test_the_wait_for_nodes_that_are_never_ready_does_not_double(rule: Rule, nodes: int, failed: int) -> None:
    orders = failed_order(at=NOW, failed=failed, rule=rule)
    assert check(WEB, orders, at=NOW + 14 * MINUTE).nodes == 0
    assert check(WEB, orders, at=NOW + 15 * MINUTE).nodes == nodes


@pytest.mark.parametrize("failed", [1, 2, 3, 4])
@pytest.mark.parametrize("zones", ["ab", "abc"])
def test_each_retry_begins_with_another_zone_and_first_with_an_untried_one(zones: str, failed: int) -> None:
    orders = failed_order(failed=failed, zones="ab")
    pool = replace(pool_offer(zones=zones, room=60, template=template()), orders=orders)
    (group,) = scale_up(Simulation(Workload(pods=WEB), (pool,), DemandPolicy(), NOW)).pools[0].nodes
    assert group == group_key("c" if zones == "abc" else "ab"[failed % 2])


@pytest.mark.parametrize("is_ready", [True, False])
def test_an_unready_node_counts_unless_others_of_its_order_are_ready(is_ready: bool) -> None:
    zones = [str(group_key(zone)) for zone in "ab"]
    orders = {key: replace(order, groups=tuple(zones)) for key, order in first_order(WEB).items()}
    pool = replace(pool_offer(zones="ab", room=0, template=template()), orders=orders)
    age = {"created_at": NOW - MINUTE}
    nodes = (node("new", group=A, ready=is_ready, **age), node("late", group=group_key("b"), ready=False, **age))
    full = pod("other", cpu="3", node="new")
    later = NOW + HOUR
    (found,) = scale_up(Simulation(Workload(pods=(*WEB, full), nodes=nodes), (pool,), DemandPolicy(), later)).pools
    assert bool(found.ineffective) is not is_ready


@pytest.mark.parametrize("is_coming", [True, False])
def test_a_pool_retries_one_node_at_a_time(is_coming: bool) -> None:
    """A node is upcoming again for one kind in zone a. Another kind is also due in zone b."""
    large = pods(2, "large", cpu="3500m", node_selector={ZONE: "b"})
    retried = {key: replace(order, is_open=True) for key, order in failed_order(failed=1).items()}
    pool = pool_offer(zones="ab", room=60)
    a, b = pool.groups
    pool = replace(
        pool,
        groups=(replace(a, requested=1, coming=1) if is_coming else a, b),
        orders={**retried, **failed_order(large, failed=1, zones="b", zone="b")},
    )
    found = scale_up(Simulation(Workload(pods=(*WEB, *large)), (pool,), DemandPolicy(), NOW))
    assert found.nodes == (0 if is_coming else 1)


@pytest.mark.parametrize("most", [1, 2])
def test_retried_nodes_count_towards_the_limit_of_a_check(most: int) -> None:
    waiting, pools = [], []
    for zone, name in (("a", "workers"), ("b", "other")):
        asking = pod(name, cpu="3", node_selector={ZONE: zone})
        orders = failed_order((asking,), failed=1, zones=zone, zone=zone)
        waiting.append(asking)
        pools.append(replace(pool_offer(name, zones=zone), orders=orders))
    assert scale_up(Simulation(Workload(pods=tuple(waiting)), pools, DemandPolicy(most_nodes=most), NOW)).nodes == most


@pytest.mark.parametrize(("age", "nodes"), [(timedelta(minutes=30), 1), (timedelta(hours=2), 0)])
def test_where_a_young_node_helps_the_wait_does_not_double(age: timedelta, nodes: int) -> None:
    orders = failed_order(at=NOW - 15 * MINUTE, failed=3)
    full = pod("other", cpu="3", node="new")
    assert check(WEB, orders, arrived(age=age), standing=(full,)).nodes == nodes


def test_an_order_that_grows_keeps_its_first_node() -> None:
    more = pods(6, "web", cpu="3")
    found = check(more, first_order(WEB), arrived(ready=False), coming=2)
    assert found.nodes == 3
    found = check(more, found.pools[0].orders_after, refused(), coming=5)
    assert [reported.node for reported in found.pools[0].ineffective] == ["new"]


def test_a_failed_order_is_kept_before_younger_ones() -> None:
    orders = failed_order(at=NOW - MINUTE, failed=1)
    others = tuple(pod(f"p{number}", cpu=f"{1000 + number}m") for number in range(MOST_ORDERS + 5))
    after = check((*WEB, *others), orders).pools[0].orders_after
    assert len(after) == MOST_ORDERS
    assert orders.keys() <= after.keys()


@pytest.mark.parametrize("is_elsewhere", [True, False])
def test_a_pool_remembers_while_another_one_orders_for_the_same_pods(is_elsewhere: bool) -> None:
    old = failed_order(at=NOW - 4 * HOUR, failed=1)
    recent = {key: replace(order, at=NOW - HOUR) for key, order in old.items()}
    here = replace(pool_offer(zones="a", room=60, template=template()), orders=old)
    other = replace(
        here, pool=here.pool._replace(name="other"), room=0, groups=(), orders=recent if is_elsewhere else {}
    )
    found = scale_up(Simulation(Workload(pods=(pod("small", cpu="1"),)), (here, other), DemandPolicy(), NOW))
    assert (old.keys() <= found.pools[0].orders_after.keys()) is is_elsewhere


# ---------------------------------------------------------------- the incident


def incident(*names: str, node: str = "n1") -> Incident:
    why = Reason(TAINTED, {"taint": "team=red:NoSchedule"})
    problem = Problem.of(ProblemKind.INEFFECTIVE_ORDER, pods=names[:3], count=len(names), node=node, why=why)
    return Incident(
        kind=IncidentKind.INEFFECTIVE_ORDER,
        since=NOW,
        pool="cluster-api/prod/workers",
        zones=("eu-central-1a",),
        problems=(problem,),
    )


def test_the_incident_names_pods_node_and_rule() -> None:
    words = incident_text(incident("prod/web-1", "prod/web-2", "prod/web-3", "prod/web-4"), NOW + 5 * MINUTE)
    assert words == (
        "workers: new nodes do not help pending pods for 5 min in eu-central-1a: prod/web-1, prod/web-2, prod/web-3 "
        "and 1 more wait; node n1 was ordered and does not help: the pod does not tolerate taint team=red:NoSchedule"
    )
    assert "prod/web-1 waits; node" in incident_text(incident("prod/web-1"), NOW)


AGENT = pod("agent", cpu="1500m", namespace="kube-system", owner=Owner("DaemonSet", "agent"))


def test_pods_that_daemon_sets_keep_from_a_new_node_are_reported() -> None:
    found = check(WEB, {}, daemon_sets=(AGENT, replace(AGENT, name="log", owner=Owner("DaemonSet", "log"))))
    assert found.nodes == 0
    (blocked,) = found.pools[0].blocked
    assert blocked.pods == ("default/web-0", "default/web-1", "default/web-2")
    assert blocked.why.rule is Rule.TOO_LITTLE_FREE
    assert blocked.daemons == (("kube-system/agent", "1500m"), ("kube-system/log", "1500m"))
    assert blocked.groups == (str(A),)


@pytest.mark.parametrize(
    "waiting",
    [pods(2, "web", cpu="9"), pods(2, "web", cpu="1", node_selector=RACK), pods(2, "web", cpu="1"), ()],
    ids=["too large for any node", "no such label", "they fit", "none waits"],
)
def test_pods_that_fit_no_node_by_themselves_are_not_reported(waiting: tuple[Pod, ...]) -> None:
    assert check(waiting, {}, daemon_sets=(AGENT,)).pools[0].blocked == ()


def test_pods_that_another_pool_could_serve_are_not_reported() -> None:
    one = replace(pool_offer(zones="a", room=60), groups=(offer(template=template(), room=60),))
    large = offer("large", template=template(cpu="8"), room=60, closed=Reason.of(Rule.POOL_AT_ITS_MAX))
    other = replace(one, pool=one.pool._replace(name="large"), groups=(large,))
    seen = Workload(pods=WEB, daemon_sets=(AGENT,))
    assert [bool(each.blocked) for each in scale_up(Simulation(seen, (one,), DemandPolicy(), NOW)).pools] == [True]
    assert [bool(each.blocked) for each in scale_up(Simulation(seen, (one, other), DemandPolicy(), NOW)).pools] == [
        False,
        False,
    ]


def test_an_incident_about_daemon_sets_is_described() -> None:
    problem = Problem.of(
        ProblemKind.BLOCKED_BY_DAEMON_SETS,
        pods=("prod/web-1", "prod/web-2"),
        count=2,
        daemons=("kube-system/agent",),
        claims=("1500m",),
        why=Reason(Rule.TOO_LITTLE_FREE, {"resource": "cpu", "asked": "3", "free": "2500m", "allocatable": "4"}),
    )
    assert incident_text(replace(incident(), problems=(problem,)), NOW + 5 * MINUTE) == (
        "workers: new nodes do not help pending pods for 5 min in eu-central-1a: prod/web-1, prod/web-2 wait; a new "
        "node does not help because of its DaemonSets kube-system/agent (1500m): the pod requests 3 of cpu, and 2500m "
        "of 4 are free"
    )


def test_an_incident_is_stored_and_other_pods_do_not_change_it() -> None:
    health = ClusterHealth().with_incidents([incident("prod/web-1")])
    assert read_stored(ClusterHealth, dump_stored(health), "HEALTH") == health
    assert pending_changes(with_pending_changes(health).with_incidents([incident("prod/web-7", node="n2")])) == ()
