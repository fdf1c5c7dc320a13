"""AWS's outbound web identity federation on this machine: an issuer with its keys, and an STS that signs for it.

The documents, claims and errors are AWS's (IAM User Guide, "Outbound identity federation"; STS API reference,
GetWebIdentityToken and AssumeRole). Neither moto nor LocalStack has the call.

    with AwsIssuer(roles={"AKIDLOOK": "arn:aws:iam::123456789012:role/look"}) as issuer:
        os.environ["AWS_ENDPOINT_URL_STS"] = issuer.sts_url   # who signs with AKIDLOOK gets tokens of that role
        issuer.url, issuer.ca_pem                             # what an API server is to trust
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

import trustme
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

_NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"
_SIGNED_BY = re.compile(r"Credential=([^/]+)/")
_SIZE = 48  # bytes of a number of P-384


class RefusedError(Exception):
    """An error as STS answers it."""

    def __init__(self, code: str, status: int = 403) -> None:
        super().__init__(code)
        self.status = status


class AwsIssuer:
    """The issuer of an account and its STS.

    Args:
        roles: ARNs of roles by the access keys that sign for them.
        now: The time that tokens carry.
    """

    def __init__(self, *, roles: Mapping[str, str], now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.roles = dict(roles)
        self.now = now
        self.enabled = True
        self.session_left = timedelta(hours=12)  # of the role's session; no token outlives it
        self.trusts: dict[tuple[str, str | None], str] = {}  # (role, external id): the ARN that may assume it
        self.asked: list[dict[str, Any]] = []  # every request, in order
        self.before: Callable[[], None] = lambda: None  # is called before each answer of STS
        self.rotate()
        self._authority = trustme.CA()
        self.ca_pem = self._authority.cert_pem.bytes().decode()

    def rotate(self) -> None:
        """New keys; those of before are forgotten."""
        self._elliptic = ec.generate_private_key(ec.SECP384R1())
        self.__dict__.pop("_rsa", None)
        self._number = uuid.uuid4().hex[:8]

    @cached_property
    def _rsa(self) -> rsa.RSAPrivateKey:
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)  # slow, and seldom needed

    def __enter__(self) -> Self:
        self._https, self._http = self._serve(_Issuer), self._serve(_Sts)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.issue_cert("127.0.0.1").configure_cert(context)
        self._https.socket = context.wrap_socket(self._https.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self._https.server_port}"
        self.sts_url = f"http://127.0.0.1:{self._http.server_port}"
        for server in (self._https, self._http):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in (self._https, self._http):
            server.shutdown()
            server.server_close()

    def _serve(self, handler: type[_Handler]) -> ThreadingHTTPServer:
        return ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (handler,), {"issuer": self}))

    # ------------------------------------------------------------ what it says
    def documents(self) -> dict[str, Any]:
        """What is served, by path."""
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
        """A token of a role, with AWS's claims."""
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
        """The result of one request to STS, in XML. Raises RefusedError."""
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
        wanted = form["RoleArn"]
        if self.trusts.get((wanted, form.get("ExternalId"))) != role:
            raise RefusedError("AccessDenied")
        key = f"ASIA{uuid.uuid4().hex[:12].upper()}"
        self.roles[key] = wanted
        expires = (self.now() + timedelta(seconds=int(form["DurationSeconds"]))).strftime("%Y-%m-%dT%H:%M:%SZ")
        return (
            f"<Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>"
            f"<SessionToken>session</SessionToken><Expiration>{expires}</Expiration></Credentials>"
            f"<AssumedRoleUser><Arn>{escape(wanted)}</Arn><AssumedRoleId>X:{key}</AssumedRoleId></AssumedRoleUser>"
        )


class _Handler(BaseHTTPRequestHandler):
    issuer: AwsIssuer
    protocol_version = "HTTP/1.1"
    timeout = 30

    def log_message(self, *_: object) -> None:
        """Nothing: a token could stand in it."""

    def send(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Issuer(_Handler):
    def do_GET(self) -> None:
        document = self.issuer.documents().get(self.path)
        self.send(404 if document is None else 200, "application/json", json.dumps(document))


class _Sts(_Handler):
    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(text).items()}
        signer = _SIGNED_BY.search(self.headers.get("Authorization", ""))
        action = form["Action"]
        try:
            result = self.issuer.answer(signer[1] if signer else "", form)
        except RefusedError as error:
            fault = (
                f"<Error><Type>Sender</Type><Code>{error}</Code><Message>no</Message></Error><RequestId>r</RequestId>"
            )
            self.send(error.status, "text/xml", f'<ErrorResponse xmlns="{_NAMESPACE}">{fault}</ErrorResponse>')
            return
        body = f"<{action}Result>{result}</{action}Result>"
        self.send(200, "text/xml", f'<{action}Response xmlns="{_NAMESPACE}">{body}</{action}Response>')


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _number(value: int, size: int) -> str:
    return _encoded(value.to_bytes(size, "big"))
