"""AWS's outbound web identity federation on this machine: an issuer with its keys, and an STS that signs tokens.

The documents, claims and errors are those of AWS (IAM User Guide, "Outbound identity federation"; STS API reference,
GetWebIdentityToken and AssumeRole). Neither moto nor LocalStack supports GetWebIdentityToken.

    with AwsIssuer(roles={"AKIDCHECK": "arn:aws:iam::123456789012:role/check"}) as issuer:
        os.environ["AWS_ENDPOINT_URL_STS"] = issuer.sts_url   # the key AKIDCHECK gets tokens of that role
        issuer.url, issuer.ca_pem                             # the issuer that an API server has to trust
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Self
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

import trustme
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from sandbox.server import HttpRequest, LoopbackServer, Response

_NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"
_SIGNED_BY = re.compile(r"Credential=([^/]+)/")
_SIZE = 48  # the length in bytes of a number on the curve P-384


class RefusedError(Exception):
    """An error of STS."""

    def __init__(self, code: str, status: int = 403) -> None:
        super().__init__(code)
        self.status = status


class AwsIssuer:
    """The issuer of an account and its STS.

    Args:
        roles: The ARN of each role, by the access key with which the role signs requests.
        now: The clock of the issuer.
    """

    def __init__(self, *, roles: Mapping[str, str], now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.roles = dict(roles)
        self.now = now
        self.enabled = True
        self.session_left = timedelta(hours=12)  # the remaining time of the role's session; tokens end with it
        self.trusts: dict[tuple[str, str | None], str] = {}  # by role and external id: the ARN that may assume the role
        self.asked: list[dict[str, Any]] = []  # every request, in order
        self.before: Callable[[], None] = lambda: None  # called before each answer of STS
        self.rotate()
        self._authority = trustme.CA()
        self.ca_pem = self._authority.cert_pem.bytes().decode()

    def rotate(self) -> None:
        """Replace the keys. Tokens that the old keys signed become invalid."""
        self._elliptic = ec.generate_private_key(ec.SECP384R1())
        self.__dict__.pop("_rsa", None)
        self._number = uuid.uuid4().hex[:8]

    @cached_property
    def _rsa(self) -> rsa.RSAPrivateKey:
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)  # slow, and seldom needed

    def __enter__(self) -> Self:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.issue_cert("127.0.0.1").configure_cert(tls)
        with ExitStack() as stack:
            self.url = stack.enter_context(LoopbackServer(self._serve_document, tls=tls)).url
            self.sts_url = stack.enter_context(LoopbackServer(self._serve_sts)).url
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _serve_document(self, request: HttpRequest) -> Response:
        document = self.documents().get(request.target)
        return Response(status=404 if document is None else 200, body=json.dumps(document).encode())

    def _serve_sts(self, request: HttpRequest) -> Response:
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        signer = _SIGNED_BY.search(request.headers.get("authorization", ""))
        status, tag = 200, f"{form['Action']}Response"
        try:
            result = self.answer(signer[1] if signer else "", form)
            content = f"<{form['Action']}Result>{result}</{form['Action']}Result>"
        except RefusedError as error:
            status, tag = error.status, "ErrorResponse"
            fault = f"<Type>Sender</Type><Code>{error}</Code><Message>no</Message>"
            content = f"<Error>{fault}</Error><RequestId>r</RequestId>"
        body = f'<{tag} xmlns="{_NAMESPACE}">{content}</{tag}>'.encode()
        return Response(status=status, body=body, content_type="text/xml")

    def documents(self) -> dict[str, Any]:
        """Return the public documents by path."""
        elliptic = self._elliptic.public_key().public_numbers()
        modulus = self._rsa.public_key().public_numbers()
        keys = [
            {
                **{"kty": "EC", "use": "sig", "alg": "ES384", "crv": "P-384", "kid": f"EC384_{self._number}"},
                "x": _number(elliptic.x, _SIZE),
                "y": _number(elliptic.y, _SIZE),
            },
            {
                **{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": f"RSA_{self._number}"},
                "n": _number(modulus.n, 256),
                "e": _number(modulus.e, 3),
            },
        ]
        return {
            "/.well-known/openid-configuration": {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/.well-known/jwks.json",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256", "ES384"],
            },
            "/.well-known/jwks.json": {"keys": keys},
        }

    def token(self, role: str, audience: list[str], seconds: int, algorithm: str = "ES384") -> str:
        """Return a token of a role, with AWS's claims."""
        now = int(self.now().timestamp())
        claims = {
            "iss": self.url,
            "aud": audience[0] if len(audience) == 1 else audience,
            "sub": role,
            "iat": now,
            "exp": now + seconds,
            "jti": str(uuid.uuid4()),
            "https://sts.amazonaws.com/": {
                "aws_account": role.split(":")[4],
                "source_region": "eu-central-1",
                "principal_id": role,
                "lambda_source_function_arn": f"arn:aws:lambda:eu-central-1:{role.split(':')[4]}:function:evenkeel",
            },
        }
        kid = f"{'EC384' if algorithm == 'ES384' else 'RSA'}_{self._number}"
        head = {"alg": algorithm, "kid": kid, "typ": "JWT"}
        signed = ".".join(_encoded(json.dumps(part, separators=(",", ":")).encode()) for part in (head, claims))
        if algorithm == "ES384":
            r, s = decode_dss_signature(self._elliptic.sign(signed.encode(), ec.ECDSA(hashes.SHA384())))
            signature = r.to_bytes(_SIZE, "big") + s.to_bytes(_SIZE, "big")
        else:
            signature = self._rsa.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_encoded(signature)}"

    def answer(self, signer: str, form: Mapping[str, str]) -> str:
        """Return the result of one request to STS, in XML. Raises RefusedError."""
        self.asked.append({"signer": signer, **form})
        self.before()
        role = self.roles.get(signer)
        if role is None:
            raise RefusedError("InvalidClientTokenId")
        match form["Action"]:
            case "GetWebIdentityToken":
                return self._web_identity_token(role, form)
            case "AssumeRole":
                return self._assume_role(role, form)
        raise RefusedError("InvalidAction", 400)

    def _web_identity_token(self, role: str, form: Mapping[str, str]) -> str:
        if not self.enabled:
            raise RefusedError("OutboundWebIdentityFederationDisabledException")
        seconds = int(form.get("DurationSeconds", "300"))
        audience = [value for name, value in sorted(form.items()) if name.startswith("Audience.member.")]
        if not 60 <= seconds <= 3600 or not 1 <= len(audience) <= 10 or any(len(one) > 1000 for one in audience):
            raise RefusedError("ValidationError", 400)
        if timedelta(seconds=seconds) > self.session_left:
            raise RefusedError("SessionDurationEscalationException")
        token = self.token(role, audience, seconds, form["SigningAlgorithm"])
        expires = (self.now() + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"<WebIdentityToken>{token}</WebIdentityToken><Expiration>{expires}</Expiration>"

    def _assume_role(self, role: str, form: Mapping[str, str]) -> str:
        assumed = form["RoleArn"]
        if self.trusts.get((assumed, form.get("ExternalId"))) != role:
            raise RefusedError("AccessDenied")
        key = f"ASIA{uuid.uuid4().hex[:12].upper()}"
        self.roles[key] = assumed
        expires = (self.now() + timedelta(seconds=int(form["DurationSeconds"]))).strftime("%Y-%m-%dT%H:%M:%SZ")
        return (
            f"<Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>"
            f"<SessionToken>session</SessionToken><Expiration>{expires}</Expiration></Credentials>"
            f"<AssumedRoleUser><Arn>{escape(assumed)}</Arn><AssumedRoleId>X:{key}</AssumedRoleId></AssumedRoleUser>"
        )


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _number(value: int, size: int) -> str:
    return _encoded(value.to_bytes(size, "big"))
