"""minimum-at: when PoolMinimum rises and falls, how early nodes are ordered, and the reports."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evenkeel.capabilities.minimum_at import MINIMUM_AT
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.provision_times import ProvisionTimes
from evenkeel.domain.survival.model import Survival
from evenkeel.record import ClusterPolicy, ClusterRecord
from evenkeel.texts.english import sentences
from evenkeel.validation import ConfigError, read_model
from evenkeel_cli.main import app
from evenkeel_cli.simulation.engine import Run, variants_of
from evenkeel_cli.simulation.scenario import read_scenario
from tests import objects
from tests.builders import MINUTE, NOW, Played, group, minima, numbers, pool_plan, problems_of, requested, zones
from tests.fakes import FakeClock
from tests.parts import replace
from tests.property.survival.test_counts_properties import surviving
from tests.stack import Stack
from tests.unit.kubernetes.test_read_groups import only

SECOND = timedelta(seconds=1)
THURSDAY = datetime(2026, 1, 15, tzinfo=UTC)
RUSH = {"days": ["Mon-Fri"], "from": "13:00", "until": "18:00", "time_zone": "Europe/Berlin", "min": 9}
BEGINS, ENDS = THURSDAY + timedelta(hours=12), THURSDAY + timedelta(hours=17)


def with_entries(policy: Policy, *entries: Any) -> Policy:
    text = MINIMUM_AT.read(json.dumps(entries))
    return replace(policy, pools=tuple(replace(rule, minimum_at=text) for rule in policy.pools))


def at(moment: datetime, *entries: Any, policy: Policy | None = None, nodes: tuple[int, ...] = (1, 1, 1)) -> PoolPlan:
    played = Played(zones(nodes), with_entries(policy or numbers(3, 12), *entries), now=moment)
    return played.check()


def notes(pool: PoolPlan) -> list[str]:
    return [note for note in sentences(pool.report.notes) if "M" in note and "zones" not in note]


class TestInItsTime:
    def test_the_pool_gets_the_nodes_level_over_zones(self) -> None:
        assert requested(at(BEGINS, RUSH)) == (3, 3, 3)

    def test_an_autoscaler_gets_the_number_as_mins(self) -> None:
        assert minima(at(BEGINS, RUSH, nodes=(3, 3, 3))) == (3, 3, 3)
        assert minima(at(ENDS, RUSH, nodes=(3, 3, 3))) == (1, 1, 1)

    @pytest.mark.parametrize(
        ("moment", "minimum"),
        [(BEGINS, 9), (ENDS - MINUTE, 9), (ENDS, 3), (BEGINS + timedelta(days=2), 3), (BEGINS + timedelta(days=4), 9)],
        ids=["begin", "last minute", "end", "Saturday", "Monday"],
    )
    def test_the_number_holds_on_its_days_and_hours(self, moment: datetime, minimum: int) -> None:
        assert at(moment, RUSH).min == minimum

    def test_the_largest_of_overlapping_numbers_holds(self) -> None:
        assert at(BEGINS, RUSH, {**RUSH, "min": 7}, {**RUSH, "from": "12:00", "min": 11}).min == 11

    def test_a_number_below_the_minimum_changes_nothing(self) -> None:
        assert at(BEGINS, {**RUSH, "min": 2}).min == 3

    def test_an_entry_over_midnight_holds_on_the_next_day(self) -> None:
        night = {**RUSH, "days": ["Thu"], "from": "22:00", "until": "06:00"}
        assert at(THURSDAY + timedelta(hours=22), night).min == 9
        assert at(THURSDAY + timedelta(hours=28), night).min == 9
        assert at(THURSDAY + timedelta(hours=4), night).min == 3  # that is Wednesday's night

    def test_no_step_removes_a_node_when_it_ends(self) -> None:
        assert requested(at(ENDS, RUSH, nodes=(3, 3, 3))) == (3, 3, 3)

    def test_an_entry_of_the_record_holds_for_each_pool_without_its_own(self) -> None:
        record = read_model(ClusterPolicy, {"minimum_at": [RUSH], "pools": [{"name": "workers", "max": 12}]}, "record")
        assert pool_plan(zones((1, 1, 1)), record.policy()).min == 9

    def test_an_empty_list_of_the_pool_ends_that(self) -> None:
        pool = {"name": "workers", "max": 12, "minimum_at": []}
        record = read_model(ClusterPolicy, {"minimum_at": [RUSH], "pools": [pool]}, "record")
        assert pool_plan(zones((1, 1, 1)), record.policy()).min == 0


class TestAheadOfIt:
    def lead(self, policy: Policy, *groups: Any) -> timedelta:
        """Return how long before its begin the number counts first."""
        policy = with_entries(policy, RUSH)
        for seconds in range(60 * 60, 0, -5):
            now = BEGINS - timedelta(seconds=seconds)
            if Played(list(groups) or zones((1, 1, 1)), policy, now=now).check().min == 9:
                return timedelta(seconds=seconds)
        return timedelta(0)

    def test_nodes_are_ordered_a_provision_timeout_before(self) -> None:
        policy = replace(numbers(3, 12), autoscaler=False, provision_timeout=10 * MINUTE)
        assert self.lead(policy) == 10 * MINUTE

    def test_the_slowest_group_decides(self) -> None:
        slow = replace(group("c", 1), provision_timeout=25 * MINUTE)
        assert self.lead(replace(numbers(3, 12), autoscaler=False), group("a", 1), group("b", 1), slow) == 25 * MINUTE

    def test_a_learned_time_decides_instead_of_the_set_one_also_while_nodes_are_on_their_way(self) -> None:
        times = ProvisionTimes().with_times([100 * SECOND] * 60)
        assert times.timeout == 306 * SECOND
        policy = with_entries(replace(numbers(3, 12), autoscaler=False, timeout_mode="auto"), RUSH)
        groups = [replace(each, machine_type="m5.large") for each in zones((1, 1, 1))]
        played = Played(groups, policy, now=BEGINS - 307 * SECOND)
        id = played.check().id
        replicas = replace(played.state.pools[id].replicas, provision_times={"m5.large": times})
        played.state = replace(played.state, pools={id: replace(played.state.pools[id], replicas=replicas)})
        assert played.check().min == 3
        assert [played.check(seconds).min for seconds in (1, *[15] * 21)] == [9] * 22
        assert [each.requested for each in played.groups] == [3, 3, 3]

    def test_an_autoscaler_and_small_steps_take_longer(self) -> None:
        policy = replace(numbers(3, 12), provision_timeout=10 * MINUTE, max_step=1)
        assert self.lead(policy) == 10 * MINUTE + 15 * SECOND + 5 * 20 * SECOND

    @pytest.mark.parametrize(
        "fields", [{}, {"max_step": 1}, {"autoscaler": False}, {"autoscaler": False, "max_step": 2}]
    )
    def test_all_nodes_are_ordered_a_provision_timeout_before(self, fields: dict[str, Any]) -> None:
        played = Played(zones((1, 1, 1)), with_entries(replace(numbers(3, 12), **fields), RUSH))
        played.now = BEGINS - timedelta(hours=1)
        while played.now < BEGINS - 15 * MINUTE:
            before = [each.requested for each in played.groups]
            pool = played.check()
            # A check follows each write; otherwise a scan checks each minute.
            seconds = 18 if list(requested(pool)) != before else min(played.next_check() or 60, 60)
            played.now = min(played.now + seconds * SECOND, BEGINS - 15 * MINUTE)
        assert requested(played.check()) == (3, 3, 3)

    def test_the_lead_has_an_end(self) -> None:
        policy = replace(numbers(0, 2**31 - 1), max_step=1)
        many = {**RUSH, "days": ["Thu"], "min": 2**31 - 1}
        assert at(BEGINS - timedelta(hours=25), many, policy=policy).min == 0
        assert at(BEGINS - timedelta(hours=23), many, policy=policy).min == 2**31 - 1


class TestWithinLimits:
    def test_a_number_above_the_maximum_is_cut_and_reported(self) -> None:
        pool = at(ENDS, {**RUSH, "min": 50})
        assert at(BEGINS, {**RUSH, "min": 50}).min == 12
        assert problems_of(pool.report.problems) == (
            "pool workers: evenkeel.dev/minimum-at.0.min is 50: larger than PoolMaximum, so 12 counts: lower it, "
            "or raise PoolMaximum",
        )

    def test_a_zone_at_its_own_maximum_gets_no_more(self) -> None:
        policy = with_entries(numbers(3, 12), RUSH)
        groups = [replace(group("a", 1), zone_max=2), group("b", 1), group("c", 1)]
        assert requested(pool_plan(groups, policy)) == (2, 3, 4)

    def test_a_fenced_zone_gets_no_node(self) -> None:
        policy = with_entries(numbers(3, 12), RUSH)
        found = pool_plan(zones((1, 1, 1)), policy, fenced="a")
        assert requested(found)[0] <= 1
        assert sum(requested(found)) == 9


class TestWithSurviveZones:
    @pytest.mark.parametrize(("least", "nodes"), [(8, 9), (10, 10), (12, 12)])
    def test_the_larger_number_wins(self, least: int, nodes: int) -> None:
        """PoolMinimum 6 in three zones needs 9 nodes to survive the loss of one."""
        played = Played(zones((2, 2, 2)), surviving(with_entries(numbers(6, 12), {**RUSH, "min": least})))
        for _ in range(5):
            pool = played.check(60)
        assert sum(requested(pool)) == nodes
        survival = pool.parts.of(Survival)
        assert survival is not None
        assert survival.possible


class TestReport:
    def test_it_says_which_entry_holds_since_when_and_until_when(self) -> None:
        assert notes(at(BEGINS + MINUTE, RUSH, {**RUSH, "min": 4})) == [
            "PoolMinimum is 9: Mon-Fri 13:00-18:00 Europe/Berlin (9 nodes) holds since 2026-01-15T12:00:00Z until "
            "2026-01-15T17:00:00Z"
        ]

    def test_it_says_what_it_orders_ahead_of_time(self) -> None:
        assert notes(at(BEGINS - MINUTE, RUSH)) == [
            "PoolMinimum is 9 ahead of time: Mon-Fri 13:00-18:00 Europe/Berlin (9 nodes) begins at "
            "2026-01-15T12:00:00Z and ends at 2026-01-15T17:00:00Z"
        ]

    def test_it_says_what_comes_next(self) -> None:
        assert notes(at(ENDS, RUSH)) == [
            "minimum-at: Mon-Fri 13:00-18:00 Europe/Berlin (9 nodes) begins at 2026-01-16T12:00:00Z and ends at "
            "2026-01-16T17:00:00Z; nodes are ordered from 2026-01-16T11:44:45Z"
        ]

    def test_an_entry_for_all_hours_has_no_end(self) -> None:
        always = {"from": "00:00", "until": "24:00", "time_zone": "UTC", "min": 5}
        assert notes(at(BEGINS, always)) == ["PoolMinimum is 5: 00:00-24:00 UTC (5 nodes) holds always"]

    def test_explain_and_plan_show_it(self) -> None:
        stack = Stack(pools=[{"name": "workers", "min": 3, "max": 12, "minimum_at": [RUSH]}])
        assert "PoolMinimum is 9: Mon-Fri 13:00-18:00" in stack.ask("explain", pool="workers")["message"]
        (pool,) = stack.ask("plan")["plan"]["pools"]
        assert pool["min"] == 9
        assert any("holds since 2026-01-15T12:00:00Z" in note for note in pool["notes"])


class TestChecks:
    def test_a_check_is_due_at_each_change_but_not_long_before(self) -> None:
        played = Played(zones((1, 1, 1)), with_entries(replace(numbers(3, 12), autoscaler=False), RUSH))
        played.now = BEGINS - timedelta(hours=3)
        played.check()
        assert played.next_check() is None
        played.check(2 * 60 * 60)
        assert played.next_check() == 45 * 60
        played.now = ENDS - MINUTE
        played.check()
        assert played.next_check() == 60
        played.check(60)
        assert played.next_check() is None

    def test_a_steady_cluster_notices_each_change_and_rests_between_them(self) -> None:
        nodes = zones((3, 3, 3), bounds=[(1, 9)] * 3)
        pools = [{"name": "workers", "min": 3, "max": 12, "minimum_at": [RUSH]}]
        stack = Stack(nodes, pools=pools, clock=FakeClock(at=THURSDAY - timedelta(hours=4)))
        stack.settle()
        runs, minima_at = 0, {}
        while stack.clock.at < THURSDAY + timedelta(hours=20):
            stack.checks()
            runs += sum(why != "nothing to be done" for _, why in stack.queue.requests.values())
            stack.carry_out()
            minima_at[stack.clock.at] = sum(low for low, _ in stack.bounds())
        raised = [moment for moment, low in minima_at.items() if low == 9]
        assert BEGINS - 18 * MINUTE < raised[0] < BEGINS - 14 * MINUTE
        assert ENDS - 2 * MINUTE < raised[-1] < ENDS + 2 * MINUTE
        assert runs < 40


def test_a_fallback_gives_no_node_back_below_its_number() -> None:
    """The first pool can get nodes again after 90 minutes, and the fallback's number holds until the 180th."""
    drought = [{"at": "0s", "nodes": 2}, {"at": "10m", "nodes": 0}, {"at": "90m"}]
    node = {"cpu": 4, "memory": "16Gi"}
    spot = {"name": "spot", "max": 9, "start": 6, "level": "converge", "capacity": dict.fromkeys("abc", drought)}
    spare = {"name": "spare", "max": 12, "fallback_for": "spot", "level": "converge"}
    hours = {"from": "00:40", "until": "03:00", "time_zone": "UTC", "min": 6}
    played = {
        "name": "fallback",
        "duration": "5h",
        "zones": [{"name": zone} for zone in "abc"],
        "pools": [{**spot, "node": node}, {**spare, "node": node, "minimum_at": [hours]}],
        "pods": [{"name": "shop", "count": [{"at": "0s", "pods": 8}, {"at": "20m", "pods": 14}], "cpu": "1900m"}],
    }
    scenario = read_scenario(played, "test.yaml")
    (variant,) = variants_of(scenario, "Balanced")
    record = Run(scenario, variant)()
    held = {
        shot.at: sum(group.requested for group in shot.groups if "spare" in group.name) for shot in record.snapshots
    }
    # A snapshot is made at each change.
    ordered = next(second for second, nodes in held.items() if nodes >= 6)
    assert ordered < 40 * 60
    assert all(nodes >= 6 for second, nodes in held.items() if ordered <= second < 180 * 60)
    assert record.moved > 0
    assert held[max(held)] < 6


