"""Numbers of an owner: their source, their writers, and how they are fixed."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.adapters.kubernetes.flavours import CLUSTER_API, GARDENER, OPENSHIFT
from evenkeel.adapters.kubernetes.objects import controller_of_field, last_writer
from evenkeel.adapters.kubernetes.owners.annotations import MEMBER
from evenkeel.adapters.kubernetes.owners.openshift import ClusterAutoscaler
from evenkeel.adapters.kubernetes.read.groups import GroupObjects, Listing, read_groups
from evenkeel.domain.model.groups import Bounds, NodeGroup, OwnerNumbers, OwnerRef, State
from evenkeel.domain.model.owner_intent import desired_bounds_of
from evenkeel.domain.model.parts import Parts
from evenkeel.domain.model.problems import ProblemKind
from evenkeel.domain.model.states import DesiredBounds, PoolState
from evenkeel.domain.rebalancing.bounds.gep24 import ADAPTIVE, LAX_GREEDY
from evenkeel.domain.rebalancing.membership.numbers import Change
from evenkeel.domain.relief.model import Relief
from evenkeel.texts.english import MOST_NAMED, texts
from evenkeel.texts.pool_numbers import command_text
from evenkeel.validation import ConfigError, read_model
from evenkeel_cli.cluster_file import ClusterFile
from tests import objects
from tests.builders import NOW, group, key, numbers, owned, pool_plan, problems_of
from tests.objects import ZONES, Object
from tests.parts import replace
from tests.stack import Stack

EVEN = [owned(zone, Bounds(1, 4), requested=2) for zone in "abc"]
MAX = ("f:metadata", "f:annotations", f"f:{CLUSTER_API.max_key}")


def stack(groups: list[NodeGroup] | None = None, **fields: Any) -> Stack:
    """Return a cluster with a MachineAutoscaler for each zone, and a record without numbers."""
    return Stack(groups if groups is not None else EVEN, **{"pools": [], **fields})


def uneven() -> Stack:
    """Return the same, with four nodes in zone a."""
    return stack([replace(one, requested=4, running=4) if one.identity.zone == "a" else one for one in EVEN])


def set_at_owner(stack: Stack, zone: str, bounds: Bounds) -> None:
    """Set the bounds of the owner as another writer."""
    owner = stack.cluster.groups[key(zone)].owner.numbers
    assert owner is not None
    stack.cluster.change(key(zone), bounds=bounds, copied=bounds, owner=replace(owner, bounds=bounds))


def pool_of(stack: Stack) -> dict[str, Any]:
    (pool,) = stack.ask("status")["pools"]
    return dict(pool)


# -- desired bounds


def test_bounds_that_we_wrote_at_owners_are_not_the_desired_ones() -> None:
    found = uneven()
    found.run()
    ours = {one.bounds for one in found.cluster.groups.values()}
    assert ours != {Bounds(1, 4)}
    pool = pool_of(found)
    assert (pool["min"], pool["max"]) == (3, 12)
    assert [owner["wanted"] for owner in pool["numbersFrom"]["max"]["owners"]] == [4, 4, 4]
    assert sum(owner["value"] for owner in pool["numbersFrom"]["max"]["owners"]) == 12
    ((_, state),) = found.state.pools.items()
    changed = {f"uid-{zone}" for zone in "abc" if found.cluster.groups[key(zone)].bounds != Bounds(1, 4)}
    assert {id: desired.bounds for id, desired in state.desired_bounds.items()} == dict.fromkeys(changed, Bounds(1, 4))
    assert all(desired.ours for desired in state.desired_bounds.values())


def test_another_number_at_an_owner_is_reported_once_and_used() -> None:
    def reported() -> list[Any]:
        return [one for one in found.decisions() if "new-intent" in str(one["pool"]["problemRules"])]

    found = uneven()
    found.runs(2)
    before = len(found.decisions())
    set_at_owner(found, "b", Bounds(0, 9))
    found.run()
    pool = pool_of(found)
    assert (pool["min"], pool["max"]) == (2, 17)
    assert (len(reported()), len(found.decisions()) > before) == (1, True)
    found.runs(2)
    assert len(reported()) == 1
    assert not any(state.contest.reverts for state in found.state.groups.values())


def test_a_writer_that_reverts_three_times_makes_it_contested() -> None:
    found = uneven()
    for _ in range(4):
        found.run()
        if found.cluster.groups[key("a")].bounds != Bounds(1, 4):
            set_at_owner(found, "a", Bounds(1, 4))
    found.run()
    assert found.state.groups[key("a")].contest.contested_since is not None
    assert pool_of(found)["max"] == 12


def test_a_recreated_owner_has_the_desired_bounds() -> None:
    found = uneven()
    found.run()
    anew = owned("a", Bounds(0, 6), requested=4, uid="another")
    found.cluster.change(
        key("a"), bounds=anew.bounds, owner=anew.owner.numbers, published=None, adopted=None, has_adopted=False
    )
    assert pool_of(found)["max"] == 6 + 4 + 4


def test_a_pool_of_owners_with_max_zero_is_skipped_until_a_node_runs() -> None:
    none = [owned(zone, Bounds(0, 0)) for zone in "ab"]
    assert stack(none).ask("status")["pools"] == []
    running = pool_plan([none[0], owned("b", Bounds(0, 0), requested=1)], numbers())
    assert (running.mode.valid, running.max) == (True, 0)


def test_the_stored_state_alone_shows_which_bounds_are_ours() -> None:
    known = PoolState(desired_bounds={"uid-a": DesiredBounds(bounds=Bounds(1, 4), ours=(Bounds(0, 7),))})
    pool = pool_plan([owned("a", Bounds(0, 7), requested=3)], numbers(), adopted={pool_id(): known})
    assert (pool.min, pool.max) == (1, 4)
    assert not pool.new_intents


def pool_id() -> Any:
    return pool_plan([group("a", 1, bounds=(0, 1))], numbers()).id


# -- field managers


def applied(manager: str, *path: str, operation: str = "Apply", time: str = "2026-01-01T00:00:00Z") -> Object:
    fields: Any = {}
    for step in reversed(path):
        fields = {step: fields}
    return {"manager": manager, "operation": operation, "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields}


def with_fields(*entries: Object) -> Object:
    return {"metadata": {"name": "a", "managedFields": list(entries)}}


@pytest.mark.parametrize(
    ("entries", "controller"),
    [
        ([applied("capi-topology", *MAX)], "capi-topology"),
        ([applied("flux", *MAX), applied("evenkeel", *MAX, operation="Update")], "flux"),
        ([applied("manager", *MAX, operation="Update")], ""),
        ([applied("kubectl", *MAX)], ""),
        ([applied("evenkeel", *MAX)], ""),
        ([applied("flux", "f:spec", "f:replicas")], ""),
        ([], None),
    ],
)
def test_a_controller_applies_the_field(entries: list[Object], controller: str | None) -> None:
    assert controller_of_field(with_fields(*entries), MAX) == controller


def test_the_last_other_writer_of_a_field_is_named() -> None:
    entries = [
        applied("helm", *MAX, operation="Update"),
        applied("flux", *MAX, time="2026-01-02T00:00:00Z"),
        applied("evenkeel", *MAX, operation="Update", time="2026-01-03T00:00:00Z"),
    ]
    assert last_writer(with_fields(*entries), MAX) == "flux"
    assert last_writer({}, MAX) == ""


def test_bounds_of_a_controller_are_frozen_and_checks_remember_it() -> None:
    groups = [group(zone, 2, bounds=(0, 9), bounds_applied_by="flux", bounds_field="its max") for zone in "ab"]
    found = Stack(groups)
    found.run()
    assert found.cluster.applied == []
    pool = pool_of(found)
    for one in pool["groups"]:
        assert one["state"] == "frozen"
        assert "its max belongs to flux, which reverts other writes: remove the field from what flux" in one["held"][0]
    for zone in "ab":  # as in a check, which reads no managedFields
        found.cluster.change(key(zone), bounds_applied_by=None)
    found.queue.requests.clear()
    found.checks()
    assert found.queue.requests == {}
    found.ask("resume")
    found.run()
    assert found.cluster.applied


def test_replicas_of_a_controller_stay_and_bounds_are_written() -> None:
    found = Stack([group("a", 4, running=1, bounds=(0, 9), replicas_applied_by="flux"), group("b", 2, bounds=(0, 9))])
    found.fail("a")
    found.run()
    first = found.cluster.groups[key("a")]
    assert (first.requested, first.bounds) == (4, Bounds(first.bounds.min if first.bounds else 0, 4))
    assert "spec.replicas of MachineDeployment default/workers-a belongs to flux" in str(found.decisions()[0])


# -- unknown controllers


def controlled(item: Object, kind: str = "Cluster", group: str = "provisioning.example.com", **fields: Any) -> Object:
    """Return the object with an owner that created it."""
    owner = {"apiVersion": f"{group}/v1", "kind": kind, "name": "blue", "uid": "1", "controller": True, **fields}
    return {**item, "metadata": {**item["metadata"], "namespace": "prod", "ownerReferences": [owner]}}


def notes_of(*items: Object) -> Sequence[str]:
    (found, *_) = read(*items)
    return problems_of(pool_plan([found.group], numbers(0, 9)).report.problems)


def test_an_unknown_controller_is_reported_once_with_what_to_do() -> None:
    groups = [one.group for one in read(*(controlled(objects.cluster_api(zone, 1)) for zone in ZONES))]
    planned = pool_plan(groups, numbers(0, 9))
    (note,) = problems_of(planned.report.problems)
    assert note.startswith("Cluster blue: apiVersion is 'provisioning.example.com/v1': a kind that Evenkeel does not")
    assert "which controls a MachineDeployment here" in note
    assert "set them on it, and leave its groups out by the record's discovery" in note
    assert {one.state for one in planned.groups} == {State.HEALTHY}


@pytest.mark.parametrize(
    "owner",
    [
        {"kind": "Cluster", "group": "cluster.x-k8s.io"},
        {"kind": "NodePool", "group": "hypershift.openshift.io"},
        {"controller": False},
        {"controller": None},
    ],
)
def test_known_controllers_and_other_owners_are_not_reported(owner: Any) -> None:
    assert not notes_of(controlled(objects.cluster_api(ZONES[0], 1), **owner))


def test_an_unknown_controller_of_the_owner_is_reported() -> None:
    item = controlled(objects.cluster_api(ZONES[0], 1), kind="NodePool", group="hypershift.openshift.io")
    item["metadata"]["annotations"]["hypershift.openshift.io/nodePool"] = "clusters/pool-a"
    pool = {
        "apiVersion": "hypershift.openshift.io/v1beta1",
        "kind": "NodePool",
        "metadata": {"name": "pool-a"},
        "spec": {"autoScaling": {"min": 1, "max": 4}},
    }
    pool = controlled(pool, kind="RosaPool", group="service.example.com")
    pool["metadata"]["namespace"] = "clusters"
    (note,) = notes_of(item, pool)
    assert note.startswith("RosaPool blue: apiVersion is 'service.example.com/v1'")
    assert "which controls a NodePool here" in note


@pytest.mark.parametrize("owners", ["x", [1], [{"controller": True}], {"controller": True}, [{"controller": "yes"}]])
def test_owner_references_of_any_shape_stop_nothing(owners: Any) -> None:
    item = objects.cluster_api(ZONES[0], 1)
    item["metadata"]["ownerReferences"] = owners
    (found,) = read(item)
    assert pool_plan([found.group], numbers(0, 9)).mode.valid


# -- Karpenter


def read(*items: Object) -> list[GroupObjects]:
    kinds: dict[str, list[Object]] = {}
    for item in items:
        kinds.setdefault(item["kind"], []).append(item)
    return read_groups(Listing(flavour=CLUSTER_API, objects=kinds))[0]


def member(zone: str, replicas: int, **fields: Any) -> Object:
    found = objects.cluster_api(zone, replicas, **fields)
    found["metadata"]["labels"][MEMBER] = ""
    return found


def test_a_member_of_karpenter_gets_a_max_only_and_keeps_its_replicas() -> None:
    members = read(*(member(zone, 3, ready=1) for zone in ZONES))
    assert all(one.group.owner.max_only and one.group.bounds == Bounds(0, 4) for one in members)
    assert members[0].owner.bounds_annotations(Bounds(2, 5)) == {CLUSTER_API.max_key: "5"}
    for one in pool_plan([one.group for one in members], numbers(9, 12)).groups:
        assert (one.requested, one.bounds and one.bounds.min) == (3, 0)
        assert any(reason.rule == "replicas-of-karpenter" for reason in one.reasons)


def test_an_autoscaler_beside_karpenter_is_reported() -> None:
    (found,) = read(member(ZONES[0], 3))
    beside = replace(found.group, replicas_by="cluster-autoscaler")
    kinds = [problem.kind for problem in pool_plan([beside], numbers(0, 9)).report.problems]
    assert kinds == [ProblemKind.AUTOSCALER_BESIDE_KARPENTER]
    assert not pool_plan([found.group], numbers(0, 9)).report.problems


# -- fixes


SMALL = [owned("a", Bounds(0, 1), requested=1), owned("b", Bounds(0, 1)), replace(group("c"), bounds=None)]


def test_a_fix_is_proposed_at_the_owner_with_its_command() -> None:
    answer = stack(SMALL).ask("validate", fix=True)
    assert answer["diff"] == [
        "--- MachineAutoscaler default/a",
        "+++ MachineAutoscaler default/a",
        "-spec.maxReplicas: 1",
        "+spec.maxReplicas: 2",
    ]
    assert answer["commands"] == [
        'kubectl --namespace default patch machineautoscaler a --type merge --patch \'{"spec":{"maxReplicas":2}}\''
    ]


@pytest.mark.parametrize(
    ("takes_ours", "consent"), [(True, False), (False, True)], ids=["without consent", "an owner that is never written"]
)
def test_a_fix_that_evenkeel_may_not_write_is_left_to_the_operator(takes_ours: bool, consent: bool) -> None:
    groups = [owned(zone, Bounds(0, 1), takes_ours=takes_ours) for zone in "ab"]
    found = stack([*groups, SMALL[-1]], fix_owners=consent)
    answer = found.ask("validate", apply=True)
    assert "left to you, by the commands below: 1" in answer["message"]
    found.run()
    assert found.journal.count("write owner") == 0
    assert found.control.fixes == ()


def test_with_consent_an_owner_is_written_once() -> None:
    found = stack(SMALL, fix_owners=True)
    answer = found.ask("validate", apply=True)
    assert answer["commands"] == []
    found.run()
    assert found.journal.count("write owner") == 1
    assert pool_of(found)["max"] == 3
    found.run()
    assert pool_of(found)["max"] == 3
    assert found.ask("validate")["pools"] == []


def test_an_owner_that_changed_since_is_not_written() -> None:
    found = stack(SMALL, fix_owners=True)
    found.ask("validate", apply=True)
    set_at_owner(found, "a", Bounds(0, 5))
    found.run()
    assert found.journal.count("write owner") == 0
    (fix,) = [decision for decision in found.decisions() if "fixed" in decision]
    assert fix["fixed"][0]["outcome"] == "not written: it has changed since, to 5: validate again"


PATCH = '\'{"spec":{"provider":{"workers":[{"name":"gpu","maximum":3}]}}}\'  # garden cluster'


def owner(ref: OwnerRef, field: str) -> OwnerNumbers:
    return OwnerNumbers(ref=ref, bounds=Bounds(0, 2), min_field="", max_field=field)


@pytest.mark.parametrize(
    ("ref", "field", "command"),
    [
        (
            OwnerRef(kind="Worker", namespace="shoot--demo--main", name="main", part="gpu"),
            "spec.pools[gpu].maximum",
            f"kubectl --namespace garden-demo patch shoot main --type strategic --patch {PATCH}",
        ),
        (
            OwnerRef(kind="Shoot", namespace="garden-x", name="main", part="gpu"),
            "spec.provider.workers[gpu].maximum",
            f"kubectl --namespace garden-x patch shoot main --type strategic --patch {PATCH}",
        ),
        (
            OwnerRef(kind="NodePool", namespace="clusters", name="demo-a"),
            "spec.autoScaling.max",
            "kubectl --namespace clusters patch nodepool demo-a --type merge --patch "
            '\'{"spec":{"autoScaling":{"max":3}}}\'',
        ),
        (
            OwnerRef(kind="Cluster", namespace="prod", name="demo", part="md-a"),
            "the entry",
            "kubectl --namespace prod edit cluster demo  # the entry: 3",
        ),
    ],
)
def test_the_command_changes_the_owners_own_field(ref: OwnerRef, field: str, command: str) -> None:
    assert command_text(Change(owner=owner(ref, field), before=2, after=3)) == command


def test_every_kind_of_owner_has_a_text_about_its_readers() -> None:
    kinds = {
        owner.kind.kind
        for flavour in (GARDENER, CLUSTER_API, OPENSHIFT)
        for owner in (*flavour.owners.bounds, flavour.owners.replicas)
        if owner is not None and owner.kind is not None
    }
    assert set(texts()["readers"]) == kinds | {"Shoot", "Rancher Cluster"}


def test_explain_shows_the_chain_of_a_number() -> None:
    groups = [
        replace(one, owner=replace(one.owner.numbers, set_by="argocd")) if one.owner.numbers else one for one in EVEN
    ]
    text = " ".join(stack(groups).ask("explain", pool="workers")["sentences"])
    assert "PoolMaximum is 12: the sum of 4 (MachineAutoscaler default/a)" in text
    assert (
        "spec.maxReplicas of MachineAutoscaler default/a is 4, last set by argocd: cluster-autoscaler-operator copies "
        "this value to the MachineSet, where cluster-autoscaler reads it." in text
    )


def test_explain_shows_the_chain_of_a_number_without_an_owner() -> None:
    items = [objects.cluster_api(ZONES[0], 1), member(ZONES[1], 1), objects.cluster_api(ZONES[2], 1)]
    items[0]["metadata"]["managedFields"] = [applied("helm", *MAX, operation="Update")]
    found = [replace(one.group, key=key(zone)) for one, zone in zip(read(*items), "abc", strict=True)]
    text = stack([found[0], found[1], replace(found[2], bounds_are_read=False)]).ask("explain", pool="workers")
    chain = [line for line in text["sentences"] if line.startswith(f"annotation {CLUSTER_API.max_key} of ")]
    assert [line.partition(" is 4")[2] for line in chain] == [
        ", last set by helm: cluster-autoscaler reads it.",
        ": karpenter-provider-cluster-api reads it, and no min.",
        ": no autoscaler reads it.",
    ]


def test_the_text_about_very_many_owners_is_short() -> None:
    many = [
        replace(owned("a", Bounds(0, 1), uid=str(number)), key=key(f"a{number}"), zone="a") for number in range(400)
    ]
    (origin, _) = pool_plan(many, numbers()).report.origins
    found = stack(many).ask("status")["pools"][0]["numbersFrom"]["max"]
    assert len(origin.owners) == 400
    assert len(found["owners"]) == MOST_NAMED
    assert found["says"].endswith(f"and {400 - MOST_NAMED} more")


def test_restore_writes_the_desired_bounds_and_not_the_first_ones() -> None:
    found = uneven()
    found.run()
    set_at_owner(found, "b", Bounds(0, 7))
    found.run()
    found.ask("restore")
    found.run()
    stands = [one.bounds for one in found.cluster.groups.values()]
    assert stands == [Bounds(1, 4), Bounds(0, 7), Bounds(1, 4)]


# -- the proposal's own names


@pytest.mark.parametrize("name", ["strategy", "nodeGroupSizingStrategy", "sizingStrategy", "sizing"])
def test_the_proposals_names_of_the_strategy_are_read(name: str) -> None:
    record = read_model(ClusterFile, {name: "Lax-Greedy", "pools": [{"name": "x", name: "adaptive"}]}, "record")
    assert record.strategy is LAX_GREEDY
    assert record.pool_entries[0].strategy is ADAPTIVE
    assert "strategy" in record.model_dump(mode="json", exclude_defaults=True)


@pytest.mark.parametrize("value", ["mcm:k8s.io/cluster-autoscaler/demo", ["mcm:k8s.io/cluster-autoscaler/demo"]])
def test_the_proposals_name_of_discovery_is_read(value: object) -> None:
    record = read_model(ClusterFile, {"nodeGroupAutoDiscovery": value}, "record")
    assert record.discovery == ("mcm:k8s.io/cluster-autoscaler/demo",)
    with pytest.raises(ConfigError, match="discovery is '3': no list: write it as one"):
        read_model(ClusterFile, {"nodeGroupAutoDiscovery": 3}, "record")


def test_two_names_for_one_thing_are_refused() -> None:
    with pytest.raises(ConfigError, match="sizing is another name of strategy: keep one of the two"):
        read_model(ClusterFile, {"strategy": "Balanced", "sizing": "Lax-Greedy"}, "record")


# -- options


@pytest.mark.parametrize("flavour", ["gardener", "cluster-api", "openshift"])
def test_the_autoscalers_own_options_of_a_group_are_read_and_explained(flavour: str) -> None:
    states = {"gardener": GARDENER, "cluster-api": CLUSTER_API, "openshift": OPENSHIFT}[flavour]
    options = states.autoscaler
    item = objects.MAKE[flavour](ZONES[0], 1)
    item["metadata"].setdefault("annotations", {}).update(
        {
            options.unneeded_time: "30M0S",
            options.unready_time: "1M30S",
            options.utilization_threshold: "0.6",
            options.gpu_utilization_threshold: "0.75",
        }
    )
    (found,) = read_groups(Listing(flavour=states, objects={item["kind"]: [item]}))[0]
    assert (found.group.options.unneeded_time, found.group.options.unready_time) == (
        timedelta(minutes=30),
        timedelta(seconds=90),
    )
    assert (found.group.options.utilization_threshold, found.group.options.gpu_utilization_threshold) == (0.6, 0.75)
    text = Stack([replace(found.group, pool_max=9)]).ask("explain", group=found.group.key.name)["message"]
    assert (
        "Its own scale-down options: utilization threshold 60%, GPU utilization threshold 75%, unneeded time 30 min, "
        "unready time 90 s."
    ) in text


@pytest.mark.parametrize(
    ("flavour", "names"),
    [
        (GARDENER, ("scale-down-unready-time", "scale-down-gpu-utilization-threshold")),
        (CLUSTER_API, ("autoscaling-options-scaledownunreadytime", "…-scaledowngpuutilizationthreshold")),
        (OPENSHIFT, ("autoscaling-options-scaledownunreadytime", "…-scaledowngpuutilizationthreshold")),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_names_of_options_are_those_that_cluster_autoscaler_reads(flavour: Any, names: tuple[str, str]) -> None:
    """cloudprovider/clusterapi/clusterapi_utils.go, config/const.go:31-42; cloudprovider/mcm/mcm_cloud_provider.go."""
    (time, share), options = names, flavour.autoscaler
    assert options.unready_time.rpartition("/")[2] == time
    assert options.gpu_utilization_threshold.rpartition("/")[2].endswith(share.removeprefix("…"))
    assert options.unready_time.partition("/")[0] == options.unneeded_time.partition("/")[0]
    assert options.gpu_utilization_threshold.partition("/")[0] == options.utilization_threshold.partition("/")[0]


SHARES = [(name, value) for name in ("utilization", "gpu_utilization") for value in ("2", "-0.1", "nan", "half", "")]
TIMES = [(name, value) for name in ("unneeded", "unready") for value in ("-5m", "10", "soon", "")]


@pytest.mark.parametrize(
    ("option", "value"),
    [*((f"{name}_threshold", value) for name, value in SHARES), *((f"{name}_time", value) for name, value in TIMES)],
)
def test_an_invalid_option_is_a_note_and_changes_nothing(option: str, value: str) -> None:
    item = objects.cluster_api(ZONES[0], 1)
    item["metadata"]["annotations"][getattr(CLUSTER_API.autoscaler, option)] = value
    (found,) = read(item)
    assert getattr(found.group.options, option) is None
    assert [fault.field for fault in found.group.unreadable.notes] == [getattr(CLUSTER_API.autoscaler, option)]
    assert pool_plan([found.group], numbers()).mode.valid
    assert "the default counts" in problems_of(pool_plan([found.group], numbers()).report.problems)[0]
    assert pool_plan([found.group], numbers()).groups[0].state is State.HEALTHY


def test_the_desired_maximum_during_relief_is_the_one_before() -> None:
    relief = Relief(owner="uid-a", user_max=6, ours=(9,))
    for stands, wanted in ((Bounds(2, 9), Bounds(2, 6)), (Bounds(2, 7), Bounds(2, 7)), (Bounds(8, 9), Bounds(8, 8))):
        state = PoolState(parts=Parts({Relief: relief}))
        assert desired_bounds_of(owned("a", stands, takes_ours=False), state) == wanted


def test_dead_zones_do_not_change_the_desired_bounds_of_an_owner() -> None:
    before, ours = Bounds(1, 6), Bounds(2, 9)
    held = owned("a", ours, takes_ours=True)
    assert held.owner.numbers is not None
    desired_bounds = {held.owner.numbers.ref.id: DesiredBounds(bounds=before, ours=(ours,))}
    for parts in (Parts(), Parts({Relief: Relief(dead={"a": NOW})})):
        assert desired_bounds_of(held, PoolState(desired_bounds=desired_bounds, parts=parts)) == before


@pytest.mark.parametrize(
    ("limits", "cap"), [((9, 5, 7), 5), ((0, 7), 7), ((0,), None), (("many", 6), 6), ((None,), None), ((), None)]
)
def test_the_smallest_limit_of_several_cluster_autoscalers_counts(limits: Sequence[object], cap: int | None) -> None:
    items: list[Object] = [
        {"metadata": {"name": f"limit-{i}"}, "spec": {"resourceLimits": {"maxNodesTotal": limit}}}
        for i, limit in enumerate(limits)
    ]
    found = ClusterAutoscaler().cap(items)
    assert (None if found is None else found.nodes) == cap
