"""Auto-discovery strings, read as Cluster Autoscaler reads them."""

import pytest

from evenkeel.domain.model.values import BadValueError
from evenkeel.domain.rebalancing.membership.discovery import Discovery, discovered


def matches(text: str, *, namespace: str = "a", cluster: str = "b", **labels: str) -> bool:
    found = Discovery.read(text)
    return discovered([found], flavour="cluster-api", namespace=namespace, cluster=cluster, labels=labels)


def test_a_label_without_a_value_is_one_with_an_empty_value() -> None:
    assert matches("clusterapi:mylabel=", mylabel="")
    assert not matches("clusterapi:mylabel=", mylabel="x")
    assert not matches("clusterapi:mylabel=")


def test_of_a_value_with_an_equals_sign_the_first_one_divides() -> None:
    assert Discovery.read("clusterapi:a=b=c").labels == {"a": "b=c"}


@pytest.mark.parametrize("text", ["clusterapi:", "clusterapi:namespace=", "clusterapi:clusterName=,namespace="])
def test_an_empty_namespace_or_cluster_chooses_nothing(text: str) -> None:
    assert matches(text)


@pytest.mark.parametrize(
    ("namespace", "labels", "expected"),
    [
        ("demo", {}, True),
        ("shoot--team--demo", {}, True),
        ("shoot--team--my-demo", {}, False),
        ("a", {"k8s.io/cluster-autoscaler/demo": ""}, True),
        ("a", {"k8s.io/cluster-autoscaler/my-demo": ""}, False),
    ],
)
def test_a_shoot_is_found_by_its_namespace_or_a_label(namespace: str, labels: dict[str, str], expected: bool) -> None:
    found = Discovery.read("mcm:k8s.io/cluster-autoscaler/demo")
    assert found.matches(flavour="gardener", namespace=namespace, cluster="b", labels=labels) is expected


@pytest.mark.parametrize(
    "text", ["clusterapi:a", "clusterapi:=b", "asg:a=b", "asg:tag=", "asg:tag==b", "clusterapi", "mcm:demo"]
)
def test_any_other_string_is_refused(text: str) -> None:
    with pytest.raises(BadValueError):
        Discovery.read(text)


@pytest.mark.parametrize(
    ("texts", "tags", "expected"),
    [
        (["asg:tag=k8s.io/cluster-autoscaler/enabled"], {"k8s.io/cluster-autoscaler/enabled": "true"}, True),
        (["asg:tag=a,b=x"], {"a": "", "b": "x"}, True),
        (["asg:tag=a,b=x"], {"a": "", "b": "y"}, False),
        (["asg:tag=a,b=x"], {"b": "x"}, False),
        (["asg:tag=a="], {"a": "any"}, True),
        (["asg:tag=a", "asg:tag=b"], {"a": ""}, False),  # cluster-autoscaler joins the tags of its flags
        (["asg:tag=a=x", "asg:tag=a=y"], {"a": "y"}, True),  # of one key, its last value counts
        (["asg:tag=a=x", "asg:tag=a=y"], {"a": "x"}, False),
        (["asg:tag=a=x", "asg:tag=a"], {"a": "z"}, True),
        (["asg:tag=a=x,a=y"], {"a": "y"}, True),
        (["clusterapi:a=b"], {}, True),
    ],
)
def test_an_auto_scaling_group_is_found_by_all_tags(texts: list[str], tags: dict[str, str], expected: bool) -> None:
    strings = [Discovery.read(text) for text in texts]
    assert discovered(strings, flavour="auto-scaling", namespace="", cluster="", labels=tags) is expected
