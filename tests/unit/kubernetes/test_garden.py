"""Shoots: their fields as read from the garden and from files, and their writes."""

import copy
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given

from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.adapters.kubernetes.garden import Garden, read_shoot, shoots_in
from evenkeel.application.errors import AccessError, ClusterUnavailableError, RejectedError
from evenkeel.capabilities.relief import ShootRelief
from evenkeel.domain.model.groups import ShootWorker
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.relief.model import Relief, ReliefStep, Shoot
from tests.builders import json_values
from tests.fakes import plenty

Object = dict[str, Any]
SEED = "shoot--demo--main"
PATH = "/apis/core.gardener.cloud/v1beta1/namespaces/{}/shoots/{}"
ZONES = ["eu-central-1a", "eu-central-1b"]


def shoot(**fields: Any) -> Object:
    """Return a Shoot of two workers, with parts of it replaced."""
    workers = [
        {"name": name, "minimum": 1, "maximum": 4, "zones": ZONES, "machine": {"type": "m5"}, "unheardOf": {"a": [1]}}
        for name in ("p", "q")
    ]
    return {
        "apiVersion": "core.gardener.cloud/v1beta1",
        "kind": "Shoot",
        "metadata": {
            "name": "main",
            "namespace": "garden-demo",
            "uid": "u",
            "generation": 3,
            "resourceVersion": "7",
            **fields.pop("metadata", {}),
        },
        "spec": {"provider": {"workers": workers}, **fields.pop("spec", {})},
        "status": {"technicalID": SEED, "observedGeneration": 3, **fields.pop("status", {})},
    }


class FakeApi:
    """An API server that has one object at each path."""

    name = "demo/garden"

    def __init__(self, **objects: Object | Exception) -> None:
        self.objects = objects
        self.asked: list[str] = []
        self.patched: list[tuple[str, Object]] = []

    def get(self, path: str, remaining: Callable[[], float]) -> Object | None:
        self.asked.append(path)
        assert remaining() <= 3
        found = self.objects.get(path.rpartition("/")[2])
        if isinstance(found, Exception):
            raise found
        return found

    def patch(self, path: str, body: Object, _remaining: Any) -> Object:
        self.patched.append((path, body))
        return body


def garden(api: FakeApi, **relief: Any) -> Garden:
    return Garden(lambda: cast("KubernetesApi", api), ShootRelief(**relief), plenty)


def step(of: Shoot, worker: str, maximum: int) -> ReliefStep:
    return ReliefStep(name="", before=Relief(), after=Relief(), shoot=of, worker=worker, maximum=maximum)


def test_a_shoot_is_found_by_the_name_of_its_namespace_in_the_seed() -> None:
    api = FakeApi(main=shoot(), soil=shoot())
    found = garden(api).shoots([SEED])[SEED]
    assert isinstance(found, Shoot)
    assert found.workers[0] == ShootWorker(name="p", minimum=1, maximum=4, zones=tuple(ZONES))
    assert (str(found.ref), found.generation) == ("Shoot garden-demo/main", 3)
    assert (found.observed, found.obstacle) == (True, None)
    assert not read_shoot(shoot(status={"observedGeneration": 2})).observed
    garden(api).shoots(["shoot--garden--soil"])
    assert api.asked == [PATH.format("garden-demo", "main"), PATH.format("garden", "soil")]


def test_the_record_names_shoots_with_another_namespace() -> None:
    api = FakeApi(x=shoot(status={"technicalID": "shoot-old"}))
    found = garden(api, shoots={"shoot-old": "elsewhere/x"}).shoots(["shoot-old", "another"])
    assert api.asked == [PATH.format("elsewhere", "x")]
    assert isinstance(found["shoot-old"], Shoot)
    assert cast("Reason", found["another"]).rule is Rule.SHOOT_UNNAMED


@pytest.mark.parametrize("technical_id", ["shoot--demo--other", None, 7])
def test_a_shoot_of_another_namespace_is_not_taken_for_it(technical_id: Any) -> None:
    found = garden(FakeApi(main=shoot(status={"technicalID": technical_id}))).shoots([SEED])[SEED]
    assert cast("Reason", found).rule is Rule.SHOOT_OF_ANOTHER


