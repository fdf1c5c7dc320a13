"""From objects as the three APIs hold them to node groups: zones, pools, owners of the bounds, bad values."""

import json
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bench.planning import reference_work
from evenkeel.adapters.kubernetes.client.lists import ReceivedList
from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.adapters.kubernetes.owners.base import BoundKeys
from evenkeel.adapters.kubernetes.owners.cluster_topology import ClusterTopology
from evenkeel.adapters.kubernetes.owners.worker import Worker
from evenkeel.adapters.kubernetes.read.groups import GroupObjects, Listing, read_groups
from evenkeel.adapters.kubernetes.read.lister import ObjectLister
from evenkeel.adapters.kubernetes.read.machines import scalable_of, scalables_of, with_autoscaler_status, with_machines
from evenkeel.domain.model.failures import FailureClass, class_of
from evenkeel.domain.model.groups import Bounds, Machine, NodeGroup
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.rebalancing.bounds.gep24 import LAX_GREEDY
from evenkeel.texts.english import sentence
from tests import objects
from tests.builders import group, json_values
from tests.fakes import NOW, plenty
from tests.objects import ZONES, Object, machine
from tests.parts import replace
from tests.unit.rebalancing.test_plan_cost import instructions


def read_machine(flavour: str, item: Object) -> Machine:
    api = FLAVOURS[flavour].machines
    return api.read(item).read(api.mark, NOW)


SCALER = objects.machine_autoscaler(ZONES[0], 1, 7)
_PROVISION_KEYS = {
    "gardener": "autoscaler.gardener.cloud/max-node-provision-time",
    "cluster-api": "cluster.x-k8s.io/autoscaling-options-maxnodeprovisiontime",
    "openshift": "machine.openshift.io/autoscaling-options-maxnodeprovisiontime",
}


def read(flavour: str, *items: Object) -> dict[str, GroupObjects]:
    """Return the groups among the objects by name."""
    listing = Listing(flavour=FLAVOURS[flavour])
    for item in items:
        listing.objects.setdefault(item["kind"], []).append(
            {**item, "metadata": {"namespace": "demo", **item["metadata"]}}
        )
    found, skipped = read_groups(listing)
    assert skipped == []
    return {one.group.key.name: one for one in found}


def only(flavour: str, *items: Object) -> NodeGroup:
    (found,) = read(flavour, *items).values()
    return found.group


def changed(item: Object, *path: str, to: Any) -> Object:
    """Return a copy with one field changed; None removes it."""
    copy: Object = json.loads(json.dumps(item))
    place: Any = copy
    for step in path[:-1]:
        place = place.setdefault(step, {})
    if to is None:
        place.pop(path[-1], None)
    else:
        place[path[-1]] = to
    return copy


def test_the_template_of_a_group_names_its_machines() -> None:
    shoot = "shoot--demo--main-main-z1-5b1c9"
    for flavour, name in {"gardener": shoot, "cluster-api": "demo-workers", "openshift": "m5.xlarge"}.items():
        assert only(flavour, objects.MAKE[flavour](ZONES[0], 1)).template.key == name
    bare = changed(objects.openshift(ZONES[0], 1), "spec", "template", "spec", "providerSpec", "value", to=[])
    assert only("openshift", bare).template.key == ""


class TestZones:
    @pytest.mark.parametrize("flavour", list(FLAVOURS))
    def test_each_flavour_has_its_own_zone_field(self, flavour: str) -> None:
        assert only(flavour, objects.MAKE[flavour](ZONES[1], 1)).identity.zone == ZONES[1]

    @pytest.mark.parametrize("label", ["topology.ebs.csi.aws.com/zone", "topology.gke.io/zone"])
    def test_gardeners_providers_use_labels_of_their_own(self, label: str) -> None:
        item = changed(
            objects.gardener(ZONES[0], 1),
            *("spec", "template", "spec", "nodeTemplate", "metadata", "labels"),
            to={label: "zone-x", "worker.gardener.cloud/pool": "main"},
        )
        assert only("gardener", item).identity.zone == "zone-x"

    @pytest.mark.parametrize(
        ("domain", "label", "zone"), [(None, "zone-x", "zone-x"), (ZONES[0], "x", ZONES[0]), (None, None, None)]
    )
    def test_the_zone_label_counts_where_the_flavours_field_is_missing(
        self, domain: str | None, label: str | None, zone: str | None
    ) -> None:
        item = changed(objects.cluster_api(ZONES[0], 1), "spec", "template", "spec", "failureDomain", to=domain)
        item = changed(item, "metadata", "labels", "topology.kubernetes.io/zone", to=label)
        group = only("cluster-api", item)
        assert (group.identity.zone, group.unreadable.faults) == (zone, ())

    @pytest.mark.parametrize(
        ("name", "index"), [("a-z1", 0), ("a-z12", 11), ("a", None), ("a-z", None), ("a-z1-b", None)]
    )
    def test_the_index_is_in_the_name(self, name: str, index: int | None) -> None:
        item = changed(objects.gardener(ZONES[0], 1), "metadata", "name", to=name)
        assert only("gardener", item).identity.zone_index == index


