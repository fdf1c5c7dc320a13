"""``register`` and ``export``: store the record of a cluster, and return stored records."""

import contextlib
import json
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from evenkeel.application.actions.call import Answer, Call, Fields, Right, action, misfits_text, own_pools
from evenkeel.application.errors import BadRequestError, EvenkeelError
from evenkeel.application.fleet.records import record_json
from evenkeel.record import Registration
from evenkeel.texts.english import sentence
from evenkeel.validation import read_model

# Bytes of records in one answer. Lambda limits answers to 6 MB.
_PAGE = 3_000_000


def _object(value: object) -> object:
    if not isinstance(value, dict):
        raise BadRequestError("record is missing: give the cluster's record as an object")
    return value


class RegisterFields(Fields):
    """The cluster's record as its author wrote it. The record may lack ``id``."""

    record: Annotated[
        dict[str, Any],
        BeforeValidator(_object),
        Field(description="The cluster's record, YAML or JSON; - reads standard input."),
    ]


class ExportFields(Fields):
    """The start of a page. ``after`` is the last cluster on the previous page."""

    after: Annotated[str, Field(min_length=1, max_length=100)] | None = None


@action(RegisterFields, Right.ADMINISTER)
def register(call: Call, fields: RegisterFields) -> Answer:
    """Store a cluster's record, and check the cluster now."""
    registration = read_model(Registration, {"id": call.cluster, **fields.record}, f"record of cluster {call.cluster}")
    if registration.id != call.cluster:
        raise BadRequestError(f"record.id is {registration.id!r}: it must be {call.cluster!r}, or left out")
    before = call.ports.store.registered(call.cluster)
    record, control = registration.record, registration.control(before.control if before else None)
    if refused := [*filter(None, [record.pools_fault]), *call.lost_access(record)]:
        raise BadRequestError(f"{call.cluster} is not stored: {'; '.join(refused)}")
    another = None
    with contextlib.suppress(EvenkeelError):  # a cluster may be registered before it can be reached
        another = call.another_autoscaler(record)
    if another is not None:
        raise BadRequestError(f"{call.cluster} is not stored: {sentence(another)}")
    call.ports.store.save_record(record, control, before.versions if before else None)
    call.request_run("registered")
    dry_run, live = control.is_dry(record, call.ports.dry_run), own_pools(record, dry_run=False)
    but = f" but to pool {', '.join(live)}" if live else ""
    return {
        "dryRun": dry_run,
        "message": f"{call.cluster} is {'updated' if before else 'registered'}"
        + (f" in dry run: nothing is written to it{but}, decisions are recorded" if dry_run else " and switched on")
        + call.still_held(control)
        + misfits_text(record),
    }


def _export_all(call: Call, fields: ExportFields) -> Answer:
    """Return a page of records. ``unread`` has, by cluster, the faults of records that cannot be read."""
    records: list[dict[str, Any]] = []
    unread: dict[str, str] = {}
    size, last, next = 0, None, None
    for cluster, record in sorted(call.registrations()):
        if fields.after is not None and cluster <= fields.after:
            continue
        if size > _PAGE:
            next = last
            break
        if isinstance(record, str):
            unread[cluster] = record
            size += len(record)
        else:
            records.append(record_json(record.record))
            size += len(json.dumps(records[-1]))
        last = cluster
    more = ", and there are more" if next is not None else ""
    message = f"clusters: {len(records)}, whose records cannot be read: {len(unread)}{more}"
    return {"records": records, "unread": unread, "next": next, "message": message}


@action(ExportFields, Right.READ, of_all=True, overview=_export_all)
def export(call: Call, _fields: ExportFields) -> Answer:
    """Export the stored records, as files that apply reads."""
    record = call.load().record
    return {"records": [record_json(record)], "unread": {}, "next": None, "message": f"{call.cluster}: 1 record"}
