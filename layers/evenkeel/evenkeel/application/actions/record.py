"""What was decided, and what people have asked for: a page at a time, since Lambda answers with 6 MB at most."""

from typing import Annotated

from pydantic import Field

from evenkeel.application.actions.call import Answer, Call, Fields
from evenkeel.domain.model.ulids import ulid
from evenkeel.validation import Moment


class RecordFields(Fields):
    """Which decisions: from a moment on, or those after the last one of the page before."""

    since: Annotated[Moment | None, Field(description="A moment, RFC 3339; left out: all that is kept, 30 days.")] = (
        None
    )
    after: Annotated[str, Field(pattern=r"^[0-9A-HJKMNP-TV-Z]{26}$")] | None = None


def record(call: Call, fields: RecordFields) -> Answer:
    call.load()  # an unknown cluster is not one without decisions
    first = ulid(fields.since, bytes(10)) if fields.since else ""
    decisions, more = call.store.decisions_after(call.cluster, fields.after or first)
    return {
        "decisions": list(decisions),
        "next": decisions[-1]["id"] if more and decisions else None,
        "message": f"{call.cluster}: decisions: {len(decisions)}{', and there are more' if more else ''}",
    }
