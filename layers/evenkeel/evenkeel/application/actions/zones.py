"""The zone that an operator action names, by its name or by AWS's id."""

from functools import partial
from typing import Annotated

from pydantic import Field

from evenkeel.application.actions.call import Call, Fields
from evenkeel.application.errors import BadRequestError, ClusterUnavailableError, EvenkeelError, contained
from evenkeel.application.ports import StoredCluster
from evenkeel.domain.model.values import quote

_ZoneName = Annotated[str | None, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class ZoneFields(Fields):
    """A zone, by its name or by its id."""

    zone: Annotated[_ZoneName, Field(description="The zone's name or id, as the cluster has it.")] = None
    zone_id: Annotated[
        _ZoneName, Field(description="AWS's id of the zone, which is the same in every account; such as euc1-az2.")
    ] = None


def one_zone(call: Call, action: str, fields: ZoneFields, stored: StoredCluster) -> str:
    """Return the zone's name, which may not exist if the request has no id. Raises BadRequestError."""
    if (fields.zone is None) == (fields.zone_id is None):
        raise BadRequestError(f"{action} needs a zone or a zone_id: name one of them")
    return fields.zone if fields.zone is not None else _zone_of_id(call, str(fields.zone_id), stored)


def _zone_of_id(call: Call, id: str, stored: StoredCluster) -> str:
    """Return the name that the cluster uses for the zone with this id.

    The name is from the record, from AWS if the stack's account buys the machines, or from nodes. Evenkeel never
    guesses the name, because two accounts may use one name for different zones.
    """
    record = stored.record
    if id in record.zone_ids:
        return record.zone_ids[id]
    problems = []
    if record.is_of_this_account:
        try:
            if (name := call.ports.zone_names(record.region).get(id)) is not None:
                return name
        except EvenkeelError as error:
            problems.append(str(error))
    try:
        ask = partial(call.ports.clusters.zone_ids, record, call.remaining)
        if (name := contained(record.id, "it was read", ask).get(id)) is not None:
            return name
    except EvenkeelError as error:
        problems.append(str(error))
    if problems:
        raise ClusterUnavailableError(
            f"zone_id is {quote(id)}: the name of that zone in {record.id} could not be read ({'; '.join(problems)}): "
            "name it in its zone_ids, or fence it by its zone's name"
        )
    raise BadRequestError(
        f"zone_id is {quote(id)}: neither the record of {record.id} nor its nodes name that zone: "
        "name it in its zone_ids, or fence it by its zone's name"
    )
