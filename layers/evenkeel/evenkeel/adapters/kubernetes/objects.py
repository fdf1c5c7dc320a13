"""API objects as JSON: how they are asked for a field, and where what cannot be read is noted.

Nothing here trusts the shape of an object: a field of the wrong type is a fault with the object's name, never an
exception. What JSON and YAML make are dicts and lists, and nothing else is asked for here: most of a look is this.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from evenkeel.adapters.kubernetes.objects import OWN, OWN_ANNOTATIONS, OWN_LABELS
from evenkeel.domain.model.groups import MachineFailure
from evenkeel.domain.model.values import BadValueError, Fault, near, quote

Path = tuple[str, ...]
Object = Mapping[str, Any]
_Value = TypeVar("_Value")

ZONE_LABEL = "topology.kubernetes.io/zone"
# What is remembered of an object's moments lies between these: beyond, a record could not hold it.
_FIRST, _LAST = datetime(2000, 1, 2, tzinfo=UTC), datetime(2199, 12, 31, tzinfo=UTC)


@dataclass(frozen=True)
class Kind:
    """A kind of object, and where the API serves it."""

    group: str
    versions: tuple[str, ...]  # preferred first
    kind: str
    plural: str
    optional: bool = False  # not every cluster serves it
    namespaced: bool = True
    may_be_refused: bool = False  # where it may not be listed, all is as if there were none, and that is told
    named_by: str = ""  # listed only where the lists of scalables hold this text


NODE = Kind("", ("v1",), "Node", "nodes")


def get_path(object: Any, path: Path) -> Any:
    """The value at a path, or None where any step is missing or no mapping."""
    for step in path:
        if not isinstance(object, dict):
            return None
        object = object.get(step)
    return object


def mapping(value: Any) -> Mapping[str, Any]:
    """The value, or nothing in its place where it is no mapping."""
    return value if isinstance(value, dict) else {}


def string_map(value: Any) -> dict[str, str]:
    """The entries of a mapping whose values are texts."""
    return {key: text for key, text in mapping(value).items() if isinstance(text, str)}


def entries_of(object: Any, path: Path) -> Sequence[Mapping[str, Any]]:
    """The mappings in the list at a path; what is none of either is passed over."""
    entries = get_path(object, path)
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else ()


def name_of(object: Object) -> tuple[str, str]:
    """Namespace and name; empty where the object has none."""
    metadata = mapping(object.get("metadata"))
    namespace, name = metadata.get("namespace"), metadata.get("name")
    return (namespace if isinstance(namespace, str) else "", name if isinstance(name, str) else "")


class Controller(NamedTuple):
    """The controlling owner among an object's ``metadata.ownerReferences``."""

    kind: str
    name: str
    api_version: str

    def is_one_of(self, kinds: Iterable[Kind]) -> bool:
        group = self.api_version.rpartition("/")[0]
        return any((kind.group, kind.kind) == (group, self.kind) for kind in kinds)


def controller_of(object: Object) -> Controller | None:
    for owner in entries_of(object, ("metadata", "ownerReferences")):
        if owner.get("controller"):
            return Controller(*(str(owner.get(field)) for field in ("kind", "name", "apiVersion")))
    return None


def condition_of(object: Any, path: Path, type: str) -> Mapping[str, Any] | None:
    """The first condition of that type in the list at a path."""
    return next((condition for condition in entries_of(object, path) if condition.get("type") == type), None)


def moment_of(value: object) -> datetime | None:
    """A moment of the API, drawn into the years that records hold; None where it says none, or nothing that is one."""
    if not isinstance(value, str | datetime):  # YAML makes moments of them by itself
        return None
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return min(max(moment if moment.tzinfo else moment.replace(tzinfo=UTC), _FIRST), _LAST)


def failure_of(code: Any, message: Any, moment: Any) -> MachineFailure:
    """A refusal as some status states it, cut to what a record holds."""
    return MachineFailure(code=str(code or "")[:128], message=str(message or "")[:1024], at=moment_of(moment))


@dataclass(kw_only=True)
class Reading:
    """Collects the faults of one object, and what is only worth telling."""

    name: str
    faults: list[Fault] = field(default_factory=list)
    notes: list[Fault] = field(default_factory=list)

    def read(self, where: str, value: object, reader: Callable[[Any], _Value]) -> _Value | None:
        """The value, or None where there is none or it is bad; then the fault is noted."""
        if value is None:
            return None
        try:
            return reader(value)
        except BadValueError as error:
            self.faults.append(Fault(object=self.name, field=where, value=quote(value), problem=str(error)))
            return None

    def of(self, kind: str, item: Object) -> "Reading":
        """The reading of another object, whose faults are told with those of this one."""
        namespace, name = name_of(item)
        return Reading(name=f"{kind} {namespace}/{name}".replace(" /", " "), faults=self.faults, notes=self.notes)

    def unknown_names(self, entries: Mapping[str, Any], readable: Collection[str], kind: str) -> None:
        """A name in our own domain that nobody reads here is a fault: it would be a wish without any effect."""
        for name in entries:
            if name in readable or not str(name).startswith(OWN):
                continue
            if name in OWN_LABELS:
                problem = "no annotation: set it as a label"
            elif name in OWN_ANNOTATIONS:
                problem = "not read here: it is an annotation of MachineDeployments and MachineSets"
            else:
                # The prefix alone would make any two names of ours alike.
                nearest = near(name.removeprefix(OWN), [candidate.removeprefix(OWN) for candidate in readable])
                problem = f"no {kind} that Evenkeel reads{nearest.replace('mean ', f'mean {OWN}')}"
            self.faults.append(Fault(object=self.name, field=name, value=quote(entries[name]), problem=problem))


class Scalable(NamedTuple):
    """An object that is a node group, with what else was listed of it."""

    kind: str
    namespace: str
    name: str
    item: Object
    cluster: str  # the workload cluster's name
    parent: Object | None  # its Cluster object
    labels: Mapping[str, str]
    annotations: Mapping[str, Any]
    sets: Sequence[Object]  # the MachineSets of a MachineDeployment
