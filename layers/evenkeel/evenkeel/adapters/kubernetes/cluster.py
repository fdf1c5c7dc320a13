"""One look at a cluster, and the patches that follow from it."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote as url_quote

from evenkeel.adapters.kubernetes.client.api import RIGHTS, KubernetesApi, described_right
from evenkeel.adapters.kubernetes.client.lists import ReceivedList, versions_of
from evenkeel.adapters.kubernetes.client.transport import MOST_BYTES, Allowance
from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.adapters.kubernetes.flavours.base import Flavour
from evenkeel.adapters.kubernetes.garden import Garden
from evenkeel.adapters.kubernetes.objects import (
    ADOPTED,
    DECISION,
    MOVE,
    NODE,
    PROVISION_TIME,
    ZONE_LABEL,
    Kind,
    Object,
    get_path,
    mapping,
    name_of,
    string_map,
)
from evenkeel.adapters.kubernetes.owners.base import AppliedBounds
from evenkeel.adapters.kubernetes.read.autoscaler_status import with_autoscaler_status
from evenkeel.adapters.kubernetes.read.dedupe import counted_once
from evenkeel.adapters.kubernetes.read.groups import GroupObjects, Listing, read_groups
from evenkeel.adapters.kubernetes.read.list_cache import ListCache, ReadGroups
from evenkeel.adapters.kubernetes.read.machines import by_scalable, nodes_of, read_machine, scalable_of, with_machines
from evenkeel.adapters.kubernetes.read.node_templates import (
    NodeSources,
    described,
    is_empty,
    is_unseen,
    needs_template,
    running_nodes,
    template_of,
    with_offerings,
)
from evenkeel.application.errors import (
    AccessRefusedError,
    ClusterUnavailableError,
    ConflictError,
    EvenkeelError,
    ForbiddenError,
    RejectedError,
)
from evenkeel.application.ports import Remaining
from evenkeel.application.rebalancing.ports import MachineNode
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.groups import Bounds, GroupKey, Machine, NodeGroup, Shoot, State
from evenkeel.domain.model.observations import Observation, Skipped
from evenkeel.domain.model.offerings import Buyer
from evenkeel.domain.model.origins import POOL_MAX
from evenkeel.domain.model.plans import GroupPlan
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.removals import disagree
from evenkeel.domain.model.values import printable
from evenkeel.domain.rebalancing.replicas.deletion import deletion_candidates, nobody_goes
from evenkeel.domain.rebalancing.writes import Patch
from evenkeel.record import ClusterPolicy, ClusterRecord
from evenkeel.texts.english import rfc3339, sentence, sentences

Lists = dict[str, list[ReceivedList]]
"""By kind, one list for each namespace."""

# A selector of this many names stays well below the 8 KB that proxies allow a URL.
_NAMES_PER_SELECTOR = 50
# Events are for people; the patches of the pools to come need the last seconds of an invocation more.
_SPARE_SECONDS = 30
# AWS's cloud provider sets it (cloud-provider-aws pkg/providers/v1/zones.go).
_ZONE_ID = "topology.k8s.aws/zone-id"
_STATUS_ENTRY = "evenkeel.json"
_STATUS_RIGHTS = "deploy/kubernetes/rbac-status.yaml"
_log = logging.getLogger("evenkeel.kubernetes")
_EVENT_REASONS = {
    State.HEALTHY: "Rebalanced",
    State.FENCED: "Fenced",
    State.PROBING: "Probing",
    State.FROZEN: "Frozen",  # never written, but for completeness of the table
}


class KubernetesCluster:
    """A cluster's machine objects, as one look found them. Made for one run."""

    def __init__(  # noqa: PLR0913  what one look has of its function, each by name
        self,
        api: KubernetesApi,
        policy: ClusterPolicy,
        remaining: Remaining,
        *,
        consistent: bool = True,
        most_bytes: int = MOST_BYTES,
        kept: ListCache | None = None,
        garden: Callable[[], Garden] | None = None,
    ) -> None:
        """Of a cluster that is not read consistently, ``most_bytes`` are received at each look, and groups are kept."""
        self._api = api
        self._consistent = consistent
        self._most_bytes = most_bytes
        self._kept = kept or ListCache()
        self._open_garden = garden
        self._garden: Garden | None = None  # of the last look
        self._policy = policy
        domain = policy.policy()
        self._rules, self._patience = domain.pools, domain.provision_timeout
        views = isinstance(policy, ClusterRecord) and policy.workload is not None
        self._orders_released = views and domain.autoscaler
        self._remaining = remaining
        self._members: dict[GroupKey, GroupObjects] = {}
        self._machines: dict[GroupKey, list[Object]] = {}
        # Objects that a patch of ours has changed since the look; several groups can share one owner.
        self._newer: dict[str, Object] = {}
        # Where the groups of the last look stand, and their lists; None: one of these cannot be told from another.
        self._seen: dict[str, str] | None = None
        self._refused: set[Kind] = set()  # what may not be listed, and is lived without
        self._look: Allowance | None = None  # what may still be received; None: of each list what lists may have

    def observe(self, closely: Collection[GroupKey] = (), buyer: Buyer | None = None) -> Observation:
        """A complete look: every kind of every flavour, then the machines of groups whose nodes are not all there.

        ``closely`` names groups whose machines are listed in any case. With a ``buyer``, what groups buy is looked up
        where that matters: of those, of groups with machines that fail, and where others' words may be about them.
        """
        self._members, self._machines, self._newer = {}, {}, {}
        self._api.begin_check()
        self._look = None if self._consistent else Allowance(self._most_bytes)
        self._seen = {}
        self._refused = set()
        skipped: list[Skipped] = []
        found: list[GroupObjects] = []
        served = False
        status = self._autoscaler_status()
        for name in self._policy.flavours:
            flavour = FLAVOURS[name]
            lists = self._list(flavour)
            if lists is None:
                continue
            served = True
            self._api.confirm_clock(self._remaining)
            members, others = self._read_groups(flavour, lists)
            skipped += others
            self._note(flavour, lists, {member.group.kind for member in members})
            members = with_autoscaler_status(members, flavour, status)
            members = self._count_machines(flavour, members, frozenset(closely))
            asked = [] if buyer is None else [member for member in members if _is_asked(member, closely, buyer)]
            members, sources = self._with_templates(flavour, members, asked)
            if buyer is not None and asked:
                members = with_offerings(members, {member.group.key for member in asked}, flavour, sources, buyer)
            found += members
        counted, twins = counted_once(found)
        self._members = {member.group.key: member for member in counted}
        skipped += [*twins, *(_refused(kind) for kind in sorted(self._refused, key=lambda kind: kind.plural))]
        if not served:
            names = ", ".join(self._policy.flavours)
            raise ClusterUnavailableError(f"{self._api.name} serves none of the machine APIs {names}: see its flavours")
        groups = tuple(member.group for member in self._members.values())
        return Observation(groups=groups, skipped=tuple(skipped), clock_skew=self._api.clock_skew)

    def _note(self, flavour: Flavour, lists: Lists, kinds: Collection[str]) -> None:
        """What lists of these kinds are to be compared with later. Only looks do that."""
        if self._consistent:
            return
        for kind in flavour.scalables:
            if kind.kind in kinds:
                fingerprint = versions_of(lists[kind.kind])
                if fingerprint is None or self._seen is None:
                    self._seen = None
                    return
                self._seen[f"{flavour.name}/{kind.kind}/{self._version(kind)}"] = fingerprint

    def seen(self) -> Mapping[str, str]:
        """By flavour, kind and version."""
        return self._seen or {}

    def shows(self, seen: Mapping[str, str]) -> bool:
        """One LIST of each kind, of metadata alone. What is not found, or of another release, is not as it was."""
        self._look = Allowance(self._most_bytes)
        for place, fingerprint in seen.items():
            name, _, rest = place.partition("/")
            scalable, _, version = rest.partition("/")
            flavour = FLAVOURS.get(name)
            kind = next((kind for kind in flavour.scalables if kind.kind == scalable), None) if flavour else None
            received = None if kind is None else self._lists_of(kind, version, metadata_only=True)
            if received is None or versions_of(received) != fingerprint:
                return False
        return bool(seen)

    def _autoscaler_status(self) -> str:
        """What Cluster Autoscaler says of its groups; empty where the record names no place, or it cannot be read."""
        namespace = self._policy.autoscaler_status
        if namespace is None:
            return ""
        path = f"/api/v1/namespaces/{url_quote(namespace)}/configmaps/cluster-autoscaler-status"
        return str(get_path(self._api.get(path, self._remaining), ("data", "status")) or "")

    def _list(self, flavour: Flavour) -> Lists | None:
        """All objects of a flavour; None where the cluster does not have it."""
        lists: Lists = {}
        for kind in flavour.kinds:
            if kind.named_by and not _is_named(kind, lists):
                continue
            received = self._list_kind(kind)
            if received is not None:
                lists[kind.kind] = received
            elif not kind.optional:
                return None
        return lists

    def _read_groups(self, flavour: Flavour, lists: Lists) -> ReadGroups:
        discoveries = self._policy.discoveries

        def read() -> ReadGroups:
            objects = {kind: _objects(received) for kind, received in lists.items()}
            return read_groups(Listing(flavour=flavour, objects=objects), discoveries)

        if self._consistent:
            return read()
        received = [received for of_kind in lists.values() for received in of_kind]
        return self._kept.groups((self._api.name, flavour.name), received, discoveries, read)

    def _list_kind(self, kind: Kind) -> list[ReceivedList] | None:
        """All objects of a kind; None where the cluster does not have it.

        Raises:
            ClusterUnavailableError: also where the kind is served and its list was not found. "There are none" would
                be read as "nobody else owns these bounds".
        """
        version = self._version(kind)
        lists = self._lists_of(kind, version) if version else None
        if lists is None and kind not in self._refused:
            self._check_absence(kind)
        return lists

    def _lists_of(self, kind: Kind, version: str, *, metadata_only: bool = False) -> list[ReceivedList] | None:
        """One list for each namespace of the record; None where one is not found."""
        lists: list[ReceivedList] = []
        for namespace in (self._policy.namespaces if kind.namespaced else None) or (None,):
            received = self._received(kind, _path(kind, version, namespace), metadata_only=metadata_only)
            if received is None:
                return None
            lists.append(received)
        return lists

    def _received(self, kind: Kind, path: str, *, metadata_only: bool) -> ReceivedList | None:
        """A kind's list; None where it is not found, or where the look does without it because it is forbidden."""
        received = self._api.list_all(
            path, self._remaining, optional=kind.may_be_refused, look=self._look, metadata_only=metadata_only
        )
        if received is not None or not kind.may_be_refused:
            return received
        try:
            return self._api.list_all(path, self._remaining, look=self._look)  # says which of the two it was
        except AccessRefusedError:
            self._refused.add(kind)
            return None

    def _check_absence(self, kind: Kind) -> None:
        """Raises ClusterUnavailableError unless discovery, too, knows nothing of a kind that was not found."""
        groups = self._discovered("/apis", "groups")
        if groups is not None and kind.group not in groups:
            return
        served = self._api.served(kind.group, self._remaining)
        if groups is None and not served:
            return
        paths = [f"/apis/{url_quote(kind.group)}/{version}" for version in kind.versions if version in served]
        listed = [self._discovered(path, "resources") for path in paths]
        if served and all(names is not None and kind.plural not in names for names in listed):
            return
        raise ClusterUnavailableError(
            f"{self._api.name} serves {kind.plural} of {kind.group} and does not find them: nothing follows from that"
        )

    def _discovered(self, path: str, key: str) -> set[str] | None:
        """The names that a discovery document lists; None where it could not be read."""
        entries = get_path(self._api.get(path, self._remaining), (key,))
        return {str(get_path(entry, ("name",))) for entry in entries} if isinstance(entries, list) else None

    def _version(self, kind: Kind) -> str | None:
        """The version to use: the only one there is, or the best that is served."""
        if len(kind.versions) == 1:
            return kind.versions[0]
        served = self._api.served(kind.group, self._remaining)
        return next((version for version in kind.versions if version in served), None)

    def _count_machines(
        self, flavour: Flavour, members: list[GroupObjects], closely: Collection[GroupKey]
    ) -> list[GroupObjects]:
        """The groups, with the machines of those where a machine could be waiting for its node, or that are named."""
        unsettled = {
            member.group.key: member
            for member in members
            if member.group.key in closely
            or (
                (member.group.requested != member.group.running or member.group.zone is None)
                and (self._policy.discovered_pools is not None or self._has_pool(member.group))
            )
        }
        machines = by_scalable(flavour, self._list_machines(flavour, unsettled.values()))
        now = self._api.now()
        counted = []
        for member in members:
            if member.group.key in unsettled:
                mine = self._machines[member.group.key] = machines.get(scalable_of(member.group), [])
                group_machines = [read_machine(flavour, item, now) for item in mine]
                counted.append(replace(member, group=with_machines(member.group, group_machines)))
            else:
                counted.append(member)
        return counted

    def _has_pool(self, group: NodeGroup) -> bool:
        """Whether a label or a rule of the record puts the group into a pool."""
        return bool(group.pool_label) or any(rule.selects(group) for rule in self._rules)

    def _with_templates(
        self, flavour: Flavour, members: list[GroupObjects], asked: Sequence[GroupObjects]
    ) -> tuple[list[GroupObjects], NodeSources]:
        """The groups with what is known of their nodes, for those that are empty or compared; and what was read.

        Other objects are read only where an empty group does not say cpu and memory itself, where groups are compared,
        or where it is asked what they buy.
        """
        similar = self._policy.discovered_pools
        # Pods that wait are tried on nodes of every group, and pods that a release left without nodes, too.
        demanded = self._policy.demand_stage is not DemandStage.OFF
        tried = demanded or self._orders_released
        every = bool(similar) or demanded

        def with_templates(sources: NodeSources) -> list[GroupObjects]:
            return [
                described(member, flavour, sources)
                if every or is_empty(member) or (tried and is_unseen(member))
                else member
                for member in members
            ]

        members = with_templates(NodeSources())
        compared = [member for member in members if not self._has_pool(member.group)] if similar else []
        unknown = [
            member
            for member in members
            if (needs_template(member) or (tried and is_unseen(member))) and self._has_pool(member.group)
        ]
        templates, kinds = self._list_templates(flavour, [*compared, *unknown, *asked])
        nodes = self._running_nodes(flavour, compared) if similar and similar.nodes and compared else {}
        sources = NodeSources(templates=templates, kinds=kinds, nodes=nodes)
        return with_templates(sources) if kinds or nodes else members, sources

    def _list_templates(
        self, flavour: Flavour, groups: Iterable[GroupObjects]
    ) -> tuple[dict[tuple[str, str, str, str], Object], set[tuple[str, str]]]:
        """The templates of these groups, and the kinds that could be read: one LIST per kind."""
        references = [template_of(flavour, member.scalable) for member in groups]
        kinds = {(ref.kind.group, ref.kind.kind): ref.kind for ref in references if ref is not None}
        templates: dict[tuple[str, str, str, str], Object] = {}
        kinds_read = set()
        for key, kind in kinds.items():
            items = self._list_if_allowed(kind)
            if items is not None:
                kinds_read.add(key)
                templates |= {(*key, *name_of(item)): item for item in items}
        return templates, kinds_read

    def _list_if_allowed(self, kind: Kind) -> list[Object] | None:
        """All objects of a kind, in the first served version that has it; None where there is none, or no right."""
        preferred = self._version(kind) if kind.versions else None
        for version in [preferred] if preferred else self._api.served(kind.group, self._remaining):
            lists: list[ReceivedList] = []
            for namespace in (None,) if kind is NODE else self._policy.namespaces or (None,):
                path = _path(kind, version, namespace)
                received = self._api.list_all(path, self._remaining, optional=True, look=self._look)
                if received is None:
                    break
                lists.append(received)
            else:
                return _objects(lists)
        return None

    def _running_nodes(self, flavour: Flavour, groups: list[GroupObjects]) -> dict[GroupKey, Object]:
        """A running node of each group, where the workload cluster's nodes are read through the same API."""
        nodes = self._list_if_allowed(NODE)
        if nodes is None:
            _log.warning("%s: nodes may not be listed, so templates say what they look like", self._api.name)
        return running_nodes(flavour, groups, self._list_if_allowed(flavour.machine) or (), nodes) if nodes else {}

    def _list_machines(self, flavour: Flavour, groups: Iterable[GroupObjects]) -> list[Object]:
        """One list per namespace and kind of scalable, by the label that names the scalable."""
        names_by_kind: dict[tuple[str, str], list[str]] = {}
        for member in groups:
            names_by_kind.setdefault((member.group.key.namespace, member.group.kind), []).append(member.group.key.name)
        machines: list[Object] = []
        for (namespace, kind), names in names_by_kind.items():
            label = flavour.machine_labels.get(kind)
            chunks: list[str | None] = [
                f"{label} in ({','.join(names[i : i + _NAMES_PER_SELECTOR])})"
                for i in range(0, len(names), _NAMES_PER_SELECTOR)
            ]
            for selector in chunks if label is not None else [None]:
                version = self._version(flavour.machine) or flavour.machine.versions[0]
                path = _path(flavour.machine, version, namespace)
                received = self._api.list_all(path, self._remaining, selector, look=self._look)
                if received is None:
                    raise ClusterUnavailableError(f"{self._api.name} does not serve {flavour.machine.plural}")
                machines += received.objects()
        return machines

    def zone_ids(self) -> Mapping[str, str]:
        """AWS's ids of zones to their names, as running nodes of the last look's groups say: others may be elsewhere.

        One list of nodes and one of machines for each flavour.
        """
        found: dict[str, str] = {}
        for name in self._policy.flavours:
            members = [member for key, member in self._members.items() if key.flavour == name]
            for node in self._running_nodes(FLAVOURS[name], members).values() if members else ():
                labels = string_map(get_path(node, ("metadata", "labels")))
                if _ZONE_ID in labels and ZONE_LABEL in labels:
                    found[labels[_ZONE_ID]] = labels[ZONE_LABEL]
        return found

    def refused(self, *, writes: bool) -> Sequence[str]:
        """What may not be done of all that a look needs, or (``writes``) a run; each in words.

        A SelfSubjectAccessReview for each kind that is served, verb and namespace; nothing is read.
        """
        asked: list[dict[str, str]] = []
        served = False
        for flavour in (FLAVOURS[name] for name in self._policy.flavours):
            if not self._api.served(flavour.group, self._remaining):
                continue
            served = True
            needed = [kind for kind in (*flavour.kinds, flavour.machine) if not kind.may_be_refused]
            for kind in dict.fromkeys(needed):
                is_written = writes and kind in (*flavour.scalables, flavour.machine)
                if self._api.served(kind.group, self._remaining):
                    verbs = ("list", "patch") if is_written else ("list",)
                    asked += [right for verb in verbs for right in self._rights(kind, verb)]
        if not served:
            names = ", ".join(self._policy.flavours)
            return [f"it serves none of the machine APIs {names}: correct flavours"]
        if (namespace := self._policy.autoscaler_status) is not None:
            status = {"resource": "configmaps", "group": "", "name": "cluster-autoscaler-status"}
            asked.append({**status, "verb": "get", "namespace": namespace})
        if writes and self._policy.status_configmap is not None:
            namespace, _, name = self._policy.status_configmap.partition("/")
            status = {"resource": "configmaps", "group": "", "name": name}
            asked.append({**status, "verb": "patch", "namespace": namespace})
        return [described_right(right) for right in asked if not self._api.allows(right, self._remaining)]

    def _rights(self, kind: Kind, verb: str) -> list[dict[str, str]]:
        namespaces = (self._policy.namespaces if kind.namespaced else None) or ("",)
        right = {"group": kind.group, "resource": kind.plural, "verb": verb}
        return [{**right, "namespace": namespace} for namespace in namespaces]

    def object_of(self, key: GroupKey) -> str:
        """The owner of the bounds, which a Cluster's topology is for many groups; else the scalable."""
        member = self._members[key]
        return _identity(member.owner_object or member.scalable)

    def deletion_candidates(self, patch: Patch) -> tuple[str, ...]:
        """As many machines as will go, in order (``domain.rebalancing.replicas.deletion``)."""
        if patch.plan.removes:
            return self._named(patch.plan)
        group, requested = patch.plan.group, patch.requested or 0
        staying = [machine for machine, _ in self._staying(group)]
        names = deletion_candidates(
            staying,
            requested,
            may_remove_running=patch.plan.may_remove_running,
            keeps=patch.plan.keeps,
            provision_timeout=patch.plan.provision_timeout,
            now=self._api.now(),
        )
        kept = sum(machine.preserved for machine in staying)
        if kept and len(names) < min(group.requested, len(staying)) - requested:
            # Preserved machines go last: another would go in their place, or one of them, which is not wanted either.
            raise RejectedError(
                f"{group.key}: {kept} of its {len(staying)} machines are preserved, so spec.replicas {requested} would "
                "take others than it should: give back less, or end their preservation"
            )
        return names

    def _named(self, plan: GroupPlan) -> tuple[str, ...]:
        """The machines that the plan names. Raises ConflictError where one is another by now, or has to stay."""
        staying = {machine.ref: machine for machine, _ in self._staying(plan.group)}
        for ref in plan.removes:
            machine = staying.get(ref)
            if machine is None or machine.preserved:
                change = "is gone" if machine is None else "is preserved"
                raise ConflictError(f"machine {ref} of {plan.group.key} {change} since it was read")
        return tuple(ref.name for ref in plan.removes)

    def mark(self, patch: Patch, names: Collection[str], ours: Collection[str]) -> None:
        """Mark these machines, and take a mark of ours off those that stay.

        The mark carries the machine's resourceVersion: one that has become a node since the look is a conflict, and
        the plan is made again with it. Those that are marked already are read again for the same reason, all in one
        list, and not written.
        """
        group = patch.plan.group
        flavour = FLAVOURS[group.key.flavour]
        _, value = flavour.mark
        if names:
            self._record_writes(patch.plan)
        staying = self._staying(group)
        if patch.plan.removes:
            why = disagree((machine for machine, _ in staying), group.requested, ours)
            if why is not None:
                raise ConflictError(f"{group.key}: {sentence(why)}")
        for machine, item in staying:
            # Gardener's mark does not say whose it is. Left on a node, it would go in the place of the named ones.
            is_ours = flavour.mark_is_ours or machine.name in ours
            if machine.name not in names and is_ours and _mark_of(flavour, item) == value:
                self._set_mark(group, item, None)
        targets = [(machine, item) for machine, item in staying if machine.name in names]
        marked = [machine for machine, item in targets if _mark_of(flavour, item) == value]
        if marked:
            self._check_unchanged(group, marked)
        for _, item in targets:
            if _mark_of(flavour, item) != value:
                self._set_mark(group, item, value)

    def _record_writes(self, plan: GroupPlan) -> None:
        """Ask for the owner's patch without making it, where the owner is one that we may have no right to write.

        Raises RejectedError, ConflictError: nothing of the group is marked or written then.
        """
        member, bounds = self._members[plan.group.key], plan.bounds
        asks = member.owner.rights and not isinstance(member.owner, AppliedBounds)  # those are fenced before any mark
        if not asks or member.owner_object is None or bounds is None or not plan.publishes:
            return
        self._write_owner(member, {}, bounds, pins=plan.pins, dry_run=True)

    def _check_unchanged(self, group: NodeGroup, machines: Iterable[Machine]) -> None:
        """Raises ConflictError where one of these machines has become a node since the look, or is going."""
        flavour, now = FLAVOURS[group.key.flavour], self._api.now()
        listed = [read_machine(flavour, item, now) for item in self._list_group(group)]
        newest = {machine.name: machine for machine in listed if not machine.deleting}
        for machine in machines:
            newer = newest.get(machine.name)
            if newer is None or (newer.has_node, newer.preserved) != (machine.has_node, machine.preserved):
                change = "is going" if newer is None else "has become a node" if newer.has_node else "has lost its node"
                if newer is not None and newer.preserved != machine.preserved:
                    change = "is preserved" if newer.preserved else "is preserved no more"
                raise ConflictError(f"machine {machine.name} of {group.key} {change} since it was read")

    def unmark(self, group: NodeGroup, names: Collection[str]) -> bool:
        """Take our mark off those of the machines that stay, once none of them is about to go any more."""
        flavour = FLAVOURS[group.key.flavour]
        staying = self._staying(group)
        if not nobody_goes((machine for machine, _ in staying), group.requested):
            return False
        for machine, item in staying:
            if machine.name in names and _mark_of(flavour, item) == flavour.mark[1]:
                self._set_mark(group, item, None)
        return True

    def _staying(self, group: NodeGroup) -> list[tuple[Machine, Object]]:
        """A group's machines that are not being deleted. They are listed now if the look had no need of them."""
        flavour, now = FLAVOURS[group.key.flavour], self._api.now()
        if group.key not in self._machines:
            self._machines[group.key] = self._list_group(group)
        machines = [(read_machine(flavour, item, now), item) for item in self._machines[group.key]]
        return [(machine, item) for machine, item in machines if not machine.deleting]

    def nodes(self) -> Mapping[str, MachineNode]:
        """Machines that the look has not listed are listed now: of groups whose nodes are all there."""
        found: dict[str, MachineNode] = {}
        for name in self._policy.flavours:
            flavour = FLAVOURS[name]
            members = [member for member in self._members.values() if member.group.key.flavour == name]
            unlisted = [
                member
                for member in members
                if member.group.key not in self._machines and (member.group.requested or member.group.running)
            ]
            owned = by_scalable(flavour, self._list_machines(flavour, unlisted))
            for member in members:
                items = self._machines.get(member.group.key) or owned.get(scalable_of(member.group), [])
                found |= nodes_of(flavour, member.group.key, member.scalable, items, self._api.now())
        return found

    def _list_group(self, group: NodeGroup) -> list[Object]:
        """The machines of one group as they are now."""
        flavour = FLAVOURS[group.key.flavour]
        machines = self._list_machines(flavour, [self._members[group.key]])
        return by_scalable(flavour, machines).get(scalable_of(group), [])

    def _set_mark(self, group: NodeGroup, item: Object, value: str | None) -> None:
        flavour = FLAVOURS[group.key.flavour]
        namespace, name = name_of(item)
        version = self._version(flavour.machine) or flavour.machine.versions[0]
        metadata = {"resourceVersion": _resource_version(item), "annotations": {flavour.mark[0]: value}}
        path = f"{_path(flavour.machine, version, namespace)}/{url_quote(name)}"
        answer = self._api.patch(path, {"metadata": metadata}, self._remaining)
        # Marked in two goes, the second knows of the first.
        self._machines[group.key] = [answer if machine is item else machine for machine in self._machines[group.key]]

    def apply(self, patch: Patch, decision: str, adopted: str, move: str | None = None) -> None:
        """One patch to one object, with bounds, replicas and our annotations as far as they stand on it."""
        member = self._members[patch.plan.group.key]
        on_two = member.owner_object is not None
        if patch.leaves and on_two:
            self._leave_both(member, patch)
        elif patch.bounds is None and not patch.leaves and (on_two or patch.requested is None):
            self._write_scalable(member, patch, move)
        elif on_two and patch.bounds is not None:
            if _narrows(patch, patch.bounds):
                self._check_replicas(member)
            ours = {DECISION: decision, ADOPTED: adopted, **member.owner.bounds_annotations(patch.bounds)}
            self._write_owner(member, ours, patch.bounds, pins=patch.pins)
        else:
            self._write_all(member, patch, decision, adopted, move)

    def _leave_both(self, member: GroupObjects, patch: Patch) -> None:
        """Put the owner's bounds back and take our annotations off both objects."""
        group, options = patch.plan.group, self._options(member, patch.plan)
        if group.has_ours_with_bounds or not group.bounds_held:
            gone = {DECISION: None, ADOPTED: None, **member.owner.bounds_annotations(patch.bounds)}
            self._write_owner(member, gone, patch.bounds, leaves=True)
        left = options if group.move is None else {**options, MOVE: None}
        if left:
            self._patch(FLAVOURS[group.key.flavour], self._newest(member.scalable), {"metadata": {"annotations": left}})

    def _write_scalable(self, member: GroupObjects, patch: Patch, move: str | None) -> None:
        """Replicas, the mark of a move and what an autoscaler is told: our other annotations stand with the bounds."""
        annotations = self._options(member, patch.plan)
        if patch.requested is not None and move is not None:
            annotations[MOVE] = move
        body: dict[str, Any] = {} if patch.requested is None else {"spec": {"replicas": patch.requested}}
        if annotations:
            body["metadata"] = {"annotations": annotations}
        self._patch(FLAVOURS[patch.plan.group.key.flavour], self._newest(member.scalable), body)

    def _write_all(self, member: GroupObjects, patch: Patch, decision: str, adopted: str, move: str | None) -> None:
        """Where all stands on the scalable. In a merge patch, None takes a key away."""
        group = patch.plan.group
        annotations: dict[str, str | None] = {DECISION: None if patch.leaves else decision}
        if patch.leaves or (patch.bounds is not None and not group.has_adopted):
            annotations[ADOPTED] = None if patch.leaves else adopted
        if patch.leaves or patch.bounds is not None:
            annotations |= member.owner.bounds_annotations(patch.bounds)
        annotations |= self._options(member, patch.plan)
        if patch.leaves or (patch.requested is not None and move is not None):
            annotations[MOVE] = None if patch.leaves else move
        item = self._newest(member.scalable)
        body = member.owner.patch(item, member.scalable, annotations, patch.bounds)
        if patch.requested is not None:
            body["spec"] = {"replicas": patch.requested}
        self._patch(FLAVOURS[group.key.flavour], item, body)

    def _options(self, member: GroupObjects, plan: GroupPlan) -> dict[str, str | None]:
        """What changes of Cluster Autoscaler's options on the scalable. Beside ours stands what we have set."""
        if not plan.changes_options:
            return {}
        name = FLAVOURS[plan.group.key.flavour].provision_timeout
        stands = mapping(get_path(self._newest(member.scalable), ("metadata", "annotations")))
        is_ours = stands.get(name) == stands.get(PROVISION_TIME)  # so it is where neither is there
        value = None if plan.short_provision is None else f"{int(plan.short_provision.total_seconds())}s"
        if is_ours:
            return {PROVISION_TIME: value, name: value}
        return {PROVISION_TIME: None} if PROVISION_TIME in stands else {}

    def _check_replicas(self, member: GroupObjects) -> None:
        """Raises ConflictError where others replicas are requested by now than we know of.

        The owner's version says nothing of the scalable. A max below what has been ordered meanwhile would have the
        order cut, running nodes with it (HyperShift), or end scale-down there until our next look.
        """
        item, path = self._newest(member.scalable), ("spec", "replicas")
        newest = self._api.get(self._path_of(FLAVOURS[member.group.key.flavour], item), self._remaining)
        if newest is None or get_path(newest, path) != get_path(item, path):
            change = "is gone" if newest is None else f"requests {get_path(newest, path)} replicas by now"
            raise ConflictError(f"{_identity(item)} {change}: its owner's max is not lowered")

    def write_pool_maximum(self, key: GroupKey, maximum: int) -> None:
        """On the scalable, or where its owner names it and copies it there: on the owner."""
        member = self._members[key]
        annotations: dict[str, str | None] = {POOL_MAX: str(maximum)}
        if member.copied_maximum:
            self._write_owner(member, annotations, None)
        else:
            body = {"metadata": {"annotations": annotations}}
            self._patch(FLAVOURS[key.flavour], self._newest(member.scalable), body)

    def write_owner_numbers(self, key: GroupKey, bounds: Bounds) -> None:
        member = self._members[key]
        if member.owner_object is None:
            raise RejectedError(f"{key} has no owner that is written")
        self._write_owner(member, member.owner.bounds_annotations(bounds), bounds)

    def _write_owner(
        self,
        member: GroupObjects,
        annotations: Mapping[str, str | None],
        bounds: Bounds | None,
        *,
        leaves: bool = False,
        pins: bool = False,
        dry_run: bool = False,
    ) -> None:
        """Annotations and bounds on the object that owns the bounds. ``pins``: replicas, in the place of bounds."""
        key, owner = member.group.key, member.owner
        flavour, item = FLAVOURS[key.flavour], self._newest(member.owner_object or member.scalable)
        if isinstance(owner, AppliedBounds) and not leaves:
            if not self._policy.write_topology:
                raise RejectedError(f"{_identity(item)} is not written for {key}: write_topology is off in the record")
            present = {key: value for key, value in annotations.items() if value is not None}
            body = owner.applied(item, member.scalable, present)
            self._patch(flavour, item, body, rights=owner.rights, applies=True, dry_run=dry_run)
            return
        body = owner.patch(item, member.scalable, annotations, bounds)
        if pins and bounds is not None:
            body["spec"] = owner.pin(bounds.max)
        self._patch(flavour, item, body, rights=owner.rights, dry_run=dry_run)

    def shoots(self, namespaces: Collection[str]) -> Mapping[str, Shoot | Reason]:
        if self._open_garden is None:
            return {}
        try:
            garden = self._garden = self._open_garden()
        except EvenkeelError as error:
            return dict.fromkeys(namespaces, Reason.of(Rule.SHOOT_UNREAD, said=str(error)))
        return garden.shoots(namespaces)

    def write_shoot_maximum(self, shoot: Shoot, worker: str, maximum: int) -> None:
        if self._garden is None:
            raise RejectedError(f"{shoot.ref} was not read: not written")
        self._garden.write_maximum(shoot, worker, maximum)

    def emit_event(self, plan: GroupPlan, decision: str, *, dry_run: bool) -> None:
        """A core/v1 Event. Its name carries the decision's id: told twice, it is refused the second time."""
        if self._remaining() < _SPARE_SECONDS:
            return
        item = self._members[plan.group.key].scalable
        namespace, name = name_of(item)
        moment = rfc3339(self._api.now())
        reason = "Restored" if plan.leaves else _EVENT_REASONS[plan.state]
        message = printable("; ".join(sentences(plan.reasons)))  # kubectl describe shows it in a terminal
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name[:200]}.{decision.lower()}", "namespace": namespace},
            "involvedObject": {
                "apiVersion": item.get("apiVersion"),
                "kind": item.get("kind"),
                "namespace": namespace,
                "name": name,
                "uid": get_path(item, ("metadata", "uid")),
            },
            "reason": f"Evenkeel{'DryRun' if dry_run else ''}{reason}",
            "message": f"{'Dry run, not written: ' if dry_run else ''}{message}"[:1024],
            "type": "Warning" if plan.state is State.FENCED and not dry_run else "Normal",
            "source": {"component": "evenkeel"},
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }
        try:
            self._api.create(f"/api/v1/namespaces/{url_quote(namespace)}/events", event, self._remaining)
        except EvenkeelError as error:
            _log.info("event not told: %s", error)

    def show_status(self, place: str, text: str) -> bool:
        """One entry of a ConfigMap, which is there already; what else is in it stays."""
        if self._remaining() < _SPARE_SECONDS:
            return False
        namespace, _, name = place.partition("/")
        path = f"/api/v1/namespaces/{url_quote(namespace)}/configmaps/{url_quote(name)}"
        try:
            self._api.patch(path, {"data": {_STATUS_ENTRY: text}}, self._remaining, rights=_STATUS_RIGHTS)
        except EvenkeelError as error:
            _log.warning("status not shown: %s", error)
            return False
        return True

    def _newest(self, item: Object) -> Object:
        return self._newer.get(_identity(item), item)

    def _patch(
        self,
        flavour: Flavour,
        item: Object,
        body: dict[str, Any],
        *,
        rights: str = "",
        applies: bool = False,
        dry_run: bool = False,
    ) -> None:
        """``applies``: by server-side apply with force, which says whose object it is and makes none."""
        kind, version = _kind_of(flavour, item)
        namespace, name = name_of(item)
        metadata = body.setdefault("metadata", {})
        metadata["resourceVersion"] = _resource_version(item)
        if applies:
            metadata |= {"namespace": namespace, "name": name, "uid": get_path(item, ("metadata", "uid"))}
            body = {"apiVersion": f"{kind.group}/{version}", "kind": kind.kind, **body}
        path, files = self._path_of(flavour, item), rights or RIGHTS
        try:
            answer = self._api.patch(path, body, self._remaining, applies=applies, rights=files, dry_run=dry_run)
        except ForbiddenError as error:
            if not rights:
                raise
            raise ForbiddenError(f"{kind.kind} {namespace}/{name} is not ours to write: {error}") from None
        if not dry_run:
            self._newer[_identity(item)] = {**answer, "kind": kind.kind, "apiVersion": f"{kind.group}/{version}"}

    def _path_of(self, flavour: Flavour, item: Object) -> str:
        namespace, name = name_of(item)
        return f"{_path(*_kind_of(flavour, item), namespace)}/{url_quote(name)}"


