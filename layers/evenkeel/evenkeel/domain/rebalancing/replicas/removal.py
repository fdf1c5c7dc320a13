"""Taking running machines away by name: the one way in which a plan removes nodes without being asked for a number.

Who names them has judged their nodes. A delete mark only says which machine goes first when replicas fall: so a group
is left alone whose API has no such mark, or where replicas and machines do not agree (``Draft.drain_blocked_by``). It
is one step of the pool's journal (``domain.model.moves``), done by one patch of replicas and bounds on the version
of the group that was looked at:

    journal   mark m7   replicas 5 -> 4, with the step's id   close   m7 is deleted by its controller
    ---*---------*------------------*--------------------------x-----------------*------------------->
    after a crash, the next look:
       |   judges m7 anew, or its   |  finds the id, and m7 marked and not deleted yet: nobody else of the group is
       |   mark comes off again     |  named before. If others raise replicas meanwhile, m7 stays: its mark comes off
"""

from collections.abc import Mapping, Sequence

from evenkeel.domain.model.drafts import PoolDraft
from evenkeel.domain.model.groups import MachineRef
from evenkeel.domain.model.reasons import Rule


def remove(pool: PoolDraft, machines: Mapping[str, Sequence[MachineRef]]) -> int:
    """These machines go, by the keys of their groups; as many as minima leave. Returns how many.

    None while anything else of the pool changes: one journal tells one story.
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
            draft.removes = going
            draft.requested -= len(going)
            draft.journal_delta -= len(going)
            draft.add_reason(Rule.REMOVES, machines=tuple(machine.name for machine in going))
            removed += len(going)
    return removed
