"""What came of a write that was planned."""

from dataclasses import dataclass
from enum import StrEnum


class Result(StrEnum):
    """How a write ended, or why there was none."""

    WRITTEN = "written"
    PLANNED = "planned"  # in dry run
    CONFLICT = "conflict"  # the object had changed since it was read
    REJECTED = "rejected"  # the API refuses it, and would again
    UNKNOWN = "unknown"  # it was sent, and its answer was lost
    NOT_TRIED = "not tried"
    NOT_WRITTEN = "not written"  # it may not be, or is not what was agreed to any more
    WAITS = "waits"  # for another write, or for the owner of the bounds
    LEFT_ALONE = "left alone"  # nothing was to be written


@dataclass(frozen=True)
class Outcome:
    """What became of one group's writes. ``detail`` quotes whoever stopped them, for people; nobody decides by it."""

    result: Result
    detail: str = ""