def _kind_of(flavour: Flavour, item: Object) -> tuple[Kind, str]:
    """Its kind, and the version that it was read in."""
    kind = next(kind for kind in flavour.kinds if kind.kind == item.get("kind"))
    return kind, str(item.get("apiVersion", "")).rpartition("/")[2] or kind.versions[0]


def _narrows(patch: Patch, bounds: Bounds) -> bool:
    """Whether an owner's max comes below what stands there, or may stand on the scalable; or replicas are set there."""
    group = patch.plan.group
    return patch.pins or group.bounds is None or bounds.max < max(group.bounds.max, group.requested)


def _refused(kind: Kind) -> Skipped:
    """What is told of a kind that may not be listed."""
    takes_part = any(kind in flavour.scalables for flavour in FLAVOURS.values())
    owner = Reason.of(Rule.KIND_REFUSED, kind=kind.kind, group=kind.group)
    return Skipped(namespace="", name=kind.plural, reason=Reason.of(Rule.KIND_FORBIDDEN) if takes_part else owner)


def _is_asked(member: GroupObjects, closely: Collection[GroupKey], buyer: Buyer) -> bool:
    group = member.group
    return group.key in closely or bool(group.refused_machines) or buyer.is_concerned(group.zone)


def _is_named(kind: Kind, lists: Lists) -> bool:
    """Whether anything that was listed speaks of a kind that few clusters have."""
    text = kind.named_by.encode()
    return any(text in page for of_kind in lists.values() for received in of_kind for page in received.pages)


def _objects(lists: Iterable[ReceivedList]) -> list[Object]:
    return [item for received in lists for item in received.objects()]


def _mark_of(flavour: Flavour, machine: Object) -> Any:
    return (get_path(machine, ("metadata", "annotations")) or {}).get(flavour.mark[0])


def _path(kind: Kind, version: str, namespace: str | None) -> str:
    scope = f"/namespaces/{url_quote(namespace)}" if namespace else ""
    root = f"/apis/{url_quote(kind.group)}" if kind.group else "/api"
    return f"{root}/{url_quote(version)}{scope}/{url_quote(kind.plural)}"


def _identity(item: Object) -> str:
    # The versions of a group are the same objects; OpenShift and Cluster API both have MachineSets.
    group = str(item.get("apiVersion")).partition("/")[0]
    return "/".join((group, str(item.get("kind")), *name_of(item)))


def _resource_version(item: Object) -> str:
    version = get_path(item, ("metadata", "resourceVersion"))
    if not isinstance(version, str) or not version:
        # Without it the patch would overwrite whatever happened since the look.
        raise RejectedError(f"{_identity(item)} has no metadata.resourceVersion: not written")
    return version
