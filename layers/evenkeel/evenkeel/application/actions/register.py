"""Store a cluster's record."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from evenkeel.application.actions.call import Answer, Call, Fields
from evenkeel.application.errors import BadRequestError
from evenkeel.config import ClusterRecord, ConfigError, read_model

# What actions have said about single pools: were it lost without a word, a pool that was left would come back.
_KEPT = ("paused_pools", "leaving_pools", "mending")


def _object(value: object) -> object:
    if not isinstance(value, dict):
        raise BadRequestError("record is missing: give the cluster's record as an object")
    return value


class RegisterFields(Fields):
    """The record as its owner wrote it; its id may be left out."""

    record: Annotated[
        dict[str, Any],
        BeforeValidator(_object),
        Field(description="The cluster's record, YAML or JSON; - reads standard input."),
    ]


def register(call: Call, fields: RegisterFields) -> Answer:
    version = call.store.record_version(call.cluster)
    kept = _kept_fields(call) if version else {}
    record = read_model(
        ClusterRecord, {"id": call.cluster, **kept, **fields.record}, f"record of cluster {call.cluster}"
    )
    if record.id != call.cluster:
        raise BadRequestError(f"record.id is {record.id!r}: it must be {call.cluster!r}, or left out")
    call.store.save_record(record, version)
    call.request_look("registered")
    dry_run = call.is_dry(record)
    return {
        "dryRun": dry_run,
        "message": f"{call.cluster} is {'updated' if version else 'registered'}"
        + (" in dry run: nothing is written to it, decisions are recorded" if dry_run else " and switched on")
        + call.still_held(record),
    }


def _kept_fields(call: Call) -> dict[str, Any]:
    try:
        record = call.load().record
    except ConfigError:
        return {}  # nobody can read it: that is why it is registered again
    return {name: getattr(record, name) for name in _KEPT}
