"""The four sizing strategies: from a pool's numbers and its groups' counts to (min, max) per group.

GEP-24's three formulas work on the counted nodes, so that its published scans come out as published. Balanced works on
targets. None of them is published as it is: the fence and the safety pass come after (:mod:`evenkeel.domain.plan`).

Sources: GEP-24 section 3.1 (Lax-Greedy; Adaptive in its last revision) and 3.2 (Backward-Compatible);
Balanced: docs/strategies.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from evenkeel.domain.distribute import distribute_over_zones
from evenkeel.domain.levelling import Vessel, level
from evenkeel.domain.model import Bounds, State, Strategy


@dataclass(kw_only=True, slots=True)  # not frozen, which costs as much again: a scan makes one per group
class Seat:
    """A node group as the formulas see it. Seats come in zone order."""

    counted: int  # requested; running where fenced
    target: int  # requested after release, take-back and the raise to PoolMinimum
    running: int
    state: State
    probe: int = 1  # how far it may grow while probing
    bounds: Bounds | None = None  # as Cluster Autoscaler reads them now
    at_bound: bool = False  # has grown to the max it was offered
    weight: int = 1
    zone_max: int | None = None
    floor_max: int = 0
    tie: int = 0


class Size(NamedTuple):
    """What a formula says for one seat. Not yet safe: may be negative, or min above max."""

    min: int
    max: int
    why: str


Formula = Callable[[int, int, Sequence[Seat]], list[Size]]


def _others(seats: Sequence[Seat], i: int) -> int:
    return sum(seat.counted for seat in seats) - seats[i].counted


def lax_greedy(_minimum: int, maximum: int, seats: Sequence[Seat]) -> list[Size]:
    """Every zone may take all that the others do not hold. GEP-24 3.1, first revisions. PoolMinimum is not in it."""
    return [
        Size(0, maximum - _others(seats, i), f"Lax-Greedy: PoolMaximum {maximum} less {_others(seats, i)} elsewhere")
        for i in range(len(seats))
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
    fenced = [i for i in range(zones) if i not in good]
    carried = max(0, sum(shares[i] for i in fenced) - sum(seats[i].running for i in fenced))
    maxima = [maximum - _others(seats, i) for i in range(zones)]
    minima = [0] * zones
    for place, i in enumerate(good):
        minima[i] = shares[i] + distribute_over_zones(place, carried, len(good))
    cut = [max(0, min(minima[i], maxima[i])) for i in range(zones)]
    missing = sum(minima) - sum(cut)
    vessels = [Vessel(level=cut[i], room=max(0, maxima[i] - cut[i]), tie=place) for place, i in enumerate(good)]
    for i, more in zip(good, level(vessels, missing), strict=True):
        cut[i] += more
    return [
        Size(
            cut[i],
            maxima[i],
            f"Adaptive: PoolMaximum {maximum} less {_others(seats, i)} elsewhere"
            + ("; min 0 while fenced" if i in fenced else ""),
        )
        for i in range(zones)
    ]


def balanced(minimum: int, maximum: int, seats: Sequence[Seat]) -> list[Size]:
    """Headroom dealt out once: the maxima add up to PoolMaximum, so no number of autoscaler loops can pass it.

    The steps are numbered as in docs/strategies.md.
    """
    live = [i for i, seat in enumerate(seats) if seat.state is not State.FROZEN]
    healthy = [i for i in live if seats[i].state is State.HEALTHY]
    extra = [0] * len(seats)
    minima = [0] * len(seats)
    why = [""] * len(seats)
    # 1. What is left of PoolMaximum. A frozen group keeps its bounds, so its room is spoken for.
    if len(live) < len(seats):
        for i, seat in enumerate(seats):
            if seat.state is State.FROZEN and seat.bounds is not None:
                extra[i] = max(0, seat.bounds.max - seat.target)
                minima[i] = seat.bounds.min
    left = spoken_for = max(0, maximum - sum([seat.target for seat in seats]) - sum(extra))
    # How far the operator lets each grow beyond its target. Without a cap, never less than what is left.
    caps = [maximum if seat.zone_max is None else seat.zone_max - seat.target for seat in seats]

    def give(i: int, nodes: int, reason: str) -> None:
        nonlocal left
        given = min(nodes, left, caps[i] - extra[i])
        if given > 0:
            extra[i] += given
            left -= given
            why[i] = f"{why[i]}; {reason}" if why[i] else reason

    # An owner that accepts no max of 0 takes its one node of headroom first, or the sum would pass PoolMaximum.
    for i in live:
        short = seats[i].floor_max - seats[i].target
        if short > 0:
            taken = min(short, left)
            extra[i] += taken
            left -= taken
    # 2. A probe is one machine. (A fenced group gets nothing: its max is its target.)
    smallest_first = sorted(live, key=lambda i: (seats[i].target, seats[i].tie))
    if len(healthy) < len(live):
        for i in smallest_first:
            if seats[i].state is State.PROBING and not extra[i]:
                give(i, seats[i].probe, "one node to probe whether the zone delivers again")
    # 3. Half of the rest to groups that used up what they were offered: maybe only their zone can serve the demand.
    at_bound = [i for i in healthy if seats[i].at_bound]
    if at_bound:
        vessels = [Vessel(level=0, room=caps[i] - extra[i], tie=seats[i].tie) for i in at_bound]
        for i, more in zip(at_bound, level(vessels, -(-left // 2)), strict=True):
            give(i, more, "at its bound, so it shares half of the headroom")
    # 4. No healthy zone is left without room while there is any.
    for i in smallest_first:
        if not extra[i] and i in healthy and i not in at_bound:
            give(i, 1, "one node of headroom")
    # 5. The rest makes zones even.
    if left:
        vessels = [
            Vessel(
                level=seats[i].target + extra[i],
                room=caps[i] - extra[i],
                weight=seats[i].weight,
                tie=seats[i].tie,
            )
            for i in healthy
        ]
        for i, more in zip(healthy, level(vessels, left), strict=True):
            give(i, more, "levelled with the other zones")
    # 6. PoolMinimum, levelled, never above what is there.
    vessels = [
        Vessel(
            level=0,
            room=min(seats[i].running, seats[i].target) if seats[i].state is State.FENCED else seats[i].target,
            tie=seats[i].tie,
        )
        for i in live
    ]
    for i, share in zip(live, level(vessels, minimum - sum(minima)), strict=True):
        minima[i] = share
    return [
        Size(
            minima[i],
            seat.target + extra[i],
            f"Balanced: {extra[i]} of the pool's {spoken_for} nodes of headroom" + (f" ({why[i]})" if why[i] else ""),
        )
        for i, seat in enumerate(seats)
    ]


FORMULAS: dict[Strategy, Formula] = {
    Strategy.LAX_GREEDY: lax_greedy,
    Strategy.BACKWARD_COMPATIBLE: backward_compatible,
    Strategy.ADAPTIVE: adaptive,
    Strategy.BALANCED: balanced,
}
