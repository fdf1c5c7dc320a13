"""Propose lines to paste where a plan has no pool, made from the objects that were read."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile

from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.adapters.kubernetes.objects import (
    NODE,
    POOL_LABEL,
    ZONE_LABEL,
    Kind,
    Object,
    annotations_of,
    get_path,
    labels_of,
    name_of,
)
from evenkeel.adapters.kubernetes.owners.node_pool import NodePool
from evenkeel.adapters.kubernetes.owners.worker import SHOOT, Worker
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.observations import Skipped
from evenkeel.domain.model.origins import POOL_MAX, POOL_MIN
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.similarity import IGNORED_LABELS, Similarity
from evenkeel.domain.model.values import printable

_MOST = 3  # lines
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")  # other names are no names of objects, and could be options
# Zones of AWS and of Google Cloud.
_ENDS_IN_ZONE = re.compile(r"(.+)-([a-z]{2}-(?:gov-|isob?-)?[a-z]+-[0-9][a-z]|[a-z]+-[a-z]+[0-9]+-[a-z])")
_LONGEST_VALUE = 63  # of a label
# Groups that a label or a number does not bring into a pool.
_HOPELESS = frozenset({Rule.SWITCHED_OFF, Rule.POOL_NAME_TAKEN})


class ApiServer(StrEnum):
    """The API server that has the machine objects, as users call it."""

    SEED = "SEED"
    MANAGEMENT = "MANAGEMENT-CLUSTER"
    SAME = "OPENSHIFT-CLUSTER"


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Set labels or annotations on objects of one kind in one namespace."""

    kind: Kind
    namespace: str
    names: tuple[str, ...]
    zones: tuple[str, ...] = ()  # as labels of the objects, in the same order: each name is a shared stem and the zone
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    overwrites: bool = False  # True: an object has another value, such as 0


@dataclass(frozen=True)
class ReadFrom:
    """Read the API server that has the machine objects. ``namespaces`` are empty where they are unknown."""

    api_server: ApiServer
    namespaces: tuple[str, ...] = ()


Proposal = Mark | ReadFrom


@dataclass(frozen=True)
class Target:
    """The cluster that was read. Both fields are None for files."""

    kubeconfig: str | None = None
    context: str | None = None

    @property
    def is_live(self) -> bool:
        """Return True where a cluster was read, and not files."""
        return self.kubeconfig is not None or self.context is not None


def propose_marks(
    groups: Iterable[NodeGroup], skipped: Sequence[Skipped], similarity: Similarity | None, smallest: int
) -> tuple[Sequence[Mark], int]:
    """Return marks by which groups in no pool form pools, for the largest sets of groups that look alike.

    Args:
        smallest: The number of groups that a set needs.

    Returns:
        The marks, and the number of sets that still lack marks.
    """
    reasons = {(one.namespace, one.name): _innermost(one.reason) for one in skipped}
    candidates = [
        group for group in groups if reasons.get((group.key.namespace, group.key.name), Rule.SAID) not in _HOPELESS
    ]
    sets = sorted(_sets(candidates).items(), key=lambda entry: (-len(entry[1]), entry[0]))
    marks = [[*_marks(name, members, similarity)] for (*_, name), members in sets if len(members) >= smallest]
    zoneless = _zone_marks(one for one in skipped if one.reason.rule is Rule.NAMES_NO_ZONE)
    marks += [[mark] for mark in zoneless if len(mark.names) >= smallest]
    chosen: list[Mark] = []
    lacking = 0
    for of_set in marks:
        if not all(_NAME.fullmatch(name) for mark in of_set for name in (*mark.names, mark.namespace or "none")):
            continue
        if chosen and len(chosen) + len(of_set) > _MOST:
            lacking += 1
            continue
        chosen += of_set
    return chosen[:_MOST], lacking + (len(chosen) > _MOST)


