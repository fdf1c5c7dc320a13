"""All small worlds: every pool of up to three zones with up to two replicas each, as a check can read it.

The order of zones changes no plan (test_plan_properties.py), so each combination of zones is one world.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import combinations_with_replacement, product

from evenkeel.domain.model.choices import OnFailure, Strategy
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.policy import Policy, PoolRule
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from tests.builders import NOW, POOL, after_backoff, group, in_backoff, in_slow_start, stated
from tests.parts import make
from tests.property.worlds import World

#: (requested, running)
REPLICAS = [(requested, running) for requested in range(3) for running in range(requested + 1)]
#: name of a zone's state -> (fields of its group, its stored failures)
STATES = {
    "healthy": ({}, None),
    "out of machines": ({}, in_backoff(FailureClass.CAPACITY)),
    "misconfigured": ({}, in_backoff(FailureClass.CONFIGURATION)),
    "probing": ({}, after_backoff()),
    "paused": ({"frozen_because": stated(Rule.OBJECT_PAUSED)}, None),
    "slow start": ({}, in_slow_start(1, running_seen=0)),
    "may not grow": ({"launches_stopped": stated("Launch is suspended")}, None),
    "one at most": ({"zone_max": 1}, None),
    "max of 1 at least": ({"least_max": 1}, in_backoff(FailureClass.CAPACITY)),
    "impaired": ({"in_zone": "impaired"}, None),
}
#: (PoolMinimum, PoolMaximum): requested nodes often exceed the first PoolMaximum, and never the second
NUMBERS = [(0, 3), (4, 7)]
#: (on_failure, whether an autoscaler orders nodes)
FAILURES = [(OnFailure.RELEASE, True), (OnFailure.HOLD, True), (OnFailure.MOVE, True), (OnFailure.MOVE, False)]
SETTINGS = [(BALANCED, failure) for failure in FAILURES] + [(each, FAILURES[0]) for each in STRATEGIES[:-1]]
#: the states of three zones, each of which affects the others
OF_THREE = ("healthy", "out of machines", "probing", "paused")

Zone = tuple[tuple[int, int], str]


def small_worlds(counts: Iterable[int] = (1, 2, 3)) -> Iterator[World]:
    """Yield each small world with so many zones."""
    for count in counts:
        zones = combinations_with_replacement(product(REPLICAS, STATES if count < 3 else OF_THREE), count)
        for found, (strategy, failure), numbers in product(zones, SETTINGS, NUMBERS):
            yield _world(found, strategy, failure, *numbers)


def _world(zones: tuple[Zone, ...], strategy: Strategy, failure: tuple[OnFailure, bool], low: int, high: int) -> World:
    groups, states = [], {}
    for name, ((requested, running), state) in zip("abc", zones, strict=False):
        fields, stored = STATES[state]
        found = group(name, requested, running=running, bounds=(0, 2), **fields)
        groups.append(found)
        if stored is not None:
            states[found.key] = stored
    on_failure, autoscaler = failure
    rule = PoolRule(name=POOL, min=low, max=high, strategy=strategy, on_failure=on_failure)
    policy = make(Policy, strategy=BALANCED, pools=(rule,), autoscaler=autoscaler)
    impaired = {"impaired": NOW + timedelta(minutes=30)}
    return World(Observation(groups=tuple(groups)), ClusterState(groups=states, zones=impaired), policy)
