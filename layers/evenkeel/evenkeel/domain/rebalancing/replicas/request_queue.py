"""Assigns requests for nodes to pools: one request for each pool, the oldest first."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from types import MappingProxyType

from evenkeel.domain.model.groups import PoolId
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.plans import Refusal
from evenkeel.domain.model.pools import AnyPool, InvalidPool
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.second_checks import SECOND_CHECK_AFTER, doubted_since, is_confirmed
from evenkeel.domain.model.states import STEPS_APART, PoolState

_Absent = Mapping[PoolId, frozenset[str]]


def assign_requests(
    pools: Sequence[AnyPool], absent: _Absent, restored: Collection[PoolId], check: Check
) -> tuple[dict[PoolId, ScaleRequest], list[Refusal]]:
    """Return the request that each pool carries out, and the refused requests.

    Args:
        pools: All pools of the check.
        absent: The known groups, by key, of each pool that has absent groups.
        restored: Pools that are being restored. They only finish a request that they have begun.
        check: The check.
    """
    state, now = check.state, check.now
    queue = RequestQueue(pools, state.pools, now, absent)
    waiting: Sequence[ScaleRequest] = () if check.policy.restoring else state.scale_requests
    # A list of node groups, or of the owners that make pools of them, may be empty by mistake.
    is_empty = not pools and (not check.observation.groups or bool(state.pools))
    waiting = [
        replace(request, unfound_since=doubted_since(request.unfound_since, now) if is_empty else None)
        for request in waiting
    ]
    unconfirmed = [request for request in waiting if _awaits_second_check(request, now)]
    waiting = [request for request in waiting if request not in unconfirmed]
    # A request that awaits readable pods also counts as unfinished.
    opposed = queue.opposed(waiting)
    unopposed = [request for request in waiting if request.id not in opposed]
    blind = queue.without_pods(unopposed) if check.observation.workload_unread else []
    requests, refusals = queue.share_out(request for request in unopposed if request not in blind)
    refusals += [_refusal(ProblemKind.REQUEST_AWAITS_PODS, request) for request in blind]
    for request in waiting:
        if request.id in opposed:
            problem = _problem(ProblemKind.REQUEST_AGAINST_REQUEST, request, first=opposed[request.id])
            refusals.append(Refusal(scale_request=request, problem=problem))
    for request in unconfirmed:
        refusals.append(_refusal(ProblemKind.REQUEST_AWAITS_CHECK, request))
    for pool in pools:
        if pool.id in restored:
            requests.pop(pool.id, None)
            if pool.scale_request is not None:
                requests[pool.id] = pool.scale_request
    known = {request.id for request in state.scale_requests}
    for id, request in requests.items():
        if request.later and request.id not in known:
            # The stored request was answered or deleted, so the nodes for later runs cannot be stored with it.
            requests[id] = replace(request, later=0)
    return requests, refusals


def _awaits_second_check(request: ScaleRequest, now: datetime) -> bool:
    """Return True if a request is not refused yet, because the list of node groups may be empty by mistake."""
    since = request.unfound_since
    return since is not None and not request.is_over(now) and not is_confirmed(since, now)


def retry_times(refusals: Iterable[Refusal], now: datetime) -> list[datetime]:
    """Return when refused requests may be accepted: at a second check, or when max_step allows further nodes."""
    waiting = [refusal for refusal in refusals if refusal.waits]
    unfound = [refusal.scale_request.unfound_since for refusal in waiting]
    times = [since + SECOND_CHECK_AFTER for since in unfound if since is not None]
    behind = [refusal for refusal in waiting if refusal.problem.kind is ProblemKind.REQUEST_BEHIND_REQUEST]
    return [*times, now + STEPS_APART] if any(refusal.scale_request.is_rest for refusal in behind) else times


class RequestQueue:
    """Finds the pool for each request for nodes."""

    def __init__(
        self,
        pools: Sequence[AnyPool],
        states: Mapping[PoolId, PoolState],
        now: datetime,
        absent: _Absent = MappingProxyType({}),
    ) -> None:
        self._pools, self._states, self._now, self._absent = pools, states, now, absent
        # The pool in which each unfinished request has begun, by id of the request.
        self._begun = {state.move.request: id for id, state in states.items() if state.move and state.move.request}

    @cached_property
    def _groups(self) -> dict[PoolId, frozenset[str]]:
        return {pool.id: frozenset().union(*(group.key.names for group in pool.groups)) for pool in self._pools}

    @cached_property
    def _by_group(self) -> Mapping[str, list[AnyPool]]:
        return _index((name, pool) for pool in self._pools for name in self._groups[pool.id])

    @cached_property
    def _by_pool(self) -> Mapping[str, list[AnyPool]]:
        return _index((name, pool) for pool in self._pools for name in pool.id.names)

    def without_pods(self, requests: Iterable[ScaleRequest]) -> list[ScaleRequest]:
        """Return the requests that need a list of pods: those that give back a number of nodes and have not begun."""
        return [
            request
            for request in requests
            if request.gives_number and not request.is_over(self._now) and request.id not in self._begun
        ]

    def share_out(self, scale_requests: Iterable[ScaleRequest]) -> tuple[dict[PoolId, ScaleRequest], list[Refusal]]:
        """Return the request that each pool accepts, and the refused requests.

        Requests that a crash interrupted have precedence.
        """
        assigned = {pool.id: pool.scale_request for pool in self._pools if pool.scale_request is not None}
        refusals = []
        for request in sorted(scale_requests, key=_turn):
            pool = self._begun.get(request.id)
            if pool in assigned:
                # A request expires one hour after it was made, however often a run has begun it.
                assigned[pool] = replace(assigned[pool], at=request.at)
                continue
            candidates = self._candidates(request)
            request = self._in_its_turn(request, candidates)
            problem = self._refused(request, candidates)
            if problem is None and (first := assigned.setdefault(candidates[0].id, request)) is not request:
                problem = _problem(ProblemKind.REQUEST_BEHIND_REQUEST, request, first=first.id)
            if problem is not None:
                refusals.append(Refusal(scale_request=request, problem=problem))
        return assigned, refusals

    def opposed(self, scale_requests: Iterable[ScaleRequest]) -> dict[str, str]:
        """Return the requests that a pool refuses: id -> id of the pool's oldest unfinished request.

        That request changes the number of nodes in the other direction. A request that has begun counts as the oldest.
        """
        requests = sorted(scale_requests, key=self._age)
        oldest: dict[PoolId, ScaleRequest] = {}
        opposed = {}
        for request in requests:
            pool = self._begun.get(request.id) or self._pool_of(request)
            if pool is None:
                continue
            first = oldest.setdefault(pool, request)
            if (first.nodes > 0) is not (request.nodes > 0):
                opposed[request.id] = first.id
        return opposed

    def _age(self, request: ScaleRequest) -> tuple[bool, datetime, str]:
        """Return the sort key by age: requests for which a run has begun to change replicas are first."""
        has_begun = request.is_rest or request.id in self._begun
        return not has_begun, request.made_at or request.at, request.id

    def _pool_of(self, request: ScaleRequest) -> PoolId | None:
        """Return the pool that accepts the request now or later; None: no pool does, or the pool is not known yet."""
        candidates = self._candidates(request)
        problem = self._refused(self._in_its_turn(request, candidates), candidates)
        is_refused = problem is not None and not Refusal(scale_request=request, problem=problem).waits
        return None if is_refused or len(candidates) != 1 else candidates[0].id

    def _candidates(self, request: ScaleRequest) -> Sequence[AnyPool]:
        if not request.pool:
            return self._by_group.get(request.group, ()) if request.group else self._pools
        pools = self._by_pool.get(request.pool, ())
        return [pool for pool in pools if not request.group or request.group in self._groups[pool.id]]

    def _in_its_turn(self, request: ScaleRequest, candidates: Sequence[AnyPool]) -> ScaleRequest:
        """Return the request, dated at the pool's last addition of nodes if that was later: it may have waited."""
        added_at = self._states.get(candidates[0].id, PoolState()).added_at if len(candidates) == 1 else None
        return request if added_at is None or added_at <= request.at else replace(request, at=added_at)

    def _concerns_absent(self, request: ScaleRequest, candidates: Sequence[AnyPool]) -> bool:
        """Return True if a request may concern a pool with absent groups. Such a request waits for a second check."""
        if (begun_in := self._begun.get(request.id)) is not None:
            return begun_in in self._absent
        meant = {pool.id for pool in candidates}
        for id, keys in self._absent.items():
            names = keys | {key.rpartition("/")[2] for key in keys}
            is_named = not request.pool or request.pool in id.names
            if id in meant or (is_named and (not request.group or request.group in names)):
                return True
        return False

    def _refused(self, request: ScaleRequest, candidates: Sequence[AnyPool]) -> Problem | None:
        """Return why no pool accepts a request; None: its only candidate accepts it."""
        if request.is_over(self._now):
            return _problem(ProblemKind.REQUEST_TOO_OLD, request)
        if self._concerns_absent(request, candidates):
            return _problem(ProblemKind.REQUEST_AWAITS_CHECK, request)
        if (begun_in := self._begun.get(request.id)) is not None:
            # The pool was relabelled or deleted. How much of the request was done is unknown.
            return _problem(ProblemKind.REQUEST_POOL_GONE, request, pool=str(begun_in))
        target = request.pool or request.group
        if not candidates:
            group_of = tuple(sorted({pool.id.name for pool in self._by_group.get(target, ())}))
            return _problem(ProblemKind.REQUEST_NOWHERE, request, named=target, group_of=group_of)
        if len(candidates) > 1:
            pools = ", ".join(str(pool.id) for pool in candidates)
            return _problem(ProblemKind.REQUEST_AMBIGUOUS, request, named=target, pools=pools)
        pool = candidates[0]
        if unknown := request.only - self._groups[pool.id]:
            names = tuple(sorted(unknown))
            return _problem(ProblemKind.REQUEST_UNKNOWN_GROUPS, request, names=names, pool=str(pool.id))
        if isinstance(pool, InvalidPool):
            return _problem(ProblemKind.REQUEST_POOL_INVALID, request, pool=str(pool.id))
        return None


def _index(pools: Iterable[tuple[str, AnyPool]]) -> Mapping[str, list[AnyPool]]:
    index: dict[str, list[AnyPool]] = defaultdict(list)
    for name, pool in pools:
        index[name].append(pool)
    return index


def _turn(request: ScaleRequest) -> tuple[datetime, str]:
    return request.at, request.id


def _problem(kind: ProblemKind, request: ScaleRequest, **facts: str | tuple[str, ...]) -> Problem:
    return Problem(kind, {"request": request.id, "nodes": request.nodes, **facts})


def _refusal(kind: ProblemKind, request: ScaleRequest) -> Refusal:
    return Refusal(scale_request=request, problem=_problem(kind, request))
