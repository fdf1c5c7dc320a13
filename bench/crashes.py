"""Replicas lost or doubled over 10,000 runs that each come to harm at random steps, up to three times in a row.

The real use case and the real plan; cluster and table in memory, so that so many runs take minutes. The same with the
real Kubernetes adapter, fewer times, is tests/integration/test_crashes.py.

    python -m bench.crashes [--demand] [COUNT [FIRST]]

``FIRST``: the seed to begin with, so that many can be played in pieces; one that is interrupted says how to go on.
``--demand``: worlds of pods in which nodes come and go (tests/shrinking.py), with whatever must never be. Ends with 1
where anything is wrong.
"""

from __future__ import annotations

import contextlib
import logging
import random
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import cast

from evenkeel.application.actions.ports import ActionStore
from evenkeel.application.errors import ClusterUnavailableError, EvenkeelError, QueueUnavailableError
from evenkeel.application.ports import Queue
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import NodeGroup
from tests.builders import group, in_backoff
from tests.crashing import How, KilledError, Life, Mortal
from tests.fakes import FakeClock, FakeCluster, FakeClusters, FakeQueue, InMemoryStore, plenty, register
from tests.shrinking import Story
from tests.timed import worker

RUNS = 10_000
_ZONES = "abcde"


class World:
    """A pool of random zones, of which one or two give no machines; PoolMaximum leaves room for what they owe."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.clock = FakeClock()
        self.on_failure = chance.choice(["move", "move", "release"])
        zones = _ZONES[: chance.randint(2, len(_ZONES))]
        self.dead = set(zones[: chance.randint(1, min(2, len(zones) - 1))])
        groups = [self._group(zone) for zone in zones]
        self.before = sum(found.requested for found in groups)
        self.running = {found.key: found.running for found in groups}
        self.cluster = FakeCluster(groups)
        self.store = InMemoryStore()
        pool = {"name": "workers", "min": 0, "max": self.before + chance.randint(0, 6), "on_failure": self.on_failure}
        strategy = chance.choice(["Balanced", "Lax-Greedy", "Adaptive", "Backward-Compatible"])
        autoscaler = chance.choice(["cluster-autoscaler", "none"])
        register(self.store, pools=[pool], strategy=strategy, autoscaler=autoscaler)
        for found in groups:
            if found.zone in self.dead:
                self.store.save_group("demo", found.key, in_backoff(FailureClass.CAPACITY), None)

    def _group(self, zone: str) -> NodeGroup:
        chance = self.chance
        running = chance.randint(0, 6)
        requested = running + (chance.randint(1, 5) if zone in self.dead else 0)
        high = requested + chance.randint(0, 12)
        bounds = chance.choice([None, (chance.randint(0, requested), high)])
        return group(zone, requested, running=running, bounds=bounds, two_objects=chance.random() < 0.3)

    def run(self, life: Life) -> int:
        """One run and the minute after it, in which machines of healthy zones come; how many patches it wrote."""
        written = 0
        mortal = Mortal(self.cluster, life, "cluster", ClusterUnavailableError)
        with contextlib.suppress(KilledError, EvenkeelError):
            written = worker(
                cast("ActionStore", Mortal(self.store, life, "table")),
                FakeClusters({"demo": cast("FakeCluster", mortal)}),
                self.clock,
                cast("Queue", Mortal(FakeQueue(), life, "queue", QueueUnavailableError)),
                random_bytes=self.chance.randbytes,
            )("demo", "a crash", plenty).written
        self.clock.at += timedelta(seconds=61)
        for key, found in list(self.cluster.groups.items()):
            if found.zone not in self.dead and found.running != found.requested:
                self.cluster.change(key, running=found.requested)
        return written

    def wrong(self) -> Counter[str]:
        """What must be 0: replicas lost and doubled, nodes given up, bounds that do not hold, moves left open."""
        found: Counter[str] = Counter()
        requested = sum(one.requested for one in self.cluster.groups.values())
        expected = self.before if self.on_failure == "move" else sum(self.running.values())
        found["replicas lost"] = max(0, expected - requested)
        found["replicas doubled"] = max(0, requested - expected)
        for key, one in self.cluster.groups.items():
            found["running nodes given up"] += max(0, self.running[key] - one.requested)
            found["bounds that do not hold"] += one.bounds is not None and one.bounds.max < one.requested
        found["moves left open"] = sum(pool.move is not None for pool in self.store.load("demo").state.pools.values())
        return found


def crash(seed: int) -> tuple[Counter[str], Counter[str]]:
    """One world, up to three runs that come to harm, and then peace. Returns what is wrong, and what happened."""
    chance = random.Random(seed)
    world = World(chance)
    happened: Counter[str] = Counter()
    for _ in range(chance.randint(1, 3)):
        life = Life(at=chance.randrange(24), how=chance.choice([How.BEFORE, How.AFTER, How.LOST]))
        world.run(life)
        if life.at is not None and life.at < len(life.steps):
            happened[life.how.value] += 1
    for _ in range(6):
        if not world.run(Life()):
            break
    return world.wrong(), happened


def main(runs: int = RUNS, first: int = 0) -> int:
    """All of them, and their sums. Returns in how many anything is wrong."""
    wrong: Counter[str] = Counter()

    def play(seed: int) -> tuple[str, Counter[str]]:
        found, incidents = crash(seed)
        wrong.update(found)
        return str(dict(+found)) if any(found.values()) else "", incidents

    bad = _play("crash runs", play, runs, first)
    for what, count in wrong.items():
        print(f"  {what}: {count}")
    return bad


def demand(worlds: int = RUNS, first: int = 0) -> int:
    """Worlds with pods, and their sums. Returns in how many anything is wrong."""

    def play(seed: int) -> tuple[str, Counter[str]]:
        story = Story(seed)
        problems = "; ".join(story.play())
        happened = story.happened
        happened["nodes ordered"] += story.valley.ordered
        happened["nodes taken away"] += len(story.valley.removed)
        happened["pods evicted"] += sum(story.valley.evicted.values())
        return problems, happened

    return _play("worlds of demand", play, worlds, first)


def _play(what: str, play: Callable[[int], tuple[str, Counter[str]]], count: int, first: int) -> int:
    """One seed after the other, until somebody interrupts it: what is wrong in each, and what has happened in all."""
    logging.disable(logging.CRITICAL)  # every crash is an error in the log, and all of them are meant
    happened: Counter[str] = Counter()
    bad, seed = 0, first
    try:
        while seed < first + count:
            problems, incidents = play(seed)
            if problems:
                bad += 1
                print(f"  seed {seed}: {problems}", flush=True)
            happened += incidents
            seed += 1
    except KeyboardInterrupt:
        print(f"interrupted: go on with {first + count - seed} {seed}")
    finally:
        logging.disable(logging.NOTSET)
    print(f"{seed - first} random {what}, seeds {first} to {seed - 1}")
    for name, number in sorted(happened.items()):
        print(f"  {name}: {number}")
    print(f"  in which anything was wrong: {bad}")
    return bad


if __name__ == "__main__":
    counts = [int(text) for text in sys.argv[1:] if text != "--demand"]
    sys.exit(1 if (demand if "--demand" in sys.argv else main)(*counts) else 0)
