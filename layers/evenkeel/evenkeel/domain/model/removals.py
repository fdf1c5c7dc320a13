"""The safety check before Evenkeel removes machines by name: only machines that Evenkeel has marked may be deleted."""

from collections.abc import Collection, Iterable

from evenkeel.domain.model.groups import Machine
from evenkeel.domain.model.reasons import Reason, Rule


def disagree(machines: Iterable[Machine], requested: int, ours: Collection[str]) -> Reason | None:
    """Return why lower replicas might delete machines that Evenkeel has not marked; None: only marked ones are deleted.

    Args:
        machines: All machines of a group.
        requested: The group's present replicas.
        ours: Names of the machines that Evenkeel has marked. They are from the stored state, because some marks do not
            name their writer.
    """
    staying = [machine for machine in machines if not machine.deleting]
    if len(staying) != requested:
        return Reason.of(Rule.MACHINES_AWAITED, requested=requested, machines=len(staying))
    others = sorted(m.name for m in staying if m.marked and not m.marked_by_us and m.name not in ours)
    return Reason.of(Rule.MARKED_BY_OTHERS, machine=others[0]) if others else None
