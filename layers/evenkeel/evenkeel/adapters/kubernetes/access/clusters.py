"""Opens clusters with the access that their records describe."""

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from evenkeel.access_config import (
    Access,
    AutoScalingAccess,
    AwsOidcAccess,
    EksAccess,
    KubeconfigAccess,
    SameAccess,
    SecretAccess,
    ServiceAccountAccess,
)
from evenkeel.adapters.aws_identity import AwsIdentity
from evenkeel.adapters.aws_session import AwsSession
from evenkeel.adapters.kubernetes.access.aws_oidc import AwsOidcCredential
from evenkeel.adapters.kubernetes.access.connection import Connection, api_client, pem
from evenkeel.adapters.kubernetes.access.eks import EksCredential, describe_eks
from evenkeel.adapters.kubernetes.access.kubeconfig import KubeconfigCredential, read_kubeconfig
from evenkeel.adapters.kubernetes.access.service_account import ServiceAccountCredential, Token
from evenkeel.adapters.kubernetes.client.api import Credential, KubernetesApi
from evenkeel.adapters.kubernetes.client.transport import MOST_BYTES, MOST_BYTES_BESIDE_OTHERS
from evenkeel.adapters.kubernetes.cluster import KubernetesCluster
from evenkeel.adapters.kubernetes.garden import Garden
from evenkeel.adapters.kubernetes.objects import Kind, get_path
from evenkeel.adapters.lru import LruCache
from evenkeel.adapters.redacting import redacting
from evenkeel.adapters.ttl_cache import Shared
from evenkeel.application.errors import AccessError
from evenkeel.application.fleet.tokens import TokenVault
from evenkeel.application.ports import Clock, Remaining
from evenkeel.application.rebalancing.ports import Others
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.relief.model import ReliefStep
from evenkeel.record import ClusterRecord

if TYPE_CHECKING:
    from evenkeel.adapters.kubernetes.read.workload import KubernetesWorkload
    from evenkeel.adapters.kubernetes.write.drainer import NodeDrainer

# How long an EKS endpoint with its certificate (3 KB) is cached. The time is limited because a cluster that is deleted
# and created again under the same name gets another endpoint.
_EKS_PLACE_KEPT = timedelta(hours=6)
_MAX_PLACES = 10_000  # the largest number of cached endpoints
# The largest number of clusters whose connections a function keeps. The first number is for functions for runs, the
# second for functions for checks. A kept cluster needs 50 KB. A function may open 1,024 files. A run opens up to
# sixteen connections to a cluster, a check opens one. The other files are for fifty new clusters and the AWS clients.
_MAX_WRITTEN = 32
_MAX_CHECKED = 600
_SECRET = Kind("", ("v1",), "Secret", "secrets")

_AnyAccess = Access | SecretAccess
_Opened = tuple[_AnyAccess, str, KubernetesApi]


