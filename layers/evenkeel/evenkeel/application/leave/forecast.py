"""The forecast for leaving a zone: the nodes that move, the pods that stay, and the time that it takes at least."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from evenkeel.domain.leave.model import Progress, last_start
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.policy import Leave
from evenkeel.texts.english import counted, rfc3339, sentence, some_names


def forecast_of(leave: Leave, pools: Sequence[PoolPlan], now: datetime) -> tuple[dict[str, Any], str]:
    """Return the forecast from the plans of the pools that leave the zone: for programs, and as a line."""
    found = [(pool, progress) for pool in pools if (progress := pool.parts.of(Progress)) is not None]
    moving = sum(progress.moving for _, progress in found)
    ends = [last_start(progress.moving, progress.converge, now) for _, progress in found]
    if leave.per_hour is not None and found:
        of_cluster = replace(found[0][1].converge, per_hour=leave.per_hour)
        ends.append(last_start(moving, of_cluster, now))
    last = None if None in ends else max(filter(None, ends), default=now)
    document = {
        "zone": leave.zone,
        "until": None if leave.until is None else rfc3339(leave.until),
        "moving": moving,
        "lastAt": None if last is None else rfc3339(last),
        "pools": [_pool_json(pool, progress) for pool, progress in found],
    }
    return document, _text(document)


def _pool_json(pool: PoolPlan, progress: Progress) -> dict[str, Any]:
    report = pool.convergence.report
    return {
        "pool": pool.id.name,
        "nodes": progress.nodes,
        "moving": progress.moving,
        "perHour": progress.converge.per_hour,
        "stays": [{"node": node, "why": sentence(why)} for node, why in progress.stays],
        "waits": None if report is None or report.why is None else sentence(report.why),
    }


def _text(document: dict[str, Any]) -> str:
    moving, pools, last = document["moving"], document["pools"], document["lastAt"]
    parts = [f"{counted(moving)} to move"]
    if moving:
        parts += [f"at most {pool['perHour']} an hour in pool {pool['pool']}" for pool in pools]
        parts.append("no window ever opens" if last is None else f"the last one not before {last}")
    stays = [each["why"] for pool in pools for each in pool["stays"]]
    parts += [f"pods that cannot move: {some_names(stays)}"] if stays else []
    return "; ".join(
        [", ".join(parts), *(f"pool {pool['pool']} waits: {pool['waits']}" for pool in pools if pool["waits"])]
    )
