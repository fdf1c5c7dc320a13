"""Moves of stuck replicas to other zones, and growth on request: a crash at any point loses and doubles no replica.

A move is stored before its first patch: how many replicas each group gives up or takes on. Each patch of replicas
carries the move's id in annotation ``evenkeel.dev/move``. So the objects show which steps were done, even if an answer
was lost. Replicas given up and not yet taken on are *unplaced*: the next plan places them.

    stored           zone a -3          zone b +2    (crash)
    -----*---------------*------------------*----------x----> next check: a and b carry the id, c does not: 1 unplaced
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from evenkeel.domain.model.groups import MachineRef, NodeGroup


@dataclass(frozen=True, kw_only=True)
class Move:
    """One move of one pool, as it was stored before its first patch."""

    id: str
    unplaced: int = 0  # left over by the move before it; on request: all that was granted (negative: to be given back)
    steps: Mapping[str, int] = field(default_factory=dict)  # group -> replicas taken on (negative: given up)
    request: str = ""  # id of the request; empty: a move between zones
    only: frozenset[str] = frozenset()  # the groups that the request allows
    later: int = 0  # further nodes of the request, for runs after the one that has begun this move

    def still_unplaced(self, groups: Iterable[NodeGroup]) -> int:
        """Return the replicas given up and not yet taken on, as the annotations of the groups show.

        On request: the nodes still to be added, or (negative) still to be given back.
        """
        steps_done = sum(self.steps.get(str(group.key), 0) for group in groups if group.ours.move == self.id)
        return max(0, self.unplaced - steps_done) if self.unplaced >= 0 else min(0, self.unplaced - steps_done)


# A requester that still needs the nodes after that has requested them again.
SCALE_REQUEST_KEPT = timedelta(hours=1)


# The ids of the requests that a plan makes itself, for waiting pods and for unneeded nodes. Other ids have no space.
FOR_PODS = "pods that wait"
UNNEEDED_NODES = "unneeded nodes"


@dataclass(frozen=True, kw_only=True)
class ScaleRequest:
    """Requested nodes; negative: nodes to give back."""

    id: str
    nodes: int
    at: datetime  # of the request, or of the last run that added a part of it
    is_rest: bool = False  # max_step has divided it: nodes of earlier runs are not counted
    later: int = 0  # begun and interrupted: further nodes, for later runs
    less: Mapping[str, int] = field(default_factory=dict)  # nodes taken off it, by id of the request to give back
    unfound_since: datetime | None = None  # first check without any node group
    pool: str = ""  # a pool's name or id
    group: str = ""  # or one of its groups, by key or name
    only: frozenset[str] = frozenset()  # the groups that the pods fit, by key or name; empty: all
    shares: Mapping[str, int] = field(default_factory=dict)  # for pods: how many of the nodes each group gets, by key
    machines: Mapping[str, tuple[MachineRef, ...]] = field(default_factory=dict)  # given back: exactly these, by group

    @property
    def is_of_plan(self) -> bool:
        """Return True if a plan made it for pods or unneeded nodes; only that plan and its journal know it."""
        return self.id in (FOR_PODS, UNNEEDED_NODES)

    @property
    def gives_number(self) -> bool:
        """Return True if it removes a number of nodes without naming machines."""
        return self.nodes < 0 and not self.machines

    def is_over(self, now: datetime) -> bool:
        """Return True if it is too old to be carried out."""
        return now - self.at > SCALE_REQUEST_KEPT

    def fits(self, group: NodeGroup) -> bool:
        """Return True if the request allows the group."""
        return not self.only or bool(self.only & group.key.names)