def test_a_missing_shoot_is_a_reason_and_an_unreachable_garden_is_read_once() -> None:
    found = garden(FakeApi()).shoots([SEED])[SEED]
    assert cast("Reason", found).rule is Rule.SHOOT_UNREAD
    api = FakeApi(a=ClusterUnavailableError("no answer"), b=shoot())
    reported = garden(api).shoots(["shoot--x--a", "shoot--x--b"])
    assert {cast("Reason", reason).rule for reason in reported.values()} == {Rule.SHOOT_UNREAD}
    assert len(api.asked) == 1


def test_a_write_changes_one_number_of_the_list_and_needs_a_resource_version() -> None:
    item = shoot()
    api = FakeApi(main=item)
    there = garden(api)
    found = there.shoots([SEED])[SEED]
    assert isinstance(found, Shoot)
    there.write(step(found, "q", 9))
    expected = copy.deepcopy(item["spec"]["provider"]["workers"])
    expected[1]["maximum"] = 9
    body = {"metadata": {"resourceVersion": "7"}, "spec": {"provider": {"workers": expected}}}
    assert api.patched == [(PATH.format("garden-demo", "main"), body)]
    item["metadata"]["resourceVersion"] = ""
    there = garden(api)
    there.shoots([SEED])
    with pytest.raises(RejectedError, match="resourceVersion"):
        there.write(step(found, "p", 9))


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, Rule.OBJECT_BEING_DELETED),
        ({"metadata": {"annotations": {"shoot.gardener.cloud/ignore": "true"}}}, Rule.SHOOT_IGNORED),
        ({"metadata": {"annotations": {"shoot.gardener.cloud/ignore": "false"}}}, None),
        ({"spec": {"hibernation": {"enabled": True}}}, Rule.SHOOT_ASLEEP),
        ({"status": {"hibernated": True}}, Rule.SHOOT_ASLEEP),
        ({"spec": {"maintenance": {"confineSpecUpdateRollout": True}}}, Rule.SHOOT_CONFINED),
        ({"status": {"lastOperation": {"type": "Migrate", "state": "Processing"}}}, Rule.SHOOT_OPERATION),
        ({"status": {"lastOperation": {"type": "Restore", "state": "Error"}}}, Rule.SHOOT_OPERATION),
        ({"status": {"lastOperation": {"type": "Reconcile", "state": "Failed"}}}, Rule.SHOOT_OPERATION),
        ({"status": {"lastOperation": {"type": "Reconcile", "state": "Error"}}}, None),
        ({"status": {"lastOperation": {"type": "Create", "state": "Succeeded"}}}, None),
    ],
)
def test_what_keeps_a_shoot_from_being_written(fields: Object, rule: Rule | None) -> None:
    obstacle = read_shoot(shoot(**fields)).obstacle
    assert (None if obstacle is None else obstacle.rule) == rule


def test_files_may_contain_the_shoot_or_a_copy_with_the_limit() -> None:
    profile = {"spec": {"limits": {"maxNodesTotal": 50}}}
    cluster = {"metadata": {"name": SEED}, "spec": {"cloudProfile": profile, "shoot": shoot()}}
    assert shoots_in([cluster], [])[SEED].most_nodes == 50
    newer = shoot(metadata={"generation": 4}, status={"technicalID": None})
    found = shoots_in([cluster], [newer])
    assert (found[SEED].generation, found[SEED].observed, found[SEED].most_nodes) == (4, False, 50)


@given(json_values())
def test_any_answer_of_the_garden_is_a_shoot_or_a_reason(garbage: Any) -> None:
    item = {"metadata": garbage, "spec": {"provider": {"workers": garbage}}, "status": {"technicalID": SEED}}
    for answer in (item, {**item, "spec": garbage}, {"status": garbage}):
        assert isinstance(garden(FakeApi(main=answer)).shoots([SEED])[SEED], Shoot | Reason)


@pytest.mark.parametrize(
    "error", [AccessError("no token"), RuntimeError("a bug")], ids=lambda error: type(error).__name__
)
def test_a_garden_that_cannot_be_opened_is_a_reason_for_each_shoot(error: Exception) -> None:
    def closed() -> "KubernetesApi":
        raise error

    found = Garden(closed, ShootRelief(), plenty).shoots([SEED, "shoot--x--a"])
    assert {cast("Reason", reason).rule for reason in found.values()} == {Rule.SHOOT_UNREAD}
