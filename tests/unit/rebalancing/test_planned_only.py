"""Actions report that nothing is written if the cluster or a pool is in dry run."""

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
from tests.parts import replace
from tests.stack import Stack

POOLS = ("workers", "other")
NUMBERS = [{"name": name, "min": 1, "max": 8} for name in POOLS]
PLANNED, STORED = "planned only: dry run", "dry run: stored, applies from going live"
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


def stack(cluster: bool, *, workers: bool | None = None, other: bool | None = None) -> Stack:
    """Return a cluster in dry run or live. Each of its two pools is as the cluster (None), or has its own setting."""
    groups = [*uneven("workers", workers), *uneven("other", other)]
    return Stack(groups, stack_dry_run=cluster, pools=NUMBERS, converge={"blind": True})


@pytest.mark.parametrize("action", ACTIONS)
class TestOfOneCluster:
    def test_in_dry_run_the_message_begins_with_what_dry_run_leaves_out(self, action: str) -> None:
        found = stack(True)
        answer = found.ask(action, **ACTIONS[action])
        assert answer["message"].startswith(f"{STORED if action == 'fence-zone' else PLANNED}: ")
        assert answer["dryRun"] is True
        assert answer["plannedOnly"] == (["other", "workers"] if action == "fence-zone" else ["workers"])
        found.settle()
        assert found.patched() == set()
        (entry,) = found.ask("history")["actions"]
        assert entry["what"] == answer["message"]

    def test_on_a_live_cluster_it_is_not_planned_only(self, action: str) -> None:
        answer = stack(False).ask(action, **ACTIONS[action])
        assert "dry run" not in answer["message"]
        assert answer["dryRun"] is False
        assert "plannedOnly" not in answer

    def test_a_pool_in_dry_run_of_a_live_cluster_is_planned_only(self, action: str) -> None:
        answer = stack(False, workers=True).ask(action, **ACTIONS[action])
        assert answer["plannedOnly"] == ["workers"]
        assert answer["dryRun"] is (action != "fence-zone")
        if action == "fence-zone":
            assert answer["message"].endswith(f"; {STORED} of pool workers")
        else:
            assert answer["message"].startswith(f"{PLANNED}: ")

    def test_a_live_pool_of_a_cluster_in_dry_run_is_not_planned_only(self, action: str) -> None:
        answer = stack(True, workers=False).ask(action, **ACTIONS[action])
        assert answer["dryRun"] is False
        assert answer.get("plannedOnly") == (["other"] if action == "fence-zone" else None)

    def test_a_restore_is_written_in_dry_run(self, action: str) -> None:
        found = stack(True)
        found.ask("restore")
        assert found.ask(action, **ACTIONS[action])["dryRun"] is False


pools_say = st.sampled_from([None, True, False])


@given(st.booleans(), pools_say, pools_say)
def test_a_fence_is_planned_only_exactly_where_no_group_is_written(
    cluster: bool, workers: bool | None, other: bool | None
) -> None:
    found = stack(cluster, workers=workers, other=other)
    found.settle()  # only the fence causes later writes
    before = len(found.cluster.applied)
    answer = found.ask("fence-zone", **FENCE)
    for name in ("workers-a", "other-a"):  # a request that a fenced zone refuses
        found.cluster.change(next(each for each in found.cluster.groups if each.name == name), requested=3)
    found.settle()
    written = {name.rpartition("-")[0] for name in found.patched(before)}
    assert set(answer.get("plannedOnly", ())) == set(POOLS) - written


def test_an_unreadable_cluster_is_as_in_its_record() -> None:
    for is_dry in (True, False):
        found = stack(is_dry)
        found.ask("fence-zone", **FENCE)  # so the zone is known
        found.cluster.unreadable = ClusterUnavailableError("demo: no answer")
        answer = found.ask("fence-zone", **FENCE)
        assert (answer["dryRun"], answer.get("plannedOnly")) == (is_dry, [] if is_dry else None)


def test_an_unreachable_cluster_is_not_read_again() -> None:
    found = stack(False)
    found.ask("fence-zone", **FENCE)
    found.cluster.unreadable = ClusterUnavailableError("demo: no answer")
    found.checks()
    found.carry_out()
    checks = found.cluster.checks
    assert found.ask("fence-zone", **FENCE)["dryRun"] is False
    assert found.cluster.checks == checks


LIFT = {"zone": "a", "for": "0m"}


@pytest.mark.parametrize(
    ("fields", "is_to", "does"),
    [(FENCE, "is to be fenced until ", "is fenced until"), (LIFT, "is no longer to be fenced", "is no longer fenced")],
    ids=["fence", "lift"],
)
def test_a_fence_in_dry_run_says_that_it_is_stored_and_applies_from_going_live(
    fields: dict[str, Any], is_to: str, does: str
) -> None:
    found = stack(True)
    found.ask("fence-zone", **FENCE)
    found.clock.at += MINUTE
    answer = found.ask("fence-zone", **fields)
    assert answer["message"].startswith(f"{STORED}: zone a of demo {is_to}")
    assert does not in answer["message"]
    assert "no growth" not in answer["message"]
    assert (answer["dryRun"], answer["plannedOnly"]) == (True, ["other", "workers"])
    live = stack(False).ask("fence-zone", **fields)
    assert live["message"].startswith(f"zone a of demo {does}")
    assert (live["dryRun"], "plannedOnly" in live) == (False, False)
    mixed = stack(False, other=True).ask("fence-zone", **fields)
    assert (mixed["message"].startswith(f"zone a of demo {does}"), mixed["plannedOnly"]) == (True, ["other"])


