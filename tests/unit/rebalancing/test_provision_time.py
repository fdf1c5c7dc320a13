"""A group's own options of cluster-autoscaler, such as its provision time."""

from datetime import timedelta

import pytest

from evenkeel.adapters.kubernetes.flavours import CLUSTER_API, FLAVOURS, GARDENER, OPENSHIFT
from evenkeel.adapters.kubernetes.read.groups import Listing, read_groups
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.policy import Policy
from tests import objects
from tests.builders import numbers, pool_plan, problems_of
from tests.objects import ZONES
from tests.parts import make, replace

OPTIONS = (
    *("provision_timeout", "unneeded_time", "unready_time"),
    *("utilization_threshold", "gpu_utilization_threshold"),
)


def read(flavour: str = "cluster-api", **annotations: str) -> NodeGroup:
    """Return the group of a scalable with these annotations, under the flavour's names."""
    states, item = FLAVOURS[flavour], objects.MAKE[flavour](ZONES[0], 1)
    named = {getattr(states.autoscaler, name): value for name, value in annotations.items()}
    item["metadata"].setdefault("annotations", {}).update(named)
    ((found,), _) = read_groups(Listing(flavour=states, objects={item["kind"]: [item]}))
    return found.group


@pytest.mark.parametrize("flavour", objects.MAKE)
def test_the_groups_own_provision_time_counts(flavour: str) -> None:
    found = replace(read(flavour, provision_timeout="25M"), pool_max=9, pool_label="workers")
    assert found.options.provision_timeout == timedelta(minutes=25)
    (planned,) = pool_plan([found], numbers(0, 9)).groups
    assert planned.provision_timeout == timedelta(minutes=25)


@pytest.mark.parametrize("flavour", objects.MAKE)
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("value", ["", "soon", "-5m", "1e400"])
def test_an_unreadable_option_is_reported_and_the_default_counts(flavour: str, option: str, value: str) -> None:
    found = replace(read(flavour, **{option: value}), pool_max=9, pool_label="workers")
    assert getattr(found.options, option) is None
    assert [fault.field for fault in found.unreadable.notes] == [getattr(FLAVOURS[flavour].autoscaler, option)]
    planned = pool_plan([found], numbers(0, 9))
    assert planned.mode.valid
    assert "the default counts" in problems_of(planned.report.problems)[0]
    assert (
        planned.groups[0].provision_timeout
        == make(Policy, strategy=numbers().settings.strategy).settings.provision_timeout
    )


def test_each_api_has_its_own_option_names() -> None:
    assert [flavour.autoscaler.provision_timeout for flavour in (CLUSTER_API, OPENSHIFT, GARDENER)] == [
        "cluster.x-k8s.io/autoscaling-options-maxnodeprovisiontime",
        "machine.openshift.io/autoscaling-options-maxnodeprovisiontime",
        "autoscaler.gardener.cloud/max-node-provision-time",
    ]
