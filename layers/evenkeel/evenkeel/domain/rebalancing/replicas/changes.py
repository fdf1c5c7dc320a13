"""The three functions that change replicas. No other code assigns ``requested`` or ``journal_delta`` of a draft.

- ``order`` adds nodes to a pool, within PoolMaximum and ``max_step``.
- ``give`` adds nodes that replace replicas which left another group. So they pass no maximum of the pool.
- ``take`` removes replicas.

``capability.Rank`` lists those who ask for changes, in their order. A change that is ``journaled`` belongs to the
pool's journal (``domain.model.moves``): after a crash, the next run completes it or knows that it was complete.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.water_fill import water_fill

# The groups that may get nodes, each with the most nodes that it may get.
Takers = Sequence[tuple[Draft, int]]
# Each group that got nodes, with their number.
Raised = list[tuple[Draft, int]]
# Returns the reason why a group gets or loses this number of nodes.
Why = Callable[[Draft, int], Reason]


class Ordered(NamedTuple):
    """What became of the nodes that ``order`` was asked for."""

    raised: Raised
    later: int  # nodes that later runs add, because max_step limits this plan
    unmet: int  # nodes that no group may get, or for which PoolMaximum has no room


def order(
    pool: PoolDraft, nodes: int, takers: Takers, why: Why, *, weighted: bool = False, journaled: bool = False
) -> Ordered:
    """Add nodes to a pool, leveled over the groups that may get them.

    Args:
        pool: The pool. Its PoolMaximum, its reserved nodes and its ``max_step`` limit the number.
        nodes: The number of nodes; below 1, nothing changes.
        takers: The groups that may get nodes, each with the most nodes that it may get.
        why: Returns the reason to add to a group.
        weighted: True: levels are compared by ``evenkeel.dev/weight``.
        journaled: True: the journal stores the change.
    """
    wanted = max(0, nodes)
    possible = min(wanted, max(0, pool.free), sum([most for _, most in takers if most > 0]))
    added = min(possible, pool.may_add)
    raised = _raise(added, takers, why, weighted=weighted, journaled=journaled)
    pool.replicas.added += added
    return Ordered(raised, later=possible - added, unmet=wanted - possible)


def give(nodes: int, takers: Takers, why: Why) -> Raised:
    """Add nodes in place of replicas that left another group, leveled over the groups that may get them."""
    return _raise(nodes, takers, why, weighted=True, journaled=True)


def takes_on(_draft: Draft, more: int) -> Reason:
    """Return the reason of a group that gets replicas of other groups."""
    return Reason.of(Rule.TAKES_ON, count=more)


def take(draft: Draft, nodes: int, why: Reason, *, journaled: bool) -> None:
    """Remove replicas from a group.

    A caller that takes replicas with a running machine also sets ``draft.removal``. Otherwise the write names only
    machines without a node.
    """
    if nodes <= 0:
        return
    draft.requested -= nodes
    if journaled:
        draft.journal_delta -= nodes
    draft.reasons.append(why)


def _raise(nodes: int, takers: Takers, why: Why, *, weighted: bool, journaled: bool) -> Raised:
    drafts = [draft for draft, _ in takers]
    levels = [draft.requested for draft in drafts]
    weights = [draft.group.annotations.weight for draft in drafts] if weighted else ()
    shares = water_fill(nodes, levels, [most for _, most in takers], lambda i: drafts[i].tie, weights)
    raised = [(draft, more) for draft, more in zip(drafts, shares, strict=True) if more]
    for draft, more in raised:
        draft.requested += more
        if journaled:
            draft.journal_delta += more
        draft.reasons.append(why(draft, more))
    return raised
