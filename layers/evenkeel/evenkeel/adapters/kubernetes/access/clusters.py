"""How a cluster is reached: from its record, and from nothing else.

EKS, whose endpoint and authority AWS names, with a presigned STS token; an API server that trusts the tokens of AWS's
issuer; or a kubeconfig kept in Secrets Manager, of which only inline data is taken. A kubeconfig can run programs
(``exec``), read files and switch verification off; none of that is done here. Nothing of a secret is ever quoted,
whichever of its fields it stands in, and errors are raised where no other error hangs on them: those of libraries carry
what they could not read.
"""

import base64
import binascii
import os
import re
import ssl
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote as url_quote

from kubernetes.client import ApiClient, Configuration

from evenkeel.access_config import (
    Access,
    AwsOidcAccess,
    EksAccess,
    KubeconfigAccess,
    SameAccess,
    SecretAccess,
    ServiceAccountAccess,
)
from evenkeel.adapters.aws_faults import AWS_ERRORS, access_error, code_of, part_of
from evenkeel.adapters.documents import UnreadableError, read_document
from evenkeel.adapters.kubernetes.access.aws_identity import MAKING, AwsIdentity, AwsOidcCredential
from evenkeel.adapters.kubernetes.access.service_account import ServiceAccountCredential, Token
from evenkeel.adapters.kubernetes.access.ttl_cache import Shared
from evenkeel.adapters.kubernetes.client.api import Credential, KubernetesApi
from evenkeel.adapters.kubernetes.client.transport import (
    MOST_BYTES,
    MOST_BYTES_BESIDE_OTHERS,
    connections,
    tls_context,
)
from evenkeel.adapters.kubernetes.cluster import KubernetesCluster
from evenkeel.adapters.kubernetes.garden import Garden
from evenkeel.adapters.kubernetes.objects import get_path
from evenkeel.adapters.kubernetes.read.list_cache import ListCache
from evenkeel.adapters.kubernetes.read.workload import KubernetesWorkload
from evenkeel.adapters.lru import Room
from evenkeel.application.errors import AccessError
from evenkeel.application.fleet.tokens import TokenVault
from evenkeel.application.ports import Clock, Remaining
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.servers import read_server
from evenkeel.domain.model.values import quote
from evenkeel.record import ClusterRecord

# An EKS token is good for 15 minutes after its signing, whatever its URL says
# (aws-iam-authenticator pkg/token/token.go); a fresh one costs no call.
_EKS_TOKEN_KEPT = timedelta(minutes=10)
_EKS_URL_SECONDS = 60
# An endpoint and a certificate are 3 KB. A cluster that was made anew under its name does not answer at the old place.
_EKS_PLACE_KEPT = timedelta(hours=6)
_MOST_PLACES = 10_000  # 6 MB of what is served there
# Secrets Manager holds no more.
_LONGEST_TOKEN = 65_536
# Clusters whose connections are kept, 50 KB each: a function may have 1,024 files open. A cluster that is written has
# up to sixteen connections, one that is looked at has one; fifty newcomers and each client of AWS have some more.
_MOST_WRITTEN = 32
_MOST_LOOKED_AT = 600
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,253}")


@dataclass(frozen=True, kw_only=True)
class Connection:
    """What an access comes down to."""

    server: str
    ca: str = field(repr=False)  # PEM, which whoever makes the client finds out
    ca_place: str  # where it stands, for whoever has to correct it
    token: str | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)  # PEM
    key: bytes | None = field(default=None, repr=False)
    tls_server_name: str | None = None


IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")  # fields of a user
_REFUSED = {
    "exec": "it would run a program",
    "auth-provider": "it would run a plug-in",
    "certificate-authority": "it names a file: use certificate-authority-data",
    "client-certificate": "it names a file: use client-certificate-data",
    "client-key": "it names a file: use client-key-data",
    "tokenFile": "it names a file: use token",
    "insecure-skip-tls-verify": "the server would not be verified: use certificate-authority-data",
    "proxy-url": "it would send the token through a proxy",
    **dict.fromkeys(IMPERSONATION, "Evenkeel impersonates no other user: use that user's own credentials"),
    "username": "basic authentication is gone from Kubernetes: use token",
    "password": "basic authentication is gone from Kubernetes: use token",
}


