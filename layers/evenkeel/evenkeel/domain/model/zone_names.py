"""The two names of a zone: the name in the machine API, and the zone label of its nodes.

On most clouds both are equal. On Azure, the machine API's zone is ``2``, and its nodes have the label ``westeurope-2``.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from evenkeel.domain.model.groups import GroupKey, NodeGroup
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.workload import ZONE

_Place = tuple[str, str, str]  # the flavour, namespace and cluster of groups that are in one region


def with_zone_labels(observation: Observation, fenced: Collection[str] = ()) -> Observation:
    """Return the observation, with the zone label of each group whose nodes name their zone differently.

    A group whose objects name no zone is in the zone of its nodes, if they are all in one.

    The label is from the first of these sources that has one:

    1. The group's own template, such as annotation ``capacity.cluster-autoscaler.kubernetes.io/labels``.
    2. The nodes of the group, else those of groups in the same zone.
    3. The nodes of groups in other zones, if their labels are the zone's name after one common text, such as
       ``westeurope-``.
    4. If no label is known, such as while nodes cannot be read: the names of fenced zones in ``fenced``, in the same
       way. Otherwise a fence under such a name would end with each read that fails.
    """
    nodes = _zones_of_nodes(observation)
    if nodes and any(group.identity.zone is None and group.key in nodes for group in observation.groups):
        observation = replace(observation, groups=tuple(_placed(group, nodes) for group in observation.groups))
    groups = [group for group in observation.groups if group.identity.zone is not None]
    labels = _known_labels(groups, nodes)
    if not fenced and not any(label != group.identity.zone for group in groups if (label := labels.get(group.key))):
        return observation
    by_place: dict[_Place, list[NodeGroup]] = defaultdict(list)
    for group in groups:
        by_place[group.key.flavour, group.key.namespace, group.identity.cluster].append(group)
    for members in by_place.values():
        labels |= _learned_labels(members, labels, fenced)
    if not any(labels.get(group.key, group.identity.zone) != group.identity.zone for group in groups):
        return observation
    return replace(observation, groups=tuple(_labelled(group, labels.get(group.key)) for group in observation.groups))


def _labelled(group: NodeGroup, label: str | None) -> NodeGroup:
    if label is None or label == group.identity.zone:
        return group
    return replace(group, identity=replace(group.identity, zone_label=label))


def _zones_of_nodes(observation: Observation) -> dict[GroupKey, list[str]]:
    zones: dict[GroupKey, list[str]] = defaultdict(list)
    for node in () if observation.workload is None else observation.workload.nodes:
        if node.group is not None and node.labels.get(ZONE):
            zones[node.group].append(node.labels[ZONE])
    return zones


def _placed(group: NodeGroup, nodes: Mapping[GroupKey, Sequence[str]]) -> NodeGroup:
    zones = set(nodes.get(group.key, ()))
    if group.identity.zone is not None or len(zones) != 1:
        return group
    return replace(group, identity=replace(group.identity, zone=zones.pop(), zone_of_machines=True))


def _known_labels(groups: Iterable[NodeGroup], nodes: Mapping[GroupKey, Sequence[str]]) -> dict[GroupKey, str]:
    """Return the zone labels that the groups' templates or their own nodes have."""
    known = {}
    for group in groups:
        template = group.template.node
        stated = template.labels.get(ZONE) if template is not None else None
        # A template whose zone label is the machine API's name may not know the other name.
        if stated and stated != group.identity.zone:
            known[group.key] = stated
        elif group.key in nodes:
            known[group.key] = _most_frequent(nodes[group.key])
    return known


def _learned_labels(
    groups: Sequence[NodeGroup], labels: Mapping[GroupKey, str], fenced: Iterable[str]
) -> dict[GroupKey, str]:
    """Return the zone labels of the groups of one place that neither a template nor an own node names."""
    known = [(str(group.identity.zone), labels[group.key]) for group in groups if group.key in labels]
    prefixes = {label.removesuffix(zone) for zone, label in known if label.endswith(zone)}
    if not known:
        zones = {str(group.identity.zone) for group in groups}
        others = [(zone, name) for zone in zones for name in fenced if name not in zones]
        prefixes = {name.removesuffix(zone) for zone, name in others if name.endswith(f"-{zone}")}
    prefix = next(iter(prefixes)) if len(prefixes) == 1 else ""
    learned = {}
    for group in groups:
        zone = str(group.identity.zone)
        if group.key not in labels:
            learned[group.key] = _most_frequent([label for of, label in known if of == zone]) or f"{prefix}{zone}"
    return learned


def _most_frequent(labels: Sequence[str]) -> str:
    """Return the most frequent label, of several the first by name; empty if there is none."""
    if not labels:
        return ""
    counts = Counter(labels)
    return min(counts, key=lambda label: (-counts[label], label))


def zone_called(name: str, groups: Iterable[NodeGroup]) -> str:
    """Return the machine API's name of the zone that has this name or label; an unknown name is returned as it is."""
    identities = [group.identity for group in groups]
    if any(identity.zone == name for identity in identities):
        return name
    return next((str(identity.zone) for identity in identities if identity.zone_label == name), name)
