"""``readiness``: whether a cluster passed its dry run, and each hindrance."""

from datetime import timedelta
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from evenkeel.application.actions.call import Answer, Call, Fields, Flag, Right, action, length
from evenkeel.application.errors import BadRequestError
from evenkeel.application.ports import StoredCluster
from evenkeel.application.rollout.readiness import KEPT, Asked, Known, Readiness, asked_of, readiness_of
from evenkeel.application.rollout.summary import hindrance_words, readiness_words
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.rollout.readiness import NEEDED
from evenkeel.texts.english import rfc3339, sentence

_MOST_NAMED = 200  # skipped and frozen groups


class ReadinessFields(Fields):
    """From stored items, unless ``live`` reads the cluster."""

    lasting: Annotated[
        timedelta,
        BeforeValidator(length),
        Field(alias="for", description="How long its dry run must have lasted: 3d, 12h."),
    ] = NEEDED
    live: Flag = Field(default=False, description="Look at the cluster now: what is skipped, which rights are missing.")


@action(
    "readiness",
    "Whether a cluster in dry run may go live, and why not; exit 5 means that some may not.",
    ReadinessFields,
    Right.READ,
    of_all=True,
)
def readiness(call: Call, fields: ReadinessFields) -> Answer:
    """Return the result of the dry run, and each hindrance."""
    if fields.lasting > KEPT:
        raise BadRequestError(f"for is too long: decisions are kept for {KEPT.days} days: choose {KEPT.days}d at most")
    known = Known.of(call.ports.store, call.cluster, call.now)  # one query for each cluster
    stored = known.remembered
    if not call.is_dry(stored.record, stored.control):
        return {"state": "live", "ready": True, "message": f"{call.cluster} is live"}
    ask = partial(_ask, call, stored) if fields.live else None
    result = readiness_of(call.ports.store, known, fields.lasting, call.now, ask)
    return {
        "state": "ready" if result.is_ready else "not-ready",
        "ready": result.is_ready,
        **_facts(result),
        "hindrances": [
            {"rule": hindrance.value, "says": hindrance_words(hindrance, result, stored, fields.lasting, call.now)}
            for hindrance in result.hindrances
        ],
        "message": readiness_words(result, stored, fields.lasting, call.now),
    }


def _facts(result: Readiness) -> dict[str, Any]:
    past, plan = result.dry_run, result.asked.plan if result.asked else None
    return {
        "since": rfc3339(past.since),
        "days": round(past.days, 2),
        "decisions": past.decisions,
        "wholeRecord": result.whole,
        "patches": past.patches,
        "patchesPerDay": round(past.patches_per_day, 1),
        "rewritten": dict(past.rewritten),
        "putBack": dict(past.put_back),
        "skipped": None if plan is None else _skipped(plan),
        "frozen": None if plan is None else _frozen(plan),
        "rightsMissing": None if result.asked is None else list(result.asked.refused),
    }


def _skipped(plan: Plan) -> list[dict[str, str]]:
    return [
        {"namespace": object.namespace, "name": object.name, "reason": sentence(object.reason)}
        for object in plan.skipped[:_MOST_NAMED]
    ]


def _frozen(plan: Plan) -> dict[str, str]:
    groups = [group.group for pool in plan.pools for group in pool.groups]
    frozen = [(group.key, group.frozen_because) for group in groups if group.frozen_because is not None]
    return {str(key): sentence(reason) for key, reason in frozen[:_MOST_NAMED]}


def _ask(call: Call, stored: StoredCluster) -> Asked:
    record = stored.record
    rights = partial(call.refused_rights, record, writes=record.looks_as_it_writes)
    return asked_of(lambda: call.preview().plan, rights)
