"""Opens the clusters whose records give access to Auto Scaling groups."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from evenkeel.access_config import AutoScalingAccess
from evenkeel.adapters.auto_scaling.api import AutoScalingApi
from evenkeel.adapters.auto_scaling.cluster import AutoScalingCluster, Drainer
from evenkeel.adapters.auto_scaling.decisions import DecisionsInMemory, DecisionStore
from evenkeel.adapters.auto_scaling.instance_types import InstanceTypes
from evenkeel.adapters.auto_scaling.node_groups import NodeGroups
from evenkeel.adapters.auto_scaling.read import Refreshing
from evenkeel.adapters.aws_identity import AwsIdentity
from evenkeel.adapters.aws_session import AwsSession
from evenkeel.application.errors import AccessError, AccessRefusedError
from evenkeel.application.ports import Clock, Remaining
from evenkeel.record import ClusterRecord

# The largest number of clients. Each account needs its own, which takes 3 ms and 200 KB.
_MAX_CLIENTS = 300
_WRITER_LENGTH = 80  # in the tag of the decision, which has 256 characters


def writer_name(stack: str, cluster: str) -> str:
    """Return the name of a stack's cluster in tags. The end of a name that is too long is replaced by its digest."""
    name = f"{stack}/{cluster}"
    if len(name) <= _WRITER_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: _WRITER_LENGTH - len(digest) - 1]}~{digest}"


@dataclass(kw_only=True)
class AutoScalingClusters:
    """Opens clusters for many threads at once."""

    session: AwsSession
    clock: Clock  # used to wait, and to compute the age of answers
    # Opens the workload cluster of a record that names one. Raises AccessError, ClusterUnavailableError.
    drainer: Callable[[ClusterRecord, Remaining], Drainer]
    node_groups: NodeGroups
    decisions: DecisionStore = field(default_factory=DecisionsInMemory)
    writes: bool = True  # False for checks, whose identity may only read
    stack: str = ""  # the stack's name, which tags show
    _identity: AwsIdentity = field(init=False)
    _types: InstanceTypes = field(init=False, default_factory=InstanceTypes)
    _refreshing: dict[str, Refreshing] = field(init=False, default_factory=dict)  # by cluster

    def __post_init__(self) -> None:
        self._identity = AwsIdentity(self.session, self.clock.now, most_clients=_MAX_CLIENTS)

    def open(
        self,
        record: ClusterRecord,
        remaining: Remaining,
        *,
        consistent: bool = True,
        alone: bool = True,  # noqa: ARG002  no cluster of this kind is too large for a check beside others
    ) -> AutoScalingCluster:
        """Return the cluster. Raises AccessError."""
        access = record.access
        if not isinstance(access, AutoScalingAccess):
            raise AccessError(f"cluster {record.id}: access.kind is {access.kind}, not auto-scaling")
        arn = access.role(writes=self.writes)
        role = None if arn is None else self._identity.role(arn, access.external_id)

        api = AutoScalingApi(
            record.id,
            auto_scaling=lambda: self._identity.client("autoscaling", access.region, role, attempts=1),
            eks=lambda: self._identity.client("eks", access.region, role, attempts=1),
            node_groups=self.node_groups,
            clock=self.clock,
            remaining=remaining,
            ec2=lambda: self._identity.client("ec2", access.region, role, attempts=1),
            types=self._types,
        )
        return AutoScalingCluster(
            api,
            record,
            self._refreshing.setdefault(record.id, {}),
            store=self.decisions,
            name=writer_name(self.stack, record.id),
            consistent=consistent,
            drainer=None if record.workload is None else partial(self.drainer, record, remaining),
        )

    def zone_ids(self, record: ClusterRecord, remaining: Remaining) -> Mapping[str, str]:
        """Return the zone names by AWS zone id. Reads the whole cluster."""
        cluster = self.open(record, remaining)
        cluster.observe()
        return cluster.zone_ids()

    def refused(self, record: ClusterRecord, remaining: Remaining, *, writes: bool) -> Sequence[str]:  # noqa: ARG002
        """Return a sentence for the first read that is denied. AWS offers no way to test a right to write."""
        try:
            self.open(record, remaining, consistent=False).observe()
        except AccessRefusedError as error:
            return [str(error)]
        return []

    def needs_run(self, record: ClusterRecord) -> bool:  # noqa: ARG002
        """Return False: no credential is stored that a run must renew."""
        return False
