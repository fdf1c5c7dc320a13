"""The demand of pods in a plan: it follows the planned pools and changes no write."""

from datetime import datetime
from typing import Any

import pytest

from evenkeel.domain.demand.advice import advise
from evenkeel.domain.demand.offers import untouched
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.demand import ScaleDownState
from evenkeel.domain.model.groups import Machine, NodeGroup
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.policy import Policy, PoolRule
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.workload import Owner, Workload
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.membership.pools import find_pools
from evenkeel.texts.english import sentence
from tests.builders import MINUTE, NOW, group, in_backoff, key, numbers
from tests.parts import make, replace
from tests.workloads import node, pod, pods, template

FROZEN = Reason.of(Rule.OBJECT_PAUSED)
COMING = Machine(name="m", has_node=False, created_at=NOW - MINUTE)
LATE = replace(COMING, created_at=NOW - 60 * MINUTE)


def groups(*requested: int, **fields: Any) -> tuple[NodeGroup, ...]:
    """Return one group per zone, whose nodes all run, with a template."""
    fields.setdefault("template", template())
    return tuple(group(zone, count, **fields) for zone, count in zip("abc", requested, strict=False))


def policy(stage: DemandStage = DemandStage.ADVISE, maximum: int = 12, minimum: int = 0, **fields: Any) -> Policy:
    rules = fields.pop("pools", (PoolRule(name="workers", min=minimum, max=maximum),))
    return make(Policy, strategy=BALANCED, demand=stage, pools=rules, **fields)


def check(
    members: tuple[NodeGroup, ...],
    workload: Workload | None,
    state: ClusterState | None = None,
    unread: str = "",
    **fields: Any,
) -> Plan:
    reason = Reason.of(Rule.WORKLOAD_UNREAD, error=unread) if unread else None
    observation = Observation(groups=members, workload=workload, workload_unread=reason)
    return plan(observation, state or ClusterState(), policy(**fields), NOW)


def the_pool(planned: Plan) -> PoolPlan:
    (pool,) = planned.pools
    return pool


def asked(planned: Plan) -> dict[str, int]:
    advice = the_pool(planned).demand.advice
    assert advice is not None
    return {group.name: nodes for group, nodes in advice.asked.nodes.items()}


def needed(planned: Plan) -> dict[str, str]:
    """Return each node of the pool, and why it is needed."""
    advice = the_pool(planned).demand.advice
    assert advice is not None
    return {node.node: "" if node.needed is None else sentence(node.needed) for node in advice.nodes}


def ours(name: str, zone: str = "a", **fields: Any) -> Any:
    return node(name, zone, group=key(zone), **fields)


class TestGrowth:
    @pytest.mark.parametrize(
        ("stage", "blocked"), [(DemandStage.ADVISE, 0), (DemandStage.SCALE_UP, 1), (DemandStage.FULL, 1)]
    )
    def test_pods_that_daemon_sets_block_are_reported(self, stage: DemandStage, blocked: int) -> None:
        agent = pod("agent", cpu="1500m", owner=Owner("DaemonSet", "agent"))
        seen = Workload(pods=pods(2, cpu="3"), daemon_sets=(agent,), autoscaler_sought=True)
        advice = the_pool(check(groups(0, 0, 0), seen, stage=stage, autoscaler=False)).demand.advice
        assert advice is not None
        assert len(advice.asked.blocked) == blocked

    def test_a_zone_gets_no_more_than_its_cap(self) -> None:
        capped = (*groups(1, zone_max=2), *(group(zone, 4, template=template()) for zone in "bc"))
        planned = check(capped, Workload(pods=pods(3, cpu="3")))
        assert asked(planned) == {"workers-a": 1, "workers-b": 1, "workers-c": 1}

    def test_a_fenced_zone_gets_no_node_and_has_a_reason(self) -> None:
        state = ClusterState(groups={key("b"): in_backoff()})
        waiting = pod("zonal", cpu="1", node_selector={"topology.kubernetes.io/zone": "b"})
        planned = check(groups(2, 1, 1), Workload(pods=(*pods(2, cpu="3"), waiting)), state)
        assert "workers-b" not in asked(planned)
        assert planned.demand is not None
        (unmet,) = planned.demand.unmet
        assert ": capacity failure no. 1" in sentence(unmet.by_group[key("b")])
        assert "node selector" in sentence(unmet.by_group[key("a")])

    @pytest.mark.parametrize(
        ("replicas", "machines", "nodes", "waiting", "ordered"),
        [
            pytest.param(1, (COMING,), (), 1, 0, id="a booting machine"),
            pytest.param(1, (), (), 1, 0, id="a replica without a machine"),
            pytest.param(2, (replace(LATE, preserved=True),), (), 1, 0, id="one beside a preserved machine"),
            pytest.param(1, (LATE,), (), 1, 1, id="no failed machine"),
            pytest.param(1, (COMING,), ("n",), 2, 1, id="a node that registers before its machine once"),
        ],
    )
    def test_pods_use_ordered_nodes(
        self, replicas: int, machines: tuple[Machine, ...], nodes: tuple[str, ...], waiting: int, ordered: int
    ) -> None:
        first = group("a", replicas, running=0, machines=machines, template=template())
        there = tuple(ours(name, created_at=NOW - MINUTE) for name in nodes)
        planned = check((first, *groups(0, 1, 1)[1:]), Workload(pods=pods(waiting, cpu="3"), nodes=there))
        assert sum(asked(planned).values()) == ordered
        assert planned.demand is not None
        assert planned.demand.fit_already == waiting - ordered

    def test_young_pods_order_nothing_yet(self) -> None:
        planned = check(groups(1, 1, 1), Workload(pods=(pod(created_at=NOW),)))
        assert the_pool(planned).demand.advice is None
        assert planned.demand is not None
        assert planned.demand.check_again is not None


