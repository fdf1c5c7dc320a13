"""What capabilities add to shared classes: parts, by their type, and settings, by their name.

So a shared class names no capability, and a capability that is deleted leaves nothing in it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from evenkeel.domain.model.groups import Bounds
from evenkeel.domain.model.values import BadValueError

_Part = TypeVar("_Part")
_Value = TypeVar("_Value")


class Part:
    """A part of an observation, of a pool's plan, or of its stored state."""

    @property
    def blocks_restore(self) -> bool:
        """Return True while an object may have a value of Evenkeel's, so that a restore is not over."""
        return False

    @property
    def reported(self) -> Mapping[str, object]:
        """Return what the digest of the pool's report includes."""
        return {}

    def wanted(self, _bounds: Bounds, /) -> Bounds | None:
        """Return the bounds that an owner would have without Evenkeel; None: the part does not know."""
        return None


@dataclass(frozen=True, kw_only=True)
class Write(Part, Generic[_Part]):
    """A write to an object that is no group, and the part of the pool's state to store before and after it."""

    name: str  # what is written, as the summary of a run names it
    before: _Part
    after: _Part

    def refused(self, message: str, now: datetime, /) -> _Part:
        """Return the part to store if the API has refused the write with this message."""
        raise NotImplementedError


class Parts(dict[type[Any], Any]):
    """The parts of an object, at most one of each type. Only drafts change; other classes keep their parts."""

    def of(self, kind: type[_Part]) -> _Part | None:
        """Return the part of a type; None: there is none."""
        part: _Part | None = self.get(kind)
        return part

    @property
    def writes(self) -> "tuple[Write[Any], ...]":
        """Return the writes among these parts."""
        return tuple(part for part in self.values() if isinstance(part, Write))

    def plus(self, kind: type[_Part], part: _Part | None) -> "Parts":
        """Return these parts with the part of a type; None: without it."""
        changed = Parts(self)
        changed.put(kind, part)
        return changed

    def put(self, kind: type[_Part], part: _Part | None) -> None:
        """Set the part of a type; None: remove it."""
        if part is None:
            self.pop(kind, None)
        else:
            self[kind] = part


@dataclass(frozen=True, kw_only=True)
class Setting(Generic[_Value]):
    """A setting. An annotation, the record's pool or the record sets it, in that order. A cluster has no annotation."""

    name: str  # the field of the record; the annotation has the same name, with hyphens
    read: Callable[[object], _Value]  # raises BadValueError
    default: _Value

    def of(self, values: Mapping[str, str]) -> _Value:
        """Return the value among those that are set, which are texts by the settings' names."""
        try:
            return self.read(values[self.name]) if self.name in values else self.default
        except BadValueError:  # an observation of a newer release, which knows more values
            return self.default


def annotation_of(setting: str) -> str:
    """Return the annotation of a setting with this name."""
    return f"evenkeel.dev/{setting.replace('_', '-')}"
