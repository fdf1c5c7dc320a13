"""Templates of the nodes of a group."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple


class Taint(NamedTuple):
    """A taint of a node. A node has at most one taint per key and effect."""

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
    free: Mapping[str, Fraction] | None = None  # allocatable minus the requests of DaemonSets; None: unknown
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    # Names of labels and resources with the usual values, because no object names them.
    assumed: frozenset[str] = frozenset()
    source: str = ""  # where the template was read; only people read this text

    @property
    def complete(self) -> bool:
        """Return True if the template has cpu and memory. Without both, Cluster Autoscaler ignores an empty group."""
        return "cpu" in self.capacity and "memory" in self.capacity
