"""What providers say when a machine does not come, and what it means."""

import pytest

from evenkeel.domain.model.failures import FailureClass, classify

MCM = "Cloud provider message - machine codes error: code = [ResourceExhausted] message = [{}]"


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        # AWS, as SDKs, CloudTrail and machine-controller-manager tell it
        ("InsufficientInstanceCapacity", "", FailureClass.CAPACITY),
        ("Server.InsufficientInstanceCapacity", "", FailureClass.CAPACITY),
        ("Server.InsufficientHostCapacity", "", FailureClass.CAPACITY),
        ("Client.UnfulfillableCapacity", "", FailureClass.CAPACITY),
        ("Client.ReservationCapacityExceeded", "", FailureClass.CAPACITY),
        ("Client.SpotMaxPriceTooLow", "", FailureClass.CAPACITY),
        ("Client.VcpuLimitExceeded", "", FailureClass.QUOTA),
        ("Client.InstanceLimitExceeded", "", FailureClass.QUOTA),
        ("Client.MaxSpotInstanceCountExceeded", "", FailureClass.QUOTA),
        ("InsufficientReservedInstancesCapacity", "", FailureClass.CAPACITY),
        ("InsufficientCapacityOnHost", "", FailureClass.CAPACITY),
        ("VolumeTypeNotAvailableInZone", "", FailureClass.CAPACITY),
        ("MaxIOPSLimitExceeded", "", FailureClass.QUOTA),
        ("MaxFleetCountExceeded", "", FailureClass.QUOTA),
        ("MaxSpotFleetRequestCountExceeded", "", FailureClass.QUOTA),
        # a subnet lies in one zone, elastic addresses belong to the region
        ("InsufficientFreeAddressesInSubnet", "", FailureClass.CAPACITY),
        ("", "There are not enough free addresses in subnet 'subnet-1' to satisfy the request.", FailureClass.CAPACITY),
        ("InsufficientAddressCapacity", "", FailureClass.QUOTA),
        # what one instance may have is no quota of the account
        ("Client.PrivateIpAddressLimitExceeded", "", FailureClass.CONFIGURATION),
        ("AttachmentLimitExceeded", "", FailureClass.CONFIGURATION),
        ("SecurityGroupsPerInterfaceLimitExceeded", "", FailureClass.CONFIGURATION),
        (
            "Unsupported",
            "Your requested instance type is not supported in your requested Availability Zone",
            "capacity",
        ),
        ("Client.UnsupportedOperation", "This product is not for this instance type.", FailureClass.UNKNOWN),
        ("Client.UnauthorizedOperation", "You are not authorized to perform this operation.", "configuration"),
        ("Client.InvalidAMIID.NotFound", "", "configuration"),
        # the folded code of machine-controller-manager: the message decides
        ("ResourceExhausted", "", FailureClass.CAPACITY),
        (
            "ResourceExhausted",
            MCM.format(
                "InsufficientInstanceCapacity: We currently do not have sufficient m5.xlarge capacity in the"
                " Availability Zone you requested (eu-central-1a)"
            ),
            FailureClass.CAPACITY,
        ),
        (
            "ResourceExhausted",
            MCM.format(
                "VcpuLimitExceeded: You have requested more vCPU capacity than your current vCPU limit of 32 allows"
            ),
            FailureClass.QUOTA,
        ),
        ("ResourceExhausted", MCM.format("InsufficientFreeAddressesInSubnet: none free"), FailureClass.CAPACITY),
        ("ResourceExhausted", MCM.format("InsufficientAddressCapacity: not enough addresses"), FailureClass.QUOTA),
        ("ResourceExhausted", MCM.format("Quota 'CPUS' exceeded. Limit: 72.0 in region europe-west1"), "quota"),
        (
            "Internal",
            MCM.replace("ResourceExhausted", "Internal").format("InvalidSubnetID.NotFound: gone"),
            "configuration",
        ),
        # OpenShift folds every 4xx of EC2 into one reason
        ("InvalidConfiguration", "error launching instance: VcpuLimitExceeded: more than your limit", "quota"),
        ("InvalidConfiguration", "error launching instance: InvalidSubnetID.NotFound: no such subnet", "configuration"),
        ("InvalidConfiguration", "", FailureClass.CONFIGURATION),
        ("InstanceProvisionFailed", "InsufficientInstanceCapacity: no m5 here", FailureClass.CAPACITY),
        # Google, Azure, OpenStack
        ("ZONE_RESOURCE_POOL_EXHAUSTED", "", FailureClass.CAPACITY),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "", FailureClass.CAPACITY),
        ("QUOTA_EXCEEDED", "", FailureClass.QUOTA),
        ("IP_SPACE_EXHAUSTED", "", FailureClass.QUOTA),
        ("", "The zone 'z' does not have enough resources available to fulfill the request.", FailureClass.CAPACITY),
        ("ZonalAllocationFailed", "", FailureClass.CAPACITY),
        ("OverconstrainedZonalAllocationRequest", "", FailureClass.CAPACITY),
        ("SubnetIsFull", "", FailureClass.QUOTA),
        ("", "Forbidden: Quota exceeded for cores: Requested 4, but already used 40 of 40 cores", FailureClass.QUOTA),
        ("OperationDenied.NoStock", "", FailureClass.CAPACITY),
        ("InvalidVSwitchId.IpNotEnough", "", FailureClass.CAPACITY),
        ("QuotaExceed.ElasticQuota", "", FailureClass.QUOTA),
        ("SkuNotAvailable", "", FailureClass.CAPACITY),
        ("OperationNotAllowed", "Operation could not be completed as it results in exceeding approved quota", "quota"),
        ("", "No valid host was found. There are not enough hosts available.", FailureClass.CAPACITY),
        # time
        ("Server.InternalError", "timed out", FailureClass.TIMEOUT),
        ("Server.InternalError", "An internal error", FailureClass.UNKNOWN),
        ("DeadlineExceeded", "", FailureClass.TIMEOUT),
        ("timeout", "Machine did not join the cluster within 20m", FailureClass.TIMEOUT),
    ],
)
def test_a_failure_is_classed_by_code_or_where_that_says_nothing_by_message(code, message, expected) -> None:
    assert classify(code, message) == expected


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("", "User: arn:aws:sts::1:assumed-role/x is not authorized to perform: ec2:RunInstances"),
        ("AuthFailure", "AWS was not able to validate the provided access credentials"),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", ""),
        ("ExpiredToken", "The security token included in the request is expired"),
        ("ExpiredTokenException", ""),
        ("RequestExpired", "Request has expired."),
        ("InvalidClientTokenId", ""),
        ("SignatureDoesNotMatch", ""),
        ("UnrecognizedClientException", "The security token included in the request is invalid"),
        ("MissingAuthenticationToken", ""),
        ("Blocked", "Your account is currently blocked."),
        ("PendingVerification", ""),
        ("AuthorizationFailed", "The client does not have authorization to perform action"),
        ("", "failed to refresh cached credentials, no EC2 IMDS role found: request timed out"),
        ("", "NoCredentialProviders: no valid providers in chain"),
        ("Internal", MCM.replace("ResourceExhausted", "Internal").format("AuthFailure: not able to validate")),
        ("InvalidConfiguration", "error launching instance: You are not authorized to perform this operation."),
    ],
)
def test_who_may_not_ask_gets_no_machine_in_another_zone_either(code, message) -> None:
    assert classify(code, message) is FailureClass.CONFIGURATION


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("RequestLimitExceeded", "Request limit exceeded."),
        ("Client.RequestLimitExceeded", ""),
        ("Throttling", "Rate exceeded"),
        ("ThrottlingException", ""),
        ("TooManyRequests", "The request was throttled: limit 1200 per hour exceeded"),
        ("rateLimitExceeded", "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute'"),
        (
            "Internal",
            MCM.replace("ResourceExhausted", "Internal").format("RequestLimitExceeded: Request limit exceeded"),
        ),
        ("InvalidConfiguration", "error launching instance: Request limit exceeded: RequestLimitExceeded"),
    ],
)
def test_a_limit_on_calls_is_no_quota(code, message) -> None:
    assert classify(code, message) is FailureClass.UNKNOWN


@pytest.mark.parametrize(("code", "message"), [("", ""), ("Weird", "something went wrong"), ("\0", "\n\n")])
def test_what_nobody_knows_is_unknown(code, message) -> None:
    assert classify(code, message) is FailureClass.UNKNOWN


def test_a_long_message_is_read_from_its_beginning() -> None:
    assert classify("", "x" * 300_000 + "InsufficientInstanceCapacity") is FailureClass.UNKNOWN


@pytest.mark.parametrize(
    ("kind", "elsewhere"),
    [
        (FailureClass.CAPACITY, True),
        (FailureClass.TIMEOUT, True),
        (FailureClass.UNKNOWN, True),
        (FailureClass.QUOTA, False),
        (FailureClass.CONFIGURATION, False),
    ],
)
def test_only_failures_of_a_zone_are_answered_elsewhere(kind, elsewhere) -> None:
    assert kind.moves_elsewhere is elsewhere
