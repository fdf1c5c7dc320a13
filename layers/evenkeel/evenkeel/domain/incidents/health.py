"""Cluster health: the incidents that a plan shows, and the changes of incidents that are not notified yet.

    kind               opens                                changes (notified again)      closes
    missing            at once if no healthy zone can get   zones, failure class, count   all wanted nodes run, or
                       the nodes, else after the delay      x2 or /2, unordered replicas  another group could grow
    unreachable        after the delay                      never                         the cluster is read
    access, too-large, at once                              never                         the cluster is read; the
      invalid-record                                                                      workload, if that is too large
    stopped            two scan intervals without a check   never                         the cluster is read
    two-autoscalers    at once                              never                         a check finds only one
    cluster-unhealthy  after the delay                      never                         enough nodes are Ready
    zone-unhealthy     after the delay                      zones                         enough nodes are Ready
    invalid            at once                              the problems                  the pool is valid
    writes-refused     at once                              zones                         15 min without a refusal;
                                                                                        of the table: a plan is stored
    lost-group         at once                              groups, their tags            the group has its tags or its
                                                                                        own bounds, or is deleted
    contested          at once                              zones, who writes             the group is not contested
    bounds-unread      at once                              zones                         its groups are resumed, or
                                                                                        their bounds are read
    over-committed     after the delay                      the problem                   requested <= PoolMaximum
    drain-hangs        at once                              zones, nodes                  no drain hangs
    ineffective-order  at once                              zones, rules that fail        no such order or pods remain;
                                                                                        45 min if nodes were not Ready
    step-hangs         at once                              zones                         the step of converge continues
    pods-wait          15 min without a node on its way,    zones, rules of other pods    15 min without such pods
                       or with pods unread

The delay is the record's ``trouble_after``. ``_POOL_KINDS`` lists the kinds of incident of a pool. Evenkeel notifies
again if a fact in ``Incident.matter`` changes. A node is missing if it is requested and neither runs nor is
provisioning, or if no group can request it. ``_is_over`` has the rule that closes ``missing``. This incident stays open
while failed zones are only probed, so that it does not open and close with each probe.

    missing   3  3  2  0  0  3  3  0 ---
    zone      fenced    probing  fenced  healthy
    incident  [============================]
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from evenkeel.domain.incidents.pods_wait import pods_wait, without_waiting
from evenkeel.domain.model.demand import Advice
from evenkeel.domain.model.groups import GroupKey, PoolId, State, is_outage
from evenkeel.domain.model.incidents import (
    Change,
    ClusterHealth,
    Incident,
    IncidentChange,
    IncidentKind,
    Notified,
)
from evenkeel.domain.model.past_orders import BlockedPods, IneffectiveOrder
from evenkeel.domain.model.plans import GroupPlan, Plan, PoolPlan
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.reasons import ROLLOUTS, Fact, Reason, Rule
from evenkeel.domain.model.states import UNKNOWN, GroupState
from evenkeel.domain.model.values import excerpt

# Evenkeel retries a refused write every five minutes, so there are three retries in this time. If none of these retries
# is refused, the write has succeeded or is no longer planned, and the incident closes.
REFUSED_COUNTS = timedelta(minutes=15)
# A new node that is Ready does not close the incident of nodes that were not, until this time has passed without such
# a node. Otherwise nodes that die after some minutes would open and close the incident with each order. Such orders are
# 15 minutes apart, and every second of them can come at a moment in which its nodes still are Ready.
UNREADY_COUNTS = timedelta(minutes=45)
# A tolerance, because checks start some seconds early or late.
_SLACK = timedelta(seconds=10)
# The most names of an incident, problems of an incident, and pods of a problem. These limits keep the cluster's stored
# item small.
_MOST_NAMES, _MOST_PROBLEMS, _MOST_PODS = 20, 5, 3
# The most pending changes of a cluster. They must fit into its stored item, even while the event bus is unavailable.
_MOST_PENDING = 80

Groups = Mapping[GroupKey, GroupState]
"""The state of each group that is stored with this plan."""


def evaluate(
    before: ClusterHealth, plan: Plan, groups: Groups, delay: timedelta, dry: Collection[PoolId] = ()
) -> ClusterHealth:
    """Return the health of a cluster for which this check has made a plan.

    Args:
        delay: How long a node must be missing before an incident opens, if another group can request the node instead.
        dry: The pools in dry run. Their planned replicas are not written, so released replicas stay missing.
    """
    known = {incident.key: incident for incident in before.incidents}
    incidents: list[Incident] = []
    resting = _cluster_unhealthy(known, plan, groups, delay)
    for pool in plan.pools:
        # The list of groups may be incomplete, so known incidents stay open.
        if pool.mode.valid and not pool.mode.judged:
            incidents += [
                incident
                for incident in before.incidents
                if incident.pool == str(pool.id) and incident.kind is not IncidentKind.PODS_WAIT
            ]
            continue
        check = _PoolCheck(
            pool=pool,
            groups=groups,
            known=known,
            now=plan.now,
            delay=delay,
            demand=plan.demand,
            is_dry=pool.id in dry,
            cluster_rests=bool(resting),
        )
        incidents += check.incidents()
    names = {str(pool) for pool in dry}
    waits, waiting = pods_wait(known, before.waiting, plan)
    incidents += waits
    incidents = [replace(incident, in_dry_run=incident.pool in names) for incident in incidents]
    of_cluster = (
        *_two_autoscalers(known, plan),
        *_too_large(known, plan),
        *resting,
    )
    return replace(before.with_incidents([*incidents, *of_cluster]), waiting=waiting)


def _two_autoscalers(known: Mapping[str, Incident], plan: Plan) -> list[Incident]:
    """Return the incident of a second autoscaler. It is unchanged if this check did not look for an autoscaler."""
    beside = None if plan.demand is None else plan.demand.beside_another
    incident = known.get(IncidentKind.TWO_AUTOSCALERS.value)
    if plan.demand is None or beside is False or (incident is None and not beside):
        return []
    return [incident or Incident(kind=IncidentKind.TWO_AUTOSCALERS, since=plan.now)]


def _too_large(known: Mapping[str, Incident], plan: Plan) -> list[Incident]:
    """Return the incident of a workload that is too large. It is unchanged while another error hides the workload."""
    incident = known.get(IncidentKind.TOO_LARGE.value)
    unread = None if plan.demand is None else plan.demand.unread
    if unread is not None and unread.rule is Rule.WORKLOAD_TOO_LARGE:
        since = plan.now if incident is None else incident.since
        message = excerpt(str(unread.facts["error"]))
        return [Incident(kind=IncidentKind.TOO_LARGE, since=since, of_workload=True, message=message)]
    is_hidden = unread is not None and unread.rule in (Rule.WORKLOAD_UNREAD, Rule.WORKLOAD_UNJUDGED)
    return [incident] if incident is not None and incident.of_workload and is_hidden else []


def _cluster_unhealthy(known: Mapping[str, Incident], plan: Plan, groups: Groups, delay: timedelta) -> list[Incident]:
    """Return the incident of a cluster that is unhealthy. It is unchanged if this check has not read the nodes."""
    incident = known.get(IncidentKind.CLUSTER_UNHEALTHY.value)
    reasons = _unhealthy(group for pool in plan.pools for group in pool.groups)
    if incident is not None and any(reason.rule is Rule.UNHEALTHY_BEFORE for reason in reasons.values()):
        return [incident]
    resting = {key: reason for key, reason in reasons.items() if reason.rule is Rule.CLUSTER_UNHEALTHY}
    # The cluster is unhealthy since its last group became unhealthy.
    since = max(_unhealthy_since(resting, groups, plan.now), default=plan.now)
    if not resting or (incident is None and plan.now - since < delay):
        return []
    since = since if incident is None else incident.since
    return [Incident(kind=IncidentKind.CLUSTER_UNHEALTHY, since=since, message=_broken(resting))]


def _unhealthy(plans: Iterable[GroupPlan]) -> dict[GroupKey, Reason]:
    return {plan.group.key: why for plan in plans if (why := plan.group.status.unhealthy) is not None}


def _unhealthy_since(keys: Iterable[GroupKey], groups: Groups, now: datetime) -> list[datetime]:
    return [groups[key].unhealthy_since or now for key in keys if key in groups]


def _broken(reasons: Mapping[GroupKey, Reason]) -> str:
    """Return how many nodes are broken, once for each zone, such as "10 of 10, 5 of 6"."""
    return ", ".join(sorted({f"{reason.facts['broken']} of {reason.facts['nodes']}" for reason in reasons.values()}))


def evaluate_unread(
    before: ClusterHealth, kind: IncidentKind, message: str, since: datetime, now: datetime, delay: timedelta
) -> ClusterHealth:
    """Return the health of a cluster that has not been read since ``since``. Incidents of pools are unchanged.

    Only ``unreachable`` opens after the delay. The other kinds open at once, because an operator must fix them.
    """
    before = without_waiting(before)
    unread = before.unread
    opens = kind is not IncidentKind.UNREACHABLE or now - since >= delay - _SLACK
    if opens and (unread is None or unread.kind is not kind):
        unread = Incident(kind=kind, since=since if unread is None else unread.since, message=excerpt(message))
    return before if unread is None else _of_cluster(before, unread)


def with_refused_write(before: ClusterHealth, message: str, now: datetime) -> ClusterHealth:
    """Return the health of a cluster whose state the stack's table refuses to store. The next stored plan closes it."""
    known = next((each for each in before.incidents if each.key == IncidentKind.REFUSED.value), None)
    incident = known or Incident(kind=IncidentKind.REFUSED, since=now, message=excerpt(message))
    return before.with_incidents([incident, *(each for each in before.incidents if each is not known)])


