"""The proposals of `plan -f` if it finds no pool."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evenkeel_cli.main import app
from tests import objects
from tests.objects import ZONES, Object

_LABEL = "kubectl label machinedeployments.cluster.x-k8s.io -n prod"
_ANNOTATE = "kubectl annotate machinedeployments.cluster.x-k8s.io -n prod"
_ZONE = "topology.kubernetes.io/zone"


def proposed(folder: Path, *items: Object) -> list[str]:
    file = folder / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
    table = CliRunner().invoke(app, ["plan", "-f", str(file)], catch_exceptions=False)
    done = CliRunner().invoke(app, ["plan", "-f", str(file), "-o", "json"], catch_exceptions=False)
    assert (table.exit_code, done.exit_code) == (4, 4), done.output
    lines: list[str] = json.loads(done.stdout)["proposals"]
    assert table.stdout.splitlines()[-len(lines) :] == lines if lines else "run" not in table.stdout
    return lines


def missing(folder: Path, *items: Object) -> list[str]:
    """Return the text of a plan without a proposal, which is equal in JSON and in the table."""
    assert proposed(folder, *items) == []
    arguments = ["plan", "-f", str(folder / "objects.json")]
    messages: list[str] = json.loads(CliRunner().invoke(app, [*arguments, "-o", "json"]).stdout)["error"]["messages"]
    assert CliRunner().invoke(app, arguments).stdout.splitlines()[-len(messages) :] == messages
    return messages


def deployment(name: str, zone: str | None, *, bounds: bool = True, **labels: str) -> Object:
    """Return a MachineDeployment whose nodes' cpu and memory are unknown."""
    item = objects.cluster_api(ZONES[0], 2)
    annotations = objects.bounds_of("cluster-api", 1, 4) if bounds else {}
    metadata = {"name": name, "namespace": "prod", "labels": labels, "annotations": annotations}
    spec: dict[str, Any] = {"clusterName": "demo", **({} if zone is None else {"failureDomain": zone})}
    return {**item, "metadata": metadata, "spec": {**item["spec"], "clusterName": "demo", "template": {"spec": spec}}}


def test_groups_that_check_alike_apart_from_their_zone_get_one_label(tmp_path: Path) -> None:
    groups = [deployment(f"workers-{zone[-1]}", zone) for zone in ZONES]
    assert proposed(tmp_path, *groups) == [f"{_LABEL} workers-a workers-b workers-c evenkeel.dev/pool=workers"]


@pytest.mark.parametrize(
    "names",
    [
        ["demo-web-a", "demo-web-b", "demo-web-c"],
        [f"web-{zone}" for zone in ZONES],
        [f"web-{zone}-x7k2p" for zone in ZONES],
        ["demo-web-0", "demo-web-1", "demo-web-2"],
        ["demo-web-0-x7k2p", "demo-web-1-bbbbb", "demo-web-2-zzzzz"],
        ["web.z1", "web.z2", "web.z3"],
    ],
)
def test_a_pool_is_named_after_what_its_names_share(names: list[str], tmp_path: Path) -> None:
    groups = [deployment(name, zone) for name, zone in zip(names, ZONES, strict=True)]
    assert proposed(tmp_path, *groups) == [f"{_LABEL} {' '.join(names)} evenkeel.dev/pool=web"]


def test_at_most_three_lines_for_the_largest_sets(tmp_path: Path) -> None:
    alone = deployment("solo-x", ZONES[0])
    groups = [deployment(f"{pool}-{zone[-1]}", zone) for pool in ("gpu", "web", "db") for zone in ZONES]
    lines = proposed(tmp_path, alone, *groups)
    assert [line.rpartition("=")[2] for line in lines] == ["db", "gpu", "web"]


def test_groups_without_bounds_get_the_numbers_of_today(tmp_path: Path) -> None:
    labelled = [deployment(f"web-{zone[-1]}", zone, bounds=False, **{"evenkeel.dev/pool": "web"}) for zone in ZONES]
    annotate = (
        _LABEL.replace("label", "annotate", 1) + " web-a web-b web-c evenkeel.dev/pool-min=6 evenkeel.dev/pool-max=6"
    )
    assert proposed(tmp_path, *labelled) == [annotate]
    groups = [deployment(f"web-{zone[-1]}", zone, bounds=False) for zone in ZONES]
    assert proposed(tmp_path, *groups) == [f"{_LABEL} web-a web-b web-c evenkeel.dev/pool=web", annotate]