def read_kubeconfig(text: str, where: str, context: str | None = None) -> Connection:
    """A kubeconfig with inline data only.

    Raises:
        AccessError: unreadable, incomplete, not https, or with a field that is refused. Never quotes the secret.
    """
    config = _document(text, where)
    if not isinstance(config, Mapping):
        raise AccessError(f"{where}: not a kubeconfig: it has no fields")
    name = context or config.get("current-context")
    if not name:
        raise AccessError(f"{where}: current-context is missing, and the record names no context")
    description = f"of the name {quote(context)}" if context else "of the name in current-context"
    context_entry = _entry(config, "contexts", "context", name, description, where)
    cluster = _entry(config, "clusters", "cluster", context_entry.get("cluster"), "that the context names", where)
    user = _entry(config, "users", "user", context_entry.get("user"), "that the context names", where)
    for part, fields in (("cluster", cluster), ("user", user)):
        for refused, why in _REFUSED.items():
            if fields.get(refused):
                raise AccessError(f"{where}: {part}.{refused} is refused: {why}")
    server = _server(cluster.get("server"), f"{where}: cluster.server")
    tls_name = cluster.get("tls-server-name")
    if tls_name is not None and not (isinstance(tls_name, str) and _NAME.fullmatch(tls_name)):
        raise AccessError(f"{where}: cluster.tls-server-name must be the name of a host")
    ca = _data(cluster, "certificate-authority-data", where)
    if ca is None:
        raise AccessError(f"{where}: cluster.certificate-authority-data is missing")
    ca_place = f"{where}: cluster.certificate-authority-data"
    token = read_token(user.get("token"), f"{where}: user.token")
    certificate, key = _data(user, "client-certificate-data", where), _data(user, "client-key-data", where)
    if token is None and (certificate is None or key is None):
        raise AccessError(f"{where}: user has neither token nor client-certificate-data and client-key-data")
    return Connection(
        server=server,
        ca=_pem(ca, ca_place),
        ca_place=ca_place,
        token=token,
        certificate=certificate,
        key=key,
        tls_server_name=tls_name,
    )


def read_token(value: object, where: str) -> str | None:
    """A bearer token as a header can carry it; None where there is none.

    The newline at the end that comes along from a file is taken off; whatever else is not visible is a mistake.

    Raises:
        AccessError: says what is wrong with it, never what it is.
    """
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise AccessError(f"{where} is no text: put it in quotes")
    token = value.removesuffix("\n").removesuffix("\r")
    if len(token) > _LONGEST_TOKEN:
        raise AccessError(f"{where} has {len(token)} characters: no token has more than {_LONGEST_TOKEN}")
    for place, character in enumerate(token, 1):
        if not "!" <= character <= "~":
            kind = "white space" if character.isspace() else "not a visible ASCII character"
            raise AccessError(f"{where}: character {place} of {len(token)} is {kind}: copy the token alone")
    if not token:
        raise AccessError(f"{where} is a line without a token")
    return token


def _document(text: str, where: str) -> Any:
    wrong: UnreadableError
    try:
        return read_document(text)
    except UnreadableError as error:
        wrong = error
    raise AccessError(f"{where}: {wrong}")


def _entry(
    config: Mapping[str, Any], plural: str, singular: str, name: object, description: str, where: str
) -> Mapping[str, Any]:
    entries = config.get(plural)
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping) and entry.get("name") == name and isinstance(entry.get(singular), Mapping):
            fields: Mapping[str, Any] = entry[singular]
            return fields
    raise AccessError(f"{where}: {plural} has no entry {description}")


def _data(fields: Mapping[str, Any], name: str, where: str) -> bytes | None:
    value = fields.get(name)
    if value is None:
        return None
    try:
        return base64.b64decode(str(value), validate=True)
    except (binascii.Error, ValueError):
        pass
    raise AccessError(f"{where}: {name} is not base64")


