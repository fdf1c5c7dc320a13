"""`evenkeel plan --kubeconfig`: the command reads a cluster and writes nothing to it."""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from typer.testing import CliRunner, Result

from evenkeel.adapters.documents import read_document
from evenkeel_cli.main import app
from sandbox.kube.api import KubernetesAPI
from sandbox.kube.world import World
from tests.integration.staging import UNEVEN

OTHER_CA = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World(pools=UNEVEN, clock=lambda: datetime.now(UTC), settings=None) as made:
        yield made


def run(
    folder: Path, api: KubernetesAPI, *arguments: str, command: tuple[str, ...] = ("plan",), **change: Any
) -> Result:
    """Run the command with a kubeconfig for the cluster. `change` replaces fields of its cluster entry."""
    config = api.kubeconfig("evenkeel")
    config["clusters"][0]["cluster"] |= change
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config), encoding="utf-8")
    result = CliRunner().invoke(app, [*command, "--kubeconfig", str(path), *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert "Traceback" not in result.output
    assert api.token("evenkeel") not in result.output
    return result


@pytest.mark.parametrize("flavour", list(UNEVEN))
def test_a_cluster_is_planned_and_only_read(world: World, tmp_path: Path, flavour: str) -> None:
    api = world.clusters[flavour].api
    api.requests.clear()
    result = run(tmp_path, api, "-o", "json")
    assert result.exit_code == 0, result.output
    (pool,) = json.loads(result.stdout)["pools"]
    assert [group["requested"]["from"] for group in pool["groups"]] == [4, 1, 1]
    assert sum(group["max"]["to"] for group in pool["groups"]) == 12
    assert len(api.requests) > 0
    assert {request.method for request in api.requests} == {"GET"}


def test_clusters_of_a_management_cluster_are_found_by_label_and_nothing_is_written(
    world: World, tmp_path: Path
) -> None:
    cluster = world.clusters["cluster-api"]
    there = {"name": "teal", "namespace": "default", "labels": {"env": "prod"}}
    owner = {"kind": "Cluster", "metadata": there, "spec": {}}
    cluster.store.create("clusters.cluster.x-k8s.io", owner, manager="test")
    cluster.api.requests.clear()
    discover = ("discover", "cluster-api")
    found = run(tmp_path, cluster.api, "--secret", "evenkeel/m", "--selector", "env=prod", command=discover)
    assert found.exit_code == 0, found.output
    (record,) = read_document(found.stdout)["clusters"]
    assert record["discovery"] == ["clusterapi:namespace=default,clusterName=teal"]
    assert {request.method for request in cluster.api.requests} == {"GET"}
    assert run(tmp_path, cluster.api, "--selector", "env=nowhere", command=discover).exit_code == 2


def test_a_context_is_chosen_by_its_name(world: World, tmp_path: Path) -> None:
    api = world.clusters["cluster-api"].api
    assert run(tmp_path, api, "--context", "sandbox").exit_code == 0
    unknown = run(tmp_path, api, "--context", "elsewhere")
    assert unknown.exit_code == 2
    assert "elsewhere" in unknown.stderr
    assert unknown.stderr.count("\n") == 1


def test_a_kubeconfig_with_a_duplicate_key_is_read_as_kubectl_reads_it(world: World, tmp_path: Path) -> None:
    path, config = tmp_path / "twice", json.dumps(world.clusters["cluster-api"].api.kubeconfig("evenkeel"))
    path.write_text('{"current-context": "elsewhere", "preferences": {}, ' + config[1:], encoding="utf-8")
    result = CliRunner().invoke(app, ["plan", "--kubeconfig", str(path)])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("command", [("plan", "-o", "json"), ("objects",), ("discover", "cluster-api")])
@pytest.mark.parametrize("proxy", ["socks5://user:secret@127.0.0.1:1", "ftp://x", "::::", "http://["])
def test_a_proxy_that_cannot_be_used_is_exit_two_and_one_line(
    world: World, tmp_path: Path, command: tuple[str, ...], proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    api = world.clusters["cluster-api"].api
    result = run(tmp_path, api, command=command, **{"proxy-url": proxy})
    assert result.exit_code == 2
    assert "secret" not in result.output
    if "json" in command:
        (line,) = json.loads(result.stdout)["error"]["messages"]
    else:
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
    assert "cluster.proxy-url" in line


@pytest.mark.parametrize(
    ("change", "fault", "says"),
    [
        ({"server": "https://127.0.0.1:1"}, {}, "does not answer"),
        ({"certificate-authority-data": OTHER_CA}, {}, "CERTIFICATE_VERIFY_FAILED"),
        ({}, {"status": 401}, "401"),
        ({}, {"status": 403}, "apply deploy/kubernetes/rbac.yaml"),
        ({}, {"cut_body": True}, "evenkeel: "),
    ],
)
def test_a_cluster_that_cannot_be_read_is_exit_one_and_one_line(
    world: World, tmp_path: Path, change: dict[str, Any], fault: dict[str, Any], says: str
) -> None:
    api = world.clusters["cluster-api"].api
    if fault:
        api.faults.add(method="GET", path_contains="machinedeployments", **fault)
    result = run(tmp_path, api, **change)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("evenkeel: ")
    assert result.stderr.count("\n") == 1
    assert says in result.stderr


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("/nowhere/login", "[Errno 2] No such file or directory: '/nowhere/login'"),
        ("false", "exec: process returned 1"),
        ("true", "exec: failed to decode process output"),
    ],
)
def test_a_credential_plugin_that_fails_is_one_line_and_no_request(
    world: World, tmp_path: Path, command: str, text: str
) -> None:
    api = world.clusters["gardener"].api
    config = api.kubeconfig("evenkeel")
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": command, "interactiveMode": "Never"}
    config["users"][0]["user"] = {"exec": plugin}
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config), encoding="utf-8")
    api.requests.clear()
    done = CliRunner().invoke(app, ["plan", "--kubeconfig", str(path)])
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"evenkeel: the credential plugin of the kubeconfig's user fails: {text}")
    assert not api.requests


