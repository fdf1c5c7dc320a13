"""What demand says beside a plan: of pools as their plans leave them, and nothing that would be written."""

from typing import Any

import pytest

from evenkeel.domain.demand.advice import advise
from evenkeel.domain.demand.offers import untouched
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.demand import ScaleDownState
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Machine, NodeGroup
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.policy import Policy, PoolRule
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.domain.model.workload import Owner, Workload
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.membership.pools import find_pools
from evenkeel.texts.english import sentence
from tests.builders import MINUTE, NOW, group, key, numbers
from tests.parts import make, replace
from tests.workloads import node, pod, pods, template

FROZEN = Reason.of(Rule.OBJECT_PAUSED)


def groups(*requested: int, **fields: Any) -> tuple[NodeGroup, ...]:
    """One for each zone, all of whose nodes run; each says what its nodes are."""
    fields.setdefault("template", template())
    return tuple(group(zone, count, **fields) for zone, count in zip("abc", requested, strict=False))


def policy(stage: DemandStage = DemandStage.ADVISE, maximum: int = 12, minimum: int = 0, **fields: Any) -> Policy:
    rules = fields.pop("pools", (PoolRule(name="workers", min=minimum, max=maximum),))
    return make(Policy, strategy=BALANCED, demand=stage, pools=rules, **fields)


def look(
    members: tuple[NodeGroup, ...],
    workload: Workload | None,
    state: ClusterState | None = None,
    unread: str = "",
    **fields: Any,
) -> Plan:
    observation = Observation(groups=members, workload=workload, workload_unread=unread)
    return plan(observation, state or ClusterState(), policy(**fields), NOW)


def the_pool(planned: Plan) -> PoolPlan:
    (pool,) = planned.pools
    return pool


def asked(planned: Plan) -> dict[str, int]:
    advice = the_pool(planned).demand.advice
    assert advice is not None
    return {group.name: nodes for group, nodes in advice.asked.nodes.items()}


def needed(planned: Plan) -> dict[str, str]:
    """Each node of the pool, and why it is needed."""
    advice = the_pool(planned).demand.advice
    assert advice is not None
    return {said.node: "" if said.needed is None else sentence(said.needed) for said in advice.nodes}


def ours(name: str, zone: str = "a", **fields: Any) -> Any:
    return node(name, zone, group=key(zone), **fields)


