"""Cluster API: cluster.x-k8s.io, api/core/v1beta1 and v1beta2."""

import re
from datetime import datetime
from typing import Any

from evenkeel.adapters.kubernetes.fields import Fields
from evenkeel.adapters.kubernetes.flavours.base import (
    ARCH_LABEL,
    OS_LABEL,
    TEMPLATE_LABELS,
    Autoscaler,
    Flavour,
    GroupPaths,
    InstancePool,
    Machines,
    Nodes,
    NodeTemplateSource,
    Owners,
    Reference,
    being_deleted,
    bound_keys_of,
    paused,
    rolling,
)
from evenkeel.adapters.kubernetes.machine_object import (
    Condition,
    DeleteMark,
    MachineWithPhase,
    StatusWithPhase,
    first_condition,
)
from evenkeel.adapters.kubernetes.objects import (
    ZONE_LABEL,
    Kind,
    Object,
    Scalable,
    annotations_of,
    failure_of,
    get_path,
    is_being_deleted,
    moment_of,
    name_of,
    read_resources,
    string_map,
)
from evenkeel.adapters.kubernetes.owners.annotations import Annotations, KarpenterMember
from evenkeel.adapters.kubernetes.owners.cluster_topology import TOPOLOGY_OWNED, ClusterTopology
from evenkeel.adapters.kubernetes.owners.managers import eks_anywhere
from evenkeel.adapters.kubernetes.owners.node_pool import NodePool
from evenkeel.adapters.kubernetes.owners.rancher import RancherMachinePool, managed_by_rancher
from evenkeel.adapters.own_annotations import Reading
from evenkeel.domain.model.failures import FailureClass, classify
from evenkeel.domain.model.groups import MachineFailure
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.templates import NodeTemplate
from evenkeel.domain.model.values import quote

_CAPI = "cluster.x-k8s.io"
_VERSIONS = ("v1beta2", "v1beta1")
_REPLICAS_MANAGED_BY = f"{_CAPI}/replicas-managed-by"
_DOMAINS = ("spec", "failureDomains")
_ZONE_PATHS = (("spec", "template", "spec", "failureDomain"), (*TEMPLATE_LABELS, ZONE_LABEL))
# Evenkeel lists the kind that a scalable's reference names. So the reference's API group and kind must match these
# patterns of machine templates.
_GROUP = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+", re.ASCII)
_VERSION = re.compile(r"v[0-9]+([a-z]+[0-9]+)?", re.ASCII)
_TEMPLATE = re.compile(r"[A-Z][A-Za-z0-9]*MachineTemplate", re.ASCII)


def _cluster_paused(scalable: Scalable) -> Reason | None:
    parent = scalable.parent
    if parent is None:
        return None
    is_paused = get_path(parent, ("spec", "paused")) is True
    rule = Rule.CLUSTER_PAUSED if is_paused else Rule.CLUSTER_BEING_DELETED if is_being_deleted(parent) else None
    return None if rule is None else Reason.of(rule, cluster="/".join(name_of(parent)))


def _pool_left_out(pool: Object) -> Reason | None:
    """Return the reason why a MachinePool is no node group, or None.

    Where another controller manages replicas, the provider overwrites replicas with the number of machines in the cloud
    (cluster-api-provider-aws exp/controllers/awsmachinepool_controller.go). Any value of the annotation other than
    "false" declares such a controller (cluster-api util/annotations).
    """
    manager = annotations_of(pool).get(_REPLICAS_MANAGED_BY)
    if manager is not None and manager != "false":
        return Reason.of(Rule.REPLICAS_MANAGED, by=quote(manager))
    if get_path(pool, ("metadata", "labels", TOPOLOGY_OWNED)) is not None:
        return Reason.of(Rule.TOPOLOGY_MAKES_POOL)
    domains = get_path(pool, _DOMAINS)
    if isinstance(domains, list) and len(domains) > 1:
        return Reason.of(Rule.SPANS_ZONES, zones=tuple(str(domain) for domain in domains))
    places = (*_ZONE_PATHS, ("metadata", "labels", ZONE_LABEL))
    if not domains and all(get_path(pool, path) is None for path in places):
        return Reason.of(Rule.NAMES_NO_ZONE)
    return None


class _StatusOfV1beta1(StatusWithPhase, frozen=True):
    """A status in the format of v1beta1."""

    failure_reason: str = ""
    failure_message: str | None = None

    def failure(self, condition: Condition) -> MachineFailure | None:
        """Return the failure in failureMessage, else in InfrastructureReady, a copy of the provider's condition.

        CAPA reports InstanceProvisionFailed with the EC2 error in that condition, and sets no failureMessage
        (controllers/awsmachine_controller.go:577-581). The reason ``NotReady`` alone is no failure, because a new
        machine has it.
        """
        if self.failure_message is not None:
            return failure_of(self.failure_reason, self.failure_message, None)
        if condition.status != "False":
            return None
        failed = condition.severity == "Error" or condition.reason.endswith(("Failed", "Error"))
        if not failed and classify("", condition.message) is FailureClass.UNKNOWN:
            return None
        return failure_of(condition.reason, condition.message, condition.last_transition_time)


class _Deprecated(Fields, frozen=True):
    v1beta1: _StatusOfV1beta1 = _StatusOfV1beta1()


