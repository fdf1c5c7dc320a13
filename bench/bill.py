"""The bill of a month, reckoned: what was measured (figures.json) times list prices, for stacks of several sizes.

    python -m bench.bill [--measured build/figures.json]

us-east-1 list prices of November 2026, no free tier. What is assumed and not measured has a name of its own, below.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from math import ceil
from pathlib import Path
from statistics import mean
from typing import Any

from evenkeel.adapters.aws.metrics import HEARTBEAT
from evenkeel.domain.fleet.check_times import SECOND_CHECKS, is_full_check
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
METRIC, ALARM, DASHBOARD = 0.30, 0.10, 3.00  # a metric's month has 730 hours; only those count in which it is sent
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
BUSY = 4 / 60  # hours from each of them until nothing more is to be done
RUN_EVENTS, RUN_FIFO_REQUESTS = 2, 6
ID_BYTES = 20  # of a cluster's id, with its quotes and comma, where a chunk says which clusters it has read
FOLLOWING = len(SECOND_CHECKS) + 1  # runs after it that write nothing, and one of them that nothing is to be done
POLLS = 129_600  # a month of one poller of an idle queue, which waits twenty seconds
# Lambda polls a standard queue with two when there is little to do, but not where MaximumConcurrency is set. Of FIFO
# queues its pages do not say so.
POLLERS, QUIET_POLLERS = 5, 2
TROUBLED = 0.05  # of all hours: those in which a metric is sent that only trouble sends
PACKET, SEGMENT = (
    52,
    1_448,
)  # bytes of IP and TCP around a packet, and in a full one; every other packet is acknowledged
ROUND_TRIP = 0.01  # seconds of one request to a workload cluster; its pages come one after the other
_BESIDE_OTHERS = 2_000  # pods that are read beside others' looks, as in the product
_SAYS_SO = 120  # bytes of that item besides
_CHUNK, _CONNECTIONS = 50, 600  # as in the product

_MINUTES = [datetime(2026, 11, 21, tzinfo=UTC) + timedelta(minutes=minute) for minute in range(60)]
# Of all looks, those at all of a cluster: it is its turn, or something goes on in it.
WHOLE = mean(is_full_check("cluster", 60, minute) for minute in _MINUTES) + RUNS * BUSY / 730


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
        """Whether an instance that meets all clusters keeps its connections."""
        return "kept" if self.clusters <= _CONNECTIONS else "met anew"

    def _mean(self, figure: Callable[[str], float]) -> float:
        """Of what a glance takes, and what a look at all of a cluster does."""
        return figure("glance") * (1 - WHOLE) + figure("whole") * WHOLE

    def _whole(self, name: str) -> float:
        return float(self.figures[f"asks whole {self.way}", self.groups][name])

    def _asks(self, name: str) -> float:
        return self._mean(lambda look: float(self.figures[f"asks {look} {self.way}", self.groups][name]))

    @property
    def cpu(self) -> float:
        """Seconds of one look."""
        size = 1 if self._in_chunk < 10 else _CHUNK
        return self._mean(lambda look: self.figures[f"{look} {self.way} {self.groups} {size}"]["cpu_ms"] / 1000)

    def lamda(self) -> float:
        wait = WAITS * self.memory("CheckFunction") / self._in_chunk
        return LOOKS * ((self.cpu * GB_PER_PROCESSOR + wait) * GB_SECOND + INVOCATION / self._in_chunk)

    @staticmethod
    def memory(function: str) -> float:
        """GB that the template gives."""
        return Template().functions()[function].memory / 1024

    def queue(self) -> float:
        return LOOKS * (1 / min(10, self._chunks) + 2) / self._in_chunk * SQS

    def table(self) -> float:
        reads = (self._asks("half_read_units") + 1 / self._in_chunk) / 2 * READ
        says_so = ceil((_SAYS_SO + self._in_chunk * ID_BYTES) / 1024) / self._in_chunk * WRITE
        return LOOKS * (reads + says_so)

    def logs(self) -> float:
        return LOOKS * (self._asks("log_bytes") + PLATFORM_LOG) / self._in_chunk * LOGS

    def runs(self) -> float:
        outage = self.figures["outage"]
        processor = (outage["event_cpu_ms"] + outage["run_cpu_ms"]) / 1000 * GB_PER_PROCESSOR
        each = (processor + PATCH_WAITS * self.memory("RebalanceFunction")) * GB_SECOND + 2 * INVOCATION
        each += outage["write_units"] * WRITE + outage["half_read_units"] / 2 * READ + RUN_FIFO_REQUESTS * FIFO
        after = (
            outage["following_cpu_ms"] / 1000 * GB_PER_PROCESSOR + WAITS * self.memory("RebalanceFunction")
        ) * GB_SECOND
        after += INVOCATION + self._whole("half_read_units") * READ + 3 * (FIFO + SQS) + PLATFORM_LOG * LOGS
        remembered = 4 * WRITE  # that it is settled no more, and that it is again
        return RUNS * (each + RUN_EVENTS * EVENT + outage["log_bytes"] * LOGS + FOLLOWING * after + remembered)

    def fixed(self) -> float:
        """A cluster's part of what the stack costs as such."""
        scan = self.figures["scan", self.clusters]
        ticks = scan["cpu"] * GB_PER_PROCESSOR * GB_SECOND + INVOCATION + scan["half_read_units"] / 2 * READ + SCHEDULED
        return (LOOKS * ticks + sum(own().values())) / self.clusters

    def wire(self, way: str) -> float:
        """Bytes of one look, with those of packets and their acknowledgements; ``out`` or ``in``."""
        there, back = (self._asks(f"bytes_{each}") for each in (("out", "in") if way == "out" else ("in", "out")))
        packets = there / SEGMENT + self._asks("requests") + back / SEGMENT / 2 + (4 if self.way == "met anew" else 0)
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
        instances = self._chunks * (_CHUNK * self.cpu * GB_PER_PROCESSOR / self.memory("CheckFunction") + WAITS) / 60
        reads = 0.0 if self.way == "kept" else LOOKS / ceil(5 / max(1.0, instances))
        return SECRET + reads * SECRET_READ


