"""``apply``: store the records of fleet files, unless a stored record has changed since the caller saw it."""

from collections.abc import Sequence
from typing import Annotated, Any, Self

from pydantic import Field

from evenkeel.access_config import ServiceAccountAccess
from evenkeel.application.actions.call import Answer, Call, Digests, Fields, Flag, Right, action, misfits_text
from evenkeel.application.errors import (
    AccessError,
    AccessRefusedError,
    BadRequestError,
    EvenkeelError,
    StateConflictError,
)
from evenkeel.application.fleet.records import changes, digest_of
from evenkeel.application.ports import Registered
from evenkeel.record import ClusterRecord, ControlRecord
from evenkeel.texts.english import sentence
from evenkeel.validation import ClusterId, read_model


class ApplyFields(Fields):
    """The records of one event. A large fleet needs several events."""

    records: Annotated[dict[ClusterId, dict[str, Any]], Field(min_length=1, description="Records by id.")]
    before: Digests
    verify: Annotated[Flag, Field(description="Read each cluster with its new record before storing that.")] = True

    @property
    def clusters(self) -> list[str]:
        """Return the ids of the clusters whose records are given."""
        return list(self.records)

    def of(self, cluster: str) -> Self:
        """Return the fields for one cluster: its record, and the digest of its former record if the event has one."""
        before = {cluster: self.before[cluster]} if cluster in self.before else {}
        return self.model_copy(update={"records": {cluster: self.records[cluster]}, "before": before})


def _apply_touches(call: Call, fields: ApplyFields) -> Answer:
    """Return how the new record differs from the stored one, and the faults that prevent storing it."""
    record, registered, before, differences = _compared(call, fields)
    change = "added" if registered is None else "changed" if differences else "same"
    faults = _faults(call, record, registered) if fields.verify and change != "same" else ()
    message = f"{call.cluster}: {change}"
    message += misfits_text(record) if change != "same" else ""
    return {
        "change": change,
        "changes": differences,
        "before": digest_of(before),
        "faults": list(faults),
        "message": f"{message}; {'; '.join(faults)}" if faults else message,
    }


@action(ApplyFields, Right.ADMINISTER, touches=_apply_touches, of_records=True)
def apply(call: Call, fields: ApplyFields) -> Answer:
    """Store the records of fleet files; the differences are shown first.

    A record without differences is not stored, so a repeated event is harmless.
    """
    record, registered, before, differences = _compared(call, fields)
    if registered is not None and not differences:
        return {"change": "same", "done": False, "message": f"{call.cluster} is as it was"}
    if call.cluster in fields.before and fields.before[call.cluster] != digest_of(before):
        raise StateConflictError(f"{call.cluster} is not as it was shown")
    if fields.verify and (faults := _faults(call, record, registered)):
        raise BadRequestError(f"{call.cluster} is not stored: {'; '.join(faults)}")
    control = registered.control if registered else ControlRecord()
    call.ports.store.save_record(record, control, registered.versions if registered else None)
    call.request_run("applied")
    what = ", ".join(str(one["field"]) for one in differences)
    message = f"{call.cluster} is {'changed: ' + what if registered else 'registered'}"
    dry = call.in_dry_run(record, control)
    return {
        "change": "changed" if registered else "added",
        "message": message + dry + call.still_held(control) + misfits_text(record),
    }


_Before = ClusterRecord | str | None


def _compared(
    call: Call, fields: ApplyFields
) -> tuple[ClusterRecord, Registered | None, _Before, list[dict[str, Any]]]:
    """Return the new record, the stored registration, the stored record, and the differences of the two records."""
    given = fields.records[call.cluster]
    if given.get("id", call.cluster) != call.cluster:
        raise BadRequestError(f"record.id is {given['id']!r}: it must be {call.cluster!r}, or left out")
    record = read_model(ClusterRecord, {**given, "id": call.cluster}, f"record of cluster {call.cluster}")
    if record.pools_fault:
        raise BadRequestError(f"record of cluster {call.cluster}: {record.pools_fault}")
    registered = call.ports.store.registered(call.cluster)
    before = registered.record if registered else None
    unreadable = [{"field": "the whole", "from": before, "to": None}] if isinstance(before, str) else []
    return record, registered, before, unreadable + changes(None if isinstance(before, str) else before, record)


def _faults(call: Call, record: ClusterRecord, registered: Registered | None) -> Sequence[str]:
    """Return why the cluster cannot be read or written with this record. Only the identity of checks is tried."""
    before, control = (registered.record, registered.control) if registered else (None, ControlRecord())
    if lost := call.lost_access(record):
        return lost
    if isinstance(before, ClusterRecord) and _is_reached_alike(record, before):
        return ()
    if isinstance(record.access, ServiceAccountAccess) and not isinstance(before, ClusterRecord):
        return ()  # checks have no token before the first run stores one
    writes = not control.is_dry(record, call.ports.dry_run) and record.checks_with_write_identity
    try:
        refused, another = call.refused_rights(record, writes=writes), call.another_autoscaler(record)
        return [*refused, *([sentence(another)] if another else [])]
    except (AccessError, AccessRefusedError) as error:
        return [str(error)]
    except EvenkeelError as error:
        return [f"it gives no answer: {error}"]


def _is_reached_alike(record: ClusterRecord, before: ClusterRecord) -> bool:
    of_rights = ("namespaces", "autoscaler_status", "status_configmap", "dry_run", "demand", "workload")
    names = ("access", "flavours", *of_rights)
    return all(getattr(record, name) == getattr(before, name) for name in names)
