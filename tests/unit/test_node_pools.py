"""HyperShift's NodePools: what is read of them, whose replicas are, what is pinned, and what is remembered of it."""

import copy
import json
from typing import Any

import pytest

from evenkeel.adapters.kubernetes.flavours import CLUSTER_API
from evenkeel.adapters.kubernetes.owners.node_pool import MADE_FROM, NodePool
from evenkeel.adapters.kubernetes.read.groups import GroupObjects, Listing, read_groups
from evenkeel.domain.model.groups import Bounds, NodeGroup, Pinning, PublishedBounds, State
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.policy import Policy, PoolRule
from evenkeel.domain.model.states import DesiredBounds, PoolState
from evenkeel.domain.rebalancing.annotations import read_published, write_published
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.bounds.owners import exact_fences
from tests import objects
from tests.builders import NOW, group, owned, pool_plan, requested
from tests.house import House
from tests.objects import ZONES, Object
from tests.parts import make, replace

SCALING = {"min": 0, "max": 4}


def decision(maximum: int, *, pinned: bool = True) -> str:
    published = PublishedBounds(at=NOW, bounds=Bounds(0, maximum), state=State.FENCED, pinned=pinned)
    return write_published(published, maximum, "a test")


def node_pool(zone: str, *, note: str | None = None, cluster: str = "demo", **spec: Any) -> Object:
    return {
        "apiVersion": "hypershift.openshift.io/v1beta1",
        "kind": "NodePool",
        "metadata": {
            "name": zone,
            "namespace": "clusters",
            "uid": f"uid-{zone}",
            "generation": 3,
            "annotations": {} if note is None else {"evenkeel.dev/decision": note},
        },
        "spec": {"clusterName": cluster, **spec},
    }


def read(*pools: Object, replicas: int = 2) -> dict[str, GroupObjects]:
    """The groups of these NodePools, by zone."""
    made = []
    for pool in pools:
        item = copy.deepcopy(objects.cluster_api(pool["metadata"]["name"], replicas))
        item["metadata"]["annotations"][MADE_FROM] = f"clusters/{pool['metadata']['name']}"
        made.append(item)
    found, _ = read_groups(Listing(flavour=CLUSTER_API, objects={"MachineDeployment": made, "NodePool": list(pools)}))
    return {str(one.group.identity.zone): one for one in found}


def only(pool: Object, **fields: Any) -> NodeGroup:
    (found,) = read(pool, **fields).values()
    return found.group


# -- whose replicas are


def test_replicas_that_it_says_we_have_set_are_a_fence_and_what_we_wanted_stands() -> None:
    found = only(node_pool(ZONES[0], replicas=2, note=decision(2)))
    assert (found.ours.pinned, found.frozen_because, found.bounds) == (True, None, Bounds(0, 2))
    assert found.owner.numbers is not None
    assert found.owner.numbers.max_field == "spec.replicas"


@pytest.mark.parametrize("least", [0, 1, 2])
def test_the_minimum_of_a_pinned_one_is_the_one_that_we_have_published(least: int) -> None:
    published = PublishedBounds(at=NOW, bounds=Bounds(least, 2), state=State.FENCED, pinned=True)
    found = only(node_pool(ZONES[0], replicas=2, note=write_published(published, 2, "a test")))
    assert found.bounds == Bounds(least, 2)


@pytest.mark.parametrize(
    ("platform", "zone"),
    [
        ({"azure": {"availabilityZone": "1"}}, "1"),
        ({"gcp": {"zone": "europe-west3-a"}}, "europe-west3-a"),
        ({"openstack": {"availabilityZone": "nova"}}, "nova"),
        ({"aws": {"subnet": {"id": "subnet-1"}}}, None),
    ],
)
def test_it_says_its_zone_where_the_scalable_does_not(platform: dict[str, Any], zone: str | None) -> None:
    pool = node_pool("first", autoScaling=SCALING, platform=platform)
    item = copy.deepcopy(objects.cluster_api("first", 2, annotations={MADE_FROM: "clusters/first"}))
    del item["spec"]["template"]["spec"]["failureDomain"]
    found, _ = read_groups(Listing(flavour=CLUSTER_API, objects={"MachineDeployment": [item], "NodePool": [pool]}))
    assert [one.group.identity.zone for one in found] == [zone]


