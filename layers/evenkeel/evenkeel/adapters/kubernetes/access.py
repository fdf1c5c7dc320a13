"""How a cluster is reached: from its record, and from nothing else.

Two ways: EKS with a presigned STS token, or a kubeconfig kept in Secrets Manager, of which only inline data is taken.
A kubeconfig can run programs (``exec``), read files and switch verification off; none of that is done here.
"""

import base64
import binascii
import os
import re
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from kubernetes.client import ApiClient, Configuration

from evenkeel.adapters.kubernetes.client import Credential, KubernetesApi
from evenkeel.adapters.kubernetes.cluster import KubernetesCluster
from evenkeel.application.errors import AccessError
from evenkeel.application.ports import Clock, Cluster, Remaining
from evenkeel.config import ClusterRecord, EksAccess, KubeconfigAccess
from evenkeel.domain.values import shown

# An EKS token is good for 15 minutes after its signing, whatever its URL says
# (aws-iam-authenticator pkg/token/token.go); a fresh one costs no call.
_EKS_TOKEN_KEPT = timedelta(minutes=10)
_EKS_URL_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Connection:
    """What a kubeconfig comes down to."""

    server: str
    ca: str  # PEM
    token: str | None = None
    certificate: bytes | None = None  # PEM
    key: bytes | None = field(default=None, repr=False)
    tls_server_name: str | None = None


_REFUSED = {
    "exec": "it would run a program",
    "auth-provider": "it would run a plug-in",
    "certificate-authority": "it names a file: use certificate-authority-data",
    "client-certificate": "it names a file: use client-certificate-data",
    "client-key": "it names a file: use client-key-data",
    "tokenFile": "it names a file: use token",
    "insecure-skip-tls-verify": "the server would not be verified: use certificate-authority-data",
    "proxy-url": "it would send the token through a proxy",
    "username": "basic authentication is gone from Kubernetes: use token",
    "password": "basic authentication is gone from Kubernetes: use token",
}


def read_kubeconfig(text: str, where: str, context: str | None = None) -> Connection:
    """A kubeconfig with inline data only.

    Raises:
        AccessError: unreadable, incomplete, not https, or with a field that is refused. Never quotes the secret.
    """
    try:
        config = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):  # ValueError: a date that does not exist
        raise AccessError(f"{where}: not YAML or JSON") from None
    if not isinstance(config, Mapping):
        raise AccessError(f"{where}: not a kubeconfig: it has no fields")
    name = context or config.get("current-context")
    if not name:
        raise AccessError(f"{where}: current-context is missing, and the record names no context")
    chosen = _entry(config, "contexts", "context", name, where)
    cluster = _entry(config, "clusters", "cluster", chosen.get("cluster"), where)
    user = _entry(config, "users", "user", chosen.get("user"), where)
    for part, fields in (("cluster", cluster), ("user", user)):
        for refused, why in _REFUSED.items():
            if fields.get(refused):
                raise AccessError(f"{where}: {part}.{refused} is refused: {why}")
    server = cluster.get("server")
    if not isinstance(server, str) or not re.match(r"https://[^/?#@\s]+(/|$)", server):
        # What stands before an @ can be a password.
        told = shown(re.sub(r"//[^/]*@", "//...@", str(server)))
        raise AccessError(f"{where}: cluster.server is {told}: it must start with https:// and name a host, no user")
    tls_name = cluster.get("tls-server-name")
    if tls_name is not None and not isinstance(tls_name, str):
        raise AccessError(f"{where}: cluster.tls-server-name is {shown(tls_name)}: it must be a name")
    ca = _data(cluster, "certificate-authority-data", where)
    if ca is None:
        raise AccessError(f"{where}: cluster.certificate-authority-data is missing")
    token = user.get("token")
    certificate, key = _data(user, "client-certificate-data", where), _data(user, "client-key-data", where)
    if not (isinstance(token, str) and token) and (certificate is None or key is None):
        raise AccessError(f"{where}: user has neither token nor client-certificate-data and client-key-data")
    return Connection(
        server=server.rstrip("/"),
        ca=_pem(ca, f"{where}: cluster.certificate-authority-data"),
        token=token if isinstance(token, str) and token else None,
        certificate=certificate,
        key=key,
        tls_server_name=tls_name,
    )


def _entry(config: Mapping[str, Any], plural: str, singular: str, name: object, where: str) -> Mapping[str, Any]:
    entries = config.get(plural)
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping) and entry.get("name") == name and isinstance(entry.get(singular), Mapping):
            found: Mapping[str, Any] = entry[singular]
            return found
    raise AccessError(f"{where}: {plural} has no entry {str(name)[:100]!r}")


def _data(fields: Mapping[str, Any], name: str, where: str) -> bytes | None:
    value = fields.get(name)
    if value is None:
        return None
    try:
        return base64.b64decode(str(value), validate=True)
    except (binascii.Error, ValueError):
        raise AccessError(f"{where}: {name} is not base64") from None


def _pem(data: bytes, where: str) -> str:
    text = data.decode("ascii", errors="replace")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise AccessError(f"{where} is not a PEM certificate") from None
    return text