def propose_places(objects: Iterable[Object]) -> Sequence[Proposal]:
    """Return where the machine objects are, from objects that only name them."""
    found: dict[ApiServer, dict[str, None]] = {}
    for item in objects:
        if (place := _place(item)) is not None:
            found.setdefault(place.api_server, {}).update(dict.fromkeys(place.namespaces))
    return [ReadFrom(server, tuple(filter(None, names))) for server, names in found.items()][:_MOST]


def heading(proposals: Iterable[Proposal], lacking: int = 0) -> str:
    """Return the line above the lines to paste. It says which of their values are assumptions."""
    marks = [proposal for proposal in proposals if isinstance(proposal, Mark)]
    numbers = ["the numbers are today's nodes"] if any(mark.annotations for mark in marks) else []
    zones = ["the zones are parts of names"] if any(mark.zones for mark in marks) else []
    assumed = f" ({', '.join((*numbers, *zones))}: check them)" if numbers or zones else ""
    again = f", then plan again for {lacking} more" if lacking else ""
    return f"to get a pool, run{assumed}{again}:"


def lines(proposals: Iterable[Proposal], target: Target) -> list[str]:
    """Return one line to paste for each proposal."""
    return [printable(_line(proposal, target)) for proposal in proposals]


def _line(proposal: Proposal, target: Target) -> str:
    if isinstance(proposal, ReadFrom):
        if target.is_live:
            return f"evenkeel plan --context {proposal.api_server}"
        names = "".join(f" -n {shlex.quote(name)}" for name in proposal.namespaces)
        return f"evenkeel objects --context {proposal.api_server}{names} > objects.yaml"
    options = (("--kubeconfig", target.kubeconfig), ("--context", target.context))
    given = [word for option, value in options if value is not None for word in (option, value)]
    values = [f"{key}={value}" for key, value in (proposal.labels or proposal.annotations).items()]
    verb, resource = "annotate" if proposal.annotations else "label", f"{proposal.kind.plural}.{proposal.kind.group}"
    where = ["-n", proposal.namespace] if proposal.namespace else []
    overwrite = ["--overwrite"] if proposal.overwrites else []
    command = ["kubectl", *given, verb, resource, *where, *overwrite]
    if not proposal.zones:
        return shlex.join([*command, *proposal.names, *values])
    # kubectl sets one value on all objects of a line, so several zones need a loop.
    stem, several = proposal.names[0].removesuffix(proposal.zones[0]), len(proposal.zones) > 1
    zone = "$zone" if several else proposal.zones[0]
    line = " ".join([shlex.join(command), f"{stem}{zone}", *map(shlex.quote, values), f"{ZONE_LABEL}={zone}"])
    return f"for zone in {shlex.join(proposal.zones)}; do {line}; done" if several else line


def _innermost(reason: Reason) -> Rule:
    why = reason.facts.get("why")
    return _innermost(why) if isinstance(why, Reason) else reason.rule


_Set = tuple[str, str, str, str, str]
"""Flavour, namespace, cluster, kind and pool name."""


def _sets(groups: Iterable[NodeGroup]) -> dict[_Set, list[NodeGroup]]:
    """Return the groups by the pool that they could form: by label, else by their names without their zones."""
    sets: dict[_Set, list[NodeGroup]] = {}
    for group in sorted(groups, key=lambda group: group.key):
        place = (group.key.flavour, group.key.namespace, group.identity.cluster, group.identity.kind)
        sets.setdefault((*place, group.identity.pool_label or _stem(group)), []).append(group)
    alone: dict[tuple[object, ...], list[_Set]] = {}
    for key, members in sets.items():
        if len(members) == 1 and members[0].identity.pool_label is None:
            alone.setdefault((*key[:4], _likeness(members[0])), []).append(key)
    for keys in alone.values():
        members = [sets[key][0] for key in keys]
        zones = {group.identity.zone for group in members}
        if None not in zones and 1 < len(zones) == len(keys):  # names that end in hashes
            merged = [sets.pop(key)[0] for key in keys]
            parts = zip(*(group.key.name.split("-") for group in merged), strict=False)
            shared = "-".join(part[0] for part in takewhile(lambda part: len(set(part)) == 1, parts))
            sets.setdefault((*keys[0][:4], _pool_name(shared, merged[0])), []).extend(merged)
    return sets


