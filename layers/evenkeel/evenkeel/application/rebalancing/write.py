"""Write one plan to a cluster: either agreed fixes, or delete marks, patches and writes to other objects.

All fences are written before the first machine is marked. A write that shrinks a group does not wait for writes
to other groups. A write that grows a group starts after all shrinking writes of its pool.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from evenkeel.application.errors import (
    AccessError,
    ClusterUnavailableError,
    ConflictError,
    DrainingError,
    RejectedError,
    TooLateError,
    contained,
)
from evenkeel.application.ports import Clock, Executor, sequentially
from evenkeel.application.rebalancing.ports import Cluster
from evenkeel.application.rebalancing.run_state import RunState, RunSummary
from evenkeel.domain.model.groups import Bounds, GroupKey, NodeGroup, PublishedBounds
from evenkeel.domain.model.outcomes import Outcome, Result
from evenkeel.domain.model.overwritten import Found, found
from evenkeel.domain.model.owner_intent import desired_bounds_of
from evenkeel.domain.model.parts import Write
from evenkeel.domain.model.plans import GroupPlan, Plan, PoolPlan
from evenkeel.domain.model.second_checks import SECOND_CHECK_AFTER, doubted_since, is_confirmed
from evenkeel.domain.model.states import GroupState, PoolState
from evenkeel.domain.rebalancing.annotations import write_adopted, write_published
from evenkeel.domain.rebalancing.membership.lost_groups import is_lost
from evenkeel.domain.rebalancing.writes import (
    Patch,
    Stage,
    fence_first,
    in_safe_order,
    is_complete,
    patches,
    stage_of,
)
from evenkeel.record import FixEntry
from evenkeel.texts.english import sentence, sentences

_log = logging.getLogger("evenkeel.rebalance")

_NO_TIME = Outcome(Result.NOT_TRIED, "no time left")
_NOT_COPIED = Outcome(Result.WAITS, "the owner of its bounds has not copied them yet")


FixOutcomes = Sequence[tuple[FixEntry, Outcome]]
"""Each fix that was tried, with its outcome."""


@dataclass(frozen=True, kw_only=True)
class Writer:
    """Writes one plan. ``outcomes`` has the outcome of every group that was tried; the summary counts the patches."""

    api: Cluster
    run_state: RunState
    summary: RunSummary
    clock: Clock
    together: Executor
    is_late: Callable[[], bool]  # returns True if no time is left for another patch
    outcomes: dict[GroupKey, Outcome] = field(default_factory=dict)

    # Agreed fixes

    def fix(self, fixes: Sequence[FixEntry], plan: Plan, dry_run: Mapping[str, bool]) -> FixOutcomes:
        """Write the fixes that an operator agreed to, until no time is left.

        ``dry_run``: by pool id, True if the pool is in dry run. An object is written only if it still has the number
        that the operator saw. A repeated fix recognizes the number that it wrote, and does not write again.

        Raises ConflictError, ClusterUnavailableError, AccessError. Every fix is then tried again.
        """
        groups = {str(group.group.key): group.group for pool in plan.pools for group in pool.groups}
        states = {str(group.group.key): pool.next_state for pool in plan.pools for group in pool.groups}
        outcomes: list[tuple[FixEntry, Outcome]] = []
        for entry in fixes:
            group = groups.get(entry.group)
            desired = None if group is None or not entry.owner else desired_bounds_of(group, states[entry.group])
            outcome = Outcome(Result.PLANNED) if dry_run[entry.pool] else _obstacle(entry, group, desired)
            if outcome is not None or not self.is_late():
                outcomes.append((entry, outcome or self._write_fix(entry, desired)))
        self.summary.writes += ["pool-max" for _, outcome in outcomes if outcome.result is Result.WRITTEN]
        return outcomes

    def _write_fix(self, entry: FixEntry, desired: Bounds | None) -> Outcome:
        key = GroupKey.read(entry.group)
        try:
            if desired is None:
                self.api.write_pool_maximum(key, entry.after)
            else:
                self.api.write_owner_numbers(key, Bounds(desired.min, entry.after))
        except RejectedError as error:
            return Outcome(Result.REJECTED, str(error))
        return Outcome(Result.WRITTEN)

    # Delete marks. When a group's replicas are lowered next, its marked machines are deleted, even if the plan has
    # changed. So each mark is stored in the table before it is set.

    def mark(self, patch: Patch) -> None:
        """Mark the machines that this patch removes."""
        names = self.api.deletion_candidates(patch)
        key = patch.plan.group.key
        state = self.run_state.groups.get(key, GroupState())
        if names and not set(names) <= set(state.marked):
            marked = tuple(sorted({*state.marked, *names}))
            self.run_state.save_group(key, replace(state, marked=marked, marks_doubted_since=None, marks_hidden=()))
        self.api.mark(patch, names, state.marked)

    def unmark(self, groups: Sequence[NodeGroup]) -> bool:
        """Remove Evenkeel's marks from these groups. Return True if a machine has changed and must be read again.

        A mark is forgotten only if its machine was listed, or if a second check does not find the machine either.
        """
        try:
            for group in groups:
                self._unmark(group)
        except ConflictError:
            return True
        except (RejectedError, ClusterUnavailableError, AccessError) as error:  # the next run tries again
            _log.error("marks not taken off: %s", error, extra={"cluster": self.summary.cluster})
        return False

    def _unmark(self, group: NodeGroup) -> None:
        before, now = self.run_state.groups[group.key], self.clock.now()
        first = before.marks_doubted_since
        confirms = is_confirmed(doubted_since(first, now), now)
        left = self.api.unmark(group, before.marked, before.marks_hidden if confirms else None)
        state = replace(before, marks_doubted_since=None, marks_hidden=())
        if left is None:
            state = replace(state, marked=())
        elif left.is_doubtful:
            is_same = set(left.hidden) <= set(before.marks_hidden)
            since = doubted_since(first if is_same else None, now)
            state = replace(state, marks_doubted_since=since, marks_hidden=left.hidden)
            second = since + SECOND_CHECK_AFTER
            self.summary.check_at = min(second, self.summary.check_at or second)
        if state != before:
            self.run_state.save_group(group.key, state)

    # Patches

    def write(self, pools: Sequence[PoolPlan]) -> None:
        """Patch all groups, stage by stage. Fences need no delete marks, so they are written first."""
        staged = [(pool, group, stage_of(group)) for pool in pools for group in in_safe_order(pool.changes)]
        shrinking = [(pool, group) for pool, group, stage in staged if not stage.grows]
        fences = [(pool, group, patch) for pool, group in shrinking if (patch := fence_first(group)) is not None]
        self._write_together([(group, partial(self._fence, pool, group, patch)) for pool, group, patch in fences])
        for now in Stage:
            self._write_together(
                [
                    (group, partial(self._write_group, pool, group))
                    for pool, group, stage in staged
                    if stage is now and self._may_begin(pool, stage)
                ]
            )

    def _may_begin(self, pool: PoolPlan, stage: Stage) -> bool:
        """Return True if the pool's groups of a stage may be written.

        Groups that grow may be written only if all earlier writes of their pool have succeeded.
        """
        earlier = (self.outcomes.get(group.group.key) for group in pool.changes if stage_of(group) < stage)
        return not stage.grows or all(outcome is not None and outcome.result is Result.WRITTEN for outcome in earlier)

    def _write_together(self, tasks: Sequence[tuple[GroupPlan, Callable[[], None]]]) -> None:
        """Run the tasks in parallel, but those of one turn in sequence."""
        by_turn: dict[str, list[Callable[[], None]]] = {}
        for group, task in tasks:
            by_turn.setdefault(self.api.turn_of(group.group.key), []).append(task)
        if by_turn:
            self.together([partial(sequentially, turn) for turn in by_turn.values()])

    def _fence(self, pool: PoolPlan, group: GroupPlan, patch: Patch) -> None:
        """Write only a group's fence. If that succeeds, ``_write_group`` writes the other changes."""
        outcome = self._try(pool, group, [patch])
        if outcome.result is not Result.WRITTEN:
            self.outcomes[group.group.key] = outcome

    def _write_group(self, pool: PoolPlan, group: GroupPlan) -> None:
        if group.group.key in self.outcomes:
            return  # its fence was not written
        outcome = self._try(pool, group, patches(group))
        if outcome.result is Result.WRITTEN and not is_complete(group):
            outcome = _NOT_COPIED
        self.outcomes[group.group.key] = outcome
        if outcome.result is Result.WRITTEN and group.failed_at is not None:
            seconds = (self.clock.now() - group.failed_at).total_seconds()
            self.summary.seconds_to_patch.append(max(0.0, seconds))

    def _try(self, pool: PoolPlan, group: GroupPlan, steps: Sequence[Patch]) -> Outcome:
        """Write the patches of one group, until one of them fails."""
        key, cluster = group.group.key, self.summary.cluster
        try:
            for patch in steps:
                if patch.lowers_requested and not self.is_late():
                    contained(cluster, "machines were marked", partial(self.mark, patch))
                if self.is_late():  # tested again, because marking takes one patch per machine
                    return _NO_TIME
                contained(cluster, "it was written", partial(self._apply, pool, patch))
                self.summary.writes.append(str(key))
        except ConflictError as error:
            return Outcome(Result.CONFLICT, str(error))
        except DrainingError as error:
            return Outcome(Result.WAITS, str(error))
        except TooLateError:
            return _NO_TIME
        except RejectedError as error:
            _log.error("write refused: %s", error, extra={"cluster": cluster, "group": str(key)})
            return Outcome(Result.REJECTED, str(error))
        except ClusterUnavailableError as error:
            self.summary.unreachable = self.summary.doubtful = True
            return Outcome(Result.UNKNOWN, str(error))
        except AccessError as error:  # the credential has expired between two patches
            self.summary.unreachable = True
            return Outcome(Result.NOT_WRITTEN, str(error))
        return Outcome(Result.WRITTEN)

    def _apply(self, pool: PoolPlan, patch: Patch) -> None:
        plan, group = patch.plan, patch.plan.group
        # A patch that only prepares the bounds publishes the old replicas, because a later patch changes the replicas.
        is_last = patch.requested is not None or (patch.bounds == plan.bounds is not None and is_complete(plan))
        requested = plan.requested if is_last else group.requested
        # The owner of the bounds lowers the replicas a moment later. Until then, the old number does not count as a
        # contested write.
        by_owner = group.owner.two_objects and patch.bounds is not None and patch.requested is not None
        published = PublishedBounds(
            at=self.clock.now(),
            bounds=patch.bounds or group.bounds,
            state=plan.state,
            requested=requested,
            before=group.requested if requested != group.requested and not by_owner else None,
            pinned=group.ours.pinned if patch.bounds is None else patch.pins,
        )
        decision = write_published(published, plan.requested, "; ".join(sentences(plan.reasons, group.key.flavour)))
        move = self.run_state.pools.get(pool.id, PoolState()).move
        is_step = move is not None and plan.journal_delta and patch.requested is not None
        raises = patch.bounds is not None and group.bounds is not None and patch.bounds.max > group.bounds.max
        if raises and not patch.leaves:
            self.api.confirm([each.group.key for each in pool.groups if each is not plan])
        self.api.apply(
            patch, decision, write_adopted(pool.adopted.get(str(group.key))), move.id if move and is_step else None
        )

    # Other objects than groups

    def write_others(self, pool: PoolPlan) -> bool:
        """Write the pool's other objects, while time is left. Return True if one has changed since its read.

        A value is stored before it is written, so that Evenkeel never mistakes it for one that the object's owner set.
        Raises StateConflictError.
        """
        return any(self._write_other(pool, step) for step in pool.parts.writes if not self.is_late())

    def _write_other(self, pool: PoolPlan, step: Write[Any]) -> bool:
        def store(part: Any) -> None:
            state = self.run_state.pools.get(pool.id, PoolState())
            self.run_state.save_pool(pool.id, replace(state, parts=state.parts.plus(type(part), part)))

        write = partial(self.api.others[type(step)].write, step)
        store(step.before)
        try:
            contained(self.summary.cluster, f"{step.name} was written", write)
        except ConflictError:
            return True
        except RejectedError as error:
            _log.error("not written: %s", error, extra={"cluster": self.summary.cluster})
            store(step.refused(str(error), self.clock.now()))
            return False
        except (ClusterUnavailableError, AccessError) as error:  # its API failed; the next check reads it again
            _log.error("not written: %s", error, extra={"cluster": self.summary.cluster})
            self.summary.doubtful = True
            return False
        self.summary.writes.append(step.name)
        store(step.after)
        return False


