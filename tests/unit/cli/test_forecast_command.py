"""`evenkeel forecast`: text, JSON, and one line per invalid value."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from evenkeel.adapters.codec import pack
from evenkeel.application.errors import ClusterUnavailableError
from evenkeel.domain.model.groups import Bounds
from evenkeel.domain.model.workload import ZONE
from evenkeel.validation import read_model
from evenkeel_cli import forecast as command
from evenkeel_cli import live
from evenkeel_cli.cluster_file import ClusterFile
from evenkeel_cli.main import app
from evenkeel_cli.objects import read_objects
from evenkeel_cli.simulation.loss import PROVISIONED
from tests import objects
from tests.parts import replace

Object = dict[str, Any]
MOMENT = datetime(2026, 1, 2, tzinfo=UTC)
RECORD = """
autoscaler: none
demand: full
on_failure: move
pools: [{name: workers, max: 9}]
"""


def pod(name: str, node: str) -> Object:
    container = {"name": "app", "resources": {"requests": {"cpu": "1900m"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": True}],
        },
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Running"},
    }


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Write objects with one full node of two pods in each of three zones. Return the options that read them."""
    items: list[Object] = []
    for number, zone in enumerate("abc"):
        scalable = objects.cluster_api(zone, 1)
        node = objects.node(
            f"ip-{number}", **{"topology.kubernetes.io/zone": zone, "topology.k8s.aws/zone-id": f"euc1-az{number + 1}"}
        )
        node["spec"]["taints"] = []
        items += [scalable, objects.machine(scalable, number, node=True), node]
        items += [pod(f"web-{zone}{i}", f"ip-{number}") for i in range(2)]
    things, record = tmp_path / "objects.json", tmp_path / "record.yaml"
    things.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}), encoding="utf-8")
    record.write_text(RECORD, encoding="utf-8")
    return ["-f", str(things), "--record", str(record), "--now", "2026-01-02T00:00:00Z"]


def forecast(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["forecast", *arguments], env={"COLUMNS": "80"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize("lost", [("--zone", "a"), ("--zone-id", "euc1-az1")])
def test_the_document_says_what_the_loss_does(files: list[str], lost: tuple[str, str]) -> None:
    document = json.loads(forecast(*files, *lost, "-o", "json").stdout)

    assert (document["zone"], document["lostNodes"], document["survives"]) == ("a", 1, True)
    (pods,) = document["pods"]
    assert (pods["owner"], pods["pods"], pods["withoutPlace"]) == ("default/web", 2, 0)
    assert document["evictedAfter"] <= pods["longest"]
    assert sum(document["nodes"][-1]["running"].values()) == 3


def test_the_text_fits_80_columns(files: list[str]) -> None:
    text = forecast(*files, "--zone", "a").stdout

    assert "every pod that may run elsewhere gets a place" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_long_name_wraps_and_is_not_cut(files: list[str]) -> None:
    objects = Path(files[1])
    objects.write_text(objects.read_text(encoding="utf-8").replace('"web', f'"web-{"x" * 90}'), encoding="utf-8")

    text = forecast(*files, "--zone", "a").stdout

    assert text.count("x") >= 90
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_bad_input_is_one_line_each(files: list[str], tmp_path: Path) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text(json.dumps(objects.cluster_api("c", 0)), encoding="utf-8")
    large = tmp_path / "large.json"
    large.write_text(json.dumps(objects.cluster_api("c", 2**31 - 1)), encoding="utf-8")
    nodeless = tmp_path / "nodeless.json"
    nodeless.write_text(json.dumps(objects.cluster_api("c", 1)), encoding="utf-8")
    for arguments, problem in (
        ((*files, "--zone", "d"), "--zone is 'd': no such zone: choose one of a, b, c"),
        ((*files, "--zone-id", "x"), "--zone-id is 'x': no such zone: choose one of euc1-az1, euc1-az2, euc1-az3"),
        (tuple(files), "name the zone that is lost, either by --zone or by --zone-id"),
        ((*files, "--zone", "a", "--zone-id", "x"), "name the zone that is lost, either by --zone or by --zone-id"),
        ((*files, "--zone", "a", "--auto-scaling"), "name what to read by one of -f FILE"),
        ((*files, "--zone", "a", "--all"), "--all reads each cluster itself: leave out -f, --context"),
        ((*files, "--zone", "a", "--stack", "s", "--all"), "--all reads each cluster itself: leave out -f"),
        ((*files, "--zone", "a", "--stack", "s", "--cluster", "blue"), "--stack has the record and the state"),
        (("--zone", "a", "--cluster", "blue"), "--cluster goes with --stack"),
        (("--zone", "a", "--stack", "s"), "give either --cluster or --all"),
        (("-f", str(empty), "--zone", "c"), "zone c has no node: nothing would be lost"),
        (("-f", str(empty), "--zone-id", "x"), "--zone-id is 'x': zone ids are read from the labels of nodes"),
        (("-f", str(large), "--zone", "c"), "workers-c: replicas is 2147483647: a forecast plays at most 20000 nodes"),
        (("-f", str(nodeless), "--zone-id", "x"), "--zone-id is 'x': the ids of these zones are unknown: c: add them"),
    ):
        (line,) = forecast(*arguments, code=2).stderr.splitlines()
        assert problem in line


def groups_of(tmp_path: Path, *, count: int, zones: str = "abc", most: int = 12, **pool: Any) -> list[str]:
    """Write a pool of level zones, without pods and nodes."""
    file, record = tmp_path / "groups.json", tmp_path / "groups.yaml"
    items: list[Object] = []
    for zone in zones:
        scalable = objects.cluster_api(zone, count)
        items += [scalable, *(objects.machine(scalable, number, node=True) for number in range(count))]
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}), encoding="utf-8")
    record.write_text(json.dumps({**pool, "pools": [{"name": "workers", "min": 3, "max": most}]}), encoding="utf-8")
    return ["-f", str(file), "--record", str(record), "--now", "2026-01-02T00:00:00Z", "--zone", "a"]


