"""Instances of Auto Scaling groups in service without a Node: upcoming until the timeout, then failed."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import GroupKey, Machine, NodeGroup, State
from evenkeel.domain.model.observations import Check, Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.domain.model.workload import Workload
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.health.never_ready import with_never_ready
from evenkeel.domain.rebalancing.membership.pools import find_pools
from tests.builders import MINUTE, NOW, group, remembered
from tests.parts import make, replace

ORDERS = make(Policy, strategy=BALANCED, demand=DemandStage.SCALE_UP, autoscaler=False)
TIMEOUT = timedelta(minutes=15)
NAMES = tuple(f"i-{number}" for number in range(8))


def member(name: str, instances: tuple[str, ...]) -> NodeGroup:
    """Return a group at rest whose instances are in service."""
    machines = tuple(Machine(name=one, uid=one, has_node=True, created_at=NOW - 90 * MINUTE) for one in instances)
    there = group(name, len(instances), pool_min=0, pool_max=20)
    return replace(there, key=GroupKey(AUTO_SCALING, "eu-central-1", name), machines=machines)


def read(names: tuple[str, ...] | None, *groups: NodeGroup) -> Observation:
    """``names``: the instances with a Node; None: the nodes were not read."""
    return Observation(groups=groups, workload=Workload(registered=None if names is None else frozenset(names)))


def planned(names: tuple[str, ...] | None, state: ClusterState, at: datetime, *groups: NodeGroup) -> Plan:
    return plan(read(names, *groups), state, ORDERS, at)


def states(made: Plan) -> list[State]:
    return [each.state for pool in made.pools for each in pool.groups]


def requested(made: Plan) -> list[int]:
    return [each.requested for pool in made.pools for each in pool.groups]


def test_it_is_coming_until_the_timeout_and_then_its_group_has_failed_and_loses_it_first() -> None:
    groups, state = (member("a", NAMES[:2]), member("b", NAMES[2:4])), ClusterState()
    for minute in range(15):
        made = planned(NAMES[1:4], state, NOW + minute * MINUTE, *groups)
        state = remembered(state, made)
        assert (states(made), requested(made)) == ([State.HEALTHY] * 2, [2, 2])
    (known,) = [one.arrivals.nodeless for one in state.groups.values() if one.arrivals.nodeless]
    assert known == {NAMES[0]: NOW}
    made = planned(NAMES[1:4], state, NOW + TIMEOUT, *groups)
    assert (states(made), requested(made)) == ([State.FENCED, State.HEALTHY], [1, 2])
    failure = made.states[groups[0].key].failure
    assert (failure.failures, failure.failure_class) == (1, FailureClass.TIMEOUT)
    assert failure.message == "no node within 15 min for 1 of its replicas, though instance i-0 is in service"


def test_other_nodes_that_register_meanwhile_do_not_prolong_its_time() -> None:
    state = ClusterState()
    for minute in range(16):
        there = member("a", NAMES[: 2 + minute // 5])
        made = planned(NAMES[1:], state, NOW + minute * MINUTE, there, member("b", ("i-9",)))
        state = remembered(state, made)
    assert states(made)[0] is State.FENCED


def test_an_instance_that_joins_has_cost_nothing() -> None:
    groups, state = (member("a", NAMES[:2]),), ClusterState()
    for minute, joined in ((0, NAMES[:1]), (14, NAMES[:1]), (15, NAMES[:2])):
        made = planned(joined, state, NOW + minute * MINUTE, *groups)
        state = remembered(state, made)
    assert (states(made), state.groups[groups[0].key].failure.failures) == ([State.HEALTHY], 0)
    assert state.groups[groups[0].key].arrivals.nodeless == {}


@pytest.mark.parametrize("joined", [(), None], ids=["no instance has a node", "the nodes were not read"])
def test_what_may_be_a_wrong_list_removes_nothing(joined: tuple[str, ...] | None) -> None:
    groups, state = (member("a", NAMES[:2]), member("b", NAMES[2:4])), ClusterState()
    for minute in range(120):
        made = planned(joined if minute else NAMES[1:4], state, NOW + minute * MINUTE, *groups)
        state = remembered(state, made)
        assert requested(made) == [2, 2]


def test_unread_nodes_are_neither_a_failure_nor_a_success() -> None:
    there, state = member("a", NAMES[:2]), ClusterState()
    state = remembered(state, planned(NAMES[1:2], state, NOW, there))
    failed = planned(NAMES[1:2], state, NOW + TIMEOUT, there).states[there.key]
    state = ClusterState(groups={there.key: failed})
    for minute in range(16, 40):
        made = planned(None, state, NOW + minute * MINUTE, there)
        state = remembered(state, made)
    after = state.groups[there.key]
    assert (after.is_failing, after.arrivals.nodeless) == (True, {NAMES[0]: NOW})
    assert after.failure.failures == 1


def test_beside_an_autoscaler_nothing_changes() -> None:
    advises = make(Policy, strategy=BALANCED, demand=DemandStage.ADVISE)
    made = plan(read((), member("a", NAMES)), ClusterState(), advises, NOW)
    assert made.states == {}


@given(
    registered=st.frozensets(st.sampled_from(NAMES)),
    before=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 60)),
    is_read=st.booleans(),
)
def test_only_instances_without_a_node_stop_running(
    registered: frozenset[str], before: dict[str, int], *, is_read: bool
) -> None:
    there = member("a", NAMES)
    known = {name: NOW - minutes * MINUTE for name, minutes in before.items()}
    state = ClusterState(groups={there.key: replace(GroupState(), nodeless=known)})
    seen = read(tuple(registered) if is_read else None, there)
    (pool,), _ = find_pools(seen.groups, ORDERS, {})
    ((after,),) = [each.groups for each in with_never_ready([pool], Check(seen, state, ORDERS, NOW))]
    running = {machine.name for machine in after.machines or () if machine.has_node}
    assert after.running == len(running)
    assert running == (registered if is_read else {*NAMES})
    assert after.delivered == len(registered if is_read else {*NAMES} - known.keys())
    dead = {machine.name for machine in after.dead_instances(NOW, TIMEOUT)}
    assert dead == ({name for name, at in known.items() if NOW - at >= TIMEOUT} - registered if is_read else set())
    removable = {machine.name for machine in after.machines or () if not machine.has_node and not machine.preserved}
    assert bool(registered) or not dead & removable
