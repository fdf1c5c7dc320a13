"""A drill: one zone is fenced for a limited time, and each check measures the effect.

The stored drill is the fence: while the drill is open, every plan treats its zone as impaired. So the fence ends at
``until`` even if no function runs then. ``Drill.end`` has the rules that end it, ``Drill.causes`` the incidents that it
causes. All times are of Evenkeel's clock.

    begin         until
      |-------------|           open: the zone is fenced
      |------x                  ended early: by an operator, an incident, a failure in another zone, or another fence
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from evenkeel.domain.model.groups import State
from evenkeel.domain.model.incidents import Incident, IncidentKind
from evenkeel.domain.model.plans import GroupPlan, Plan, PoolPlan
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.model.workload import UNSCHEDULABLE, Workload

SHORTEST, LONGEST = timedelta(minutes=5), timedelta(hours=4)
_CLOSED = (State.FENCED, State.PROBING)
_FAILING = (*_CLOSED, State.UNHEALTHY)
_BY_OTHERS = (Rule.ZONE_IMPAIRED, Rule.LAUNCHES_STOPPED)  # fences that are no failure of the group
# The most names of each list in the stored drill.
_MOST_NAMES = 20


class End(StrEnum):
    """Why a drill has ended. The value is a JSON value."""

    TIME = "time"  # its time was over
    INCIDENT = "incident"  # the cluster has an incident that the drill does not cause
    OTHER_FAILURE = "other-failure"  # a pool fails in another zone
    OTHER_FENCE = "other-fence"  # an operator or AWS fences a zone of the cluster
    STOPPED = "stopped"  # the cluster or a pool of the zone was paused or put into dry run, which lifts the fence
    ABORTED = "aborted"  # an operator has ended it


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The end of a drill."""

    at: datetime
    why: End
    incident: IncidentKind | None = None
    pool: str = ""  # the pool of the incident or of the failure, or the pool that is not written any more
    zone: str = ""  # the zone of the other fence or of the failure
    by: str = ""  # the unverified caller who has ended the drill
    reason: str = ""  # the caller's reason


@dataclass(frozen=True, kw_only=True)
class ZoneNodes:
    """The nodes of a cluster's groups in one zone."""

    requested: int = 0
    running: int = 0


@dataclass(frozen=True, kw_only=True)
class DrillForecast:
    """The forecast for the loss of the zone, made before the drill began. None for pods: they are not known."""

    lost_nodes: int = 0
    pods: int | None = None  # the pods that need another place
    bound: int | None = None  # the pods that may run in no other zone
    without_place: int | None = None  # the pods that never get a place
    longest_wait: timedelta | None = None  # None: also if no pod gets a place
    ordered: Mapping[str, int] = field(default_factory=dict)  # zone -> nodes ordered there
    ready_after: timedelta | None = None  # until all requested nodes run; None: not within the forecast
    at_maximum: tuple[str, ...] = ()  # the pools that reach PoolMaximum


@dataclass(frozen=True, kw_only=True)
class Span:
    """The longest time for which a condition has held without a break."""

    since: datetime | None = None  # since when it holds; None: it does not hold now
    longest: timedelta = timedelta(0)

    def followed_by(self, since: datetime | None, now: datetime) -> "Span":
        """Return the span after a check that finds the condition to hold since then; None: it does not hold."""
        return self if since == self.since else Span(since=since, longest=self.length(now))

    def length(self, now: datetime) -> timedelta:
        """Return the longest time, including the present one."""
        return self.longest if self.since is None else max(self.longest, now - self.since)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The effect of a drill, as its checks have found it."""

    requested: Mapping[str, int] = field(default_factory=dict)  # zone -> nodes requested at the last check
    ordered: Mapping[str, int] = field(default_factory=dict)  # zone -> nodes ordered there during the drill
    reads_pods: bool = False  # False: no check has read the cluster's pods
    most_waiting: int = 0  # the most pods that have waited at the same time
    waits: Span = field(default_factory=Span)  # at least one pod waits
    unready: Span = field(default_factory=Span)  # a requested node does not run
    not_at_size: tuple[str, ...] = ()  # the pools that lacked nodes at the last check
    incidents: tuple[str, ...] = ()  # keys of the incidents that the drill has caused

    def closed(self, at: datetime) -> "Measured":
        """Return the measurement without open spans."""
        return replace(self, waits=self.waits.followed_by(None, at), unready=self.unready.followed_by(None, at))


@dataclass(frozen=True, kw_only=True)
class PoolZones:
    """The zones of a pool."""

    zones: frozenset[str] = frozenset()
    # Zones that do not offer a group's machine type are neither closed nor failing.
    closed: frozenset[str] = frozenset()  # with a group that is fenced or probing
    failing: frozenset[str] = frozenset()  # with a group that is fenced, probing or unhealthy by its own failure


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts of one check that a drill measures, or that end it."""

    incidents: tuple[Incident, ...] = ()
    pools: Mapping[str, PoolZones] = field(default_factory=dict)  # by the pool's id
    fences: frozenset[str] = frozenset()  # the zones that others have fenced
    is_paused: bool = False  # True: the whole cluster is paused
    opened: tuple[str, ...] = ()  # the pools whose bounds are opened, because they are paused or in dry run
    zones: Mapping[str, ZoneNodes] | None = None  # None: the cluster was not read
    not_at_size: tuple[str, ...] = ()
    unready: bool = False  # True: a requested node does not run
    waiting: tuple[datetime, ...] | None = None  # since when each pending pod waits; None: pods were not read


