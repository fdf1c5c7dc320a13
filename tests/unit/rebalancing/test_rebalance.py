"""Scan, rebalance, failure and operator, with their ports in memory."""

import contextlib
import json
from collections.abc import Collection
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.application.errors import (
    AccessError,
    BadRequestError,
    ClusterUnavailableError,
    ConflictError,
    EvenkeelError,
    LeaseHeldError,
    RejectedError,
    StateConflictError,
    StateUnavailableError,
    UnknownClusterError,
)
from evenkeel.application.operate import answer_of_error
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Bounds, GroupKey, Machine, PoolId, State
from evenkeel.domain.model.moves import Move
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.model.values import Fault
from evenkeel.domain.rebalancing.health.backoff import record_failure
from evenkeel.domain.rebalancing.writes import Patch
from evenkeel.validation import ConfigError
from tests.builders import MINUTE, key, stated, zones
from tests.fakes import NOW, plenty, record
from tests.house import NUMBERS, RECORD, House
from tests.parts import replace

POOL_ID = PoolId("cluster-api", "default", "", "workers")


def two_pools() -> House:
    groups = [*zones((2, 2, 2), bounds=[(0, 9)] * 3), *zones((2, 2, 2), bounds=[(0, 9)] * 3, pool="others")]
    return House(groups, pools=[*NUMBERS, {"name": "others", "min": 3, "max": 12}])


def shrink_before_growth() -> House:
    """Zone a's max falls from 9 to 4, and only then may those of b and c rise from 2."""
    return House(zones((2, 2, 2), bounds=[(0, 9), (0, 2), (0, 2)]))


def outage(**fields: Any) -> House:
    """Zone a has two nodes and two replicas that never became one, and is in backoff."""
    house = House(zones((4, 2, 2), running=(2, 2, 2), bounds=[(0, 4)] * 3), **fields)
    house.fail("a")
    return house


def fenced() -> House:
    """All that zone a requests runs, and it is in backoff."""
    house = House(zones((2, 2, 2), bounds=[(0, 4)] * 3))
    house.fail("a")
    return house


def wait_two_minutes(house: House) -> None:
    house.clock.at += 2 * MINUTE


@pytest.fixture
def house() -> House:
    return House()


class TestRebalance:
    def test_a_run_writes_every_changed_group_records_it_once_and_checks_again(self, house: House) -> None:
        outcome = house.run()
        assert outcome.written == len(house.cluster.applied) == 3
        assert sum(maximum for _, maximum in house.bounds()) == 12
        (decision,) = house.decisions()
        assert (decision["cluster"], decision["cause"], decision["dryRun"]) == ("demo", "a test", False)
        assert house.outcomes() == ["written"] * 3
        assert house.bus.published == [("Node Groups Rebalanced", decision)]
        assert house.queue.second_checks == [("demo", "second check after a write", 15)]

    def test_a_run_without_changes_reads_once_and_writes_nothing(self, house: House) -> None:
        house.settle()
        before = (len(house.cluster.applied), len(house.decisions()), list(house.queue.second_checks))
        house.journal.entries.clear()
        outcome = house.run()
        assert house.journal.entries == ["load", "observe"]
        assert outcome.message == "demo: nothing to write"
        assert (len(house.cluster.applied), len(house.decisions()), list(house.queue.second_checks)) == before

    def test_a_dry_run_records_each_plan_once_and_writes_nothing(self) -> None:
        house = House(stack_dry_run=True)
        messages = [house.run().message for _ in range(3)]
        assert messages == ["demo: dry run: would write 3 node groups"] * 3
        assert house.cluster.applied == []
        assert house.queue.second_checks == []
        assert "save LEASE" not in house.journal.entries
        (decision,) = house.decisions()
        assert decision["dryRun"] is True
        assert house.outcomes() == ["planned"] * 3
        house.scale("a", 5)
        house.run()
        assert len(house.decisions()) == 2

    @pytest.mark.parametrize(
        ("stack", "cluster", "dry"), [(True, None, True), (True, False, False), (False, True, True)]
    )
    def test_a_clusters_dry_run_overrides_the_stacks(self, stack: bool, cluster: bool | None, dry: bool) -> None:
        house = House(stack_dry_run=stack, dry_run=cluster)
        assert house.run().dry_run is dry
        assert bool(house.cluster.applied) is not dry

    def test_a_paused_cluster_is_not_read_until_the_pause_ends(self) -> None:
        house = House(paused=True, paused_until=NOW + 2 * MINUTE)
        assert house.run().message == "demo: paused, not checked"
        assert house.cluster.looks == 0
        assert house.run().written == 3

    def test_an_unregistered_cluster_is_an_error(self) -> None:
        with pytest.raises(UnknownClusterError):
            House().rebalance("other", "a test", plenty)

    def test_an_invalid_record_is_reported_and_the_cluster_is_not_read(self, house: House) -> None:
        house.store.plant("demo", '{"id": "demo", "flavours": ["mesos"]}')
        outcome = house.run()
        assert outcome.unreachable
        assert "record of cluster demo: flavours.0 is 'mesos'" in outcome.message
        assert house.cluster.looks == 0

    @pytest.mark.parametrize("opens", [True, False])
    @pytest.mark.parametrize("error", [ClusterUnavailableError("page 2 broke off"), AccessError("no secret")])
    def test_a_cluster_that_cannot_be_read_is_reported_and_not_written(self, error: EvenkeelError, opens: bool) -> None:
        house = House()
        if opens:
            house.cluster.unreadable = error
        else:
            house.clusters.by_id["demo"] = error
        outcome = house.run()
        assert outcome.unreachable
        assert outcome.message == f"demo: not checked: {error}"
        assert outcome.metrics()["ClustersUnreachable"] == 1
        assert house.journal.count("apply") == 0
        assert house.queue.second_checks == []


