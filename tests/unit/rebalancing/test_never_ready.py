"""Nodes that register and never become Ready are failed machines of their group; those that were Ready are not."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.json import Decoder, encode

from evenkeel.adapters.kubernetes.read.workload_objects import NodeShape
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.drafts import Draft, MachineCounts
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Machine, PoolId, State
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.policy import BackoffPolicy, Policy
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.domain.model.workload import Node, Workload
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.health.backoff import state_at
from evenkeel.domain.rebalancing.health.never_ready import was_never_ready
from evenkeel.domain.rebalancing.health.observed import observe_health
from tests.builders import MINUTE, NOW, group, in_slow_start, key
from tests.parts import make, replace
from tests.workloads import node

TIMEOUT, BACKOFF, SECOND = timedelta(minutes=15), BackoffPolicy(), timedelta(seconds=1)
ORDERS = make(Policy, strategy=BALANCED, demand=DemandStage.SCALE_UP, autoscaler=False)


def bad(age: timedelta, **fields: Any) -> Node:
    """Return a node that has never been Ready."""
    born = NOW - age
    fields = {"ready": False, "not_ready_since": born + timedelta(seconds=2), "group": key("a"), **fields}
    return node("n", created_at=born, **fields)


def after(there: Node | None, policy: Policy = ORDERS, before: GroupState | None = None) -> GroupState:
    seen = Observation(
        groups=(group("a", 1, pool_min=0, pool_max=5),), workload=None if there is None else Workload(nodes=(there,))
    )
    states = {} if before is None else {key("a"): before}
    made = plan(seen, ClusterState(groups=states), policy, NOW)
    return made.states.get(key("a"), before or GroupState())


def test_a_node_that_is_not_ready_at_the_provision_timeout_fences_its_group() -> None:
    assert after(bad(TIMEOUT - MINUTE)) == GroupState()
    found = after(bad(TIMEOUT))
    assert (found.failure.failures, found.failure.failure_class) == (1, FailureClass.TIMEOUT)
    assert state_at(found, NOW, BACKOFF) is State.FENCED
    assert state_at(found, NOW + SECOND, BACKOFF) is State.PROBING, "its timeout was the backoff"


@pytest.mark.parametrize(
    ("machine", "registered", "timeout", "fails"),
    [
        (15, 12, 15, True),
        (14, 14, 15, False),
        (15, 4, 15, False),
        (15, 5, 15, True),
        (25, 12, 15, True),
        (60, 4, 15, False),
        (6, 3, 3, True),
        (6, 2, 3, False),
        (1, 15, 15, True),
    ],
)
def test_the_timeout_counts_from_the_machine_with_five_minutes_for_a_late_node(
    machine: int, registered: int, timeout: int, *, fails: bool
) -> None:
    made = Machine(name="m", has_node=True, created_at=NOW - machine * MINUTE)
    there = bad(registered * MINUTE, machine=made)
    found = after(there, replace(ORDERS, provision_timeout=timeout * MINUTE))
    assert found.failure.failures == fails


def test_it_is_one_failure() -> None:
    found = after(bad(TIMEOUT))
    later = NOW + timedelta(minutes=40)
    seen = replace(group("a", 1), never_ready={"n": NOW})
    again = observe_health(seen, found, later, BACKOFF, TIMEOUT)
    assert (again.failure.failures, again.failure.last_failure) == (1, found.failure.last_failure)
    assert after(bad(timedelta(days=2))) == GroupState(), "forgotten"


@pytest.mark.parametrize(
    "there",
    [
        bad(TIMEOUT, not_ready_since=NOW - 9 * MINUTE),
        bad(timedelta(hours=1), not_ready_since=NOW - MINUTE),
        bad(TIMEOUT, ready=True, not_ready_since=None),
        bad(TIMEOUT, deleting=True),
        bad(TIMEOUT, group=None),
        replace(bad(TIMEOUT), created_at=None),
        None,
    ],
    ids=["was Ready", "was Ready for long", "Ready", "going", "of no group", "of no age", "not read"],
)
def test_other_nodes_are_no_failure(there: Node | None) -> None:
    assert after(there) == GroupState()


def test_a_kubelet_that_stops_in_its_first_minutes_was_never_ready() -> None:
    assert was_never_ready(bad(TIMEOUT, not_ready_since=NOW - TIMEOUT + 5 * MINUTE))
    assert not was_never_ready(bad(TIMEOUT, not_ready_since=NOW - TIMEOUT + 6 * MINUTE))
    assert was_never_ready(bad(TIMEOUT, not_ready_since=None))


def test_beside_an_autoscaler_nothing_changes() -> None:
    assert after(bad(TIMEOUT), make(Policy, strategy=BALANCED, demand=DemandStage.ADVISE)) == GroupState()


def test_a_node_is_a_success_once_it_is_ready() -> None:
    failed = replace(after(bad(TIMEOUT)), last_failure=NOW - 9 * MINUTE, backoff_until=NOW - 4 * MINUTE, running_seen=0)
    waits = after(bad(MINUTE), before=failed)
    assert waits.is_failing
    assert not after(bad(MINUTE, ready=True, not_ready_since=None), before=waits).is_failing


def test_a_probed_zone_has_one_booting_machine_until_its_node_is_ready() -> None:
    """A node that joined too late is not awaited."""
    tried = Draft(replace(group("a", 2), never_ready={"n": NOW}), State.PROBING, 2, pool_id=PoolId("", "", "", ""))
    assert replace(tried, machines=MachineCounts(starting=1)).probe == 0
    assert tried.probe == 1


def test_a_node_that_is_not_ready_yet_counts_as_on_its_way_in_slow_start() -> None:
    zones = (group("a", 3, pool_min=0, pool_max=30), group("b", 3, pool_min=0, pool_max=30))
    state = ClusterState(groups={key("a"): in_slow_start(2, running_seen=3)})
    maxima = []
    for there in (bad(MINUTE), bad(MINUTE, ready=True, not_ready_since=None)):
        made = plan(Observation(groups=zones, workload=Workload(nodes=(there,))), state, ORDERS, NOW)
        first = made.pools[0].groups[0]
        assert first.bounds is not None
        maxima.append(first.bounds.max)
    assert maxima == [4, 5]


@pytest.mark.parametrize(("status", "since"), [("True", None), ("False", NOW), ("Unknown", NOW), (None, None)])
def test_the_ready_condition_is_read(status: str | None, since: Any) -> None:
    ready = {"type": "Ready", "status": status, "lastTransitionTime": NOW.isoformat()}
    conditions = [{"type": "DiskPressure", "status": "False"}, *([ready] if status else [])]
    item = {"metadata": {"name": "n"}, "status": {"conditions": conditions}}
    found = Decoder(NodeShape).decode(encode(item)).read({})
    assert (found.ready, found.not_ready_since) == (status == "True", since)
