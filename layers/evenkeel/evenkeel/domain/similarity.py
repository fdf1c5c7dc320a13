"""Which node groups are so much alike that they make one pool: Cluster Autoscaler's rule for balancing."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, Protocol, TypeVar

from evenkeel.domain.templates import NodeTemplate

# Labels that say where a node is or which one it is, not what it is; they differ between groups that are alike.
# Of the lists of single clouds only names with a prefix: those can mean nothing else in another cloud. "lifecycle",
# "agentpool", "poolName" and the like could: who wants them ignored says so.
IGNORED_LABELS = frozenset(
    {
        # Cluster Autoscaler everywhere (processors/nodegroupset/compare_nodegroups.go)
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


class _Ordered(Hashable, Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=_Ordered)


@dataclass(frozen=True, kw_only=True)
class Similarity:
    """When two groups are alike, with Cluster Autoscaler's defaults (config/autoscaling_options.go:79-84).

    The ratios are shares of the larger amount, 0 to 1.
    """

    memory_ratio: Fraction = Fraction(15, 1000)  # --memory-difference-ratio, of the capacity
    allocatable_ratio: Fraction = Fraction(5, 100)  # --max-allocatable-difference-ratio
    free_ratio: Fraction = Fraction(5, 100)  # --max-free-difference-ratio
    ignored_labels: frozenset[str] = frozenset()  # --balancing-ignore-label, on top of IGNORED_LABELS
    labels: tuple[str, ...] = ()  # --balancing-label: these decide alone, nothing else is compared

    def similar(self, a: NodeTemplate, b: NodeTemplate) -> bool:
        """Whether the groups of these two nodes belong together (``IsCloudProviderNodeInfoSimilar``).

        Both have the same resources, in the same amounts, memory within its ratio; allocatable and free of every
        resource within theirs; and the same labels, except the ignored ones. Taints are not compared. With a list of
        labels, both have all of these and their values agree (``areLabelsSame``).

        Where this differs from Cluster Autoscaler:

        - It compares whole nodes only: a template's allocatable is its capacity, so that a group at zero is often
          not similar to one whose node keeps something back. Here allocatable and free are compared if both say them.
        - It has no node for a group without cpu and memory, and leaves it out. So does this: such a template is
          similar to none, itself included, unless a list of labels decides.
        - It works in floating point and thousandths; this is exact. Up to 8 TiB they decide alike.
        - Its Azure comparator holds two groups for similar whenever they name the same agent pool. This does not.
        """
        kind = self.kind(a)
        return kind is not None and kind == self.kind(b) and (bool(self.labels) or self.near(a, b))

    def kind(self, template: NodeTemplate) -> Hashable | None:
        """What two similar nodes have exactly in common, or None for one that is similar to none."""
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
        """Whether the amounts that may differ a little do not differ more, for two of the same kind."""
        return (
            self.near_in_memory(a, b)
            and _all_near(a.allocatable, b.allocatable, self.allocatable_ratio)
            and _all_near(a.free, b.free, self.free_ratio)
        )

    def near_in_memory(self, a: NodeTemplate, b: NodeTemplate) -> bool:
        """Whether the memory capacities of two complete templates are within their ratio."""
        return _is_near(a.capacity["memory"], b.capacity["memory"], self.memory_ratio)


# Gardener's own autoscaler compares worker pools by label and lets the amounts differ by half, so that groups at zero
# are balanced too (gardener/autoscaler, config/autoscaling_options.go).
GARDENER = Similarity(memory_ratio=Fraction(1, 2), allocatable_ratio=Fraction(1, 2), free_ratio=Fraction(1, 2))


def _is_near(a: Fraction, b: Fraction, ratio: Fraction) -> bool:
    return abs(a - b) <= max(a, b) * ratio


def _all_near(a: Mapping[str, Fraction] | None, b: Mapping[str, Fraction] | None, ratio: Fraction) -> bool:
    if a is None or b is None:
        return True
    return a.keys() == b.keys() and all(_is_near(amount, b[resource], ratio) for resource, amount in a.items())


class _Set(Generic[K]):
    """Groups of one kind that are all similar to one another.

    Whoever is near the least and the most of every amount in it is near everything between: two comparisons stand for
    one with every member.
    """

    def __init__(self, key: K, template: NodeTemplate) -> None:
        self.keys = [key]
        self.least = self.most = template

    def takes(self, template: NodeTemplate, rule: Similarity) -> bool:
        return rule.near(self.least, template) and (self.most is self.least or rule.near(self.most, template))

    def add(self, key: K, template: NodeTemplate) -> None:
        self.keys.append(key)
        self.least = _extreme(min, self.least, template)
        self.most = _extreme(max, self.most, template)


def _extreme(pick: Callable[[Fraction, Fraction], Fraction], a: NodeTemplate, b: NodeTemplate) -> NodeTemplate:
    """Of every amount in which two near nodes may differ the lesser, or the larger."""

    def each(a: Mapping[str, Fraction] | None, b: Mapping[str, Fraction] | None) -> Mapping[str, Fraction] | None:
        if a is None or b is None:
            return b if a is None else a
        return {resource: pick(amount, b[resource]) for resource, amount in a.items()}

    return NodeTemplate(
        capacity={"memory": pick(a.capacity["memory"], b.capacity["memory"])},
        allocatable=each(a.allocatable, b.allocatable),
        free=each(a.free, b.free),
    )


def find_sets(templates: Mapping[K, NodeTemplate], rule: Similarity) -> list[tuple[K, ...]]:
    """Every group in exactly one set, sets and members in the order of their keys, whatever the order given.

    "Similar" is no equivalence: of three groups the first may be similar to the second and the second to the third,
    but not the first to the third. Cluster Autoscaler asks anew for each group that it grows; a pool needs one answer.
    Here all members of a set are similar to one another. Within a kind (labels and exact amounts, found by hash) the
    groups are taken from the least memory up, equals by allocatable and free, and each joins the first set that it
    fits. Names play no part, and where similarity happens to be an equivalence, the sets are its classes.
    """
    kinds: dict[Hashable, list[K]] = defaultdict(list)
    sets: list[list[K]] = []
    for key, template in templates.items():
        kind = rule.kind(template)
        if kind is None:
            sets.append([key])
        else:
            kinds[kind].append(key)
    for keys in kinds.values():
        sets += [keys] if rule.labels else _sets_of_one_kind({key: templates[key] for key in keys}, rule)
    return sorted(tuple(sorted(keys)) for keys in sets)


def _sets_of_one_kind(templates: Mapping[K, NodeTemplate], rule: Similarity) -> list[list[K]]:
    found: list[_Set[K]] = []
    open_: list[_Set[K]] = []
    for key in sorted(templates, key=lambda key: _amounts(templates[key])):
        template = templates[key]
        # Memory only grows from here: a set whose least is too far below now is so for all that follow.
        open_ = [known for known in open_ if rule.near_in_memory(known.least, template)]
        home = next((known for known in open_ if known.takes(template, rule)), None)
        if home is None:
            home = _Set(key, template)
            found.append(home)
            open_.append(home)
        else:
            home.add(key, template)
    return [known.keys for known in found]


def _amounts(template: NodeTemplate) -> Any:
    """What the groups of a kind are ordered by. Equals fit the same sets."""
    return (
        template.capacity["memory"],
        sorted((template.allocatable or {}).items()),
        sorted((template.free or {}).items()),
    )