@pytest.mark.parametrize(
    ("replicas", "note"),
    [
        (2, None),
        (3, decision(2)),  # another number is somebody's
        (2, decision(2, pinned=False)),
        (2, "edited"),
        (2, json.dumps({"pinned": True})),
        ("2", decision(2)),
    ],
)
def test_any_other_replicas_are_somebodys(replicas: Any, note: str | None) -> None:
    found = only(node_pool(ZONES[0], replicas=replicas, note=note))
    assert not found.ours.pinned
    assert found.frozen_because is not None
    assert found.frozen_because.rule == "owner-sets-replicas"


def test_who_scales_again_is_not_pinned_whatever_we_wrote_there_before() -> None:
    found = only(node_pool(ZONES[0], autoScaling=SCALING, note=decision(2)))
    assert (found.ours.pinned, found.frozen_because, found.bounds) == (False, None, Bounds(0, 4))


def test_each_hosted_cluster_knows_its_own_pools_that_are_scaled() -> None:
    going = node_pool(ZONES[2], autoScaling=SCALING)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = read(
        node_pool(ZONES[0], autoScaling=SCALING),
        node_pool(ZONES[1], replicas=2, note=decision(2)),
        going,
        node_pool("elsewhere", cluster="other", autoScaling=SCALING),
    )
    first, second, *_ = (one.group.owner.pinning for one in found.values())
    assert first == second == Pinning(cluster="clusters/demo", scaled=frozenset({f"uid-{ZONES[0]}"}))


# -- pausedUntil


@pytest.mark.parametrize(
    ("until", "active", "seen", "paused"),
    [
        (None, None, 3, False),
        ("false", None, 3, False),
        ("true", "False", 3, True),
        ("2026-01-01T00:00:00Z", None, 3, True),  # nobody has looked at it yet
        ("2026-01-01T00:00:00Z", "False", 3, True),
        ("2026-01-01T00:00:00Z", "True", 3, False),  # over, says the operator
        ("2026-01-01T00:00:00Z", "True", 2, True),  # and that was of another spec
    ],
)
def test_a_paused_pool_is_left_alone(until: str | None, active: str | None, seen: int, paused: bool) -> None:
    pool = node_pool(ZONES[0], autoScaling=SCALING, **({} if until is None else {"pausedUntil": until}))
    if active is not None:
        condition = {"type": "ReconciliationActive", "status": active, "observedGeneration": seen}
        pool["status"] = {"conditions": [condition]}
    why = only(pool).frozen_because
    assert (why is not None) == paused
    assert why is None or why.rule == "owner-paused"


# -- patches


def patch_of(one: GroupObjects, bounds: Bounds) -> Any:
    return one.owner.patch(one.owner_object or {}, one.scalable, {"x": "y"}, bounds)


def test_both_sizes_are_written_at_once_since_they_exclude_each_other() -> None:
    (found,) = read(node_pool(ZONES[0], autoScaling=SCALING)).values()
    assert patch_of(found, Bounds(1, 3)) == {
        "metadata": {"annotations": {"x": "y"}},
        "spec": {"autoScaling": {"min": 1, "max": 3}, "replicas": None},
    }
    assert found.owner.pin(0) == {"autoScaling": None, "replicas": 0}
    assert isinstance(found.owner, NodePool)


def test_a_decision_says_whether_replicas_are_held_and_older_ones_say_they_are_not() -> None:
    for pinned in (True, False):
        published = read_published(decision(2, pinned=pinned))
        assert published is not None
        assert published.pinned is pinned
    older = json.loads(decision(2))
    del older["pinned"]
    newer = read_published(json.dumps({**older, "pinned": "yes", "more": 1}))
    assert newer is not None
    assert not newer.pinned


# -- plans


def pinnable(zone: str, wanted: int, running: int, *, pinned: bool = False, **fields: Any) -> NodeGroup:
    """A NodePool of ten nodes at most."""
    bounds = Bounds(0, max(wanted, 0 if pinned else 10))
    one = owned(zone, bounds, requested=wanted)
    key = group(zone, pool="workers").key
    fields = {"pinning": Pinning(cluster="c", scaled=frozenset({"uid-b", "uid-c"})), **fields}
    published = PublishedBounds(at=NOW, bounds=bounds, state=State.FENCED, pinned=True) if pinned else None
    return replace(
        one, key=key, pool_label="workers", running=running, least_max=1, lowers_replicas=True, machines=(),
        pinned=pinned, published=published, **fields,
    )  # fmt: skip


