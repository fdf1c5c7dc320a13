"""The bill of a month, calculated: measured figures (figures.json) times list prices, for stacks of several sizes.

us-east-1 list prices of November 2026, no free tier. Assumed values are the constants below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from math import ceil
from pathlib import Path
from statistics import mean
from typing import Any

from bench.rows import Rows
from evenkeel.domain.fleet.check_times import AUTO, SECOND_CHECKS, check_interval, is_full_check
from sandbox.template import Template

GROUPS = (3, 30)
CLUSTERS = (1, 40, 100, 1_000, 10_000)
MINUTES = 43_200
_MILLION, _GB = 1e6, 1e9

# Prices
GB_SECOND = 0.0000133334  # Lambda, arm64
INVOCATION = 0.20 / _MILLION
SQS, FIFO = 0.40 / _MILLION, 0.50 / _MILLION
READ, WRITE = 0.125 / _MILLION, 0.625 / _MILLION  # units of DynamoDB on demand
SCHEDULED, EVENT = 1.00 / _MILLION, 1.00 / _MILLION
LOGS = 0.50 / _GB
METRIC, ALARM, DASHBOARD = 0.30, 0.10, 3.00  # a metric is billed for the hours in which it is sent, of 730
SECRET, SECRET_READ = 0.40, 0.05 / 10_000
EGRESS = 0.09 / _GB  # to the internet
NAT, NAT_HOUR = 0.045 / _GB, 0.045
# Lambda gives a whole processor to 1,769 MB and bills memory: these are the GB-s of a second of processor time.
GB_PER_PROCESSOR = 1.769

# Assumed
WAITS = 0.15  # seconds that a chunk waits for all its API servers, a few milliseconds away
PATCH_WAITS = 0.5  # seconds that a run with patches waits
HANGING_LOG = 1_000  # bytes of Evenkeel's log line about a check, or a run, of a cluster that hangs
RUNS = 300  # a month with patches, of each cluster: ten a day
BUSY = 4 / 60  # hours from a run with patches until its cluster is steady
RUN_EVENTS, RUN_FIFO_REQUESTS = 2, 6
FOLLOWING = len(SECOND_CHECKS)  # runs after each of them that change nothing
ID_BYTES = 20  # of a cluster's id, with quotes and comma, in the item of the clusters that a chunk has checked
POLLS = 129_600  # of one poller of an idle queue in a month, every twenty seconds
# Lambda polls an idle standard queue with two, but not where MaximumConcurrency is set. FIFO is not documented.
POLLERS, QUIET_POLLERS = 5, 2
INCIDENT_HOURS = 0.05  # share of all hours in which a metric of incidents is sent
# Bytes of IP and TCP headers, and of a full packet's payload; every other packet is acknowledged.
PACKET, SEGMENT = 52, 1_448
ROUND_TRIP = 0.01  # seconds of one request to a workload cluster; pages are read in sequence
_WITH_OTHERS = 2_000  # pods that a chunk with other clusters reads, as in the product
_CHECKED_ITEM = 120  # bytes of the item of checked clusters without ids
_DECISION_ITEM = 400  # bytes, at most
_CHUNK, _CONNECTIONS = 50, 600  # as in the product
_REST = check_interval(AUTO, resting=True) / 60  # minutes

_MINUTES = [datetime(2026, 11, 21, tzinfo=UTC) + timedelta(minutes=minute) for minute in range(60)]
NOT_STEADY = RUNS * BUSY / 730
SIGNS = 30  # events a month that prove the source


@dataclass(frozen=True)
class Stack:
    """One size of stack. Each amount is dollars for one cluster and month."""

    figures: Mapping[Any, Any]
    groups: int
    clusters: int
    rests: bool = False  # True: ``scan_interval: auto`` and a proven event source

    @property
    def _checks(self) -> float:
        """Return the checks of one cluster in a minute."""
        return 1 / _REST * (1 - NOT_STEADY) + NOT_STEADY if self.rests else 1

    @property
    def full(self) -> float:
        """Return the full checks of one cluster in a minute: it is due for one, or is not steady."""
        return mean(is_full_check("cluster", 60, minute, resting=self.rests) for minute in _MINUTES) + NOT_STEADY

    @property
    def _chunks(self) -> float:
        """Return the chunks of a minute."""
        due = self.clusters * self._checks
        chunks = ceil(due / _CHUNK)
        return min(due, 1) if chunks == 1 else 1 << (chunks - 1).bit_length() if self.rests else chunks

    @property
    def in_chunk(self) -> float:
        return self.clusters * self._checks / self._chunks

    @property
    def _share(self) -> float:
        """Return the chunks of a minute for each cluster."""
        return self._chunks / self.clusters

    @property
    def way(self) -> str:
        """Return ``kept`` where an instance keeps its connections to all clusters. API servers do for 90 seconds."""
        return "kept" if self.clusters <= _CONNECTIONS and not self.rests else "met anew"

    def _sum(self, figure: Callable[[str], float]) -> float:
        """Return the sum of a figure over the quick and full checks of a minute."""
        return figure("quick") * (self._checks - self.full) + figure("full") * self.full

    def _traffic(self, check: str, name: str) -> float:
        return float(self.figures[f"traffic {check} {self.way}", self.groups][name])

    @property
    def cpu(self) -> float:
        """Return the processor's seconds for the checks of a minute."""
        size = 1 if self.in_chunk < 10 else _CHUNK
        return self._sum(lambda check: self.figures[f"{check} {self.way} {self.groups} {size}"]["cpu_ms"] / 1000)

    def lamda(self) -> float:
        """Return the cost of Lambda for checks."""
        wait = WAITS * self.memory("CheckFunction") * self._share
        return MINUTES * ((self.cpu * GB_PER_PROCESSOR + wait) * GB_SECOND + INVOCATION * self._share)

    @staticmethod
    def memory(function: str) -> float:
        """Return a function's GB in the template."""
        return Template().functions()[function].memory / 1024

    def queue(self) -> float:
        """Return the cost of SQS requests for checks."""
        return MINUTES * (1 / max(1, min(10, self._chunks)) + 2) * self._share * SQS

    def table(self) -> float:
        """Return the cost of DynamoDB reads and writes for checks."""
        reads = self._sum(lambda check: self._traffic(check, "half_read_units")) / 2 * READ
        ids = max(1, 1 / self._share)  # also those of clusters that rest
        checked = ceil((_CHECKED_ITEM + ids * ID_BYTES) / 1024) * self._share * WRITE
        return MINUTES * (reads + checked)

    def logs(self) -> float:
        """Return the cost of the checks' logs."""
        return MINUTES * self._sum(lambda check: self._traffic(check, "log_bytes")) * LOGS

    def runs(self) -> float:
        """Return the cost of runs with patches, and of the runs that follow them."""
        outage = self.figures["outage"]
        processor = (outage["event_cpu_ms"] + outage["run_cpu_ms"]) / 1000 * GB_PER_PROCESSOR
        run = (processor + PATCH_WAITS * self.memory("RebalanceFunction")) * GB_SECOND + 2 * INVOCATION
        run += outage["write_units"] * WRITE + outage["half_read_units"] / 2 * READ + RUN_FIFO_REQUESTS * FIFO
        wait = WAITS * self.memory("RebalanceFunction")
        after = (outage["following_cpu_ms"] / 1000 * GB_PER_PROCESSOR + wait) * GB_SECOND + INVOCATION
        after += self.figures[f"traffic full {self.way}", self.groups]["half_read_units"] * READ
        after += 3 * FIFO + outage["following_log_bytes"] * LOGS + outage["following_write_units"] * WRITE
        forward = 3 * SQS + INVOCATION + outage["forward_cpu_ms"] / 1000 * GB_PER_PROCESSOR * GB_SECOND
        run += RUN_EVENTS * EVENT + outage["log_bytes"] * LOGS + FOLLOWING * (forward + after)
        # Its steady state begins, and its rest ends and begins. The measured units have the end of its steady state.
        run += (3 if self.rests else 1) * WRITE
        event = EVENT + outage["event_cpu_ms"] / 1000 * GB_PER_PROCESSOR * GB_SECOND + INVOCATION + WRITE + 2 * READ
        return RUNS * run + (SIGNS * (event + after) if self.rests else 0)

    def fixed(self) -> float:
        """Return a cluster's share of the stack's own costs."""
        scan = self.figures["scan", self.clusters]
        ticks = scan["cpu"] * GB_PER_PROCESSOR * GB_SECOND + INVOCATION + scan["half_read_units"] / 2 * READ + SCHEDULED
        return (MINUTES * ticks + sum(own().values())) / self.clusters

    def wire(self, way: str) -> float:
        """Return the bytes of a minute's checks with packets and acknowledgements; ``out`` or ``in``."""
        ways = ("out", "in") if way == "out" else ("in", "out")

        def bytes_of(check: str) -> float:
            sent, back, requests = (
                self._traffic(check, name) for name in (*(f"bytes_{it}" for it in ways), "requests")
            )
            packets = sent / SEGMENT + requests + back / SEGMENT / 2 + (4 if self.way == "met anew" else 0)
            return sent + packets * PACKET

        return self._sum(bytes_of)

    def egress(self) -> float:
        """Return the cost of checks' traffic to the internet."""
        return MINUTES * self.wire("out") * EGRESS

    def quiet(self) -> float:
        """Return the cost of checks without their traffic to the internet."""
        return self.lamda() + self.queue() + self.table() + self.logs()

    def sum(self) -> float:
        """Return the cost of checks, runs and egress, with the cluster's share of the stack's own costs."""
        return self.quiet() + self.runs() + self.fixed() + self.egress()

    def auto_scaling(self, kind: str = "auto-scaling") -> float:
        """Return the sum for a cluster of Auto Scaling groups that has its own account, at most.

        The reads of these groups are in addition to those of an API server, which it does not have. AWS bills no
        traffic to its own APIs in the Region.
        """
        quick = f"quick auto-scaling {self.groups}"
        clients = self.figures[f"{quick} 1000 accounts"]["cpu_ms"] - self.figures[quick]["cpu_ms"]
        cpu = self._sum(lambda check: self.figures[f"{check} {kind} {self.groups}"]["cpu_ms"] + clients) / 1000
        return self.sum() - self.egress() + self.decisions() + MINUTES * cpu * GB_PER_PROCESSOR * GB_SECOND

    def decisions(self) -> float:
        """Return the cost of the decisions about groups: one consistent query reads all, a run writes each twice."""
        reads = MINUTES * self.full + RUNS * (1 + FOLLOWING)
        units = ceil(self.groups * _DECISION_ITEM / 4096)
        return reads * units * READ + RUNS * 2 * self.groups * WRITE

    def managed(self) -> float:
        """Return the same for managed node groups, at most: each full check asks EKS for all that one check may."""
        calls = self.figures[f"full managed node groups {self.groups}"]["eks_calls"]
        cpu = self.full * calls * self.figures["a call of EKS"]["cpu_ms"] / 1000
        return self.auto_scaling("managed node groups") + MINUTES * cpu * GB_PER_PROCESSOR * GB_SECOND

    def nat(self) -> float:
        """Return the NAT gateway's cost, where functions are in a VPC without endpoints; its hours are shared."""
        return MINUTES * (self.wire("out") + self.wire("in")) * NAT + 730 * NAT_HOUR / self.clusters

    def secret(self) -> float:
        """Return a kubeconfig secret's cost: an instance keeps it for five minutes and reads it per connection."""
        seconds = self.cpu / self._checks * GB_PER_PROCESSOR / self.memory("CheckFunction")
        instances = self._chunks * (_CHUNK * seconds + WAITS) / 60
        reads = 0.0 if self.way == "kept" else MINUTES * self._checks / ceil(5 / max(1.0, instances))
        return SECRET + reads * SECRET_READ


