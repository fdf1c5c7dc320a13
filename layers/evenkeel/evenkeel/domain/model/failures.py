"""Failure classes, and the class of a provider's error.

Codes are told apart with the prefixes ``Server.`` and ``Client.`` of CloudTrail taken off. Machine-controller-manager
folds exhaustion of a zone, of a quota and of addresses into one code, ``ResourceExhausted``
(machine-controller-manager-provider-aws pkg/aws/errors/utils.go:15-33): there the message decides.
"""

import re
from enum import StrEnum

from evenkeel.domain.model.groups import MachineFailure


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


# In this order. Limits on calls come first: they pass by themselves and say nothing about a quota, although they are
# worded like one. A message that names a limit is a quota, even where it also speaks of capacity; and who may not call
# at all gets no better answer by waiting, whatever else the message says.
# Sources: EC2's own list of codes (docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html), and those that
# the machine controllers' providers for Azure, Google Cloud, OpenStack and Alibaba Cloud pass on.
_PATTERNS = (
    (
        FailureClass.UNKNOWN,
        r"RequestLimitExceeded|Throttl|TooManyRequests|too many requests|rate.?limit|rate exceeded|SlowDown",
    ),
    (
        # A limit per instance or network interface: the machine type or its network is asked for too much.
        FailureClass.CONFIGURATION,
        r"IpAddressLimitExceeded|AttachmentLimitExceeded|Per(Instance|Interface)LimitExceeded|TagLimitExceeded",
    ),
    (
        FailureClass.QUOTA,
        r"Limit(Exceeded|Reached)|Max\w+CountExceeded|ResourceCountExceeded|VolumeIOPSLimit\b|QuotaExceed|QUOTA_EXCEEDED"
        # Elastic addresses belong to the region; so do the subnets of Azure and Google Cloud.
        r"|OperationNotAllowed.{0,80}quota|InsufficientAddressCapacity|SubnetIsFull|IP_SPACE_EXHAUSTED"
        r"|no more IP addresses available|exceed\w* .{0,40}(quota|limit)|(quota|limit) .{0,60}exceeded"
        # EC2's own words for VcpuLimitExceeded and InstanceLimitExceeded, where a provider passes on no code
        r"|than your current .{0,40}limit|your quota allows",
    ),
    (
        FailureClass.CAPACITY,
        r"Insufficient\w*Capacity|UnfulfillableCapacity|ReservationCapacityExceeded|VolumeTypeNotAvailableInZone"
        r"|(Unavailable|Incompatible)HostRequirements"
        # A subnet of AWS or Alibaba Cloud lies in one zone.
        r"|InsufficientFreeAddresses|InsufficientSubnet|not enough free addresses in subnet|IpNotEnough"
        r"|RESOURCE_POOL_EXHAUSTED|not have enough resources|AllocationFailed|Overconstrained\w*Allocation"
        r"|SkuNotAvailable|SpotMaxPriceTooLow|STOCKOUT|NoStock|NotOnSale"
        r"|(not have|insufficient|sufficient) .{0,60}capacity|no valid host|OutOfResources|ResourceExhausted"
        r"|is not supported in your requested Availability Zone|Unsupported\b",
    ),
    (
        FailureClass.CONFIGURATION,
        r"not (been )?authori[sz]ed|AuthFailure|Unauthori[sz]ed|AuthorizationFailed|AuthenticationFailed|ExpiredToken"
        r"|RequestExpired|InvalidClientTokenId|UnrecognizedClient|SignatureDoesNotMatch|IncompleteSignature"
        r"|MissingAuthenticationToken|AccessDenied|Unauthenticated|NoCredentialProviders|invalid_(grant|client)"
        r"|(no|find|load|refresh|retrieve|get) .{0,40}credential|credentials .{0,40}(expired|validated|invalid)"
        r"|token .{0,60}expired|\ABlocked\Z|PendingVerification|OptInRequired|SubscriptionNotRegistered"
        r"|ReadOnlyDisabledSubscription",
    ),
    (FailureClass.TIMEOUT, r"Timeout|TimedOut|timed out|DeadlineExceeded|(not|failed to) join"),
    (
        FailureClass.CONFIGURATION,
        r"Invalid|PermissionDenied|Forbidden|NotFound|Malformed|MissingParameter|FailedPrecondition",
    ),
)

# Of the failures above that another zone helps against, those that other buyers of the same machines do not share: the
# group's own subnet, its reservation, its price, its disks.
_OWN_AFFAIR = (
    r"InsufficientFreeAddresses|InsufficientSubnet|not enough free addresses in subnet|IpNotEnough"
    r"|ReservationCapacityExceeded|SpotMaxPriceTooLow|VolumeTypeNotAvailableInZone|HostRequirements"
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
            if re.search(pattern, text, re.IGNORECASE):  # compiled when first used: most looks see no failure
                return kind
    return FailureClass.UNKNOWN


def class_of(failure: MachineFailure) -> FailureClass:
    """The class of a failure that a machine's status tells, or the autoscaler's."""
    return classify(failure.code, failure.message)


def is_own_affair(message: str) -> bool:
    """Whether a capacity failure says nothing to others who buy the same machines in the same zone."""
    return re.search(_OWN_AFFAIR, message[:4096], re.IGNORECASE) is not None
