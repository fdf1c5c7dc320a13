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
from tests.parts import replace
from tests.stack import NUMBERS, RECORD, Stack

POOL_ID = PoolId("cluster-api", "default", "", "workers")


def two_pools() -> Stack:
    groups = [*zones((2, 2, 2), bounds=[(0, 9)] * 3), *zones((2, 2, 2), bounds=[(0, 9)] * 3, pool="others")]
    return Stack(groups, pools=[*NUMBERS, {"name": "others", "min": 3, "max": 12}])


def shrink_before_growth() -> Stack:
    """Return a pool in which zone a's max falls from 9 to 4, and only then may those of b and c rise from 2."""
    return Stack(zones((2, 2, 2), bounds=[(0, 9), (0, 2), (0, 2)]))


def outage(**fields: Any) -> Stack:
    """Return a pool whose zone a has two nodes and two replicas without a node, and is in backoff."""
    stack = Stack(zones((4, 2, 2), running=(2, 2, 2), bounds=[(0, 4)] * 3), **fields)
    stack.fail("a")
    return stack


def fenced() -> Stack:
    """Return a pool whose zone a is in backoff, and all its requested nodes run."""
    stack = Stack(zones((2, 2, 2), bounds=[(0, 4)] * 3))
    stack.fail("a")
    return stack


def wait_two_minutes(stack: Stack) -> None:
    stack.clock.at += 2 * MINUTE


@pytest.fixture
def stack() -> Stack:
    return Stack()


class TestRebalance:
    def test_a_run_writes_every_changed_group_records_it_once_and_checks_again(self, stack: Stack) -> None:
        outcome = stack.run()
        assert outcome.written == len(stack.cluster.applied) == 3
        assert sum(maximum for _, maximum in stack.bounds()) == 12
        (decision,) = stack.decisions()
        assert (decision["cluster"], decision["cause"], decision["dryRun"]) == ("demo", "a test", False)
        assert stack.outcomes() == ["written"] * 3
        assert stack.bus.published == [("Node Groups Rebalanced", decision)]
        assert stack.queue.second_checks == [("demo", "second check after a write", 15)]

    def test_a_run_without_changes_reads_once_and_writes_nothing(self, stack: Stack) -> None:
        stack.settle()
        before = (len(stack.cluster.applied), len(stack.decisions()), list(stack.queue.second_checks))
        stack.journal.entries.clear()
        outcome = stack.run()
        assert stack.journal.entries == ["load", "observe"]
        assert outcome.message == "demo: nothing to write"
        assert (len(stack.cluster.applied), len(stack.decisions()), list(stack.queue.second_checks)) == before

    def test_a_dry_run_records_each_plan_once_and_writes_nothing(self) -> None:
        stack = Stack(stack_dry_run=True)
        messages = [stack.run().message for _ in range(3)]
        assert messages == ["demo: dry run: would write 3 node groups"] * 3
        assert stack.cluster.applied == []
        assert stack.queue.second_checks == []
        assert "save LEASE" not in stack.journal.entries
        (decision,) = stack.decisions()
        assert decision["dryRun"] is True
        assert stack.outcomes() == ["planned"] * 3
        stack.scale("a", 5)
        stack.run()
        assert len(stack.decisions()) == 2

    @pytest.mark.parametrize(
        ("default", "cluster", "dry"), [(True, None, True), (True, False, False), (False, True, True)]
    )
    def test_a_clusters_dry_run_overrides_the_stacks(self, default: bool, cluster: bool | None, dry: bool) -> None:
        stack = Stack(stack_dry_run=default, dry_run=cluster)
        assert stack.run().dry_run is dry
        assert bool(stack.cluster.applied) is not dry

    def test_a_paused_cluster_is_not_read_until_the_pause_ends(self) -> None:
        stack = Stack(paused=True, paused_until=NOW + 2 * MINUTE)
        assert stack.run().message == "demo: paused, not checked"
        assert stack.cluster.checks == 0
        assert stack.run().written == 3

    def test_an_unregistered_cluster_is_an_error(self) -> None:
        with pytest.raises(UnknownClusterError):
            Stack().rebalance("other", "a test", plenty)

    def test_an_invalid_record_is_reported_and_the_cluster_is_not_read(self, stack: Stack) -> None:
        stack.store.plant("demo", '{"id": "demo", "flavours": ["mesos"]}')
        outcome = stack.run()
        assert outcome.unreachable
        assert "record of cluster demo: flavours.0 is 'mesos'" in outcome.message
        assert stack.cluster.checks == 0

    @pytest.mark.parametrize("opens", [True, False])
    @pytest.mark.parametrize("error", [ClusterUnavailableError("page 2 broke off"), AccessError("no secret")])
    def test_a_cluster_that_cannot_be_read_is_reported_and_not_written(self, error: EvenkeelError, opens: bool) -> None:
        stack = Stack()
        if opens:
            stack.cluster.unreadable = error
        else:
            stack.clusters.by_id["demo"] = error
        outcome = stack.run()
        assert outcome.unreachable
        assert outcome.message == f"demo: not checked: {error}"
        assert outcome.metrics()["ClustersUnreachable"] == 1
        assert stack.journal.count("apply") == 0
        assert stack.queue.second_checks == []


