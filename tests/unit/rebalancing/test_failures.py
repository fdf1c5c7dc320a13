"""The classes of the failures that providers report."""

import re

import pytest

from evenkeel.domain.model.failures import ROWS, FailureClass, classify

MCM = "Cloud provider message - machine codes error: code = [ResourceExhausted] message = [{}]"
INTERNAL = MCM.replace("ResourceExhausted", "Internal")


CODES = [
    # AWS, in the codes of SDKs, CloudTrail and machine-controller-manager
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
    # limits of one instance are no quotas of the account
    ("Client.PrivateIpAddressLimitExceeded", "", "configuration"),
    ("AttachmentLimitExceeded", "", "configuration"),
    ("SecurityGroupsPerInterfaceLimitExceeded", "", "configuration"),
    ("Unsupported", "Your requested instance type is not supported in your requested Availability Zone", "capacity"),
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
]


@pytest.mark.parametrize(("code", "message", "expected"), CODES)
def test_a_failure_has_the_class_of_its_code_or_message(code, message, expected) -> None:
    assert classify(code, message) == expected


# The texts of machines' statuses: cloud, code, message, class.
MESSAGES = [
    # EC2 and EC2 Auto Scaling, without a code
    ("AWS", "", "Request limit exceeded.", "unknown"),
    ("AWS", "", "Max spot instance count exceeded.", "quota"),
    ("AWS", "", "4 instance(s) are already running. Launching EC2 instance failed.", "quota"),
    (
        "AWS",
        "",
        "You have requested more vCPU capacity than your current vCPU limit of 32 allows for the instance bucket.",
        "quota",
    ),
    (
        "AWS",
        "",
        "Your Spot request price of 0.015 is lower than the minimum required Spot request fulfillment price of 0.0735.",
        "capacity",
    ),
    ("AWS", "price-too-low", "", "capacity"),
    ("AWS", "capacity-oversubscribed", "", "capacity"),
    ("AWS", "", "The AMI ID 'ami-1' is pending", "configuration"),
    ("AWS", "", "The placement group 'spread' is unknown.", "configuration"),
    ("AWS", "", "There is no Spot capacity available that matches your request.", "capacity"),
    ("AWS", "", "The requested Availability Zone is no longer supported. Please retry your request.", "capacity"),
    (
        "AWS",
        "",
        "Your requested instance type (m5.large) is not supported in your requested Availability Zone.",
        "capacity",
    ),
    (
        "AWS",
        "",
        "The requested reservation does not have sufficient compatible and available capacity for this request.",
        "capacity",
    ),
    ("AWS", "", "Placement groups may not be used with instances of type 't3.medium'.", "configuration"),
    ("AWS", "", "EBS block device mappings not supported for instance-store AMIs.", "configuration"),
    ("AWS", "", "AMI ami-1 is pending, and cannot be run. Launching EC2 instance failed.", "configuration"),
    (
        "AWS",
        "",
        "The requested instance type's architecture (arm64) does not match the architecture in the manifest for ami-1.",
        "configuration",
    ),
    ("AWS", "", "The requested configuration is currently not supported.", "configuration"),
    ("AWS", "", "You are not subscribed to this service.", "configuration"),
    ("AWS", "", "The key pair 'old' does not exist. Launching EC2 instance failed.", "configuration"),
    # Azure, Google Cloud, OpenStack, without a code
    ("Azure", "", "Subnet s with prefix 10.0.0.0/24 does not have enough capacity for 3 IP addresses.", "quota"),
    ("Azure", "", "The requested VM size Standard_D4 is currently not available in location 'westeurope'.", "capacity"),
    ("Google Cloud", "", "IP space of 'projects/p/regions/r/subnetworks/s' is exhausted.", "quota"),
    ("Google Cloud", "", "Request had insufficient authentication scopes.", "configuration"),
    ("OpenStack", "", "No more IP addresses available on network 5.", "quota"),
    ("OpenStack", "", "Exceeded maximum number of retries. Exhausted all hosts available for 5.", "capacity"),
    (
        "Alibaba Cloud",
        "InvalidAccountStatus.NotEnoughBalance",
        "Your account does not have enough balance.",
        "configuration",
    ),
    ("Tencent Cloud", "ResourcesSoldOut.SpecifiedInstanceType", "The specified instance type is sold out.", "capacity"),
    ("Tencent Cloud", "ResourceInsufficient.CloudDiskUnavailable", "", "capacity"),
    # Oracle Cloud
    ("OCI", "", "(500, InternalError, false) Out of host capacity.", "capacity"),
    ("OCI", "", "Out of capacity for shape VM.Standard.A1.Flex in availability domain AD-1.", "capacity"),
    ("OCI", "", "(400, LimitExceeded, false) The following service limits were exceeded: standard-a1-count.", "quota"),
    ("OCI", "", "Fulfilling this request exceeds the Oracle-defined limit for this resource type.", "quota"),
    (
        "OCI",
        "",
        "(404, NotAuthorizedOrNotFound, false) Authorization failed or requested resource not found.",
        "configuration",
    ),
    ("OCI", "", "(429, TooManyRequests, false) Too many requests for the user.", "unknown"),
    ("OCI", "", "(500, InternalError, false) An internal error occurred.", "unknown"),
    # Hetzner
    ("Hetzner", "", "failed to create server: error during placement (resource_unavailable, 1d1d17e5)", "capacity"),
    ("Hetzner", "", "server location disabled (resource_unavailable)", "capacity"),
    ("Hetzner", "placement_error", "", "capacity"),
    ("Hetzner", "", "no space left in location (no_space_left_in_location)", "capacity"),
    ("Hetzner", "NoAvailableHost", "no available host (No available host of 3 found: 3 in maintenance)", "capacity"),
    ("Hetzner", "", "server limit reached (resource_limit_exceeded)", "quota"),
    ("Hetzner", "", "limit of 3600 requests per hour reached (rate_limit_exceeded)", "unknown"),
    ("Hetzner", "", "unable to authenticate (unauthorized)", "configuration"),
    # vSphere
    (
        "vSphere",
        "",
        "The available Memory resources in the parent resource pool are insufficient for the operation.",
        "capacity",
    ),
    ("vSphere", "", "Insufficient resources to satisfy configured failover level for vSphere HA.", "capacity"),
    ("vSphere", "", "The host does not have sufficient CPU resources to satisfy the reservation.", "capacity"),
    ("vSphere", "", "No host is compatible with the virtual machine.", "capacity"),
    ("vSphere", "", "Insufficient disk space on datastore 'vsan'.", "capacity"),
    ("vSphere", "", "Module 'MonitorLoop' power on failed. Admission check failed for memory resource", "capacity"),
    ("vSphere", "", "There are not enough licenses to perform the operation.", "quota"),
    ("vSphere", "", "Permission to perform this operation was denied.", "configuration"),
    (
        "vSphere",
        "",
        "ServerFaultCode: Cannot complete login due to an incorrect user name or password.",
        "configuration",
    ),
    ("vSphere", "", "unable to get template: vm 'ubuntu-1.30' not found", "configuration"),
    # Nutanix
    ("Nutanix", "", "NO_HOST_RESOURCES: not enough resources to power on the VM", "capacity"),
    ("Nutanix", "", "VMM-30128: cannot power on VM, as no host has enough resources.", "capacity"),
    ("Nutanix", "RESOURCE_SHORTAGE", "", "capacity"),
    ("Nutanix", "", "No valid placement: NO_HOST_RESOURCES", "capacity"),
    ("Nutanix", "", "QUOTA_EXCEEDED: the project has reached its vCPU quota", "quota"),
    ("Nutanix", "CreateError", "failed to get the image: image not found", "configuration"),
    # bare metal
    ("Metal3", "", "* Instance: No available host found. Requeuing.", "capacity"),
    ("Metal3", "InsufficientResources", "No available BareMetalHost found", "capacity"),
    ("Metal3", "InsufficientResourcesMachine", "no host in state available matches the selector", "unknown"),
    ("Metal3", "InsufficientResources", "", "unknown"),
    ("Metal3", "", "failed to get a BareMetalHost for the Metal3Machine, requeuing", "unknown"),
    ("Tinkerbell", "", "no hardware available", "capacity"),
    ("Equinix", "", "fr has no provisionable c3.small servers matching your criteria", "capacity"),
    # KubeVirt
    ("KubeVirt", "Unschedulable", "0/3 nodes are available: 3 Insufficient memory. preemption: none", "capacity"),
    ("KubeVirt", "", "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.", "capacity"),
    ("KubeVirt", "VMNotReady", "VM is not ready: ErrorUnschedulable", "capacity"),
    ("KubeVirt", "", 'pods "virt-launcher-1" is forbidden: exceeded quota: compute, requested: cpu=4', "quota"),
    ("KubeVirt", "DVImagePullFailed", "", "configuration"),
    ("KubeVirt", "VMNotReady", "VM is not ready: Starting", "unknown"),
    # Proxmox
    (
        "Proxmox",
        "InsufficientResources",
        "cannot reserve 8438939648B of memory on node pve: 0B available memory left",
        "capacity",
    ),
    ("Proxmox", "", 'lvcreate: Volume group "pve" has insufficient free space (1 extents): 8192 required.', "capacity"),
    ("Proxmox", "", "no nodes available to schedule qemus", "capacity"),
    ("Proxmox", "", "403 Permission check failed (/vms/100, VM.Allocate)", "configuration"),
    ("Proxmox", "", "401 authentication failure", "configuration"),
    # Scaleway
    ("Scaleway", "", "scaleway-sdk-go: resource instance_server is out of stock", "capacity"),
    ("Scaleway", "", "commercial type GP1-M is not available in fr-par-3", "capacity"),
    ("Scaleway", "", "scaleway-sdk-go: quota exceeded(s): InstanceServers has reached its quota (10/10)", "quota"),
    ("Scaleway", "", "scaleway-sdk-go: http error 403 Forbidden: Quota exceeded for this resource.", "quota"),
    ("Scaleway", "", "scaleway-sdk-go: insufficient permissions: write instances", "configuration"),
    # any cloud
    ("any", "", "not enough machines of this type", "capacity"),
    ("any", "", "not enough quota for machines of this type", "quota"),
    ("any", "", "The limit of cores is not enough.", "quota"),
    ("any", "", "not enough cores: the maximum allowed is 20", "quota"),
    ("any", "", "Memory resources on all hosts are exhausted.", "capacity"),
    ("any", "", "The account has reached the maximum number of servers.", "quota"),
    ("any", "", "insufficient\ncapacity", "capacity"),
    ("any", "", "The zone does not have any free capacity.", "capacity"),
    ("any", "", "The disk is not large enough.", "unknown"),
    ("any", "", "The machine has not been healthy long enough.", "unknown"),
    ("any", "", "An address of type InternalIP is not available in the status yet.", "unknown"),
    ("any", "", "HTTPSConnectionPool: Max retries exceeded with url: /v1", "unknown"),
]


