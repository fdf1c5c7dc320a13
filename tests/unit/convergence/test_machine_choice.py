"""The machine of a zone that may be drained, and the reasons by pods that each other one stays."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from evenkeel.domain.convergence.machine_choice import choose
from evenkeel.domain.demand.scale_down import SCALE_DOWN_DISABLED
from evenkeel.domain.model.convergence import Choice
from evenkeel.domain.model.groups import Machine
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.workload import (
    Claim,
    Node,
    NodeSelectorTerm,
    Owner,
    Pod,
    PodDisruptionBudget,
    PodVolume,
    Volume,
    Workload,
)
from evenkeel.domain.survival.zone_loss import guard_zones
from tests.builders import NOW
from tests.convergence import PlayedPool, convergence
from tests.workloads import ZONE, group_key, node, pod, pods, pool_offer, requirement, said, selector

SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"


def machine(name: str, **fields: Any) -> Machine:
    return Machine(name=name, uid=f"uid-{name}", has_node=True, created_at=NOW, **fields)


def ours(name: str, zone: str = "a", **fields: Any) -> Node:
    of_machine = {field: fields.pop(field) for field in ("preserved",) if field in fields}
    return node(name, zone, group=group_key(zone), machine=machine(f"m-{name}", **of_machine), **fields)


def chosen(*nodes: Node, running: tuple[Pod, ...] = (), coming: str = "", **parts: Any) -> Choice:
    """Return the choice among the nodes of zone a. Zone c has an empty node, unless its node is upcoming."""
    here = nodes if coming else (*nodes, ours("new", "c"))
    workload = Workload(nodes=here, pods=running, whole=True, **parts)
    offers = (pool_offer(requested=3),)
    asks = {str(group_key("a")): str(group_key(coming)) if coming else ""}
    (choice,) = choose(Observation(groups=(), workload=workload), offers, asks, NOW)[0].values()
    return choice


def why(pod_or_node: Pod | Node, **parts: Any) -> str:
    """Return why the only node of zone a stays, with this pod on it, or as this node."""
    if isinstance(pod_or_node, Node):
        return said(chosen(pod_or_node, **parts).why)
    return said(chosen(ours("n1"), running=(pod_or_node,), **parts).why)


def test_an_unready_machine_is_chosen_then_the_one_with_the_fewest_pods() -> None:
    running = (*pods(2, "p", node="n1"), pod("q", node="n2"), pod("r", node="n3", cpu="2"))
    three = [ours(name) for name in ("n1", "n2", "n3")]
    choice = chosen(*three, running=running)
    assert (choice.machine and choice.machine.name, choice.why) == ("m-n2", None)
    unready = chosen(replace(three[0], ready=False), *three[1:], running=running)
    assert unready.machine is not None
    assert unready.machine.name == "m-n1"


def test_no_machine_is_drained_in_a_pool_that_is_being_restored() -> None:
    seen = Observation(groups=(), workload=Workload(nodes=(ours("n1"),), pods=(), whole=True))
    (choice,) = choose(seen, (), {"a": "b"}, NOW)[0].values()
    assert said(choice.why) == "the group is being restored"


def test_daemon_pods_and_ended_pods_do_not_count() -> None:
    daemon = pod("d", node="n1", owner=Owner("DaemonSet", "d"), resource_claims=("gpu",))
    ended = pod("e", node="n1", phase="Succeeded")
    choice = chosen(ours("n1"), ours("n2"), running=(daemon, ended, pod("p", node="n2")))
    assert choice.machine is not None
    assert choice.machine.name == "m-n1"


def budget(allowed: int) -> PodDisruptionBudget:
    return PodDisruptionBudget(namespace="default", name="b", selector=selector("app in web"), allowed=allowed)


def zonal(**fields: Any) -> dict[str, Any]:
    term = NodeSelectorTerm(expressions=(requirement(f"{ZONE} in a"),))
    volume = Volume(name="v", terms=(term,), claim="default/data")
    return {
        "claims": (Claim(namespace="default", name="data", volume="v", bound=True),),
        "volumes": (volume,),
        **fields,
    }


@pytest.mark.parametrize(
    ("there", "parts", "words"),
    [
        (pod(node="n1", annotations={SAFE: "false"}), {}, "safe-to-evict"),
        (pod(node="n1", owner=None), {}, "no controller would recreate pod default/p"),
        (pod(node="n1", volumes=(PodVolume("d", "emptyDir"),)), {}, "keeps data on the node"),
        (pod(node="n1", annotations={SAFE: "on-completion"}), {}, "default/p"),
        (pod(node="n1", resource_claims=("gpu",)), {}, "cannot place pod default/p on another node"),
        (pod(node="n1", unread=("workloadRef",)), {}, "cannot place pod default/p on another node"),
        (pod(node="n1", scheduler="volcano"), {}, "cannot place pod default/p on another node"),
        (pod(node="n1", volumes=(PodVolume("d", "rbd"),)), {}, "cannot place pod default/p on another node"),
        (pod(node="n1", annotations={SAFE: "true"}, resource_claims=("gpu",)), {}, "cannot place pod default/p on"),
        (
            pod(node="n1", annotations={SAFE: "true"}, volumes=(PodVolume("d", "persistentVolumeClaim", "data"),)),
            zonal(),
            "uses claim default/data, whose volume no other zone reaches",
        ),
        (
            pod(node="n1", annotations={SAFE: "true"}, labels={"app": "web"}),
            {"budgets": (budget(0),)},
            "disruption budget default/b allows no eviction of pod default/p now",
        ),
        (pod(node="n1", node_selector={ZONE: "a"}), {}, "pod default/p fits no other node"),
        (
            pod(node="n1", cpu="4"),
            {"running": (pod("q", cpu="1", node="new"), pod(node="n1", cpu="4"))},
            "fits no other",
        ),
        (ours("n1", annotations={SCALE_DOWN_DISABLED: "true"}), {}, "scale-down-disabled"),
        (ours("n1", preserved=True), {}, "Evenkeel cannot choose a machine of the group"),
        (replace(ours("n1"), deleting=True), {}, "being removed"),
        (replace(ours("n1"), machine=None), {}, "Evenkeel cannot choose a machine of the group"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_node_is_held(there: Pod | Node, parts: dict[str, Any], words: str) -> None:
    found = said(chosen(ours("n1"), **parts).why) if "running" in parts else why(there, **parts)
    assert words in found


def test_two_pods_of_a_budget_for_one_hold_their_node() -> None:
    two = pods(2, node="n1", labels={"app": "web"})
    assert "disruption budget default/b" in said(chosen(ours("n1"), running=two, budgets=(budget(1),)).why)
    assert chosen(ours("n1"), running=two[:1], budgets=(budget(1),)).machine is not None


def test_pods_may_be_placed_on_the_node_to_be_requested() -> None:
    full = pod(node="n1", cpu="4")
    assert chosen(ours("n1"), running=(full,), coming="c").machine is not None
    bound = pod(node="n1", node_selector={ZONE: "a"})
    assert "fits no other node" in said(chosen(ours("n1"), running=(bound,), coming="c").why)


def test_the_place_of_a_pending_pod_is_taken() -> None:
    waiting, full = pod("w", cpu="4"), pod(node="n1", cpu="4")
    assert "fits no other node" in said(chosen(ours("n1"), running=(full, waiting)).why)


def held(pool: PlayedPool, free: Callable[[str], bool], **fields: Any) -> Workload:
    """Return a workload with such a pod on every machine that is not free."""
    on = [one.name for one in pool.nodes() if not free(one.name)]
    return Workload(nodes=pool.nodes(), pods=tuple(pod(f"p-{name}", node=name, **fields) for name in on), whole=True)


def test_a_step_takes_the_machine_without_pods_that_hold_it() -> None:
    free: set[str] = set()
    annotations = {"annotations": {SAFE: "false"}}
    pool = PlayedPool(
        (2, 2, 5), convergence(blind=False), workload=lambda pool: held(pool, free.__contains__, **annotations)
    )
    free.add(pool.machines("c")[3].name)
    pool.settled()
    assert sum(pool.requested) == 10
    pool.boot()
    pool.check(60)
    assert {machine.name for machine in pool.machines("c") if machine.deleting} == free


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"annotations": {SAFE: "false"}}, "is annotated safe-to-evict: false"),
        ({"resource_claims": ("gpu",)}, "on another node: Evenkeel does not evaluate the pod's resource claims"),
        ({"unread": ("workloadRef",)}, "on another node: Evenkeel does not evaluate the pod's fields workloadRef"),
        ({"scheduler": "volcano"}, "on another node: scheduler volcano places the pod"),
    ],
)
def test_no_step_begins_where_every_pod_holds_its_node(fields: dict[str, Any], why: str) -> None:
    pool = PlayedPool((2, 2, 5), convergence(blind=False), workload=partial(held, free=lambda _: False, **fields))
    pool.settled()
    assert pool.requested == (2, 2, 5)
    assert pool.why.startswith("no machine of c may be drained: ")
    assert why in pool.why


@pytest.mark.parametrize("coming", ["", "b", "c"])
def test_a_node_that_survival_needs_stays(coming: str) -> None:
    """Only the empty node of zone a has room for the pod of zone b. A new node of zone c would have it, too."""
    running = (pod("far", cpu="3", node="n2"), pod("bound", cpu="3", node="n3", node_selector={ZONE: "c"}))
    workload = Workload(nodes=(ours("n1"), ours("n2", "b"), ours("n3", "c")), pods=running, whole=True)
    asks = {str(group_key("a")): str(group_key(coming)) if coming else ""}

    def found(*, survives: bool) -> Choice:
        offers = (replace(pool_offer(requested=3), guard=guard_zones if survives else None),)
        (choice,) = choose(Observation(groups=(), workload=workload), offers, asks, NOW)[0].values()
        return choice

    assert str(found(survives=False).machine) == "m-n1"
    if coming == "c":
        assert str(found(survives=True).machine) == "m-n1"
    else:
        needed = "without the node, pods of b would have no place after the loss of that zone"
        assert said(found(survives=True).why) == needed


def returned(size: str, *running: Pod) -> str:
    """Return why a large node of a fallback stays, or how many new nodes of the first pool it needs."""
    large = {"cpu": size, "memory": "160Gi", "pods": "110"}
    there = node("n1", group=group_key(pool="spare"), machine=machine("m-n1"), size=large)
    workload = Workload(nodes=(there,), pods=running, whole=True)
    offers = (pool_offer(), pool_offer("spare"))
    returns = {str(group_key(pool="spare")): str(group_key())}
    (choice,) = choose(Observation(groups=(), workload=workload), offers, {}, NOW, returns)[1].values()
    return said(choice.why) if choice.why is not None else str(choice.nodes)


def test_a_node_whose_pods_need_more_than_four_nodes_stays_for_that_reason() -> None:
    assert returned("40", *pods(4, node="n1", cpu="3")) == "4"
    assert returned("40", *pods(5, node="n1", cpu="3")) == "its pods need more than 4 new nodes; drain it yourself"
    assert returned("40", pod(node="n1", cpu="7")) == "pod default/p fits no other node"
