"""Benches of simulated scenarios: what a strategy or level gives and costs, on the shipped scenario and on others."""

from __future__ import annotations

import random
from collections.abc import Iterable
from statistics import mean
from typing import Any

import yaml

from bench.rows import Rows
from evenkeel_cli.simulation.engine import SERVERLESS, STATIC, Run, variants_of
from evenkeel_cli.simulation.measures import Measures, PodMeasures, Wave, measure
from evenkeel_cli.simulation.scenario import Scenario, read_scenario
from sandbox.template import ROOT
from tests.unit.convergence.test_level import ebb

_CHECK = 60  # seconds from one scan to the next
Object = dict[str, Any]


def _shipped(name: str) -> Object:
    scenario: Object = yaml.safe_load((ROOT / "scenarios" / name).read_text(encoding="utf-8"))
    return scenario


def _own(scenario: Scenario) -> Measures:
    """Play a scenario with its own strategy to its end."""
    (variant,) = variants_of(scenario, "own")
    return measure(Run(scenario, variant)())


def shrink(worlds: int = 60) -> Rows:
    """Measure level shrink: peaks that build up during an outage and ebb away, with it and without."""
    pairs = [tuple(_own(ebb(seed, level)) for level in ("off", "shrink")) for seed in range(worlds)]
    gains = [(off.skew_recovered or 0.0) - (on.skew_recovered or 0.0) for off, on in pairs]
    hours = [on.node_hours / off.node_hours for off, on in pairs]
    yield (
        f"shrink in {worlds} worlds",
        {
            "more level": sum(gain > 0 for gain in gains),
            "less level": sum(gain < 0 for gain in gains),
            "most gained": max(gains),
            "most lost": -min(gains),
            "skew off": mean(off.skew_recovered or 0.0 for off, _ in pairs),
            "skew on": mean(on.skew_recovered or 0.0 for _, on in pairs),
            "node-hours, share": mean(hours),
            "at most": max(hours),
            "pods waited longer in": sum(on.waiting_node_hours > off.waiting_node_hours for off, on in pairs),
        },
    )


def recovery(worlds: int = 80) -> Rows:
    """Measure converge where load comes and goes, with outages that end at other moments than the shipped one."""
    shipped = _shipped("recovery-and-going-home.yaml")
    moved = [_with_outage(shipped, 1, 60, end) for end in range(125, 245, 5)]
    yield from _levels("the shipped outage, ended at other moments", moved)
    yield from _levels("drawn", [_drawn_outage(shipped, seed) for seed in range(worlds)])


def _with_outage(world: Object, zone: int, start: int, end: int) -> Object:
    """Return the world with one zone without machines between two minutes."""
    zones: list[Object] = [{"name": entry["name"]} for entry in world["zones"]]
    zones[zone]["capacity"] = [{"at": "0s"}, {"at": f"{start}m", "nodes": 0}, {"at": f"{end}m"}]
    return {**world, "zones": zones}


def _drawn_outage(shipped: Object, seed: int) -> Object:
    """Return eight hours with a random outage and load."""
    chance = random.Random(seed)
    start = chance.randint(30, 120)
    world = _with_outage(shipped, chance.randrange(3), start, start + chance.randint(60, 180))
    minute, nodes = 0, []
    while minute < 8 * 60:
        nodes.append({"at": f"{minute}m", "nodes": chance.randint(5, 20)})
        minute += chance.randint(25, 110)
    return {**world, "demand": [{"nodes": nodes}]}


def _levels(name: str, worlds: list[Object]) -> Rows:
    for level in ("off", "converge"):
        measures = []
        for world in worlds:
            pools = [{**pool, "level": level} for pool in world["pools"]]
            measures.append(_own(read_scenario({**world, "pools": pools}, name)))
        skews = [one.skew_recovered or 0.0 for one in measures]
        yield (
            f"{name}, {level}",
            {
                "skew after recovery": mean(skews),
                "worst": max(skews),
                "failed launches": mean(one.failed_launches for one in measures),
                "moved": mean(one.moved for one in measures),
                "waiting": mean(one.waiting_node_hours for one in measures),
                "node-hours": mean(one.node_hours for one in measures),
            },
        )


# --- pods