class TestRebalanceWithoutTheTable:
    def test_no_patch_follows_a_lost_table(self) -> None:
        whole = House()
        calls_before = whole.store.calls
        whole.run()
        calls = whole.store.calls - calls_before
        assert calls >= 5  # load, lease, adopted bounds, decision, lease back
        for answered in range(calls):
            house = House()
            house.journal.entries.clear()
            house.store.away_from = house.store.calls + answered
            only_the_timer_is_lost = answered == calls - 1
            with contextlib.nullcontext() if only_the_timer_is_lost else pytest.raises(StateUnavailableError):
                house.run()
            calls_made = house.journal.entries
            assert "apply" not in calls_made[calls_made.index("no answer") :]
            assert answered or house.cluster.looks == 0
            # the run after it, with the table back, ends where the undisturbed one does
            house.store.away_from = None
            house.clock.at += 10 * MINUTE
            house.run()
            assert house.bounds() == whole.bounds()

    def test_bounds_are_adopted_before_the_first_patch_and_never_again(self) -> None:
        house = House(zones((2, 2, 2), bounds=[(1, 9), (0, 8), (1, 7)]))
        house.run()
        calls = house.journal.entries
        assert calls.index("save POOL") < calls.index("apply")
        adopted = {str(key("a")): Bounds(1, 9), str(key("b")): Bounds(0, 8), str(key("c")): Bounds(1, 7)}
        assert house.state.pools[POOL_ID].adopted == adopted
        house.scale("a", 4)
        house.run()
        assert house.state.pools[POOL_ID].adopted == adopted


class TestRebalanceBesideOthers:
    def test_a_conflict_leads_to_a_new_check_and_a_new_plan(self, house: House) -> None:
        def scale_out(patch: Patch) -> None:
            house.answer_writes(None)
            house.cluster.change(patch.plan.group.key, requested=4, running=4)

        house.cluster.before_apply = scale_out
        outcome = house.run()
        assert (house.cluster.looks, outcome.conflicts) == (2, 1)
        assert all(group.bounds and group.requested <= group.bounds.max for group in house.cluster.groups.values())
        assert sum(maximum for _, maximum in house.bounds()) == 12

    def test_a_run_plans_again_at_most_three_times(self, house: House) -> None:
        house.answer_writes(ConflictError("somebody was faster"))
        outcome = house.run()
        assert (house.cluster.looks, outcome.conflicts, outcome.written) == (4, 3, 0)
        assert house.outcomes()[0].startswith("conflict: ") or "conflict: somebody was faster" in house.outcomes()

    def test_a_cluster_under_another_runs_lease_is_not_written(self, house: House) -> None:
        house.store.take_lease("demo", "another", 0, NOW, NOW + 10 * MINUTE)
        with pytest.raises(LeaseHeldError):
            house.run()
        assert house.cluster.applied == []

    def test_a_run_plans_again_after_another_run_has_written(self, house: House) -> None:
        def another_run(sort_key: str) -> None:
            lease = house.store.take_lease("demo", "another", 0, house.clock.at, house.clock.at + MINUTE)
            house.store.give_back_lease("demo", lease, house.clock.at)

        house.store.before_write.append(another_run)
        outcome = house.run()
        assert outcome.conflicts == 1
        assert outcome.written == 3

    def test_an_unexpected_error_ends_its_write_and_releases_the_lease(self, house: House) -> None:
        house.answer_writes(ZeroDivisionError())
        assert house.run().written == 0
        assert any("ZeroDivisionError while it was written" in said for said in house.outcomes())
        house.answer_writes(None)
        assert house.run().written == 3

    def test_no_patch_starts_without_time_for_it(self, house: House) -> None:
        outcome = house.run(lambda: 13.0)
        assert outcome.written == 0
        assert "not tried: no time left" in house.outcomes()
        assert house.run().written == 3

    def test_replicas_stay_when_marking_machines_takes_all_the_time(self) -> None:
        house = outage()
        house.cluster.mark = lambda *_: wait_two_minutes(house)  # type: ignore[method-assign]
        assert house.run().written == 0
        assert house.cluster.groups[key("a")].requested == 4
        assert "not tried: no time left" in house.outcomes()

    def test_no_patch_follows_the_end_of_the_lease(self, house: House) -> None:
        house.cluster.before_apply = lambda _: wait_two_minutes(house)
        assert house.run().written == 1


