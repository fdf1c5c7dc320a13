"""A value of others that Evenkeel overwrites, such as the bounds of an owner or the maximum of a Shoot.

Evenkeel stores their value, and its own values before it writes them. So the next value that it finds shows what has
happened, also after a run that ended between two writes. Evenkeel follows a new value, and puts theirs back at the end.
"""

from collections.abc import Container
from enum import Enum, auto
from typing import TypeVar

_Value = TypeVar("_Value")


class Found(Enum):
    """Whose value an object has."""

    OURS = auto()  # Evenkeel wrote it
    THEIRS = auto()  # the value before Evenkeel's: Evenkeel's write never arrived, or others have put theirs back
    NEW = auto()  # others have set another value since


def found(value: _Value, theirs: _Value | None, ours: Container[_Value | None]) -> Found:
    """Return whose value an object has.

    Args:
        value: The object's present value.
        theirs: The value of others, as Evenkeel last knew it; None: they had none.
        ours: The values that Evenkeel has written, or was about to write.
    """
    if value in ours:
        return Found.OURS
    return Found.THEIRS if value == theirs else Found.NEW
