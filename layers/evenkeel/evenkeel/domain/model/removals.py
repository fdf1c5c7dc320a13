"""The check before a removal by name: lowering replicas must delete exactly the machines that Evenkeel marks."""

from collections.abc import Collection, Iterable

from evenkeel.domain.model.groups import Machine
from evenkeel.domain.model.reasons import Reason, Rule


def disagree(machines: Iterable[Machine], requested: int, ours: Collection[str]) -> Reason | None:
    """Return why lowering replicas might delete machines not marked by Evenkeel; None: it deletes only marked ones.

    Args:
        machines: All machines of a group.
        requested: The group's present replicas.
        ours: Names of machines that Evenkeel has marked, from the state, because some marks do not name their writer.
    """
    staying = [machine for machine in machines if not machine.deleting]
    if len(staying) != requested:
        return Reason.of(Rule.MACHINES_AWAITED, requested=requested, machines=len(staying))
    others = sorted(machine.name for machine in staying if is_marked_by_others(machine, ours))
    return Reason.of(Rule.MARKED_BY_OTHERS, machine=others[0]) if others else None


def is_marked_by_others(machine: Machine, ours: Collection[str]) -> bool:
    """Return True if another writer has marked the machine to be deleted first."""
    return machine.marked and not machine.marked_by_us and machine.name not in ours
