"""Write the rights of ``deploy/kubernetes`` that depend on the machine API: ``python -m deploy.rights``.

``FOLDERS`` has a row for each ecosystem. A role lets patch what the policies beside it limit, and nothing else.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from deploy.policies import (
    Policy,
    clusters,
    fenced_node_pools,
    machine_autoscalers,
    marked_machines,
    node_groups,
    node_pools,
    shoot_workers,
    text_of,
)
from evenkeel.adapters.kubernetes.flavours import CLUSTER_API, FLAVOURS, GARDENER, OPENSHIFT
from evenkeel.adapters.kubernetes.flavours.base import Flavour
from evenkeel.adapters.kubernetes.objects import Kind
from evenkeel.adapters.kubernetes.owners.cluster_topology import ClusterTopology
from evenkeel.adapters.kubernetes.owners.openshift import ClusterAutoscaler
from evenkeel.adapters.kubernetes.owners.worker import Worker

KUBERNETES = Path(__file__).resolve().parent / "kubernetes"
# To support another infrastructure provider, add its machine template here.
_PROVIDERS = ("aws", "azure", "docker", "gcp", "hcloud", "ibmvpc", "kubevirt", "metal3", "nutanix", "oci", "openstack")
_PROVIDERS += ("proxmox", "vsphere")
_MANY = 5  # so many resources have a line each
_OF_HYPERSHIFT = ("aws", "azure", "gcp", "openstack")


def _machine_templates(providers: Sequence[str]) -> dict[str, list[str]]:
    return {"infrastructure.cluster.x-k8s.io": [f"{provider}machinetemplates" for provider in providers]}


class Folder(NamedTuple):
    """The rights in one ecosystem, apart from those on node groups and machines."""

    cluster: str  # where to apply the files
    flavour: Flavour
    owners: Sequence[Policy] = ()  # owners of bounds that Evenkeel writes
    read: Mapping[str, Sequence[Kind]] = {}  # what Evenkeel only reads, by purpose
    templates: Mapping[str, Sequence[str]] = {}  # plurals of node templates, by API group


_PAUSED = "whether a cluster is paused"
FOLDERS = {
    "gardener": Folder(
        "a Gardener seed",
        GARDENER,
        read={"a pool's numbers and zones, which gardenlet writes": [Worker.kind, Worker.copy_kind]},
        templates={"machine.sapcloud.io": ["machineclasses"]},
    ),
    "cluster-api": Folder(
        "a Cluster API management cluster",
        CLUSTER_API,
        read={
            f"{_PAUSED}, and what its topology owns. rbac-topology.yaml allows writing to a topology": [
                ClusterTopology.kind
            ]
        },
        templates=_machine_templates(_PROVIDERS),
    ),
    "hypershift": Folder(
        "a HyperShift management cluster",
        CLUSTER_API,
        owners=[node_pools()],
        read={_PAUSED: [ClusterTopology.kind]},
        templates=_machine_templates(_OF_HYPERSHIFT),
    ),
    "openshift": Folder(
        "an OpenShift cluster",
        OPENSHIFT,
        owners=[machine_autoscalers("evenkeel-openshift-machineautoscalers")],
        read={"the most nodes that the cluster may have": [ClusterAutoscaler.kind]},
    ),
}


class Rule(NamedTuple):
    """A rule of a role, for each API group."""

    purpose: str
    resources: Mapping[str, Sequence[str]]  # plurals by API group
    verbs: str


def files() -> dict[str, str]:
    """Return the text of each file, by its path below ``deploy/kubernetes``."""
    texts = {
        **_for_all(),
        "cluster-api/admission-policy-topology.yaml": _policies(
            _LIMITS.format(rights="rbac-topology.yaml"), [clusters("evenkeel-cluster-api-clusters")]
        ),
        "hypershift/admission-policy-fence.yaml": _policies(_FENCE, [fenced_node_pools()]),
        "gardener/admission-policy-shoots.yaml": _policies(
            f"{_LIMITS.format(rights='rbac-shoots.yaml')}{_GARDEN}", [shoot_workers()]
        ),
    }
    for name, folder in FOLDERS.items():
        pool, role = folder.flavour.instance_pool, f"evenkeel-{name}"
        # Only the role for all machine APIs grants instance pools.
        groups = [kind for kind in folder.flavour.scalables if pool is None or kind.kind != pool.kind]
        policies = [node_groups(role, groups), marked_machines(role, [folder.flavour.machines.kind]), *folder.owners]
        rules = _rules(policies, folder.read, folder.templates)
        texts |= {
            f"{name}/admission-policy.yaml": _policies(_LIMITS.format(rights="rbac.yaml"), policies),
            f"{name}/rbac.yaml": _writers(_RIGHTS.format(cluster=folder.cluster), role, rules),
            f"{name}/rbac-readers.yaml": _readers(_READERS, role, rules),
            f"{name}/kustomization.yaml": _KUSTOMIZATION.format(name=name),
        }
    return texts


def _for_all() -> dict[str, str]:
    flavours = FLAVOURS.values()
    policies = [
        node_groups("evenkeel", [kind for flavour in flavours for kind in flavour.scalables]),
        marked_machines("evenkeel", [flavour.machines.kind for flavour in flavours]),
        machine_autoscalers("evenkeel-machineautoscalers"),
        clusters("evenkeel-clusters"),
    ]
    written = [kind for policy in policies for kind in policy.kinds]
    owners = [kind for flavour in flavours for kind in flavour.companions if kind not in written]
    templates: dict[str, Sequence[str]] = {}
    for folder in FOLDERS.values():
        for group, plurals in folder.templates.items():
            templates[group] = list(dict.fromkeys([*templates.get(group, ()), *plurals]))
    rules = _rules(policies, {"owners of a pool's numbers, limits of the cluster's nodes": owners}, templates)
    return {
        "admission-policy.yaml": _policies(_LIMITS_OF_ALL, policies),
        "rbac.yaml": _writers(_RIGHTS_OF_ALL, "evenkeel", rules),
        "rbac-readers.yaml": _readers(_READERS_OF_ALL, "evenkeel", rules),
    }


def _rules(
    policies: Sequence[Policy], read: Mapping[str, Sequence[Kind]], templates: Mapping[str, Sequence[str]]
) -> list[Rule]:
    rules = [Rule(policy.comment, _by_group(policy.kinds), "get, list, patch") for policy in policies]
    rules += [Rule(f"Read-only: {purpose}", _by_group(kinds), "get, list") for purpose, kinds in read.items()]
    return [*rules, Rule(_TEMPLATES, templates, "list")] if templates else rules


def _by_group(kinds: Sequence[Kind]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for kind in kinds:
        groups.setdefault(kind.group, []).append(kind.plural)
    return groups


def _policies(head: str, policies: Sequence[Policy]) -> str:
    return "".join([f"{head}\n", *(f"---\n{text_of(policy)}" for policy in policies)])


def _writers(head: str, role: str, rules: Sequence[Rule]) -> str:
    return f"{head}\n{_role(role, rules)}{_STATUS}{_EVENTS}{_BINDING.format(role=role, subject='evenkeel')}"


def _readers(head: str, role: str, rules: Sequence[Rule]) -> str:
    role, rules = f"{role}-readers", [rule._replace(verbs="list") for rule in rules]
    return f"{head}\n{_role(role, rules)}{_STATUS}{_BINDING.format(role=role, subject='evenkeel-readers')}"


def _role(role: str, rules: Sequence[Rule]) -> str:
    lines = [_ROLE.format(role=role)]
    for purpose, resources, verbs in rules:
        lines.append(f"  # {purpose}\n")
        for group, plurals in resources.items():
            listed = (
                f" [{', '.join(plurals)}]" if len(plurals) < _MANY else "".join(f"\n      - {one}" for one in plurals)
            )
            lines.append(f"  - apiGroups: [{group}]\n    resources:{listed}\n    verbs: [{verbs}]\n")
    return "".join(lines)


# --- Texts

_TEMPLATES = (
    "Optional, read-only: node templates. Without this rule, a group without nodes whose annotations lack capacity"
    " gets no nodes"
)
_LIMITS_OF_ALL = """\
# Limits what the patch right of rbac.yaml allows. It applies to the subjects that rbac.yaml binds: members of the group
# `evenkeel`, ServiceAccounts named `evenkeel` in any namespace, and users whose name begins with `evenkeel:`, such as
# AWS roles with OIDC flags. Other users are not affected. If you bind the role to another subject, add that subject to
# each matchCondition. Requires Kubernetes 1.30 or newer (admissionregistration.k8s.io/v1).
#
# On a node group, only replicas, the autoscaler's bounds and annotations under evenkeel.dev/ may change. On a machine,
# only the delete mark may change; on owners of bounds, only the bounds. Each field that is not allowed is compared as a
# whole, so the policy also protects fields that later API versions add. A status is written through a subresource,
# which rbac.yaml does not grant. `python -m deploy.rights` writes this file."""
_LIMITS = """\
# Limits what the patch right of {rights} allows, for members of the group `evenkeel`, ServiceAccounts named
# `evenkeel`, and users whose name begins with `evenkeel:`. Other users are not affected. Requires Kubernetes 1.30 or
# newer. `python -m deploy.rights` writes this file."""
_GARDEN = " Apply it to the API server\n# that serves Shoots: the garden cluster."
_FENCE = """\
# Apply it only with node_pool_fence, after admission-policy.yaml in this folder. It replaces the policy of NodePools:
# Evenkeel may then change `autoScaling` to `replicas` and back. While a NodePool has replicas, its operator keeps that
# number and no autoscaler grows it. `python -m deploy.rights` writes this file."""
_RIGHTS_OF_ALL = """\
# Rights of Evenkeel in a cluster whose API server holds the machine objects: a Gardener seed, a Cluster API management
# cluster or an OpenShift cluster. Rules for API groups that a cluster does not serve have no effect there.
#
# Bound to the group `evenkeel`. On EKS, the access entry of the rebalance function's role sets this group
# (`aws eks create-access-entry --kubernetes-groups evenkeel`). Elsewhere, configure the API server to map that role to
# the group (docs/guides/access.md), or put the group into the client certificate (O=evenkeel). rbac-readers.yaml is for
# functions that only read. Also bound to the ServiceAccount `evenkeel` in the namespace `evenkeel`, for kubeconfigs
# with its token. It need not exist. To use another namespace, change it below. To use another name, change it here and
# in admission-policy.yaml, which selects subjects by name.
#
# RBAC cannot limit a patch to fields. admission-policy.yaml does. Apply both. `python -m deploy.rights` writes this
# file."""
_RIGHTS = """\
# Rights of Evenkeel in {cluster}, for this machine API only. Use it instead of ../rbac.yaml,
# which covers all machine APIs. Bound to the group `evenkeel` and to the ServiceAccount `evenkeel` in the namespace
# `evenkeel`. RBAC cannot limit a patch to fields. admission-policy.yaml does. Apply both. `python -m deploy.rights`
# writes this file."""
_READERS_OF_ALL = """\
# For the stack's functions that only read (outputs CheckRoleArn, WidgetRoleArn, OperatorRoleArn): they may list what
# rbac.yaml lets the rebalance function list, and cannot write. Bound to the group `evenkeel-readers` and to the
# ServiceAccount `evenkeel-readers` in the namespace `evenkeel`, which need not exist. On EKS, an access entry for each
# role sets the group; docs/guides/access.md has the other ways. If a kubeconfig in Secrets Manager gives all functions
# one identity, you do not need this file. `python -m deploy.rights` writes it."""
_READERS = """\
# For the stack's functions that only read: they may list what rbac.yaml in this folder lets the rebalance function
# list, and cannot write. Bound to the group `evenkeel-readers` and to the ServiceAccount `evenkeel-readers` in the
# namespace `evenkeel`. `python -m deploy.rights` writes this file."""
_KUSTOMIZATION = """\
# For `kubectl apply -k deploy/kubernetes/{name}`: the rights in such a cluster. Other files are for switches.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [rbac.yaml, rbac-readers.yaml, admission-policy.yaml]
"""
_ROLE = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {role}
rules:
"""
_STATUS = """\
  # cluster-autoscaler's status of its groups, if the cluster's record has autoscaler_status
  - apiGroups: ['']
    resources: [configmaps]
    resourceNames: [cluster-autoscaler-status]
    verbs: [get]
"""
_EVENTS = """\
  # Events about each write and its reason, for `kubectl describe`
  - apiGroups: ['']
    resources: [events]
    verbs: [create]
"""
_BINDING = """\
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {role}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {role}
subjects:
  - apiGroup: rbac.authorization.k8s.io
    kind: Group
    name: {subject}
  - kind: ServiceAccount
    name: {subject}
    namespace: evenkeel
"""


if __name__ == "__main__":
    for path, text in files().items():
        (KUBERNETES / path).parent.mkdir(exist_ok=True)
        (KUBERNETES / path).write_text(text, encoding="utf-8")
