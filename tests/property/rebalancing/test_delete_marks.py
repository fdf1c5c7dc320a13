"""After incomplete lists of machines, no delete mark of a running node is forgotten, and none stays for ever."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.domain.model.states import GroupState
from tests.builders import MINUTE, key, zones
from tests.fakes import FakeClock, FakeClusters, plenty
from tests.stack import Stack
from tests.world import Machines

GROUP = key("a")
NODES = 4
SECOND = timedelta(seconds=1)

#: the nodes that a list leaves out, and the time since the previous list
_LISTS = st.lists(
    st.tuples(
        st.sets(st.integers(0, NODES - 1)), st.sampled_from([SECOND, 30 * SECOND, MINUTE, 3 * MINUTE, 8 * MINUTE])
    ),
    max_size=12,
)


class Marked:
    """A group whose marked nodes are not to be removed, because its replicas match its machines."""

    def __init__(self, marked: set[int], *, mark_is_ours: bool) -> None:
        groups = zones((NODES, 2, 2), bounds=[(1, 9)] * 3)
        clock = FakeClock()
        self.cluster = Machines(groups, clock, mark_is_ours=mark_is_ours)
        self.stack = Stack(groups, clock=clock, clusters=FakeClusters({"demo": self.cluster}))
        self.stack.settle()
        self.names = sorted(self.cluster.machines[GROUP])
        for number in marked:
            self.cluster.set(GROUP, self.names[number], marked=True, marked_by_us=mark_is_ours)
        state = GroupState(marked=tuple(self.names[number] for number in sorted(marked)))
        self.stack.store.save_group("demo", GROUP, state, None)

    @property
    def on_machines(self) -> set[str]:
        return {machine.name for machine in self.cluster.staying(GROUP) if machine.marked}

    @property
    def known(self) -> set[str]:
        return set(self.stack.group_state().marked)

    def run(self, hidden: set[int], after: timedelta) -> None:
        self.cluster.hidden = {self.names[number] for number in hidden}
        self.stack.clock.at += after
        self.stack.rebalance("demo", "a test", plenty)


@given(st.sets(st.integers(0, NODES - 1), min_size=1), _LISTS, st.booleans())
@settings(max_examples=100)
def test_a_mark_is_forgotten_only_if_each_list_of_a_minute_lacks_its_machine(
    marked: set[int], lists: list[tuple[set[int], timedelta]], mark_is_ours: bool
) -> None:
    world = Marked(marked, mark_is_ours=mark_is_ours)
    absent_for: dict[str, timedelta | None] = dict.fromkeys(world.names)  # None: the last list had it
    forgotten = set[str]()
    for hidden, after in [*lists, *[(set[int](), MINUTE)] * 2]:
        world.run(hidden, after)
        for number, name in enumerate(world.names):
            before = absent_for[name]
            absent_for[name] = None if number not in hidden else timedelta(0) if before is None else before + after
        for name in world.on_machines - world.known - forgotten:
            absent = absent_for[name]
            assert absent is not None, name
            assert absent >= MINUTE, name
            forgotten.add(name)
    assert world.on_machines <= forgotten, "a mark on a machine that is not ours to remove is off"
    assert world.known == set()


@pytest.mark.parametrize("hidden", [{0}, {0, 1}, set(range(NODES))])
def test_a_machine_that_two_lists_lack_is_forgotten(hidden: set[int]) -> None:
    world = Marked({0}, mark_is_ours=True)
    world.run(hidden, MINUTE)
    world.run(hidden, 59 * SECOND)
    assert world.known
    world.run(hidden, SECOND)
    assert not world.known


def test_a_run_in_doubt_requests_the_second_check() -> None:
    world = Marked({0}, mark_is_ours=True)
    world.run({0}, MINUTE)
    assert world.stack.queue.second_checks[-1][2] == 60


@pytest.mark.parametrize("restoring", [{"restoring": True}, {"restoring_pools": ("workers",)}], ids=str)
def test_a_restore_ends_only_after_the_marks_are_off(restoring: dict[str, Any]) -> None:
    world = Marked({0}, mark_is_ours=True)
    stored = world.stack.store.load("demo")
    world.stack.store.save_record(stored.record, stored.control.model_copy(update=restoring), stored.versions)

    def is_restoring() -> bool:
        control = world.stack.store.load("demo").control
        return control.restoring or bool(control.restoring_pools)

    for _ in range(2):
        world.run({0}, 20 * SECOND)
        assert is_restoring()
    world.run(set(), 20 * SECOND)
    assert not world.on_machines
    world.run(set(), 20 * SECOND)
    assert not is_restoring()
