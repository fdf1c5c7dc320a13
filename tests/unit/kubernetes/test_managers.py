"""Tools that write node groups from their own objects: Hive, Rancher, EKS Anywhere."""

from typing import Any

import pytest

from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.adapters.kubernetes.read.groups import Listing, read_groups
from evenkeel.domain.model.groups import Bounds, NodeGroup
from evenkeel.domain.model.problems import ProblemKind
from evenkeel.domain.rebalancing.membership.numbers import Change
from evenkeel.texts.english import problem_text, sentences
from evenkeel.texts.pool_numbers import command_text, origin_text
from tests import objects
from tests.builders import Played, numbers, pool_plan
from tests.objects import ZONES, Object
from tests.parts import replace

HIVE = {"hive.openshift.io/managed": "true", "hive.openshift.io/machine-pool": "worker"}
EKS_ANYWHERE = {
    "cluster.anywhere.eks.amazonaws.com/cluster-name": "shop",
    "cluster.anywhere.eks.amazonaws.com/cluster-namespace": "default",
}


def labelled(item: Object, **labels: str) -> Object:
    return {**item, "metadata": {**item["metadata"], "labels": {**item["metadata"]["labels"], **labels}}}


def of_rancher(zone: str, replicas: int, **more: Any) -> Object:
    """Return a MachineDeployment that Rancher makes from the machine pool of this zone."""
    made = objects.cluster_api(zone, replicas, **more)
    made["spec"]["template"]["metadata"]["labels"] |= {
        "rke.cattle.io/cluster-name": "demo",
        "rke.cattle.io/rke-machine-pool-name": zone[-2:],
    }
    return made


def read(flavour: str, *items: Object) -> list[NodeGroup]:
    listing = Listing(flavour=FLAVOURS[flavour])
    for item in items:
        named = {**item, "metadata": {"namespace": "fleet-default", **item["metadata"]}}
        listing.objects.setdefault(item["kind"], []).append(named)
    found, skipped = read_groups(listing)
    assert not skipped
    return [one.group for one in found]


def notes(*groups: NodeGroup) -> list[str]:
    return [note for note in sentences(pool_plan(groups).report.notes) if note.startswith("managed by")]


def test_hive_is_named_once_for_a_pool() -> None:
    sets = [labelled(objects.openshift(zone, 2, bounds=(1, 4)), **HIVE) for zone in ZONES]
    (note,) = notes(*read("openshift", *sets))
    assert note.startswith("managed by Hive: its MachinePool worker writes these MachineSets")
    applied = {"hive.openshift.io/managed": "true"}
    (note,) = notes(
        *read("openshift", *(labelled(objects.openshift(zone, 2, bounds=(1, 4)), **applied) for zone in ZONES))
    )
    assert note.startswith("managed by Hive: a SyncSet writes")


@pytest.mark.parametrize("value", ["false", ""])
def test_a_label_with_another_value_names_no_hive(value: str) -> None:
    item = labelled(objects.openshift(ZONES[0], 1, bounds=(0, 2)), **{"hive.openshift.io/managed": value})
    assert notes(*read("openshift", item)) == []


def test_eks_anywhere_is_named_with_its_cluster() -> None:
    (note,) = notes(*read("cluster-api", *(labelled(objects.cluster_api(zone, 1), **EKS_ANYWHERE) for zone in ZONES)))
    assert note.startswith("managed by EKS Anywhere: workerNodeGroupConfigurations of its Cluster default/shop write")


def test_rancher_is_named_and_owns_the_sizes_of_its_machine_pools() -> None:
    groups = read("cluster-api", *(of_rancher(zone, 1, bounds=(1, 4)) for zone in ZONES))
    (note,) = notes(*groups)
    assert note.startswith("managed by Rancher: machinePools of its Cluster fleet-default/demo write")
    found = pool_plan(groups)
    assert (found.min, found.max) == (3, 12)
    owner = groups[0].owner.numbers
    assert command_text(Change(owner=owner, before=4, after=5)) == (
        "kubectl --namespace fleet-default edit clusters.provisioning.cattle.io demo  "
        "# spec.rkeConfig.machinePools[1a].autoscalingMaxSize: 5"
    )
    one = pool_plan(groups[:1])
    assert [origin_text(origin) for origin in one.report.origins] == [
        "spec.rkeConfig.machinePools[1a].autoscalingMinSize of Rancher Cluster fleet-default/demo",
        "spec.rkeConfig.machinePools[1a].autoscalingMaxSize of Rancher Cluster fleet-default/demo",
    ]


def test_a_machine_pool_without_sizes_owns_none() -> None:
    (group,) = read("cluster-api", of_rancher(ZONES[0], 1, bounds=None))
    assert group.owner.numbers is None
    assert group.owner.managed_by is not None


def test_a_new_size_in_rancher_is_followed() -> None:
    sizes = zip(ZONES, (6, 3, 3), strict=True)
    played = Played(read("cluster-api", *(of_rancher(zone, 1, bounds=(0, high)) for zone, high in sizes)), numbers())
    before = played.check()
    assert before.max == 12
    assert before.changes
    played.check(60)
    changed, *others = played.groups
    owner = changed.owner.numbers
    assert owner is not None
    owner = replace(owner, bounds=Bounds(0, 9))
    played.groups = [replace(changed, bounds=Bounds(0, 9), owner=replace(changed.owner, numbers=owner)), *others]
    after = played.check(60)
    assert after.max == 15
    (problem,) = [each for each in after.report.problems if each.kind is ProblemKind.NEW_INTENT]
    assert problem_text(problem).startswith("Rancher Cluster fleet-default/demo now has bounds 0 to 9")
