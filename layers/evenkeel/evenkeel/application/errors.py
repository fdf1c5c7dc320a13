"""The errors that ports raise, and ``contained``, which converts other exceptions. An error's text is one line."""

from collections.abc import Callable, Iterable
from pathlib import PurePath
from types import TracebackType
from typing import TypeVar

import evenkeel

# The package is found by its path, because a checkout and the folders above it may also be named "evenkeel".
_PACKAGE = PurePath(evenkeel.__file__).parent
_T = TypeVar("_T")
# The cause of an entry that replaces an unreadable decision. Its `what` is the fault.
UNREADABLE = "unreadable"


class EvenkeelError(Exception):
    """The base of all expected errors."""


class BadRequestError(EvenkeelError):
    """The event or the message is wrong, and would fail again if it were retried."""


class UnknownClusterError(BadRequestError):
    """No cluster is registered under the given id."""


class StateConflictError(EvenkeelError):
    """A stored item was changed after the caller had read it. The caller must read the item again."""


class StateUnavailableError(EvenkeelError):
    """The DynamoDB table does not answer. Without the table, Evenkeel writes to no cluster."""


class StateRefusedError(StateUnavailableError):
    """The table refuses a write, and would refuse a retry, too: the item is too large, or a policy forbids it."""


class QueueUnavailableError(EvenkeelError):
    """A queue does not accept a message. The caller must try again."""


class LeaseHeldError(EvenkeelError):
    """Another run has the lease of the cluster. The caller must try again later."""


class AccessError(EvenkeelError):
    """The access in the cluster's record, or its secret, is unusable. Nothing was sent to the cluster."""


class AccessUnavailableError(AccessError):
    """A service that provides the access (such as AWS STS) does not answer. The cluster itself may be healthy."""


class ClusterUnavailableError(EvenkeelError):
    """The cluster's API server returns no usable answer. Evenkeel does not use partial answers."""


class AccessRefusedError(ClusterUnavailableError):
    """The cluster's API server rejects Evenkeel's identity, or forbids this read."""


class NoMachineApiError(ClusterUnavailableError):
    """The cluster serves none of the machine APIs of these flavours."""

    def __init__(self, cluster: str, flavours: Iterable[str]) -> None:
        super().__init__(f"{cluster} serves none of the machine APIs {', '.join(flavours)}: see its flavours")


class TooLargeError(ClusterUnavailableError):
    """The cluster has too many objects for this check. A check of this cluster alone may read more objects."""


class ConflictError(EvenkeelError):
    """The object was changed (409) or deleted (404) after it was read. The caller must read and plan again."""


class RejectedError(EvenkeelError):
    """The API server refuses the write (403, 422), and would refuse a retry, too."""


class TooLateError(EvenkeelError):
    """Too little time is left to end a write of several requests. None was sent. The next run writes."""


class DrainingError(EvenkeelError):
    """Pods still have to leave a node before its machine may be deleted. The next check goes on with the drain."""


class ForbiddenError(RejectedError):
    """The API server forbids Evenkeel to write the object (403). An administrator must grant the right."""


class UnexpectedError(ClusterUnavailableError):
    """An unexpected exception. Only its type and line of code are reported, because its text may contain a secret."""

    def __init__(self, cluster: str, step: str, kind: str, place: str) -> None:
        super().__init__(f"{cluster}: {kind} while {step}, at {place}: please report this")
        self.kind = kind


def contained(cluster: str, step: str, call: Callable[[], _T]) -> _T:
    """Return the result of the call. Raises expected errors unchanged, and any other exception as UnexpectedError."""
    unexpected: UnexpectedError
    try:
        return call()
    except EvenkeelError as error:
        error.__cause__ = error.__context__ = None  # no cause, because only the error's own text may be shown
        raise
    except Exception as error:  # any type, so that an error in one cluster never affects another
        unexpected = UnexpectedError(cluster, step, type(error).__name__, _place(error.__traceback__))
    raise unexpected  # raised outside the handler, so that the original exception is not its context


def _place(traceback: TracebackType | None) -> str:
    """Return the innermost line of Evenkeel's code in a traceback, as file:line."""
    place = "an unknown place"
    while traceback is not None:
        path = PurePath(traceback.tb_frame.f_code.co_filename)
        if _PACKAGE in path.parents:
            place = f"{path.name}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place
