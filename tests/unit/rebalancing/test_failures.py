"""The classes of the failures that providers report."""

import pytest

from evenkeel.domain.model.failures import FailureClass, classify

MCM = "Cloud provider message - machine codes error: code = [ResourceExhausted] message = [{}]"
INTERNAL = MCM.replace("ResourceExhausted", "Internal")


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        # AWS, as SDKs, CloudTrail and machine-controller-manager tell it
        ("InsufficientInstanceCapacity", "", "capacity"),
        ("Server.InsufficientInstanceCapacity", "", "capacity"),
        ("Server.InsufficientHostCapacity", "", "capacity"),
        ("Client.UnfulfillableCapacity", "", "capacity"),
        ("Client.ReservationCapacityExceeded", "", "capacity"),
        ("Client.SpotMaxPriceTooLow", "", "capacity"),
        ("Client.VcpuLimitExceeded", "", "quota"),
        ("Client.InstanceLimitExceeded", "", "quota"),
        ("Client.MaxSpotInstanceCountExceeded", "", "quota"),
        ("InsufficientReservedInstancesCapacity", "", "capacity"),
        ("InsufficientCapacityOnHost", "", "capacity"),
        ("VolumeTypeNotAvailableInZone", "", "capacity"),
        ("MaxIOPSLimitExceeded", "", "quota"),
        ("MaxFleetCountExceeded", "", "quota"),
        ("MaxSpotFleetRequestCountExceeded", "", "quota"),
        # a subnet lies in one zone, elastic addresses belong to the region
        ("InsufficientFreeAddressesInSubnet", "", "capacity"),
        ("", "There are not enough free addresses in subnet 'subnet-1' to satisfy the request.", "capacity"),
        ("InsufficientAddressCapacity", "", "quota"),
        # what one instance may have is no quota of the account
        ("Client.PrivateIpAddressLimitExceeded", "", "configuration"),
        ("AttachmentLimitExceeded", "", "configuration"),
        ("SecurityGroupsPerInterfaceLimitExceeded", "", "configuration"),
        (
            "Unsupported",
            "Your requested instance type is not supported in your requested Availability Zone",
            "capacity",
        ),
        ("Client.UnsupportedOperation", "This product is not for this instance type.", "unknown"),
        ("Client.UnauthorizedOperation", "You are not authorized to perform this operation.", "configuration"),
        ("Client.InvalidAMIID.NotFound", "", "configuration"),
        # the folded code of machine-controller-manager: the message decides
        ("ResourceExhausted", "", "capacity"),
        ("ResourceExhausted", MCM.format("InsufficientInstanceCapacity: no sufficient m5.xlarge capacity"), "capacity"),
        ("ResourceExhausted", MCM.format("VcpuLimitExceeded: more vCPU capacity than your limit of 32"), "quota"),
        ("ResourceExhausted", MCM.format("InsufficientFreeAddressesInSubnet: none free"), "capacity"),
        ("ResourceExhausted", MCM.format("InsufficientAddressCapacity: not enough addresses"), "quota"),
        ("ResourceExhausted", MCM.format("Quota 'CPUS' exceeded. Limit: 72.0 in region europe-west1"), "quota"),
        ("Internal", INTERNAL.format("InvalidSubnetID.NotFound: gone"), "configuration"),
        # OpenShift folds every 4xx of EC2 into one reason
        ("InvalidConfiguration", "error launching instance: VcpuLimitExceeded: more than your limit", "quota"),
        ("InvalidConfiguration", "error launching instance: InvalidSubnetID.NotFound: no such subnet", "configuration"),
        ("InvalidConfiguration", "", "configuration"),
        ("InstanceProvisionFailed", "InsufficientInstanceCapacity: no m5 here", "capacity"),
        # Google, Azure, OpenStack
        ("ZONE_RESOURCE_POOL_EXHAUSTED", "", "capacity"),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "", "capacity"),
        ("QUOTA_EXCEEDED", "", "quota"),
        ("IP_SPACE_EXHAUSTED", "", "quota"),
        ("", "The zone 'z' does not have enough resources available to fulfill the request.", "capacity"),
        ("ZonalAllocationFailed", "", "capacity"),
        ("OverconstrainedZonalAllocationRequest", "", "capacity"),
        ("SubnetIsFull", "", "quota"),
        ("", "Forbidden: Quota exceeded for cores: Requested 4, but already used 40 of 40 cores", "quota"),
        ("OperationDenied.NoStock", "", "capacity"),
        ("InvalidVSwitchId.IpNotEnough", "", "capacity"),
        ("QuotaExceed.ElasticQuota", "", "quota"),
        ("SkuNotAvailable", "", "capacity"),
        ("OperationNotAllowed", "Operation could not be completed as it results in exceeding approved quota", "quota"),
        ("", "No valid host was found. There are not enough hosts available.", "capacity"),
        # time
        ("Server.InternalError", "timed out", "timeout"),
        ("Server.InternalError", "An internal error", "unknown"),
        ("DeadlineExceeded", "", "timeout"),
        ("timeout", "Machine did not join the cluster within 20m", "timeout"),
    ],
)
def test_a_failure_has_the_class_of_its_code_or_message(code, message, expected) -> None:
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
        ("Internal", INTERNAL.format("AuthFailure: not able to validate")),
        ("InvalidConfiguration", "error launching instance: You are not authorized to perform this operation."),
    ],
)
def test_missing_permission_is_a_failure_of_the_configuration(code, message) -> None:
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
        ("Internal", INTERNAL.format("RequestLimitExceeded: Request limit exceeded")),
        ("InvalidConfiguration", "error launching instance: Request limit exceeded: RequestLimitExceeded"),
        ("", ""),
        ("Weird", "something went wrong"),
        ("\0", "\n\n"),
        pytest.param("", "x" * 300_000 + "InsufficientInstanceCapacity", id="read from its beginning"),
    ],
)
def test_a_limit_on_calls_is_no_quota_and_any_other_text_is_unknown(code, message) -> None:
    assert classify(code, message) is FailureClass.UNKNOWN


def test_only_failures_of_a_zone_are_answered_elsewhere() -> None:
    elsewhere = {FailureClass.CAPACITY, FailureClass.TIMEOUT, FailureClass.UNKNOWN}
    assert {kind for kind in FailureClass if kind.moves_elsewhere} == elsewhere
