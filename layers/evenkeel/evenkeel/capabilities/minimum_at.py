"""The field about PoolMinimum by the clock."""

from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, RootModel, ValidationInfo, WithJsonSchema, field_validator

from evenkeel.domain.minimum_at.setting import MOST_ENTRIES, read_day, read_end, read_start, read_time_zone, read_window
from evenkeel.validation import Count, Strict

_TIME = WithJsonSchema({"type": "string", "pattern": "^[0-2][0-9]:[0-5][0-9]$"})
_Day = Annotated[str, BeforeValidator(read_day)]
_Start = Annotated[str, BeforeValidator(read_start), _TIME]
_End = Annotated[str, BeforeValidator(read_end), _TIME]


class MinimumAtEntry(Strict):
    """A PoolMinimum for some hours of the week. Days and times are local times of the time zone."""

    model_config = ConfigDict(serialize_by_alias=True)

    days: Annotated[tuple[_Day, ...], Field(min_length=1, max_length=7)] | None = None  # None: every day
    start: _Start = Field(alias="from", description="HH:MM")
    # HH:MM. 24:00 is the end of the day. If ``until`` is before ``from``, the entry ends on the next day.
    until: _End
    time_zone: Annotated[str, BeforeValidator(read_time_zone)] = Field(description="an IANA name")
    min: Count

    @field_validator("until")
    @classmethod
    def _later(cls, value: str, others: ValidationInfo) -> str:
        if "start" in others.data:
            read_window((), others.data["start"], value)
        return value


class MinimumAtList(RootModel[tuple[MinimumAtEntry, ...]]):
    """The entries. The largest number of those that hold is PoolMinimum, if it is larger than ``min``."""

    root: tuple[MinimumAtEntry, ...] = Field(max_length=MOST_ENTRIES)

    def __str__(self) -> str:
        return self.model_dump_json(exclude_none=True)


class MinimumAtFields(Strict):
    """The field of a record, and of its pools."""

    minimum_at: MinimumAtList | None = None  # PoolMinimum by the clock. None: it is the same at all times
