"""What a quiet look costs: the real ``look`` on the built layers, in Lambda's runtime client, a chunk for each message.

Clusters and AWS answer from processes of their own (``bench.fleet``). Processor time is that of the function's
process alone. Layer sets that are compared have a process each and take turns, so that a slow moment of the machine
hits all of them.

    python -m bench.quiet_look [--groups 30] [--chunk 50] [--layers name=<folder made by make build-host> ...]

``kept``: the same clusters again and again, as in a stack of a few hundred: connections are kept.
``met anew``: each cluster for the first time, as in a stack of thousands, whose instances keep 600.
``glance``: what a look at a settled cluster is, but for one in fifteen; ``whole``: that one, and every look at one that
is not settled. The clusters are such that none has its turn to be looked at as a whole while this is measured.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from pathlib import Path

from bench import figures
from bench.canned import name_of
from bench.fleet import Fleet, Sample, chunk, fleet
from evenkeel.domain.fleet.check_times import is_full_check

SIZES = (3, 30, 300, 3_000)  # groups of a cluster
CHUNKS = (1, 50)  # clusters of one invocation
_ROUNDS = 9


def measure(
    flavour: str, groups: int, size: int, layers: Mapping[str, Path | None], rounds: int = _ROUNDS
) -> dict[str, list[Sample]]:
    """The samples of each way, one per round; the first, which makes the clients, is left out."""
    samples: dict[str, list[Sample]] = {}
    names = _names(2 * size * (rounds + 1))
    settled, others = names[::2], names[1::2]
    with ExitStack() as stack:
        stage = stack.enter_context(fleet(0, groups, flavour))
        stage.register(settled)
        stage.register(others, steady_clusters=False)
        ways = {
            f"{look} {way}{name}": (stack.enter_context(stage.function("check", layers=folder)), clusters, way)
            for name, folder in layers.items()
            for look, clusters in (("glance", settled), ("whole", others))
            for way in ("kept", "met anew")
        }
        for turn in range(rounds + 1):
            for name, (function, clusters, way) in ways.items():
                first = turn * size if way == "met anew" else 0
                stage.clusters()
                sample = function(chunk(clusters[first : first + size]))
                _is_what_it_says(stage, name, size)
                if turn:
                    samples.setdefault(name, []).append(sample)
    return samples


def _names(number: int) -> list[str]:
    """Clusters whose turn to be looked at as a whole does not come for ten minutes."""
    minutes = [datetime.now(UTC) + timedelta(minutes=minute) for minute in range(11)]
    mine = (name_of(each) for each in count())
    return list(islice((name for name in mine if not any(is_full_check(name, 60, at) for at in minutes)), number))


def _is_what_it_says(stage: Fleet, way: str, size: int) -> None:
    """That all were read, by glances or whole, and nobody asked for a run."""
    asked = Counter(stage.clusters()["asked"].values())
    lists = 1 if way.startswith("glance") else 4
    new = asked.total() and max(asked) > lists  # a connection asks what is served
    if asked.total() != size or set(asked) - {lists, lists + bool(new)} or max(asked) > lists + 1:
        raise RuntimeError(f"{size} looks, {way}, made so many requests each: {dict(asked)}")
    if runs := stage.aws(take="rebalance.fifo")["messages"]:
        raise RuntimeError(f"{way}: looks led to runs: {runs}")


def show(groups: int, size: int, samples: Mapping[str, Sequence[Sample]]) -> None:
    """One line for each way: least, median and largest CPU per look, and the peak of memory."""
    for name, rounds in samples.items():
        spent = sorted(sample.cpu / size * 1000 for sample in rounds)
        peak = max(sample.peak for sample in rounds) / 2**20
        figures.keep(name, groups, size, cpu_ms=statistics.median(spent), peak_mib=peak)
        print(
            f"  {groups:>5} groups, chunk of {size:>2}, {name:<15} "
            f"{spent[0]:7.2f} / {statistics.median(spent):7.2f} / {spent[-1]:7.2f} ms of CPU per look, {peak:4.0f} MiB",
            flush=True,
        )


def requests(flavour: str, groups: int) -> None:
    """What the looks of one chunk of 50 ask for and log, connections kept and new ones."""
    names = _names(200)
    with fleet(0, groups, flavour, relayed=True) as stage, stage.function("check") as look:
        stage.register(names[:100])
        stage.register(names[100:], steady_clusters=False)
        look(chunk(names[50:100]))
        found: dict[str, dict[str, float]] = {}
        for kind, clusters in (("glance", names[:50]), ("whole", names[100:150])):
            for way in ("met anew", "kept"):
                stage.aws(), stage.clusters()
                sample = look(chunk(clusters))
                aws, kubernetes = stage.aws(), stage.clusters()
                found[f"{kind} {way}"] = {
                    "requests": sum(kubernetes["methods"].values()) / 50,
                    "bytes_out": kubernetes["wire"]["out"] / 50,
                    "bytes_in": kubernetes["wire"]["in"] / 50,
                    # One of a chunk is for what clusters say of offerings.
                    "half_read_units": (aws["half read units"] - 1) / 50,
                    "log_bytes": sample.log,
                }
    for way, each in found.items():
        figures.keep("asks", way, groups, **each)
        print(
            f"  {groups:>5} groups, {way}: {each['requests']:.0f} requests at the API server, "
            f"with TLS {each['bytes_out'] / 1024:.1f} KiB "
            f"out and {each['bytes_in'] / 1024:.1f} KiB in, {each['half_read_units'] / 2:.2f} read units; "
            f"{each['log_bytes']:.0f} bytes of log for a chunk of 50",
            flush=True,
        )


def main(arguments: Sequence[str] = ()) -> None:
    """Every size in every chunk; of the largest clusters only one at a time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--flavour", default="cluster-api")
    parser.add_argument("--groups", type=int, action="append")
    parser.add_argument("--chunk", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    parser.add_argument("--layers", action="append", default=[])
    chosen = parser.parse_args(arguments)
    layers: dict[str, Path | None] = {"": None}
    layers |= {f", {name}": Path(folder) for name, _, folder in (entry.partition("=") for entry in chosen.layers)}
    print(f"a quiet look, {chosen.flavour}: least / median / largest of {chosen.rounds}")
    for groups in chosen.groups or SIZES:
        for size in chosen.chunk or CHUNKS:
            if groups * size <= 15_000:
                show(groups, size, measure(chosen.flavour, groups, size, layers, chosen.rounds))
        if groups <= 300:
            requests(chosen.flavour, groups)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
