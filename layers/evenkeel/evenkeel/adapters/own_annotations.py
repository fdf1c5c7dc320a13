"""Evenkeel's annotations, labels and tags: their names, and how their values are read. Pure.

A value of the wrong type is reported as a fault with the object's name, never raised as an exception.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from evenkeel.capabilities import SETTINGS
from evenkeel.domain.model.choices import Level, OnFailure
from evenkeel.domain.model.groups import Annotations
from evenkeel.domain.model.parts import annotation_of
from evenkeel.domain.model.values import (
    BadValueError,
    Fault,
    near,
    quote,
    read_count,
    read_flag,
    read_percent,
    read_step,
    read_weight,
)
from evenkeel.domain.rebalancing.bounds.strategies import read_strategy

_Value = TypeVar("_Value")

# docs/reference/annotations.md describes each name.
OWN = "evenkeel.dev/"
DECISION = OWN + "decision"
ADOPTED = OWN + "adopted-bounds"
MOVE = OWN + "move"
DRAIN = OWN + "drain"  # on nodes that Evenkeel itself drains: since when
POOL_LABEL = OWN + "pool"
# Every annotation that Evenkeel reads on a scalable. Any other name with Evenkeel's prefix counts as a spelling
# mistake.
OWN_ANNOTATIONS = (
    *(OWN + name for name in ("pool-min", "pool-max", "strategy", "on-failure", "weight", "zone-min")),
    *(OWN + name for name in ("zone-max", "fence", "level", "dry-run", "max-step")),
    *(annotation_of(setting.name) for setting in SETTINGS),
    *(DECISION, ADOPTED, MOVE),
)
OWN_LABELS = (POOL_LABEL,)


@dataclass(kw_only=True)
class Reading:
    """Collects the faults and notes of one object."""

    name: str
    faults: list[Fault] = field(default_factory=list)
    notes: list[Fault] = field(default_factory=list)

    def fault(self, where: str, value: str, problem: str) -> None:
        """Add a fault. ``value`` is printable."""
        self.faults.append(Fault(object=self.name, field=where, value=value, problem=problem))

    def note(self, where: str, value: str, problem: str) -> None:
        """Add a note. A note is reported, and the group remains readable."""
        self.notes.append(Fault(object=self.name, field=where, value=value, problem=problem))

    def read(self, where: str, value: object, reader: Callable[[Any], _Value]) -> _Value | None:
        """Return the value, or None where it is missing; add a fault and return None where it is bad."""
        if value is None:
            return None
        try:
            return reader(value)
        except BadValueError as error:
            self.fault(where, quote(value), str(error))
            return None

    def option(self, where: str, value: object, reader: Callable[[str], _Value]) -> _Value | None:
        """Return an option of Cluster Autoscaler, or None where it is missing or bad.

        A bad value adds a note and not a fault, because the autoscaler then uses its default.
        """
        try:
            return None if value is None else reader(str(value).lower())
        except BadValueError as error:
            self.note(where, quote(value), f"{error}; the default counts")
            return None

    def of(self, kind: str, namespace: str, name: str) -> "Reading":
        """Return a reading for another object. It adds to the same lists of faults and notes."""
        return Reading(name=f"{kind} {namespace}/{name}".replace(" /", " "), faults=self.faults, notes=self.notes)

    def unknown_names(self, entries: Mapping[str, Any], readable: Collection[str], kind: str) -> None:
        """Add a fault for each ``evenkeel.dev/`` name that is not in ``readable``."""
        for name in entries:
            if not str(name).startswith(OWN) or name in readable:
                continue
            if name in OWN_LABELS:
                problem = "no annotation: set it as a label"
            elif name in OWN_ANNOTATIONS:
                problem = "not read here: it is an annotation of MachineDeployments and MachineSets"
            else:
                # Names are compared without their prefix, because the common prefix would make any two names similar.
                nearest = near(name.removeprefix(OWN), [candidate.removeprefix(OWN) for candidate in readable])
                problem = f"no {kind} that Evenkeel reads{nearest.replace('mean ', f'mean {OWN}')}"
            self.fault(name, quote(entries[name]), problem)


def _read_weight(text: object) -> tuple[int | None, int]:
    percent = read_percent(text)
    return (percent, 1) if percent else (None, read_weight(text))


# Each entry has a field of ``Annotations``, the name of its annotation, and the function that reads the value.
_SETTINGS: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
    ("weight", OWN + "weight", _read_weight),
    ("zone_min", OWN + "zone-min", read_count),
    ("zone_max", OWN + "zone-max", read_count),
    ("fencing_enabled", OWN + "fence", read_flag),
    ("pool_min", OWN + "pool-min", read_count),
    ("pool_max", OWN + "pool-max", read_count),
    ("max_step", OWN + "max-step", read_step),
    ("strategy", OWN + "strategy", read_strategy),
    ("on_failure", OWN + "on-failure", OnFailure.read),
    ("level", OWN + "level", Level.read),
    ("dry_run", OWN + "dry-run", read_flag),
)
_OWN_SETTINGS = {annotation_of(setting.name): setting for setting in SETTINGS}  # those of capabilities


def read_annotations(annotations: Mapping[str, Any], reading: Reading) -> Annotations:
    """Return the values of the ``evenkeel.dev/`` annotations or tags of a group."""
    values = {
        field: reading.read(name, annotations[name], reader) for field, name, reader in _SETTINGS if name in annotations
    }
    own = {
        setting.name: str(value)
        for name, setting in _OWN_SETTINGS.items()
        if name in annotations and (value := reading.read(name, annotations[name], setting.read)) is not None
    }
    zone_min, zone_max = values.get("zone_min"), values.get("zone_max")
    if zone_min is not None and zone_max is not None and zone_min > zone_max:
        problem = f"larger than {OWN}zone-max, {zone_max}: lower one or raise the other"
        reading.fault(OWN + "zone-min", quote(zone_min), problem)
    percent, weight = values.pop("weight", None) or (None, 1)
    fencing_enabled = values.pop("fencing_enabled", None) is not False
    return Annotations(**values, weight=weight, weight_percent=percent, fencing_enabled=fencing_enabled, own=own)
