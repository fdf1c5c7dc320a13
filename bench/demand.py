"""The CPU that demand takes in a check: scale_up() and scale_down() by size, as ratios to the smallest."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from bench.figures import keep
from evenkeel.domain.demand.scale_down import scale_down
from evenkeel.domain.demand.scale_up import scale_up
from evenkeel.domain.model.demand import DemandPolicy, GroupOffer, PoolOffer, ScaleDownState
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.templates import NodeTemplate
from evenkeel.domain.model.workload import (
    HOSTNAME,
    ZONE,
    Container,
    Needs,
    Node,
    Owner,
    Pod,
    Requirement,
    TopologySpreadConstraint,
    Unscheduled,
    Workload,
)

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_BEFORE = _NOW - timedelta(hours=1)
_GIB = 2**30
# Pending pods, kinds of them, pools of three zones; and nodes with thirty pods each.
GROWTHS = ((500, 50, 3), (5_000, 50, 3), (5_000, 500, 3), (5_000, 500, 30))
FLEETS = (10, 100, 1_000)
_ROUNDS = 3


def _amounts(cpu: int, memory: int) -> dict[str, Fraction]:
    """Thousandths of a core, MiB."""
    return {"cpu": Fraction(cpu, 1000), "memory": Fraction(memory * 2**20)}


def _pod(name: str, kind: int, *, node: str = "", spreads: bool = False) -> Pod:
    labels = {"app": f"app-{kind}"}
    selector = (Requirement("app", "In", (labels["app"],)),)
    spread = (TopologySpreadConstraint(key=ZONE, max_skew=1, selector=selector),) if spreads else ()
    requests = _amounts(100 + kind % 37 * 50, 128 + kind % 41 * 64)
    return Pod(
        namespace=f"team-{kind % 20}",
        name=name,
        created_at=_BEFORE,
        labels=labels,
        owner=Owner("ReplicaSet", labels["app"]),
        node=node,
        phase="Running" if node else "Pending",
        unscheduled=None if node else Unscheduled("Unschedulable", _BEFORE),
        needs=Needs(containers=(Container(requests=requests),), spread=spread),
    )


def _pools(count: int) -> tuple[PoolOffer, ...]:
    """Pools of ever larger nodes, three zones each, with more room than anybody needs."""
    pools = []
    for number in range(count):
        size = {**_amounts(8000 + number * 1000, (32 + number * 4) * 1024), "pods": Fraction(110)}
        template = NodeTemplate(capacity=size, allocatable=size)
        groups = tuple(
            GroupOffer(
                group=GroupKey("cluster-api", "bench", f"pool-{number}-{zone}"), zone=zone, room=1000, template=template
            )
            for zone in "abc"
        )
        pools.append(PoolOffer(pool=PoolId("cluster-api", "bench", "", f"pool-{number:02}"), groups=groups, room=3000))
    return tuple(pools)


def _growth(pending: int, kinds: int, pools: int, *, spreads: int) -> Callable[[], str]:
    """Every so many kinds spread over zones; 0: none do."""
    waiting = tuple(
        _pod(f"p{number}", number % kinds, spreads=bool(spreads) and number % kinds % spreads == 0)
        for number in range(pending)
    )
    offers = _pools(pools)

    def work() -> str:
        answer = scale_up(Workload(pods=waiting), offers, DemandPolicy(), _NOW)
        if answer.unmet or not answer.nodes:
            raise AssertionError(f"{len(answer.unmet)} kinds unmet, {answer.nodes} nodes: this is no work")
        return f"{answer.nodes} nodes"

    return work


def _fleet(count: int) -> tuple[Workload, PoolOffer]:
    """A fleet whose every second node is light; each with thirty pods."""
    size = {**_amounts(32_000, 128 * 1024), "pods": Fraction(110)}
    nodes, running = [], []
    for number in range(count):
        zone, name = "abc"[number % 3], f"n{number:04}"
        key = GroupKey("cluster-api", "bench", f"pool-0-{zone}")
        nodes.append(Node(name=name, labels={ZONE: zone, HOSTNAME: name}, capacity=size, allocatable=size, group=key))
        running += [_pod(f"{name}-{i}", i if number % 2 else i * 37, node=name) for i in range(30)]
    groups = tuple(
        GroupOffer(group=GroupKey("cluster-api", "bench", f"pool-0-{zone}"), zone=zone, requested=count, room=1000)
        for zone in "abc"
    )
    pool = PoolOffer(pool=PoolId("cluster-api", "bench", "", "pool-0"), groups=groups, room=3000)
    return Workload(nodes=tuple(nodes), pods=tuple(running)), pool


def _shrinking(count: int) -> Callable[[], str]:
    workload, pool = _fleet(count)

    def work() -> str:
        answer = scale_down(workload, (pool,), ScaleDownState(), DemandPolicy(), _NOW)
        if not answer.clocks:
            raise AssertionError("no node is unneeded: this is no work")
        return f"{len(answer.clocks)} of {count} nodes unneeded"

    return work


def _growth_in_a_fleet(count: int) -> Callable[[], str]:
    """Five pods a node wait, of half as many kinds as there are nodes, and find room on what is there."""
    workload, pool = _fleet(count)
    waiting = tuple(_pod(f"p{number}", number % (count // 2)) for number in range(5 * count))
    workload = Workload(nodes=workload.nodes, pods=(*workload.pods, *waiting))

    def work() -> str:
        answer = scale_up(workload, (pool,), DemandPolicy(), _NOW)
        if len(answer.fits_already) < len(waiting):
            raise AssertionError(f"{len(answer.fits_already)} pods fit what is there: this is other work")
        return f"{len(answer.fits_already)} pods fit what is there"

    return work


def _measure(title: str, works: dict[str, Callable[[], str]]) -> None:
    """Medians of rounds in which the sizes take turns."""
    print(f"{title}: CPU, medians of {_ROUNDS} (least-most)")
    spent: dict[str, list[float]] = {name: [] for name in works}
    outcome = {}
    for _ in range(_ROUNDS):
        for name, work in works.items():
            began = time.process_time()
            outcome[name] = work()
            spent[name].append(time.process_time() - began)
    first = statistics.median(next(iter(spent.values())))
    for name, each in spent.items():
        median = statistics.median(each)
        keep("demand", name, cpu_s=median)
        print(f"  {name}: {median:6.2f} s ({min(each):.2f}-{max(each):.2f}), {median / first:5.1f} x; {outcome[name]}")


def main() -> None:
    for title, more, spreads in (
        ("scale_up()", "", 0),
        ("scale_up(), every tenth kind spread over zones", ", spread", 10),
        ("scale_up(), every kind spread over zones", ", all spread", 1),
    ):
        works = {
            f"{pending} pods of {kinds} kinds, {pools} pools{more}": _growth(pending, kinds, pools, spreads=spreads)
            for pending, kinds, pools in GROWTHS
        }
        _measure(title, works)
    grown = {f"{count} nodes, {5 * count} pods wait": _growth_in_a_fleet(count) for count in FLEETS}
    _measure("scale_up() in a fleet, 30 pods a node", grown)
    _measure("scale_down(), 30 pods a node", {f"{count} nodes": _shrinking(count) for count in FLEETS})


if __name__ == "__main__":
    main()
