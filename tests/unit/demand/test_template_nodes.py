"""The next node of a group: its sample, the valid labels and taints, and its daemon pods."""

from datetime import timedelta
from typing import Any

import pytest

from evenkeel.domain.demand.order_memory import node_digest, pods_digest
from evenkeel.domain.demand.pod_groups import PodGroups
from evenkeel.domain.demand.template_node import TemplateNode, TemplateNodes, is_starting
from evenkeel.domain.demand.volumes import Volumes
from evenkeel.domain.model.demand import DemandPolicy, ScaleDownOptions
from evenkeel.domain.model.templates import NodeTemplate
from evenkeel.domain.model.workload import (
    HOSTNAME,
    ZONE,
    Node,
    Owner,
    Pod,
    PodAffinityTerm,
    TopologySpreadConstraint,
    Workload,
)
from tests.builders import MINUTE, NOW
from tests.parts import replace
from tests.workloads import (
    EVERYTHING,
    amounts,
    group_key,
    node,
    offer,
    pod,
    pool_offer,
    requirement,
    selector,
    taint,
    template,
)

DAY = timedelta(days=1)
RED = taint("team=red:NoSchedule")


def made(name: str, *, age: timedelta = DAY, **fields: Any) -> Node:
    zone = fields.pop("zone", "a")
    return node(name, zone, group=group_key(zone), created_at=NOW - age, **fields)


def daemon(name: str, on: str = "", cpu: str = "100m", **fields: Any) -> Pod:
    fields.setdefault("tolerations", EVERYTHING)
    where = {"node": on} if on else {"unscheduled": None}
    return pod(f"{name}-{on}", cpu=cpu, owner=Owner("DaemonSet", name), namespace="kube-system", **where, **fields)


def fresh(*nodes: Node, zone: str = "a", promised: NodeTemplate | None = None, **parts: Any) -> TemplateNode:
    """Return the next node of a zone, in a pool with this template."""
    groups = tuple(offer(each, template=promised or template()) for each in "ab")
    pools = replace(pool_offer(zones="ab"), groups=groups)
    found = TemplateNodes(Workload(nodes=nodes, **parts), DemandPolicy())
    return found.of_pool(pools)[group_key(zone)]


def test_the_newest_ready_node_is_the_sample() -> None:
    old, new = made("z", size={"cpu": "8"}), made("a", age=MINUTE, size={"cpu": "2"})
    assert fresh(old, new).node.allocatable["cpu"] == 2
    assert fresh(old, replace(new, ready=False)).node.allocatable["cpu"] == 8
    assert fresh(old, replace(new, unschedulable=True)).node.allocatable["cpu"] == 8
    assert fresh(old, replace(new, deleting=True)).node.allocatable["cpu"] == 8


def test_without_a_node_the_template_precedes_the_node_of_another_zone() -> None:
    other = made("n", zone="b", size={"cpu": "2", "ephemeral-storage": "10Gi"})
    assert fresh(other).node.allocatable["cpu"] == 4
    assert fresh(other).node.allocatable["ephemeral-storage"] == 10 * 2**30, "the template does not name it"
    assert fresh(other, promised=NodeTemplate()).node.allocatable["cpu"] == 2
    assert fresh(promised=template(cpu="6")).node.allocatable["cpu"] == 6


def test_a_template_without_allocatable_reserves_the_share_that_a_node_of_its_pool_reserves() -> None:
    sizes = {"capacity": amounts(cpu="4", memory="16Gi"), "allocatable": amounts(cpu="3", memory="15Gi", pods="50")}
    usual = replace(template(cpu="8"), allocatable=None, assumed=frozenset({"pods"}))
    found = fresh(made("n", zone="b", **sizes), promised=usual).node.allocatable
    assert (found["cpu"], found["memory"], found["pods"]) == (6, 15 * 2**30, 50)


def test_usual_values_give_way_to_the_nodes_of_the_pool() -> None:
    usual = replace(template(labels={"kubernetes.io/arch": "amd64"}), assumed=frozenset({"kubernetes.io/arch"}))
    arm = made("n", zone="b", labels={"kubernetes.io/arch": "arm64"})
    assert fresh(arm, promised=usual).node.labels["kubernetes.io/arch"] == "arm64"
    assert fresh(promised=usual).node.labels["kubernetes.io/arch"] == "amd64"


