"""Learned provision timeouts: their limits, and that each machine counts once, however often it is read."""

import json
from collections.abc import Sequence
from datetime import timedelta
from string import ascii_letters

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.model.groups import Machine, NodeGroup
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.provision_times import FEWEST, KEPT, LONGEST, SHORTEST, ProvisionTimes
from evenkeel.domain.model.states import ClusterState, PoolState
from evenkeel.domain.plan import plan
from tests.builders import NOW, group, numbers, remembered
from tests.parts import replace

SECOND = timedelta(seconds=1)
TYPE = "m5.large"
seconds = st.integers(0, 5000).map(lambda count: count * SECOND)
samples = st.lists(seconds, min_size=FEWEST, max_size=250)


@given(samples)
def test_a_learned_timeout_is_two_to_fifteen_minutes(times: list[timedelta]) -> None:
    learned = ProvisionTimes().with_times(times).timeout
    assert learned is not None
    assert SHORTEST <= learned <= LONGEST


@given(samples)
def test_it_is_the_rule_of_the_last_200_within_a_letter_of_5_percent(times: list[timedelta]) -> None:
    last = sorted(times[-KEPT:])
    exact = max(SHORTEST, 3 * last[-(len(last) // 20) - 1], 2 * last[-1])
    learned = ProvisionTimes().with_times(times).timeout
    assert learned is not None
    assert min(LONGEST, exact) <= learned <= min(LONGEST, exact * 1.05 + 3 * SECOND)


@given(samples, st.data())
def test_slower_machines_never_make_it_shorter(times: list[timedelta], data: st.DataObject) -> None:
    slower = [time + data.draw(seconds) for time in times]
    before, after = (ProvisionTimes().with_times(each).timeout for each in (times, slower))
    assert before is not None
    assert after is not None
    assert before <= after


@given(st.lists(seconds, max_size=FEWEST - 1))
def test_fewer_than_50_machines_learn_nothing(times: list[timedelta]) -> None:
    assert ProvisionTimes().with_times(times).timeout is None


@given(st.lists(st.lists(seconds, max_size=90), max_size=8))
def test_only_the_last_200_count_in_however_many_parts_they_come(parts: list[list[timedelta]]) -> None:
    stored = ProvisionTimes()
    for part in parts:
        stored = stored.with_times(part)
    assert stored == ProvisionTimes().with_times([time for part in parts for time in part][-KEPT:])
    assert len(stored.letters) <= KEPT


POLICY = replace(numbers(0, 500), timeout_mode="auto")
created_and_took = st.lists(st.tuples(st.integers(0, 1200), st.integers(1, 700)), min_size=1, max_size=12)


def zone(machines: Sequence[tuple[int, int]], now: int) -> NodeGroup:
    """Return zone a at a second, with the machines so far: each has the seconds of its creation and provisioning."""
    made = tuple(
        Machine(
            name=f"m{number}",
            created_at=NOW + created * SECOND,
            has_node=created + took <= now,
            joined_at=NOW + (created + took) * SECOND if created + took <= now else None,
        )
        for number, (created, took) in enumerate(machines)
        if created <= now
    )
    running = sum(machine.has_node for machine in made)
    found = group("a", len(made), running=running, bounds=(0, 100), machines=made)
    return replace(found, machine_type=TYPE)


def after(state: ClusterState, machines: Sequence[tuple[int, int]], now: int) -> ClusterState:
    """Return the stored state after a check at a second."""
    groups = (zone(machines, now), group("b", 3, bounds=(0, 100)))
    return remembered(state, plan(Observation(groups=groups), state, POLICY, NOW + now * SECOND))


def letters_of(state: ClusterState) -> str:
    pools = list(state.pools.values()) or [PoolState()]
    return pools[0].replicas.provision_times.get(TYPE, ProvisionTimes()).letters


@given(created_and_took, st.lists(st.tuples(st.integers(1, 90), st.integers(1, 3)), max_size=25))
def test_each_machine_counts_once_however_often_it_is_read(
    machines: list[tuple[int, int]], checks: list[tuple[int, int]]
) -> None:
    state, now = ClusterState(), 0
    for later, repeats in checks:
        now += later
        for _ in range(repeats):
            state = after(state, machines, now)
        joined = sum(created + took <= now for created, took in machines)
        assert len(letters_of(state)) <= joined
    state = after(state, machines, 2000)
    in_order = sorted(machines)
    expected = ProvisionTimes().with_times([took * SECOND for _, took in in_order])
    assert sorted(letters_of(state)) == sorted(expected.letters)


@given(st.text(alphabet=st.sampled_from(ascii_letters), min_size=KEPT, max_size=KEPT))
def test_a_stored_sample_is_small(letters: str) -> None:
    assert len(json.dumps({"m" * 128: {"letters": letters}})) < 500
