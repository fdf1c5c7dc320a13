"""Opens each cluster by the kind of its access. The modules of a kind are imported when a cluster needs them."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from evenkeel.access_config import AutoScalingAccess
from evenkeel.application.ports import Remaining
from evenkeel.application.rebalancing.ports import Cluster
from evenkeel.domain.model.choices import DemandStage
from evenkeel.record import ClusterRecord

if TYPE_CHECKING:
    from evenkeel.adapters.auto_scaling.clusters import AutoScalingClusters
    from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters
    from evenkeel.adapters.kubernetes.read.workload import KubernetesWorkload


class ClustersByAccess:
    """Opens clusters for many threads at once. ``kubernetes`` and ``auto_scaling`` return the same object each time."""

    def __init__(
        self, *, kubernetes: Callable[[], "RecordedClusters"], auto_scaling: Callable[[], "AutoScalingClusters"]
    ) -> None:
        self._kubernetes = kubernetes
        self._auto_scaling = auto_scaling

    def _of(self, record: ClusterRecord) -> "RecordedClusters | AutoScalingClusters":
        return self._auto_scaling() if isinstance(record.access, AutoScalingAccess) else self._kubernetes()

    def open(
        self, record: ClusterRecord, remaining: Remaining, *, consistent: bool = True, alone: bool = True
    ) -> Cluster:
        """Return the cluster that has the machine objects. Raises AccessError."""
        return self._of(record).open(record, remaining, consistent=consistent, alone=alone)

    def open_workload(self, record: ClusterRecord, remaining: Remaining, *, alone: bool = True) -> "KubernetesWorkload":
        """Return the workload cluster. Raises AccessError, ClusterUnavailableError."""
        return self._kubernetes().open_workload(record, remaining, alone=alone)

    def zone_ids(self, record: ClusterRecord, remaining: Remaining) -> Mapping[str, str]:
        """Return the zone names by AWS zone id. Reads the whole cluster."""
        return self._of(record).zone_ids(record, remaining)

    def refused(self, record: ClusterRecord, remaining: Remaining, *, writes: bool) -> Sequence[str]:
        """Return a sentence for each right that the record needs and the identity does not have."""
        missing = self._of(record).refused(record, remaining, writes=writes)
        if isinstance(record.access, AutoScalingAccess) and record.demand_stage is not DemandStage.OFF:
            workload = self.open_workload(record, remaining)
            missing = [*missing, *workload.refused(orders=record.demand_stage.orders)]
        if isinstance(record.access, AutoScalingAccess) and record.autoscaler_status is not None:
            missing = [*missing, *self.open_workload(record, remaining).refused_status(record.autoscaler_status)]
        if record.tests_drains:
            missing = [*missing, *self._kubernetes().open_drainer(record, remaining).refused()]
        return missing

    def autoscaler_at(self, record: ClusterRecord, remaining: Remaining) -> datetime | None:
        """Return when a cluster-autoscaler of the workload cluster last renewed its lease or wrote its status."""
        return self._kubernetes().autoscaler_at(record, remaining)

    def needs_run(self, record: ClusterRecord) -> bool:
        """Return True where a run must renew a token. Checks renew no token. Raises AccessError."""
        return self._of(record).needs_run(record)
