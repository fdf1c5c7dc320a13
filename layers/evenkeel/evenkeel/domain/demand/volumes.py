"""Which nodes can use a pod's volumes (plugins volumebinding, volumezone, volumerestrictions, nodevolumelimits).

The claims of each pod are converted once into conditions on a node. ``filters.volume_binding`` compares these
conditions with the node's labels.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from evenkeel.domain.demand.selectors import matches
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import Claim, NodeSelectorTerm, Pod, PodVolume, Volume, Workload

NO_PROVISIONER = "kubernetes.io/no-provisioner"
_EXCLUSIVE = "ReadWriteOncePod"
# Kinds of volume that the scheduler accepts on any node.
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
# Beta label of older volumes -> the current label that replaces the beta label.
TOPOLOGY_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
ZONE_LABELS = (*TOPOLOGY_LABELS.values(), *TOPOLOGY_LABELS)
_BETWEEN_ZONES = "__"


@dataclass(frozen=True)
class Reach:
    """The conditions that a node must meet to use the volume of one claim."""

    claim: str
    terms: tuple[NodeSelectorTerm, ...] | None = None  # the node must match one of these terms; None: any node
    labels: tuple[tuple[str, frozenset[str]], ...] = ()  # zone and region keys, each with the values that match
    node: str = ""  # the only possible node, because provisioning has begun for it; empty: any node


@dataclass(frozen=True)
class VolumeNeeds:
    """The conditions that a pod's volumes put on a node."""

    obstacle: Reason | None = None  # why no node meets the conditions; None: a node may meet them
    reaches: tuple[Reach, ...] = ()
    drivers: tuple[tuple[str, int], ...] = ()  # number of volumes to attach for each pod, by CSI driver
    shared: tuple[tuple[str, str], ...] = ()  # driver and claim of volumes to attach once for all pods of a node
    exclusive: frozenset[str] = frozenset()  # claims with access mode ReadWriteOncePod
    alike: tuple[object, ...] = field(default=(), repr=False)  # a value that is equal for pods with equal conditions

    @property
    def number_by_driver(self) -> Mapping[str, int]:
        """Return the number of volumes to attach for the first pod of a node, by CSI driver."""
        return Counter(dict(self.drivers)) + Counter(driver for driver, _ in self.shared)


NONE = VolumeNeeds()


