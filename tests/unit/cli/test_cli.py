"""`evenkeel plan` from files: its JSON is a contract, and no input ends in a traceback."""

import json
import re
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.main import get_command
from typer.testing import CliRunner, Result

from evenkeel.application.errors import ClusterUnavailableError
from evenkeel.texts.english import counted
from evenkeel_cli import live
from evenkeel_cli.main import app
from tests import objects
from tests.builders import json_values
from tests.objects import ZONES, Object, machine

NOW = "2026-01-15T12:00:00Z"
KUBECONFIG = """
{current-context: prod, contexts: [{name: prod, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "https://c"}}]}
"""
MAXIMUM = ("metadata", "annotations", "evenkeel.dev/pool-max")
MINIMUM = ("metadata", "annotations", "evenkeel.dev/pool-min")
COMMANDS = sorted(get_command(app).commands)  # type: ignore[attr-defined]
POOL_KEYS = {"name", "strategy", "min", "max", "valid", "problems", "problemRules"}
POOL_KEYS |= {"starved", "overcommitted", "numbersFrom", "groups"}
GROUP_KEYS = {"flavour", "namespace", "name", "zone", "state", "requested", "running"}
GROUP_KEYS |= {"min", "max", "reasons", "rules"}


def with_field(item: Object, value: Any, *path: str) -> Object:
    *parents, last = path
    place: Any = item
    for name in parents:
        place = place[name]
    place[last] = value
    return item


def in_namespace(*items: Object) -> list[Object]:
    """Return the items as the API would."""
    return [{**item, "metadata": {"namespace": "demo", **item["metadata"]}} for item in items]


def pool_of(*replicas: int, **annotations: str) -> list[Object]:
    """Return three zones of Cluster API, with PoolMinimum 3 and PoolMaximum 12."""
    numbers = {"evenkeel.dev/pool-min": "3", "evenkeel.dev/pool-max": "12", **annotations}
    made = [
        objects.cluster_api(zone, replicas[i], annotations=numbers if i == 0 else None) for i, zone in enumerate(ZONES)
    ]
    return in_namespace(*made)


