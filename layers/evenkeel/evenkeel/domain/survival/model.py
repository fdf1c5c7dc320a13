"""The result of a plan for the loss of one zone: if a pool survives it, and the nodes that it keeps for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from evenkeel.domain.model.demand import KeptNodes
from evenkeel.domain.model.parts import Part
from evenkeel.domain.model.reasons import Reason, Rule


@dataclass(frozen=True, kw_only=True)
class Survival(Part):
    """The result for a pool with ``survive-zones``. Each integer is a number of nodes."""

    possible: bool = True  # False: a problem of the pool says why it cannot survive
    short: int = 0  # nodes that must be added, so that enough remain after the loss of any zone
    held: int = 0  # nodes that the pool keeps only to survive
    causes: tuple[Reason, ...] = ()  # why zones get no node, if the pool is short of nodes
    bound: Mapping[str, int] | None = None  # zone -> number of its pods that may run in no other zone

    @property
    def survives(self) -> bool:
        """Return True if the pool holds enough after the loss of any one zone, except for pods bound to that zone."""
        return self.possible and not self.short

    @property
    def note(self) -> Reason:
        """Return the result as a reason to report."""
        bound = tuple(
            Reason.of(Rule.PODS_BOUND, count=count, zone=zone) for zone, count in sorted((self.bound or {}).items())
        )
        return Reason.of(Rule.SURVIVES_ZONE, short=self.short, held=self.held, bound=bound, why=self.causes)


# Nodes that a pool needs only to survive are kept for this long after they were last needed.
HELD = timedelta(minutes=30)
# The stored time is renewed only this often, because each renewal is a write.
_RENEWED = timedelta(minutes=10)


@dataclass(frozen=True, kw_only=True)
class HeldNodes(Part):
    """The nodes without pods that a pool needed to survive."""

    at: datetime  # when they were last needed
    nodes: Mapping[str, int] = field(default_factory=dict)  # by key of the group; only positive numbers

    @property
    def until(self) -> datetime:
        """Return when the nodes are no longer kept, if they are not needed again."""
        return self.at + HELD + _RENEWED

    def renewed(self, needed: Mapping[str, int], now: datetime) -> "HeldNodes":
        """Return the nodes to keep from now on, if these nodes are needed now."""
        if now >= self.until or any(count > self.nodes.get(key, 0) for key, count in needed.items()):
            kept = self.nodes if now < self.until else {}
            return HeldNodes(at=now, nodes={key: max(needed.get(key, 0), kept.get(key, 0)) for key in {*needed, *kept}})
        is_same = needed == self.nodes and now >= self.at + _RENEWED
        return HeldNodes(at=now, nodes=self.nodes) if is_same else self


class SurvivalFacts(NamedTuple):
    """The part of a pool's plan that follows from its pods. The mappings are by key of the group."""

    held: HeldNodes | None = None  # to store
    minima: Mapping[str, int] = {}  # the nodes that an autoscaler must not remove
    missing: Mapping[str, int] = {}  # the nodes to order
    result: Survival | None = None  # None: not all pods were read
    kept: KeptNodes | None = None  # the nodes that a request to remove nodes must keep; None: there is no such request


@dataclass(slots=True)
class SurvivalDraft:
    """The nodes with which a pool survives the loss of one zone."""

    facts: SurvivalFacts | None  # None: Evenkeel does not read pods
    result: Survival | None = None  # None: not known, because not all pods were read
    causes: tuple[Reason, ...] = ()  # why zones get no node, although the pool is short of nodes