class TestNodes:
    def test_each_node_is_unneeded_or_needed_for_a_reason(self) -> None:
        running = (pod("big", cpu="3", node="n1"), pod("small", cpu="1", node="n2"))
        planned = check(groups(2, 1, 1), Workload(pods=running, nodes=(ours("n1"), ours("n2"), ours("n3", "b"))))
        said = needed(planned)
        assert said["n1"] == "75 % of the node's cpu are requested, more than 50 %"
        assert said["n2"] == said["n3"] == ""

    @pytest.mark.parametrize(
        ("members", "fields", "reason"),
        [
            pytest.param(groups(2, 1, 1, frozen_because=FROZEN), {}, "paused", id="frozen"),
            pytest.param(groups(2, 1, 1), {"maximum": 2, "minimum": 3}, "no change: the pool is invalid", id="invalid"),
        ],
    )
    def test_a_pool_that_is_not_written_keeps_its_nodes_and_gets_none(
        self, members: tuple[NodeGroup, ...], fields: dict[str, Any], reason: str
    ) -> None:
        planned = check(members, Workload(pods=pods(3), nodes=(ours("n1"), ours("n2", "b"))), **fields)
        assert asked(planned) == {}
        assert needed(planned).keys() == {"n1", "n2"}
        assert all(reason in why for why in needed(planned).values())

    @pytest.mark.parametrize(
        ("own", "cluster", "reason"),
        [
            pytest.param(True, False, "dry run, set on the pool itself: Evenkeel", id="by its own setting"),
            pytest.param(None, True, "dry run, as the cluster: Evenkeel", id="by the cluster's setting"),
        ],
    )
    def test_a_dry_run_pool_beside_a_live_pool_keeps_its_nodes_and_gets_none(
        self, own: bool | None, cluster: bool, reason: str
    ) -> None:
        live = group("a", 0, pool="live", dry_run=False, pool_min=0, pool_max=9, template=template())
        workload = Workload(pods=pods(5, cpu="3"), nodes=(ours("n1"), ours("n2", "b")))
        planned = check((*groups(1, 1, 1, dry_run=own), live), workload, is_dry=cluster)
        live_pool, dry_pool = planned.pools
        assert live_pool.demand.advice is not None
        assert live_pool.demand.advice.asked.nodes
        only_dry = replace(planned, pools=(dry_pool,))
        assert asked(only_dry) == {}
        assert needed(only_dry).keys() == {"n1", "n2"}
        assert all(reason in why for why in needed(only_dry).values())

    def test_no_node_is_checked_where_only_growth_is_wanted(self) -> None:
        workload = Workload(pods=pods(1), nodes=(ours("n1"),))
        assert needed(check(groups(1, 1, 1), workload, stage=DemandStage.SCALE_UP, autoscaler=False)) == {}

    def test_a_node_of_another_pool_or_of_none_is_not_listed(self) -> None:
        assert needed(check(groups(1, 1, 1), Workload(nodes=(node("strange", "a"), ours("n1"))))).keys() == {"n1"}


class TestThePlan:
    def test_with_demand_off_pods_are_ignored(self) -> None:
        planned = check(groups(1, 1, 1), Workload(pods=pods(5)), stage=DemandStage.OFF)
        assert (planned.demand, the_pool(planned).demand.advice) == (None, None)

    def test_unreadable_pods_are_one_sentence_and_change_no_plan(self) -> None:
        plain = check(groups(4, 0, 2), None)
        planned = check(groups(4, 0, 2), None, unread="blue does not answer")
        assert planned.demand is not None
        assert planned.demand.unread is not None
        assert "blue does not answer" in sentence(planned.demand.unread)
        assert planned.pools == plain.pools

    def test_pods_are_not_read_where_the_groups_are_of_two_workload_clusters(self) -> None:
        members = (*groups(1, 1, cluster="blue"), *(replace(g, cluster="red") for g in groups(1, 1, pool="more")))
        rules = tuple(PoolRule(name=name, min=0, max=9) for name in ("workers", "more"))
        planned = check(members, Workload(pods=pods(1)), pools=rules)
        assert planned.demand is not None
        assert planned.demand.unread is not None
        assert "default/blue, default/red" in sentence(planned.demand.unread)
        assert all(pool.demand.advice is None for pool in planned.pools)


@pytest.mark.parametrize(("rule", "since"), [(Rule.FEW_MEMBERS, NOW - MINUTE), (Rule.POOL_INVALID, None)])
def test_an_invalid_pool_resets_clocks_and_an_incomplete_list_does_not(rule: Rule, since: datetime | None) -> None:
    (pool,), _ = find_pools([group(zone, 2, template=template()) for zone in "ab"], numbers(0, 9), {})
    machines = {zone: Machine(name=f"m-{zone}", uid=f"u-{zone}", has_node=True, created_at=NOW) for zone in "ab"}
    nodes = tuple(ours(f"n-{zone}", zone, machine=machine) for zone, machine in machines.items())
    observation = Observation(groups=(), workload=Workload(nodes=nodes))
    clocks = ScaleDownState(clocks={"n-a": NOW - MINUTE})
    advice = advise(observation, [untouched(pool, rule)], DemandStage.FULL, clocks, NOW)
    assert advice.idle is not None
    assert not advice.idle.go
    assert advice.idle.clocks.get("n-a") == since
