"""A day of peaks and valleys: Evenkeel in the autoscaler's place, and the autoscaler, on the day that ships and others.

``python -m bench.peak_and_valley [DAYS]`` prints the figures of docs/simulate-pods.md. A drawn day has two to four
waves of pods of four kinds; nodes come after about two minutes in zones that have enough of them.
"""

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from bench.figures import keep
from evenkeel_cli.simulation.engine import SERVERLESS, STATIC, Run, variants_of
from evenkeel_cli.simulation.measures import Measures, PodMeasures, Wave, measure
from evenkeel_cli.simulation.scenario import Scenario, read_scenario
from sandbox.template import ROOT

DAYS = 12
LOOK = 60  # seconds: from one scan to the next
SHIPPED = ROOT / "scenarios" / "peak-and-valley-day.yaml"
_HOUR = 60


def shipped() -> Scenario:
    """The day of docs/simulate.md."""
    return read_scenario(yaml.safe_load(SHIPPED.read_text(encoding="utf-8")), SHIPPED.name)


def drawn(seed: int) -> Scenario:
    """A day like it, with other sizes, heights and moments."""
    rng = random.Random(seed)
    hours = sorted(rng.sample(range(2, 23), rng.choice((4, 6, 8))))
    heights = [(hour, rng.randint(2, 5) if number % 2 else rng.randint(8, 14)) for number, hour in enumerate(hours)]

    def kind(name: str, cpu: int, memory: int, share: float, **fields: Any) -> dict[str, Any]:
        """Thousandths of a core, MiB, pods to a unit of height."""
        steps = {0: 3} | {hour * _HOUR + rng.randint(0, 20): max(1, round(share * height)) for hour, height in heights}
        count = [{"at": f"{at}m", "pods": pods} for at, pods in sorted(steps.items())]
        return {"name": name, "cpu": f"{cpu}m", "memory": f"{memory}Mi", "count": count, **fields}

    jobs = [{"at": f"{hour}h", "pods": rng.randint(4, 12)} for hour in sorted(rng.sample(range(1, 23), 2))]
    return read_scenario(
        {
            "name": f"day {seed}",
            "duration": "24h",
            "seed": seed,
            "zones": [{"name": zone, "jitter": "30s"} for zone in ("eu-central-1a", "eu-central-1b", "eu-central-1c")],
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


def _seconds(wave: Wave) -> int:
    return 86400 if wave.seconds is None else wave.seconds


@dataclass(frozen=True)
class Beside:
    """One day, with the autoscaler and without."""

    autoscaler: Measures
    serverless: Measures

    @property
    def pods(self) -> tuple[PodMeasures, PodMeasures]:
        theirs, ours = self.autoscaler.pods, self.serverless.pods
        assert theirs is not None
        assert ours is not None
        return theirs, ours

    @property
    def more_ordered(self) -> list[int]:
        """Nodes more than the autoscaler's, wave by wave."""
        theirs, ours = self.pods
        return [mine.ordered - other.ordered for mine, other in zip(ours.waves, theirs.waves, strict=True)]

    @property
    def later(self) -> list[int]:
        """Seconds later than the autoscaler's, wave by wave; what was never met is as late as the day is long.

        A rise within a wave may find the node that the one before it has left.
        """
        theirs, ours = self.pods
        return [_seconds(mine) - _seconds(other) for mine, other in zip(ours.waves, theirs.waves, strict=True)]

    @property
    def hours(self) -> float:
        """Node-hours, as a share of the autoscaler's."""
        return self.serverless.node_hours / self.autoscaler.node_hours


def beside(day: Scenario) -> Beside:
    """Play it twice."""
    runs = {variant.name: variant for variant in variants_of(day, "all") if variant.name in (STATIC, SERVERLESS)}
    return Beside(*(measure(Run(day, runs[name])()) for name in (STATIC, SERVERLESS)))


def days(count: int) -> Iterator[Scenario]:
    """The one that ships, and drawn ones."""
    yield shipped()
    for seed in range(count):
        yield drawn(seed)


def main(count: int = DAYS) -> None:
    """Each day in a line, then the worst of all."""
    found = []
    for day in days(count):
        found.append(each := beside(day))
        theirs, ours = each.pods
        print(
            f"{day.name}: ordered {theirs.ordered} and {ours.ordered}, in a wave at most {max(each.more_ordered):+d}; "
            f"met {max(each.later):+d} s; hours {each.hours:.3f}; "
            f"skew {[wave.skew_high for wave in theirs.waves]} and {[wave.skew_high for wave in ours.waves]}, "
            f"after {[wave.skew_after for wave in theirs.waves]} and {[wave.skew_after for wave in ours.waves]}; "
            f"evicted {theirs.evicted} and {ours.evicted}, against a budget {ours.against_budget}",
            flush=True,
        )
    waves = [wave for each in found for wave in each.pods[1].waves]
    more, later = [n for each in found for n in each.more_ordered], [n for each in found for n in each.later]
    figures = {
        "days": len(found),
        "waves": len(waves),
        "most_more_ordered": max(more),
        "waves_with_two_more": sum(count > 1 for count in more),
        "waves_with_two_less": sum(count < -1 for count in more),
        "ordered_share": sum(each.pods[1].ordered for each in found) / sum(each.pods[0].ordered for each in found),
        "most_later_s": max(later),
        "waves_a_look_later": sum(seconds > LOOK for seconds in later),
        "waves_a_look_sooner": sum(seconds < -LOOK for seconds in later),
        "most_hours_share": max(each.hours for each in found),
        "against_budget": sum(each.pods[1].against_budget for each in found),
        "hours_share": sum(each.serverless.node_hours for each in found) / sum(e.autoscaler.node_hours for e in found),
        "skewed_waves_of_the_autoscaler": sum(wave.skew_high > 1 for each in found for wave in each.pods[0].waves),
        "skewed_waves": sum(wave.skew_high > 1 for wave in waves),
        "skewed_after": sum(wave.skew_after > 1 for wave in waves),
    }
    keep("peak and valley", **figures)
    for name, value in figures.items():
        print(f"{name}: {value:.3f}" if isinstance(value, float) else f"{name}: {value}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
