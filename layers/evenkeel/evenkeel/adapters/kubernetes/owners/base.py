"""The interface of owners of bounds, replicas and sizes. A check makes one instance, of the objects that it listed."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from evenkeel.adapters.kubernetes.objects import Kind, Object, Path, Reading, Scalable, get_path, name_of
from evenkeel.domain.model.groups import Bounds, GroupKey, NodeCap, NodeGroup, OwnerNumbers, OwnerRef, Pinning
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.values import read_count


class BoundKeys(NamedTuple):
    """The annotations that Cluster Autoscaler reads a group's bounds from (clusterapi_utils.go:326-342)."""

    min: str
    max: str


class Claim(NamedTuple):
    """The bounds of a scalable, as their owner has them."""

    owner: "BoundsOwner"
    path: Path  # of max in managedFields
    annotations: Mapping[str, Any]  # of the object that has the bounds, Evenkeel's own among them
    minimum: int | None
    maximum: int | None
    has_bounds: bool
    # The following are set where the bounds are on another object than the scalable.
    object: Object | None = None
    ref: OwnerRef | None = None
    fields: tuple[str, str] = ("", "")  # of min and max, as a person writes them
    labels: Mapping[str, str] = {}  # where pools are also chosen by its labels
    zone: str | None = None
    least_min: int = 0  # the least min that it accepts
    pinning: Pinning | None = None  # it can hold replicas, out of reach of an autoscaler
    pinned: bool = False  # it does, at Evenkeel's request


def ref_of(kind: Kind, item: Object, part: str = "") -> OwnerRef:
    """Return the reference to an owner, or to a part of it."""
    namespace, name = name_of(item)
    uid = get_path(item, ("metadata", "uid"))
    return OwnerRef(kind=kind.kind, namespace=namespace, name=name, part=part, uid=uid if isinstance(uid, str) else "")


class BoundsOwner(ABC):
    """Reads and writes the bounds of node groups."""

    kind: ClassVar[Kind | None] = None  # of its objects; None: the scalable itself
    rights: ClassVar[str] = ""  # the files that allow writing it; empty: the usual ones
    least_max: ClassVar[int] = 0  # the least max that it accepts
    lowers_replicas: ClassVar[bool] = False  # the controller that copies its max lowers replicas to it
    max_only: ClassVar[bool] = False  # it has no min, and its controller writes replicas

    def __init__(self, keys: BoundKeys, items: Sequence[Object]) -> None:
        """``items``: all objects of its kind."""
        self.keys = keys

    @abstractmethod
    def claim(self, scalable: Scalable, reading: Reading) -> Claim | None:
        """Return the scalable's bounds, or None where another owner has them. Adds bad values to the reading."""

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
        """Return the annotations for these bounds; None removes them."""
        low, high = (str(bounds.min), str(bounds.max)) if bounds else (None, None)
        return {self.keys.min: low, self.keys.max: high}

    def patch(
        self, item: Object, scalable: Object, annotations: Mapping[str, str | None], bounds: Bounds | None
    ) -> dict[str, Any]:
        """Return a merge patch of its object with these annotations, and with bounds that are no annotations."""
        return {"metadata": {"annotations": annotations}}

    def pin(self, replicas: int) -> dict[str, Any]:
        """Return the ``spec`` of a merge patch that holds replicas, for an owner with a ``pinning``."""
        raise NotImplementedError


class BoundsInSpec(BoundsOwner):
    """Keeps the bounds in ``spec`` of another object."""

    @abstractmethod
    def spec(self, bounds: Bounds) -> dict[str, Any]:
        """Return the ``spec`` of a merge patch for these bounds."""

    def bounds_annotations(self, bounds: Bounds | None) -> dict[str, str | None]:
        """Return no annotations: the bounds are in ``spec``."""
        return {}

    def patch(
        self, item: Object, scalable: Object, annotations: Mapping[str, str | None], bounds: Bounds | None
    ) -> dict[str, Any]:
        """Return a merge patch with these annotations and, if given, these bounds in ``spec``."""
        body = super().patch(item, scalable, annotations, bounds)
        return body if bounds is None else {**body, "spec": self.spec(bounds)}


class AppliedBounds(BoundsOwner):
    """Keeps the bounds in an object that another tool applies.

    Where the record allows it, Evenkeel writes by server-side apply with force, which takes the fields from the tool.
    A merge patch puts the former values back: it removes Evenkeel's fields, also those with a second manager.
    """

    @abstractmethod
    def applied(self, item: Object, scalable: Object, annotations: Mapping[str, str]) -> dict[str, Any]:
        """Return the body of the apply, from ``spec`` on: these annotations, and all that were applied before.

        An omitted field that was applied before is removed (sigs.k8s.io/structured-merge-diff).
        """


class ReplicasOwner(ABC):
    """Reads the range that another controller keeps replicas in."""

    kind: ClassVar[Kind]
    copy_kind: ClassVar[Kind | None] = None  # repeats it, and is read from files only: too large for checks
    source_kind: ClassVar[Kind | None] = None  # in another cluster; its numbers are copied; read from files only

    @abstractmethod
    def __init__(self, items: Iterable[Object], copies: Iterable[Object]) -> None:
        """``items``: all objects of its kind; ``copies``: those of ``copy_kind``."""

    @abstractmethod
    def numbers(self, namespace: str, pool: str) -> OwnerNumbers | None:
        """Return the numbers of a pool, by its name in the owner's API; None where it has none."""

    @abstractmethod
    def zone(self, namespace: str, pool: str, index: int) -> str | None:
        """Return the pool's zone of that index, or None."""

    @abstractmethod
    def range(self, namespace: str, pool: str, zone: str) -> Bounds | None:
        """Return the replicas that its controller accepts, or None where it accepts all."""

    @abstractmethod
    def frozen(self, groups: Iterable[NodeGroup]) -> Mapping[GroupKey, Reason]:
        """Return the groups that must not be written now, judged from all groups together, with the reasons."""


class CapOwner(ABC):
    """Reads the largest number of nodes of a whole cluster."""

    kind: ClassVar[Kind]

    @abstractmethod
    def cap(self, items: Iterable[Object]) -> NodeCap | None:
        """Return the limit among all objects of its kind, or None."""
