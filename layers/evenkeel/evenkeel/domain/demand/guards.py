"""Reasons other than its own pods for which a node must stay, while nodes are removed from a snapshot one by one."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from evenkeel.domain.demand.node_info import NodeInfo
from evenkeel.domain.model.reasons import Reason

if TYPE_CHECKING:
    from evenkeel.domain.demand.simulation import Simulation

# Returns why a node that is removed from the snapshot must stay; None: it need not.
Guard = Callable[[NodeInfo], Reason | None]


def guard_of(simulation: "Simulation") -> Guard:
    """Return the guards of all pools as one. It compares with what holds now, before any node is removed."""
    kinds = dict.fromkeys(pool.guard for pool in simulation.pools if pool.guard is not None)
    guards: list[Guard] = [guard(simulation) for guard in kinds]
    return lambda removed: next((why for guard in guards if (why := guard(removed)) is not None), None)
