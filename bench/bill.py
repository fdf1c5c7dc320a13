"""The bill of a month, reckoned: what was measured (figures.json) times list prices, for stacks of several sizes.

    python -m bench.bill [--measured build/figures.json]

us-east-1 list prices of November 2026, no free tier. What is assumed and not measured has a name of its own, below.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from sandbox.template import Template

GROUPS = (3, 30, 300)
CLUSTERS = (1, 40, 100, 1_000, 10_000)
LOOKS = 43_200  # one a minute
_MILLION, _GB = 1e6, 1e9

# Prices
GB_SECOND = 0.0000133334  # Lambda, arm64
INVOCATION = 0.20 / _MILLION
SQS, FIFO = 0.40 / _MILLION, 0.50 / _MILLION
READ, WRITE = 0.125 / _MILLION, 0.625 / _MILLION  # units of DynamoDB on demand
SCHEDULED, EVENT = 1.00 / _MILLION, 1.00 / _MILLION
LOGS = 0.50 / _GB
METRIC, ALARM = 0.30, 0.10
SECRET, SECRET_READ = 0.40, 0.05 / 10_000
EGRESS = 0.09 / _GB  # to the internet
NAT, NAT_HOUR = 0.045 / _GB, 0.045
# Lambda gives a whole processor to 1,769 MB and bills memory: so many GB-s for a second of processor time, at any size.
GB_PER_PROCESSOR = 1.769

# Assumed
WAITS = 0.15  # seconds that a chunk waits for API servers a few milliseconds away, all its clusters at once
PATCH_WAITS = 0.5  # seconds that a run with patches waits
PLATFORM_LOG = 1_000  # bytes of Lambda's own three lines about an invocation
RUNS = 300  # a month with patches, of each cluster: ten a day
RUN_EVENTS, RUN_FIFO_REQUESTS = 2, 6
POLLS = 648_000  # a month of an idle queue: five pollers that wait twenty seconds each
METRICS = 16
PACKET, SEGMENT = (
    52,
    1_448,
)  # bytes of IP and TCP around a packet, and in a full one; every other packet is acknowledged
_CHUNK, _CONNECTIONS, _KEPT_BYTES = 50, 600, 160 * 2**20  # as in the product


@dataclass(frozen=True)
class Stack:
    """One size of stack. Every amount is dollars for one cluster and month."""

    figures: Mapping[Any, Any]
    groups: int
    clusters: int

    @property
    def _chunks(self) -> int:
        return ceil(self.clusters / _CHUNK)

    @property
    def _in_chunk(self) -> float:
        return self.clusters / self._chunks

    @property
    def way(self) -> str:
        """Whether an instance that meets all clusters keeps what it has read of them."""
        size = self.clusters * self.figures["asks kept", self.groups]["bytes_in"] * self.unpacked
        return "kept" if self.clusters <= _CONNECTIONS and size <= _KEPT_BYTES else "met anew"

    @property
    def unpacked(self) -> float:
        """How much larger lists are than what comes over the wire, where the API server packs them."""
        return (
            self.groups
            / 3
            * self.figures["asks kept", 3]["bytes_in"]
            / self.figures["asks kept", self.groups]["bytes_in"]
        )

    @property
    def _asks(self) -> Mapping[str, float]:
        found: Mapping[str, float] = self.figures[f"asks {self.way}", self.groups]
        return found

    @property
    def cpu(self) -> float:
        """Seconds of one look."""
        size = 1 if self._in_chunk < 10 else _CHUNK
        return float(self.figures[f"look {self.way} {self.groups} {size}"]["cpu_ms"]) / 1000

    def lamda(self) -> float:
        wait = WAITS * self.memory("LookFunction") / self._in_chunk
        return LOOKS * ((self.cpu * GB_PER_PROCESSOR + wait) * GB_SECOND + INVOCATION / self._in_chunk)

    @staticmethod
    def memory(function: str) -> float:
        """GB that the template gives."""
        return Template().functions()[function].memory / 1024

    def queue(self) -> float:
        return LOOKS * (1 / min(10, self._chunks) + 2) / self._in_chunk * SQS

    def table(self) -> float:
        return LOOKS * (self._asks["half_read_units"] + 1 / self._in_chunk) / 2 * READ

    def logs(self) -> float:
        return LOOKS * (self._asks["log_bytes"] + PLATFORM_LOG) / self._in_chunk * LOGS

    def runs(self) -> float:
        outage = self.figures["outage"]
        processor = (outage["event_cpu_ms"] + outage["run_cpu_ms"]) / 1000 * GB_PER_PROCESSOR
        each = (processor + PATCH_WAITS * self.memory("RebalanceFunction")) * GB_SECOND + 2 * INVOCATION
        each += outage["write_units"] * WRITE + outage["half_read_units"] / 2 * READ + RUN_FIFO_REQUESTS * FIFO
        return RUNS * (each + RUN_EVENTS * EVENT + outage["log_bytes"] * LOGS)

    def fixed(self) -> float:
        """A cluster's part of what the stack costs as such."""
        scan = self.figures["scan", self.clusters]
        ticks = scan["cpu"] * GB_PER_PROCESSOR * GB_SECOND + INVOCATION + scan["half_read_units"] / 2 * READ + SCHEDULED
        idle = POLLS * (2 * SQS + FIFO)
        return (LOOKS * ticks + idle + METRICS * METRIC + alarms() * ALARM) / self.clusters

    def wire(self, way: str) -> float:
        """Bytes of one look, with those of packets and their acknowledgements; ``out`` or ``in``."""
        there, back = (self._asks[f"bytes_{each}"] for each in (("out", "in") if way == "out" else ("in", "out")))
        packets = there / SEGMENT + self._asks["requests"] + back / SEGMENT / 2 + (4 if self.way == "met anew" else 0)
        return float(there + packets * PACKET)

    def egress(self) -> float:
        return LOOKS * self.wire("out") * EGRESS

    def quiet(self) -> float:
        return self.lamda() + self.queue() + self.table() + self.logs()

    def sum(self) -> float:
        return self.quiet() + self.runs() + self.fixed() + self.egress()

    def nat(self) -> float:
        """Beside all else, where functions are in a VPC without another way out; the gateway's hours are shared."""
        return LOOKS * (self.wire("out") + self.wire("in")) * NAT + 730 * NAT_HOUR / self.clusters

    def secret(self) -> float:
        """A kubeconfig's: kept by each instance for five minutes, and read when a connection is made."""
        instances = self._chunks * (_CHUNK * self.cpu * GB_PER_PROCESSOR / self.memory("LookFunction") + WAITS) / 60
        reads = 0.0 if self.way == "kept" else LOOKS / ceil(5 / max(1.0, instances))
        return SECRET + reads * SECRET_READ


