"""The incident ``pods-wait``: pods wait, and no node is on its way to them.

Pods wait for a pool if its new nodes would fit them, but it gives none now: each zone is fenced, or the pool is at its
max. Pods that fit new nodes of no pool wait for the cluster. While pods cannot be read, the cluster may have such pods.

    pods wait      xxxxxx  xx xxxxxxxxx             x: pods wait, or cannot be read
    incident            [======================]    opens after 15 min, closes 15 min after the last x

A break of less than 15 min does not restart the time.

A run stores since when pods wait (``Waiting``). Only a full check asks for a run to store a changed time. Otherwise, a
check that cannot read pods, although runs can, would ask for a run each time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from evenkeel.domain.model.demand import Advice, Unfit
from evenkeel.domain.model.incidents import ClusterHealth, Incident, IncidentKind, Waiting
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.reasons import Fact, Reason, Rule
from evenkeel.domain.model.values import excerpt

WAITS_FOR = timedelta(minutes=15)
_HAS_OWN_INCIDENT = frozenset({Rule.WORKLOAD_TOO_LARGE, Rule.TWO_AUTOSCALERS})
_MOST_PROBLEMS, _MOST_PODS = 5, 3
_UNREAD = "unread"  # the key of the time since when pods are not read; other keys are ids of pools, or empty


@dataclass(frozen=True, kw_only=True)
class _Case:
    """Pods that wait now while no node is on its way, for one pool or for the cluster."""

    zones: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


def pods_wait(
    known: Mapping[str, Incident], waiting: Mapping[str, Waiting], plan: Plan
) -> tuple[list[Incident], dict[str, Waiting]]:
    """Return the incidents, and since when pods wait, after this plan.

    ``known``: the open incidents by key. ``waiting``: since when pods wait, before this plan.
    """
    if plan.demand is None or not plan.demand.orders:
        return [], {}
    cases = _cases(plan, plan.demand)
    after: dict[str, Waiting] = {}
    for key in {*cases, *waiting}:
        found = cases.get(key)
        then = _after(waiting.get(key), found, plan.now, is_known=_is_known(key, plan, plan.demand))
        if then is not None:
            after[key] = then
    incidents = []
    for key in sorted({_pool_of(key) for key in after}):
        incident = _incident(key, known, after, cases, plan.now)
        incidents += [] if incident is None else [incident]
    return incidents, after


def without_waiting(health: ClusterHealth) -> ClusterHealth:
    """Return the health without the times since when pods wait. Open incidents stay open."""
    opened = {incident.pool for incident in health.incidents if incident.kind is IncidentKind.PODS_WAIT}
    kept = {key: waiting for key, waiting in health.waiting.items() if _pool_of(key) in opened}
    return replace(health, waiting=kept)


def _pool_of(key: str) -> str:
    return "" if key == _UNREAD else key


def _cases(plan: Plan, advice: Advice) -> dict[str, _Case]:
    unread = advice.unread
    if unread is not None:
        if unread.rule in _HAS_OWN_INCIDENT:
            return {}
        kind = ProblemKind.PODS_UNJUDGED if unread.rule is Rule.WORKLOAD_UNJUDGED else ProblemKind.PODS_UNREAD
        facts = {name: excerpt(fact) if isinstance(fact, str) else fact for name, fact in unread.facts.items()}
        problem = Problem.of(kind, why=Reason.of(unread.rule, **facts))
        return {_UNREAD: _Case(problems=(problem,))}
    in_other_incidents = _in_other_incidents(plan.pools)
    unmet = [unfit for unfit in advice.unmet if in_other_incidents.isdisjoint(unfit.pods)]
    cases = {"": _of_pods([unfit for unfit in unmet if not unfit.fitting], None)}
    for pool in plan.pools:
        of_pool = [unfit for unfit in unmet if pool.id in unfit.fitting]
        cases[str(pool.id)] = _of_pods([*of_pool, *_not_ordered(pool)], pool)
    return {key: case for key, case in cases.items() if case is not None}


def _in_other_incidents(pools: Iterable[PoolPlan]) -> set[str]:
    """Return the pods that incidents of kind ``ineffective-order`` name."""
    asked = [pool.demand.advice.asked for pool in pools if pool.demand.advice is not None]
    of_orders = {pod for one in asked for order in one.ineffective for pod in order.pods}
    return of_orders | {pod for one in asked for blocked in one.blocked for pod in blocked.pods}


def _not_ordered(pool: PoolPlan) -> list[Unfit]:
    """Return the pods that need nodes while a move or a request blocks orders and no replica lacks its node."""
    advice = pool.demand.advice
    is_growing = any(plan.requested > plan.group.running for plan in pool.groups)
    if advice is None or advice.is_ordered or is_growing:
        return []
    busy = Reason.of(Rule.UNFIT_IN_POOL, pool=str(pool.id), group="", why=Reason.of(Rule.POOL_BUSY))
    groups = {pool.id: tuple(advice.asked.nodes)}
    return [Unfit(pods=pods.pods, since=pods.since, reason=busy, fitting=groups) for pods in advice.asked.pending]


def _of_pods(unmet: Sequence[Unfit], pool: PoolPlan | None) -> _Case | None:
    """Return the case of these pods; None: there are none."""
    if not unmet:
        return None
    keys = {group for unfit in unmet for groups in unfit.fitting.values() for group in groups}
    groups = [] if pool is None else [plan.group for plan in pool.groups if plan.group.key in keys]
    return _Case(
        zones=tuple(sorted({group.identity.zone for group in groups if group.identity.zone})),
        groups=tuple(sorted(str(group.key) for group in groups)),
        problems=tuple(
            Problem.of(
                ProblemKind.PODS_WAIT,
                pods=unfit.pods[:_MOST_PODS],
                count=len(unfit.pods),
                why=_why(unfit, None if pool is None else str(pool.id)),
            )
            for unfit in unmet[:_MOST_PROBLEMS]
        ),
    )


def _why(unfit: Unfit, pool: str | None) -> Fact:
    """Return the plan's reasons: those of one pool, or of all pools."""
    reasons = unfit.reason.facts.get("why")
    whys = [why for why in reasons if isinstance(why, Reason)] if isinstance(reasons, tuple) else []
    return tuple(why for why in whys if pool is None or why.facts["pool"] == pool) or (unfit.reason,)


