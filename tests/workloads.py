"""Builders of pods, nodes and pools with demand. A test names only the fields that matter to it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta
from fractions import Fraction
from typing import Any

from evenkeel.domain.demand.cluster_snapshot import ClusterSnapshot
from evenkeel.domain.demand.pod_groups import PodGroups
from evenkeel.domain.demand.volumes import Volumes
from evenkeel.domain.model.demand import GroupOffer, PoolOffer
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.templates import NodeTemplate, Taint
from evenkeel.domain.model.workload import (
    HOSTNAME,
    ZONE,
    Container,
    Needs,
    Node,
    Owner,
    Pod,
    Requirement,
    Selector,
    Toleration,
    Unscheduled,
    Workload,
)
from evenkeel.domain.rebalancing.membership.quantities import read_quantity
from evenkeel.texts.english import sentence
from tests.builders import MINUTE, NOW
from tests.parts import fields_of, make

SIZE = {"cpu": "4", "memory": "16Gi", "pods": "110"}


def amounts(**quantities: str | int) -> dict[str, Fraction]:
    """Return quantities, such as cpu="500m". A resource with a domain is written vendor__name."""
    return {name.replace("__", "/").replace("_", "."): read_quantity(text) for name, text in quantities.items()}


def container(**fields: Any) -> Container:
    """Return a container of these quantities by resource and other fields of ``Container``."""
    own = {name: fields.pop(name) for name in ("ports", "stays", "running_with", "allocated", "name") if name in fields}
    return Container(requests=amounts(**fields), **own)


def requirement(text: str) -> Requirement:
    """Parse ``key in a,b``, ``key notin a``, ``key exists``, ``key absent`` or ``key > 3``."""
    key, operator, *values = text.split(" ", 2)
    names = {"in": "In", "notin": "NotIn", "exists": "Exists", "absent": "DoesNotExist", ">": "Gt", "<": "Lt"}
    return Requirement(key, names.get(operator, operator), tuple(values[0].split(",")) if values else ())


def selector(*texts: str) -> Selector:
    return tuple(requirement(text) for text in texts)


def pod(name: str = "p", *, cpu: str = "1", memory: str = "1Gi", **fields: Any) -> Pod:
    """Return an unschedulable pod of a ReplicaSet, ten minutes old. With ``node`` it runs there.

    ``fields`` are those of ``Pod`` and of ``Needs``.
    """
    needs = {field: fields.pop(field) for field in list(fields) if field in fields_of(Needs)}
    needs.setdefault("containers", (container(cpu=cpu, memory=memory),))
    running = "node" in fields
    return Pod(
        namespace=fields.pop("namespace", "default"),
        name=name,
        created_at=fields.pop("created_at", NOW - 10 * MINUTE),
        owner=fields.pop("owner", Owner("ReplicaSet", "web")),
        phase=fields.pop("phase", "Running" if running else "Pending"),
        unscheduled=fields.pop("unscheduled", None if running else Unscheduled("Unschedulable", NOW - 9 * MINUTE)),
        needs=make(Needs, **needs),
        **fields,
    )


def pods(number: int, name: str = "p", **fields: Any) -> tuple[Pod, ...]:
    return tuple(pod(f"{name}-{i}", **fields) for i in range(number))


def node(name: str = "n", zone: str = "a", *, labels: Mapping[str, str] | None = None, **fields: Any) -> Node:
    """Return a ready node of 4 cores, 16 GiB and 110 pods, with labels for hostname and zone."""
    size = amounts(**{**SIZE, **fields.pop("size", {})})
    return Node(
        name=name,
        labels={HOSTNAME: name, ZONE: zone, **(labels or {})},
        capacity=fields.pop("capacity", size),
        allocatable=fields.pop("allocatable", size),
        **fields,
    )


def taint(text: str) -> Taint:
    """Parse ``key=value:Effect``."""
    spec, _, effect = text.partition(":")
    key, _, value = spec.partition("=")
    return Taint(key, value, effect)


EVERYTHING = (Toleration(operator="Exists"),)


def why_not(asking: Pod, there: Node, *others: Node, standing: Iterable[Pod] = (), **parts: Any) -> Reason | None:
    """Return the first rule by which a pod does not fit a node, in a cluster of these nodes and running pods."""
    workload = Workload(nodes=(there, *others), pods=(*standing, asking), **parts)
    kinds = PodGroups(Volumes(workload))
    snapshot = ClusterSnapshot(workload.namespaces)
    for each in workload.nodes:
        snapshot.add_node(each, Counter(kinds.of(item) for item in workload.pods if item.node == each.name))
    return snapshot.failing_filter(kinds.of(asking), snapshot.node_infos[there.name])


def said(reason: Reason | None) -> str:
    return "fits" if reason is None else sentence(reason)


def group_key(zone: str = "a", pool: str = "workers") -> GroupKey:
    return GroupKey("cluster-api", "default", f"{pool}-{zone}")


def pool_id(pool: str = "workers") -> PoolId:
    return PoolId("cluster-api", "default", "", pool)


def template(labels: Mapping[str, str] | None = None, taints: tuple[Taint, ...] = (), **size: str) -> NodeTemplate:
    whole = amounts(**{**SIZE, **size})
    return NodeTemplate(capacity=whole, allocatable=whole, labels=labels or {}, taints=taints)


def offer(zone: str = "a", pool: str = "workers", **fields: Any) -> GroupOffer:
    """Return an empty group of nodes of the usual size, with a max of ten."""
    fields.setdefault("template", template())
    return make(GroupOffer, group=group_key(zone, pool), zone=zone, room=fields.pop("room", 10), **fields)


def pool_offer(name: str = "workers", zones: str = "abc", *, room: int = 30, min: int = 0, **fields: Any) -> PoolOffer:
    """Return a pool with such a group in each zone."""
    return PoolOffer(
        pool=pool_id(name), groups=tuple(offer(zone, name, **fields) for zone in zones), room=room, min=min
    )


def asked(nodes: Mapping[GroupKey, int]) -> dict[str, int]:
    return {group.name: count for group, count in nodes.items()}


LONG_AGO = NOW - timedelta(hours=2)
