"""HyperShift's NodePools: reading them, Evenkeel's replicas, and pinning."""

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
from evenkeel.domain.rebalancing.bounds.exact_fences import exact_fences
from tests import objects
from tests.builders import NOW, group, owned, pool_plan
from tests.objects import ZONES, Object
from tests.parts import make, replace
from tests.stack import Stack

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
    """Return the groups of these NodePools, by zone."""
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


# -- replicas


@pytest.mark.parametrize("least", [0, 1, 2])
def test_replicas_that_we_set_are_a_fence_with_the_published_minimum(least: int) -> None:
    published = PublishedBounds(at=NOW, bounds=Bounds(least, 2), state=State.FENCED, pinned=True)
    note = write_published(published, 2, "a test")
    found = only(node_pool(ZONES[0], replicas=2, note=note))
    assert (found.ours.pinned, found.frozen_because, found.bounds) == (True, None, Bounds(least, 2))
    assert found.owner.numbers is not None
    assert found.owner.numbers.max_field == "spec.replicas"
    scaled = only(node_pool(ZONES[0], autoScaling=SCALING, note=note))
    assert (scaled.ours.pinned, scaled.frozen_because, scaled.bounds) == (False, None, Bounds(0, 4))


@pytest.mark.parametrize(
    ("platform", "zone"),
    [
        ({"azure": {"availabilityZone": "1"}}, "1"),
        ({"gcp": {"zone": "europe-west3-a"}}, "europe-west3-a"),
        ({"openstack": {"availabilityZone": "nova"}}, "nova"),
        ({"aws": {"subnet": {"id": "subnet-1"}}}, None),
    ],
)
def test_the_platform_has_the_zone_where_the_scalable_does_not(platform: dict[str, Any], zone: str | None) -> None:
    pool = node_pool("first", autoScaling=SCALING, platform=platform)
    item = copy.deepcopy(objects.cluster_api("first", 2, annotations={MADE_FROM: "clusters/first"}))
    del item["spec"]["template"]["spec"]["failureDomain"]
    found, _ = read_groups(Listing(flavour=CLUSTER_API, objects={"MachineDeployment": [item], "NodePool": [pool]}))
    assert [one.group.identity.zone for one in found] == [zone]


@pytest.mark.parametrize(
    ("replicas", "note"),
    [
        (2, None),
        (3, decision(2)),  # another writer
        (2, decision(2, pinned=False)),
        (2, "edited"),
        (2, json.dumps({"pinned": True})),
        ("2", decision(2)),
    ],
)
def test_other_replicas_freeze_the_group(replicas: Any, note: str | None) -> None:
    found = only(node_pool(ZONES[0], replicas=replicas, note=note))
    assert not found.ours.pinned
    assert found.frozen_because is not None
    assert found.frozen_because.rule == "owner-sets-replicas"


def test_each_hosted_cluster_has_its_own_scaled_pools() -> None:
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
        ("2026-01-01T00:00:00Z", None, 3, True),  # not reconciled yet
        ("2026-01-01T00:00:00Z", "False", 3, True),
        ("2026-01-01T00:00:00Z", "True", 3, False),  # over, says the operator
        ("2026-01-01T00:00:00Z", "True", 2, True),  # and that was of another spec
    ],
)
def test_a_paused_pool_is_frozen(until: str | None, active: str | None, seen: int, paused: bool) -> None:
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


def test_both_sizes_are_written_in_one_patch() -> None:
    (found,) = read(node_pool(ZONES[0], autoScaling=SCALING)).values()
    assert patch_of(found, Bounds(1, 3)) == {
        "metadata": {"annotations": {"x": "y"}},
        "spec": {"autoScaling": {"min": 1, "max": 3}, "replicas": None},
    }
    assert found.owner.pin(0) == {"autoScaling": None, "replicas": 0}
    assert isinstance(found.owner, NodePool)