class TestRebalanceWithoutTheTable:
    def test_no_patch_follows_a_lost_table(self) -> None:
        whole = Stack()
        calls_before = whole.store.calls
        whole.run()
        calls = whole.store.calls - calls_before
        assert calls >= 5  # load, lease, adopted bounds, decision, lease back
        for answered in range(calls):
            stack = Stack()
            stack.journal.entries.clear()
            stack.store.away_from = stack.store.calls + answered
            only_the_timer_is_lost = answered == calls - 1
            with contextlib.nullcontext() if only_the_timer_is_lost else pytest.raises(StateUnavailableError):
                stack.run()
            calls_made = stack.journal.entries
            assert "apply" not in calls_made[calls_made.index("no answer") :]
            assert answered or stack.cluster.checks == 0
            # the next run, with the table back, ends in the same state as the undisturbed one
            stack.store.away_from = None
            stack.clock.at += 10 * MINUTE
            stack.run()
            assert stack.bounds() == whole.bounds()

    def test_bounds_are_adopted_before_the_first_patch_and_never_again(self) -> None:
        stack = Stack(zones((2, 2, 2), bounds=[(1, 9), (0, 8), (1, 7)]))
        stack.run()
        calls = stack.journal.entries
        assert calls.index("save POOL") < calls.index("apply")
        adopted = {str(key("a")): Bounds(1, 9), str(key("b")): Bounds(0, 8), str(key("c")): Bounds(1, 7)}
        assert stack.state.pools[POOL_ID].adopted == adopted
        stack.scale("a", 4)
        stack.run()
        assert stack.state.pools[POOL_ID].adopted == adopted


