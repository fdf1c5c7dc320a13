"""Whether fewer replicas would take exactly the machines that are marked: what whoever judges nodes asks before."""

from collections.abc import Collection, Iterable

from evenkeel.domain.model.groups import Machine
from evenkeel.domain.model.reasons import Reason, Rule


def disagree(machines: Iterable[Machine], requested: int, ours: Collection[str]) -> Reason | None:
    """Why others would go than those that we mark; None: nobody else would.

    Args:
        machines: all of a group's.
        requested: its replicas now.
        ours: machines that we are remembered to have marked, where the mark does not say whose it is.
    """
    staying = [machine for machine in machines if not machine.deleting]
    if len(staying) != requested:
        return Reason.of(Rule.MACHINES_AWAITED, requested=requested, machines=len(staying))
    others = sorted(machine.name for machine in staying if is_marked_by_others(machine, ours))
    return Reason.of(Rule.MARKED_BY_OTHERS, machine=others[0]) if others else None


def is_marked_by_others(machine: Machine, ours: Collection[str]) -> bool:
    """Whether somebody else wants the machine to go first."""
    return machine.marked and not machine.marked_by_us and machine.name not in ours
