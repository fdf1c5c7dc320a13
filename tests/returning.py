"""A pool and its fallbacks in a drought, with runs that fail or die. The simulation is checked at every write."""

import contextlib
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evenkeel.application.errors import ClusterUnavailableError, EvenkeelError
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.rebalancing.writes import Patch
from evenkeel_cli.simulation.engine import Run, variants_of
from evenkeel_cli.simulation.scenario import Scenario, read_scenario
from tests.crashing import How, KilledError, Life, Mortal

MINUTE, HOUR = 60, 3600
RECOVERY = 70 * MINUTE  # when the machine types of the drought are available again
ENDS = 6 * HOUR


class _Clusters:
    """Opens the cluster for one life. The world checks each patch."""

    def __init__(self, world: "World", life: Life) -> None:
        self.world, self.life = world, life

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world.run.evenkeel, name)

    def open(self, *arguments: Any, **named: Any) -> Any:
        cluster = self.world.run.evenkeel.open(*arguments, **named)
        apply = cluster.apply

        def applied(patch: Patch, *others: Any) -> None:
            self.world.before(patch)
            apply(patch, *others)
            self.world.after()

        cluster.apply = applied
        return Mortal(cluster, self.life, "cluster", ClusterUnavailableError)


class World:
    """One scenario. ``harm`` is the share of runs with a fault, until two hours before its end."""

    def __init__(self, scenario: Scenario, variant: str, chance: random.Random, harm: float) -> None:
        (found,) = variants_of(scenario, variant)
        self.run = Run(scenario, found)
        self.scenario, self.chance, self.harm = scenario, chance, harm
        self.wrong: Counter[str] = Counter()
        self.orders: list[tuple[str, int]] = []  # the pool and second of each order of a step
        self.levels = False  # True: a step within one pool has begun
        self.given: list[int] = []  # the second of each machine that a fallback has given
        # First pool with a return in progress -> its fallback, and the most nodes that both may request meanwhile.
        self.limits: dict[str, tuple[str, int]] = {}
        self.table, self._check = self.run.evenkeel.table, self.run.evenkeel.check
        self.run.evenkeel.check = self.check  # type: ignore[method-assign]

    def check(self) -> None:
        life = Life()
        if self.run.world.now < ENDS - 2 * HOUR and self.chance.random() < self.harm:
            life = Life(at=self.chance.randrange(30), how=self.chance.choice([How.BEFORE, How.AFTER, How.LOST]))
        evenkeel, seen = self.run.evenkeel, self.requested
        ports: Any = {"store": Mortal(self.table, life, "table"), "clusters": _Clusters(self, life)}
        evenkeel._rebalance = replace(evenkeel._rebalance, **ports)
        # A run that could not read its cluster has no plan, which the simulation reports as a RuntimeError.
        harms = () if life.at is None else (KilledError, EvenkeelError, RuntimeError)
        with contextlib.suppress(*harms):
            self._check()
        self._check_over(seen if life.at is None else {})

    @property
    def requested(self) -> dict[str, int]:
        of_pool = self.run.world.of_pool
        return {pool: sum(group.requested for group in groups) for pool, groups in of_pool.items()}

    @property
    def steps(self) -> Mapping[str, Any]:
        states = {id.name: state.convergence.step for id, state in self.table.pools.items()}
        return {name: step for name, step in states.items() if step is not None}

    @property
    def held(self) -> dict[str, int]:
        return {id.name: sum(state.held_nodes.values()) for id, state in self.table.pools.items()}

    def before(self, patch: Patch) -> None:
        """Note the limits that the patch changes: a step begins, or pods and minima get nodes."""
        more = 0 if patch.requested is None else patch.requested - patch.plan.group.requested
        pool, rules = str(patch.plan.group.identity.pool_label), {reason.rule: reason for reason in patch.plan.reasons}
        is_step = bool(rules.keys() & {Rule.STEP_ORDERS, Rule.RETURN_ORDERS})
        self.levels |= Rule.STEP_ORDERS in rules
        if more > 0 and is_step:
            self.orders.append((pool, self.run.world.now))
        if more < 0 and Rule.RETURN_GIVES in rules:
            self.given.append(self.run.world.now)
        if more > 0 and Rule.RETURN_ORDERS in rules:
            key = rules[Rule.RETURN_ORDERS].facts["group"]
            fallback = next(group.pool for group in self.run.world.groups if str(group.key) == key)
            self.limits[pool] = fallback, self.requested[pool] + self.requested[fallback] + 1
            return
        for first, (fallback, limit) in self.limits.items():
            if more > 0 and pool in (first, fallback):
                self.limits[first] = fallback, limit + more

    def after(self) -> None:
        for first, (fallback, limit) in self.limits.items():
            total = self.requested[first] + self.requested[fallback]
            self.wrong["more than one node above what was"] += total > limit
        for pool in self.scenario.pools:
            self.wrong["above PoolMaximum"] += self.requested[pool.name] > pool.max

    def _check_over(self, seen: Mapping[str, int]) -> None:
        """Check the stored state after a check. ``seen``: the replicas before a check without a fault."""
        steps = self.steps
        self.limits = {first: limit for first, limit in self.limits.items() if first in steps}
        fallbacks = [step.order.fallback for step in steps.values() if step.order.fallback]
        incidents = self.table.cluster_health(self.table.record.id)[0].incidents
        if "bound" not in {pods.name for pods in self.scenario.pods}:
            self.wrong["an incident of nodes that a fallback took"] += any(one.not_reordered for one in incidents)
        self.wrong["two steps on one fallback"] += len(fallbacks) > len(set(fallbacks))
        for pool, nodes in seen.items():
            spare = max(0, nodes - self.scenario.pool_named(pool).min)
            self.wrong["held more than it had"] += self.held.get(pool, 0) > spare

    def play(self) -> "World":
        record = self.run()
        if not self.levels:  # a step within a pool may count an upcoming node as a place
            quiet = [shot.pods for shot in record.snapshots if shot.at > RECOVERY + 20 * MINUTE]
            waiting = [pods is not None and sum(pods.waiting.values()) > 0 for pods in quiet]
            self.wrong["an evicted pod found no place"] += any(waiting)
        last = record.snapshots[-1].pods
        assert last is not None
        self.wrong["evicted against a budget"] += last.against_budget
        self.wrong["a step is open"] += len(self.steps)
        self.wrong["a journal is open"] += any(state.move is not None for state in self.table.pools.values())
        per_hour = self.scenario.evenkeel.converge.per_hour
        for pool in self.scenario.pools:
            at = [second for name, second in self.orders if name == pool.name]
            self.wrong["more steps than the budget"] += _most_per_hour(at) > per_hour
        # The first one given in an hour may belong to a step that began before it.
        takers = len({pool.fallback_for for pool in self.scenario.pools if pool.fallback_for})
        self.wrong["more returns than the budget"] += _most_per_hour(self.given) > (per_hour + 1) * takers
        return self


