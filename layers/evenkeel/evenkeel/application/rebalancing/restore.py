"""Find out which restores, and which requested passes of convergence, are done."""

from collections.abc import Mapping
from datetime import datetime

from evenkeel.domain.model.convergence import PASS_LASTS
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.pools import is_called
from evenkeel.domain.model.second_checks import doubted_since, is_confirmed
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.domain.rebalancing.restore import carries_ours
from evenkeel.record import ControlRecord


def after_restore(
    control: ControlRecord, plan: Plan, state: ClusterState, groups: Mapping[GroupKey, GroupState]
) -> tuple[ControlRecord, str] | None:
    """Return the control item after finished restores, and a sentence about the change; None: no change.

    ``groups``: the groups' states after this run. While a list of machines is in doubt, delete marks stay, and a
    paused cluster would keep them.

    After its restore, a cluster or pool is paused without end. A pool that is neither in the plan nor in the stored
    state may be missing by mistake. So a second check must confirm that the pool is missing.
    """
    if not (control.restoring or control.restoring_pools):
        return None
    unfinished = [
        pool.id
        for pool in plan.pools
        if pool.awaits_check
        or any(carries_ours(group.group, state.pools.get(pool.id)) for group in pool.groups)
        or any(groups[group.group.key].marked for group in pool.groups if group.group.key in groups)
        or any(part.blocks_restore for part in pool.next_state.parts.values())
    ]
    known = {*state.pools, *(pool.id for pool in plan.pools)}
    unknown = [name for name in control.restoring_pools if not any(is_called(id, [name]) for id in known)]
    if unknown or (control.restoring and not known):
        since = doubted_since(control.nothing_since, plan.now)
        if not is_confirmed(since, plan.now):
            doubted = control.model_copy(update={"nothing_since": since})
            return None if since == control.nothing_since else (doubted, "nothing was found: a second check must agree")
    was_doubted = control.nothing_since is not None
    control = control.model_copy(update={"nothing_since": None})
    still_restoring = (control, "it is found again") if was_doubted else None
    if control.restoring:
        if unfinished:
            return still_restoring
        update = {"restoring": False, "restored": True, "paused": True, "paused_until": None, "restoring_pools": ()}
        return control.model_copy(update=update), "restored, and paused: nothing of ours is left in it"
    finished = [name for name in control.restoring_pools if not any(is_called(id, [name]) for id in unfinished)]
    if not finished:
        return still_restoring
    restoring = tuple(name for name in control.restoring_pools if name not in finished)
    paused = {**control.paused_pools, **dict.fromkeys(finished)}
    sentence = f"restored, and paused: pool {', '.join(finished)}: nothing of ours is left in it"
    restored = tuple(dict.fromkeys((*control.restored_pools, *finished)))
    of_pools = {"restoring_pools": restoring, "restored_pools": restored, "paused_pools": paused}
    return control.model_copy(update=of_pools), sentence


def unfinished_passes(requested: Mapping[str, datetime], plan: Plan) -> dict[str, datetime]:
    """Return the requested passes of convergence that are not done: name of the pool -> time of the request."""
    under_way = [
        pool.id
        for pool in plan.pools
        if pool.awaits_check
        or (pool.convergence.report is not None and (pool.convergence.report.step or pool.convergence.report.course))
    ]
    return {
        name: at
        for name, at in requested.items()
        if plan.now < at + PASS_LASTS and any(is_called(id, [name]) for id in under_way)
    }
