"""The sizing strategies of GEP-24: from a pool's numbers and its groups' counts to (min, max) per group.

They work on the counted nodes, so that the published scans come out as published. None of them is published as it is:
the fence and the safety pass come after (:mod:`evenkeel.domain.plan`). Balanced, which works on targets and remembers
what it has published, has a module of its own.

Sources: GEP-24 section 3.1 (Lax-Greedy; Adaptive in its last revision) and 3.2 (Backward-Compatible).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from evenkeel.domain.bounds.distribute import distribute_over_zones
from evenkeel.domain.model.choices import Strategy
from evenkeel.domain.model.groups import Bounds, State
from evenkeel.domain.model.water_fill import Bucket, water_fill


@dataclass(kw_only=True, slots=True)  # not frozen, which costs as much again: a scan makes one per group
class Seat:
    """A node group as the formulas see it. Seats come in zone order."""

    key: str = ""
    counted: int  # requested; running and on its way where fenced
    target: int  # requested after release, take-back and the raise to PoolMinimum
    running: int
    state: State
    probe: int = 1  # how far it may grow while probing
    bounds: Bounds | None = None  # as Cluster Autoscaler reads them now
    weight: int = 1
    zone_max: int | None = None
    owner_min_max: int = 0
    tie: int = 0


class Size(NamedTuple):
    """What a formula says for one seat. Not yet safe: may be negative, or min above max."""

    min: int
    max: int
    why: str


Formula = Callable[[int, int, Sequence[Seat]], list[Size]]


def _others(seats: Sequence[Seat]) -> list[int]:
    """What all the others hold, for each seat."""
    total = sum([seat.counted for seat in seats])
    return [total - seat.counted for seat in seats]


def lax_greedy(_minimum: int, maximum: int, seats: Sequence[Seat]) -> list[Size]:
    """Every zone may take all that the others do not hold. GEP-24 3.1, first revisions. PoolMinimum is not in it."""
    return [
        Size(0, maximum - others, f"Lax-Greedy: PoolMaximum {maximum} less {others} elsewhere")
        for others in _others(seats)
    ]


def backward_compatible(minimum: int, maximum: int, seats: Sequence[Seat]) -> list[Size]:
    """Gardener's static split. GEP-24 3.2.

    Where PoolMaximum is smaller than the number of zones, the shares that are not zero go to healthy zones, and there
    to those that hold nodes, instead of to the first in the list.
    """
    zones = len(seats)
    order = list(range(zones))
    if maximum < zones:
        order.sort(key=lambda i: (seats[i].state is not State.HEALTHY, seats[i].target == 0, i))
    rank = {i: place for place, i in enumerate(order)}
    return [
        Size(
            distribute_over_zones(rank[i], minimum, zones),
            distribute_over_zones(rank[i], maximum, zones),
            f"Backward-Compatible: share {rank[i] + 1} of {zones} of PoolMinimum {minimum} and PoolMaximum {maximum}",
        )
        for i in range(zones)
    ]


def adaptive(minimum: int, maximum: int, seats: Sequence[Seat]) -> list[Size]:
    """Max as Lax-Greedy; min shared out, the minima of fenced zones carried by the others. GEP-24, last revision.

    Three things it leaves open are closed here. Nodes that run in fenced zones count towards PoolMinimum; min never
    exceeds max, and what that cuts off goes to groups with room; with every zone fenced the last bounds stay.
    """
    zones = len(seats)
    good = [i for i in range(zones) if seats[i].state is not State.FENCED]
    if not good:
        return [
            Size(seat.bounds.min, seat.bounds.max, "Adaptive: every zone is fenced, so the last bounds stay")
            if seat.bounds
            else Size(0, seat.target, "Adaptive: every zone is fenced and there are no last bounds to keep")
            for seat in seats
        ]
    shares = [distribute_over_zones(i, minimum, zones) for i in range(zones)]
    fenced = set(range(zones)) - set(good)
    carried = max(0, sum(shares[i] for i in fenced) - sum(seats[i].running for i in fenced))
    others = _others(seats)
    maxima = [maximum - elsewhere for elsewhere in others]
    minima = [0] * zones
    for place, i in enumerate(good):
        minima[i] = shares[i] + distribute_over_zones(place, carried, len(good))
    cut = [max(0, min(minima[i], maxima[i])) for i in range(zones)]
    missing = sum(minima) - sum(cut)
    buckets = [Bucket(level=cut[i], room=max(0, maxima[i] - cut[i]), tie=place) for place, i in enumerate(good)]
    for i, more in zip(good, water_fill(buckets, missing), strict=True):
        cut[i] += more
    return [
        Size(
            cut[i],
            maxima[i],
            f"Adaptive: PoolMaximum {maximum} less {others[i]} elsewhere"
            + ("; min 0 while fenced" if i in fenced else ""),
        )
        for i in range(zones)
    ]


FORMULAS: dict[Strategy, Formula] = {
    Strategy.LAX_GREEDY: lax_greedy,
    Strategy.BACKWARD_COMPATIBLE: backward_compatible,
    Strategy.ADAPTIVE: adaptive,
}