def test_groups_without_a_zone_get_one_from_their_names(tmp_path: Path) -> None:
    groups = [deployment(f"web-rack{number}", None) for number in (1, 2)]
    values = "evenkeel.dev/pool=web topology.kubernetes.io/zone="
    assert proposed(tmp_path, *groups) == [f"for zone in rack1 rack2; do {_LABEL} web-$zone {values}$zone; done"]
    assert proposed(tmp_path, groups[0]) == [f"{_LABEL} web-rack1 {values}rack1"]


def test_a_pool_that_needs_more_than_three_lines_gets_none(tmp_path: Path) -> None:
    label = {"evenkeel.dev/pool": "web"}
    groups = [deployment(f"{stem}-rack{n}", None, bounds=False, **label) for n, stem in enumerate("wxyz")]
    lacks = "set label topology.kubernetes.io/zone"
    assert missing(tmp_path, *groups) == [
        f"MachineDeployment prod/{stem}-rack{n}: {lacks}" for n, stem in enumerate("wxyz")
    ]
    assert proposed(tmp_path, *(deployment(f"{stem}-rack1", None, bounds=False, **label) for stem in "wxyz")) == [
        f"{_LABEL} w-rack1 x-rack1 y-rack1 z-rack1 topology.kubernetes.io/zone=rack1",
        f"{_ANNOTATE} w-rack1 x-rack1 y-rack1 z-rack1 evenkeel.dev/pool-min=8 evenkeel.dev/pool-max=8",
    ]


@pytest.mark.parametrize(
    ("item", "line"),
    [
        (
            {
                "apiVersion": "core.gardener.cloud/v1beta1",
                "kind": "Shoot",
                "metadata": {"name": "main", "namespace": "garden-demo"},
                "status": {"technicalID": "shoot--demo--main"},
            },
            "evenkeel objects --context SEED -n shoot--demo--main > objects.yaml",
        ),
        (
            {
                "apiVersion": "hypershift.openshift.io/v1beta1",
                "kind": "NodePool",
                "metadata": {"name": "demo-a", "namespace": "clusters"},
                "spec": {"clusterName": "demo"},
            },
            "evenkeel objects --context MANAGEMENT-CLUSTER -n clusters -n clusters-demo > objects.yaml",
        ),
        (
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "ip-0", "annotations": {"machine.openshift.io/machine": "mapi/w"}},
            },
            "evenkeel objects --context OPENSHIFT-CLUSTER -n mapi > objects.yaml",
        ),
        ({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}, None),
    ],
    ids=["Shoot", "NodePool", "Node", "unknown"],
)
def test_objects_without_node_groups_show_where_these_are(item: Object, line: str | None, tmp_path: Path) -> None:
    assert proposed(tmp_path, item) == ([] if line is None else [line])


@pytest.mark.parametrize("name", ["x; rm -rf /; \n-", "--overwrite-", "evenkeel.dev/x=1-"])
def test_names_from_a_file_cannot_be_commands_or_options(name: str, tmp_path: Path) -> None:
    assert proposed(tmp_path, *(deployment(f"{name}{zone[-1]}", zone) for zone in ZONES)) == []


def test_the_lines_for_one_pool_are_complete(tmp_path: Path) -> None:
    groups = [deployment(f"web-{zone[-1]}", None, bounds=False) for zone in ZONES]
    assert len(proposed(tmp_path, *groups)) == 2
    shown = CliRunner().invoke(app, ["plan", "-f", str(tmp_path / "objects.json")]).stdout
    assert "(pool-max is today's nodes: raise it to let the pool grow; zones are parts of names: check them):" in shown


def test_a_record_is_not_asked_for_more_pools_than_it_has(tmp_path: Path) -> None:
    labelled = [deployment(f"web-{zone[-1]}", zone, **{"evenkeel.dev/pool": "web"}) for zone in ZONES]
    groups = [*labelled, *(deployment(f"db-{zone[-1]}", zone) for zone in ZONES), deployment("solo-x", ZONES[0])]
    file, record = tmp_path / "objects.json", tmp_path / "record.yaml"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": groups}), encoding="utf-8")
    record.write_text("pools: {discover: similar}", encoding="utf-8")

    def lines(*more: str) -> object:
        done = CliRunner().invoke(app, ["plan", "-f", str(file), "-o", "json", *more], catch_exceptions=False)
        assert done.exit_code == 0
        return json.loads(done.stdout).get("proposals")

    assert lines() == [f"{_LABEL} db-a db-b db-c evenkeel.dev/pool=db"]
    assert lines("--record", str(record)) is None


