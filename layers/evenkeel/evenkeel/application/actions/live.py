"""``readiness``, ``live`` and ``dry-run``: evaluate the dry run of a cluster, and enable or stop writes to it."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from evenkeel.application.actions.call import Answer, Call, Fields, Flag, Right, action, length, own_pools
from evenkeel.application.errors import BadRequestError, EvenkeelError
from evenkeel.application.ports import StoredCluster
from evenkeel.application.rollout.readiness import KEPT, LiveRead, Readiness, readiness_of
from evenkeel.application.rollout.summary import hindrance_text, readiness_text
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.rollout.readiness import NEEDED
from evenkeel.state_records import zones_with_drill
from evenkeel.texts.english import rfc3339, sentence

_MOST_NAMED = 200  # the most skipped objects, and the most frozen groups, in an answer


class ReadinessFields(Fields):
    """Readiness is evaluated from stored items; with ``live``, also from a read of the cluster."""

    lasting: Annotated[
        timedelta,
        BeforeValidator(length),
        Field(alias="for", description="How long its dry run must have lasted: 3d, 12h."),
    ] = NEEDED
    live: Flag = Field(default=False, description="Also read the cluster now, for skipped objects and missing rights.")


@action(ReadinessFields, Right.READ, of_all=True)
def readiness(call: Call, fields: ReadinessFields) -> Answer:
    """Show which clusters in dry run may go live, and why others may not; exit code 5 means that one may not."""
    if fields.lasting > KEPT:
        raise BadRequestError(f"for is too long: decisions are kept for {KEPT.days} days: choose {KEPT.days}d at most")
    stored = call.load()
    if not stored.control.is_dry(stored.record, call.ports.dry_run):
        return {"state": "live", "ready": True, "message": f"{call.cluster} is live"}
    ask = partial(_ask, call, stored) if fields.live else None
    result = readiness_of(call.ports.store, stored, fields.lasting, call.now, ask)
    return {
        "state": "ready" if result.is_ready else "not-ready",
        "ready": result.is_ready,
        **_facts(result),
        "hindrances": [
            {"rule": hindrance.value, "says": hindrance_text(hindrance, result, stored, fields.lasting, call.now)}
            for hindrance in result.hindrances
        ],
        "message": readiness_text(result, stored, fields.lasting, call.now),
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
        {"namespace": object.namespace, "name": object.name, "reason": sentence(object.reason, object.flavour)}
        for object in plan.skipped[:_MOST_NAMED]
    ]


def _frozen(plan: Plan) -> dict[str, str]:
    groups = [group.group for pool in plan.pools for group in pool.groups]
    frozen = [(group.key, group.frozen_because) for group in groups if group.frozen_because is not None]
    return {str(key): sentence(reason, key.flavour) for key, reason in frozen[:_MOST_NAMED]}


def _ask(call: Call, stored: StoredCluster) -> LiveRead:
    """Read the cluster now. Return its plan and the missing rights, or the error of the read."""
    record = stored.record
    try:
        plan = call.preview().plan
        return LiveRead(plan=plan, refused=call.refused_rights(record, writes=record.checks_with_write_identity))
    except EvenkeelError as error:
        return LiveRead(unread=str(error))


class LiveFields(Fields):
    """A ``dry_run`` in the record overrides this action."""

    force: Flag = Field(default=False, description="Also for a cluster that is not ready.")


def _live_touches(call: Call, fields: LiveFields) -> Answer | None:
    stored = call.load()
    if not stored.control.is_dry(stored.record, call.ports.dry_run):
        return None
    fences = _open_fences(call, stored)
    return {"message": f"{_result(call, stored, fields)}{_fences_text(fences)}", "fences": fences}


@action(LiveFields, Right.ADMINISTER, touches=_live_touches, spares="live already")
def live(call: Call, fields: LiveFields) -> Answer:
    """Enable writes for clusters that passed their dry run."""
    stored = call.load()
    if not stored.control.is_dry(stored.record, call.ports.dry_run):
        return {"done": False, "message": f"{call.cluster} is live already"}
    _result(call, stored, fields)
    control = call.change_control(stored, {"live": True})
    call.request_run("live")
    fences = _open_fences(call, stored)
    notes = f"{call.in_dry_run(stored.record, control)}{call.still_held(control)}{_fences_text(fences)}"
    return {"message": f"{call.cluster} is live: Evenkeel checks it now, and writes to it{notes}", "fences": fences}


def _open_fences(call: Call, stored: StoredCluster) -> list[dict[str, str]]:
    """Return each stored fence that has not ended, with its zone, its end and its source."""
    return [
        {"zone": zone, "until": rfc3339(statement.until), "by": source}
        for zone, record in sorted(zones_with_drill(stored.zones, stored.drill).items())
        for source, statement in sorted(record.holding(call.now).items())
    ]


def _fences_text(fences: Sequence[Mapping[str, str]]) -> str:
    named = ", ".join(f"zone {fence['zone']} until {fence['until']} by {fence['by']}" for fence in fences)
    return f"; open fences: {named}" if named else ""


def _result(call: Call, stored: StoredCluster, fields: LiveFields) -> str:
    """Return the result of the cluster's dry run as text. Raises BadRequestError if the cluster may not go live."""
    if stored.record.dry_run is not None:
        raise BadRequestError(
            f"{call.cluster}: dry_run in its record is true and overrides live: remove dry_run from the record first"
        )
    result = readiness_of(call.ports.store, stored, NEEDED, call.now)
    words = readiness_text(result, stored, NEEDED, call.now)
    if not result.is_ready and not fields.force:
        raise BadRequestError(words)
    return words


def _dry_run_touches(call: Call, _fields: Fields) -> str | None:
    stored = call.load()
    return None if stored.control.is_dry(stored.record, call.ports.dry_run) else call.cluster


@action(Fields, Right.WRITE, touches=_dry_run_touches, spares="in dry run already")
def dry_run(call: Call, _fields: Fields) -> Answer:
    """Stop writes to a cluster; its objects stay as they are."""
    stored = call.load()
    if stored.record.dry_run is False:
        raise BadRequestError(
            f"{call.cluster}: dry_run in its record is false and overrides dry-run: remove it there, or pause it"
        )
    if stored.control.live is False or stored.record.dry_run:
        return {"done": False, "message": f"{call.cluster} is in dry run already"}
    call.change_control(stored, {"live": False})
    pools = own_pools(stored.record, dry_run=False)
    still = f"; still written: pool {', '.join(pools)}, by its dry_run in the record" if pools else ""
    return {
        "message": f"{call.cluster} is in dry run: Evenkeel no longer writes to it, and leaves its objects as they "
        f'are{still}. Node groups with evenkeel.dev/dry-run "false" are still written'
    }
