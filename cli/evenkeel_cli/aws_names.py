"""Names of pools for Auto Scaling groups, from what installers write into names and tags.

Groups of one pool differ in the zone: in the name of the node group, in the names of CloudFormation, in the group's own
name, or in its tag ``Name``. The first of these names that groups in several zones share is used.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from evenkeel.adapters.auto_scaling.installers import EKS_NODE_GROUP
from evenkeel.domain.model.groups import GroupKey, NodeGroup

KOPS_GROUP = "kops.k8s.io/instancegroup"
_NODE_GROUP_NAMES = (
    *("eks:nodegroup-name", "alpha.eksctl.io/nodegroup-name", "eksctl.io/v1alpha2/nodegroup-name"),
    *(KOPS_GROUP, "kube-aws:node-pool:name"),
)
STACK, _RESOURCE = "aws:cloudformation:stack-name", "aws:cloudformation:logical-id"
_GENERIC = frozenset({"nodegroup", "asg", "autoscalinggroup"})  # such a resource says nothing beside its stack
# Suffixes that make names unique: of EKS, and of Terraform.
_UNIQUE = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$|-?[0-9]{26}$")
_CDK_HASH = re.compile(r"[0-9A-F]{8}$")
_WORD_IN_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[a-z])(?=[0-9]+$)")
# Names of groups that no installer has marked, on clusters that have a control plane of their own.
_OTHER_ROLE = re.compile(
    r"(?:^|[-._/])(?:masters?|control-?planes?|etcd|bastions?|api-?servers?)(?:$|[-._/])", re.IGNORECASE
)
_ORDINAL = re.compile(r"(?:^|[-._])(?:(?:az|zone|z)?[0-9]{1,3}|one|two|three|first|second|third)$", re.IGNORECASE)
_ZONE = re.compile(r"[a-z]{2}(?:-[a-z]+)+-[0-9]+(?P<rest>.*)")  # of the Region, then a letter or a local zone


def zone_place(zone: str) -> str:
    """Return the part of a zone's name that its siblings share, such as ``lax-1``; empty: an Availability Zone."""
    found = _ZONE.fullmatch(zone)
    return found["rest"][:-1].strip("-") if found else ""


def is_called_other(name: str, tags: Mapping[str, str]) -> bool:
    """Return True if the name is that of a control plane or a bastion. EKS runs the control planes of its clusters."""
    names = (_words(name), _words(tags.get("Name", "")))
    return EKS_NODE_GROUP not in tags and any(map(_OTHER_ROLE.search, names))


def _words(name: str) -> str:
    """Return a name with a separator before each word and number: ``K8s-Master-Asg``, ``Node-Group-1``."""
    return _WORD_IN_CAMEL.sub("-", name)


def stems(groups: Iterable[NodeGroup]) -> dict[GroupKey, str]:
    """Return a name without zone for each group. Groups of a cluster with the same name may be one pool.

    Local zones get names of their own, because their prices and latencies differ from those of the Region.
    """
    found: dict[GroupKey, str] = {}
    left = [group for group in groups if group.identity.zone]
    for source in _SOURCES:
        sets: dict[tuple[str, ...], list[NodeGroup]] = {}
        for group in left:
            if stem := source(group):
                sets.setdefault((group.key.namespace, group.identity.cluster, stem), []).append(group)
        for (*_, stem), alike in sets.items():
            if len({group.identity.zone for group in alike}) > 1:
                found |= {group.key: stem for group in alike}
        left = [group for group in left if group.key not in found]
    return found | {group.key: _named(group) or group.key.name for group in left}


def without_zone(text: str, zone: str) -> str | None:
    """Return a text without the zone in it; None: the zone is not in it."""
    short, letter = re.escape(zone.rpartition("-")[2]), re.escape(zone[-1:])
    full = f"{re.escape(zone)}|{zone.replace('-', '')}|{zone.replace('-', '_')}"
    parts = (full, rf"(?:[a-z]{{2,5}})?{short}", rf"(?:az|zone)?{letter}", r"az[0-9]")  # such as euc1a, aza, az1
    for part in parts:
        places = [*re.finditer(rf"(?<![^-._/])(?:{part})(?![^-._/])", text, re.IGNORECASE)]
        if places:
            rest = text[: places[-1].start()] + text[places[-1].end() :]
            return re.sub(r"[-._/]([-._/])", r"\1", rest).strip("-._/")
    return None


def without_names(value: str, group: NodeGroup) -> str:
    """Return a value of a label without the group's zone and its names."""
    labels = group.identity.labels
    if value in (group.key.name, plain_name(group.key.name, labels), labels.get("Name")):
        return ""
    rest = without_zone(value, group.identity.zone or "")
    return value if rest is None else rest


def _stem(name: str, group: NodeGroup, *, zone_only: bool = False) -> str | None:
    """Return a name without its zone and cluster. ``zone_only``: None if there is no zone in it."""
    zone, cluster = group.identity.zone or "", group.identity.cluster
    for separator in "-._":
        name = name.removeprefix(f"{cluster}{separator}").removesuffix(f"{separator}{cluster}")
    rest = without_zone(name, zone)
    if rest is None:
        if zone_only:
            return None
        rest = _ORDINAL.sub("", name)
    place = zone_place(zone)
    stem = (rest or "workers").replace("/", "-")
    return stem if not place or place in stem else f"{stem}-{place}"


def plain_name(name: str, tags: Mapping[str, str]) -> str:
    """Return the installer's name of the node group, else the group's own name, without a suffix that makes it unique.

    ``name``: the name of the Auto Scaling group.
    """
    given = next((tags[key] for key in _NODE_GROUP_NAMES if tags.get(key)), None)
    if given is not None:
        return _UNIQUE.sub("", given)
    plain = _UNIQUE.sub("", name)
    return plain if plain == name else plain.removeprefix("eks-")


def _named(group: NodeGroup) -> str | None:
    return _stem(plain_name(group.key.name, group.identity.labels), group)


def _of_stack(group: NodeGroup) -> str | None:
    labels: Mapping[str, str] = group.identity.labels
    stack, resource = labels.get(STACK), _CDK_HASH.sub("", labels.get(_RESOURCE, ""))
    if not stack or not resource:
        return None
    name = stack if resource.lower() in _GENERIC else f"{stack}-{_words(resource)}"
    return _stem(name, group)


def _own(group: NodeGroup) -> str | None:
    return _stem(plain_name(group.key.name, {}), group)


def _tag_name(group: NodeGroup) -> str | None:
    """Return the stem of tag ``Name``. Without a zone it is no evidence: many clusters have one name for all nodes."""
    return _stem(group.identity.labels.get("Name", ""), group, zone_only=True)


def _glued(group: NodeGroup) -> str | None:
    """Return the stem of a name that ends in the letter of the zone, without a separator: ``workersa``."""
    name, zone = plain_name(group.key.name, group.identity.labels), group.identity.zone or ""
    return _stem(f"{name[:-1]}-{name[-1:]}", group) if name[-1:].lower() == zone[-1:] else None


_SOURCES: Sequence[Callable[[NodeGroup], str | None]] = (_named, _of_stack, _own, _tag_name, _glued)