class TestMachinePools:
    @pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
    def test_one_failure_domain_is_a_zone_and_members_are_counted(self, version: str) -> None:
        group = only("cluster-api", objects.machine_pool(ZONES[1], 5, 1, instances=3, version=version))
        assert (group.identity.kind, group.identity.zone, group.identity.pool_label, group.bounds) == (
            *("MachinePool", ZONES[1], "workers"),
            Bounds(0, 4),
        )
        assert (group.requested, group.running, group.status.launched, group.waiting) == (5, 1, 3, 4)
        assert group.on_its_way(NOW, timedelta(0)) == 2, "however old: nobody says which of them go"

    def test_references_to_nodes_whose_machines_have_gone_do_not_count(self) -> None:
        assert only("cluster-api", objects.machine_pool(ZONES[0], 3, 3, instances=1)).running == 1
        twice = changed(objects.machine_pool(ZONES[0], 3, 2), "spec", "providerIDList", to=["aws:///a/i-1"] * 2)
        assert only("cluster-api", twice).status.launched == 1

    def test_without_machines_none_are_listed_and_with_some_they_are_counted(self) -> None:
        item = objects.machine_pool(ZONES[0], 3, 2)
        group = only("cluster-api", item)
        assert with_machines(group, []) == group
        found = [read_machine("cluster-api", machine(item, number, node=True)) for number in (1, 2, 3)]
        assert with_machines(group, found).running == 3

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            (
                {"spec.failureDomains": list(ZONES)},
                "the MachinePool spans the zones eu-central-1a, eu-central-1b, eu-central-1c",
            ),
            ({"spec.failureDomains": None}, "spec.failureDomains is empty"),
            ({"spec.failureDomains": []}, "spec.failureDomains is empty"),
            ({"metadata.annotations": {"cluster.x-k8s.io/replicas-managed-by": ""}}, "replicas-managed-by is ''"),
            ({"metadata.annotations": {"cluster.x-k8s.io/replicas-managed-by": "eks"}}, "replicas-managed-by is 'eks'"),
            (
                {"metadata.labels": {"topology.cluster.x-k8s.io/owned": ""}},
                "the Cluster's topology sets this MachinePool's bounds",
            ),
        ],
    )
    def test_a_machine_pool_without_one_zone_is_skipped(self, changes: dict[str, Any], says: str) -> None:
        item = objects.machine_pool(ZONES[0], 3)
        for path, value in changes.items():
            item = changed(item, *path.split("."), to=value)
        listing = Listing(flavour=FLAVOURS["cluster-api"], objects={"MachinePool": [item]})
        found, (skipped,) = read_groups(listing)
        assert found == []
        assert sentence(skipped.reason).startswith(says) or says in sentence(skipped.reason)

    def test_a_machine_pool_with_a_zone_label_is_read(self) -> None:
        item = changed(objects.machine_pool(ZONES[0], 3), "spec", "failureDomains", to=None)
        item = changed(item, "metadata", "labels", "topology.kubernetes.io/zone", to="zone-x")
        item = changed(item, "metadata", "annotations", "cluster.x-k8s.io/replicas-managed-by", to="false")
        assert only("cluster-api", item).identity.zone == "zone-x"


class TestPools:
    def test_our_own_label_goes_before_the_flavours(self) -> None:
        item = changed(objects.gardener(ZONES[0], 1), "metadata", "labels", "evenkeel.dev/pool", to="mine")
        assert only("gardener", item).identity.pool_label == "mine"

    def test_gardeners_pool_is_found_in_the_node_template_too(self) -> None:
        item = changed(objects.gardener(ZONES[0], 1), "metadata", "labels", to=None)
        assert only("gardener", item).identity.pool_label == "main"

    def test_annotations_are_read(self) -> None:
        annotations = {
            "evenkeel.dev/pool-min": "3",
            "evenkeel.dev/pool-max": "12",
            "evenkeel.dev/strategy": "lax greedy".replace(" ", "-"),
            "evenkeel.dev/fence": "False",
            "evenkeel.dev/weight": "3",
            "evenkeel.dev/zone-max": "5",
            "evenkeel.dev/max-step": "7",
        }
        group = only("cluster-api", objects.cluster_api(ZONES[0], 1, annotations=annotations))
        assert (group.annotations.pool_min, group.annotations.pool_max, group.annotations.strategy) == (
            3,
            12,
            LAX_GREEDY,
        )
        assert (group.annotations.fencing_enabled, group.annotations.weight, group.annotations.zone_max) == (
            False,
            3,
            5,
        )
        assert group.annotations.max_step == 7
        assert group.unreadable.faults == ()

    @pytest.mark.parametrize("value", ["0", "-1", "many"])
    def test_a_bad_max_step_is_a_fault(self, value: str) -> None:
        item = objects.cluster_api(ZONES[0], 1, annotations={"evenkeel.dev/max-step": value})
        (fault,) = only("cluster-api", item).unreadable.faults
        assert f"evenkeel.dev/max-step is {value!r}: " in str(fault)

    def test_a_rolling_updates_numbers_are_read_in_both_places(self) -> None:
        rolling = {"rollingUpdate": {"maxSurge": "30%", "maxUnavailable": 0}}
        old = changed(objects.cluster_api(ZONES[0], 1), "spec", "strategy", to=rolling)
        new = changed(objects.cluster_api(ZONES[0], 1), "spec", "rollout", to={"strategy": rolling})
        for item in (old, new):
            found = only("cluster-api", item).status.rolling
            assert (found.max_surge, found.max_unavailable) == ("30%", 0)


