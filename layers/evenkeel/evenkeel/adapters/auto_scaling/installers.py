"""What the tags of an Auto Scaling group say about its cluster, its node group, and whether it runs a control plane.

Sources: eksctl (pkg/apis/eksctl.io/v1alpha5/types.go), kOps (pkg/model/context.go), kube-aws (stack-templates) and
rke2-aws-tf (main.tf). Cluster Autoscaler's tags describe the labels and taints of nodes.
"""

from collections.abc import Mapping

EKS_CLUSTER, EKS_NODE_GROUP = "eks:cluster-name", "eks:nodegroup-name"
OWNED, AUTOSCALER = "kubernetes.io/cluster/", "k8s.io/cluster-autoscaler/"
NODE_TEMPLATE = f"{AUTOSCALER}node-template/"
_SWITCHES = ("enabled", "disabled")  # such a tag of Cluster Autoscaler names no cluster
_CLUSTER_NAMES = ("alpha.eksctl.io/cluster-name", "KubernetesCluster")
_NODE_ROLE = "node-role.kubernetes.io/"
_CONTROL_PLANE_ROLES = frozenset(
    {
        *("control-plane", "controlplane", "master", "etcd", "api-server", "apiserver", "bastion"),
        *("scheduler", "kubecontrollermanager"),
    }
)
# Prefixes of keys that end in a role.
_ROLE_KEYS = (
    *("k8s.io/role/", "kubernetes.io/role/"),
    *(f"{NODE_TEMPLATE}{kind}/{_NODE_ROLE}" for kind in ("label", "taint")),
)
_ROLES = (("kube-aws:role", "etcd"), ("kube-aws:role", "controller"))


def clusters_of(tags: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the clusters that a group's tags name, the owner first, each with the tags that select its groups."""
    found: dict[str, list[str]] = {}
    if name := tags.get(EKS_CLUSTER):
        found[name] = [f"{EKS_CLUSTER}={name}"]
    for prefix in (OWNED, AUTOSCALER):
        for key in sorted(tags, key=lambda key: (tags[key] != "owned", key)):
            name = key.removeprefix(prefix)
            if name != key and name and "/" not in name and name not in _SWITCHES:
                found.setdefault(name, []).append(key)
    for key in _CLUSTER_NAMES:
        if name := tags.get(key):
            found.setdefault(name, []).append(f"{key}={name}")
    return found


def control_plane_tag(name: str, tags: Mapping[str, str]) -> str:
    """Return the tag by which an installer marks a group of a control plane or a bastion; empty: there is none."""
    for prefix in _ROLE_KEYS:
        marks = (key for key in sorted(tags) if key.startswith(prefix))
        if mark := next((key for key in marks if key.removeprefix(prefix) in _CONTROL_PLANE_ROLES), ""):
            return mark
    roles = [*_ROLES, *([("Role", "server")] if name.endswith("-rke2-nodepool") else [])]
    return next((f"{key}={value}" for key, value in roles if tags.get(key) == value), "")