def _stem(group: NodeGroup) -> str:
    """Return a group's name without its zone, and without the prefix of its cluster."""
    name, zone = group.key.name, group.identity.zone
    if zone is None:  # then the name's last part may be the zone
        return _pool_name(_split(name)[0], group)
    short = zone.rpartition("-")[2]  # 1a of eu-central-1a
    for part in filter(None, (zone, short, short[-1:])):
        cut = re.sub(rf"(^|[-.]){re.escape(part)}([-.][a-z0-9]{{5}})?$", "", name)
        if cut != name:
            return _pool_name(cut, group)
    return _pool_name(re.sub(r"[-.]z?[0-9]{1,3}$", "", name), group)


def _pool_name(text: str, group: NodeGroup) -> str:
    name = text.removeprefix(f"{group.identity.cluster}-") if group.identity.cluster else text
    return name[:_LONGEST_VALUE].strip("-._") or "workers"


def _split(name: str) -> tuple[str, str]:
    """Return a name in two parts. The second may be a zone, such as eu-central-1a, europe-west1-b or rack1."""
    match = _ENDS_IN_ZONE.fullmatch(name)
    pool, zone = match.groups() if match else name.rpartition("-")[::2]
    return pool or name, zone


def _zone_in(name: str) -> str | None:
    """Return the part of a name that may be its zone: with a digit, or one letter. None: it has no such part."""
    pool, zone = _split(name)
    return zone if pool != name and re.search(r"[0-9]|^[a-z]$", zone) else None


def _zone_marks(skipped: Iterable[Skipped]) -> Iterator[Mark]:
    """Yield the marks that give MachinePools their zones, one for each pool that they could form."""
    kind = next(kind for kind in FLAVOURS["cluster-api"].scalables if kind.kind == "MachinePool")
    pools: dict[tuple[str, str], list[str]] = {}
    for one in skipped:
        if _zone_in(one.name) is not None:
            pools.setdefault((one.namespace, _split(one.name)[0]), []).append(one.name)
    for (namespace, stem), names in pools.items():
        labels = {POOL_LABEL: stem[:_LONGEST_VALUE].strip("-._")}
        zones = tuple(_split(name)[1] for name in names)
        yield Mark(kind=kind, namespace=namespace, names=tuple(names), zones=zones, labels=labels)


def _likeness(group: NodeGroup) -> object:
    """Return what groups that look alike have in common, apart from their zone."""
    node = group.template.node
    if node is None:
        return None
    return (
        frozenset((key, value) for key, value in node.labels.items() if key not in IGNORED_LABELS),
        frozenset(node.capacity.items()),
    )


def _marks(pool: str, members: Sequence[NodeGroup], similarity: Similarity | None) -> Iterator[Mark]:
    """Yield the marks that make these groups one pool with numbers: labels, zones, then PoolMinimum and PoolMaximum."""
    first = members[0]
    kind = next(kind for kind in FLAVOURS[first.key.flavour].scalables if kind.kind == first.identity.kind)
    names, is_labelled = tuple(group.key.name for group in members), first.identity.pool_label is not None
    sized = any((group.bounds is not None and group.bounds.max) or group.annotations.pool_max for group in members)
    zoneless = [group for group in members if not group.identity.zone]
    if zoneless:
        if any(_zone_in(group.key.name) is None for group in zoneless):
            return
        stems: dict[str, list[NodeGroup]] = {}
        for group in zoneless:
            stems.setdefault(_split(group.key.name)[0], []).append(group)
        labels = {} if is_labelled else {POOL_LABEL: pool}
        for alike in stems.values():
            yield _mark(kind, alike, labels, tuple(_split(group.key.name)[1] for group in alike))
        if labels and len(zoneless) < len(members):
            yield _mark(kind, [group for group in members if group.identity.zone], labels)
    elif not is_labelled and (sized or not _are_similar(members, similarity)):
        yield _label(pool, members, kind)
    if not sized:
        nodes = sum(group.requested for group in members)
        low = next((one.annotations.pool_min for one in members if one.annotations.pool_min is not None), None)
        numbers = {POOL_MIN: str(nodes)} if low is None else {}
        numbers[POOL_MAX] = str(max(nodes, len(members), low or 0))
        has_value = any(group.annotations.pool_max is not None for group in members)
        yield Mark(kind=kind, namespace=first.key.namespace, names=names, annotations=numbers, overwrites=has_value)


