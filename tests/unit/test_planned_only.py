"""What an action says where nothing is written: the cluster is in dry run, or a pool of it is."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from evenkeel.application.errors import ClusterUnavailableError
from evenkeel.domain.model.groups import NodeGroup
from evenkeel_cli import stack_client
from evenkeel_cli.main import app
from tests.builders import MINUTE, NOW, group, key
from tests.fakes import FakeCluster, plenty, register
from tests.house import House
from tests.parts import replace

POOLS = ("workers", "other")
NUMBERS = [{"name": name, "min": 1, "max": 8} for name in POOLS]
UNTIL = (NOW + 90 * MINUTE).isoformat()
FENCE = {"zone": "a", "until": UNTIL}
#: each action that a run of the worker carries out, with its fields
ACTIONS: dict[str, dict[str, Any]] = {
    "fence-zone": FENCE,
    "scale-up": {"pool": "workers", "nodes": 1},
    "scale-down": {"group": str(key("c")), "nodes": 1},
    "level": {"pool": "workers"},
}


def uneven(pool: str, dry_run: bool | None) -> list[NodeGroup]:
    made = [group(zone, nodes, pool=pool, bounds=(0, 9)) for zone, nodes in zip("abc", (1, 2, 5), strict=True)]
    return [replace(made[0], dry_run=dry_run), *made[1:]]


def house(cluster: bool, *, workers: bool | None = None, other: bool | None = None) -> House:
    """A cluster in dry run or live; each of its two pools is as the cluster is, or says otherwise."""
    groups = [*uneven("workers", workers), *uneven("other", other)]
    return House(groups, stack_dry_run=cluster, pools=NUMBERS, converge={"blind": True})


@pytest.mark.parametrize("action", ACTIONS)
class TestOfOneCluster:
    def test_in_dry_run_it_says_first_that_it_is_planned_only(self, action: str) -> None:
        found = house(True)
        answer = found.ask(action, **ACTIONS[action])
        assert answer["message"].startswith("planned only: dry run: ")
        assert answer["dryRun"] is True
        assert answer["plannedOnly"] == (["other", "workers"] if action == "fence-zone" else ["workers"])
        found.settle()
        assert found.patched() == set()
        (entry,) = found.ask("history")["actions"]
        assert entry["what"] == answer["message"]

    def test_of_a_live_cluster_it_does_not(self, action: str) -> None:
        answer = house(False).ask(action, **ACTIONS[action])
        assert "planned only" not in answer["message"]
        assert answer["dryRun"] is False
        assert "plannedOnly" not in answer

    def test_a_pool_in_dry_run_of_a_live_cluster_is_planned_only(self, action: str) -> None:
        answer = house(False, workers=True).ask(action, **ACTIONS[action])
        assert "planned only: dry run" in answer["message"]
        assert answer["plannedOnly"] == ["workers"]
        assert answer["dryRun"] is (action != "fence-zone")
        assert answer["message"].endswith("; planned only: dry run of pool workers") is (action == "fence-zone")

    def test_a_live_pool_of_a_cluster_in_dry_run_is_not(self, action: str) -> None:
        answer = house(True, workers=False).ask(action, **ACTIONS[action])
        assert answer["dryRun"] is False
        assert answer.get("plannedOnly") == (["other"] if action == "fence-zone" else None)

    def test_what_is_being_restored_is_written_in_dry_run_too(self, action: str) -> None:
        found = house(True)
        found.ask("restore")
        assert found.ask(action, **ACTIONS[action])["dryRun"] is False


def test_a_fence_that_is_not_written_is_not_said_to_hold() -> None:
    message = house(True).ask("fence-zone", **FENCE)["message"]
    assert message.startswith("planned only: dry run: zone a of demo would be fenced until ")
    assert "; nothing is written." in message
    assert "is fenced" not in message
    assert "no growth" not in message
    assert "zone a of demo is fenced until" in house(False).ask("fence-zone", **FENCE)["message"]
    assert "zone a of demo is fenced until" in house(False, other=True).ask("fence-zone", **FENCE)["message"]


pools_say = st.sampled_from([None, True, False])


@given(st.booleans(), pools_say, pools_say)
def test_a_fence_says_that_it_is_planned_only_exactly_where_no_group_of_a_pool_is_written(
    cluster: bool, workers: bool | None, other: bool | None
) -> None:
    found = house(cluster, workers=workers, other=other)
    found.settle()  # what is written from now on, the fence asks for
    before = len(found.cluster.applied)
    answer = found.ask("fence-zone", **FENCE)
    for name in ("workers-a", "other-a"):  # somebody asks for a node, which a fenced zone does not get
        found.cluster.change(next(each for each in found.cluster.groups if each.name == name), requested=3)
    found.settle()
    written = {name.rpartition("-")[0] for name in found.patched(before)}
    assert set(answer.get("plannedOnly", ())) == set(POOLS) - written


def test_a_cluster_that_cannot_be_read_is_as_its_record_says() -> None:
    for is_dry in (True, False):
        found = house(is_dry)
        found.ask("fence-zone", **FENCE)  # from now on the zone is known
        found.cluster.unreadable = ClusterUnavailableError("demo: no answer")
        answer = found.ask("fence-zone", **FENCE)
        assert (answer["dryRun"], answer.get("plannedOnly")) == (is_dry, [] if is_dry else None)


def test_a_cluster_that_is_known_not_to_answer_is_not_read_for_it() -> None:
    found = house(False)
    found.ask("fence-zone", **FENCE)
    found.cluster.unreadable = ClusterUnavailableError("demo: no answer")
    found.looks()
    found.carry_out()
    looks = found.cluster.looks
    assert found.ask("fence-zone", **FENCE)["dryRun"] is False
    assert found.cluster.looks == looks


LIFT = {"zone": "a", "for": "0m"}


def test_a_fence_that_is_lifted_in_dry_run_is_planned_only() -> None:
    found = house(True)
    found.ask("fence-zone", **FENCE)
    found.clock.at += MINUTE
    answer = found.ask("fence-zone", **LIFT)
    assert answer["message"].startswith("planned only: dry run: zone a of demo would no longer be fenced")
    assert (answer["dryRun"], answer["plannedOnly"]) == (True, ["other", "workers"])
    live = house(False).ask("fence-zone", **LIFT)
    assert live["message"].startswith("zone a of demo is no longer fenced")
    assert (live["dryRun"], "plannedOnly" in live) == (False, False)
    assert house(False, other=True).ask("fence-zone", **LIFT)["plannedOnly"] == ["other"]


@pytest.mark.parametrize("fields", [FENCE, LIFT])
def test_a_fence_of_a_paused_cluster_says_that_nothing_happens_yet(fields: dict[str, Any]) -> None:
    found = house(False)
    found.ask("pause")
    message = found.ask("fence-zone", **fields)["message"]
    assert "would " in message
    assert message.endswith(". The cluster is paused: nothing happens before it is resumed")


@pytest.mark.parametrize("action", ["scale-up", "level"])
def test_other_actions_say_that_of_a_paused_cluster_as_well(action: str) -> None:
    found = house(False)
    found.ask("pause")
    message = found.ask(action, **ACTIONS[action])["message"]
    assert message.endswith(". The cluster is paused: nothing happens before it is resumed")


def test_a_request_that_is_known_and_done_is_told_as_it_was() -> None:
    found = house(False)
    found.ask("scale-up", pool="workers", nodes=1, id="7")
    found.settle()
    found.ask("dry-run")
    assert found.ask("scale-up", pool="workers", nodes=1, id="7")["message"].startswith("request 7 is known and done")


@pytest.mark.parametrize(
    ("cluster", "workers", "written", "planned"),
    [
        (False, None, 2, []),
        (False, True, 1, ["workers"]),
        (True, None, 0, ["other", "workers"]),
        (True, False, 1, ["other"]),
    ],
)
def test_an_agreed_number_is_counted_as_written_where_it_is(
    cluster: bool, workers: bool | None, written: int, planned: list[str]
) -> None:
    found = house(cluster, workers=workers)
    for name in ("workers-a", "other-a"):
        found.cluster.change(next(each for each in found.cluster.groups if each.name == name), pool_min=0, pool_max=2)
    answer = found.ask("validate", apply=True)
    assert f"of which the next look writes to objects: {written}" in answer["message"]
    assert answer.get("plannedOnly", []) == planned
    found.settle()
    told = [one["pool"]["name"] for one in found.decisions() if "mended" in one and one["dryRun"]]
    assert sorted(told) == planned


class TestCommands:
    @pytest.fixture
    def fleet(self, monkeypatch: pytest.MonkeyPatch) -> House:
        """Clusters demo (live), blue and green (in dry run)."""
        found = house(False)
        for name in ("blue", "green"):
            register(found.store, name, dry_run=True, pools=NUMBERS)
            found.clusters.by_id[name] = FakeCluster([*uneven("workers", None), *uneven("other", None)])
        monkeypatch.setattr(stack_client, "ask", lambda _stack, event: found.operate(event, plenty))
        return found

    def run(self, *words: str, code: int) -> str:
        result = CliRunner().invoke(app, [*words[:1], "--stack", "s", *words[1:]])
        assert result.exit_code == code, result.output
        return result.stdout

    FENCE = ("fence-zone", "--zone", "a", "--for", "2h")

    def test_each_cluster_in_dry_run_is_named_and_the_exit_code_says_it(self, fleet: House) -> None:
        told = self.run(*self.FENCE, "--all", "--yes", code=5)
        assert "zone a of demo is fenced until" in told
        (planned,) = [line for line in told.splitlines() if line.startswith("planned only: dry run: ")]
        assert planned.endswith(": blue, green")
        self.run(*self.FENCE, "--cluster", "demo", code=0)
        self.run(*self.FENCE, "--cluster", "blue", code=5)

    def test_json_has_it_for_each_cluster(self, fleet: House) -> None:
        told = json.loads(self.run(*self.FENCE, "--all", "--yes", "-o", "json", code=5))
        assert {one["cluster"]: one["dryRun"] for one in told["clusters"]} == {
            "demo": False,
            "blue": True,
            "green": True,
        }

    def test_a_cluster_without_an_answer_goes_before(self, fleet: House) -> None:
        fleet.clusters.by_id["green"] = ClusterUnavailableError("green: no answer")
        fleet.store.plant("broken", "{}")
        self.run("fence-zone", "--zone-id", "euc1-az1", "--for", "2h", "--all", "--yes", code=1)

    @pytest.mark.parametrize(
        "words",
        [
            ("scale-up", "--pool", "workers", "--nodes", "1"),
            ("scale-down", "--pool", "workers", "--nodes", "1"),
            ("level", "--pool", "workers"),
        ],
    )
    def test_others_leave_with_the_same_code(self, fleet: House, words: tuple[str, ...]) -> None:
        self.run(*words, "--cluster", "blue", code=5)
        self.run(*words, "--cluster", "demo", code=0)

    @pytest.mark.parametrize("words", [("pause",), ("resume",), ("restore",), ("dry-run",)])
    def test_what_is_done_in_dry_run_as_well_is_done(self, fleet: House, words: tuple[str, ...]) -> None:
        fleet.ask("pause", "blue")
        self.run(*words, "--cluster", "blue", code=0)
