"""Requests add and remove nodes: the shares of the groups, and the reasons of the rest."""

from datetime import timedelta
from typing import Any

import pytest

from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.groups import NodeGroup, PoolId
from evenkeel.domain.model.moves import SCALE_REQUEST_KEPT, Move, ScaleRequest
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState, PoolState
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.model.workload import Owner, Workload
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.bounds.gep24 import BACKWARD_COMPATIBLE
from evenkeel.domain.rebalancing.journal import closed, opened
from evenkeel.domain.rebalancing.replicas.deletion import deletion_candidates
from evenkeel.texts.english import problem_text, sentences
from tests.builders import (
    MINUTE,
    NOW,
    POOL,
    after_backoff,
    group,
    in_backoff,
    key,
    machines,
    maxima,
    numbers,
    problems_of,
    requested,
    stated,
    zones,
)
from tests.parts import make, replace
from tests.workloads import node, pod

#: the id of the move that began a minute ago
BEGUN = ulid(NOW - MINUTE, b"0123456789")
ID = PoolId("cluster-api", "default", "", POOL)


def ask(nodes: int, *only: str, at: timedelta = -MINUTE, **fields: str) -> ScaleRequest:
    fields = fields or {"pool": POOL}
    return ScaleRequest(id=f"r{nodes}", nodes=nodes, at=NOW + at, only=frozenset(only), **fields)


def planned(
    members: list[NodeGroup], *scale_requests: ScaleRequest, policy: Policy | None = None, **state: Any
) -> Plan:
    known = ClusterState(scale_requests=scale_requests, **state)
    return plan(Observation(groups=tuple(members)), known, policy or numbers(0, 100), NOW)


def grown(
    members: list[NodeGroup], *scale_requests: ScaleRequest, policy: Policy | None = None, **state: Any
) -> PoolPlan:
    found = planned(members, *scale_requests, policy=policy, **state)
    (pool,) = found.pools
    return pool


def reasons_of(pool: PoolPlan, zone: str) -> str:
    return "; ".join(text for one in pool.groups if one.group.identity.zone == zone for text in sentences(one.reasons))


class TestWhoMayGrow:
    def test_a_group_without_a_share_has_a_reason(self) -> None:
        closed = "at zero: annotate capacity.cluster-autoscaler.kubernetes.io/cpu"
        groups = [
            *zones((0, 0, 3)),
            group("d", frozen_because=stated("the object is paused")),
            group("e", closed_because=stated(closed)),
            group("f", bounds=(0, 0)),
            group("g"),
        ]
        only = [f"{POOL}-{zone}" for zone in "abdef"]
        states = {key("a"): in_backoff(), key("b"): after_backoff()}
        pool = grown(groups, ask(2, str(key("c")), *only), groups=states)
        assert requested(pool) == (0, 0, 5, 0, 0, 0, 0)
        reasons = {"a": "the group is fenced", "b": "the group is probing", "d": "the group is frozen", "e": closed}
        reasons |= {
            "f": "no share of request r2 for 2 nodes: the group is at its max",
            "g": "the pods do not fit on a node of this group",
        }
        for zone, reason in reasons.items():
            assert reason in reasons_of(pool, zone)

    def test_nodes_without_room_are_reported(self) -> None:
        pool = grown(zones((1, 3, 6)), ask(9), policy=numbers(0, 14))
        assert (sum(requested(pool)), pool.request.missing) == (14, 5)
        assert "request r9 for 9 nodes: no room for 5 nodes" in problems_of(pool.report.problems)

    def test_balanced_leaves_the_room_that_a_frozen_group_keeps(self) -> None:
        frozen = group("c", 2, bounds=(0, 5), frozen_because=stated("the object is paused"))
        pool = grown([*zones((1, 1)), frozen], ask(6), policy=numbers(0, 10))
        assert sum(requested(pool)) == 7
        assert sum(maxima(pool)) == 10
        assert pool.request.missing == 3

    @pytest.mark.parametrize(("autoscaler", "expected"), [(True, (4, 4, 3)), (False, (5, 4, 3))])
    def test_the_last_nodes_go_to_any_zone_where_no_autoscaler_reads_bounds(
        self, autoscaler: bool, expected: tuple[int, ...]
    ) -> None:
        policy = replace(numbers(0, 12), autoscaler=autoscaler)
        groups = zones((4, 4, 3), bounds=((0, 4), (0, 4), (0, 4)))
        assert requested(grown(groups, ask(1, f"{POOL}-a"), policy=policy)) == expected

    def test_a_max_lowered_by_our_own_order_is_no_limit(self) -> None:
        ordered = group("a", 1, running=0, bounds=(0, 1), move=BEGUN)
        assert requested(grown([ordered, group("b", 3, bounds=(0, 9))], ask(2))) == (3, 3)

    def test_beside_an_autoscaler_the_max_of_a_growing_group_is_its_replicas(self) -> None:
        pool = grown(zones((1, 3, 6)), ask(1))
        assert maxima(pool)[0] == requested(pool)[0] == 2
        assert sum(maxima(pool)) <= 100


