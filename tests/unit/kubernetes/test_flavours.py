"""A flavour is one object: a new one is planned as soon as it is registered."""

import dataclasses
import importlib
import inspect
import json
import pkgutil
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from evenkeel.adapters.kubernetes import flavours, owners
from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.adapters.kubernetes.flavours.base import (
    Autoscaler,
    Flavour,
    GroupPaths,
    Machines,
    Nodes,
    Owners,
    being_deleted,
)
from evenkeel.adapters.kubernetes.machine_object import DeleteMark, MachineObject, MachineStatus, Time
from evenkeel.adapters.kubernetes.objects import Kind, Scalable, failure_of, get_path
from evenkeel.adapters.kubernetes.owners.annotations import Annotations
from evenkeel.adapters.kubernetes.owners.base import BoundsOwner, CapOwner, ReplicasOwner
from evenkeel.domain.model.flavours import AUTO_SCALING, FLAVOUR_NAMES
from evenkeel.domain.model.groups import Machine
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel_cli.main import app
from tests.objects import ZONES
from tests.unit.project.test_admission_policy import RBAC, rights

NOW = "2026-01-15T12:00:00Z"
GROUP = "fleets.example"


def _moored(scalable: Scalable) -> Reason | None:
    is_moored = get_path(scalable.item, ("spec", "moored")) is True
    return Reason.of(Rule.FROZEN_BY_CONTROLLER, controller="the harbour master") if is_moored else None


class _ShipStatus(MachineStatus, frozen=True):
    sails: bool = False
    wreck: str = ""
    wrecked: Time = None


class _Ship(MachineObject, frozen=True):
    status: _ShipStatus = _ShipStatus()

    def read(self, mark: DeleteMark, now: datetime) -> Machine:
        wreck = self.status.wreck
        failure = failure_of("Wrecked", wreck, self.status.wrecked) if wreck else None
        return Machine(**self.shared_fields(mark), has_node=self.status.sails, failure=failure)


FICTIONAL = Flavour(
    name="fictional",
    group=GROUP,
    scalables=(Kind(GROUP, ("v1",), "Fleet", "fleets"),),
    absent_replicas=1,
    freeze_rules=(being_deleted, _moored),
    owners=Owners(bounds=(Annotations,)),
    paths=GroupPaths(pool_label=f"{GROUP}/ocean", zones=(("spec", "harbour"),)),
    machines=Machines(
        kind=Kind(GROUP, ("v1",), "Ship", "ships"),
        shape=_Ship,
        labels={"Fleet": f"{GROUP}/fleet"},
        mark=DeleteMark(f"{GROUP}/scuttle"),
    ),
    autoscaler=Autoscaler(
        provision_timeout=f"{GROUP}/patience",
        unneeded_time=f"{GROUP}/idle",
        unready_time=f"{GROUP}/unready",
        utilization_threshold=f"{GROUP}/share",
        gpu_utilization_threshold=f"{GROUP}/gpu-share",
        status_name="{namespace}:{name}",
    ),
    nodes=Nodes(labels=("spec", "pennants")),
)


def fleet(zone: str, replicas: int | None, ready: int, **spec: Any) -> dict[str, Any]:
    annotations = {FICTIONAL.min_key: "0", FICTIONAL.max_key: "4", "evenkeel.dev/pool-max": "12"}
    name = {"namespace": "sea", "name": f"fleet-{zone}"}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Fleet",
        "metadata": {**name, "labels": {f"{GROUP}/ocean": "north"}, "annotations": annotations},
        "spec": {"harbour": zone, **({} if replicas is None else {"replicas": replicas}), **spec},
        "status": {"readyReplicas": ready},
    }


def ship(zone: str, number: int, **status: Any) -> dict[str, Any]:
    metadata = {
        "namespace": "sea",
        "name": f"fleet-{zone}-{number}",
        "labels": {f"{GROUP}/fleet": f"fleet-{zone}"},
        "creationTimestamp": "2026-01-15T11:58:00Z",
    }
    return {"apiVersion": f"{GROUP}/v1", "kind": "Ship", "metadata": metadata, "status": status}


