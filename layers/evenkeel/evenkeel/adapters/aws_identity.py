"""Identities from AWS STS: tokens for API servers that trust the AWS account's issuer, and roles of other accounts.

Clusters that need the same token or role share one answer of STS. An error is reported by its code alone, because its
text can quote the request.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from threading import Lock
from typing import Any

from evenkeel.adapters.aws_faults import AWS_ERRORS, access_error, code_of, part_of
from evenkeel.adapters.aws_session import AwsSession, for_clusters
from evenkeel.adapters.lru import LruCache
from evenkeel.adapters.redacting import redacting
from evenkeel.adapters.ttl_cache import Shared
from evenkeel.application.errors import AccessError

# This algorithm shortens a token from 1.3 KB to 1.1 KB. Every request contains a token.
_ALGORITHM = "ES384"
_SHORTEST_SECONDS = 60  # the shortest lifetime that STS accepts
# A token is used for this share of its lifetime. The last fifth allows for clock differences and for a check that has
# already started.
_USED = 0.8
# Where a role assumes a role, STS limits the session to one hour. The session is cached for less time, because an EKS
# token that it has signed is used for ten more minutes.
_ROLE_SECONDS = 3600
_ROLE_KEPT = timedelta(minutes=45)
_SESSION_NAME = "evenkeel"
_MOST_CLIENTS = 32

_TOKEN_PROBLEMS = {
    "OutboundWebIdentityFederationDisabledException": "this account issues no tokens: "
    "run aws iam enable-outbound-web-identity-federation once",
    "SessionDurationEscalationException": "the role's own session ends sooner than any token would: try again",
    "JWTPayloadSizeExceededException": "the token would be too large: the function's role carries too many tags",
    "AccessDenied": "missing permission sts:GetWebIdentityToken for this audience: deploy the template of this release",
}
_ROLE_PROBLEMS = {
    "AccessDenied": "it may not be assumed: name it in the stack's parameter WriteRoleArns or CheckRoleArns, "
    "and let its trust policy name the function's role and the record's external_id",
}


class AwsIdentity:
    """Requests tokens and roles from STS, and caches the answers for many threads."""

    def __init__(self, session: AwsSession, now: Callable[[], datetime], *, most_clients: int = _MOST_CLIENTS) -> None:
        """``most_clients``: the largest number of cached clients."""
        self._session = session
        self._tokens: Shared[str] = Shared(now)
        self._roles: Shared[Any] = Shared(now)
        # Each role gets new credentials every hour, and then needs new clients.
        self._clients: LruCache[tuple[str, str | None, str | None], Any] = LruCache(most_clients)
        self._adding = Lock()

    def client(self, service: str, region: str | None = None, role: Any = None, *, attempts: int = 2) -> Any:
        """Return a cached client. Region and ``role`` are the function's own if they are None. Raises AccessError.

        ``attempts``: how often the client sends a request that is not answered or is throttled.
        """
        settings: dict[str, Any] = {"region_name": region}
        if role is not None:
            settings |= {"aws_access_key_id": role.access_key, "aws_secret_access_key": role.secret_key}
            settings |= {"aws_session_token": role.token}
        key = (service, region, settings.get("aws_access_key_id"))
        with self._adding:
            client = self._clients.get(key)
            if client is None:
                client = redacting(
                    lambda: self._session.client(service, config=for_clusters(attempts), **settings),
                    AWS_ERRORS,
                    lambda error: AccessError(f"no client of {service} can be made: {type(error).__name__}"),
                )
                self._clients.put(key, client)
            return client

    def token(self, audience: str, seconds: int, refused: str | None = None) -> str:
        """Return a token for this audience that differs from ``refused``. Raises AccessError."""
        return self._tokens.get(audience, lambda: self._web_identity_token(audience, seconds), refused)

    def role(self, arn: str, external_id: str | None, refused: Any = None) -> Any:
        """Return botocore's credentials of another account's role that differ from ``refused``. Raises AccessError."""
        return self._roles.get((arn, external_id), lambda: self._assume(arn, external_id), refused)

    def _web_identity_token(self, audience: str, seconds: int) -> tuple[str, timedelta]:
        client = self.client("sts")
        if not hasattr(client, "get_web_identity_token"):
            raise AccessError("this boto3 knows no sts:GetWebIdentityToken: botocore 1.41.0 or newer is needed")
        what, code = f"sts:GetWebIdentityToken for audience {audience}", ""
        # STS refuses a token that would outlive the session of the function's role. Then Evenkeel requests a token with
        # a shorter lifetime.
        for length in dict.fromkeys((seconds, _SHORTEST_SECONDS)):
            token, code = _asked(what, partial(_token_of, client, audience, length))
            if token is not None:
                # The lifetime is counted from now, because a function with a wrong clock would misread the absolute
                # time Expiration.
                return str(token), timedelta(seconds=length * _USED)
            if code != "SessionDurationEscalationException":
                break
        raise AccessError(f"{what}: {_TOKEN_PROBLEMS.get(code, f'it was refused: {code}')}")

    def _assume(self, arn: str, external_id: str | None) -> tuple[Any, timedelta]:
        from botocore.credentials import Credentials

        client = self.client("sts")
        request = {"RoleArn": arn, "RoleSessionName": _SESSION_NAME, "DurationSeconds": _ROLE_SECONDS}
        request |= {"ExternalId": external_id} if external_id else {}

        def assume() -> Credentials:
            answer = part_of(client.assume_role(**request), "Credentials")
            return Credentials(*(part_of(answer, name) for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")))

        credentials, code = _asked(f"sts:AssumeRole of {arn}", assume)
        if credentials is None:
            raise AccessError(f"role {arn}: {_ROLE_PROBLEMS.get(code, f'it was refused: {code}')}")
        return credentials, _ROLE_KEPT


def _token_of(client: Any, audience: str, seconds: int) -> Any:
    answer = client.get_web_identity_token(Audience=[audience], SigningAlgorithm=_ALGORITHM, DurationSeconds=seconds)
    return part_of(answer, "WebIdentityToken")


def _asked(what: str, call: Callable[[], Any]) -> tuple[Any, str]:
    """Return (answer, ""), or (None, error code) where AWS refuses. Raises AccessError where AWS does not answer."""
    try:
        return call(), ""
    except AWS_ERRORS as error:
        code, kind = code_of(error), access_error(error)
    if kind is AccessError:
        return None, code
    raise kind(f"{what} was not answered: {code}")
