"""Reads from a provider's machine spec which offering a node group buys from the cloud. Pure.

Reservations, capacity blocks, dedicated hosts and placement groups belong to one owner. So clusters cannot share them,
and they are no offerings. This module knows no offerings of providers other than AWS, Azure and Google Cloud.

Sources of the field names: openshift/api machine/v1beta1/types_{aws,azure,gcp}provider.go; cluster-api-provider-aws
api/v1beta2/awsmachine_types.go; cluster-api-provider-gcp api/v1beta1/gcpmachine_types.go; cluster-api-provider-azure
api/v1beta1/azuremachine_types.go; machine-controller-manager-provider-aws pkg/aws/apis/aws_provider_spec.go; charts
internal/machineclass of gardener-extension-provider-{azure,gcp}.
"""

from collections.abc import Mapping
from typing import Any

from evenkeel.adapters.kubernetes.objects import Path, get_path, mapping
from evenkeel.domain.model.offerings import Bought

_ON_DEMAND, _SPOT = "on-demand", "spot"
_AWS_RESERVED: tuple[Path, ...] = (
    ("capacityReservationId",),
    ("capacityReservation", "capacityReservationId"),
    ("capacityReservation", "capacityReservationResourceGroupArn"),
    ("placementGroupName",),
    ("placement", "groupId"),
    ("placement", "hostId"),
    ("hostID",),
)


def aws(spec: Mapping[str, Any], machine_type: object, region: object) -> Bought | None:
    """Return the EC2 offering of a spec, which may come from any of the three machine APIs."""
    tenancies = (spec.get("tenancy"), get_path(spec, ("placement", "tenancy")))
    market = spec.get("marketType") or get_path(spec, ("instanceMarketOptions", "marketType")) or ""
    reserved = any(get_path(spec, path) for path in _AWS_RESERVED)
    if reserved or any(tenancy not in (None, "", "default") for tenancy in tenancies):
        return None
    if str(market).lower() not in ("", "ondemand", "on-demand", "spot"):
        return None
    # The market type overrides the spot options. In Gardener, an empty ``spotPrice`` requests a spot machine without a
    # price limit.
    options = any(spec.get(name) is not None for name in ("spotMarketOptions", "spotPrice"))
    is_spot = str(market).lower() == "spot" or (options and not market)
    return _bought("aws", region, machine_type, spot=is_spot)


def azure(spec: Mapping[str, Any], machine_type: object, region: object) -> Bought | None:
    """Return the Azure offering. Empty ``spotVMOptions`` also request a spot machine."""
    if spec.get("capacityReservation") or spec.get("capacityReservationGroupID") or spec.get("dedicatedHost"):
        return None
    return _bought("azure", region, machine_type, spot=spec.get("spotVMOptions") is not None)


def gcp(spec: Mapping[str, Any], machine_type: object, region: object) -> Bought | None:
    """Return the Compute Engine offering. Preemptible and spot machines share one capacity, so both count as spot."""
    is_spot = bool(spec.get("preemptible") or get_path(spec, ("scheduling", "preemptible")))
    is_spot |= "Spot" in (spec.get("provisioningModel"), get_path(spec, ("scheduling", "provisioningModel")))
    return _bought("gcp", region, machine_type, spot=is_spot)


def _bought(provider: str, region: object, machine_type: object, *, spot: bool) -> Bought | None:
    if not isinstance(machine_type, str) or not machine_type:
        return None
    place = region if isinstance(region, str) else ""
    return Bought(
        provider=provider, region=place, machine_type=machine_type, capacity_type=_SPOT if spot else _ON_DEMAND
    )


def by_machine_class(machine_class: Any) -> Bought | None:
    """Return the offering of a MachineClass."""
    template = mapping(get_path(machine_class, ("nodeTemplate",)))
    spec = mapping(get_path(machine_class, ("providerSpec",)))
    reader = {"AWS": aws, "Azure": azure, "GCP": gcp}.get(str(get_path(machine_class, ("provider",))))
    properties = mapping(spec.get("properties"))  # Azure nests its fields here
    size = get_path(properties, ("hardwareProfile", "vmSize"))
    machine_type = template.get("instanceType") or spec.get("machineType") or size
    region = template.get("region") or spec.get("region") or spec.get("location")
    return None if reader is None else reader({**spec, **properties}, machine_type, region)


def by_infrastructure_template(template: Any) -> Bought | None:
    """Return the offering of a machine template of a Cluster API provider. These templates name no region."""
    spec = mapping(get_path(template, ("spec", "template", "spec")))
    match get_path(template, ("kind",)):
        case "AWSMachineTemplate":
            return aws(spec, spec.get("instanceType"), None)
        case "AzureMachineTemplate":
            return azure(spec, spec.get("vmSize"), None)
        case "GCPMachineTemplate":
            return gcp(spec, spec.get("instanceType"), None)
    return None


def by_provider_spec(value: Any) -> Bought | None:
    """Return the offering of OpenShift's ``providerSpec.value``."""
    spec = mapping(value)
    match spec.get("kind"):
        case "AWSMachineProviderConfig":
            return aws(spec, spec.get("instanceType"), get_path(spec, ("placement", "region")))
        case "AzureMachineProviderSpec":
            return azure(spec, spec.get("vmSize"), spec.get("location"))
        case "GCPMachineProviderSpec":
            return gcp(spec, spec.get("machineType"), spec.get("region"))
    return None