@pytest.mark.parametrize("demand", ["off", "advise", "full"])
def test_without_pods_the_forecast_is_about_nodes(tmp_path: Path, demand: str) -> None:
    files = groups_of(tmp_path, count=2, autoscaler="none", on_failure="move", demand=demand)

    document = json.loads(forecast(*files, "-o", "json").stdout)

    assert (document["podsKnown"], document["survives"], document["lostNodes"]) == (False, True, 2)
    assert document["missing"] == {}
    assert document["nodes"][-1]["running"] == {"a": 0, "b": 3, "c": 3}
    assert "pods are not known: each pool wants the nodes that it had" in forecast(*files).stdout


def test_the_autoscaler_orders_in_the_loops_of_the_record(files: list[str]) -> None:
    Path(files[3]).write_text("{autoscaler_loop: 400, pools: [{name: workers, max: 9}]}", encoding="utf-8")

    (pods,) = json.loads(forecast(*files, "--zone", "a", "-o", "json").stdout)["pods"]

    assert pods["longest"] >= 400 + PROVISIONED  # the first loop after the eviction, and a new node


def test_objects_need_no_namespace(files: list[str]) -> None:
    items = json.loads(Path(files[1]).read_text(encoding="utf-8"))["items"]
    for item in items:
        item["metadata"].pop("namespace", None)
        if item["kind"] == "MachineDeployment" and item["metadata"]["name"].endswith("c"):
            item["metadata"]["labels"].pop("evenkeel.dev/pool")  # pods may also run in a group without a pool
    Path(files[1]).write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}), encoding="utf-8")

    document = json.loads(forecast(*files, "--zone", "a", "-o", "json").stdout)

    assert [(pods["pods"], pods["withoutPlace"]) for pods in document["pods"]] == [(2, 0)]


def test_nodes_that_stay_missing_are_counted_by_pool(tmp_path: Path) -> None:
    files = groups_of(tmp_path, count=2, autoscaler="none", on_failure="release")

    document = json.loads(forecast(*files, "-o", "json", code=4).stdout)

    assert document["missing"] == {"cluster-api/demo/workers": 2}
    assert "workers lacks 2 nodes" in forecast(*files, code=4).stdout