class TestGivingBack:
    def test_nodes_go_from_the_largest_group_down_to_the_minimum(self) -> None:
        assert requested(grown(zones((1, 3, 6)), ask(-3))) == (1, 3, 3)
        assert sorted(requested(grown(zones((1, 3, 6)), ask(-4)))) == [1, 2, 3]
        assert requested(grown(zones((2, 6), bounds=[(0, 9), (5, 9)]), ask(-8))) == (0, 5)
        pool = grown(zones((2, 6)), ask(-8), policy=numbers(3, 20))
        assert (sum(requested(pool)), pool.request.missing) == (3, 3)
        assert "request r-8 to remove 8 nodes: 3 nodes have to stay" in problems_of(pool.report.problems)

    def test_a_min_that_level_shrink_raises_keeps_no_node_from_a_request_but_the_strategys_min_does(self) -> None:
        held = {ID: PoolState(held_until=NOW + MINUTE)}
        members = zones((4, 4, 4), bounds=[(4, 9), (4, 9), (4, 9)])
        pool = grown(members, ask(-6, key("a").name), policy=numbers(3, 20), pools=held)
        assert requested(pool) == (1, 4, 4)
        assert requested(grown(members, ask(-6, key("a").name), policy=numbers(3, 20))) == (4, 4, 4)

    def test_nodes_added_in_the_same_check_are_not_removed(self) -> None:
        # Two Backward-Compatible shares of 2 and 1: b lacks its own min.
        pool = grown(zones((2, 0), bounds=[(0, 9), (0, 9)]), ask(-1), policy=numbers(1, 20, BACKWARD_COMPATIBLE))
        assert not any(one.journal_delta and one.requested == one.group.requested for one in pool.groups)
        unseen = replace(group("b", 0), invisible_at_zero=True)
        pool = grown([group("a", 0), unseen], ask(-1), groups={key("b"): after_backoff()})
        assert requested(pool) == (0, 1)
        assert pool.request.missing == 1

    def test_only_a_group_that_shrinks_may_lose_running_nodes(self) -> None:
        pool = grown(zones((1, 6)), ask(-2))
        assert [one.removal.may_remove_running for one in pool.groups] == [False, True]


