"""The number of nodes that a pool needs so that enough remain after the loss of any one zone.

The largest zone decides: if the pool survives the loss of its largest zone, it survives the loss of every other zone. A
node in the largest zone adds nothing to what remains. So no zone grows above the lowest height at which the other zones
can hold enough.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from evenkeel.domain.model.water_fill import water_fill


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """The nodes that one zone, or one group of a zone, may hold: at least ``least``, at most ``most``."""

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


def fewest(shares: Sequence[Share], needed: int) -> list[int] | None:
    """Return the fewest nodes of each group of which ``needed`` remain without the largest zone.

    Nodes are added to zones, by weight, and each zone divides its nodes among its groups. None: the groups cannot hold
    as many.
    """
    groups: dict[str, list[int]] = {}
    for i, share in enumerate(shares):
        groups.setdefault(share.zone, []).append(i)
    zones = [_zone_of([shares[i] for i in members]) for members in groups.values()]

    def remaining(height: int) -> int:
        """Return how many nodes remain if every zone grows up to this height, as far as it can."""
        return sum(min(zone.most, height) for zone in zones) - height

    lowest, highest = max(zone.least for zone in zones), max(zone.most for zone in zones)
    if remaining(highest) < needed:
        return None
    height = bisect_left(range(highest), needed, lo=lowest, key=remaining)
    missing = needed + height - sum(zone.least for zone in zones)
    limited = [replace(zone, most=min(zone.most, height)) for zone in zones]
    nodes = [share.least for share in shares]
    for members, more in zip(groups.values(), _added(limited, missing), strict=True):
        for i, added in zip(members, _added([shares[i] for i in members], more), strict=True):
            nodes[i] += added
    return nodes


def _zone_of(groups: Sequence[Share]) -> Share:
    """Return the share of a zone with these groups. Its weight is that of its heaviest group."""
    return Share(
        zone=groups[0].zone,
        least=sum(group.least for group in groups),
        most=sum(group.most for group in groups),
        weight=max(group.weight for group in groups),
        tie=min(group.tie for group in groups),
    )


def _added(shares: Sequence[Share], amount: int) -> list[int]:
    """Return how many of these nodes each share gets."""
    room = [share.most - share.least for share in shares]
    weights = [share.weight for share in shares]
    return water_fill(amount, [share.least for share in shares], room, lambda i: shares[i].tie, weights)
