"""Keeps the last decision about each Auto Scaling group in the table, because each tag costs a call of AWS.

The stored decision says if a write has ended. Group tag ``evenkeel.dev/decision`` only names the stack and the cluster
that write the group. Without the tag, the group counts as never written: it has been restored or created again.
"""

from collections.abc import Mapping
from typing import Protocol

from evenkeel.domain.rebalancing.annotations import is_unfinished, read_published, writer_of

Decisions = Mapping[str, str]
"""The stored decisions, by name of the group."""


class DecisionStore(Protocol):
    """Stores the last decision about each group."""

    def load(self, cluster: str) -> Decisions:
        """Return the stored decisions. Raises AccessUnavailableError."""

    def save(self, cluster: str, group: str, decision: str) -> None:
        """Store a decision; empty: there is none any more. Raises StateUnavailableError."""


class DecisionsInMemory:
    """A ``DecisionStore`` without a table, for readers and tests."""

    def __init__(self) -> None:
        self._decisions: dict[str, dict[str, str]] = {}

    def load(self, cluster: str) -> Decisions:
        """Return the decisions."""
        return {**self._decisions.get(cluster, {})}

    def save(self, cluster: str, group: str, decision: str) -> None:
        """Keep a decision."""
        self._decisions.setdefault(cluster, {})[group] = decision


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
