"""What a node of a group looks like."""

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
    """A node as Cluster Autoscaler would imagine it.

    Amounts are in the resource's base unit: cores, bytes, pieces.
    """

    capacity: Mapping[str, Fraction] = field(default_factory=dict)
    allocatable: Mapping[str, Fraction] | None = None  # None: nobody says
    free: Mapping[str, Fraction] | None = None  # allocatable less what daemons ask for; None: nobody says
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    source: str = ""  # where it comes from, for people

    @property
    def complete(self) -> bool:
        """Whether a group at zero with this template is seen by Cluster Autoscaler: it has cpu and memory."""
        return "cpu" in self.capacity and "memory" in self.capacity
