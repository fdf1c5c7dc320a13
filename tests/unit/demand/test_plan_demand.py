"""`evenkeel plan -f` with pods among its objects, from the same readers as a check."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from evenkeel_cli.main import app
from tests.objects import ZONES, Object, cluster_api, machine

NOW = "2026-01-15T12:00:00Z"
MADE = "2026-01-15T11:50:00Z"
SIZE = {"cpu": "4", "memory": "16Gi", "pods": "110"}
ADVISE = {"demand": "advise", "pools": [{"name": "workers", "min": 0, "max": 12}]}


def md(zone: str, replicas: int) -> Object:
    """Return a group with a template."""
    capacity = {f"capacity.cluster-autoscaler.kubernetes.io/{name}": SIZE[name] for name in ("cpu", "memory")}
    made = cluster_api(zone, replicas, annotations=capacity)
    return {**made, "metadata": {"namespace": "demo", **made["metadata"]}}


def a_node(name: str, zone: str) -> Object:
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {},
        "status": {"capacity": SIZE, "allocatable": SIZE, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def its_machine(number: int, zone: str) -> Object:
    """Return the machine whose node is ip-<number>."""
    made = machine(md(zone, 1), number, node=True)
    return {**made, "metadata": {"namespace": "demo", **made["metadata"]}}


def a_pod(name: str, cpu: str = "3", node: str = "", **spec: Any) -> Object:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": MADE}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "prod", "creationTimestamp": MADE, "ownerReferences": [owner]},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": {"phase": "Running"} if node else {"phase": "Pending", "conditions": [condition]},
    }


NAMED: Object = {"metadata": {"name": "odd"}}
NOWHERE: Object = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {}}]}}


class Command:
    """The command, with objects and a cluster file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, items: list[Object], cluster: object = ADVISE, *more: str) -> Result:
        objects, record = self.folder / "objects.yaml", self.folder / "cluster.yaml"
        objects.write_text(yaml.safe_dump_all(items), encoding="utf-8")
        record.write_text(json.dumps(cluster), encoding="utf-8")
        arguments = ["plan", "-f", str(objects), "--record", str(record), "--now", NOW, *more]
        return CliRunner().invoke(app, arguments)

    def plan(self, *items: Object, cluster: object = ADVISE) -> Object:
        result = self.run(list(items), cluster, "-o", "json")
        assert result.exit_code == 0, result.output
        found: Object = json.loads(result.stdout)
        return found


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


GROUPS = [md(zone, 0) for zone in ZONES]