def demand(figures: Mapping[str, Any], nodes: int, pods: int, groups: int, *, pending: bool) -> float:
    """Return the additional cost of checks that read a cluster's pods, in a stack of a hundred clusters."""
    stack, view = Stack(figures, groups, 100), figures[f"workload view {nodes} {pods}"]
    way = "kept" if pending else "nobody_waits"
    requests, memory = view[f"{way}_requests"], Stack.memory("CheckFunction")
    seconds = {check: figures[f"{check} kept {groups} {_CHUNK}"]["cpu_ms"] / 1000 for check in ("quick", "full")}
    cpu = (
        view[f"{way}_cpu_s"] + pending * view["advice_cpu_s"] + (seconds["full"] - seconds["quick"]) * (1 - stack.full)
    )
    is_alone = pending and pods > _WITH_OTHERS
    waits = requests * ROUND_TRIP * memory / (1 if is_alone else stack.in_chunk)
    check = (cpu * GB_PER_PROCESSOR + waits) * GB_SECOND + is_alone * (INVOCATION + 3 * SQS)
    traffic = figures["traffic full kept", groups]
    return float(MINUTES * (check + requests * traffic["bytes_out"] / traffic["requests"] * EGRESS))


def hanging(figures: Mapping[str, Any]) -> float:
    """Return the cost of a cluster that never answers: one separate check every five minutes, after two messages."""
    check = figures["hanging"]["wait"] * Stack.memory("CheckFunction") * GB_SECOND + 2 * (INVOCATION + 3 * SQS)
    check += figures["outage"]["forward_cpu_ms"] / 1000 * GB_PER_PROCESSOR * GB_SECOND
    run = 0.1 * Stack.memory("RebalanceFunction") * GB_SECOND + INVOCATION + 3 * FIFO + 2 * WRITE + 2 * READ
    return float(MINUTES / 5 * (check + run + 2 * HANGING_LOG * LOGS))


