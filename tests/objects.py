"""Objects of the three machine APIs as their own tools make them, as `kubectl get -o json` shows them, with status."""

import json
from collections.abc import Callable
from typing import Any

from sandbox.kube.store import Store

Object = dict[str, Any]

ZONES = ("eu-central-1a", "eu-central-1b", "eu-central-1c")
REPLICA_KEYS = ("replicas", "readyReplicas", "availableReplicas")


def bounds_of(flavour: str, low: int, high: int) -> dict[str, str]:
    prefix = {
        "gardener": "machine.sapcloud.io",
        "cluster-api": "cluster.x-k8s.io",
        "openshift": "machine.openshift.io",
    }[flavour]
    key = f"{prefix}/cluster-api-autoscaler-node-group"
    return {f"{key}-min-size": str(low), f"{key}-max-size": str(high)}


def _status(replicas: int, ready: int) -> dict[str, int]:
    return {"replicas": replicas, "readyReplicas": ready, "availableReplicas": ready}


def gardener(
    zone: str,
    replicas: int,
    ready: int | None = None,
    *,
    pool: str = "main",
    bounds: tuple[int, int] | None = (0, 4),
    annotations: dict[str, str] | None = None,
) -> Object:
    """Return a MachineDeployment as Gardener's provider extension makes it: one per zone of a worker pool."""
    name = f"shoot--demo--main-{pool}-z{ZONES.index(zone) + 1}"
    labels = {"worker.gardener.cloud/pool": pool}
    return {
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineDeployment",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {**(bounds_of("gardener", *bounds) if bounds else {}), **(annotations or {})},
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"name": name}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"name": name}},
                "spec": {
                    "class": {"kind": "MachineClass", "name": f"{name}-5b1c9"},
                    "nodeTemplate": {"metadata": {"labels": {**labels, "topology.kubernetes.io/zone": zone}}},
                },
            },
        },
        "status": _status(replicas, replicas if ready is None else ready),
    }


def cluster_api(
    zone: str,
    replicas: int,
    ready: int | None = None,
    *,
    pool: str = "workers",
    bounds: tuple[int, int] | None = (0, 4),
    annotations: dict[str, str] | None = None,
    version: str = "v1beta1",
) -> Object:
    """Return a MachineDeployment of Cluster API: one per failure domain, with Evenkeel's pool label."""
    name = f"demo-{pool}-{zone}"
    labels = {"cluster.x-k8s.io/cluster-name": "demo", "cluster.x-k8s.io/deployment-name": name}
    return {
        "apiVersion": f"cluster.x-k8s.io/{version}",
        "kind": "MachineDeployment",
        "metadata": {
            "name": name,
            "labels": {"cluster.x-k8s.io/cluster-name": "demo", "evenkeel.dev/pool": pool},
            "annotations": {**(bounds_of("cluster-api", *bounds) if bounds else {}), **(annotations or {})},
        },
        "spec": {
            "clusterName": "demo",
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "clusterName": "demo",
                    "failureDomain": zone,
                    "version": "v1.34.1",
                    "bootstrap": {"dataSecretName": "demo-bootstrap"},
                    "infrastructureRef": {"kind": "AWSMachineTemplate", "name": f"demo-{pool}"},
                },
            },
        },
        "status": _status(replicas, replicas if ready is None else ready),
    }


