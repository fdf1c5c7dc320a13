"""The node template of a group: its sources, their precedence, and what closes a group without nodes."""

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.adapters.kubernetes.read import node_templates
from evenkeel.adapters.kubernetes.read.groups import GroupObjects, Listing, read_groups
from evenkeel.adapters.kubernetes.read.node_templates import (
    NodeSources,
    described,
    is_template,
    needs_template,
    running_nodes,
    template_of,
)
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.similarity import IGNORED_LABELS
from evenkeel.domain.model.templates import NodeTemplate, Taint
from evenkeel.record import DiscoveredPools
from evenkeel.texts.english import sentence
from evenkeel.validation import read_model
from evenkeel_cli.cluster_file import ClusterFile
from tests import objects
from tests.builders import json_values, stated
from tests.objects import CAPACITY, INFRASTRUCTURE, ZONES, Object, machine
from tests.parts import replace

GIB = 2**30
CLUSTER_API = FLAVOURS["cluster-api"]


def found(flavour: str, item: Object) -> GroupObjects:
    """Return the scalable as it is read, in namespace demo."""
    listing = Listing(flavour=FLAVOURS[flavour])
    listing.objects[item["kind"]] = [{**item, "metadata": {"namespace": "demo", **item["metadata"]}}]
    ((one,), _) = read_groups(listing)
    return one


def checked(*templates: Object, listed: bool = True) -> NodeSources:
    """Return the sources if these are all templates of their kind in namespace demo."""
    kinds = {(item["apiVersion"].split("/")[0], item["kind"]) for item in templates}
    return NodeSources(
        templates={
            (item["apiVersion"].split("/")[0], item["kind"], "demo", item["metadata"]["name"]): item
            for item in templates
        },
        kinds=kinds if listed else (),
    )


def group(flavour: str, item: Object, *templates: Object) -> NodeGroup:
    return described(found(flavour, item), FLAVOURS[flavour], checked(*templates)).group


def template(flavour: str, item: Object, *templates: Object) -> NodeTemplate:
    made = group(flavour, item, *templates).template.node
    assert made is not None
    return made


def annotated(flavour: str = "cluster-api", replicas: int = 0, **values: str) -> Object:
    """Return a scalable with these capacity annotations. In their names, a dash is written as an underscore."""
    make = objects.MAKE[flavour]
    named = {CAPACITY + name.replace("_", "-"): value for name, value in values.items()}
    return make(ZONES[0], replicas, annotations=named)


def with_annotations(item: Object, **values: str) -> Object:
    """Return the item with further annotations under machine.openshift.io."""
    annotations = {**item["metadata"]["annotations"], **{f"machine.openshift.io/{k}": v for k, v in values.items()}}
    return {**item, "metadata": {**item["metadata"], "annotations": annotations}}


