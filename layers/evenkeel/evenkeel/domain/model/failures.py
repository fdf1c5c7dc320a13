"""What kinds of failure there are, and how far each reaches."""

from enum import StrEnum


class FailureClass(StrEnum):
    """What went wrong, and with it what helps."""

    CAPACITY = "capacity"  # the zone is out of machines: another zone helps
    QUOTA = "quota"  # a limit of the account or region: another zone does not help
    TIMEOUT = "timeout"  # no node in time
    CONFIGURATION = "configuration"  # the group itself is wrong: no place helps
    UNKNOWN = "unknown"  # treated as timeout

    @property
    def moves_elsewhere(self) -> bool:
        """Whether other zones may take what this group could not get: the failure's scope is the zone."""
        return self in (FailureClass.CAPACITY, FailureClass.TIMEOUT, FailureClass.UNKNOWN)

    @property
    def is_vague(self) -> bool:
        """Whether it says that no node came, and not why."""
        return self in (FailureClass.TIMEOUT, FailureClass.UNKNOWN)
