"""``status``: a cluster's pools, zones and groups, the reasons that stop growth, and the last decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import Field

from evenkeel.application.actions.call import Answer, Call, Evaluated, Fields, Flag, PoolName, Right, action
from evenkeel.application.actions.overview import (
    CauseSummary,
    cause_summary,
    causes_of_cluster,
    overview,
    titles_of_causes,
)
from evenkeel.application.demand.summary import cluster_demand
from evenkeel.application.drill.drill import drill_json
from evenkeel.application.plan_documents import (
    ONLY_WHEN_KNOWN,
    ONLY_WHEN_SET,
    ClusterDemandDocument,
    Document,
    GroupDocument,
    PlannedPoolDocument,
    Timestamp,
    document_json,
    or_named,
)
from evenkeel.application.ports import StoredCluster
from evenkeel.application.rebalancing.decisions import pool_document
from evenkeel.application.rebalancing.preview import Preview, find_pool
from evenkeel.domain.fleet.check_times import AUTO, check_interval
from evenkeel.domain.fleet.event_source import EventSource
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.incidents import Incident
from evenkeel.domain.model.plans import GroupPlan, PoolPlan
from evenkeel.domain.model.reasons import KEEPING, Topic
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.rebalancing.dry_run import is_pool_dry
from evenkeel.domain.rebalancing.health.backoff import backoff_of, state_at
from evenkeel.record import ControlRecord
from evenkeel.state_records import ScaleRequestRecord, ZoneRecord, zones_with_drill
from evenkeel.texts.drill import drill_text
from evenkeel.texts.english import ago, clock_text, counted, rfc3339, sentences
from evenkeel.texts.incidents import incident_headline
from evenkeel.validation import Count

_DECISIONS_SHOWN = 10
_DECISIONS_READ = 50  # for one pool: most decisions are about other pools
_REQUESTS_SHOWN = 10  # the newest requests


class StatusFields(Fields):
    """Without a cluster, only ``live`` has an effect."""

    pool: PoolName = None
    unhealthy: Flag = Field(default=False, description="Only pools that are not healthy; the others as a count.")
    live: Flag = Field(default=False, description="Without a cluster: read each cluster now, not only stored items.")


class StoredGroup(Document):
    """The stored state of a node group."""

    state: State
    failure_class: Annotated[str, Field(alias="class")]
    failures: Count
    backoff_until: Timestamp | None
    last_failure: Timestamp | None
    message: str
    contested_by: str | None


class StatementStatus(Document):
    """The statement of one source about a zone."""

    by: str
    until: Timestamp
    stated_at: Timestamp | None
    holds: bool


class ZoneStatus(Document):
    """The statements of all sources about a zone."""

    impaired_until: Timestamp
    impaired: bool
    by: str
    statements: list[StatementStatus]


class RequestStatus(Document):
    """A request for nodes."""

    pool: str | None
    group: str | None
    nodes: int
    added: int | None
    left: int | None
    at: Timestamp
    by: str | None
    done: bool
    result: str | None


class GroupFailure(Document):
    """The last failure of a node group."""

    failure_class: Annotated[str, Field(alias="class")]
    failures: Count
    last: Timestamp
    message: str


class GroupStatus(GroupDocument):
    """A planned node group, and what a status adds. ``held`` says why the group is not written or may not grow."""

    since: Timestamp | None = None
    until: Timestamp | None = None
    failure: GroupFailure | None = None
    held: tuple[str, ...] = ()


class PoolStatus(PlannedPoolDocument):
    """A planned pool, and what a status adds. It reads a pool of a plan, too."""

    healthy: bool = False
    groups: tuple[GroupStatus, ...]


class HealthyPools(Document):
    """The healthy pools that the answer leaves out."""

    pools: int
    nodes: int  # running


class ModeStatus(Document):
    """The dry run, pauses and restores of a cluster."""

    now: Timestamp
    dry_run: bool
    paused: bool
    leaving: bool
    paused_until: Timestamp | None
    paused_pools: dict[str, Timestamp | None]
    leaving_pools: tuple[str, ...]


class StatusDocument(Document):
    """The answer, together with a ``ModeStatus``.

    If the cluster cannot be read, ``unread`` is the reason, and the answer has only stored items.
    """

    groups: dict[str, StoredGroup]
    zones: dict[str, ZoneStatus]
    requests: dict[str, RequestStatus]
    pools: list[PoolStatus]
    healthy: Annotated[HealthyPools | None, ONLY_WHEN_KNOWN] = None
    incident: bool
    causes: Annotated[list[CauseSummary], ONLY_WHEN_SET] = field(default_factory=list)  # of several pools
    incidents: list[dict[str, Any]]
    drill: Annotated[dict[str, Any] | None, ONLY_WHEN_KNOWN] = None  # only while it is open
    unread: Annotated[str | None, ONLY_WHEN_KNOWN] = None
    clock_skew_seconds: Annotated[int, ONLY_WHEN_SET] = 0
    demand: Annotated[ClusterDemandDocument | None, ONLY_WHEN_KNOWN] = None
    decisions: list[Mapping[str, Any]] = field(default_factory=list)
    actions: list[Mapping[str, Any]] = field(default_factory=list)
    mode: str
    headline: str
    message: str


@action(StatusFields, Right.READ, of_all=True, overview=overview, looks_with="live")
def status(call: Call, fields: StatusFields) -> Answer:
    """The incidents of all clusters; or the pools and zones of one, why groups are held, and the last decisions."""
    evaluated = call.evaluate(with_demand=True)
    stored, preview, incidents = evaluated.stored, evaluated.preview, evaluated.cluster_health.incidents
    control, dry_run = stored.control, stored.control.is_dry(stored.record, call.ports.dry_run)
    shown = _DECISIONS_SHOWN if fields.pool is None else _DECISIONS_READ
    entries = [or_named(entry) for entry in call.ports.store.decisions(call.cluster, shown)]
    asked = None if fields.pool is None else fields.pool.rpartition("/")[2]
    decisions = [entry for entry in entries if "pool" in entry and asked in (None, entry["pool"]["name"])]
    mode = _mode(control, dry_run, call.now) + _exceptions(preview, dry_run)
    headline = f"{call.cluster}: {mode}, {_headline(call, evaluated, decisions)}"
    skew = preview.plan.clock_skew if preview else timedelta(0)
    pools, healthy = _pools(preview, incidents, fields) if preview else ([], None)
    causes = causes_of_cluster(call, incidents)
    titles = titles_of_causes(causes)[call.cluster]
    modes = ModeStatus(
        now=call.now,
        dry_run=dry_run,
        paused=control.is_paused(call.now),
        leaving=control.restoring,
        paused_until=control.paused_until if control.is_paused(call.now) else None,
        paused_pools=control.pools_paused(call.now),
        leaving_pools=control.restoring_pools,
    )
    answer = StatusDocument(
        groups={str(key): document for key, document in _groups(evaluated, call.now).items()},
        zones={zone: _zone(record, call.now) for zone, record in zones_with_drill(stored.zones, stored.drill).items()},
        requests=_requests(stored.scale_requests),
        pools=pools,
        healthy=healthy,
        incident=bool(incidents),
        causes=[cause_summary(cause, call) for cause in causes],
        incidents=[call.incident_json(each, evaluated.now, titles.get(each.key, "")) for each in incidents],
        drill=drill_json(stored.drill, call.now) if stored.drill and stored.drill.is_open(call.now) else None,
        unread=evaluated.unread,
        clock_skew_seconds=int(skew.total_seconds()),
        demand=cluster_demand(preview.plan.demand) if preview else None,
        decisions=decisions[:_DECISIONS_SHOWN],
        actions=[entry for entry in entries if "pool" not in entry],
        mode=mode,
        headline=headline,
        message=headline + ("" if evaluated.unread is None else f"; not read: {evaluated.unread}"),
    )
    return {**document_json(modes), **document_json(answer)}


def _mode(control: ControlRecord, dry_run: bool, now: datetime) -> str:
    if control.is_paused(now):
        return "paused" if control.paused_until is None else f"paused until {rfc3339(control.paused_until)}"
    return "being restored" if control.restoring else "dry run" if dry_run else "on"


def _exceptions(preview: Preview | None, dry_run: bool) -> str:
    """Return text that names the pools whose dry-run setting differs from their cluster's setting."""
    pools = preview.plan.pools if preview else ()
    names = [pool.id.name for pool in pools if is_pool_dry(pool.mode.dry_run, dry_run) is not dry_run]
    return f" (not so pool {', '.join(names)})" if names else ""


