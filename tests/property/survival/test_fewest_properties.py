"""The fewest nodes of which enough remain without any one zone, compared with every way to add nodes."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.survival.counts import Share, fewest, rest

Shares = list[Share]
WEIGHTS = st.sampled_from([1, 1, 2, 3, 1000, 10**9])


def shares(most: int) -> st.SearchStrategy[Shares]:
    """Draw groups of up to three zones. A group that may have no more nodes than now is frozen."""
    group = st.builds(
        lambda zone, least, more, weight: Share(zone=zone, least=least, most=least + more, weight=weight),
        st.sampled_from("abc"),
        st.integers(0, most),
        st.sampled_from([0, *range(most + 1)]),
        WEIGHTS,
    )
    return st.lists(group, min_size=1, max_size=4)


def remain(groups: Shares, nodes: list[int] | tuple[int, ...]) -> int:
    return rest([group.zone for group in groups], nodes)


@given(shares(4), st.integers(0, 12))
def test_no_way_to_survive_needs_fewer_nodes(groups: Shares, needed: int) -> None:
    ways = product(*(range(group.least, group.most + 1) for group in groups))
    best = min((sum(way) for way in ways if remain(groups, way) >= needed), default=None)
    found = fewest(groups, needed)
    assert (None if found is None else sum(found)) == best
    if found is not None:
        assert remain(groups, found) >= needed
        assert all(group.least <= nodes <= group.most for group, nodes in zip(groups, found, strict=True))


@given(shares(10**6), st.integers(0, 3 * 10**6))
def test_of_large_groups_none_can_do_with_one_node_less(groups: Shares, needed: int) -> None:
    found = fewest(groups, needed)
    if found is None:
        assert remain(groups, [group.most for group in groups]) < needed
        return
    assert remain(groups, found) >= needed
    for i, group in enumerate(groups):
        if found[i] > group.least:
            fewer = [*found]
            fewer[i] -= 1
            assert remain(groups, fewer) < needed


@given(shares(20), st.integers(0, 40))
def test_groups_that_hold_enough_get_nothing(groups: Shares, needed: int) -> None:
    held = [group.least for group in groups]
    found = fewest(groups, needed)
    if remain(groups, held) >= needed:
        assert found == held
    elif found is not None:
        assert found != held
