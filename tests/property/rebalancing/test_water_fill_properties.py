"""The closed form divides nodes exactly as a loop over single nodes does."""

from hypothesis import given
from hypothesis import strategies as st

from bench.planning import Bucket
from evenkeel.domain.model.water_fill import water_fill


def _filled(found: list[Bucket], amount: int) -> list[int]:
    levels, room, weights, ties = zip(*found, strict=True) if found else ((), (), (), ())
    return water_fill(amount, levels, room, ties.__getitem__, weights)


vessels = st.lists(
    st.builds(
        Bucket,
        level=st.integers(0, 12),
        room=st.integers(-2, 12),
        weight=st.sampled_from([1, 1, 1, 2, 3, 5, 1000]),
        tie=st.integers(0, 3),
    ),
    max_size=6,
)


def _node_by_node(found: list[Bucket], amount: int) -> list[int]:
    """Return the split that gives each node to the bucket that is lowest after it; equals by tie, then by position."""
    dealt = [0] * len(found)
    for _ in range(amount):
        open_ = [i for i, vessel in enumerate(found) if dealt[i] < vessel.room]
        if not open_:
            break
        lowest = min(open_, key=lambda i: ((found[i].level + dealt[i] + 1) / found[i].weight, found[i].tie, i))
        dealt[lowest] += 1
    return dealt


@given(vessels, st.integers(-3, 60))
def test_levelling_deals_as_a_loop_over_single_nodes_would(found: list[Bucket], amount: int) -> None:
    assert _filled(found, amount) == _node_by_node(found, amount)


sizes = st.one_of(st.integers(0, 12), st.integers(0, 2**31))
even = st.builds(Bucket, level=sizes, room=sizes, weight=st.just(1), tie=st.integers(0, 3))


@given(st.lists(even, max_size=8), st.one_of(st.integers(0, 60), st.integers(0, 2**34)))
def test_a_full_vessel_of_another_width_changes_nothing(found: list[Bucket], amount: int) -> None:
    # Buckets of one width are filled from edge to edge, of several widths by bisection: both must agree.
    assert _filled([*found, Bucket(level=0, room=0, weight=3)], amount) == [*_filled(found, amount), 0]


roomy = st.builds(Bucket, level=st.integers(0, 2**31), room=st.just(2**31), weight=st.just(1), tie=st.integers(0, 3))


@given(st.lists(roomy, min_size=1, max_size=6), st.integers(0, 2**31))
def test_levelling_makes_no_open_vessel_higher_than_another_by_more_than_one(found: list[Bucket], amount: int) -> None:
    dealt = _filled(found, amount)
    given_to = [vessel.level + more for vessel, more in zip(found, dealt, strict=True) if more]
    stands = [vessel.level + more for vessel, more in zip(found, dealt, strict=True)]
    if given_to:
        assert max(given_to) - min(stands) <= 1