def _headline(call: Call, evaluated: Evaluated, decisions: Sequence[Mapping[str, Any]]) -> str:
    preview, restoring = evaluated.preview, evaluated.stored.control.restoring_pools
    skew = preview.plan.clock_skew if preview else timedelta(0)
    return "".join(
        (
            _worst_incident(evaluated),
            _unusual_states(evaluated, call.now),
            _last_decision(decisions, call.now),
            _interval(evaluated.stored, call.now),
            _open_drill(evaluated.stored, call.now),
            f"; being restored: pool {', '.join(restoring)}" if restoring else "",
            _pending_pods(preview),
            f"; its API server's clock {clock_text(skew)}" if skew else "",
        )
    )


def _interval(stored: StoredCluster, now: datetime) -> str:
    """Return how often an adaptive cluster is checked, if its events are proven or have missed a failure."""
    source = stored.event_check.source if stored.event_check else EventSource()
    if stored.record.scan_interval != AUTO or source.proven_at is None:
        return ""
    if stored.steady is not None and stored.steady.is_resting(now):
        minutes = check_interval(AUTO, resting=True) // 60
        return f"; checked every {minutes} min: events proven {ago(now - source.proven_at)}"
    if source.missed_at is not None and source.is_doubted(now):
        return f"; checked every minute: no event in time for a failure {ago(now - source.missed_at)}"
    return ""


