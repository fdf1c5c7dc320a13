"""The interfaces of owners of bounds, replicas and cluster size. A check creates each owner from listed objects."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from evenkeel.adapters.kubernetes.objects import Kind, Object, Path, Scalable, get_path, name_of
from evenkeel.adapters.own_annotations import Reading
from evenkeel.domain.model.groups import Bounds, GroupKey, NodeCap, NodeGroup, OwnerNumbers, OwnerRef, Pinning
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.values import read_count


class BoundKeys(NamedTuple):
    """The annotations from which Cluster Autoscaler reads a group's bounds (clusterapi_utils.go:326-342)."""

    min: str
    max: str


class Claim(NamedTuple):
    """The bounds of a scalable, as read from their owner."""

    owner: "BoundsOwner"
    path: Path  # the path of max in managedFields
    annotations: Mapping[str, Any]  # all annotations of the object that has the bounds, including Evenkeel's
    minimum: int | None
    maximum: int | None
    has_bounds: bool
    # The fields below are set where an object other than the scalable has the bounds.
    object: Object | None = None
    ref: OwnerRef | None = None
    fields: tuple[str, str] = ("", "")  # the paths of min and max, as people write them
    labels: Mapping[str, str] = {}  # labels of ``object`` that count as labels of the group
    zone: str | None = None
    least_min: int = 0  # the lowest min that the owner accepts
    pinning: Pinning | None = None  # set where the owner can fix replicas, so that no autoscaler changes them
    pinned: bool = False  # True: the owner has fixed replicas, as Evenkeel requested


def ref_of(kind: Kind, item: Object, part: str = "") -> OwnerRef:
    """Return the reference to an owner, or to a part of it."""
    namespace, name = name_of(item)
    uid = get_path(item, ("metadata", "uid"))
    return OwnerRef(kind=kind.kind, namespace=namespace, name=name, part=part, uid=uid if isinstance(uid, str) else "")


class BoundsOwner(ABC):
    """Reads and writes the bounds of node groups."""

    kind: ClassVar[Kind | None] = None  # the kind of the owner's objects; None: the scalable itself is the owner
    rights: ClassVar[str] = ""  # the files that grant the right to write the owner; empty: the files for scalables
    least_max: ClassVar[int] = 0  # the lowest max that the owner accepts
    # True: the controller that copies max also lowers replicas to max.
    lowers_replicas: ClassVar[bool] = False
    max_only: ClassVar[bool] = False  # True: the owner has no min, and its controller writes replicas

    def __init__(self, keys: BoundKeys, items: Sequence[Object]) -> None:
        """``items``: all objects of the owner's kind."""
        self.keys = keys

    @abstractmethod
    def claim(self, scalable: Scalable, reading: Reading) -> Claim | None:
        """Return the scalable's bounds, or None where another owner has them. Adds a fault for each bad value."""

    def frozen(self, scalable: Scalable) -> Reason | None:
        """Return the reason why the scalable must not be written now, or None."""
        return None

    def claim_of(self, annotations: Mapping[str, Any], reading: Reading) -> Claim:
        """Return a claim whose bounds are annotations of the scalable."""
        low, high = self.keys
        return Claim(
            owner=self,
            path=("f:metadata", "f:annotations", f"f:{high}"),
            annotations=annotations,
            minimum=reading.read(low, annotations.get(low), read_count),
            maximum=reading.read(high, annotations.get(high), read_count),
            has_bounds=low in annotations or high in annotations,
        )

    def bounds_annotations(self, bounds: Bounds | None) -> dict[str, str | None]:
        """Return the annotations for these bounds; ``bounds`` None removes the annotations."""
        low, high = (str(bounds.min), str(bounds.max)) if bounds else (None, None)
        return {self.keys.min: low, self.keys.max: high}

    def patch(
        self, item: Object, scalable: Object, annotations: Mapping[str, str | None], bounds: Bounds | None
    ) -> dict[str, Any]:
        """Return a merge patch of the owner's object, with these annotations and with bounds in other fields."""
        return {"metadata": {"annotations": annotations}}

    def pin(self, replicas: int) -> dict[str, Any]:
        """Return the ``spec`` of a merge patch that fixes replicas. Only owners with a ``pinning`` implement it."""
        raise NotImplementedError