class TestRebalanceBesideOthers:
    def test_a_conflict_leads_to_a_new_check_and_a_new_plan(self, stack: Stack) -> None:
        def scale_out(patch: Patch) -> None:
            stack.answer_writes(None)
            stack.cluster.change(patch.plan.group.key, requested=4, running=4)

        stack.cluster.before_apply = scale_out
        outcome = stack.run()
        assert (stack.cluster.checks, outcome.conflicts) == (2, 1)
        assert all(group.bounds and group.requested <= group.bounds.max for group in stack.cluster.groups.values())
        assert sum(maximum for _, maximum in stack.bounds()) == 12

    def test_a_run_plans_again_at_most_three_times(self, stack: Stack) -> None:
        stack.answer_writes(ConflictError("another writer was faster"))
        outcome = stack.run()
        assert (stack.cluster.checks, outcome.conflicts, outcome.written) == (4, 3, 0)
        assert stack.outcomes()[0].startswith("conflict: ") or "conflict: another writer was faster" in stack.outcomes()

    def test_a_cluster_under_another_runs_lease_is_not_written(self, stack: Stack) -> None:
        stack.store.take_lease("demo", "another", 0, NOW, NOW + 10 * MINUTE)
        with pytest.raises(LeaseHeldError):
            stack.run()
        assert stack.cluster.applied == []

    def test_a_run_plans_again_after_another_run_has_written(self, stack: Stack) -> None:
        def another_run(sort_key: str) -> None:
            lease = stack.store.take_lease("demo", "another", 0, stack.clock.at, stack.clock.at + MINUTE)
            stack.store.give_back_lease("demo", lease, stack.clock.at)

        stack.store.before_write.append(another_run)
        outcome = stack.run()
        assert outcome.conflicts == 1
        assert outcome.written == 3

    def test_an_unexpected_error_ends_its_write_and_releases_the_lease(self, stack: Stack) -> None:
        stack.answer_writes(ZeroDivisionError())
        assert stack.run().written == 0
        assert any("ZeroDivisionError while it was written" in said for said in stack.outcomes())
        stack.answer_writes(None)
        assert stack.run().written == 3

    def test_no_patch_starts_without_time_for_it(self, stack: Stack) -> None:
        outcome = stack.run(lambda: 13.0)
        assert outcome.written == 0
        assert "not tried: no time left" in stack.outcomes()
        assert stack.run().written == 3

    def test_replicas_stay_when_marking_machines_takes_all_the_time(self) -> None:
        stack = outage()
        stack.cluster.mark = lambda *_: wait_two_minutes(stack)  # type: ignore[method-assign]
        assert stack.run().written == 0
        assert stack.cluster.groups[key("a")].requested == 4
        assert "not tried: no time left" in stack.outcomes()

    def test_no_patch_follows_the_end_of_the_lease(self, stack: Stack) -> None:
        stack.cluster.before_apply = lambda _: wait_two_minutes(stack)
        assert stack.run().written == 1