def unreadable(before: ClusterHealth, message: str, now: datetime) -> ClusterHealth:
    """Return the health to show for a cluster whose record is invalid. This health is not stored."""
    since = now if before.unread is None else before.unread.since
    return _of_cluster(before, Incident(kind=IncidentKind.INVALID_RECORD, since=since, message=message))


def with_stopped(before: ClusterHealth, since: datetime | None) -> ClusterHealth:
    """Return the health with the incident ``stopped`` if checks have stopped and no other incident explains why.

    ``since``: as returned by ``stopped_since``.
    """
    if since is None or before.unread is not None:
        return before
    return _of_cluster(before, Incident(kind=IncidentKind.STOPPED, since=since))


def _of_cluster(before: ClusterHealth, incident: Incident) -> ClusterHealth:
    others = [each for each in before.incidents if each is not before.unread and each.key != incident.key]
    return before.with_incidents([incident, *others])


@dataclass(frozen=True, kw_only=True)
class _PoolCheck:
    """One pool of a plan, and its known incidents."""

    pool: PoolPlan
    groups: Groups
    known: Mapping[str, Incident]
    now: datetime
    delay: timedelta
    demand: Advice | None  # None: pods and nodes were not read
    is_dry: bool
    cluster_rests: bool  # True: the cluster has an open incident, because too many of its nodes are not Ready

    def incidents(self) -> Iterator[Incident]:
        for row in _POOL_KINDS:
            before = self.before(row.kind)
            if row.needs_pods and self.pool.demand.advice is None:
                incident = before if self.demand is not None else None
            else:
                incident = row.find(self)
            if incident is not None and (before is not None or row.opens(self, incident)):
                yield incident if before is None else replace(incident, since=before.since)

    def before(self, kind: IncidentKind) -> Incident | None:
        return self.known.get(f"{self.pool.id}/{kind.value}") if self.known else None

    def incident(self, kind: IncidentKind, since: datetime, keys: Collection[str] = (), message: str = "") -> Incident:
        """Return an incident about the groups with these keys."""
        groups = {key: plan.group.identity.zone for plan in self.pool.groups if (key := str(plan.group.key)) in keys}
        return Incident(
            kind=kind,
            pool=str(self.pool.id),
            since=since,
            zones=tuple(sorted({zone for zone in groups.values() if zone})[:_MOST_NAMES]),
            groups=tuple(sorted(groups)[:_MOST_NAMES]),
            message=excerpt(message),
        )

    def states(self) -> list[tuple[GroupPlan, GroupState]]:
        return [(plan, self.groups.get(plan.group.key, UNKNOWN)) for plan in self.pool.groups]

    # Missing nodes

    def requested(self, plan: GroupPlan) -> int:
        """Return the replicas of a group after this check. Dry run leaves them as they are."""
        return plan.group.requested if self.is_dry else plan.requested

    @cached_property
    def counted(self) -> Collection[str]:
        """Return the keys of the groups listed in the pool's open incident of kind ``missing``."""
        before = self.before(IncidentKind.MISSING)
        return frozenset(before.groups) if before else frozenset()

    @cached_property
    def missing(self) -> Mapping[GroupKey, int]:
        """Return the number of missing nodes of each group."""
        return {plan.group.key: self._missing_of(plan) for plan in self.pool.groups}

    @property
    def homeless(self) -> int:
        """Return the number of nodes that no group of the pool can request."""
        frozen = not any(plan.writable for plan in self.pool.groups)
        return self.pool.replicas.unplaced + (0 if frozen else self.pool.report.unmet_minimum)

    @property
    def not_reordered(self) -> int:
        """Return the number of released replicas that no autoscaler has ordered in time."""
        due = self.pool.release.order_due
        return self.pool.release.not_reordered if due is not None and self.now >= due else 0

    @property
    def missing_since(self) -> datetime | None:
        """Return since when the first of the missing nodes is missing; None: unknown."""
        released = self.pool.next_state.release
        arrivals = [state.arrivals for plan, state in self.states() if self.missing[plan.group.key]]
        times = [since for one in arrivals if (since := one.waiting_since or one.stalled_since) is not None]
        times += [since for one in arrivals for since in one.nodeless.values()]
        times += [released.at] if self.not_reordered and released is not None else []
        return min(times, default=None)

    def _missing_of(self, plan: GroupPlan) -> int:
        group, state = plan.group, self.groups.get(plan.group.key, UNKNOWN)
        if dead := group.dead_instances(self.now, plan.provision_timeout):
            return len(dead)  # also where this plan orders other nodes, because these were awaited in vain
        waiting = max(0, min(self.requested(plan), group.requested) - group.running)
        if not waiting:
            return 0
        was, fails = str(group.key) in self.counted, self.fails(plan)
        if not plan.writable and not fails:
            # A frozen group may lack nodes by design, as in a rolling update. Its nodes count as missing only if an
            # open incident names the group.
            if not (was and _rolls(plan)):
                return waiting if was else 0
            return group.missing_in_rollout(self.now, plan.provision_timeout)
        if was and fails:
            return waiting
        if not plan.writable:
            return group.missing_in_rollout(self.now, plan.provision_timeout)
        coming = group.on_its_way(self.now, plan.provision_timeout)
        if was and state.arrivals.last_success is not None:
            # The zone delivers again. A machine created before the last success counts as missing until its node runs.
            since = state.arrivals.last_success
            coming = min(coming, sum(machine.created_at > since for machine in group.machines or ()))
        return max(0, waiting - coming)

    def fails(self, plan: GroupPlan) -> bool:
        """Return True if the group has had no success since its last failure, or if its rollout is stalled."""
        state = self.groups.get(plan.group.key, UNKNOWN)
        is_stalled = not plan.writable and state.arrivals.stalled_since is not None
        return is_stalled or (state.is_failing and plan.state in (State.FENCED, State.PROBING))

    def find_missing(self) -> Incident | None:
        before = self.before(IncidentKind.MISSING)
        missing = sum(self.missing.values()) + self.homeless + self.not_reordered
        if before is None and not missing:
            return None
        concerned = [
            plan
            for plan in self.pool.groups
            if self.missing[plan.group.key]
            or ((self.not_reordered or str(plan.group.key) in self.counted) and self.fails(plan))
        ]
        runs, wanted = self._runs_and_wanted()
        calm = None
        if before is not None and not missing:
            calm, wanted = before.calm_since or self.now, before.wanted
            if self._is_over(concerned, calm, gave_up=runs < wanted):
                return None
        failing = self._worst(concerned, before)
        groups = {str(plan.group.key) for plan in concerned}
        message = "" if failing is None else failing.failure.message
        if (
            before is not None
            and failing is not None
            and before.failure_class is failing.failure.failure_class
            and before.message
        ):
            message = before.message  # each message has a new request id, so a new message does not mean a new cause
        return replace(
            self.incident(IncidentKind.MISSING, self.missing_since or self.now, groups, message),
            missing=missing,
            not_reordered=self.not_reordered,
            requested=sum(map(self.requested, self.pool.groups)) + self.homeless + self.not_reordered,
            running=sum(plan.group.running for plan in self.pool.groups),
            wanted=wanted,
            is_outage=is_outage(plan.state for plan in self.pool.groups),
            is_rollout=any(_rolls(plan) and self.fails(plan) for plan in concerned),
            fenced_until=_fenced_until(concerned),
            calm_since=calm,
            failure_class=None if failing is None else failing.failure.failure_class,
        )

    def _runs_and_wanted(self) -> tuple[int, int]:
        """Return how many of the requested nodes run, and how many nodes are wanted.

        Nodes that no group can request are wanted, too. In a frozen group, only the running nodes are wanted, unless
        the open incident names the group.
        """
        runs = {plan.group.key: min(self.requested(plan), plan.group.running) for plan in self.pool.groups}
        wanted = sum(
            runs[plan.group.key]
            if not plan.writable and str(plan.group.key) not in self.counted
            else self.requested(plan)
            for plan in self.pool.groups
        )
        return sum(runs.values()), wanted + self.homeless

    def _is_over(self, concerned: list[GroupPlan], calm: datetime, *, gave_up: bool) -> bool:
        """Return True if the incident closes, provided that no node is missing now. One of these conditions is enough:

        - No group of the incident fails any more.
        - All groups of the incident run the nodes that they request. If the groups request fewer nodes than before, an
          autoscaler may only have given up. In that case, no pod may be pending. (Without an autoscaler, only an
          operator lowers replicas.)
        - A healthy group has been able to grow for the delay and the longest backoff. An autoscaler that gave up
          requests the nodes again after its own backoff, which has the same length.

        Args:
            concerned: The groups that the incident is about.
            calm: The time since when no node is missing.
            gave_up: True if fewer nodes run than were wanted when a node was last missing.
        """
        if not any(self.fails(plan) for plan in concerned):
            return True
        all_run = all(plan.group.running >= self.requested(plan) for plan in concerned)
        if all_run and (not gave_up or self._no_pod_waits()):
            return True
        can_grow = any(plan.state is State.HEALTHY for plan in self.pool.groups)
        return can_grow and self.now - calm >= self.delay + BackoffPolicy.longest

    def _no_pod_waits(self) -> bool:
        demand, pool = self.demand, self.pool.demand.advice
        if demand is None or pool is None:
            return demand is None and not self.pool.mode.autoscaler
        return not (demand.unmet or demand.not_counted or pool.asked.pending)

    def _worst(self, concerned: list[GroupPlan], before: Incident | None) -> GroupState | None:
        """Return the state of the failing group that best explains the missing nodes; None: no group fails.

        These criteria decide, in this order: a clear failure class, the failure class of the open incident, and the
        number of missing nodes.
        """
        usual = None if before is None else before.failure_class

        def rank(key: GroupKey) -> tuple[bool, bool, bool, int, GroupKey]:
            kind = self.groups[key].failure.failure_class
            # The incident reports released replicas that are not ordered separately. Next to such replicas, groups
            # without missing nodes are last.
            lacks = self.missing[key] > 0 or not self.not_reordered
            return lacks, not kind.is_vague, kind is usual, self.missing[key], key

        failing = [plan.group.key for plan in concerned if self.fails(plan)]
        return self.groups[max(failing, key=rank)] if failing else None

    # The other kinds of incident

    def find_invalid(self) -> Incident | None:
        # A restored pool without members is not valid, but it has no problem.
        if self.pool.mode.valid or not self.pool.report.problems:
            return None
        return replace(
            self.incident(IncidentKind.INVALID, self.now), problems=self.pool.report.problems[:_MOST_PROBLEMS]
        )

    def find_zone_unhealthy(self) -> Incident | None:
        """Return the incident if nodes of some zones are broken.

        Once the incident of an unhealthy cluster is open, it replaces this one. Until then, this one is unchanged.
        """
        reasons = _unhealthy(self.pool.groups)
        rules = {reason.rule for reason in reasons.values()}
        if Rule.UNHEALTHY_BEFORE in rules or (Rule.CLUSTER_UNHEALTHY in rules and not self.cluster_rests):
            return self.before(IncidentKind.ZONE_UNHEALTHY)
        if not reasons or self.cluster_rests:
            return None
        since = min(_unhealthy_since(reasons, self.groups, self.now), default=self.now)
        return self.incident(IncidentKind.ZONE_UNHEALTHY, since, set(map(str, reasons)), _broken(reasons))

    def find_refused(self) -> Incident | None:
        refused = {
            str(plan.group.key): (state.contest.write_refused_at, state.contest.write_refused)
            for plan, state in self.states()
            if state.contest.write_refused_at is not None and self.now - state.contest.write_refused_at < REFUSED_COUNTS
        }
        if not refused:
            return None
        (_, message), *_ = refused.values()
        return self.incident(IncidentKind.REFUSED, min(at for at, _ in refused.values()), refused, message)

    def find_lost(self) -> Incident | None:
        """Return the incident if groups have lost a tag. A problem names each group and how to repair it."""
        frozen = {plan.group.key: plan.group.frozen_because for plan in self.pool.groups}
        lost = {key: why for key, why in frozen.items() if why is not None and why.rule is Rule.TAGS_LOST}
        if not lost:
            return None
        problems = [
            Problem.of(ProblemKind.LOST_GROUP, group=key.name, region=key.namespace, **lost[key].facts)
            for key in sorted(lost)[:_MOST_PROBLEMS]
        ]
        keys = {str(key) for key in lost}
        return replace(self.incident(IncidentKind.LOST_GROUP, self.now, keys), problems=tuple(problems))

    def find_contested(self) -> Incident | None:
        contested = {
            str(plan.group.key): (state.contest.contested_since, state.contest.contested_by)
            for plan, state in self.states()
            if state.contest.contested_since is not None
        }
        if not contested:
            return None
        writers = sorted({writer for _, writer in contested.values() if writer})
        since = min(since for since, _ in contested.values())
        return self.incident(IncidentKind.CONTESTED, since, contested, ", ".join(writers))

    def find_bounds_unread(self) -> Incident | None:
        unread = {str(plan.group.key) for plan, state in self.states() if state.contest.unread_bounds is not None}
        return self.incident(IncidentKind.BOUNDS_UNREAD, self.now, unread) if unread else None

    def find_over_committed(self) -> Incident | None:
        """Return the incident if the pool requests more than PoolMaximum, although Evenkeel cancels stuck replicas."""
        if not self.pool.report.overcommitted:
            return None
        snapshot = self.pool.next_state.seen
        problems = tuple(problem for problem in self.pool.report.problems if problem.kind is ProblemKind.OVER_COMMITTED)
        since = self.now if snapshot is None else snapshot.since
        return replace(self.incident(IncidentKind.OVER_COMMITTED, since), problems=problems)

    def find_drain_hangs(self) -> Incident | None:
        hanging = (
            [node.hangs for node in self.pool.demand.advice.nodes if node.hangs is not None]
            if self.pool.demand.advice
            else []
        )
        if not hanging:
            return None
        groups = {str(drain.group) for drain in hanging}
        names = ", ".join(drain.node for drain in hanging[:_MOST_NAMES])
        return self.incident(IncidentKind.DRAIN_HANGS, min(drain.since for drain in hanging), groups, names)

    def find_ineffective_order(self) -> Incident | None:
        """Return the incident if ordered nodes do not help the pods, or if DaemonSets would fill new nodes."""
        if self.pool.demand.advice is None:
            return None
        asked = self.pool.demand.advice.asked
        orders = asked.ineffective[:_MOST_PROBLEMS]
        ordered_for = {pod for order in asked.ineffective for pod in order.pods}
        blocked = [each for each in asked.blocked if not ordered_for.intersection(each.pods)]
        blocked = blocked[: _MOST_PROBLEMS - len(orders)]
        if not orders and not blocked:
            return self._unready_lately()

        def pods_of(case: IneffectiveOrder | BlockedPods) -> dict[str, Fact]:
            return {"pods": case.pods[:_MOST_PODS], "count": len(case.pods), "why": case.why}

        problems = [Problem.of(ProblemKind.INEFFECTIVE_ORDER, **pods_of(order), node=order.node) for order in orders]
        for each in blocked:
            daemons, claims = tuple(name for name, _ in each.daemons), tuple(claim for _, claim in each.daemons)
            facts = {**pods_of(each), "daemons": daemons, "claims": claims}
            problems.append(Problem.of(ProblemKind.BLOCKED_BY_DAEMON_SETS, **facts))
        groups = {key for order in orders for key in order.groups} | {key for each in blocked for key in each.groups}
        return replace(self.incident(IncidentKind.INEFFECTIVE_ORDER, self.now, groups), problems=tuple(problems))

    def _unready_lately(self) -> Incident | None:
        """Return the open incident for a while after the last node that was not Ready: new nodes may die, too."""
        before = self.before(IncidentKind.INEFFECTIVE_ORDER)
        reasons = [] if before is None else [problem.facts.get("why") for problem in before.problems]
        if before is None or Reason.of(Rule.NODE_NOT_READY) not in reasons:
            return None
        calm = before.calm_since or self.now
        return replace(before, calm_since=calm) if self.now - calm < UNREADY_COUNTS else None

    def find_step_hangs(self) -> Incident | None:
        report = self.pool.convergence.report
        if report is None or report.step is None or report.hangs_since is None:
            return None
        groups = (report.draining_group, report.step.order.source)
        machine = "" if report.machine is None else report.machine.name
        return self.incident(IncidentKind.STEP_HANGS, report.hangs_since, groups, machine)