TYPE = "node.kubernetes.io/instance-type"


@pytest.mark.parametrize(("type", "cpu"), [("m5.large", 2), ("m5.xlarge", 4)])
def test_a_size_of_a_clouds_list_gives_way_to_a_node_of_the_same_type(type: str, cpu: int) -> None:
    listed = replace(template(labels={TYPE: "m5.large"}), allocatable=None, assumed=frozenset({"cpu", "memory"}))
    sizes = {"capacity": amounts(cpu="2", memory="8Gi"), "allocatable": amounts(cpu="2", memory="7Gi")}
    nodes = [made(f"n-{number}", zone="b", labels={TYPE: type}, taints=(RED,), **sizes) for number in range(2)]
    found = fresh(*nodes, promised=listed).node
    assert found.allocatable["cpu"] == cpu
    assert found.taints == (RED,), "a cloud's list names no taints"


def test_a_device_of_a_clouds_list_is_not_on_the_node_of_a_group_that_shows_none() -> None:
    listed = template(**{"nvidia.com/gpu": "1"})
    node = made("n")
    assert fresh(node, promised=listed).node.allocatable["nvidia.com/gpu"] == 1
    unsure = replace(listed, assumed=frozenset({"nvidia.com/gpu"}))
    assert "nvidia.com/gpu" not in fresh(node, promised=unsure).node.allocatable


def test_a_taint_or_label_set_by_hand_on_one_node_is_on_no_node_of_another_zone() -> None:
    odd = made("odd", age=MINUTE, zone="b", taints=(RED,), labels={"by": "hand"})
    alone = fresh(odd, promised=NodeTemplate()).node
    assert alone.taints == (), "the only node of the pool"
    plain = [made(f"plain-{number}", zone="b", labels={"disk": "fast"}) for number in range(2)]
    for promised in (NodeTemplate(), template()):
        found = fresh(odd, *plain, promised=promised).node
        assert (found.labels, found.taints) == ({ZONE: "a", "disk": "fast"}, ())


def test_a_zone_at_zero_has_the_labels_of_its_template_although_the_nodes_lack_them() -> None:
    promised = template(labels={"disk": "fast"})
    assert fresh(made("n", zone="b"), promised=promised).node.labels["disk"] == "fast"
    assert fresh(made("n", zone="b", labels={"disk": "slow"}), promised=promised).node.labels["disk"] == "fast"


def test_taints_of_most_nodes_count_only_where_the_template_is_not_complete() -> None:
    nodes = [made(f"n-{number}", zone="b", taints=(RED,)) for number in range(2)]
    assert fresh(*nodes, promised=NodeTemplate()).node.taints == (RED,)
    assert fresh(*nodes).node.taints == ()
    blue = taint("team=blue:NoSchedule")
    assert fresh(*nodes, promised=NodeTemplate(taints=(blue,))).node.taints == (blue,), "one per key and effect"


def test_a_label_with_the_value_of_a_zone_is_the_zone_only_where_it_follows_the_zone() -> None:
    def in_zone(zone: str) -> Node:
        labels = {ZONE: zone, "topology.disk.csi.azure.com/zone": zone, "tier": "b"}
        return made(f"n-{zone}", zone="b", labels=labels)

    found = fresh(in_zone("b"), in_zone("c"), in_zone("d")).node.labels
    assert found == {ZONE: "a", "topology.disk.csi.azure.com/zone": "a", "tier": "b"}


@pytest.mark.parametrize("age", [MINUTE, 30 * MINUTE, DAY / 2])
def test_a_node_that_lacks_devices_of_older_nodes_is_no_sample_at_any_age(age: timedelta) -> None:
    old = made("old", size={"nvidia.com/gpu": 1})
    assert fresh(old, made("new", age=age)).node.allocatable["nvidia.com/gpu"] == 1
    assert fresh(old, made("new", age=age, size={"nvidia.com/gpu": 0})).node.allocatable["nvidia.com/gpu"] == 1
    better = made("new", age=age, size={"nvidia.com/gpu": 2})
    assert fresh(old, better).node.allocatable["nvidia.com/gpu"] == 2
    assert "nvidia.com/gpu" not in fresh(made("older", age=2 * DAY), made("new", age=age)).node.allocatable


