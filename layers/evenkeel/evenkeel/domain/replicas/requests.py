"""Growth that somebody asks for, and giving back: K nodes split over a pool at once.

Adding goes as Cluster Autoscaler's balancing does it (processors/nodegroupset/balancing_processor.go:79-181): one at a
time to the smallest group below its max, in closed form. Giving back is the mirror of it, which Cluster Autoscaler
never got (kubernetes/autoscaler#3693): one at a time from the largest group above its min.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from evenkeel.domain.model.groups import PoolId, State
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.plans import Refusal
from evenkeel.domain.model.pools import Pool
from evenkeel.domain.model.states import PoolState
from evenkeel.domain.model.values import shown
from evenkeel.domain.model.water_fill import Bucket, water_fill
from evenkeel.domain.replicas.redistribution import Target

# Whoever still needs the nodes after that will have asked again.
SCALE_REQUEST_KEPT = timedelta(hours=1)


TOO_OLD = "older than an hour: ask again"


def share_out(
    scale_requests: Iterable[ScaleRequest], pools: Sequence[Pool], states: Mapping[PoolId, PoolState], now: datetime
) -> tuple[dict[PoolId, ScaleRequest], list[Refusal]]:
    """Which pool takes which request: one each, the oldest first. What a crash left undone goes first.

    Whoever is not first in its pool waits for the next look.
    """
    taken = {pool.id: pool.scale_request for pool in pools if pool.scale_request is not None}
    begun = {known.move.request: id for id, known in states.items() if known.move is not None and known.move.request}
    waiting = sorted(scale_requests, key=lambda scale_request: (scale_request.at, scale_request.id))
    index = _Index(pools if waiting else ())
    refused = []
    for scale_request in waiting:
        where = begun.get(scale_request.id)
        if where in taken:
            # Its hour began when it was asked for, however often it was begun.
            taken[where] = replace(taken[where], at=scale_request.at)
            continue
        found = index.concerned(scale_request)
        if now - scale_request.at > SCALE_REQUEST_KEPT:
            refused.append(Refusal(scale_request=scale_request, reason=f"{scale_request.what}: {TOO_OLD}"))
        elif where is not None:
            # Relabelled or deleted meanwhile: nobody can say any more how much of it was done.
            problem = f"begun in pool {where}, which is not here any more: ask again for what is missing"
            refused.append(Refusal(scale_request=scale_request, reason=f"{scale_request.what}: {problem}"))
        elif len(found) != 1:
            named = shown(scale_request.pool or scale_request.group)
            which = ", ".join(str(pool.id) for pool in found)
            problem = f"which of {which}? Name one" if found else "no pool here has that name, or a group of that name"
            refused.append(Refusal(scale_request=scale_request, reason=f"{scale_request.what} of {named}: {problem}"))
        elif unknown := scale_request.only - index.groups_of(found[0]):
            problem = f"only: {', '.join(shown(name) for name in sorted(unknown))}: no group of pool {found[0].id}"
            refused.append(Refusal(scale_request=scale_request, reason=f"{scale_request.what}: {problem}"))
        elif found[0].problems:
            reason = f"{scale_request.what}: pool {found[0].id} is invalid: it waits for that to be mended"
            refused.append(Refusal(scale_request=scale_request, reason=reason, waits=True))
        elif (first := taken.setdefault(found[0].id, scale_request)) is not scale_request:
            reason = f"{scale_request.what}: it waits for request {first.id} of the same pool"
            refused.append(Refusal(scale_request=scale_request, reason=reason, waits=True))
    return taken, refused


class _Index:
    """The pools by every name that a request may use, so that a request costs the same however many pools there are."""

    def __init__(self, pools: Sequence[Pool]) -> None:
        self._pools = pools
        self._by_pool: dict[str, list[Pool]] = defaultdict(list)
        self._by_group: dict[str, list[Pool]] = defaultdict(list)
        self._groups: dict[PoolId, frozenset[str]] = {}
        for pool in pools:
            self._groups[pool.id] = frozenset().union(*(group.key.names for group in pool.groups))
            for name in pool.id.names:
                self._by_pool[name].append(pool)
            for name in self._groups[pool.id]:
                self._by_group[name].append(pool)

    def groups_of(self, pool: Pool) -> frozenset[str]:
        """Every name that a group of the pool may be called by."""
        return self._groups[pool.id]

    def concerned(self, scale_request: ScaleRequest) -> Sequence[Pool]:
        """The pools that the request may mean."""
        if not scale_request.pool:
            return self._by_group.get(scale_request.group, ()) if scale_request.group else self._pools
        named = self._by_pool.get(scale_request.pool, ())
        return [pool for pool in named if not scale_request.group or scale_request.group in self.groups_of(pool)]


def grow(targets: Sequence[Target], scale_request: ScaleRequest, caps: Sequence[int | None], maximum: int) -> int:
    """Split the nodes over the groups that may have them. Returns how many found no room.

    Never past a group's max (``caps``; None: it has none) or PoolMaximum, and only healthy groups: nobody else could
    deliver.
    """
    allowed = min(scale_request.nodes, max(0, maximum - sum(target.requested for target in targets)))
    rooms, why = [], []
    for target, cap in zip(targets, caps, strict=True):
        room = target.room if cap is None else min(target.room, max(0, cap - target.requested))
        reason = _why_not(target, scale_request) or ("" if room else "it is at its max")
        rooms.append(0 if reason else room)
        why.append(reason)
    # By size and nothing else, as Cluster Autoscaler does: weights are for headroom.
    buckets = [Bucket(level=t.requested, room=room, tie=t.tie) for t, room in zip(targets, rooms, strict=True)]
    left = scale_request.nodes
    for target, more, reason in zip(targets, water_fill(buckets, allowed), why, strict=True):
        if more:
            target.requested += more
            target.journal_delta += more
            left -= more
            target.reasons.append(f"raised by {more}, its share of the {scale_request.what}: the smallest first")
        elif reason:
            target.reasons.append(f"no share of the {scale_request.what}: {reason}")
    return left


def _why_not(target: Target, scale_request: ScaleRequest) -> str:
    """Why a group may not grow for this request, however much room it has; empty where it may."""
    if not scale_request.fits(target.group):
        return "its pods do not fit here"
    if target.state is not State.HEALTHY:
        return f"it is {target.state.value}"
    return "it is at zero, and its cpu and memory are unknown" if target.group.closed_because is not None else ""


def give_back(targets: Sequence[Target], scale_request: ScaleRequest, minimum: int) -> int:
    """Take the nodes from the largest groups. Returns how many have to stay.

    Never below a group's min or PoolMinimum. Fenced groups come last: what they give up they could not get back.
    """
    left = -scale_request.nodes
    allowed = min(left, max(0, sum(target.requested for target in targets) - minimum))
    by_turns: tuple[Callable[[Target], bool], ...] = (
        lambda target: target.state in (State.HEALTHY, State.PROBING),
        lambda target: target.state is State.FENCED,
    )
    for turn in by_turns:
        givers = [target for target in targets if turn(target) and scale_request.fits(target.group)]
        buckets = [Bucket(level=-target.requested, room=_spare(target), tie=target.tie) for target in givers]
        for target, less in zip(givers, water_fill(buckets, allowed), strict=True):
            if less:
                target.requested -= less
                target.journal_delta -= less
                target.may_remove_running = True
                allowed -= less
                left -= less
                target.reasons.append(f"gives back {less}, its share of the {scale_request.what}: the largest first")
    return left


def _spare(target: Target) -> int:
    if target.requested > target.group.requested:
        return 0  # this very look raises it: there is nothing yet to give back
    bounds = target.group.bounds
    return max(0, target.requested - max(target.owner_min, 0 if bounds is None else bounds.min))
