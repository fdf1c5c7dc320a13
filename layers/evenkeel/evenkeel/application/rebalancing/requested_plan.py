"""The plan of a run, and what of an operator's wishes is done with it: a restore, a pass of converge."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from evenkeel.application.ports import StoredCluster
from evenkeel.domain.model.convergence import PASS_LASTS
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.pools import is_called
from evenkeel.domain.model.states import PARTIAL_LIST_GRACE, ClusterState
from evenkeel.domain.plan import plan as make_plan
from evenkeel.domain.rebalancing.relief import holds_relief
from evenkeel.domain.rebalancing.restore import carries_ours
from evenkeel.record import ControlRecord

_log = logging.getLogger("evenkeel.look")


def plan_for(remembered: StoredCluster, policy: Policy, observation: Observation, now: datetime) -> Plan:
    """The plan of a run, and of whoever asks what a run would do.

    What runs in a cluster may be anything: where it is more than can be judged, that is told, and bounds go on.
    """
    state = remembered.state
    try:
        return make_plan(observation, state, policy, now)
    except Exception as error:  # of any kind; without pods and nodes it is raised again, if they are not to blame
        if observation.workload is None:
            raise
        problem = f"{type(error).__name__} while it was judged: please report this"
    _log.error("%s: its workload: %s", remembered.record.id, problem, extra={"cluster": remembered.record.id})
    return make_plan(replace(observation, workload=None, workload_unread=problem), state, policy, now)


def after_restore(control: ControlRecord, plan: Plan, state: ClusterState) -> tuple[ControlRecord, str] | None:
    """Return what actions have said, with what is restored paused for good, and a sentence; None: nothing changes.

    What no check has ever found may be absent by mistake: a second check must agree.
    """
    unfinished = [
        pool.id
        for pool in plan.pools
        if pool.awaits_check or any(carries_ours(group.group) for group in pool.groups) or holds_relief(pool.remembered)
    ]
    known = {*state.pools, *(pool.id for pool in plan.pools)}
    unknown = [name for name in control.restoring_pools if not any(is_called(id, [name]) for id in known)]
    if unknown or (control.restoring and not known):
        if control.nothing_since is None:
            return control.model_copy(
                update={"nothing_since": plan.now}
            ), "nothing was found: a second check must agree"
        if plan.now < control.nothing_since + PARTIAL_LIST_GRACE:
            return None
    control = control.model_copy(update={"nothing_since": None})
    if control.restoring:
        if unfinished:
            return None
        update = {"restoring": False, "restored": True, "paused": True, "paused_until": None, "restoring_pools": ()}
        return control.model_copy(update=update), "restored, and paused: nothing of ours is left in it"
    finished = [name for name in control.restoring_pools if not any(is_called(id, [name]) for id in unfinished)]
    if not finished:
        return None
    restoring = tuple(name for name in control.restoring_pools if name not in finished)
    paused = {**control.paused_pools, **dict.fromkeys(finished)}
    sentence = f"restored, and paused: pool {', '.join(finished)}: nothing of ours is left in it"
    restored = tuple(dict.fromkeys((*control.restored_pools, *finished)))
    of_pools = {"restoring_pools": restoring, "restored_pools": restored, "paused_pools": paused}
    return control.model_copy(update=of_pools), sentence


def still_asked(asked: Mapping[str, datetime], plan: Plan) -> dict[str, datetime]:
    """Of the pools that somebody has asked to be brought home, those that are not yet, and when that was asked."""
    under_way = [
        pool.id
        for pool in plan.pools
        if pool.awaits_check or (pool.converging is not None and (pool.converging.step or pool.converging.course))
    ]
    return {
        name: at
        for name, at in asked.items()
        if plan.now < at + PASS_LASTS and any(is_called(id, [name]) for id in under_way)
    }