@dataclass(frozen=True, kw_only=True)
class Drill:
    """A drill of one cluster, open or ended."""

    id: str
    zone: str
    at: datetime
    until: datetime
    by: str = ""  # the unverified caller
    reason: str
    start: Mapping[str, ZoneNodes] = field(default_factory=dict)  # the nodes by zone before the drill
    forecast: DrillForecast | None = None
    measured: Measured = field(default_factory=Measured)
    ended: Ended | None = None  # None: no check has found the end yet
    is_recorded: bool = False  # True: the report is among the cluster's decisions

    @property
    def fenced_until(self) -> datetime:
        """Return the end of the zone's fence."""
        return self.until if self.ended is None else self.ended.at

    def is_open(self, now: datetime) -> bool:
        """Return True if the drill fences its zone now."""
        return now < self.fenced_until

    def causes(self, incident: Incident, pools: Mapping[str, PoolZones]) -> bool:
        """Return True if the drill is the cause of an incident.

        Nodes are missing, or pods wait, only because its zone is fenced. If a machine has failed, or another zone of
        the pool is fenced, the drill is not the only cause.
        """
        pool = pools.get(incident.pool, PoolZones())
        is_missing = incident.kind in (IncidentKind.MISSING, IncidentKind.PODS_WAIT) and not incident.is_rollout
        only_here = {*incident.zones, *pool.closed} <= {self.zone}
        return is_missing and incident.failure_class is None and self.zone in pool.zones and only_here

    def end(self, facts: Facts, now: datetime) -> Ended | None:
        """Return the end of the drill; None: it goes on."""
        if self.ended is not None:
            return self.ended
        if now >= self.until:
            return Ended(at=self.until, why=End.TIME)
        if facts.is_paused:
            return Ended(at=now, why=End.STOPPED)
        for pool in facts.opened:
            if self.zone in facts.pools[pool].zones:
                return Ended(at=now, why=End.STOPPED, pool=pool)
        if (failing := failing_elsewhere(self.zone, facts.pools)) is not None:
            pool, zone = failing
            return Ended(at=now, why=End.OTHER_FAILURE, pool=pool, zone=zone)
        for incident in facts.incidents:
            if not self.causes(incident, facts.pools):
                return Ended(at=now, why=End.INCIDENT, incident=incident.kind, pool=incident.pool)
        for zone in sorted(facts.fences):
            return Ended(at=now, why=End.OTHER_FENCE, zone=zone)
        return None

    def after(self, facts: Facts, now: datetime) -> "Drill":
        """Return the drill after a check, measured and, if this is its end, ended."""
        if self.ended is not None:
            return self
        measured = self.measured if now >= self.until else self._measured(facts, now)
        return replace(self, measured=measured).ended_by(self.end(facts, now))

    def ended_by(self, end: Ended | None) -> "Drill":
        """Return the drill with this end; None: it goes on."""
        return self if end is None else replace(self, ended=end, measured=self.measured.closed(end.at))

    def as_of(self, now: datetime) -> "Drill":
        """Return the drill, ended if its time is over, even if no check has found this."""
        return self.after(Facts(), now)

    def _ordered(self, zones: Mapping[str, ZoneNodes]) -> Mapping[str, int]:
        last = self.measured.requested or {zone: nodes.requested for zone, nodes in self.start.items()}
        ordered = dict(self.measured.ordered)
        for zone, nodes in zones.items():
            if (more := nodes.requested - last.get(zone, 0)) > 0:
                ordered[zone] = ordered.get(zone, 0) + more
        return ordered

    def _measured(self, facts: Facts, now: datetime) -> Measured:
        own = [incident.key for incident in facts.incidents if self.causes(incident, facts.pools)]
        before = self.measured
        measured = replace(before, incidents=_limited((*before.incidents, *own)))
        if facts.zones is None:
            return measured
        measured = replace(
            measured,
            requested={zone: nodes.requested for zone, nodes in facts.zones.items()},
            ordered=self._ordered(facts.zones),
            unready=before.unready.followed_by((before.unready.since or now) if facts.unready else None, now),
            not_at_size=_limited(facts.not_at_size),
        )
        if facts.waiting is None:
            return measured
        waiting = [since for since in facts.waiting if since >= self.at]  # the others waited before the drill
        return replace(
            measured,
            reads_pods=True,
            most_waiting=max(before.most_waiting, len(waiting)),
            waits=before.waits.followed_by(min(waiting, default=None), now),
        )


