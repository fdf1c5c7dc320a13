"""What this account calls the zones of a region: AWS shuffles the names, so that two accounts mean different ones."""

from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from evenkeel.adapters.aws_faults import access_error


class ZoneNames:
    """Asked once for each region (ec2:DescribeAvailabilityZones): what a zone is called never changes."""

    def __init__(self, client: Callable[[str], Any]) -> None:
        """``client`` makes a boto3 EC2 client for a region."""
        self._client = client
        self._known: dict[str, Mapping[str, str]] = {}

    def __call__(self, region: str) -> Mapping[str, str]:
        """Zone ids to names. Raises AccessError where AWS does not say."""
        if region not in self._known:
            try:
                answer = self._client(region).describe_availability_zones()
            except (ClientError, BotoCoreError) as error:
                kind, problem = access_error(error), type(error).__name__
                code = error.response.get("Error", {}).get("Code", "") if isinstance(error, ClientError) else problem
            else:
                self._known[region] = {zone["ZoneId"]: zone["ZoneName"] for zone in answer["AvailabilityZones"]}
                return self._known[region]
            raise kind(f"ec2:DescribeAvailabilityZones of {region} was refused or not answered: {code}")
        return self._known[region]
