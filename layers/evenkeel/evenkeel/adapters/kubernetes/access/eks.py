"""Access to EKS. AWS reports the endpoint and the certificate authority. The token is a presigned STS request."""

import base64
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from evenkeel.access_config import EksAccess
from evenkeel.adapters.aws_faults import AWS_ERRORS, access_error, code_of, part_of
from evenkeel.adapters.aws_session import AwsSession
from evenkeel.adapters.kubernetes.access.connection import Connection, checked_server, decoded, pem
from evenkeel.adapters.redacting import redacting
from evenkeel.application.errors import AccessError

# How long a token is cached. EKS accepts a token for 15 minutes after it was signed, whatever expiry its URL names
# (aws-iam-authenticator pkg/token/token.go). Signing a token sends no request.
_TOKEN_KEPT = timedelta(minutes=10)
_URL_SECONDS = 60
_PROBLEMS = {
    "ResourceNotFoundException": "there is none: correct access.name and access.region",
    "AccessDeniedException": "missing permission eks:DescribeCluster",
}


def describe_eks(client: Any, access: EksAccess, where: str) -> Connection:
    """Return an EKS cluster's endpoint and authority, always from AWS (eks:DescribeCluster), never from a record.

    Raises:
        AccessError: the cluster does not exist, the caller may not describe it, or it has no endpoint yet.
    """
    name = f"{where}: EKS cluster {access.name} in {access.region}"

    def failure(error: Exception) -> AccessError:
        code, verb = code_of(error), "refused" if isinstance(error, ClientError) else "not answered"
        problem = _PROBLEMS.get(code, f"eks:DescribeCluster was {verb}: {code}")
        return access_error(error)(f"{name}: {problem}")

    cluster = redacting(lambda: part_of(client.describe_cluster(name=access.name), "cluster"), AWS_ERRORS, failure)
    server, authority = cluster.get("endpoint"), cluster.get("certificateAuthority") or {}
    if not server or not authority.get("data"):
        raise AccessError(f"{name}: it has no endpoint yet: its status is {cluster.get('status')}")
    ca_place = f"{name}: certificateAuthority.data"
    return Connection(
        server=checked_server(server, f"{name}: its endpoint"),
        ca=pem(decoded(authority["data"], f"{name}: data"), ca_place),
        ca_place=ca_place,
    )


class EksCredential:
    """Signs tokens for EKS: regional requests ``sts:GetCallerIdentity`` whose signed headers name the cluster."""

    def __init__(
        self,
        access: EksAccess,
        session: AwsSession,
        now: Callable[[], datetime],
        role: Callable[[Any], Any] | None = None,
    ) -> None:
        """``role``: returns a role's credentials other than those in its argument. None: the function's own sign."""
        self._access = access
        self._session = session
        self._now = now
        self._role = role
        self._signer: Any = None  # the credentials that signed the last token
        self._cached: tuple[str, datetime] | None = None

    def token(self, *, fresh: bool) -> str | None:
        """Return ``k8s-aws-v1.`` and the signed URL in base64. Raises AccessError where AWS credentials are missing."""
        if fresh or self._cached is None or self._now() >= self._cached[1]:
            refused = self._signer if fresh else None  # AWS may have revoked the role's session
            self._cached = (self._presign(refused), self._now() + _TOKEN_KEPT)
        return self._cached[0]

    def _credentials(self, refused: Any) -> Any:
        def failure(error: Exception) -> AccessError:
            kind = type(error).__name__
            return AccessError(f"the AWS credentials to sign the EKS token with cannot be read: {kind}")

        if self._role is not None:
            return self._role(refused)
        return redacting(self._session.get_credentials, AWS_ERRORS, failure)

    def _presign(self, refused: Any = None) -> str:
        from botocore.auth import SigV4QueryAuth
        from botocore.awsrequest import AWSRequest

        region = self._access.region
        self._signer = credentials = self._credentials(refused)
        if credentials is None:
            raise AccessError("no AWS credentials to sign the EKS token with")
        # The host is explicit, so that neither AWS_ENDPOINT_URL nor the global endpoint replaces it.
        suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        url = f"https://sts.{region}.{suffix}/?Action=GetCallerIdentity&Version=2011-06-15"
        request = AWSRequest("GET", url, headers={"x-k8s-aws-id": self._access.name})
        redacting(
            # Credentials that AWS renews must not change while they sign.
            lambda: SigV4QueryAuth(credentials.get_frozen_credentials(), "sts", region, _URL_SECONDS).add_auth(request),
            AWS_ERRORS,
            lambda error: AccessError(f"the EKS token cannot be signed: {type(error).__name__}"),
        )
        return "k8s-aws-v1." + base64.urlsafe_b64encode(request.url.encode()).decode().rstrip("=")
