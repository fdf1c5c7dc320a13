"""OpenShift's ClusterAutoscaler: it says how many nodes the cluster may have. It is never written."""

from collections.abc import Iterable

from evenkeel.adapters.kubernetes.objects import Kind, Object, get_path
from evenkeel.adapters.kubernetes.owners.base import CapOwner, ref_of
from evenkeel.domain.model.groups import NodeCap
from evenkeel.domain.model.values import BadValueError, read_count


class ClusterAutoscaler(CapOwner):
    """``spec.resourceLimits.maxNodesTotal`` (cluster-autoscaler-operator clusterautoscaler_types.go:43-125)."""

    kind = Kind(
        "autoscaling.openshift.io",
        ("v1",),
        "ClusterAutoscaler",
        "clusterautoscalers",
        optional=True,
        namespaced=False,
        may_be_refused=True,
    )

    def cap(self, items: Iterable[Object]) -> NodeCap | None:
        caps = []
        for item in items:
            try:
                nodes = read_count(get_path(item, ("spec", "resourceLimits", "maxNodesTotal")))
            except BadValueError:
                continue
            if nodes:  # 0: no limit, as in Cluster Autoscaler's --max-nodes-total
                caps.append(
                    NodeCap(ref=ref_of(self.kind, item), field="spec.resourceLimits.maxNodesTotal", nodes=nodes)
                )
        return min(caps, key=lambda cap: cap.nodes, default=None)