@cache
def own() -> Mapping[str, float]:
    """Return the stack's own costs in a month without clusters and scans, as the template has them."""
    read = [metric for metrics in alarms().values() for metric in metrics]
    incident = {metric["MetricName"] for metric in read if metric["Namespace"] == "Evenkeel"}
    share = f"in {INCIDENT_HOURS:.0%} of all hours"
    return {
        f"{' and '.join(f'`{name}`' for name in sorted(incident))}, {share}": len(incident) * METRIC * INCIDENT_HOURS,
        f"{len(alarms())} alarms with {len(read)} metrics": len(read) * ALARM,
        **{
            f"idle polls of `{queue}`, by {count}": count * POLLS * price for queue, (count, price) in pollers().items()
        },
    }


def alarms() -> dict[str, list[Mapping[str, Any]]]:
    """Return the metrics that the template's alarms read, by logical id."""
    return {
        name: [one["MetricStat"]["Metric"] for one in alarm.get("Metrics", []) if "MetricStat" in one] or [alarm]
        for name, alarm in Template().of_type("AWS::CloudWatch::Alarm").items()
    }


def pollers() -> dict[str, tuple[int, float]]:
    """Return each queue's pollers when it is idle, and the price of a request."""
    counts, queues = {}, Template().of_type("AWS::SQS::Queue")
    for function in Template().functions().values():
        for event in (source["Properties"] for source in function.events.values() if source["Type"] == "SQS"):
            name = event["Queue"]["Fn::GetAtt"][0]
            is_fifo = queues[name].get("FifoQueue", False)
            counts[name] = (POLLERS if is_fifo or "ScalingConfig" in event else QUIET_POLLERS, FIFO if is_fifo else SQS)
    return counts