class TestGrowth:
    def test_pods_that_wait_ask_for_nodes_in_the_emptiest_zones(self) -> None:
        planned = look(groups(2, 1, 1), Workload(pods=pods(2, cpu="3")))
        assert asked(planned) == {"workers-b": 1, "workers-c": 1}

    @pytest.mark.parametrize(
        ("stage", "blocked"), [(DemandStage.ADVISE, 0), (DemandStage.SCALE_UP, 1), (DemandStage.FULL, 1)]
    )
    def test_pods_that_daemon_sets_block_are_reported_where_nodes_are_ordered(
        self, stage: DemandStage, blocked: int
    ) -> None:
        agent = pod("agent", cpu="1500m", owner=Owner("DaemonSet", "agent"))
        seen = Workload(pods=pods(2, cpu="3"), daemon_sets=(agent,), autoscaler_sought=True)
        advice = the_pool(look(groups(0, 0, 0), seen, stage=stage, autoscaler=False)).demand.advice
        assert advice is not None
        assert len(advice.asked.blocked) == blocked

    def test_no_more_than_pool_maximum_leaves_room_for(self) -> None:
        planned = look(groups(2, 1, 1), Workload(pods=pods(9, cpu="3")), maximum=6)
        assert sum(asked(planned).values()) == 2
        assert planned.demand is not None
        assert len(planned.demand.unmet[0].pods) == 7

    def test_a_zone_that_an_operator_caps_gets_no_more_than_that(self) -> None:
        capped = (*groups(1, zone_max=2), *(group(zone, 4, template=template()) for zone in "bc"))
        planned = look(capped, Workload(pods=pods(3, cpu="3")))
        assert asked(planned) == {"workers-a": 1, "workers-b": 1, "workers-c": 1}

    def test_a_fenced_zone_gets_none_and_says_why(self) -> None:
        failed = GroupState(
            failures=1,
            backoff_until=NOW + 3 * MINUTE,
            last_failure=NOW - 2 * MINUTE,
            failure_class=FailureClass.CAPACITY,
        )
        state = ClusterState(groups={key("b"): failed})
        waiting = pod("zonal", cpu="1", node_selector={"topology.kubernetes.io/zone": "b"})
        planned = look(groups(2, 1, 1), Workload(pods=(*pods(2, cpu="3"), waiting)), state)
        assert "workers-b" not in asked(planned)
        assert planned.demand is not None
        (unmet,) = planned.demand.unmet
        assert "(capacity failure 1)" in sentence(unmet.by_group[key("b")])
        assert "node selector" in sentence(unmet.by_group[key("a")])

    def test_what_is_on_its_way_is_room_for_those_who_wait(self) -> None:
        coming = Machine(name="m", has_node=False, created_at=NOW - MINUTE)
        members = (group("a", 1, running=0, machines=(coming,), template=template()), *groups(0, 1, 1)[1:])
        planned = look(members, Workload(pods=pods(1, cpu="3")))
        assert asked(planned) == {}
        assert planned.demand is not None
        assert planned.demand.fit_already == 1

    def test_a_replica_without_a_machine_yet_is_on_its_way_too(self) -> None:
        members = (group("a", 1, running=0, machines=(), template=template()), *groups(0, 1, 1)[1:])
        assert asked(look(members, Workload(pods=pods(1, cpu="3")))) == {}

    def test_a_preserved_machine_does_not_take_the_place_of_one_that_is_not_made_yet(self) -> None:
        kept = Machine(name="kept", has_node=False, preserved=True, created_at=NOW - 60 * MINUTE)
        members = (group("a", 2, running=0, machines=(kept,), template=template()), *groups(0, 1, 1)[1:])
        assert asked(look(members, Workload(pods=pods(1, cpu="3")))) == {}

    def test_a_machine_that_has_failed_is_not(self) -> None:
        late = Machine(name="m", has_node=False, created_at=NOW - 60 * MINUTE)
        members = (group("a", 1, running=0, machines=(late,), template=template()), *groups(0, 1, 1)[1:])
        assert sum(asked(look(members, Workload(pods=pods(1, cpu="3")))).values()) == 1

    def test_a_node_that_registers_before_its_machine_says_so_is_there_once(self) -> None:
        coming = Machine(name="m", has_node=False, created_at=NOW - MINUTE)
        members = (group("a", 1, running=0, machines=(coming,), template=template()), *groups(0, 1, 1)[1:])
        there = ours("n", created_at=NOW - MINUTE)
        planned = look(members, Workload(pods=pods(2, cpu="3"), nodes=(there,)))
        assert sum(asked(planned).values()) == 1

    def test_pods_too_young_to_be_judged_ask_for_nothing_yet(self) -> None:
        planned = look(groups(1, 1, 1), Workload(pods=(pod(created_at=NOW),)))
        assert the_pool(planned).demand.advice is None
        assert planned.demand is not None
        assert planned.demand.look_again is not None