def test_a_zone_whose_only_driver_is_silent_has_the_devices_of_most_nodes_of_its_pool() -> None:
    others = [made(f"n-{number}", zone="b", size={"nvidia.com/gpu": 1}) for number in range(2)]
    silent = made("silent", size={"nvidia.com/gpu": 0})
    assert fresh(silent, *others).node.allocatable["nvidia.com/gpu"] == 1
    assert fresh(silent, others[0]).node.allocatable["nvidia.com/gpu"] == 0, "one of two"


def test_silent_nodes_do_not_outvote_the_nodes_that_were_there_before_their_driver_failed() -> None:
    old = made("old", zone="b", age=9 * DAY, size={"nvidia.com/gpu": 1})
    older = made("older", zone="b", age=10 * DAY, size={"nvidia.com/gpu": 1})
    silent = [made(f"n-{number}", zone=zone) for zone in "bb" for number in range(9)]
    assert fresh(made("only", zone="a"), old, older, *silent).node.allocatable["nvidia.com/gpu"] == 1


def test_nodes_that_are_odd_still_give_a_sample() -> None:
    """A node without a group, two nodes of one machine, and a node whose creation time is unknown."""
    stray = replace(made("stray", size={"cpu": "64"}), group=None)
    twin = made("twin-1", age=MINUTE, size={"cpu": "2"})
    ageless = replace(made("ageless", size={"cpu": "8"}), created_at=None)
    assert fresh(stray, ageless, twin, replace(twin, name="twin-2")).node.allocatable["cpu"] == 2
    assert fresh(stray, ageless).node.allocatable["cpu"] == 8


def test_a_label_counts_if_most_nodes_or_the_template_have_it() -> None:
    labels = {"disk": "fast"}
    new = made("new", age=MINUTE, labels=labels, taints=(RED,))
    assert (fresh(new).node.labels.get("disk"), fresh(new).node.taints) == ("fast", (RED,)), "one of one"
    for others in (1, 2):
        nodes = [made(f"old-{number}") for number in range(others)]
        assert fresh(new, *nodes).node.labels == {ZONE: "a"}
        assert "disk" not in fresh(new, *nodes).node.labels
        assert fresh(new, *nodes).node.taints == ()
        promised = template(labels=labels, taints=(RED,))
        assert fresh(new, *nodes, promised=promised).node.labels["disk"] == "fast"
        assert fresh(new, *nodes, promised=promised).node.taints == (RED,)
    most = [made("old", labels=labels, taints=(RED,)), made("plain"), new]
    assert (fresh(*most).node.labels["disk"], fresh(*most).node.taints) == ("fast", (RED,))
    other_zone = fresh(new, made("old"), zone="b").node
    assert (other_zone.labels.get("disk"), other_zone.labels[ZONE]) == (None, "b")


def test_daemon_sets_run_where_their_templates_allow_it() -> None:
    listed = (daemon("agent", cpu="500m"), daemon("gpu", node_selector={"gpu": "yes"}), daemon("plain", tolerations=()))
    at_zero = fresh(promised=template(taints=(RED,)), daemon_sets=listed)
    assert [each.owner.name for each in at_zero.pods if each.owner] == ["agent"]
    # A running pod shows admission's changes of the template.
    running = daemon("agent", on="n", cpu="700m")
    mirror = pod("proxy", node="n", owner=None, annotations={"kubernetes.io/config.mirror": "x"})
    gone = daemon("gone", on="n")
    found = fresh(made("n"), pods=(running, mirror, gone), daemon_sets=listed)
    assert {str(each) for each in found.pods} == {str(running), str(mirror), "kube-system/plain-"}