def machine_pool(
    zone: str,
    replicas: int,
    nodes: int | None = None,
    *,
    instances: int | None = None,
    pool: str = "workers",
    bounds: tuple[int, int] | None = (0, 4),
    annotations: dict[str, str] | None = None,
    version: str = "v1beta2",
) -> Object:
    """Return a MachinePool of Cluster API in one failure domain, without Machines."""
    nodes = replicas if nodes is None else nodes
    instances = replicas if instances is None else instances
    name = f"demo-{pool}-{zone}"
    ready = instances if version == "v1beta2" else nodes
    return {
        "apiVersion": f"cluster.x-k8s.io/{version}",
        "kind": "MachinePool",
        "metadata": {
            "name": name,
            "labels": {"cluster.x-k8s.io/cluster-name": "demo", "evenkeel.dev/pool": pool},
            "annotations": {**(bounds_of("cluster-api", *bounds) if bounds else {}), **(annotations or {})},
        },
        "spec": {
            "clusterName": "demo",
            "replicas": replicas,
            "failureDomains": [zone],
            "providerIDList": [f"aws:///{zone}/i-{number:017x}" for number in range(instances)],
            "template": {
                "spec": {
                    "clusterName": "demo",
                    "version": "v1.34.1",
                    "bootstrap": {"dataSecretName": "demo-bootstrap"},
                    "infrastructureRef": {"kind": "AWSMachinePool", "name": name},
                }
            },
        },
        "status": {
            "replicas": instances,
            "readyReplicas": ready,
            "nodeRefs": [{"apiVersion": "v1", "kind": "Node", "name": f"ip-{number}"} for number in range(nodes)],
        },
    }


def openshift(
    zone: str,
    replicas: int,
    ready: int | None = None,
    *,
    pool: str = "worker",
    bounds: tuple[int, int] | None = None,
    annotations: dict[str, str] | None = None,
) -> Object:
    """Return a MachineSet of OpenShift, by default without bounds, which its MachineAutoscaler has."""
    name = f"demo-x7k2p-{pool}-{zone}"
    prefix = "machine.openshift.io"
    labels = {f"{prefix}/cluster-api-cluster": "demo-x7k2p", f"{prefix}/cluster-api-machineset": name}
    return {
        "apiVersion": f"{prefix}/v1beta1",
        "kind": "MachineSet",
        "metadata": {
            "name": name,
            "labels": {f"{prefix}/cluster-api-cluster": "demo-x7k2p", "evenkeel.dev/pool": pool},
            "annotations": {**(bounds_of("openshift", *bounds) if bounds else {}), **(annotations or {})},
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": {**labels, f"{prefix}/cluster-api-machine-role": pool}},
                "spec": {
                    "providerSpec": {
                        "value": {
                            "apiVersion": f"{prefix}/v1beta1",
                            "kind": "AWSMachineProviderConfig",
                            "instanceType": "m5.xlarge",
                            "placement": {"availabilityZone": zone, "region": "eu-central-1"},
                        }
                    }
                },
            },
        },
        "status": _status(replicas, replicas if ready is None else ready),
    }


#: a function per flavour that returns a scalable of this zone with these replicas
MAKE: dict[str, Callable[..., Object]] = {"gardener": gardener, "cluster-api": cluster_api, "openshift": openshift}
#: the mark of each flavour that makes a controller delete a machine first
MARKS = (
    "cluster.x-k8s.io/delete-machine",
    "machine.openshift.io/delete-machine",
    "machinepriority.machine.sapcloud.io",
)


def moving(scalable: Object, wanted: str | None, found: str | None) -> Object:
    """Return OpenShift's MachineSet with the authoritative API of its spec and that of its status."""
    spec, status = (
        {**scalable[part], **({} if api is None else {"authoritativeAPI": api})}
        for part, api in (("spec", wanted), ("status", found))
    )
    metadata = {**scalable["metadata"], "namespace": "openshift-machine-api"}
    return {**scalable, "metadata": metadata, "spec": spec, "status": status}


def twin(scalable: Object) -> Object:
    """Return OpenShift's MachineSet of Cluster API for this one of OpenShift's own API.

    cluster-capi-operator converts it (pkg/conversion/mapi2capi), and copies labels and annotations.
    """
    metadata, spec = scalable["metadata"], scalable["spec"]
    zone = spec["template"]["spec"]["providerSpec"]["value"]["placement"]["availabilityZone"]
    labels = {"cluster.x-k8s.io/cluster-name": "demo-x7k2p", "cluster.x-k8s.io/set-name": metadata["name"]}
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineSet",
        "metadata": {**metadata, "namespace": "openshift-cluster-api", "labels": metadata["labels"] | labels},
        "spec": {
            "clusterName": "demo-x7k2p",
            "replicas": spec["replicas"],
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"clusterName": "demo-x7k2p", "failureDomain": zone}},
        },
        "status": {key: value for key, value in scalable["status"].items() if key in REPLICA_KEYS},
    }


