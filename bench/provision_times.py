"""A bench of learned provision timeouts: how often an order is taken for silent although its zone delivers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from datetime import timedelta

from bench.rows import Rows
from evenkeel.domain.model.groups import (
    PROVISION_TIMEOUT,
    AutoscalerOptions,
    GroupKey,
    GroupTemplate,
    Identity,
    Machine,
    NodeGroup,
    PoolId,
)
from evenkeel.domain.model.policy import PoolSettings
from evenkeel.domain.model.pools import Pool
from evenkeel.domain.model.provision_times import KEPT, ProvisionTimes
from evenkeel.domain.model.states import PoolState, ReplicasState
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.health.provision_times import order_timeout
from tests.builders import NOW

Draw = Callable[[random.Random], float]
_TYPE = "drawn"
SAMPLES = (20, 50, 200)  # known machines
SIZES = (1, 1, 2, 3, 5, 10)  # machines of an order


def _log_normal(median: float, p95: float) -> Draw:
    sigma = math.log(p95 / median) / 1.645
    return lambda chance: median * math.exp(sigma * chance.gauss(0, 1))


def _sometimes(share: float, usual: Draw, other: Draw) -> Draw:
    return lambda chance: other(chance) if chance.random() < share else usual(chance)


def _bare_metal(chance: random.Random) -> float:
    seconds = chance.uniform(600, 3000)
    return 2 * seconds if chance.random() < 0.15 else seconds


_USUAL = _log_normal(90, 177)
# Seconds from a machine's creation to its node. The owner of bare metal says how long it takes.
DISTRIBUTIONS: Mapping[str, tuple[Draw, timedelta | None]] = {
    "steady": (_log_normal(75, 96), None),
    "usual": (_USUAL, None),
    "heavy tail": (_sometimes(0.03, _USUAL, lambda chance: 300 + _USUAL(chance)), None),
    "image pulls": (_sometimes(0.2, _USUAL, lambda _: 240), None),
    "mixed types": (_sometimes(0.05, _USUAL, lambda _: 420), None),
    "large images": (_log_normal(400, 588), None),
    "bare metal": (_bare_metal, timedelta(hours=2)),
}


def false_timeouts(name: str, samples: int, orders: int, seed: int) -> tuple[float, float]:
    """Return the share of orders that were wrongly taken for silent, and the mean timeout in seconds.

    Every 50 orders have another sample of known machines.
    """
    chance, (draw, own) = random.Random(f"{seed}/{name}/{samples}"), DISTRIBUTIONS[name]
    wrong, seconds = 0, 0.0
    for number in range(orders):
        if number % 50 == 0:  # a new sample for every 50 orders
            times = ProvisionTimes().with_times(timedelta(seconds=draw(chance)) for _ in range(samples))
        size = chance.choice(SIZES)
        timeout = _timeout(times, size, own).total_seconds()
        wrong += all(draw(chance) >= timeout for _ in range(size))
        seconds += timeout
    return wrong / orders, seconds / orders


def _timeout(times: ProvisionTimes, size: int, own: timedelta | None) -> timedelta:
    """Return how long an order of this size may be silent."""
    machines = tuple(Machine(name=str(number), has_node=False, created_at=NOW) for number in range(size))
    group = NodeGroup(
        key=GroupKey("cluster-api", "bench", "a"),
        identity=Identity(kind="MachineDeployment", zone="a"),
        requested=size,
        machines=machines,
        options=AutoscalerOptions(provision_timeout=own),
        template=GroupTemplate(machine_type=_TYPE),
    )
    pool = Pool(
        id=PoolId("cluster-api", "bench", "", "workers"),
        groups=(group,),
        settings=PoolSettings(strategy=BALANCED, timeout_mode="auto"),
        state=PoolState(replicas=ReplicasState(provision_times={_TYPE: times})),
        min=0,
        max=100,
    )
    return order_timeout(pool, group, NOW + PROVISION_TIMEOUT)


def provision_times(orders: int = 20_000, seed: int = 1) -> Rows:
    """Draw orders from distributions of provision times. An order is silent if none of its machines joins in time."""
    yield f"wrongly silent per 1,000 orders, and mean timeout in s; {orders:,} orders each, at most {KEPT} samples"
    for name in DISTRIBUTIONS:
        for samples in SAMPLES:
            share, seconds = false_timeouts(name, samples, orders, seed)
            yield f"{name}, {samples} samples", {"per 1,000": 1000 * share, "s": seconds}
