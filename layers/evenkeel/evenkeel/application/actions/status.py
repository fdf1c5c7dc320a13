"""How a cluster fares: pools x zones, who is held and why, and the last decisions."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pydantic import Field

from evenkeel.application.actions.call import Answer, Call, Fields, Flag, Judged
from evenkeel.application.demand.summary import cluster_demand
from evenkeel.application.incidents.notify import incident_json
from evenkeel.application.plan_documents import document_json, or_named
from evenkeel.application.ports import StoredCluster
from evenkeel.application.rebalancing.decisions import group_json, pool_json
from evenkeel.application.rebalancing.preview import Preview
from evenkeel.domain.model.groups import GroupKey, State
from evenkeel.domain.model.plans import GroupPlan, PoolPlan
from evenkeel.domain.model.reasons import KEEPING, Topic
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.rebalancing.health.backoff import state_at
from evenkeel.record import ControlRecord
from evenkeel.state_records import ScaleRequestRecord, ZoneRecord
from evenkeel.texts.english import ago, clock_words, counted, rfc3339, sentences
from evenkeel.texts.incidents import incident_headline

_DECISIONS_SHOWN = 10
_REQUESTS_SHOWN = 10  # the newest, as of decisions


class StatusFields(Fields):
    """A status is of the whole cluster."""

    live: Flag = Field(default=False, description="Without a cluster: look at each of them now, one after the other.")


def status(call: Call, _fields: StatusFields) -> Answer:
    """Of a cluster that cannot be read: what is remembered, and why nothing else is known."""
    judged = call.evaluate(with_demand=True)
    remembered, preview, incidents = judged.remembered, judged.preview, judged.cluster_health.incidents
    control, dry_run = remembered.control, call.is_dry(remembered.record, remembered.control)
    paused = control.is_paused(call.now)
    entries = [or_named(entry) for entry in call.store.decisions(call.cluster, _DECISIONS_SHOWN)]
    decisions = [entry for entry in entries if "pool" in entry]
    groups, states = _groups(remembered, preview, call.now)
    mode = _mode(control, paused, dry_run) + _otherwise(preview, dry_run)
    now = judged.now or call.now
    headline = f"{call.cluster}: {mode}, {_incident(judged, now)}{_counted(states)}{_last(decisions, call.now)}"
    if control.restoring_pools:
        headline += f"; being restored: pool {', '.join(control.restoring_pools)}"
    demand = cluster_demand(preview.plan.demand) if preview else None
    headline += _waiting(preview)
    skew = preview.plan.clock_skew if preview else timedelta(0)
    headline += f"; its API server's clock {clock_words(skew)}" if skew else ""
    return {
        "now": rfc3339(call.now),
        "dryRun": dry_run,
        "paused": paused,
        "leaving": control.restoring,
        "pausedUntil": _moment(control.paused_until) if paused else None,
        "pausedPools": {name: _moment(end) for name, end in control.pools_paused(call.now).items()},
        "leavingPools": list(control.restoring_pools),
        "groups": groups,
        "zones": {zone: _zone(words, call.now) for zone, words in remembered.zones.items()},
        "requests": _requests(remembered.scale_requests),
        "pools": [_pool(pool, preview) for pool in preview.plan.pools] if preview else [],
        "incident": bool(incidents),
        "incidents": [
            incident_json(incident, call.cluster, judged.now or call.now, call.stack) for incident in incidents
        ],
        **({} if judged.unread is None else {"unread": judged.unread}),
        **({"clockSkewSeconds": int(skew.total_seconds())} if skew else {}),
        **({} if demand is None else {"demand": document_json(demand)}),
        "decisions": decisions,
        "actions": [entry for entry in entries if "pool" not in entry],
        "mode": mode,
        "headline": headline,
        "message": headline + ("" if judged.unread is None else f"; not read: {judged.unread}"),
    }


def _mode(control: ControlRecord, paused: bool, dry_run: bool) -> str:
    if paused:
        return "paused" if control.paused_until is None else f"paused until {rfc3339(control.paused_until)}"
    return "being restored" if control.restoring else "dry run" if dry_run else "on"


def _otherwise(preview: Preview | None, dry_run: bool) -> str:
    """The pools that say of themselves whether they are written, and are not as their cluster is."""
    pools = preview.plan.pools if preview else ()
    names = [pool.id.name for pool in pools if pool.dry_run is (not dry_run)]
    return f" (not so pool {', '.join(names)})" if names else ""


def _incident(judged: Judged, now: datetime) -> str:
    """The worst of it. Why a cluster cannot be read is said elsewhere."""
    if not judged.cluster_health.incidents:
        return "nothing in trouble"
    worst = judged.cluster_health.unread or judged.cluster_health.incidents[0]
    words = incident_headline(worst, now)
    more = len(judged.cluster_health.incidents) - 1
    return f"in trouble: {words}" + (f" (+{more})" if more else "")


def _counted(states: Sequence[State]) -> str:
    """Node groups that are not as they usually are."""
    counts = [
        f"{states.count(state)} {state.value}" for state in State if state is not State.HEALTHY and state in states
    ]
    return f"; node groups: {', '.join(counts)}" if counts else ""


def _waiting(preview: Preview | None) -> str:
    """How many pods find no node, where they were read."""
    if preview is None or preview.plan.demand is None:
        return ""
    if preview.plan.demand.unread is not None:
        return "; its pods are not read"
    waiting = sum(len(unfit.pods) for unfit in preview.plan.demand.unmet)
    for pool in preview.plan.pools:
        waiting += sum(len(each.pods) for each in pool.demand.asked.pending) if pool.demand else 0
    return f"; {counted(waiting, 'pod')} without a node" if waiting else ""


def _groups(remembered: StoredCluster, preview: Preview | None, now: datetime) -> tuple[dict[str, Any], list[State]]:
    """Every group that something is remembered of; and the states of all that are known, remembered or planned."""
    plans = preview.plan if preview else None
    planned = {plan.group.key: plan.state for pool in plans.pools for plan in pool.groups} if plans else {}
    groups = {**remembered.state.groups, **(plans.states if plans else {})}
    states = {
        key: planned[key] if key in planned else _remembered_state(remembered, key, group, now)
        for key, group in groups.items()
    }
    answer = {
        str(key): {
            "state": states[key].value,
            "class": group.failure_class.value,
            "failures": group.failures,
            "backoffUntil": _moment(group.backoff_until),
            "lastFailure": _moment(group.last_failure),
            "message": group.message,
            "contestedBy": group.contested_by or None,
        }
        for key, group in groups.items()
    }
    return answer, list(planned.values() if preview else states.values())


def _zone(record: ZoneRecord, now: datetime) -> dict[str, Any]:
    holding = record.holding(now)
    return {
        "impairedUntil": rfc3339(record.impaired_until),
        "impaired": record.impaired_until > now,
        "by": ", ".join(holding or record.words),
        "words": [
            {
                "by": source,
                "until": rfc3339(statement.until),
                "saidAt": _moment(statement.said_at),
                "holds": source in holding,
            }
            for source, statement in sorted(record.words.items())
        ],
    }


def _requests(requests: Mapping[str, ScaleRequestRecord]) -> dict[str, Any]:
    newest = sorted(requests.values(), key=lambda request: (request.at, request.id))[-_REQUESTS_SHOWN:]
    return {
        request.id: {
            "pool": request.pool or None,
            "group": request.group or None,
            "nodes": request.nodes,
            "added": None if request.left is None or request.done else request.added,
            "left": None if request.done else request.left,
            "at": rfc3339(request.at),
            "by": request.by or None,
            "done": request.done,
            "result": request.result or None,
        }
        for request in newest
    }


def _pool(pool: PoolPlan, preview: Preview) -> dict[str, Any]:
    return {**pool_json(pool), "groups": [_group(plan, pool, preview) for plan in pool.groups]}


def _group(plan: GroupPlan, pool: PoolPlan, preview: Preview) -> dict[str, Any]:
    since, until = preview.span(pool, plan)
    state = preview.state_of(plan.group.key)
    return {
        **group_json(plan),
        "running": plan.group.running,
        "since": _moment(since),
        "until": _moment(until),
        "failure": None
        if state is None or state.last_failure is None
        else {
            "class": state.failure_class.value,
            "failures": state.failures,
            "last": rfc3339(state.last_failure),
            "message": state.message,
        },
        "held": _held(plan),
    }


def _held(plan: GroupPlan) -> list[str]:
    """What keeps a group, or replicas of it, from being written or grown; in the plan's own sentences."""
    holding = [reason for reason in plan.reasons if reason.rule.topic is Topic.STATE or reason.rule in KEEPING]
    closed = plan.group.closed_because
    return sentences(holding if closed is None else [*holding, closed])


def _remembered_state(remembered: StoredCluster, key: GroupKey, group: GroupState, now: datetime) -> State:
    """Without a look, from what is remembered: which pool a group is in, and which zone, is then often unknown."""
    if group.is_frozen:
        return State.FROZEN
    return state_at(group, now, None, remembered.backoff_of(key))


def _last(decisions: Sequence[Mapping[str, Any]], now: datetime) -> str:
    try:
        return f"; last decision {ago(now - datetime.fromisoformat(decisions[0]['at']))}"
    except (IndexError, KeyError, TypeError, ValueError):
        return ""


def _moment(at: datetime | None) -> str | None:
    return None if at is None else rfc3339(at)
