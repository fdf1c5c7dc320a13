"""What an error of AWS says of the way to a cluster: that it is closed, or that AWS does not answer now."""

from botocore.exceptions import BotoCoreError, ClientError

from evenkeel.application.errors import AccessError, AccessUnavailableError

_THROTTLING = ("Throttl", "RequestLimitExceeded", "TooManyRequests", "ProvisionedThroughputExceeded")


def access_error(error: BotoCoreError | ClientError) -> type[AccessError]:
    """The error to raise in its place. Credentials that are missing are no fault of AWS's, and not the cluster's."""
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        away = status >= 500 or str(error.response.get("Error", {}).get("Code", "")).startswith(_THROTTLING)
        return AccessUnavailableError if away else AccessError
    return AccessUnavailableError
