"""Moves of stuck replicas to other zones, and changes of replicas on request.

A crash neither loses nor duplicates a replica. Before the first patch of a move, Evenkeel stores the number of replicas
that each group loses or gains. Each patch of replicas sets annotation ``evenkeel.dev/move`` to the move's id. So the
annotations show which patches were applied, even if the API server's answer was lost. Replicas that one group has lost
and no other group has gained are *unplaced*. The next plan adds them to other groups.

    stored           zone a -3          zone b +2    (crash)
    -----*---------------*------------------*----------x----> next check: a and b have the id, c has not: 1 unplaced
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from evenkeel.domain.model.groups import MachineRef, NodeGroup


@dataclass(frozen=True, kw_only=True)
class Move:
    """One move of replicas in one pool, or one change on request. Evenkeel stores it before its first patch."""

    id: str
    # The replicas that the previous move left unplaced. For a request: the nodes to add, or (negative) to remove.
    unplaced: int = 0
    steps: Mapping[str, int] = field(default_factory=dict)  # group's key -> replicas that it gains (negative: loses)
    request: str = ""  # the id of the scale request; empty: this is a move between zones
    only: tuple[str, ...] = ()  # keys or names of the groups that the request allows, sorted; empty: all groups
    later: int = 0  # the number of further nodes of the request, which later runs add or remove

    def still_unplaced(self, groups: Iterable[NodeGroup]) -> int:
        """Return the number of unplaced replicas, as the annotations of the groups show it.

        For a request, this is the number of nodes still to add, or (negative) still to remove.
        """
        steps_done = sum(self._done(group) for group in groups)
        return max(0, self.unplaced - steps_done) if self.unplaced >= 0 else min(0, self.unplaced - steps_done)

    def left_of(self, group: NodeGroup) -> int:
        """Return the part of the group's step that is not done."""
        return self.steps.get(str(group.key), 0) - self._done(group)

    def _done(self, group: NodeGroup) -> int:
        if group.ours.move == self.id:
            return self.steps.get(str(group.key), 0)
        id, lost = group.ours.move_begun or ("", 0)
        return -lost if id == self.id else 0


def _allows(only: Collection[str], group: NodeGroup) -> bool:
    """Return True if a request for these groups (keys or names; empty: all) allows the group."""
    return not only or not group.key.names.isdisjoint(only)


@dataclass(frozen=True, kw_only=True)
class RequestedNodes:
    """Nodes that a request has added, and that do not run yet."""

    at: datetime  # ``ScaleRequest.at``
    only: tuple[str, ...] = ()  # keys or names of the groups that the request allows; empty: all groups
    nodes: Mapping[str, int] = field(default_factory=dict)  # group's key -> number of nodes

    def fits(self, group: NodeGroup) -> bool:
        """Return True if the request allows the group."""
        return _allows(self.only, group)


# How long a request is valid. A requester that still needs the nodes after this time must request them again.
SCALE_REQUEST_KEPT = timedelta(hours=1)


# The ids of the requests that a plan itself makes for pending pods and for unneeded nodes. The id of any other request
# contains no space character, so it always differs from these two.
FOR_PODS = "pods that wait"
UNNEEDED_NODES = "unneeded nodes"


@dataclass(frozen=True, kw_only=True)
class ScaleRequest:
    """A request to add nodes, or (``nodes`` negative) to remove nodes."""

    id: str
    nodes: int
    at: datetime  # when the request was made, or when a run last added some of its nodes
    # True: the request is divided among runs, and ``nodes`` is what is left. max_step divides requests to add nodes,
    # and MOST_REMOVED requests to remove nodes.
    is_rest: bool = False
    # After an interrupted run: ``later`` of the request's move, which is the number of further nodes that later runs
    # add or remove. Otherwise 0.
    later: int = 0
    made_at: datetime | None = None  # when the request was made; None: at ``at``
    unfound_since: datetime | None = None  # when a check first found no node groups at all; None: groups were found
    pool: str = ""  # the name or id of the pool; empty: the request names no pool
    group: str = ""  # the key or name of one group of the pool; empty: the request names no group
    only: frozenset[str] = frozenset()  # keys or names of the groups that the request allows; empty: all groups
    # Key of a group -> number of nodes that the group gets. Empty, unless a plan made the request for pods.
    shares: Mapping[str, int] = field(default_factory=dict)
    # Key of a group -> the machines to remove. Empty: the request names no machines.
    machines: Mapping[str, tuple[MachineRef, ...]] = field(default_factory=dict)

    @property
    def is_of_plan(self) -> bool:
        """Return True if a plan made the request for pods or unneeded nodes.

        Such a request exists only in the plan and in the plan's journal.
        """
        return self.id in (FOR_PODS, UNNEEDED_NODES)

    @property
    def gives_number(self) -> bool:
        """Return True if the request removes a number of nodes without naming the machines."""
        return self.nodes < 0 and not self.machines

    def is_over(self, now: datetime) -> bool:
        """Return True if the request is too old to be carried out."""
        return now - self.at > SCALE_REQUEST_KEPT

    def fits(self, group: NodeGroup) -> bool:
        """Return True if the request allows the group."""
        return _allows(self.only, group)

    def names(self, group: NodeGroup) -> bool:
        """Return True if the request allows this group only."""
        return len(self.only) == 1 and self.fits(group)