class TestRebalanceRefused:
    @pytest.mark.parametrize("error", [RejectedError("no"), ClusterUnavailableError("no answer")])
    def test_no_group_grows_into_room_whose_release_has_failed(self, error: EvenkeelError) -> None:
        house = shrink_before_growth()
        tried = house.answer_writes(error, "workers-a")
        house.run()
        assert tried[0] == "workers-a"
        assert [maximum for _, maximum in house.bounds()] == [9, 2, 2]

    def test_other_groups_of_its_pool_are_still_fenced(self) -> None:
        house = House(zones((2, 4, 2), running=(2, 1, 2), bounds=[(0, 30), (0, 6), (0, 6)]))
        house.fail("b")
        house.answer_writes(RejectedError("422 no"), "workers-a")
        house.run()
        assert house.cluster.groups[key("a")].bounds == Bounds(0, 30)
        assert house.cluster.groups[key("b")].requested == 1
        assert house.bounds()[1][1] == 1
        assert house.outcomes()[0] == "rejected: 422 no"

    def test_a_lasting_refusal_does_not_make_its_pool_oscillate(self) -> None:
        house = House(zones((2, 2, 2), bounds=[(0, 2), (0, 5), (0, 5)]), pools=[{"name": "workers", "max": 12}])
        tried = house.answer_writes(RejectedError("422 no"), "workers-a")
        house.run()
        decisions, patches, checks = len(house.decisions()), len(tried), len(house.queue.second_checks)
        house.runs(4)
        assert (len(house.decisions()), len(tried)) == (decisions, patches)
        assert len(house.queue.second_checks) - checks == 1, "30 s after the second check, and then no more"
        assert [maximum for _, maximum in house.bounds()] == [2, 5, 5]

    def test_it_is_retried_every_five_minutes_and_recorded_again_for_another_reason(self) -> None:
        house = shrink_before_growth()
        tried = house.answer_writes(RejectedError("422 no"), "workers-a")
        house.run()
        decisions = len(house.decisions())
        house.runs(20)
        assert (tried.count("workers-a"), len(house.decisions())) == (5, decisions)
        house.answer_writes(RejectedError("422 another"), "workers-a")
        house.runs(5)
        assert (len(house.decisions()), house.outcomes()[0]) == (decisions + 1, "rejected: 422 another")

    def test_an_accepted_retry_leaves_the_same_bounds_as_no_refusal(self) -> None:
        house, undisturbed = shrink_before_growth(), shrink_before_growth()
        undisturbed.run()
        house.answer_writes(RejectedError("422 no"), "workers-a")
        house.run()
        house.answer_writes(None)
        house.clock.at += 5 * MINUTE
        house.run()
        assert house.bounds() == undisturbed.bounds()
        assert house.group_state().contest.write_refused_at is None

    def test_a_conflict_in_another_pool_does_not_retry_a_rejected_write(self) -> None:
        house = two_pools()
        tried: list[GroupKey] = []
        conflicts = iter([ConflictError("somebody was faster")])

        def answer(patch: Patch) -> None:
            tried.append(patch.plan.group.key)
            if patch.plan.group.identity.pool_label == "others":
                raise RejectedError("no")
            for error in conflicts:
                raise error

        house.cluster.before_apply = answer
        outcome = house.run()
        assert (outcome.conflicts, outcome.written, outcome.rejected, outcome.metrics()["Rejected"]) == (1, 3, 3, 3)
        refused = [name for name in tried if name.name.startswith("others")]
        assert sorted(refused) == [key(zone, pool="others") for zone in "abc"]

    def test_a_lost_answer_to_a_write_requests_a_second_check(self, house: House) -> None:
        house.answer_writes(ClusterUnavailableError("no answer"))
        outcome = house.run()
        assert (outcome.written, outcome.doubtful) == (0, True)
        assert house.queue.second_checks == [("demo", "second check after a write", 15)]

    @pytest.mark.parametrize("error", [ClusterUnavailableError("connection reset"), AccessError("secret is gone")])
    def test_a_cluster_lost_during_the_writes_is_reported_and_completed(self, error: EvenkeelError) -> None:
        house, undisturbed = House(), House()
        undisturbed.run()
        answers = iter([None, error])

        def answer(patch: Patch) -> None:
            if (lost := next(answers, None)) is not None:
                raise lost

        house.cluster.before_apply = answer
        outcome = house.run()
        assert outcome.unreachable
        assert outcome.written == 2  # the write after it does not depend on it
        assert any(text.endswith(f": {error}") for text in house.outcomes())
        assert house.run().unreachable is False
        assert house.bounds() == undisturbed.bounds()


