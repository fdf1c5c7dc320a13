"""Caches node groups between the checks of a warm function, while their lists are unchanged."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from evenkeel.adapters.kubernetes.client.lists import ReceivedList, fingerprint_of
from evenkeel.adapters.kubernetes.objects import Kind
from evenkeel.adapters.kubernetes.read.groups import GroupObjects
from evenkeel.domain.model.observations import Skipped

# The limit of the weight of all cached lists together, in bytes. The cached groups need about as much memory.
MOST_BYTES = 160 * 2**20


class ReadGroups(NamedTuple):
    """What the lists of a flavour contain."""

    groups: list[GroupObjects]
    skipped: list[Skipped]
    # The fingerprint of the lists of each kind that has groups. A later quick check compares it. None: it is unknown.
    fingerprints: Mapping[Kind, str | None]


class _Entry(NamedTuple):
    fingerprint: bytes
    size: int  # the weight of the lists
    groups: ReadGroups


class ListCache:
    """Caches the groups of clusters, and reads one cluster at a time, because reading needs the most memory.

    Groups depend only on lists and settings. So lists with equal bytes result in equal groups.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._turn = threading.Lock()
        # The entries by cluster and flavour. The most recently used entry is last.
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()
        self._size = 0

    def groups(
        self,
        place: tuple[str, str],
        lists: Sequence[ReceivedList],
        settings: object,
        read: Callable[[], ReadGroups],
    ) -> ReadGroups:
        """Return the groups of a cluster and flavour: from the cache, else from ``read``, which may raise errors.

        Settings count as equal if their ``repr`` is equal.
        """
        fingerprint = fingerprint_of(lists, repr(settings))
        with self._turn:
            entry = self._remove(place)
            if entry is None or entry.fingerprint != fingerprint:
                groups = read()
                if fingerprint is None:
                    return groups
                entry = _Entry(fingerprint, sum(received.weight for received in lists), groups)
            self._entries[place] = entry
            self._size += entry.size
            while self._size > self._most_bytes:
                self._remove(next(iter(self._entries)))
            return entry.groups

    def _remove(self, place: tuple[str, str]) -> _Entry | None:
        entry = self._entries.pop(place, None)
        self._size -= entry.size if entry is not None else 0
        return entry