class EksCredential:
    """Tokens for EKS: a presigned ``sts:GetCallerIdentity``, regional, with the cluster's name signed into it."""

    def __init__(self, access: EksAccess, session: Any, now: Callable[[], datetime]) -> None:
        """``session`` is a botocore session."""
        self._access = access
        self._session = session
        self._now = now
        self._kept: tuple[str, datetime] | None = None

    def token(self, *, fresh: bool) -> str | None:
        """``k8s-aws-v1.`` and the URL in base64. Raises AccessError where the function has no AWS credentials."""
        if fresh or self._kept is None or self._now() >= self._kept[1]:
            self._kept = (self._presign(), self._now() + _EKS_TOKEN_KEPT)
        return self._kept[0]

    def _presign(self) -> str:
        from botocore.exceptions import BotoCoreError
        from botocore.model import ServiceId
        from botocore.signers import RequestSigner

        region = self._access.region
        credentials = self._session.get_credentials()
        if credentials is None:
            raise AccessError("no AWS credentials to sign the EKS token with")
        # The host is named here, so that neither AWS_ENDPOINT_URL nor the global endpoint can take its place.
        suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        request = {
            "method": "GET",
            "url": f"https://sts.{region}.{suffix}/?Action=GetCallerIdentity&Version=2011-06-15",
            "body": {},
            "headers": {"x-k8s-aws-id": self._access.name},
            "context": {},
        }
        signer = RequestSigner(
            ServiceId("STS"), region, "sts", "v4", credentials, self._session.get_component("event_emitter")
        )
        try:
            url = signer.generate_presigned_url(
                request, region_name=region, expires_in=_EKS_URL_SECONDS, operation_name=""
            )
        except BotoCoreError as error:
            raise AccessError(f"the EKS token cannot be signed: {error}") from None
        return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


class _Given:
    """A token that is simply there; a fresh one is read again from where it came from."""

    def __init__(self, token: str | None, again: Callable[[], str | None]) -> None:
        self._token = token
        self._again = again

    def token(self, *, fresh: bool) -> str | None:
        if fresh:
            self._token = self._again()
        return self._token


class RecordedClusters:
    """Opens clusters from their records. Connections are kept while a function lives and access stays the same.

    Args:
        session: Gives the botocore session, for EKS tokens.
        secret: Reads a secret's text by name; ``fresh`` passes by any cache. Raises AccessError.
        clock: For waiting, and for the age of tokens.
    """

    def __init__(self, *, session: Callable[[], Any], secret: Callable[[str, bool], str], clock: Clock) -> None:
        self._session = session
        self._secret = secret
        self._clock = clock
        self._kept: dict[str, tuple[EksAccess | KubeconfigAccess, str, KubernetesApi]] = {}

    def open(self, record: ClusterRecord, remaining: Remaining) -> Cluster:
        """Raises AccessError."""
        access = record.access
        # A rotated secret brings a new certificate, authority or server along, not only a new token.
        text = self._secret(access.secret, False) if isinstance(access, KubeconfigAccess) else ""
        kept = self._kept.get(record.id)
        if kept is None or kept[:2] != (access, text):
            kept = self._kept[record.id] = (access, text, self._api(record, text))
        return KubernetesCluster(kept[2], record, remaining)

    def _api(self, record: ClusterRecord, text: str) -> KubernetesApi:
        access = record.access
        credential: Credential
        if isinstance(access, EksAccess):
            where = f"cluster {record.id}: access.ca_data"
            ca = _data({"ca_data": access.ca_data}, "ca_data", where) or b""
            connection = Connection(server=access.endpoint.rstrip("/"), ca=_pem(ca, where))
            credential = EksCredential(access, self._session(), self._clock.now)
        else:
            connection = self._kubeconfig(record.id, access, text)
            credential = _Given(
                connection.token,
                lambda: self._kubeconfig(record.id, access, self._secret(access.secret, True)).token,
            )
        client = api_client(connection, f"cluster {record.id}")
        return KubernetesApi(record.id, client, credential, self._clock)

    def _kubeconfig(self, cluster: str, access: KubeconfigAccess, text: str) -> Connection:
        return read_kubeconfig(text, f"cluster {cluster}: secret {access.secret}", access.context)


def api_client(connection: Connection, where: str) -> ApiClient:
    """The real client for a connection: verified TLS, no proxy from the environment, no retries of its own.

    Raises:
        AccessError: the client certificate and its key cannot be used.
    """
    configuration = Configuration(host=connection.server, ca_cert_data=connection.ca, retries=False)
    configuration.proxy = None
    configuration.tls_server_name = connection.tls_server_name
    if connection.certificate is not None and connection.key is not None:
        configuration.cert_file = _file(connection.certificate)
        configuration.key_file = _file(connection.key)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(
                configuration.cert_file, configuration.key_file, password=lambda: ""
            )
        except (ssl.SSLError, ValueError):
            for file in (configuration.cert_file, configuration.key_file):
                Path(file).unlink()
            raise AccessError(
                f"{where}: client-certificate-data and client-key-data are no PEM certificate with its open key"
            ) from None
    return ApiClient(configuration)


def _file(data: bytes) -> str:
    """A private file with the data: the ssl module loads client certificates from files only."""
    handle, path = tempfile.mkstemp(prefix="evenkeel-")  # mode 0600
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    return path