class TestAnnotations:
    def test_every_amount_is_read_as_a_quantity(self) -> None:
        item = annotated(
            cpu="3500m", memory="16Gi", ephemeral_disk="50G", maxPods="58", gpu_type="amd.com/gpu", gpu_count="2"
        )
        assert template("cluster-api", item).capacity == {
            "cpu": Fraction(7, 2),
            "memory": 16 * GIB,
            "ephemeral-storage": 50 * 10**9,
            "pods": 58,
            "amd.com/gpu": 2,
        }

    def test_labels_and_taints_are_read(self) -> None:
        made = template("cluster-api", annotated(labels="team=a,tier=gold", taints="dedicated=gpu:NoSchedule"))
        assert made.labels == {"team": "a", "tier": "gold", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
        assert made.taints == (Taint("dedicated", "gpu", "NoSchedule"),)
        assert made.source == "annotations"

    def test_an_unsupported_annotation_is_a_note_and_the_rest_is_read(self) -> None:
        found = group("cluster-api", annotated(cpu="4", memory="16Gi", dra_driver="gpu.nvidia.com"))
        (note,) = found.unreadable.notes
        assert str(note).startswith(
            f"MachineDeployment demo/{found.key.name}: {CAPACITY}dra-driver is 'gpu.nvidia.com': "
        )
        assert "does not support this annotation" in note.problem
        assert found.template.node is not None
        assert found.template.node.complete
        assert found.template.closed_because is None

    def test_without_a_gpu_type_only_openshift_has_a_gpu_name(self) -> None:
        values = {"cpu": "4", "memory": "16Gi", "gpu_count": "2"}
        assert set(template("cluster-api", annotated("cluster-api", **values)).capacity) == {"cpu", "memory", "pods"}
        assert template("openshift", annotated("openshift", **values)).capacity["nvidia.com/gpu"] == 2

    def test_without_a_source_there_is_no_template(self) -> None:
        one = group("cluster-api", objects.cluster_api(ZONES[0], 3))
        assert (one.template.node, one.template.closed_because, one.template.invisible_at_zero) == (None, None, False)

    @pytest.mark.parametrize(
        ("flavour", "newer", "older", "capacity"),
        [
            (
                *("openshift", {}, {"vCPU": "4", "memoryMb": "16384", "GPU": "1", "maxPods": "250"}),
                {"cpu": 4, "memory": 16 * GIB, "nvidia.com/gpu": 1, "pods": 250},
            ),
            (
                *("openshift", {"memory": "8Gi", "maxPods": "0"}, {"vCPU": "4", "memoryMb": "16384"}),
                {"cpu": 4, "memory": 8 * GIB, "pods": 110},
            ),
            ("cluster-api", {}, {"vCPU": "4", "memoryMb": "16384"}, None),
            ("cluster-api", {"cpu": "4", "memory": "16Gi"}, {}, {"cpu": 4, "memory": 16 * GIB, "pods": 110}),
        ],
        ids=["older names", "newer names precede", "older names of another flavour", "defaults"],
    )
    def test_older_names_of_openshift_count(
        self, flavour: str, newer: dict[str, str], older: dict[str, str], capacity: dict[str, int] | None
    ) -> None:
        made = group(flavour, with_annotations(annotated(flavour, **newer), **older)).template.node
        assert (made and made.capacity) == capacity


class TestOtherSources:
    @pytest.mark.parametrize("style", ["v1beta1", "v1beta2"])
    def test_both_styles_of_reference_find_the_template(self, style: str) -> None:
        item = objects.refers(objects.cluster_api(ZONES[0], 0), style=style)
        info = {"architecture": "arm64", "operatingSystem": "windows"}
        made = template("cluster-api", item, objects.infrastructure(nodeInfo=info))
        assert (made.capacity["cpu"], made.capacity["memory"]) == (4, 16 * GIB)
        assert made.labels == {"kubernetes.io/arch": "arm64", "kubernetes.io/os": "windows"}
        assert made.source == "AWSMachineTemplate demo-m5"

    def test_annotations_precede_the_template_by_field(self) -> None:
        item = objects.refers(annotated(memory="8Gi", labels="kubernetes.io/arch=s390x"))
        made = template("cluster-api", item, objects.infrastructure())
        assert (made.capacity["cpu"], made.capacity["memory"]) == (4, 8 * GIB)
        assert made.labels == {"kubernetes.io/arch": "s390x", "kubernetes.io/os": "linux"}

    def test_cluster_api_copies_labels_of_three_domains(self) -> None:
        item = objects.cluster_api(ZONES[0], 2)
        item["spec"]["template"]["metadata"]["labels"] = {
            "node-role.kubernetes.io/worker": "",
            "prefixed.node-role.kubernetes.io/worker": "",
            "a.node-restriction.kubernetes.io/b": "c",
            "node.cluster.x-k8s.io/pool": "p",
            "xnode.cluster.x-k8s.io/pool": "p",
            "team": "demo",
        }
        assert set(template("cluster-api", item).labels) == {
            "node-role.kubernetes.io/worker",
            "a.node-restriction.kubernetes.io/b",
            "node.cluster.x-k8s.io/pool",
            "kubernetes.io/arch",
            "kubernetes.io/os",
        }

    def test_taints_of_annotations_precede_those_of_the_spec(self) -> None:
        item = annotated(taints="a=2:NoSchedule,a=3:NoExecute")
        item["spec"]["template"]["spec"]["taints"] = [
            {"key": "a", "value": "1", "effect": "NoSchedule", "propagation": "Always"},
            {"key": "b", "effect": "NoSchedule"},
            {"key": "no-effect"},
            "no taint",
        ]
        assert set(template("cluster-api", item).taints) == {
            Taint("a", "2", "NoSchedule"),
            Taint("a", "3", "NoExecute"),
            Taint("b", "", "NoSchedule"),
        }

    def test_the_machine_class_and_node_template_of_gardener_are_combined(self) -> None:
        item = objects.gardener(ZONES[0], 0)
        item["spec"]["template"]["spec"]["nodeTemplate"]["spec"] = {"taints": [{"key": "a", "effect": "NoExecute"}]}
        made = template("gardener", item, objects.machine_class(item, virtualCapacity={"example.com/dongle": "3"}))
        gpus = {"nvidia.com/gpu": 1, "example.com/dongle": 3}
        assert made.capacity == {"cpu": 4, "memory": 16 * GIB, "pods": 110, **gpus}
        assert made.labels == {
            "worker.gardener.cloud/pool": "main",
            "topology.kubernetes.io/zone": ZONES[0],
            "topology.kubernetes.io/region": "eu-central-1",
            "node.kubernetes.io/instance-type": "m6g.xlarge",
            "kubernetes.io/arch": "arm64",
            "kubernetes.io/os": "linux",
        }
        assert made.taints == (Taint("a", "", "NoExecute"),)

    def test_the_template_of_openshift_has_labels_and_taints(self) -> None:
        item = annotated("openshift", cpu="4", memory="16Gi")
        spec = item["spec"]["template"]["spec"]
        spec["metadata"] = {"labels": {"node-role.kubernetes.io/infra": ""}}
        spec["taints"] = [{"key": "infra", "effect": "NoSchedule"}]
        made = template("openshift", item)
        assert "node-role.kubernetes.io/infra" in made.labels
        assert made.taints == (Taint("infra", "", "NoSchedule"),)

    @pytest.mark.parametrize(
        "reference",
        [
            {"kind": "Secret", "apiVersion": "v1", "name": "x"},
            {"kind": "Secret", "apiGroup": "infrastructure.cluster.x-k8s.io", "name": "x"},
            {"kind": "AWSMachineTemplate", "apiGroup": "../../api/v1", "name": "x"},
            {"kind": "AWSMachineTemplate", "apiGroup": "", "name": "x"},
            {"kind": "../AWSMachineTemplate", "apiGroup": INFRASTRUCTURE, "name": "x"},
            {"kind": "AWSMachineTemplate", "apiGroup": INFRASTRUCTURE},
            {"kind": 7, "apiGroup": INFRASTRUCTURE, "name": "x"},
            "AWSMachineTemplate",
        ],
        ids=str,
    )
    def test_a_reference_to_anything_but_a_machine_template_is_not_followed(self, reference: Any) -> None:
        item = objects.cluster_api(ZONES[0], 0)
        item["spec"]["template"]["spec"]["infrastructureRef"] = reference
        assert template_of(CLUSTER_API, item) is None
        one = group("cluster-api", item)
        assert one.template.closed_because is not None
        assert not one.template.invisible_at_zero

    def test_an_invalid_version_is_left_to_discovery(self) -> None:
        item = objects.refers(objects.cluster_api(ZONES[0], 0), style="v1beta1")
        item["spec"]["template"]["spec"]["infrastructureRef"]["apiVersion"] = f"{INFRASTRUCTURE}/../v1"
        assert template_of(CLUSTER_API, item) is None
        item["spec"]["template"]["spec"]["infrastructureRef"]["apiVersion"] = f"{INFRASTRUCTURE}/latest"
        wanted = template_of(CLUSTER_API, item)
        assert (wanted.kind.plural, wanted.kind.versions) == ("awsmachinetemplates", ())

    @pytest.mark.parametrize(
        ("flavour", "group", "version", "kind", "is_one"),
        [
            ("cluster-api", INFRASTRUCTURE, "v1beta1", "DockerMachineTemplate", True),
            ("cluster-api", INFRASTRUCTURE, "v1beta1", "DockerClusterTemplate", False),
            ("cluster-api", "", "v1", "MachineTemplate", False),
            ("gardener", "machine.sapcloud.io", "v1alpha1", "MachineClass", True),
            ("gardener", "machine.sapcloud.io", "v9", "MachineClass", False),
            ("openshift", INFRASTRUCTURE, "v1beta1", "DockerMachineTemplate", False),
        ],
    )
    def test_which_kinds_are_templates(self, flavour: str, group: str, version: str, kind: str, is_one: bool) -> None:
        assert is_template(FLAVOURS[flavour], group, version, kind) is is_one


class TestRunningNodes:
    @staticmethod
    def chosen(*nodes: Object, flavour: str = "cluster-api", owner: Object | None = None) -> dict[str, str]:
        """Return group -> sample node, if each node has a machine of the group."""
        item = owner or objects.cluster_api(ZONES[0], len(nodes))
        machines = [objects.runs_on(machine(item, i, node=True), node) for i, node in enumerate(nodes)]
        machines = [{**one, "metadata": {"namespace": "demo", **one["metadata"]}} for one in machines]
        read = map(FLAVOURS[flavour].machines.read, machines)
        known = running_nodes(FLAVOURS[flavour], [found(flavour, item)], read, nodes)
        return {key.name: one["metadata"]["name"] for key, one in known.items()}

    @pytest.mark.parametrize("flavour", FLAVOURS)
    def test_the_first_ready_node_by_name_is_the_sample(self, flavour: str) -> None:
        owner = objects.MAKE[flavour](ZONES[0], 2)
        for names in ("ba", "ab"):
            nodes = [objects.node(name) for name in names]
            assert self.chosen(*nodes, flavour=flavour, owner=owner) == {owner["metadata"]["name"]: "a"}
        assert set(self.chosen(objects.node("a", ready="Unknown"), objects.node("b")).values()) == {"b"}
        assert self.chosen(objects.node("a", ready="False")) == {}

    def test_machines_of_other_groups_and_namespaces_do_not_count(self) -> None:
        item, node = objects.cluster_api(ZONES[0], 1), objects.node("a")
        one = found("cluster-api", item)
        stranger = objects.runs_on(machine(objects.cluster_api(ZONES[1], 1), 1, node=True), node)
        elsewhere = objects.runs_on(machine(item, 1, node=True), node)
        for given_machine, namespace in ((stranger, "demo"), (elsewhere, "other")):
            given_machine["metadata"]["namespace"] = namespace
            assert running_nodes(CLUSTER_API, [one], [CLUSTER_API.machines.read(given_machine)], [node]) == {}

    def test_annotations_precede_the_sample_node(self) -> None:
        one = found("cluster-api", annotated(replicas=1, memory="8Gi"))
        made = described(
            one, CLUSTER_API, NodeSources(nodes={one.group.key: objects.node("a", team="x")})
        ).group.template.node
        assert made.capacity == {"cpu": 4, "memory": 8 * GIB, "pods": 58}
        assert made.allocatable == {"cpu": Fraction(392, 100), "memory": 15000000 * 1024, "pods": 58}
        assert made.labels["team"] == "x"
        assert made.taints == ()  # an unreachable node says nothing about the next one
        assert made.source == "annotations, then Node a"


class TestClosed:
    def closed(self, flavour: str, item: Object, *templates: Object) -> tuple[str | None, bool]:
        one = group(flavour, item, *templates)
        return sentence(
            one.template.closed_because
        ) if one.template.closed_because else None, one.template.invisible_at_zero

    @pytest.mark.parametrize("flavour", FLAVOURS)
    def test_a_group_without_nodes_is_open_when_its_cpu_and_memory_are_known(self, flavour: str) -> None:
        assert self.closed(flavour, annotated(flavour, cpu="4", memory="16Gi")) == (None, False)

    @pytest.mark.parametrize("flavour", FLAVOURS)
    @pytest.mark.parametrize(
        ("known", "missing"),
        [
            ({}, f"annotate {CAPACITY}cpu and {CAPACITY}memory"),
            ({"cpu": "4"}, f"annotate {CAPACITY}memory"),
            ({"memory": "1Gi", "cpu": "0"}, f"annotate {CAPACITY}cpu"),
        ],
        ids=str,
    )
    def test_a_closed_group_names_its_missing_annotations(
        self, flavour: str, known: dict[str, str], missing: str
    ) -> None:
        why, _ = self.closed(flavour, annotated(flavour, **known))
        assert why.startswith("at zero replicas, ")
        assert why.endswith(f": {missing}")

    @pytest.mark.parametrize(("requested", "ready"), [(1, 0), (0, 1), (3, 3)])
    def test_a_group_that_has_or_wants_nodes_is_never_closed(self, requested: int, ready: int) -> None:
        one = found("cluster-api", objects.cluster_api(ZONES[0], requested, ready))
        one = replace(one, group=replace(one.group, running=ready))
        made = described(one, CLUSTER_API, NodeSources()).group
        assert (made.template.closed_because, made.template.invisible_at_zero) == (None, False)

    def test_groups_of_gardener_are_visible(self) -> None:
        item = objects.gardener(ZONES[0], 0)
        for templates in ((), (objects.machine_class(item, capacity={}),)):
            why, unseen = self.closed("gardener", item, *templates)
            assert why is not None
            assert not unseen

    def test_a_group_without_another_source_is_invisible(self) -> None:
        why, unseen = self.closed("openshift", objects.openshift(ZONES[0], 0))
        assert (
            why == "at zero replicas, cluster-autoscaler cannot see this group: "
            f"annotate {CAPACITY}cpu and {CAPACITY}memory"
        )
        item = objects.cluster_api(ZONES[0], 0)
        why_unread, unseen_unread = self.closed("cluster-api", objects.refers(item))
        assert "the cpu and memory of a node are unknown (AWSMachineTemplate demo-m5 was not read)" in why_unread
        del item["spec"]["template"]["spec"]["infrastructureRef"]
        assert (unseen, unseen_unread, self.closed("cluster-api", item)[1]) == (True, False, True)

    @pytest.mark.parametrize("name", ["demo-m5", "another"])
    def test_a_template_that_was_read_or_does_not_exist_makes_it_invisible(self, name: str) -> None:
        item = objects.refers(objects.cluster_api(ZONES[0], 0))
        why, unseen = self.closed("cluster-api", item, objects.infrastructure(name, capacity={"cpu": "4"}))
        assert unseen
        assert "cluster-autoscaler cannot see this group" in why

    def test_a_template_from_a_file_counts_for_its_own_groups_only(self) -> None:
        item = objects.refers(objects.cluster_api(ZONES[0], 0))
        for name, unseen in (("demo-m5", True), ("another", False)):
            known = checked(objects.infrastructure(name, capacity={}), listed=False)
            assert described(found("cluster-api", item), CLUSTER_API, known).group.template.invisible_at_zero is unseen

    @pytest.mark.parametrize("flavour", ["cluster-api", "openshift"])
    def test_an_unreadable_amount_makes_the_group_invisible(self, flavour: str) -> None:
        why, unseen = self.closed(flavour, annotated(flavour, cpu="4", memory="16Gi", ephemeral_disk="500mb"))
        assert unseen
        assert f"{CAPACITY}ephemeral-disk is '500mb': not a quantity: write 500M or 500Mi" in why
        assert "annotate" not in why

    @pytest.mark.parametrize(
        ("field", "value", "says"),
        [
            ("memory", "500mb", "write 500M or 500Mi"),
            ("memory", "-1Gi", "negative"),
            ("maxPods", "1k", "not a whole number"),
            ("maxPods", "-5", "negative"),
            ("gpu_count", "1.5", "not a whole number"),
        ],
    )
    def test_a_bad_value_is_named_with_its_object_and_is_no_fault_of_the_pool(
        self, field: str, value: str, says: str
    ) -> None:
        one = group("cluster-api", annotated(replicas=2, **{field: value}))
        assert one.unreadable.faults == ()
        (fault,) = one.template.faults
        assert str(fault).startswith(
            f"MachineDeployment demo/{one.key.name}: {CAPACITY}{field.replace('_', '-')} is '{value}': "
        )
        assert says in str(fault)

    def test_an_unreadable_label_or_taint_is_a_note(self) -> None:
        item = annotated(replicas=2, cpu="4", memory="16Gi", labels="team,tier=gold", taints="a:b:c,spot:NoSchedule")
        one = group("cluster-api", item)
        assert (one.unreadable.faults, one.template.faults) == ((), ())
        assert one.template.node.labels["tier"] == "gold"
        assert one.template.node.taints == (Taint("spot", "", "NoSchedule"),)
        where = f"MachineDeployment demo/{one.key.name}: {CAPACITY}"
        assert [str(note) for note in one.unreadable.notes] == [
            f"{where}labels is 'team,tier=gold': 'team' is no label and left out: write key=value, separated by commas",
            f"{where}taints is 'a:b:c,spot:NoSchedule': 'a:b:c' is no taint and left out: "
            "write key=value:Effect, Effect one of NoSchedule, PreferNoSchedule, NoExecute",
        ]

    def test_notes_about_many_bad_entries_are_short(self) -> None:
        one = found("cluster-api", annotated(replicas=2, labels="x," * 100_000))
        twice = described(described(one, CLUSTER_API, NodeSources()), CLUSTER_API, NodeSources())
        assert len(twice.group.unreadable.notes) == 1, "they are all the same"
        assert all(len(str(note)) < 400 for note in twice.group.unreadable.notes)

    def test_a_bad_amount_of_the_template_is_named_with_the_template(self) -> None:
        item = objects.refers(objects.cluster_api(ZONES[0], 0))
        source = objects.infrastructure(capacity={"cpu": "4", "memory": "16 Gi"})
        source["metadata"]["namespace"] = "demo"
        why, _ = self.closed("cluster-api", item, source)
        assert "AWSMachineTemplate demo/demo-m5: status.capacity.memory is '16 Gi': not a quantity" in why
        assert f"annotate {CAPACITY}memory" in why

    def test_a_template_is_read_only_where_it_matters(self) -> None:
        def worth(item: Object, **changes: Any) -> bool:
            one = described(found("cluster-api", item), CLUSTER_API, NodeSources())
            return needs_template(replace(one, group=replace(one.group, **changes)))

        empty = objects.cluster_api(ZONES[0], 0)
        assert worth(empty)
        assert not worth(empty, frozen_because=stated("the object is paused"))
        assert not worth(objects.cluster_api(ZONES[0], 1))
        assert not worth(annotated(cpu="4", memory="16Gi"))
        assert not worth(annotated(cpu="4", memory="16Gi", ephemeral_disk="500mb"))


@given(flavour=st.sampled_from(sorted(FLAVOURS)), values=st.lists(json_values(), min_size=6, max_size=6))
def test_any_field_values_give_a_group(flavour: str, values: list[Any]) -> None:
    item = annotated(flavour)
    names = ("cpu", "memory", "labels", "taints", "gpu-count", "gpu-type")
    item["metadata"]["annotations"] |= {CAPACITY + name: value for name, value in zip(names, values, strict=True)}
    item["metadata"]["annotations"]["machine.openshift.io/memoryMb"] = values[1]
    spec = item["spec"]["template"]["spec"]
    spec |= {"taints": values[0], "metadata": values[1], "nodeTemplate": values[2]}
    if flavour == "cluster-api":
        item = objects.refers(item)
    one = found(flavour, item)
    source = {"kind": "AWSMachineTemplate", "nodeTemplate": values[3], "status": values[4]}
    reference = template_of(FLAVOURS[flavour], item)
    key = (reference.kind.group, reference.kind.kind, "demo", reference.name) if reference else ("", "", "", "")
    node = {"status": values[3], "metadata": {"name": values[4], "labels": values[5]}, "spec": values[0]}
    for nodes in ({}, {one.group.key: node}):
        made = described(one, FLAVOURS[flavour], NodeSources(templates={key: source}, nodes=nodes)).group
        assert made.key == one.group.key
    machine = FLAVOURS[flavour].machines.read({"metadata": {"labels": values[0]}, "spec": {"providerID": values[1]}})
    running_nodes(FLAVOURS[flavour], [one], [machine], [{"spec": {"providerID": values[1]}, "status": values[2]}])


PAGE = (Path(__file__).parents[3] / "docs" / "guides/cluster-api.md").read_text(encoding="utf-8")


class TestThePage:
    ROWS = re.findall(r"^\| (.*?) ?\| `(.*)` \|$", PAGE.partition("<!-- closed -->")[2].partition("\n\n")[0], re.M)

    @pytest.mark.parametrize(("said", "why"), ROWS)
    def test_groups_are_closed_with_the_printed_sentences(self, said: str, why: str) -> None:
        assert len(self.ROWS) == 3
        item = annotated(**dict(word.split("=") for word in said.strip("`").split()))
        item["metadata"] |= {"name": "workers-a", "namespace": "prod"}
        del item["spec"]["template"]["spec"]["infrastructureRef"]
        closed = group("cluster-api", item).template.closed_because
        assert closed is not None
        assert sentence(closed) == why

    def test_ignored_labels_are_those_of_the_code(self) -> None:
        table = PAGE.partition("| who ignores it |")[2]
        assert set(re.findall(r"`([^`]+)`", table)) == IGNORED_LABELS

    def test_ratios_are_those_of_the_code(self) -> None:
        table = re.findall(r"^\| `([a-z-]+)` \| ([0-9.]+) % \| ([0-9.]+) % \|$", PAGE, re.M)
        for name, memory, allocatable in table:
            record = read_model(ClusterFile, {"pools": {"discover": "similar", "ratios": name}}, "page")
            rule = record.policy().similarity
            assert (rule.memory_ratio * 100, rule.allocatable_ratio * 100) == (Fraction(memory), Fraction(allocatable))
        assert len(table) == 2

    def test_the_pools_shown_are_valid_and_every_field_is_described(self) -> None:
        quote = json.loads(PAGE.partition("```json record\n")[2].partition("```")[0])
        assert read_model(ClusterFile, {"pools": quote}, "page").discovered_pools is not None
        for name in DiscoveredPools.model_fields:
            assert f"| `{name}` |" in PAGE
        assert set(quote) | {"labels"} == set(DiscoveredPools.model_fields)

    def test_the_annotations_named_are_those_that_are_read(self) -> None:
        code = (Path(node_templates.__file__)).read_text(encoding="utf-8")
        read = {name for name, *_ in node_templates._AMOUNTS} | set(re.findall(r"\{CAPACITY\}([a-z-]+)", code))
        row = next(line for line in PAGE.splitlines() if line.startswith("| annotations `capacity."))
        assert set(re.findall(r"`([A-Za-z-]+)`", row)) == read | {"gpu-count"}