class _Status(_StatusOfV1beta1, frozen=True):
    deprecated: _Deprecated = _Deprecated()


class _Machine(MachineWithPhase, frozen=True):
    status: _Status = _Status()

    def launch(self) -> tuple[datetime | None, MachineFailure | None, bool]:
        """Return the launch. The format of v1beta1 has another place in v1beta2 objects, which is read first."""
        new, old = self.status.deprecated.v1beta1, self.status
        ready = first_condition(new.conditions, "InfrastructureReady")
        old_ready = first_condition(old.conditions, "InfrastructureReady")
        launched = ready if ready.status == "True" else old_ready
        launched_at = moment_of(launched.last_transition_time) if launched.status == "True" else None
        for_good = new.failure_message is not None or old.failure_message is not None
        return launched_at, new.failure(ready) or old.failure(old_ready), for_good


def _is_template(group: str, _version: str, kind: str) -> bool:
    return bool(_GROUP.fullmatch(group) and _TEMPLATE.fullmatch(kind))


def _reference(value: Any) -> Reference | None:
    """Return the reference to a machine template, in the format of v1beta1 or v1beta2; else None."""
    kind, name = get_path(value, ("kind",)), get_path(value, ("name",))
    if not isinstance(kind, str) or not isinstance(name, str) or not name:
        return None
    # A reference has ``apiVersion`` in v1beta1 (ObjectReference), and ``apiGroup`` in v1beta2.
    group, _, version = str(value.get("apiVersion") or "").rpartition("/")
    group = value.get("apiGroup") or group
    if not isinstance(group, str) or not _is_template(group, version, kind):
        return None
    # By Cluster API's contract with its providers, the plural is the kind in lower case with an "s" at its end.
    versions = (version,) if _VERSION.fullmatch(version) else ()
    return Reference(Kind(group, versions, kind, f"{kind.lower()}s", optional=True), name)


def _node_template(template: Object, reading: Reading) -> NodeTemplate:
    """Return the node template in the ``status`` of an infrastructure template."""
    kind = str(template.get("kind"))
    info = string_map(get_path(template, ("status", "nodeInfo")))
    labels = {ARCH_LABEL: info.get("architecture"), OS_LABEL: info.get("operatingSystem")}
    capacity = get_path(template, ("status", "capacity"))
    return NodeTemplate(
        capacity=read_resources("status.capacity", capacity, reading.of(kind, *name_of(template))),
        labels={key: value for key, value in labels.items() if value},
        source=f"{kind} {name_of(template)[1]}",
    )


CLUSTER_API = Flavour(
    name="cluster-api",
    group=_CAPI,
    provider_groups=(f"infrastructure.{_CAPI}",),
    scalables=(
        Kind(_CAPI, _VERSIONS, "MachineDeployment", "machinedeployments"),
        Kind(_CAPI, _VERSIONS, "MachineSet", "machinesets"),
        # Some installations do not have this CRD, and older roles do not allow listing it.
        Kind(_CAPI, _VERSIONS, "MachinePool", "machinepools", optional=True, may_be_refused=True),
    ),
    instance_pool=InstancePool(
        kind="MachinePool",
        domains=_DOMAINS,
        members=("spec", "providerIDList"),
        # status.readyReplicas is not used, because in v1beta2, for a pool without Machines, it also counts machines
        # before they join (cluster-api core/reconcilers/machinepool/machinepool_controller_status.go).
        nodes=("status", "nodeRefs"),
        left_out=_pool_left_out,
    ),
    cluster=ClusterTopology.kind,
    absent_replicas=None,
    freeze_rules=(being_deleted, paused, _cluster_paused, rolling),
    owners=Owners(
        bounds=(NodePool, ClusterTopology, KarpenterMember, RancherMachinePool, Annotations),
        # OpenShift's migration to Cluster API copies these annotations unchanged. The autoscaler then reads only the
        # annotations of Cluster API (cluster-capi-operator pkg/conversion/mapi2capi/util.go).
        former_keys=bound_keys_of("machine.openshift.io"),
        managers=(managed_by_rancher, eks_anywhere),
    ),
    paths=GroupPaths(
        clusters=(("spec", "clusterName"), ("metadata", "labels", f"{_CAPI}/cluster-name")), zones=_ZONE_PATHS
    ),
    machines=Machines(
        kind=Kind(_CAPI, _VERSIONS, "Machine", "machines"),
        shape=_Machine,
        labels={
            "MachineDeployment": f"{_CAPI}/deployment-name",
            "MachineSet": f"{_CAPI}/set-name",
            "MachinePool": f"{_CAPI}/pool-name",
        },
        mark=DeleteMark(f"{_CAPI}/delete-machine"),
    ),
    autoscaler=Autoscaler.of_group(_CAPI),
    nodes=Nodes(
        template=NodeTemplateSource(
            path=("spec", "template", "spec", "infrastructureRef"),
            reference=_reference,
            holds=_is_template,
            read=_node_template,
        ),
        labels=TEMPLATE_LABELS,
        # The domains of the labels that Cluster API copies to nodes (internal/util/managed labels, GetManagedLabels).
        label_domains=("node-role.kubernetes.io", ".node-restriction.kubernetes.io", ".node.cluster.x-k8s.io"),
    ),
)
