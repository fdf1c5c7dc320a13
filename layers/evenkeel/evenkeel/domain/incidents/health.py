"""From a plan to the cluster's verdict: which trouble there is, and what of it is to be told.

A node is *missing* where it is requested and neither runs nor is on its way, or finds no zone at all. That is trouble
at once where nobody can take it over, else when it has lasted. While zones that failed are only tried, nothing of it
ends: a machine on its way to a zone that fails is still missing, and where an autoscaler has given up ordering, the
zones have not become well. So it does not flap while a zone probes.

    missing   3  3  2  0  0  3  3  0 ---
    zone      fenced    probing  fenced  healthy
    trouble   [============================]      one episode
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from evenkeel.domain.model.demand import Advice
from evenkeel.domain.model.groups import GroupKey, State, is_outage
from evenkeel.domain.model.incidents import Change, ClusterHealth, Incident, IncidentChange, IncidentKind, Notified
from evenkeel.domain.model.plans import GroupPlan, Plan, PoolPlan
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.reasons import ROLLOUTS, Rule
from evenkeel.domain.model.states import GroupState

# A write that was refused is tried again after five minutes. One that is not refused again is wanted no more.
REFUSED_COUNTS = timedelta(minutes=15)
# A cluster is looked at each interval, and a look may be lost.
_STOPPED_AFTER = timedelta(minutes=5)
# Looks come early or late by seconds.
_SLACK = timedelta(seconds=10)
_LONGEST_WORDS = 300
# So that a verdict fits into an item of the table, whatever happens: names in one trouble, problems of one pool.
_MOST_NAMES, _MOST_PROBLEMS, _MOST_PODS = 20, 5, 3

Groups = Mapping[GroupKey, GroupState]
"""What is remembered of groups, as a run leaves it."""


def evaluate(before: ClusterHealth, plan: Plan, groups: Groups, after: timedelta) -> ClusterHealth:
    """The verdict about a cluster that was read and planned for.

    Args:
        before: The verdict until now.
        plan: What was planned.
        groups: What is remembered of the groups.
        after: How long a node may be missing that others may take over, before that is trouble.
    """
    known = {incident.key: incident for incident in before.incidents}
    incidents: list[Incident] = []
    for pool in plan.pools:
        id = str(pool.id)
        if pool.valid and not pool.judged:  # half of a list, perhaps: this look says nothing of it
            incidents += [incident for incident in before.incidents if incident.pool == id]
            continue
        found = _Found(pool=pool, groups=groups, known=known, now=plan.now, after=after, demand=plan.demand)
        incidents += [incident for incident in found.all() if incident is not None]
    return before.with_incidents([*incidents, *_beside_another(before, plan)])


def _beside_another(before: ClusterHealth, plan: Plan) -> list[Incident]:
    """Another autoscaler is at work. While nobody has looked for one, what was known stays."""
    known = [incident for incident in before.incidents if incident.kind is IncidentKind.TWO_AUTOSCALERS]
    found = None if plan.demand is None else plan.demand.beside_another
    if plan.demand is None or found is False:
        return []
    return known or ([Incident(kind=IncidentKind.TWO_AUTOSCALERS, since=plan.now)] if found else [])


def evaluate_unread(
    before: ClusterHealth, kind: IncidentKind, said: str, since: datetime, now: datetime, after: timedelta
) -> ClusterHealth:
    """The verdict about a cluster that could not be read. What was known of its pools stays: nobody knows better.

    ``since``: when it could not be read for the first time. One that does not answer may be about to; what else keeps
    us out, nobody but people will mend.
    """
    unread = before.unread
    if unread is None or unread.kind is not kind:
        begins = kind is not IncidentKind.UNREACHABLE or now - since >= after - _SLACK
        if begins:
            began = since if unread is None else unread.since
            unread = Incident(kind=kind, since=began, said=_excerpt(said))
    rest = [incident for incident in before.incidents if not incident.kind.of_cluster]
    return before.with_incidents([*rest, *([] if unread is None else [unread])])


def unreadable(before: ClusterHealth, said: str, now: datetime) -> ClusterHealth:
    """The verdict about a cluster whose record nobody can read, as whoever asks finds it."""
    since = now if before.unread is None else before.unread.since
    return _as_a_whole(before, Incident(kind=IncidentKind.INVALID_RECORD, since=since, said=said))


def with_stopped(before: ClusterHealth, scan_interval: int, looked_at: datetime | None, now: datetime) -> ClusterHealth:
    """The verdict, and that nobody looks, which only whoever asks can find. Why one was not read goes before.

    ``scan_interval`` in seconds; ``looked_at`` None: nobody knows when.
    """
    if looked_at is None or before.unread is not None:
        return before
    stands = max(_STOPPED_AFTER, 2 * timedelta(seconds=scan_interval) + timedelta(minutes=1))
    return (
        before
        if now - looked_at < stands
        else _as_a_whole(before, Incident(kind=IncidentKind.STOPPED, since=looked_at))
    )


def _as_a_whole(before: ClusterHealth, incident: Incident) -> ClusterHealth:
    return before.with_incidents([incident, *(each for each in before.incidents if not each.kind.of_cluster)])


@dataclass(frozen=True, kw_only=True)
class _Found:
    """The trouble of one pool."""

    pool: PoolPlan
    groups: Groups
    known: Mapping[str, Incident]
    now: datetime
    after: timedelta
    demand: Advice | None  # what pods and nodes say of the cluster; None: they were not read

    def all(self) -> Iterator[Incident | None]:
        yield self._missing()
        yield self._invalid()
        yield self._refused()
        yield self._contested()
        yield self._over_committed()
        yield self._drain_hangs()
        yield self._ineffective_order()
        yield self._step_hangs()

    def _before(self, kind: IncidentKind) -> Incident | None:
        return self.known.get(f"{self.pool.id}/{kind.value}")

    def _since(self, kind: IncidentKind, began: datetime) -> datetime:
        before = self._before(kind)
        return began if before is None else before.since

    def _states(self) -> Iterator[tuple[GroupPlan, GroupState]]:
        for plan in self.pool.groups:
            state = self.groups.get(plan.group.key)
            if state is not None:
                yield plan, state

    # Missing nodes

    def _missing(self) -> Incident | None:
        before = self._before(IncidentKind.MISSING)
        counted = frozenset(before.groups) if before else frozenset()
        nodes = {
            plan.group.key: self._missing_of(plan, was=str(plan.group.key) in counted) for plan in self.pool.groups
        }
        missing = sum(nodes.values()) + self._homeless + self._untaken
        if before is None and not (missing and (self.pool.starved or self._lasts(nodes))):
            return None
        concerned = [
            plan
            for plan in self.pool.groups
            if nodes[plan.group.key] or ((self._untaken or str(plan.group.key) in counted) and self._fails(plan))
        ]
        calm = None if missing or before is None else before.calm_since or self.now
        runs, wanted = self._runs_and_wanted(counted)
        wanted = wanted if missing or before is None else before.wanted
        if not missing and self._is_over(concerned, calm, gave_up=runs < wanted):
            return None
        failing = self._worst(concerned, nodes, before)
        told = "" if failing is None else failing.message
        if before is not None and failing is not None and before.failure_class is failing.failure_class and before.said:
            told = before.said  # a cloud's words name the request: they would be new each time
        return Incident(
            kind=IncidentKind.MISSING,
            pool=str(self.pool.id),
            since=self._since(IncidentKind.MISSING, self._began(nodes)),
            zones=_zones(concerned),
            groups=_keys(concerned),
            missing=missing,
            untaken=self._untaken,
            requested=sum(plan.requested for plan in self.pool.groups) + self._homeless + self._untaken,
            running=sum(plan.group.running for plan in self.pool.groups),
            wanted=wanted,
            is_outage=is_outage(plan.state for plan in self.pool.groups),
            is_rollout=any(_rolls(plan) and self._fails(plan) for plan in concerned),
            calm_since=calm,
            failure_class=None if failing is None else failing.failure_class,
            said=_excerpt(told),
        )

    @property
    def _homeless(self) -> int:
        """Nodes that no group of the pool can be asked for."""
        frozen = all(plan.state is State.FROZEN for plan in self.pool.groups)
        return self.pool.unplaced + (0 if frozen else self.pool.unmet_minimum)

    @property
    def _untaken(self) -> int:
        """Return the released replicas that no autoscaler has ordered although it had the time."""
        due = self.pool.taker_due
        return self.pool.untaken if due is not None and self.now >= due else 0

    def _missing_of(self, plan: GroupPlan, *, was: bool) -> int:
        """Nodes of a group that are missing. ``was``: it was counted in the trouble that lasts."""
        group, state = plan.group, self.groups.get(plan.group.key)
        waiting = max(0, min(plan.requested, group.requested) - group.running)
        if not waiting:
            return 0
        if plan.state is State.FROZEN and not self._fails(plan):
            # It waits by design, as in a rolling update, or as it did before.
            if not (was and _rolls(plan)):
                return waiting if was else 0
            return group.missing_in_rollout(self.now, plan.provision_timeout)
        if was and self._fails(plan):
            return waiting
        if plan.state is State.FROZEN:
            return group.missing_in_rollout(self.now, plan.provision_timeout)
        if any(reason.rule is Rule.FENCED_BY_OTHERS for reason in plan.reasons):
            return 0  # nothing of its own has failed: what it has ordered is on its way
        coming = group.on_its_way(self.now, plan.provision_timeout)
        if was and state is not None and state.last_success is not None:
            # The zone delivers again. What was ordered before is part of what is missing, until it has come.
            since = state.last_success
            coming = min(coming, sum(machine.created_at > since for machine in group.machines or ()))
        return max(0, waiting - coming)

    def _fails(self, plan: GroupPlan) -> bool:
        """Whether no node has come since the group's last failure."""
        state = self.groups.get(plan.group.key)
        if state is None:
            return False
        return _is_stalled(plan, state) or (state.is_failing and plan.state in (State.FENCED, State.PROBING))

    def _lasts(self, nodes: Mapping[GroupKey, int]) -> bool:
        """Whether a node is missing for so long that it is trouble although others may take it over."""
        released = self.pool.remembered.release
        return (self._untaken > 0 and released is not None and self.now - released.at >= self.after) or any(
            nodes[plan.group.key] and (since := _missing_since(state)) is not None and self.now - since >= self.after
            for plan, state in self._states()
        )

    def _began(self, nodes: Mapping[GroupKey, int]) -> datetime:
        waits = [_missing_since(state) for plan, state in self._states() if nodes[plan.group.key]]
        released = self.pool.remembered.release
        waits += [released.at] if self._untaken and released is not None else []
        return min([self.now, *(since for since in waits if since is not None)])

    def _runs_and_wanted(self, counted: Collection[str]) -> tuple[int, int]:
        """Return how many requested nodes run, and how many are wanted, with those that no group can be asked for.

        A frozen group wants what it runs, unless the incident counts it already.
        """
        runs = {plan.group.key: min(plan.requested, plan.group.running) for plan in self.pool.groups}
        wanted = sum(
            runs[plan.group.key]
            if plan.state is State.FROZEN and str(plan.group.key) not in counted
            else plan.requested
            for plan in self.pool.groups
        )
        return sum(runs.values()), wanted + self._homeless

    def _is_over(self, concerned: list[GroupPlan], calm: datetime | None, *, gave_up: bool) -> bool:
        """Return whether an incident ends in which no node is missing any more.

        It ends when every node runs that was wanted, also where no zone has been probed since. If fewer run, an
        autoscaler may only have given up. Then it ends where another group could have been asked for long enough, or
        where pods show that none waits. Without an autoscaler, only people lower what is requested.

        Args:
            concerned: The groups that the incident is about.
            calm: Since when no node is missing.
            gave_up: Fewer nodes run than were wanted when a node was last missing.
        """
        if not any(self._fails(plan) for plan in concerned):
            return True
        all_run = all(plan.group.running >= plan.requested for plan in concerned)
        if all_run and (not gave_up or self._no_pod_waits()):
            return True
        can_grow = any(plan.state is State.HEALTHY for plan in self.pool.groups)
        return can_grow and calm is not None and self.now - calm >= self.after

    def _no_pod_waits(self) -> bool:
        """Return whether nodes that are not requested any more are not wanted either, as far as that is known."""
        demand, pool = self.demand, self.pool.demand
        if demand is None or pool is None:
            return demand is None and not self.pool.autoscaler
        return not (demand.unmet or demand.not_counted or pool.asked.pending)

    def _worst(
        self, concerned: list[GroupPlan], nodes: Mapping[GroupKey, int], before: Incident | None
    ) -> GroupState | None:
        """The group that says best why nodes are missing: a reason, that of before, of most nodes."""
        usual = None if before is None else before.failure_class

        def rank(key: GroupKey) -> tuple[bool, bool, bool, int, GroupKey]:
            kind = self.groups[key].failure_class
            lacks = nodes[key] > 0 or not self._untaken  # that the other has released, is told besides
            return lacks, not kind.is_vague, kind is usual, nodes[key], key

        failing = [plan.group.key for plan in concerned if self._fails(plan)]
        return self.groups[max(failing, key=rank)] if failing else None

    # What else is wrong with a pool

    def _invalid(self) -> Incident | None:
        if self.pool.valid or not self.pool.problems:
            return None  # what a restore finds of a pool without members has no problem
        return self._incident(IncidentKind.INVALID, self.now, problems=self.pool.problems[:_MOST_PROBLEMS])

    def _refused(self) -> Incident | None:
        refused = [
            (plan, state, state.write_refused_at)
            for plan, state in self._states()
            if state.write_refused_at is not None and self.now - state.write_refused_at < REFUSED_COUNTS
        ]
        if not refused:
            return None
        plans = [plan for plan, _, _ in refused]
        words = _excerpt(refused[0][1].write_refused)
        since = min(at for _, _, at in refused)
        return self._incident(IncidentKind.REFUSED, since, zones=_zones(plans), groups=_keys(plans), said=words)

    def _contested(self) -> Incident | None:
        contested = [(plan, state) for plan, state in self._states() if state.contested_since is not None]
        if not contested:
            return None
        plans = [plan for plan, _ in contested]
        who = ", ".join(sorted({state.contested_by for _, state in contested if state.contested_by}))
        since = min(state.contested_since for _, state in contested if state.contested_since is not None)
        return self._incident(
            IncidentKind.CONTESTED, since, zones=_zones(plans), groups=_keys(plans), said=_excerpt(who)
        )

    def _over_committed(self) -> Incident | None:
        """More is requested than PoolMaximum, and stays so. Taking back what has no machine is our own next step."""
        if not self.pool.overcommitted:
            return None
        seen = self.pool.remembered.seen
        stood = self.now if seen is None else seen.since
        if self._before(IncidentKind.OVER_COMMITTED) is None and self.now - stood < self.after:
            return None
        problems = tuple(problem for problem in self.pool.problems if problem.kind is ProblemKind.OVER_COMMITTED)
        return self._incident(IncidentKind.OVER_COMMITTED, stood, problems=problems)

    def _drain_hangs(self) -> Incident | None:
        """Of who could not be read, what was known stays."""
        if self.pool.demand is None:
            return self._before(IncidentKind.DRAIN_HANGS) if self.demand is not None else None
        hanging = [node.hangs for node in self.pool.demand.nodes if node.hangs is not None]
        if not hanging:
            return None
        groups = {each.group for each in hanging}
        plans = [plan for plan in self.pool.groups if plan.group.key in groups]
        names = ", ".join(each.node for each in hanging[:_MOST_NAMES])
        since = min(each.since for each in hanging)
        return self._incident(
            IncidentKind.DRAIN_HANGS, since, zones=_zones(plans), groups=_keys(plans), said=_excerpt(names)
        )

    def _ineffective_order(self) -> Incident | None:
        """Nodes that were ordered for pods have arrived and do not help them, or new ones would not for DaemonSets.

        While pods are not read, it stays.
        """
        if self.pool.demand is None:
            return self._before(IncidentKind.INEFFECTIVE_ORDER) if self.demand is not None else None
        orders = self.pool.demand.asked.ineffective[:_MOST_PROBLEMS]
        ordered_for = {pod for order in self.pool.demand.asked.ineffective for pod in order.pods}
        blocked = [each for each in self.pool.demand.asked.blocked if not ordered_for.intersection(each.pods)]
        blocked = blocked[: _MOST_PROBLEMS - len(orders)]
        if not orders and not blocked:
            return None
        groups = {key for order in orders for key in order.groups} | {key for each in blocked for key in each.groups}
        plans = [plan for plan in self.pool.groups if str(plan.group.key) in groups]
        problems = [
            Problem.of(
                ProblemKind.INEFFECTIVE_ORDER,
                pods=order.pods[:_MOST_PODS],
                count=len(order.pods),
                node=order.node,
                why=order.why,
            )
            for order in orders
        ]
        problems += [
            Problem.of(
                ProblemKind.BLOCKED_BY_DAEMON_SETS,
                pods=each.pods[:_MOST_PODS],
                count=len(each.pods),
                daemons=tuple(name for name, _ in each.daemons),
                claims=tuple(claim for _, claim in each.daemons),
                why=each.why,
            )
            for each in blocked
        ]
        found = {"zones": _zones(plans), "groups": _keys(plans), "problems": tuple(problems)}
        return self._incident(IncidentKind.INEFFECTIVE_ORDER, self.now, **found)

    def _step_hangs(self) -> Incident | None:
        """A step of converge that only people, or whoever holds the machine, can end."""
        told = self.pool.converging
        if told is None or told.step is None or told.hangs_since is None:
            return None
        plans = [
            plan for plan in self.pool.groups if str(plan.group.key) in (told.step.draining_group, told.step.source)
        ]
        machine = told.step.machine.name if told.step.machine else ""
        hangs = {"zones": _zones(plans), "groups": _keys(plans), "said": machine}
        return self._incident(IncidentKind.STEP_HANGS, told.hangs_since, **hangs)

    def _incident(self, kind: IncidentKind, began: datetime, **more: object) -> Incident:
        incident = Incident(kind=kind, pool=str(self.pool.id), since=self._since(kind, began))
        return replace(incident, **more)  # type: ignore[arg-type]