class TestRequests:
    def test_the_oldest_request_goes_first_and_the_next_waits(self) -> None:
        oldest = ask(4, at=-2 * MINUTE)
        plan = planned(zones((0, 0)), ask(2), oldest)
        (pool,), (refusal,) = plan.pools, plan.refusals
        assert (sum(requested(pool)), pool.request.current) == (4, oldest)
        assert refusal.waits
        assert problem_text(refusal.problem) == "request r2 for 2 nodes: waits for request r4 of the same pool"

    @pytest.mark.parametrize(("first", "newer", "does"), [(4, -2, "adds"), (-4, 2, "removes")])
    def test_a_newer_request_in_the_other_direction_is_refused(self, first: int, newer: int, does: str) -> None:
        oldest = ask(first, at=-2 * MINUTE)
        plan = planned(zones((9, 9)), ask(newer), oldest)
        (pool,), (refusal,) = plan.pools, plan.refusals
        assert (sum(requested(pool)), pool.request.current) == (18 + first, oldest)
        assert not refusal.waits
        assert problem_text(refusal.problem).endswith(
            f": request r{first} of the same pool {does} nodes: wait until it is done, then request again"
        )

    def test_a_request_is_as_old_as_when_it_was_made_and_not_as_its_last_step(self) -> None:
        rest = replace(ask(4), is_rest=True, made_at=NOW - 5 * MINUTE)
        plan = planned(zones((9, 9)), rest, ask(-2, at=-2 * MINUTE), ask(3, at=-MINUTE))
        assert plan.pools[0].request.current == ask(3, at=-MINUTE), "requests of one direction take turns"
        assert {refusal.scale_request.id: refusal.waits for refusal in plan.refusals} == {"r4": True, "r-2": False}

    def test_a_request_that_has_begun_counts_as_the_oldest(self) -> None:
        rest = replace(ask(4), is_rest=True, made_at=NOW)
        (refusal,) = planned(zones((9, 9)), ask(-2, at=-9 * MINUTE), rest).refusals
        assert (refusal.scale_request.id, refusal.waits) == ("r-2", False)

    @pytest.mark.parametrize("fields", [{"pool": "gpu"}, {"at": -SCALE_REQUEST_KEPT - MINUTE}, {"only": ["nobody"]}])
    def test_only_an_older_request_that_the_pool_accepts_excludes_the_other_direction(
        self, fields: dict[str, Any]
    ) -> None:
        only = fields.pop("only", [])
        older = ask(4, *only, **{"at": -9 * MINUTE, **fields})
        rules = make(
            Policy, strategy=BALANCED, pools=(*numbers(0, 99).pools, replace(numbers(0, 99).pools[0], name="gpu"))
        )
        plan = planned([*zones((9, 9)), *zones((9, 9), pool="gpu")], older, ask(-2), policy=rules)
        assert {pool.id.name: sum(requested(pool)) for pool in plan.pools}["workers"] == 16

    def test_two_pools_are_served_in_one_check(self) -> None:
        both = [*zones((0, 0)), *zones((0, 0), pool="gpu")]
        rules = make(
            Policy, strategy=BALANCED, pools=(*numbers(0, 9).pools, replace(numbers(0, 9).pools[0], name="gpu"))
        )
        found = planned(both, ask(2), ask(3, pool="gpu"), policy=rules)
        assert [sum(requested(pool)) for pool in found.pools] == [3, 2]

    @pytest.mark.parametrize("named", [{"group": f"{POOL}-b"}, {"group": str(key("b"))}, {"pool": str(ID)}])
    def test_a_pool_is_found_by_its_id_and_by_its_groups(self, named: dict[str, str]) -> None:
        assert sum(requested(grown(zones((0, 0)), ask(2, **named)))) == 2

    @pytest.mark.parametrize(
        ("scale_request", "why"),
        [
            (ask(2, pool="nobody"), "no pool here has the name 'nobody'"),
            (ask(2, group="nobody"), "no pool here has the name 'nobody'"),
            (ask(2, "nobody"), "pool cluster-api/default/workers has no group 'nobody'"),
            (ask(2, at=-SCALE_REQUEST_KEPT - MINUTE), "older than an hour"),
        ],
    )
    def test_a_request_that_no_pool_takes_is_refused(self, scale_request: ScaleRequest, why: str) -> None:
        found = planned(zones((0, 0)), scale_request)
        assert sum(requested(found.pools[0])) == 0
        (refusal,) = found.refusals
        assert why in problem_text(refusal.problem)
        assert not refusal.waits

    def test_an_ambiguous_name_is_refused_with_both_pools(self) -> None:
        twin = replace(group("a", 0), key=key("a")._replace(namespace="other"))
        (refusal,) = planned([*zones((0, 0)), twin], ask(2)).refusals
        assert "cluster-api/default/workers, cluster-api/other/workers" in problem_text(refusal.problem)

    def test_a_request_for_an_invalid_pool_waits(self) -> None:
        found = planned(
            zones((0, 0)),
            ask(2),
            policy=make(Policy, strategy=BALANCED, pools=(replace(numbers(9, 9).pools[0], max=8),)),
        )
        (refusal,) = found.refusals
        assert refusal.waits

    def test_a_move_precedes_growth(self) -> None:
        policy = numbers(0, 20, BALANCED, OnFailure.MOVE)
        pool = grown(zones((4, 2), running=(2, 2)), ask(3), policy=policy, groups={key("a"): in_backoff()})
        assert requested(pool) == (2, 4)
        assert pool.request.current is None
        stuck = {key(zone): in_backoff() for zone in "ab"}
        owing = {ID: PoolState(move=Move(id="before", unplaced=2))}
        assert grown(zones((4, 2)), ask(-1), policy=policy, groups=stuck, pools=owing).request.current is None
        assert "request r3 for 3 nodes: waits until a move between zones ends" in problems_of(pool.report.problems)