def marked_and_staying(pool: PoolPlan, run_state: RunState) -> list[NodeGroup]:
    """Return the groups that have machines with Evenkeel's delete mark, but that this plan does not shrink.

    A frozen group keeps its marks until it thaws. But AWS ends no instance of a group without its tags for Evenkeel.
    """
    return [
        plan.group
        for plan in pool.groups
        if plan.group.key in run_state.groups
        and run_state.groups[plan.group.key].marked
        and (plan.group.frozen_because is None or is_lost(plan.group))
        and plan.requested >= plan.group.requested
    ]


def _obstacle(entry: FixEntry, group: NodeGroup | None, desired: Bounds | None) -> Outcome | None:
    """Return the outcome of a fix that must not be written; None: the fix may be written."""
    if not entry.group:  # a fix of the record; the operator agreed to it in dry run, which does not write the record
        return Outcome(Result.NOT_WRITTEN, "it is a number of the record: validate again")
    if group is None:
        return Outcome(Result.NOT_WRITTEN, "it is no node group any more")
    if entry.owner and (desired is None or group.owner.numbers is None or group.owner.numbers.ref.id != entry.owner):
        return Outcome(Result.NOT_WRITTEN, "its owner is another one by now: validate again")
    current = group.annotations.pool_max if desired is None else desired.max
    whose = found(current, entry.before, (entry.after,))
    if whose is Found.OURS:
        return Outcome(Result.LEFT_ALONE, "it is as it should be")
    if whose is Found.NEW or group.unreadable.faults:
        return Outcome(Result.NOT_WRITTEN, f"it has changed since, to {current}: validate again")
    if group.frozen_because is not None:
        return Outcome(Result.NOT_WRITTEN, sentence(group.frozen_because, group.key.flavour))
    return None