class TestRebalanceRefused:
    @pytest.mark.parametrize("error", [RejectedError("no"), ClusterUnavailableError("no answer")])
    def test_no_group_grows_into_room_whose_release_has_failed(self, error: EvenkeelError) -> None:
        stack = shrink_before_growth()
        tried = stack.answer_writes(error, "workers-a")
        stack.run()
        assert tried[0] == "workers-a"
        assert [maximum for _, maximum in stack.bounds()] == [9, 2, 2]

    def test_other_groups_of_its_pool_are_still_fenced(self) -> None:
        stack = Stack(zones((2, 4, 2), running=(2, 1, 2), bounds=[(0, 30), (0, 6), (0, 6)]))
        stack.fail("b")
        stack.answer_writes(RejectedError("422 no"), "workers-a")
        stack.run()
        assert stack.cluster.groups[key("a")].bounds == Bounds(0, 30)
        assert stack.cluster.groups[key("b")].requested == 1
        assert stack.bounds()[1][1] == 1
        assert stack.outcomes()[0] == "rejected: 422 no"

    def test_a_lasting_refusal_does_not_make_its_pool_oscillate(self) -> None:
        stack = Stack(zones((2, 2, 2), bounds=[(0, 2), (0, 5), (0, 5)]), pools=[{"name": "workers", "max": 12}])
        tried = stack.answer_writes(RejectedError("422 no"), "workers-a")
        stack.run()
        decisions, patches, checks = len(stack.decisions()), len(tried), len(stack.queue.second_checks)
        stack.runs(4)
        assert (len(stack.decisions()), len(tried)) == (decisions, patches)
        assert len(stack.queue.second_checks) - checks == 1, "30 s after the second check, and then no more"
        assert [maximum for _, maximum in stack.bounds()] == [2, 5, 5]

    def test_it_is_retried_every_five_minutes_and_recorded_again_for_another_reason(self) -> None:
        stack = shrink_before_growth()
        tried = stack.answer_writes(RejectedError("422 no"), "workers-a")
        stack.run()
        decisions = len(stack.decisions())
        stack.runs(20)
        assert (tried.count("workers-a"), len(stack.decisions())) == (5, decisions)
        stack.answer_writes(RejectedError("422 another"), "workers-a")
        stack.runs(5)
        assert (len(stack.decisions()), stack.outcomes()[0]) == (decisions + 1, "rejected: 422 another")

    def test_an_accepted_retry_leaves_the_same_bounds_as_no_refusal(self) -> None:
        stack, undisturbed = shrink_before_growth(), shrink_before_growth()
        undisturbed.run()
        stack.answer_writes(RejectedError("422 no"), "workers-a")
        stack.run()
        stack.answer_writes(None)
        stack.clock.at += 5 * MINUTE
        stack.run()
        assert stack.bounds() == undisturbed.bounds()
        assert stack.group_state().contest.write_refused_at is None

    def test_a_conflict_in_another_pool_does_not_retry_a_rejected_write(self) -> None:
        stack = two_pools()
        tried: list[GroupKey] = []
        conflicts = iter([ConflictError("another writer was faster")])

        def answer(patch: Patch) -> None:
            tried.append(patch.plan.group.key)
            if patch.plan.group.identity.pool_label == "others":
                raise RejectedError("no")
            for error in conflicts:
                raise error

        stack.cluster.before_apply = answer
        outcome = stack.run()
        assert (outcome.conflicts, outcome.written, outcome.rejected, outcome.metrics()["Rejected"]) == (1, 3, 3, 3)
        refused = [name for name in tried if name.name.startswith("others")]
        assert sorted(refused) == [key(zone, pool="others") for zone in "abc"]

    def test_a_lost_answer_to_a_write_requests_a_second_check(self, stack: Stack) -> None:
        stack.answer_writes(ClusterUnavailableError("no answer"))
        outcome = stack.run()
        assert (outcome.written, outcome.doubtful) == (0, True)
        assert stack.queue.second_checks == [("demo", "second check after a write", 15)]

    @pytest.mark.parametrize("error", [ClusterUnavailableError("connection reset"), AccessError("secret is gone")])
    def test_a_cluster_lost_during_the_writes_is_reported_and_completed(self, error: EvenkeelError) -> None:
        stack, undisturbed = Stack(), Stack()
        undisturbed.run()
        answers = iter([None, error])

        def answer(patch: Patch) -> None:
            if (lost := next(answers, None)) is not None:
                raise lost

        stack.cluster.before_apply = answer
        outcome = stack.run()
        assert outcome.unreachable
        assert outcome.written == 2  # the write after it does not depend on it
        assert any(text.endswith(f": {error}") for text in stack.outcomes())
        assert stack.run().unreachable is False
        assert stack.bounds() == undisturbed.bounds()


class TestRebalanceFailures:
    def test_a_fenced_group_releases_stuck_replicas_after_marking_their_machines(self) -> None:
        stack = outage()
        outcome = stack.run()
        assert stack.cluster.groups[key("a")].requested == 2
        assert stack.cluster.groups[key("a")].bounds == Bounds(1, 2)
        assert [patch.plan.group.identity.zone for patch in stack.cluster.marked] == ["a"]
        asked = stack.journal.entries
        assert asked.index("mark") < asked.index("apply")
        assert outcome.metrics()["GroupsFenced"] == 1

    def test_machines_launched_after_the_failure_end_the_backoff(self) -> None:
        stack = fenced()
        stack.run()

        def arrives(count: int) -> State:
            launched = Machine(name=f"m{count}", has_node=True, created_at=stack.clock.at)
            known = stack.cluster.groups[key("a")].machines or ()
            stack.scale("a", count, machines=(*known, launched))
            plan = stack.run().plan
            return plan.pools[0].groups[0].state

        assert arrives(3) is State.PROBING
        assert arrives(4) is State.HEALTHY
        state = stack.group_state()
        assert state.arrivals.last_success == stack.clock.at
        assert not state.is_failing

    def test_a_state_that_changed_during_the_run_is_read_again(self) -> None:
        stack = fenced()

        def second_failure(sort_key: str) -> None:
            later = record_failure(
                GroupState(), stack.clock.at + 1 * MINUTE, FailureClass.QUOTA, "limit", BackoffPolicy()
            )
            stack.store.save_group("demo", key("a"), later, stack.store.load("demo").versions)

        stack.store.before_write.append(second_failure)
        stack.run()
        assert stack.group_state().failure.failure_class is FailureClass.QUOTA


