"""Upgrade and rollback as in docs/operate/upgrade.md: stored items of one release, and code of another."""

import json
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.adapters.own_annotations import MOVE
from evenkeel.application.fleet.scan import Scan
from evenkeel.application.operate import answer_of_error
from evenkeel.application.ports import DetailType, sequentially
from evenkeel.application.rebalancing.events import EventResult, Failure
from evenkeel.validation import ConfigError
from tests.crashing import ConvergingScene, Scene
from tests.fakes import NOW, FakeBus, plenty
from tests.stack import RECORD, Stack
from tests.stored_items import InProcess, Item, fixture, open_move, open_step, store_of

NEWER = {"from_tomorrow": {"since": "2026-02-01"}}
INCIDENTS = {DetailType.INCIDENT_OPENED, DetailType.INCIDENT_CHANGED, DetailType.INCIDENT_CLOSED}


def changed(item: Item, fields: dict[str, Any]) -> Item:
    """Return the item with more fields in its JSON text. A compressed cache is unchanged."""
    stored = {name: item[name]["S"] for name in ("record", "state") if name in item}
    texts = {name: json.loads(text) for name, text in stored.items() if text.startswith("{")}
    return item | {name: {"S": json.dumps(text | fields)} for name, text in texts.items()}


def take_over(scene: Scene, name: str, *, newer: bool) -> InProcess:
    """Replace the items that this release has just stored by those of the fixture, or by items of a newer release."""
    client = InProcess(changed(item, NEWER) if newer else item for item in fixture(name))
    scene.memory, scene.bus = store_of(client), FakeBus()
    return client


def forgotten(client: InProcess, name: str) -> list[tuple[str, str]]:
    """Return the fixture's items that have lost the fields of a newer release, except the lease and the health."""
    after = {(item["pk"]["S"], item["sk"]["S"]): json.dumps(item) for item in client.items()}
    lost = [key for key in InProcess(fixture(name)).key_pairs() if "from_tomorrow" not in after[key]]
    return [key for key in lost if "LEASE" not in key and "HEALTH" not in key[0] + key[1]]


@pytest.mark.parametrize("newer", [False, True], ids=["upgrade", "rollback"])
class TestAnInterruptedRun:
    def test_an_open_move_ends_and_its_incident_is_reported_once(self, newer: bool) -> None:
        scene = open_move(InProcess())
        client = take_over(scene, "open-move", newer=newer)
        stored = scene.memory.load("demo")
        ((pool, state),) = stored.state.pools.items()
        (incident,) = stored.cluster_health.incidents
        for zone in scene.zones:  # the patch that the killed run has made
            if MOVE in scene.annotations(zone, scene.item(zone)):
                scene.annotate(zone, {MOVE: state.move.id})
        assert sum(scene.replicas().values()) == scene.expected - 2
        scene.settle()
        assert scene.problems() == []
        reported = [(type, detail) for type, detail in scene.bus.published if type in INCIDENTS]
        assert [type for type, _ in reported] == [DetailType.INCIDENT_CLOSED]
        assert (reported[0][1]["kind"], reported[0][1]["pool"]) == (incident.kind.value, str(pool))
        assert not newer or forgotten(client, "open-move") == []

    def test_an_open_step_ends(self, newer: bool) -> None:
        scene: ConvergingScene = open_step(InProcess())
        client = take_over(scene, "open-step", newer=newer)
        assert scene.step.phase == "deleting"
        scene.settle(20)
        assert scene.problems() == []
        assert not newer or forgotten(client, "open-step") == []


LINE = (
    "cluster demo: its items are of release 0.1.0, which this release cannot read: run restore with release 0.1.0, "
    "then register the cluster in a new stack (docs/operate/upgrade.md)"
)


def item(pk: str, sk: str, record: dict[str, Any], **attributes: dict[str, str]) -> Item:
    return {"pk": {"S": pk}, "sk": {"S": sk}, "record": {"S": json.dumps(record)}, **attributes}