def demand(figures: Mapping[str, Any], nodes: int, pods: int, groups: int, *, somebody_waits: bool) -> float:
    """What looks at the pods of a cluster cost in a month, beside the rest: one of a hundred clusters of a stack."""
    stack, found = Stack(figures, groups, 100), figures[f"workload view {nodes} {pods}"]
    way = "kept" if somebody_waits else "nobody_waits"
    requests, memory = found[f"{way}_requests"], Stack.memory("CheckFunction")
    looked_at = {look: figures[f"{look} kept {groups} {_CHUNK}"]["cpu_ms"] / 1000 for look in ("glance", "whole")}
    cpu = (
        found[f"{way}_cpu_s"]
        + somebody_waits * found["advice_cpu_s"]
        + (looked_at["whole"] - looked_at["glance"]) * (1 - WHOLE)
    )
    is_alone = somebody_waits and pods > _BESIDE_OTHERS
    waits = requests * ROUND_TRIP * memory / (1 if is_alone else stack._in_chunk)
    look = (cpu * GB_PER_PROCESSOR + waits) * GB_SECOND + is_alone * (INVOCATION + 3 * SQS + PLATFORM_LOG * LOGS)
    asks = figures["asks whole kept", groups]
    return float(LOOKS * (look + requests * asks["bytes_out"] / asks["requests"] * EGRESS))


def hanging(figures: Mapping[str, Any]) -> float:
    """What a cluster costs in a month that takes requests and never answers: a look of its own every five minutes."""
    found, looks = figures["hanging"], LOOKS / 5
    look = found["wait"] * Stack.memory("CheckFunction") * GB_SECOND + INVOCATION + 3 * SQS
    run = 0.1 * Stack.memory("RebalanceFunction") * GB_SECOND + INVOCATION + 3 * FIFO + 2 * WRITE + 2 * READ
    return float(looks * (look + run + 2 * (PLATFORM_LOG + 1_000) * LOGS))