class TestBounds:
    @pytest.mark.parametrize(
        ("low", "high", "bounds"),
        [("0", "4", Bounds(0, 4)), (None, "4", Bounds(0, 4)), ("0", None, Bounds(0, 0)), (None, None, None)],
    )
    def test_a_missing_bound_is_zero_beside_another(self, low: str | None, high: str | None, bounds: Any) -> None:
        item = objects.cluster_api(ZONES[0], 1, bounds=None)
        for end, value in (("min", low), ("max", high)):
            key = f"cluster.x-k8s.io/cluster-api-autoscaler-node-group-{end}-size"
            item = changed(item, "metadata", "annotations", key, to=value)
        group = only("cluster-api", item)
        assert (group.bounds, group.owner.copied) == (bounds, None)

    def test_a_machine_autoscaler_owns_the_bounds_and_insists_on_a_max_of_one(self) -> None:
        group = only("openshift", objects.openshift(ZONES[0], 1, bounds=(2, 3)), SCALER)
        assert (group.bounds, group.owner.least_max, group.owner.two_objects) == (Bounds(1, 7), 1, True)

    def test_a_machine_autoscaler_of_another_kind_or_namespace_owns_nothing(self) -> None:
        other = changed(SCALER, "spec", "scaleTargetRef", "kind", to="MachineDeployment")
        elsewhere = changed(SCALER, "metadata", "namespace", to="elsewhere")
        group = only("openshift", objects.openshift(ZONES[0], 1, bounds=(2, 3)), other, elsewhere)
        assert (group.bounds, group.owner.two_objects) == (Bounds(2, 3), False)

    def test_a_bad_machine_autoscaler_is_the_fault_and_is_named(self) -> None:
        bad = changed(SCALER, "spec", "maxReplicas", to="many")
        group = only("openshift", objects.openshift(ZONES[0], 1), bad)
        assert [str(fault) for fault in group.unreadable.faults] == [
            "MachineAutoscaler demo/worker-eu-central-1a: spec.maxReplicas is 'many': "
            "not an integer: write a whole number of nodes"
        ]
        assert group.bounds is None

    def test_a_topology_owns_the_bounds_of_its_deployments(self) -> None:
        owned = objects.topology_owned(objects.cluster_api(ZONES[0], 1), "pool-a")
        cluster = changed(objects.topology_cluster("pool-a"), "metadata", "name", to="demo")
        group = only("cluster-api", owned, cluster)
        assert (group.bounds, group.owner.two_objects, group.frozen_because) == (Bounds(0, 9), True, None)

    def test_the_worker_limits_the_replicas_of_each_zone_of_its_pool(self) -> None:
        pool = [objects.gardener(zone, 1) for zone in ZONES]
        found = read("gardener", *pool, objects.worker(4, 10)).values()
        assert [one.group.owner.allowed_replicas for one in found] == [Bounds(2, 4), Bounds(1, 3), Bounds(1, 3)]

    def test_the_worker_precedes_the_copy_of_the_shoot(self) -> None:
        workers = [{"name": "main", "minimum": 1, "maximum": 3, "zones": list(ZONES)}]
        shoot = {"metadata": {"name": "demo", "namespace": "garden-p"}, "spec": {"provider": {"workers": workers}}}
        copy = {"metadata": {"name": "demo"}, "spec": {"shoot": shoot}}
        item = changed(objects.worker(4, 10), "metadata", "namespace", to="demo")
        for items, bounds in (([item], Bounds(4, 10)), ([], Bounds(1, 3))):
            numbers = Worker(items, [copy]).numbers("demo", "main")
            assert numbers is not None
            assert numbers.bounds == bounds

    def test_a_topology_that_sets_replicas_freezes_its_deployment(self) -> None:
        owned = objects.topology_owned(objects.cluster_api(ZONES[0], 1), "pool-a")
        cluster = objects.topology_cluster("pool-a")
        cluster["spec"]["topology"]["workers"]["machineDeployments"][0]["replicas"] = 1
        frozen = only("cluster-api", owned, cluster).frozen_because
        assert frozen is not None
        assert frozen.rule is Rule.TOPOLOGY_SETS_REPLICAS

    def test_a_topology_patch_removes_and_keeps_annotations(self) -> None:
        low, high = objects.bounds_of("cluster-api", 0, 9)
        owned = objects.topology_owned(objects.cluster_api(ZONES[0], 1), "pool-a")
        body = ClusterTopology(BoundKeys(low, high), []).patch(
            objects.topology_cluster("pool-a", "pool-b"), owned, {low: None, high: "4"}, None
        )
        a, b = body["spec"]["topology"]["workers"]["machineDeployments"]
        assert a["metadata"]["annotations"] == {high: "4", "team.example/keep": "me"}
        assert b["metadata"]["annotations"] == {low: "0", high: "9", "team.example/keep": "me"}

    def test_a_pool_without_replicas_whose_worker_has_a_minimum_is_hibernated(self) -> None:
        owner = Worker([objects.worker(4, 10)], [])
        pool = [replace(group(zone, 0), pool_label="main", allowed_replicas=Bounds(2, 4)) for zone in "ab"]
        frozen = owner.frozen(pool)
        assert {reason.rule for reason in frozen.values()} == {Rule.HIBERNATED}
        assert frozen.keys() == {each.key for each in pool}
        assert owner.frozen([replace(pool[0], requested=1), pool[1]]) == {}
        assert owner.frozen([replace(each, allowed_replicas=Bounds(0, 4)) for each in pool]) == {}

    @pytest.mark.parametrize("target", [None, {}, [], {"name": {}}, {"name": ["a"]}, {"name": 5}, "text", 7])
    def test_a_machine_autoscaler_that_points_nowhere_owns_nothing(self, target: Any) -> None:
        lost = changed(SCALER, "spec", "scaleTargetRef", to=target)
        assert only("openshift", objects.openshift(ZONES[0], 1), lost).bounds is None