def with_values(item: Object, **annotations: str) -> Object:
    more = {f"evenkeel.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return {**item, "metadata": {**item["metadata"], "annotations": {**item["metadata"]["annotations"], **more}}}


def of_capacity(item: Object, cpu: str) -> Object:
    prefix = "capacity.cluster-autoscaler.kubernetes.io"
    annotations = {**item["metadata"]["annotations"], f"{prefix}/cpu": cpu, f"{prefix}/memory": "16Gi"}
    return {**item, "metadata": {**item["metadata"], "annotations": annotations}}


def machine_pool(name: str, **labels: str) -> Object:
    """Return a MachinePool without bounds, whose zone only its provider's object names."""
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachinePool",
        "metadata": {"name": name, "namespace": "prod", "labels": labels},
        "spec": {"clusterName": "demo", "replicas": 3, "template": {"spec": {"clusterName": "demo"}}},
        "status": {"replicas": 3},
    }


@pytest.mark.parametrize(
    ("names", "zones", "cpus"),
    [
        (["demo-web-1", "demo-web-2"], ZONES[:2], ["4", "64"]),
        (["demo-m5", "demo-p4"], [None, None], ["4", "64"]),
        (["demo-web-1", "demo-web-2"], [ZONES[0], ZONES[0]], [None, None]),  # similar, or not
        (["demo-x7k2p", "demo-k9q2w", "demo-zzzzz", "demo-bbbbb"], [*ZONES[:2], *ZONES[:2]], [None] * 4),
        (["pool1", "pool2", "pool3"], [None] * 3, [None] * 3),
        (["eu-central-1a-workers", "eu-central-1b-workers"], [None] * 2, [None] * 2),
    ],
    ids=["capacities", "machine types", "one zone", "hashes", "ordinals", "zone first"],
)
def test_groups_that_are_not_surely_alike_are_never_joined(
    names: list[str], zones: list[str | None], cpus: list[str | None], tmp_path: Path
) -> None:
    groups = [deployment(name, zone, bounds=False) for name, zone in zip(names, zones, strict=True)]
    groups = [of_capacity(group, cpu) if cpu else group for group, cpu in zip(groups, cpus, strict=True)]
    lines = missing(tmp_path, *groups)
    assert len(lines) == len(names)
    for line in lines:
        assert "set label evenkeel.dev/pool" in line
        assert (None in zones) == line.endswith(f" and {_ZONE}")


@pytest.mark.parametrize("place", ["demo-{zone}-{kind}", "{zone}.{kind}", "demo-{kind}-{letter}"])
def test_a_known_zone_may_stand_anywhere_in_a_name(place: str, tmp_path: Path) -> None:
    names = {kind: [place.format(zone=zone, kind=kind, letter=zone[-1]) for zone in ZONES] for kind in ("cpu", "gpu")}
    groups = [deployment(name, zone) for of in names.values() for name, zone in zip(of, ZONES, strict=True)]
    assert proposed(tmp_path, *groups) == [
        f"{_LABEL} {' '.join(of)} evenkeel.dev/pool={kind}" for kind, of in names.items()
    ]


@pytest.mark.parametrize("name", ["demo-md-0", "demo-pool1", "demo-m5", "demo-web"])
def test_an_ordinal_is_no_zone(name: str, tmp_path: Path) -> None:
    assert missing(tmp_path, deployment(name, None)) == [
        f"MachineDeployment prod/{name}: its zone is unknown: set label {_ZONE}"
    ]


def test_values_that_users_set_are_kept(tmp_path: Path) -> None:
    groups = [deployment(f"web-{zone[-1]}", zone, bounds=False) for zone in ZONES]
    lines = missing(tmp_path, *(with_values(group, pool_min="many") for group in groups))
    assert [line.split(": ")[1] for line in lines] == ["evenkeel.dev/pool-min is 'many'"] * 3
    line = f"{_LABEL} web-a web-b web-c evenkeel.dev/pool=web"
    assert proposed(tmp_path, *(with_values(group, pool_max="0") for group in groups)) == [line]
    annotate = f"{_ANNOTATE} web-a web-b web-c evenkeel.dev/pool-max=9"
    assert proposed(tmp_path, *(with_values(group, pool_min="9") for group in groups)) == [line, annotate]
    unnamed = [deployment(f"web-{zone[-1]}", zone, **{"evenkeel.dev/pool": ""}) for zone in ZONES]
    assert all("label evenkeel.dev/pool is empty" in line for line in missing(tmp_path, *unnamed))