class TestRebalanceFailures:
    def test_a_fenced_group_releases_stuck_replicas_after_marking_their_machines(self) -> None:
        house = outage()
        outcome = house.run()
        assert house.cluster.groups[key("a")].requested == 2
        assert house.cluster.groups[key("a")].bounds == Bounds(1, 2)
        assert [patch.plan.group.identity.zone for patch in house.cluster.marked] == ["a"]
        asked = house.journal.entries
        assert asked.index("mark") < asked.index("apply")
        assert outcome.metrics()["GroupsFenced"] == 1

    def test_machines_launched_after_the_failure_end_the_backoff(self) -> None:
        house = fenced()
        house.run()

        def arrives(count: int) -> State:
            launched = Machine(name=f"m{count}", has_node=True, created_at=house.clock.at)
            known = house.cluster.groups[key("a")].machines or ()
            house.scale("a", count, machines=(*known, launched))
            plan = house.run().plan
            return plan.pools[0].groups[0].state

        assert arrives(3) is State.PROBING
        assert arrives(4) is State.HEALTHY
        state = house.group_state()
        assert state.arrivals.last_success == house.clock.at
        assert not state.is_failing

    def test_a_state_that_changed_during_the_run_is_read_again(self) -> None:
        house = fenced()

        def second_failure(sort_key: str) -> None:
            later = record_failure(
                GroupState(), house.clock.at + 1 * MINUTE, FailureClass.QUOTA, "limit", BackoffPolicy()
            )
            house.store.save_group("demo", key("a"), later, house.store.load("demo").versions)

        house.store.before_write.append(second_failure)
        house.run()
        assert house.group_state().failure.failure_class is FailureClass.QUOTA


class TestFencesFirst:
    """Bounds need no marks: in a big outage every fence is published before the first machine is marked."""

    @staticmethod
    def outage() -> tuple[House, list[str]]:
        """Two pools of three zones, of which two each are dead with machines to be marked; and what is written."""
        groups = []
        for pool in ("workers", "others"):
            for found in zones((5, 5, 2), running=(2, 2, 2), bounds=[(0, 9)] * 3):
                stuck = [
                    Machine(name=f"{pool}-{found.identity.zone}-{i}", has_node=i < 2, created_at=NOW - 30 * MINUTE)
                    for i in range(found.requested)
                ]
                key_ = key(found.identity.zone or "", pool=pool)
                groups.append(replace(found, pool_label=pool, key=key_, machines=tuple(stuck)))
        house = House(groups, pools=[{"name": pool, "max": 18} for pool in ("workers", "others")])
        state = record_failure(GroupState(), house.clock.at, FailureClass.CAPACITY, "no room", BackoffPolicy())
        for pool in ("workers", "others"):
            for zone in "ab":
                house.store.save_group("demo", key(zone, pool=pool), state, None)
        seen: list[str] = []
        mark = house.cluster.mark

        def marks(patch: Patch, names: Collection[str], ours: Collection[str]) -> None:
            seen.append(f"mark {patch.plan.group.key.name}")
            mark(patch, names, ours)

        house.cluster.mark = marks  # type: ignore[method-assign]
        house.cluster.before_apply = lambda patch: seen.append(
            f"{'fence' if patch.requested is None else 'shrink'} {patch.plan.group.key.name}"
        )
        return house, seen

    def test_every_fence_precedes_the_first_mark_and_each_group_is_marked_once(self) -> None:
        house, seen = self.outage()
        house.run()
        dead = {f"{pool}-{zone}" for pool in ("workers", "others") for zone in "ab"}
        first_mark = next(i for i, what in enumerate(seen) if what.startswith("mark"))
        assert {what.removeprefix("fence ") for what in seen[:first_mark]} >= dead
        for name in dead:
            assert seen.index(f"mark {name}") < seen.index(f"shrink {name}")
            assert house.cluster.groups[key(name[-1], pool=name[:-2])].requested == 2
        house.runs(4)
        marks = [what for what in seen if what.startswith("mark")]
        assert len(marks) == len(set(marks)) == 4


