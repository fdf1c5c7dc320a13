"""Similar node groups, with Cluster Autoscaler's own cases (processors/nodegroupset/*_test.go)."""

from fractions import Fraction
from typing import Any

import pytest

from evenkeel.domain.model.similarity import GARDENER, IGNORED_LABELS, Similarity
from evenkeel.domain.model.templates import NodeTemplate, Taint
from evenkeel.domain.rebalancing.membership.quantities import read_quantity
from evenkeel.domain.rebalancing.membership.similarity import find_sets
from tests.parts import replace

CA = Similarity()


def amounts(**quantities: str | int) -> dict[str, Fraction]:
    return {resource: read_quantity(quantity) for resource, quantity in quantities.items()}


def node(cpu: str | int = 1, memory: str | int = 2000, **said: Any) -> NodeTemplate:
    """Return a node whose allocatable is its capacity."""
    capacity = amounts(cpu=cpu, memory=memory)
    return NodeTemplate(**{"capacity": capacity, "allocatable": capacity, **said})


def alike(a: NodeTemplate, b: NodeTemplate, rule: Similarity = CA) -> bool:
    assert rule.similar(a, b) == rule.similar(b, a)
    return rule.similar(a, b)


@pytest.mark.parametrize(
    ("one", "other", "similar"),
    [
        (node(), node(capacity=amounts(cpu="1001m", memory=2000)), False),
        (node(), node(allocatable=amounts(cpu="500m", memory=2000)), False),
        (node(), node(capacity=amounts(cpu=1, memory=2000) | {"nvidia.com/gpu": Fraction(1)}), False),
        (node(), node(allocatable=amounts(cpu=1)), False),
        (node(), node(allocatable={}), False),
        (node(), node(allocatable=amounts(cpu="999m", memory=2000)), True),
        (node(), node(allocatable=amounts(cpu="950m", memory=1900)), True),
        (node(), node(allocatable=amounts(cpu="949m", memory=2000)), False),
        (node(), node(taints=(Taint("spot", "", "NoSchedule"),)), True),
        (node(memory=1000), node(memory=986), True),
        (node(memory=1000), node(memory=985), True),
        (node(memory=1000), node(memory=984), False),
        (node(memory="16116152Ki"), node(memory="15944120Ki"), True),  # two m5.xlarge
        (node(memory="16116152Ki"), node(memory="16438475Ki"), False),
        (node(memory="259970052Ki"), node(memory="257217528Ki"), True),  # two m5.16xlarge
        (node(memory="259970052Ki"), node(memory="265169453Ki"), False),
    ],
)
def test_amounts_may_differ_by_the_ratios_of_cluster_autoscaler(
    one: NodeTemplate, other: NodeTemplate, similar: bool
) -> None:
    assert alike(one, other) is similar


def test_free_amounts_may_differ_by_five_percent() -> None:
    free = node(free=amounts(cpu="500m", memory=1000))
    assert alike(free, node(free=amounts(cpu="499m", memory=999)))
    assert not alike(free, node(free=amounts(cpu="400m", memory=1000)))
    assert not alike(free, node(free=amounts(cpu="500m")))


def test_each_ratio_is_for_its_own_amounts() -> None:
    def said(value: int) -> dict[str, NodeTemplate]:
        kept = amounts(memory=value)
        return {
            "memory": node(memory=value, allocatable=None),
            "allocatable": node(allocatable=kept),
            "free": node(free=kept),
        }

    for ratio, before in said(100).items():
        rule = Similarity(memory_ratio=Fraction(0), allocatable_ratio=Fraction(0), free_ratio=Fraction(0))
        rule = replace(rule, **{f"{ratio}_ratio": Fraction(1, 10)})
        for name, after in said(90).items():
            assert alike(said(100)[name], after, rule) is (name == ratio)
        assert not alike(before, said(89)[ratio], rule)


def test_a_node_with_negative_free_amounts_is_similar_to_none() -> None:
    assert not alike(node(free=amounts(cpu=-1)), node(free=amounts(cpu=-1)))
    assert find_sets({"a": node(free=amounts(cpu=-1)), "b": node(free=amounts(cpu=-1))}, CA) == [("a",), ("b",)]


@pytest.mark.parametrize("field", ["allocatable", "free"])
def test_an_amount_that_only_one_node_has_is_not_compared(field: str) -> None:
    assert alike(node(**{field: None}), node(**{field: amounts(cpu="100m", memory=100)}))


def test_every_label_counts_that_is_not_ignored() -> None:
    bear = node(labels={"test-label": "test-value", "character": "winnie the pooh"})
    assert not alike(bear, node(labels={"test-label": "test-value"}))
    assert not alike(bear, node(labels={"test-label": "test-value", "character": "piglet"}))
    assert alike(bear, node(labels={"character": "winnie the pooh", "test-label": "test-value"}))


def test_labels_of_a_nodes_place_are_ignored_for_every_cloud() -> None:
    assert {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/fluentd-ds-ready",
        "kops.k8s.io/instancegroup",
        "topology.ebs.csi.aws.com/zone",
        "topology.k8s.aws/zone-id",
        "topology.disk.csi.azure.com/zone",
        "topology.gke.io/zone",
    } <= IGNORED_LABELS


@pytest.mark.parametrize(
    "label", ["worker.gardener.cloud/pool", "lifecycle", "agentpool", "node.kubernetes.io/instance-type"]
)
def test_labels_of_a_nodes_kind_count_unless_the_record_ignores_them(label: str) -> None:
    a, b = node(labels={label: "a"}), node(labels={label: "b"})
    assert not alike(a, b)
    assert alike(a, b, replace(CA, ignored_labels=frozenset({label})))


def test_a_list_of_labels_decides_alone() -> None:
    rule = replace(CA, labels=("team", "size"))
    small = NodeTemplate(labels={"team": "sea", "size": "s", "other": "x"})
    assert alike(small, node(cpu=64, labels={"team": "sea", "size": "s"}), rule)
    assert not alike(small, node(labels={"team": "sea", "size": "m"}), rule)
    assert not alike(node(labels={"team": "sea"}), node(labels={"team": "sea"}), rule)


def test_gardener_lets_amounts_differ_by_half_and_nothing_else() -> None:
    assert alike(node(memory="16Gi"), node(memory="8Gi"), GARDENER)
    assert not alike(node(memory="16Gi"), node(memory="7Gi"), GARDENER)
    assert not alike(node(cpu=4), node(cpu=3), GARDENER)
    assert alike(
        node(allocatable=amounts(cpu=1), free=amounts(cpu=1)),
        node(allocatable=amounts(cpu="500m"), free=amounts(cpu="500m")),
        GARDENER,
    )


def test_a_node_without_capacity_is_similar_to_none() -> None:
    assert not alike(NodeTemplate(), NodeTemplate())
    for half in (amounts(cpu=1), amounts(memory=1000)):
        assert not alike(NodeTemplate(capacity=half), NodeTemplate(capacity=half))
    assert find_sets({"a": NodeTemplate(), "b": node(), "c": NodeTemplate()}, CA) == [("a",), ("b",), ("c",)]
