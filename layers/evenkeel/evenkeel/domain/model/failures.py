"""Failure classes, and the rules that assign a provider's error to a class.

Codes are compared without CloudTrail's prefixes ``Server.`` and ``Client.``. Machine-controller-manager reports one
code, ``ResourceExhausted``, for three causes: no machines in the zone, no quota, no free address in the subnet
(machine-controller-manager-provider-aws pkg/aws/errors/utils.go:15-33). For this code, the message decides the class.
"""

import re
from enum import StrEnum
from functools import lru_cache

from evenkeel.domain.model.groups import MachineFailure


class FailureClass(StrEnum):
    """The class of a failure. It decides whether another zone helps."""

    CAPACITY = "capacity"  # the zone is out of machines, so another zone helps
    QUOTA = "quota"  # a limit of the account or region is reached, so another zone does not help
    TIMEOUT = "timeout"  # no node registered in time
    CONFIGURATION = "configuration"  # the group itself is misconfigured, so another zone does not help
    UNKNOWN = "unknown"  # the cause is not known; Evenkeel treats the failure as a timeout

    @property
    def moves_elsewhere(self) -> bool:
        """Return True if the failure concerns its zone only, so that other zones may get the replicas."""
        return self in (FailureClass.CAPACITY, FailureClass.TIMEOUT, FailureClass.UNKNOWN)

    @property
    def is_vague(self) -> bool:
        """Return True if the failure says only that no node registered, and not why."""
        return self in (FailureClass.TIMEOUT, FailureClass.UNKNOWN)


# The first pattern that matches decides the class. Limits on the rate of calls are first, because they are temporary
# and no quotas, but their messages resemble the messages of quotas. A message that names a limit is a quota failure,
# even if it also names capacity. Missing rights are a configuration failure, because waiting does not help.
# Sources: EC2's list of codes (docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html), and the
# codes of the machine controllers' providers for Azure, Google Cloud, OpenStack and Alibaba Cloud.
_PATTERNS = (
    (
        FailureClass.UNKNOWN,
        r"RequestLimitExceeded|Throttl|TooManyRequests|too many requests|rate.?limit|rate exceeded|SlowDown",
    ),
    (
        # These limits are per instance or network interface. The group's configuration exceeds them.
        FailureClass.CONFIGURATION,
        r"IpAddressLimitExceeded|AttachmentLimitExceeded|Per(Instance|Interface)LimitExceeded|TagLimitExceeded",
    ),
    (
        FailureClass.QUOTA,
        r"Limit(Exceeded|Reached)|Max\w+CountExceeded|ResourceCountExceeded|VolumeIOPSLimit\b|QuotaExceed|QUOTA_EXCEEDED"
        # Elastic IP addresses belong to the region. So do the subnets of Azure and Google Cloud.
        r"|OperationNotAllowed.{0,80}quota|InsufficientAddressCapacity|SubnetIsFull|IP_SPACE_EXHAUSTED"
        r"|no more IP addresses available|exceed\w* .{0,40}(quota|limit)|(quota|limit) .{0,60}exceeded"
        # EC2's messages for VcpuLimitExceeded and InstanceLimitExceeded. Some providers report these without the code.
        r"|than your current .{0,40}limit|your quota allows|instance\(s\) are already running",
    ),
    (
        FailureClass.CAPACITY,
        r"Insufficient\w*Capacity|UnfulfillableCapacity|ReservationCapacityExceeded|VolumeTypeNotAvailableInZone"
        r"|(Unavailable|Incompatible)HostRequirements"
        # A subnet of AWS or Alibaba Cloud is in one zone, so another zone helps.
        r"|InsufficientFreeAddresses|InsufficientSubnet|not enough free addresses in subnet|IpNotEnough"
        r"|RESOURCE_POOL_EXHAUSTED|not have enough resources|AllocationFailed|Overconstrained\w*Allocation"
        r"|SkuNotAvailable|SpotMaxPriceTooLow|STOCKOUT|NoStock|NotOnSale"
        r"|(not have|insufficient|sufficient) .{0,60}capacity|no valid host|OutOfResources|ResourceExhausted"
        r"|no Spot capacity available"
        r"|is not supported in your requested Availability Zone|Unsupported\b",
    ),
    (
        FailureClass.CONFIGURATION,
        r"not (been )?authori[sz]ed|AuthFailure|Unauthori[sz]ed|AuthorizationFailed|AuthenticationFailed|ExpiredToken"
        r"|RequestExpired|InvalidClientTokenId|UnrecognizedClient|SignatureDoesNotMatch|IncompleteSignature"
        r"|MissingAuthenticationToken|AccessDenied|Unauthenticated|NoCredentialProviders|invalid_(grant|client)"
        r"|(no|find|load|refresh|retrieve|get) .{0,40}credential|credentials .{0,40}(expired|validated|invalid)"
        r"|token .{0,60}expired|\ABlocked\Z|PendingVerification|OptInRequired|SubscriptionNotRegistered"
        r"|ReadOnlyDisabledSubscription"
        # EC2 Auto Scaling's messages, which name no code.
        r"|requested configuration is currently not supported|Client error on launch|\bdoes not exist\b",
    ),
    (FailureClass.TIMEOUT, r"Timeout|TimedOut|timed out|DeadlineExceeded|(not|failed to) join"),
    (
        FailureClass.CONFIGURATION,
        r"Invalid|PermissionDenied|Forbidden|NotFound|Malformed|MissingParameter|FailedPrecondition",
    ),
)

# Codes that each have several possible causes. OpenShift reports every 4xx answer of EC2 as InvalidConfiguration, even
# an answer about a quota (machine-api-provider-aws pkg/actuators/machine/instances.go:552-579).
_FOLDED = {
    "",
    "ResourceExhausted",
    "Internal",
    "Unknown",
    "InstanceProvisionFailed",
    "MachineCreationFailed",
    "InvalidConfiguration",
    "Unsupported",  # EC2: the zone lacks the type, or no zone supports the configuration
}


@lru_cache(maxsize=1024)  # a check classifies each failure several times, and the next check again
def classify(code: str, message: str = "") -> FailureClass:
    """Return the class of a failure by the provider's code and message. It never raises.

    A failure that matches no pattern is ``unknown``.
    """
    code = code.removeprefix("Server.").removeprefix("Client.")
    # A code with several causes is less exact than the message. Any other code is more exact than the message.
    for text in (message[:4096], code) if code in _FOLDED else (code, message[:4096]):
        for kind, pattern in _PATTERNS:
            # The pattern is compiled at its first use, because most checks find no failure.
            if re.search(pattern, text, re.IGNORECASE):
                return kind
    return FailureClass.UNKNOWN


def class_of(failure: MachineFailure) -> FailureClass:
    """Return the class of a failure that the status of a machine, or of the autoscaler, reports."""
    return classify(failure.code, failure.message)
