"""Convert plans and decisions to JSON documents; shorten a decision that is too large for a DynamoDB item."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from evenkeel.application.convergence.summary import pool_level
from evenkeel.application.demand.summary import cluster_demand, pool_demand
from evenkeel.application.plan_documents import (
    BoundChange,
    DecisionDocument,
    GroupDocument,
    OriginDocument,
    OriginsDocument,
    OwnerDocument,
    PlanDocument,
    PlannedPoolDocument,
    PoolDocument,
    ReplicaChange,
    ScaleRequestDocument,
    SkippedDocument,
    document_json,
    problem_json,
    reason_json,
)
from evenkeel.domain.model.groups import GroupKey, State
from evenkeel.domain.model.origins import POOL_MAX, POOL_MIN
from evenkeel.domain.model.outcomes import Outcome, Result
from evenkeel.domain.model.plans import GroupPlan, Plan, PoolPlan
from evenkeel.domain.rebalancing.health.provision_times import timeouts_of
from evenkeel.texts.english import MOST_NAMED, counted, outcome_text, problem_text, sentence, sentences
from evenkeel.texts.pool_numbers import origin_text

# The largest stored decision, in bytes. DynamoDB allows 400 KB for an item, including its keys.
LARGEST_DECISION = 350_000
_LEFT_ALONE = Outcome(Result.LEFT_ALONE)
_WAITS = Outcome(Result.WAITS, "an earlier write of its pool did not succeed")


def _group(plan: GroupPlan) -> GroupDocument:
    key, old, new = plan.group.key, plan.group.bounds, plan.bounds
    return GroupDocument(
        flavour=key.flavour,
        namespace=key.namespace,
        name=key.name,
        zone=plan.group.identity.zone,
        state=plan.state,
        requested=ReplicaChange(before=plan.group.requested, after=plan.requested),
        min=BoundChange(before=old.min if old else None, after=new.min if new else None),
        max=BoundChange(before=old.max if old else None, after=new.max if new else None),
        reasons=tuple(sentences(plan.reasons, key.flavour)),
        rules=tuple(reason_json(reason) for reason in plan.reasons),
        running=plan.group.running,
    )


def _origin(pool: PoolPlan, field: str) -> OriginDocument | None:
    origin = next((origin for origin in pool.report.origins if origin.field == field), None)
    if origin is None:
        return None
    is_min = field == POOL_MIN
    return OriginDocument(
        source=origin.source.value,
        says=origin_text(origin),
        groups=tuple(str(group.key) for group in origin.groups[:MOST_NAMED]),
        owners=tuple(
            OwnerDocument(
                kind=share.owner.ref.kind,
                namespace=share.owner.ref.namespace,
                name=share.owner.ref.name,
                part=share.owner.ref.part,
                field=share.owner.min_field if is_min else share.owner.max_field,
                value=share.owner.bounds.min if is_min else share.owner.bounds.max,
                wanted=share.desired,
                set_by=share.owner.set_by,
            )
            for share in origin.owners[:MOST_NAMED]
        ),
    )


def pool_document(pool: PoolPlan) -> PlannedPoolDocument:
    """Return the document of a pool's plan."""
    request = pool.request.current
    return PlannedPoolDocument(
        name=pool.id.name,
        strategy=pool.strategy.name,
        min=pool.min,
        max=pool.max,
        valid=pool.mode.valid,
        problems=tuple(problem_text(problem, pool.id.flavour) for problem in pool.report.problems),
        problem_rules=tuple(problem_json(problem) for problem in pool.report.problems),
        starved=pool.report.starved,
        overcommitted=pool.report.overcommitted,
        numbers_from=OriginsDocument(min=_origin(pool, POOL_MIN), max=_origin(pool, POOL_MAX))
        if pool.report.origins
        else None,
        notes=tuple(sentences(pool.report.notes, pool.id.flavour)),
        note_rules=tuple(reason_json(note) for note in pool.report.notes),
        growth=None
        if request is None
        else ScaleRequestDocument(
            request=request.id, nodes=request.nodes, missing=pool.request.missing, later=pool.request.later
        ),
        groups=tuple(_group(group) for group in pool.groups),
        demand=pool_demand(pool.demand.advice),
        level=pool_level(pool.convergence.report),
        timeouts=tuple(sentences(timeouts_of(pool), pool.id.flavour)),
        timeout_rules=tuple(reason_json(reason) for reason in timeouts_of(pool)),
    )


