"""Reads fields of API objects in JSON, and names Evenkeel's annotations and labels.

A field of the wrong type is reported as a fault with the object's name, never raised as an exception. The containers of
JSON and YAML are dicts and lists. The functions test only for these types, because a check spends most of its time in
these functions.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote as url_quote

from evenkeel.adapters.own_annotations import Reading
from evenkeel.domain.model.groups import MachineFailure
from evenkeel.domain.model.values import BadValueError, printable
from evenkeel.domain.rebalancing.membership.quantities import read_amount

Path = tuple[str, ...]
Object = Mapping[str, Any]
_Value = TypeVar("_Value")

ZONE_LABEL = "topology.kubernetes.io/zone"
ZONE_ID_LABEL = "topology.k8s.aws/zone-id"  # cloud-provider-aws pkg/providers/v1/zones.go
_MANAGER = "evenkeel"
# The names of field managers that people use. A person whose kubectl apply reports a conflict can decide which value
# applies.
_PEOPLE = ("kubectl",)
# The earliest and the latest time that can be stored.
_FIRST, _LAST = datetime(2000, 1, 2, tzinfo=UTC), datetime(2199, 12, 31, tzinfo=UTC)
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True)
class Kind:
    """A kind of API object, and the URL paths that serve it."""

    group: str
    versions: tuple[str, ...]  # the preferred version is first
    kind: str
    plural: str
    optional: bool = False  # True: not every cluster serves the kind
    namespaced: bool = True
    # True: where listing the kind is forbidden, the check continues without its objects, and reports that.
    may_be_refused: bool = False
    named_by: str = ""  # not empty: the kind is listed only where a list of scalables contains this text

    def path(self, version: str, namespace: str | None = None, name: str | None = None) -> str:
        """Return the URL path of the kind's list, or of one object."""
        root = f"/apis/{url_quote(self.group)}" if self.group else "/api"
        scope = f"/namespaces/{url_quote(namespace)}" if namespace else ""
        item = "" if name is None else f"/{url_quote(name)}"
        return f"{root}/{url_quote(version)}{scope}/{url_quote(self.plural)}{item}"


NODE = Kind("", ("v1",), "Node", "nodes")
CONFIG_MAP = Kind("", ("v1",), "ConfigMap", "configmaps")


def get_path(object: Any, path: Path) -> Any:
    """Return the value at a path, or None where a step is missing or is not a mapping."""
    for step in path:
        if not isinstance(object, dict):
            return None
        object = object.get(step)
    return object


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value, or an empty mapping where the value is not a mapping."""
    return value if isinstance(value, dict) else {}


def string_map(value: Any) -> dict[str, str]:
    """Return those entries of a mapping that have a text as their value."""
    return {key: text for key, text in mapping(value).items() if isinstance(text, str)}


def annotations_of(object: Any) -> Mapping[str, Any]:
    """Return an object's annotations."""
    return mapping(get_path(object, ("metadata", "annotations")))


def labels_of(object: Any) -> dict[str, str]:
    """Return an object's labels."""
    return string_map(get_path(object, ("metadata", "labels")))


def is_being_deleted(object: Any) -> bool:
    """Return True where the object has a deletionTimestamp."""
    return get_path(object, ("metadata", "deletionTimestamp")) is not None


def entries_of(object: Any, path: Path) -> Sequence[Mapping[str, Any]]:
    """Return the mappings in the list at a path; skip anything else."""
    entries = get_path(object, path)
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else ()


def name_of(object: Object) -> tuple[str, str]:
    """Return namespace and name; empty where the object has none."""
    metadata = mapping(object.get("metadata"))
    namespace, name = metadata.get("namespace"), metadata.get("name")
    return (namespace if isinstance(namespace, str) else "", name if isinstance(name, str) else "")


class Controller(NamedTuple):
    """The controlling owner among an object's ``metadata.ownerReferences``."""

    kind: str
    name: str
    api_version: str

    def is_one_of(self, kinds: Iterable[Kind]) -> bool:
        """Return True where the owner is of one of these kinds."""
        group = self.api_version.rpartition("/")[0]
        return any((kind.group, kind.kind) == (group, self.kind) for kind in kinds)