@pytest.mark.parametrize(
    ("action", "fields"),
    [("fence-zone", FENCE), ("fence-zone", LIFT), ("scale-up", ACTIONS["scale-up"]), ("level", ACTIONS["level"])],
)
def test_an_action_on_a_paused_cluster_says_that_nothing_happens_yet(action: str, fields: dict[str, Any]) -> None:
    found = stack(False)
    found.ask("pause")
    message = found.ask(action, **fields)["message"]
    assert action != "fence-zone" or " to be fenced" in message
    assert message.endswith(". The cluster is paused: nothing happens before it is resumed")


def test_a_request_that_is_done_is_reported_as_done() -> None:
    found = stack(False)
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
def test_an_agreed_fix_counts_as_written_in_live_pools(
    cluster: bool, workers: bool | None, written: int, planned: list[str]
) -> None:
    found = stack(cluster, workers=workers)
    for name in ("workers-a", "other-a"):
        found.cluster.change(next(each for each in found.cluster.groups if each.name == name), pool_min=0, pool_max=2)
    answer = found.ask("validate", apply=True)
    assert f"of which the next check writes to objects: {written}" in answer["message"]
    assert answer.get("plannedOnly", []) == planned
    found.settle()
    reported = [one["pool"]["name"] for one in found.decisions() if "fixed" in one and one["dryRun"]]
    assert sorted(reported) == planned


class TestCommands:
    @pytest.fixture
    def fleet(self, monkeypatch: pytest.MonkeyPatch) -> Stack:
        """Return clusters demo (live), blue and green (in dry run)."""
        found = stack(False)
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

    def test_clusters_in_dry_run_are_named_and_give_exit_code_5(self, fleet: Stack) -> None:
        output = self.run(*self.FENCE, "--all", "--yes", code=5)
        assert "zone a of demo is fenced until" in output
        (planned,) = [line for line in output.splitlines() if line.startswith(f"{STORED}: ")]
        assert planned.endswith(": blue, green")
        answers = json.loads(self.run(*self.FENCE, "--all", "--yes", "-o", "json", code=5))["clusters"]
        assert {one["cluster"]: one["dryRun"] for one in answers} == {"demo": False, "blue": True, "green": True}
        self.run(*self.FENCE, "--cluster", "demo", code=0)
        self.run(*self.FENCE, "--cluster", "blue", code=5)

    def test_an_unreachable_cluster_precedes_exit_code_5(self, fleet: Stack) -> None:
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
    def test_other_commands_have_the_same_exit_code(self, fleet: Stack, words: tuple[str, ...]) -> None:
        self.run(*words, "--cluster", "blue", code=5)
        self.run(*words, "--cluster", "demo", code=0)

    @pytest.mark.parametrize("words", [("pause",), ("resume",), ("restore", "--yes"), ("dry-run",)])
    def test_actions_that_dry_run_does_not_hold_succeed(self, fleet: Stack, words: tuple[str, ...]) -> None:
        fleet.ask("pause", "blue")
        self.run(*words, "--cluster", "blue", code=0)


def _with_pools(dry_run: bool | None, **own: bool) -> Stack:
    """Return a cluster whose record has a setting for some pools."""
    pools = [{**entry, **({"dry_run": own[entry["name"]]} if entry["name"] in own else {})} for entry in NUMBERS]
    return Stack([*uneven("workers", None), *uneven("other", None)], dry_run=dry_run, pools=pools)


def test_a_list_of_clusters_to_fence_says_which_are_in_dry_run() -> None:
    held = "; in dry run: nothing is written; the fence is stored, and applies from going live"
    for dry, says in ((True, held), (False, "")):
        (listed,) = _with_pools(dry).ask("fence-zone", None, all=True, list=True, **FENCE)["clusters"]
        assert (listed["message"], listed["alike"]) == (f"demo: zone a{says}", f"zone a{says}")


@pytest.mark.parametrize(
    ("action", "dry_run", "own", "says"),
    [
        ("resume", True, {}, "is resumed and checked now; in dry run: nothing is written"),
        ("resume", True, {"other": False}, "; in dry run: nothing is written but to pool other"),
        ("resume", False, {"other": True}, "is resumed and checked now; in dry run: pool other"),
        ("resume", False, {}, "demo is resumed and checked now"),
        ("dry-run", None, {"other": False}, "; still written: pool other, by its dry_run in the record"),
        ("restore", True, {}, ". The cluster is in dry run: a restore is written all the same"),
    ],
)
def test_every_answer_says_where_dry_run_keeps_it_from_writing(
    action: str, dry_run: bool | None, own: dict[str, bool], says: str
) -> None:
    message = _with_pools(dry_run, **own).ask(action)["message"]
    assert says in message
    assert ("dry run" in message) is (action == "dry-run" or "dry run" in says)


def test_a_cluster_that_goes_live_names_its_pools_in_dry_run() -> None:
    stack = _with_pools(None, other=True)
    stack.operate = replace(stack.operate, dry_run=True)
    assert (
        "is live: Evenkeel checks it now, and writes to it; in dry run: pool other"
        in stack.ask("live", force=True)["message"]
    )
