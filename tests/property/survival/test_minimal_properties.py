"""The number of nodes that a pool orders so that its pods survive is the fewest that brute force finds."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, product

from hypothesis import event, example, given
from hypothesis import strategies as st

from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import plan
from tests.builders import NOW, requested
from tests.property.survival.test_pods_properties import POLICY, find_place, seen
from tests.world import CORES

Sizes = Mapping[str, Sequence[Sequence[int]]]  # zone -> node -> cores of its pods


def ways(nodes: int, zones: int) -> Iterator[tuple[int, ...]]:
    """Yield every division of so many new nodes among so many zones."""
    return (way for way in product(range(nodes + 1), repeat=zones) if sum(way) == nodes)


def fewest(sizes: Sizes, bound: str = "") -> int:
    """Return the fewest new nodes with which the pods of any one zone find places in the others.

    Every second pod of zone ``bound`` is bound to it.
    """

    def suffices(way: tuple[int, ...]) -> bool:
        new = dict(zip(sizes, way, strict=True))
        return all(
            find_place(
                [size for pods in sizes[zone] for j, size in enumerate(pods) if zone != bound or not j % 2],
                [
                    room
                    for other in sizes
                    if other != zone
                    for room in [*(CORES - sum(pods) for pods in sizes[other]), *[CORES] * new[other]]
                ],
            )
            for zone in sizes
        )

    return next(nodes for nodes in count() if any(suffices(way) for way in ways(nodes, len(sizes))))


def ordered(sizes: Sizes, bound: str = "") -> int:
    (pool,) = plan(seen(sizes, bound), ClusterState(), POLICY, NOW).pools
    return sum(requested(pool)) - sum(map(len, sizes.values()))


@st.composite
def pools(draw: st.DrawFn, *, sizes: Sequence[int], most: int) -> Sizes:
    zones = "abcd"[: draw(st.integers(2, 4))]
    pods = st.lists(st.sampled_from(sizes), max_size=CORES).filter(lambda pods: sum(pods) <= CORES)
    return {zone: draw(st.lists(pods, max_size=most // len(zones))) for zone in zones}


@example({"a": [[2, 2]] * 3, "b": [[], [2], [2, 2]], "c": [[2, 2], [2], [2, 2]]}, "c")
@example({"a": [[1, 1, 1, 1]], "b": [[1, 1, 1, 1]], "c": [[1, 1, 1, 1], [1, 1, 1, 1]]}, "c")
@given(st.sampled_from([1, 2, 3, 4]).flatmap(lambda size: pools(sizes=[size], most=12)), st.sampled_from("-abc"))
def test_for_equal_pods_the_fewest_nodes_are_ordered(sizes: Sizes, bound: str) -> None:
    assert ordered(sizes, bound) == fewest(sizes, bound)


@given(pools(sizes=[1, 2, 3], most=9), st.sampled_from("-abc"))
def test_for_pods_of_several_sizes_at_most_one_more_is_ordered(sizes: Sizes, bound: str) -> None:
    best, ours = fewest(sizes, bound), ordered(sizes, bound)
    event(f"{ours - best} more than {best}")
    assert best <= ours <= best + 1
