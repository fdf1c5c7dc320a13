"""A stack of the release before is upgraded, and rolled back: each release with its own code, on one table.

The release before runs from tests/releases, in Lambda's runtime client; this one in this process. What either leaves in
the table and in the clusters, the other finds.
"""

import compileall
import io
import json
import sys
import zipfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.bootstrap import SystemClock, use_clock
from evenkeel.domain.model.origins import POOL_MAX
from sandbox.aws import AwsEndpoints, Deployment
from sandbox.kube.api import Fault, Request
from sandbox.kube.world import World
from sandbox.lambda_runtime import RuntimeProcess
from sandbox.template import ROOT
from sandbox.triggers import InProcess
from tests.integration.staging import UNEVEN, Stage
from tests.tls_server import CA_PEM

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Lambda's runtime client runs on Linux alone")

BEFORE = sorted((ROOT / "tests" / "releases").glob("*.zip"))
CLUSTERS = tuple(UNEVEN)
POOL = {name: pools[0].name for name, pools in UNEVEN.items()}


class ReleaseBefore(ExitStack):
    """The functions of a release that was: called by their logical ids, as ``InProcess``."""

    def __init__(self, code: Path, deployment: Deployment) -> None:
        super().__init__()
        self._code = code
        self._deployment = deployment
        self._running: dict[str, RuntimeProcess] = {}

    def __call__(self, logical_id: str, event: Any) -> Any:
        if logical_id not in self._running:
            function = self._deployment.function(logical_id)
            process = RuntimeProcess(
                function=self._code / "functions" / function.code.name,
                layers=[self._code],
                python=Path(sys.executable),
                environment=self._deployment.environment(logical_id),
                timeout=60,
                name=logical_id,
            )
            self._running[logical_id] = self.enter_context(process)
        return self._running[logical_id].invoke(event)


