"""Machine objects as structs: only a wrong field itself is not read, in files and in lists."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bench.planning import reference_work
from evenkeel.adapters.kubernetes.client.lists import ReceivedList
from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel_cli.main import app
from tests import objects
from tests.builders import json_values
from tests.fakes import NOW
from tests.objects import ZONES, Object, machine
from tests.unit.rebalancing.test_plan_cost import instructions

_PATHS = (
    *("metadata", "metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations"),
    *("metadata.ownerReferences", "metadata.creationTimestamp", "metadata.deletionTimestamp"),
    *("spec", "spec.providerID", "spec.failureDomain", "status", "status.failureDomain", "status.phase"),
    *("status.nodeRef", "status.nodeRef.name", "status.lastUpdated", "status.conditions", "status.failureMessage"),
    *("status.deprecated", "status.deprecated.v1beta1", "status.deprecated.v1beta1.conditions"),
    *("status.errorMessage", "status.errorReason", "status.providerStatus", "status.providerStatus.conditions"),
    *("status.currentStatus", "status.currentStatus.phase", "status.lastOperation", "status.lastOperation.type"),
)


def changed(item: Object, path: str, value: Any) -> Object:
    """Return a copy with one field changed."""
    copy: Object = json.loads(json.dumps(item))
    place: Any = copy
    *steps, last = path.split(".")
    for step in steps:
        place = place.setdefault(step, {})
    place[last] = value
    return copy


def running(flavour: str, number: int = 1) -> Object:
    item = machine(objects.MAKE[flavour](ZONES[0], 1), number, node=True)
    return {**item, "kind": "Machine", "metadata": {"namespace": "demo", **item["metadata"]}}


@pytest.mark.parametrize(
    ("flavour", "path", "value", "says"),
    [
        ("cluster-api", "status.phase", 5, "status.phase is '5': Expected `str`, got `int`"),
        ("cluster-api", "status.nodeRef", [1], "status.nodeRef is '[1]': Expected `object`, got `array`"),
        ("cluster-api", "spec.providerID", {"a": 1}, "spec.providerID is \"{'a': 1}\": Expected `str`, got `object`"),
        ("gardener", "status.currentStatus", "x", "status.currentStatus is 'x': Expected `object`, got `str`"),
        (
            "openshift",
            "status.conditions",
            [{"type": 1}],
            "status.conditions[0].type is '1': Expected `str`, got `int`",
        ),
        ("openshift", "metadata.labels", "x", "metadata.labels is 'x': Expected `object`, got `str`"),
    ],
)
def test_a_field_of_a_wrong_type_is_named_and_counts_as_missing(
    flavour: str, path: str, value: Any, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    api, item = FLAVOURS[flavour].machines, running(flavour)
    found = api.read(changed(item, path, value))
    name = item["metadata"]["name"]
    assert caplog.messages == [f"Machine demo/{name}: {says}; the field is ignored"]
    without = api.read(changed(item, path, [{}] if says.startswith(f"{path}[") else None))
    assert found == without
    assert found.metadata.name == name


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("annotations", "token=s3cret", "metadata.annotations is '…': Expected `object`, got `str`"),
        ("uid", {"password": "s3cret"}, "metadata.uid is \"{'…'}\": Expected `str`, got `object`"),
        ("uid", [{"a": "Ab1" * 14}], "metadata.uid is \"[{'a': '…'}]\": Expected `str`, got `array`"),
        ("annotations", "x" * 30 + "Ab1" * 14, "metadata.annotations is '…': Expected `object`, got `str`"),
    ],
    ids=["text", "object", "long secret in an object", "long secret"],
)
def test_a_wrong_field_is_logged_without_secrets_and_short(
    field: str, value: Any, shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    item = running("gardener")
    item["metadata"] |= {"name": "a\n\x1b[31mb", field: value}
    FLAVOURS["gardener"].machines.read(item)
    assert caplog.messages == [f"Machine demo/a b: {shown}; the field is ignored"]


@pytest.mark.parametrize("flavour", ["cluster-api", "openshift"])
@pytest.mark.parametrize("name", [5, "", {}, [None], True])
def test_a_machine_whose_nodes_name_cannot_be_read_has_a_node(flavour: str, name: Any) -> None:
    api = FLAVOURS[flavour].machines
    found = api.read(changed(running(flavour), "status.nodeRef.name", name))
    assert found.read(api.mark, NOW).has_node
    assert name not in found.node_names()


def test_many_wrong_fields_of_one_object_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    api, item = FLAVOURS["cluster-api"].machines, running("cluster-api")
    api.read(changed(item, "status.conditions", [1] * 1_000))
    (line,) = caplog.messages
    assert line.endswith(
        "status.conditions[0] is '1': Expected `object`, got `int`; all 1000 fields of a wrong type are ignored"
    )


def test_a_machine_of_a_file_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    item = changed(running("gardener"), "status.currentStatus", 1)
    group = objects.MAKE["gardener"](ZONES[0], 1)
    file = tmp_path / "objects.json"
    items = [{**item, "apiVersion": group["apiVersion"]}, group]
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    CliRunner().invoke(app, ["plan", "-f", str(file)])
    assert len(caplog.messages) == 1


def test_an_item_that_is_no_object_costs_no_other_machine(caplog: pytest.LogCaptureFixture) -> None:
    api, item = FLAVOURS["gardener"].machines, running("gardener")
    page = json.dumps({"kind": "MachineList", "items": [None, item, "token=s3cret"]}).encode()
    assert ReceivedList("GET /x of demo", (page,)).machines(api.shape) == [api.read(item)]
    assert caplog.messages == [
        f"GET /x of demo: an item is {shown}, and no object; the item is ignored" for shown in ("'None'", "'…'")
    ]


@pytest.mark.parametrize("flavour", FLAVOURS)
@given(path=st.sampled_from(_PATHS), value=json_values())
def test_any_value_of_one_field_leaves_the_other_fields_as_they_are(flavour: str, path: str, value: Any) -> None:
    api, item = FLAVOURS[flavour].machines, running(flavour)
    found = api.read(changed(item, path, value))
    found.read(api.mark, NOW)
    part, _, rest = path.partition(".")
    for other in {"metadata", "spec", "status"} - {part}:
        assert getattr(found, other) == getattr(api.read(item), other)
    if rest and part == "metadata" and not rest.startswith("name"):
        assert found.metadata.name == item["metadata"]["name"]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("flavour", FLAVOURS)
@given(changes=st.lists(st.tuples(st.sampled_from(_PATHS), json_values()), min_size=1, max_size=4))
def test_a_list_is_read_as_its_objects_are(flavour: str, whole: bool, changes: list[tuple[str, Any]]) -> None:
    api = FLAVOURS[flavour].machines
    items = [changed(running(flavour, number), *change) for number, change in enumerate(changes)]
    page = json.dumps({"kind": "MachineList", "items": [*items, running(flavour, 9)]}).encode()
    received = ReceivedList("GET /x of demo", (page, page), whole=whole)
    found = received.machines(api.shape)
    assert found == [api.read(item) for item in received.objects()]
    assert found.count(api.read(running(flavour, 9))) == 2


# Instructions to read a machine, of 1,000 in the reference work (``reference_work``), as last recorded.
COST = {"gardener": 8.0, "cluster-api": 10.7, "openshift": 9.2}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_machine_costs_no_more_than_recorded_to_read(flavour: str) -> None:
    api = FLAVOURS[flavour].machines

    def read(number: int) -> int:
        page = json.dumps({"items": [running(flavour, each) for each in range(number)]}).encode()
        received = ReceivedList("GET /x of demo", (page,), whole=False)
        return instructions(lambda: [item.read(api.mark, NOW) for item in received.machines(api.shape)])

    cost = (read(30) - read(10)) / 20 / (instructions(partial(reference_work, 50)) / 1_000)
    assert cost <= 1.25 * COST[flavour]
