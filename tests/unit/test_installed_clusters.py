"""Clusters straight from their installers, with no word of ours on any object: each has a full, valid plan."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from evenkeel_cli.main import app

FOLDER = Path(__file__).parent.parent / "clusters"
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
def test_there_is_nothing_of_ours_on_it(name: str) -> None:
    assert "evenkeel" not in (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", FILES)
def test_every_pool_is_valid_and_says_which_objects_its_numbers_come_from(name: str) -> None:
    found = plan("-f", named(name))
    assert found["pools"]
    for pool in found["pools"]:
        assert pool["valid"]
        assert len(pool["groups"]) == 3
        assert all(group["zone"] and group["state"] == "healthy" for group in pool["groups"])
        for number in ("min", "max"):
            origin = pool["numbersFrom"][number]
            assert origin["source"] == "owner"
            assert sum(owner["wanted"] for owner in origin["owners"]) == pool[number]
            assert all(owner["value"] == owner["wanted"] for owner in origin["owners"])


NUMBERS = {
    "gardener": {"main": (3, 9), "gpu": (0, 2)},
    "gardener-shoot": {"main": (3, 9), "gpu": (0, 2)},
    "openshift": {"demo-x7k2p-worker-eu-central-1a": (3, 12)},
    "hypershift": {"demo-eu-central-1a": (3, 9)},
    "cluster-class": {"demo-md-a-x07tq": (3, 15)},
}


@pytest.mark.parametrize("name", FILES)
def test_the_numbers_are_those_of_its_owners(name: str) -> None:
    assert {pool["name"]: (pool["min"], pool["max"]) for pool in plan("-f", named(name))["pools"]} == NUMBERS[name]


@pytest.mark.parametrize("name", FILES)
def test_a_quiet_pool_that_somebody_has_spread_evenly_is_left_as_it_is(name: str) -> None:
    for pool in plan("-f", named(name))["pools"]:
        for group in pool["groups"]:
            assert group["requested"]["from"] == group["requested"]["to"]
            if group["max"]["from"] is not None:
                assert group["max"]["from"] == group["max"]["to"]


def test_a_worker_that_wants_no_node_and_has_none_takes_no_part() -> None:
    (skipped,) = plan("-f", named("gardener"))["skipped"]
    assert skipped["reason"].endswith("none is wanted: spec.pools[off].maximum of Worker shoot--demo--main/main is 0")


def test_gardener_says_in_one_sentence_that_nobody_reads_the_bounds_and_what_works_all_the_same() -> None:
    for pool in plan("-f", named("gardener"))["pools"]:
        (note,) = pool["notes"]
        assert [rule["rule"] for rule in pool["noteRules"]] == ["bounds-unread"]
        assert "Gardener passes cluster-autoscaler its own" in note
        assert "one worker for each zone" in note
    assert "note: no autoscaler reads the bounds of this pool" in shell("-f", named("gardener"))
    assert all("notes" not in pool for pool in plan("-f", named("openshift"))["pools"])


def test_a_worker_for_each_zone_is_one_pool_whose_zones_can_take_over_all_of_it(tmp_path: Path) -> None:
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


def test_a_zone_that_stands_nowhere_else_is_the_workers_of_that_index(tmp_path: Path) -> None:
    def unlabelled(item: dict[str, Any]) -> None:
        if item["kind"] == "MachineDeployment":
            labels = item["spec"]["template"]["spec"]["nodeTemplate"]["metadata"]["labels"]
            for name in ("topology.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone"):
                del labels[name]

    for pool in plan("-f", changed("gardener", tmp_path, unlabelled))["pools"]:
        assert [group["zone"] for group in pool["groups"]] == [f"eu-central-1{letter}" for letter in "abc"]


def test_the_zones_shares_of_a_rolling_update_are_those_that_gardener_gives_them() -> None:
    main = plan("-f", named("gardener"))["pools"][1]
    shares = [reason for group in main["groups"] for reason in group["reasons"] if "maxSurge" in reason]
    assert [share.partition("maxSurge ")[2][0] for share in shares] == ["1", "0", "0"]
    assert all("maxUnavailable 0" in share for share in shares)


def test_without_an_autoscaler_nobody_has_to_read_them(tmp_path: Path) -> None:
    record = tmp_path / "record.yaml"
    record.write_text("autoscaler: none\n")
    for pool in plan("-f", named("gardener"), "--record", str(record))["pools"]:
        assert "notes" not in pool


def test_the_table_says_where_the_numbers_come_from() -> None:
    assert "max 9: spec.pools[main].maximum of Worker shoot--demo--main/main" in shell("-f", named("gardener"))
    shoot = shell("-f", named("gardener-shoot"))
    assert "max 9: spec.provider.workers[main].maximum of Shoot garden-demo/main" in shoot
    assert "4 (MachineAutoscaler openshift-machine-api/worker-eu-central-1b)" in shell("-f", named("openshift"))


def test_who_set_a_number_is_told_where_the_object_says_it() -> None:
    main = plan("-f", named("gardener"))["pools"][1]
    assert [owner["setBy"] for owner in main["numbersFrom"]["max"]["owners"]] == ["gardenlet"]


@pytest.mark.parametrize(("most", "maximum"), [(24, 12), (12, 12), (8, 8), (0, 12)])
def test_a_pool_is_no_larger_than_the_cluster_may_be(most: int, maximum: int, tmp_path: Path) -> None:
    objects = list(yaml.safe_load_all((FOLDER / "openshift.yaml").read_text(encoding="utf-8")))
    objects[0]["spec"]["resourceLimits"]["maxNodesTotal"] = most
    changed = tmp_path / "objects.yaml"
    changed.write_text(yaml.safe_dump_all(objects))
    (pool,) = plan("-f", str(changed))["pools"]
    assert pool["max"] == maximum
    cut = "cut to 8: spec.resourceLimits.maxNodesTotal of ClusterAutoscaler default is 8"
    assert (cut in pool["numbersFrom"]["max"]["says"]) == (maximum == 8)


def test_a_node_pool_that_was_not_read_leaves_its_group_alone_and_says_what_to_do(tmp_path: Path) -> None:
    found = plan("-f", changed("hypershift", tmp_path, lambda item: item["kind"] != "NodePool"))
    (pool,) = found["pools"]
    assert pool["numbersFrom"]["max"]["source"] == "adoption"
    for group in pool["groups"]:
        assert group["state"] == "frozen"
        assert "belong to NodePool 'clusters/demo-" in group["reasons"][0]
        assert "grant list on it" in group["reasons"][0]


def test_a_node_pool_with_replicas_of_its_own_stays_as_it_is(tmp_path: Path) -> None:
    def fixed(item: dict[str, Any]) -> None:
        if item["kind"] == "NodePool" and item["metadata"]["name"].endswith("b"):
            del item["spec"]["autoScaling"]
            item["spec"]["replicas"] = 2

    (pool,) = plan("-f", changed("hypershift", tmp_path, fixed))["pools"]
    assert [group["state"] for group in pool["groups"]] == ["healthy", "frozen", "healthy"]
    assert pool["max"] == 3 + 2 + 3


def test_node_pools_that_share_a_label_of_their_users_are_one_pool(tmp_path: Path) -> None:
    def labelled(item: dict[str, Any]) -> None:
        if item["kind"] == "NodePool":
            item["metadata"]["labels"] = {"team.example/pool": "web"}

    record = tmp_path / "record.yaml"
    record.write_text("pools:\n- name: web\n  selector: {team.example/pool: web}\n")
    (pool,) = plan("-f", changed("hypershift", tmp_path, labelled), "--record", str(record))["pools"]
    assert (pool["name"], pool["min"], pool["max"]) == ("web", 3, 9)


def test_a_bound_that_the_topology_applies_from_its_class_is_not_ours_and_the_remedy_is_told(tmp_path: Path) -> None:
    def from_class(item: dict[str, Any]) -> None:
        if item["kind"] == "Cluster":
            for entry in item["spec"]["topology"]["workers"]["machineDeployments"]:
                del entry["metadata"]

    (pool,) = plan("-f", changed("cluster-class", tmp_path, from_class))["pools"]
    for group in pool["groups"]:
        assert group["state"] == "frozen"
        assert group["min"]["from"] == group["min"]["to"]
        assert "belongs to capi-topology, which reverts other writes" in group["reasons"][0]
        assert "set it for this machine deployment in the Cluster's topology" in group["reasons"][0]
