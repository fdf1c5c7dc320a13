"""Bounds in a Cluster's topology are held unless the record allows writes to it, and then applied."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters.kubernetes.flavours import CLUSTER_API
from evenkeel.adapters.kubernetes.objects import applied_by_us
from evenkeel.adapters.kubernetes.read.groups import GroupObjects, Listing, read_groups
from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.groups import Bounds, NodeGroup, OwnerRef, State
from evenkeel.domain.model.plans import GroupPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.problems import ProblemKind
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from evenkeel.domain.rebalancing.writes import fence_first, patches
from evenkeel.texts.english import sentences
from tests import objects
from tests.builders import group, numbers, owned, pool_plan, problems_of, requested, written
from tests.fakes import register_again
from tests.objects import ZONES, Object
from tests.parts import replace
from tests.stack import Stack

PLACE = "spec.topology.workers.machineDeployments[{}].metadata.annotations"
ENTRIES = ("f:spec", "f:topology", "f:workers", "f:machineDeployments")


def topology(zone: str, bounds: tuple[int, int] = (0, 4), nodes: int = 2, **fields: Any) -> NodeGroup:
    found = owned(zone, Bounds(*bounds), requested=nodes, uid="uid-of-the-cluster")
    assert found.owner.numbers is not None
    ref = OwnerRef(kind="Cluster", namespace="default", name="demo", part=zone, uid="uid-of-the-cluster")
    field = f"{PLACE.format(zone)}[{CLUSTER_API.max_key}]"
    owner = replace(found.owner.numbers, ref=ref, max_field=field, needs_consent=True)
    return replace(found, owner=owner, **fields)


def stack(groups: list[NodeGroup] | None = None, **fields: Any) -> Stack:
    return Stack(groups or [topology(zone) for zone in "abc"], **{"pools": [], **fields})


UNEVEN = [topology("a", nodes=4), topology("b", nodes=0), topology("c", nodes=0)]


def wants(*, leave: bool = False, autoscaler: bool = True, **fields: Any) -> Policy:
    return replace(numbers(**fields), write_topology=leave, autoscaler=autoscaler)


# -- held


def test_held_bounds_stay_and_the_pool_names_owner_and_consent() -> None:
    found = pool_plan([topology("a", nodes=4), topology("b", nodes=0)], wants(minimum=0, maximum=8))
    assert [plan.bounds for plan in found.groups] == [Bounds(0, 4), Bounds(0, 4)]
    assert not any(plan.changes for plan in found.groups)
    (problem,) = [text for text in problems_of(found.report.problems) if "write_topology" in text]
    assert "Cluster default/demo" in problem
    for zone in "ab":
        assert f"{PLACE.format(zone)}[{CLUSTER_API.max_key}]" in problem
    for file in ("rbac-topology.yaml", "admission-policy-topology.yaml"):
        assert f"deploy/kubernetes/cluster-api/{file}" in problem or file in problem


@pytest.mark.parametrize("leave", [False, True])
def test_held_bounds_are_reported_once_and_written_with_consent(leave: bool) -> None:
    found = stack(UNEVEN, write_topology=leave)
    found.runs(3)
    reported = [decision for decision in found.decisions() if "bounds-held" in str(decision["pool"]["problemRules"])]
    assert bool(found.cluster.applied) is leave
    if leave:
        assert all(patch.bounds is not None for patch in found.cluster.applied)
        assert reported == []
        return
    assert len(reported) == len(found.decisions()) == 1
    found.queue.requests.clear()
    found.checks()
    assert found.queue.requests == {}


def test_below_pool_minimum_replicas_rise_inside_held_bounds() -> None:
    found = stack(
        [topology("a", (0, 2)), topology("b", (0, 9)), topology("c", (0, 9))], pools=[{"name": "workers", "min": 9}]
    )
    found.runs(2)
    assert [one.requested for one in found.cluster.groups.values()] in ([2, 4, 3], [2, 3, 4])
    assert all(patch.bounds is None for patch in found.cluster.applied)
    assert [one.bounds for one in found.cluster.groups.values()] == [Bounds(0, 2), Bounds(0, 9), Bounds(0, 9)]


@pytest.mark.parametrize("on_failure", [OnFailure.RELEASE, OnFailure.MOVE])
def test_beside_an_autoscaler_stuck_replicas_stay_in_held_bounds(on_failure: OnFailure) -> None:
    stuck = topology("a", nodes=4, running=1)
    found = pool_plan(
        [stuck, topology("b"), topology("c")], wants(minimum=0, maximum=12, on_failure=on_failure), fenced="a"
    )
    assert requested(found) == (4, 2, 2)
    (failing, *_) = found.groups
    assert failing.state is State.FENCED
    assert any(reason.rule is Rule.STUCK_OFFERED for reason in failing.reasons)
    assert fence_first(failing) is None


def test_without_an_autoscaler_stuck_replicas_move_inside_held_bounds() -> None:
    groups = [topology("a", nodes=4, running=1), topology("b", (0, 3)), topology("c", (0, 9))]
    found = pool_plan(groups, wants(autoscaler=False, minimum=0, maximum=16, on_failure=OnFailure.MOVE), fenced="a")
    assert requested(found) == (1, 3, 4) or requested(found) == (1, 2, 5)
    for plan in found.groups:
        assert [patch.bounds for patch in patches(plan)] == [None] * len(patches(plan))


def test_nodes_above_the_pool_maximum_stay_in_groups_with_held_bounds() -> None:
    pool = pool_plan([topology("a", nodes=4, running=1), topology("b")], wants(minimum=0, maximum=3))
    assert requested(pool) == (4, 2)
    assert pool.mode.valid
    assert [problem.kind for problem in pool.report.problems] == [ProblemKind.BOUNDS_HELD, ProblemKind.OVER_COMMITTED]
    assert pool.next_state.desired_bounds == {}


def test_room_in_held_bounds_is_taken_from_the_other_groups() -> None:
    ours = group("b", 2, bounds=(0, 9))
    found = pool_plan([topology("a", (0, 6), nodes=2), ours], wants(minimum=12, maximum=12))
    assert sum(plan.bounds.max for plan in found.groups if plan.bounds) <= 12


def test_replicas_above_held_bounds_fall_without_the_bounds() -> None:
    plan = GroupPlan(
        group=replace(topology("a", (0, 2), nodes=5), bounds_held=True),
        state=State.FENCED,
        requested=1,
        bounds=Bounds(0, 2),
        reasons=(),
    )
    assert fence_first(plan) is None
    assert [(patch.bounds, patch.requested) for patch in patches(plan)] == [(None, 1)]


@given(
    replicas=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    tops=st.lists(st.integers(0, 9), min_size=4, max_size=4),
    running=st.lists(st.integers(0, 9), min_size=4, max_size=4),
    minimum=st.integers(0, 20),
    extra=st.integers(0, 20),
    fenced=st.sets(st.sampled_from("abcd")),
    strategy=st.sampled_from(STRATEGIES),
    on_failure=st.sampled_from(OnFailure),
    autoscaler=st.booleans(),
)
def test_held_bounds_stay_and_contain_the_replicas_of_any_pool(
    replicas: list[int],
    tops: list[int],
    running: list[int],
    minimum: int,
    extra: int,
    fenced: set[str],
    strategy: Any,
    on_failure: OnFailure,
    autoscaler: bool,
) -> None:
    groups = [
        topology(zone, (min(1, nodes), max(top, nodes)), nodes, running=min(up, nodes))
        for zone, nodes, top, up in zip("abcd", replicas, tops, running, strict=False)
    ]
    policy = wants(
        autoscaler=autoscaler, minimum=minimum, maximum=minimum + extra, strategy=strategy, on_failure=on_failure
    )
    found = pool_plan(groups, policy, fenced=fenced)
    for plan, before in zip(found.groups, sorted(groups, key=lambda one: str(one.identity.zone)), strict=True):
        assert plan.bounds == before.bounds
        assert before.bounds is not None
        assert before.bounds.min <= plan.requested <= before.bounds.max
        assert all(patch.bounds is None for patch in patches(plan))
        after = written(plan)
        assert after.bounds == before.bounds


# -- switched off again, and restored


def test_switched_off_the_desired_bounds_return_and_are_held() -> None:
    found = stack(UNEVEN, write_topology=True)
    found.runs(2)
    assert any(one.bounds != Bounds(0, 4) for one in found.cluster.groups.values())
    register_again(found.store, found.record.model_copy(update={"write_topology": None}))
    found.settle()
    assert {one.bounds for one in found.cluster.groups.values()} == {Bounds(0, 4)}
    assert not any(one.has_ours_with_bounds for one in found.cluster.groups.values())
    (state,) = found.state.pools.values()
    assert not state.desired_bounds


def test_held_bounds_without_our_marks_are_desired() -> None:
    found = stack(UNEVEN, write_topology=True)
    found.runs(2)
    ours = found.cluster.groups[topology("b").key].bounds
    assert ours is not None
    register_again(found.store, found.record.model_copy(update={"write_topology": False}))
    found.settle()
    for one in list(found.cluster.groups.values()):
        assert one.owner.numbers is not None
        found.cluster.change(one.key, bounds=ours, copied=ours, owner=replace(one.owner.numbers, bounds=ours))
    (pool,) = found.ask("status")["pools"]
    assert pool["max"] == 3 * ours.max


def test_a_restore_of_a_mark_keeps_held_bounds() -> None:
    found = stack([topology("a", move="01JH0000000000000000000000"), topology("b"), topology("c")])
    found.ask("restore")
    found.run()
    (patch,) = found.cluster.applied
    assert patch.leaves
    assert (patch.bounds, patch.plan.reasons[0].rule) == (Bounds(0, 4), Rule.RESTORED_WITHOUT_BOUNDS)


def test_the_writer_before_us_is_named_where_bounds_are_taken() -> None:
    def by(zone: str, manager: str, nodes: int) -> NodeGroup:
        one = topology(zone, nodes=nodes)
        assert one.owner.numbers is not None
        return replace(one, owner=replace(one.owner.numbers, set_by=manager))

    found = pool_plan([by("a", "flux", 4), by("b", "", 0)], wants(leave=True, minimum=0, maximum=8))
    (first, second) = found.groups
    assert any("taken over from flux" in text for text in sentences(first.reasons)) == (first.bounds != Bounds(0, 4))
    assert not any("taken from" in text for text in sentences(second.reasons))


# -- read and applied


def owned_item() -> Object:
    return objects.topology_owned(objects.cluster_api(ZONES[0], 1), "a")


def cluster_of(*names: str, fields: Any = None) -> Object:
    found = objects.topology_cluster(*names)
    if fields is not None:
        found["metadata"]["managedFields"] = fields
    return found


def read(*items: Object) -> list[GroupObjects]:
    kinds: dict[str, list[Object]] = {}
    for item in items:
        kinds.setdefault(item["kind"], []).append(item)
    return read_groups(Listing(flavour=CLUSTER_API, objects=kinds))[0]


def applied_fields(manager: str, operation: str, **entries: list[str]) -> Object:
    tree: Any = {
        f'k:{{"name":"{name}"}}': {"f:metadata": {"f:annotations": {f"f:{key}": {} for key in keys}}}
        for name, keys in entries.items()
    }
    for step in reversed(ENTRIES):
        tree = {step: tree}
    return {"manager": manager, "operation": operation, "fieldsV1": tree, "time": "2026-01-01T00:00:00Z"}


def test_an_entry_owns_both_bounds_if_it_names_one() -> None:
    item, cluster = owned_item(), cluster_of("a")
    (entry,) = cluster["spec"]["topology"]["workers"]["machineDeployments"]
    del entry["metadata"]["annotations"][CLUSTER_API.min_key]
    (found,) = read(item, cluster)
    assert (found.owner_object is not None, found.group.bounds) == (True, Bounds(0, 9))
    entry["metadata"]["annotations"], item["metadata"]["annotations"] = {"x": "y"}, {}
    (found,) = read(item, cluster)
    assert (found.owner_object, found.group.owner.two_objects, found.group.owner.numbers) == (None, False, None)


def test_the_first_of_two_entries_of_one_name_counts() -> None:
    item, cluster = owned_item(), cluster_of("a", "a")
    entries = cluster["spec"]["topology"]["workers"]["machineDeployments"]
    for entry, most in zip(entries, ("5", "7"), strict=True):
        entry["metadata"] = {"annotations": {CLUSTER_API.min_key: "0", CLUSTER_API.max_key: most}}
    (found,) = read(item, cluster)
    assert found.group.owner.numbers is not None
    assert found.group.owner.numbers.bounds == Bounds(0, 5)


def test_a_key_applied_to_the_topology_does_not_freeze_its_group() -> None:
    fields = [applied_fields("flux", "Apply", a=[CLUSTER_API.max_key])]
    (found,) = read(owned_item(), cluster_of("a", fields=fields))
    assert found.group.managers.bounds_applied_by == ""
    assert found.group.owner.numbers is not None
    assert (found.group.owner.numbers.set_by, found.group.owner.numbers.needs_consent) == ("flux", True)


def test_every_apply_has_exactly_our_fields_of_the_cluster() -> None:
    fields = [
        applied_fields("evenkeel", "Apply", a=[CLUSTER_API.max_key, "gone"], b=[CLUSTER_API.max_key]),
        applied_fields("evenkeel", "Update", c=[CLUSTER_API.max_key]),
        applied_fields("flux", "Apply", b=["team.example/keep"], c=[CLUSTER_API.min_key]),
    ]
    (found,) = read(owned_item(), cluster_of("a", "b", "c", fields=fields))
    assert found.owner_object is not None
    body = found.owner.applied(found.owner_object, found.scalable, {CLUSTER_API.min_key: "1"})
    assert body["spec"]["topology"]["workers"]["machineDeployments"] == [
        {"name": "a", "metadata": {"annotations": {CLUSTER_API.max_key: "9", CLUSTER_API.min_key: "1"}}},
        {"name": "b", "metadata": {"annotations": {CLUSTER_API.max_key: "9"}}},
    ]
    assert ([*body], [*body["spec"]], [*body["spec"]["topology"]]) == (["spec"], ["topology"], ["workers"])


@pytest.mark.parametrize(
    "fields", [None, [], "x", [5], [{"manager": "evenkeel", "operation": "Apply"}], [{"fieldsV1": 3}]]
)
def test_malformed_managed_fields_own_nothing(fields: Any) -> None:
    assert applied_by_us({"metadata": {"managedFields": fields}}, ENTRIES) == []