def _server(value: object, where: str) -> str:
    try:
        return read_server(value)
    except ValueError as error:
        problem = str(error)
    raise AccessError(f"{where} {problem}")


def _pem(data: bytes, where: str) -> str:
    try:
        return data.decode("ascii")
    except ValueError:
        pass
    raise _no_pem(where)


def _no_pem(where: str) -> AccessError:
    return AccessError(f"{where} is not a PEM certificate")


def describe_eks(client: Any, access: EksAccess, where: str) -> Connection:
    """Where an EKS cluster is and what signs for it, as AWS says (eks:DescribeCluster), so that no record can.

    Raises:
        AccessError: no such cluster, not to be seen, or not up yet.
    """
    from botocore.exceptions import ClientError

    name = f"{where}: EKS cluster {access.name} in {access.region}"
    kind: type[AccessError] = AccessError
    try:
        cluster = part_of(client.describe_cluster(name=access.name), "cluster")
        problem = ""
    except ClientError as error:
        kind = access_error(error)
        cluster, code = {}, str(error.response.get("Error", {}).get("Code", ""))
        problem = {
            "ResourceNotFoundException": "there is none: correct access.name and access.region",
            "AccessDeniedException": "missing permission eks:DescribeCluster",
        }.get(code, f"eks:DescribeCluster was refused: {code}")
    except AWS_ERRORS as error:
        kind = access_error(error)
        cluster, problem = {}, f"eks:DescribeCluster was not answered: {code_of(error)}"
    if problem:
        raise kind(f"{name}: {problem}")
    server, authority = cluster.get("endpoint"), cluster.get("certificateAuthority") or {}
    if not server or not authority.get("data"):
        raise AccessError(f"{name}: it has no endpoint yet: its status is {cluster.get('status')}")
    ca_place = f"{name}: certificateAuthority.data"
    return Connection(
        server=_server(server, f"{name}: its endpoint"),
        ca=_pem(_data(authority, "data", name) or b"", ca_place),
        ca_place=ca_place,
    )


class EksCredential:
    """Tokens for EKS: a presigned ``sts:GetCallerIdentity``, regional, with the cluster's name signed into it."""

    def __init__(
        self,
        access: EksAccess,
        session: Any,
        now: Callable[[], datetime],
        role: Callable[[Any], Any] | None = None,
    ) -> None:
        """``session`` is a botocore session.

        ``role`` gives what is signed with in place of its own credentials, and others than those that it is given.
        """
        self._access = access
        self._session = session
        self._now = now
        self._role = role
        self._signer: Any = None  # of the last token
        self._cached: tuple[str, datetime] | None = None

    def token(self, *, fresh: bool) -> str | None:
        """``k8s-aws-v1.`` and the URL in base64. Raises AccessError where the function has no AWS credentials."""
        if fresh or self._cached is None or self._now() >= self._cached[1]:
            refused = self._signer if fresh else None  # a role's sessions may have been revoked
            self._cached = (self._presign(refused), self._now() + _EKS_TOKEN_KEPT)
        return self._cached[0]

    def _own_credentials(self) -> Any:
        try:
            return self._session.get_credentials()
        except AWS_ERRORS as error:
            kind = type(error).__name__
        raise AccessError(f"the AWS credentials to sign the EKS token with cannot be read: {kind}")

    def _presign(self, refused: Any = None) -> str:
        from botocore.model import ServiceId
        from botocore.signers import RequestSigner

        region = self._access.region
        with MAKING if self._role is None else nullcontext():
            credentials = self._role(refused) if self._role else self._own_credentials()
        self._signer = credentials
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
            return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")
        except AWS_ERRORS as error:
            kind = type(error).__name__
        raise AccessError(f"the EKS token cannot be signed: {kind}")


