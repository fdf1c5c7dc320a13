"""An unreadable item of the table affects its own cluster or alert only."""

import json
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from evenkeel.adapters.aws.alert_memory import DynamoAlertMemory
from evenkeel.adapters.aws.store import SHARDS, DynamoStore
from evenkeel.adapters.aws.token_store import SealedTokens
from evenkeel.adapters.codec import pack
from evenkeel.adapters.page.reading import page_of_status
from evenkeel.adapters.page.render import document
from evenkeel.application.errors import AccessError, EvenkeelError, StateUnavailableError
from evenkeel.application.fleet.tokens import SealedToken
from evenkeel.application.incidents.alerting import LastNotified
from evenkeel.application.operate import Operate
from evenkeel.application.ports import Versions
from evenkeel.application.rollout.readiness import readiness_of
from evenkeel.domain.drill.drill import Drill
from evenkeel.domain.fleet.check_times import SteadyState, Timer, Unreachable
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Bounds, GroupKey, PoolId
from evenkeel.domain.model.incidents import ClusterHealth, Incident, IncidentKind
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import GroupState, PoolState
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.rebalancing.health.backoff import record_failure
from evenkeel.record import ControlRecord
from evenkeel.state_records import EventCheckRecord, ScaleRequestRecord, ZoneRecord, ZoneStatement
from evenkeel.validation import ConfigError
from evenkeel_cli.answers import print_answer
from tests.fakes import NOW, FakeClock, FakeClusters, FakeQueue, plenty, record
from tests.stored_items import InProcess

CLUSTERS = ("bent", "sound")
KEY = GroupKey("cluster-api", "demo", "workers-a")
POOL = PoolId("cluster-api", "demo", "main", "workers")
DECISION = ulid(NOW, bytes(10))
ACTION = ulid(NOW + timedelta(seconds=1), bytes(10))
MINUTE = timedelta(minutes=1)
# Every type of DynamoDB, and a missing attribute.
VALUES: list[dict[str, Any] | None] = [
    *(
        {"S": ""},
        {"S": "[]"},
        {"S": "{}"},
        {"N": "-1"},
        {"N": "1E+30"},
        {"BOOL": True},
        {"NULL": True},
        {"L": []},
        {"M": {}},
    ),
    *({"B": b""}, None),
]
ASKED_OF = [{"S": "[]"}, {"M": {}}, None]
# These bring an item into an index, or are one of its keys: the table's schema holds their type.
KEYS = {"pk", "sk", "due"}
#: items by their keys, made once: no test changes an item in place
FILLED: dict[str, dict[str, Any]] = {}


