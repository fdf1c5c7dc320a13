"""Bounds that somebody keeps putting back: counted per publication, given up after three, tried again on resume."""

from datetime import timedelta

import pytest

from evenkeel.adapters.kubernetes.flavours import CLUSTER_API
from evenkeel.adapters.kubernetes.read.groups import Listing, read_groups
from evenkeel.application.errors import ClusterUnavailableError
from evenkeel.domain.model.groups import Bounds, NodeGroup, PublishedBounds, State
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.policy import BackoffPolicy, Policy
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.annotations import read_published, write_published
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.health.observed import observe_health
from evenkeel.texts.english import sentences
from tests.builders import MINUTE, NOW, group, in_backoff, key, numbers, pool_plan, zones
from tests.house import House
from tests.parts import make, replace

_TIMEOUT = timedelta(minutes=15)


def _put_back(minutes: int, *, ours: Bounds = Bounds(1, 8), theirs: Bounds = Bounds(0, 4)) -> NodeGroup:  # noqa: B008
    """A group on which we published `ours`, and somebody wrote `theirs` over it."""
    published = PublishedBounds(at=NOW + minutes * MINUTE, bounds=ours)
    return replace(group("a", 2, bounds=(0, 4)), bounds=theirs, published=published, bounds_by="argocd")


def _seen(minutes: list[int]) -> GroupState | None:
    state: GroupState | None = None
    for minute in minutes:
        at = NOW + (minute + 1) * MINUTE
        state = observe_health(_put_back(minute), state, at, BackoffPolicy(), _TIMEOUT)
        state = observe_health(
            _put_back(minute), state, at + MINUTE, BackoffPolicy(), _TIMEOUT
        )  # the next look counts nothing new
    return state


def test_three_times_within_an_hour_is_an_owner_and_it_is_named() -> None:
    state = _seen([0, 20, 40])
    assert state.contested_since is not None
    assert state.contested_by == "argocd"


def test_what_was_longer_ago_than_an_hour_does_not_hide_three_times_within_one() -> None:
    state = _seen([0, 70, 80, 90])
    assert state is not None
    assert state.contested_since is not None


def test_replicas_that_are_put_back_three_times_within_an_hour_are_contested_as_bounds_are() -> None:
    state: GroupState | None = None
    for minute in (0, 20, 40):
        wrote = PublishedBounds(at=NOW + minute * MINUTE, bounds=Bounds(0, 4), requested=1, before=4)
        found = replace(group("a", 4, running=1, bounds=(0, 4)), published=wrote, replicas_by="argocd")
        state = observe_health(found, state, NOW + (minute + 1) * MINUTE, BackoffPolicy(), _TIMEOUT)
    assert state.contested_replicas
    assert (state.contested_since, state.contested_by) == (NOW + 41 * MINUTE, "argocd")


def test_contested_replicas_stay_and_the_bounds_of_the_group_are_still_ours() -> None:
    members = [group("a", 4, running=1, bounds=(0, 9)), group("b", 2, bounds=(0, 9))]
    contested = replace(in_backoff(), contested_since=NOW, contested_by="argocd", contested_replicas=True)
    pool = pool_plan(members, numbers(0, 12), states={key("a"): contested})
    first = pool.groups[0]
    assert (first.state, first.requested) == (State.FENCED, 4)
    assert first.bounds.max == 4
    assert "replicas unchanged: argocd reverted them 3 times" in "; ".join(sentences(first.reasons))
    assert pool.report.contested == (str(key("a")),)
    healthy = GroupState(contested_since=NOW, contested_replicas=True)
    raised = pool_plan([group("a", 1), group("b", 1)], numbers(6, 12), states={key("a"): healthy})
    assert [planned.requested for planned in raised.groups] == [1, 5]


@pytest.mark.parametrize("minutes", [[0], [0, 20], [0, 40, 80], [0, 59, 118]])
def test_less_often_is_an_edit_and_is_written_over(minutes: list[int]) -> None:
    state = _seen(minutes)
    assert state.contested_since is None


