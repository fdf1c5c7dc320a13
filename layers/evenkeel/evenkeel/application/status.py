"""How a cluster fares: pools x zones, who is held and why, and the last decisions."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from evenkeel.application.decisions import group_json, pool_json
from evenkeel.application.ports import Remembered
from evenkeel.application.preview import Preview, ago
from evenkeel.application.words import rfc3339, sentences
from evenkeel.config import ZoneRecord
from evenkeel.domain.health.backoff import state_at
from evenkeel.domain.model.groups import GroupKey, State
from evenkeel.domain.model.plans import GroupPlan, PoolPlan
from evenkeel.domain.model.policy import BackoffPolicy, Policy
from evenkeel.domain.model.pools import rule_of
from evenkeel.domain.model.reasons import KEEPING, Topic
from evenkeel.domain.model.states import GroupState

_REQUESTS_SHOWN = 10  # the newest, as of decisions


def status_json(
    remembered: Remembered,
    look: Preview | None,
    unread: str | None,
    decisions: Sequence[Mapping[str, Any]],
    now: datetime,
    *,
    dry_run: bool,
) -> dict[str, Any]:
    """The answer; ``unread`` says why there is no look."""
    record, control = remembered.record, remembered.control
    policy = record.policy()
    paused = control.is_paused(now)
    made = [decision for decision in decisions if "pool" in decision]
    planned = {plan.group.key: plan for pool in look.plan.pools for plan in pool.groups} if look else {}
    told = {**remembered.state.groups, **(look.plan.states if look else {})}
    groups = {}
    for key, group in told.items():
        found = planned[key].state if key in planned else _state(remembered, key, group, policy, now)
        groups[str(key)] = {
            "state": found.value,
            "class": group.failure_class.value,
            "failures": group.failures,
            "backoffUntil": _moment(group.backoff_until),
            "lastFailure": _moment(group.last_failure),
            "message": group.message,
            "contestedBy": group.contested_by or None,
        }
    states = (
        [plan.state for plan in planned.values()] if look else [State(str(one["state"])) for one in groups.values()]
    )
    trouble, frozen = sum(state in (State.FENCED, State.PROBING) for state in states), states.count(State.FROZEN)
    mode = "paused" if paused else "being restored" if control.restoring else "dry run" if dry_run else "on"
    if paused and control.paused_until is not None:
        mode += f" until {rfc3339(control.paused_until)}"
    return {
        "now": rfc3339(now),
        "dryRun": dry_run,
        "paused": paused,
        "leaving": control.restoring,
        "pausedUntil": _moment(control.paused_until) if paused else None,
        "pausedPools": {name: _moment(until) for name, until in control.pools_paused(now).items()},
        "leavingPools": list(control.restoring_pools),
        "groups": groups,
        "zones": {
            zone: {
                "impairedUntil": rfc3339(said.impaired_until),
                "impaired": said.impaired_until > now,
                "by": ", ".join(said.holding(now) or said.words),
                "words": [
                    {
                        "by": source,
                        "until": rfc3339(word.until),
                        "saidAt": _moment(word.said_at),
                        "holds": source in said.holding(now),
                    }
                    for source, word in sorted(said.words.items())
                ],
            }
            for zone, said in remembered.zones.items()
        },
        "requests": {
            asked.id: {
                "pool": asked.pool or None,
                "group": asked.group or None,
                "nodes": asked.nodes,
                "at": rfc3339(asked.at),
                "by": asked.by or None,
                "done": asked.done,
                "result": asked.result or None,
            }
            for asked in sorted(remembered.scale_requests.values(), key=lambda asked: (asked.at, asked.id))[
                -_REQUESTS_SHOWN:
            ]
        },
        "pools": [_pool(pool, look, told) for pool in look.plan.pools] if look else [],
        **({} if unread is None else {"unread": unread}),
        "decisions": made,
        "actions": [decision for decision in decisions if "pool" not in decision],
        "message": f"{record.id}: {mode}, {trouble} node group{'' if trouble == 1 else 's'} in trouble"
        + (f", {frozen} frozen" if frozen else "")
        + _last(made, now)
        + (f"; being restored: pool {', '.join(control.restoring_pools)}" if control.restoring_pools else "")
        + ("" if unread is None else f"; not read: {unread}"),
    }


def _pool(pool: PoolPlan, look: Preview, told: Mapping[GroupKey, GroupState]) -> dict[str, Any]:
    backoff = look.pool(pool.id).backoff
    zones = look.remembered.zones
    return {
        **pool_json(pool),
        "groups": [_group(plan, told.get(plan.group.key), zones, backoff, look) for plan in pool.groups],
    }


def _group(
    plan: GroupPlan,
    state: GroupState | None,
    zones: Mapping[str, ZoneRecord],
    backoff: BackoffPolicy,
    look: Preview,
) -> dict[str, Any]:
    since, until = span(plan, state, zones.get(plan.group.zone or ""), backoff, look.now)
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
        "held": held(plan),
    }


def held(plan: GroupPlan) -> list[str]:
    """What keeps a group, or replicas of it, from being written or grown; in the plan's own sentences."""
    held_by = [reason for reason in plan.reasons if reason.rule.topic is Topic.STATE or reason.rule in KEEPING]
    closed = plan.group.closed_because
    return sentences(held_by) + ([] if closed is None else [closed])


def span(
    plan: GroupPlan, state: GroupState | None, zone: ZoneRecord | None, backoff: BackoffPolicy, now: datetime
) -> tuple[datetime | None, datetime | None]:
    """When a group's present state began, and when it ends by itself; None where nobody knows, or it does not."""
    since: list[datetime] = []
    until: list[datetime] = []
    if plan.state is State.FENCED:
        if zone is not None and now < zone.impaired_until:
            until.append(zone.impaired_until)
            since += [said_at] if (said_at := zone.since(now)) else []
        if state is not None and state.backoff_until is not None and now <= state.backoff_until:
            until.append(state.backoff_until)
            since.append(state.backoff_until - backoff.length(state.failures))
    elif state is not None and plan.state is State.PROBING and state.backoff_until is not None:
        since.append(state.backoff_until)
    elif state is not None and plan.state is State.FROZEN and state.contested_since is not None:
        since.append(state.contested_since)
    elif state is not None and plan.state is State.HEALTHY and state.last_success is not None:
        since.append(state.last_success)
    return min(since, default=None), max(until, default=None)


def _state(remembered: Remembered, key: GroupKey, group: GroupState, policy: Policy, now: datetime) -> State:
    """Without a look, from what is remembered: which pool a group is in, and which zone, is then often unknown."""
    if group.contested_since is not None:
        return State.FROZEN
    pool = next((id for id, known in remembered.state.pools.items() if str(key) in known.adopted), None)
    rule = rule_of(pool, policy) if pool is not None else None
    return state_at(group, now, None, (rule.backoff if rule else None) or policy.backoff)


def _last(decisions: Sequence[Mapping[str, Any]], now: datetime) -> str:
    try:
        return f", last decision {ago(now - datetime.fromisoformat(decisions[0]['at']))}"
    except (IndexError, KeyError, TypeError, ValueError):
        return ""


def _moment(at: datetime | None) -> str | None:
    return None if at is None else rfc3339(at)
