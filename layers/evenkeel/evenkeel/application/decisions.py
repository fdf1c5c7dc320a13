"""How a plan is told: one JSON shape for the command line, dry run, the table, the log and events."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from evenkeel.application.words import problem_words, rfc3339, sentence, sentences
from evenkeel.domain.model.groups import Bounds, State
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.plans import GroupPlan, Plan, PoolPlan
from evenkeel.domain.model.problems import Problem
from evenkeel.domain.model.reasons import Fact, Reason

# A table's item has 400 KB, its keys and a release that writes more about each group included.
LARGEST_DECISION = 350_000
_LEFT_ALONE = "left alone"


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
        "reasons": sentences(plan.reasons),
        "rules": [reason_json(reason) for reason in plan.reasons],
    }


def reason_json(reason: Reason) -> dict[str, Any]:
    """A reason as values: its rule, and the facts by name."""
    return {"rule": reason.rule.value, **{name: _fact_json(fact) for name, fact in reason.facts.items()}}


def problem_json(problem: Problem) -> dict[str, Any]:
    """A problem as values: its kind, and the facts by name."""
    return {"rule": problem.kind.value, **{name: _fact_json(fact) for name, fact in problem.facts.items()}}


def _fact_json(fact: Fact) -> Any:
    if isinstance(fact, Reason):
        return reason_json(fact)
    if isinstance(fact, tuple):
        return [_fact_json(part) for part in fact]
    return rfc3339(fact) if isinstance(fact, datetime) else fact


def pool_json(pool: PoolPlan) -> dict[str, Any]:
    """One pool of a plan; the names are a contract."""
    return {
        "name": pool.id.name,
        "strategy": pool.strategy.name,
        "min": pool.min,
        "max": pool.max,
        "valid": pool.valid,
        "problems": [problem_words(problem) for problem in pool.problems],
        "problemRules": [problem_json(problem) for problem in pool.problems],
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
            {"namespace": skipped.namespace, "name": skipped.name, "reason": sentence(skipped.reason)}
            for skipped in plan.skipped
        ],
        **({} if plan.look_at is None else {"lookAt": rfc3339(plan.look_at)}),
        **({"refused": [problem_words(refusal.problem) for refusal in plan.refusals]} if plan.refusals else {}),
    }


def decision_json(
    pool: PoolPlan, *, id: str, cluster: str, at: datetime, why: str, dry_run: bool, outcomes: Mapping[str, str]
) -> dict[str, Any]:
    """What was decided for one pool and what came of it.

    ``outcomes`` has a word per group that was tried: ``written``, ``planned`` in dry run, or what stopped it.
    A group that was to be written after one that failed waits.
    """
    told = pool_json(pool)
    for group, planned in zip(told["groups"], pool.groups, strict=True):
        waits = "waits: an earlier write of its pool did not succeed" if planned.changes and outcomes else _LEFT_ALONE
        group["outcome"] = outcomes.get(str(planned.group.key), waits)
    return {"id": id, "at": rfc3339(at), "cluster": cluster, "cause": why, "dryRun": dry_run, "pool": told}


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
    return not changes and group.get("outcome", _LEFT_ALONE) == _LEFT_ALONE and group["state"] == State.HEALTHY.value


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
