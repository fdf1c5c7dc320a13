"""What a quiet look costs: the real ``look`` on the built layers, in Lambda's runtime client, a chunk for each message.

Clusters and AWS answer from processes of their own (:mod:`bench.fleet`). Processor time is that of the function's
process alone. Layer sets that are compared have a process each and take turns, so that a slow moment of the machine
hits all of them.

    python -m bench.quiet_look [--groups 30] [--chunk 50] [--layers name=<folder made by make build-host> ...]

``kept``: the same clusters again and again, as in a stack of a few hundred: connections and groups are kept.
``met anew``: each cluster for the first time, as in a stack of thousands, whose instances keep 600.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench import figures
from bench.canned import name_of
from bench.fleet import Fleet, Sample, chunk, fleet

SIZES = (3, 30, 300, 3_000)  # groups of a cluster
CHUNKS = (1, 50)  # clusters of one invocation
_ROUNDS = 9


def measure(
    flavour: str, groups: int, size: int, layers: Mapping[str, Path | None], rounds: int = _ROUNDS
) -> dict[str, list[Sample]]:
    """The samples of each way, one per round; the first, which makes the clients, is left out."""
    samples: dict[str, list[Sample]] = {}
    with ExitStack() as stack:
        stage = stack.enter_context(fleet(size * (rounds + 1), groups, flavour))
        ways = {
            f"{way}{name}": (stack.enter_context(stage.function("look", layers=folder)), way)
            for name, folder in layers.items()
            for way in ("kept", "met anew")
        }
        for turn in range(rounds + 1):
            for name, (function, way) in ways.items():
                first = turn * size if way == "met anew" else 0
                sample = function(chunk([name_of(number) for number in range(first, first + size)]))
                if turn:
                    samples.setdefault(name, []).append(sample)
        _is_quiet(stage, size * len(ways) * (rounds + 1))
    return samples


def _is_quiet(stage: Fleet, looks: int) -> None:
    """That all were read and nobody asked for a run: else this is not what it says."""
    asked = stage.clusters()["asked"]
    if sum(asked.values()) < 2 * looks or (runs := stage.aws(take="rebalance.fifo")["messages"]):
        raise RuntimeError(f"{looks} looks made {sum(asked.values())} requests and led to runs: {runs}")


def show(groups: int, size: int, samples: Mapping[str, Sequence[Sample]]) -> None:
    """One line for each way: least, median and largest CPU per look, and the peak of memory."""
    for name, rounds in samples.items():
        spent = sorted(sample.cpu / size * 1000 for sample in rounds)
        peak = max(sample.peak for sample in rounds) / 2**20
        figures.keep("look", name, groups, size, cpu_ms=statistics.median(spent), peak_mib=peak)
        print(
            f"  {groups:>5} groups, chunk of {size:>2}, {name:<14} "
            f"{spent[0]:7.2f} / {statistics.median(spent):7.2f} / {spent[-1]:7.2f} ms of CPU per look, {peak:4.0f} MiB",
            flush=True,
        )


def requests(flavour: str, groups: int) -> None:
    """What the looks of one chunk of 50 ask for and log, connections kept and new ones."""
    with fleet(100, groups, flavour, relayed=True) as stage, stage.function("look") as look:
        look(chunk([name_of(number) for number in range(50, 100)]))
        found: dict[str, dict[str, float]] = {}
        for way in ("met anew", "kept"):
            stage.aws(), stage.clusters()
            sample = look(chunk([name_of(number) for number in range(50)]))
            aws, kubernetes = stage.aws(), stage.clusters()
            found[way] = {
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
