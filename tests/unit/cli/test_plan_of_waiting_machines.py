"""`evenkeel plan -f` while machines wait for their node: hosts made on demand, slow launches and refused ones."""

from pathlib import Path
from typing import Any

import pytest

from tests import objects
from tests.objects import ZONES, Object, machine
from tests.unit.cli.test_cli import NOW, Files, in_namespace

A, B, C = ZONES
NUMBERS = {"evenkeel.dev/pool-min": "2", "evenkeel.dev/pool-max": "18"}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def created(item: Object, at: str, **status: Any) -> Object:
    """Return a machine that was created at this time of the day."""
    item["metadata"]["creationTimestamp"] = f"2026-01-15T{at}:00Z"
    item["status"] = {**item["status"], **status}
    return item


def pool(flavour: str, *replicas: int) -> list[Object]:
    """Return three zones, each with two running machines."""
    made = [
        objects.MAKE[flavour](zone, replicas[i], 2, bounds=(0, 10), annotations=NUMBERS if i == 0 else None)
        for i, zone in enumerate(ZONES)
    ]
    return made + [created(machine(item, number, node=True), "01:00") for item in made for number in range(2)]


def groups(files: Files, *items: Object) -> dict[str, Any]:
    plan = files.plan("-f", files.listed(*in_namespace(*items)))
    (found,) = plan["pools"]
    assert not any("level: converge" in note for note in found.get("notes", ()))
    return {group["zone"]: group for group in found["groups"]}


def test_a_host_that_is_made_on_demand_keeps_its_replica(files: Files) -> None:
    items = pool("openshift", 3, 2, 2)
    reported = {"errorReason": "InsufficientResources", "errorMessage": "no host matches yet; one is being made"}
    found = groups(files, *items, created(machine(items[0], 9, node=False), "11:57", **reported))
    assert (found[A]["state"], found[A]["requested"]["to"]) == ("healthy", 3)


@pytest.mark.parametrize(
    "message",
    [
        "LaunchInstance: (500, InternalError, false) Out of host capacity.",
        "The available Memory resources in the parent resource pool are insufficient for the operation",
        "NO_HOST_RESOURCES: not enough resources to power on the VM",
        "No available host found. Requeuing.",
    ],
)
def test_a_refusal_of_any_cloud_is_a_capacity_failure_at_once(files: Files, message: str) -> None:
    items = pool("cluster-api", 3, 2, 2)
    condition = {"type": "InfrastructureReady", "status": "False", "reason": "NotReady", "message": f"* VM: {message}"}
    condition["lastTransitionTime"] = "2026-01-15T11:58:30Z"
    found = groups(files, *items, created(machine(items[0], 9, node=False), "11:58", conditions=[condition]))
    assert (found[A]["state"], found[A]["requested"]["to"]) == ("fenced", 2)
    assert any("capacity failure" in reason for reason in found[A]["reasons"])


def test_a_first_plan_in_an_outage_fences_the_zone_and_releases_its_machines(files: Files) -> None:
    items = pool("cluster-api", 5, 2, 2)
    late = [created(machine(items[0], number, node=False), "11:20") for number in (7, 8, 9)]
    found = groups(files, *items, *late)
    assert {zone: group["state"] for zone, group in found.items()} == {A: "fenced", B: "healthy", C: "healthy"}
    assert (found[A]["requested"]["from"], found[A]["requested"]["to"]) == (5, 2)


@pytest.mark.parametrize("place", ["field", "annotation", "worker"])
def test_gardeners_creation_timeout_is_longer_than_the_provision_timeout(files: Files, place: str) -> None:
    items = pool("gardener", 3, 2, 2)
    worker = objects.worker(2, 18)
    scalable = items[0]
    if place == "field":
        scalable["spec"]["template"]["spec"]["creationTimeout"] = "50m0s"
    elif place == "annotation":
        scalable["metadata"]["annotations"]["node.machine.sapcloud.io/effective-creation-timeout"] = "50m"
    else:
        worker["spec"]["pools"][0]["machineControllerManager"] = {"machineCreationTimeout": "50m"}
    status = {"currentStatus": {"phase": "Pending", "lastUpdateTime": "2026-01-15T11:10:30Z"}}
    late = created(machine(scalable, 9, node=False), "11:09", **status)
    assert groups(files, *items, worker, late)[A]["state"] == "healthy"
    late["status"]["currentStatus"]["lastUpdateTime"] = "2026-01-15T11:10:00Z"
    found = groups(files, *items, worker, late)[A]
    assert (found["state"], found["requested"]["to"]) == ("fenced", 2)
    assert NOW == "2026-01-15T12:00:00Z"


def test_an_unreadable_creation_timeout_is_a_note_and_the_default_counts(files: Files) -> None:
    items = pool("gardener", 3, 2, 2)
    items[0]["spec"]["template"]["spec"]["creationTimeout"] = "soon"
    late = created(machine(items[0], 9, node=False), "11:30")
    plan = files.plan("-f", files.listed(*in_namespace(*items, late)))
    (found,) = plan["pools"]
    assert any("creationTimeout" in problem and "the default counts" in problem for problem in found["problems"])
    assert found["groups"][0]["state"] == "fenced"
