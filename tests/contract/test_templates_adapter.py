"""The templates of nodes, read with the rights of deploy/kubernetes: results and number of requests."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from evenkeel.application.errors import ClusterUnavailableError
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.texts.english import sentence
from sandbox.kube.access import Rule
from sandbox.kube.api import KubernetesAPI
from sandbox.kube.schema import load_crds
from sandbox.template import ROOT
from tests import objects
from tests.contract.test_cluster_adapter import ROLE, Api, Stage, _stage_on, kube_api, own_stage, simulated, stage
from tests.objects import ZONES, Object, alone, infrastructure, machine, machine_class, refers

__all__ = ["kube_api", "own_stage", "stage"]  # fixtures
NODES_ROLE, _ = yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "rbac-nodes.yaml").read_text())
SIMILAR = {"discover": "similar"}
GIB = 2**30


def with_similarity(api: KubernetesAPI, **pools: Any) -> Stage:
    return _stage_on(api, flavours=["cluster-api"], pools={**SIMILAR, **pools})


def zones(*replicas: int, labelled: bool = True, **more: Any) -> list[Object]:
    """Return Cluster API groups of one template, one per zone."""
    made = [refers(objects.cluster_api(zone, wanted, **more)) for zone, wanted in zip(ZONES, replicas, strict=False)]
    return made if labelled else [alone(item) for item in made]


def put_class(stage: Stage, item: Object, **template: Any) -> None:
    # the plural of MachineClass has its own spelling
    stage.kind("machineclasses.machine.sapcloud.io/v1alpha1").create(machine_class(item, **template))


def lists(stage: Stage, name: str) -> int:
    return sum(request.path.endswith(f"/{name}") for request in stage.api.requests.matching(method="GET"))


class TestTemplates:
    @pytest.mark.parametrize("style", ["v1beta1", "v1beta2"])
    def test_a_group_without_nodes_has_the_shape_of_its_infrastructure_template(self, stage: Stage, style: str) -> None:
        stage.put(refers(objects.cluster_api(ZONES[0], 0), style=style), infrastructure())
        (group,) = stage.observe().values()
        assert group.template.node is not None
        assert (group.template.node.capacity["cpu"], group.template.node.capacity["memory"]) == (4, 16 * GIB)
        assert group.template.node.source == "AWSMachineTemplate demo-m5"
        assert (group.template.closed_because, group.template.invisible_at_zero) == (None, False)

    def test_or_of_its_machine_class(self, stage: Stage) -> None:
        item = objects.gardener(ZONES[0], 0)
        stage.put(item)
        put_class(stage, item)
        (group,) = stage.observe().values()
        assert group.template.node is not None
        assert group.template.node.capacity["nvidia.com/gpu"] == 1
        assert group.template.closed_because is None

    def test_a_template_that_is_not_there_leaves_the_group_closed_and_unseen(self, stage: Stage) -> None:
        stage.put(*zones(0), infrastructure("another"))
        (group,) = stage.observe().values()
        assert group.template.closed_because is not None
        assert group.template.invisible_at_zero

    def test_without_the_providers_api_the_group_is_closed_and_may_be_visible(self) -> None:
        crds = [crd for crd in load_crds() if crd["spec"]["group"] != objects.INFRASTRUCTURE]
        with simulated(crds=crds) as api:
            stage = _stage_on(api, flavours=["cluster-api"])
            stage.put(*zones(0))
            (group,) = stage.observe().values()
        assert group.template.closed_because is not None
        assert not group.template.invisible_at_zero

    @pytest.mark.parametrize("status", [403, 404])
    def test_templates_that_may_not_be_read_are_unknown_and_the_check_goes_on(
        self, own_stage: Stage, status: int
    ) -> None:
        own_stage.put(*zones(0, 2), infrastructure())
        own_stage.api.faults.add(path_contains="awsmachinetemplates", status=status, times=9)
        groups = list(own_stage.observe().values())
        assert [group.requested for group in groups] == [0, 2]
        assert groups[0].template.closed_because is not None
        assert "AWSMachineTemplate demo-m5 was not read" in sentence(groups[0].template.closed_because)
        assert not groups[0].template.invisible_at_zero

    def test_templates_that_break_off_half_way_are_no_templates_at_all(self, own_stage: Stage) -> None:
        own_stage.put(*zones(0), infrastructure())
        own_stage.api.faults.add(path_contains="awsmachinetemplates", status=500)
        with pytest.raises(ClusterUnavailableError):
            own_stage.observe()

    def test_a_kind_that_the_groups_newest_version_lacks_is_found_in_an_older_one(self) -> None:
        crds = load_crds()
        newer = next(crd for crd in crds if crd["metadata"]["name"] == f"awsmachines.{objects.INFRASTRUCTURE}")
        newer["spec"]["versions"] = [{**newer["spec"]["versions"][0], "name": "v1beta3"}]
        with simulated(crds=crds) as api:
            stage = _stage_on(api, flavours=["cluster-api"])
            stage.put(*zones(0), infrastructure())
            (group,) = stage.observe().values()
            paths = [request.path for request in api.requests.matching(path_contains="awsmachinetemplates")]
        assert group.template.closed_because is None
        assert [path.split("/")[3] for path in paths] == ["v1beta3", "v1beta2"]


class TestCost:
    def test_nothing_where_groups_have_nodes_or_say_it_themselves_or_are_in_no_pool(self, own_stage: Stage) -> None:
        said = {f"{objects.CAPACITY}cpu": "4", f"{objects.CAPACITY}memory": "16Gi"}
        own_stage.put(*zones(0, annotations=said), *zones(1, 0, labelled=False)[1:], infrastructure())
        own_stage.put(*zones(1, 2, 3, pool="more"), *(objects.gardener(zone, 1) for zone in ZONES))
        own_stage.observe()
        assert (lists(own_stage, "awsmachinetemplates"), lists(own_stage, "machineclasses")) == (0, 0)

    def test_one_list_per_kind_however_many_groups_are_empty(self, own_stage: Stage) -> None:
        items = [objects.gardener(zone, 0) for zone in ZONES]
        own_stage.put(*zones(0, 0, 0), infrastructure(), *items, objects.worker(0, 3))
        own_stage.observe()
        assert lists(own_stage, "awsmachinetemplates") == 1
        assert lists(own_stage, "machineclasses") <= 1
        assert lists(own_stage, "nodes") == 0

    @pytest.mark.parametrize(("fields", "read"), [({"autoscaler": "none"}, 0), ({}, 1)])
    def test_one_where_nodes_are_awaited_of_which_a_release_may_be_ordered(
        self, own_stage: Stage, fields: dict[str, str], read: int
    ) -> None:
        """A pool that grows from zero has no node to try pods on."""
        own_stage.register(workload={"access": {"kind": "same"}}, **fields)
        own_stage.put(*zones(3, 3, 3, ready=0), infrastructure())
        templates = [found.template.node for found in own_stage.observe().values()]
        assert [template is not None and template.complete for template in templates] == [bool(read)] * 3
        assert lists(own_stage, "awsmachinetemplates") == read


class TestSimilarity:
    def test_groups_of_one_template_become_one_pool_that_is_kept_even(self) -> None:
        with simulated() as api:
            stage = with_similarity(api)
            stage.put(*zones(3, 1, 0, labelled=False), infrastructure())
            stage.put(alone(refers(objects.cluster_api(ZONES[0], 1, pool="big"), name="demo-m6")))
            stage.put(infrastructure("demo-m6", capacity={"cpu": "8", "memory": "32Gi"}))
            outcome = stage.run()
            assert outcome.plan is not None
            assert [pool.id.name for pool in outcome.plan.pools] == [
                "demo-big-eu-central-1a",
                "demo-workers-eu-central",
            ]
            assert [len(pool.groups) for pool in outcome.plan.pools] == [1, 3]
            assert outcome.plan.skipped == ()
            found = stage.observe()
            stage.settle()
            assert lists(stage, "nodes") == 0
        pool = [group for name, group in found.items() if "workers" in name]
        assert sum(group.bounds.max for group in pool if group.bounds) == 12

    def test_a_group_that_nothing_is_known_of_is_skipped_with_what_to_do(self) -> None:
        with simulated() as api:
            stage = with_similarity(api)
            stage.put(*zones(1, 0, labelled=False))
            outcome = stage.run()
        assert outcome.plan is not None
        assert outcome.plan.pools == ()
        assert [sentence(skipped.reason).partition(": ")[0] for skipped in outcome.plan.skipped] == ["in no pool"] * 2
        assert all("annotate capacity.cluster" in sentence(skipped.reason) for skipped in outcome.plan.skipped)


class TestNodes:
    def world(self, stage: Stage, create: Callable[[Object], object]) -> NodeGroup:
        """Return a group of one machine whose node allows 58 pods. Its template would say 110."""
        (item,) = zones(1, labelled=False)
        node = objects.node(f"{stage.namespace}-ip-1")
        stage.put(item, infrastructure(), objects.runs_on(machine(item, 1, node=True), node))
        create(node)
        (group,) = stage.observe().values()
        return group

    @pytest.mark.parametrize("asked", [True, False])
    def test_with_the_second_manifest_nodes_are_read_where_the_record_asks(self, asked: bool) -> None:
        users = {"evenkeel": [*Rule.of_role(ROLE), *Rule.of_role(NODES_ROLE)]}
        with KubernetesAPI(users=users) as api:
            stage = with_similarity(api, **({"nodes": True} if asked else {}))
            template = self.world(stage, lambda node: api.store.create("nodes", node)).template.node
            assert template is not None
            assert template.source == ("Node demo-ip-1" if asked else "AWSMachineTemplate demo-m5")
            assert (template.capacity["pods"] == 58) is (template.allocatable is not None) is asked
            assert (lists(stage, "nodes"), lists(stage, "machines")) == (int(asked), int(asked))

    def test_without_it_templates_stand_in(
        self, kube_api: Api, kind_of: Callable[..., Any], connect: Callable[..., Any], namespace: str
    ) -> None:
        from kubernetes import client

        stage = Stage(kube_api, kind_of, namespace, flavours=["cluster-api"], pools={**SIMILAR, "nodes": True})
        group = self.world(stage, client.CoreV1Api(connect()).create_node)
        assert group.template.node is not None
        assert group.template.node.source == "AWSMachineTemplate demo-m5"