class TestNodes:
    def test_each_node_is_needed_for_a_reason_or_nobody_needs_it(self) -> None:
        running = (pod("big", cpu="3", node="n1"), pod("small", cpu="1", node="n2"))
        planned = look(groups(2, 1, 1), Workload(pods=running, nodes=(ours("n1"), ours("n2"), ours("n3", "b"))))
        said = needed(planned)
        assert said["n1"] == "75 % of its cpu are requested, more than 50 %"
        assert said["n2"] == said["n3"] == ""

    def test_a_frozen_group_keeps_its_nodes_and_says_why(self) -> None:
        planned = look(groups(2, 1, 1, frozen_because=FROZEN), Workload(nodes=(ours("n1"), ours("n2", "b"))))
        assert all("paused" in why for why in needed(planned).values())

    def test_an_invalid_pool_gets_none_and_gives_none(self) -> None:
        members = groups(2, 1, 1)
        planned = look(members, Workload(pods=pods(3), nodes=(ours("n1"),)), maximum=2, minimum=3)
        assert not the_pool(planned).mode.valid
        assert asked(planned) == {}
        assert needed(planned) == {"n1": "no change: its pool is invalid"}

    def test_a_pool_in_dry_run_of_its_own_gets_none_so_that_no_pod_waits_for_it(self) -> None:
        planned = look(groups(1, 1, 1, dry_run=True), Workload(pods=pods(3), nodes=(ours("n1"),)))
        assert asked(planned) == {}
        assert needed(planned) == {"n1": "in dry run by its own setting: Evenkeel writes nothing to it"}

    def test_no_node_is_judged_where_only_growth_is_wanted(self) -> None:
        workload = Workload(pods=pods(1), nodes=(ours("n1"),))
        planned = look(groups(1, 1, 1), workload, stage=DemandStage.SCALE_UP, autoscaler=False)
        assert needed(planned) == {}

    def test_a_node_of_another_pool_or_of_none_is_not_told_of(self) -> None:
        strange = node("strange", "a")
        assert needed(look(groups(1, 1, 1), Workload(nodes=(strange, ours("n1"))))).keys() == {"n1"}


class TestNothingFollows:
    def test_a_plan_with_pods_writes_and_tells_what_it_would_without(self) -> None:
        members = groups(4, 0, 2)
        plain = look(members, None)
        planned = look(members, Workload(pods=pods(5), nodes=(ours("n1"),)))
        bare = replace(planned, demand=None, pools=tuple(replace(pool, demand=None) for pool in planned.pools))
        assert bare == plain
        assert the_pool(planned).digest(applied=False) == the_pool(plain).digest(applied=False)

    def test_with_demand_off_pods_are_not_even_looked_at(self) -> None:
        planned = look(groups(1, 1, 1), Workload(pods=pods(5)), stage=DemandStage.OFF)
        assert planned.demand is None
        assert the_pool(planned).demand.advice is None

    def test_pods_that_could_not_be_read_are_one_sentence_and_the_plan_is_the_same(self) -> None:
        plain = look(groups(4, 0, 2), None)
        planned = look(groups(4, 0, 2), None, unread="blue does not answer")
        assert planned.demand is not None
        assert planned.demand.unread is not None
        assert "blue does not answer" in sentence(planned.demand.unread)
        assert planned.pools == plain.pools

    def test_pods_are_nobodys_where_the_groups_are_of_two_workload_clusters(self) -> None:
        members = (*groups(1, 1, cluster="blue"), *(replace(g, cluster="red") for g in groups(1, 1, pool="more")))
        rules = tuple(PoolRule(name=name, min=0, max=9) for name in ("workers", "more"))
        planned = look(members, Workload(pods=pods(1)), pools=rules)
        assert planned.demand is not None
        assert planned.demand.unread is not None
        assert "default/blue, default/red" in sentence(planned.demand.unread)
        assert all(pool.demand.advice is None for pool in planned.pools)


def test_half_a_list_of_groups_ends_no_clock_and_an_invalid_pool_does() -> None:
    members = [group(zone, 2, template=template()) for zone in "ab"]
    (pool,), _ = find_pools(members, numbers(0, 9), {})
    nodes = tuple(
        node(
            f"n-{zone}",
            zone,
            group=key(zone),
            machine=Machine(name=f"m-{zone}", uid=f"u-{zone}", has_node=True, created_at=NOW),
        )
        for zone in "ab"
    )
    seen, running = Observation(groups=(), workload=Workload(nodes=nodes)), {"n-a": NOW - MINUTE}
    clocks = {}
    for rule in (Rule.FEW_MEMBERS, Rule.POOL_INVALID):
        said = advise(seen, [untouched(pool, rule)], DemandStage.FULL, ScaleDownState(clocks=running), NOW)
        assert said.idle is not None
        assert not said.idle.go
        clocks[rule] = said.idle.clocks.get("n-a")
    assert clocks == {Rule.FEW_MEMBERS: NOW - MINUTE, Rule.POOL_INVALID: None}
