"""The errors of ports, and ``contained``, which makes one of any exception. Each text is one line for people."""

from collections.abc import Callable
from pathlib import PurePath
from types import TracebackType
from typing import TypeVar

import evenkeel

# The package itself: a checkout, and any folder above it, may be named evenkeel too.
_PACKAGE = PurePath(evenkeel.__file__).parent
_T = TypeVar("_T")


class EvenkeelError(Exception):
    """The base of all expected errors."""


class BadRequestError(EvenkeelError):
    """An event or a message can never succeed."""


class UnknownClusterError(BadRequestError):
    """No cluster is registered under that id."""


class StateConflictError(EvenkeelError):
    """Another writer has changed the item since it was read: read again."""


class StateUnavailableError(EvenkeelError):
    """The table does not answer. Then no cluster is written either."""


class QueueUnavailableError(EvenkeelError):
    """A message cannot be sent: the caller must try again."""


class LeaseHeldError(EvenkeelError):
    """Another run holds the cluster: try again later."""


class AccessError(EvenkeelError):
    """The cluster's access record or secret is unusable; nothing was sent."""


class AccessUnavailableError(AccessError):
    """A service that leads to the cluster does not answer. That says nothing about the cluster."""


class ClusterUnavailableError(EvenkeelError):
    """The cluster's API gives no usable answer; a partial read is not used."""


class AccessRefusedError(ClusterUnavailableError):
    """The cluster's API refuses our identity, or this read."""


class TooLargeError(ClusterUnavailableError):
    """The cluster has more objects than a check may receive; checked alone, it may have more."""


class ConflictError(EvenkeelError):
    """The object has changed (409) or is gone (404) since it was read: read and plan again."""


class RejectedError(EvenkeelError):
    """The API refuses the write (403, 422), and would refuse it again."""


class ForbiddenError(RejectedError):
    """We may not write the object (403): an administrator has to grant the right."""


class UnexpectedError(ClusterUnavailableError):
    """An unexpected exception. The text has its kind and place only, because its own text may hold a secret."""

    def __init__(self, cluster: str, step: str, kind: str, place: str) -> None:
        super().__init__(f"{cluster}: {kind} while {step}, at {place}: please report this")
        self.kind = kind


def contained(cluster: str, step: str, call: Callable[[], _T]) -> _T:
    """Return what the call returns. Expected errors are raised as they are, all others as UnexpectedError."""
    unexpected: UnexpectedError
    try:
        return call()
    except EvenkeelError as error:
        error.__cause__ = error.__context__ = None  # its own text is all that may be shown
        raise
    except Exception as error:  # any kind: one cluster's error never affects another
        unexpected = UnexpectedError(cluster, step, type(error).__name__, _place(error.__traceback__))
    raise unexpected  # outside of the handler, so that the original is not its context


def _place(traceback: TracebackType | None) -> str:
    """Return the innermost line of our package."""
    place = "an unknown place"
    while traceback is not None:
        path = PurePath(traceback.tb_frame.f_code.co_filename)
        if _PACKAGE in path.parents:
            place = f"{path.name}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place
