"""A cluster's status in a ConfigMap, with the rights of readers and those of rbac-status.yaml alone."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from kubernetes import client

from evenkeel.application.rebalancing.ports import Cluster
from sandbox.kube.access import Rule
from sandbox.kube.api import KubernetesAPI
from sandbox.kube.real import RealKubernetesAPI, find_assets
from sandbox.template import ROOT
from tests.contract.test_cluster_adapter import Api, Stage, three
from tests.contract.test_deploy_folders import code_of
from tests.fakes import plenty
from tests.timed import worker

FOLDER = ROOT / "deploy" / "kubernetes"
STATUS, ROLE, BINDING = yaml.safe_load_all((FOLDER / "rbac-status.yaml").read_text())
READERS = next(iter(yaml.safe_load_all((FOLDER / "rbac-readers.yaml").read_text())))
NAME, NAMESPACE = STATUS["metadata"]["name"], STATUS["metadata"]["namespace"]
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module", params=["sandbox", *(["real"] if find_assets() else [])])
def kube_api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """Yield a server with the file applied, whose `evenkeel` may otherwise only read."""
    if request.param == "sandbox":
        with KubernetesAPI(users={"evenkeel": [*Rule.of_role(READERS), *Rule.of_role(ROLE)]}) as api:
            yield api
    else:
        with RealKubernetesAPI() as real:
            user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "evenkeel"}
            real.grant("evenkeel", Rule.of_role(READERS))
            real.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            real.call("POST", f"{RBAC}/namespaces/{NAMESPACE}/roles", ROLE)
            real.call("POST", f"{RBAC}/namespaces/{NAMESPACE}/rolebindings", {**BINDING, "subjects": [user]})
            yield real


@pytest.fixture
def core(connect: Callable[..., client.ApiClient]) -> Iterator[client.CoreV1Api]:
    """Yield a client of an administrator, and the file's ConfigMap, which is deleted after the test."""
    core = client.CoreV1Api(connect())
    if NAMESPACE not in {found.metadata.name for found in core.list_namespace().items}:
        core.create_namespace({"metadata": {"name": NAMESPACE}})
    core.create_namespaced_config_map(NAMESPACE, {**STATUS, "data": {"theirs": "stays"}})
    yield core
    if NAME in {found.metadata.name for found in core.list_namespaced_config_map(NAMESPACE).items}:
        core.delete_namespaced_config_map(NAME, NAMESPACE)


@pytest.fixture
def stage(kube_api: Api, kind_of: Callable[..., Any], namespace: str) -> Stage:
    stage = Stage(kube_api, kind_of, namespace, dry_run=True, status_configmap=f"{NAMESPACE}/{NAME}")
    stage.put(*three("cluster-api", (3, 1, 1)))
    return stage


def run(stage: Stage) -> Any:
    return worker(stage.store, stage.clusters, stage.clock, stage.queue)("demo", "a test", plenty)


def opened(stage: Stage) -> Cluster:
    return stage.clusters.open(stage.record, plenty)


def test_in_dry_run_it_holds_the_plan_and_is_written_only_when_that_changes(
    stage: Stage, core: client.CoreV1Api
) -> None:
    run(stage)
    found = core.read_namespaced_config_map(NAME, NAMESPACE)
    said = json.loads(found.data["evenkeel.json"])
    assert found.data["theirs"] == "stays"
    assert [(pool["dryRun"], pool["valid"], len(pool["groups"])) for pool in said["pools"]] == [(True, True, 3)]
    assert any("wanted" in group for group in said["pools"][0]["groups"])
    run(stage)
    after = core.read_namespaced_config_map(NAME, NAMESPACE)
    assert after.metadata.resource_version == found.metadata.resource_version


def test_without_the_config_map_the_run_is_unchanged(stage: Stage, core: client.CoreV1Api) -> None:
    core.delete_namespaced_config_map(NAME, NAMESPACE)
    summary = run(stage)
    assert (summary.unreachable, len(summary.decisions)) == (False, 1)
    assert NAME not in {found.metadata.name for found in core.list_namespaced_config_map(NAMESPACE).items}


def test_the_writer_may_change_that_object_and_nothing_else(
    stage: Stage, core: client.CoreV1Api, connect: Callable[..., client.ApiClient]
) -> None:
    core.create_namespaced_config_map(stage.namespace, STATUS | {"metadata": {"name": NAME}})
    mine = client.CoreV1Api(connect("evenkeel"))
    change = {"data": {"a": "b"}}
    calls: dict[str, Callable[[], object]] = {
        "patch": lambda: mine.patch_namespaced_config_map(NAME, NAMESPACE, change),
        "another name": lambda: mine.patch_namespaced_config_map("kube-root-ca.crt", NAMESPACE, change),
        "another namespace": lambda: mine.patch_namespaced_config_map(NAME, stage.namespace, change),
        "create": lambda: mine.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "x"}}),
        "replace": lambda: mine.replace_namespaced_config_map(NAME, NAMESPACE, STATUS),
        "delete": lambda: mine.delete_namespaced_config_map(NAME, NAMESPACE),
        "secrets": lambda: mine.list_namespaced_secret(NAMESPACE),
    }
    assert {name for name, call in calls.items() if code_of(call) == 200} == {"patch"}
    for place in (f"{NAMESPACE}/{NAME}", f"{stage.namespace}/{NAME}", f"{NAMESPACE}/none"):
        assert opened(stage).show_status(place, "{}") is (place == f"{NAMESPACE}/{NAME}")


def test_a_right_that_is_missing_is_named_before_the_record_is_stored(stage: Stage) -> None:
    def asked() -> list[str]:
        return [line for line in stage.clusters.refused(stage.record, plenty, writes=True) if "configmaps" in line]

    assert asked() == []
    stage.register(status_configmap=f"{stage.namespace}/{NAME}")
    assert asked() == [f"it may not patch configmaps in namespace {stage.namespace}"]
