"""The cluster of an Auto Scaling group by its tags, and the groups that installers mark as control planes."""

import pytest

from evenkeel.adapters.auto_scaling.installers import clusters_of, control_plane_tag
from evenkeel.adapters.auto_scaling.read import read_groups
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.rebalancing.membership.pools import find_pools
from evenkeel.record import ClusterPolicy
from evenkeel.texts.english import sentence
from tests.unit.auto_scaling.test_read_groups import NOW, described, read

TEMPLATE = "k8s.io/cluster-autoscaler/node-template/"


@pytest.mark.parametrize(
    ("tags", "cluster"),
    [
        ({"eks:cluster-name": "blue", "kubernetes.io/cluster/green": "owned"}, "blue"),
        ({"kubernetes.io/cluster/blue": "owned", "k8s.io/cluster-autoscaler/green": "true"}, "blue"),
        ({"k8s.io/cluster-autoscaler/enabled": "true", "k8s.io/cluster-autoscaler/blue": "owned"}, "blue"),
        ({"kubernetes.io/cluster/azure": "shared", "kubernetes.io/cluster/blue": "owned"}, "blue"),
        ({"alpha.eksctl.io/cluster-name": "blue"}, "blue"),
        ({"KubernetesCluster": "blue.example.com"}, "blue.example.com"),
        ({"k8s.io/cluster-autoscaler/node-template/label/team": "a", "k8s.io/cluster-autoscaler/enabled": "1"}, ""),
        ({"eks:cluster-name": "", "Name": "blue"}, ""),
    ],
)
def test_tags_name_the_cluster(tags: dict[str, str], cluster: str) -> None:
    assert next(iter(clusters_of(tags)), "") == cluster


@pytest.mark.parametrize(
    ("name", "tags", "mark"),
    [
        ("a", {"k8s.io/role/control-plane": "1", "k8s.io/role/master": "1"}, "k8s.io/role/control-plane"),
        ("a", {"k8s.io/role/master": "1"}, "k8s.io/role/master"),
        ("a", {"k8s.io/role/apiserver": "1"}, "k8s.io/role/apiserver"),
        ("a", {"k8s.io/role/bastion": "1"}, "k8s.io/role/bastion"),
        ("a", {"kubernetes.io/role/master": ""}, "kubernetes.io/role/master"),
        ("a", {"kube-aws:role": "etcd"}, "kube-aws:role=etcd"),
        ("blue-server-rke2-nodepool", {"Role": "server"}, "Role=server"),
        (
            "a",
            {f"{TEMPLATE}label/node-role.kubernetes.io/master": ""},
            f"{TEMPLATE}label/node-role.kubernetes.io/master",
        ),
        ("a", {f"{TEMPLATE}taint/node-role.kubernetes.io/etcd": ":"}, f"{TEMPLATE}taint/node-role.kubernetes.io/etcd"),
        ("a", {"k8s.io/role/node": "1"}, ""),
        ("a", {"kubernetes.io/role/elb": "1"}, ""),
        ("web", {"Role": "server"}, ""),
        ("a", {f"{TEMPLATE}label/node-role.kubernetes.io/worker": ""}, ""),
    ],
)
def test_installers_mark_groups_that_run_no_workers(name: str, tags: dict[str, str], mark: str) -> None:
    assert control_plane_tag(name, tags) == mark


def test_a_tagged_control_plane_is_frozen_with_what_to_do() -> None:
    frozen = read(described({"k8s.io/role/control-plane": "1"})).frozen_because
    assert frozen is not None
    assert frozen.rule is Rule.CONTROL_PLANE
    assert sentence(frozen) == (
        "tag k8s.io/role/control-plane marks a control plane or a bastion, whose instances cannot move to another "
        "zone: remove tag evenkeel.dev/pool"
    )


def test_an_untagged_control_plane_is_in_no_pool_and_says_why() -> None:
    item = described({"k8s.io/role/master": "1"})
    item["Tags"] = [tag for tag in item["Tags"] if tag["Key"] != "evenkeel.dev/pool"]
    (member,), _ = read_groups([item], ClusterPolicy(), NOW)
    policy = ClusterPolicy.model_validate({"pools": {"discover": "similar"}}).policy()
    pools, (skipped,) = find_pools([member.group], policy, {})
    assert pools == []
    assert sentence(skipped.reason, skipped.flavour) == (
        "in no pool: tag k8s.io/role/master marks a control plane or a bastion, whose instances cannot move to "
        "another zone"
    )
