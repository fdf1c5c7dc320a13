"""Nodes that somebody asks for, and giving back: K nodes split over a pool at once.

Adding goes as Cluster Autoscaler's balancing does it (processors/nodegroupset/balancing_processor.go:79-181): one at a
time to the smallest group below its max, in closed form. Giving back is the mirror of it, which Cluster Autoscaler
never got (kubernetes/autoscaler#3693): one at a time from the largest group above its min.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType

from evenkeel.domain.model.demand import KeptNodes
from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import PoolId, State
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.plans import Refusal, TakenOff
from evenkeel.domain.model.pools import AnyPool, InvalidPool
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.reasons import Reason, Rule, because
from evenkeel.domain.model.states import PoolState
from evenkeel.domain.model.water_fill import Bucket, water_fill
from evenkeel.domain.replicas.removal import remove


def share_out(
    scale_requests: Iterable[ScaleRequest],
    pools: Sequence[AnyPool],
    states: Mapping[PoolId, PoolState],
    now: datetime,
    *,
    awaited: Mapping[PoolId, frozenset[str]] = MappingProxyType({}),
) -> tuple[dict[PoolId, ScaleRequest], list[Refusal]]:
    """Which pool takes which request: one each, the oldest first. What a crash left undone goes first.

    Whoever is not first in its pool waits for the next look. So does a request for a pool with absent groups:
    ``awaited`` has the known groups of each such pool, by key.
    """
    assigned = {pool.id: pool.scale_request for pool in pools if pool.scale_request is not None}
    begun = _begun(states)
    waiting = sorted(scale_requests, key=_turn)
    index = _Index(pools if waiting else ())
    refusals = []
    for request in waiting:
        pool = begun.get(request.id)
        if pool in assigned:
            # Its hour began when it was asked for, however often it was begun.
            assigned[pool] = replace(assigned[pool], at=request.at)
            continue
        candidates = index.concerned(request)
        request = _in_its_turn(request, candidates, states)
        if not request.is_over(now) and _is_awaited(request, pool, candidates, awaited):
            refusals.append(Refusal(scale_request=request, problem=awaits_check(request)))
            continue
        problem = _refused(request, pool, candidates, index, now)
        if problem is None and (first := assigned.setdefault(candidates[0].id, request)) is not request:
            problem = _problem(ProblemKind.REQUEST_BEHIND_REQUEST, request, first=first.id)
        if problem is not None:
            refusals.append(Refusal(scale_request=request, problem=problem))
    return assigned, refusals


def take_off(
    scale_requests: Sequence[ScaleRequest],
    pools: Sequence[AnyPool],
    states: Mapping[PoolId, PoolState],
    now: datetime,
    *,
    awaited: Mapping[PoolId, frozenset[str]] = MappingProxyType({}),
) -> tuple[Sequence[ScaleRequest], list[TakenOff]]:
    """Return the requests that remain, and those to give nodes back that the rests of other requests answer.

    While nodes of a request are still to be added, no node that runs is removed for a request to give nodes back: it
    takes them off that rest. Each takes nodes off a rest once, however often it is planned.
    """
    begun = _begun(states)
    waiting = {request.id: request for request in scale_requests}
    rests = [request.id for request in sorted(scale_requests, key=_turn) if request.is_rest and request.id not in begun]
    givers = [request for request in sorted(scale_requests, key=_turn) if request.nodes < 0 and request.id not in begun]
    index = _Index(pools if rests and givers else ())
    taken_off = []
    for giver in givers if rests else ():
        candidates = index.concerned(giver)
        if _is_awaited(giver, None, candidates, awaited) or _refused(giver, None, candidates, index, now):
            continue
        concerned = [waiting[id] for id in rests if _may_take(giver, waiting[id], candidates[0], index)]
        before = {rest.id: rest.less[giver.id] for rest in concerned if giver.id in rest.less}
        wanted = -giver.nodes - sum(before.values())
        nodes = {}
        for rest in concerned:
            off = min(wanted, rest.nodes)
            if off > 0:
                wanted -= off
                nodes[rest.id] = off
                waiting[rest.id] = replace(rest, nodes=rest.nodes - off)
        if nodes or before:
            del waiting[giver.id]
            taken_off.append(TakenOff(scale_request=giver, nodes=nodes, before=before))
    return tuple(waiting.values()), taken_off


def _may_take(giver: ScaleRequest, rest: ScaleRequest, pool: AnyPool, index: "_Index") -> bool:
    """Return whether both requests concern this pool, and a group of it that both allow."""
    pools = index.concerned(rest)
    is_same = len(pools) == 1 and pools[0].id == pool.id
    return is_same and any(giver.fits(group) and rest.fits(group) for group in pool.groups)


def _begun(states: Mapping[PoolId, PoolState]) -> dict[str, PoolId]:
    """Return the pools in which a request has begun and is not ended, by the request's id."""
    return {state.move.request: id for id, state in states.items() if state.move is not None and state.move.request}