class Files:
    """Files of a test, and the command that reads them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, content: object) -> str:
        path = self.folder / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return str(path)

    def listed(self, *items: Object, name: str = "objects.json") -> str:
        return self.write(name, {"apiVersion": "v1", "kind": "List", "items": list(items)})

    def run(self, *arguments: str, stdin: str | None = None) -> Result:
        result = CliRunner().invoke(app, ["plan", *arguments], input=stdin)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        assert "Traceback" not in result.output
        return result

    def plan(self, *arguments: str, stdin: str | None = None, code: int = 0) -> dict[str, Any]:
        result = self.run(*arguments, "--now", NOW, "-o", "json", stdin=stdin)
        assert result.exit_code == code, result.output
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    def faults(self, *arguments: str, stdin: str | None = None, code: int = 2) -> list[str]:
        """Return the faults, one per line on standard error. Standard output must be empty."""
        result = self.run(*arguments, stdin=stdin)
        assert result.exit_code == code, result.output
        assert result.stdout == ""
        lines = result.stderr.splitlines()
        assert lines
        assert all(line.startswith("evenkeel: ") for line in lines)
        return lines


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


class TestContract:
    def test_the_json_has_the_names_of_the_contract(self, files: Files) -> None:
        stray = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}}
        plan = files.plan("-f", files.listed(*pool_of(4, 1, 1), stray))
        assert set(plan) == {"now", "pools", "skipped", "state"}
        assert plan["now"] == NOW
        (pool,) = plan["pools"]
        assert set(pool) == POOL_KEYS | {"notes", "noteRules", "timeouts", "timeoutRules"}  # its zones differ
        named = ("name", "strategy", "min", "max", "valid", "starved", "overcommitted")
        assert [pool[key] for key in named] == ["workers", "Balanced", 3, 12, True, 0, False]
        for group in pool["groups"]:
            assert set(group) == GROUP_KEYS
            assert all(set(group[key]) == {"from", "to"} for key in ("requested", "min", "max"))
            assert group["reasons"]
            assert (group["state"], group["flavour"], group["namespace"]) == ("healthy", "cluster-api", "demo")
        assert sum(group["max"]["to"] for group in pool["groups"]) == 12
        assert [set(skipped) for skipped in plan["skipped"]] == [{"namespace", "name", "reason"}]

    def test_the_three_flavours_are_planned_in_one_run(self, files: Files) -> None:
        items = [
            *(objects.gardener(zone, 2) for zone in ZONES),
            *(objects.cluster_api(zone, 2) for zone in ZONES),
            *(objects.openshift(zone, 2) for zone in ZONES),
            *(objects.machine_autoscaler(zone, 0, 4) for zone in ZONES),
        ]
        found = files.plan("-f", files.listed(*in_namespace(*items)))
        assert [group["flavour"] for pool in found["pools"] for group in pool["groups"]] == (
            ["cluster-api"] * 3 + ["gardener"] * 3 + ["openshift"] * 3
        )
        assert found["skipped"] == []

    @pytest.mark.parametrize("moment", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "1999-06-01T00:00:00Z"])
    def test_a_date_beyond_the_calendar_of_records_is_planned_with(self, files: Files, moment: str) -> None:
        decision = {"min": 0, "max": 3, "at": moment, "state": "healthy", "target": 4, "requested": 4}
        first, *others = pool_of(4, 1, 1, **{"evenkeel.dev/decision": json.dumps(decision)})
        said = {"type": "InfrastructureReady", "status": "False", "severity": "Error", "lastTransitionTime": moment}
        failed = machine(first, 1, node=False)
        failed["metadata"]["creationTimestamp"] = "2026-01-15T11:59:00Z"
        failed["status"]["conditions"] = [{**said, "reason": "Failed", "message": "InsufficientInstanceCapacity"}]
        first["status"]["readyReplicas"] = 1
        found = files.plan("-f", files.listed(first, *others, *in_namespace(failed)))
        again = files.plan("-f", files.listed(first, *others), "--state", files.write("state.json", found["state"]))
        assert [pool["valid"] for pool in (*found["pools"], *again["pools"])] == [True, True]

    def test_a_completed_move_is_not_in_the_printed_state(self, files: Files) -> None:
        move = {"id": "01KF0000000000000000000000", "unplaced": 3}
        state = files.write("state.json", {"pools": {"cluster-api/demo/demo/workers": {"move": move}}})
        record = files.write("record.yaml", "on_failure: move\nautoscaler: none\n")
        found = files.plan("-f", files.listed(*pool_of(1, 1, 1)), "--record", record, "--state", state)
        (pool,) = found["pools"]
        assert sum(group["requested"]["to"] for group in pool["groups"]) == 6
        placed = pool_of(*(group["requested"]["to"] for group in pool["groups"]))
        after = files.write("after.json", found["state"])
        again = files.plan("-f", files.listed(*placed), "--record", record, "--state", after)
        assert all(group["requested"]["from"] == group["requested"]["to"] for group in again["pools"][0]["groups"])

    @pytest.mark.parametrize(("maximum", "code"), [("12", 0), ("many", 3)], ids=["valid", "invalid"])
    def test_the_state_of_a_renamed_pool_has_its_new_name(self, files: Files, maximum: str, code: int) -> None:
        old = files.plan("-f", files.listed(*pool_of(1, 1, 1)))["state"]
        renamed = pool_of(1, 1, 1)
        for item in renamed:
            item["metadata"]["labels"]["evenkeel.dev/pool"] = "others"
            item["metadata"]["annotations"]["evenkeel.dev/pool-max"] = maximum
        plan = files.plan("-f", files.listed(*renamed), "--state", files.write("state.json", old), code=code)
        pool = old["pools"]["cluster-api/demo/demo/workers"]
        assert plan["state"]["pools"] == {"cluster-api/demo/demo/others": pool}

    def test_a_state_file_fences_probes_and_impairs(self, files: Files) -> None:
        fenced = {"failures": 1, "backoff_until": "2026-01-15T12:04:00Z", "last_failure": "2026-01-15T11:59:00Z"}
        probing = {"failures": 1, "backoff_until": "2026-01-15T11:55:00Z", "last_failure": "2026-01-15T11:50:00Z"}
        key = "cluster-api/demo/demo-workers-eu-central-1"
        state = {
            "groups": {f"{key}a": {**fenced, "class": "capacity"}, f"{key}b": probing},
            "zones": {"eu-central-1c": {"impaired_until": "2026-01-15T13:00:00Z"}},
        }
        plan = files.plan("-f", files.listed(*pool_of(2, 2, 2)), "--state", files.write("state.json", state))
        assert [group["state"] for group in plan["pools"][0]["groups"]] == ["fenced", "probing", "fenced"]

    def test_a_time_with_an_offset_is_printed_in_utc(self, files: Files) -> None:
        result = files.run("-f", files.listed(*pool_of(1, 1, 1)), "--now", "2026-01-15T13:00:00+01:00", "-o", "json")
        assert json.loads(result.stdout)["now"] == NOW

    def test_the_table_has_zones_changes_and_reasons(self, files: Files) -> None:
        result = files.run("-f", files.listed(*pool_of(4, 1, 1)), "--now", NOW)
        assert result.exit_code == 0
        for part in ("workers", "eu-central-1b", "healthy", "node groups would change"):
            assert part in result.stdout


class TestInput:
    def test_objects_are_read_in_every_form(self, files: Files) -> None:
        """Documents, one file each, a typed list without kinds, a byte order mark, a file and standard input."""
        items = pool_of(1, 1, 1)
        whole = files.plan("-f", files.listed(*items))
        documents = "---\n" + "---\n".join(yaml.safe_dump(item) for item in items)
        assert files.plan("-f", files.write("documents.yaml", documents)) == whole
        assert files.plan("-f", files.write("bom.yaml", b"\xef\xbb\xbf" + documents.encode())) == whole
        several = [files.write(f"{i}.json", item) for i, item in enumerate(items)]
        assert files.plan(*(word for name in several for word in ("-f", name))) == whole
        bare = [{key: value for key, value in item.items() if key not in ("kind", "apiVersion")} for item in items]
        typed = {"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "MachineDeploymentList", "items": bare}
        assert files.plan("-f", files.write("typed.json", typed)) == whole
        rest = json.dumps({"apiVersion": "v1", "kind": "List", "items": items[1:]})
        assert files.plan("-f", files.listed(items[0]), "-f", "-", stdin=rest) == whole

    def test_machines_in_the_files_say_what_runs(self, files: Files) -> None:
        items = pool_of(3, 1, 1)
        items[0]["status"] = {}
        machines = in_namespace(*(machine(items[0], number, node=number == 1) for number in (1, 2, 3)))
        state = {"groups": {"cluster-api/demo/demo-workers-eu-central-1a": {"backoff_until": "2026-01-15T12:04:00Z", "class": "capacity"}}}  # fmt: skip  # noqa: E501
        found = files.plan("-f", files.listed(*items, *machines), "--state", files.write("state.json", state))
        assert found["pools"][0]["groups"][0]["requested"] == {"from": 3, "to": 1}

    def test_machines_of_one_group_do_not_make_the_others_empty(self, files: Files) -> None:
        items = pool_of(2, 2, 2)
        machines = in_namespace(machine(items[0], 1, node=True), machine(items[0], 2, node=True))
        state = {"zones": {"eu-central-1c": {"impaired_until": "2026-01-15T13:00:00Z"}}}
        found = files.plan("-f", files.listed(*items, *machines), "--state", files.write("state.json", state))
        assert [group["requested"]["to"] for group in found["pools"][0]["groups"]] == [2, 2, 2]

    def test_the_record_gives_strategy_pools_and_discovery(self, files: Files) -> None:
        items = pool_of(1, 1, 1)
        for item in items:
            del item["metadata"]["labels"]["evenkeel.dev/pool"]
            item["metadata"]["labels"]["team"] = "a"
            item["metadata"]["annotations"] = {}
        record = {
            "strategy": "backwardcompatible",
            "pools": [{"name": "theirs", "selector": {"team": "a"}, "min": 3, "max": 9}],
        }
        found = files.plan("-f", files.listed(*items), "--record", files.write("cluster.yaml", yaml.safe_dump(record)))
        (pool,) = found["pools"]
        assert (pool["name"], pool["strategy"], pool["min"], pool["max"]) == ("theirs", "Backward-Compatible", 3, 9)
        assert [group["max"]["to"] for group in pool["groups"]] == [3, 3, 3]

    def test_a_flavour_that_the_record_does_not_name_is_skipped_with_the_reason(self, files: Files) -> None:
        record = files.write("cluster.yaml", "flavours: [gardener]")
        found = files.plan("-f", files.listed(*pool_of(1, 1, 1)), "--record", record, code=4)
        assert found["pools"] == []
        assert {skipped["reason"] for skipped in found["skipped"]} == {
            "3 objects: flavour cluster-api is not among the record's flavours"
        }


class TestNodeTemplates:
    SIMILAR = "pools: {discover: similar}\nflavours: [cluster-api, gardener]\n"

    @staticmethod
    def loose(*replicas: int, **annotations: str) -> list[Object]:
        """Return groups of one template, one per zone, without a pool label."""
        named = {objects.CAPACITY + name: value for name, value in annotations.items()}
        made = [objects.cluster_api(zone, replicas[i], annotations=named) for i, zone in enumerate(ZONES)]
        return in_namespace(*(objects.alone(objects.refers(item)) for item in made))

    def test_without_a_template_each_group_is_skipped_with_the_annotations_to_set(self, files: Files) -> None:
        record = files.write("c.yaml", self.SIMILAR)
        found = files.plan("-f", files.listed(*self.loose(3, 1, 0)), "--record", record, code=4)
        assert found["pools"] == []
        assert len(found["skipped"]) == 3
        assert all("annotate capacity.cluster-autoscaler" in skipped["reason"] for skipped in found["skipped"])

    def test_machine_classes_are_read(self, files: Files) -> None:
        item = objects.gardener(ZONES[0], 0, annotations={"evenkeel.dev/pool-max": "3"})
        listed = files.listed(*in_namespace(item, objects.machine_class(item)))
        assert files.plan("-f", listed)["skipped"] == []

    def test_nodes_count_only_where_the_record_has_nodes_true(self, files: Files) -> None:
        items = self.loose(1, 1, 1)
        nodes = [objects.node(f"ip-{i}", memory=memory) for i, memory in enumerate(("16Gi", "16Gi", "32Gi"))]
        machines = [objects.runs_on(machine(item, 1, node=True), node) for item, node in zip(items, nodes, strict=True)]
        listed = files.listed(*items, *in_namespace(*machines, objects.infrastructure()), *nodes)
        record = files.write("c.yaml", "pools: {discover: similar, nodes: true}")
        by_node = files.plan("-f", listed, "--record", record)
        assert [len(pool["groups"]) for pool in by_node["pools"]] == [2, 1]
        assert by_node["skipped"] == []
        by_template = files.plan("-f", listed, "--record", files.write("c.yaml", self.SIMILAR))
        assert [len(pool["groups"]) for pool in by_template["pools"]] == [3]
        assert {skipped["name"] for skipped in by_template["skipped"]} == {"Node"}
        assert all("3 objects: nodes are read only" in skipped["reason"] for skipped in by_template["skipped"])


class TestGrowth:
    def test_grow_and_shrink_print_the_request_and_its_groups(self, files: Files) -> None:
        name = files.listed(*pool_of(1, 1, 3))
        reported = json.loads(files.run("-f", name, "--grow", "workers=2", "-o", "json").stdout)
        assert [group["requested"]["to"] for group in reported["pools"][0]["groups"]] == [2, 2, 3]
        assert reported["pools"][0]["growth"] == {"request": "--grow", "nodes": 2, "missing": 0}
        reported = json.loads(files.run("-f", name, "--shrink", "workers=1", "-o", "json").stdout)
        assert [group["requested"]["to"] for group in reported["pools"][0]["groups"]] == [1, 1, 2]

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("workers", "write pool=K, or pool=K,only=group,group"),
            ("=2", "write pool=K"),
            ("workers=2,", "write pool=K"),
            ("workers=2,only=", "write pool=K"),
            ("workers=2,only=a,,b", "write pool=K"),
            ("workers=2,zones=a", "write pool=K"),
            ("workers=", "K is '': not an integer"),
            ("workers = 2", "K is ' 2': not an integer"),
            ("workers=0", "K is 0: ask for one node or more"),
            ("workers=-2", "K is '-2': negative"),
            ("workers=99999999999", "larger than 2147483647"),
            ("a=b=2", "no pool here has the name 'a=b'"),
            ("a/b/c=2", "no pool here has the name 'a/b/c'"),
            ("work\ners=2", "no pool here has the name 'work\\ners'"),
            ("workers=2,only=a b", "has no group 'a b'"),
            (f"demo-workers-{ZONES[0]}=2", "; pool workers has a group of that name"),
        ],
    )
    def test_a_bad_request_is_one_line_and_exit_two(self, files: Files, text: str, says: str) -> None:
        for option in ("--grow", "--shrink"):
            result = files.run("-f", files.listed(*pool_of(1, 1, 1)), option, text)
            assert result.exit_code == 2
            assert result.stderr.count("\n") == 1
            assert says in result.stderr
            assert not result.stdout

    def test_a_second_request_for_one_pool_is_reported_as_waiting(self, files: Files) -> None:
        result = files.run("-f", files.listed(*pool_of(1, 1, 1)), "--grow", "workers=2", "--grow", "workers=3")
        assert result.exit_code == 2
        assert "request --grow-2 for 3 nodes: waits for request --grow-1 of the same pool" in result.stderr

    def test_a_request_for_an_invalid_pool_prints_the_problem_too(self, files: Files) -> None:
        items = pool_of(1, 1, 1, **{"evenkeel.dev/pool-max": "2", "evenkeel.dev/pool-min": "3"})
        result = files.run("-f", files.listed(*items), "--grow", "workers=2")
        assert result.exit_code == 3
        assert "PoolMinimum 3 is larger than PoolMaximum 2" in result.stdout
        assert "is valid" in result.stderr

    def test_a_request_without_any_pool_names_no_pool(self, files: Files, tmp_path: Path) -> None:
        record = tmp_path / "off.yaml"
        record.write_text('pools: {discover: "off"}', encoding="utf-8")
        items = [{**item, "metadata": {**item["metadata"], "labels": {}}} for item in pool_of(1, 1, 1)]
        result = files.run("-f", files.listed(*items), "--record", str(record), "--grow", "workers=2")
        assert "request --grow for 2 nodes: no pool here has the name 'workers'" in result.output


class TestBadPools:
    @pytest.mark.parametrize(
        ("path", "value", "says"),
        [
            (MAXIMUM, "many", "evenkeel.dev/pool-max is 'many': not an integer"),
            (MAXIMUM, "9" * 5000, "larger than 2147483647"),
            (MINIMUM, "13", "PoolMinimum 13 is larger than PoolMaximum 12"),
            (("spec", "replicas"), "three", "spec.replicas is 'three'"),
            (("spec", "replicas"), [1], "spec.replicas is "),
            (("spec", "template"), None, "has no zone"),
            (("spec", "template", "spec", "failureDomain"), 5, "zone is '5'"),
            (("spec", "template", "spec", "failureDomain"), "", "zone is ''"),
        ],
    )
    def test_a_bad_field_is_exit_three(self, files: Files, path: tuple[str, ...], value: Any, says: str) -> None:
        first, *others = pool_of(1, 1, 1)
        (pool,) = files.plan("-f", files.listed(with_field(first, value, *path), *others), code=3)["pools"]
        assert pool["valid"] is False
        (problem,) = (problem for problem in pool["problems"] if says in problem)
        assert "demo-workers-eu-central-1a" in problem or path == MINIMUM
        assert len(problem) < 400
        for group in pool["groups"]:
            assert all(group[key]["from"] == group[key]["to"] for key in ("requested", "min", "max"))

    def test_members_that_disagree_make_only_their_own_pool_invalid(self, files: Files) -> None:
        first, second, third = pool_of(1, 1, 1)
        with_field(second, "9", *MAXIMUM)
        numbers = {"evenkeel.dev/pool-max": "12"}
        others = (objects.cluster_api(zone, 1, pool="others", bounds=(0, 9), annotations=numbers) for zone in ZONES)
        plan = files.plan("-f", files.listed(first, second, third, *in_namespace(*others)), code=3)
        pools = {pool["name"]: pool for pool in plan["pools"]}
        assert {name: pool["valid"] for name, pool in pools.items()} == {"workers": False, "others": True}
        assert any("members disagree on evenkeel.dev/pool-max" in each for each in pools["workers"]["problems"])
        assert any(group["max"]["from"] != group["max"]["to"] for group in pools["others"]["groups"])

    @pytest.mark.parametrize("missing", ["status", "labels", "annotations", "spec", "namespace"])
    def test_objects_with_parts_missing_are_planned_or_skipped(self, files: Files, missing: str) -> None:
        items = pool_of(1, 1, 1)
        for item in items:
            item.pop(missing, None)
            item["metadata"].pop(missing, None)
        result = files.run("-f", files.listed(*items), "-o", "json", "--now", NOW)
        found = json.loads(result.stdout)
        assert result.exit_code in ((0, 3) if found["pools"] else (4,))
        assert len(found["skipped"]) + sum(len(pool["groups"]) for pool in found["pools"]) == 3

    def test_of_two_objects_with_one_name_the_second_is_skipped(self, files: Files) -> None:
        pool = pool_of(2, 2, 2)
        newer = {**pool[0], "apiVersion": "cluster.x-k8s.io/v1beta2"}
        first, second = files.listed(*pool, name="a.json"), files.listed(newer, pool[1], name="b.json")
        found = files.plan("-f", first, "-f", second)
        (planned,) = found["pools"]
        assert [group["requested"]["from"] for group in planned["groups"]] == [2, 2, 2]
        assert [(one["name"], one["reason"]) for one in found["skipped"]] == [
            (pool[i]["metadata"]["name"], "a second MachineDeployment of this name: only the first one is counted")
            for i in (0, 1)
        ]

    def test_a_machine_that_is_in_two_files_is_counted_once(self, files: Files) -> None:
        pool = pool_of(2, 1, 1)
        pool[0]["status"] = {}
        (one,) = in_namespace(objects.machine(pool[0], 1, node=True))
        found = files.plan("-f", files.listed(*pool, one), "-f", files.listed(one, name="again.json"))
        assert [one["reason"] for one in found["skipped"]] == [
            "a second Machine of this name: only the first one is counted"
        ]

    def test_an_unknown_annotation_of_evenkeel_makes_only_its_own_pool_invalid(self, files: Files) -> None:
        slip = in_namespace(objects.cluster_api(ZONES[0], 1, pool="slip", annotations={"evenkeel.dev/pool-maxx": "12"}))
        plan = files.plan("-f", files.listed(*slip, *pool_of(1, 1, 1)), code=3)
        problems = {pool["name"]: pool["problems"] for pool in plan["pools"]}
        assert problems["workers"] == []
        assert "did you mean evenkeel.dev/pool-max?" in problems["slip"][0]

    def test_an_unknown_kind_or_version_is_skipped_once_with_its_number_and_the_reason(self, files: Files) -> None:
        items = [
            *({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}} for name in "de"),
            {"apiVersion": "cluster.x-k8s.io/v9", "kind": "MachineDeployment", "metadata": {"name": "m"}},
            {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "metadata": {}},
        ]
        reasons = [skipped["reason"] for skipped in files.plan("-f", files.listed(*items), code=4)["skipped"]]
        assert "2 objects: Deployment of apps/v1 is not an object that Evenkeel reads" in reasons
        assert "1 object: MachineDeployment of cluster.x-k8s.io/v9 is not an object that Evenkeel reads" in reasons
        assert "a MachineSet without metadata.name" in reasons

    def test_a_kind_that_is_known_and_unused_is_named_once_with_its_number(self, files: Files) -> None:
        pool = in_namespace(*(objects.cluster_api(zone, 1) for zone in ZONES))
        owned = {"ownerReferences": [{"kind": "MachineDeployment", "name": "gone", "controller": True}]}
        items = [
            *({**item, "kind": "MachineSet", "metadata": {**item["metadata"], **owned}} for item in pool),
            *in_namespace(*(objects.machine(item, number, node=True) for item in pool for number in (1, 2))),
            *in_namespace(objects.infrastructure(), objects.worker(1, 3)),
        ]
        skipped = files.plan("-f", files.listed(*items), code=4)["skipped"]
        unused = "{}: none belongs to a node group of these objects"
        assert [(one["name"], one["reason"]) for one in skipped] == [
            (kind, unused.format(counted(number, "object")))
            for kind, number in {"Machine": 6, "MachineSet": 3, "Worker": 1, "AWSMachineTemplate": 1}.items()
        ]


class TestBadInput:
    @pytest.mark.parametrize(
        ("content", "says"),
        [
            ("{", "not YAML or JSON"),
            ("a: b: c", "not YAML or JSON"),
            ("\x00", "not YAML or JSON"),
            ("", "it holds no object"),
            ("# only a comment\n", "it holds no object"),
            ("just text", "not an object with fields, but str"),
            ("[1, 2]", "not an object with fields, but list"),
            ("7", "not an object with fields, but int"),
            ('{"apiVersion": "v1", "kind": "List"}', "items is missing or no list"),
            ('{"apiVersion": "v1", "kind": "List", "items": {}}', "items is missing or no list"),
            ('{"apiVersion": "v1", "kind": "List", "items": [1]}', "items[0]: not an object with fields, but int"),
            ('{"apiVersion": "v1", "kind": "List", "items": [{}]}', "items[0]: kind is missing"),
            ('{"kind": "MachineSet"}', "apiVersion is missing"),
            ('{"apiVersion": "v1"}', "kind is missing"),
            ('{"apiVersion": 1, "kind": "MachineSet"}', "apiVersion is missing"),
            ("when: 2026-99-99", "not YAML or JSON"),
            ("!!python/object/apply:os.system ['true']", "not YAML or JSON"),
            ("&a [*a]", "an alias leads nowhere or to an object around it (line 1, column 5)"),
            ("[" * 10_000, "not YAML or JSON"),
            (b"\xff\xfe\x00", "not UTF-8 text"),
        ],
    )
    def test_a_file_without_objects_is_exit_two_and_named(self, files: Files, content: str | bytes, says: str) -> None:
        name = files.write("bad.yaml", content)
        (line,) = files.faults("-f", name)
        assert name in line
        assert says in line
        assert len(line) < 600

    def test_every_fault_of_every_file_is_a_line(self, files: Files) -> None:
        bad = {"apiVersion": "v1", "kind": "List", "items": [1, {}, {"kind": "MachineSet"}]}
        lines = files.faults("-f", files.write("a.json", bad), "-f", files.write("b.json", "{"))
        assert [("a.json" in line, "b.json" in line) for line in lines] == [(True, False)] * 3 + [(False, True)]

    def test_a_missing_file_or_a_folder_is_an_error(self, files: Files) -> None:
        assert "nowhere.yaml: cannot be read: No such file" in files.faults("-f", "nowhere.yaml")[0]
        assert "cannot be read: Is a directory" in files.faults("-f", str(files.folder))[0]

    @pytest.mark.parametrize("option", ["--objects", "--record", "--state", "--kubeconfig"])
    def test_an_empty_file_name_is_an_error(self, files: Files, option: str) -> None:
        objects = () if option in ("--objects", "--kubeconfig") else ("-f", files.listed(*pool_of(1, 1, 1)))
        assert files.faults(*objects, option, "") == ["evenkeel: a file is '': name it, or - for standard input"]

    def test_empty_standard_input_is_an_error(self, files: Files) -> None:
        assert files.faults("-f", "-", stdin="") == ["evenkeel: standard input: it holds no object"]

    @pytest.mark.parametrize("option", ["-f", "--record", "--state"])
    def test_standard_input_is_read_once(self, files: Files, option: str) -> None:
        (line,) = files.faults("-f", "-", option, "-", stdin="{}")
        assert line == "evenkeel: standard input is named more than once: it can be read only once"

    def test_a_name_is_one_line(self, files: Files) -> None:
        (item, *_) = pool_of(1, 1, 1)
        named = files.run("-f", files.listed(with_field(item, "a\nb", "metadata", "name")), "-o", "name")
        assert named.stdout == "demo/a b\n"

    @pytest.mark.parametrize("none", ["[]", "false", "0", "''"])
    def test_only_an_empty_record_is_an_empty_object(self, files: Files, none: str) -> None:
        (line,) = files.faults("-f", files.listed(*pool_of(1, 1, 1)), "--record", files.write("record.yaml", none))
        assert "no object: write it with named fields" in line
        assert files.plan("-f", files.listed(*pool_of(1, 1, 1)), "--record", files.write("record.yaml", "# none yet\n"))

    def test_files_and_a_cluster_exclude_each_other(self, files: Files) -> None:
        (line,) = files.faults("-f", "x.json", "--context", "main")
        assert "give either -f with objects, or --kubeconfig or --context" in line

    def test_without_an_input_a_plan_reads_the_current_context_and_says_so_first(
        self, files: Files, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(live, "KUBE_CONFIG_DEFAULT_LOCATION", files.write("kubeconfig", KUBECONFIG))
        read = []

        def observe(_policy: object, _state: object, kubeconfig: str | None, context: str | None) -> Any:
            read.append((kubeconfig, context))
            raise ClusterUnavailableError(f"{context}: no answer")

        monkeypatch.setattr(live, "observe", observe)
        assert files.run().stderr.splitlines() == ["context prod", "evenkeel: prod: no answer"]
        assert read == [(None, "prod")]

    def test_without_an_input_and_a_current_context_a_plan_says_what_to_name(
        self, files: Files, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(live, "KUBE_CONFIG_DEFAULT_LOCATION", "/nowhere/kubeconfig")
        (line,) = files.faults()
        assert "give either -f with objects, or --kubeconfig or --context" in line

    @pytest.mark.parametrize(
        "now",
        ["", "soon", "2026-13-01T00:00:00Z", "2026-01-15", "2026-01-15T12:00:00", "12:00Z", "9" * 400,
         "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"],
    )  # fmt: skip
    def test_an_invalid_time_is_an_error(self, files: Files, now: str) -> None:
        (line,) = files.faults("-f", files.listed(*pool_of(1, 1, 1)), "--now", now)
        assert "--now is" in line
        assert len(line) < 300

    @pytest.mark.parametrize(
        ("option", "content", "says"),
        [
            ("--state", "{", "not JSON"),
            ("--state", "[]", "the whole is '[]'"),
            ("--state", {"groups": {"a/b": {}}}, "groups has key 'a/b'"),
            ("--state", {"groups": {"a/b/c": {"failures": -1}}}, "groups.a/b/c.failures is '-1'"),
            ("--state", {"groups": {"a/b/c": {"failures": "many"}}}, "groups.a/b/c.failures is 'many'"),
            ("--state", {"groups": {"a/b/c": {"backoff_until": "soon"}}}, "groups.a/b/c.backoff_until is 'soon'"),
            ("--state", {"groups": {"a/b/c": {"backoff_until": NOW[:-1]}}}, "groups.a/b/c.backoff_until"),
            ("--state", {"groups": {"a/b/c": {"class": "bad luck"}}}, "groups.a/b/c.class is 'bad luck'"),
            ("--state", {"groups": {"a/b/c": {"colour": 1}}}, "groups.a/b/c.colour is not a field of this record"),
            ("--state", {"zones": {"a": {}}}, "zones.a.impaired_until is missing"),
            ("--state", {"zone": {}}, "zone is not a field of this record"),
            ("--record", "a: b: c", "not YAML"),
            ("--record", "[1]", "the whole is"),
            ("--record", "pools: [{name: a, min: 4, max: 1}]", "min 4 is larger than max 1"),
            ("--record", "colour: blue", "colour is not a field of this record"),
        ],
    )
    def test_a_bad_state_or_record_is_named(self, files: Files, option: str, content: object, says: str) -> None:
        name = files.write("bad", content)
        (line,) = files.faults("-f", files.listed(*pool_of(1, 1, 1)), option, name)
        assert name in line
        assert says in line

    @pytest.mark.parametrize(
        "moment", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59Z"]
    )
    def test_a_state_with_extreme_times_is_planned_with_or_refused(self, files: Files, moment: str) -> None:
        key = "cluster-api/demo/demo-workers-eu-central-1a"
        for field in ("backoff_until", "last_failure", "last_success"):
            state = {"groups": {key: {"failures": 3, field: moment}}, "zones": {ZONES[1]: {"impaired_until": moment}}}
            result = files.run(
                "-f", files.listed(*pool_of(1, 1, 1)), "--state", files.write("state.json", state), "--now", NOW
            )
            assert result.exit_code in (0, 2)

    @pytest.mark.parametrize("name", ["x" * 5000, "~nobody-has-this-name/kubeconfig", "/nowhere"])
    def test_a_missing_kubeconfig_is_an_error(self, files: Files, name: str) -> None:
        (fault,) = files.faults("--kubeconfig", name)
        assert "there is no file" in fault

    @pytest.mark.parametrize("content", ["", "{", "[]", "clusters: 5", "current-context: x\ncontexts: []"])
    def test_an_unusable_kubeconfig_is_an_error(self, files: Files, content: str) -> None:
        name = files.write("kubeconfig", content)
        assert name in files.faults("--kubeconfig", name)[0]
        assert "cannot be read: Is a directory" in files.faults("--kubeconfig", str(files.folder))[0]


JSON_LIKE = json_values(st.sampled_from([2**70, "3", "-1", "1e9", "eu-central-1a", NOW, "true"]))


@st.composite
def bent(draw: st.DrawFn) -> Object:
    """Draw a real object in which some places have any value."""
    kinds = [
        objects.gardener(ZONES[0], 2),
        objects.cluster_api(ZONES[1], 2),
        objects.openshift(ZONES[2], 2),
        objects.machine_autoscaler(ZONES[2], 0, 4),
        objects.worker(1, 9),
        objects.topology_cluster("a", "b"),
        objects.topology_owned(objects.cluster_api(ZONES[0], 1), "a"),
        machine(objects.cluster_api(ZONES[1], 2), 1, node=True),
        machine(objects.gardener(ZONES[0], 2), 1, node=False),
    ]
    (item,) = in_namespace(json.loads(json.dumps(draw(st.sampled_from(kinds)))))
    for _ in range(draw(st.integers(1, 3))):
        place: Any = item
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and place[key] and draw(st.integers(0, 4)):
                place = place[key]
                continue
            place[key] = draw(JSON_LIKE)
            break
    return item


class TestAnyInput:
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
    @given(items=st.lists(bent(), min_size=1, max_size=4))
    def test_objects_with_any_field_never_end_in_an_exception(self, files: Files, items: list[Object]) -> None:
        result = files.run("-f", files.listed(*items), "-o", "json", "--now", NOW)
        assert result.exit_code in (0, 2, 3, 4)
        if result.exit_code != 2:
            json.loads(result.stdout)

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(content=st.one_of(st.text(max_size=60), JSON_LIKE.map(json.dumps), st.binary(max_size=40)))
    def test_a_file_with_anything_in_it_never_ends_in_an_exception(self, files: Files, content: str | bytes) -> None:
        raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
        name = files.write("any", raw)
        good = files.listed(*pool_of(1, 1, 1))
        for arguments in (("-f", name), ("-f", good, "--state", name), ("-f", good, "--cluster", name)):
            assert files.run(*arguments, "-o", "json").exit_code in (0, 2, 3, 4)

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(now=st.text(max_size=30) | st.datetimes().map(str))
    def test_any_time_is_planned_for_or_refused(self, files: Files, now: str) -> None:
        good = files.listed(*pool_of(1, 1, 1))
        assert files.run("-f", good, f"--now={now}", "-o", "json").exit_code in (0, 2)

    def test_unprintable_names_never_end_in_an_exception(self, files: Files) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": pool_of(1, 1, 1)})
        name = files.write("odd.json", text.replace("workers", "w\\ud800").replace('"eu-central-1a"', '"z\\u0000"'))
        for output in ("json", "table"):
            assert files.run("-f", name, "-o", output).exit_code in (0, 2, 3)


class TestForms:
    """Options have one form each."""

    def test_a_cluster_without_a_stack_names_the_record(self, files: Files) -> None:
        listed, record = files.listed(*pool_of(1, 1, 1)), files.write("c.yaml", "strategy: Adaptive")
        named = files.run("-f", listed, "--record", record, "--now", NOW, "-o", "json")
        also = files.run("-f", listed, "--cluster", record, "--now", NOW, "-o", "json")
        assert also.stdout == named.stdout
        assert "Adaptive" in also.stdout
        fault = "evenkeel: --cluster and --record both name the cluster's record: leave one out"
        assert files.faults("-f", "x", "--record", "y", "--cluster", "z") == [fault]

    def test_a_report_goes_to_a_file_or_a_bucket(self, files: Files) -> None:
        printed = files.run("-f", files.listed(*pool_of(1, 1, 1)), "-o", "json").stdout
        missing = CliRunner().invoke(app, ["report", "--plan", files.write("plan.json", printed)])
        fault = "evenkeel: say where the page goes: --out FILE, --publish s3://BUCKET/KEY, or both\n"
        assert (missing.exit_code, missing.stderr) == (2, fault)

    @pytest.mark.parametrize("command", COMMANDS)
    def test_help_names_formats_files_and_ids_alike(self, command: str) -> None:
        """-o is a format, options for files have other names, and --cluster is an id."""
        quote = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout.splitlines()
        for line in takewhile(lambda line: line != "  Examples:", quote):
            if "-o," in line or "--output" in line:
                formats = "table|json|scenario" if command == "lookback" else "table|wide|name|json|yaml"
                assert f"-o, --output <{formats}>" in line
            if "--cluster " in line:
                assert re.search(r"cluster's id|one cluster", line)
