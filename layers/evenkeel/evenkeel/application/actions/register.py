"""Store a cluster's record."""

import contextlib
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from evenkeel.application.actions.call import Answer, Call, Fields
from evenkeel.application.errors import BadRequestError, EvenkeelError
from evenkeel.application.rebalancing.observe import another_autoscaler
from evenkeel.record import Registration
from evenkeel.texts.english import sentence
from evenkeel.validation import read_model


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
    registration = read_model(Registration, {"id": call.cluster, **fields.record}, f"record of cluster {call.cluster}")
    if registration.id != call.cluster:
        raise BadRequestError(f"record.id is {registration.id!r}: it must be {call.cluster!r}, or left out")
    before = call.store.registered(call.cluster)
    record, control = registration.record, registration.control(before.control if before else None)
    another = None
    with contextlib.suppress(EvenkeelError):  # a cluster may be registered before it can be reached
        another = another_autoscaler(call.clusters, record, call.remaining, call.now)
    if another is not None:
        raise BadRequestError(f"{call.cluster} is not stored: {sentence(another)}")
    call.store.save_record(record, control, before.versions if before else None)
    call.request_look("registered")
    dry_run = call.is_dry(record, control)
    return {
        "dryRun": dry_run,
        "message": f"{call.cluster} is {'updated' if before else 'registered'}"
        + (" in dry run: nothing is written to it, decisions are recorded" if dry_run else " and switched on")
        + call.still_held(control),
    }