class TestOwners:
    @pytest.fixture
    def owned(self) -> Object:
        """Return a MachineSet on which the operator has written the owner of its bounds."""
        note = {"autoscaling.openshift.io/machineautoscaler": "demo/worker-eu-central-1a"}
        return objects.openshift(ZONES[0], 1, bounds=(1, 7), annotations=note)

    def test_copied_bounds_without_their_owner_freeze_the_group(self, owned: Object) -> None:
        frozen = only("openshift", owned).frozen_because
        assert frozen is not None
        assert sentence(frozen) == (
            "the owner of the bounds, MachineAutoscaler 'demo/worker-eu-central-1a', does not exist"
        )

    def test_the_bounds_of_the_owner_precede_the_copies(self, owned: Object) -> None:
        group = only("openshift", owned, objects.machine_autoscaler(ZONES[0], 2, 9))
        assert (group.bounds, group.owner.copied, group.frozen_because) == (Bounds(2, 9), Bounds(1, 7), None)

    @pytest.mark.parametrize("low", [None, "x", "9"])
    def test_copies_that_cannot_be_read_are_none_and_no_fault(self, owned: Object, low: Any) -> None:
        key = "machine.openshift.io/cluster-api-autoscaler-node-group-min-size"
        broken = changed(owned, "metadata", "annotations", key, to=low)
        group = only("openshift", broken, objects.machine_autoscaler(ZONES[0], 2, 9))
        assert (group.owner.copied, group.unreadable.faults) == (None, ())

    def test_under_a_topology_the_deployment_has_the_copies(self) -> None:
        item = objects.topology_owned(objects.cluster_api(ZONES[0], 1), "a")
        item = changed(
            item, "metadata", "annotations", "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size", to="5"
        )
        group = only("cluster-api", item, objects.topology_cluster("a"))
        assert (group.bounds, group.owner.copied) == (Bounds(0, 9), Bounds(0, 5))

    def test_the_last_other_writer_of_the_replicas_is_named(self) -> None:
        def entry(manager: str, time: str, *fields: str) -> Object:
            return {"manager": manager, "time": time, "fieldsV1": {"f:spec": {name: {} for name in fields}}}

        entries = [
            entry("argocd", "2026-01-15T10:00:00Z", "f:replicas"),
            entry("cluster-autoscaler", "2026-01-15T11:00:00Z", "f:replicas"),
            entry("kubectl", "2026-01-15T12:00:00Z", "f:paused"),
            entry("evenkeel", "2026-01-15T13:00:00Z", "f:replicas"),
        ]
        item = changed(objects.cluster_api(ZONES[0], 1), "metadata", "managedFields", to=entries)
        assert only("cluster-api", item).managers.replicas_by == "cluster-autoscaler"
        assert only("cluster-api", objects.cluster_api(ZONES[0], 1)).managers.replicas_by == "another writer"

    def test_a_second_object_of_one_name_is_skipped(self) -> None:
        deployment = objects.cluster_api(ZONES[0], 2)
        listing = Listing(flavour=FLAVOURS["cluster-api"])
        listing.objects = {"MachineDeployment": [deployment, deployment], "MachineSet": [{**deployment, "spec": {}}]}
        found, skipped = read_groups(listing)
        assert [(one.group.identity.kind, one.group.requested) for one in found] == [("MachineDeployment", 2)]
        assert [sentence(one.reason) for one in skipped] == [
            "a second object has this name: Evenkeel plans the MachineDeployment, not this MachineDeployment",
            "a second object has this name: Evenkeel plans the MachineDeployment, not this MachineSet",
        ]


class TestProvisionTimeout:
    @pytest.mark.parametrize("flavour", _PROVISION_KEYS)
    @pytest.mark.parametrize(("text", "minutes"), [("30m", 30), ("1h30m", 90), ("30M", 30)])
    def test_cluster_autoscalers_own_option_of_the_group_is_read(self, flavour: str, text: str, minutes: int) -> None:
        group = only(flavour, objects.MAKE[flavour](ZONES[0], 1, annotations={_PROVISION_KEYS[flavour]: text}))
        assert (group.options.provision_timeout, group.unreadable.notes) == (timedelta(minutes=minutes), ())

    @pytest.mark.parametrize("text", ["", "soon", "-5m", "0s"])
    def test_an_invalid_provision_timeout_is_a_note(self, text: str) -> None:
        key = _PROVISION_KEYS["cluster-api"]
        group = only("cluster-api", objects.cluster_api(ZONES[0], 1, annotations={key: text}))
        assert (group.options.provision_timeout, group.unreadable.faults) == (None, ())
        (note,) = group.unreadable.notes
        assert str(note).startswith(f"MachineDeployment demo/{group.key.name}: {key} is '{text}': ")
        assert str(note).endswith("; the default counts")

    def test_the_keys_of_other_flavours_mean_nothing(self) -> None:
        item = objects.cluster_api(ZONES[0], 1, annotations={_PROVISION_KEYS["openshift"]: "30m"})
        assert only("cluster-api", item).options.provision_timeout is None


