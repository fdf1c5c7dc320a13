"""Moving stuck replicas to other zones, and growing on request, so that a crash at any point loses and doubles nothing.

Before its first patch a move is written down: how many replicas each group gives up or takes on. Each patch of replicas
carries the move's id in annotation ``evenkeel.dev/move``, in the same write, so that the objects themselves say which
steps were done, whatever became of the answer. What was given up and not yet taken on is *unplaced*: the next plan
places it.

    written down     zone a -3          zone b +2    (crash)
    -----*---------------*------------------*----------x----> next look: a and b carry the id, c does not: 1 unplaced
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from evenkeel.domain.model.groups import MachineRef, NodeGroup


@dataclass(frozen=True, kw_only=True)
class Move:
    """One move of one pool, as it was written down before its first patch."""

    id: str
    unplaced: int = 0  # left over by the move before it; on request: all that was granted (negative: to be given back)
    steps: Mapping[str, int] = field(default_factory=dict)  # group -> replicas taken on (negative: given up)
    request: str = ""  # growth that somebody asked for, by its id, and not a move between zones
    only: frozenset[str] = frozenset()  # the groups that the request allows
    later: int = 0  # further nodes of the request, for runs after the one that has begun this move

    def still_unplaced(self, groups: Iterable[NodeGroup]) -> int:
        """Replicas that were given up and not yet taken on, from what the groups themselves say.

        On request: what is still to be added, or (negative) still to be given back.
        """
        steps_done = sum(self.steps.get(str(group.key), 0) for group in groups if group.move == self.id)
        return max(0, self.unplaced - steps_done) if self.unplaced >= 0 else min(0, self.unplaced - steps_done)


# Whoever still needs the nodes after that will have asked again.
SCALE_REQUEST_KEPT = timedelta(hours=1)


# The ids of the requests that a plan makes itself. First those for pods that wait. Nobody else's has a space in it.
FOR_PODS = "pods that wait"
# The same for nodes that nobody needs.
UNNEEDED_NODES = "nodes that nobody needs"


@dataclass(frozen=True, kw_only=True)
class ScaleRequest:
    """Nodes that somebody asked for; negative: that somebody gives back."""

    id: str
    nodes: int
    at: datetime  # when it was asked for, or when a run last added a part of it
    is_rest: bool = False  # max_step has divided it: what earlier runs have added is none of the nodes
    later: int = 0  # of one that was begun and interrupted: further nodes, for later runs
    less: Mapping[str, int] = field(default_factory=dict)  # nodes taken off it, by the id of the request that gave them
    unfound_since: datetime | None = None  # when a check first found no node group at all
    pool: str = ""  # a pool's name or id
    group: str = ""  # or one of its groups, by key or name
    only: frozenset[str] = frozenset()  # the groups that the pods fit, by key or name; none named: all
    shares: Mapping[str, int] = field(default_factory=dict)  # for pods: how many of the nodes each group gets, by key
    machines: Mapping[str, tuple[MachineRef, ...]] = field(default_factory=dict)  # given back: exactly these, by group

    @property
    def is_of_plan(self) -> bool:
        """Whether it follows from what pods need, and is known only to the plan that made it and to its journal."""
        return self.id in (FOR_PODS, UNNEEDED_NODES)

    @property
    def gives_number(self) -> bool:
        """Return True if it gives back a number of nodes, and names none."""
        return self.nodes < 0 and not self.machines

    def is_over(self, now: datetime) -> bool:
        """Whether it is too old to be carried out."""
        return now - self.at > SCALE_REQUEST_KEPT

    def fits(self, group: NodeGroup) -> bool:
        """Whether the request says that its pods fit the group's nodes."""
        return not self.only or bool(self.only & group.key.names)