def _at_once(*_: object) -> bool:
    return True


def _after_the_delay(check: _PoolCheck, incident: Incident) -> bool:
    return check.now - incident.since >= check.delay


def _at_once_if_starved_else_after_delay(check: _PoolCheck, *_: object) -> bool:
    since = check.missing_since
    return check.pool.report.starved > 0 or (since is not None and check.now - since >= check.delay)


class _PoolKind(NamedTuple):
    """A kind of incident of a pool. The incident closes when ``find`` returns None."""

    kind: IncidentKind
    find: Callable[[_PoolCheck], Incident | None]
    opens: Callable[[_PoolCheck, Incident], bool] = _at_once
    needs_pods: bool = False  # True: while pods are not read, the incident is unchanged


_POOL_KINDS = (
    _PoolKind(IncidentKind.MISSING, _PoolCheck.find_missing, opens=_at_once_if_starved_else_after_delay),
    _PoolKind(IncidentKind.ZONE_UNHEALTHY, _PoolCheck.find_zone_unhealthy, opens=_after_the_delay),
    _PoolKind(IncidentKind.INVALID, _PoolCheck.find_invalid),
    _PoolKind(IncidentKind.REFUSED, _PoolCheck.find_refused),
    _PoolKind(IncidentKind.LOST_GROUP, _PoolCheck.find_lost),
    _PoolKind(IncidentKind.CONTESTED, _PoolCheck.find_contested),
    _PoolKind(IncidentKind.BOUNDS_UNREAD, _PoolCheck.find_bounds_unread),
    _PoolKind(IncidentKind.OVER_COMMITTED, _PoolCheck.find_over_committed, opens=_after_the_delay),
    _PoolKind(IncidentKind.DRAIN_HANGS, _PoolCheck.find_drain_hangs, needs_pods=True),
    _PoolKind(IncidentKind.INEFFECTIVE_ORDER, _PoolCheck.find_ineffective_order, needs_pods=True),
    _PoolKind(IncidentKind.STEP_HANGS, _PoolCheck.find_step_hangs),
)


