"""Keeps the last decision about each Auto Scaling group in the table, because each tag costs a call of AWS.

The stored decision says if a write has ended. Group tag ``evenkeel.dev/decision`` only names the stack and the cluster
that write the group. Without the tag, the group counts as never written: it has been restored or created again.

Each decision is stored only if the former one is the one that was read. So a run that wakes up after its lease ends no
write that a later run has begun.
"""

from collections.abc import Mapping
from typing import Protocol

from evenkeel.application.errors import StateConflictError
from evenkeel.domain.rebalancing.annotations import is_unfinished, read_published, writer_of

Decisions = Mapping[str, str]
"""The stored decisions, by name of the group."""


class DecisionStore(Protocol):
    """Stores the last decision about each group."""

    def load(self, cluster: str) -> Decisions:
        """Return the stored decisions. Raises AccessUnavailableError."""

    def save(self, cluster: str, group: str, decision: str, before: str) -> None:
        """Store a decision; empty: there is none any more.

        ``before``: the decision that the caller has read; empty: none. Raises StateUnavailableError,
        StateConflictError: another run has stored a decision since then.
        """


class DecisionsInMemory:
    """A ``DecisionStore`` without a table, for readers and tests."""

    def __init__(self) -> None:
        self._decisions: dict[str, dict[str, str]] = {}

    def load(self, cluster: str) -> Decisions:
        """Return the decisions."""
        return {**self._decisions.get(cluster, {})}

    def save(self, cluster: str, group: str, decision: str, before: str) -> None:
        """Keep a decision, unless another one has been kept since ``before``."""
        decisions = self._decisions.setdefault(cluster, {})
        if decisions.get(group, "") not in (before, decision):
            raise StateConflictError(f"{group}: the decision has been written since it was read")
        decisions[group] = decision


def decision_of(tag: str | None, stored: str | None, writer: str) -> str | None:
    """Return the last decision about a group: the stored one, or else its tag. None: Evenkeel has not written it.

    The tag counts if another stack or cluster has written it, or an older release of Evenkeel, after the stored one.
    """
    if not stored or writer_of(tag) not in ("", writer):
        return tag
    if tag is None:
        return stored if is_unfinished(stored) else None
    ours, of_tag = read_published(stored), read_published(tag)
    return tag if ours is not None and of_tag is not None and of_tag.at > ours.at else stored