class TestFencesFirst:
    """Bounds need no marks: in a large outage, every fence is published before the first machine is marked."""

    @staticmethod
    def outage() -> tuple[Stack, list[str]]:
        """Return two pools of three zones, of which two each are dead with machines to mark; and the list of writes."""
        groups = []
        for pool in ("workers", "others"):
            for found in zones((5, 5, 2), running=(2, 2, 2), bounds=[(0, 9)] * 3):
                stuck = [
                    Machine(name=f"{pool}-{found.identity.zone}-{i}", has_node=i < 2, created_at=NOW - 30 * MINUTE)
                    for i in range(found.requested)
                ]
                key_ = key(found.identity.zone or "", pool=pool)
                groups.append(replace(found, pool_label=pool, key=key_, machines=tuple(stuck)))
        stack = Stack(groups, pools=[{"name": pool, "max": 18} for pool in ("workers", "others")])
        state = record_failure(GroupState(), stack.clock.at, FailureClass.CAPACITY, "no room", BackoffPolicy())
        for pool in ("workers", "others"):
            for zone in "ab":
                stack.store.save_group("demo", key(zone, pool=pool), state, None)
        seen: list[str] = []
        mark = stack.cluster.mark

        def marks(patch: Patch, names: Collection[str], ours: Collection[str]) -> None:
            seen.append(f"mark {patch.plan.group.key.name}")
            mark(patch, names, ours)

        stack.cluster.mark = marks  # type: ignore[method-assign]
        stack.cluster.before_apply = lambda patch: seen.append(
            f"{'fence' if patch.requested is None else 'shrink'} {patch.plan.group.key.name}"
        )
        return stack, seen

    def test_every_fence_precedes_the_first_mark_and_each_group_is_marked_once(self) -> None:
        stack, seen = self.outage()
        stack.run()
        dead = {f"{pool}-{zone}" for pool in ("workers", "others") for zone in "ab"}
        first_mark = next(i for i, what in enumerate(seen) if what.startswith("mark"))
        assert {what.removeprefix("fence ") for what in seen[:first_mark]} >= dead
        for name in dead:
            assert seen.index(f"mark {name}") < seen.index(f"shrink {name}")
            assert stack.cluster.groups[key(name[-1], pool=name[:-2])].requested == 2
        stack.runs(4)
        marks = [what for what in seen if what.startswith("mark")]
        assert len(marks) == len(set(marks)) == 4


class TestDeleteMarks:
    """A mark is stored before it is set, and a stale mark is removed."""

    @staticmethod
    def stack() -> Stack:
        stack = Stack(zones((4, 2, 2), running=(2, 2, 2), bounds=[(0, 4)] * 3))
        stuck = [Machine(name=f"m{i}", has_node=i < 2, created_at=NOW - 30 * MINUTE) for i in range(4)]
        stack.cluster.change(key("a"), machines=tuple(stuck))
        return stack

    def test_marks_are_stored_before_the_first_is_set(self) -> None:
        stack = self.stack()
        stack.fail("a")
        known: list[tuple[str, ...]] = []
        stack.cluster.mark = lambda patch, names, ours: known.append(  # type: ignore[method-assign]
            stack.group_state().marked
        )
        stack.run()
        assert known == [("m2", "m3")]

    def test_no_machine_is_marked_when_the_table_fails_before_the_mark_is_saved(self) -> None:
        stack = self.stack()
        stack.fail("a")

        def fail_at_group(sort_key: str) -> None:
            if sort_key == f"GROUP#{key('a')}":
                stack.store.away_from = 0
            else:
                stack.store.before_write.append(fail_at_group)

        stack.store.before_write.append(fail_at_group)
        with pytest.raises(StateUnavailableError):
            stack.run()
        assert stack.cluster.marked == []

    @pytest.mark.parametrize("frozen", [False, True])
    def test_stale_marks_are_removed_unless_the_group_is_frozen(self, frozen: bool) -> None:
        stack = self.stack()
        stack.scale("a", 4, machines=None, frozen_because=stated("paused") if frozen else None)
        stack.store.save_group("demo", key("a"), GroupState(marked=("m2", "m3")), None)
        stack.run()
        assert stack.cluster.unmarked == ([] if frozen else [(key("a"), ("m2", "m3"))])
        assert stack.group_state().marked == (("m2", "m3") if frozen else ())


