"""`evenkeel forecast`: text, JSON, and one line per invalid value."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from evenkeel_cli.main import app
from tests import objects

Object = dict[str, Any]
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
    """One full node of two pods in each of three zones."""
    items: list[Object] = []
    for number, zone in enumerate("abc"):
        scalable = objects.cluster_api(zone, 1)
        node = objects.node(
            f"ip-{number}",
            **{"topology.kubernetes.io/zone": zone, "topology.k8s.aws/zone-id": f"euc1-az{number + 1}"},
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


def test_bad_input_is_one_line_each(files: list[str]) -> None:
    for arguments, problem in (
        ((*files, "--zone", "d"), "--zone is 'd': no such zone: choose one of a, b, c"),
        ((*files, "--zone-id", "x"), "--zone-id is 'x': no such zone: choose one of euc1-az1, euc1-az2, euc1-az3"),
        (tuple(files), "name the zone that is lost, either by --zone or by --zone-id"),
        (("--zone", "a"), "give either -f with objects, pods and nodes, or --kubeconfig or --context"),
    ):
        (line,) = forecast(*arguments, code=2).stderr.splitlines()
        assert problem in line


def test_a_forecast_needs_pods(tmp_path: Path) -> None:
    file = tmp_path / "groups.json"
    file.write_text(json.dumps(objects.cluster_api("a", 1)), encoding="utf-8")

    (line,) = forecast("-f", str(file), "--zone", "a", code=2).stderr.splitlines()

    assert "pods and nodes are missing: add them to the files of -f" in line