class TestDeleteMarks:
    """A mark is stored before it is set, and a stale mark is removed."""

    @staticmethod
    def house() -> House:
        house = House(zones((4, 2, 2), running=(2, 2, 2), bounds=[(0, 4)] * 3))
        stuck = [Machine(name=f"m{i}", has_node=i < 2, created_at=NOW - 30 * MINUTE) for i in range(4)]
        house.cluster.change(key("a"), machines=tuple(stuck))
        return house

    def test_marks_are_stored_before_the_first_is_set(self) -> None:
        house = self.house()
        house.fail("a")
        known: list[tuple[str, ...]] = []
        house.cluster.mark = lambda patch, names, ours: known.append(  # type: ignore[method-assign]
            house.group_state().marked
        )
        house.run()
        assert known == [("m2", "m3")]

    def test_no_machine_is_marked_when_the_table_fails_before_the_mark_is_saved(self) -> None:
        house = self.house()
        house.fail("a")

        def fail_at_group(sort_key: str) -> None:
            if sort_key == f"GROUP#{key('a')}":
                house.store.away_from = 0
            else:
                house.store.before_write.append(fail_at_group)

        house.store.before_write.append(fail_at_group)
        with pytest.raises(StateUnavailableError):
            house.run()
        assert house.cluster.marked == []

    @pytest.mark.parametrize("frozen", [False, True])
    def test_stale_marks_are_removed_unless_the_group_is_frozen(self, frozen: bool) -> None:
        house = self.house()
        house.scale("a", 4, machines=None, frozen_because=stated("paused") if frozen else None)
        house.store.save_group("demo", key("a"), GroupState(marked=("m2", "m3")), None)
        house.run()
        assert house.cluster.unmarked == ([] if frozen else [(key("a"), ("m2", "m3"))])
        assert house.group_state().marked == (("m2", "m3") if frozen else ())


