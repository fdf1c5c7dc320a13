"""The patches of one plan on their way to a cluster, in order, and what came of each group's.

Every fence is written before the first machine is marked, and no write waits for one that it does not rest on: what
shrinks depends on nothing, what grows in a pool on all that shrinks there.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from evenkeel.application.errors import AccessError, ClusterUnavailableError, ConflictError, RejectedError, contained
from evenkeel.application.ports import Clock, Executor, sequentially
from evenkeel.application.rebalancing.ports import Cluster
from evenkeel.application.rebalancing.run_state import RunState, RunSummary, mark
from evenkeel.domain.model.groups import GroupKey, PublishedBounds
from evenkeel.domain.model.outcomes import Outcome, Result
from evenkeel.domain.model.plans import GroupPlan, PoolPlan
from evenkeel.domain.model.states import PoolState
from evenkeel.domain.rebalancing.annotations import write_adopted, write_published
from evenkeel.domain.rebalancing.writes import Patch, fence_first, grows, in_safe_order, is_complete, patches, widens
from evenkeel.texts.english import sentences

_log = logging.getLogger("evenkeel.rebalance")

_NO_TIME = Outcome(Result.NOT_TRIED, "no time left")
_NOT_COPIED = Outcome(Result.WAITS, "the owner of its bounds has not copied them yet")


@dataclass(frozen=True, kw_only=True)
class Writer:
    """Writes one plan. ``outcomes`` has every group that was tried; the summary counts the patches."""

    api: Cluster
    run_state: RunState
    summary: RunSummary
    clock: Clock
    together: Executor
    is_late: Callable[[], bool]  # whether there is no time for another patch
    outcomes: dict[GroupKey, Outcome] = field(default_factory=dict)

    def has(self, result: Result, group: GroupPlan) -> bool:
        outcome = self.outcomes.get(group.group.key)
        return outcome is not None and outcome.result is result

    def write(self, pools: Sequence[PoolPlan]) -> None:
        """Patch everything, in an order in which what a write rests on has been written before it.

        Fences need no marks, so all of them come before the first machine is marked.
        """
        shrinking = [(pool, group) for pool in pools for group in in_safe_order(pool.changes) if not grows(group)]
        fences = [(pool, group, patch) for pool, group in shrinking if (patch := fence_first(group)) is not None]
        self._write_together([(group, partial(self._fence, pool, group, patch)) for pool, group, patch in fences])
        self._write_groups([(pool, group) for pool, group in shrinking if not group.lowers_requested])
        self._write_groups([(pool, group) for pool, group in shrinking if group.lowers_requested])
        for last in (False, True):  # replicas may rise while max falls: the room that it leaves is given out after
            self._write_groups([(pool, group) for pool in pools for group in self._growing(pool, widening=last)])

    def _growing(self, pool: PoolPlan, *, widening: bool) -> list[GroupPlan]:
        """Return the groups that grow, those whose max rises or the others; none if a write before failed."""
        before = [group for group in pool.changes if not grows(group) or (widening and not widens(group))]
        if not all(self.has(Result.WRITTEN, group) for group in before):
            return []
        return [group for group in in_safe_order(pool.changes) if grows(group) and widens(group) is widening]

    def _write_groups(self, groups: Sequence[tuple[PoolPlan, GroupPlan]]) -> None:
        self._write_together([(group, partial(self._write_group, pool, group)) for pool, group in groups])

    def _write_together(self, tasks: Sequence[tuple[GroupPlan, Callable[[], None]]]) -> None:
        """Side by side, but for groups whose bounds stand on one object: those one after the other."""
        by_object: dict[str, list[Callable[[], None]]] = {}
        for group, task in tasks:
            by_object.setdefault(self.api.object_of(group.group.key), []).append(task)
        if by_object:
            self.together([partial(sequentially, of_object) for of_object in by_object.values()])

    def _fence(self, pool: PoolPlan, group: GroupPlan, patch: Patch) -> None:
        """The fence alone. The rest of the group's change follows, unless this one failed."""
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
                    # A patch per machine, so the time is looked at again.
                    contained(cluster, "machines were marked", partial(mark, self.api, patch, self.run_state))
                if self.is_late():
                    return _NO_TIME
                contained(cluster, "it was written", partial(self._apply, pool, patch))
                self.summary.writes.append(str(key))
        except ConflictError as error:
            return Outcome(Result.CONFLICT, str(error))
        except RejectedError as error:
            _log.error("write refused: %s", error, extra={"cluster": cluster, "group": str(key)})
            return Outcome(Result.REJECTED, str(error))
        except ClusterUnavailableError as error:
            self.summary.unreachable = self.summary.doubtful = True
            return Outcome(Result.UNKNOWN, str(error))
        except AccessError as error:  # the credential ran out between two patches, and there is no other
            self.summary.unreachable = True
            return Outcome(Result.NOT_WRITTEN, str(error))
        return Outcome(Result.WRITTEN)

    def _apply(self, pool: PoolPlan, patch: Patch) -> None:
        plan, group = patch.plan, patch.plan.group
        # Bounds alone are also what replicas wait for: they stand as they were until the next look.
        is_last = patch.requested is not None or (patch.bounds == plan.bounds is not None and is_complete(plan))
        requested = plan.requested if is_last else group.requested
        # Lowered by the owner of the bounds, they stand as they were for a moment: nobody has put them back then.
        by_owner = group.two_objects and patch.bounds is not None and patch.requested is not None
        published = PublishedBounds(
            at=self.clock.now(),
            bounds=patch.bounds or group.bounds,
            state=plan.state,
            requested=requested,
            before=group.requested if requested != group.requested and not by_owner else None,
            pinned=group.pinned if patch.bounds is None else patch.pins,
        )
        decision = write_published(published, plan.requested, "; ".join(sentences(plan.reasons)))
        move = self.run_state.pools.get(pool.id, PoolState()).move
        is_step = move is not None and plan.journal_delta and patch.requested is not None
        self.api.apply(
            patch, decision, write_adopted(pool.adopted.get(str(group.key))), move.id if move and is_step else None
        )