def remembered(*zones: str, ours: Bounds) -> dict[Any, PoolState]:
    id = plan_for([pinnable("a", 0, 0), pinnable("b", 1, 1)]).id
    desired_bounds = {f"uid-{zone}": DesiredBounds(bounds=Bounds(0, 10), ours=(ours,)) for zone in zones}
    return {id: PoolState(desired_bounds=desired_bounds)}


def plan_for(groups: list[NodeGroup], *, switch: bool = True, autoscaler: bool = True, **state: Any) -> PoolPlan:
    rule = PoolRule(name="workers", min=0, max=12)
    policy = make(Policy, strategy=BALANCED, pools=(rule,), autoscaler=autoscaler, pins_fenced=switch)
    return pool_plan(groups, policy, **state)


def test_a_fenced_group_is_pinned_and_its_last_stuck_replica_goes_too() -> None:
    found = plan_for([pinnable("a", 2, 0), pinnable("b", 2, 2), pinnable("c", 2, 2)], fenced=("a",))
    assert requested(found) == (0, 2, 2)
    assert (found.groups[0].pins, found.groups[0].bounds) == (True, Bounds(0, 0))
    assert not any(one.pins for one in found.groups[1:])
    assert sum(one.bounds.max for one in found.groups if one.bounds) == 12, "nothing is kept free for it"


def test_without_the_switch_one_stays_as_it_did() -> None:
    found = plan_for([pinnable("a", 2, 0), pinnable("b", 2, 2), pinnable("c", 2, 2)], switch=False, fenced=("a",))
    assert (found.groups[0].pins, found.groups[0].requested, found.groups[0].bounds) == (False, 1, Bounds(0, 1))


@pytest.mark.parametrize(("platform", "least"), [("AWS", 0), ("Azure", 0), ("GCP", 1), ("OpenStack", 1)])
def test_where_a_platform_cannot_come_back_from_zero_no_min_is_zero(platform: str, least: int) -> None:
    pool = node_pool(ZONES[0], autoScaling={"min": 1, "max": 4}, platform={"type": platform})
    assert only(pool).owner.least_min == least


def test_there_a_fence_keeps_a_replica_and_says_who_insists_unless_it_is_pinned() -> None:
    groups = [pinnable("a", 2, 0, least_min=1), pinnable("b", 2, 2), pinnable("c", 2, 2)]
    for autoscaler in (True, False):
        (first, *_) = plan_for(groups, switch=False, fenced=("a",), autoscaler=autoscaler).groups
        assert (first.requested, first.bounds) == (1, Bounds(1, 1))
        assert "stuck-by-owner" in [reason.rule for reason in first.reasons]
    (first, *_) = plan_for(groups, fenced=("a",)).groups
    assert (first.requested, first.bounds) == (0, Bounds(0, 0))


def test_the_last_that_is_scaled_keeps_the_plain_fence() -> None:
    alone = Pinning(cluster="c", scaled=frozenset({"uid-a"}))
    groups = [pinnable("a", 2, 0, pinning=alone), replace(pinnable("b", 2, 2), pinning=None, lowers_replicas=False)]
    (first, _) = plan_for(groups, fenced=("a",)).groups
    assert (first.pins, first.requested, first.bounds) == (False, 1, Bounds(0, 1))


@pytest.mark.parametrize(("switch", "state"), [(True, {"probing": ("a",)}), (False, {"fenced": ("a",)}), (True, {})])
def test_whoever_is_fenced_no_more_or_not_by_the_switch_is_let_go(switch: bool, state: dict[str, Any]) -> None:
    groups = [pinnable("a", 2, 2, pinned=True), pinnable("b", 2, 2), pinnable("c", 2, 2)]
    found = plan_for(groups, switch=switch, adopted=remembered("a", ours=Bounds(0, 2)), **state)
    assert (found.groups[0].pins, found.groups[0].group.ours.pinned) == (False, True)
    assert found.groups[0].changes
    assert found.max == 12


def test_a_fence_that_is_held_already_is_not_written_again() -> None:
    groups = [pinnable("a", 2, 2, pinned=True), pinnable("b", 2, 2), pinnable("c", 2, 2)]
    (first, *_) = plan_for(groups, adopted=remembered("a", ours=Bounds(0, 2)), fenced=("a",)).groups
    assert first.pins
    assert not first.changes


