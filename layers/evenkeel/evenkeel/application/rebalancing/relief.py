"""Writing a Shoot's maximum: remembered before, so that no number of ours is ever taken for anybody's wish."""

import logging
from collections.abc import Callable
from dataclasses import replace

from evenkeel.application.errors import AccessError, ClusterUnavailableError, ConflictError, RejectedError, contained
from evenkeel.application.ports import Clock
from evenkeel.application.rebalancing.ports import Cluster
from evenkeel.application.rebalancing.run_state import RunState, RunSummary
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.relief import Relief
from evenkeel.domain.model.states import PoolState
from evenkeel.domain.rebalancing.relief import refused

_log = logging.getLogger("evenkeel.rebalance")


def write_relief(
    pool: PoolPlan, api: Cluster, run_state: RunState, summary: RunSummary, clock: Clock, is_late: Callable[[], bool]
) -> bool:
    """Write what the pool's Shoot is to have, where there is time for it. True: it has changed since it was read.

    Raises StateConflictError: then nothing was written.
    """
    step = pool.relief
    if step is None or is_late():
        return False

    def remember(relief: Relief) -> None:
        run_state.save_pool(pool.id, replace(run_state.pools.get(pool.id, PoolState()), relief=relief))

    def write() -> None:
        api.write_shoot_maximum(step.shoot, step.worker, step.maximum)

    remember(step.before)
    try:
        contained(summary.cluster, "its Shoot was written", write)
    except ConflictError:
        return True
    except RejectedError as error:
        _log.error("Shoot not written: %s", error, extra={"cluster": summary.cluster})
        remember(refused(step, str(error), clock.now()))
        return False
    except (ClusterUnavailableError, AccessError) as error:  # of the garden: the next look sees what stands there
        _log.error("Shoot not written: %s", error, extra={"cluster": summary.cluster})
        summary.doubtful = True
        return False
    summary.writes.append(f"{step.shoot.ref}, {step.worker}")
    remember(step.after)
    return False