class TestNoFeedbackLoop:
    """Two hours of checks, as a queue delivers them, beside another writer or a refusing API server."""

    @staticmethod
    def two_hours(house: House) -> None:
        begin = house.clock.at
        scans = [begin + number * MINUTE for number in range(120)]
        pending: list[Any] = []
        while scans or pending:
            moment = min([*scans[:1], *sorted(pending)[:1]])
            (scans if scans and moment == scans[0] else pending).remove(moment)
            if moment > begin + 120 * MINUTE:
                return
            house.clock.at = max(house.clock.at, moment)
            asked = len(house.queue.second_checks)
            house.rebalance("demo", "a test", plenty)
            pending += [
                house.clock.at + timedelta(seconds=seconds) for _, _, seconds in house.queue.second_checks[asked:]
            ]

    def test_replicas_that_another_writer_resets_become_contested(self) -> None:
        house = outage(on_failure="release")
        observe = house.cluster.observe

        def gitops_resets(*which: Collection[GroupKey]) -> Any:
            if house.cluster.groups[key("a")].requested != 4:
                house.cluster.change(key("a"), requested=4, replicas_by="argocd")
            return observe(*which)

        house.cluster.observe = gitops_resets  # type: ignore[method-assign]
        self.two_hours(house)
        state = house.group_state()
        assert (state.contest.contested_replicas, state.contest.contested_by) == (True, "argocd")
        assert house.bus.types.count("Write Contested") >= 1
        lowered = [patch for patch in house.cluster.applied if patch.requested is not None]
        assert len(lowered) == 3
        assert house.cluster.looks <= 120 + 25
        assert len(house.cluster.applied) <= 20

    @pytest.mark.parametrize(
        ("error", "checks"),
        [(ClusterUnavailableError("500 the webhook does not answer"), 3 * 4), (RejectedError("422 no"), 120 // 5)],
    )
    def test_a_failing_webhook_costs_a_few_more_checks_an_hour(
        self, house: House, error: EvenkeelError, checks: int
    ) -> None:
        house.answer_writes(error)
        self.two_hours(house)
        assert house.cluster.looks <= 120 + checks
        assert house.cluster.applied == []
        assert len(house.decisions()) <= (3 if isinstance(error, RejectedError) else 120)


class TestNotifications:
    @pytest.mark.parametrize("fields", [{}, {"published": None}], ids=["", "another writer removed our annotation"])
    def test_a_recovery_is_published_once(self, fields: dict[str, Any]) -> None:
        house = fenced()
        house.runs(7)
        house.scale("a", 3, **fields)
        house.runs(8)
        assert house.bus.types.count("Node Group Fenced") == 1
        assert house.bus.types.count("Node Group Recovered") == 1

    def test_a_second_failure_and_recovery_are_published_again(self) -> None:
        house = House(zones((2, 2, 2), bounds=[(0, 4)] * 3))
        for running in (3, 4):
            versions = house.store.load("demo").versions
            known = house.state.groups.get(key("a"), GroupState())
            at = house.clock.at + MINUTE / 2
            failed = record_failure(known, at, FailureClass.CAPACITY, "no room", BackoffPolicy())
            house.store.save_group("demo", key("a"), failed, versions)
            house.runs(12)
            house.scale("a", running)
            house.runs(3)
        assert house.bus.types.count("Node Group Fenced") == 2
        assert house.bus.types.count("Node Group Recovered") == 2


class TestRenamedPool:
    def test_its_state_moves_to_the_new_name(self) -> None:
        house = House(
            zones((2, 2, 2), bounds=[(1, 9), (0, 8), (1, 7)]), pools=[*NUMBERS, {**NUMBERS[0], "name": "nodes"}]
        )
        house.run()
        adopted = house.state.pools[POOL_ID].adopted
        for zone in "abc":
            house.cluster.change(key(zone), pool_label="nodes")
        house.run()
        pools = house.state.pools
        assert pools[POOL_ID._replace(name="nodes")].adopted == adopted
        assert pools[POOL_ID].adopted == {}
        assert pools[POOL_ID].seen is None


class TestOpenMove:
    """A move that owes replicas survives a check that does not see its groups."""

    @pytest.fixture
    def house(self) -> House:
        house = House(zones((2, 2, 2), bounds=[(1, 9)] * 3), autoscaler="none")
        house.run()
        stored = house.store.load("demo")
        owes = replace(stored.state.pools[POOL_ID], move=Move(id="interrupted", unplaced=2))
        house.store.save_pool("demo", POOL_ID, owes, stored.versions)
        return house

    def requested(self, house: House) -> int:
        return sum(group.requested for group in house.cluster.groups.values())

    def test_a_partial_list_does_not_end_it(self, house: House) -> None:
        missing = {name: house.cluster.groups.pop(name) for name in (key("b"), key("c"))}
        house.run()
        house.cluster.groups |= missing
        house.run()
        assert self.requested(house) == 8

    def test_a_label_that_is_missing_for_one_check_does_not_end_it(self, house: House) -> None:
        for label in (None, "workers"):
            for name in house.cluster.groups:
                house.cluster.change(name, pool_label=label)
            house.run()
        assert self.requested(house) == 8


class TestRebalanceBadPools:
    def test_an_invalid_pool_is_published_whenever_it_breaks_and_others_are_written(self) -> None:
        fault = Fault(object="MachineDeployment default/x", field="spec.replicas", value="'many'", problem="no number")
        house = two_pools()
        for breaks in (1, 2):
            house.cluster.change(key("b"), faults=(fault,))
            metrics = house.run().metrics()
            house.runs(2)
            details = [detail for detail_type, detail in house.bus.published if detail_type == "Pool Invalid"]
            assert len(details) == breaks
            assert details[-1]["pool"]["problems"] == [
                "MachineDeployment default/x: spec.replicas is 'many': no number"
            ]
            assert metrics["PoolsInvalid"] == 1
            assert breaks == 2 or {patch.plan.group.identity.pool_label for patch in house.cluster.applied} == {
                "others"
            }
            house.cluster.change(key("b"), faults=())
            house.run()

    def test_a_starved_pool_is_published_once(self) -> None:
        house = House(zones((4, 2, 2), running=(2, 2, 2), bounds=[(0, 4)] * 3))
        for zone in "abc":
            house.fail(zone)
        house.runs(3)
        assert house.bus.types.count("Pool Starved") == 1


class TestRebalanceAlways:
    @given(
        requested=st.lists(st.integers(0, 6), min_size=3, max_size=3),
        waiting=st.lists(st.integers(0, 3), min_size=3, max_size=3),
        bounds=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8)), min_size=3, max_size=3),
        failing=st.sets(st.sampled_from("abc")),
        incident=st.lists(
            st.sampled_from([None, "conflict", "rejected", "unavailable", "lost", "scaled"]), max_size=12
        ),
        kill_at=st.none() | st.integers(0, 20),
    )
    def test_published_bounds_contain_the_requested_nodes_under_any_failure(
        self,
        requested: list[int],
        waiting: list[int],
        bounds: list[tuple[int, int]],
        failing: set[str],
        incident: list[str | None],
        kill_at: int | None,
    ) -> None:
        running = [max(0, wanted - late) for wanted, late in zip(requested, waiting, strict=True)]
        house = House(zones(requested, running=running, bounds=[(min(pair), max(pair)) for pair in bounds]))
        for zone in failing:
            house.fail(zone)
        errors: dict[str, Exception] = {
            "conflict": ConflictError("changed"),
            "rejected": RejectedError("no"),
            "unavailable": ClusterUnavailableError("gone"),
        }
        incidents = iter(incident)

        def answer(patch: Patch) -> None:
            what = next(incidents, None)
            group = house.cluster.groups[patch.plan.group.key]
            new_bounds = patch.bounds or group.bounds
            new_requested = group.requested if patch.requested is None else patch.requested
            assert new_bounds is None or new_bounds.max >= new_requested
            assert new_requested >= min(group.running, group.requested), "a running node would go"
            if what == "scaled":
                house.cluster.change(group.key, requested=group.requested + 1)
            elif what == "lost":  # carried out, and the answer never arrives
                house.answer_writes(None)
                house.cluster.apply(patch, "lost", "none")
                house.cluster.before_apply = answer
                raise ClusterUnavailableError("no answer")
            elif what is not None:
                raise errors[what]

        house.cluster.before_apply = answer
        if kill_at is not None:
            house.store.away_from = house.store.calls + kill_at
        for _ in range(2):
            try:
                house.run()
            except (StateUnavailableError, LeaseHeldError):
                house.clock.at += 2 * MINUTE
            house.store.away_from = None
        house.answer_writes(None)
        house.clock.at += 5 * MINUTE  # what was refused is left alone for so long
        house.runs(4)
        patched = len(house.cluster.applied)
        house.run()
        assert len(house.cluster.applied) == patched, "a world without other writers comes to rest"