def _turn(request: ScaleRequest) -> tuple[datetime, str]:
    return request.at, request.id


def _in_its_turn(
    request: ScaleRequest, candidates: Sequence[AnyPool], states: Mapping[PoolId, PoolState]
) -> ScaleRequest:
    """Return the request, not older than the last step of its pool: until then it may have waited for its turn."""
    added_at = states.get(candidates[0].id, PoolState()).added_at if len(candidates) == 1 else None
    return request if added_at is None or added_at <= request.at else replace(request, at=added_at)


def awaits_check(request: ScaleRequest) -> Problem:
    """Return the problem of a request for which a second check must agree that node groups are absent."""
    return _problem(ProblemKind.REQUEST_AWAITS_CHECK, request)


def hold_for_pods(
    scale_requests: Sequence[ScaleRequest], states: Mapping[PoolId, PoolState], now: datetime
) -> tuple[Sequence[ScaleRequest], list[Refusal]]:
    """Return the requests to carry out while pods cannot be read, and a refusal for each that has to wait for them."""
    begun = _begun(states)
    held = [each for each in scale_requests if each.gives_number and each.id not in begun and not each.is_over(now)]
    refusals = [Refusal(scale_request=each, problem=_problem(ProblemKind.REQUEST_AWAITS_PODS, each)) for each in held]
    return tuple(each for each in scale_requests if each not in held), refusals


def _is_awaited(
    request: ScaleRequest,
    begun_in: PoolId | None,
    candidates: Sequence[AnyPool],
    awaited: Mapping[PoolId, frozenset[str]],
) -> bool:
    """Return whether a request may concern a pool with absent groups, so that a second check must agree first."""
    if begun_in is not None:
        return begun_in in awaited
    meant = {pool.id for pool in candidates}
    for id, keys in awaited.items():
        names = keys | {key.rpartition("/")[2] for key in keys}
        is_named = not request.pool or request.pool in id.names
        if id in meant or (is_named and (not request.group or request.group in names)):
            return True
    return False


def _refused(
    request: ScaleRequest, begun_in: PoolId | None, candidates: Sequence[AnyPool], index: "_Index", now: datetime
) -> Problem | None:
    """Why no pool takes a request; None: the only candidate does."""
    if request.is_over(now):
        return _problem(ProblemKind.REQUEST_TOO_OLD, request)
    if begun_in is not None:
        # Relabelled or deleted meanwhile: nobody can say any more how much of it was done.
        return _problem(ProblemKind.REQUEST_POOL_GONE, request, pool=str(begun_in))
    target = request.pool or request.group
    if not candidates:
        return _problem(ProblemKind.REQUEST_NOWHERE, request, named=target, group_of=index.pools_of_group(target))
    if len(candidates) > 1:
        pools = ", ".join(str(pool.id) for pool in candidates)
        return _problem(ProblemKind.REQUEST_AMBIGUOUS, request, named=target, pools=pools)
    pool = candidates[0]
    if unknown := request.only - index.groups_of(pool):
        names = tuple(sorted(unknown))
        return _problem(ProblemKind.REQUEST_UNKNOWN_GROUPS, request, names=names, pool=str(pool.id))
    if isinstance(pool, InvalidPool):
        return _problem(ProblemKind.REQUEST_POOL_INVALID, request, pool=str(pool.id))
    return None


def _problem(kind: ProblemKind, request: ScaleRequest, **facts: str | tuple[str, ...]) -> Problem:
    return Problem(kind, {"request": request.id, "nodes": request.nodes, **facts})


