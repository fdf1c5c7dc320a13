"""Whatever happens to the tags of groups: the maxima hold, and after a repair a restore ends."""

from hypothesis import example, given
from hypothesis import strategies as st

from evenkeel.domain.model.incidents import IncidentKind
from tests.auto_scaling_groups import ZONES, Stage, runs_with_rights, strip, tag

MOST = 27
NAMES = [f"workers-{zone[-1]}" for zone in ZONES]


def pool() -> Stage:
    stage = Stage()
    for name, zone in zip(NAMES, ZONES, strict=True):
        stage.put(name, zone, 0, 2, 9, **{"evenkeel.dev__pool-max": "", "evenkeel.dev__pool-min": ""})
    stage.minutes(2)
    stage.settle()
    return stage


def put_tag_back(stage: Stage, name: str) -> None:
    stage.api.create_or_update_tags(Tags=[tag(name, "evenkeel.dev/pool", "workers")])


def lose_pool_tag(stage: Stage, name: str) -> None:
    stage.api.delete_tags(Tags=[tag(name, "evenkeel.dev/pool", "")])


def refuse(stage: Stage, name: str) -> None:
    stage.refuse(ZONES[NAMES.index(name)])


def accept(stage: Stage, name: str) -> None:
    stage.stock.accept(ZONES[NAMES.index(name)])


def order(stage: Stage, name: str) -> None:
    """Order a node as an autoscaler, within the group's max."""
    group = stage.group(name)
    desired = min(group.desired + 1, group.maximum)
    stage.api.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=desired)


STEPS = (strip, lose_pool_tag, put_tag_back, refuse, accept, order)
steps = st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from(NAMES), st.integers(1, 3)), max_size=8)


@given(steps)
@example([(refuse, NAMES[1], 1), (order, NAMES[1], 3), (strip, NAMES[0], 3), (order, NAMES[0], 2)])
def test_the_maxima_hold_and_with_the_tags_back_a_restore_ends(happens: list[tuple[object, str, int]]) -> None:
    stage = pool()

    def check() -> None:
        assert sum(stage.group(name).maximum for name in NAMES) <= MOST

    for step, name, minutes in happens:
        step(stage, name)  # type: ignore[operator]
        runs_with_rights(stage, minutes, check)
    for name in NAMES:
        put_tag_back(stage, name)
        accept(stage, name)
    runs_with_rights(stage, 3, check)
    incidents = stage.store.load("demo").cluster_health.incidents
    assert all(each.kind is not IncidentKind.LOST_GROUP for each in incidents)
    stage.restore()
    assert [stage.numbers(name)[::3] for name in NAMES] == [(0, 9)] * 3
