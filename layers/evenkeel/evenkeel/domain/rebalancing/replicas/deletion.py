"""Which machines of a group go first when its replicas fall."""

from collections.abc import Container, Iterable
from datetime import datetime, timedelta

from evenkeel.domain.model.groups import Machine, MachineRef


def deletion_candidates(
    machines: Iterable[Machine],
    requested: int,
    *,
    may_remove_running: bool,
    keeps: Container[MachineRef] = (),
    provision_timeout: timedelta,
    now: datetime,
) -> tuple[str, ...]:
    """The names of as many machines as will go, the first first.

    Failed ones, those past the provision timeout, others without a node, the newest first. Then, where running ones
    may go, those with a node, the unready first. Never one that is preserved, for it would not go; those that are
    being deleted are gone already.

    Args:
        machines: all of the group's.
        requested: replicas that will be left.
        may_remove_running: whether machines with a node are named as well.
        keeps: machines that are never named.
        provision_timeout: how long a machine may take to become a node.
        now: the moment by which machines are as old as they are.
    """
    staying = [machine for machine in machines if not machine.deleting]

    def turn(machine: Machine) -> int:
        if machine.has_node:
            return 4 if machine.ready else 3
        if machine.failure is not None:
            return 0
        return 1 if machine.is_overdue(now, provision_timeout) else 2

    order = [
        machine
        for machine in staying
        if not machine.preserved and (may_remove_running or not machine.has_node) and machine.ref not in keeps
    ]
    order.sort(key=lambda machine: (machine.created_at, machine.name), reverse=True)
    order.sort(key=turn)
    return tuple(machine.name for machine in order[: max(0, len(staying) - requested)])


def nobody_goes(machines: Iterable[Machine], requested: int) -> bool:
    """Whether there are no more machines than replicas: a mark has done its work then."""
    return sum(not machine.deleting for machine in machines) <= requested