class TestAfterACrash:
    """A request that has begun is in the pool's journal, and on the groups."""

    def begun(self, carried: int, steps: dict[str, int], *only: str) -> dict[PoolId, PoolState]:
        move = Move(id=BEGUN, unplaced=carried, request="r", only=only, steps=steps)
        return {ID: PoolState(move=move)}

    @pytest.mark.parametrize("again", [False, True])
    def test_a_request_expires_an_hour_after_it_was_made(self, again: bool) -> None:
        pools = self.begun(4, {str(key("a")): 2, str(key("b")): 2})
        request = ScaleRequest(id="r", nodes=4, at=NOW - SCALE_REQUEST_KEPT - MINUTE, pool=POOL)
        state = ClusterState(pools=pools, scale_requests=(request,) if again else ())
        now = NOW if again else NOW + 2 * SCALE_REQUEST_KEPT
        (pool,) = plan(Observation(groups=tuple(zones((0, 0)))), state, numbers(0, 9), now).pools
        assert (requested(pool), pool.request.missing) == ((0, 0), 4)
        assert "request r for 4 nodes: expired after an hour: send the request again" in problems_of(
            pool.report.problems
        )

    def test_a_restore_completes_it_without_waiting_for_room(self) -> None:
        members = zones((2, 2), bounds=[(0, 9)] * 2, has_adopted=True)
        for maximum, expected, leaves in ((10, 7, False), (4, 4, True)):
            policy = replace(numbers(0, maximum), restoring=True)
            pool = grown(members, policy=policy, pools=self.begun(3, {str(key("a")): 3}))
            assert sum(requested(pool)) == expected
            assert {planned.leaves for planned in pool.groups} == {leaves}

    def test_a_restore_waits_for_the_current_step(self) -> None:
        members = zones((2, 2), bounds=[(0, 9)] * 2, has_adopted=True)
        policy = replace(numbers(0, 10), restoring=True, max_step=2)
        (journal,) = self.begun(3, {str(key("a")): 3}).values()
        lately = replace(journal, added_at=NOW - MINUTE / 6, added=2)
        for before, expected in ((journal, 6), (lately, 4)):
            pool = grown(members, policy=policy, pools={ID: before})
            assert sum(requested(pool)) == expected
            assert not any(planned.leaves for planned in pool.groups)
            assert pool.request.later == 7 - expected
            assert (closed(pool, opened(pool, BEGUN)).move is None) == (expected == 6), "a patch may still arrive"

    def test_a_request_of_a_removed_pool_is_not_restarted(self) -> None:
        pools = {ID._replace(name="old"): PoolState(move=Move(id=BEGUN, unplaced=4, request="r"))}
        request = ScaleRequest(id="r", nodes=4, at=NOW, group=str(key("a")))
        found = planned(zones((2, 2)), request, pools=pools)
        assert requested(found.pools[0]) == (2, 2)
        (refusal,) = found.refusals
        assert "its pool cluster-api/default/old no longer exists" in problem_text(refusal.problem)
        assert not refusal.waits


class TestInvisibleGroup:
    """A probing group at zero that Cluster Autoscaler cannot see."""

    @pytest.mark.parametrize(
        ("unseen", "autoscaler", "expected"), [(True, True, 1), (False, True, 0), (True, False, 0)]
    )
    def test_it_gets_its_first_machine_from_evenkeel(self, unseen: bool, autoscaler: bool, expected: int) -> None:
        first, second = zones((0, 3))
        policy = replace(numbers(0, 9), autoscaler=autoscaler)
        groups = [replace(first, invisible_at_zero=unseen), second]
        pool = grown(groups, policy=policy, groups={key("a"): after_backoff()})
        assert requested(pool) == (expected, 3)
        assert maxima(pool)[0] == 1

    def test_it_gets_none_past_pool_maximum_while_fenced_or_with_a_node(self) -> None:
        first, second = zones((0, 3))
        groups = [replace(first, invisible_at_zero=True), second]
        assert requested(grown(groups, policy=numbers(0, 3), groups={key("a"): after_backoff()})) == (0, 3)
        assert requested(grown(groups, groups={key("a"): in_backoff()})) == (0, 3)
        assert requested(grown(groups)) == (0, 3)


def test_a_preserved_failed_machine_is_no_node_to_remove() -> None:
    a, b = zones((4, 3), running=(2, 3))
    a = replace(a, preserved_failed=2)
    assert requested(grown([a, b], ask(-1))) == (4, 2), "the largest by nodes, not by replicas"
    found = grown([a, b], ask(-5), policy=numbers(3, 100))
    assert requested(found) == (3, 2), "PoolMinimum asks for nodes"
    assert found.request.missing == 3