class _Index:
    """The pools by every name that a request may use, so that a request costs the same however many pools there are."""

    def __init__(self, pools: Sequence[AnyPool]) -> None:
        self._pools = pools
        self._by_pool: dict[str, list[AnyPool]] = defaultdict(list)
        self._by_group: dict[str, list[AnyPool]] = defaultdict(list)
        self._groups: dict[PoolId, frozenset[str]] = {}
        for pool in pools:
            self._groups[pool.id] = frozenset().union(*(group.key.names for group in pool.groups))
            for name in pool.id.names:
                self._by_pool[name].append(pool)
            for name in self._groups[pool.id]:
                self._by_group[name].append(pool)

    def groups_of(self, pool: AnyPool) -> frozenset[str]:
        """Every name that a group of the pool may be called by."""
        return self._groups[pool.id]

    def pools_of_group(self, name: str) -> tuple[str, ...]:
        """Return the names of the pools that have a group of this name or key."""
        return tuple(sorted({pool.id.name for pool in self._by_group.get(name, ())}))

    def concerned(self, request: ScaleRequest) -> Sequence[AnyPool]:
        """The pools that the request may mean."""
        if not request.pool:
            return self._by_group.get(request.group, ()) if request.group else self._pools
        pools = self._by_pool.get(request.pool, ())
        return [pool for pool in pools if not request.group or request.group in self.groups_of(pool)]


def begin_request(pool: PoolDraft) -> None:
    """A request waits while a move between zones is not ended, unless it has begun itself: one journal, one story.

    For pods that wait nothing is ordered either while the pool gives replicas up: until that is written, they may come.
    """
    step = pool.homing.step
    gives_in_step = pool.request is not None and pool.request.nodes < 0 and step is not None and step.is_open
    if pool.request is not None and pool.request.is_of_plan:
        if pool.moves or gives_in_step or any(draft.requested < draft.group.requested for draft in pool.groups):
            _drop(pool, pool.request)
    elif pool.pool.scale_request is None and (pool.moves or gives_in_step):
        pool.request, pool.request_waits = None, pool.request


def _drop(pool: PoolDraft, request: ScaleRequest) -> None:
    """Nothing comes of what the plan itself has asked for; of what it has begun before, the journal is closed."""
    begun = pool.pool.scale_request is not None
    pool.request = replace(request, nodes=0, shares={}, machines={}) if begun else None


def carry_out_request(pool: PoolDraft) -> None:
    """Nodes that are asked for are added, those given back are taken away; what cannot be stays unmet."""
    request = pool.request
    if request is None:
        return
    if request.is_over(pool.now):
        pool.unmet = abs(request.nodes) + request.later
    elif request.nodes > 0:
        pool.unmet = _grow(pool, request)
    elif request.machines:
        if not remove(pool, request.machines):
            _drop(pool, request)
    elif request.nodes < 0:
        pool.unmet = _give_back(pool, request)
    else:
        _leave(pool, request, 0)


def _grow(pool: PoolDraft, request: ScaleRequest) -> int:
    """Split the nodes over the groups that may have them. Returns how many found no room.

    Never past a group's max or PoolMaximum, and only healthy groups: nobody else could deliver. What max_step leaves to
    later runs is none of them.
    """
    rooms: list[int] = []
    obstacles: list[Reason | None] = []
    for draft, cap in zip(pool.groups, _caps(pool), strict=True):
        if request.is_of_plan:
            rooms.append(min(draft.room_for_pods, request.shares.get(draft.key, 0)))
            obstacles.append(None)
            continue
        room = draft.room if cap is None else min(draft.room, max(0, cap - draft.requested))
        obstacle = _obstacle(draft, request) or (None if room else because(Rule.AT_ITS_MAX))
        rooms.append(0 if obstacle else room)
        obstacles.append(obstacle)
    wanted = min(request.nodes, pool.free_on_request, sum(rooms))
    allowed = min(wanted, pool.may_add)
    # By size and nothing else, as Cluster Autoscaler does: weights are for headroom.
    buckets = [
        Bucket(level=draft.requested, room=room, tie=draft.tie) for draft, room in zip(pool.groups, rooms, strict=True)
    ]
    unmet = request.nodes
    for draft, more, obstacle in zip(pool.groups, water_fill(buckets, allowed), obstacles, strict=True):
        if more:
            draft.requested += more
            draft.journal_delta += more
            unmet -= more
            draft.because(Rule.REQUEST_SHARE, count=more, nodes=request.nodes, request=request.id)
        elif obstacle is not None:
            draft.because(Rule.REQUEST_NO_SHARE, nodes=request.nodes, request=request.id, why=obstacle)
    later = pool.add(request.nodes - unmet, wanted)
    _leave(pool, request, later)
    return unmet - later


