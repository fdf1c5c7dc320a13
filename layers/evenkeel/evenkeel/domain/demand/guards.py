"""What says which nodes must stay for other reasons than their pods, while nodes are removed from a snapshot."""

from typing import Protocol

from evenkeel.domain.demand.node_info import NodeInfo
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.model.reasons import Reason


class Guard(Protocol):
    """Judges the removals of one search for nodes. A capability sets it in ``DemandDraft.guard``."""

    def begin(self) -> None:
        """Store what holds before any node is removed."""

    def needed(self, removed: NodeInfo) -> Reason | None:
        """Return why a node that is removed from the snapshot must stay; None: it need not."""


class Guards:
    """The guards of all pools of a simulation, each once."""

    def __init__(self, simulation: Simulation) -> None:
        kinds = dict.fromkeys(pool.guard for pool in simulation.pools if pool.guard is not None)
        self._guards: list[Guard] = [guard(simulation) for guard in kinds]

    def begin(self) -> None:
        """Store what holds before any node is removed."""
        for guard in self._guards:
            guard.begin()

    def needed(self, removed: NodeInfo) -> Reason | None:
        """Return why a guard needs a node that is removed from the snapshot; None: none needs it."""
        reasons = (guard.needed(removed) for guard in self._guards)
        return next((reason for reason in reasons if reason is not None), None)