def hanging(figures: Mapping[str, Any]) -> float:
    """What a cluster costs in a month that takes requests and never answers: a look of its own every five minutes."""
    found, looks = figures["hanging"], LOOKS / 5
    look = found["wait"] * Stack.memory("LookFunction") * GB_SECOND + INVOCATION + 3 * SQS
    run = 0.1 * Stack.memory("RebalanceFunction") * GB_SECOND + INVOCATION + 3 * FIFO + 2 * WRITE + 2 * READ
    return float(looks * (look + run + 2 * (PLATFORM_LOG + 1_000) * LOGS))


def alarms() -> int:
    """Metrics of the template's alarms."""
    found = 0
    for alarm in Template().of_type("AWS::CloudWatch::Alarm").values():
        found += sum("MetricStat" in metric for metric in alarm.get("Metrics", [])) or 1
    return found


_ROWS = (
    ("Lambda `look`", Stack.lamda),
    ("SQS", Stack.queue),
    ("DynamoDB", Stack.table),
    ("logs", Stack.logs),
    (f"{RUNS} runs with patches", Stack.runs),
    ("egress to the internet", Stack.egress),
    ("the stack's own, shared", Stack.fixed),
    ("**sum**", Stack.sum),
    ("*NAT, beside it*", Stack.nat),
    ("*a kubeconfig's secret, beside it*", Stack.secret),
)


def tables(figures: Mapping[Any, Any]) -> str:
    """As Markdown."""
    lines = []
    for groups in GROUPS:
        stacks = [Stack(figures, groups, clusters) for clusters in CLUSTERS]
        lines += [f"| {groups} groups, $ per cluster and month | {' | '.join(f'{n:,}' for n in CLUSTERS)} |"]
        lines += ["|--|" + "--|" * len(CLUSTERS)]
        lines += [f"| {title} | {' | '.join(f'{row(stack):.4f}' for stack in stacks)} |" for title, row in _ROWS]
        lines += [""]
    return "\n".join([*lines, f"A cluster that hangs: ${hanging(figures):.2f} a month."])


class Figures(dict[Any, Any]):
    """By name; ``name, size`` finds what was measured at the size, or nearest above it."""

    def __missing__(self, key: Any) -> Any:
        name, size = key
        sizes = sorted(
            int(each.rpartition(" ")[2]) for each in self if isinstance(each, str) and each.rpartition(" ")[0] == name
        )
        return self[f"{name} {next((each for each in sizes if each >= size), sizes[-1])}"]


def main(arguments: Sequence[str] = ()) -> None:
    """For 3, 30 and 300 groups."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--measured", type=Path, default=Path(__file__).with_name("figures.json"))
    print(tables(Figures(json.loads(parser.parse_args(arguments).measured.read_text()))))


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