class Volumes:
    """The volumes, claims and storage classes that one check has read."""

    def __init__(self, workload: Workload) -> None:
        self._claims = {(claim.namespace, claim.name): claim for claim in workload.claims}
        self._volumes = {volume.name: volume for volume in workload.volumes}
        self._classes = {item.name: item for item in workload.storage_classes}
        self._attachments = frozenset(workload.attachments)
        # A claim that one pod names twice counts as shared, because it is attached once, too.
        users = Counter(
            (pod.namespace, volume.claim)
            for pod in workload.pods
            for volume in pod.needs.volumes
            if volume.kind == "persistentVolumeClaim"
        )
        self._shared = {claim for claim, count in users.items() if count > 1}
        self._free: dict[str, list[Volume]] = defaultdict(list)
        for volume in sorted(workload.volumes, key=lambda volume: volume.name):
            if not volume.claim and volume.phase in ("Available", ""):
                self._free[volume.storage_class].append(volume)

    def needs_of(self, pod: Pod) -> VolumeNeeds:
        """Return the conditions that a pod's claims put on a node, or the first obstacle that rules out every node."""
        if not pod.needs.volumes:
            return NONE
        volumes = [volume for volume in pod.needs.volumes if volume.kind in OF_CLAIMS]
        if not volumes:
            return NONE
        obstacles: list[Reason] = []
        reaches: list[Reach] = []
        drivers: Counter[str] = Counter()
        shared: set[tuple[str, str]] = set()
        exclusive: set[str] = set()
        for volume in volumes:
            claim = self._claim(pod, volume)
            reach = claim if isinstance(claim, Reason) else self._reach(claim)
            if isinstance(reach, Reach):
                reaches.append(reach)
            else:
                obstacles.append(reach)
            if isinstance(claim, Reason):
                continue
            # The volumes of a running pod remain attached, even if their claims are deleted or lost.
            driver = self._driver(claim)
            if driver and (claim.namespace, claim.name) in self._shared:
                shared.add((driver, str(claim)))
            elif driver:
                drivers[driver] += 1
            if _EXCLUSIVE in claim.access_modes:
                exclusive.add(str(claim))
        obstacle = obstacles[0] if obstacles else None
        attached = tuple(sorted(drivers.items()))
        alike: object = tuple(sorted(((reach.terms, reach.labels, reach.node) for reach in reaches), key=repr))
        if obstacle is not None:
            alike = (obstacle.rule, tuple(sorted(obstacle.facts.items(), key=repr)))
        return VolumeNeeds(
            obstacle=obstacle,
            reaches=() if obstacle else tuple(reaches),
            drivers=attached,
            shared=tuple(sorted(shared)),
            exclusive=frozenset(exclusive),
            alike=(alike, attached, frozenset(shared), frozenset(exclusive)),
        )

    def _claim(self, pod: Pod, volume: PodVolume) -> Claim | Reason:
        claim = self._claims.get((pod.namespace, volume.claim))
        if claim is None:
            return Reason.of(Rule.CLAIM_MISSING, claim=f"{pod.namespace}/{volume.claim}")
        if volume.kind == "ephemeral" and claim.for_pod != pod.name:
            return Reason.of(Rule.CLAIM_OF_ANOTHER, claim=str(claim))
        return claim

    def attached_without_pod(self, pods_on: Mapping[str, Iterable[Pod]]) -> dict[str, Counter[str]]:
        """Return, for each node, the number of attached volumes that none of its pods uses, by CSI driver.

        The scheduler counts these volumes in addition to the pods' volumes (nodevolumelimits/csi.go,
        getNodeVolumeAttachmentInfo). A volume remains attached for a while after its pod is deleted.

        Args:
            pods_on: The pods of each node, by node name.
        """
        attached: dict[str, Counter[str]] = defaultdict(Counter)
        named: dict[str, set[str]] = {}
        for attachment in self._attachments:
            node, volume = attachment.node, self._volumes.get(attachment.volume)
            if volume is None or not volume.driver:
                continue
            if node not in named:
                named[node] = {name for pod in pods_on.get(node, ()) for name in self._volumes_of(pod)}
            if attachment.volume not in named[node]:
                attached[node][attachment.driver] += 1
        return attached

    def _volumes_of(self, pod: Pod) -> Iterator[str]:
        for volume in pod.needs.volumes:
            if volume.kind in OF_CLAIMS and (claim := self._claims.get((pod.namespace, volume.claim))) is not None:
                yield claim.volume

    def _driver(self, claim: Claim) -> str:
        """Return the CSI driver of the claim's volume, or the driver that would provision it; empty: unknown."""
        if volume := self._volumes.get(claim.volume):
            return volume.driver
        storage = self._classes.get(claim.storage_class)
        return storage.provisioner if storage else ""

    def _reach(self, claim: Claim) -> Reach | Reason:
        if claim.deleting:
            return Reason.of(Rule.CLAIM_GOING, claim=str(claim))
        if claim.lost:
            return Reason.of(Rule.CLAIM_LOST, claim=str(claim))
        if not claim.volume:
            return self._unbound(claim)
        volume = self._volumes.get(claim.volume)
        if volume is None:
            return Reason.of(Rule.VOLUME_MISSING, claim=str(claim), volume=claim.volume)
        return Reach(str(claim), volume.terms, tuple(_zones(volume)))

    def _unbound(self, claim: Claim) -> Reach | Reason:
        """Return the conditions on a node for an unbound claim, which may get a free volume or a new volume.

        If the storage class does not wait for the first pod, return the reason why no node is possible. The simulation
        may use one free volume for two pods. No superfluous node is ordered because of this, since a new node has no
        free volume.
        """
        storage = self._classes.get(claim.storage_class)
        if storage is None or not storage.waits:
            return Reason.of(Rule.CLAIM_UNBOUND, claim=str(claim), storage_class=claim.storage_class)
        if claim.selected_node:
            return Reach(str(claim), node=claim.selected_node)
        choices = [volume.terms for volume in self._free[storage.name] if _serves(volume, claim)]
        if storage.provisioner != NO_PROVISIONER:
            entries = tuple(NodeSelectorTerm(expressions=entry) for entry in storage.allowed_topologies)
            choices.append(entries or None)
        if None in choices:
            return Reach(str(claim))
        return Reach(str(claim), tuple(term for terms in choices for term in terms or ()))


def _zones(volume: Volume) -> Iterator[tuple[str, frozenset[str]]]:
    for key in ZONE_LABELS:
        if key in volume.labels:
            yield key, frozenset(volume.labels[key].split(_BETWEEN_ZONES))


def _serves(volume: Volume, claim: Claim) -> bool:
    """Return True if a free volume may be bound to a claim (pv_helpers.go: FindMatchingVolume)."""
    return (
        volume.capacity >= claim.size
        and claim.access_modes <= volume.access_modes
        and matches(claim.selector, volume.labels)
    )
