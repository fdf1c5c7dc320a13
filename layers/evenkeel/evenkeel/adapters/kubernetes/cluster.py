"""One look at a cluster, and the patches that follow from it."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from evenkeel.adapters.kubernetes.client import KubernetesApi
from evenkeel.adapters.kubernetes.flavours import ADOPTED, DECISION, FLAVOURS, MOVE, Flavour, Kind
from evenkeel.adapters.kubernetes.readers import (
    Found,
    Listing,
    Object,
    as_observation,
    at,
    belongs_to,
    name_of,
    read_groups,
    read_machine,
    topology_entry,
    with_autoscaler_status,
    with_machines,
)
from evenkeel.application.decisions import rfc3339
from evenkeel.application.errors import ClusterUnavailableError, EvenkeelError, RejectedError
from evenkeel.application.ports import Remaining
from evenkeel.config import ClusterPolicy
from evenkeel.domain.model import GroupKey, Observation, Skipped, State
from evenkeel.domain.plan import GroupPlan
from evenkeel.domain.writes import Patch

# A selector of this many names stays well below the 8 KB that proxies allow a URL.
_NAMES_PER_SELECTOR = 50
# Events are for people; the patches of the pools to come need the last seconds of an invocation more.
_SPARE_SECONDS = 30


_log = logging.getLogger("evenkeel.kubernetes")
_EVENT_REASONS = {
    State.HEALTHY: "Rebalanced",
    State.FENCED: "Fenced",
    State.PROBING: "Probing",
    State.FROZEN: "Frozen",  # never written, but for completeness of the table
}


class KubernetesCluster:
    """A cluster's machine objects, as one look found them. Made for one run."""

    def __init__(self, api: KubernetesApi, policy: ClusterPolicy, remaining: Remaining) -> None:
        self._api = api
        self._policy = policy
        self._remaining = remaining
        self._found: dict[GroupKey, Found] = {}
        self._machines: dict[GroupKey, list[Object]] = {}
        # Objects that a patch of ours has changed since the look; several groups can share one owner.
        self._newer: dict[str, Object] = {}

    def observe(self) -> Observation:
        """A complete look: every kind of every flavour, then the machines of groups whose nodes are not all there."""
        self._found, self._machines, self._newer = {}, {}, {}
        skipped: list[Skipped] = []
        served = False
        for name in self._policy.flavours:
            flavour = FLAVOURS[name]
            listing = self._list(flavour)
            if listing is None:
                continue
            served = True
            found, left_out = read_groups(listing, self._policy.discoveries)
            skipped += left_out
            found = with_autoscaler_status(found, flavour, self._autoscaler_status())
            self._found |= {one.group.key: one for one in self._count_machines(flavour, found)}
        if not served:
            names = ", ".join(self._policy.flavours)
            raise ClusterUnavailableError(f"{self._api.name} serves none of the machine APIs {names}: see its flavours")
        return as_observation(self._found.values(), skipped)

    def _autoscaler_status(self) -> str:
        """What Cluster Autoscaler says of its groups; empty where the record names no place, or it cannot be read."""
        namespace = self._policy.autoscaler_status
        if namespace is None:
            return ""
        path = f"/api/v1/namespaces/{quote(namespace)}/configmaps/cluster-autoscaler-status"
        return str(at(self._api.get(path, self._remaining), ("data", "status")) or "")

    def _list(self, flavour: Flavour) -> Listing | None:
        """All objects of a flavour; None where the cluster does not have it."""
        listing = Listing(flavour=flavour)
        for kind in flavour.kinds:
            version = self._version(kind)
            if version is None:
                return None
            items: list[dict[str, Any]] = []
            for namespace in self._policy.namespaces or (None,):
                page = self._api.list_all(_path(kind, version, namespace), self._remaining)
                if page is None:
                    if kind.optional:
                        break
                    return None
                items += page
            listing.objects[kind.kind] = list(items)
        return listing

    def _version(self, kind: Kind) -> str | None:
        """The version to use: the only one there is, or the best that is served."""
        if len(kind.versions) == 1:
            return kind.versions[0]
        served = self._api.served(kind.group, self._remaining)
        return next((version for version in kind.versions if version in served), None)

    def _count_machines(self, flavour: Flavour, found: list[Found]) -> Iterable[Found]:
        """The groups, with the machines of those where a machine could be waiting for its node."""
        rules = self._policy.policy().pools
        unsettled = [
            one
            for one in found
            if one.group.requested != one.group.running
            and (one.group.pool_label or any(rule.selects(one.group) for rule in rules))
        ]
        machines = self._list_machines(flavour, unsettled)
        for one in found:
            if one not in unsettled:
                yield one
                continue
            mine = [item for item in machines if belongs_to(one, flavour, item)]
            self._machines[one.group.key] = mine
            yield replace(one, group=with_machines(one.group, [read_machine(flavour, item) for item in mine]))

    def _list_machines(self, flavour: Flavour, groups: list[Found]) -> list[Object]:
        """One list per namespace and kind of scalable, by the label that names the scalable."""
        wanted: dict[tuple[str, str], list[str]] = {}
        for one in groups:
            wanted.setdefault((one.group.key.namespace, one.group.kind), []).append(one.group.key.name)
        machines: list[Object] = []
        for (namespace, kind), names in wanted.items():
            label = flavour.machine_labels.get(kind)
            chunks: list[str | None] = [
                f"{label} in ({','.join(names[i : i + _NAMES_PER_SELECTOR])})"
                for i in range(0, len(names), _NAMES_PER_SELECTOR)
            ]
            for selector in chunks if label is not None else [None]:
                version = self._version(flavour.machine) or flavour.machine.versions[0]
                page = self._api.list_all(_path(flavour.machine, version, namespace), self._remaining, selector)
                if page is None:
                    raise ClusterUnavailableError(f"{self._api.name} does not serve {flavour.machine.plural}")
                machines += page
        return machines

    def mark_waiting(self, patch: Patch) -> None:
        """Mark as many machines without a node as will go, the newest first.

        The mark carries the machine's resourceVersion: one that has become a node since the look is a conflict, and
        the plan is made again with it. Those that are marked already are asked again for the same reason. A mark of
        ours on a machine that has a node is taken off.
        """
        group = patch.plan.group
        flavour = FLAVOURS[group.key.flavour]
        key, value = flavour.mark
        items = self._machines.get(group.key, [])
        machines = {name_of(item)[1]: (read_machine(flavour, item), item) for item in items}
        staying = [machine for machine, _ in machines.values() if not machine.deleting]
        waiting = sorted(
            (machine for machine in staying if not machine.has_node),
            key=lambda machine: (machine.created_at, machine.name),
            reverse=True,
        )
        going = max(0, len(staying) - (patch.requested or 0))
        # A run that died after marking left its mark on a machine that may have become a node since: it would go now.
        # Gardener's mark does not say whose it is, but there a machine without a node goes first among marked ones.
        left_behind = [
            machine
            for machine in staying
            if machine.has_node
            and flavour.mark_is_ours
            and (at(machines[machine.name][1], ("metadata", "annotations")) or {}).get(key) == value
        ]
        version = self._version(flavour.machine) or flavour.machine.versions[0]
        for machine in left_behind + waiting[:going]:
            item = machines[machine.name][1]
            mark = None if machine.has_node else value
            metadata = {"resourceVersion": _resource_version(item), "annotations": {key: mark}}
            path = f"{_path(flavour.machine, version, group.key.namespace)}/{quote(machine.name)}"
            self._api.patch(path, {"metadata": metadata}, self._remaining)

    def apply(self, patch: Patch, decision: str, adopted: str, move: str | None = None) -> None:
        """One merge patch to one object, with bounds, replicas and our annotations as far as they stand on it."""
        group = patch.plan.group
        found = self._found[group.key]
        flavour = FLAVOURS[group.key.flavour]
        if found.owner is not None and patch.bounds is None and not patch.leaves:
            # Replicas alone. Our annotations stand where the bounds stand, but for the mark of a move.
            alone: dict[str, Any] = {"spec": {"replicas": patch.requested}}
            if move is not None:
                alone["metadata"] = {"annotations": {MOVE: move}}
            self._patch(flavour, self._newest(found.scalable), alone)
            return
        item = self._newest(found.owner or found.scalable)
        # In a merge patch, None takes a key away.
        annotations: dict[str, str | None] = {DECISION: None if patch.leaves else decision}
        if patch.leaves or (patch.bounds is not None and not group.has_adopted):
            annotations[ADOPTED] = None if patch.leaves else adopted
        if item.get("kind") != "MachineAutoscaler" and (patch.leaves or patch.bounds is not None):
            annotations[flavour.min_key] = str(patch.bounds.min) if patch.bounds else None
            annotations[flavour.max_key] = str(patch.bounds.max) if patch.bounds else None
        body: dict[str, Any] = {"metadata": {"annotations": annotations}}
        if item.get("kind") == "MachineAutoscaler" and patch.bounds is not None:
            body["spec"] = {"minReplicas": patch.bounds.min, "maxReplicas": patch.bounds.max}
        elif item.get("kind") == "Cluster":
            body = _in_topology(item, found, annotations)
        elif patch.requested is not None:
            body["spec"] = {"replicas": patch.requested}
            if move is not None:
                annotations[MOVE] = move
        if patch.leaves and found.owner is None:
            annotations[MOVE] = None
        self._patch(flavour, item, body)
        if patch.leaves and found.owner is not None and group.move is not None:
            self._patch(flavour, self._newest(found.scalable), {"metadata": {"annotations": {MOVE: None}}})

    def tell(self, plan: GroupPlan, decision: str) -> None:
        """A core/v1 Event. Its name carries the decision's id: told twice, it is refused the second time."""
        if self._remaining() < _SPARE_SECONDS:
            return
        item = self._found[plan.group.key].scalable
        namespace, name = name_of(item)
        moment = rfc3339(self._api.now())
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name[:200]}.{decision.lower()}", "namespace": namespace},
            "involvedObject": {
                "apiVersion": item.get("apiVersion"),
                "kind": item.get("kind"),
                "namespace": namespace,
                "name": name,
                "uid": at(item, ("metadata", "uid")),
            },
            "reason": "EvenkeelRestored" if plan.leaves else f"Evenkeel{_EVENT_REASONS[plan.state]}",
            "message": "; ".join(plan.reasons)[:1024],
            "type": "Warning" if plan.state is State.FENCED else "Normal",
            "source": {"component": "evenkeel"},
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }
        try:
            self._api.create(f"/api/v1/namespaces/{quote(namespace)}/events", event, self._remaining)
        except EvenkeelError as error:
            _log.info("event not told: %s", error)

    def _newest(self, item: Object) -> Object:
        return self._newer.get(_identity(item), item)

    def _patch(self, flavour: Flavour, item: Object, body: dict[str, Any]) -> None:
        namespace, name = name_of(item)
        kind = next(kind for kind in flavour.kinds if kind.kind == item.get("kind"))
        version = str(item.get("apiVersion", "")).rpartition("/")[2] or kind.versions[0]
        body.setdefault("metadata", {})["resourceVersion"] = _resource_version(item)
        answer = self._api.patch(f"{_path(kind, version, namespace)}/{quote(name)}", body, self._remaining)
        self._newer[_identity(item)] = {**answer, "kind": kind.kind, "apiVersion": f"{kind.group}/{version}"}


