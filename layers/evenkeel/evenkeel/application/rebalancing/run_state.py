"""What one run remembers while it writes: what it has stored of each group and pool, and which machines it has marked.

A delete mark is set on machines that are about to go. One that stays on a machine that lives would make the next
scale-down take that machine in the place of an empty one; so the table knows of every mark before it is set.
"""

import logging
from dataclasses import dataclass, replace

from evenkeel.application.errors import AccessError, ClusterUnavailableError, ConflictError, RejectedError
from evenkeel.application.ports import StoredCluster
from evenkeel.application.rebalancing.ports import Cluster, RunStore
from evenkeel.domain.model.groups import GroupKey, NodeGroup, PoolId
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.states import GroupState, PoolState
from evenkeel.domain.rebalancing.writes import Patch
from evenkeel.state_records import ScaleRequestRecord

_log = logging.getLogger("evenkeel.rebalance")


@dataclass(frozen=True, kw_only=True)
class RunState:
    """What is remembered of the cluster, kept as it is written, each write on the version of the one before."""

    store: RunStore
    remembered: StoredCluster
    groups: dict[GroupKey, GroupState]
    pools: dict[PoolId, PoolState]
    scale_requests: dict[str, ScaleRequestRecord]  # by id

    def save_group(self, key: GroupKey, state: GroupState) -> None:
        """Raises StateConflictError, as the store does."""
        self.store.save_group(self.remembered.record.id, key, state, self.remembered.versions)
        self.groups[key] = state

    def save_pool(self, id: PoolId, state: PoolState) -> None:
        """What is remembered already is not written again. Raises StateConflictError."""
        if state == self.pools.get(id, PoolState()):
            return
        self.store.save_pool(self.remembered.record.id, id, state, self.remembered.versions)
        self.pools[id] = state

    def end_scale_request(self, record: ScaleRequestRecord, result: str) -> None:
        answered = record.model_copy(update={"done": True, "result": result[:1000]})
        self.save_scale_request(answered)

    def save_scale_request(self, record: ScaleRequestRecord) -> None:
        self.store.save_scale_request(self.remembered.record.id, record, self.remembered.versions)
        self.scale_requests[record.id] = record


def mark(api: Cluster, patch: Patch, run_state: RunState) -> None:
    """Mark the machines that are to go, and remember which before the first is: a mark left behind kills a node."""
    key = patch.plan.group.key
    names = api.deletion_candidates(patch)
    state = run_state.groups.get(key, GroupState())
    if names and not set(names) <= set(state.marked):
        run_state.save_group(key, replace(state, marked=tuple(sorted({*state.marked, *names}))))
    api.mark(patch, names, state.marked)


def marked_and_staying(pool: PoolPlan, run_state: RunState) -> list[NodeGroup]:
    """Groups with machines of which a run of ours marked some, and that nobody is about to shrink now."""
    return [
        plan.group
        for plan in pool.groups
        if plan.group.key in run_state.groups
        and run_state.groups[plan.group.key].marked
        and plan.group.frozen_because is None
        and plan.requested >= plan.group.requested
    ]


def unmark(groups: list[NodeGroup], api: Cluster, run_state: RunState) -> bool:
    """Take our marks off the machines that stayed. True: one has changed meanwhile, look again."""
    try:
        for group in groups:
            state = run_state.groups[group.key]
            if api.unmark(group, state.marked):
                run_state.save_group(group.key, replace(state, marked=()))
    except ConflictError:
        return True
    except (RejectedError, ClusterUnavailableError, AccessError) as error:  # the next look tries again
        _log.error("marks not taken off: %s", error, extra={"cluster": run_state.remembered.record.id})
    return False
