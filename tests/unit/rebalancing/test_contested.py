"""Bounds and replicas that another controller reverts: contested after three times an hour, retried on resume."""

from datetime import timedelta

import pytest

from evenkeel.adapters.kubernetes.flavours import CLUSTER_API
from evenkeel.adapters.kubernetes.read.groups import Listing, read_groups
from evenkeel.application.errors import ClusterUnavailableError
from evenkeel.domain.model.groups import Bounds, NodeGroup, PublishedBounds, State
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import UNKNOWN, GroupState
from evenkeel.domain.rebalancing.health.observed import observe_health
from evenkeel.texts.english import sentences
from tests.builders import MINUTE, NOW, group, in_backoff, key, numbers, pool_plan, zones
from tests.parts import make, replace
from tests.stack import Stack

_TIMEOUT = timedelta(minutes=15)


def _put_back(minutes: int, *, theirs: Bounds = Bounds(0, 4)) -> NodeGroup:  # noqa: B008
    """Return a group with Evenkeel's published bounds 1 to 8, which another controller has overwritten."""
    published = PublishedBounds(at=NOW + minutes * MINUTE, bounds=Bounds(1, 8))
    return replace(group("a", 2, bounds=(0, 4)), bounds=theirs, published=published, bounds_by="argocd")


def _observe(group: NodeGroup, state: GroupState, minutes: float) -> GroupState:
    return observe_health(group, state, NOW + minutes * MINUTE, BackoffPolicy(), _TIMEOUT)


def _seen(minutes: list[int]) -> GroupState:
    """Return the state after bounds were reverted at these minutes. Every revert is checked twice and counted once."""
    state = UNKNOWN
    for minute in minutes:
        for later in (1, 2):
            state = _observe(_put_back(minute), state, minute + later)
    return state


@pytest.mark.parametrize("minutes", [[0, 20, 40], [0, 70, 80, 90]])
def test_bounds_that_are_reverted_three_times_within_an_hour_are_contested(minutes: list[int]) -> None:
    state = _seen(minutes)
    assert state.contest.contested_since is not None
    assert state.contest.contested_by == "argocd"


@pytest.mark.parametrize("minutes", [[0], [0, 20], [0, 40, 80], [0, 59, 118]])
def test_bounds_that_are_reverted_less_often_are_written_again(minutes: list[int]) -> None:
    state = _seen(minutes)
    assert state.contest.contested_since is None


def test_replicas_that_are_reverted_three_times_within_an_hour_are_contested() -> None:
    state = UNKNOWN
    for minute in (0, 20, 40):
        wrote = PublishedBounds(at=NOW + minute * MINUTE, bounds=Bounds(0, 4), requested=1, before=4)
        reverted = replace(group("a", 4, running=1, bounds=(0, 4)), published=wrote, replicas_by="argocd")
        state = _observe(reverted, state, minute + 1)
    assert state.contest.contested_replicas
    assert (state.contest.contested_since, state.contest.contested_by) == (NOW + 41 * MINUTE, "argocd")


def test_contested_replicas_are_kept_and_bounds_still_written() -> None:
    members = [group("a", 4, running=1, bounds=(0, 9)), group("b", 2, bounds=(0, 9))]
    contested = replace(in_backoff(), contested_since=NOW, contested_by="argocd", contested_replicas=True)
    pool = pool_plan(members, numbers(0, 12), states={key("a"): contested})
    first = pool.groups[0]
    assert (first.state, first.requested) == (State.FENCED, 4)
    assert first.bounds.max == 4
    assert "replicas unchanged: argocd reverted Evenkeel's replicas 3 times" in "; ".join(sentences(first.reasons))
    assert pool.report.contested == (str(key("a")),)
    healthy = make(GroupState, contested_since=NOW, contested_replicas=True)
    raised = pool_plan([group("a", 1), group("b", 1)], numbers(6, 12), states={key("a"): healthy})
    assert [planned.requested for planned in raised.groups] == [1, 5]


def test_bounds_as_published_are_not_contested() -> None:
    assert _observe(_put_back(0, theirs=Bounds(1, 8)), UNKNOWN, 1) is UNKNOWN


def test_a_contested_group_is_frozen_with_the_controller_and_the_remedy() -> None:
    contested = make(GroupState, contested_since=NOW, contested_by="argocd", reverts=(NOW,))
    members = [group("a", 2, bounds=(0, 4)), group("b", 2, bounds=(0, 4))]
    pool = pool_plan(members, numbers(0, 9), states={key("a"): contested})
    first = pool.groups[0]
    assert (first.state, first.bounds) == (State.FROZEN, first.group.bounds)
    reason = sentences(first.reasons)[0]
    assert "argocd reverted Evenkeel's bounds 3 times" in reason
    assert "resume" in reason
    assert pool.report.contested == (str(key("a")),)
    assert pool.digest(applied=True) != ""


def test_resume_writes_contested_bounds_again() -> None:
    stack = Stack()
    stack.cluster.unreadable = ClusterUnavailableError("demo does not answer")
    contested = make(GroupState, contested_since=NOW, contested_by="argocd", reverts=(NOW,))
    stack.store.save_group("demo", key("a"), contested, None)
    assert stack.ask("status")["groups"][str(key("a"))]["contestedBy"] == "argocd"
    assert stack.ask("resume")["ok"]
    assert stack.group_state().contest.contested_since is None


def test_resume_writes_contested_replicas_again() -> None:
    stack = Stack(zones((6, 2, 2), running=(1, 2, 2), bounds=[(1, 9)] * 3))
    stack.fail("a")
    contested = {"contested_since": NOW, "contested_by": "argocd", "contested_replicas": True}
    state, versions = replace(stack.group_state(), **contested), stack.store.load("demo").versions
    stack.store.save_group("demo", key("a"), state, versions)
    stack.run()
    assert stack.cluster.groups[key("a")].requested == 6
    assert stack.ask("resume")["ok"]
    stack.run()
    assert stack.cluster.groups[key("a")].requested == 1


def test_the_last_foreign_writer_of_the_bounds_is_read_from_managed_fields() -> None:
    writers = [("helm", CLUSTER_API.max_key), ("argocd", CLUSTER_API.max_key)]
    writers += [("evenkeel", CLUSTER_API.max_key), ("kubectl-edit", "something-else")]
    fields = [
        {
            "manager": manager,
            "time": f"2026-01-0{day}T00:00:00Z",
            "fieldsV1": {"f:metadata": {"f:annotations": {f"f:{name}": {}}}},
        }
        for day, (manager, name) in enumerate(writers, 1)
    ]
    metadata = {"name": "a", "namespace": "prod", "managedFields": fields}
    item = {"kind": "MachineDeployment", "metadata": metadata, "spec": {"replicas": 1}}
    found, _ = read_groups(Listing(flavour=CLUSTER_API, objects={"MachineDeployment": [item]}))
    assert found[0].group.managers.bounds_by == "argocd"