class _KubeconfigCredential:
    """A token that is simply there; a fresh one is read again from where it came from."""

    def __init__(self, token: str | None, read: Callable[[], str | None]) -> None:
        self._token = token
        self._read = read

    def token(self, *, fresh: bool) -> str | None:
        if fresh:
            self._token = self._read()
        return self._token


_Opened = tuple[Access | SecretAccess, str, KubernetesApi]


class RecordedClusters:
    """Opens clusters from their records, for many threads at once, each with a cluster of its own.

    Connections are kept while a function lives and access stays the same.

    Args:
        session: Gives the botocore session, for EKS and STS.
        secret: Reads a secret's text by name; ``fresh`` passes by any cache. Raises AccessError.
        clock: For waiting, and for the age of tokens.
        writes: What for: whoever only looks shows API servers another identity, which may only list.
        allow_loopback: Clusters may be on this machine: for the sandbox, never in a deployed stack.
        vault: Keeps tokens of ServiceAccounts; None: the stack has no key for them.
    """

    def __init__(
        self,
        *,
        session: Callable[[], Any],
        secret: Callable[[str, bool], str],
        clock: Clock,
        writes: bool = True,
        allow_loopback: bool = False,
        vault: TokenVault | None = None,
    ) -> None:
        self._session = session
        self._secret = secret
        self._clock = clock
        self._writes = writes
        self._allow_loopback = allow_loopback
        self._vault = vault
        self._identity = AwsIdentity(session, clock.now)
        self._tokens: Shared[Token] = Shared(clock.now)
        self._opened: Room[str, _Opened] = Room(_MOST_WRITTEN if writes else _MOST_LOOKED_AT, clock.now)
        self._workloads: Room[str, _Opened] = Room(_MOST_WRITTEN if writes else _MOST_LOOKED_AT, clock.now)
        self._kept = ListCache()
        self._described: Room[EksAccess, tuple[Connection, datetime]] = Room(_MOST_PLACES, clock.now)
        # By server and authority: what a server said that others believe is kept for none but those.
        self._served: Room[tuple[str, bytes], dict[str, list[str]]] = Room(_MOST_PLACES, clock.now)

    def open(
        self, record: ClusterRecord, remaining: Remaining, *, consistent: bool = True, alone: bool = True
    ) -> KubernetesCluster:
        """Raises AccessError."""
        api = self._connected(record.id, record.access, remaining)
        most_bytes = MOST_BYTES if alone else MOST_BYTES_BESIDE_OTHERS
        return KubernetesCluster(
            api,
            record,
            remaining,
            consistent=consistent,
            most_bytes=most_bytes,
            kept=self._kept,
            garden=self._garden_of(record, remaining),
        )

    def _garden_of(self, record: ClusterRecord, remaining: Remaining) -> Callable[[], Garden] | None:
        """Opens the garden of a seed, where the record asks for relief; nothing is asked of it before that."""
        relief = record.shoot_relief
        access = None if relief is None else relief.garden
        if relief is None or access is None:
            return None
        return lambda: Garden(self._connected(_garden_name(record), access, remaining), relief, remaining)

    def _connected(self, name: str, access: Access, remaining: Remaining) -> KubernetesApi:
        # A rotated secret brings a new certificate, authority or server along, not only a new token.
        text = self._secret(access.secret, False) if isinstance(access, KubeconfigAccess) else ""
        opened = self._opened.get(name)
        # An EKS cluster that does not answer may have been made anew under its name.
        if opened is not None and isinstance(access, EksAccess) and not opened[2].reached:
            self._described.drop(access)
            self._opened.drop(name)
        api = self._kept_or_opened(self._opened, name, name, access, text)
        if isinstance(api.credential, ServiceAccountCredential):
            api.credential.renew(api, remaining)
        return api

    def _kept_or_opened(
        self, room: Room[str, _Opened], key: str, name: str, access: Access | SecretAccess, text: str
    ) -> KubernetesApi:
        """The connection that is kept, while access and its secret's text are what they were; else a new one."""
        opened = room.get(key)
        if opened is None or opened[:2] != (access, text):
            opened = (access, text, self._api(name, access, text))
            room.put(key, opened)
        return opened[2]

    def open_workload(self, record: ClusterRecord, remaining: Remaining, *, alone: bool = True) -> KubernetesWorkload:
        """Connections are kept as those of the clusters that machines are read of.

        Raises AccessError; ClusterUnavailableError where the Secret with its kubeconfig is not to be had.
        """
        entry, name = record.workload, f"workload cluster of {record.id}"
        if entry is None:
            raise AccessError(f"cluster {record.id}: its record names no workload")
        if isinstance(entry.access, SameAccess):
            api = self._connected(record.id, record.access, remaining)
            return KubernetesWorkload(api, entry, remaining, flavours=record.flavours, alone=alone)
        access, text = entry.access, ""
        if isinstance(access, SecretAccess):
            text = _secret_of(self._connected(record.id, record.access, remaining), access, remaining)
        elif isinstance(access, KubeconfigAccess):
            text = self._secret(access.secret, False)
        api = self._kept_or_opened(self._workloads, record.id, name, access, text)
        return KubernetesWorkload(api, entry, remaining, flavours=record.flavours, alone=alone)

    def zone_ids(self, record: ClusterRecord, remaining: Remaining) -> Mapping[str, str]:
        """One whole look, and a list of nodes."""
        cluster = self.open(record, remaining)
        cluster.observe()
        return cluster.zone_ids()

    def refused(self, record: ClusterRecord, remaining: Remaining, *, writes: bool) -> Sequence[str]:
        told = [*self.open(record, remaining).refused(writes=writes)]
        stage = record.demand_stage
        if stage is not DemandStage.OFF:
            told += self.open_workload(record, remaining).refused(orders=stage.orders)
        return list(dict.fromkeys(told))

    def autoscaler_at(self, record: ClusterRecord, remaining: Remaining) -> datetime | None:
        return self.open_workload(record, remaining).autoscaler_at()

    def needs_run(self, record: ClusterRecord) -> bool:
        """Whether a run is to open the cluster although there is no news: it renews what a look may not.

        Raises AccessError.
        """
        relief = record.shoot_relief
        accesses = {record.id: record.access} | ({_garden_name(record): relief.garden} if relief else {})
        return any(
            isinstance(access, ServiceAccountAccess) and self._service_account(name, access).is_due()
            for name, access in accesses.items()
        )

    def _api(self, name: str, access: Access | SecretAccess, text: str) -> KubernetesApi:
        where = f"cluster {name}"
        credential: Credential
        match access:
            case EksAccess():
                connection, credential = self._eks(access, where)
            case AwsOidcAccess():
                connection = _recorded(access, where)
                credential = AwsOidcCredential(access, self._identity, writes=self._writes)
            case ServiceAccountAccess():
                connection, credential = _recorded(access, where), self._service_account(name, access)
            case KubeconfigAccess():
                connection, credential = self._kubeconfig(access, text, where)
            case SecretAccess():  # read anew at each look: a token of it is as fresh as it can be
                connection = read_kubeconfig(text, f"{where}: {_secret_place(access)}")
                credential = _KubeconfigCredential(connection.token, lambda: connection.token)
        client = api_client(connection, where, allow_loopback=self._allow_loopback)
        return KubernetesApi(name, client, credential, self._clock, self._served_by(connection))

    def _served_by(self, connection: Connection) -> dict[str, list[str]]:
        """As ``KubernetesApi`` has it. Kept for many more clusters than connections are: it saves a request."""
        place = (connection.server, sha256(connection.ca.encode()).digest())
        served = self._served.get(place)
        if served is None:
            served = {}
            self._served.put(place, served)
        return served

    def _service_account(self, cluster: str, access: ServiceAccountAccess) -> ServiceAccountCredential:
        if self._vault is None:
            raise AccessError(f"cluster {cluster}: the stack has no key for tokens: deploy it with WithTokenKey=true")
        return ServiceAccountCredential(
            cluster, access, self._vault, self._tokens, self._clock.now, writes=self._writes
        )

    def _eks(self, access: EksAccess, where: str) -> tuple[Connection, Credential]:
        arn = access.role(writes=self._writes)
        role = None if arn is None else partial(self._identity.role, arn, access.external_id)
        return self._place(access, where, role), EksCredential(access, self._session(), self._clock.now, role)

    def _place(self, access: EksAccess, where: str, role: Callable[[Any], Any] | None) -> Connection:
        """Where the cluster is. Kept for many more clusters than connections are: AWS is asked once for each."""
        place, now = self._described.get(access), self._clock.now()
        if place is None or now >= place[1]:
            client = self._identity.client("eks", access.region, role(None) if role else None)
            place = (describe_eks(client, access, where), now + _EKS_PLACE_KEPT)
            self._described.put(access, place)
        return place[0]

    def _kubeconfig(self, access: KubeconfigAccess, text: str, where: str) -> tuple[Connection, Credential]:
        def read(text: str) -> Connection:
            return read_kubeconfig(text, f"{where}: secret {access.secret}", access.context)

        connection = read(text)
        return connection, _KubeconfigCredential(
            connection.token, lambda: read(self._secret(access.secret, True)).token
        )


