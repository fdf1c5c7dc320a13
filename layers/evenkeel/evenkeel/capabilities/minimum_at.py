"""The field and the annotation about PoolMinimum by the clock. Here, their entries are checked."""

import json
import re
from collections.abc import Iterable
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from evenkeel.domain.minimum_at.setting import NAME
from evenkeel.domain.model.parts import Setting, annotation_of
from evenkeel.domain.model.values import quote
from evenkeel.validation import Count, Strict

_MOST = 50  # entries; each entry of each pool is evaluated at each check
_LONGEST = 20_000  # characters of an annotation; each check reads it
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NUMBERS = {name.lower(): number for number, day in enumerate(_DAYS) for name in (day, day[:3])}

# Type of pydantic's error -> what an annotation's fault says instead.
_PROBLEMS = {
    "int_type": "no whole number: write it without quotes",
    "extra_forbidden": "no field of an entry: remove it",
    "missing": "write it",
    "model_type": "no object: write it with the fields of an entry",
    "tuple_type": "no list: write it as one",
}


def _day(value: object) -> str:
    """Return a day or a span of days in short names, such as ``Mon-Fri``."""
    days = [_NUMBERS.get(name.lower()) for name in str(value).split("-", 1)]
    if None in days:
        raise ValueError("no day of the week: write Mon, Tue, Wed, Thu, Fri, Sat or Sun")
    return "-".join(_DAYS[day][:3] for day in days if day is not None)


def _time(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch("([01][0-9]|2[0-3]):[0-5][0-9]|24:00", value, re.ASCII):
        raise ValueError('no time of day: write HH:MM in quotes, such as "08:00"')
    return value


def _time_zone(value: object) -> str:
    try:
        return ZoneInfo(str(value)).key
    except (LookupError, ValueError, OSError):  # what a name raises that is unknown, or no name at all
        raise ValueError("no known time zone: write an IANA name, such as Europe/Berlin") from None


_Day = Annotated[str, BeforeValidator(_day)]
_Time = Annotated[str, BeforeValidator(_time)]


class MinimumAtEntry(Strict):
    """A PoolMinimum for some hours of the week. Days and times are local times of the time zone."""

    model_config = ConfigDict(serialize_by_alias=True)

    days: Annotated[tuple[_Day, ...], Field(max_length=7)] | None = None  # None: every day
    start: _Time = Field(alias="from")  # HH:MM
    # HH:MM. "24:00" is the end of the day. If ``until`` is before ``from``, the entry ends on the next day.
    until: _Time
    time_zone: Annotated[str, BeforeValidator(_time_zone)]  # an IANA name, such as Europe/Berlin
    min: Count  # nodes; at most PoolMaximum counts

    @field_validator("days", "start", "until")
    @classmethod
    def _in_order(cls, value: object, others: ValidationInfo) -> object:
        if value == ():
            raise ValueError("empty: name a day, or leave it out for every day")
        if others.field_name == "start" and value == "24:00":
            raise ValueError("the end of a day: write 00:00, and the next day")
        if others.field_name == "until" and value == others.data.get("start"):
            raise ValueError("equal to from: for whole days write from 00:00 until 24:00")
        return value

    def written(self, field: str) -> dict[str, Any]:
        """Return the entry as the domain reads it. ``field``: where it is."""
        days: set[int] = set()
        for span in self.days or ("Mon-Sun",):
            numbers = [_NUMBERS[name.lower()] for name in span.split("-")]
            days |= {(numbers[0] + more) % 7 for more in range((numbers[-1] - numbers[0]) % 7 + 1)}
        start, end = (60 * int(time[:2]) + int(time[3:]) for time in (self.start, self.until))
        text = " ".join([*([",".join(self.days)] if self.days else []), f"{self.start}-{self.until}", self.time_zone])
        hours = {"days": sorted(days), "start": start, "end": end if end > start else end + 24 * 60}
        return {**hours, "zone": self.time_zone, "min": self.min, "text": text, "field": field}


def _written(
    where: str, entries: Iterable[tuple[int, MinimumAtEntry]], faults: Iterable[tuple[str, str, str]] = ()
) -> str:
    """Return the text of a list, which is equal for equal lists."""
    found = [entry.written(f"{where}.{place}") for place, entry in entries]
    return json.dumps({"entries": found, "faults": list(faults)})


class MinimumAtEntries(tuple[MinimumAtEntry, ...]):
    """The entries of a record or of a pool."""

    def __str__(self) -> str:
        return _written(NAME, enumerate(self))


MinimumAtList = Annotated[tuple[MinimumAtEntry, ...], Field(max_length=_MOST), AfterValidator(MinimumAtEntries)]


def _read_annotation(value: object) -> str:
    """Return the text of the list in an annotation. A bad entry is left out, and its faults are in the text."""
    text, where = str(value), annotation_of(NAME)
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError) as error:
        return _written(where, (), [(where, quote(text), f"no JSON: {error}: write a list of entries")])
    if not isinstance(listed, list) or len(listed) > _MOST or len(text) > _LONGEST:
        return _written(where, (), [(where, quote(text), f"no list of at most {_MOST} entries: write it as one")])
    entries, faults = [], []
    for place, given in enumerate(listed):
        try:
            entries.append((place, MinimumAtEntry.model_validate(given)))
        except ValidationError as error:
            for fault in error.errors(include_url=False):
                field = ".".join(map(str, (where, place, *fault["loc"])))
                value = "missing" if fault["type"] == "missing" else quote(fault["input"])
                problem = _PROBLEMS.get(fault["type"]) or fault["msg"].removeprefix("Value error, ")
                faults.append((field, value, problem))
    return _written(where, entries, faults)


MINIMUM_AT = Setting(name=NAME, read=_read_annotation, default="")


class MinimumAtFields(Strict):
    """The field of a record, and of its pools."""

    minimum_at: MinimumAtList | None = None  # PoolMinimum by the clock: the largest number that holds. None: no entry
