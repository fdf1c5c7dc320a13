"""Records of a fleet, stored as its files have them: what differs first, verified, and not over anybody's change."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Self

from pydantic import Field

from evenkeel.access_config import ServiceAccountAccess
from evenkeel.application.actions.call import Answer, Call, Fields, Flag
from evenkeel.application.errors import (
    AccessError,
    AccessRefusedError,
    BadRequestError,
    EvenkeelError,
    StateConflictError,
    contained,
)
from evenkeel.application.fleet.records import changes, digest_of
from evenkeel.application.ports import Registered
from evenkeel.application.rebalancing.observe import another_autoscaler
from evenkeel.record import ClusterRecord, ControlRecord
from evenkeel.texts.english import sentence
from evenkeel.validation import ClusterId, read_model


class ApplyFields(Fields):
    """The records of one event. Of a fleet whose records are too large for one, there are several."""

    records: Annotated[dict[ClusterId, dict[str, Any]], Field(min_length=1, description="Records by id.")]
    before: Annotated[
        dict[str, str | None], Field(description="Digests of what was shown, by id.", default_factory=dict)
    ]
    verify: Annotated[Flag, Field(description="Whether each cluster is tried before its record is stored.")] = True

    @property
    def clusters(self) -> list[str]:
        return list(self.records)

    def of(self, cluster: str) -> Self:
        before = {cluster: self.before[cluster]} if cluster in self.before else {}
        return self.model_copy(update={"records": {cluster: self.records[cluster]}, "before": before})


def apply_touches(call: Call, fields: ApplyFields) -> Answer:
    """What would be stored, and what speaks against it. Nothing is."""
    record = _record(call, fields)
    found = call.store.registered(call.cluster)
    before = found.record if found else None
    differences = _differences(before, record)
    change = "added" if found is None else "changed" if differences else "same"
    faults = _faults(call, record, found) if fields.verify and change != "same" else ()
    message = f"{call.cluster}: {change}"
    return {
        "change": change,
        "changes": differences,
        "before": digest_of(before),
        "faults": list(faults),
        "message": f"{message}; {'; '.join(faults)}" if faults else message,
    }


def apply(call: Call, fields: ApplyFields) -> Answer:
    """What is stored already is not stored again, so that whatever comes twice does no harm."""
    record = _record(call, fields)
    found = call.store.registered(call.cluster)
    before = found.record if found else None
    differences = _differences(before, record)
    if found is not None and not differences:
        return {"change": "same", "done": False, "message": f"{call.cluster} is as it was"}
    if call.cluster in fields.before and fields.before[call.cluster] != digest_of(before):
        raise StateConflictError(f"{call.cluster} is not as it was shown")
    if fields.verify and (faults := _faults(call, record, found)):
        raise BadRequestError(f"{call.cluster} is not stored: {'; '.join(faults)}")
    control = found.control if found else ControlRecord()
    call.store.save_record(record, control, found.versions if found else None)
    call.request_look("applied")
    what = ", ".join(str(one["field"]) for one in differences)
    message = f"{call.cluster} is {'changed: ' + what if found else 'registered'}"
    dry = " in dry run" if call.is_dry(record, control) and found is None else ""
    return {"change": "changed" if found else "added", "message": message + dry + call.still_held(control)}


def _record(call: Call, fields: ApplyFields) -> ClusterRecord:
    given = fields.records[call.cluster]
    if given.get("id", call.cluster) != call.cluster:
        raise BadRequestError(f"record.id is {given['id']!r}: it must be {call.cluster!r}, or left out")
    return read_model(ClusterRecord, {**given, "id": call.cluster}, f"record of cluster {call.cluster}")


def _differences(before: ClusterRecord | str | None, record: ClusterRecord) -> list[dict[str, Any]]:
    unreadable = [{"field": "the whole", "from": before, "to": None}] if isinstance(before, str) else []
    return unreadable + changes(None if isinstance(before, str) else before, record)


def _faults(call: Call, record: ClusterRecord, found: Registered | None) -> Sequence[str]:
    """Why the cluster could not be looked at, or written, with this record, as far as whoever looks can find out."""
    before, control = (found.record, found.control) if found else (None, ControlRecord())
    if isinstance(before, ClusterRecord) and _is_reached_alike(record, before):
        return ()
    if isinstance(record.access, ServiceAccountAccess) and not isinstance(before, ClusterRecord):
        return ()  # there is no token for looks before the first run
    writes = not call.is_dry(record, control) and record.looks_as_it_writes
    try:
        ask = partial(call.clusters.refused, record, call.remaining, writes=writes)
        told = contained(record.id, "its rights were asked for", ask)
        another = another_autoscaler(call.clusters, record, call.remaining, call.now)
        return [*told, *([sentence(another)] if another else [])]
    except (AccessError, AccessRefusedError) as error:
        return [str(error)]
    except EvenkeelError as error:
        return [f"it gives no answer: {error}"]


def _is_reached_alike(record: ClusterRecord, before: ClusterRecord) -> bool:
    of_rights = ("namespaces", "autoscaler_status", "status_configmap", "dry_run", "demand", "workload")
    names = ("access", "flavours", *of_rights)
    return all(getattr(record, name) == getattr(before, name) for name in names)