def _garden_name(record: ClusterRecord) -> str:
    """What the garden of a seed is called, and its tokens are kept under: no cluster has such an id."""
    return f"{record.id}/garden"


def _secret_place(access: SecretAccess) -> str:
    return f"Secret {access.namespace}/{access.name}, {access.key}"


def _secret_of(api: KubernetesApi, access: SecretAccess, remaining: Remaining) -> str:
    """The kubeconfig in a Secret of the cluster that holds the machine objects. Nothing of it is ever quoted."""
    path = f"/api/v1/namespaces/{url_quote(access.namespace)}/secrets/{url_quote(access.name)}"
    found = api.get(path, remaining)
    where = f"{api.name}: {_secret_place(access)}"
    if found is None:
        raise AccessError(f"{where}: not there, or not to be read: bind a Role for that one name (docs/demand.md)")
    data = get_path(found, ("data", access.key))
    if not isinstance(data, str):
        raise AccessError(f"{where}: it has no such key")
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, ValueError):
        pass
    raise AccessError(f"{where}: not base64 of a text")


def _recorded(access: AwsOidcAccess | ServiceAccountAccess, where: str) -> Connection:
    """Where a server is that the record names itself."""
    ca_place = f"{where}: access.ca_data"
    return Connection(server=access.endpoint, ca=_pem(base64.b64decode(access.ca_data), ca_place), ca_place=ca_place)


