"""Fences that pin replicas: whatever fails, one NodePool of a hosted cluster keeps its autoscaler."""

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.model.groups import Bounds, NodeGroup, Pinning
from evenkeel.domain.rebalancing.bounds.exact_fences import exact_fences
from tests.builders import owned
from tests.parts import replace

Pools = list[tuple[bool, bool, bool]]
#: of each NodePool: whether it is pinned now, whether it is fenced, whether it is read as a group at all
POOLS = st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=6)


def groups_of(pools: Pools, cluster: str) -> tuple[list[NodeGroup], frozenset[str]]:
    scaled = frozenset(f"{cluster}-{number}" for number, (pinned, _, _) in enumerate(pools) if not pinned)
    pinning = Pinning(cluster=cluster, scaled=scaled)
    groups = []
    for number, (pinned, _, read) in enumerate(pools):
        if read:
            found = owned("abcdef"[number], Bounds(0, 2), requested=2, uid=f"{cluster}-{number}")
            key = found.key._replace(namespace=cluster)
            groups.append(replace(found, key=key, pinned=pinned, pinning=pinning))
    return groups, scaled


@given(POOLS, POOLS)
def test_each_cluster_keeps_a_scaled_node_pool(first: Pools, second: Pools) -> None:
    groups, fenced = [], []
    for cluster, pools in (("one", first), ("other", second)):
        found, _ = groups_of(pools, cluster)
        groups += found
        is_fenced = {f"{cluster}-{number}": value for number, (_, value, _) in enumerate(pools)}
        fenced += [group for group in found if group.owner.numbers and is_fenced[group.owner.numbers.ref.uid]]
    exact = exact_fences(fenced, [group for group in groups if group.ours.pinned])
    assert exact <= {group.key for group in fenced}
    for cluster, pools in (("one", first), ("other", second)):
        found, scaled = groups_of(pools, cluster)
        after_fences = scaled - {
            group.owner.numbers.ref.uid for group in found if group.owner.numbers and group.key in exact
        }
        assert after_fences or not scaled, "what is scaled is never the last to be pinned, nobody let go before"
        stays_pinned = {group.key for group in found if group.ours.pinned and group.key in exact}
        if not scaled and any(read for _, _, read in pools):
            pinned = {group.key for group in found if group.ours.pinned}
            assert stays_pinned < pinned, "where all are pinned, one is let go"


@given(POOLS)
def test_a_pinned_fence_stays_pinned(pools: Pools) -> None:
    found, scaled = groups_of(pools, "one")
    if not scaled:
        return
    fenced = [group for group, (_, value, _) in zip(found, [one for one in pools if one[2]], strict=True) if value]
    exact = exact_fences(fenced, [group for group in found if group.ours.pinned])
    ids = {group.owner.numbers.ref.uid for group in found if group.owner.numbers and group.key in exact}
    let_go = {group.owner.numbers.ref.uid for group in found if group.owner.numbers and group.ours.pinned} - ids
    pinning = Pinning(cluster="one", scaled=(scaled | let_go) - ids)
    after = {group.key: replace(group, pinned=group.key in exact, pinning=pinning) for group in found}
    again = exact_fences(
        [after[group.key] for group in fenced], [group for group in after.values() if group.ours.pinned]
    )
    assert exact <= again, "nothing that has been pinned is let go while it is fenced"
