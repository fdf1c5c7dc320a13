"""The field about PoolMinimum by the clock."""

import json
from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from evenkeel.domain.minimum_at.setting import MOST_ENTRIES, read_day, read_end, read_hours, read_start, read_time_zone
from evenkeel.validation import Count, Strict

_TIME = WithJsonSchema({"type": "string", "pattern": "^[0-2][0-9]:[0-5][0-9]$"})
_Day = Annotated[str, BeforeValidator(read_day)]
_Start = Annotated[str, BeforeValidator(read_start), _TIME]
_End = Annotated[str, BeforeValidator(read_end), _TIME]


class MinimumAtEntry(Strict):
    """A PoolMinimum for some hours of the week. Days and times are local times of the time zone."""

    model_config = ConfigDict(serialize_by_alias=True)

    days: Annotated[tuple[_Day, ...], Field(min_length=1, max_length=7)] | None = None  # None: every day
    start: _Start = Field(alias="from")  # HH:MM
    # HH:MM. "24:00" is the end of the day. If ``until`` is before ``from``, the entry ends on the next day.
    until: _End
    time_zone: Annotated[str, BeforeValidator(read_time_zone)]  # an IANA name, such as Europe/Berlin
    min: Count  # nodes; at most PoolMaximum counts

    @field_validator("until")
    @classmethod
    def _later(cls, value: str, others: ValidationInfo) -> str:
        if "start" in others.data:
            read_hours((), others.data["start"], value)
        return value


class MinimumAtEntries(tuple[MinimumAtEntry, ...]):
    """The entries of a record or of a pool. Their text is the list as JSON, as in the annotation."""

    __slots__ = ()

    def __str__(self) -> str:
        return json.dumps([entry.model_dump(exclude_none=True) for entry in self])


MinimumAtList = Annotated[tuple[MinimumAtEntry, ...], Field(max_length=MOST_ENTRIES), AfterValidator(MinimumAtEntries)]


class MinimumAtFields(Strict):
    """The field of a record, and of its pools."""

    minimum_at: MinimumAtList | None = None  # PoolMinimum by the clock: the largest number that holds. None: no entry