def _path(kind: Kind, version: str, namespace: str | None) -> str:
    where = f"/namespaces/{quote(namespace)}" if namespace else ""
    return f"/apis/{kind.group}/{version}{where}/{kind.plural}"


def _identity(item: Object) -> str:
    return "/".join((str(item.get("kind")), *name_of(item)))


def _resource_version(item: Object) -> str:
    found = at(item, ("metadata", "resourceVersion"))
    if not isinstance(found, str) or not found:
        # Without it the patch would overwrite whatever happened since the look.
        raise RejectedError(f"{_identity(item)} has no metadata.resourceVersion: not written")
    return found


def _in_topology(cluster: Object, found: Found, annotations: Mapping[str, str | None]) -> dict[str, Any]:
    """The whole list of machine deployments with one entry's annotations changed: a merge patch replaces lists."""
    labels = at(found.scalable, ("metadata", "labels")) or {}
    mine = topology_entry(cluster, labels)
    entries: list[Any] = []
    for entry in at(cluster, ("spec", "topology", "workers", "machineDeployments")):
        if mine is not None and entry is mine:
            metadata = entry.get("metadata") or {}
            merged = {**(metadata.get("annotations") or {}), **annotations}
            kept = {key: value for key, value in merged.items() if value is not None}
            entry = {**entry, "metadata": {**metadata, "annotations": kept}}
        entries.append(entry)
    return {"spec": {"topology": {"workers": {"machineDeployments": entries}}}}
