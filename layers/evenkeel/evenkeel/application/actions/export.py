"""The records of all clusters, as `apply` reads them."""

import json
from typing import Annotated, Any

from pydantic import Field

from evenkeel.application.actions.call import Answer, Call, Fields
from evenkeel.application.fleet.records import record_json

# Lambda answers with 6 MB at most.
_PAGE = 3_000_000


class ExportFields(Fields):
    """A page at a time."""

    after: Annotated[str, Field(min_length=1, max_length=100)] | None = None


def export(call: Call, _fields: ExportFields) -> Answer:
    """Of one cluster."""
    record = call.load().record
    return {"records": [record_json(record)], "unread": {}, "next": None, "message": f"{call.cluster}: 1 record"}


def export_all(call: Call, fields: ExportFields) -> Answer:
    """``unread``: clusters whose records cannot be read, with what is wrong: no file that is made of this has them."""
    records: list[dict[str, Any]] = []
    unread: dict[str, str] = {}
    size, last = 0, None
    for cluster, found in sorted(call.registrations()):
        if fields.after is not None and cluster <= fields.after:
            continue
        if size > _PAGE:
            return _page(records, unread, last)
        if isinstance(found, str):
            unread[cluster] = found
            size += len(found)
        else:
            records.append(record_json(found.record))
            size += len(json.dumps(records[-1]))
        last = cluster
    return _page(records, unread, None)


def _page(records: list[dict[str, Any]], unread: dict[str, str], next: str | None) -> Answer:
    more = ", and there are more" if next is not None else ""
    message = f"clusters: {len(records)}, whose records cannot be read: {len(unread)}{more}"
    return {"records": records, "unread": unread, "next": next, "message": message}
