"""Why requested nodes are missing: a cause that every zone shares. Otherwise, no healthy zone has room for them."""

from collections.abc import Iterator

from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.failures import FailureClass, class_of
from evenkeel.domain.model.reasons import Fact, Reason, Rule
from evenkeel.domain.model.values import provider_words

_DOUBTS = frozenset(
    {Rule.IN_BACKOFF, Rule.PROBING_AFTER_BACKOFF, Rule.PROBING_AFTER_ARRIVAL, Rule.PROBING_AFTER_CHANGE}
)


def refused_everywhere(pool: PoolDraft, nodes: int) -> Reason | None:
    """Return the failure that any zone would have, if it is why these nodes are missing; else None.

    It is, if all of them are replicas with such a failure, or if such a failure closes every group.
    """
    failures = {draft.key: failure for draft in pool.groups if (failure := next(_failures(draft), None)) is not None}
    acting = [draft for draft in pool.groups if draft.writable]
    refused = sum(
        draft.missing if draft.is_held else min(draft.missing, draft.machines.held)
        for draft in pool.groups
        if draft.key in failures
    )
    closed = acting and all(draft.key in failures and not draft.takes for draft in acting)
    if refused < nodes and not closed:
        return None
    return next(iter(failures.values()))


def _failures(draft: Draft) -> Iterator[Reason]:
    """Yield the failures of a group that any zone would have: those of its machines, and the cause of its fence."""
    for machine in draft.group.refused_machines:
        failure = machine.failure
        if failure is not None and not class_of(failure).moves_elsewhere:
            yield _reason(class_of(failure), provider_words(failure.text))
    for reason in draft.reasons:
        if reason.rule in _DOUBTS and not (kind := FailureClass(str(reason.facts["kind"]))).moves_elsewhere:
            yield _reason(kind, reason.facts.get("words"))


def _reason(kind: FailureClass, words: Fact) -> Reason:
    return Reason.of(Rule.REFUSED_EVERYWHERE, kind=kind.value, words=words)
