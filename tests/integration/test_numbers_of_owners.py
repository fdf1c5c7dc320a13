"""A number that changes at an owner has effect at the next check, although no object of a group has changed."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.domain.fleet.check_times import is_full_check
from sandbox.kube.controllers.objects import USERS_POOL_LABEL
from sandbox.kube.world import World
from tests.builders import MINUTE
from tests.crashing import Life, WirelessClusters
from tests.fakes import FakeClock, InMemoryStore, register
from tests.stack import Stack

SELECTED = {"pools": [{"name": "workers", "selector": {USERS_POOL_LABEL: "workers"}}]}
HIGH = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"


class Estate:
    """A steady cluster of an ecosystem. Its own controllers rest, so that only the owners show a change."""

    def __init__(self, ecosystem: str, **fields: Any) -> None:
        self.clock, self.memory, self.life = FakeClock(), InMemoryStore(), Life()
        self.cluster = World(clusters=[ecosystem], clock=self.clock.now, settings=None).clusters[ecosystem]
        register(self.memory, flavours=[self.cluster.flavour], **fields)
        clusters = WirelessClusters(self.cluster.api, self.life, self.clock)
        self.stack = Stack(store=self.memory, clock=self.clock, clusters=clusters)
        self.live(20)
        assert self.memory.steady_clusters(["demo"])

    def live(self, minutes: int) -> None:
        for _ in range(minutes):
            self.cluster.step(self.clock.at)
            self.stack.checks()
            self.stack.carry_out()

    def quick_check(self, interval: int = 60) -> list[str]:
        """Return the lists of the next check, which is quick, after so many seconds."""
        step = timedelta(seconds=interval)
        while is_full_check("demo", interval, self.clock.at + step, resting=interval > 60):
            self.clock.at += step
        self.life.steps.clear()
        self.clock.at += step - MINUTE
        self.stack.checks()
        return [step.rpartition("/")[2].partition("?")[0] for step in self.life.steps if step.startswith("GET")]

    def edit(self, kind: str, change: Callable[[Any], object], field: str = "spec") -> None:
        for item in self.cluster.store.list(kind):
            body = {field: item.get(field, {})}
            change(body[field])
            place = (item["metadata"].get("namespace"), item["metadata"]["name"])
            self.cluster.store.patch(kind, *place, body, subresource="status" if field == "status" else "")

    def numbers(self) -> tuple[int, int, int]:
        """Return minimum and maximum of the pool, and the sum of the published maxima."""
        plan = self.stack.run().plan
        assert plan is not None
        (pool,) = plan.pools
        return pool.min, pool.max, sum(group.bounds.max for group in pool.groups if group.bounds)


def minimum_of_worker(spec: Any) -> None:
    spec["pools"][0]["minimum"] = 6


def maximum_of_node_pool(spec: Any) -> None:
    spec["autoScaling"]["max"] = 6


def maximum_of_machine_autoscaler(spec: Any) -> None:
    spec["maxReplicas"] = 6


def maximum_in_topology(spec: Any) -> None:
    for entry in spec["topology"]["workers"]["machineDeployments"]:
        entry["metadata"]["annotations"][HIGH] = "6"


WORKERS, NODE_POOLS = "workers.extensions.gardener.cloud", "nodepools.hypershift.openshift.io"
MACHINE_AUTOSCALERS, CLUSTERS = "machineautoscalers.autoscaling.openshift.io", "clusters.cluster.x-k8s.io"
CASES = [
    ("gardener-plain", {}, WORKERS, minimum_of_worker, ["machinedeployments", "workers"], (6, 12, 12)),
    (
        "openshift",  # the MachineSets have the pool's numbers, so a zone's maximum is put back
        {},
        MACHINE_AUTOSCALERS,
        maximum_of_machine_autoscaler,
        ["machinesets", "machineautoscalers", "clusterautoscalers"],
        (3, 12, 12),
    ),
    (
        "hypershift-openstack",
        SELECTED,
        NODE_POOLS,
        maximum_of_node_pool,
        ["machinedeployments", "nodepools"],
        (3, 18, 18),
    ),
    (
        "cluster-class",
        {**SELECTED, "write_topology": True},
        CLUSTERS,
        maximum_in_topology,
        ["machinedeployments", "clusters"],
        (3, 18, 18),
    ),
]
EVERY_OWNER = pytest.mark.parametrize(
    ("ecosystem", "fields", "kind", "change", "lists", "numbers"), CASES, ids=[case[0] for case in CASES]
)


@EVERY_OWNER
@pytest.mark.parametrize("rests", [False, True], ids=["each minute", "events proven"])
def test_a_number_that_changes_at_an_owner_acts_at_the_next_quick_check(
    ecosystem: str,
    fields: dict[str, Any],
    kind: str,
    change: Callable[[Any], object],
    lists: list[str],
    numbers: tuple[int, int, int],
    rests: bool,
) -> None:
    estate = Estate(ecosystem, **fields)
    if rests:
        until = estate.clock.at + timedelta(hours=20)
        steady = replace(estate.memory.steady_clusters(["demo"])["demo"].steady, rests_until=until)
        estate.memory.save_steady("demo", steady, estate.memory.load("demo").versions)
    assert estate.quick_check(300 if rests else 60) == lists
    assert not estate.stack.queue.requests
    estate.edit(kind, change)
    estate.quick_check(300 if rests else 60)
    assert [reason for _, reason in estate.stack.queue.requests.values()] == ["scan"]
    estate.stack.carry_out()
    estate.live(5)
    assert estate.numbers() == numbers


@pytest.mark.parametrize(("ecosystem", "fields", "kind", "lists"), [(*case[:3], case[4]) for case in CASES])
def test_a_status_that_an_owners_controller_writes_does_not_cause_full_checks(
    ecosystem: str, fields: dict[str, Any], kind: str, lists: list[str]
) -> None:
    estate = Estate(ecosystem, **fields)
    estate.edit(kind, lambda status: status.update(observedGeneration=7), field="status")
    assert estate.quick_check() == lists


def test_a_limit_that_the_cluster_gets_acts_at_the_next_quick_check() -> None:
    estate = Estate("openshift")
    body = {"metadata": {"name": "default"}, "spec": {"resourceLimits": {"maxNodesTotal": 7}}}
    estate.cluster.store.create("clusterautoscalers.autoscaling.openshift.io", body)
    estate.quick_check()
    assert [reason for _, reason in estate.stack.queue.requests.values()] == ["scan"]
    estate.stack.carry_out()
    estate.live(5)
    assert estate.numbers() == (3, 7, 7)
