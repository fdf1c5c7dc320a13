"""OpenShift's move to Cluster API: who has the authority is written, twins count once, lost bounds are told."""

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
    """The groups of both APIs, before twins are looked for."""
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
    """One MachineSet per zone with what its spec and status say, and the twin of each."""
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
            (MOVED, "status.authoritativeAPI is 'ClusterAPI': another API owns it"),
            (
                MOVING,
                "spec.authoritativeAPI is 'ClusterAPI', status.authoritativeAPI is 'Migrating'; Evenkeel writes",
            ),
            (
                ("MachineAPI", "Migrating"),
                "spec.authoritativeAPI is 'MachineAPI', status.authoritativeAPI is 'Migrating'",
            ),
            (("ClusterAPI", "MachineAPI"), "it moves between two APIs: spec.authoritativeAPI is 'ClusterAPI'"),
            (("MachineAPI", "ClusterAPI"), "it moves between two APIs"),
            (("ClusterAPI", None), "status.authoritativeAPI is ''"),
            (("Migrating", "Migrating"), "it moves between two APIs"),
        ],
    )
    def test_everywhere_else_it_is_frozen_with_the_reason(self, pair: Any, says: str) -> None:
        assert says in (frozen(moving(objects.openshift(ZONES[0], 2), *pair)) or "")


class TestTwins:
    def test_before_the_move_machine_apis_count(self) -> None:
        counted, skipped = counted_once(groups_of(*pool(MINE, MINE, MINE)))
        assert {member.group.key.flavour for member in counted} == {"openshift"}
        assert len(skipped) == 3
        assert sentence(skipped[0].reason).endswith("which counts until the whole pool has moved to Cluster API")

    def test_after_it_cluster_apis_count_and_are_written(self) -> None:
        counted, skipped = counted_once(groups_of(*pool(MOVED, MOVED, MOVED)))
        assert {(member.group.key.flavour, member.group.frozen_because) for member in counted} == {
            ("cluster-api", None)
        }
        assert {(one.namespace, sentence(one.reason)[-41:]) for one in skipped} == {
            ("openshift-machine-api", "counts: the pool has moved to Cluster API")
        }

    @pytest.mark.parametrize("others", [MINE, MOVING, ("MachineAPI", "ClusterAPI")])
    def test_a_pool_moves_as_a_whole_and_those_that_went_ahead_are_not_written(self, others: Any) -> None:
        counted, _ = counted_once(groups_of(*pool(MOVED, others, MOVED)))
        assert [member.group.key.flavour for member in counted] == ["openshift"] * 3
        reasons = [member.group.frozen_because for member in counted]
        assert reasons[0] is not None
        assert reasons[2] is not None

    def test_one_without_a_twin_holds_its_pool_back(self) -> None:
        items = [item for item in pool(MOVED, MOVED) if item["metadata"]["namespace"] == "openshift-machine-api"]
        counted, _ = counted_once(groups_of(*items, twin(items[0])))
        assert [member.group.key.flavour for member in counted] == ["openshift"] * 2

    def test_another_pool_is_none_of_its_business(self) -> None:
        counted, _ = counted_once(groups_of(*pool(MOVED, MOVED), *pool(MINE, MINE, label="infra")))
        assert sorted(member.group.key.flavour for member in counted) == ["cluster-api"] * 2 + ["openshift"] * 2

    def test_a_set_of_cluster_apis_own_is_a_group_as_any(self) -> None:
        own = twin(objects.openshift(ZONES[0], 1, pool="own"))
        counted, skipped = counted_once(groups_of(*pool(MINE), own))
        assert [member.group.key.flavour for member in counted] == ["openshift", "cluster-api"]
        assert len(skipped) == 1

    @given(st.lists(st.tuples(st.sampled_from(AUTHORITIES), st.sampled_from(AUTHORITIES)), min_size=1, max_size=3))
    def test_every_pair_counts_exactly_once_in_one_flavour_and_only_its_authority_is_written(
        self, authorities: list[tuple[str | None, str | None]]
    ) -> None:
        counted, skipped = counted_once(groups_of(*pool(*authorities)))
        names = [member.group.key.name for member in counted]
        assert len(names) == len(set(names)) == len(authorities) == len(skipped)
        assert len({member.group.key.flavour for member in counted}) == 1
        by_name = {
            objects.openshift(zone, 2)["metadata"]["name"]: pair for zone, pair in zip(ZONES, authorities, strict=False)
        }
        for member in counted:
            wanted, found = by_name[member.group.key.name]
            if member.group.frozen_because is None:
                authority = {"openshift": "MachineAPI", "cluster-api": "ClusterAPI"}[member.group.key.flavour]
                assert (wanted or "MachineAPI", found or "MachineAPI") == (authority, authority)


class TestLostBounds:
    def test_they_are_told_with_the_keys_to_set(self) -> None:
        (member,) = groups_of(twin(objects.openshift(ZONES[0], 2, bounds=(1, 4))))
        (note,) = member.group.unreadable.notes
        assert member.group.bounds is None
        assert str(note).endswith(
            "set cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size: '1', "
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size: '4'"
        )

    def test_with_keys_of_its_own_nothing_is_lost(self) -> None:
        item = twin(objects.openshift(ZONES[0], 2, bounds=(1, 4)))
        item["metadata"] = {
            **item["metadata"],
            "annotations": item["metadata"]["annotations"] | objects.bounds_of("cluster-api", 0, 9),
        }
        (member,) = groups_of(item)
        assert (member.group.unreadable.notes, member.group.bounds and member.group.bounds.max) == ((), 9)

    def test_a_group_that_never_had_any_is_told_nothing(self) -> None:
        (member,) = groups_of(twin(objects.openshift(ZONES[0], 2)))
        assert member.group.unreadable.notes == ()
