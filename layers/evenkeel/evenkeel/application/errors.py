"""What can go wrong at a port, in words that use cases decide by. Each text is one line for people."""


class EvenkeelError(Exception):
    """Base of all errors that are expected somewhere."""


class BadRequestError(EvenkeelError):
    """An event or a message that will never be right, however often it is tried."""


class UnknownClusterError(BadRequestError):
    """No cluster is registered under that id."""


class StateConflictError(EvenkeelError):
    """Somebody else wrote the record since it was read: read again."""


class StateUnavailableError(EvenkeelError):
    """The state cannot be read or written now. Then no cluster is written either."""


class QueueUnavailableError(EvenkeelError):
    """A message cannot be sent now: whoever asked for it must ask again."""


class LeaseHeldError(EvenkeelError):
    """Another run holds the cluster: come back later."""


class AccessError(EvenkeelError):
    """The cluster's access record or secret is unusable; nothing was sent."""


class AccessUnavailableError(AccessError):
    """What leads to the cluster does not answer now: that is no word about the cluster."""


class ClusterUnavailableError(EvenkeelError):
    """The cluster's API did not give a usable answer; what was read of it so far is worth nothing."""


class AccessRefusedError(ClusterUnavailableError):
    """The cluster's API knows us and does not let us read, or does not know us."""


class TooLargeError(ClusterUnavailableError):
    """The cluster has more objects than may be received of it now; looked at alone, it may have more."""


class ConflictError(EvenkeelError):
    """The object has changed (409) or gone (404) since it was read: read again, plan again."""


class RejectedError(EvenkeelError):
    """The API refuses the write (403, 422): the same write would be refused again."""


class ForbiddenError(RejectedError):
    """We may not write the object (403): somebody has to give us the right."""
