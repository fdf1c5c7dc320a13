"""What a new node of an Auto Scaling group has, as far as AWS knows it. Pure.

Sources of the facts: Cluster Autoscaler's provider for AWS (aws_manager.go, buildGenericLabels and
buildNodeFromTemplate; aws_util.go, transformInstanceType; aws_wrapper.go, getManagedNodegroupInfo).
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from evenkeel.adapters.auto_scaling.installers import NODE_TEMPLATE

RESOURCES = f"{NODE_TEMPLATE}resources/"
ARCH, OS = "kubernetes.io/arch", "kubernetes.io/os"
TYPE_LABEL = "node.kubernetes.io/instance-type"
_ZONES = ("topology.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone")
_REGION = "topology.kubernetes.io/region"
_GPUS = "nvidia.com/gpu"
NODE_GROUP_LABEL = "eks.amazonaws.com/nodegroup"
_MIB = 2**20

Described = Mapping[str, Any]


def named_types(item: Described, node_group: Described) -> list[str]:
    """Return the instance types that a group or its managed node group names, the first one first."""
    named = [str(each["InstanceType"]) for each in overrides_of(item) if each.get("InstanceType")]
    return named or [str(each) for each in node_group.get("instanceTypes") or ()]


def types_of(item: Described, tags: Mapping[str, str], node_group: Described) -> list[str]:
    """Return the instance types of a group, the first one first; empty: only its launch template names them."""
    named = named_types(item, node_group)
    label = tags.get(f"{NODE_TEMPLATE}label/{TYPE_LABEL}")
    running = [str(each["InstanceType"]) for each in item.get("Instances") or () if each.get("InstanceType")]
    return named or ([label] if label else running[:1])


def overrides_of(item: Described) -> list[Described]:
    """Return the overrides of a group's mixed instances policy."""
    template = (item.get("MixedInstancesPolicy") or {}).get("LaunchTemplate") or {}
    return list(template.get("Overrides") or ())


def generic_labels(type: str, region: str, zone: str, node_group: Described, of_ec2: Described) -> dict[str, str]:
    """Return the labels that each node of the group has, whatever its tags say.

    ``type``: the instance type; empty: unknown. ``of_ec2``: EC2's description of it; empty: not read.
    """
    labels = {_REGION: region, **dict.fromkeys(_ZONES, zone)}
    if type:
        labels[TYPE_LABEL] = type
    image = str(node_group.get("amiType") or "").upper()
    architectures = (of_ec2.get("ProcessorInfo") or {}).get("SupportedArchitectures") or ()
    if architectures:
        labels[ARCH] = "arm64" if architectures[0] == "arm64" else "amd64"
    elif "ARM_64" in image:
        labels[ARCH] = "arm64"
    elif "X86_64" in image:
        labels[ARCH] = "amd64"
    if image and image != "CUSTOM":
        labels[OS] = "windows" if image.startswith("WINDOWS") else "linux"
    return labels


def node_group_labels(node_group: Described) -> dict[str, str]:
    """Return the labels that EKS gives the nodes of a managed node group. They replace those of tags."""
    own = {
        NODE_GROUP_LABEL: node_group.get("nodegroupName"),
        "eks.amazonaws.com/capacityType": node_group.get("capacityType"),
    }
    labels = {key: str(value) for key, value in own.items() if value}
    return {**labels, **{str(key): str(value) for key, value in (node_group.get("labels") or {}).items()}}


def size_of(item: Described, of_ec2: Described) -> dict[str, Fraction]:
    """Return the cpu, memory and NVIDIA GPUs of a new node, as far as they are known.

    Without instance types, the least that the group requires of a type counts.
    """
    found = dict(_sizes(of_ec2))
    if not found and overrides_of(item):
        required = overrides_of(item)[0].get("InstanceRequirements") or {}
        limits = {"cpu": ("VCpuCount", 1), "memory": ("MemoryMiB", _MIB)}
        if _names_gpus(required):
            limits[_GPUS] = ("AcceleratorCount", 1)
        for name, (field, unit) in limits.items():
            if least := _count((required.get(field) or {}).get("Min")):
                found[name] = Fraction(least * unit)
    return found


def _names_gpus(required: Described) -> bool:
    """Return True if the required accelerators of an instance type can be GPUs of NVIDIA."""
    makers, kinds = required.get("AcceleratorManufacturers") or (), required.get("AcceleratorTypes") or ()
    return "nvidia" in makers and "gpu" in kinds


def _sizes(of_ec2: Described) -> Iterator[tuple[str, Fraction]]:
    if cpu := _count((of_ec2.get("VCpuInfo") or {}).get("DefaultVCpus")):
        yield "cpu", Fraction(cpu)
    if memory := _count((of_ec2.get("MemoryInfo") or {}).get("SizeInMiB")):
        yield "memory", Fraction(memory * _MIB)
    cards = (of_ec2.get("GpuInfo") or {}).get("Gpus") or ()
    gpus = sum(_count(each.get("Count")) for each in cards if str(each.get("Manufacturer")).upper() == "NVIDIA")
    if gpus:
        yield _GPUS, Fraction(gpus)


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