def pool_json(pool: PoolPlan) -> dict[str, Any]:
    """Return the JSON of a pool's plan."""
    return document_json(pool_document(pool))


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return the JSON of a cluster's plan."""
    document = PlanDocument(
        now=plan.now,
        pools=tuple(pool_document(pool) for pool in plan.pools),
        skipped=tuple(
            SkippedDocument(
                namespace=skipped.namespace, name=skipped.name, reason=sentence(skipped.reason, skipped.flavour)
            )
            for skipped in plan.skipped
        ),
        check_at=plan.check_at,
        refused=tuple(problem_text(refusal.problem) for refusal in plan.refusals),
        demand=cluster_demand(plan.demand),
    )
    return document_json(document)


def plan_message(plan: Plan) -> str:
    """Return how many pools a plan has, and how many node groups it changes."""
    if not plan.pools:
        return "no pools found"
    return f"{counted(len(plan.pools), 'pool')}, {counted(len(plan.changes), 'node group')} would change"


def decision_json(  # noqa: PLR0913  the facts of a decision besides its plan, each named by its only caller
    pool: PoolPlan,
    *,
    id: str,
    cluster: str,
    at: datetime,
    reason: str,
    dry_run: bool,
    outcomes: Mapping[GroupKey, Outcome],
) -> dict[str, Any]:
    """Return the JSON of the decision for one pool.

    ``outcomes``: for each group that the run tried to write or, in dry run, would write. Each other group with a change
    waits for an earlier write of its pool.
    """
    # The decision leaves out demand and convergence, because they change every minute.
    document: PoolDocument = pool_document(
        replace(pool, demand=replace(pool.demand, advice=None), convergence=replace(pool.convergence, report=None))
    )
    for group, plan in zip(document.groups, pool.groups, strict=True):
        untried = _WAITS if plan.changes and outcomes else _LEFT_ALONE
        outcome = outcomes.get(plan.group.key, untried)
        group.outcome, group.result = outcome_text(outcome), outcome.result.value
    return document_json(DecisionDocument(id=id, at=at, cluster=cluster, cause=reason, dry_run=dry_run, pool=document))


def fit(decision: Mapping[str, Any], largest: int = LARGEST_DECISION) -> Mapping[str, Any]:
    """Return the decision in at most ``largest`` bytes of JSON.

    Groups are left out, healthy and unchanged groups first; ``truncated`` is the number of omitted groups. Other long
    lists are cut, too.
    """
    if _bytes(decision) <= largest:
        return decision
    pool = dict(decision.get("pool") or {})
    groups = list(pool.get("groups", ()))
    lists = {name: value for name, value in decision.items() if isinstance(value, list)}
    facts = {name: value for name, value in pool.items() if isinstance(value, list) and name != "groups"}
    share = largest // 4
    excerpt = {
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
    fitting = _some(groups, first, largest - _bytes(excerpt))
    return {**excerpt, "pool": {**excerpt["pool"], "groups": fitting}, "truncated": len(groups) - len(fitting)}


def _is_well(group: Mapping[str, Any]) -> bool:
    changes = any(group[name]["from"] != group[name]["to"] for name in ("requested", "min", "max"))
    left_alone = group.get("result", Result.LEFT_ALONE) == Result.LEFT_ALONE
    return not changes and left_alone and group["state"] == State.HEALTHY.value


def _some(values: list[Any], order: Iterable[int], room: int) -> list[Any]:
    """Return the values that fit into ``room`` bytes, in their given order. ``order``: their indexes, by priority."""
    fitting = set()
    for number in order:
        size = _bytes(values[number]) + 2  # a comma and a blank
        if size <= room:
            room -= size
            fitting.add(number)
    return [value for number, value in enumerate(values) if number in fitting]


def _bytes(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