def _fenced_until(groups: Collection[GroupPlan]) -> datetime | None:
    """Return when the first of these groups' zones is no longer impaired; None: the zone of a group is not impaired."""
    reasons = [[reason for reason in plan.reasons if reason.rule is Rule.ZONE_IMPAIRED] for plan in groups]
    ends = [until for (reason, *_) in filter(None, reasons) if isinstance(until := reason.facts["until"], datetime)]
    return min(ends, default=None) if len(ends) == len(groups) else None


def _rolls(plan: GroupPlan) -> bool:
    """Return True if a rollout freezes the group."""
    return plan.group.frozen_because is not None and plan.group.frozen_because.rule in ROLLOUTS


# Notifications


def with_pending_changes(health: ClusterHealth) -> ClusterHealth:
    """Return the health with as many pending changes in the outbox as fit. Changes in the outbox count as notified."""
    changes = pending_changes(health)[: max(0, _MOST_PENDING - len(health.outbox))]
    if not changes:
        return health
    notified = dict(health.notified)
    for change in changes:
        if change.change is Change.CLOSED:
            del notified[change.key]
        else:
            notified[change.key] = _notified(change.incident)
    return replace(health, notified=notified, outbox=(*health.outbox, *changes))


def pending_changes(health: ClusterHealth) -> tuple[IncidentChange, ...]:
    """Return the changes that are neither notified nor in the outbox: closed incidents first, then the others."""
    incidents = {incident.key: incident for incident in health.incidents}
    changes = [
        IncidentChange(
            change=Change.CLOSED,
            incident=Incident(kind=last.kind, since=last.since, pool=last.pool, missing=last.missing),
        )
        for key, last in sorted(health.notified.items())
        if key not in incidents or incidents[key].since != last.since
    ]
    for key, incident in incidents.items():
        known = health.notified.get(key)
        if known is None or known.since != incident.since:
            changes.append(IncidentChange(change=Change.OPENED, incident=incident))
        elif _has_changed(known, incident):
            changes.append(IncidentChange(change=Change.CHANGED, incident=incident))
    return tuple(changes)


def _notified(incident: Incident) -> Notified:
    return Notified(
        kind=incident.kind,
        since=incident.since,
        pool=incident.pool,
        missing=incident.missing,
        matter=_fingerprint(incident),
    )


def _has_changed(last: Notified, incident: Incident) -> bool:
    """Return True if an open incident must be notified again.

    A new number of missing nodes is notified only if it has at least doubled or halved. So nodes that return one by one
    cause no notifications.
    """
    missing = incident.missing
    other_number = missing > 0 and (missing >= 2 * last.missing or 2 * missing <= last.missing)
    return _fingerprint(incident) != last.matter or (other_number and missing != last.missing)


def _fingerprint(incident: Incident) -> str:
    return hashlib.sha256(json.dumps(incident.matter, default=str).encode()).hexdigest()[:16]
