"""The errors of ports, and ``contained``, which converts other exceptions. Each error's text is one line for people."""

from collections.abc import Callable
from pathlib import PurePath
from types import TracebackType
from typing import TypeVar

import evenkeel

# The path, not the name "evenkeel": a checkout and the folders above it may have that name, too.
_PACKAGE = PurePath(evenkeel.__file__).parent
_T = TypeVar("_T")


class EvenkeelError(Exception):
    """The base of all expected errors."""


class BadRequestError(EvenkeelError):
    """An event or a message can never succeed."""


class UnknownClusterError(BadRequestError):
    """No cluster is registered under the given id."""


class StateConflictError(EvenkeelError):
    """Another writer has changed the item since it was read. The caller must read it again."""


class StateUnavailableError(EvenkeelError):
    """The table does not answer. Without it, no cluster is written."""


class QueueUnavailableError(EvenkeelError):
    """A message cannot be sent. The caller must try again."""


class LeaseHeldError(EvenkeelError):
    """Another run has the lease of the cluster. The caller must try again later."""


class AccessError(EvenkeelError):
    """The cluster's access record or secret is unusable; nothing was sent."""


class AccessUnavailableError(AccessError):
    """A service that provides the access (such as AWS STS) does not answer. The cluster itself may be healthy."""


class ClusterUnavailableError(EvenkeelError):
    """The cluster's API returns no usable answer. A partial answer is not used."""


class AccessRefusedError(ClusterUnavailableError):
    """The cluster's API refuses Evenkeel's identity, or this read."""


class TooLargeError(ClusterUnavailableError):
    """The cluster has more objects than a check may receive. A check of this cluster alone may receive more."""


class ConflictError(EvenkeelError):
    """The object has changed (409) or is gone (404) since it was read. The caller must read and plan again."""


class RejectedError(EvenkeelError):
    """The API refuses the write (403, 422), and would refuse a retry, too."""


class ForbiddenError(RejectedError):
    """The API server forbids Evenkeel to write the object (403). An administrator must grant the right."""


class UnexpectedError(ClusterUnavailableError):
    """An unexpected exception. Only its type and place are reported, because its own text may contain a secret."""

    def __init__(self, cluster: str, step: str, kind: str, place: str) -> None:
        super().__init__(f"{cluster}: {kind} while {step}, at {place}: please report this")
        self.kind = kind


def contained(cluster: str, step: str, call: Callable[[], _T]) -> _T:
    """Return the result of the call. Raises expected errors unchanged, and UnexpectedError instead of all others."""
    unexpected: UnexpectedError
    try:
        return call()
    except EvenkeelError as error:
        error.__cause__ = error.__context__ = None  # only the error's own text may be shown
        raise
    except Exception as error:  # of any type: an error of one cluster never affects another
        unexpected = UnexpectedError(cluster, step, type(error).__name__, _place(error.__traceback__))
    raise unexpected  # outside the handler, so that the original exception is not its context


def _place(traceback: TracebackType | None) -> str:
    """Return the innermost line of Evenkeel's code in a traceback, as file:line."""
    place = "an unknown place"
    while traceback is not None:
        path = PurePath(traceback.tb_frame.f_code.co_filename)
        if _PACKAGE in path.parents:
            place = f"{path.name}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place
