"""Credentials for API servers that trust the AWS account's issuer of tokens."""

from evenkeel.access_config import AwsOidcAccess
from evenkeel.adapters.aws_identity import AwsIdentity
from evenkeel.domain.model.servers import own_audience

# The lifetimes of tokens. A token for one server is valid just long enough for a run. A token that clusters share is
# valid for longer, which saves calls of STS.
_OWN_SECONDS = 300
_SHARED_SECONDS = 900


class AwsOidcCredential:
    """Tokens of AWS's issuer for one API server, for writes or for checks."""

    def __init__(self, access: AwsOidcAccess, identity: AwsIdentity, *, writes: bool) -> None:
        shared = None if writes else access.audience
        self._audience = shared or own_audience(access.endpoint)
        self._seconds = _SHARED_SECONDS if shared else _OWN_SECONDS
        self._identity = identity
        self._last: str | None = None

    def token(self, *, fresh: bool) -> str | None:
        """Return the token. Raises AccessError."""
        self._last = self._identity.token(self._audience, self._seconds, self._last if fresh else None)
        return self._last
