"""Propose lines to paste where a plan has no pool, made from the objects that were read."""

import re
import shlex
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from evenkeel.adapters.auto_scaling.templates import NODE_GROUP_LABEL
from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.adapters.kubernetes.objects import (
    NODE,
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
from evenkeel.adapters.own_annotations import POOL_LABEL
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import Bounds, NodeGroup, PoolId, shoot_of_namespace
from evenkeel.domain.model.origins import POOL_MAX, POOL_MIN
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.similarity import IGNORED_LABELS, Similarity
from evenkeel.domain.model.templates import NodeTemplate
from evenkeel.domain.model.values import printable, quote
from evenkeel.texts.english import in_words
from evenkeel.texts.pool_numbers import object_text
from evenkeel_cli.aws_names import is_called_other, plain_name, without_names
from evenkeel_cli.aws_names import stems as stems_of_aws

_Key = TypeVar("_Key", bound=Hashable)

_HOPELESS = (Rule.SWITCHED_OFF, Rule.CONTROL_PLANE)
_MOST = 3  # lines
_MOST_FAULTS = 10  # messages about groups without a proposal
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")  # other names are no names of objects, and could be options
_OF_WORDS = re.compile(r"[A-Za-z0-9_][\w.:@+-]*", re.ASCII)  # names of Auto Scaling groups may have any character
# A name whose end is a zone: of AWS, of Google Cloud, its letter, or a place with a number. An ordinal is no zone.
_ENDS_IN_ZONE = re.compile(
    r"(?:.+?[-.])?("
    r"(?:af|ap|ca|cn|eu|il|me|mx|sa|us)-(?:gov-|isob?-)?(?:(?:north|south)?(?:east|west)|north|south|central)-[0-9][a-z]"
    r"|(?:africa|asia|australia|europe|me|northamerica|southamerica|us)-[a-z]+[0-9]+-[a-z]"
    r"|[0-9]?[a-f]|(?:z|az|zone|fd|rack|row|room|site|dc)[0-9]{1,3})"
)
_HASH = re.compile(r"[-.][bcdfghjklmnpqrstvwxz2456789]{5}$")  # a random suffix of Kubernetes
_NAME_LABEL = "topology.cluster.x-k8s.io/deployment-name"  # it has a group's name without a hash
_REGION_LABEL = "topology.kubernetes.io/region"
_LONGEST_VALUE = 63  # of a label


class ApiServer(StrEnum):
    """The API server that has the machine objects, as users call it."""

    SEED = "SEED"
    MANAGEMENT = "MANAGEMENT-CLUSTER"
    SAME = "OPENSHIFT-CLUSTER"
    AWS = ""  # no API server: the nodes are instances of Auto Scaling groups


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Set labels or annotations on objects of one kind in one namespace, or tags on Auto Scaling groups of a Region."""

    kind: Kind | None  # None: Auto Scaling groups
    namespace: str
    names: tuple[str, ...]
    zones: tuple[str, ...] = ()  # several zones, in the order of the names: each name is a shared stem and its zone
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ReadFrom:
    """Read the API server that has the machine objects. ``namespaces`` are empty where they are unknown.

    For AWS, they are the Regions of the nodes.
    """

    api_server: ApiServer
    namespaces: tuple[str, ...] = ()


Proposal = Mark | ReadFrom


@dataclass(frozen=True)
class Target:
    """The cluster that was read. Without any field, files were read."""

    kubeconfig: str | None = None
    context: str | None = None
    region: str | None = None  # the Region whose Auto Scaling groups were read

    @property
    def is_live(self) -> bool:
        """Return True where an API server was read."""
        return self.kubeconfig is not None or self.context is not None


@dataclass(frozen=True)
class Advice:
    """The marks that bring groups into pools, or the facts that each group lacks for certain marks."""

    marks: Sequence[Mark]
    lacking: int  # the number of pools whose marks exceed the lines of one plan
    missing: Sequence[str]


def propose_marks(groups: Iterable[NodeGroup], planned: Plan, similarity: Similarity | None) -> Advice:
    """Return marks by which groups in no pool form whole pools, the largest first, and what other groups lack.

    All Auto Scaling groups get their marks, because the plan is made as if they had them.
    """
    hopeless = {(one.namespace, one.name) for one in planned.skipped if _innermost(one.reason) in _HOPELESS}
    pooled = {member.group.key for pool in planned.pools for member in pool.groups}
    zoneless = [one.group for one in planned.skipped if one.group is not None]  # MachinePools
    members = [group for group in (*groups, *zoneless) if (group.key.namespace, group.key.name) not in hopeless]
    of_aws = [group for group in members if group.key.flavour == AUTO_SCALING]
    others = [group for group in of_aws if is_called_other(group.key.name, group.identity.labels)]
    missing = [
        _lacks(group, f"its name is not that of workers: if they are, set label {POOL_LABEL}") for group in others
    ]
    members = [group for group in members if group not in others]
    pools = _pools(members, similarity or Similarity(), {pool.id for pool in planned.pools}, missing)
    chosen: list[Mark] = []
    lacking = 0
    for id, in_pool in sorted(pools.items(), key=lambda entry: (-len(entry[1]), entry[0])):
        if not (others := [group for group in in_pool if group.key not in pooled]):
            continue
        if faults := [fault for group in others if (fault := _fault(group, id.name, in_pool)) is not None]:
            missing += faults
            continue
        marks = _marks(id.name, in_pool, others)
        if len(marks) > _MOST:
            missing += [_lacks(group, f"set label {ZONE_LABEL}") for group in others if not group.identity.zone]
        elif id.flavour != AUTO_SCALING and len(chosen) + len(marks) > _MOST:
            lacking += 1
        else:
            chosen += marks
    missing = list(dict.fromkeys(missing))
    more = [f"and {len(missing) - _MOST_FAULTS} more"] if len(missing) > _MOST_FAULTS else []
    return Advice(chosen, lacking, [printable(text) for text in missing[:_MOST_FAULTS]] + more)


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
    numbers = ["pool-max is today's nodes: raise it to let the pool grow"] if any(m.annotations for m in marks) else []
    zones = ["zones are parts of names: check them"] if any(m.zones or ZONE_LABEL in m.labels for m in marks) else []
    assumed = f" ({'; '.join((*numbers, *zones))})" if numbers or zones else ""
    again = f", then plan again for {lacking} more" if lacking else ""
    if marks and all(mark.kind is None for mark in marks):
        return f"to set these tags, run{assumed}:"
    return f"to get a pool, run{assumed}{again}:"


def lines(proposals: Iterable[Proposal], target: Target) -> list[str]:
    """Return one line to paste for each proposal."""
    return [printable(_line(proposal, target)) for proposal in proposals]


def _line(proposal: Proposal, target: Target) -> str:
    if isinstance(proposal, ReadFrom):
        if proposal.api_server is ApiServer.AWS:
            return shlex.join(["evenkeel", "plan", "--auto-scaling", "--region", *proposal.namespaces[:1]])
        if target.is_live:
            return f"evenkeel plan --context {proposal.api_server}"
        names = "".join(f" -n {shlex.quote(name)}" for name in proposal.namespaces)
        return f"evenkeel objects --context {proposal.api_server}{names} > objects.yaml"
    if proposal.kind is None:
        return _tagging(proposal)
    options = (("--kubeconfig", target.kubeconfig), ("--context", target.context))
    given = [word for option, value in options if value is not None for word in (option, value)]
    values = [f"{key}={value}" for key, value in (proposal.labels or proposal.annotations).items()]
    verb, resource = "annotate" if proposal.annotations else "label", f"{proposal.kind.plural}.{proposal.kind.group}"
    where = ["-n", proposal.namespace] if proposal.namespace else []
    command = ["kubectl", *given, verb, resource, *where]
    if not proposal.zones:
        return shlex.join([*command, *proposal.names, *values])
    # kubectl sets one value on all objects of a line, so several zones need a loop.
    stem = proposal.names[0].removesuffix(proposal.zones[0])
    line = " ".join([shlex.join(command), f"{stem}$zone", *map(shlex.quote, values), f"{ZONE_LABEL}=$zone"])
    return f"for zone in {shlex.join(proposal.zones)}; do {line}; done"


def _tagging(mark: Mark) -> str:
    """Return the line that sets tags on Auto Scaling groups. One call sets the tags of one group."""
    command = ["aws", "autoscaling", "create-or-update-tags", *(["--region", mark.namespace] if mark.namespace else [])]
    tags = [
        f'"ResourceId=$group,ResourceType=auto-scaling-group,Key={key},Value={value},PropagateAtLaunch=false"'
        for key, value in {**mark.labels, **mark.annotations}.items()
    ]
    return f"for group in {shlex.join(mark.names)}; do {shlex.join(command)} --tags {' '.join(tags)}; done"


def _innermost(reason: Reason) -> Rule:
    why = reason.facts.get("why")
    return _innermost(why) if isinstance(why, Reason) else reason.rule


def _pools(
    groups: Iterable[NodeGroup], similarity: Similarity, taken: Collection[PoolId], missing: list[str]
) -> dict[PoolId, list[NodeGroup]]:
    """Return the pools that are certain: by label, else by names that differ in the zone only.

    Add what other groups lack to ``missing``.
    """
    stems: dict[tuple[PoolId, str], list[NodeGroup]] = {}
    groups = sorted(groups, key=lambda group: group.key)
    of_aws = stems_of_aws(group for group in groups if group.key.flavour == AUTO_SCALING)
    for group in groups:
        stem = of_aws.get(group.key) or _stem(group)
        stems.setdefault((_id(group, stem), group.identity.kind), []).append(group)
    pools: dict[PoolId, list[NodeGroup]] = {}
    named: list[tuple[PoolId, list[NodeGroup]]] = []
    # An Auto Scaling group without a like has no zone to move to. It is a pool only if there is no better one.
    alone: list[tuple[PoolId, list[NodeGroup]]] = []
    count = sum(map(len, stems.values()))
    for (id, _), members in stems.items():
        parts = _alike(members, similarity)
        for part in parts:
            new = [group for group in part if group.identity.pool_label is None]
            labels = {label for group in part if (label := group.identity.pool_label) is not None}
            for group in part:
                if group.identity.pool_label is not None:
                    pools.setdefault(_id(group, group.identity.pool_label), []).append(group)
            if not new:
                continue
            is_certain = len(labels) < 2 and (len(part) > 1 or count == 1) and _is_one_pool(part, len(parts))
            if len(part) == 1 and id.flavour == AUTO_SCALING and not labels:
                alone.append((id if len(parts) == 1 else _id(new[0], _own_name(new[0])), new))
            elif not is_certain:
                missing += [_lacks_pool(group, "no other group is surely like it") for group in new]
            elif labels:
                pools[_id(new[0], labels.pop())] += new
            else:
                named.append((id if len(parts) == 1 else _id(new[0], _own_name(new[0])), new))
    if any(id.flavour == AUTO_SCALING for id in (*pools, *taken, *(id for id, _ in named))):
        missing += [_lacks_pool(new[0], "no other group is surely like it") for _, new in alone]
    else:
        named += alone
    _add_named(pools, named, taken, missing)
    return pools


def _add_named(
    pools: dict[PoolId, list[NodeGroup]],
    named: Iterable[tuple[PoolId, list[NodeGroup]]],
    taken: Collection[PoolId],
    missing: list[str],
) -> None:
    """Add pools without a label under free names: the names of labels take precedence."""
    for id, new in named:
        names = (id, _id(new[0], new[0].key.name))
        if (free := next((name for name in names if name not in pools and name not in taken), None)) is not None:
            pools[free] = new
        else:
            missing += [_lacks_pool(group, f"another pool is named {id.name}") for group in new]


def _own_name(group: NodeGroup) -> str:
    """Return a group's name; of an Auto Scaling group, without a suffix that makes it unique."""
    name = group.key.name
    return plain_name(name, group.identity.labels) if group.key.flavour == AUTO_SCALING else name


def _id(group: NodeGroup, name: str) -> PoolId:
    return PoolId(group.key.flavour, group.key.namespace, group.identity.cluster, name[:_LONGEST_VALUE].strip("-._"))


def _lacks(group: NodeGroup, what: str) -> str:
    return f"{object_text(group)}: {in_words(what, group.key.flavour)}"


def _lacks_pool(group: NodeGroup, why: str) -> str:
    return _lacks(group, f"{why}: set label {POOL_LABEL}" + ("" if group.identity.zone else f" and {ZONE_LABEL}"))


def _alike(groups: Iterable[NodeGroup], similarity: Similarity) -> list[list[NodeGroup]]:
    """Return the groups in parts. Within a part, nothing that is known of their nodes differs."""
    parts: list[list[NodeGroup]] = []
    for group in groups:
        home = next((part for part in parts if all(_may_be_alike(group, one, similarity) for one in part)), None)
        if home is None:
            parts.append([group])
        else:
            home.append(group)
    return parts


def _may_be_alike(a: NodeGroup, b: NodeGroup, similarity: Similarity) -> bool:
    """Return False if the known capacities or labels of two groups' nodes differ."""
    one, other = _node(a), _node(b)
    if one.complete and other.complete:
        return similarity.similar(one, other)
    keys = (one.labels.keys() | other.labels.keys()) - IGNORED_LABELS - similarity.ignored_labels
    is_described = [NODE_GROUP_LABEL in node.labels for node in (one, other)]  # by EKS
    if one.complete or other.complete or any(is_described) != all(is_described):  # then the other's was not read
        keys &= one.labels.keys() & other.labels.keys()
        keys -= one.assumed | other.assumed
    return all(one.labels.get(key) == other.labels.get(key) for key in keys)


def _node(group: NodeGroup) -> NodeTemplate:
    """Return what is known of a group's nodes. In labels of Auto Scaling groups, zones and names are left out."""
    node = group.template.node or NodeTemplate()
    if group.key.flavour != AUTO_SCALING or not group.identity.zone:
        return node
    return replace(node, labels={key: without_names(value, group) for key, value in node.labels.items()})


def _is_one_pool(part: Sequence[NodeGroup], parts: int) -> bool:
    """Return True if it is certain that a part is one pool: it is known to be alike, or has one group for each zone."""
    zones = [_zone(group) for group in part]
    if all(group.template.node is not None and group.template.node.complete for group in part):
        return True
    if part[0].key.flavour == AUTO_SCALING:  # during a replacement, two groups of a zone may have one name
        return len({*zones}) > 1
    return parts == 1 and (None in zones or len({*zones}) == len(zones))


def _zone(group: NodeGroup) -> str | None:
    """Return a group's zone, else the zone at the end of its name."""
    match = _ENDS_IN_ZONE.fullmatch(group.key.name)
    return group.identity.zone or (match[1] if match and match[1] != group.key.name else None)


def _stem(group: NodeGroup) -> str:
    """Return a group's name without its zone, its cluster and a hash; without a zone in it, without its ordinal."""
    labels = group.identity.labels
    name = str(labels.get(_NAME_LABEL, group.key.name))
    name = _HASH.sub("", name.removeprefix(f"{group.identity.cluster}-"))
    zone = _zone(group) or ""
    short = zone.rpartition("-")[2]  # 1a of eu-central-1a
    for part in filter(None, dict.fromkeys((zone, short, short[-1:]))):
        region = "[a-z]{3,}" if part.isdigit() else ""  # westeurope1
        places = [
            *re.finditer(rf"(?:^|(?<=[-.])){region and f'(?:{region})?'}(?P<zone>{re.escape(part)})(?![^-.])", name)
        ]
        if places:
            rest = name[: places[-1].start("zone")] + name[places[-1].end("zone") :]
            return re.sub(r"[-.]([-.])", r"\1", rest).strip("-.") or "workers"
    return re.sub(r"(^|[-.])z?[0-9]{1,3}$", "", name) or "workers"


def _fault(group: NodeGroup, name: str, pool: Sequence[NodeGroup]) -> str | None:
    """Return why there is no proposal for a group's pool, and what to do; None: this group has all that it needs."""
    namespace, owner = group.key.namespace, group.owner.numbers
    faults = (*group.unreadable.faults, *group.template.faults)
    if faults:
        return str(faults[0])
    if group.key.flavour == "gardener" and owner is None and shoot_of_namespace(namespace) is not None:
        kind = f"{Worker.kind.plural}.{Worker.kind.group}"
        return f"namespace {namespace}: its Worker ({kind}) is missing: `evenkeel objects` collects it"
    if group.identity.labels.get(POOL_LABEL) == "":
        return _lacks(group, f"label {POOL_LABEL} is empty: set it to the pool's name, or remove it")
    is_mixed = not group.identity.zone and any(one.identity.zone for one in pool)  # then names may mean other zones
    if _zone(group) is None or is_mixed:
        return _lacks(group, f"its zone is unknown: set label {ZONE_LABEL}")
    if group.key.flavour == AUTO_SCALING:
        if all(one.bounds == Bounds(0, 0) and one.requested == 0 for one in pool):
            return _lacks(group, f"no group of pool {name} may have a node: raise MaxSize to let it have some")
        unusable = next((text for text in (group.key.name, name) if _OF_WORDS.fullmatch(text) is None), None)
        return unusable and _lacks(
            group, f"{quote(unusable)} has characters that a shell reads: set label {POOL_LABEL}"
        )
    if not all(_NAME.fullmatch(name) for name in (group.key.name, namespace or "none")):
        return _lacks(group, "no name of Kubernetes")
    return None


def _marks(pool: str, members: Sequence[NodeGroup], others: Sequence[NodeGroup]) -> list[Mark]:
    """Return the marks that make these groups one pool with numbers: labels, zones, then PoolMinimum and PoolMaximum.

    Args:
        pool: The pool's name.
        members: All groups of the pool.
        others: The members that are in no pool yet.
    """
    marks: list[Mark] = []
    for (kind, namespace, has_label, has_zone), alike in _by(others, _labelled_place).items():
        labels = {} if has_label else {POOL_LABEL: pool}
        if has_zone:
            names = tuple(_labelled(group)[2] for group in alike)
            marks += [Mark(kind=kind, namespace=namespace, names=names, labels=labels)] if labels else []
        else:
            marks += _zone_marks(kind, namespace, labels, alike)
    if numbers := _numbers(members):
        for (_, namespace), alike in _by(members, lambda one: (one.identity.kind, one.key.namespace)).items():
            names = tuple(group.key.name for group in alike)
            marks.append(Mark(kind=_kind(alike[0]), namespace=namespace, names=names, annotations=numbers))
    return marks


def _by(groups: Iterable[NodeGroup], key: Callable[[NodeGroup], _Key]) -> dict[_Key, list[NodeGroup]]:
    found: dict[_Key, list[NodeGroup]] = {}
    for group in groups:
        found.setdefault(key(group), []).append(group)
    return found


def _zone_marks(
    kind: Kind | None, namespace: str, labels: Mapping[str, str], groups: Sequence[NodeGroup]
) -> list[Mark]:
    """Return the marks that give groups the zones of their names: one for each stem, or one for each zone."""
    named = [(_labelled(group)[2], _zone(group) or "") for group in groups]
    stems: dict[str, list[tuple[str, str]]] = {}
    zones: dict[str, list[str]] = {}
    for name, zone in named:
        stems.setdefault(name.removesuffix(zone), []).append((name, zone))
        zones.setdefault(zone, []).append(name)
    if len(stems) < len(zones) and all(name.endswith(zone) for name, zone in named):
        pairs = [tuple(zip(*alike, strict=True)) for alike in stems.values()]
        return [Mark(kind=kind, namespace=namespace, names=names, zones=at, labels=labels) for names, at in pairs]
    return [
        Mark(kind=kind, namespace=namespace, names=tuple(names), labels={**labels, ZONE_LABEL: zone})
        for zone, names in zones.items()
    ]


def _kind(group: NodeGroup) -> Kind | None:
    """Return the kind of a group's object; None for an Auto Scaling group."""
    flavour = FLAVOURS.get(group.key.flavour)
    return next((kind for kind in flavour.scalables if kind.kind == group.identity.kind), None) if flavour else None


def _labelled(group: NodeGroup) -> tuple[Kind | None, str, str]:
    """Return the object for a group's labels. A NodePool has them itself, because its operator writes the group."""
    owner = group.owner.numbers
    if owner is not None and owner.ref.kind == NodePool.kind.kind:
        return NodePool.kind, owner.ref.namespace, owner.ref.name
    return _kind(group), group.key.namespace, group.key.name


def _labelled_place(group: NodeGroup) -> tuple[Kind | None, str, bool, bool]:
    return *_labelled(group)[:2], group.identity.pool_label is not None, bool(group.identity.zone)


def _numbers(members: Sequence[NodeGroup]) -> dict[str, str]:
    """Return PoolMinimum and PoolMaximum where the members have none, or where theirs do not hold today's nodes."""
    if any(group.annotations.pool_max is not None for group in members):
        return {}
    bounds: dict[str, Bounds] = {}  # an owner's bounds count once
    for group in members:
        own, owner = group.ours.adopted if group.ours.has_adopted else group.bounds, group.owner.numbers
        if owner is not None:
            bounds[owner.ref.id] = owner.bounds
        elif own is not None:
            bounds[str(group.key)] = own
    nodes, most = sum(group.requested for group in members), sum(one.max for one in bounds.values())
    least = next((one.annotations.pool_min for one in members if one.annotations.pool_min is not None), None)
    if most:
        low = sum(one.min for one in bounds.values()) if least is None else least
        return {} if most >= nodes else {POOL_MAX: str(max(nodes, low))}
    numbers = {POOL_MIN: str(nodes)} if least is None else {}
    return {**numbers, POOL_MAX: str(max(nodes, len(members), least or 0))}


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
    if str(get_path(node, ("spec", "providerID"))).startswith("aws:///") and (region := labels.get(_REGION_LABEL)):
        return ReadFrom(ApiServer.AWS, (str(region),))
    return None