@cache
def own() -> Mapping[str, float]:
    """What a stack costs in a month but for clusters and ticks, by what it is for: as the template says."""
    read = [metric for metrics in alarms().values() for metric in metrics]
    troubled = {metric["MetricName"] for metric in read if metric["Namespace"] == "Evenkeel"} - {HEARTBEAT}
    share = f"in {TROUBLED:.0%} of all hours"
    return {
        f"the metric `{HEARTBEAT}`": METRIC,
        f"{' and '.join(f'`{name}`' for name in sorted(troubled))}, {share}": len(troubled) * METRIC * TROUBLED,
        f"{len(alarms())} alarms with {len(read)} metrics": len(read) * ALARM,
        **{
            f"idle polls of `{queue}`, by {count}": count * POLLS * price for queue, (count, price) in pollers().items()
        },
    }


def alarms() -> dict[str, list[Mapping[str, Any]]]:
    """What the template's alarms read, by their logical ids."""
    return {
        name: [each["MetricStat"]["Metric"] for each in alarm.get("Metrics", []) if "MetricStat" in each] or [alarm]
        for name, alarm in Template().of_type("AWS::CloudWatch::Alarm").items()
    }


def pollers() -> dict[str, tuple[int, float]]:
    """How many pollers each queue of the template has when it is idle, and what one of their requests costs."""
    found, queues = {}, Template().of_type("AWS::SQS::Queue")
    for function in Template().functions().values():
        for event in (each["Properties"] for each in function.events.values() if each["Type"] == "SQS"):
            name = event["Queue"]["Fn::GetAtt"][0]
            is_fifo = queues[name].get("FifoQueue", False)
            found[name] = (POLLERS if is_fifo or "ScalingConfig" in event else QUIET_POLLERS, FIFO if is_fifo else SQS)
    return found


def quote() -> set[str]:
    """Metrics of ours that the template's dashboard draws."""
    body = Template().of_type("AWS::CloudWatch::Dashboard")["Dashboard"]["DashboardBody"]
    found = set()
    for widget in json.loads(Template().resolve(body, lambda name, _: name))["widgets"]:
        namespace = ""
        for metric in widget["properties"].get("metrics", []):
            namespace = namespace if metric[0].startswith(".") else metric[0]
            found |= {metric[1]} if namespace == "Evenkeel" else set()
    return found


_ROWS = (
    ("Lambda `look`", Stack.lamda),
    ("SQS", Stack.queue),
    ("DynamoDB", Stack.table),
    ("logs", Stack.logs),
    (f"{RUNS} runs with patches, and after them", Stack.runs),
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
    lines += [*_own_table(figures), "", *_demand_table(figures), ""]
    return "\n".join([*lines, f"A cluster that hangs: ${hanging(figures):.2f} a month."])


def _own_table(figures: Mapping[Any, Any]) -> list[str]:
    ticks = Stack(figures, GROUPS[0], 100).fixed() * 100 - sum(own().values())
    rows = {**own(), "scan and its schedule, with 100 clusters": ticks}
    rows["**sum**"] = sum(rows.values())
    page = f"*`WithDashboard=true`, beside it: the page and all {len(quote())} metrics, at most*"
    rows[page] = DASHBOARD + (len(quote()) - 1) * METRIC
    return [
        "| the stack's own, $ per month | |",
        "|--|--|",
        *(f"| {title} | {price:.3f} |" for title, price in rows.items()),
    ]


def _demand_table(figures: Mapping[Any, Any]) -> list[str]:
    lines = [
        "| a look a minute with [demand](demand.md), $ per cluster and month besides | nobody waits | all is read |"
    ]
    lines += ["|--|--|--|"]
    for nodes, pods, groups in ((30, 900, 3), (300, 9_000, 30)):
        prices = [demand(figures, nodes, pods, groups, somebody_waits=waits) for waits in (False, True)]
        lines.append(f"| {nodes} nodes, {pods:,} pods | {prices[0]:.3f} | {prices[1]:.2f} |")
    return lines


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