class TestDemand:
    def test_pending_pods_request_nodes_where_they_fit(self, command: Command) -> None:
        zonal = a_pod("zonal", nodeSelector={"topology.kubernetes.io/zone": ZONES[1]})
        found = command.plan(*GROUPS, zonal, a_pod("large", cpu="64"))
        (pool,) = found["pools"]
        assert pool["demand"]["nodes"] == {f"cluster-api/demo/demo-workers-{ZONES[1]}": 1}
        assert [each["pods"] for each in pool["demand"]["pending"]] == [["prod/zonal"]]
        assert [each["pods"] for each in pool["demand"]["unfit"]] == [["prod/large"]]
        assert found["demand"]["unmet"][0]["pods"] == ["prod/large"]
        assert found["skipped"] == []

    def test_expander_order_is_followed_and_an_unknown_pool_reported(self, command: Command) -> None:
        larger = [md(zone, 0) for zone in ZONES]
        for group in larger:
            group["metadata"]["name"] += "-large"
            group["metadata"]["labels"] = {**group["metadata"]["labels"], "evenkeel.dev/pool": "large"}
            group["metadata"]["annotations"] = {
                **group["metadata"]["annotations"],
                "capacity.cluster-autoscaler.kubernetes.io/cpu": "64",
            }
        record = {"demand": "advise", "pools": [{"name": name, "min": 0, "max": 12} for name in ("workers", "large")]}
        asked = {}
        for order in (None, ["large"], ["lrage", "workers"]):
            fields = {} if order is None else {"expander": "order", "expander_order": order}
            found = command.plan(*GROUPS, *larger, a_pod("web"), cluster={**record, **fields})
            asked[str(order)] = [pool["name"] for pool in found["pools"] if pool["demand"]["nodes"]]
        assert asked == {"None": ["workers"], "['large']": ["large"], "['lrage', 'workers']": ["workers"]}
        wrong = "expander_order names 'lrage', and the cluster has no such pool: correct the name or remove it."
        assert found["demand"]["says"] == [wrong]

    def test_nodes_are_needed_or_unneeded(self, command: Command) -> None:
        zone = ZONES[0]
        groups = [md(zone, 2), *GROUPS[1:]]
        nodes = [a_node(name, zone) for name in ("ip-1", "ip-2")]
        machines = [its_machine(number, zone) for number in (1, 2)]
        (pool,) = command.plan(*groups, *nodes, *machines, a_pod("web", node="ip-1"))["pools"]
        assert [each["node"] for each in pool["demand"]["unneeded"]] == ["ip-2"]
        assert [(each["node"], each["rule"]) for each in pool["demand"]["needed"]] == [("ip-1", "node-in-use")]

    @pytest.mark.parametrize(
        ("spec", "why"),
        [
            ({"resourceClaims": [{"name": "gpu"}]}, "Evenkeel does not evaluate the pod's resource claims: gpu"),
            ({"schedulingGroup": {"podGroupName": "g"}}, "Evenkeel does not evaluate the pod's fields schedulingGroup"),
            (
                {"workloadRef": {"name": "w", "podGroup": "g"}},
                "Evenkeel does not evaluate the pod's fields workloadRef",
            ),
            ({"schedulerName": "volcano"}, "scheduler volcano places the pod, by rules that Evenkeel does not know"),
            ({"fieldOfTomorrow": 1}, "Evenkeel does not evaluate the pod's fields fieldOfTomorrow"),
            (
                {"volumes": [{"name": "d", "awsElasticBlockStore": {"volumeID": "v"}}]},
                "Evenkeel does not evaluate the pod's volumes of kind awsElasticBlockStore",
            ),
            (
                {"volumes": [{"name": "d", "rbd": {"image": "i"}}]},
                "Evenkeel does not evaluate the pod's volumes of kind rbd",
            ),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    @pytest.mark.parametrize("stage", ["advise", "full"])
    def test_a_running_pod_that_cannot_be_placed_again_keeps_its_node(
        self, command: Command, spec: Object, why: str, stage: str
    ) -> None:
        zone = ZONES[0]
        objects = [md(zone, 2), *GROUPS[1:]]
        for number in (1, 2):
            objects += [a_node(f"ip-{number}", zone), its_machine(number, zone)]
        record = {**ADVISE, "demand": stage, **({"autoscaler": "none"} if stage == "full" else {})}
        objects.append(a_pod("train", cpu="100m", node="ip-1", **spec))
        (pool,) = command.plan(*objects, cluster=record)["pools"]
        (needed,) = pool["demand"]["needed"]
        assert (needed["node"], needed["rule"]) == ("ip-1", "pod-not-placeable")
        assert needed["reason"] == f"Evenkeel cannot place pod prod/train on another node: {why}"
        assert any(words.startswith("ip-1 is needed: Evenkeel cannot place") for words in pool["demand"]["says"])

    def test_a_budget_volumes_and_daemons_are_read_too(self, command: Command) -> None:
        zone = ZONES[0]
        daemon = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "log", "namespace": "kube-system"},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}},
        }
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "pg", "namespace": "prod"},
            "spec": {"volumeName": "pv"},
        }
        terms = [{"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]}]
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "pv"},
            "spec": {"csi": {"driver": "d"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}},
        }
        bound = a_pod("pg", cpu="1", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "pg"}}])
        (pool,) = command.plan(*GROUPS, daemon, claim, volume, bound, a_pod("large", cpu="3"))["pools"]
        assert pool["demand"]["nodes"] == {f"cluster-api/demo/demo-workers-{zone}": 1}
        (unfit,) = pool["demand"]["unfit"]
        assert unfit["pods"] == ["prod/large"]
        assert "cpu" in unfit["reason"]

    def test_the_table_describes_demand(self, command: Command) -> None:
        result = command.run([*GROUPS, a_pod("web"), a_pod("large", cpu="64")])
        assert result.exit_code == 0
        assert "Pod prod/web has been waiting since 2026-01-15T11:50:00Z for a node of this pool" in result.stdout
        assert "This plan would request 1 node: 1 for demo-workers-" in result.stdout
        assert "Pod prod/large has been waiting since 2026-01-15T11:50:00Z, and no node is requested" in result.stdout

    def test_without_demand_in_the_record_pods_are_skipped(self, command: Command) -> None:
        found = command.plan(*GROUPS, a_pod("web"), cluster={"pools": ADVISE["pools"]})
        assert "demand" not in found
        assert "demand" not in found["pools"][0]
        (skipped,) = found["skipped"]
        assert skipped["reason"] == "1 object: a Pod is read only if the record has demand or workload"

    def test_converge_uses_the_pods_where_the_record_has_workload_and_no_demand(self, command: Command) -> None:
        machines = [its_machine(number, ZONES[2]) for number in range(3)]
        nodes = [a_node(f"ip-{number}", ZONES[2]) for number in range(3)]
        groups = [md(zone, 3 if zone == ZONES[2] else 0) for zone in ZONES]
        record = {"pools": ADVISE["pools"], "level": "converge", "workload": {"access": {"kind": "same"}}}
        standing = [a_pod(f"web-{number}", node=f"ip-{number}") for number in range(3)]
        state = command.folder / "state.json"
        blind = command.plan(*groups, *machines, *nodes, cluster=record)
        assert blind["skipped"] == []
        state.write_text(json.dumps(blind["state"]), encoding="utf-8")

        def later(*items: Object) -> str:
            moment = "2026-01-15T12:15:00Z"
            objects = [*groups, *machines, *nodes, *items]
            result = command.run(objects, record, "-o", "json", "--state", str(state), "--now", moment)
            assert result.exit_code == 0, result.output
            return result.stdout

        assert "the pods on the nodes are unknown" in later()
        seen = later(*standing)
        (pool,) = json.loads(seen)["pools"]
        assert [group["requested"]["to"] for group in pool["groups"]] == [1, 0, 3]
        assert "demand" not in pool

    def test_invalid_pods_are_bad_input_with_a_line_each(self, command: Command) -> None:
        odd = a_pod("odd", priority="high")
        lots = a_pod("lots", cpu="lots")
        result = command.run([*GROUPS, odd, lots])
        assert result.exit_code == 2
        first, second = result.stderr.splitlines()
        assert "Pod prod/odd: Expected `int | null`, got `str`" in first
        assert "Pod prod/lots: cpu is 'lots': not a quantity" in second

    @pytest.mark.parametrize(
        ("bad", "says"),
        [
            (a_pod("odd", cpu="-3"), "Pod prod/odd: cpu is '-3': negative: write 0 or more"),
            ({**a_pod("odd"), "metadata": ["odd"]}, "Pod: Expected `object`, got `array` - at `$.metadata`"),
            (a_pod("odd", affinity=NOWHERE), "Pod prod/odd: Object missing required field `topologyKey`"),
            (
                {**a_node("odd", "a"), "status": {"capacity": {"cpu": "four"}}},
                "Node odd: cpu is 'four': not a quantity",
            ),
            (
                {"apiVersion": "v1", "kind": "PersistentVolume", "spec": {"capacity": {"storage": "-1Gi"}}, **NAMED},
                "PersistentVolume odd: storage is '-1Gi': negative: write 0 or more",
            ),
            (
                {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"selector": "app=web"}, **NAMED},
                "PodDisruptionBudget odd: Expected `object | null`, got `str` - at `$.spec.selector`",
            ),
        ],
    )
    def test_an_invalid_object_is_named_on_one_line(self, command: Command, bad: Object, says: str) -> None:
        result = command.run([*GROUPS, bad])
        assert result.exit_code == 2
        (line,) = result.stderr.splitlines()
        assert says in line

    def test_demand_that_orders_needs_a_cluster_without_an_autoscaler(self, command: Command) -> None:
        result = command.run(GROUPS, {**ADVISE, "demand": "full"})
        assert result.exit_code == 2
        assert "it needs autoscaler: none" in result.stderr
