"""The outcome of a planned write."""

from dataclasses import dataclass
from enum import StrEnum


class Result(StrEnum):
    """How a write ended, or why nothing was written."""

    WRITTEN = "written"
    PLANNED = "planned"  # in dry run
    CONFLICT = "conflict"  # the object has changed since it was read
    REJECTED = "rejected"  # the API refuses the write, and would refuse a retry, too
    UNKNOWN = "unknown"  # the API's answer was lost
    NOT_TRIED = "not tried"
    NOT_WRITTEN = "not written"  # writes are not allowed, or the plan differs from the approved plan
    WAITS = "waits"  # the write waits for another write, or for the owner of the bounds
    LEFT_ALONE = "left alone"  # no write was planned


@dataclass(frozen=True)
class Outcome:
    """The outcome of one group's writes. ``detail`` quotes the API's refusal, for people only."""

    result: Result
    detail: str = ""