def test_bounds_as_we_published_them_are_nobody_s_doing() -> None:
    untouched = _put_back(0, theirs=Bounds(1, 8))
    assert observe_health(untouched, None, NOW + MINUTE, BackoffPolicy(), _TIMEOUT) is None


def test_a_contested_group_is_left_alone_and_says_who_and_what_to_do() -> None:
    contested = GroupState(contested_since=NOW, contested_by="argocd", reverts=(NOW,))
    state = ClusterState(groups={key("a"): contested})
    members = (replace(group("a", 2, bounds=(0, 4)), pool_max=9), group("b", 2, bounds=(0, 4)))
    pool = plan(Observation(groups=members), state, make(Policy, strategy=BALANCED), NOW).pools[0]
    first = next(planned for planned in pool.groups if planned.group.key == key("a"))
    assert first.state is State.FROZEN
    assert first.bounds == first.group.bounds
    assert "argocd reverted Evenkeel's bounds 3 times" in sentences(first.reasons)[0]
    assert "resume" in sentences(first.reasons)[0]
    assert pool.report.contested == (str(key("a")),)
    assert pool.digest(applied=True) != ""


def test_resume_tries_again() -> None:
    house = House()
    house.cluster.unreadable = ClusterUnavailableError("demo does not answer")
    contested = GroupState(contested_since=NOW, contested_by="argocd", reverts=(NOW,))
    house.store.save_group("demo", key("a"), contested, None)
    assert house.ask("status")["groups"][str(key("a"))]["contestedBy"] == "argocd"
    assert house.ask("resume")["ok"]
    assert house.group_state().contested_since is None


def test_resume_has_replicas_written_again_that_somebody_kept_putting_back() -> None:
    house = House(zones((6, 2, 2), running=(1, 2, 2), bounds=[(1, 9)] * 3))
    house.fail("a")
    versions = house.store.load("demo").versions
    house.store.save_group(
        "demo",
        key("a"),
        replace(house.group_state(), contested_since=NOW, contested_by="argocd", contested_replicas=True),
        versions,
    )
    house.run()
    assert house.cluster.groups[key("a")].requested == 6
    assert house.ask("resume")["ok"]
    house.run()
    assert house.cluster.groups[key("a")].requested == 1


def test_what_we_publish_is_read_back_and_garbage_is_not() -> None:
    published = PublishedBounds(at=NOW, bounds=Bounds(1, 8), state=State.FENCED, requested=2, before=3)
    assert read_published(write_published(published, 2, "why")) == published
    for garbage in (None, "", "[]", "{}", '{"at": "soon", "min": 1, "max": 2}', '{"at": 5, "min": 9, "max": 2}'):
        assert read_published(garbage) is None


def test_the_last_foreign_writer_of_the_bounds_is_named_from_managed_fields() -> None:
    def entry(manager: str, time: str, field: str) -> dict[str, object]:
        return {"manager": manager, "time": time, "fieldsV1": {"f:metadata": {"f:annotations": {f"f:{field}": {}}}}}

    item = {
        "kind": "MachineDeployment",
        "metadata": {
            "name": "a",
            "namespace": "prod",
            "managedFields": [
                entry("helm", "2026-01-01T00:00:00Z", CLUSTER_API.max_key),
                entry("argocd", "2026-01-02T00:00:00Z", CLUSTER_API.max_key),
                entry("evenkeel", "2026-01-03T00:00:00Z", CLUSTER_API.max_key),
                entry("kubectl-edit", "2026-01-04T00:00:00Z", "something-else"),
            ],
        },
        "spec": {"replicas": 1},
    }
    found, _ = read_groups(Listing(flavour=CLUSTER_API, objects={"MachineDeployment": [item]}))
    assert found[0].group.managers.bounds_by == "argocd"
