"""The rule that decides whether the nodes of two groups are so similar that the groups form one pool."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from evenkeel.domain.model.templates import NodeTemplate

# Labels that name the place or the identity of a node. They differ between similar groups.
# Cluster Autoscaler's lists for single clouds also have labels without a prefix, such as "lifecycle". This list omits
# such labels, because they may have another meaning in another cloud. The record can add them.
IGNORED_LABELS = frozenset(
    {
        # Cluster Autoscaler on every cloud (processors/nodegroupset/compare_nodegroups.go)
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/fluentd-ds-ready",
        "kops.k8s.io/instancegroup",
        # on AWS (aws_nodegroups.go)
        "alpha.eksctl.io/instance-id",
        "alpha.eksctl.io/nodegroup-name",
        "eks.amazonaws.com/nodegroup",
        "k8s.amazonaws.com/eniConfig",
        "topology.ebs.csi.aws.com/zone",
        "topology.k8s.aws/zone-id",
        # on Azure (azure_nodegroups.go)
        "kubernetes.azure.com/agentpool",
        "kubernetes.azure.com/consolidated-additional-properties",
        "kubernetes.azure.com/node-image-version",
        "topology.disk.csi.azure.com/zone",
        # on Google Cloud (gce_nodegroups.go)
        "topology.gke.io/zone",
        # Gardener's autoscaler (its compare_nodegroups.go)
        "alibabacloud.com/ecs-instance-id",
        "node.gardener.cloud/machine-name",
        "topology.cinder.csi.openstack.org/zone",
        "topology.manila.csi.openstack.org/zone",
        "worker.gardener.cloud/kubernetes-version",
        # OpenShift's operator, as flags (cluster-autoscaler-operator, clusterautoscaler.go)
        "ibm-cloud.kubernetes.io/vpc-instance-id",
        "ibm-cloud.kubernetes.io/worker-id",
        "topology.diskplugin.csi.alibabacloud.com/zone",
    }
)


@dataclass(frozen=True, kw_only=True)
class Similarity:
    """The rule of similarity, with Cluster Autoscaler's defaults (config/autoscaling_options.go:79-84).

    The ratios are shares of the larger amount, 0 to 1.
    """

    memory_ratio: Fraction = Fraction(15, 1000)  # --memory-difference-ratio, of the capacity
    allocatable_ratio: Fraction = Fraction(5, 100)  # --max-allocatable-difference-ratio
    free_ratio: Fraction = Fraction(5, 100)  # --max-free-difference-ratio
    ignored_labels: frozenset[str] = frozenset()  # --balancing-ignore-label, in addition to IGNORED_LABELS
    labels: tuple[str, ...] = ()  # --balancing-label: only these are compared; empty: all properties are

    def similar(self, a: NodeTemplate, b: NodeTemplate) -> bool:
        """Return True if the groups of these two nodes belong to one pool (``IsCloudProviderNodeInfoSimilar``).

        The capacities must have the same resources in the same amounts, except that memory may differ within its ratio.
        Allocatable and free amounts may differ within their ratios. Labels must be equal, except for ignored labels.
        Taints are not compared. If ``labels`` is not empty, only these labels are compared. Both nodes must have all of
        these labels, with equal values (``areLabelsSame``).

        Differences from Cluster Autoscaler:

        - Cluster Autoscaler always compares allocatable and free amounts. In its template of an empty group,
          allocatable equals the capacity, so an empty group is often not similar to a group with nodes. Evenkeel
          compares these amounts only if both nodes have them.
        - Cluster Autoscaler leaves out a group whose cpu and memory are unknown. Evenkeel compares the template of such
          a group only if ``labels`` is not empty. Otherwise the template is similar to no template, not even to itself.
        - Cluster Autoscaler calculates in floating point and thousandths. Evenkeel calculates exactly. The results
          agree up to 8 TiB.
        - Cluster Autoscaler's Azure comparator treats two groups of one agent pool as similar. Evenkeel does not.
        """
        kind = self.kind(a)
        return kind is not None and kind == self.kind(b) and (bool(self.labels) or self.near(a, b))

    def kind(self, template: NodeTemplate) -> Hashable | None:
        """Return the properties that two similar nodes share exactly; None: the node is similar to no node."""
        if self.labels:
            values = tuple(template.labels.get(label) for label in self.labels)
            return None if None in values else values
        if not template.complete:
            return None
        return (
            frozenset(
                (label, value)
                for label, value in template.labels.items()
                if label not in IGNORED_LABELS and label not in self.ignored_labels
            ),
            frozenset((resource, amount) for resource, amount in template.capacity.items() if resource != "memory"),
        )

    def near(self, a: NodeTemplate, b: NodeTemplate) -> bool:
        """Return True if the amounts of two nodes of the same kind are within their ratios."""
        return (
            self.near_in_memory(a, b)
            and _all_near(a.allocatable, b.allocatable, self.allocatable_ratio)
            and _all_near(a.free, b.free, self.free_ratio)
        )

    def near_in_memory(self, a: NodeTemplate, b: NodeTemplate) -> bool:
        """Return True if the memory capacities of two complete templates are within their ratio."""
        return _is_near(a.capacity["memory"], b.capacity["memory"], self.memory_ratio)


# Gardener's autoscaler compares worker pools by label and lets the amounts differ by half, so that it balances empty
# groups, too (gardener/autoscaler, config/autoscaling_options.go).
GARDENER = Similarity(memory_ratio=Fraction(1, 2), allocatable_ratio=Fraction(1, 2), free_ratio=Fraction(1, 2))


def _is_near(a: Fraction, b: Fraction, ratio: Fraction) -> bool:
    return abs(a - b) <= max(a, b) * ratio


def _all_near(a: Mapping[str, Fraction] | None, b: Mapping[str, Fraction] | None, ratio: Fraction) -> bool:
    if a is None or b is None:
        return True
    return a.keys() == b.keys() and all(_is_near(amount, b[resource], ratio) for resource, amount in a.items())
