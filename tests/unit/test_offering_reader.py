"""The offering of a group, from the objects of each machine API with the providers' own names."""

from typing import Any

import pytest
from hypothesis import given

from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.adapters.kubernetes.offering_reader import by_infrastructure_template, by_machine_class, by_provider_spec
from evenkeel.domain.model.offerings import Bought
from tests import objects
from tests.builders import json_values


def template(kind: str, **spec: Any) -> dict[str, Any]:
    return {"kind": kind, "spec": {"template": {"spec": spec}}}


def machine_class(provider: str, template: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    usual = {"instanceType": "m5.large", "region": "eu-central-1", "zone": "eu-central-1a"}
    return {"provider": provider, "nodeTemplate": usual if template is None else template, "providerSpec": spec}


def provider(kind: str, **spec: Any) -> dict[str, Any]:
    return {"kind": kind, **spec}


def aws(capacity: str = "on-demand", region: str = "") -> Bought:
    return Bought(provider="aws", region=region, machine_type="m5.large", capacity_type=capacity)


PREEMPTIBLE = {"preemptible": True}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (template("AWSMachineTemplate", instanceType="m5.large"), aws()),
        (template("AWSMachineTemplate", instanceType="m5.large", spotMarketOptions={}), aws("spot")),
        (template("AWSMachineTemplate", instanceType="m5.large", marketType="Spot"), aws("spot")),
        (template("AWSMachineTemplate", instanceType="m5.large", marketType="OnDemand"), aws()),
        (template("AWSMachineTemplate", instanceType="m5.large", tenancy="default"), aws()),
        (template("AWSMachineTemplate", instanceType="m5.large", tenancy="host"), None),
        (template("AWSMachineTemplate", instanceType="m5.large", marketType="CapacityBlock"), None),
        (template("AWSMachineTemplate", instanceType="m5.large", capacityReservationId="cr-1"), None),
        (template("AWSMachineTemplate", instanceType="m5.large", placementGroupName="near"), None),
        (template("AWSMachineTemplate", instanceType=""), None),
        (template("AWSMachineTemplate", instanceType=["m5.large"]), None),
        (
            template("AzureMachineTemplate", vmSize="Standard_D4s_v5", spotVMOptions={}),
            Bought(provider="azure", region="", machine_type="Standard_D4s_v5", capacity_type="spot"),
        ),
        (
            template("GCPMachineTemplate", instanceType="n2-standard-4", preemptible=True),
            Bought(provider="gcp", region="", machine_type="n2-standard-4", capacity_type="spot"),
        ),
        (
            template("GCPMachineTemplate", instanceType="n2-standard-4", provisioningModel="Standard"),
            Bought(provider="gcp", region="", machine_type="n2-standard-4"),
        ),
        (template("Metal3MachineTemplate", image={}), None),
        (template("VSphereMachineTemplate", numCPUs=4), None),
    ],
)
def test_machine_templates(found: dict[str, Any], expected: Bought | None) -> None:
    assert by_infrastructure_template(found) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (machine_class("AWS"), aws(region="eu-central-1")),
        (machine_class("AWS", machineType="m5.large"), aws(region="eu-central-1")),
        (machine_class("AWS", {}, machineType="m5.large", region="eu-central-1"), aws(region="eu-central-1")),
        (machine_class("AWS", spotPrice=""), aws("spot", "eu-central-1")),
        (machine_class("AWS", instanceMarketOptions={"marketType": "spot"}), aws("spot", "eu-central-1")),
        (machine_class("AWS", instanceMarketOptions={"marketType": "capacity-block"}), None),
        (machine_class("AWS", capacityReservation={"capacityReservationId": "cr-1"}), None),
        (
            machine_class("AWS", capacityReservation={"capacityReservationPreference": "open"}),
            aws(region="eu-central-1"),
        ),
        (machine_class("AWS", placement={"tenancy": "dedicated"}), None),
        (
            machine_class(
                "Azure", {}, location="westeurope", properties={"hardwareProfile": {"vmSize": "Standard_D4s_v5"}}
            ),
            Bought(provider="azure", region="westeurope", machine_type="Standard_D4s_v5"),
        ),
        (machine_class("Azure", properties={"capacityReservation": {"capacityReservationGroup": "ours"}}), None),
        (
            machine_class(
                "GCP", {}, machineType="n2-standard-4", region="europe-west3", scheduling={"preemptible": True}
            ),
            Bought(provider="gcp", region="europe-west3", machine_type="n2-standard-4", capacity_type="spot"),
        ),
        (machine_class("OpenStack"), None),
        (machine_class(""), None),
    ],
)
def test_machine_classes(found: dict[str, Any], expected: Bought | None) -> None:
    assert by_machine_class(found) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            provider(
                "AWSMachineProviderConfig",
                instanceType="m5.large",
                placement={"availabilityZone": "eu-central-1a", "region": "eu-central-1", "tenancy": ""},
                capacityReservationId="",
            ),
            aws(region="eu-central-1"),
        ),
        (
            provider(
                "AWSMachineProviderConfig",
                instanceType="m5.large",
                placement={"region": "eu-central-1"},
                spotMarketOptions={},
            ),
            aws("spot", "eu-central-1"),
        ),
        (provider("AWSMachineProviderConfig", instanceType="m5.large", placement={"tenancy": "dedicated"}), None),
        (
            provider("AzureMachineProviderSpec", vmSize="Standard_D4s_v5", location="westeurope", zone="1"),
            Bought(provider="azure", region="westeurope", machine_type="Standard_D4s_v5"),
        ),
        (
            provider(
                "GCPMachineProviderSpec", machineType="n2-standard-4", region="europe-west3", provisioningModel="Spot"
            ),
            Bought(provider="gcp", region="europe-west3", machine_type="n2-standard-4", capacity_type="spot"),
        ),
        (provider("VSphereMachineProviderSpec", numCPUs=4), None),
    ],
)
def test_provider_specs(found: dict[str, Any], expected: Bought | None) -> None:
    assert by_provider_spec(found) == expected


def test_every_flavour_reads_the_shared_objects() -> None:
    scalable = objects.openshift("eu-central-1a", 1)
    assert FLAVOURS["openshift"].nodes.bought(scalable) is not None
    assert FLAVOURS["cluster-api"].nodes.bought(objects.infrastructure()) is not None
    assert FLAVOURS["gardener"].nodes.bought(objects.machine_class(objects.gardener("eu-central-1a", 1))) is not None


@given(json_values())
def test_no_object_raises_an_error(value: Any) -> None:
    for flavour in FLAVOURS.values():
        flavour.nodes.bought(value)
    by_machine_class({"provider": "AWS", "providerSpec": value, "nodeTemplate": value})
    by_provider_spec({"kind": "AWSMachineProviderConfig", "instanceType": value, "placement": value})