def _open_drill(stored: StoredCluster, now: datetime) -> str:
    return f"; {drill_text(stored.drill, now)}" if stored.drill is not None and stored.drill.is_open(now) else ""


def _worst_incident(evaluated: Evaluated) -> str:
    health = evaluated.cluster_health
    if not health.incidents:
        return "no incident"
    words = incident_headline(health.unread or health.incidents[0], evaluated.now)
    more = len(health.incidents) - 1
    return f"incident: {words}" + (f" (+{more})" if more else "")


def _unusual_states(evaluated: Evaluated, now: datetime) -> str:
    """Return the number of node groups in each state other than healthy."""
    if evaluated.preview:
        states = [plan.state for pool in evaluated.preview.plan.pools for plan in pool.groups]
    else:
        states = [group.state for group in _groups(evaluated, now).values()]
    counts = [
        f"{states.count(state)} {state.value}" for state in State if state is not State.HEALTHY and state in states
    ]
    return f"; node groups: {', '.join(counts)}" if counts else ""


def _last_decision(decisions: Sequence[Mapping[str, Any]], now: datetime) -> str:
    try:
        return f"; last decision {ago(now - datetime.fromisoformat(decisions[0]['at']))}"
    except (IndexError, KeyError, TypeError, ValueError):
        return ""


def _pending_pods(preview: Preview | None) -> str:
    if preview is None or preview.plan.demand is None:
        return ""
    if preview.plan.demand.unread is not None:
        return "; its pods are not read"
    pending = sum(len(unfit.pods) for unfit in preview.plan.demand.unmet)
    for pool in preview.plan.pools:
        pending += sum(len(group.pods) for group in pool.demand.advice.asked.pending) if pool.demand.advice else 0
    return f"; {counted(pending, 'pod')} without a node" if pending else ""


def _groups(evaluated: Evaluated, now: datetime) -> dict[Any, StoredGroup]:
    """Return the stored node groups. If there is a plan, their states are from the plan."""
    stored, plan = evaluated.stored, evaluated.preview.plan if evaluated.preview else None
    planned = {group.group.key: group.state for pool in plan.pools for group in pool.groups} if plan else {}
    return {
        key: StoredGroup(
            state=planned[key] if key in planned else _stored_state(stored, key, group, now),
            failure_class=group.failure.failure_class.value,
            failures=group.failure.failures,
            backoff_until=group.failure.backoff_until,
            last_failure=group.failure.last_failure,
            message=group.failure.message,
            contested_by=group.contest.contested_by or None,
        )
        for key, group in {**stored.state.groups, **(plan.states if plan else {})}.items()
    }