def test_surviving_has_its_price_in_nodes(tmp_path: Path) -> None:
    files = groups_of(tmp_path, count=1, autoscaler="none", on_failure="move")

    (cost,) = json.loads(forecast(*files, "-o", "json").stdout)["costOfSurviving"]

    # PoolMinimum 3 in three zones: of 5 nodes, 3 remain without the largest zone.
    assert (cost["nodes"], cost["more"], cost["only"], cost["possible"]) == (5, 2, 2, True)


@pytest.mark.parametrize(
    ("zones", "most", "problem"), [("a", 12, "the pool has one zone"), ("abc", 4, "needs 5, PoolMaximum is 4")]
)
def test_a_pool_that_cannot_survive_says_why(tmp_path: Path, zones: str, most: int, problem: str) -> None:
    files = groups_of(tmp_path, count=1, zones=zones, most=most, autoscaler="none", on_failure="move")

    code = 4 if zones == "a" else 0
    (cost,) = json.loads(forecast(*files, "-o", "json", code=code).stdout)["costOfSurviving"]

    assert cost["possible"] is False
    assert f"workers: cannot survive: {problem}" in forecast(*files, code=code).stdout


def test_the_record_gives_zone_ids_without_nodes(tmp_path: Path) -> None:
    *files, option, zone = groups_of(tmp_path, count=2, autoscaler="none", on_failure="move", zone_ids={"id-1": "a"})

    assert forecast(*files, "--zone-id", "id-1").stdout == forecast(*files, option, zone).stdout


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    file = tmp_path / "config"
    contexts = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("blue", "green", "red")]
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    file.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "contexts": contexts,
                "clusters": [cluster],
                "users": [{"name": "u", "user": {}}],
                "current-context": "blue",
            }
        ),
        encoding="utf-8",
    )
    return str(file)