def _most_per_hour(seconds: list[int]) -> int:
    return max([sum(first <= second < first + HOUR for second in seconds) for first in seconds], default=0)


def scenario(chance: random.Random, *, sizes: tuple[int, ...] = (4,), fallbacks: int = 1) -> Scenario:
    """Return a first pool that is sold out for some time while pods arrive, and its fallbacks."""
    zones = [{"name": name, "provision": "30s", "jitter": "20s"} for name in "abc"[: chance.randint(1, 3)]]
    names = [zone["name"] for zone in zones]
    dry = chance.sample(names, chance.randint(1, len(names)))
    drought = [{"at": "0s"}, {"at": "10m", "nodes": 0}, {"at": f"{RECOVERY}s"}]
    small = chance.randint(0, 3)
    pools: list[dict[str, Any]] = [
        {
            "name": "first",
            "min": small,
            "max": 40,
            "start": small + chance.randint(0, 3),
            "capacity": dict.fromkeys(dry, drought),
            "node": {"cpu": 4, "memory": "16Gi"},
        }
    ]
    for number in range(fallbacks):
        least = chance.randint(0, 2)
        target = "first" if number == 0 or chance.random() < 0.5 else f"fallback-{number - 1}"
        pools.append(
            {
                "name": f"fallback-{number}",
                "min": least,
                "max": max(len(names), least, 40 if number + 1 == fallbacks else chance.randint(1, 4)),
                "start": least,
                "fallback_for": target,
                "node": {"cpu": chance.choice(sizes), "memory": "64Gi"},
            }
        )
    before = chance.randint(2, 8)
    pods: list[dict[str, Any]] = [
        {
            "name": "shop",
            "count": [{"at": "0s", "pods": before}, {"at": "15m", "pods": before + chance.randint(2, 14)}],
            "cpu": chance.choice(["1900m", "900m", "3"]),
            "memory": "2Gi",
            **({"spread": {"zone": chance.randint(1, 2)}} if chance.random() < 0.4 else {}),
            **({"max_unavailable": 4} if chance.random() < 0.5 else {}),
        }
    ]
    if chance.random() < 0.3:
        count = [{"at": "0s", "pods": 0}, {"at": "20m", "pods": chance.randint(1, 4)}]
        pods.append({"name": "bound", "count": count, "cpu": "1900m", "zones": [chance.choice(dry)]})
    data = {
        "name": "returns",
        "duration": f"{ENDS}s",
        "seed": chance.randrange(1000),
        "zones": zones,
        "pools": [{"level": "converge", **pool} for pool in pools],
        "pods": pods,
        "evenkeel": {"converge": {"per_hour": chance.choice([4, 30])}},
        "autoscaler": {"priority": [pool["name"] for pool in pools]},
    }
    return read_scenario(data, "returns.yaml")


def play(seed: int, variant: str, harm: float = 0.0, **fields: Any) -> World:
    """Return a random world after its end."""
    chance = random.Random(seed)
    return World(scenario(chance, **fields), variant, chance, harm).play()
