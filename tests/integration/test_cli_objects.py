"""`evenkeel objects` writes a file from which `plan -f` makes the plan of `plan --context`."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from evenkeel_cli.main import app
from sandbox.kube.access import Rule
from sandbox.kube.api import KubernetesAPI
from sandbox.kube.world import ECOSYSTEMS, World
from tests import objects

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World(clusters=tuple(ECOSYSTEMS), clock=lambda: datetime.now(UTC), settings=None) as made:
        yield made


def run(command: str, api: KubernetesAPI, folder: Path, *arguments: str) -> Result:
    path = folder / "kubeconfig"
    path.write_text(json.dumps(api.kubeconfig("evenkeel")), encoding="utf-8")
    result = CliRunner().invoke(app, [command, "--kubeconfig", str(path), "--context", "sandbox", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def collected(api: KubernetesAPI, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    found = run("objects", api, folder, *arguments)
    assert found.exit_code == 0, found.output
    (folder / "objects.yaml").write_text(found.stdout, encoding="utf-8")
    items: list[dict[str, Any]] = yaml.safe_load(found.stdout)["items"]
    assert sum(int(line.split()[0]) for line in found.stderr.splitlines()) == len(items)
    return items


@pytest.mark.parametrize("failing", [False, True], ids=["healthy", "zone fails"])
@pytest.mark.parametrize("kind", list(ECOSYSTEMS))
def test_a_plan_from_the_file_is_the_plan_of_the_cluster(
    world: World, tmp_path: Path, kind: str, failing: bool
) -> None:
    cluster = world.clusters[kind]
    if failing:
        first = cluster.groups()[0]
        cluster.cloud.exhaust_zone(str(first.zone))
        scalable = next(
            resource.full_name
            for resource in cluster.store.resources
            if resource.plural in ("machinedeployments", "machinesets")
            and any(item["metadata"]["name"] == first.name for item in cluster.store.list(resource.full_name))
        )
        cluster.store.scale(scalable, first.namespace, first.name, first.requested + 2)
        world.step(datetime.now(UTC))
    api = cluster.api
    api.requests.clear()
    items = collected(api, tmp_path)
    assert {request.method for request in api.requests} == {"GET"}
    assert "Secret" not in {item["kind"] for item in items}
    asked = ["--now", NOW.isoformat(), "-o", "json"]
    live = run("plan", api, tmp_path, *asked)
    filed = CliRunner().invoke(app, ["plan", "-f", str(tmp_path / "objects.yaml"), *asked])
    assert live.exit_code == filed.exit_code
    of_file, of_cluster = json.loads(filed.stdout), json.loads(live.stdout)
    proposed = [len(one.pop("proposals", ())) for one in (of_file, of_cluster)]  # of a cluster, with its context
    # A file has the machines of all groups. A check asks only for those of some groups, so its plan learns fewer times.
    for plan in (of_file, of_cluster):
        for pool in plan.get("state", {}).get("pools", {}).values():
            learned = pool.pop("replicas", {})
            assert learned.keys() <= {"provision_times", "counted_until"}
        for pool in plan["pools"]:
            for field in ("timeouts", "timeoutRules"):
                pool.pop(field, None)
    assert (of_file, proposed[0]) == (of_cluster, proposed[1])
    groups = [group for pool in json.loads(live.stdout)["pools"] for group in pool["groups"]]
    assert failing == any(group["running"] < group["requested"]["from"] for group in groups) or not groups


def test_values_that_may_be_secret_and_fields_that_no_plan_reads_are_left_out(world: World, tmp_path: Path) -> None:
    secret, applied = "c2VjcmV0", "kubectl.kubernetes.io/last-applied-configuration"
    gardener, topology = world.clusters["gardener-plain"], world.clusters["cluster-class"]
    (worker,) = gardener.store.list("workers.extensions.gardener.cloud")
    pools = [{**pool, "userData": secret} for pool in worker["spec"]["pools"]]
    patch = {"metadata": {"annotations": {applied: secret}}, "spec": {"pools": pools}}
    place = worker["metadata"]["namespace"], worker["metadata"]["name"]
    gardener.store.patch("workers.extensions.gardener.cloud", *place, patch, manager="test")
    (cluster,) = topology.store.list("clusters.cluster.x-k8s.io")
    place = cluster["metadata"]["namespace"], cluster["metadata"]["name"]
    patch = {"spec": {"topology": {"variables": [{"name": "password", "value": secret}]}}}
    topology.store.patch("clusters.cluster.x-k8s.io", *place, patch, manager="test")
    for found in (collected(gardener.api, tmp_path), collected(topology.api, tmp_path)):
        assert secret not in yaml.safe_dump(found)
        managed = {item["kind"] for item in found if "managedFields" in item["metadata"]}
        assert managed <= {"MachineDeployment", "MachineSet", "Worker", "Cluster"}


def test_only_the_named_namespaces_are_read(world: World, tmp_path: Path) -> None:
    api = world.clusters["cluster-api"].api
    assert collected(api, tmp_path, "-n", "elsewhere") == []
    everywhere = collected(api, tmp_path)
    assert collected(api, tmp_path, "-n", "elsewhere", "-n", "demo") == everywhere
    assert collected(api, tmp_path, "-n", "demo", "-n", "demo") == everywhere


@pytest.mark.parametrize("command", ["objects", "plan"])
@pytest.mark.parametrize("name", ["", "Bad NS", "Bad_NS", "ä", "%2e", "prod?limit=1", "a/b", "../..", "a" * 64])
def test_a_name_that_no_namespace_can_have_is_refused(world: World, tmp_path: Path, command: str, name: str) -> None:
    found = run(command, world.clusters["cluster-api"].api, tmp_path, "-n", name)
    assert (found.exit_code, found.stdout, found.stderr.count("\n")) == (2, "", 1)
    assert "--namespace is " in found.stderr


def test_machines_that_may_not_be_listed_are_reported_and_left_out(tmp_path: Path) -> None:
    listed = ("machinedeployments", "machinesets", "machinepools", "workers", "clusters", "machineautoscalers")
    users = {"evenkeel": [Rule(verbs=("list",), groups=("*",), resources=listed)]}
    with KubernetesAPI(users=users) as api:
        api.store.create("machinesets.machine.openshift.io", objects.openshift("eu-central-1a", 1), manager="test")
        found = run("objects", api, tmp_path)
    assert found.exit_code == 0, found.output
    assert "left out: machines.machine.openshift.io cannot be listed" in found.stderr
    assert "left out: listing clusterautoscalers.autoscaling.openshift.io is forbidden" in found.stderr
    assert found.stdout.count("\n  kind: ") == 1


def test_a_cluster_without_a_machine_api_is_named(tmp_path: Path) -> None:
    with KubernetesAPI(crds=[], users={"evenkeel": [Rule.all()]}) as api:
        found = run("objects", api, tmp_path)
    assert (found.exit_code, found.stdout) == (1, "")
    assert "serves none of the machine APIs gardener, cluster-api, openshift" in found.stderr
