"""What kind of failure a provider's error is, and how far it reaches.

Codes are told apart with the prefixes ``Server.`` and ``Client.`` of CloudTrail taken off. Machine-controller-manager
folds exhaustion of a zone, of a quota and of addresses into one code, ``ResourceExhausted``
(machine-controller-manager-provider-aws pkg/aws/errors/utils.go:15-33): there the message decides.
"""

import re
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


# In this order: a message that names a limit is a quota, even where it also speaks of capacity.
_PATTERNS = (
    (
        FailureClass.QUOTA,
        r"LimitExceeded|QuotaExceeded|QUOTA_EXCEEDED|OperationNotAllowed.{0,80}quota|InsufficientAddressCapacity"
        r"|InsufficientFreeAddresses|InsufficientSubnet|MaxSpotInstanceCountExceeded|IP_SPACE_EXHAUSTED"
        r"|exceed\w* .{0,40}(quota|limit)|(quota|limit) .{0,60}exceeded"
        # EC2's own words for VcpuLimitExceeded and InstanceLimitExceeded, where a provider passes on no code
        r"|than your current .{0,40}limit|your quota allows",
    ),
    (
        FailureClass.CAPACITY,
        r"InsufficientInstanceCapacity|InsufficientCapacity|InsufficientHostCapacity|InsufficientReservedInstanceCapacity"
        r"|UnfulfillableCapacity|ReservationCapacityExceeded|InsufficientVolumeCapacity|ZONE_RESOURCE_POOL_EXHAUSTED"
        r"|ZonalAllocationFailed|AllocationFailed|OverconstrainedZonalAllocation|SkuNotAvailable|SpotMaxPriceTooLow|STOCKOUT"
        r"|(not have|insufficient|sufficient) .{0,60}capacity|no valid host|OutOfResources|ResourceExhausted"
        r"|is not supported in your requested Availability Zone|Unsupported\b",
    ),
    (FailureClass.TIMEOUT, r"Timeout|TimedOut|timed out|DeadlineExceeded|(not|failed to) join"),
    (
        FailureClass.CONFIGURATION,
        r"Invalid\w*|Unauthorized\w*|AccessDenied|PermissionDenied|Forbidden|Unauthenticated|NotFound|OptInRequired"
        r"|Malformed\w*|MissingParameter|FailedPrecondition",
    ),
)

# OpenShift folds every 4xx answer of EC2 into InvalidConfiguration, a quota's too
# (machine-api-provider-aws pkg/actuators/machine/instances.go:552-579).
_FOLDED = {
    "",
    "ResourceExhausted",
    "Internal",
    "Unknown",
    "InstanceProvisionFailed",
    "MachineCreationFailed",
    "InvalidConfiguration",
}


def classify(code: str, message: str = "") -> FailureClass:
    """The class of a failure from the provider's code and, where the code says too little, from its message.

    Never raises: what it does not know is ``unknown``.
    """
    code = code.removeprefix("Server.").removeprefix("Client.")
    # The folded codes say nothing; the message, which quotes the provider, says it. Else the code is the better word.
    for text in (message[:4096], code) if code in _FOLDED else (code, message[:4096]):
        for kind, pattern in _PATTERNS:
            if re.search(pattern, text, re.IGNORECASE):
                return kind
    return FailureClass.UNKNOWN