class Stack:
    """Two clusters with every kind of item, and all readers."""

    def __init__(self) -> None:
        self.client, self.clock = InProcess(), FakeClock(NOW)
        self.store = DynamoStore(self.client, "table", self.clock.now)
        self.alerts = DynamoAlertMemory(self.client, "table", self.clock.now)
        self.tokens = SealedTokens(self.client, None, "table", "key")
        if not FILLED:
            for cluster in CLUSTERS:
                self._fill(cluster)
            FILLED.update(self.client.table._items)
        for pk, items in FILLED.items():
            self.client.table._items[pk] = dict(items)
        self.operate = Operate(
            store=self.store,
            clusters=FakeClusters({}),
            queue=FakeQueue(),
            clock=self.clock,
            random_bytes=bytes,
            pack=pack,
            dry_run=False,
        )

    def _fill(self, cluster: str) -> None:
        store, until = self.store, NOW + timedelta(hours=1)
        store.save_record(record(id=cluster), ControlRecord(), None)
        failed = record_failure(GroupState(), NOW, FailureClass.CAPACITY, "no room", BackoffPolicy())
        store.save_group(cluster, KEY, failed, None)
        store.save_pool(cluster, POOL, PoolState(adopted={str(KEY): Bounds(1, 3)}), None)
        words = {"by": ZoneStatement(until=until)}
        store.save_zone(cluster, "eu-central-1", "a", ZoneRecord(statements=words), None)
        store.save_drill(cluster, Drill(id="d", zone="b", at=NOW, until=until, reason="a rehearsal"), None)
        store.save_scale_request(cluster, ScaleRequestRecord(id="r1", nodes=4, pool="workers", at=NOW), None)
        store.save_event_check(cluster, EventCheckRecord(at=NOW, by="event-1"), None)
        store.save_timer(cluster, Timer(due=until), None)
        store.save_unreachable(
            cluster, Unreachable(since=NOW, failed_checks=1, last_check=NOW, next_check=until, why="away"), None
        )
        store.save_cluster_health(
            cluster, ClusterHealth(incidents=(Incident(kind=IncidentKind.ACCESS, since=NOW),)), None
        )
        store.save_checked_at([cluster], NOW)
        store.save_steady(cluster, SteadyState(at=NOW, seen={"a": "b"}), Versions({"META": 1}))
        store.take_lease(cluster, "run", 0, NOW, NOW + MINUTE)
        entry = {"cluster": cluster, "at": NOW.isoformat(), "cause": "pause"}
        kept = NOW + timedelta(days=30)
        store.save_decision(cluster, DECISION, {**entry, "id": DECISION, "pool": {"name": "workers"}}, kept)
        store.save_decision(cluster, ACTION, {**entry, "id": ACTION, "by": "jane", "what": "paused"}, kept)
        self.alerts.save_notified("slack", cluster, LastNotified(moment=("2026", 1), print="x", claimed_until=NOW))
        self.tokens.save(cluster, SealedToken(sealed="c2VhbA==", seed="s", issued=NOW, expires=until), writes=True)

    def spoil(self, pk: str, sk: str, name: str, value: dict[str, Any] | None) -> None:
        item = dict(self.client.table._items[pk][sk])
        item.pop(name, None)
        self.client.table._items[pk][sk] = item | ({} if value is None else {name: value})

    def answers(self, *, asks: bool = True) -> dict[str, Any]:
        """Return each reader's value of each cluster by `reader/cluster`. An expected error is a value.

        ``asks``: an operator is also a reader.
        """
        store = self.store
        found: dict[str, Any] = {}
        for cluster in CLUSTERS:
            of_cluster: dict[str, Callable[[], Any]] = {
                "load": lambda id=cluster: store.load(id),
                "registered": lambda id=cluster: store.registered(id),
                "verdict": lambda id=cluster: store.cluster_health(id),
                "decisions": lambda id=cluster: store.decisions(id, 10),
                "decisions after": lambda id=cluster: store.decisions_after(id, "0"),
                "lease": lambda id=cluster: store.take_lease(id, "other", 0, NOW, NOW + MINUTE),
                "alert": lambda id=cluster: self.alerts.last_notified("slack", id),
                "token": lambda id=cluster: self.tokens.load(id, writes=True),
            }
            found |= {f"{reader}/{cluster}": _or_error(read) for reader, read in of_cluster.items()}
            for action in (
                () if not asks else ("status", "history", "record", "explain", "readiness", "export", "drill")
            ):
                found[f"{action}/{cluster}"] = _or_error(lambda id=cluster, action=action: self._asked(action, id))
        found |= _apart("due", [entry for shard in SHARDS for entry in store.due(shard).registrations])
        found |= _apart("registrations", store.registrations())
        found |= _apart("at rest", store.steady_clusters(CLUSTERS).items())
        found |= _apart("verdicts", store.cluster_healths().items())
        found |= _apart("checked", store.checked_at().items())
        for action in () if not asks else ("status", "history", "readiness", "validate"):
            answer = self.operate({"action": action, "cluster": "*"}, plenty)
            reported = answer.get("clusters", [])
            found |= _apart(f"all {action}", ((each["cluster"], each) for each in reported))
        return found

    def _asked(self, action: str, cluster: str) -> Any:
        return self.operate({"action": action, "cluster": cluster}, plenty)


def _apart(reader: str, entries: Any) -> dict[str, Any]:
    return {f"{reader}/{cluster}": entry for cluster, entry in entries}