BAD = [
    ({**RUSH, "days": ["Fri", "Fryday"]}, "days", "no day of the week"),
    ({**RUSH, "days": [5]}, "days", "no day of the week"),
    ({**RUSH, "days": []}, "days", "empty"),
    ({**RUSH, "days": "Mon"}, "days", "no list"),
    ({**RUSH, "time_zone": "Europe/Atlantis"}, "time_zone", "no known time zone"),
    ({**RUSH, "time_zone": "../../etc/passwd"}, "time_zone", "no known time zone"),
    ({**RUSH, "time_zone": ""}, "time_zone", "no known time zone"),
    ({**RUSH, "time_zone": "Europe"}, "time_zone", "no known time zone"),
    ({**RUSH, "until": "13:00"}, "until", "equal to from"),
    ({**RUSH, "until": "24:01"}, "until", "no time of day"),
    ({**RUSH, "from": "24:00"}, "from", "the end of a day"),
    ({**RUSH, "from": 480}, "from", 'write HH:MM in quotes, such as "08:00"'),
    ({**RUSH, "min": -1}, "min", "negative|greater than or equal to 0"),
    ({**RUSH, "min": "many"}, "min", "no whole number|valid integer"),
    ({**RUSH, "minimum": 3}, "minimum", "remove it"),
    ({name: value for name, value in RUSH.items() if name != "until"}, "until", "missing"),
]