@pytest.mark.parametrize(
    "known", [{}, remembered("a", ours=Bounds(0, 5)), remembered("b", ours=Bounds(0, 2))], ids=["none", "5", "b"]
)
def test_a_copy_of_what_we_wrote_is_nobodys_fence_of_ours(known: dict[Any, PoolState]) -> None:
    groups = [pinnable("a", 2, 2, pinned=True), pinnable("b", 2, 2), pinnable("c", 2, 2)]
    (first, *_) = plan_for(groups, adopted=known).groups
    assert first.state is State.FROZEN
    assert (first.pins, first.changes) == (True, False)


def test_a_group_whose_fence_is_switched_off_is_not_pinned() -> None:
    groups = [pinnable("a", 2, 2, fencing_enabled=False), pinnable("b", 2, 2), pinnable("c", 2, 2)]
    assert not any(one.pins for one in plan_for(groups, fenced=("a",)).groups)


# -- with everything around it


def house(*, switch: bool = True) -> House:
    groups = [pinnable(zone, 2, 2) for zone in "abc"]
    return House(groups, node_pool_fence=switch, pools=[{"name": "workers", "min": 0, "max": 12}])


def stand(found: House) -> list[tuple[bool, int, Bounds | None]]:
    return [(one.ours.pinned, one.requested, one.bounds) for one in found.cluster.groups.values()]


def at_owners(found: House) -> None:
    """What stands at the owners is what was written there."""
    for key, one in found.cluster.groups.items():
        if one.owner.numbers is not None and one.bounds is not None:
            scaled = frozenset(
                other.owner.numbers.ref.id
                for other in found.cluster.groups.values()
                if other.owner.numbers and not other.ours.pinned
            )
            pinning = Pinning(cluster="c", scaled=scaled)
            found.cluster.change(key, owner=replace(one.owner.numbers, bounds=one.bounds), pinning=pinning)


def test_what_people_want_is_remembered_before_and_restore_brings_it_back() -> None:
    found = house()
    found.fail("a")
    found.run()
    at_owners(found)
    assert stand(found)[0] == (True, 2, Bounds(0, 2))
    ((_, state),) = found.state.pools.items()
    assert state.desired_bounds["uid-a"].bounds == Bounds(0, 10)
    assert Bounds(0, 2) in state.desired_bounds["uid-a"].ours
    found.ask("restore")
    found.run()
    assert stand(found) == [(False, 2, Bounds(0, 10))] * 3


def test_switched_off_it_is_let_go_by_the_next_run() -> None:
    found = house()
    found.fail("a")
    found.run()
    at_owners(found)
    record = found.store.load("demo").record.model_copy(update={"node_pool_fence": None})
    remembered = found.store.load("demo")
    found.store.save_record(record, remembered.control, remembered.versions)
    found.run()
    assert stand(found)[0] == (False, 2, Bounds(0, 2))


def test_in_dry_run_nobody_is_pinned() -> None:
    groups = [pinnable(zone, 2, 2) for zone in "abc"]
    pools = [{"name": "workers", "min": 0, "max": 12}]
    found = House(groups, node_pool_fence=True, pools=pools, dry_run=True)
    found.fail("a")
    found.run()
    assert found.cluster.applied == []


def test_who_puts_autoscaling_back_three_times_is_left_the_field_also_where_its_max_is_the_same() -> None:
    found = house()
    found.fail("a")
    for _ in range(5):
        found.run()
        at_owners(found)
        key = next(iter(found.cluster.groups))
        if found.cluster.groups[key].ours.pinned:
            found.cluster.change(key, pinned=False)
        found.clock.sleep(60)
    assert found.state.groups[key].contested_since is not None


@pytest.mark.parametrize("scaled", ["a", "b", "c"])
def test_of_fences_in_all_zones_the_one_that_is_scaled_now_stays_so(scaled: str) -> None:
    only_one = Pinning(cluster="c", scaled=frozenset({f"uid-{scaled}"}))
    groups = [pinnable(zone, 0, 0, pinned=zone != scaled, pinning=only_one) for zone in "abc"]
    pinned = [one for one in groups if one.ours.pinned]
    assert exact_fences(groups, pinned) == {one.key for one in pinned}
