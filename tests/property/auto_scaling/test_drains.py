"""Whatever happens to pods, budgets, nodes and runs: no pod is lost with its node, and Evenkeel exceeds no budget."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.auto_scaling_groups import ZONES
from tests.auto_scaling_pods import PodStage
from tests.crashing import How

Event = Callable[[PodStage], None]


def _scaled(replicas: int) -> Event:
    return lambda stage: stage.scale("web", replicas)


def _protected(minimum: int) -> Event:
    body = {"spec": {"minAvailable": minimum}}
    return lambda stage: stage.kube.store.patch("poddisruptionbudgets.policy", "default", "web", body) and None


def _harmed(at: int, how: How) -> Event:
    return lambda stage: stage.die_at(at, how) and None


def _uncordoned(stage: PodStage) -> None:
    for name in stage.cordoned():
        stage.kube.store.patch("nodes", "", name, {"spec": {"unschedulable": None}})


_EVENTS = st.one_of(
    st.builds(_scaled, st.integers(1, 9)),
    st.builds(_protected, st.integers(0, 9)),
    st.builds(_harmed, st.integers(0, 40), st.sampled_from([How.BEFORE, How.AFTER, How.LOST])),
    st.just(_uncordoned),
    st.just(lambda stage: None),
)


@given(st.lists(st.tuples(_EVENTS, st.sampled_from([1, 1, 2, 11])), min_size=2, max_size=10))
@settings(max_examples=12)
def test_no_pod_ends_with_its_node_and_no_eviction_exceeds_a_budget(story: list[tuple[Event, int]]) -> None:
    stage = PodStage()
    for zone in ZONES[:2]:
        stage.put(f"workers-{zone[-1]}", zone, 0, 1, 5)
    stage.minutes(3)
    stage.deploy("web", 4, cpu="500m")
    stage.protect("web", 3)
    stage.minutes(1)
    stage.run()
    stage.minutes(11)
    stage.run()
    for event, minutes in story:
        event(stage)
        stage.minutes(minutes)
        stage.run()
        assert stage.lost == []
    assert stage.exceeded == []