def test_a_decision_says_whether_replicas_are_pinned() -> None:
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
    """Return a NodePool of at most ten nodes."""
    bounds = Bounds(0, max(wanted, 0 if pinned else 10))
    one = owned(zone, bounds, requested=wanted)
    key = group(zone, pool="workers").key
    fields = {"pinning": Pinning(cluster="c", scaled=frozenset({"uid-b", "uid-c"})), **fields}
    published = PublishedBounds(at=NOW, bounds=bounds, state=State.FENCED, pinned=True) if pinned else None
    return replace(
        one, key=key, pool_label="workers", running=running, least_max=1, lowers_replicas=True, machines=(),
        pinned=pinned, published=published, **fields,
    )  # fmt: skip


def stored(*zones: str, ours: Bounds) -> dict[Any, PoolState]:
    id = plan_for([pinnable("a", 0, 0), pinnable("b", 1, 1)]).id
    desired_bounds = {f"uid-{zone}": DesiredBounds(bounds=Bounds(0, 10), ours=(ours,)) for zone in zones}
    return {id: PoolState(desired_bounds=desired_bounds)}


def plan_for(groups: list[NodeGroup], *, switch: bool = True, autoscaler: bool = True, **state: Any) -> PoolPlan:
    rule = PoolRule(name="workers", min=0, max=12)
    policy = make(Policy, strategy=BALANCED, pools=(rule,), autoscaler=autoscaler, pins_fenced=switch)
    return pool_plan(groups, policy, **state)


@pytest.mark.parametrize(
    ("switch", "fields", "pins", "replicas"),
    [(True, {}, True, 0), (False, {}, False, 1), (True, {"fencing_enabled": False}, False, 0)],
    ids=["pinned", "without the switch", "with its fence off"],
)
def test_a_fenced_group_is_pinned_and_its_last_stuck_replica_goes_too(
    switch: bool, fields: dict[str, Any], pins: bool, replicas: int
) -> None:
    groups = [pinnable("a", 2, 0, **fields), pinnable("b", 2, 2), pinnable("c", 2, 2)]
    found = plan_for(groups, switch=switch, fenced=("a",))
    assert (found.groups[0].pins, found.groups[0].requested) == (pins, replicas)
    assert not any(one.pins for one in found.groups[1:])
    if not fields:
        assert found.groups[0].bounds == Bounds(0, replicas)
    if pins:
        assert sum(one.bounds.max for one in found.groups if one.bounds) == 12, "nothing is kept free for it"


@pytest.mark.parametrize(("platform", "least"), [("AWS", 0), ("Azure", 0), ("GCP", 1), ("OpenStack", 1)])
def test_the_least_minimum_depends_on_the_platform(platform: str, least: int) -> None:
    pool = node_pool(ZONES[0], autoScaling={"min": 1, "max": 4}, platform={"type": platform})
    assert only(pool).owner.least_min == least


def test_a_fence_keeps_the_least_minimum_unless_it_is_pinned() -> None:
    groups = [pinnable("a", 2, 0, least_min=1), pinnable("b", 2, 2), pinnable("c", 2, 2)]
    for autoscaler in (True, False):
        (first, *_) = plan_for(groups, switch=False, fenced=("a",), autoscaler=autoscaler).groups
        assert (first.requested, first.bounds) == (1, Bounds(1, 1))
        assert "stuck-by-owner" in [reason.rule for reason in first.reasons]
    (first, *_) = plan_for(groups, fenced=("a",)).groups
    assert (first.requested, first.bounds) == (0, Bounds(0, 0))


def test_the_last_scaled_pool_is_not_pinned() -> None:
    alone = Pinning(cluster="c", scaled=frozenset({"uid-a"}))
    groups = [pinnable("a", 2, 0, pinning=alone), replace(pinnable("b", 2, 2), pinning=None, lowers_replicas=False)]
    (first, _) = plan_for(groups, fenced=("a",)).groups
    assert (first.pins, first.requested, first.bounds) == (False, 1, Bounds(0, 1))