class TestNamesOfOurs:
    @pytest.mark.parametrize(
        ("place", "name", "says"),
        [
            ("annotations", "evenkeel.dev/pool-maxx", "reads; did you mean evenkeel.dev/pool-max?"),
            ("annotations", "evenkeel.dev/stategy", "did you mean evenkeel.dev/strategy?"),
            ("annotations", "evenkeel.dev/qqq", "no annotation that Evenkeel reads"),
            ("annotations", "evenkeel.dev/pool", "no annotation: set it as a label"),
            ("labels", "evenkeel.dev/pol", "no label that Evenkeel reads; did you mean evenkeel.dev/pool?"),
            ("labels", "evenkeel.dev/pool-max", "not read here: it is an annotation of MachineDeployments"),
        ],
    )
    def test_an_unknown_name_is_a_fault_with_the_nearest(self, place: str, name: str, says: str) -> None:
        group = only("cluster-api", changed(objects.cluster_api(ZONES[0], 1), "metadata", place, name, to="12"))
        (fault,) = group.unreadable.faults
        assert str(fault).startswith(f"MachineDeployment demo/{group.key.name}: {name} is '12': ")
        assert says in str(fault)

    def test_a_misplaced_name_on_the_owner_is_a_fault(self) -> None:
        scaler = changed(SCALER, "metadata", "annotations", to={"evenkeel.dev/pool-max": "12"})
        (fault,) = only("openshift", objects.openshift(ZONES[0], 1), scaler).unreadable.faults
        assert str(fault) == (
            "MachineAutoscaler demo/worker-eu-central-1a: evenkeel.dev/pool-max is '12': "
            "not read here: it is an annotation of MachineDeployments and MachineSets"
        )

    @pytest.mark.parametrize("name", ["evenkeel.development/x", "team.example/evenkeel.dev", "evenkeel.dev"])
    def test_names_of_others_are_ignored(self, name: str) -> None:
        item = changed(objects.cluster_api(ZONES[0], 1), "metadata", "annotations", name, to="x")
        assert only("cluster-api", item).unreadable.faults == ()


class TestAutoscalerStatus:
    @pytest.mark.parametrize(
        ("code", "message", "is_failure"),
        [
            ("InsufficientInstanceCapacity", "none here", True),
            ("timeout", "none here", True),
            ("cloudProviderError", "dial tcp 10.0.0.1:6443: connect: connection refused", False),
            ("cloudProviderError", "size increase too large - desired:5 max:4", False),
        ],
    )
    def test_only_missing_nodes_are_a_failure_of_the_zone(self, code: str, message: str, is_failure: bool) -> None:
        prefix = "" if is_failure else "failed to increase node group size: "
        found = list(read("cluster-api", objects.cluster_api(ZONES[0], 1)).values())
        backoff = {"errorCode": code, "errorMessage": prefix + message}
        scale_up = {"status": "Backoff", "lastTransitionTime": "2026-01-15T12:00:00Z", "backoffInfo": backoff}
        group = {"name": "MachineDeployment/demo/demo-workers-eu-central-1a", "scaleUp": scale_up}
        (one,) = with_autoscaler_status(found, FLAVOURS["cluster-api"], yaml.safe_dump({"nodeGroups": [group]}))
        assert (one.group.status.autoscaler_failure is not None) is is_failure


class TestReplicas:
    @pytest.mark.parametrize("flavour", list(FLAVOURS))
    def test_missing_replicas_are_zero_with_gardener_and_not_yet_known_elsewhere(self, flavour: str) -> None:
        group = only(flavour, changed(objects.MAKE[flavour](ZONES[0], 3), "spec", "replicas", to=None))
        assert group.requested == 0
        assert (group.frozen_because is None) == (flavour == "gardener")

    @pytest.mark.parametrize("status", [None, {}, [], "text", {"readyReplicas": None}, {"readyReplicas": -3}])
    def test_without_a_readable_status_nothing_runs(self, status: Any) -> None:
        assert only("cluster-api", changed(objects.cluster_api(ZONES[0], 3), "status", to=status)).running == 0


