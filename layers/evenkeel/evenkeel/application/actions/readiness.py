"""Whether a cluster in dry run may go live, and why not."""

from datetime import timedelta
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from evenkeel.application.actions.call import Answer, Call, Fields, Flag, length
from evenkeel.application.errors import BadRequestError, contained
from evenkeel.application.ports import StoredCluster
from evenkeel.application.rollout.readiness import KEPT, Asked, Known, Readiness, asked_of, readiness_of
from evenkeel.application.rollout.summary import hindrance_words, readiness_words
from evenkeel.domain.rollout.readiness import NEEDED
from evenkeel.texts.english import rfc3339, sentence

# Of skipped and frozen groups, so many are named.
_MOST_TOLD = 200


class ReadinessFields(Fields):
    """From what is stored, unless the cluster is to be asked."""

    lasting: Annotated[
        timedelta,
        BeforeValidator(length),
        Field(alias="for", description="How long its dry run must have lasted: 3d, 12h."),
    ] = NEEDED
    live: Flag = Field(default=False, description="Look at the cluster now: what is skipped, which rights are missing.")


def readiness(call: Call, fields: ReadinessFields) -> Answer:
    if fields.lasting > KEPT:
        raise BadRequestError(f"for is too long: decisions are kept for {KEPT.days} days: choose {KEPT.days}d at most")
    known = Known.of(call.store, call.cluster, call.now)  # of all it is a query each
    remembered = known.remembered
    if not call.is_dry(remembered.record, remembered.control):
        return {"state": "live", "ready": True, "message": f"{call.cluster} is live"}
    ask = partial(_ask, call, remembered) if fields.live else None
    found = readiness_of(call.store, known, fields.lasting, call.now, ask)
    return {
        "state": "ready" if found.is_ready else "not-ready",
        "ready": found.is_ready,
        **_facts(found),
        "hindrances": [
            {"rule": hindrance.value, "says": hindrance_words(hindrance, found, remembered, fields.lasting, call.now)}
            for hindrance in found.hindrances
        ],
        "message": readiness_words(found, remembered, fields.lasting, call.now),
    }


def _facts(found: Readiness) -> dict[str, Any]:
    quote, asked = found.dry_run, found.asked
    plan = asked.plan if asked else None
    frozen = [group for pool in plan.pools for group in pool.groups if group.group.frozen_because] if plan else []
    return {
        "since": rfc3339(quote.since),
        "days": round(quote.days, 2),
        "decisions": quote.decisions,
        "wholeRecord": found.whole,
        "patches": quote.patches,
        "patchesPerDay": round(quote.patches_per_day, 1),
        "rewritten": dict(quote.rewritten),
        "putBack": dict(quote.put_back),
        "skipped": None
        if plan is None
        else [
            {"namespace": each.namespace, "name": each.name, "reason": sentence(each.reason)}
            for each in plan.skipped[:_MOST_TOLD]
        ],
        "frozen": None
        if plan is None
        else {
            str(each.group.key): sentence(each.group.frozen_because)
            for each in frozen[:_MOST_TOLD]
            if each.group.frozen_because is not None
        },
        "rightsMissing": None if asked is None else list(asked.refused),
    }


def _ask(call: Call, remembered: StoredCluster) -> Asked:
    record = remembered.record
    rights = partial(call.clusters.refused, record, call.remaining, writes=record.looks_as_it_writes)
    return asked_of(lambda: call.preview().plan, lambda: contained(record.id, "its rights were asked for", rights))