def test_daemon_pods_are_read_from_the_node_with_most_of_them() -> None:
    old, new = made("old"), made("new", age=MINUTE)
    ended = (daemon("once", on="old", phase="Succeeded"), daemon("gone", on="old", deleted_at=NOW))
    pods = (daemon("agent", on="old"), daemon("logs", on="old"), daemon("agent", on="new"), *ended)
    assert {str(each) for each in fresh(old, new, pods=pods).pods} == {str(each) for each in pods[:2]}


def test_the_devices_of_the_sample_precede_the_template() -> None:
    promised = template(**{"nvidia.com/gpu": "1"})
    assert fresh(made("n"), promised=promised).node.allocatable["nvidia.com/gpu"] == 1
    assert fresh(made("n", size={"nvidia.com/gpu": 2}), promised=promised).node.allocatable["nvidia.com/gpu"] == 2


def test_a_node_starts_until_the_provision_timeout_or_the_startup_time() -> None:
    policy, hour, passing = (
        DemandPolicy(),
        timedelta(hours=1),
        taint("startup-taint.cluster-autoscaler.kubernetes.io/a:NoSchedule"),
    )

    def starts(age: timedelta, **fields: Any) -> bool:
        there = made("n", age=age, **fields)
        group = offer(ignored_taints=frozenset({"recycle"}), options=ScaleDownOptions(provision_timeout=hour))
        return is_starting(there, fresh(there).node, NOW, policy, group)

    assert policy.startup < hour
    assert [starts(age, ready=False) for age in (hour - MINUTE, hour)] == [True, False]
    for tainted in (passing, taint("recycle=true:NoSchedule")):
        assert [starts(age, taints=(tainted,)) for age in (policy.startup, policy.startup + MINUTE)] == [True, False]


# ---------------------------------------------------------------- digests


def digest(asking: Pod, there: TemplateNode | None = None) -> str:
    kind = PodGroups(Volumes(Workload())).of(asking)
    return f"{pods_digest(kind)}/{node_digest(kind, there or fresh(made('n')))}"


def test_recreated_pods_have_one_digest_and_another_spec_another() -> None:
    one = pod("web-1", labels={"app": "web", "job": "1"})
    assert digest(one) == digest(pod("web-2", labels={"app": "web", "job": "2"}))
    changed = (
        pod(cpu="1100m"),
        pod(node_selector={"disk": "fast"}),
        pod(tolerations=EVERYTHING),
        pod(spread=(TopologySpreadConstraint(key=ZONE, max_skew=1, selector=selector("app in web")),)),
        pod(anti_affinity=(PodAffinityTerm(key=HOSTNAME, selector=selector("app in web")),)),
    )
    assert len({digest(each) for each in (one, *changed)}) == 6


def test_pods_that_match_their_own_terms_have_another_digest() -> None:
    term = (PodAffinityTerm(key=HOSTNAME, selector=(requirement("app in web"),)),)
    assert digest(pod(labels={"app": "web"}, anti_affinity=term)) != digest(pod(labels={}, anti_affinity=term))
    other = pod(labels={"app": "web"}, anti_affinity=term, namespace="other")
    assert digest(pod(labels={"app": "web"}, anti_affinity=term)) != digest(other)


def test_an_expected_node_has_another_digest_where_it_matters_to_pods() -> None:
    asking = pod(node_selector={"disk": "fast"})
    fast = {"disk": "fast"}
    one = fresh(made("n", labels=fast))
    assert digest(asking, one) == digest(asking, fresh(made("m", labels={**fast, "id": "m"})))
    jitter = replace(one, node=replace(one.node, allocatable={**one.node.allocatable, **amounts(memory="16777210Ki")}))
    assert digest(asking, one) == digest(asking, jitter)
    assert digest(asking, one) != digest(asking, fresh(made("n")))
    assert digest(asking, one) != digest(asking, fresh(made("n", labels=fast, size={"cpu": "3"})))
    assert digest(asking, one) != digest(asking, replace(one, pods=(daemon("agent", cpu="2"),)))
    zonal = pod(node_selector={ZONE: "a"})
    assert digest(zonal, fresh(made("n"))) != digest(zonal, fresh(made("n"), zone="b"))
