"""From where a pod's volumes can be reached (plugins volumebinding, volumezone, volumerestrictions, nodevolumelimits).

Claims are looked up once per pod and become what a node has to be: what is left is compared like a node affinity.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from evenkeel.domain.demand.selectors import any_term_matches, matches
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import Claim, NodeSelectorTerm, Pod, Volume, Workload

NO_PROVISIONER = "kubernetes.io/no-provisioner"
_EXCLUSIVE = "ReadWriteOncePod"

# Kinds of volume that any node can offer, as far as the scheduler is concerned.
ANYWHERE = frozenset(
    {
        "azureFile",
        "cephfs",
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "gitRepo",
        "hostPath",
        "image",
        "nfs",
        "projected",
        "secret",
    }
)
OF_CLAIMS = frozenset({"persistentVolumeClaim", "ephemeral"})
_KNOWN = ANYWHERE | OF_CLAIMS

_TODAY = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_ZONE_LABELS = (*_TODAY.values(), *_TODAY)
_BETWEEN_ZONES = "__"


@dataclass(frozen=True)
class Reach:
    """From where one claim's volume can be reached."""

    claim: str
    terms: tuple[NodeSelectorTerm, ...] | None = None  # one of these; None: from everywhere
    labels: tuple[tuple[str, frozenset[str]], ...] = ()  # zone and region of the volume: one of these values
    node: str = ""  # provisioning has begun for this node


@dataclass(frozen=True)
class VolumeNeeds:
    """What a pod's volumes ask of a node."""

    obstacle: Reason | None = None  # no node will do
    reaches: tuple[Reach, ...] = ()
    drivers: tuple[tuple[str, int], ...] = ()  # volumes to be attached, by CSI driver
    exclusive: frozenset[str] = frozenset()  # claims that no second pod may use
    alike: tuple[object, ...] = field(default=(), repr=False)  # equal for pods whose volumes ask the same of nodes


NONE = VolumeNeeds()


def failing_filter(needs: VolumeNeeds, labels: Mapping[str, str], name: str) -> Reason | None:
    """Why a node of these labels and this name cannot reach the volumes; None: it can."""
    for reach in needs.reaches:
        if reach.node and reach.node != name:
            return Reason.of(Rule.VOLUME_FOR_OTHER_NODE, claim=reach.claim, node=reach.node)
        if reach.terms is not None and not any_term_matches(reach.terms, labels, name):
            return Reason.of(Rule.VOLUME_OUT_OF_REACH, claim=reach.claim)
    if not any(label in labels for label in _ZONE_LABELS):
        return None
    for reach in needs.reaches:
        for key, values in reach.labels:
            if (found := _of_node(labels, key)) not in values:
                wants = " or ".join(sorted(values))
                return Reason.of(
                    Rule.VOLUME_ELSEWHERE, claim=reach.claim, key=key, wants=wants, found=found or "missing"
                )
    return None


def _of_node(labels: Mapping[str, str], key: str) -> str | None:
    """A node's zone or region; the label of today counts for a volume that has the old one, and not the other way."""
    return labels.get(key, labels.get(_TODAY.get(key, "")))


