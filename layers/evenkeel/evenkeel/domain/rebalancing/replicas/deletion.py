"""Which machines of a group go when its replicas fall: the first in order, or named ones.

A plan removes running machines only by name, or on request for a number of nodes. A delete mark only says which machine
goes first when replicas fall. So a group is left alone whose API has no such mark, or where replicas and machines do
not agree (``Draft.drain_blocked_by``). A removal is one step of the pool's journal (``domain.model.moves``): one patch
of replicas and bounds, on the version of the group that was planned for.

    journal   mark m7   replicas 5 -> 4, with the step's id   close   m7 is deleted by its controller
    ---*---------*------------------*--------------------------x-----------------*------------------->
    after a crash, the next check:
       |   evaluates m7 anew, or    |  finds the id, and m7 marked and not deleted yet: no other machine of the group
       |   its mark is removed      |  is named before. If others raise replicas meanwhile, m7 stays without its mark
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from evenkeel.domain.model.drafts import PoolDraft
from evenkeel.domain.model.groups import Machine, MachineRef
from evenkeel.domain.model.reasons import Rule


def deletion_candidates(
    machines: Iterable[Machine],
    requested: int,
    *,
    may_remove_running: bool,
    keeps: Container[MachineRef] = (),
    provision_timeout: timedelta,
    now: datetime,
) -> tuple[str, ...]:
    """Return the names of the machines that go, in order.

    First failed ones, then those past the provision timeout, then others without a node, each the newest first. Where
    running ones may go, those with a node follow, the unready first. A preserved machine never goes.

    Args:
        machines: All machines of the group. Those that are being deleted are gone already.
        requested: Replicas that are left.
        may_remove_running: Whether machines with a node are named as well.
        keeps: Machines that are never named.
        provision_timeout: How long a machine may take to become a node.
        now: The time.
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


def no_surplus(machines: Iterable[Machine], requested: int) -> bool:
    """Return True if there are no more machines than replicas: a mark has done its work then."""
    return sum(not machine.deleting for machine in machines) <= requested


def remove(pool: PoolDraft, machines: Mapping[str, Sequence[MachineRef]]) -> int:
    """Remove these machines, by keys of their groups, as far as minima allow. Return how many go.

    None goes while anything else of the pool changes, because the journal holds one change at a time.
    """
    if any(draft.requested != draft.group.requested for draft in pool.groups):
        return 0
    removed = 0
    for draft in pool.groups:
        named = machines.get(draft.key, ())
        if not named or draft.drain_blocked_by is not None:
            continue
        spare = min(pool.requested - pool.pool.min, draft.requested - pool.least_of(draft))
        going = tuple(named[: max(0, spare)])
        if going:
            draft.removal.machines = going
            draft.requested -= len(going)
            draft.journal_delta -= len(going)
            draft.add_reason(Rule.REMOVES, machines=tuple(machine.name for machine in going))
            removed += len(going)
    return removed