def test_an_option_of_the_kubeconfig_reads_a_cluster_of_a_stack_with_its_record_and_failures(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    until, key = "2026-01-02T01:00:00Z", "cluster-api/demo/workers-b"
    failed = {"failures": 2, "class": "capacity", "backoffUntil": until, "lastFailure": "2026-01-01T23:59:00Z"}
    well = {"failures": 0, "class": "unknown", "backoffUntil": None, "lastFailure": None}
    zones = {"c": {"impairedUntil": until, "impaired": True}, "b": {"impairedUntil": until, "impaired": False}}
    record = {"id": "blue", "flavours": ["cluster-api"], "access": {"kind": "kubeconfig", "secret": "x"}}
    record |= {"autoscaler": "none", "demand": "full", "on_failure": "move", "pools": [{"name": "workers", "max": 9}]}
    read: dict[str, Any] = {}

    def ask(action: str, stack: str, cluster: str, *_: Any) -> Any:
        assert (action, stack, cluster) == ("status", "evenkeel", "blue")
        return {"groups": {key: failed, "cluster-api/demo/workers-c": well}, "zones": zones}

    def observe(policy: Any, state: Any, _kubeconfig: Any, context: str, workload: str) -> Any:
        read.update(state=state, context=context, workload=workload, stage=policy.demand)
        seen = read_objects([("objects", Path(files[1]).read_text(encoding="utf-8"))], policy, MOMENT)
        return seen, lambda observed: observed

    monkeypatch.setattr(command, "pages", lambda *_: [{"records": [record], "unread": {}}])
    monkeypatch.setattr(command, "ask_or_fail", ask)
    monkeypatch.setattr(live, "observe", observe)
    options = ("--stack", "evenkeel", "--cluster", "blue", "--zone", "a", "--now", "2026-01-02T00:00:00Z")

    document = json.loads(forecast(*options, "--workload-context", "pods", "-o", "json").stdout)

    assert (read["context"], read["workload"], read["stage"]) == ("blue", "pods", "full")
    assert {str(group): state.failure.failures for group, state in read["state"].groups.items()} == {key: 2}
    assert [*read["state"].zones] == ["c"]
    assert document["nodes"][0]["running"] == {"a": 0, "b": 1, "c": 1}


def test_a_stack_reads_its_clusters_and_a_zone_without_nodes_is_refused(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = {"flavours": ["cluster-api"], "access": {"kind": "kubeconfig", "secret": "x"}, "autoscaler": "none"}
    record |= {"demand": "full", "on_failure": "move", "pools": [{"name": "workers", "max": 9}]}
    policy = read_model(ClusterFile, record, "record")
    seen = read_objects([("objects", Path(files[1]).read_text(encoding="utf-8"))], policy, MOMENT)
    kept = [replace(group, requested=0) if group.identity.zone == "c" else group for group in seen.groups]
    assert seen.workload is not None
    nodes = tuple(node for node in seen.workload.nodes if node.labels[ZONE] != "c")
    empty = replace(seen, groups=tuple(kept), workload=replace(seen.workload, nodes=nodes))
    found = {"blue": seen, "red": empty}

    def ask(action: str, _stack: str, cluster: str, fields: Any = None) -> Any:
        if action == "status":
            return {"groups": {}, "zones": {}}
        assert (action, fields) == ("plan", {"observation": True})
        return {"observation": pack(found[cluster])}

    def read(_action: str, _stack: str, cluster: str) -> Any:
        records = [{"id": id, **record} for id in found if cluster in (id, "*")]
        return [{"records": records, "unread": {}}]

    monkeypatch.setattr(command, "pages", read)
    monkeypatch.setattr(command, "ask_or_fail", ask)
    options = ("--stack", "evenkeel", "--now", "2026-01-02T00:00:00Z")

    result = forecast(*options, "--all", "--zone", "c")
    document = json.loads(forecast(*options, "--cluster", "blue", "--zone", "c", "-o", "json").stdout)
    of_files = json.loads(forecast(*files, "--zone", "c", "-o", "json").stdout)

    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == ["blue", "1"]
    assert document == of_files
    (line,) = forecast(*options, "--cluster", "red", "--zone", "c", code=2).stderr.splitlines()
    assert line == "evenkeel: zone c has no node: nothing would be lost"


def test_all_contexts_are_one_table_with_the_worst_cluster_first(
    files: list[str], kubeconfig: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = files[1]

    def observe(policy: Any, _state: Any, _kubeconfig: str, context: str, _workload: Any) -> Any:
        if context == "green":
            raise ClusterUnavailableError("green does not answer")
        seen = read_objects([("objects", Path(items).read_text(encoding="utf-8"))], policy, MOMENT)
        # The groups of context red may not grow.
        bounds = [replace(group, bounds=Bounds(0, 1)) if context == "red" else group for group in seen.groups]
        return replace(seen, groups=tuple(bounds)), lambda observed: observed

    monkeypatch.setattr(live, "observe", observe)
    record = Path(kubeconfig).with_name("small.yaml")
    record.write_text("{autoscaler: none, demand: full, pools: [{name: workers, max: 3}]}", encoding="utf-8")
    options = ("--all", "--kubeconfig", kubeconfig, "--record", str(record), "--now", "2026-01-02T00:00:00Z")

    result = forecast(*options, "--zone-id", "euc1-az1", code=1)
    document = json.loads(forecast(*options, "--zone-id", "euc1-az1", "-o", "json", code=1).stdout)

    assert result.stderr.splitlines() == ["green: not read: green does not answer"]
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == [c["cluster"] for c in document["clusters"]]
    assert document["unread"] == {"green": "green does not answer"}
    assert {cluster["cluster"] for cluster in document["clusters"]} == {"blue", "red"}


def test_a_record_that_cannot_be_read_is_one_line_of_a_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    page = {"records": [], "unread": {"green": "record of green: pools is 7: not a list"}, "next": None}
    monkeypatch.setattr(command, "pages", lambda *_: [page])
    record = {"id": "blue", "flavours": ["cluster-api"], "access": {"kind": "kubeconfig", "secret": "x"}}
    page["records"] = [record]

    def ask(*_: Any) -> Any:
        raise ClusterUnavailableError("blue does not answer")

    monkeypatch.setattr(command, "ask_or_fail", ask)
    result = forecast("--stack", "evenkeel", "--all", "--zone", "a", code=1)

    assert result.stderr.splitlines() == [
        "green: not read: record of green: pools is 7: not a list",
        "blue: not read: blue does not answer",
    ]
