"""Moves of stuck replicas to other zones, and changes on request. A crash neither loses nor doubles a replica.

Before its first patch, a move is stored with the number of replicas that each group loses or gains. Each patch of
replicas sets annotation ``evenkeel.dev/move`` to the move's id. So the objects show which steps were done, even if an
answer was lost. Replicas that one group has lost and no other has gained are *unplaced*. The next plan places them.

    stored           zone a -3          zone b +2    (crash)
    -----*---------------*------------------*----------x----> next check: a and b carry the id, c does not: 1 unplaced
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from evenkeel.domain.model.groups import MachineRef, NodeGroup


@dataclass(frozen=True, kw_only=True)
class Move:
    """One move in one pool. It is stored before its first patch."""

    id: str
    # The replicas that the previous move left unplaced. For a request: the nodes to add, or (negative) to remove.
    unplaced: int = 0
    steps: Mapping[str, int] = field(default_factory=dict)  # group -> replicas that it gains (negative: loses)
    request: str = ""  # the id of the request; empty: a move between zones
    only: frozenset[str] = frozenset()  # the groups that the request allows; empty: all
    later: int = 0  # further nodes of the request, which later runs add

    def still_unplaced(self, groups: Iterable[NodeGroup]) -> int:
        """Return the unplaced replicas, according to the annotations of the groups.

        For a request, these are the nodes still to add, or (negative) still to remove.
        """
        steps_done = sum(self.steps.get(str(group.key), 0) for group in groups if group.ours.move == self.id)
        return max(0, self.unplaced - steps_done) if self.unplaced >= 0 else min(0, self.unplaced - steps_done)


# How long a request is valid. A requester that still needs the nodes after this time requests them again.
SCALE_REQUEST_KEPT = timedelta(hours=1)


# The ids of the requests that a plan makes for pending pods and for unneeded nodes. Other requests' ids have no space.
FOR_PODS = "pods that wait"
UNNEEDED_NODES = "unneeded nodes"


@dataclass(frozen=True, kw_only=True)
class ScaleRequest:
    """A request to add nodes, or (``nodes`` negative) to remove nodes."""

    id: str
    nodes: int
    at: datetime  # when it was requested, or when a run last added a part of it
    is_rest: bool = False  # True: max_step has divided the request, and ``nodes`` is only the part not added yet
    later: int = 0  # after an interrupted run: further nodes of its move, which later runs add
    # Id of a request to remove nodes -> number of this request's nodes that it has cancelled.
    less: Mapping[str, int] = field(default_factory=dict)
    unfound_since: datetime | None = None  # when a check first found no such node group; None: found
    pool: str = ""  # the name or id of a pool; empty: ``group`` is set
    group: str = ""  # the key or name of one group of the pool
    only: frozenset[str] = frozenset()  # the groups that the pods fit, by key or name; empty: all
    shares: Mapping[str, int] = field(default_factory=dict)  # for pods: the nodes that each group gets, by key
    # The machines to remove, by key of the group. Empty: no machine is named.
    machines: Mapping[str, tuple[MachineRef, ...]] = field(default_factory=dict)

    @property
    def is_of_plan(self) -> bool:
        """Return True if a plan made the request for pods or unneeded nodes.

        Only the plan and its journal contain such a request.
        """
        return self.id in (FOR_PODS, UNNEEDED_NODES)

    @property
    def gives_number(self) -> bool:
        """Return True if the request is to remove a number of nodes, and names no machines."""
        return self.nodes < 0 and not self.machines

    def is_over(self, now: datetime) -> bool:
        """Return True if the request is too old to be carried out."""
        return now - self.at > SCALE_REQUEST_KEPT

    def fits(self, group: NodeGroup) -> bool:
        """Return True if the request allows the group."""
        return not self.only or bool(self.only & group.key.names)
