"""Reads the node groups of a cluster for one check."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock

from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.adapters.kubernetes.client.lists import ReceivedList, settings_of, versions_of
from evenkeel.adapters.kubernetes.client.transport import Allowance
from evenkeel.adapters.kubernetes.flavours import FLAVOURS, flavours_of
from evenkeel.adapters.kubernetes.flavours.base import Flavour
from evenkeel.adapters.kubernetes.machine_object import MachineObject
from evenkeel.adapters.kubernetes.objects import (
    CONFIG_MAP,
    NODE,
    ZONE_ID_LABEL,
    ZONE_LABEL,
    Kind,
    Object,
    get_path,
    labels_of,
    name_of,
)
from evenkeel.adapters.kubernetes.read.dedupe import counted_once
from evenkeel.adapters.kubernetes.read.groups import GroupObjects, Listing, read_groups
from evenkeel.adapters.kubernetes.read.lister import Lists, ObjectLister
from evenkeel.adapters.kubernetes.read.machines import (
    nodes_of,
    with_autoscaler_status,
    with_machines,
)
from evenkeel.adapters.kubernetes.read.node_templates import (
    NodeSources,
    described,
    is_empty,
    is_unseen,
    needs_template,
    running_nodes,
    template_of,
)
from evenkeel.application.errors import NoMachineApiError
from evenkeel.application.ports import Remaining
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.groups import GroupKey, NodeGroup
from evenkeel.domain.model.observations import MachineNode, Skipped
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.record import ClusterPolicy, ClusterRecord

_log = logging.getLogger("evenkeel.kubernetes")
# The threads of a process read the groups of one cluster at a time, because this needs the most memory.
_reading = Lock()


@dataclass(kw_only=True)
class ClusterObjects:
    """The objects of one check. Each write of a machine updates ``machines``."""

    members: dict[GroupKey, GroupObjects]
    machines: dict[GroupKey, list[MachineObject]]  # machines of the groups whose machines were listed
    skipped: tuple[Skipped, ...]
    fingerprints: Mapping[str, str]  # fingerprints of the groups' lists; empty if one fingerprint is unknown


class ClusterReader:
    """Reads one cluster. ``allowance``: what all lists of a check may have together; None: a run."""

    def __init__(
        self, api: KubernetesApi, policy: ClusterPolicy, remaining: Remaining, allowance: Allowance | None
    ) -> None:
        self._api = api
        self._policy = policy
        self._remaining = remaining
        self._is_run = allowance is None
        self.lister = ObjectLister(api, policy.namespaces, remaining, allowance)
        self._rules = policy.policy().pools
        # Evenkeel tests whether pending pods fit on nodes of each group. It also tests the pods that lack nodes after a
        # release of replicas.
        views = isinstance(policy, ClusterRecord) and policy.workload is not None
        self._has_demand = policy.demand_stage is not DemandStage.OFF
        self._tries_pods = self._has_demand or bool(views and policy.policy().settings.autoscaler)

    def read(self, with_machines_of: Collection[GroupKey] = ()) -> ClusterObjects:
        """Return the cluster's objects: all kinds of all flavours, but machines, templates and nodes only if needed.

        Args:
            with_machines_of: Groups whose machines are listed even if all their nodes run.
        """
        self._api.begin_check()
        members: list[GroupObjects] = []
        skipped: list[Skipped] = []
        machines: dict[GroupKey, list[MachineObject]] = {}
        fingerprints: dict[str, str | None] = {}
        served = False
        status = self._autoscaler_status()
        flavours = flavours_of(self._policy.flavours)
        for flavour in flavours:
            lists = self.lister.list_flavour(flavour)
            if lists is None:
                continue
            served = True
            self._api.confirm_clock(self._remaining)
            groups, unread = self._read_groups(flavour, lists)
            skipped += unread
            fingerprints |= self._fingerprints(flavour, lists, groups)
            groups = with_autoscaler_status(groups, flavour, status)
            groups = self._with_machines(flavour, groups, with_machines_of, machines)
            members += self._with_templates(flavour, groups)
        if not served:
            raise NoMachineApiError(self._api.name, [flavour.name for flavour in flavours])
        counted, copies = counted_once(members)
        known = {place: text for place, text in fingerprints.items() if text is not None}
        return ClusterObjects(
            members={member.group.key: member for member in counted},
            machines=machines,
            skipped=(*skipped, *copies, *self._refused_kinds()),
            fingerprints=known if len(known) == len(fingerprints) else {},
        )

    def _autoscaler_status(self) -> str:
        """Return the text of cluster-autoscaler-status; empty if it is unreadable or the record names no namespace."""
        namespace = self._policy.autoscaler_status
        if namespace is None:
            return ""
        path = CONFIG_MAP.path("v1", namespace, "cluster-autoscaler-status")
        return str(get_path(self._api.get(path, self._remaining), ("data", "status")) or "")

    def _read_groups(self, flavour: Flavour, lists: Lists) -> tuple[list[GroupObjects], list[Skipped]]:
        """Return a flavour's groups, and the objects that could not be read."""
        listing = Listing(flavour=flavour)
        with _reading:
            for kind, received in lists.items():
                listing.objects[kind] = [item for page in received for item in page.objects()]
            return read_groups(listing, self._policy.discoveries)

    def _fingerprints(self, flavour: Flavour, lists: Lists, groups: list[GroupObjects]) -> Mapping[str, str | None]:
        """Return the fingerprints of the lists that a later quick check compares; a run needs none."""
        return {
            f"{flavour.name}/{kind.kind}/{self.lister.version(kind)}": _fingerprint(flavour, kind, lists[kind.kind])
            for kind in ([] if self._is_run else _compared_kinds(flavour, groups))
            if kind.kind in lists
        }

    def is_unchanged(self, fingerprints: Mapping[str, str]) -> bool:
        """Return True where the lists still have these fingerprints. A list of an unknown kind counts as changed."""
        for place, fingerprint in fingerprints.items():
            flavour, _, rest = place.partition("/")
            name, _, version = rest.partition("/")
            kinds = FLAVOURS[flavour].kinds if flavour in FLAVOURS else ()
            kind = next((kind for kind in kinds if kind.kind == name), None)
            received = None if kind is None else self.lister.list_version(kind, version, metadata_only=True)
            if kind is None or received is None or _fingerprint(FLAVOURS[flavour], kind, received) != fingerprint:
                return False
        return bool(fingerprints)

    def _has_pool(self, group: NodeGroup) -> bool:
        """Return True where a label or a rule of the record puts the group into a pool."""
        return bool(group.identity.pool_label) or any(rule.selects(group) for rule in self._rules)

    def _with_machines(
        self,
        flavour: Flavour,
        members: list[GroupObjects],
        named: Collection[GroupKey],
        machines: dict[GroupKey, list[MachineObject]],
    ) -> list[GroupObjects]:
        """Return the groups, with machines in groups of ``named`` and in groups where a machine may lack its node."""

        def needs_machines(group: NodeGroup) -> bool:
            is_complete = group.requested == group.running and group.identity.zone is not None
            takes_part = self._policy.discovered_pools is not None or self._has_pool(group)
            return group.key in named or (not is_complete and takes_part)

        listed = [member.group for member in members if needs_machines(member.group)]
        owned = self.lister.list_machines(flavour, listed)
        machines |= owned
        now = self._api.now()

        def counted(group: NodeGroup) -> NodeGroup:
            return with_machines(group, [item.read(flavour.machines.mark, now) for item in owned[group.key]])

        return [
            replace(member, group=counted(member.group)) if member.group.key in owned else member for member in members
        ]

    def _with_templates(self, flavour: Flavour, members: list[GroupObjects]) -> list[GroupObjects]:
        """Return the groups with node templates.

        Other objects are listed in two cases only: an empty group's cpu and memory are unknown, or groups are compared
        for similarity.
        """
        similar = self._policy.discovered_pools

        def with_templates(sources: NodeSources) -> list[GroupObjects]:
            every = bool(similar) or self._has_demand
            return [
                described(member, flavour, sources)
                if every or is_empty(member) or (self._tries_pods and is_unseen(member))
                else member
                for member in members
            ]

        members = with_templates(NodeSources())
        compared = [member for member in members if not self._has_pool(member.group)] if similar else []
        unknown = [
            member
            for member in members
            if (needs_template(member) or (self._tries_pods and is_unseen(member))) and self._has_pool(member.group)
        ]
        templates, kinds = self._list_templates(flavour, [*compared, *unknown])
        nodes = self._running_nodes(flavour, compared) if similar and similar.nodes and compared else {}
        sources = NodeSources(templates=templates, kinds=kinds, nodes=nodes)
        if kinds or nodes:
            members = with_templates(sources)
        return members

    def _list_templates(
        self, flavour: Flavour, groups: Iterable[GroupObjects]
    ) -> tuple[dict[tuple[str, str, str, str], Object], set[tuple[str, str]]]:
        """Return the templates of these groups, and the kinds that could be listed."""
        references = [template_of(flavour, member.scalable) for member in groups]
        kinds = {(ref.kind.group, ref.kind.kind): ref.kind for ref in references if ref is not None}
        lists = {key: self.lister.list_if_allowed(kind) for key, kind in kinds.items()}
        templates = {(*key, *name_of(item)): item for key, items in lists.items() for item in items or ()}
        return templates, {key for key, items in lists.items() if items is not None}

    def _running_nodes(self, flavour: Flavour, groups: list[GroupObjects]) -> dict[GroupKey, Object]:
        """Return a running node of each group; empty where this API server does not let Evenkeel list nodes."""
        nodes = self.lister.list_if_allowed(NODE)
        if nodes is None:
            _log.warning("%s: nodes may not be listed, so templates describe them", self._api.name)
        machines = (self.lister.list_machines_if_allowed(flavour) or ()) if nodes else ()
        return running_nodes(flavour, groups, machines, nodes or ())

    def _refused_kinds(self) -> Sequence[Skipped]:
        """Return the kinds that the check omits, because listing them is forbidden."""
        scalables = {kind for flavour in FLAVOURS.values() for kind in flavour.scalables}
        return [
            Skipped(
                namespace="",
                name=kind.plural,
                reason=Reason.of(Rule.KIND_FORBIDDEN)
                if kind in scalables
                else Reason.of(Rule.KIND_REFUSED, kind=kind.kind, group=kind.group),
            )
            for kind in sorted(self.lister.refused, key=lambda kind: kind.plural)
        ]

    def nodes(self, objects: ClusterObjects) -> Mapping[str, MachineNode]:
        """Return the nodes of the groups. Lists the machines that the check did not list."""
        nodes: dict[str, MachineNode] = {}
        for flavour, members in _by_flavour(objects):
            unlisted = [
                group
                for group in (member.group for member in members)
                if group.key not in objects.machines and (group.requested or group.running)
            ]
            owned = self.lister.list_machines(flavour, unlisted)
            for member in members:
                key = member.group.key
                items = objects.machines.get(key) or owned.get(key, [])
                nodes |= nodes_of(flavour, key, member.scalable, items, self._api.now())
        return nodes

    def zone_ids(self, objects: ClusterObjects) -> Mapping[str, str]:
        """Return the zone names by AWS zone id, from the labels of the groups' running nodes."""
        names: dict[str, str] = {}
        for flavour, members in _by_flavour(objects):
            for labels in map(labels_of, self._running_nodes(flavour, members).values()):
                if ZONE_ID_LABEL in labels and ZONE_LABEL in labels:
                    names[labels[ZONE_ID_LABEL]] = labels[ZONE_LABEL]
        return names


def _compared_kinds(flavour: Flavour, members: list[GroupObjects]) -> list[Kind]:
    """Return the kinds whose changes need a full check: those of the groups, and of the owners of their numbers."""
    kinds = {member.group.identity.kind for member in members}
    kinds |= {member.owner.kind.kind for member in members if member.owner.kind and member.owner_object is not None}
    if members:
        owners = (flavour.owners.replicas, flavour.owners.cap)
        kinds |= {owner.kind.kind for owner in owners if owner is not None}
    return [kind for kind in flavour.kinds if kind.kind in kinds]


def _fingerprint(flavour: Flavour, kind: Kind, lists: Iterable[ReceivedList]) -> str | None:
    """Return a list's fingerprint. The status of an owner changes often, and holds no number of a pool."""
    return versions_of(lists) if kind in flavour.scalables else settings_of(lists)


def _by_flavour(objects: ClusterObjects) -> list[tuple[Flavour, list[GroupObjects]]]:
    members: dict[str, list[GroupObjects]] = {}
    for key, member in objects.members.items():
        members.setdefault(key.flavour, []).append(member)
    return [(FLAVOURS[name], of_flavour) for name, of_flavour in members.items()]