class BoundsInSpec(BoundsOwner):
    """An owner of bounds in the ``spec`` of an object other than the scalable."""

    @abstractmethod
    def spec(self, bounds: Bounds) -> dict[str, Any]:
        """Return the ``spec`` of a merge patch for these bounds."""

    def bounds_annotations(self, bounds: Bounds | None) -> dict[str, str | None]:
        """Return no annotations, because the bounds are in ``spec``."""
        return {}

    def patch(
        self, item: Object, scalable: Object, annotations: Mapping[str, str | None], bounds: Bounds | None
    ) -> dict[str, Any]:
        """Return a merge patch with these annotations and, if given, these bounds in ``spec``."""
        body = super().patch(item, scalable, annotations, bounds)
        return body if bounds is None else {**body, "spec": self.spec(bounds)}


class AppliedBounds(BoundsOwner):
    """An owner of bounds in an object that another tool applies.

    Where the record allows it, Evenkeel writes the bounds by server-side apply with force, and so becomes the manager
    of these fields. To restore the former values, Evenkeel sends a merge patch, which removes a field of Evenkeel even
    if the field has a second manager.
    """

    @abstractmethod
    def applied(self, item: Object, scalable: Object, annotations: Mapping[str, str]) -> dict[str, Any]:
        """Return the body of the apply, without metadata: these annotations, and all others that Evenkeel has applied.

        The API server removes a field that was applied before and is now omitted (sigs.k8s.io/structured-merge-diff).
        """


class ReplicasOwner(ABC):
    """Reads the range within which another controller keeps replicas."""

    kind: ClassVar[Kind]
    # The kind whose objects repeat the owner's minimum and maximum. Such objects are read only from files, because they
    # are too large for checks.
    copy_kind: ClassVar[Kind | None] = None
    # The kind of the object, in another cluster, that sets the owner's minimum and maximum. No check lists such
    # objects; files may have them.
    source_kind: ClassVar[Kind | None] = None

    @abstractmethod
    def __init__(self, items: Iterable[Object], copies: Iterable[Object]) -> None:
        """``items``: all objects of the owner's kind; ``copies``: all objects of ``copy_kind``."""

    @abstractmethod
    def numbers(self, namespace: str, pool: str) -> OwnerNumbers | None:
        """Return a pool's minimum and maximum, by the pool's name in the owner's API; None for an unknown pool."""

    @abstractmethod
    def zone(self, namespace: str, pool: str, index: int) -> str | None:
        """Return the pool's zone with this index, or None."""

    @abstractmethod
    def creation_timeout(self, namespace: str, pool: str) -> object:
        """Return how long the machine controller waits for a node, as written in the pool; None: it is not set."""

    @abstractmethod
    def machine_type(self, namespace: str, pool: str) -> object:
        """Return the machine type, as written in the pool; None: it is not set."""

    @abstractmethod
    def range(self, namespace: str, pool: str, zone: str) -> Bounds | None:
        """Return the range of replicas that the owner's controller accepts, or None where it accepts any number."""

    @abstractmethod
    def frozen(self, groups: Iterable[NodeGroup]) -> Mapping[GroupKey, Reason]:
        """Return the groups that must not be written now, with the reasons. The rule compares all groups."""


class CapOwner(ABC):
    """Reads the maximum number of nodes of a whole cluster."""

    kind: ClassVar[Kind]

    @abstractmethod
    def cap(self, items: Iterable[Object]) -> NodeCap | None:
        """Return the limit that the objects of this kind set, or None without a limit."""