def _mark(kind: Kind, members: Sequence[NodeGroup], labels: Mapping[str, str], zones: tuple[str, ...] = ()) -> Mark:
    """Return the mark that labels these groups."""
    keys = {*labels, ZONE_LABEL} if zones else {*labels}
    return Mark(
        kind=kind,
        namespace=members[0].key.namespace,
        names=tuple(group.key.name for group in members),
        zones=zones,
        labels=labels,
        overwrites=any(not keys.isdisjoint(group.identity.labels) for group in members),
    )


def _label(pool: str, members: Sequence[NodeGroup], kind: Kind) -> Mark:
    """Return the mark for a pool's label. A NodePool has the label itself, because its operator writes the group."""
    owners = [group.owner.numbers.ref for group in members if group.owner.numbers is not None]
    if NodePool.kind.kind in {owner.kind for owner in owners}:
        names = tuple(owner.name for owner in owners)
        return Mark(kind=NodePool.kind, namespace=owners[0].namespace, names=names, labels={POOL_LABEL: pool})
    return _mark(kind, members, {POOL_LABEL: pool})


def _are_similar(members: Sequence[NodeGroup], similarity: Similarity | None) -> bool:
    first, *others = (group.template.node for group in members)
    if similarity is None or first is None:
        return False
    return all(other is not None and similarity.similar(first, other) for other in (first, *others))


def _place(item: Object) -> ReadFrom | None:
    """Return where the machine objects are that an object belongs to; None where the object does not show it."""
    kind, group = item.get("kind"), str(item.get("apiVersion")).partition("/")[0]
    namespace, name = name_of(item)
    if kind == NODE.kind:
        return _place_of_node(item)
    if (group, kind) == (SHOOT.group, SHOOT.kind):
        return ReadFrom(ApiServer.SEED, (str(get_path(item, ("status", "technicalID")) or ""),))
    if group == Worker.kind.group and kind in ("Worker", "Cluster"):
        return ReadFrom(ApiServer.SEED, (namespace or name,))
    if (group, kind) == (NodePool.kind.group, NodePool.kind.kind):
        hosted = f"{namespace}-{get_path(item, ('spec', 'clusterName'))}"  # the namespace of its machine objects
        return ReadFrom(ApiServer.MANAGEMENT, (namespace, hosted))
    servers = {"gardener": ApiServer.SEED, "cluster-api": ApiServer.MANAGEMENT, "openshift": ApiServer.SAME}
    for flavour in FLAVOURS.values():
        if group == flavour.group or group in flavour.provider_groups:
            return ReadFrom(servers[flavour.name], (namespace,))
    return None


def _place_of_node(node: Object) -> ReadFrom | None:
    """Return where a node's machine is, by the labels and annotations that the machine controllers set on nodes."""
    labels, annotations = labels_of(node), annotations_of(node)
    if "worker.gardener.cloud/pool" in labels:
        return ReadFrom(ApiServer.SEED)
    if "hypershift.openshift.io/nodePool" in labels:
        return ReadFrom(ApiServer.MANAGEMENT)
    if (machine := annotations.get("machine.openshift.io/machine")) is not None:
        return ReadFrom(ApiServer.SAME, (str(machine).partition("/")[0],))
    if (namespace := annotations.get("cluster.x-k8s.io/cluster-namespace")) is not None:
        return ReadFrom(ApiServer.MANAGEMENT, (str(namespace),))
    return None
