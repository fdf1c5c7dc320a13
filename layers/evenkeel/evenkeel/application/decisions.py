"""How a plan is told: one JSON shape for the command line, dry run, the table, the log and events."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from evenkeel.domain.model.groups import Bounds, GroupKey, State
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.outcomes import Outcome, Result
from evenkeel.domain.model.plans import GroupPlan, Plan, PoolPlan

# A table's item has 400 KB, its keys and a release that writes more about each group included.
LARGEST_DECISION = 350_000
_LEFT_ALONE = Outcome(Result.LEFT_ALONE)
_WAITS = Outcome(Result.WAITS, "an earlier write of its pool did not succeed")


def rfc3339(at: datetime) -> str:
    """A moment as Kubernetes writes it: UTC, whole seconds, Z."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _span(before: int | None, after: int | None) -> dict[str, int | None]:
    return {"from": before, "to": after}


def group_json(plan: GroupPlan) -> dict[str, Any]:
    """One group of a plan; the names are a contract (README, "The plan as JSON")."""
    old: Bounds | None = plan.group.bounds
    new = plan.bounds
    return {
        "flavour": plan.group.key.flavour,
        "namespace": plan.group.key.namespace,
        "name": plan.group.key.name,
        "zone": plan.group.zone,
        "state": plan.state.value,
        "requested": _span(plan.group.requested, plan.requested),
        "min": _span(old.min if old else None, new.min if new else None),
        "max": _span(old.max if old else None, new.max if new else None),
        "reasons": list(plan.reasons),
    }


def pool_json(pool: PoolPlan) -> dict[str, Any]:
    """One pool of a plan; the names are a contract."""
    return {
        "name": pool.id.name,
        "strategy": pool.strategy.value,
        "min": pool.min,
        "max": pool.max,
        "valid": pool.valid,
        "problems": list(pool.problems),
        "starved": pool.starved,
        "overcommitted": pool.overcommitted,
        **({} if pool.scale_request is None else {"growth": _request_json(pool.scale_request, pool.missing)}),
        "groups": [group_json(group) for group in pool.groups],
    }


def _request_json(scale_request: ScaleRequest, missing: int) -> dict[str, Any]:
    """What was asked for on request, and how many nodes of it found no room or have to stay."""
    return {"request": scale_request.id, "nodes": scale_request.nodes, "missing": missing}


def plan_json(plan: Plan) -> dict[str, Any]:
    """A whole plan; the names are a contract."""
    return {
        "now": rfc3339(plan.now),
        "pools": [pool_json(pool) for pool in plan.pools],
        "skipped": [
            {"namespace": skipped.namespace, "name": skipped.name, "reason": skipped.reason} for skipped in plan.skipped
        ],
        **({} if plan.look_at is None else {"lookAt": rfc3339(plan.look_at)}),
        **({"refused": [refusal.reason for refusal in plan.refusals]} if plan.refusals else {}),
    }


def decision_json(
    pool: PoolPlan,
    *,
    id: str,
    cluster: str,
    at: datetime,
    why: str,
    dry_run: bool,
    outcomes: Mapping[GroupKey, Outcome],
) -> dict[str, Any]:
    """What was decided for one pool and what came of it.

    ``outcomes`` has those groups that were tried, or in dry run would be. A group that was to be written after one that
    failed waits.
    """
    document = pool_json(pool)
    for group, plan in zip(document["groups"], pool.groups, strict=True):
        untried = _WAITS if plan.changes and outcomes else _LEFT_ALONE
        group |= outcome_json(outcomes.get(plan.group.key, untried))
    return {"id": id, "at": rfc3339(at), "cluster": cluster, "cause": why, "dryRun": dry_run, "pool": document}


def outcome_json(outcome: Outcome) -> dict[str, str]:
    """What came of one write: a sentence, and the result for programs."""
    sentence = f"{outcome.result.value}: {outcome.detail}" if outcome.detail else outcome.result.value
    return {"outcome": sentence, "result": outcome.result.value}


def fit(decision: Mapping[str, Any], largest: int = LARGEST_DECISION) -> Mapping[str, Any]:
    """A decision in at most ``largest`` bytes of JSON. One that is larger is cut, never lost: ``truncated`` groups are
    left out, those first that were left alone and are well. What a pool of thousands says in other lists is cut too.
    """
    if _bytes(decision) <= largest:
        return decision
    pool = dict(decision.get("pool") or {})
    groups = list(pool.get("groups", ()))
    lists = {name: value for name, value in decision.items() if isinstance(value, list)}
    facts = {name: value for name, value in pool.items() if isinstance(value, list) and name != "groups"}
    share = largest // 4
    cut = {
        **decision,
        **{name: _some(value, range(len(value)), share // len(lists)) for name, value in lists.items()},
        "pool": {
            **pool,
            **{name: _some(value, range(len(value)), share // len(facts)) for name, value in facts.items()},
            "groups": [],
        },
        "truncated": len(groups),
    }
    first = sorted(range(len(groups)), key=lambda number: _is_well(groups[number]))
    kept = _some(groups, first, largest - _bytes(cut))
    return {**cut, "pool": {**cut["pool"], "groups": kept}, "truncated": len(groups) - len(kept)}


def _is_well(group: Mapping[str, Any]) -> bool:
    changes = any(group[name]["from"] != group[name]["to"] for name in ("requested", "min", "max"))
    left_alone = group.get("result", Result.LEFT_ALONE) == Result.LEFT_ALONE
    return not changes and left_alone and group["state"] == State.HEALTHY.value


def _some(values: list[Any], order: Iterable[int], room: int) -> list[Any]:
    """As many of the values as there is room for, those first that come first in ``order``, in their own order."""
    kept = set()
    for number in order:
        size = _bytes(values[number]) + 2  # a comma and a blank
        if size <= room:
            room -= size
            kept.add(number)
    return [value for number, value in enumerate(values) if number in kept]


def _bytes(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
