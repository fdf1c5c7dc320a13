"""What a shortage of machines does to pods: with events, by scans alone, and with no Evenkeel at all. Markdown tables.

The real use cases and the real Kubernetes adapter beside the sandbox's controllers and autoscaler, second by second
(tests/outages.py). The figures are the same at every run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import mean, median

from tests.outages import Outage, Play, Result, Who

BOOTS = (8, 60, 240)
FLAVOURS = ("cluster-api", "gardener", "openshift")
SEEDS = 40
WINDOWS = (0, 1, 2, 5, 10, 20)
PLACES = ("first patch", "first mark", "patch after marks")
WAYS = ("with a view", Who.SCANS, "without a view")


def certain(flavour: str, boot: int) -> list[Outage]:
    """The outages that no chance is part of."""
    common = Outage(name="", flavour=flavour, boot=boot)
    return [
        replace(common, name="room for 0, 3 and 5, 9 pods", limits=(0, 3, 5)),
        replace(common, name="one zone refuses everything, 9 pods", limits=(0, None, None)),
        replace(common, name="all zones refuse for 10 s, 12 pods", pods=12, refuses_for=10),
        replace(common, name="every fourth launch is refused, 9 pods", every=4),
    ]


def away(flavour: str, boot: int) -> list[Outage]:
    """One zone refuses everything, and the API server goes away right after the release.

    Cluster Autoscaler's requests fail meanwhile, in all zones at once (--parallel-scale-up), and it backs off from them
    for five minutes.
    """
    return [
        Outage(
            name=f"API server away for {seconds} s, machine objects {late} s late, loop of {loop} s",
            flavour=flavour,
            boot=boot,
            limits=(0, None, None),
            away=seconds,
            late=late,
            loop=loop,
            parallel=True,
        )
        for seconds in (20, 30)
        for late in (0, 3)
        for loop in (10, 30)
    ]


def ways(outage: Outage) -> dict[str, Result]:
    """Play an outage with the API server away: with a view of the pods, without, by scans, without Evenkeel."""
    seen = Play(outage, Who.EVENTS, view=True).run()
    return {
        "with a view": seen,
        "with a view and autoscaler_status": Play(outage, Who.EVENTS, view=True, reports=True).run(),
        "without a view": Play(outage, Who.EVENTS).run(),
        "without a view, with autoscaler_status": Play(outage, Who.EVENTS, reports=True).run(),
        Who.SCANS: Play(outage, Who.SCANS, view=True).run(),  # with a view
        Who.NOBODY: Play(outage, Who.NOBODY, away_from=seen.away_from).run(),
    }


def by_chance(flavour: str, boot: int, seeds: int = SEEDS) -> list[Outage]:
    """One launch in four is refused; pods appear at three moments of the minute of scans."""
    return [
        Outage(name="one in four", flavour=flavour, boot=boot, one_in=4, seed=seed, appear=(13, 33, 53)[seed % 3])
        for seed in range(seeds)
    ]


def three_ways(outage: Outage) -> dict[Who, Result]:
    """The same outage, three times."""
    return {who: Play(outage, who).run() for who in Who}


def worse(results: dict[Who, Result]) -> list[str]:
    """Where fewer nodes came, or as many later: with events than without, or with us than with nobody."""
    pairs = ((Who.EVENTS, Who.SCANS), (Who.EVENTS, Who.NOBODY), (Who.SCANS, Who.NOBODY))
    return [f"{one} is worse than {other}" for one, other in pairs if results[one].rank > results[other].rank]


def windows(flavour: str, seeds: int = 5) -> Iterator[tuple[str, int, bool, Outage]]:
    """Where time passes within a run, how much, whether the controllers act at once, and what the outage is."""
    outages = [*certain(flavour, 8), *by_chance(flavour, 8, seeds), *by_chance(flavour, 20, seeds)]
    for at_once in (False, True):
        for place in PLACES:
            for window in WINDOWS:
                for outage in outages:
                    yield place, window, at_once, outage


def _cell(result: Result) -> str:
    if result.after is None:
        return "none"
    return f"{result.nodes} after {result.after} s"


def _row(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def _seconds(results: Sequence[Result]) -> str:
    times = sorted(result.after or 0 for result in results)
    return f"{round(mean(times))}, {round(median(times))}, {times[len(times) * 9 // 10]}, {times[-1]}"


def main() -> None:
    """Three tables."""
    logging.disable(logging.CRITICAL)  # each failed launch is an error in the log, and all of them are meant
    try:
        killed = 0
        print("nodes of those that pods want, and when the last of them came (1,800 s are watched)\n")
        _row("flavour", "boot", "outage", *Who, "looks", "patches")
        _row(*8 * ["--"])
        for flavour in FLAVOURS:
            for boot in BOOTS:
                for outage in certain(flavour, boot):
                    results = three_ways(outage)
                    seen = results[Who.EVENTS]
                    _row(
                        flavour,
                        f"{boot} s",
                        outage.name,
                        *(_cell(results[who]) for who in Who),
                        seen.looks,
                        seen.patches,
                    )
                    killed += sum(len(result.killed) for result in results.values())
                    for problem in worse(results):
                        print(f"!!! {outage}: {problem}")
        print("\nthe API server goes away right after the release\n")
        _row("flavour", "away", "machine objects late", "loop", *WAYS, Who.NOBODY)
        _row(*8 * ["--"])
        for flavour in FLAVOURS:
            for outage in away(flavour, 8):
                results_of = ways(outage)
                cells = (_cell(results_of[way]) for way in (*WAYS, Who.NOBODY))
                _row(flavour, f"{outage.away} s", f"{outage.late} s", f"{outage.loop} s", *cells)
                killed += sum(len(result.killed) for result in results_of.values())
        print(f"\none launch in four refused, {SEEDS} seeds: seconds until 9 nodes ran: mean, median, p90 and worst\n")
        _row("flavour", "boot", *Who, "with events later than nobody", "at most", "sooner")
        _row(*8 * ["--"])
        for flavour in FLAVOURS:
            for boot in BOOTS:
                played = [three_ways(outage) for outage in by_chance(flavour, boot)]
                ranks = [(results[Who.EVENTS].rank, results[Who.NOBODY].rank) for results in played]
                _row(
                    flavour,
                    f"{boot} s",
                    *(_seconds([results[who] for results in played]) for who in Who),
                    sum(ours > nobodys for ours, nobodys in ranks),
                    f"{max(0, *(round(ours[1] - nobodys[1]) for ours, nobodys in ranks))} s",
                    sum(ours < nobodys for ours, nobodys in ranks),
                )
                killed += sum(len(result.killed) for results in played for result in results.values())
                fewer = sum(result.nodes < 9 for results in played for result in results.values())
                if fewer:
                    print(f"!!! {fewer} of them end with fewer than 9 nodes")
        print(f"\nmachines with a node that went in all of these, although nobody had scaled down: {killed}")
        print("\nthe same with a window within the run, in which the cluster lives on\n")
        _row("flavour", "window before", "seconds", "runs", "machines with a node that a release deleted")
        _row(*5 * ["--"])
        for flavour in FLAVOURS:
            found: dict[str, list[int]] = {place: [] for place in PLACES}
            for place, window, at_once, outage in windows(flavour):
                play = Play(outage, Who.EVENTS, window=window, window_before=place, at_once=at_once, horizon=240)
                found[place].append(len(play.run().killed))
            for place, counts in found.items():
                _row(flavour, f"the {place}", f"{WINDOWS[0]}-{WINDOWS[-1]}", len(counts), sum(counts))
    finally:
        logging.disable(logging.NOTSET)


if __name__ == "__main__":
    main()
