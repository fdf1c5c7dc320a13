"""What `aws autoscaling describe-auto-scaling-groups` prints for clusters that common installers have made.

No group has a tag of Evenkeel. Names and tags follow the public code of the installers: terraform-aws-eks (version 21),
eksctl, kOps, rke2-aws-tf, Rancher's documentation, and AWS's CloudFormation template for node groups.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

REGION, ACCOUNT = "eu-central-1", "123456789012"
ZONES = tuple(f"{REGION}{letter}" for letter in "abc")
_UUID = "8ec1b2c3-4d5e-6f70-8192-a3b4c5d6e7f"
Tags = Mapping[str, str]


def eks(cluster: str, node_group: str, **more: str) -> Tags:
    """Return the tags that EKS sets on the group of a managed node group."""
    return {
        "eks:cluster-name": cluster,
        "eks:nodegroup-name": node_group,
        f"kubernetes.io/cluster/{cluster}": "owned",
        "k8s.io/cluster-autoscaler/enabled": "true",
        f"k8s.io/cluster-autoscaler/{cluster}": "owned",
        **more,
    }


def stack(name: str, resource: str) -> Tags:
    """Return the tags that CloudFormation sets."""
    return {
        "aws:cloudformation:stack-name": name,
        "aws:cloudformation:stack-id": f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/{name}/1",
        "aws:cloudformation:logical-id": resource,
    }


def kops(name: str, role: str, cluster: str = "blue.example.com") -> Tags:
    """Return the tags of kOps for an instance group of one role."""
    label = "k8s.io/cluster-autoscaler/node-template/label"
    roles = ("control-plane", "master") if role == "control-plane" else (role,)
    return {
        "KubernetesCluster": cluster,
        "Name": f"{name}.{cluster}",
        "aws-node-termination-handler/managed": "",
        f"{label}/node-role.kubernetes.io/{role}": "",
        **{f"k8s.io/role/{each}": "1" for each in roles},
        "kops.k8s.io/instancegroup": name,
        f"kubernetes.io/cluster/{cluster}": "owned",
    }


def group(name: str, zones: Sequence[str], tags: Tags, nodes: int = 2, **more: Any) -> dict[str, Any]:
    """Return one group whose instances run, two in each zone, or ``nodes`` in all."""
    instances = [
        {
            "InstanceId": f"i-{abs(hash((name, number))) % 16**17:017x}",
            "InstanceType": "m6i.xlarge",
            "AvailabilityZone": zones[number % len(zones)],
            "LifecycleState": "InService",
            "HealthStatus": "Healthy",
            "LaunchTemplate": {"LaunchTemplateId": "lt-1", "LaunchTemplateName": "nodes", "Version": "1"},
            "ProtectedFromScaleIn": False,
        }
        for number in range(nodes)
    ]
    return {
        "AutoScalingGroupName": name,
        "AutoScalingGroupARN": f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup:1:autoScalingGroupName/{name}",
        "MinSize": 1,
        "MaxSize": 6,
        "DesiredCapacity": nodes,
        "DefaultCooldown": 300,
        "AvailabilityZones": [*zones],
        "LoadBalancerNames": [],
        "TargetGroupARNs": [],
        "HealthCheckType": "EC2",
        "HealthCheckGracePeriod": 15,
        "Instances": instances,
        "CreatedTime": "2026-05-01T09:12:44.123000+00:00",
        "SuspendedProcesses": [],
        "VPCZoneIdentifier": ",".join(f"subnet-{zone}" for zone in zones),
        "EnabledMetrics": [],
        "Tags": [
            {"ResourceId": name, "ResourceType": "auto-scaling-group", "Key": key, "Value": value}
            | {"PropagateAtLaunch": True}
            for key, value in tags.items()
        ],
        "TerminationPolicies": ["Default"],
        "NewInstancesProtectedFromScaleIn": False,
        "ServiceLinkedRoleARN": f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/autoscaling.amazonaws.com/x",
        "TrafficSources": [],
        **more,
    }


@dataclass(frozen=True)
class Document:
    """The groups of one cluster, and the pools that a plan must show: cluster and name, and the number of groups."""

    installer: str
    groups: Sequence[dict[str, Any]]
    pools: Mapping[str, int] = field(default_factory=lambda: {"blue/workers": 3})


def _each(name: str, tags: Any, **more: Any) -> list[dict[str, Any]]:
    """Return one group for each zone. In names, {zone}, {short}, {letter}, {LETTER} and {number} are those of it."""
    groups = []
    for number, zone in enumerate(ZONES):
        words = {"zone": zone, "short": zone[-2:], "letter": zone[-1], "LETTER": zone[-1].upper(), "number": number}
        written = {key: str(value).format(**words) for key, value in tags.items()}
        groups.append(group(name.format(**words), [zone], written, **more))
    return groups


def _managed(name: str, cluster: str = "blue", **more: Any) -> list[dict[str, Any]]:
    tags = eks(cluster, name, **more.pop("tags", {}))
    return _each(f"eks-{name}-{_UUID}{{number}}", tags, **more)


_OWNED = {"kubernetes.io/cluster/blue": "owned", "k8s.io/cluster/blue": "owned"}
_OVERRIDES = {
    "MixedInstancesPolicy": {
        "LaunchTemplate": {
            "LaunchTemplateSpecification": {"LaunchTemplateId": "lt-1", "Version": "1"},
            "Overrides": [{"InstanceType": "m6i.xlarge"}, {"InstanceType": "m5.xlarge"}],
        },
        "InstancesDistribution": {"OnDemandBaseCapacity": 0, "SpotAllocationStrategy": "price-capacity-optimized"},
    }
}
_EKSCTL = {
    "alpha.eksctl.io/cluster-name": "blue",
    "alpha.eksctl.io/eksctl-version": "0.215.0",
    "alpha.eksctl.io/nodegroup-type": "unmanaged",
    "eksctl.cluster.k8s.io/v1alpha1/cluster-name": "blue",
}


def _eksctl(name: str) -> list[dict[str, Any]]:
    tags = {
        **_EKSCTL,
        "alpha.eksctl.io/nodegroup-name": name,
        "eksctl.io/v1alpha2/nodegroup-name": name,
        "Name": f"blue-{name}-Node",
        "kubernetes.io/cluster/blue": "owned",
        **stack(f"eksctl-blue-nodegroup-{name}", "NodeGroup"),
    }
    return _each(f"eksctl-blue-nodegroup-{name}-NodeGroup-tZDjAGAMF9g{{letter}}", tags)


def _control_planes(cluster: str = "blue.example.com") -> list[dict[str, Any]]:
    return [
        group(
            f"control-plane-{zone}.masters.{cluster}",
            [zone],
            kops(f"control-plane-{zone}", "control-plane", cluster),
            nodes=1,
            MinSize=1,
            MaxSize=1,
        )
        for zone in ZONES
    ]


DOCUMENTS = [
    Document(
        "terraform-aws-eks, managed, names with a prefix",
        _managed("workers-{letter}-2026050109124412300000000{number}"),
    ),
    Document("terraform-aws-eks, managed, one key for each zone", _managed("workers-{zone}")),
    Document("terraform-aws-eks, managed, by count", _managed("blue-workers-{number}")),
    Document("terraform-aws-eks, managed, with underscores", _managed("workers_{letter}")),
    Document(
        "terraform-aws-eks, managed, on demand and Spot",
        [*_managed("workers-{short}"), *_managed("spot-{short}", **_OVERRIDES)],
        {"blue/spot": 3, "blue/workers": 3},
    ),
    Document(
        "terraform-aws-eks, managed, one name and a random suffix",
        _managed("workers-20260501091244123000000{number}01"),
    ),
    Document(
        "terraform-aws-eks, self-managed",
        _each("workers-{letter}-2026050109124412300000000{number}", {"Name": "workers-{letter}", **_OWNED}),
    ),
    Document(
        "terraform-aws-eks, self-managed, mixed instances, labels with the zone",
        _each(
            "workers-{zone}-2026050109124412300000000{number}",
            {
                "Name": "workers",
                **_OWNED,
                "k8s.io/cluster-autoscaler/node-template/label/placement": "{zone}",
                "k8s.io/cluster-autoscaler/node-template/resources/ephemeral-storage": "100Gi",
            },
            **_OVERRIDES,
        ),
    ),
    Document(
        "eksctl, managed, with propagated tags",
        _managed(
            "workers-{short}",
            tags={"alpha.eksctl.io/nodegroup-name": "workers-{short}", "alpha.eksctl.io/nodegroup-type": "managed"},
        ),
    ),
    Document("eksctl, unmanaged", _eksctl("workers-{short}")),
    Document("eksctl, unmanaged, zone in front", _eksctl("{letter}-workers")),
    Document(
        "kOps, one instance group for each zone",
        [*_control_planes(), *_each("nodes-{zone}.blue.example.com", kops("nodes-{zone}", "node"))],
        {"blue.example.com/nodes": 3},
    ),
    Document(
        "kOps, two kinds of nodes, a bastion and API servers",
        [
            *_control_planes(),
            group("bastions.blue.example.com", ZONES[:1], kops("bastions", "bastion"), nodes=1),
            *_each("apiserver-{letter}.apiservers.blue.example.com", kops("apiserver-{letter}", "apiserver")),
            *_each("nodes-{letter}.blue.example.com", kops("nodes-{letter}", "node")),
            *_each("gpu-{letter}.blue.example.com", kops("gpu-{letter}", "node"), nodes=0, MinSize=0),
        ],
        {"blue.example.com/gpu": 3, "blue.example.com/nodes": 3},
    ),
    Document(
        "rke2-aws-tf",
        [
            group(
                "blue-x7k-server-rke2-nodepool",
                ZONES[:1],
                {"Name": "blue-x7k-server-rke2-nodepool", "Role": "server", "kubernetes.io/cluster/blue-x7k": "owned"},
            ),
            *_each(
                "blue-x7k-workers-{letter}-rke2-nodepool",
                {
                    "Name": "blue-x7k-workers-{letter}-rke2-nodepool",
                    "ClusterType": "rke2",
                    "kubernetes.io/cluster/blue-x7k": "owned",
                    "k8s.io/cluster-autoscaler/enabled": "true",
                    "k8s.io/cluster-autoscaler/blue-x7k": "true",
                },
            ),
        ],
        {"blue-x7k/workers-rke2-nodepool": 3},
    ),
    Document(
        "Rancher, custom cluster as its documentation shows",
        _each(
            "K8sWorkerAsg-{letter}",
            {
                "kubernetes.io/cluster/c-x7k2p": "owned",
                "k8s.io/cluster-autoscaler/blue": "true",
                "k8s.io/cluster-autoscaler/enabled": "true",
            },
        ),
        {"c-x7k2p/K8sWorkerAsg": 3},
    ),
    Document(
        "CloudFormation, AWS's template, one stack for each zone",
        _each(
            "blue-workers-{short}-NodeGroup-1QX2ABCDEF12{letter}",
            {
                "Name": "blue-workers-Node",
                "kubernetes.io/cluster/blue": "owned",
                **stack("blue-workers-{short}", "NodeGroup"),
            },
        ),
    ),
    Document(
        "CloudFormation, one stack with a resource for each zone",
        _each(
            "workers-NodeGroup{LETTER}-1QX2ABCDEF12{letter}",
            {"kubernetes.io/cluster/blue": "owned", **stack("workers", "NodeGroup{LETTER}")},
        ),
        {"blue/workers-Node-Group": 3},
    ),
    Document(
        "CloudFormation, one stack with a resource of a number for each zone",
        _each(
            "infra-WorkerGroup{number}-1QX2ABCDEF12{letter}",
            {"kubernetes.io/cluster/blue": "owned", **stack("infra", "WorkerGroup{number}")},
        ),
        {"blue/infra-Worker-Group": 3},
    ),
    Document(
        "CDK",
        _each(
            "Blue-Clusterworkers{letter}ASG1A2B3C4{number}-1QX2ABCDEF12{letter}",
            {
                "Name": "Blue/Cluster/workers-{letter}",
                "kubernetes.io/cluster/blue": "owned",
                **stack("Blue", "Clusterworkers{letter}ASG1A2B3C4{number}"),
            },
        ),
        {"blue/Blue-Cluster-workers": 3},
    ),
    Document(
        "Terraform, one module for each zone, short names of zones",
        _each("blue-workers-euc{short}", {"Name": "blue", "k8s.io/cluster-autoscaler/blue": "owned"}),
    ),
    Document(
        "two clusters in one account",
        [*_managed("workers-{letter}"), *_each("green-workers-{letter}", {"kubernetes.io/cluster/green": "owned"})],
        {"blue/workers": 3, "green/workers": 3},
    ),
]