def test_machine_pools_get_zones_and_numbers_at_once_and_keep_their_label(tmp_path: Path) -> None:
    lines = proposed(tmp_path, *(machine_pool(f"demo-mp-{zone}") for zone in ZONES))
    names, zones = " ".join(f"demo-mp-{zone}" for zone in ZONES), " ".join(ZONES)
    label = _LABEL.replace("deployments", "pools")
    annotate = f"{_ANNOTATE.replace('deployments', 'pools')} {names} evenkeel.dev/pool-min=9 evenkeel.dev/pool-max=9"
    of_all = f"{label} demo-mp-$zone evenkeel.dev/pool=mp {_ZONE}=$zone"
    assert lines == [f"for zone in {zones}; do {of_all}; done", annotate]
    kept = (machine_pool(f"demo-mp-{zone}", **{"evenkeel.dev/pool": "keep"}) for zone in ZONES)
    assert proposed(tmp_path, *kept) == [lines[0].replace(" evenkeel.dev/pool=mp", ""), annotate]


def test_groups_join_the_labelled_pool_of_their_like_with_a_maximum_that_holds_their_nodes(tmp_path: Path) -> None:
    first, *others = (deployment(f"web-{zone[-1]}", zone, bounds=zone == ZONES[0]) for zone in ZONES)
    annotate = f"{_ANNOTATE} web-a web-b web-c evenkeel.dev/pool-max=6"
    assert proposed(tmp_path, first, *others) == [f"{_LABEL} web-a web-b web-c evenkeel.dev/pool=web", annotate]
    first["metadata"]["labels"] = {"evenkeel.dev/pool": "shop"}
    file = tmp_path / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [first, *others]}), encoding="utf-8")
    done = CliRunner().invoke(app, ["plan", "-f", str(file), "-o", "json"], catch_exceptions=False)
    assert json.loads(done.stdout)["proposals"] == [f"{_LABEL} web-b web-c evenkeel.dev/pool=shop", annotate]


def test_objects_of_gardener_are_not_annotated(tmp_path: Path) -> None:
    groups = [objects.gardener(zone, 2) for zone in ZONES]
    for item in groups:
        item["metadata"] = {**item["metadata"], "namespace": "shoot--p--n", "annotations": {}}
    (line,) = missing(tmp_path, *groups)
    assert "workers.extensions.gardener.cloud" in line
    assert line.endswith("`evenkeel objects` collects it")


def test_names_without_a_zone_get_no_zone(tmp_path: Path) -> None:
    assert len(missing(tmp_path, *(deployment(name, None) for name in ("web", "db", "my-cache")))) == 3


def test_a_record_that_names_no_pools_gets_the_line_that_discovers_them(tmp_path: Path) -> None:
    file, record = tmp_path / "objects.json", tmp_path / "record.yaml"
    file.write_text(json.dumps(deployment("web-a", ZONES[0])), encoding="utf-8")
    record.write_text("level: converge", encoding="utf-8")
    arguments = ["plan", "-f", str(file), "--record", str(record)]
    named = CliRunner().invoke(app, [*arguments, "-o", "name"])
    assert (named.exit_code, named.stdout) == (4, "")
    heading = "to get a pool, add to the record (a plan without a record has this line):"
    assert named.stderr.splitlines() == [heading, "pools: {discover: similar}"]
    document = json.loads(CliRunner().invoke(app, [*arguments, "-o", "json"]).stdout)
    assert document["proposals"] == ["pools: {discover: similar}"]


def test_without_node_groups_a_plan_says_what_it_checked_for(tmp_path: Path) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text("{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}}", encoding="utf-8")
    ran = CliRunner().invoke(app, ["plan", "-f", str(file)])
    last = ran.stdout.splitlines()[-1]
    assert last.startswith("no node group in the files: looked for machinedeployments.machine.sapcloud.io, ")


def test_openstack_names_its_zone_in_the_provider_spec(tmp_path: Path) -> None:
    groups = [objects.openshift(zone, 2) for zone in ZONES]
    for number, (item, zone) in enumerate(zip(groups, ZONES, strict=True)):
        item["metadata"] = {"name": f"demo-worker-{number}", "namespace": "prod"}
        item["spec"]["template"] = {"spec": {"providerSpec": {"value": {"availabilityZone": zone}}}}
    names, resource = "demo-worker-0 demo-worker-1 demo-worker-2", "machinesets.machine.openshift.io -n prod"
    assert proposed(tmp_path, *groups) == [
        f"kubectl label {resource} {names} evenkeel.dev/pool=demo-worker",
        f"kubectl annotate {resource} {names} evenkeel.dev/pool-min=6 evenkeel.dev/pool-max=6",
    ]
