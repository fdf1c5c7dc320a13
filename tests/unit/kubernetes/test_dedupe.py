"""OpenShift's move to Cluster API: the API with authority is written, twins count once, lost bounds are reported."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.adapters.kubernetes.read.dedupe import counted_once
from evenkeel.adapters.kubernetes.read.groups import GroupObjects, Listing, read_groups
from evenkeel.texts.english import sentence
from tests import objects
from tests.objects import ZONES, Object, moving, twin

AUTHORITIES = [None, "MachineAPI", "ClusterAPI", "Migrating"]


def groups_of(*items: Object) -> list[GroupObjects]:
    """Return the groups of both APIs, before the search for twins."""
    found = []
    for name in ("openshift", "cluster-api"):
        mine = [item for item in items if item["apiVersion"].startswith(FLAVOURS[name].group)]
        found += read_groups(Listing(flavour=FLAVOURS[name], objects={"MachineSet": mine}))[0]
    return found


def frozen(item: Object) -> str | None:
    (member,) = groups_of(item)
    reason = member.group.frozen_because
    return None if reason is None else sentence(reason)


def pool(*authorities: tuple[str | None, str | None], label: str = "worker") -> list[Object]:
    """Return one MachineSet per zone with the authorities of its spec and status, and the twin of each."""
    sets = [
        moving(objects.openshift(zone, 2, pool=label, bounds=(1, 4)), *pair)
        for zone, pair in zip(ZONES, authorities, strict=False)
    ]
    return [*sets, *map(twin, sets)]


MINE, MOVED, MOVING = ("MachineAPI", "MachineAPI"), ("ClusterAPI", "ClusterAPI"), ("ClusterAPI", "Migrating")


class TestAuthority:
    @pytest.mark.parametrize("pair", [(None, None), MINE, ("MachineAPI", None), (None, "MachineAPI")])
    def test_a_machine_set_is_written_where_spec_and_status_agree_on_machine_api(self, pair: Any) -> None:
        assert frozen(moving(objects.openshift(ZONES[0], 2), *pair)) is None

    @pytest.mark.parametrize(
        ("pair", "says"),
        [
            (MOVED, "status.authoritativeAPI is 'ClusterAPI': another API owns the object"),
            (MOVING, "spec.authoritativeAPI is 'ClusterAPI', status.authoritativeAPI is 'Migrating'; Evenkeel"),
            (("MachineAPI", "Migrating"), "spec.authoritativeAPI is 'MachineAPI', status.authoritativeAPI is 'M"),
            (("ClusterAPI", "MachineAPI"), "the object moves between two APIs: spec.authoritativeAPI is 'ClusterAPI'"),
            (("MachineAPI", "ClusterAPI"), "the object moves between two APIs"),
            (("ClusterAPI", None), "status.authoritativeAPI is ''"),
            (("Migrating", "Migrating"), "the object moves between two APIs"),
        ],
    )
    def test_everywhere_else_it_is_frozen_with_the_reason(self, pair: Any, says: str) -> None:
        assert says in (frozen(moving(objects.openshift(ZONES[0], 2), *pair)) or "")


class TestTwins:
    @pytest.mark.parametrize(
        ("pair", "flavour", "ends"),
        [
            (MINE, "openshift", "is counted until the whole pool has moved to Cluster API"),
            (MOVED, "cluster-api", "is counted instead, because the pool has moved to Cluster API"),
        ],
    )
    def test_the_twins_of_one_api_count_and_are_written(self, pair: Any, flavour: str, ends: str) -> None:
        counted, skipped = counted_once(groups_of(*pool(pair, pair, pair)))
        assert {(member.group.key.flavour, member.group.frozen_because) for member in counted} == {(flavour, None)}
        assert len(skipped) == 3
        assert all(sentence(one.reason).endswith(ends) for one in skipped)
        assert {one.namespace for one in skipped} == {f"openshift-{'machine' if pair is MOVED else 'cluster'}-api"}

    @pytest.mark.parametrize("others", [MINE, MOVING, ("MachineAPI", "ClusterAPI")])
    def test_a_pool_moves_as_a_whole_and_moved_members_are_not_written(self, others: Any) -> None:
        counted, _ = counted_once(groups_of(*pool(MOVED, others, MOVED)))
        assert [member.group.key.flavour for member in counted] == ["openshift"] * 3
        reasons = [member.group.frozen_because for member in counted]
        assert reasons[0] is not None
        assert reasons[2] is not None

    def test_a_member_without_a_twin_delays_its_pool(self) -> None:
        items = [item for item in pool(MOVED, MOVED) if item["metadata"]["namespace"] == "openshift-machine-api"]
        counted, _ = counted_once(groups_of(*items, twin(items[0])))
        assert [member.group.key.flavour for member in counted] == ["openshift"] * 2

    def test_another_pool_moves_by_itself(self) -> None:
        counted, _ = counted_once(groups_of(*pool(MOVED, MOVED), *pool(MINE, MINE, label="infra")))
        assert sorted(member.group.key.flavour for member in counted) == ["cluster-api"] * 2 + ["openshift"] * 2

    def test_a_machine_set_of_cluster_api_alone_is_a_group(self) -> None:
        own = twin(objects.openshift(ZONES[0], 1, pool="own"))
        counted, skipped = counted_once(groups_of(*pool(MINE), own))
        assert [member.group.key.flavour for member in counted] == ["openshift", "cluster-api"]
        assert len(skipped) == 1

    @given(st.lists(st.tuples(st.sampled_from(AUTHORITIES), st.sampled_from(AUTHORITIES)), min_size=1, max_size=3))
    def test_every_pair_counts_once(self, authorities: list[tuple[str | None, str | None]]) -> None:
        counted, skipped = counted_once(groups_of(*pool(*authorities)))
        names = [member.group.key.name for member in counted]
        assert len(names) == len(set(names)) == len(authorities) == len(skipped)
        assert len({member.group.key.flavour for member in counted}) == 1
        zoned = zip(ZONES, authorities, strict=False)
        by_name = {objects.openshift(zone, 2)["metadata"]["name"]: pair for zone, pair in zoned}
        for member in counted:
            wanted, found = by_name[member.group.key.name]
            if member.group.frozen_because is None:
                authority = {"openshift": "MachineAPI", "cluster-api": "ClusterAPI"}[member.group.key.flavour]
                assert (wanted or "MachineAPI", found or "MachineAPI") == (authority, authority)


class TestLostBounds:
    def test_they_are_reported_with_the_keys_to_set(self) -> None:
        (member,) = groups_of(twin(objects.openshift(ZONES[0], 2, bounds=(1, 4))))
        (note,) = member.group.unreadable.notes
        assert member.group.bounds is None
        assert str(note).endswith(
            "set cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size: '1', "
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size: '4'"
        )

    def test_nothing_is_lost_with_keys_of_its_own_or_without_bounds(self) -> None:
        item = twin(objects.openshift(ZONES[0], 2, bounds=(1, 4)))
        item["metadata"]["annotations"] |= objects.bounds_of("cluster-api", 0, 9)
        (member,) = groups_of(item)
        assert (member.group.unreadable.notes, member.group.bounds and member.group.bounds.max) == ((), 9)
        (member,) = groups_of(twin(objects.openshift(ZONES[0], 2)))
        assert member.group.unreadable.notes == ()
