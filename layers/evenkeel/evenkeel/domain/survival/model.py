"""The result of a plan for the loss of one zone: if a pool survives it, and the nodes that it keeps for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from evenkeel.domain.model.demand import KeptNodes
from evenkeel.domain.model.holds import held_until, next_length
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
# How long no node with pods is drained after a drain did not help. Each further such drain doubles the time.
_DRAINS_HELD = timedelta(hours=1)
_LONGEST_HELD = timedelta(hours=12)


@dataclass(frozen=True, kw_only=True)
class HeldNodes(Part):
    """The nodes that a pool keeps because it lately needed them to survive: nodes without pods, and during a hold all.

    A pod of a drained node may take another place than the plan expected. If the pool then needs a new node, the same
    drain would fail again. So a hold begins, in which no node with pods is drained.
    """

    at: datetime  # when the nodes without pods were last needed
    nodes: Mapping[str, int] = field(default_factory=dict)  # by key of the group; only positive numbers
    # When a group last lost a node; None: the pool has since ordered a node to survive, or the loss is long ago.
    lost_at: datetime | None = None
    drains_held_since: datetime | None = None  # when the last hold began
    drains_held_until: datetime | None = None  # when it ends, or has ended

    @property
    def until(self) -> datetime:
        """Return when the nodes without pods are no longer kept, if they are not needed again."""
        return self.at + HELD + _RENEWED

    def at_check(self, now: datetime, *, lost: bool) -> "HeldNodes":
        """Return what still counts. ``lost``: a group has lost a node since the last check."""
        lost_at = self.lost_at if held_until(self.lost_at, now, HELD) is not None else None
        return replace(self, nodes=self.nodes if now < self.until else {}, lost_at=now if lost else lost_at)

    def is_over(self, now: datetime) -> bool:
        """Return True if nothing here matters any more, not even for the length of the next hold."""
        counts = held_until(self.drains_held_until, now, _LONGEST_HELD) is not None
        return not counts and self.lost_at is None and not self.nodes

    def renewed(self, needed: Mapping[str, int], now: datetime) -> "HeldNodes":
        """Return the nodes to keep from now on, if these nodes without pods are needed now."""
        if now >= self.until or any(count > self.nodes.get(key, 0) for key, count in needed.items()):
            kept = self.nodes if now < self.until else {}
            nodes = {key: max(needed.get(key, 0), kept.get(key, 0)) for key in {**needed, **kept}}
            return replace(self, at=now, nodes=nodes)
        is_same = bool(needed) and needed == self.nodes and now >= self.at + _RENEWED
        return replace(self, at=now) if is_same else self

    def after_order(self, now: datetime) -> "HeldNodes":
        """Return what to keep when the pool needs new nodes to survive. If it has lately lost a node, a hold begins."""
        if self.lost_at is None or held_until(self.drains_held_until, now) is not None:
            return replace(self, lost_at=None)
        length = next_length(self.drains_held_since, self.drains_held_until, now, _DRAINS_HELD, _LONGEST_HELD)
        return replace(self, lost_at=None, drains_held_since=now, drains_held_until=now + length)


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