def _is_known(key: str, plan: Plan, advice: Advice) -> bool:
    """Return True if the plan shows whether pods wait."""
    if key == _UNREAD:
        return advice.unread is None or advice.unread.rule not in _HAS_OWN_INCIDENT
    # While all pending pods are too young to act on, the plan says nothing about them.
    is_judged = all(pool.mode.judged or not pool.mode.valid for pool in plan.pools)
    return advice.unread is None and advice.check_again is None and is_judged


def _after(before: Waiting | None, case: _Case | None, now: datetime, *, is_known: bool) -> Waiting | None:
    if not is_known and case is None:
        return before
    if case is not None:
        return Waiting(since=now if before is None else min(now, before.since))
    if before is None:
        return None
    calm = min(before.calm_since or now, now)
    return None if now - calm >= WAITS_FOR else replace(before, calm_since=calm)


def _incident(
    pool: str, known: Mapping[str, Incident], waiting: Mapping[str, Waiting], cases: Mapping[str, _Case], now: datetime
) -> Incident | None:
    """Return the incident of a pool or of the cluster (empty); None: there is none.

    An open incident stays as it is while its matter does, so that it is neither stored nor notified again.
    """
    keys = (pool,) if pool else (_UNREAD, "")
    before = known.get(f"{pool}/{IncidentKind.PODS_WAIT.value}" if pool else IncidentKind.PODS_WAIT.value)
    due = [key for key in keys if key in waiting and now - waiting[key].since >= WAITS_FOR]
    if before is not None and _UNREAD in due and not _names_pods(before):
        due = [_UNREAD]  # a read that succeeds now and then does not change the incident
    case = next((cases[key] for key in due if key in cases), None)
    if case is None:
        return before if due else None
    since = min(waiting[key].since for key in due) if before is None else before.since
    incident = Incident(
        kind=IncidentKind.PODS_WAIT,
        pool=pool,
        since=since,
        zones=case.zones,
        groups=case.groups,
        problems=case.problems,
    )
    return before if before is not None and _is_same(before, incident) else incident


def _is_same(before: Incident, incident: Incident) -> bool:
    """Return True if the incident is about pods of which some still wait, or has the same reasons."""
    if not _names_pods(before):
        return not _names_pods(incident)
    return before.matter == incident.matter or bool(_named(before) & _named(incident))


def _names_pods(incident: Incident) -> bool:
    """Return True if the incident is about pods that wait; False: about pods that cannot be read."""
    return not incident.problems or incident.problems[0].kind is ProblemKind.PODS_WAIT


def _named(incident: Incident) -> set[str]:
    names = [problem.facts.get("pods") for problem in incident.problems]
    return {str(pod) for pods in names if isinstance(pods, tuple) for pod in pods}