class TestNewFlavour:
    @pytest.fixture(autouse=True)
    def _registered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(FLAVOURS, FICTIONAL.name, FICTIONAL)
        monkeypatch.setattr("evenkeel.record.FLAVOUR_NAMES", (*FLAVOUR_NAMES, FICTIONAL.name))

    @staticmethod
    def plan(folder: Path, *items: dict[str, Any], record: dict[str, Any] | None = None) -> dict[str, Any]:
        (folder / "objects.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        (folder / "record.json").write_text(json.dumps(record or {}))
        files = ["-f", str(folder / "objects.json"), "--record", str(folder / "record.json")]
        result = CliRunner().invoke(app, ["plan", *files, "--now", NOW, "-o", "json"])
        assert result.exit_code == 0, result.output
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    def test_its_pool_is_planned(self, tmp_path: Path) -> None:
        document = self.plan(tmp_path, *(fleet(zone, 2, 2) for zone in ZONES))
        (pool,) = document["pools"]
        assert (pool["name"], pool["valid"], pool["max"], document["skipped"]) == ("north", True, 12, [])
        groups = [(group["flavour"], group["zone"], group["state"]) for group in pool["groups"]]
        assert groups == [("fictional", zone, "healthy") for zone in ZONES]
        assert sum(group["max"]["to"] for group in pool["groups"]) == 12

    def test_its_machines_fence_a_zone(self, tmp_path: Path) -> None:
        wreck = ship(ZONES[0], 2, wreck="InsufficientInstanceCapacity: no ships", wrecked="2026-01-15T11:59:00Z")
        fleets = (fleet(zone, 2, 1 if zone == ZONES[0] else 2) for zone in ZONES)
        (pool,) = self.plan(tmp_path, *fleets, ship(ZONES[0], 1, sails=True), wreck)["pools"]
        assert [group["state"] for group in pool["groups"]] == ["fenced", "healthy", "healthy"]
        assert pool["groups"][0]["requested"] == {"from": 2, "to": 1}

    def test_its_rules_freeze_a_group_and_its_default_counts_replicas(self, tmp_path: Path) -> None:
        document = self.plan(tmp_path, fleet(ZONES[0], None, 1, moored=True), fleet(ZONES[1], 0, 0))
        (pool,) = document["pools"]
        moored, empty = pool["groups"]
        assert (moored["state"], moored["requested"]["from"]) == ("frozen", 1)
        assert "the harbour master has frozen the group" in moored["reasons"][0]
        assert empty["requested"]["from"] == 0


PARTS: list[Any] = [
    FICTIONAL,
    *(getattr(FICTIONAL, part) for part in ("owners", "paths", "machines", "autoscaler", "nodes")),
]
REQUIRED = [
    (part, field.name)
    for part in PARTS
    for field in dataclasses.fields(part)
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
]


@pytest.mark.parametrize(("part", "name"), REQUIRED, ids=lambda value: value if isinstance(value, str) else "")
def test_a_flavour_without_a_required_field_is_an_error_that_names_it(part: Any, name: str) -> None:
    fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part) if field.name != name}
    with pytest.raises(TypeError, match=f"'{name}'"):
        type(part)(**fields)


def values_in(package: ModuleType) -> tuple[set[str], list[Any]]:
    """Return the modules of a package without its base, and all their definitions."""
    names = {module.name for module in pkgutil.iter_modules(package.__path__)} - {"base"}
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    return names, [value for module in modules for value in vars(module).values()]


def test_every_file_of_a_flavour_is_registered() -> None:
    names, values = values_in(flavours)
    stated = [value for value in values if isinstance(value, Flavour)]
    assert len(stated) == len(names)
    assert {flavour.name for flavour in stated} == set(FLAVOURS)
    assert (*FLAVOURS, AUTO_SCALING) == FLAVOUR_NAMES


@pytest.mark.parametrize("flavour", FLAVOURS.values(), ids=lambda flavour: flavour.name)
def test_the_last_owner_claims_every_scalable(flavour: Flavour) -> None:
    assert flavour.owners.bounds[-1] is Annotations
    assert Annotations not in flavour.owners.bounds[:-1]


def test_every_file_of_an_owner_is_used_by_a_flavour() -> None:
    types = [value for value in values_in(owners)[1] if isinstance(value, type)]
    kinds = (BoundsOwner, ReplicasOwner, CapOwner)
    stated = {value for value in types if issubclass(value, kinds) and not inspect.isabstract(value)}
    of_flavours = [flavour.owners for flavour in FLAVOURS.values()]
    used = {owner for each in of_flavours for owner in (*each.bounds, each.replicas, each.cap)}
    assert stated == used - {None}


@pytest.mark.parametrize("flavour", FLAVOURS.values(), ids=lambda flavour: flavour.name)
def test_the_role_grants_what_checks_and_patches_of_the_flavour_need(flavour: Flavour) -> None:
    owners = {owner.kind for owner in flavour.owners.bounds if owner.kind is not None}
    # A write that needs a separate right is written only if its file of rights is applied.
    written = {kind for kind in owners if not kind.may_be_refused} | {*flavour.scalables, flavour.machines.kind}
    listed = (*flavour.kinds, flavour.machines.kind)
    needed = {(kind, "list") for kind in listed} | {(kind, "patch") for kind in written}
    assert {(kind.group, kind.plural, verb) for kind, verb in needed} <= rights(RBAC)