class TestNoFeedbackLoop:
    """Two hours of checks, as a queue delivers them, with another writer or a refusing API server."""

    @staticmethod
    def two_hours(stack: Stack) -> None:
        begin = stack.clock.at
        scans = [begin + number * MINUTE for number in range(120)]
        pending: list[Any] = []
        while scans or pending:
            moment = min([*scans[:1], *sorted(pending)[:1]])
            (scans if scans and moment == scans[0] else pending).remove(moment)
            if moment > begin + 120 * MINUTE:
                return
            stack.clock.at = max(stack.clock.at, moment)
            asked = len(stack.queue.second_checks)
            stack.rebalance("demo", "a test", plenty)
            pending += [
                stack.clock.at + timedelta(seconds=seconds) for _, _, seconds in stack.queue.second_checks[asked:]
            ]

    def test_replicas_that_another_writer_resets_become_contested(self) -> None:
        stack = outage(on_failure="release")
        observe = stack.cluster.observe

        def gitops_resets(*which: Collection[GroupKey]) -> Any:
            if stack.cluster.groups[key("a")].requested != 4:
                stack.cluster.change(key("a"), requested=4, replicas_by="argocd")
            return observe(*which)

        stack.cluster.observe = gitops_resets  # type: ignore[method-assign]
        self.two_hours(stack)
        state = stack.group_state()
        assert (state.contest.contested_replicas, state.contest.contested_by) == (True, "argocd")
        assert stack.bus.types.count("Write Contested") >= 1
        lowered = [patch for patch in stack.cluster.applied if patch.requested is not None]
        assert len(lowered) == 3
        assert stack.cluster.checks <= 120 + 25
        assert len(stack.cluster.applied) <= 20

    @pytest.mark.parametrize(
        ("error", "checks"),
        [(ClusterUnavailableError("500 the webhook does not answer"), 3 * 4), (RejectedError("422 no"), 120 // 5)],
    )
    def test_a_failing_webhook_costs_a_few_more_checks_an_hour(
        self, stack: Stack, error: EvenkeelError, checks: int
    ) -> None:
        stack.answer_writes(error)
        self.two_hours(stack)
        assert stack.cluster.checks <= 120 + checks
        assert stack.cluster.applied == []
        assert len(stack.decisions()) <= (3 if isinstance(error, RejectedError) else 120)


class TestNotifications:
    @pytest.mark.parametrize("fields", [{}, {"published": None}], ids=["", "another writer removed our annotation"])
    def test_a_recovery_is_published_once(self, fields: dict[str, Any]) -> None:
        stack = fenced()
        stack.runs(7)
        stack.scale("a", 3, **fields)
        stack.runs(8)
        assert stack.bus.types.count("Node Group Fenced") == 1
        assert stack.bus.types.count("Node Group Recovered") == 1

    def test_a_second_failure_and_recovery_are_published_again(self) -> None:
        stack = Stack(zones((2, 2, 2), bounds=[(0, 4)] * 3))
        for running in (3, 4):
            versions = stack.store.load("demo").versions
            known = stack.state.groups.get(key("a"), GroupState())
            at = stack.clock.at + MINUTE / 2
            failed = record_failure(known, at, FailureClass.CAPACITY, "no room", BackoffPolicy())
            stack.store.save_group("demo", key("a"), failed, versions)
            stack.runs(12)
            stack.scale("a", running)
            stack.runs(3)
        assert stack.bus.types.count("Node Group Fenced") == 2
        assert stack.bus.types.count("Node Group Recovered") == 2


class TestRenamedPool:
    def test_its_state_moves_to_the_new_name(self) -> None:
        stack = Stack(
            zones((2, 2, 2), bounds=[(1, 9), (0, 8), (1, 7)]), pools=[*NUMBERS, {**NUMBERS[0], "name": "nodes"}]
        )
        stack.run()
        adopted = stack.state.pools[POOL_ID].adopted
        for zone in "abc":
            stack.cluster.change(key(zone), pool_label="nodes")
        stack.run()
        pools = stack.state.pools
        assert pools[POOL_ID._replace(name="nodes")].adopted == adopted
        assert pools[POOL_ID].adopted == {}
        assert pools[POOL_ID].seen is None


class TestOpenMove:
    """A move with unplaced replicas survives a check that does not read its groups."""

    @pytest.fixture
    def stack(self) -> Stack:
        stack = Stack(zones((2, 2, 2), bounds=[(1, 9)] * 3), autoscaler="none")
        stack.run()
        stored = stack.store.load("demo")
        owes = replace(stored.state.pools[POOL_ID], move=Move(id="interrupted", unplaced=2))
        stack.store.save_pool("demo", POOL_ID, owes, stored.versions)
        return stack

    def requested(self, stack: Stack) -> int:
        return sum(group.requested for group in stack.cluster.groups.values())

    def test_a_partial_list_does_not_end_it(self, stack: Stack) -> None:
        missing = {name: stack.cluster.groups.pop(name) for name in (key("b"), key("c"))}
        stack.run()
        stack.cluster.groups |= missing
        stack.run()
        assert self.requested(stack) == 8

    def test_a_label_that_is_missing_for_one_check_does_not_end_it(self, stack: Stack) -> None:
        for label in (None, "workers"):
            for name in stack.cluster.groups:
                stack.cluster.change(name, pool_label=label)
            stack.run()
        assert self.requested(stack) == 8


class TestRebalanceBadPools:
    def test_an_invalid_pool_is_published_whenever_it_breaks_and_others_are_written(self) -> None:
        fault = Fault(object="MachineDeployment default/x", field="spec.replicas", value="'many'", problem="no number")
        stack = two_pools()
        for breaks in (1, 2):
            stack.cluster.change(key("b"), faults=(fault,))
            metrics = stack.run().metrics()
            stack.runs(2)
            details = [detail for detail_type, detail in stack.bus.published if detail_type == "Pool Invalid"]
            assert len(details) == breaks
            assert details[-1]["pool"]["problems"] == [
                "MachineDeployment default/x: spec.replicas is 'many': no number"
            ]
            assert metrics["PoolsInvalid"] == 1
            assert breaks == 2 or {patch.plan.group.identity.pool_label for patch in stack.cluster.applied} == {
                "others"
            }
            stack.cluster.change(key("b"), faults=())
            stack.run()

    def test_a_starved_pool_is_published_once(self) -> None:
        stack = Stack(zones((4, 2, 2), running=(2, 2, 2), bounds=[(0, 4)] * 3))
        for zone in "abc":
            stack.fail(zone)
        stack.runs(3)
        assert stack.bus.types.count("Pool Starved") == 1


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
        stack = Stack(zones(requested, running=running, bounds=[(min(pair), max(pair)) for pair in bounds]))
        for zone in failing:
            stack.fail(zone)
        errors: dict[str, Exception] = {
            "conflict": ConflictError("changed"),
            "rejected": RejectedError("no"),
            "unavailable": ClusterUnavailableError("gone"),
        }
        incidents = iter(incident)

        def answer(patch: Patch) -> None:
            what = next(incidents, None)
            group = stack.cluster.groups[patch.plan.group.key]
            new_bounds = patch.bounds or group.bounds
            new_requested = group.requested if patch.requested is None else patch.requested
            assert new_bounds is None or new_bounds.max >= new_requested
            assert new_requested >= min(group.running, group.requested), "a running node would go"
            if what == "scaled":
                stack.cluster.change(group.key, requested=group.requested + 1)
            elif what == "lost":  # written, and the answer is lost
                stack.answer_writes(None)
                stack.cluster.apply(patch, "lost", "none")
                stack.cluster.before_apply = answer
                raise ClusterUnavailableError("no answer")
            elif what is not None:
                raise errors[what]

        stack.cluster.before_apply = answer
        if kill_at is not None:
            stack.store.away_from = stack.store.calls + kill_at
        for _ in range(2):
            try:
                stack.run()
            except (StateUnavailableError, LeaseHeldError):
                stack.clock.at += 2 * MINUTE
            stack.store.away_from = None
        stack.answer_writes(None)
        stack.clock.at += 5 * MINUTE  # refused writes are retried after this time
        stack.runs(4)
        patched = len(stack.cluster.applied)
        stack.run()
        assert len(stack.cluster.applied) == patched, "a world without other writers comes to rest"


class TestOperate:
    @pytest.fixture
    def stack(self) -> Stack:
        return Stack(stack_dry_run=True)

    def test_a_new_cluster_is_registered_in_dry_run_and_checked(self, stack: Stack) -> None:
        answer = stack.ask("register", "new", record=RECORD)
        assert answer["ok"] is True
        assert answer["dryRun"] is True
        assert "new is registered in dry run" in answer["message"]
        assert stack.store.load("new").record.id == "new"
        assert stack.queue.clusters == ["new"]

    def test_registering_again_replaces_the_record_and_keeps_the_state(self, stack: Stack) -> None:
        stack.fail("a")
        answer = stack.ask("register", record={**RECORD, "dry_run": False})
        assert answer["message"] == "demo is updated and switched on"
        stored = stack.store.load("demo")
        assert stored.record.dry_run is False
        assert stored.record.pools == ()
        assert key("a") in stored.state.groups
        stack.store.plant("demo", "{")
        assert stack.ask("register", record=RECORD)["ok"] is True

    def test_plan_returns_the_changes_and_writes_nothing(self, stack: Stack) -> None:
        stack.journal.entries.clear()
        answer = stack.ask("plan")
        assert answer["message"] == "1 pool, 3 node groups would change"
        assert answer["plan"]["pools"][0]["name"] == "workers"
        assert [group["max"]["to"] for group in answer["plan"]["pools"][0]["groups"]] == [4, 4, 4]
        assert stack.journal.entries == ["load", "observe"]
        json.dumps(answer)

    def test_pause_and_resume(self, stack: Stack) -> None:
        assert "until resumed" in stack.ask("pause")["message"]
        assert stack.ask("status")["paused"] is True
        stack.ask("resume")
        assert stack.ask("status")["paused"] is False
        assert stack.queue.clusters == ["demo"]
        answer = stack.ask("pause", until="2026-01-15T14:00:00+01:00")
        until = "2026-01-15T13:00:00Z"
        assert answer["message"] == f"demo is paused until {until}: Evenkeel neither reads it nor writes to it"
        assert stack.ask("status")["pausedUntil"] == until

    def test_a_pause_that_meets_another_write_is_a_conflict(self, stack: Stack) -> None:
        stack.store.before_write.append(lambda sort_key: stack.store.plant("demo", record().model_dump_json()))
        with pytest.raises(StateConflictError) as caught:
            stack.ask("pause")
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
    def test_an_invalid_event_is_answered_with_one_sentence(self, stack: Stack, event: Any, says: str) -> None:
        with pytest.raises((BadRequestError, ConfigError)) as caught:
            stack.operate(event, plenty)
        message = answer_of_error(caught.value)["message"]
        assert says in message
        assert "\n" not in message
        assert len(message) < 1000
        assert stack.queue.clusters == []

    def test_plan_of_an_unreachable_cluster_is_one_sentence(self, stack: Stack) -> None:
        stack.cluster.unreadable = ClusterUnavailableError("demo does not answer")
        with pytest.raises(ClusterUnavailableError) as caught:
            stack.ask("plan")
        assert answer_of_error(caught.value) == {"ok": False, "retry": True, "message": "demo does not answer"}