class TestMachines:
    @pytest.mark.parametrize("flavour", list(FLAVOURS))
    def test_a_machine_has_a_node_when_its_status_says_so(self, flavour: str) -> None:
        item = objects.MAKE[flavour](ZONES[0], 2)
        machines = [machine(item, number, node=number == 1) for number in (1, 2)]
        assert [read_machine(flavour, one).has_node for one in machines] == [True, False]

    @pytest.mark.parametrize("flavour", list(FLAVOURS))
    def test_a_machine_belongs_to_the_group_that_its_label_names_and_to_no_other(self, flavour: str) -> None:
        found = read(flavour, *(objects.MAKE[flavour](zone, 1) for zone in ZONES)).values()
        one = machine(objects.MAKE[flavour](ZONES[1], 1), 1, node=True)
        for namespace, owned in (("demo", [False, True, False]), ("other", [False, False, False])):
            item = {**one, "metadata": {**one["metadata"], "namespace": namespace}}
            scalables = scalables_of(FLAVOURS[flavour], FLAVOURS[flavour].machines.read(item))
            assert [scalable_of(group.group) in scalables for group in found] == owned

    @pytest.mark.parametrize("flavour", list(FLAVOURS))
    def test_a_list_of_all_namespaces_gives_a_group_no_machine_of_another_namespace(self, flavour: str) -> None:
        (found,) = read(flavour, objects.MAKE[flavour](ZONES[0], 1)).values()
        one = machine(objects.MAKE[flavour](ZONES[0], 1), 1, node=True)
        items = [{**one, "metadata": {**one["metadata"], "namespace": namespace}} for namespace in ("demo", "other")]
        page = ReceivedList("GET /x of demo", (json.dumps({"items": items}).encode(),))
        api: Any = SimpleNamespace(list_all=lambda *_, **__: page, served=lambda *_: ["v1beta2", "v1beta1", "v1alpha1"])
        machines = ObjectLister(api, None, plenty, None).list_machines(FLAVOURS[flavour], [found.group])
        assert [each.metadata.namespace for each in machines[found.group.key]] == ["demo"]

    def test_a_machine_that_is_going_does_not_run_any_more(self) -> None:
        item = objects.cluster_api(ZONES[0], 2, 0)
        going = changed(machine(item, 1, node=True), "metadata", "deletionTimestamp", to="2026-01-15T12:00:00Z")
        machines = [read_machine("cluster-api", one) for one in (going, machine(item, 2, node=True))]
        assert with_machines(only("cluster-api", item), machines).running == 1

    @pytest.mark.parametrize(("requested", "ready"), [(4, 2), (2, 5)])
    def test_without_machines_the_status_counts_up_to_what_is_requested(self, requested: int, ready: int) -> None:
        assert with_machines(only("cluster-api", objects.cluster_api(ZONES[0], requested, ready)), []).running == 2

    @pytest.mark.parametrize("moment", [None, "yesterday", 5, "2026-01-15T12:00:00", {"a": 1}])
    def test_an_odd_time_of_birth_is_no_error(self, moment: Any) -> None:
        item = machine(objects.cluster_api(ZONES[0], 1), 1, node=False)
        found = read_machine("cluster-api", changed(item, "metadata", "creationTimestamp", to=moment))
        assert found.created_at.tzinfo is not None


def condition(kind: str, status: str = "True") -> Object:
    return {"type": kind, "status": status, "lastTransitionTime": "2026-01-15T11:00:00Z"}


def operation(kind: str, state: str, at: str = "2026-01-15T11:00:00Z") -> Object:
    return {"lastOperation": {"type": kind, "state": state, "lastUpdateTime": at}}