def _rolls(plan: GroupPlan) -> bool:
    """Return True if a rollout freezes the group."""
    return plan.group.frozen_because is not None and plan.group.frozen_because.rule in ROLLOUTS


def _is_stalled(plan: GroupPlan, state: GroupState) -> bool:
    return plan.state is State.FROZEN and state.stalled_since is not None


def _missing_since(state: GroupState) -> datetime | None:
    return state.waiting_since or state.stalled_since


def _zones(plans: list[GroupPlan]) -> tuple[str, ...]:
    return tuple(sorted({plan.group.zone for plan in plans if plan.group.zone}))[:_MOST_NAMES]


def _keys(plans: list[GroupPlan]) -> tuple[str, ...]:
    return tuple(sorted(str(plan.group.key) for plan in plans))[:_MOST_NAMES]


def _excerpt(text: str) -> str:
    """On one line; what was cut off is seen to be."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_WORDS else f"{line[: _LONGEST_WORDS - 1]}…"


# What is told


# However long the bus is away, a verdict fits into an item. What finds no room is not remembered as told.
_LONGEST_OUTBOX = 80


def with_pending_changes(cluster_health: ClusterHealth) -> ClusterHealth:
    """With what nobody was told of yet put into the outbox, as far as there is room, and remembered as told."""
    news = pending_changes(cluster_health)[: max(0, _LONGEST_OUTBOX - len(cluster_health.outbox))]
    if not news:
        return cluster_health
    told = dict(cluster_health.told)
    for each in news:
        if each.news is Change.CLOSED:
            del told[each.key]
        else:
            told[each.key] = _told_of(each.incident)
    return replace(cluster_health, told=told, outbox=(*cluster_health.outbox, *news))


def pending_changes(cluster_health: ClusterHealth) -> tuple[IncidentChange, ...]:
    """What is neither told nor in the outbox: what is over first, then the worst."""
    open_now = {incident.key: incident for incident in cluster_health.incidents}
    over = [
        Incident(kind=told.kind, since=told.since, pool=told.pool, missing=told.missing)
        for key, told in sorted(cluster_health.told.items())
        if key not in open_now or open_now[key].since != told.since
    ]
    news = [IncidentChange(news=Change.CLOSED, incident=incident) for incident in over]
    for key, incident in open_now.items():
        told = cluster_health.told.get(key)
        if told is None or told.since != incident.since:
            news.append(IncidentChange(news=Change.OPENED, incident=incident))
        elif _has_changed(told, incident):
            news.append(IncidentChange(news=Change.CHANGED, incident=incident))
    return tuple(news)


def _told_of(incident: Incident) -> Notified:
    matter = _fingerprint(incident)
    return Notified(
        kind=incident.kind, since=incident.since, pool=incident.pool, missing=incident.missing, matter=matter
    )


def _has_changed(told: Notified, incident: Incident) -> bool:
    """Whether people should hear of it again. Of the number of nodes only when it has doubled or halved: machines that
    come back one by one are no news each.
    """
    missing = incident.missing
    other_number = missing > 0 and (missing >= 2 * told.missing or 2 * missing <= told.missing)
    return _fingerprint(incident) != told.matter or (other_number and missing != told.missing)


def _fingerprint(incident: Incident) -> str:
    return hashlib.sha256(json.dumps(incident.matter, default=str).encode()).hexdigest()[:16]
