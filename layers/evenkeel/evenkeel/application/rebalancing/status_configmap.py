"""The content of a cluster's status ConfigMap. A run writes the ConfigMap if the content has changed.

A run stores a fingerprint of the content before the write, and again after a successful write. By this fingerprint, a
check finds out whether a run is needed. An interrupted or refused write is retried every 15 minutes.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from evenkeel.domain.model.groups import Bounds, GroupKey, PoolId, State
from evenkeel.domain.model.incidents import ClusterHealth, Incident, PublishedStatus
from evenkeel.domain.model.outcomes import Outcome, Result
from evenkeel.domain.model.plans import GroupPlan, Plan, PoolPlan
from evenkeel.texts.english import problem_text, rfc3339

_MOST_BYTES = 256 * 1024  # limit of the content; a ConfigMap may have 1 MiB
# Limits on the number of groups shown, over all pools. The first limit with which the content fits is used.
_MOST_GROUPS = (200, 20, 0)
_MOST_POOLS = 50
_MOST_INCIDENTS = 20
_MOST_NAMED = 5  # the most zones shown per incident, and the most problems shown per pool
_LONGEST_TEXT = 253
_RETRY_AFTER = timedelta(minutes=15)


def status_document(
    cluster: str,
    plan: Plan,
    outcomes: Mapping[GroupKey, Outcome],
    cluster_health: ClusterHealth,
    dry: Collection[PoolId],
) -> dict[str, Any]:
    """Return the content of the ConfigMap. ``dry``: the pools in dry run.

    The content has no ages, no numbers of nodes and no texts of other programs.
    """
    document: dict[str, Any] = {}
    for most in _MOST_GROUPS:
        left = [most]
        document = {
            "cluster": cluster,
            "incidents": [
                _incident(incident, cluster_health) for incident in cluster_health.incidents[:_MOST_INCIDENTS]
            ],
            "pools": [_pool(pool, outcomes, left, dry_run=pool.id in dry) for pool in plan.pools[:_MOST_POOLS]],
            "notShown": {
                "incidents": max(0, len(cluster_health.incidents) - _MOST_INCIDENTS),
                "pools": max(0, len(plan.pools) - _MOST_POOLS),
                "groups": max(0, sum(len(pool.groups) for pool in plan.pools[:_MOST_POOLS]) - most),
            },
        }
        if len(json.dumps(document)) <= _MOST_BYTES:
            break
    return document


def is_to_be_shown(
    before: PublishedStatus | None, document: Mapping[str, Any], place: str, now: datetime
) -> PublishedStatus:
    """Return the status to store; if no write is due, return ``before`` itself."""
    text = json.dumps([place, document])
    print_ = hashlib.sha256(text.encode()).hexdigest()[:32]
    if (
        before is not None
        and before.print == print_
        and not (before.tried_at and now >= before.tried_at + _RETRY_AFTER)
    ):
        return before
    return PublishedStatus(print=print_, tried_at=now)


def status_text(document: Mapping[str, Any], now: datetime) -> str:
    """Return the value of the ConfigMap's only entry. ``saidSince``: the time of the run that writes it."""
    return json.dumps({"saidSince": rfc3339(now), **document}, indent=1)


def _incident(incident: Incident, cluster_health: ClusterHealth) -> dict[str, Any]:
    notified = cluster_health.notified.get(incident.key)
    return {
        "kind": incident.kind.value,
        "pool": _cut(incident.pool) or None,
        "since": rfc3339(incident.since),
        "zones": [_cut(zone) for zone in incident.zones[:_MOST_NAMED]],
        # The notified number changes only by a factor of two.
        "missing": notified.missing if notified else incident.missing,
        "class": incident.failure_class.value if incident.failure_class else None,
    }


def _pool(pool: PoolPlan, outcomes: Mapping[GroupKey, Outcome], left: list[int], *, dry_run: bool) -> dict[str, Any]:
    """Return the entry of a pool.

    ``left``: a list of one number, the groups that may still be shown. This function lowers the number.
    """
    groups = [_group(plan, outcomes) for plan in sorted(pool.groups, key=_worst_first)[: left[0]]]
    left[0] -= len(groups)
    problems = pool.report.problems[:_MOST_NAMED] if not pool.mode.valid else ()
    return {
        "name": _cut(str(pool.id)),
        "dryRun": dry_run,
        "valid": pool.mode.valid,
        "problems": [_cut(problem_text(problem)) for problem in problems],
        "groups": groups,
    }


def _worst_first(plan: GroupPlan) -> tuple[bool, bool, str]:
    return plan.state is State.HEALTHY, not plan.changes, str(plan.group.key)


def _group(plan: GroupPlan, outcomes: Mapping[GroupKey, Outcome]) -> dict[str, Any]:
    """Return the entry of a group. ``wanted``: the planned replicas and bounds, omitted once they are written."""
    outcome = outcomes.get(plan.group.key)
    written = outcome is not None and outcome.result is Result.WRITTEN
    current = plan.bounds if written and plan.bounds is not None else plan.group.bounds
    document: dict[str, Any] = {
        "name": _cut(str(plan.group.key)),
        "zone": _cut(plan.group.identity.zone or "") or None,
        "state": plan.state.value,
    }
    document |= _bounds(current)
    if not plan.changes or written:
        return document
    return {**document, "wanted": {"requested": plan.requested, **_bounds(plan.bounds)}}


def _bounds(bounds: Bounds | None) -> dict[str, int | None]:
    return {"min": bounds.min if bounds else None, "max": bounds.max if bounds else None}


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"
