"""Keeps EKS's descriptions of managed node groups, so that a check asks EKS for only a few of them.

EKS describes one node group per call. Each answer expires at a random time, so that the answers do not expire together.
Until its successor is read, an older answer counts. Runs store the answers, because a new function instance has none.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from evenkeel.adapters.auto_scaling.read import busy_status
from evenkeel.adapters.auto_scaling.templates import RESOURCES
from evenkeel.adapters.lru import LruCache

NodeGroupKey = tuple[str, str]
"""The names of the EKS cluster and of the node group."""
Descriptions = Mapping[NodeGroupKey, Mapping[str, Any]]
"""EKS's descriptions; an empty one: there is no such node group."""

_MOST = 30_000  # the largest number of cached node groups, each of 2 KB
# An answer expires after 8 to 16 minutes. So checks and runs together read a sixth of the node groups per minute. While
# EKS changes a node group, its answer expires after a minute.
_SHORTEST = timedelta(minutes=8)
_MINUTE = timedelta(minutes=1)
# Checks and runs each read at most this share of the node groups per minute, so that both together read a quarter.
_SHARE = 1 / 8
# Clusters with fewer node groups are read at once, so that the end of an update is seen within a minute. Checks and
# runs are separate functions: a common count would cost a write to the table for each check.
_AT_LEAST = 20
# The other fields of a description are long, and no plan uses them.
_USED = (
    *("clusterName", "nodegroupName", "status", "scalingConfig", "resources"),
    *("instanceTypes", "labels", "taints", "capacityType", "amiType"),
)


class NodeGroupStore(Protocol):
    """Stores the descriptions of a cluster's node groups. It raises no error, because EKS has the descriptions, too."""

    def load(self, cluster: str) -> Descriptions:
        """Return the stored descriptions; empty: there are none, or they are unreadable."""

    def save(self, cluster: str, descriptions: Descriptions) -> None:
        """Store the descriptions."""


@dataclass(frozen=True, kw_only=True)
class _Answer:
    node_group: Mapping[str, Any]
    read_at: datetime | None  # None: another function instance has read it
    expires: datetime


@dataclass(frozen=True, kw_only=True)
class NodeGroups:
    """The answers about the node groups of all clusters, for many threads."""

    random: Callable[[], float]  # returns a number from 0 up to 1
    store: NodeGroupStore | None = None  # has the answers that runs have stored; None: none are stored
    saves: bool = False  # True for runs, which may write to the store
    share: float = _SHARE  # the largest share of a cluster's node groups that is read per minute
    _answers: LruCache[tuple[str, NodeGroupKey], _Answer] = field(init=False, default_factory=lambda: LruCache(_MOST))
    _stored: dict[str, str] = field(init=False, default_factory=dict)  # by cluster, the digest of the stored answers

    def keep(self, cluster: str, key: NodeGroupKey, node_group: Mapping[str, Any], now: datetime) -> None:
        """Keep an answer of EKS."""
        used = {name: node_group[name] for name in _USED if name in node_group}
        tags = (node_group.get("tags") or {}).items()
        if sizes := {key: value for key, value in tags if str(key).startswith(RESOURCES)}:
            used["tags"] = sizes
        is_busy = bool(node_group) and bool(busy_status(node_group))
        expires = now + (_MINUTE if is_busy else _SHORTEST * (1 + self.random()))
        self._answers.put((cluster, key), _Answer(node_group=used, read_at=now, expires=expires))

    def known(self, cluster: str, keys: Collection[NodeGroupKey]) -> Descriptions:
        """Return the last answers."""
        answers = {key: self._answers.get((cluster, key)) for key in keys}
        return {key: answer.node_group for key, answer in answers.items() if answer is not None}

    def due(self, cluster: str, keys: Collection[NodeGroupKey], now: datetime) -> list[NodeGroupKey]:
        """Return the node groups to ask EKS for now: first those without an answer, then those that expired first."""
        answers = {key: self._answers.get((cluster, key)) for key in sorted(keys)}
        new = [key for key, answer in answers.items() if answer is None]
        expired = {key: answer.expires for key, answer in answers.items() if answer and answer.expires <= now}
        # Checks and runs choose at random, so that they do not ask for the same node groups.
        chosen = [*sorted(new, key=lambda _: self.random()), *sorted(expired, key=expired.__getitem__)]
        read_at = [answer.read_at for answer in answers.values() if answer and answer.read_at]
        recent = sum(now - at < _MINUTE for at in read_at)
        return chosen[: max(0, max(_AT_LEAST, int(len(keys) * self.share)) - recent)]

    def load(self, cluster: str, keys: Collection[NodeGroupKey], now: datetime) -> None:
        """Load the stored answers if a node group has no answer."""
        missing = set(keys).difference(self.known(cluster, keys))
        if not missing or self.store is None:
            return
        stored = self.store.load(cluster)
        self._stored[cluster] = _digest(stored)
        for key in missing.intersection(stored):
            expires = now + 2 * _SHORTEST * self.random()
            self._answers.put((cluster, key), _Answer(node_group=stored[key], read_at=None, expires=expires))

    def save(self, cluster: str, keys: Collection[NodeGroupKey]) -> None:
        """Store the answers if they have changed and the function may write."""
        if self.store is None or not self.saves:
            return
        known = self.known(cluster, keys)
        digest = _digest(known)
        if self._stored.get(cluster) != digest:
            self.store.save(cluster, known)
            self._stored[cluster] = digest


def _digest(descriptions: Descriptions) -> str:
    return hashlib.sha256(json.dumps(sorted(descriptions.items()), sort_keys=True).encode()).hexdigest()