def _or_error(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (EvenkeelError, ConfigError) as error:
        return f"{type(error).__name__}: {error}"


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    return Stack().answers()


def attributes() -> list[tuple[str, str, str]]:
    """Return each attribute of each item of the cluster `bent`."""
    stack = Stack()
    bent = {"bent", "CLUSTER#bent"}
    checked = next(sk for pk, sk in stack.client.key_pairs() if pk == "CHECKED" and "bent" in _text(stack, pk, sk))
    of_bent = [(pk, sk) for pk, sk in stack.client.key_pairs() if {pk, sk} & {*bent, checked}]
    found = [(pk, sk, name) for pk, sk in of_bent for name in stack.client.table._items[pk][sk]]
    return [(pk, sk, name) for pk, sk, name in found if name not in KEYS]


def _text(stack: Stack, pk: str, sk: str) -> str:
    return str(stack.client.table._items[pk][sk]["record"]["S"])


ATTRIBUTES = attributes()


def test_every_kind_of_item_is_spoilt() -> None:
    kinds = {sk.partition("#")[0] if pk.startswith("CLUSTER#") else pk.partition("#")[0] for pk, sk, _ in ATTRIBUTES}
    assert kinds == {
        *(
            "ACCESS",
            "ALERTED",
            "DECISION",
            "DUE",
            "GROUP",
            "SCALE_REQUEST",
            "EVENT_CHECK",
            "LEASE",
            "NEXT_CHECK",
            "CHECKED",
            "META",
        ),
        *("POOL", "UNREACHABLE", "HEALTH", "HEALTH_BY_CLUSTER", "ZONE", "ZONE-DRILL"),
    }


@pytest.mark.parametrize(("pk", "sk", "name"), ATTRIBUTES)
def test_a_spoilt_attribute_affects_only_its_own_cluster(
    undisturbed: Mapping[str, Any], pk: str, sk: str, name: str
) -> None:
    logging.disable(logging.CRITICAL)
    try:
        for value in VALUES:
            stack = Stack()
            stack.spoil(pk, sk, name, value)
            answers = stack.answers(asks=value in ASKED_OF)
            others = {reader: answer for reader, answer in answers.items() if not reader.endswith("/bent")}
            expected = {reader: undisturbed[reader] for reader in others}
            assert {"load/sound", "due/sound", "registrations/sound", "verdicts/sound", "checked/sound"} <= {*others}
            assert others == expected, value
    finally:
        logging.disable(logging.NOTSET)


class TestByName:
    def test_an_unreadable_decision_is_in_the_history(self) -> None:
        stack = Stack()
        stack.spoil("CLUSTER#bent", f"DECISION#{DECISION}", "record", {"S": "{"})
        unreadable, paused = stack._asked("history", "bent")["actions"]
        assert (unreadable["id"], unreadable["cause"], paused["what"]) == (DECISION, "unreadable", "paused")
        assert unreadable["what"].startswith(f"CLUSTER#bent DECISION#{DECISION}: not JSON")
        assert unreadable in stack._asked("record", "bent")["decisions"]
        assert unreadable in stack._asked("status", "bent")["actions"]
        explained = " ".join(stack._asked("explain", "bent")["history"])
        assert f"DECISION#{DECISION}: not JSON" in explained, explained

    def test_a_decision_of_another_shape_is_in_explain_status_and_page(self) -> None:
        explained = Stack()._asked("explain", "bent")["history"]
        assert [line for line in explained if "pause, asked for by jane" in line]
        assert [line for line in explained if f"decision {DECISION}" in line]
        status = Stack()._asked("status", "bent")
        paused, named = status["actions"]
        assert (paused["cause"], named["cause"], status["decisions"]) == ("pause", "unreadable", [])
        assert (named["id"], named["cluster"]) == (DECISION, "bent")
        assert document(page_of_status(status, "a test", NOW))
        out = StringIO()
        print_answer(status, Console(file=out, width=200))
        assert "pause by jane" in out.getvalue()

    @pytest.mark.parametrize("sk", ["META", "HEALTH"])
    def test_an_unreadable_cluster_is_in_the_list_of_all(self, sk: str) -> None:
        stack = Stack()
        pk, sk = ("CLUSTER#bent", sk) if sk == "META" else ("HEALTH_BY_CLUSTER", "CLUSTER#bent")
        stack.spoil(pk, sk, "record", {"BOOL": True})
        (reported,) = [each for each in stack._asked("status", "*")["clusters"] if each["cluster"] == "bent"]
        assert f"{pk} {sk}: record has type BOOL: write a string (S)" in json.dumps(reported["incidents"])

    @pytest.mark.parametrize("sk", ["LEASE", f"POOL#{POOL}", f"GROUP#{KEY}", "META#CONTROL"])
    def test_a_cluster_with_unreadable_state_is_not_loaded(self, sk: str, caplog: pytest.LogCaptureFixture) -> None:
        stack = Stack()
        name = {"LEASE": "fence", f"GROUP#{KEY}": "state"}.get(sk, "record")
        stack.spoil("CLUSTER#bent", sk, name, None)
        expected = f"CLUSTER#bent {sk}: {name} is missing"
        with pytest.raises(ConfigError, match=expected.replace("[", ".")):
            stack.store.load("bent")
        if sk != "LEASE":
            assert expected in caplog.text

    def test_a_foreign_lease_is_none(self) -> None:
        stack = Stack()
        key = {"pk": {"S": "CLUSTER#bent"}, "sk": {"S": "LEASE"}}
        stack.client.table.put({**key, "state": {"S": "{}"}, "revision": {"N": "1"}})
        assert stack.store.load("bent").fencing_token == 0
        assert stack.store.take_lease("bent", "run", 0, NOW, NOW + MINUTE).fencing_token == 1

    def test_an_alert_is_sent_again_where_its_memory_is_unreadable(self) -> None:
        stack = Stack()
        stack.spoil("ALERTED#slack", "bent", "order", {"L": []})
        assert stack.alerts.last_notified("slack", "bent") == LastNotified(version=1)
        stack.spoil("ALERTED#slack", "bent", "version", {"L": []})
        with pytest.raises(StateUnavailableError, match="ALERTED#slack bent: version has type L"):
            stack.alerts.last_notified("slack", "bent")

    def test_an_unreadable_token_is_named_and_not_quoted(self) -> None:
        stack = Stack()
        stack.spoil("CLUSTER#bent", "ACCESS#writes", "record", {"S": '{"sealed": "c2VjcmV0"}'})
        with pytest.raises(AccessError, match="ACCESS#writes: seed is missing") as refusal:
            stack.tokens.load("bent", writes=True)
        assert "c2VjcmV0" not in str(refusal.value)

    def test_a_dry_run_starts_again_after_an_unreadable_decision(self) -> None:
        stack = Stack()
        stack.spoil("CLUSTER#bent", f"DECISION#{ACTION}", "record", {"S": "{"})
        stored = stack.store.load("bent")
        since = readiness_of(stack.store, stored, timedelta(days=1), NOW + MINUTE).dry_run.since
        assert since == NOW + timedelta(seconds=1)
