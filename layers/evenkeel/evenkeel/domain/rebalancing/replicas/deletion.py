"""The machines of a group to delete when its replicas fall: the first machines in a fixed order, or named machines.

A plan removes running machines only by name, or if a request gives back a number of nodes. A delete mark deletes no
machine, but selects the machine that is deleted first when replicas fall. So Evenkeel names no machine of a group whose
API has no such mark, or whose replicas and machines do not match (``Draft.drain_blocked_by``). A removal is one step of
the pool's journal (``domain.model.moves``). It is one patch of replicas and bounds. The API server refuses this patch
if the group has changed since the check read it.

    journal   mark m7   replicas 5 -> 4, with the step's id   close   m7 is deleted by its controller
    ---*---------*------------------*--------------------------x-----------------*------------------->
    after a crash, the next check:
       |   evaluates m7 anew, or    |  finds the id, and m7 marked but not deleted. Until m7 is deleted, it names no
       |   removes its mark         |  other machine of the group. If others raise replicas, it removes m7's mark
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from evenkeel.domain.model.drafts import PoolDraft
from evenkeel.domain.model.flavours import PLACEHOLDER
from evenkeel.domain.model.groups import Machine, MachineRef
from evenkeel.domain.model.plans import Removal
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.rebalancing.replicas.changes import take


def deletion_candidates(
    machines: Iterable[Machine],
    requested: int,
    *,
    may_remove_running: bool,
    keeps: Container[MachineRef] = (),
    provision_timeout: timedelta,
    now: datetime,
) -> tuple[str, ...]:
    """Return the names of the machines to delete, in order.

    The order is: failed machines, machines past the provision timeout, other machines without a node. If running
    machines may be removed, unready and then ready machines with a node follow. Within each kind, the newest machine is
    first. A preserved machine is never named.

    Args:
        machines: All machines of the group. Machines that are being deleted are ignored.
        requested: The replicas after the deletion.
        may_remove_running: True: machines with a node may be named, too.
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


class MarksLeft(NamedTuple):
    """Why Evenkeel's delete marks stay on the machines of a group."""

    is_doubtful: bool  # True: the list may be incomplete. False: marked machines are about to be deleted
    hidden: tuple[str, ...] = ()  # the marked machines that the list does not have


def marks_left(
    machines: Iterable[Machine], requested: int, marked: Collection[str], doubted: Collection[str] | None
) -> MarksLeft | None:
    """Return why delete marks stay; None: they are not needed any more.

    An incomplete list may hide a marked machine, whose mark would then be forgotten. The next scale-down by any
    controller would delete this machine. It may also hide a surplus.

    Args:
        machines: The listed machines of the group.
        requested: The group's replicas.
        marked: The names of the machines with Evenkeel's delete mark. A launch that failed is no machine.
        doubted: The marked machines that an earlier check did not list; None: this check confirms no earlier one.
    """
    listed = {machine.name: machine for machine in machines}
    staying = sum(not machine.deleting for machine in listed.values())
    if staying > requested:
        return MarksLeft(is_doubtful=False)
    hidden = [name for name in marked if name not in listed and not name.startswith(PLACEHOLDER)]
    return doubt_of(hidden, doubted, is_short=staying < requested)


def doubt_of(hidden: Iterable[str], doubted: Collection[str] | None, *, is_short: bool = False) -> MarksLeft | None:
    """Return the doubt about a list that lacks these machines, or that is short; None: an earlier check had it, too."""
    names = tuple(sorted(hidden))
    is_sure = not (names or is_short) or (doubted is not None and set(names) <= set(doubted))
    return None if is_sure else MarksLeft(is_doubtful=True, hidden=names)


def remove(pool: PoolDraft, machines: Mapping[str, Sequence[MachineRef]]) -> int:
    """Remove these machines, by key of their group, as far as minima allow. Return how many are removed.

    No machine is removed while the plan changes other replicas of the pool, because the journal stores one change at a
    time.
    """
    if any(draft.requested != draft.group.requested for draft in pool.groups):
        return 0
    removed = 0
    for draft in pool.groups:
        named = machines.get(draft.key, ())
        if not named or draft.drain_blocked_by is not None:
            continue
        spare = min(pool.target - pool.pool.min, draft.requested - draft.fewest())
        going = tuple(named[: max(0, spare)])
        if going:
            draft.removal = Removal(machines=going)
            names = tuple(machine.name for machine in going)
            take(draft, len(going), Reason.of(Rule.REMOVES, machines=names), journaled=True)
            removed += len(going)
    return removed
