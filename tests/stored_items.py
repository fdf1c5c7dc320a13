"""The stored items of this release, as DynamoDB holds them. `python -m tests.stored_items` renews the fixtures.

    every-kind.json   an item of every kind
    open-move.json    a run was killed within a move while an incident was open
    open-step.json    a run was killed within a convergence step

Renew them with each change of form until 0.2.0 is released. From then on they stay, and a new form gets a new folder.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from bench.aws import RefusedError, Table
from evenkeel.adapters.aws.alert_memory import DynamoAlertMemory
from evenkeel.adapters.aws.group_decisions import DynamoGroupDecisions
from evenkeel.adapters.aws.idempotency import DynamoIdempotency
from evenkeel.adapters.aws.node_group_store import DynamoNodeGroups
from evenkeel.adapters.aws.store import DynamoStore
from evenkeel.adapters.aws.token_store import SealedTokens
from evenkeel.application.fleet.tokens import SealedToken
from evenkeel.application.incidents.alerting import LastNotified
from evenkeel.domain.fleet.check_times import SteadyState
from evenkeel.domain.model.ulids import ulid
from tests.crashing import ConvergingScene, Life, Scene
from tests.fakes import NOW, plenty, record
from tests.integration.test_store import KEY, MINUTE, PAUSED, WRITES
from tests.parts import replace
from tests.unit.aws import test_codec

FIXTURES = Path(__file__).parent / "fixtures" / "stored-items"
LATER = NOW + timedelta(hours=1)
DECISION = ulid(NOW, bytes(10))
NEVER = "7258118400"  # the end of an item of Powertools, which takes the time from the machine's clock
ITEMS = {**WRITES, "pool": replace(WRITES["pool"], value=test_codec.POOL)}
del ITEMS["control"]  # is stored with the record
#: the values of all other items
OTHERS: dict[str, Any] = {
    "record": record(names=("blue",), region="eu-central-1", scan_interval=60, provision_timeout=900),
    "control": PAUSED,
    "steady": SteadyState(at=NOW, seen={"cluster-api": "x"}, headroom=3, rests_until=LATER),
    "rests": {"demo": LATER},
    "named": ["demo"],
    "healths": {"demo": WRITES["health"].value},
    "checked at": {"demo": NOW, "green": NOW},
    "unfinished": (str(KEY),),
    "decisions": [{"id": DECISION, "at": "2026-01-15T12:00:00Z", "cause": "pause", "by": "jane", "what": "paused"}],
    "alert": LastNotified(moment=("2026-01-15T12:00:00Z", 1), print="x", claimed_until=LATER, version=1),
    "tokens": [SealedToken(sealed="c2VhbA==", seed="s", issued=NOW, expires=LATER, version=1)] * 2,
    "handled": {"message": "once"},
    "node groups": {("demo", "workers"): {"status": "ACTIVE"}},
    "group decisions": {"workers": '{"at": "2026-01-15T12:00:00Z", "state": "healthy", "min": 0, "max": 4}'},
}
Item = dict[str, dict[str, Any]]


class InProcess:
    """A client of the benches' table, without a socket."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self.table = Table(Counter())
        for item in items:
            self.table.put(item)

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def call(**request: Any) -> Any:
            try:
                return json.loads(json.dumps(getattr(self.table, operation)(request), default=lambda value: None))
            except RefusedError as error:
                code = error.body["__type"]
                raise ClientError({"Error": {"Code": code}, **error.body}, operation) from None

        return call

    def items(self) -> list[Item]:
        return [item for _, items in sorted(self.table._items.items()) for _, item in sorted(items.items())]

    def key_pairs(self) -> list[tuple[str, str]]:
        return [(item["pk"]["S"], item["sk"]["S"]) for item in self.items()]


def store_of(client: Any, now: datetime = NOW) -> DynamoStore:
    return DynamoStore(client, "table", lambda: now)


