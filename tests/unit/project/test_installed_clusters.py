"""Clusters straight from their installers: each has a full, valid plan."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from evenkeel_cli.main import app

FOLDER = Path(__file__).parents[2] / "clusters"
FILES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
NOW = "2026-01-31T12:00:00Z"


def shell(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["plan", "--now", NOW, *arguments], catch_exceptions=False, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.output


def plan(*arguments: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(shell("-o", "json", *arguments))
    return answer


def changed(name: str, tmp_path: Path, change: Any) -> str:
    objects = list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text(encoding="utf-8")))
    path = tmp_path / "changed.yaml"
    path.write_text(yaml.safe_dump_all([item for item in objects if change(item) is not False]))
    return str(path)


def named(name: str) -> str:
    return str(FOLDER / f"{name}.yaml")


@pytest.mark.parametrize("name", FILES)
def test_every_pool_has_the_numbers_of_its_owners_and_no_change(name: str) -> None:
    assert "evenkeel" not in (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    pools = plan("-f", named(name))["pools"]
    assert {pool["name"]: (pool["min"], pool["max"]) for pool in pools} == NUMBERS[name]
    for pool in pools:
        assert pool["valid"]
        assert len(pool["groups"]) == 3
        for group in pool["groups"]:
            assert group["zone"]
            assert group["state"] == "healthy"
            assert group["requested"]["from"] == group["requested"]["to"]
            assert group["max"]["from"] in (None, group["max"]["to"])
        for number in ("min", "max"):
            origin = pool["numbersFrom"][number]
            assert origin["source"] == "owner"
            assert sum(owner["wanted"] for owner in origin["owners"]) == pool[number]
            assert all(owner["value"] == owner["wanted"] for owner in origin["owners"])


NUMBERS = {
    "gardener": {"main": (3, 9), "gpu": (0, 2)},
    "gardener-shoot": {"main": (3, 9), "gpu": (0, 2)},
    "openshift": {"demo-x7k2p-worker-eu-central": (3, 12)},
    "hypershift": {"demo-eu-central": (3, 9)},
    "cluster-class": {"demo-md": (3, 15)},
}


def test_a_worker_with_maximum_zero_is_skipped() -> None:
    (skipped,) = plan("-f", named("gardener"))["skipped"]
    assert skipped["reason"].endswith(
        "the group has no node and requests none: spec.pools[off].maximum of Worker shoot--demo--main/main is 0"
    )


def test_a_pool_of_gardener_has_a_note_that_no_autoscaler_reads_its_bounds() -> None:
    pools = plan("-f", named("gardener"))["pools"]
    for pool in pools:
        (note,) = pool["notes"]
        assert [rule["rule"] for rule in pool["noteRules"]] == ["bounds-unread"]
        assert "Gardener passes it the Worker's bounds" in note
        assert "one worker for each zone" in note
    assert "note: cluster-autoscaler ignores the bounds on these MachineDeployments" in shell("-f", named("gardener"))
    assert all("notes" not in pool for pool in plan("-f", named("openshift"))["pools"])
    assert [owner["setBy"] for owner in pools[1]["numbersFrom"]["max"]["owners"]] == ["gardenlet"]
    shares = [reason for group in pools[1]["groups"] for reason in group["reasons"] if "maxSurge" in reason]
    assert [share.partition("maxSurge ")[2][0] for share in shares] == ["1", "0", "0"]
    assert all("maxUnavailable 0" in share for share in shares)


def test_a_worker_for_each_zone_is_one_pool(tmp_path: Path) -> None:
    def split(item: dict[str, Any]) -> bool | None:
        if item["kind"] == "Worker":
            (pool,) = (pool for pool in item["spec"]["pools"] if pool["name"] == "main")
            item["spec"]["pools"] = [
                {**pool, "name": f"main-{zone[-1]}", "minimum": 1, "maximum": 6, "zones": [zone]}
                for zone in pool["zones"]
            ]
        elif item["kind"] == "MachineDeployment":
            if "--main-main-" not in item["metadata"]["name"]:
                return False
            labels = item["spec"]["template"]["spec"]["nodeTemplate"]["metadata"]["labels"]
            own = f"main-{labels['topology.kubernetes.io/zone'][-1]}"
            labels |= {"worker.gardener.cloud/pool": own, "evenkeel.dev/pool": "main"}
            item["metadata"]["labels"]["worker.gardener.cloud/pool"] = own
        return None

    (pool,) = plan("-f", changed("gardener", tmp_path, split))["pools"]
    assert (pool["name"], pool["min"], pool["max"]) == ("main", 3, 18)
    assert [group["max"]["to"] for group in pool["groups"]] == [6, 6, 6]
    assert "one worker for each zone" not in pool["notes"][0]


def test_a_zone_without_a_label_is_the_workers_of_that_index(tmp_path: Path) -> None:
    def unlabelled(item: dict[str, Any]) -> None:
        if item["kind"] == "MachineDeployment":
            labels = item["spec"]["template"]["spec"]["nodeTemplate"]["metadata"]["labels"]
            for name in ("topology.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone"):
                del labels[name]

    for pool in plan("-f", changed("gardener", tmp_path, unlabelled))["pools"]:
        assert [group["zone"] for group in pool["groups"]] == [f"eu-central-1{letter}" for letter in "abc"]


def test_without_an_autoscaler_the_pool_has_no_note(tmp_path: Path) -> None:
    record = tmp_path / "record.yaml"
    record.write_text("autoscaler: none\n")
    for pool in plan("-f", named("gardener"), "--record", str(record))["pools"]:
        assert "notes" not in pool


def test_the_table_shows_the_source_of_the_numbers() -> None:
    assert "max 9: spec.pools[main].maximum of Worker shoot--demo--main/main" in shell("-f", named("gardener"))
    shoot = shell("-f", named("gardener-shoot"))
    assert "max 9: spec.provider.workers[main].maximum of Shoot garden-demo/main" in shoot
    assert "4 (MachineAutoscaler openshift-machine-api/worker-eu-central-1b)" in shell("-f", named("openshift"))


@pytest.mark.parametrize(("most", "maximum"), [(24, 12), (12, 12), (8, 8), (0, 12)])
def test_a_pool_is_no_larger_than_the_limit_of_the_cluster(most: int, maximum: int, tmp_path: Path) -> None:
    def limited(item: dict[str, Any]) -> None:
        if item["kind"] == "ClusterAutoscaler":
            item["spec"]["resourceLimits"]["maxNodesTotal"] = most

    (pool,) = plan("-f", changed("openshift", tmp_path, limited))["pools"]
    assert pool["max"] == maximum
    cut = "cut to 8: spec.resourceLimits.maxNodesTotal of ClusterAutoscaler default is 8"
    assert (cut in pool["numbersFrom"]["max"]["says"]) == (maximum == 8)


def test_a_node_pool_that_was_not_read_freezes_its_group(tmp_path: Path) -> None:
    found = plan("-f", changed("hypershift", tmp_path, lambda item: item["kind"] != "NodePool"))
    (pool,) = found["pools"]
    assert pool["numbersFrom"]["max"]["source"] == "adoption"
    for group in pool["groups"]:
        assert group["state"] == "frozen"
        assert "the owner of the bounds, NodePool 'clusters/demo-" in group["reasons"][0]
        assert "grant the verb list on its kind" in group["reasons"][0]


def test_a_node_pool_with_replicas_of_its_own_is_frozen(tmp_path: Path) -> None:
    def fixed(item: dict[str, Any]) -> None:
        if item["kind"] == "NodePool" and item["metadata"]["name"].endswith("b"):
            del item["spec"]["autoScaling"]
            item["spec"]["replicas"] = 2

    (pool,) = plan("-f", changed("hypershift", tmp_path, fixed))["pools"]
    assert [group["state"] for group in pool["groups"]] == ["healthy", "frozen", "healthy"]
    assert pool["max"] == 3 + 2 + 3


def test_node_pools_with_a_common_label_are_one_pool(tmp_path: Path) -> None:
    def labelled(item: dict[str, Any]) -> None:
        if item["kind"] == "NodePool":
            item["metadata"]["labels"] = {"team.example/pool": "web"}

    record = tmp_path / "record.yaml"
    record.write_text("pools:\n- name: web\n  selector: {team.example/pool: web}\n")
    (pool,) = plan("-f", changed("hypershift", tmp_path, labelled), "--record", str(record))["pools"]
    assert (pool["name"], pool["min"], pool["max"]) == ("web", 3, 9)


def test_a_bound_from_the_cluster_class_is_frozen_with_the_remedy(tmp_path: Path) -> None:
    def from_class(item: dict[str, Any]) -> None:
        if item["kind"] == "Cluster":
            for entry in item["spec"]["topology"]["workers"]["machineDeployments"]:
                del entry["metadata"]

    (pool,) = plan("-f", changed("cluster-class", tmp_path, from_class))["pools"]
    for group in pool["groups"]:
        assert group["state"] == "frozen"
        assert group["min"]["from"] == group["min"]["to"]
        assert "belongs to capi-topology, which reverts other writes" in group["reasons"][0]
        assert "set the field for this machine deployment in the Cluster's topology" in group["reasons"][0]
