"""Who we are to others, as AWS STS says: tokens for API servers that trust its issuer, and roles of other accounts.

What is asked for is shared by all clusters that need the same. Of an error only its code is told: what AWS or a
library says beside it can quote what was sent.
"""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from evenkeel.access_config import AwsOidcAccess
from evenkeel.adapters.aws_faults import AWS_ERRORS, access_error, code_of, part_of
from evenkeel.adapters.kubernetes.access.ttl_cache import Shared
from evenkeel.application.errors import AccessError
from evenkeel.domain.model.servers import own_audience

# Two tries, for throttling, that leave a look some of its eight seconds.
AWS_SECONDS = {"connect_timeout": 1.5, "read_timeout": 2}
# A botocore session makes one client, and finds its credentials, for one thread at a time; a function has one session.
MAKING = threading.Lock()

_ALGORITHM = "ES384"  # a token of 1.1 KB in place of 1.3 KB, sent with every request
# A token for one server: as short as a run with room. One that many share: fewer calls.
_OWN_SECONDS = 300
_SHARED_SECONDS = 900
_SHORTEST_SECONDS = 60  # STS gives no shorter one
# Of its time a token is used for four fifths: what is left covers clocks that differ, and a look that has begun.
_USED = 0.8
# STS gives an hour at most to a role that assumes a role. An EKS token is used for ten minutes after it was signed.
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
    """STS, asked as seldom as can be, by as many threads as there are."""

    def __init__(self, session: Callable[[], Any], now: Callable[[], datetime]) -> None:
        """``session`` gives the botocore session."""
        self._session = session
        self._tokens: Shared[str] = Shared(now)
        self._roles: Shared[Any] = Shared(now)
        self._clients: dict[tuple[str, str | None, str | None], Any] = {}

    def client(self, service: str, region: str | None = None, role: Any = None) -> Any:
        """A client of botocore, kept; ``role``: the credentials that it signs with, else the function's own.

        Raises AccessError.
        """
        from botocore.config import Config

        given: dict[str, Any] = {"region_name": region}
        if role is not None:
            given |= {"aws_access_key_id": role.access_key, "aws_secret_access_key": role.secret_key}
            given |= {"aws_session_token": role.token}
        key = (service, region, given.get("aws_access_key_id"))
        with MAKING:
            if key in self._clients:
                return self._clients[key]
            if len(self._clients) >= _MOST_CLIENTS:  # each role brings new ones every hour
                self._clients.clear()
            config = Config(**AWS_SECONDS, retries={"mode": "standard", "total_max_attempts": 2})
            try:
                return self._clients.setdefault(key, self._session().create_client(service, config=config, **given))
            except AWS_ERRORS as error:
                problem = type(error).__name__
        raise AccessError(f"no client of {service} can be made: {problem}")

    def token(self, audience: str, seconds: int, refused: str | None = None) -> str:
        """A token for this audience that is good for a minute at least. ``refused``: one that was not accepted.

        Raises AccessError.
        """
        return self._tokens.get(audience, lambda: self._web_identity_token(audience, seconds), refused)

    def role(self, arn: str, external_id: str | None, refused: Any = None) -> Any:
        """Credentials, as botocore has them, of a role of another account. ``refused``: some that were of no use.

        Raises AccessError.
        """
        return self._roles.get((arn, external_id), lambda: self._assume(arn, external_id), refused)

    def _web_identity_token(self, audience: str, seconds: int) -> tuple[str, timedelta]:
        client = self.client("sts")
        if not hasattr(client, "get_web_identity_token"):
            raise AccessError("this boto3 knows no sts:GetWebIdentityToken: botocore 1.41.0 or newer is needed")
        what, code = f"sts:GetWebIdentityToken for audience {audience}", ""
        # A role's session can have less time left than a token would have.
        for length in dict.fromkeys((seconds, _SHORTEST_SECONDS)):
            token, code = _asked(what, partial(_token_of, client, audience, length))
            if token is not None:
                # By our own clock, from now on: its Expiration would make one that is wrong use what is over.
                return str(token), timedelta(seconds=length * _USED)
            if code != "SessionDurationEscalationException":
                break
        raise AccessError(f"{what}: {_TOKEN_PROBLEMS.get(code, f'it was refused: {code}')}")

    def _assume(self, arn: str, external_id: str | None) -> tuple[Any, timedelta]:
        from botocore.credentials import Credentials

        client = self.client("sts")
        given = {"RoleArn": arn, "RoleSessionName": _SESSION_NAME, "DurationSeconds": _ROLE_SECONDS}
        given |= {"ExternalId": external_id} if external_id else {}

        def assume() -> Credentials:
            found = part_of(client.assume_role(**given), "Credentials")
            return Credentials(*(part_of(found, name) for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")))

        credentials, code = _asked(f"sts:AssumeRole of {arn}", assume)
        if credentials is None:
            raise AccessError(f"role {arn}: {_ROLE_PROBLEMS.get(code, f'it was refused: {code}')}")
        return credentials, _ROLE_KEPT


def _token_of(client: Any, audience: str, seconds: int) -> Any:
    answer = client.get_web_identity_token(Audience=[audience], SigningAlgorithm=_ALGORITHM, DurationSeconds=seconds)
    return part_of(answer, "WebIdentityToken")


def _asked(what: str, call: Callable[[], Any]) -> tuple[Any, str]:
    """What was asked for, or the code of the error. Raises AccessError where there is neither."""
    from botocore.exceptions import ClientError

    try:
        return call(), ""
    except ClientError as error:
        code, kind = str(error.response.get("Error", {}).get("Code", "")), access_error(error)
        if kind is AccessError:
            return None, code
        problem = code
    except AWS_ERRORS as error:
        kind, problem = access_error(error), code_of(error)
    raise kind(f"{what} was not answered: {problem}")


class AwsOidcCredential:
    """Tokens of AWS's issuer for one API server, for one purpose."""

    def __init__(self, access: AwsOidcAccess, identity: AwsIdentity, *, writes: bool) -> None:
        shared = None if writes else access.audience
        self._audience = shared or own_audience(access.endpoint)
        self._seconds = _SHARED_SECONDS if shared else _OWN_SECONDS
        self._identity = identity
        self._last: str | None = None

    def token(self, *, fresh: bool) -> str | None:
        """Raises AccessError."""
        self._last = self._identity.token(self._audience, self._seconds, self._last if fresh else None)
        return self._last