def _stored_state(stored: StoredCluster, key: Any, group: GroupState, now: datetime) -> State:
    """Return a group's state without a plan. Stored items often lack the group's pool and zone."""
    backoff = backoff_of(key, stored.state.pools, stored.record.policy())
    return State.FROZEN if group.contest.is_frozen else state_at(group, now, backoff)


def _zone(record: ZoneRecord, now: datetime) -> ZoneStatus:
    holding = record.holding(now)
    return ZoneStatus(
        impaired_until=record.impaired_until,
        impaired=record.impaired_until > now,
        by=", ".join(holding or record.statements),
        statements=[
            StatementStatus(by=source, until=statement.until, stated_at=statement.stated_at, holds=source in holding)
            for source, statement in sorted(record.statements.items())
        ],
    )


def _requests(requests: Mapping[str, ScaleRequestRecord]) -> dict[str, RequestStatus]:
    newest = sorted(requests.values(), key=lambda request: (request.at, request.id))[-_REQUESTS_SHOWN:]
    return {
        request.id: RequestStatus(
            pool=request.pool or None,
            group=request.group or None,
            nodes=request.nodes,
            added=None if request.left is None or request.done else request.added,
            left=None if request.done else request.left,
            at=request.at,
            by=request.by or None,
            done=request.done,
            result=request.result or None,
        )
        for request in newest
    }


def _pools(
    preview: Preview, incidents: Sequence[Incident], fields: StatusFields
) -> tuple[list[PoolStatus], HealthyPools | None]:
    """Return the pools that the fields select, and the count of healthy pools that ``unhealthy`` leaves out."""
    affected = {incident.pool for incident in incidents}
    pools = preview.plan.pools if fields.pool is None else (find_pool(preview, fields.pool),)
    states = [(pool, _is_healthy(pool) and str(pool.id) not in affected) for pool in pools]
    shown = [_pool(pool, preview, healthy) for pool, healthy in states if not (healthy and fields.unhealthy)]
    if not fields.unhealthy:
        return shown, None
    left_out = [pool for pool, healthy in states if healthy]
    nodes = sum(plan.group.running for pool in left_out for plan in pool.groups)
    return shown, HealthyPools(pools=len(left_out), nodes=nodes)


def _is_healthy(pool: PoolPlan) -> bool:
    is_unheld = all(plan.state is State.HEALTHY for plan in pool.groups)
    return pool.mode.valid and not pool.report.problems and is_unheld


def _pool(pool: PoolPlan, preview: Preview, is_healthy: bool) -> PoolStatus:
    planned = pool_document(pool)
    groups = [_group(group, plan, pool, preview) for group, plan in zip(planned.groups, pool.groups, strict=True)]
    return PoolStatus(**{**vars(planned), "groups": tuple(groups)}, healthy=is_healthy)


def _group(planned: GroupDocument, plan: GroupPlan, pool: PoolPlan, preview: Preview) -> GroupStatus:
    since, until = preview.span(pool, plan)
    state = preview.state_of(plan.group.key)
    failure = None
    if state.failure.last_failure is not None:
        failure = GroupFailure(
            failure_class=state.failure.failure_class.value,
            failures=state.failure.failures,
            last=state.failure.last_failure,
            message=state.failure.message,
        )
    flavour = plan.group.key.flavour
    reasons = [reason.without("words") for reason in plan.reasons]  # ``failure`` has the whole message
    holding = [reason for reason in reasons if reason.rule.topic is Topic.STATE or reason.rule in KEEPING]
    closed = plan.group.template.closed_because
    held = sentences(holding if closed is None else [*holding, closed], flavour)
    shown = {**vars(planned), "reasons": tuple(sentences(reasons, flavour))}
    return GroupStatus(**shown, since=since, until=until, failure=failure, held=tuple(held))