def machine_autoscaler(zone: str, low: int, high: int, *, pool: str = "worker") -> Object:
    return {
        "apiVersion": "autoscaling.openshift.io/v1beta1",
        "kind": "MachineAutoscaler",
        "metadata": {"name": f"{pool}-{zone}"},
        "spec": {
            "minReplicas": low,
            "maxReplicas": high,
            "scaleTargetRef": {
                "apiVersion": "machine.openshift.io/v1beta1",
                "kind": "MachineSet",
                "name": f"demo-x7k2p-{pool}-{zone}",
            },
        },
    }


def worker(low: int, high: int, *, pool: str = "main") -> Object:
    return {
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "Worker",
        "metadata": {"name": "main"},
        "spec": {
            "type": "aws",
            "region": "eu-central-1",
            "pools": [
                {"name": pool, "minimum": low, "maximum": high, "machineType": "m5.xlarge", "zones": list(ZONES)}
            ],
        },
    }


def machine(scalable: Object, number: int, *, node: bool, version: str | None = None) -> Object:
    labels = dict(scalable["spec"]["template"].get("metadata", {}).get("labels", {}))
    if scalable["kind"] == "MachinePool":
        labels["cluster.x-k8s.io/pool-name"] = scalable["metadata"]["name"]
    kind = scalable["apiVersion"].split("/")[0]
    name = f"{scalable['metadata']['name']}-{number:05}"
    body: Object = {
        "apiVersion": scalable["apiVersion"] if version is None else f"{kind}/{version}",
        "kind": "Machine",
        "metadata": {"name": name, "labels": labels},
        "spec": {"clusterName": "demo"} if kind == "cluster.x-k8s.io" else {},
    }
    if kind == "machine.sapcloud.io":
        phase = "Running" if node else "Pending"
        body["status"] = {"currentStatus": {"phase": phase}, **({"node": f"ip-{number}"} if node else {})}
    else:
        body["status"] = (
            {"phase": "Running", "nodeRef": {"name": f"ip-{number}"}} if node else {"phase": "Provisioning"}
        )
    return body


def becomes_a_node(found: Object) -> Object:
    if found["apiVersion"].startswith("machine.sapcloud.io"):
        return {"status": {"node": "ip-new", "currentStatus": {"phase": "Running"}}}
    return {"status": {"phase": "Running", "nodeRef": {"name": "ip-new"}}}


def refused(flavour: str) -> Object:
    """Return the status of a machine that the cloud has refused."""
    message, moment = "InsufficientInstanceCapacity: none here", "2026-01-15T11:59:00Z"
    condition = {"status": "False", "message": message, "lastTransitionTime": moment}
    if flavour == "gardener":
        operation = {"type": "Create", "state": "Failed", "description": message, "lastUpdateTime": moment}
        return {"currentStatus": {"phase": "CrashLoopBackOff"}, "lastOperation": operation}
    if flavour == "cluster-api":
        return {"conditions": [{"type": "InfrastructureReady", "reason": "InstanceProvisionFailed", **condition}]}
    creation = {"type": "MachineCreation", "reason": "MachineCreationFailed", **condition}
    return {"providerStatus": {"conditions": [creation]}}


def topology_cluster(*names: str, **fields: Any) -> Object:
    """Return a ClusterClass-managed Cluster with one machine deployment per name, zone by zone."""
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "Cluster",
        "metadata": {"name": "demo", "labels": {"cluster.x-k8s.io/cluster-name": "demo"}},
        "spec": {
            "topology": {
                "class": "aws",
                "version": "v1.34.1",
                "workers": {
                    "machineDeployments": [
                        {
                            "class": "default-worker",
                            "name": name,
                            "failureDomain": ZONES[i % len(ZONES)],
                            "metadata": {
                                "labels": {"team": "demo"},
                                "annotations": {**bounds_of("cluster-api", 0, 9), "team.example/keep": "me"},
                            },
                        }
                        for i, name in enumerate(names)
                    ]
                },
            },
            **fields,
        },
    }


