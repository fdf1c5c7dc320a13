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
        return self in _OF_ZONE

    @property
    def is_vague(self) -> bool:
        """Return True if the failure says only that no node registered, and not why."""
        return self in (FailureClass.TIMEOUT, FailureClass.UNKNOWN)


_OF_ZONE = frozenset({FailureClass.CAPACITY, FailureClass.TIMEOUT, FailureClass.UNKNOWN})


# Parts of the texts below. A limit is a number that the account or region may not pass.
_LIMIT = r"(quota|limit|licen[sc]e)s?"
_TOO_LITTLE = r"(insufficient|(\bno|not|n't)[ _]?((?!large|big|long|high|new)\w{1,20} ){0,3}(enough|sufficient)\b)"
_RIGHT = r"(permission|privilege|right|scope|access|authori|authenticat|balance|credit|fund)"
_HOST = r"(host|machine|node|hardware)s?"
_TYPE = r"((commercial|instance|machine|node|requested|server|vm)( \w+)? (type|size)|flavor|shape|sku)"
_PART = r"(image|template|flavor|snapshot|network|subnet|security group|key ?pair|(machine|server|instance) type)"

# The first row with a text that the error contains decides the class. So the order of the rows matters:
#
# - Limits on the rate of calls are first, because they are temporary and no quotas, but resemble quotas.
# - A text that names a limit is a quota, even if it also names capacity.
# - "Not enough" or "insufficient" without a limit is capacity. Missing rights and money come before that, because
#   waiting does not help.
#
# For a new cloud, add its texts to the row of their class, and each of them to the test of this table. Sources: EC2's
# list of codes (docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html), "Troubleshoot EC2 Auto Scaling",
# and the code of the clouds' machine controllers and client libraries.
ROWS: tuple[tuple[FailureClass, tuple[str, ...]], ...] = (
    (
        FailureClass.UNKNOWN,
        (
            # limits on the rate of calls
            r"Throttl|too ?many ?requests|rate.?limit|rate exceeded|request ?limit ?exceeded|SlowDown",
            r"(requests|calls|queries) per (second|minute|hour)",
        ),
    ),
    (
        FailureClass.CONFIGURATION,
        (
            # AWS: limits of one instance or network interface. The configuration of the group exceeds these limits.
            r"IpAddressLimitExceeded|AttachmentLimitExceeded|Per(Instance|Interface)LimitExceeded|TagLimitExceeded",
        ),
    ),
    (
        FailureClass.QUOTA,
        (
            # any cloud
            rf"{_LIMIT}[ _-]?(exceed|reached)|{_LIMIT} .{{0,60}}(exceeded|reached)",
            rf"exceed\w{{0,3}}[ _].{{0,60}}{_LIMIT}\b",
            rf"{_TOO_LITTLE} .{{0,40}}({_LIMIT}|maximum allowed)\b|\b{_LIMIT} .{{0,60}}{_TOO_LITTLE}",
            rf"reached .{{0,40}}{_LIMIT}\b|(exceeded|reached) .{{0,40}}maximum (number )?of (?!retr|attempt|tries)",
            r"max(imum)? .{0,40}count exceeded|QuotaExceed|ResourceCountExceeded",
            # AWS. Elastic IP addresses belong to the region.
            r"Max\w{1,40}CountExceeded|VolumeIOPSLimit\b|InsufficientAddressCapacity|instance\(s\) are already running",
            r"than your current .{0,40}limit|your quota allows",
            # Azure, Google Cloud, OpenStack. The subnets of Azure and Google Cloud belong to the region.
            r"OperationNotAllowed.{0,80}quota|SubnetIsFull|enough capacity for \d+ IP addresses",
            r"IP_SPACE_EXHAUSTED|IP space .{0,200}exhausted|no more IP addresses available",
        ),
    ),
    (
        FailureClass.CONFIGURATION,
        (
            # any cloud: rights and money
            rf"{_TOO_LITTLE}[ _]?(\w+ )?{_RIGHT}",
            # AWS
            r"placement groups? .{0,60}(not be used|not supported|unknown)|unknown placement group",
            r"block device mapping|\b(ami|image)\b.{0,40}pending|architecture .{0,120}match|unsupported architecture",
            r"not subscribed|requested configuration is currently not supported|Client error on launch",
        ),
    ),
    (
        FailureClass.CAPACITY,
        (
            # any cloud
            rf"out.?of.?(host.?)?(capacity|stock|resources)|stock.?out|sold.?out|no.?space.?left|{_TOO_LITTLE}",
            r"resource.?(shortage|insufficient)|resources? ?.{0,40}exhausted|no.host.resources",
            r"\bno (\w+ )?capacity|not have .{0,60}capacity|capacity.(not.available|unavailable|oversubscribed)",
            rf"\bno[ _]?(available|valid|suitable|compatible|free)[ _]?\S{{0,40}} ?{_HOST}\b",
            rf"\bno[ _]{_HOST}[ _]((is|are)[ _])?(available|compatible)|no provisionable",
            rf"\b{_TYPE}\b.{{0,80}}(not (available|offered) in|unavailable)",
            # AWS. A subnet of AWS is in one zone, so another zone helps.
            r"UnfulfillableCapacity|ReservationCapacityExceeded|VolumeTypeNotAvailableInZone",
            r"(Unavailable|Incompatible)HostRequirements|no Spot capacity available",
            r"SpotMaxPriceTooLow|price.{0,20}too.low|price .{0,60}(lower|less) than",
            r"not supported in your requested Availability Zone|Zone is (no longer supported|currently constrained)",
            r"Unsupported\b",
            # Azure, Google Cloud, OpenStack, Alibaba Cloud. A subnet of Alibaba Cloud is in one zone.
            r"RESOURCE_POOL_EXHAUSTED|AllocationFailed|Overconstrained\w*Allocation|SkuNotAvailable",
            r"exhausted all hosts|NoStock|NotOnSale|IpNotEnough",
            # Hetzner
            r"resource_unavailable|placement_error|error during placement",
            # KubeVirt
            r"\d/\d+ nodes are available|ErrorUnschedulable|\AUnschedulable\Z",
            # Proxmox, vSphere
            r"cannot (reserve|allocate) .{0,40}memory|admission check failed",
        ),
    ),
    (
        FailureClass.CONFIGURATION,
        (
            # any cloud
            r"not (been )?authori[sz]ed|NotAuthori[sz]ed|AuthFailure|Unauthori[sz]ed|Unauthenticated",
            r"authori[sz]ation ?failed|authentication ?fail(ed|ure)|(permission|access) .{0,60}(denied|failed)",
            r"invalid_(grant|client)|incorrect user ?name|cannot complete login",
            r"(no|find|load|refresh|retrieve|get) .{0,40}credential|credentials .{0,40}(expired|validated|invalid)",
            rf"token .{{0,60}}expired|\bdoes not exist\b|\b{_PART}s?\b.{{0,80}}not (be )?found",
            r"ErrImagePull|ImagePull(BackOff|Failed)",
            # AWS and Azure
            r"ExpiredToken|RequestExpired|InvalidClientTokenId|UnrecognizedClient|SignatureDoesNotMatch",
            r"IncompleteSignature|MissingAuthenticationToken|AccessDenied|NoCredentialProviders|\ABlocked\Z",
            r"PendingVerification|OptInRequired|SubscriptionNotRegistered|ReadOnlyDisabledSubscription",
        ),
    ),
    (FailureClass.TIMEOUT, (r"time(d )?.?out|deadline ?exceeded|(not|failed to) join",)),
    (
        FailureClass.CONFIGURATION,
        (r"Invalid|PermissionDenied|Forbidden|NotFound|Malformed|MissingParameter|FailedPrecondition",),
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
# By their definition, these codes mean a quota or a lack of machines. So only the message can decide
# (cluster-api errors/consts.go, openshift/api machine/v1beta1/types_machine.go).
_WITHOUT_CAUSE = {"InsufficientResources", "InsufficientResourcesMachine"}
_BLANKS = re.compile(r"[\s\x00-\x1f]+")


@lru_cache(maxsize=1024)  # a check classifies each failure several times, and the next check again
def classify(code: str, message: str = "") -> FailureClass:
    """Return the class of a failure by the provider's code and message. It never raises.

    A failure that matches no pattern is ``unknown``.
    """
    code = code.removeprefix("Server.").removeprefix("Client.")
    message = _BLANKS.sub(" ", message[:4096])
    # A code with several causes is less exact than the message. Any other code is more exact than the message.
    texts = (message, code) if code in _FOLDED else (message,) if code in _WITHOUT_CAUSE else (code, message)
    for text in texts:
        for kind, patterns in ROWS:
            # The pattern is compiled at its first use, because most checks find no failure.
            if re.search("|".join(patterns), text, re.IGNORECASE):
                return kind
    return FailureClass.UNKNOWN


def class_of(failure: MachineFailure) -> FailureClass:
    """Return the class of a failure that the status of a machine, or of the autoscaler, reports."""
    return classify(failure.code, failure.message)