@pytest.mark.parametrize(("cloud", "code", "message", "expected"), MESSAGES)
def test_each_clouds_texts_have_their_class(cloud: str, code: str, message: str, expected: str) -> None:
    assert classify(code, message) == expected, cloud


RIGHTS = [
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
]


@pytest.mark.parametrize(("code", "message"), RIGHTS)
def test_missing_permission_is_a_failure_of_the_configuration(code, message) -> None:
    assert classify(code, message) is FailureClass.CONFIGURATION


UNKNOWN = [
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
]


@pytest.mark.parametrize(("code", "message"), UNKNOWN)
def test_a_limit_on_calls_is_no_quota_and_any_other_text_is_unknown(code, message) -> None:
    assert classify(code, message) is FailureClass.UNKNOWN


def test_only_failures_of_a_zone_are_answered_elsewhere() -> None:
    elsewhere = {FailureClass.CAPACITY, FailureClass.TIMEOUT, FailureClass.UNKNOWN}
    assert {kind for kind in FailureClass if kind.moves_elsewhere} == elsewhere


def test_each_text_of_the_table_has_a_test() -> None:
    tested = [(code, message, kind) for code, message, kind in CODES]
    tested += [(code, message, kind) for _, code, message, kind in MESSAGES]
    tested += [(code, message, FailureClass.CONFIGURATION) for code, message in RIGHTS]
    tested += [(*row[:2], FailureClass.UNKNOWN) for row in UNKNOWN if isinstance(row, tuple)]
    untested = [
        text
        for kind, texts in ROWS
        for text in texts
        if not any(
            expected == kind and re.search(text, f"{code} {message}", re.IGNORECASE)
            for code, message, expected in tested
        )
    ]
    assert untested == []
