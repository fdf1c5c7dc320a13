"""Templates of the nodes of a group."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple


class Taint(NamedTuple):
    """A taint of a node. One per key and effect."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, kw_only=True)
class NodeTemplate:
    """A new node of a group, as Cluster Autoscaler's TemplateNodeInfo describes it.

    Amounts are in the resource's base unit: cores, bytes, pieces.
    """

    capacity: Mapping[str, Fraction] = field(default_factory=dict)
    allocatable: Mapping[str, Fraction] | None = None  # None: unknown
    free: Mapping[str, Fraction] | None = None  # allocatable less the requests of daemons; None: unknown
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    source: str = ""  # for people

    @property
    def complete(self) -> bool:
        """Return True if Cluster Autoscaler sees a group at zero with this template: it has cpu and memory."""
        return "cpu" in self.capacity and "memory" in self.capacity
