"""``history`` and ``record``: return the actions of operators, and the decisions of runs."""

from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field

from evenkeel.application.actions.call import Answer, Call, Fields, Right, action
from evenkeel.domain.model.ulids import ulid
from evenkeel.validation import Moment

_SINCE = timedelta(days=7)


class HistoryFields(Fields):
    """The start of the history. Operator actions are stored for 30 days, as long as decisions."""

    since: Annotated[Moment | None, Field(description="The start, in RFC 3339; default: seven days ago.")] = None


class RecordFields(Fields):
    """The start of a page. ``after`` is the id of the last decision on the previous page."""

    since: Annotated[Moment | None, Field(description="The start, in RFC 3339; default: 30 days ago.")] = None
    after: Annotated[str, Field(pattern=r"^[0-9A-HJKMNP-TV-Z]{26}$")] | None = None


@action(HistoryFields, Right.READ, of_all=True)
def history(call: Call, fields: HistoryFields) -> Answer:
    """Operator actions on clusters, with their callers and reasons.

    A cluster that is no longer registered has a history, too.
    """
    after, more = ulid(fields.since or call.now - _SINCE, bytes(10)), True
    actions: list[dict[str, Any]] = []
    while more:
        page, more = call.ports.store.decisions_after(call.cluster, after)
        after = page[-1]["id"] if page else after
        actions += [dict(entry) for entry in page if "pool" not in entry]
        more = more and bool(page)
    if not actions:
        call.load()  # raises for an unknown cluster
    return {"actions": actions, "message": f"{call.cluster}: actions: {len(actions)}"}


@action(RecordFields, Right.READ)
def record(call: Call, fields: RecordFields) -> Answer:
    """The decisions of a cluster, the oldest first, as JSON.

    An answer is one page of decisions, because Lambda limits answers to 6 MB.
    """
    call.load()  # raises for an unknown cluster
    first = ulid(fields.since, bytes(10)) if fields.since else ""
    decisions, more = call.ports.store.decisions_after(call.cluster, fields.after or first)
    return {
        "decisions": list(decisions),
        "next": decisions[-1]["id"] if more and decisions else None,
        "message": f"{call.cluster}: decisions: {len(decisions)}{', and there are more' if more else ''}",
    }