def dashboard_metrics() -> set[str]:
    """Return the metrics of Evenkeel that the template's dashboard draws."""
    body = Template().of_type("AWS::CloudWatch::Dashboard")["Dashboard"]["DashboardBody"]
    names = set()
    for widget in json.loads(Template().resolve(body, lambda name, _: name))["widgets"]:
        namespace = ""
        for metric in widget["properties"].get("metrics", []):
            namespace = namespace if metric[0].startswith(".") else metric[0]
            names |= {metric[1]} if namespace == "Evenkeel" else set()
    return names


_ROWS = (
    ("Lambda `check`", Stack.lamda),
    ("SQS, DynamoDB, logs", lambda stack: stack.queue() + stack.table() + stack.logs()),
    (f"{RUNS} runs with patches, and after them", Stack.runs),
    ("egress to the internet", Stack.egress),
    ("the stack's own, shared", Stack.fixed),
    ("**sum**", Stack.sum),
    ("**sum, events proven**", lambda stack: replace(stack, rests=True).sum()),
    ("**sum, Auto Scaling groups, at most**", Stack.auto_scaling),
    ("**sum, managed node groups, at most**", Stack.managed),
    ("*NAT, in addition*", Stack.nat),
    ("*a kubeconfig's secret, in addition*", Stack.secret),
)
# The other costs hardly depend on the number of groups.
_OF_MORE_GROUPS = [row for row in _ROWS if row[0].startswith("**") or row[1] == Stack.nat]


