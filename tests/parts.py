"""Values made of parts: tests name a part's field, such as ``zone``, without its part."""

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from evenkeel.capabilities import CLUSTER_SETTINGS, SETTINGS
from evenkeel.domain.model.demand import GroupOffer
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.pools import Pool
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.model.workload import Needs

T = TypeVar("T")

_PARTS: Mapping[type, tuple[str, ...]] = {
    NodeGroup: ("identity", "status", "unreadable", "ours", "managers", "owner", "options", "template", "annotations"),
    GroupOffer: ("options",),
    GroupState: ("failure", "arrivals", "contest"),
    Needs: ("resources",),
    Policy: ("settings",),
    Pool: ("settings",),
    PoolPlan: ("mode", "report", "request", "replicas", "release", "convergence", "demand"),
}
_SETTINGS = frozenset(setting.name for setting in (*SETTINGS, *CLUSTER_SETTINGS))
# Fields with the name of their part. A value that is no part is this field.
_SAME_NAME = {"owner": "numbers", "template": "node", "demand": "advice"}


def replace(item: T, **fields: Any) -> T:
    """Do ``dataclasses.replace``, also for fields of an item's parts, and for settings of capabilities."""
    before = getattr(item, "annotations", item)
    top, parts = _split(type(item), _with_own(fields, getattr(before, "own", {})))
    for part, values in parts.items():
        top[part] = dataclasses.replace(top.get(part, getattr(item, part)), **values)
    changed: T = dataclasses.replace(item, **top)  # type: ignore[type-var]
    return changed


def make(cls: type[T], **fields: Any) -> T:
    """Return a value of the class, from its fields and those of its parts."""
    top, parts = _split(cls, _with_own(fields, {}))
    types = {field.name: field.type for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for part, values in parts.items():
        top[part] = dataclasses.replace(top[part], **values) if part in top else types[part](**values)  # type: ignore[operator]
    return cls(**top)


def _with_own(fields: Mapping[str, Any], before: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the fields, with the settings of capabilities in ``own``."""
    own = {name: str(value) for name, value in fields.items() if name in _SETTINGS and value is not None}
    rest = {name: value for name, value in fields.items() if name not in _SETTINGS}
    return {**rest, "own": {**before, **own}} if own else rest


def _split(cls: type, fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the fields of the class itself, and those of each part."""
    top: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    own = {field.name: field.type for field in dataclasses.fields(cls)}
    for name, value in fields.items():
        part, leaf = _leaves(cls).get(name, ("", name))
        if name in own and (name not in _SAME_NAME or cls not in _PARTS or isinstance(value, own[name])):  # type: ignore[arg-type]
            top[name] = value
        elif name in own:
            parts.setdefault(name, {})[_SAME_NAME[name]] = value
        elif part:
            parts.setdefault(part, {})[leaf] = value
        else:
            top[name] = value  # the class refuses it
    return top, parts


@cache
def fields_of(cls: type) -> frozenset[str]:
    """Return the names that ``make`` takes."""
    return frozenset({field.name for field in dataclasses.fields(cls)} | _leaves(cls).keys())


@cache
def _leaves(cls: type) -> Mapping[str, tuple[str, str]]:
    """Return the parts' fields by name, with and without the part's name. An ambiguous name is the first part's."""
    types = {field.name: field.type for field in dataclasses.fields(cls)}
    leaves: dict[str, tuple[str, str]] = {}
    for part in _PARTS.get(cls, ()):
        for field in dataclasses.fields(types[part]):  # type: ignore[arg-type]
            leaves.setdefault(field.name, (part, field.name))
            leaves[f"{part}_{field.name}"] = (part, field.name)
    return leaves