def write_every_kind(client: InProcess, store: Any) -> None:
    """Write ITEMS and OTHERS. ``store`` is of this client."""
    store.save_record(OTHERS["record"], OTHERS["control"], None)
    versions = store.load("demo").versions
    store.save_steady("demo", OTHERS["steady"], versions)
    store.save_rest("demo", LATER, versions)
    for item in ITEMS.values():
        item.save(store, item.value, None)
    store.save_checked_at(["demo"], NOW, ["green"])
    store.save_decision("demo", DECISION, OTHERS["decisions"][0], LATER)
    store.take_lease("demo", "run", 0, NOW, NOW + MINUTE, OTHERS["unfinished"])
    DynamoAlertMemory(client, "table", lambda: NOW).save_notified("slack", "key", replace(OTHERS["alert"], version=0))
    for writes, token in zip((True, False), OTHERS["tokens"], strict=True):
        SealedTokens(client, None, "table", "key").save("demo", replace(token, version=0), writes=writes)
    DynamoNodeGroups(client, "table", lambda: NOW).save("demo", OTHERS["node groups"])
    for name, text in OTHERS["group decisions"].items():
        DynamoGroupDecisions(client, "table", lambda: NOW).save("demo", name, text, "")
    DynamoIdempotency(client, "table", "provisioning_failure")("event-1", plenty, lambda: OTHERS["handled"])
    for item in client.items():
        if item["pk"]["S"].startswith("IDEMPOTENCY"):
            client.table.put({name: {"N": NEVER} if "N" in value else value for name, value in item.items()})


def read_every_kind(client: InProcess) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of ITEMS and OTHERS, as a table's readers return them."""
    store = store_of(client, NOW + MINUTE)  # the lease has ended
    found, tokens = store_of(client).load("demo"), SealedTokens(client, None, "table", "key")
    return {name: item.read(found) for name, item in ITEMS.items()}, {
        "record": found.record,
        "control": found.control,
        "steady": found.steady,
        "rests": {id: until for shard in store.shards for id, until in store.due(shard).resting.items()},
        "named": store.called("blue"),
        "healths": store.cluster_healths(),
        "checked at": store.checked_at(),
        "unfinished": store.load("demo").unfinished,
        "decisions": store.decisions("demo", 10),
        "alert": DynamoAlertMemory(client, "table", lambda: NOW).last_notified("slack", "key"),
        "tokens": [tokens.load("demo", writes=writes) for writes in (True, False)],
        "node groups": DynamoNodeGroups(client, "table", lambda: NOW).load("demo"),
        "group decisions": DynamoGroupDecisions(client, "table", lambda: NOW).load("demo"),
        "handled": DynamoIdempotency(client, "table", "provisioning_failure")("event-1", plenty, dict),
    }


def _killed(scene: Scene, patch: int, moment: str) -> None:
    """Play a run that dies before or after this patch, until its lease has ended."""
    life = Life()
    life.happenings = {(-patch, moment): life.die}
    scene.troubled(life)
    assert life.dead


def open_move(client: InProcess) -> Scene:
    """Return a scene whose zone has failed longer than an incident waits. A run died after lowering its replicas."""
    scene = Scene("cluster-api", on_failure="hold", autoscaler="none", memory=store_of(client))
    for _ in range(6):
        scene.troubled(Life())
    stored = scene.memory.load("demo")
    moving = record(**{**stored.record.model_dump(exclude_unset=True), "on_failure": "move"})
    scene.memory.save_record(moving, stored.control, stored.versions)
    _killed(scene, 3, "after")  # the first two mark machines
    return scene


def open_step(client: InProcess) -> ConvergingScene:
    """Return a scene whose step has ordered a node. The next run died after storing the deletion, before it deleted."""
    scene = ConvergingScene("cluster-api", memory=store_of(client), runs=2)
    _killed(scene, 2, "before")  # the first marks the machine
    return scene


def text_of(items: Iterable[Item]) -> str:
    """Return the text of a fixture: one item a line."""
    return "[\n" + ",\n".join(json.dumps(item) for item in items) + "\n]\n"


def fixture(name: str) -> list[Item]:
    items: list[Item] = json.loads((FIXTURES / f"{name}.json").read_text())
    return items


def main() -> None:
    every, move, step = InProcess(), InProcess(), InProcess()
    write_every_kind(every, store_of(every))
    open_move(move)
    open_step(step)
    for name, client in {"every-kind": every, "open-move": move, "open-step": step}.items():
        needed = [item for item in client.items() if client is every or "DECISION" not in item["sk"]["S"]]
        (FIXTURES / f"{name}.json").write_text(text_of(needed))


if __name__ == "__main__":
    main()