def bill(measured: str = str(Path(__file__).with_name("figures.json"))) -> Rows:
    """Calculate the bill from measured figures, for 3 and 30 groups (docs/operate/cost.md)."""
    figures = Figures(json.loads(Path(measured).read_text()))
    for groups in GROUPS:
        yield f"{groups} groups, $ per cluster and month"
        stacks = [Stack(figures, groups, clusters) for clusters in CLUSTERS]
        for title, cost in _ROWS if groups == GROUPS[0] else _OF_MORE_GROUPS:
            yield title, {f"{stack.clusters:,}": f"{cost(stack):.4f}" for stack in stacks}
    yield "the stack's own"
    prices = {**own(), "scan and its schedule, with 100 clusters": Stack(figures, GROUPS[0], 100).fixed() * 100}
    prices["scan and its schedule, with 100 clusters"] -= sum(own().values())
    prices["**sum**"] = sum(prices.values())
    names = dashboard_metrics()
    dashboard = f"*`WithDashboard=true`, in addition: the dashboard and all {len(names)} metrics, at most*"
    prices[dashboard] = DASHBOARD + len(names) * METRIC
    for title, price in prices.items():
        yield title, {"$ per month": f"{price:.3f}"}
    yield "a check a minute with [demand](../guides/demand.md), $ per cluster and month in addition"
    for nodes, pods, groups in ((30, 900, 3), (300, 9_000, 30), (5_000, 150_000, 300)):
        none, some = (demand(figures, nodes, pods, groups, pending=pending) for pending in (False, True))
        yield f"{nodes:,} nodes, {pods:,} pods", {"no pending pods": f"{none:.3f}", "all is read": f"{some:.2f}"}
    yield "a cluster that hangs"
    yield "a check and a run every five minutes", {"$ per month": f"{hanging(figures):.2f}"}


class Figures(dict[Any, Any]):
    """Figures by name; ``name, size`` finds those of the size, or of the nearest above it."""

    def __missing__(self, key: Any) -> Any:
        name, size = key
        sizes = sorted(int(key[len(name) :]) for key in self if re.fullmatch(rf"{re.escape(name)} \d+", key))
        return self[f"{name} {next((known for known in sizes if known >= size), sizes[-1])}"]