def topology_owned(scalable: Object, name: str) -> Object:
    """Return the MachineDeployment that the topology controller makes of an entry, with the entry's annotations."""
    metadata = scalable["metadata"]
    labels = {
        **metadata["labels"],
        "topology.cluster.x-k8s.io/owned": "",
        "topology.cluster.x-k8s.io/deployment-name": name,
    }
    return {**scalable, "metadata": {**metadata, "labels": labels, "annotations": bounds_of("cluster-api", 0, 9)}}


CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
INFRASTRUCTURE = "infrastructure.cluster.x-k8s.io"


def alone(scalable: Object) -> Object:
    metadata = scalable["metadata"]
    labels = {key: value for key, value in metadata["labels"].items() if key != "evenkeel.dev/pool"}
    return {**scalable, "metadata": {**metadata, "labels": labels}}


def refers(scalable: Object, *, style: str = "v1beta2", name: str = "demo-m5") -> Object:
    """Return the Cluster API scalable with a full reference to its template, in the style of that API version."""
    reference = {"kind": "AWSMachineTemplate", "name": name}
    reference |= {"apiGroup": INFRASTRUCTURE} if style == "v1beta2" else {"apiVersion": f"{INFRASTRUCTURE}/v1beta2"}
    template = scalable["spec"]["template"]
    spec = {**template["spec"], "infrastructureRef": reference}
    return {**scalable, "spec": {**scalable["spec"], "template": {**template, "spec": spec}}}


def infrastructure(name: str = "demo-m5", **status: Any) -> Object:
    """Return an AWSMachineTemplate. Cluster API's AWS provider writes the machine's capacity to its status."""
    return {
        "apiVersion": f"{INFRASTRUCTURE}/v1beta2",
        "kind": "AWSMachineTemplate",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"instanceType": "m5.xlarge"}}},
        "status": {
            "capacity": {"cpu": "4", "memory": "16Gi"},
            "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux"},
            **status,
        },
    }


def machine_class(scalable: Object, **template: Any) -> Object:
    return {
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineClass",
        "metadata": {"name": scalable["spec"]["template"]["spec"]["class"]["name"]},
        "nodeTemplate": {
            "architecture": "arm64",
            "capacity": {"cpu": "4", "gpu": "1", "memory": "16Gi"},
            "instanceType": "m6g.xlarge",
            "region": "eu-central-1",
            "zone": "eu-central-1a",
            **template,
        },
        "provider": "AWS",
    }


def node(name: str, *, memory: str = "16000000Ki", ready: str = "True", **labels: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", **labels}},
        "spec": {
            "providerID": f"aws:///eu-central-1a/{name}",
            "taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}],
        },
        "status": {
            "capacity": {"cpu": "4", "memory": memory, "pods": "58", "hugepages-2Mi": "0"},
            "allocatable": {"cpu": "3920m", "memory": "15000000Ki", "pods": "58", "hugepages-2Mi": "0"},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def runs_on(machine: Object, node: Object) -> Object:
    return {**machine, "spec": {**machine["spec"], "providerID": node["spec"]["providerID"]}}


def as_sent(store: Store, resource: str, item: Object) -> Object:
    """Return an object of the sandbox as its API sends it, with managedFields."""
    metadata, version = item["metadata"], item["apiVersion"].rpartition("/")[2]
    sent: Object = json.loads(store.encoded(resource, metadata.get("namespace", ""), metadata["name"], version=version))
    return sent


def writers(item: Object, *path: str) -> set[str]:
    found = set()
    for entry in item["metadata"]["managedFields"]:
        node: Any = entry["fieldsV1"]
        for part in path:
            node = node.get(part) if isinstance(node, dict) else None
        if node is not None:
            found.add(f"{entry['manager']}: {entry['operation']}")
    return found