# As release 0.1.0 has written them. It has other shards, other fields, and no form.
FIRST = {"version": {"N": "1"}}
GIVEN = {"id": "demo", **RECORD, "names": ["blue"], "share_offerings": True}
OF_0_1_0: list[Item] = [
    item("CLUSTER#demo", "META", GIVEN, due={"S": "DUE"}, **FIRST),
    item("CLUSTER#demo", "META#CONTROL", {}, **FIRST),
    item("CLUSTER#demo", "POOL#cluster-api/demo/workers", {"flavour": "cluster-api", "adopted": {}}, **FIRST),
    item("DUE#a", "CLUSTER#demo", GIVEN),
    item("NAME#blue", "CLUSTER#demo", {}),
]
READS = ("status", "plan", "explain", "validate", "readiness", "export", "record")
EVENTS: list[dict[str, Any]] = [
    *({"action": action} for action in (*READS, "pause", "resume", "live", "dry-run", "restore", "unregister")),
    *({"action": action, "cluster": None} for action in ("status", "validate", "readiness", "export")),
    *({"action": "apply", "cluster": None, "records": {"demo": RECORD}, "list": lists} for lists in (True, False)),
    {"action": "unregister", "force": True},
    {"action": "register", "record": RECORD},
    {"action": "drill", "zone": "a", "by": "jane", "reason": "a rehearsal"},
    {"action": "fence-zone", "zone": "a", "for": "1h"},
    {"action": "level", "pool": "workers"},
    {"action": "scale-up", "pool": "workers", "nodes": 1},
]


class TestATableOfRelease010:
    @pytest.fixture
    def client(self) -> InProcess:
        return InProcess(OF_0_1_0)

    @pytest.fixture
    def stack(self, client: InProcess) -> Stack:
        return Stack(store=store_of(client))  # type: ignore[arg-type]

    @pytest.mark.parametrize("event", EVENTS, ids=str)
    def test_an_action_answers_with_the_way_out(self, client: InProcess, stack: Stack, event: dict[str, Any]) -> None:
        try:
            answer = stack.ask(**event)
        except ConfigError as error:
            answer = answer_of_error(error)
        assert LINE in json.dumps(answer)
        assert client.items() == InProcess(OF_0_1_0).items()

    @pytest.mark.parametrize("name", ["demo", "blue"])
    def test_an_event_changes_nothing(self, client: InProcess, stack: Stack, name: str) -> None:
        failure = Failure(
            id="1", cluster=None, called=(name,), code="X", message="", occurred_at=NOW, namespace="demo", name="w-a"
        )
        outcome = stack.record_failure(failure)
        assert outcome.result is EventResult.IGNORED
        assert LINE in outcome.message
        assert client.items() == InProcess(OF_0_1_0).items()

    def test_scans_find_it_within_an_hour_and_a_run_opens_one_incident(self, client: InProcess, stack: Stack) -> None:
        scan = Scan(store=stack.store, queue=stack.queue, clock=stack.clock, together=sequentially)
        found = [scan.tick(NOW + timedelta(minutes=minute)).broken for minute in range(60)]
        assert [fault for faults in found for fault in faults] == [LINE]
        for _ in range(2):
            stack.carry_out()
            stack.check(("demo",), plenty)
        assert stack.bus.types == [DetailType.INCIDENT_OPENED]
        assert stack.bus.published[0][1]["kind"] == "invalid-record"
        assert LINE in json.dumps(stack.bus.published)
        assert (stack.cluster.checks, stack.cluster.applied) == (0, [])
        assert [item for item in client.items() if item in OF_0_1_0] == InProcess(OF_0_1_0).items()

    def test_items_of_a_later_form_are_refused_too(self) -> None:
        client = InProcess(changed(item, {"form": 2}) for item in fixture("every-kind"))
        with pytest.raises(ConfigError, match="cluster demo: its items have form 2, and this release reads form 1"):
            store_of(client).load("demo")
