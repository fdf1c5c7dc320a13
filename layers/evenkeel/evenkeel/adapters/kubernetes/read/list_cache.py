"""What a warm instance keeps between its looks: node groups as they were last read, while the lists say the same."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from evenkeel.adapters.kubernetes.client.lists import ReceivedList, fingerprint_of
from evenkeel.adapters.kubernetes.read.groups import GroupObjects
from evenkeel.domain.model.observations import Skipped

# Of lists as they were received, by their weight. The groups that are read from them take about as much memory.
MOST_BYTES = 160 * 2**20

ReadGroups = tuple[list[GroupObjects], list[Skipped]]


class _Kept(NamedTuple):
    fingerprint: bytes
    size: int  # the weight of the lists
    groups: ReadGroups


class ListCache:
    """The groups of clusters that are only looked at, read one cluster at a time: reading takes the most memory.

    Groups follow from lists and settings alone, so where these are the same to the byte, so are the groups: nothing
    else has to be told for them to be dropped.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._turn = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()  # by cluster and flavour, the last used last
        self._size = 0

    def groups(
        self,
        place: tuple[str, str],
        lists: Sequence[ReceivedList],
        settings: object,
        read: Callable[[], ReadGroups],
    ) -> ReadGroups:
        """What ``read`` gives for these lists and settings, whose ``repr`` says all of them.

        ``place``: cluster and flavour. Raises what ``read`` raises.
        """
        fingerprint = fingerprint_of(lists, repr(settings))
        with self._turn:
            kept = self._take(place)
            if kept is None or kept.fingerprint != fingerprint:
                groups = read()
                if fingerprint is None:
                    return groups
                kept = _Kept(fingerprint, sum(received.weight for received in lists), groups)
            self._put(place, kept)
            return kept.groups

    def _take(self, place: tuple[str, str]) -> _Kept | None:
        kept = self._kept.pop(place, None)
        self._size -= kept.size if kept is not None else 0
        return kept

    def _put(self, place: tuple[str, str], kept: _Kept) -> None:
        self._kept[place] = kept
        self._size += kept.size
        while self._size > self._most_bytes:
            self._take(next(iter(self._kept)))