class Volumes:
    """The volumes, claims and classes of a look, for looking up what pods ask for."""

    def __init__(self, workload: Workload) -> None:
        self._claims = {(claim.namespace, claim.name): claim for claim in workload.claims}
        self._volumes = {volume.name: volume for volume in workload.volumes}
        self._classes = {item.name: item for item in workload.storage_classes}
        self._attachments = workload.attachments
        self._free: dict[str, list[Volume]] = defaultdict(list)
        for volume in sorted(workload.volumes, key=lambda volume: volume.name):
            if not volume.claim and volume.phase in ("Available", ""):
                self._free[volume.storage_class].append(volume)

    def needs_of(self, pod: Pod) -> VolumeNeeds:
        """What the claims of a pod ask of a node, or the first reason why no node can do."""
        claims = [volume for volume in pod.needs.volumes if volume.kind in OF_CLAIMS]
        if not claims:
            return NONE
        obstacle: Reason | None = None
        reaches: list[Reach] = []
        drivers: dict[str, int] = defaultdict(int)
        exclusive: set[str] = set()
        for volume in claims:
            claim = self._claims.get((pod.namespace, volume.claim))
            if claim is None:
                obstacle = obstacle or Reason.of(Rule.CLAIM_MISSING, claim=f"{pod.namespace}/{volume.claim}")
                continue
            if volume.kind == "ephemeral" and claim.for_pod != pod.name:
                obstacle = obstacle or Reason.of(Rule.CLAIM_OF_ANOTHER, claim=str(claim))
                continue
            found = self._reach(claim)
            if isinstance(found, Reach):
                reaches.append(found)
            else:
                obstacle = obstacle or found
            # Whoever runs has its volumes attached, whatever has become of the claims since.
            if driver := self._driver(claim):
                drivers[driver] += 1
            if _EXCLUSIVE in claim.access_modes:
                exclusive.add(str(claim))
        attached = tuple(sorted(drivers.items()))
        alike: object = tuple(sorted(((reach.terms, reach.labels, reach.node) for reach in reaches), key=repr))
        if obstacle is not None:
            alike = (obstacle.rule, tuple(sorted(obstacle.facts.items(), key=repr)))
        return VolumeNeeds(
            obstacle=obstacle,
            reaches=() if obstacle else tuple(reaches),
            drivers=attached,
            exclusive=frozenset(exclusive),
            alike=(alike, attached, frozenset(exclusive)),
        )

    def attached_without_pod(self, pods_on: Mapping[str, Iterable[Pod]]) -> dict[str, Counter[str]]:
        """Return how many volumes of each CSI driver are attached to each node that none of its pods names.

        The scheduler counts them beside those of the pods (nodevolumelimits/csi.go, getNodeVolumeAttachmentInfo). One
        is left over while its pod is gone and the volume is not detached yet.

        Args:
            standing: The pods of each node, by its name.
        """
        found: dict[str, Counter[str]] = defaultdict(Counter)
        named: dict[str, set[str]] = {}
        for each in set(self._attachments):
            volume = self._volumes.get(each.volume)
            if volume is None or not volume.driver:
                continue
            if each.node not in named:
                named[each.node] = {name for pod in pods_on.get(each.node, ()) for name in self._named_by(pod)}
            if each.volume not in named[each.node]:
                found[each.node][each.driver] += 1
        return found

    def _named_by(self, pod: Pod) -> Iterator[str]:
        for volume in pod.needs.volumes:
            if volume.kind in OF_CLAIMS and (claim := self._claims.get((pod.namespace, volume.claim))) is not None:
                yield claim.volume

    def _driver(self, claim: Claim) -> str:
        """Who attaches a claim's volume: the one that made it, or, where there is none, the one that would."""
        if volume := self._volumes.get(claim.volume):
            return volume.driver
        storage = self._classes.get(claim.storage_class)
        return storage.provisioner if storage else ""

    def _reach(self, claim: Claim) -> Reach | Reason:
        """From where a claim's volume can be reached; or why from nowhere."""
        if claim.deleting:
            return Reason.of(Rule.CLAIM_GOING, claim=str(claim))
        if claim.lost:
            return Reason.of(Rule.CLAIM_LOST, claim=str(claim))
        if claim.volume:
            volume = self._volumes.get(claim.volume)
            if volume is None:
                return Reason.of(Rule.VOLUME_MISSING, claim=str(claim), volume=claim.volume)
            return Reach(str(claim), volume.terms, tuple(_zones(volume)))
        return self._unbound(claim)

    def _unbound(self, claim: Claim) -> Reach | Reason:
        """A claim that waits for its first pod: wherever a free volume or a new one can be reached.

        Two pods may count on the same free volume: that orders no node too many, and none too few, since a node that
        is not there yet has no volume of its own.
        """
        storage = self._classes.get(claim.storage_class)
        if storage is None or not storage.waits:
            return Reason.of(Rule.CLAIM_UNBOUND, claim=str(claim), storage_class=claim.storage_class)
        if claim.selected_node:
            return Reach(str(claim), node=claim.selected_node)
        ways = [volume.terms for volume in self._free[storage.name] if _serves(volume, claim)]
        if storage.provisioner != NO_PROVISIONER:
            entries = tuple(NodeSelectorTerm(expressions=entry) for entry in storage.allowed_topologies)
            ways.append(entries or None)
        if any(terms is None for terms in ways):
            return Reach(str(claim))
        return Reach(str(claim), tuple(term for terms in ways for term in terms or ()))


def _zones(volume: Volume) -> Iterator[tuple[str, frozenset[str]]]:
    for key in _ZONE_LABELS:
        if key in volume.labels:
            yield key, frozenset(volume.labels[key].split(_BETWEEN_ZONES))


def _serves(volume: Volume, claim: Claim) -> bool:
    """Whether a free volume may be bound to a claim (pv_helpers.go: FindMatchingVolume)."""
    return (
        volume.capacity >= claim.size
        and claim.access_modes <= volume.access_modes
        and matches(claim.selector, volume.labels)
    )


def unknown_kinds(pod: Pod) -> Iterable[str]:
    """The kinds of a pod's volumes of which nobody here knows where they can be."""
    return sorted({volume.kind for volume in pod.needs.volumes if volume.kind not in _KNOWN})
