"""The offering of a group, from the objects of each machine API with the providers' own names."""

from dataclasses import replace
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


def aws_template(**spec: Any) -> dict[str, Any]:
    return template("AWSMachineTemplate", **{"instanceType": "m5.large", **spec})


def aws_config(**spec: Any) -> dict[str, Any]:
    return {"kind": "AWSMachineProviderConfig", "instanceType": "m5.large", **spec}


STANDARD = "n2-standard-4"
REGION, WEST = {"region": "eu-central-1"}, {"region": "europe-west3"}
AZURE = Bought(provider="azure", region="westeurope", machine_type="Standard_D4s_v5")
GCP = Bought(provider="gcp", region="europe-west3", machine_type=STANDARD, capacity_type="spot")
D4S = {"hardwareProfile": {"vmSize": "Standard_D4s_v5"}}
OURS = {"capacityReservation": {"capacityReservationGroup": "ours"}}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (aws_template(), aws()),
        (aws_template(spotMarketOptions={}), aws("spot")),
        (aws_template(marketType="Spot"), aws("spot")),
        (aws_template(marketType="OnDemand"), aws()),
        (aws_template(tenancy="default"), aws()),
        (aws_template(tenancy="host"), None),
        (aws_template(marketType="CapacityBlock"), None),
        (aws_template(capacityReservationId="cr-1"), None),
        (aws_template(placementGroupName="near"), None),
        (aws_template(instanceType=""), None),
        (aws_template(instanceType=["m5.large"]), None),
        (
            template("AzureMachineTemplate", vmSize="Standard_D4s_v5", spotVMOptions={}),
            replace(AZURE, region="", capacity_type="spot"),
        ),
        (template("GCPMachineTemplate", instanceType=STANDARD, preemptible=True), replace(GCP, region="")),
        (
            template("GCPMachineTemplate", instanceType=STANDARD, provisioningModel="Standard"),
            replace(GCP, region="", capacity_type="on-demand"),
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
        (machine_class("AWS"), aws(**REGION)),
        (machine_class("AWS", machineType="m5.large"), aws(**REGION)),
        (machine_class("AWS", {}, machineType="m5.large", **REGION), aws(**REGION)),
        (machine_class("AWS", spotPrice=""), aws("spot", **REGION)),
        (machine_class("AWS", instanceMarketOptions={"marketType": "spot"}), aws("spot", **REGION)),
        (machine_class("AWS", instanceMarketOptions={"marketType": "capacity-block"}), None),
        (machine_class("AWS", capacityReservation={"capacityReservationId": "cr-1"}), None),
        (machine_class("AWS", capacityReservation={"capacityReservationPreference": "open"}), aws(**REGION)),
        (machine_class("AWS", placement={"tenancy": "dedicated"}), None),
        (machine_class("Azure", {}, location="westeurope", properties=D4S), AZURE),
        (machine_class("Azure", properties=OURS), None),
        (machine_class("GCP", {}, machineType=STANDARD, scheduling={"preemptible": True}, **WEST), GCP),
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
            aws_config(
                placement={**REGION, "availabilityZone": "eu-central-1a", "tenancy": ""}, capacityReservationId=""
            ),
            aws(**REGION),
        ),
        (aws_config(placement=REGION, spotMarketOptions={}), aws("spot", **REGION)),
        (aws_config(placement={"tenancy": "dedicated"}), None),
        (provider("AzureMachineProviderSpec", vmSize="Standard_D4s_v5", location="westeurope", zone="1"), AZURE),
        (provider("GCPMachineProviderSpec", machineType=STANDARD, provisioningModel="Spot", **WEST), GCP),
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