class Ship:
    """One stack and its clusters, on which either release sails."""

    def __init__(self, world: World, deployment: Deployment, then: ReleaseBefore, now: InProcess) -> None:
        self.world = world
        self.then, self.now = Stage(deployment, then), Stage(deployment, now)
        self.table = deployment.physical("Table")
        self._database = deployment.aws.client("dynamodb")
        self.adopted = bounds(self)

    def items(self) -> dict[tuple[str, str], dict[str, Any]]:
        found = self._database.scan(TableName=self.table, ConsistentRead=True)
        assert "LastEvaluatedKey" not in found
        return {(item["pk"]["S"], item["sk"]["S"]): item for item in found["Items"]}

    def night(self, stage: Stage) -> None:
        """What a stack remembers: adopted bounds, a backoff, a zone and a pool that a person spoke of, a request."""
        for name in CLUSTERS:
            stage.register_cluster(name, self.world.clusters[name])
        sail(stage)
        stage.report_failure("cluster-api", self.world.clusters["cluster-api"], "eu-central-1a", datetime.now(UTC))
        until = (datetime.now(UTC) + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
        ask(stage, "fence-zone", "gardener", zone="eu-central-1b", until=until)
        ask(stage, "pause", "openshift", pool=POOL["openshift"], until=until)
        ask(stage, "scale-up", "cluster-api", pool=POOL["cluster-api"], nodes=2)
        sail(stage)


def bounds_of(world: World, name: str) -> list[tuple[Any, ...]]:
    """What stands in a cluster, per group; of a MachineAutoscaler where it is the owner."""
    if name == "openshift":
        scalers = world.clusters[name].store.list("machineautoscalers.autoscaling.openshift.io")
        return [(one["metadata"]["name"], one["spec"]["minReplicas"], one["spec"]["maxReplicas"]) for one in scalers]
    return [(view.name, view.minimum, view.maximum) for view in world.clusters[name].groups()]


def edit(world: World, name: str, group: str, patch: dict[str, Any]) -> None:
    """People change a scalable."""
    cluster = world.clusters[name]
    resource = cluster.controllers.resource("machinedeployments")
    cluster.store.patch(resource, cluster.namespace, group, patch, manager="test")


def ask(stage: Stage, action: str, cluster: str, **fields: Any) -> dict[str, Any]:
    answer = stage.operator(action, cluster, **fields)
    assert answer["ok"], answer
    return answer


def sail(stage: Stage) -> None:
    """A minute of a stack: nothing fails, and nothing is put aside."""
    stage.triggers.failures.clear()
    stage.look()
    assert [(failure.function, str(failure.error)) for failure in stage.triggers.failures] == []
    assert stage.take("RebalanceDeadLetters") == []


def remembered(stage: Stage) -> dict[str, Any]:
    """What the night is known by, as the status of either release tells it."""
    told = {name: ask(stage, "status", name) for name in CLUSTERS}
    return {
        "states": {
            name: {group["name"]: group["state"] for pool in told[name]["pools"] for group in pool["groups"]}
            for name in CLUSTERS
        },
        "numbers": {name: [(pool["min"], pool["max"]) for pool in told[name]["pools"]] for name in CLUSTERS},
        "paused": told["openshift"]["pausedPools"],
    }


@pytest.fixture(params=BEFORE, ids=lambda path: path.stem)
def ship(request: pytest.FixtureRequest, aws: AwsEndpoints, tmp_path: Path) -> Iterator[Ship]:
    with zipfile.ZipFile(request.param) as release:
        release.extractall(tmp_path)
    compileall.compile_dir(tmp_path, quiet=2)
    with ExitStack() as stack:
        world = stack.enter_context(
            World(clusters=CLUSTERS, pools=UNEVEN, clock=lambda: datetime.now(UTC), settings=None)
        )
        # A Worker's shares are what we publish as well, so one zone has something else.
        annotations = {FLAVOURS["gardener"].max_key: "3"}
        edit(world, "gardener", world.clusters["gardener"].groups()[1].name, {"metadata": {"annotations": annotations}})
        deployment = stack.enter_context(aws.deploy(parameters={"DryRun": "false"}))
        then = stack.enter_context(ReleaseBefore(tmp_path, deployment))
        now = stack.enter_context(InProcess(deployment, log=io.StringIO()))
        use_clock(SystemClock())  # forgets the clients of the stack before this one
        yield Ship(world, deployment, then, now)


def bounds(ship: Ship) -> dict[str, list[tuple[Any, ...]]]:
    return {name: bounds_of(ship.world, name) for name in CLUSTERS}


def restored(ship: Ship, stage: Stage) -> None:
    """Whichever release is asked, it puts back what stood before the first of them came."""
    assert all(bounds(ship)[name] != ship.adopted[name] for name in CLUSTERS)
    for name in CLUSTERS:
        ask(stage, "restore", name)
    for _ in range(3):
        sail(stage)
    assert bounds(ship) == ship.adopted


def test_a_release_that_was_is_there_to_come_from() -> None:
    assert BEFORE


def test_an_upgraded_stack_knows_all_that_was_remembered_and_sails_on(ship: Ship) -> None:
    ship.night(ship.then)
    before = remembered(ship.then)
    assert "fenced" in before["states"]["cluster-api"].values()
    assert "fenced" in before["states"]["gardener"].values()
    assert POOL["openshift"] in before["paused"]
    assert remembered(ship.now) == before
    for _ in range(2):
        sail(ship.now)
    assert remembered(ship.now) == before
    restored(ship, ship.now)


def test_a_stack_that_is_rolled_back_sails_on_with_what_the_newer_release_has_written(ship: Ship) -> None:
    ship.night(ship.now)
    after = remembered(ship.now)
    assert remembered(ship.then) == after
    for _ in range(2):
        sail(ship.then)
    assert remembered(ship.then) == after
    restored(ship, ship.then)


def half_moved(ship: Ship, stage: Stage) -> int:
    """A cluster goes dark when replicas have been taken from the zone that fails, and not yet given to the others.

    Returns how many were requested before it.
    """
    cluster = ship.world.clusters["cluster-api"]
    stage.register_cluster("cluster-api", cluster, on_failure="move")
    sail(stage)
    failing, *_ = cluster.groups()
    edit(ship.world, "cluster-api", failing.name, {"spec": {"replicas": failing.running + 2}})
    before = sum(view.requested for view in cluster.groups())

    def goes_dark(request: Request) -> None:
        if request.method == "PATCH" and failing.name in request.path and '"replicas"' in json.dumps(request.body):
            cluster.api.after.remove(goes_dark)
            dark.append(cluster.api.faults.add(status=503, times=1000))

    dark: list[Fault] = []
    cluster.api.after.append(goes_dark)
    stage.report_failure("cluster-api", cluster, failing.zone, datetime.now(UTC))
    stage.look()
    assert sum(view.requested for view in cluster.groups()) == before - 2
    dark[0].times = 0
    stage.triggers.failures.clear()
    stage.take("RebalanceDeadLetters")
    return before


@pytest.mark.parametrize("is_upgrade", [True, False], ids=["upgraded", "rolled back"])
def test_a_move_that_one_release_has_begun_the_other_ends(ship: Ship, is_upgrade: bool) -> None:
    first, second = (ship.then, ship.now) if is_upgrade else (ship.now, ship.then)
    before = half_moved(ship, first)
    for _ in range(3):
        ask(second, "resume", "cluster-api")
        sail(second)
    assert sum(view.requested for view in ship.world.clusters["cluster-api"].groups()) == before


@pytest.mark.parametrize("is_upgrade", [True, False], ids=["upgraded", "rolled back"])
def test_messages_that_are_on_their_way_are_for_either_release(ship: Ship, is_upgrade: bool) -> None:
    first, second = (ship.then, ship.now) if is_upgrade else (ship.now, ship.then)
    for name in CLUSTERS:
        first.register_cluster(name, ship.world.clusters[name])
    cluster = ship.world.clusters["cluster-api"]
    first.report_failure("cluster-api", cluster, "eu-central-1a", datetime.now(UTC))
    second.triggers.drain()
    assert second.triggers.failures == []
    assert second.take("RebalanceDeadLetters") == []
    assert bounds(ship) != ship.adopted


def test_what_only_the_newer_release_knows_of_a_record_outlives_a_rollback(ship: Ship) -> None:
    newer = {
        "labels": {"env": "prod"},
        "trouble_after": 900,
        "share_offerings": False,
        "suspect_provision_time": 180,
        "demand": "advise",
        "workload": {"access": {"kind": "same"}},
    }
    ship.now.register_cluster("cluster-api", ship.world.clusters["cluster-api"], **newer)
    sail(ship.now)
    ask(ship.then, "pause", "cluster-api")
    sail(ship.then)
    ask(ship.then, "resume", "cluster-api")
    sail(ship.then)
    (record,) = ask(ship.now, "export", "cluster-api")["records"]
    assert record.items() >= newer.items()


def test_a_cluster_that_only_the_newer_release_can_open_is_left_alone_by_the_older_and_its_record_stays(
    ship: Ship,
) -> None:
    ship.now.register_cluster("gardener", ship.world.clusters["gardener"])
    access = {"kind": "aws-oidc", "endpoint": "https://api.example.com", "ca_data": b64encode(CA_PEM.encode()).decode()}
    ask(ship.now, "register", "far", record={"flavours": ["cluster-api"], "access": access})
    before = ask(ship.now, "export", "far")["records"]
    ship.then.triggers.tick()
    ship.then.triggers.drain()
    assert bounds(ship)["gardener"] != ship.adopted["gardener"]
    ask(ship.then, "status", "gardener")
    assert not ship.then.operator("status", "far")["ok"]
    assert ask(ship.now, "export", "far")["records"] == before


def test_the_newer_releases_verdict_stays_while_the_older_one_sails(ship: Ship) -> None:
    cluster = ship.world.clusters["cluster-api"]
    ship.now.register_cluster("cluster-api", cluster)
    edit(ship.world, "cluster-api", cluster.groups()[0].name, {"metadata": {"annotations": {POOL_MAX: "many"}}})
    sail(ship.now)
    cluster_healths = {key: item for key, item in ship.items().items() if key[1] == "HEALTH"}
    assert cluster_healths
    sail(ship.then)
    assert cluster_healths.items() <= ship.items().items()