def peak_and_valley(days: int = 12) -> Rows:
    """Measure days of peaks and valleys with Evenkeel in the autoscaler's place and with the autoscaler.

    The first day is the shipped one. A drawn day has two to four waves of pods of four kinds; nodes come after about
    two minutes in zones that have enough of them.
    """
    shipped = read_scenario(_shipped("peak-and-valley-day.yaml"), "peak-and-valley-day.yaml")
    every = [_Day(day) for day in (shipped, *map(_drawn_day, range(days)))]
    for day in every:
        yield day.name, _day_columns([day])
    yield "peak and valley, all days", _day_columns(every)


class _Day:
    """One day, played with the autoscaler and without."""

    def __init__(self, scenario: Scenario) -> None:
        self.name = scenario.name
        runs = {variant.name: variant for variant in variants_of(scenario, "all")}
        self.autoscaler, self.serverless = (measure(Run(scenario, runs[name])()) for name in (STATIC, SERVERLESS))
        assert self.autoscaler.pods is not None
        assert self.serverless.pods is not None
        self.theirs: PodMeasures = self.autoscaler.pods
        self.ours: PodMeasures = self.serverless.pods
        self.waves = list(zip(self.ours.waves, self.theirs.waves, strict=True))


def _seconds(wave: Wave) -> int:
    """Return when a wave was met; a day, where it never was."""
    return 86400 if wave.seconds is None else wave.seconds


def _day_columns(days: Iterable[_Day]) -> dict[str, float]:
    days = list(days)
    waves = [wave for day in days for wave in day.waves]
    more = [ours.ordered - theirs.ordered for ours, theirs in waves]
    later = [_seconds(ours) - _seconds(theirs) for ours, theirs in waves]
    return {
        "waves": len(waves),
        "most_more_ordered": max(more),
        "waves_with_two_more": sum(count > 1 for count in more),
        "waves_with_two_less": sum(count < -1 for count in more),
        "ordered_share": sum(day.ours.ordered for day in days) / sum(day.theirs.ordered for day in days),
        "most_later_s": max(later),
        "most_sooner_s": -min(later),
        "waves_a_check_later": sum(seconds > _CHECK for seconds in later),
        "waves_a_check_sooner": sum(seconds < -_CHECK for seconds in later),
        "hours_share": sum(d.serverless.node_hours for d in days) / sum(d.autoscaler.node_hours for d in days),
        "most_hours_share": max(day.serverless.node_hours / day.autoscaler.node_hours for day in days),
        "evicted_against_budget": sum(day.ours.against_budget for day in days),
        "skewed_waves_of_the_autoscaler": sum(theirs.skew_high > 1 for _, theirs in waves),
        "skewed_waves": sum(ours.skew_high > 1 for ours, _ in waves),
        "skewed_after": sum(ours.skew_after > 1 for ours, _ in waves),
    }


def _drawn_day(seed: int) -> Scenario:
    """Return a day with random sizes, heights and moments."""
    rng = random.Random(seed)
    hours = sorted(rng.sample(range(2, 23), rng.choice((4, 6, 8))))
    heights = [(hour, rng.randint(2, 5) if number % 2 else rng.randint(8, 14)) for number, hour in enumerate(hours)]

    def kind(name: str, cpu: int, memory: int, share: float, **fields: Any) -> Object:
        """Return pods of so many millicores and MiB, so many to a unit of height."""
        steps = {0: 3} | {hour * 60 + rng.randint(0, 20): max(1, round(share * height)) for hour, height in heights}
        count = [{"at": f"{at}m", "pods": pods} for at, pods in sorted(steps.items())]
        return {"name": name, "cpu": f"{cpu}m", "memory": f"{memory}Mi", "count": count, **fields}

    jobs = [{"at": f"{hour}h", "pods": rng.randint(4, 12)} for hour in sorted(rng.sample(range(1, 23), 2))]
    return read_scenario(
        {
            "name": f"day {seed}",
            "duration": "24h",
            "seed": seed,
            "zones": [{"name": f"eu-central-1{letter}", "jitter": "30s"} for letter in "abc"],
            "pools": [{"name": "workers", "min": 3, "max": 60, "start": 6, "node": {"cpu": 4, "memory": "16Gi"}}],
            "pods": [
                kind("shop", rng.choice((250, 400, 500)), 1024, 5, spread={"zone": 1}, max_unavailable=2),
                kind("search", rng.choice((900, 1200, 1500)), rng.choice((2048, 5120)), 1, max_unavailable=1),
                kind("api", rng.choice((100, 300, 700)), rng.choice((256, 1500)), 2),
                {"name": "reports", "cpu": "1800m", "memory": "6Gi", "lifetime": "40m", "count": jobs},
            ],
        },
        f"day {seed}",
    )