def test_a_server_without_a_scheme_is_one_line(world: World, tmp_path: Path) -> None:
    done = run(tmp_path, world.clusters["gardener"].api, server="nonsense")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"evenkeel: {tmp_path / 'kubeconfig'}: cluster.server is no URL: begin it with https://\n"


def test_a_cluster_without_node_groups_is_the_same_answer_in_each_form(tmp_path: Path) -> None:
    with KubernetesAPI() as api:
        found = {form: run(tmp_path, api, "-o", form) for form in ("table", "json", "yaml", "name")}
    assert {done.exit_code for done in found.values()} == {4}
    *_, says = found["table"].stdout.splitlines()
    assert says.startswith(f"no node group in {tmp_path / 'kubeconfig'}: looked for machinedeployments.")
    assert (found["name"].stdout, found["name"].stderr) == ("", f"{says}\n")
    for document in (json.loads(found["json"].stdout), read_document(found["yaml"].stdout)):
        assert isinstance(document, dict)
        assert (document["pools"], document["proposals"]) == ([], [])
        assert document["error"] == {"code": 4, "messages": [says]}


def test_a_namespace_without_node_groups_is_named(world: World, tmp_path: Path) -> None:
    api, record = world.clusters["cluster-api"].api, tmp_path / "record.yaml"
    record.write_text("{pools: {discover: similar}, namespaces: [nope]}", encoding="utf-8")
    for arguments in (("-n", "nope"), ("--record", str(record))):
        found = run(tmp_path, api, "--context", "sandbox", *arguments)
        assert found.exit_code == 4
        *_, says = found.stdout.splitlines()
        assert says.startswith("no node group in namespace nope of context sandbox: looked for machinedeployments.")
        assert says.endswith(": name another namespace, or none for all namespaces")


@pytest.mark.parametrize(
    ("workload", "reads"), [("workload: {access: {kind: same}}\n", True), ("", False)], ids=["with", "without"]
)
def test_converge_reads_pods_where_the_file_has_a_workload(
    world: World, tmp_path: Path, workload: str, reads: bool
) -> None:
    api, record, state = world.clusters["cluster-api"].api, tmp_path / "record.yaml", tmp_path / "state.json"
    record.write_text("demand: 'off'\nlevel: converge\n" + workload, encoding="utf-8")
    first = run(tmp_path, api, "--record", str(record), "-o", "json")
    state.write_text(json.dumps(json.loads(first.stdout)["state"]), encoding="utf-8")
    later = (datetime.now(UTC) + timedelta(hours=2)).isoformat()  # the pool has not changed for long enough
    api.requests.clear()
    result = run(tmp_path, api, "--record", str(record), "--state", str(state), "--now", later, "-o", "json")
    assert result.exit_code == 0, result.output
    assert any(request.path.startswith("/api/v1/pods") for request in api.requests) is reads


@pytest.mark.parametrize("flavour", list(UNEVEN))
def test_demand_reads_pods_or_names_the_missing_right(world: World, tmp_path: Path, flavour: str) -> None:
    api, record = world.clusters[flavour].api, tmp_path / "cluster.yaml"
    record.write_text("demand: advise\n", encoding="utf-8")
    api.faults.add(method="GET", path_contains="/api/v1/pods", status=403)
    refused = json.loads(run(tmp_path, api, "--record", str(record), "-o", "json").stdout)
    assert "apply deploy/kubernetes/rbac-workload.yaml" in refused["demand"]["unread"]
    assert "demand" not in refused["pools"][0]
    found = json.loads(run(tmp_path, api, "--record", str(record), "-o", "json").stdout)
    assert "unread" not in found["demand"]
    (pool,) = found["pools"]
    judged = [*pool["demand"]["unneeded"], *pool["demand"]["needed"]]
    assert len(judged) == sum(group["requested"]["from"] for group in pool["groups"])
    record.write_text(
        "demand: advise\nworkload: {access: {kind: eks, name: x, region: eu-central-1}}\n", encoding="utf-8"
    )
    other = json.loads(run(tmp_path, api, "--record", str(record), "-o", "json").stdout)
    assert "let the stack plan" in other["demand"]["unread"]