def api_client(connection: Connection, where: str, *, allow_loopback: bool = False) -> ApiClient:
    """The real client for a connection: verified TLS, no proxy from the environment, no retries of its own.

    Raises:
        AccessError: the authority, or the client certificate with its key, cannot be used.
    """
    configuration = Configuration(host=connection.server, retries=False)
    configuration.proxy = None
    context = _verifying(connection)
    if connection.certificate is not None and connection.key is not None:
        _load_certificate(context, connection.certificate, connection.key, where)
    client = ApiClient(configuration)
    client.rest_client.pool_manager = connections(context, connection.tls_server_name, allow_loopback=allow_loopback)
    return client


def _verifying(connection: Connection) -> ssl.SSLContext:
    try:
        return tls_context(connection.ca)
    except (ssl.SSLError, ValueError):
        pass
    raise _no_pem(connection.ca_place)


def _load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes, where: str) -> None:
    """The ssl module reads client certificates from files only: private ones, that are gone when it has."""
    files = [_file(certificate), _file(key)]
    try:
        context.load_cert_chain(files[0], files[1], password=lambda: "")
    except (ssl.SSLError, ValueError):
        pass
    else:
        return
    finally:
        for file in files:
            Path(file).unlink()
    raise AccessError(f"{where}: client-certificate-data and client-key-data are no PEM certificate with its open key")


def _file(data: bytes) -> str:
    handle, path = tempfile.mkstemp(prefix="evenkeel-")  # mode 0600
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    return path