class TestOperate:
    @pytest.fixture
    def house(self) -> House:
        return House(stack_dry_run=True)

    def test_a_new_cluster_is_registered_in_dry_run_and_checked(self, house: House) -> None:
        answer = house.ask("register", "new", record=RECORD)
        assert answer["ok"] is True
        assert answer["dryRun"] is True
        assert "new is registered in dry run" in answer["message"]
        assert house.store.load("new").record.id == "new"
        assert house.queue.clusters == ["new"]

    def test_registering_again_replaces_the_record_and_keeps_the_state(self, house: House) -> None:
        house.fail("a")
        answer = house.ask("register", record={**RECORD, "dry_run": False})
        assert answer["message"] == "demo is updated and switched on"
        stored = house.store.load("demo")
        assert stored.record.dry_run is False
        assert stored.record.pools == ()
        assert key("a") in stored.state.groups
        house.store.plant("demo", "{")
        assert house.ask("register", record=RECORD)["ok"] is True

    def test_plan_returns_the_changes_and_writes_nothing(self, house: House) -> None:
        house.journal.entries.clear()
        answer = house.ask("plan")
        assert answer["message"] == "1 pool, 3 node groups would change"
        assert answer["plan"]["pools"][0]["name"] == "workers"
        assert [group["max"]["to"] for group in answer["plan"]["pools"][0]["groups"]] == [4, 4, 4]
        assert house.journal.entries == ["load", "observe"]
        json.dumps(answer)

    def test_pause_and_resume(self, house: House) -> None:
        assert "until resumed" in house.ask("pause")["message"]
        assert house.ask("status")["paused"] is True
        house.ask("resume")
        assert house.ask("status")["paused"] is False
        assert house.queue.clusters == ["demo"]
        answer = house.ask("pause", until="2026-01-15T14:00:00+01:00")
        until = "2026-01-15T13:00:00Z"
        assert answer["message"] == f"demo is paused until {until}: Evenkeel neither reads it nor writes to it"
        assert house.ask("status")["pausedUntil"] == until

    def test_a_pause_that_meets_another_write_is_a_conflict(self, house: House) -> None:
        house.store.before_write.append(lambda sort_key: house.store.plant("demo", record().model_dump_json()))
        with pytest.raises(StateConflictError) as caught:
            house.ask("pause")
        assert answer_of_error(caught.value)["message"].endswith("try again")

    @pytest.mark.parametrize(
        ("event", "says"),
        [
            ([], "event is no object"),
            ({}, "action is 'None'"),
            ({"action": "dance", "cluster": "demo"}, "action is 'dance': choose one of"),
            ({"action": "statsu", "cluster": "demo"}, "action is 'statsu'; did you mean status?: choose one of"),
            ({"action": "x" * 300_000, "cluster": "demo"}, "choose one of"),
            ({"action": "plan"}, "cluster is 'None': name the cluster's id"),
            ({"action": "plan", "cluster": "*"}, "cluster '*' is not registered"),
            ({"action": "status", "cluster": 7}, "cluster is '7'"),
            ({"action": "status", "cluster": "demmo"}, "cluster 'demmo' is not registered; did you mean demo?"),
            (
                {"action": "status", "cluster": "nobody"},
                "cluster 'nobody' is not registered: export names those that are",
            ),
            (
                {"action": "pause", "cluster": "demo", "until": "soon"},
                "pause: until is 'soon': no moment with a time zone",
            ),
            ({"action": "pause", "cluster": "demo", "untill": "2030-01-15T13:00:00Z"}, "did you mean until?"),
            ({"action": "plan", "cluster": "demo", "dryRun": False}, "'dryRun' is no field of plan: it takes action, "),
            ({"action": "fence-zone", "cluster": "demo", "zone": "a"}, "fence-zone: until is missing"),
            ({"action": "scale-up", "cluster": "demo", "nodes": 2}, "scale-up needs a pool or a group: name one of"),
            ({"action": "scale-up", "cluster": "demo", "nodes": 2, "pool": "workrs"}, "did you mean workers?"),
            ({"action": "scale-up", "cluster": "demo", "nodes": 2, "group": "workrs-a"}, "did you mean workers-a?"),
            ({"action": "pause", "cluster": "demo", "until": "2026-01-15T13:00:00"}, "with a time zone"),
            ({"action": "pause", "cluster": "demo", "until": "2020-01-01T00:00:00Z"}, "that is past"),
            ({"action": "register", "cluster": "demo"}, "record is missing"),
            ({"action": "register", "cluster": "demo", "record": "text"}, "record is missing"),
            ({"action": "register", "cluster": "demo", "record": {}}, "flavours is missing"),
            ({"action": "register", "cluster": "UPPER case", "record": RECORD}, "UPPER case"),
            ({"action": "register", "cluster": "z" * 300_000, "record": RECORD}, "cluster"),
            ({"action": "register", "cluster": "demo", "record": {**RECORD, "id": "other"}}, "record.id is 'other'"),
            ({"action": "register", "cluster": "demo", "record": {**RECORD, "colour": 1}}, "colour is not a field"),
            ({"action": "register", "cluster": "demo", "record": {**RECORD, "scan_interval": 90}}, "whole minutes"),
        ],
    )
    def test_an_invalid_event_is_answered_with_one_sentence(self, house: House, event: Any, says: str) -> None:
        with pytest.raises((BadRequestError, ConfigError)) as caught:
            house.operate(event, plenty)
        message = answer_of_error(caught.value)["message"]
        assert says in message
        assert "\n" not in message
        assert len(message) < 1000
        assert house.queue.clusters == []

    def test_plan_of_an_unreachable_cluster_is_one_sentence(self, house: House) -> None:
        house.cluster.unreadable = ClusterUnavailableError("demo does not answer")
        with pytest.raises(ClusterUnavailableError) as caught:
            house.ask("plan")
        assert answer_of_error(caught.value) == {"ok": False, "retry": True, "message": "demo does not answer"}