class TestLaunches:
    @pytest.mark.parametrize(
        ("flavour", "status", "is_launched"),
        [
            ("gardener", operation("Create", "Successful"), True),
            ("cluster-api", {"conditions": [condition("InfrastructureReady")]}, True),
            ("cluster-api", {"deprecated": {"v1beta1": {"conditions": [condition("InfrastructureReady")]}}}, True),
            ("openshift", {"providerStatus": {"conditions": [condition("MachineCreation")]}}, True),
            ("gardener", operation("Create", "Processing"), False),
            ("gardener", operation("Delete", "Successful"), False),
            ("gardener", operation("Create", "Successful", at="soon"), False),
            ("cluster-api", {"conditions": [condition("InfrastructureReady", "False")]}, False),
            ("cluster-api", {"conditions": [{"type": "InfrastructureReady", "status": "True"}]}, False),
            ("openshift", {"providerStatus": {"conditions": [{"type": "MachineCreation", "status": "False"}]}}, False),
            ("openshift", {}, False),
        ],
    )
    def test_the_launch_time_is_read_from_the_status(self, flavour: str, status: Object, is_launched: bool) -> None:
        item = machine(objects.MAKE[flavour](ZONES[0], 1), 1, node=False)
        launched_at = read_machine(flavour, {**item, "status": status}).launched_at
        assert launched_at == (NOW - timedelta(hours=1) if is_launched else None)

    @pytest.mark.parametrize(
        ("flavour", "status", "is_final"),
        [
            ("cluster-api", {"failureMessage": "no capacity"}, True),
            ("cluster-api", {"deprecated": {"v1beta1": {"failureMessage": "no capacity"}}}, True),
            ("openshift", {"phase": "Failed", "errorMessage": "no capacity"}, True),
            (
                "cluster-api",
                {"conditions": [{**condition("InfrastructureReady", "False"), "message": "no capacity"}]},
                False,
            ),
            (
                "openshift",
                {
                    "providerStatus": {
                        "conditions": [{**condition("MachineCreation", "False"), "message": "no capacity"}]
                    }
                },
                False,
            ),
            ("gardener", operation("Create", "Failed"), False),
        ],
    )
    def test_only_a_launch_that_no_controller_retries_has_failed_for_good(
        self, flavour: str, status: Object, is_final: bool
    ) -> None:
        item = machine(objects.MAKE[flavour](ZONES[0], 1), 1, node=False)
        found = read_machine(flavour, {**item, "status": status})
        assert found.failure is not None
        assert found.failed_for_good is is_final

    @staticmethod
    def reports(flavour: str, phase: str | None, message: str) -> Object:
        """Return the status of a machine whose launch has failed with this message, as each API reports it."""
        refusal = {"reason": "CreateFailed", "message": message, "severity": "Error"}
        status: Object = {
            "cluster-api": {"conditions": [{**condition("InfrastructureReady", "False"), **refusal}]},
            "final cluster-api": {"failureReason": "CreateError", "failureMessage": message},
            "openshift": {"providerStatus": {"conditions": [{**condition("MachineCreation", "False"), **refusal}]}},
            "final openshift": {"errorReason": "InsufficientResources", "errorMessage": message},
        }[flavour]
        return status if phase is None else {**status, "phase": phase}

    @pytest.mark.parametrize("flavour", ["cluster-api", "final cluster-api", "openshift", "final openshift"])
    @pytest.mark.parametrize("phase", [None, "", "Pending", "Provisioning", "Provisioned", "Failed"])
    def test_an_unknown_text_is_a_failure_only_after_the_launch(self, flavour: str, phase: str | None) -> None:
        api = flavour.removeprefix("final ")
        item = machine(objects.MAKE[api](ZONES[0], 1), 1, node=False)
        for message in ("the host is being made", "the request timed out"):
            found = read_machine(api, {**item, "status": self.reports(flavour, phase, message)})
            assert (found.failure is not None) is (phase in ("Provisioned", "Failed"))
            assert found.failed_for_good is (flavour.startswith("final") and found.failure is not None)
        for message in ("no capacity", "quota exceeded", "the image does not exist"):
            found = read_machine(api, {**item, "status": self.reports(flavour, phase, message)})
            assert found.failure is not None

    def test_a_failed_operation_of_machine_controller_manager_is_a_failure_in_every_phase(self) -> None:
        item = machine(objects.MAKE["gardener"](ZONES[0], 1), 1, node=False)
        for phase in ("", "Pending", "CrashLoopBackOff", "Failed"):
            status = {**operation("Create", "Failed"), "currentStatus": {"phase": phase}}
            assert read_machine("gardener", {**item, "status": status}).failure is not None

    @pytest.mark.parametrize("flavour", objects.MAKE)
    def test_the_wait_for_a_node_begins_at_the_machines_creation(self, flavour: str) -> None:
        item = machine(objects.MAKE[flavour](ZONES[0], 1), 1, node=False)
        item["metadata"]["creationTimestamp"] = "2026-01-15T10:00:00Z"
        for phase in ("", "Pending", "Provisioning", "CrashLoopBackOff"):
            status = {"phase": phase, "currentStatus": {"phase": phase, "lastUpdateTime": "2026-01-15T11:00:00Z"}}
            found = read_machine(flavour, {**item, "status": status})
            # Machine-controller-manager creates another instance in the same object.
            is_created_anew = (flavour, phase) == ("gardener", "Pending")
            assert found.awaited_from(NOW) == NOW - timedelta(hours=1 if is_created_anew else 2)

    @pytest.mark.parametrize(
        ("phase", "kind", "had_node"),
        [
            ("InPlaceUpdating", "InPlaceUpdate", True),
            ("Failed", "HealthCheck", True),
            ("Failed", "Create", False),
            ("Pending", "Create", False),
            ("CrashLoopBackOff", "Create", False),
            ("", None, False),
        ],
    )
    def test_a_machine_of_gardener_that_fails_after_its_launch_had_a_node(
        self, phase: str, kind: str | None, had_node: bool
    ) -> None:
        item = machine(objects.MAKE["gardener"](ZONES[0], 1), 1, node=False)
        status = {"currentStatus": {"phase": phase}, "lastOperation": {"type": kind}}
        assert read_machine("gardener", {**item, "status": status}).had_node is had_node

    @pytest.mark.parametrize("created", ["2030-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "soon", None])
    def test_a_creation_time_that_is_none_counts_as_now(self, created: str | None) -> None:
        item = machine(objects.MAKE["cluster-api"](ZONES[0], 1), 1, node=False)
        item["metadata"]["creationTimestamp"] = created
        assert read_machine("cluster-api", item).awaited_from(NOW) == NOW

    def test_a_long_message_with_control_characters_becomes_one_short_printable_line(self) -> None:
        item = machine(objects.MAKE["cluster-api"](ZONES[0], 1), 1, node=False)
        message = "no\x1b[31m\ncapacity\ud800\x00\u202e" + 100_000 * "\x07\n"
        status = {"failureReason": "\x00" + 100_000 * "x", "failureMessage": message}
        failure = read_machine("cluster-api", {**item, "status": status}).failure
        assert failure is not None
        assert failure.message.startswith("no capacity?")
        assert all(text.isprintable() and len(text) <= 1024 for text in (failure.code, failure.message))
        assert class_of(failure) is FailureClass.CAPACITY


class TestPreserved:
    @staticmethod
    def is_preserved(phase: str, expires: str | None, asks: str | None, node_asks: str | None, flavour: str) -> bool:
        item = machine(objects.MAKE[flavour](ZONES[0], 1), 1, node=False)
        item["status"] = {"currentStatus": {"phase": phase}}
        if expires is not None:
            item["status"]["currentStatus"]["preserveExpiryTime"] = expires
        names = {
            "node.machine.sapcloud.io/preserve": asks,
            "node.machine.sapcloud.io/last-applied-node-preserve-value": node_asks,
        }
        item["metadata"]["annotations"] = {name: value for name, value in names.items() if value is not None}
        return read_machine(flavour, item).preserved

    @pytest.mark.parametrize(
        ("phase", "fields", "kept"),
        [
            ("Failed", {"expires": "2026-01-15T12:00:01Z"}, True),
            ("Failed", {"expires": "2026-01-15T12:00:00Z"}, False),
            ("Failed", {"expires": "soon"}, False),
            ("Failed", {"expires": "2026-01-15T11:00:00Z", "asks": "now"}, False),
            ("Running", {"expires": "2026-01-16T12:00:00Z"}, True),
            *(("Failed", {"asks": asks}, True) for asks in ("now", "when-failed", "auto-preserved")),
            *(("Failed", {"asks": asks}, False) for asks in ("false", "")),
            ("Failed", {"node_asks": "now"}, True),
            ("Failed", {"node_asks": "false", "asks": "now"}, False),
            ("Failed", {"node_asks": "", "asks": "now"}, True),
            ("Failed", {"node_asks": "when-failed", "asks": "false"}, True),
            ("Pending", {"asks": "when-failed"}, False),
            ("CrashLoopBackOff", {"asks": "when-failed"}, False),
            ("Running", {"asks": "now"}, False),
            ("Failed", {"asks": "now", "flavour": "cluster-api"}, False),
        ],
    )
    def test_a_machine_is_preserved_by_expiry_or_annotation(
        self, phase: str, fields: dict[str, str], kept: bool
    ) -> None:
        given = {"expires": None, "asks": None, "node_asks": None, "flavour": "gardener", **fields}
        assert self.is_preserved(phase, **given) is kept

    @pytest.mark.parametrize(("count", "held"), [(1, 1), (2, 2), (9, 2), (-1, 0), (True, 0), ("2", 0), (None, 0)])
    def test_a_deployment_counts_those_that_have_failed(self, count: Any, held: int) -> None:
        item = changed(objects.gardener(ZONES[0], 3, 1), "status", "preservedFailedReplicas", to=count)
        group = only("gardener", item)
        assert (group.preserved, group.waiting) == (held, 2 - held)
        assert only("cluster-api", {**objects.cluster_api(ZONES[0], 3, 1), "status": item["status"]}).preserved == 0


class TestFaults:
    @pytest.mark.parametrize(
        ("path", "value", "says"),
        [
            (("spec", "replicas"), "three", "spec.replicas is 'three'"),
            (("spec", "replicas"), -1, "spec.replicas is '-1': negative: write 0 or more"),
            (("spec", "replicas"), 2**31, "larger than 2147483647"),
            (("metadata", "annotations", "evenkeel.dev/pool-max"), "12.5", "evenkeel.dev/pool-max is '12.5'"),
            (("metadata", "annotations", "evenkeel.dev/pool-max"), {"a": 1}, "evenkeel.dev/pool-max is "),
            (("metadata", "annotations", "evenkeel.dev/adopted-bounds"), "4", "evenkeel.dev/adopted-bounds is '4'"),
            (("spec", "template", "spec", "failureDomain"), ["a"], "zone is "),
            (("spec", "strategy"), {"rollingUpdate": {"maxSurge": "x", "maxUnavailable": 0}}, "maxSurge is 'x'"),
        ],
    )
    def test_a_bad_value_is_named_with_its_object_and_the_rest_is_still_read(
        self, path: tuple[str, ...], value: Any, says: str
    ) -> None:
        group = only("cluster-api", changed(objects.cluster_api(ZONES[0], 3), *path, to=value))
        (fault,) = group.unreadable.faults
        assert str(fault).startswith("MachineDeployment demo/demo-workers-eu-central-1a: ")
        assert says in str(fault)
        assert group.identity.pool_label == "workers"

    def test_an_edited_decision_is_no_fault(self) -> None:
        for text in ("", "{", "[]", '{"max": -1, "target": 2, "state": "healthy"}', '{"max": 1}'):
            group = only("cluster-api", objects.cluster_api(ZONES[0], 1, annotations={"evenkeel.dev/decision": text}))
            assert (group.ours.published, group.unreadable.faults) == (None, ())

    @given(
        json_values(),
        st.sampled_from(["metadata", "spec", "status"]),
        st.sampled_from([*objects.MAKE.items(), ("cluster-api", objects.machine_pool)]),
    )
    def test_anything_in_any_part_of_an_object_is_read_or_skipped(self, value: Any, part: str, made: Any) -> None:
        flavour, make = made
        item = {**make(ZONES[0], 1), part: value}
        found, skipped = read_groups(Listing(flavour=FLAVOURS[flavour], objects={item["kind"]: [item]}))
        assert len(found) + len(skipped) == 1
        read_machine(flavour, item)


# Instructions to read a group, of 1,000 in the reference work (``reference_work``), as last recorded.
COST = {"gardener": 157, "cluster-api": 150, "openshift": 148}


@pytest.mark.parametrize("flavour", list(FLAVOURS))
def test_a_group_costs_no_more_than_recorded_to_read(flavour: str) -> None:
    def read_list(number: int) -> int:
        items = [objects.MAKE[flavour](ZONES[0], 1, pool=f"p{each}", bounds=(0, 4)) for each in range(number)]
        received = ReceivedList("GET /x of demo", (json.dumps({"items": items}).encode(),), whole=False)
        return instructions(lambda: read(flavour, *received.objects()))

    cost = (read_list(30) - read_list(10)) / 20 / (instructions(partial(reference_work, 50)) / 1_000)
    assert cost <= 1.25 * COST[flavour]
