"""Tools that write scalables and their bounds from objects of their own, and restore what others change."""

from evenkeel.adapters.kubernetes.objects import Scalable
from evenkeel.domain.model.reasons import Reason, Rule


def hive(scalable: Scalable) -> Reason | None:
    """Return the note about Hive, or None (pkg/controller/machinepool/machinepool_controller.go)."""
    labels = scalable.labels
    if labels.get("hive.openshift.io/managed") != "true":
        return None
    return Reason.of(Rule.MANAGED_BY_HIVE, pool=labels.get("hive.openshift.io/machine-pool", ""))


def eks_anywhere(scalable: Scalable) -> Reason | None:
    """Return the note about EKS Anywhere, or None (pkg/clusterapi/apibuilder.go, autoscaler.go)."""
    prefix = "cluster.anywhere.eks.amazonaws.com/cluster"
    name, namespace = scalable.labels.get(f"{prefix}-name"), scalable.labels.get(f"{prefix}-namespace", "default")
    return None if name is None else Reason.of(Rule.MANAGED_BY_EKS_ANYWHERE, cluster=f"{namespace}/{name}")