def _leave(pool: PoolDraft, request: ScaleRequest, later: int) -> None:
    """Count what later runs add of the request. Pods need no count: the same pods ask again."""
    pool.later += later + request.later
    pool.request_later = 0 if request.is_of_plan else later + request.later


def _caps(pool: PoolDraft) -> list[int | None]:
    """Each group's max as it is published; None: it has none.

    Where a move or a request has ordered machines lately, or is about to, the max was cut to what was requested, so
    that nothing is ordered twice. That is no limit for us: there it is what the strategy says now.
    """
    published = [None if draft.group.bounds is None else draft.group.bounds.max for draft in pool.groups]
    closed = pool.pool.state.closed_at is not None
    ours = [closed or draft.group.is_ordered_by_us(pool.now, draft.provision_timeout) for draft in pool.groups]
    if not any(ours):
        return published
    sizes = pool.pool.strategy.size(pool)
    return [size.max if own else cap for own, size, cap in zip(ours, sizes, published, strict=True)]


def _obstacle(draft: Draft, request: ScaleRequest) -> Reason | None:
    """Why a group may not grow for this request, however much room it has; None: it may."""
    if not request.fits(draft.group):
        return because(Rule.PODS_DO_NOT_FIT)
    if draft.state is not State.HEALTHY:
        return because(Rule.IN_STATE, state=draft.state.value)
    return because(Rule.CPU_AND_MEMORY_UNKNOWN) if draft.group.closed_because is not None else None


def _give_back(pool: PoolDraft, request: ScaleRequest) -> int:
    """Take the nodes from the largest groups. Returns how many have to stay.

    Never below a group's min or PoolMinimum. Fenced groups come last: what they give up they could not get back. A
    replica that a preserved machine holds is no node: nobody can give it back, and it is none of the nodes that a
    minimum asks for. A node whose pods Evenkeel could not place again stays.
    """
    unmet = -request.nodes
    if pool.pods_unread:
        return unmet
    pool.asks_waiting = pool.kept is None
    nodes = pool.requested - sum(draft.group.preserved for draft in pool.groups)
    allowed = min(unmet, max(0, nodes - pool.pool.min))
    minima = _minima(pool)
    by_turns: tuple[Callable[[Draft], bool], ...] = (
        lambda draft: draft.state in (State.HEALTHY, State.PROBING),
        lambda draft: draft.state is State.FENCED,
    )
    for turn in by_turns:
        givers = [draft for draft in pool.groups if turn(draft) and request.fits(draft.group)]
        buckets = [
            Bucket(
                level=draft.group.preserved - draft.requested,
                room=_spare(draft, minima[draft.key], pool.kept),
                tie=draft.tie,
            )
            for draft in givers
        ]
        for draft, less in zip(givers, water_fill(buckets, allowed), strict=True):
            if less:
                draft.requested -= less
                draft.journal_delta -= less
                draft.may_remove_running = True
                draft.keeps = pool.kept.machines if pool.kept is not None else frozenset()
                allowed -= less
                unmet -= less
                draft.because(Rule.GIVES_BACK, count=less, nodes=request.nodes, request=request.id)
    return unmet


def _minima(pool: PoolDraft) -> dict[str, int]:
    """Each group's min as it is published. What levelling has raised of it binds the autoscaler, not us."""
    until = pool.pool.state.held_until
    if until is not None and pool.now < until:
        sizes = pool.pool.strategy.size(pool)
        return {draft.key: size.min for draft, size in zip(pool.groups, sizes, strict=True)}
    return {draft.key: 0 if draft.group.bounds is None else draft.group.bounds.min for draft in pool.groups}


def _spare(draft: Draft, minimum: int, kept_nodes: KeptNodes | None) -> int:
    if draft.requested > draft.group.requested:
        return 0  # this very look raises it: there is nothing yet to give back
    group = draft.group
    nodes = draft.requested - group.preserved
    # Preserved nodes go last, but they go: whoever asked for one to be kept has not asked for this.
    kept = sum(machine.preserved and machine.has_node and not machine.deleting for machine in group.machines or ())
    stay = 0 if kept_nodes is None else kept_nodes.by_group.get(group.key, 0)
    if stay:
        draft.because(Rule.KEPT_FOR_PODS, count=stay)
        if group.launched is not None:
            return 0  # no machine can be named
    return max(0, min(nodes - max(minimum, kept + stay), draft.requested - draft.owner_min))
