"""What people did: every action that wrote something, with who asked for it and why."""

from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field

from evenkeel.application.actions.call import Answer, Call, Fields
from evenkeel.domain.model.ulids import ulid
from evenkeel.validation import Moment

_SINCE = timedelta(days=7)


class HistoryFields(Fields):
    """It stands beside the decisions, for as long as those."""

    since: Annotated[Moment | None, Field(description="A moment, RFC 3339; left out: seven days ago.")] = None


def history(call: Call, fields: HistoryFields) -> Answer:
    """The oldest first; also of a cluster that is not registered any more."""
    after, more = ulid(fields.since or call.now - _SINCE, bytes(10)), True
    found: list[dict[str, Any]] = []
    while more:
        page, more = call.store.decisions_after(call.cluster, after)
        after = page[-1]["id"] if page else after
        found += [dict(entry) for entry in page if "pool" not in entry]
        more = more and bool(page)
    if not found:
        call.load()  # an unknown cluster is not one to which nothing was done
    return {"actions": found, "message": f"{call.cluster}: actions: {len(found)}"}
