"""What every owner of bounds or replicas answers. One instance is made per look, of the objects that it found."""

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
    """What the owner of a scalable's bounds says. ``ref`` and ``fields`` where that is another object."""

    owner: "BoundsOwner"
    object: Object | None  # its object, where that is another one than the scalable
    annotations: Mapping[str, Any]  # those beside the bounds: where ours stand
    minimum: int | None
    maximum: int | None
    has_bounds: bool
    ref: OwnerRef | None = None
    fields: tuple[str, str] = ("", "")  # where min and max stand, as people write it
    labels: Mapping[str, str] = {}  # of its object, where pools are chosen by them too
    zone: str | None = None  # as it says
    path: Path | None = None  # of its max in managedFields, where that is not the owner's for all
    min_min: int = 0  # the least min that it accepts here
    pinning: Pinning | None = None  # where it can hold replicas, out of every autoscaler's hands
    pinned: bool = False  # it does, and says that we had it do so

    @property
    def paths(self) -> tuple[Path, ...]:
        """Where managedFields say who wrote the bounds."""
        return self.owner.paths if self.path is None else (self.path,)


def ref_of(kind: Kind, item: Object, part: str = "") -> OwnerRef:
    """How an owner is called."""
    namespace, name = name_of(item)
    uid = get_path(item, ("metadata", "uid"))
    return OwnerRef(kind=kind.kind, namespace=namespace, name=name, part=part, uid=uid if isinstance(uid, str) else "")


class BoundsOwner(ABC):
    """Where the bounds of a node group stand, how they are read there and how they are written."""

    kind: ClassVar[Kind | None] = None  # its objects; None: the scalable itself
    rights: ClassVar[str] = ""  # the files that allow to write it; empty: those for all else
    min_max: ClassVar[int] = 0  # the least max that it accepts
    lowers_replicas: ClassVar[bool] = False  # who copies its bounds lowers replicas to max as well
    max_only: ClassVar[bool] = False  # min means nothing to it, and the replicas are not ours

    def __init__(self, keys: BoundKeys, items: Sequence[Object]) -> None:
        """``items``: all objects of its kind."""
        self.keys = keys

    @abstractmethod
    def claim(self, scalable: Scalable, reading: Reading) -> Claim | None:
        """What it says of the scalable; None where that is not its own. Bad values are noted in the reading."""

    @property
    @abstractmethod
    def paths(self) -> tuple[Path, ...]:
        """Where managedFields of its object name who wrote the bounds."""

    def frozen(self, scalable: Scalable) -> Reason | None:
        """Why the scalable must not be written now, as far as this owner says."""
        return None

    def claim_of(self, annotations: Mapping[str, Any], object: Object | None, reading: Reading) -> Claim:
        """The claim where the bounds are annotations."""
        low, high = self.keys
        return Claim(
            owner=self,
            object=object,
            annotations=annotations,
            minimum=reading.read(low, annotations.get(low), read_count),
            maximum=reading.read(high, annotations.get(high), read_count),
            has_bounds=low in annotations or high in annotations,
        )

    def bounds_annotations(self, bounds: Bounds | None) -> dict[str, str | None]:
        """The annotations that bounds are; None takes them away."""
        low, high = (str(bounds.min), str(bounds.max)) if bounds else (None, None)
        return {self.keys.min: low, self.keys.max: high}

    def patch(
        self, item: Object, scalable: Object, annotations: Mapping[str, str | None], bounds: Bounds | None
    ) -> dict[str, Any]:
        """A merge patch of its object with these annotations, and with bounds where they are no annotations."""
        return {"metadata": {"annotations": annotations}}

    def pin(self, replicas: int) -> dict[str, Any]:
        """What a merge patch of its ``spec`` says so that it holds replicas, where it ever has a ``pinning``."""
        raise NotImplementedError


class BoundsInSpec(BoundsOwner):
    """Where the bounds are no annotations, but fields of an object of its own kind."""

    @abstractmethod
    def spec(self, bounds: Bounds) -> dict[str, Any]:
        """What a merge patch of its ``spec`` says for these bounds."""

    def bounds_annotations(self, bounds: Bounds | None) -> dict[str, str | None]:
        return {}

    def patch(
        self, item: Object, scalable: Object, annotations: Mapping[str, str | None], bounds: Bounds | None
    ) -> dict[str, Any]:
        body = super().patch(item, scalable, annotations, bounds)
        return body if bounds is None else {**body, "spec": self.spec(bounds)}


class AppliedBounds(BoundsOwner):
    """Where the bounds stand in an object that others apply.

    It is written where the record says so, by server-side apply with force: whoever applied the keys before loses them.
    What is put back goes by merge patch: that takes off what is ours, whoever has come to own it too.
    """

    @abstractmethod
    def applied(self, item: Object, scalable: Object, annotations: Mapping[str, str]) -> dict[str, Any]:
        """What we say of its object, from ``spec`` on: these annotations, and all that we have applied there before.

        What is left out and was applied before would go (sigs.k8s.io/structured-merge-diff).
        """


class ReplicasOwner(ABC):
    """Who puts replicas back into a range."""

    kind: ClassVar[Kind]
    copy_kind: ClassVar[Kind | None] = None  # says the same, and is read from files only: it is too large for looks

    source_kind: ClassVar[Kind | None] = None  # whose numbers it copies, from another cluster: read from files too

    @abstractmethod
    def __init__(self, items: Iterable[Object], copies: Iterable[Object]) -> None:
        """``items``: all objects of its kind; ``copies``: those of ``copy_kind``."""

    @abstractmethod
    def numbers(self, namespace: str, pool: str) -> OwnerNumbers | None:
        """What it says of a pool, as its own API calls it; None where it says nothing."""

    @abstractmethod
    def zone(self, namespace: str, pool: str, index: int) -> str | None:
        """The pool's zone of that index; None where it has none."""

    @abstractmethod
    def range(self, namespace: str, pool: str, zone: str) -> Bounds | None:
        """The replicas that it lets stand; None where it says nothing."""

    @abstractmethod
    def frozen(self, groups: Iterable[NodeGroup]) -> Mapping[GroupKey, Reason]:
        """The groups that must not be written now, as seen from all groups together, and why."""


class CapOwner(ABC):
    """Who says how many nodes a whole cluster may have."""

    kind: ClassVar[Kind]

    @abstractmethod
    def cap(self, items: Iterable[Object]) -> NodeCap | None:
        """``items``: all objects of its kind. None where nobody limits it."""
