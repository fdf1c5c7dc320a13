"""The names of zones in this AWS account. AWS gives a zone different names in different accounts."""

from collections.abc import Callable, Mapping
from typing import Any

from evenkeel.adapters.aws_faults import AWS_ERRORS, access_error, code_of, part_of


class ZoneNames:
    """Returns zone names. Each region is read only once (ec2:DescribeAvailabilityZones), because names never change."""

    def __init__(self, client: Callable[[str], Any]) -> None:
        """``client`` makes a boto3 EC2 client for a region."""
        self._client = client
        self._known: dict[str, Mapping[str, str]] = {}

    def __call__(self, region: str) -> Mapping[str, str]:
        """Return the zone names of a region, by zone id. Raises AccessError."""
        if region not in self._known:
            try:
                zones = part_of(self._client(region).describe_availability_zones(), "AvailabilityZones")
                self._known[region] = {part_of(zone, "ZoneId"): part_of(zone, "ZoneName") for zone in zones}
                return self._known[region]
            except AWS_ERRORS as error:
                kind, code = access_error(error), code_of(error)
            raise kind(f"ec2:DescribeAvailabilityZones of {region} was refused or not answered: {code}")
        return self._known[region]
