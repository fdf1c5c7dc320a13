"""Balanced, our own strategy: the headroom of a pool dealt out once, to where it can be used.

The maxima add up to PoolMaximum, so no number of autoscaler loops can pass it. What was dealt stands long enough for
every loop to read it; what a zone has used up is followed by more where the other zones stand still meanwhile: then
only that zone can serve the demand. The pool remembers what it has dealt, for that (:class:`Publication`).

The steps are numbered as in docs/strategies.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from evenkeel.domain.bounds.gep24 import Seat, Size
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.states import Publication
from evenkeel.domain.model.water_fill import Bucket, water_fill


@dataclass(frozen=True, kw_only=True)
class Dealt:
    """Sizes, what to remember of them, and when time alone may change them."""

    sizes: list[Size]
    publication: Publication
    look_at: datetime | None


def deal(
    minimum: int,
    maximum: int,
    seats: Sequence[Seat],
    known: Publication | None,
    *,
    grower: str,
    stood_since: datetime,
    still: timedelta,
    now: datetime,
) -> Dealt:
    """Size every seat, as before where nothing calls for a change.

    Args:
        minimum: PoolMinimum.
        maximum: PoolMaximum.
        seats: The groups in zone order.
        known: What was dealt out last; None: nothing is known of it.
        grower: Key of the group that has grown last, as far as it has been seen; else empty.
        stood_since: Since when requested has been seen as it is in every group.
        still: For how long others must have stood still before a group at its bound is lent their headroom.
        now: The time.
    """
    table = _Table(maximum, seats)
    targets = {seat.key: seat.target for seat in seats}
    fresh = Publication(at=now, basis=table.basis, targets=targets, grower=grower or (known.grower if known else ""))
    look_at: datetime | None = None
    published = fresh
    if known is None or known.basis != table.basis:
        table.level_out(fresh.grower, 0)
    elif known.targets != targets:
        at_bound = [] if table.is_scarce else table.at_their_bound(known)
        if at_bound and now < stood_since + still:
            table.keep(known, "stands while other zones may still grow")
            published, look_at = replace(known, grower=fresh.grower), stood_since + still
        elif at_bound:
            table.lend(at_bound)
            published = replace(fresh, lent=True)
        else:
            table.level_out(fresh.grower, 0)
    elif now < known.stands_until:
        table.level_out(known.grower, known.turn)
        if not table.is_as(known):
            table = _Table(maximum, seats)
            table.keep(known, "stands until every autoscaler loop has read it")
        published = known
    elif known.lent or not table.is_scarce:
        # What was lent and not used goes back. Else nothing changes: the same deal for the same pool.
        table.level_out(known.grower, 0)
        published = replace(fresh, grower=known.grower) if known.lent else known
    else:
        # Nobody has used the last nodes where they are.
        table.level_out(known.grower, known.turn + 1)
        published = replace(fresh, grower=known.grower, turn=known.turn + 1)
    sizes = table.sizes(minimum)
    maxima = {seat.key: size.max for seat, size in zip(seats, sizes, strict=True)}
    if published is not known and look_at is None:
        published = replace(published, maxima=maxima)
    if look_at is None and (published.lent or table.is_scarce):
        look_at = published.stands_until
    return Dealt(sizes=sizes, publication=published, look_at=look_at)


class _Table:
    """One deal: who sits there, what is left, and who has got what and why."""

    def __init__(self, maximum: int, seats: Sequence[Seat]) -> None:
        self._seats = seats
        self._live = [i for i, seat in enumerate(seats) if seat.state is not State.FROZEN]
        self._extra = [0] * len(seats)
        self._why = [""] * len(seats)
        # 1. What is left of PoolMaximum. A frozen group keeps its bounds, so its room is spoken for; an owner that
        # accepts no max of 0 takes its one node of headroom first, or the sum would pass PoolMaximum.
        for i, seat in enumerate(seats):
            if seat.state is State.FROZEN and seat.bounds is not None:
                self._extra[i] = max(0, seat.bounds.max - seat.target)
        self._left = max(0, maximum - sum([seat.target for seat in seats]) - sum(self._extra))
        self._spoken_for = self._left
        # How far the operator lets each grow beyond its target. Without a cap, never less than what is left.
        self._caps = [maximum if seat.zone_max is None else seat.zone_max - seat.target for seat in seats]
        for i in self._live:
            if (short := seats[i].owner_min_max - seats[i].target) > 0:
                taken = min(short, self._left)
                self._extra[i] += taken
                self._left -= taken
        self._healthy = [i for i in self._live if seats[i].state is State.HEALTHY and self._caps[i] > 0]
        # 2. A probe is one machine. (A fenced group gets nothing: its max is its target.)
        self._smallest_first = sorted(self._live, key=lambda i: (seats[i].target, seats[i].tie))
        self._probing = [
            i
            for i in self._smallest_first
            if seats[i].state is State.PROBING and seats[i].probe and self._caps[i] > 0 and not self._extra[i]
        ]
        self.is_scarce = 0 < self._left < len(self._healthy) + len(self._probing)
        if not self.is_scarce:
            for i in self._probing:
                self._give(i, 1, "one node to probe whether the zone delivers again")
        self.basis = f"{maximum} " + " ".join([_basis(seat) for seat in seats])

    def _give(self, i: int, nodes: int, reason: str) -> None:
        given = min(nodes, self._left, self._caps[i] - self._extra[i])
        if given > 0:
            self._extra[i] += given
            self._left -= given
            self._why[i] = f"{self._why[i]}; {reason}" if self._why[i] else reason

    def keep(self, known: Publication, reason: str) -> None:
        """3. What was published stays as it is, as far as there is headroom for it."""
        for i in self._healthy + self._probing:
            seat = self._seats[i]
            self._give(i, known.maxima.get(seat.key, 0) - seat.target - self._extra[i], reason)

    def is_as(self, known: Publication) -> bool:
        """Whether what has been dealt is what was published."""
        return all(
            self._seats[i].target + self._extra[i] == known.maxima.get(self._seats[i].key)
            for i in self._healthy + self._probing
        )

    def at_their_bound(self, known: Publication) -> list[int]:
        """The groups that have used up what they were offered, while others with headroom stand where they stood."""
        used_up = []
        others = False
        for i, seat in enumerate(self._seats):
            before, offered = known.targets.get(seat.key), known.maxima.get(seat.key)
            if before is None or offered is None:
                return []
            if seat.state is State.HEALTHY and seat.target == offered > before:
                used_up += [i] if self._caps[i] > 0 else []
            elif seat.target != before:
                return []
            else:
                others |= seat.state is State.HEALTHY and offered > before
        return used_up if others else []

    def lend(self, at_bound: Sequence[int]) -> None:
        """4. All of the headroom but one node for each other healthy group."""
        for i in self._smallest_first:
            if not self._extra[i] and i in set(self._healthy) - set(at_bound):
                self._give(i, 1, "one node of headroom")
        buckets = [Bucket(level=0, room=self._caps[i] - self._extra[i], tie=self._seats[i].tie) for i in at_bound]
        for i, more in zip(at_bound, water_fill(buckets, self._left), strict=True):
            self._give(i, more, "lent: it has used up its own, and the others stand still")
        self._level_rest()  # what their caps leave of it

    def level_out(self, grower: str, turn: int) -> None:
        """5 and 6. The last nodes to one after the other; else one for each healthy group, and the rest levelled."""
        if self.is_scarce:
            self._last_nodes(grower, turn)
            return
        healthy = set(self._healthy)
        for i in self._smallest_first:
            if not self._extra[i] and i in healthy:
                self._give(i, 1, "one node of headroom")
        self._level_rest()

    def _last_nodes(self, grower: str, turn: int) -> None:
        healthy, probing = set(self._healthy), set(self._probing)
        order = [i for i in self._smallest_first if i in healthy or i in probing]
        order.sort(key=lambda i: (self._seats[i].key != grower, i not in probing))
        start = turn % len(order)
        order = order[start:] + order[:start]
        if self._seats[order[0]].key == grower and order[0] in healthy:
            self._give(order[0], self._left, "the last nodes stay where the pool has grown last")
        reason = "one of the last nodes" + (", which nobody else has used" if turn else "")
        for i in order:
            self._give(i, 1, reason)
        for i in order:
            self._give(i, self._left if i in healthy else 0, reason)

    def _level_rest(self) -> None:
        if not self._left:
            return
        buckets = [
            Bucket(
                level=self._seats[i].target + self._extra[i],
                room=self._caps[i] - self._extra[i],
                weight=self._seats[i].weight,
                tie=self._seats[i].tie,
            )
            for i in self._healthy
        ]
        for i, more in zip(self._healthy, water_fill(buckets, self._left), strict=True):
            self._give(i, more, "levelled with the other zones")

    def sizes(self, minimum: int) -> list[Size]:
        """7. With PoolMinimum levelled over the groups, never above what is there."""
        minima = [
            seat.bounds.min if seat.state is State.FROZEN and seat.bounds is not None else 0 for seat in self._seats
        ]
        buckets = [
            Bucket(
                level=0,
                room=min(seat.running, seat.target) if seat.state is State.FENCED else seat.target,
                tie=seat.tie,
            )
            for seat in (self._seats[i] for i in self._live)
        ]
        for i, share in zip(self._live, water_fill(buckets, minimum - sum(minima)), strict=True):
            minima[i] = share
        return [
            Size(
                minima[i],
                seat.target + self._extra[i],
                f"Balanced: {self._extra[i]} of the pool's {self._spoken_for} nodes of headroom"
                + (f" ({self._why[i]})" if self._why[i] else ""),
            )
            for i, seat in enumerate(self._seats)
        ]


def _basis(seat: Seat) -> str:
    """What a deal rests on besides the seat's target."""
    probe = seat.probe if seat.state is State.PROBING else ""
    room = seat.bounds.max if seat.state is State.FROZEN and seat.bounds is not None else ""
    return f"{seat.key}:{seat.state.value}:{probe}{room}:{seat.weight}:{seat.zone_max}:{seat.owner_min_max}"