def facts_of(plan: Plan, workload: Workload | None, incidents: Collection[Incident], fences: Iterable[str]) -> Facts:
    """Return the facts of a check that has read the cluster. ``fences``: the zones that others have fenced."""
    groups = [group.group for pool in plan.pools for group in pool.groups]
    return Facts(
        incidents=tuple(incidents),
        pools=pools_of(plan),
        fences=frozenset(fences),
        opened=tuple(str(pool.id) for pool in plan.pools if pool.mode.opens),
        zones=zones_of(plan),
        not_at_size=tuple(sorted(str(pool.id) for pool in plan.pools if _lacks_nodes(pool))),
        unready=any(group.requested > group.running for group in groups),
        waiting=None if workload is None else tuple(at - plan.clock_skew for at in _waiting_since(workload)),
    )


def pools_of(plan: Plan) -> Mapping[str, PoolZones]:
    """Return the zones of each pool by the pool's id."""
    return {str(pool.id): _zones_of_pool(pool) for pool in plan.pools}


def failing_elsewhere(zone: str, pools: Mapping[str, PoolZones]) -> tuple[str, str] | None:
    """Return a pool that fails outside a zone, and where; None: there is none. No drill runs next to an outage."""
    return min(((pool, other) for pool, of in pools.items() for other in of.failing if other != zone), default=None)


def zones_of(plan: Plan) -> Mapping[str, ZoneNodes]:
    """Return the nodes of a cluster's groups by zone."""
    zones: dict[str, ZoneNodes] = {}
    for pool in plan.pools:
        for planned in pool.groups:
            group = planned.group
            before = zones.get(group.identity.zone or "", ZoneNodes())
            zones[group.identity.zone or ""] = ZoneNodes(
                requested=before.requested + group.requested, running=before.running + group.running
            )
    return {zone: zones[zone] for zone in sorted(zones) if zone}


def _waiting_since(workload: Workload) -> list[datetime]:
    return [
        pod.unscheduled.since or pod.created_at
        for pod in workload.pods
        if not pod.node and pod.deleted_at is None and pod.unscheduled and pod.unscheduled.reason == UNSCHEDULABLE
    ]


def _zones_of_pool(pool: PoolPlan) -> PoolZones:
    zones = [(plan.group.identity.zone or "", plan) for plan in pool.groups]
    return PoolZones(
        zones=frozenset(zone for zone, _ in zones),
        closed=frozenset(zone for zone, plan in zones if plan.state in _CLOSED and not _lacks_type(plan)),
        failing=frozenset(zone for zone, plan in zones if _fails(plan)),
    )


def _fails(plan: GroupPlan) -> bool:
    by_others = any(reason.rule in _BY_OTHERS for reason in plan.reasons)
    return plan.state in _FAILING and not by_others and not _lacks_type(plan)


def _lacks_type(plan: GroupPlan) -> bool:
    """Return True if the zone does not offer the machine type. That is no outage: it would forbid every drill."""
    return any("not_offered" in reason.facts for reason in plan.reasons)


def _lacks_nodes(pool: PoolPlan) -> bool:
    lacks = pool.report.starved or pool.report.unmet_minimum
    return bool(lacks) or any(plan.group.requested > plan.group.running for plan in pool.groups)


def _limited(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))[:_MOST_NAMES]
