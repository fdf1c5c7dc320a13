"""The number of nodes that a pool needs so that enough remain after the loss of any one zone.

The largest zone decides: if the pool survives the loss of its largest zone, it survives the loss of every other zone.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from evenkeel.domain.model.water_fill import water_fill


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """The nodes that one group of a pool may hold: at least ``least``, at most ``most``."""

    zone: str
    least: int
    most: int
    weight: int = 1
    tie: int = 0


def rest(zones: Sequence[str], nodes: Sequence[int]) -> int:
    """Return how many of these nodes remain after the loss of the zone with the most nodes."""
    in_zone: Counter[str] = Counter()
    for zone, count in zip(zones, nodes, strict=True):
        in_zone[zone] += count
    return in_zone.total() - max(in_zone.values(), default=0)


def levelled(shares: Sequence[Share], needed: int, *, total: int = 0) -> list[int] | None:
    """Return the fewest nodes of each group, leveled, of which ``needed`` remain without the largest zone.

    None: the groups cannot hold as many. Leveling adds one node at a time, and no node lowers what remains. So the
    least number is found by bisection. The result has at least ``total`` nodes, as far as the groups can hold them.
    """
    least = [share.least for share in shares]
    room = [share.most - share.least for share in shares]
    weights = [share.weight for share in shares]
    zones = [share.zone for share in shares]

    def with_added(added: int) -> list[int]:
        filled = water_fill(added, least, room, lambda i: shares[i].tie, weights)
        return [low + more for low, more in zip(least, filled, strict=True)]

    total_room = sum(room)
    if rest(zones, with_added(total_room)) < needed:
        return None
    fewest = bisect_left(range(total_room), needed, key=lambda added: rest(zones, with_added(added)))
    return with_added(max(fewest, total - sum(least)))