def test_a_preserved_node_is_not_removed() -> None:
    a, b = machines(zones((3,))[0]), group("b", 0)
    kept = tuple(replace(machine, preserved=True) for machine in (a.machines or ())[1:])
    found = grown([replace(a, machines=((a.machines or ())[0], *kept)), b], ask(-3))
    assert (requested(found), found.request.missing) == ((2, 0), 2)


class TestUnplaceablePods:
    """Three nodes. The newest, which would be removed first, runs a pod with a resource claim."""

    def given_back(
        self, nodes: int, *others: ScaleRequest, reads: bool = True, unread: str = "", **fields: Any
    ) -> Plan:
        member = machines(group("a", 3, running=3))
        assert member.machines is not None
        newest, *older = member.machines
        newest = replace(newest, created_at=NOW - timedelta(hours=2))
        member = replace(member, machines=(newest, *older), **fields)
        there = [node(m.name, group=member.key, machine=m) for m in member.machines or ()]
        train = pod("train", node=newest.name, resource_claims=("gpu",))
        daemon = pod("agent", node=older[0].name, resource_claims=("gpu",), owner=Owner("DaemonSet", "agent"))
        workload = Workload(pods=(train, daemon), nodes=tuple(there)) if reads else None
        reason = Reason.of(Rule.WORKLOAD_UNREAD, error=unread) if unread else None
        observation = Observation(groups=(member,), workload=workload, workload_unread=reason)
        return plan(observation, ClusterState(scale_requests=(ask(-nodes), *others)), numbers(0, 100), NOW)

    def test_their_node_stays_and_others_go(self) -> None:
        (pool,) = self.given_back(2).pools
        (plan_of_group,) = pool.groups
        assert (requested(pool), pool.request.missing) == ((1,), 0)
        names = deletion_candidates(
            plan_of_group.group.machines or (),
            1,
            may_remove_running=True,
            keeps=plan_of_group.removal.keeps,
            provision_timeout=15 * MINUTE,
            now=NOW,
        )
        assert names == (f"{POOL}-a-run-2", f"{POOL}-a-run-1")

    def test_nodes_that_have_to_stay_for_them_are_reported(self) -> None:
        (pool,) = self.given_back(3).pools
        assert (requested(pool), pool.request.missing) == ((1,), 1)
        assert "keeps 1 node for pods that Evenkeel could not place elsewhere" in reasons_of(pool, "a")

    @pytest.mark.parametrize(
        ("fields", "reads", "nodes", "missing"),
        [
            pytest.param({"launched": 3}, True, 3, 2, id="no machine can be named"),
            pytest.param({}, False, 1, 0, id="pods are not read"),
        ],
    )
    def test_nodes_go_by_age_or_not_at_all(self, fields: dict[str, Any], reads: bool, nodes: int, missing: int) -> None:
        (pool,) = self.given_back(2, reads=reads, **fields).pools
        assert (requested(pool), pool.request.missing) == ((nodes,), missing)

    def test_the_request_waits_until_pods_can_be_read(self) -> None:
        assert self.given_back(2, reads=False).asks
        found = self.given_back(2, reads=False, unread="no right to list pods")
        (pool,), (refusal,) = found.pools, found.refusals
        assert (requested(pool), pool.request.current, refusal.waits) == ((3,), None, True)
        assert "waits until Evenkeel can read the pods" in problem_text(refusal.problem)

    def test_a_waiting_request_refuses_a_newer_one_in_the_other_direction(self) -> None:
        found = self.given_back(2, ask(3, at=timedelta(0)), reads=False, unread="no right to list pods")
        (pool,) = found.pools
        assert requested(pool) == (3,)
        assert [(refusal.scale_request.id, refusal.waits) for refusal in found.refusals] == [
            ("r-2", True),
            ("r3", False),
        ]
        assert "request r-2 of the same pool removes nodes" in problem_text(found.refusals[1].problem)

    def test_a_waiting_request_does_not_delay_another_pool(self) -> None:
        groups = (group("a", 3), group("a", 3, pool="spare", pool_min=0, pool_max=9))
        reason = Reason.of(Rule.WORKLOAD_UNREAD, error="no right to list pods")
        state = ClusterState(scale_requests=(ask(-2), ask(3, at=timedelta(0), pool="spare")))
        found = plan(Observation(groups=groups, workload_unread=reason), state, numbers(0, 100), NOW)
        assert {pool.id.name: requested(pool) for pool in found.pools} == {POOL: (3,), "spare": (6,)}