@pytest.mark.parametrize(("entry", "field", "problem"), BAD, ids=[f"{field}: {problem}" for _, field, problem in BAD])
def test_a_bad_entry_is_one_line_and_the_others_count(entry: dict[str, Any], field: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_model(ClusterRecord, {"minimum_at": [RUSH, entry]}, "record")
    (line,) = [fault for fault in caught.value.faults if "minimum_at" in fault]
    assert line.startswith(f"record: minimum_at.1.{field}")
    assert any(part in line for part in problem.split("|"))
    found = at(BEGINS, RUSH, entry)
    (line,) = problems_of(found.report.problems)
    assert line.startswith(f"pool workers: evenkeel.dev/minimum-at.1.{field}")
    assert any(part in line for part in problem.split("|"))
    assert found.min == 9


def read_with(text: str) -> NodeGroup:
    return only("cluster-api", objects.cluster_api("a", 1, annotations={"evenkeel.dev/minimum-at": text}))


@pytest.mark.parametrize(
    "text", ["", "08:00", "[{", "{}", "null", "[1]", "[" * 100_000, json.dumps([RUSH] * (51)), '["x"]']
)
def test_an_unreadable_annotation_is_one_line_and_the_pool_goes_on(text: str) -> None:
    own = read_with(text).annotations.own
    found = pool_plan([replace(each, minimum_at=own["minimum_at"]) for each in zones((1, 1, 1))], numbers(3, 12))
    assert found.mode.valid
    (line,) = [each for each in problems_of(found.report.problems) if "minimum-at" in each]
    assert line.startswith("pool workers: evenkeel.dev/minimum-at")


def test_members_with_equal_lists_agree_however_they_are_written() -> None:
    texts = [json.dumps([RUSH]), json.dumps([dict(reversed(RUSH.items()))], indent=1)]
    own = [read_with(text).annotations.own for text in texts]
    assert own[0] == own[1]


def test_days_have_long_and_short_names() -> None:
    names = {**RUSH, "days": ["monday", "Tuesday", "WED", "Thu-Fri"]}
    assert at(BEGINS, names).min == at(BEGINS + timedelta(days=4), names).min == 9
    assert NOW == BEGINS


def test_a_span_of_days_may_cross_the_end_of_the_week() -> None:
    over = {**RUSH, "days": ["Fri-Mon"]}
    assert [at(BEGINS + timedelta(days=days), over).min for days in range(7)] == [3, 9, 9, 9, 9, 3, 3]


def test_plan_prints_where_the_minimum_without_the_clock_comes_from(tmp_path: Path) -> None:
    text = json.dumps([RUSH])
    items = [objects.cluster_api("a", 1, annotations={"evenkeel.dev/minimum-at": text}), objects.cluster_api("b", 1)]
    file = tmp_path / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
    answer = CliRunner().invoke(app, ["plan", "-f", str(file), "--now", "2026-01-15T12:00:00Z"])
    assert "min 0: the sum of its members' bounds" in answer.output
    assert "note: PoolMinimum is 8: Mon-Fri 13:00-18:00 Europe/Berlin (9 nodes) holds" in answer.output