def controller_of(object: Object) -> Controller | None:
    """Return the controlling owner, or None."""
    for owner in entries_of(object, ("metadata", "ownerReferences")):
        if owner.get("controller"):
            return Controller(*(str(owner.get(field)) for field in ("kind", "name", "apiVersion")))
    return None


def condition_of(object: Any, path: Path, type: str) -> Mapping[str, Any] | None:
    """Return the first condition of that type in the list at a path."""
    return next((condition for condition in entries_of(object, path) if condition.get("type") == type), None)


def moment_of(value: object) -> datetime | None:
    """Return an API time, limited to the years that can be stored; None where the value is not a time."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):  # YAML turns a time into a datetime
        return None
    moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    return moment if _FIRST <= moment <= _LAST else min(max(moment, _FIRST), _LAST)


def failure_of(code: Any, message: Any, moment: Any) -> MachineFailure:
    """Return a provider's failure from the fields of a status, with printable texts of a length that can be stored."""
    code, message = printable(str(code or "")[:128]), printable(str(message or "")[:1024])
    return MachineFailure(code=code, message=message, at=moment_of(moment))


def last_writer(item: Object, path: Path) -> str:
    """Return the field manager, other than Evenkeel, that last wrote the field.

    The name is empty where managedFields are missing, as in a quick check.
    """
    others = [
        entry
        for entry in entries_of(item, ("metadata", "managedFields"))
        if entry.get("manager") != _MANAGER and _manages(entry, path)
    ]
    latest = max(others, key=lambda entry: str(entry.get("time")), default=None)
    return str(get_path(latest, ("manager",)) or "")


def controller_of_field(item: Object, path: Path) -> str | None:
    """Return the field manager that applies the field, and so restores the value after others write it.

    The name is empty where no controller applies the field, None where managedFields are missing. Only an apply counts,
    because it declares that the manager owns the field. An update writes a field once
    (sigs.k8s.io/structured-merge-diff).
    """
    entries = entries_of(item, ("metadata", "managedFields"))
    if not entries:
        return None
    others = (entry for entry in entries if entry.get("manager") not in (_MANAGER, *_PEOPLE))
    appliers = (entry for entry in others if entry.get("operation") == "Apply" and _manages(entry, path))
    return next((str(entry.get("manager")) for entry in appliers), "")


def applied_by_us(item: Object, path: Path) -> list[str]:
    """Return the fields below this path that Evenkeel's last apply set. Its next apply removes those it omits."""
    fields = (
        mapping(get_path(entry, ("fieldsV1", *path)))
        for entry in entries_of(item, ("metadata", "managedFields"))
        if entry.get("manager") == _MANAGER and entry.get("operation") == "Apply"
    )
    return [name.removeprefix("f:") for of_entry in fields for name in of_entry if name.startswith("f:")]


def _manages(entry: Object, path: Path) -> bool:
    return get_path(entry, ("fieldsV1", *path)) is not None


def read_pieces(value: object) -> Fraction:
    """Return a count without a unit, as Cluster Autoscaler reads it (``strconv.ParseInt``)."""
    if not isinstance(value, str) or not _WHOLE.fullmatch(value):
        raise BadValueError("not a whole number: write it without a unit, such as 8")
    return read_amount(int(value))


def read_resources(where: str, value: Any, reading: Reading) -> dict[str, Fraction]:
    """Return amounts by resource, without zeros, because Cluster Autoscaler ignores a zero."""
    amounts = {key: reading.read(f"{where}.{key}", text, read_amount) for key, text in mapping(value).items()}
    return {str(key): amount for key, amount in amounts.items() if amount}


class Scalable(NamedTuple):
    """An object that is a node group, with its related objects."""

    kind: str
    namespace: str
    name: str
    item: Object
    cluster: str  # the workload cluster's name
    pool: str  # the pool's name in the flavour's own API; empty: unknown
    parent: Object | None  # the Cluster object of that cluster; None: not listed
    labels: Mapping[str, str]
    annotations: Mapping[str, Any]
    node_labels: Mapping[str, Any]  # the labels that its nodes get
    sets: Sequence[Object]  # the MachineSets of a MachineDeployment