class RecordedClusters:
    """Opens clusters for many threads at once. Each thread opens another cluster.

    A function keeps a connection until the access to the cluster changes.

    Args:
        session: The session of the functions, for EKS and STS.
        secret: Returns a secret's text by name; ``fresh`` bypasses any cache. Raises AccessError.
        clock: Used to wait, and to compute the age of tokens.
        writes: False for checks, whose identity may only list.
        allow_loopback: True: clusters may be on this machine. Only the sandbox sets this.
        vault: Stores tokens of ServiceAccounts. None: the stack has no key to encrypt tokens.
    """

    def __init__(
        self,
        *,
        session: AwsSession,
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
        most = _MAX_WRITTEN if writes else _MAX_CHECKED
        self._opened: LruCache[str, _Opened] = LruCache(most)
        self._workloads: LruCache[str, _Opened] = LruCache(most)
        self._described: LruCache[EksAccess, tuple[Connection, datetime]] = LruCache(_MAX_PLACES)

    def open(
        self, record: ClusterRecord, remaining: Remaining, *, consistent: bool = True, alone: bool = True
    ) -> KubernetesCluster:
        """Return the cluster that has the machine objects. Raises AccessError."""
        return KubernetesCluster(
            self._connected(record.id, record.access, remaining),
            record,
            remaining,
            consistent=consistent,
            max_bytes=MOST_BYTES if alone else MOST_BYTES_BESIDE_OTHERS,
            others=self._others_of(record, remaining),
        )

    def open_workload(self, record: ClusterRecord, remaining: Remaining, *, alone: bool = True) -> "KubernetesWorkload":
        """Return the workload cluster.

        Raises AccessError; ClusterUnavailableError where the Secret with its kubeconfig cannot be read.
        """
        from evenkeel.adapters.kubernetes.read.workload import KubernetesWorkload  # many records name no workload

        entry = record.workload
        if entry is None:
            raise AccessError(f"cluster {record.id}: its record names no workload")
        if isinstance(entry.access, SameAccess):
            api = self._connected(record.id, record.access, remaining)
        else:
            access, text = entry.access, self._text_of(entry.access)
            if isinstance(access, SecretAccess):
                text = _secret_of(self._connected(record.id, record.access, remaining), access, remaining)
            name = f"workload cluster of {record.id}"
            api = self._kept_or_opened(self._workloads, record.id, name, access, text)
        return KubernetesWorkload(api, entry, remaining, flavours=record.flavours, alone=alone)

    def open_drainer(self, record: ClusterRecord, remaining: Remaining) -> "NodeDrainer":
        """Return what drains nodes of the workload cluster. Raises as ``open_workload`` does."""
        from evenkeel.adapters.kubernetes.write.drainer import NodeDrainer  # most records drain no nodes

        return NodeDrainer(self.open_workload(record, remaining), remaining)

    def zone_ids(self, record: ClusterRecord, remaining: Remaining) -> Mapping[str, str]:
        """Return the zone names by AWS zone id. Reads the whole cluster, then lists its machines and nodes."""
        cluster = self.open(record, remaining)
        cluster.observe()
        return cluster.zone_ids()

    def refused(self, record: ClusterRecord, remaining: Remaining, *, writes: bool) -> Sequence[str]:
        """Return a sentence for each right that the record needs and the identity does not have."""
        missing = [*self.open(record, remaining).refused(writes=writes)]
        stage = record.demand_stage
        if stage is not DemandStage.OFF:
            missing += self.open_workload(record, remaining).refused(orders=stage.orders)
        return list(dict.fromkeys(missing))

    def autoscaler_at(self, record: ClusterRecord, remaining: Remaining) -> datetime | None:
        """Return when a cluster-autoscaler of the workload cluster last renewed its lease or wrote its status."""
        return self.open_workload(record, remaining).autoscaler_at()

    def needs_run(self, record: ClusterRecord) -> bool:
        """Return True where a run must renew a token. Checks renew no token. Raises AccessError."""
        relief = record.shoot_relief
        accesses = {record.id: record.access} | ({_garden_name(record): relief.garden} if relief else {})
        return any(
            isinstance(access, ServiceAccountAccess) and self._service_account(name, access).is_due()
            for name, access in accesses.items()
        )

    def _others_of(self, record: ClusterRecord, remaining: Remaining) -> Mapping[type[Any], Others]:
        """Return the other objects that the record's capabilities use: the Shoots of a seed, for relief."""
        relief = record.shoot_relief
        access = None if relief is None else relief.garden
        if relief is None or access is None:
            return {}
        open_garden = partial(self._connected, _garden_name(record), access, remaining)
        return {ReliefStep: Garden(open_garden, relief, remaining)}

    def _connected(self, name: str, access: Access, remaining: Remaining) -> KubernetesApi:
        opened = self._opened.get(name)
        # An EKS cluster that does not answer may have been deleted and created again under the same name.
        if opened is not None and isinstance(access, EksAccess) and not opened[2].reached:
            self._described.drop(access)
            self._opened.drop(name)
        api = self._kept_or_opened(self._opened, name, name, access, self._text_of(access))
        if isinstance(api.credential, ServiceAccountCredential):
            api.credential.renew(api, remaining)
        return api

    def _text_of(self, access: _AnyAccess) -> str:
        """Return the kubeconfig, or an empty text where the access needs no kubeconfig.

        The secret is read each time, because its rotation can change the server and the certificate as well as the
        token.
        """
        return self._secret(access.secret, False) if isinstance(access, KubeconfigAccess) else ""

    def _kept_or_opened(
        self, room: LruCache[str, _Opened], key: str, name: str, access: _AnyAccess, text: str
    ) -> KubernetesApi:
        """Return the kept API, or a new one if none is kept, or if the access or the kubeconfig has changed."""
        opened = room.get(key)
        if opened is None or opened[:2] != (access, text):
            where = f"cluster {name}"
            connection, credential = self._way(name, access, text, where)
            client = api_client(connection, where, allow_loopback=self._allow_loopback)
            api = KubernetesApi(name, client, credential, self._clock)
            opened = (access, text, api)
            room.put(key, opened)
        return opened[2]

    def _way(self, name: str, access: _AnyAccess, text: str, where: str) -> tuple[Connection, Credential]:
        """Return the connection and the credential for this kind of access."""
        match access:
            case EksAccess():
                arn = access.role(writes=self._writes)
                role = None if arn is None else partial(self._identity.role, arn, access.external_id)
                credential = EksCredential(access, self._session, self._clock.now, role)
                return self._eks_place(access, where, role), credential
            case AwsOidcAccess():
                return _recorded(access, where), AwsOidcCredential(access, self._identity, writes=self._writes)
            case ServiceAccountAccess():
                return _recorded(access, where), self._service_account(name, access)
            case KubeconfigAccess():
                read = partial(read_kubeconfig, where=f"{where}: secret {access.secret}", context=access.context)
                connection = read(text)
                fresh = lambda: read(self._secret(access.secret, True)).token  # noqa: E731
                return connection, KubeconfigCredential(connection.token, fresh)
            case SecretAccess():  # each check reads the Secret, so its token is always fresh
                connection = read_kubeconfig(text, f"{where}: {_secret_place(access)}")
                return connection, KubeconfigCredential(connection.token, lambda: connection.token)
            case AutoScalingAccess():
                raise AccessError(f"{where}: Auto Scaling groups are in no API server")

    def _service_account(self, cluster: str, access: ServiceAccountAccess) -> ServiceAccountCredential:
        if self._vault is None:
            raise AccessError(f"cluster {cluster}: the stack has no key for tokens: deploy it with WithTokenKey=true")
        return ServiceAccountCredential(
            cluster, access, self._vault, self._tokens, self._clock.now, writes=self._writes
        )

    def _eks_place(self, access: EksAccess, where: str, role: Callable[[Any], Any] | None) -> Connection:
        """Return the connection to an EKS cluster.

        Evenkeel caches endpoints for more clusters than connections, because each endpoint saves requests to AWS.
        """
        place, now = self._described.get(access), self._clock.now()
        if place is None or now >= place[1]:
            client = self._identity.client("eks", access.region, role(None) if role else None)
            place = (describe_eks(client, access, where), now + _EKS_PLACE_KEPT)
            self._described.put(access, place)
        return place[0]


def _garden_name(record: ClusterRecord) -> str:
    """Return the name of a seed's garden, which is also the key of its tokens. No cluster id has this form."""
    return f"{record.id}/garden"


def _secret_place(access: SecretAccess) -> str:
    return f"Secret {access.namespace}/{access.name}, {access.key}"


def _secret_of(api: KubernetesApi, access: SecretAccess, remaining: Remaining) -> str:
    """Return the kubeconfig in a Secret of the cluster that has the machine objects."""
    secret = api.get(_SECRET.path("v1", access.namespace, access.name), remaining)
    where = f"{api.name}: {_secret_place(access)}"
    if secret is None:
        problem = "it does not exist or may not be read: bind a Role for this name"
        raise AccessError(f"{where}: {problem}")
    data = get_path(secret, ("data", access.key))
    if not isinstance(data, str):
        raise AccessError(f"{where}: it has no such key")
    problem = f"{where}: not base64 of a text"
    return redacting(lambda: base64.b64decode(data, validate=True).decode(), ValueError, problem)


def _recorded(access: AwsOidcAccess | ServiceAccountAccess, where: str) -> Connection:
    """Return the connection to a server whose address and certificate authority are in the record."""
    ca_place = f"{where}: access.ca_data"
    return Connection(server=access.endpoint, ca=pem(base64.b64decode(access.ca_data), ca_place), ca_place=ca_place)