@pytest.mark.parametrize(("switch", "state"), [(True, {"probing": ("a",)}), (False, {"fenced": ("a",)}), (True, {})])
def test_a_pin_ends_with_the_fence_or_the_switch(switch: bool, state: dict[str, Any]) -> None:
    groups = [pinnable("a", 2, 2, pinned=True), pinnable("b", 2, 2), pinnable("c", 2, 2)]
    known = stored("a", ours=Bounds(0, 2))
    found = plan_for(groups, switch=switch, adopted=known, **state)
    assert (found.groups[0].pins, found.groups[0].group.ours.pinned) == (False, True)
    assert found.groups[0].changes
    assert found.max == 12
    (first, *_) = plan_for(groups, adopted=known, fenced=("a",)).groups
    assert (first.pins, bool(first.changes)) == (True, False), "a pin is not written again"


@pytest.mark.parametrize(
    "known", [{}, stored("a", ours=Bounds(0, 5)), stored("b", ours=Bounds(0, 2))], ids=["none", "5", "b"]
)
def test_a_copy_of_our_pin_is_frozen(known: dict[Any, PoolState]) -> None:
    groups = [pinnable("a", 2, 2, pinned=True), pinnable("b", 2, 2), pinnable("c", 2, 2)]
    (first, *_) = plan_for(groups, adopted=known).groups
    assert first.state is State.FROZEN
    assert (first.pins, first.changes) == (True, False)


# -- runs


def stack(**fields: Any) -> Stack:
    """Return a cluster whose zone a has failed."""
    groups = [pinnable(zone, 2, 2) for zone in "abc"]
    found = Stack(groups, node_pool_fence=True, pools=[{"name": "workers", "min": 0, "max": 12}], **fields)
    found.fail("a")
    return found


def stand(found: Stack) -> list[tuple[bool, int, Bounds | None]]:
    return [(one.ours.pinned, one.requested, one.bounds) for one in found.cluster.groups.values()]


def at_owners(found: Stack) -> None:
    """Let the owners have the written bounds."""
    for key, one in found.cluster.groups.items():
        if one.owner.numbers is not None and one.bounds is not None:
            scaled = frozenset(
                other.owner.numbers.ref.id
                for other in found.cluster.groups.values()
                if other.owner.numbers and not other.ours.pinned
            )
            pinning = Pinning(cluster="c", scaled=scaled)
            found.cluster.change(key, owner=replace(one.owner.numbers, bounds=one.bounds), pinning=pinning)


def test_the_desired_bounds_are_stored_and_restored() -> None:
    found = stack()
    found.run()
    at_owners(found)
    assert stand(found)[0] == (True, 2, Bounds(0, 2))
    ((_, state),) = found.state.pools.items()
    assert state.desired_bounds["uid-a"].bounds == Bounds(0, 10)
    assert Bounds(0, 2) in state.desired_bounds["uid-a"].ours
    found.ask("restore")
    found.run()
    assert stand(found) == [(False, 2, Bounds(0, 10))] * 3


def test_a_dry_run_pins_nothing() -> None:
    found = stack(dry_run=True)
    found.run()
    assert found.cluster.applied == []


def test_the_next_run_without_the_switch_ends_the_pin() -> None:
    found = stack()
    found.run()
    at_owners(found)
    record = found.store.load("demo").record.model_copy(update={"node_pool_fence": None})
    stored = found.store.load("demo")
    found.store.save_record(record, stored.control, stored.versions)
    found.run()
    assert stand(found)[0] == (False, 2, Bounds(0, 2))


def test_a_writer_that_reverts_the_pin_makes_it_contested() -> None:
    found = stack()
    for _ in range(5):
        found.run()
        at_owners(found)
        key = next(iter(found.cluster.groups))
        if found.cluster.groups[key].ours.pinned:
            found.cluster.change(key, pinned=False)
        found.clock.sleep(60)
    assert found.state.groups[key].contest.contested_since is not None


@pytest.mark.parametrize("scaled", ["a", "b", "c"])
def test_of_fences_in_all_zones_the_scaled_pool_stays_scaled(scaled: str) -> None:
    only_one = Pinning(cluster="c", scaled=frozenset({f"uid-{scaled}"}))
    groups = [pinnable(zone, 0, 0, pinned=zone != scaled, pinning=only_one) for zone in "abc"]
    pinned = [one for one in groups if one.ours.pinned]
    assert exact_fences(groups, pinned) == {one.key for one in pinned}
