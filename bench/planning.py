"""Benches of planning: processor time of the domain's functions by size. Sizes that are compared take turns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

from bench.rows import Rows, peak, share_of, timed
from evenkeel.domain.demand.scale_down import scale_down
from evenkeel.domain.demand.scale_up import scale_up
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.model.demand import DemandPolicy, PoolOffer, ScaleDownState
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.policy import Policy, PoolSettings
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.water_fill import water_fill
from evenkeel.domain.model.workload import (
    HOSTNAME,
    ZONE,
    Claim,
    HostPort,
    Needs,
    NodeSelectorTerm,
    Owner,
    Pod,
    PodAffinityTerm,
    PodVolume,
    TopologySpreadConstraint,
    Volume,
    Workload,
)
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from tests.builders import MINUTE, NOW, group, in_backoff, machines, refused
from tests.parts import replace
from tests.workloads import container, group_key, node, pod, pool_offer, selector, template

_Answer = TypeVar("_Answer")


def _in_turns(
    works: Mapping[str, Callable[[], _Answer]], rounds: int, repeats: Callable[[str], int] = lambda _: 1
) -> Iterator[tuple[str, list[float], list[float], _Answer]]:
    """Run works in turns. Yield each one's name, seconds by round, ratios to the first work, and last answer."""
    spent: dict[str, list[float]] = {name: [] for name in works}
    answers: dict[str, _Answer] = {}
    for _ in range(rounds):
        for name, work in works.items():
            with timed() as timer:
                for _ in range(repeats(name)):
                    answers[name] = work()
            spent[name].append(timer.cpu / repeats(name))
    first = next(iter(spent.values()))
    for name, seconds in spent.items():
        yield name, seconds, [mine / other for mine, other in zip(seconds, first, strict=True)], answers[name]


def plan_growth(pools: tuple[int, ...] = (10, 100, 1_000, 10_000), rounds: int = 5) -> Rows:
    """Measure plan() per group, with the ratio to ``reference_work()``.

    ``plan_worlds`` has the kinds of pools. Of 100 pools, each kind is measured.
    """
    worlds = {
        f"{name}, {size} pools": world
        for size in pools
        for name, world in plan_worlds(size).items()
        if size == 100 or name in ("quiet", "uneven")
    }
    worlds |= {
        "quiet, one pool of 300 groups": _planned(quiet_pools(1, 300)),
        "quiet, 300 pools of one group": _planned(quiet_pools(300, 1)),
        "quiet, 40 pools of seven groups": _planned(quiet_pools(40, 7)),
    }
    works: dict[str, Callable[[], Plan | None]] = {"reference": reference_work}
    works |= {name: partial(plan_balanced, *world) for name, world in worlds.items()}
    repeats = {name: max(1, 3_000 // len(groups)) for name, (groups, _) in worlds.items()} | {"reference": 10}
    for name, seconds, ratios, made in _in_turns(works, rounds, repeats.__getitem__):
        if made is None:
            continue
        groups = len(worlds[name][0])
        if name.startswith("uneven") and len(made.changes) < groups / 2:
            raise RuntimeError(f"{len(made.changes)} of {groups} groups would change")
        yield (
            f"plan {name}",
            {"µs per group": [1e6 * s / groups for s in seconds], "ratio": [1000 * r / groups for r in ratios]},
        )


_World = tuple[Sequence[NodeGroup], ClusterState]


def plan_worlds(pools: int) -> dict[str, _World]:
    """Return pools of three groups, and their state, by kind.

    Quiet pools were planned before, and have not changed since. Each group of an uneven pool changes. Each group of a
    fenced pool has failed. Each group of a waiting pool lacks machines. A refused pool's provider has refused them.
    A listed pool is quiet, and its machines have taught it their provision times. To a new pool, they are new.
    """
    quiet, state = _planned(quiet_pools(pools))
    listed = [_listed(group) for group in quiet_pools(pools, nodes=20)]
    short = [replace(group, running=group.requested - 2) for group in quiet]
    return {
        "quiet": (quiet, state),
        "uneven": (uneven_pools(pools), ClusterState()),
        "fenced": (quiet, replace(state, groups={group.key: in_backoff() for group in quiet})),
        "waiting": ([machines(group, MINUTE, MINUTE) for group in short], state),
        "refused": ([refused(group, MINUTE, MINUTE) for group in short], state),
        "listed": _planned(listed),
        "new": (listed, ClusterState()),
    }


def _listed(group: NodeGroup) -> NodeGroup:
    """Return the group with its machines, which have joined within a minute."""
    joined = [replace(one, joined_at=one.created_at + MINUTE) for one in machines(group).machines or ()]
    return replace(group, machines=tuple(joined), machine_type="m7i.large")


def _planned(groups: Sequence[NodeGroup]) -> _World:
    """Return groups with the state that a plan of them leaves."""
    return groups, ClusterState(pools=plan_balanced(groups, ClusterState()).pool_states)


def plan_balanced(groups: Sequence[NodeGroup], state: ClusterState) -> Plan:
    """Return the plan of pools with the default settings of a record."""
    settings = PoolSettings(strategy=BALANCED, timeout_mode="auto")
    return plan(Observation(groups=tuple(groups)), state, Policy(settings=settings), NOW)


class Bucket(NamedTuple):
    """A group that gets nodes: its size, its room for further nodes, and its rank among equals (the lowest first)."""

    level: int
    room: int
    weight: int = 1
    tie: int = 0


def reference_work(sizes: int = 1_000) -> None:
    """Do a fixed amount of work in plain Python: objects, mappings and sorting, as a plan does."""
    for size in range(sizes):
        buckets = [Bucket(level=(size + i) % 7, room=i, tie=i * 7919 % 1009) for i in range(10)]
        by_tie = {bucket.tie: bucket.level + bucket.room for bucket in buckets}
        buckets.sort(key=lambda bucket: (bucket.level, bucket.tie))
        sum([by_tie[bucket.tie] for bucket in buckets])


def quiet_pools(pools: int, size: int = 3, nodes: int = 3) -> list[NodeGroup]:
    """Return even pools, each with so many zones, and so many nodes in each zone."""
    most = nodes + 2
    return [
        group(f"z{zone:03}", nodes, bounds=(1, most), pool=f"pool-{pool}", pool_min=size, pool_max=most * size)
        for pool in range(pools)
        for zone in range(size)
    ]


def uneven_pools(pools: int) -> list[NodeGroup]:
    """Return uneven pools of three zones."""
    return [
        group("abc"[zone], (pool + zone * 3) % 5, bounds=(0, 7), pool=f"pool-{pool}", pool_min=3, pool_max=18)
        for pool in range(pools)
        for zone in range(3)
    ]


def growth_split(rounds: int = 5) -> Rows:
    """Measure the closed form that splits K nodes over a pool, and how much longer a loop over the nodes takes.

    The loop is also Python, with a constant time for each node. The loop of cluster-autoscaler is Go. For 1,000
    pools of three groups it was 12 times as fast at K = 10, and slower than the closed form from K = 2,000 on.
    """
    for groups, pools in ((3, 1_000), (10, 100), (1_000, 1)):
        for nodes in (10, 1_000, 100_000):
            buckets = [Bucket(level=i % 7, room=1 if i % 5 == 0 else nodes, tie=i * 7919 % 1009) for i in range(groups)]
            levels, room, _, ties = zip(*buckets, strict=True)
            works = {
                "closed": partial(water_fill, nodes, levels, room, ties.__getitem__),
                "loop": partial(one_by_one, buckets, nodes),
            }
            repeats = {"closed": max(10, pools // 10), "loop": max(1, pools * 10 // nodes)}
            (_, closed, _, split), (_, _, ratios, expected) = _in_turns(works, rounds, repeats.__getitem__)
            if split != expected:
                raise RuntimeError(f"{nodes} nodes over {groups} groups are split differently")
            yield f"{groups} groups, K = {nodes}", {"µs": [1e6 * s for s in closed], "loop, times as long": ratios}


def one_by_one(buckets: list[Bucket], amount: int) -> list[int]:
    """Return the split that gives each node to the smallest group, in constant time per node."""
    shares = [0] * len(buckets)
    levels: dict[int, list[int]] = defaultdict(list)
    order = sorted((i for i, bucket in enumerate(buckets) if bucket.room), key=lambda i: buckets[i].tie)
    for i in order:
        levels[buckets[i].level].append(i)
    place = {i: position for position, i in enumerate(order)}
    level = min(levels, default=0)
    while amount and levels:
        members = levels.pop(level, [])
        rest = [i for i in members[:amount] if buckets[i].room > shares[i] + 1]
        for i in members[:amount]:
            shares[i] += 1
        amount -= min(amount, len(members))
        level += 1
        if rest:  # both lists are sorted: the sort only joins them
            levels[level] = sorted(levels[level] + rest, key=place.__getitem__) if level in levels else rest
    return shares


# --- demand

# What the kinds of pods depend on, in turns.
TRAITS = {
    "no kind spread over zones": ("",),
    "every tenth kind spread over zones": ("spread", *[""] * 9),
    "a mix": ("affinity", "anti_affinity", "port", "volume", "spread", "spread", *[""] * 14),
    "every kind spread over zones": ("spread",),
}


def demand(fleets: tuple[int, ...] = (10, 100, 1_000, 5_000), rounds: int = 3) -> Rows:
    """Measure scale_up() of pending pods, and scale_down() of nodes with 30 pods each, by size.

    The time ``check_s`` is with the processor share of the function ``check``; ``peak_mib`` is the memory so far.
    """
    sizes = ((500, 50, 3), (5_000, 50, 3), (5_000, 500, 3), (5_000, 500, 50))  # pods, kinds of pods, pools
    for title, traits in TRAITS.items():
        yield "scale_up()"
        works = {
            f"{pending} pods of {kinds} kinds, {pools} pools, {title}": growth(pending, kinds, pools, traits)
            for pending, kinds, pools in sizes
        }
        yield from _work_rows(works, rounds)
    yield "scale_up() in a fleet, 30 pods a node"
    yield from _work_rows({f"{n} nodes, {5 * n} pods wait": _growth_in_a_fleet(n) for n in fleets}, rounds)
    yield "scale_down(), 30 pods a node"
    yield from _work_rows({f"scale down {n} nodes": _shrinking(n) for n in fleets}, rounds)


def _work_rows(works: Mapping[str, Callable[[], str]], rounds: int) -> Rows:
    for name, seconds, ratios, outcome in _in_turns(works, rounds):
        check = [spent / share_of("CheckFunction") for spent in seconds]
        yield name, {"cpu_s": seconds, "check_s": check, "ratio": ratios, "peak_mib": peak(), "outcome": outcome}


@cache
def _needs(kind: int, trait: str) -> Needs:
    """Return what all pods of a kind share, as they do when they are read."""
    cpu, memory = f"{100 + kind % 37 * 50}m", f"{128 + kind % 41 * 64}Mi"
    own, fields = selector(f"app in app-{kind}"), {}
    match trait:
        case "spread":
            fields = {"spread": (TopologySpreadConstraint(key=ZONE, max_skew=1, selector=own),)}
        case "affinity":
            fields = {"affinity": (PodAffinityTerm(key=ZONE, selector=own),)}
        case "anti_affinity":
            fields = {"anti_affinity": (PodAffinityTerm(key=HOSTNAME, selector=own),)}
        case "port":
            fields = {"containers": (container(cpu=cpu, memory=memory, ports=(HostPort(8000 + kind),)),)}
        case "volume":
            fields = {"volumes": (PodVolume("data", "persistentVolumeClaim", f"data-{kind}"),)}
    return pod(cpu=cpu, memory=memory, **fields).needs


def _pod(name: str, kind: int, trait: str = "", **place: Any) -> Pod:
    app = f"app-{kind}"
    one = pod(name, namespace=f"team-{kind % 20}", labels={"app": app}, owner=Owner("ReplicaSet", app), **place)
    return replace(one, needs=_needs(kind, trait))


def _volumes(kinds: int) -> Workload:
    """Return a volume for each kind of pods, in one of three zones."""
    volumes, claims = [], []
    for kind in range(kinds):
        claims.append(Claim(namespace=f"team-{kind % 20}", name=f"data-{kind}", volume=f"pv-{kind}", bound=True))
        terms = (NodeSelectorTerm(selector(f"{ZONE} in {'abc'[kind % 3]}")),)
        volumes.append(Volume(name=f"pv-{kind}", driver="ebs.csi.aws.com", terms=terms))
    return Workload(claims=tuple(claims), volumes=tuple(volumes))


def _pool(name: str, **fields: Any) -> PoolOffer:
    """Return a pool of three zones with more headroom than needed."""
    pool = pool_offer(name, room=3000, **fields)
    return replace(pool, groups=tuple(replace(group, room=1000) for group in pool.groups))


def growth(pending: int, kinds: int, pools: int, traits: Sequence[str]) -> Callable[[], str]:
    """Return a scale_up() of pools of ever larger nodes. The kinds take turns with these traits."""
    waiting = tuple(_pod(f"p{i}", i % kinds, traits[i % kinds % len(traits)]) for i in range(pending))
    sizes = [template(cpu=f"{8 + number}", memory=f"{32 + number * 4}Gi") for number in range(pools)]
    offers = tuple(_pool(f"pool-{number:02}", template=size) for number, size in enumerate(sizes))

    def work() -> str:
        answer = scale_up(Simulation(replace(_volumes(kinds), pods=waiting), offers, DemandPolicy(), NOW))
        if answer.unmet or not answer.nodes:
            raise RuntimeError(f"{len(answer.unmet)} kinds unmet, {answer.nodes} nodes")
        return f"{answer.nodes} nodes"

    return work


def _fleet(count: int) -> tuple[Workload, PoolOffer]:
    """Return nodes with thirty pods each; every second node is little used."""
    nodes, running = [], []
    for number in range(count):
        zone, name = "abc"[number % 3], f"n{number:04}"
        nodes.append(node(name, zone, size={"cpu": "32", "memory": "128Gi"}, group=group_key(zone)))
        running += [_pod(f"{name}-{i}", i if number % 2 else i * 37, node=name) for i in range(30)]
    return Workload(nodes=tuple(nodes), pods=tuple(running)), _pool("workers", template=None, requested=count)


def _growth_in_a_fleet(count: int) -> Callable[[], str]:
    """Return a scale_up() of five pending pods a node, of half as many kinds as nodes, which all fit on the nodes."""
    workload, pool = _fleet(count)
    waiting = tuple(_pod(f"p{number}", number % (count // 2)) for number in range(5 * count))
    workload = Workload(nodes=workload.nodes, pods=(*workload.pods, *waiting))

    def work() -> str:
        answer = scale_up(Simulation(workload, (pool,), DemandPolicy(), NOW))
        if len(answer.fits_already) < len(waiting):
            raise RuntimeError(f"only {len(answer.fits_already)} of {len(waiting)} pods fit on the nodes")
        return f"{len(answer.fits_already)} pods fit on the nodes"

    return work


def _shrinking(count: int) -> Callable[[], str]:
    workload, pool = _fleet(count)

    def work() -> str:
        answer = scale_down(Simulation(workload, (pool,), DemandPolicy(), NOW), ScaleDownState())
        if not answer.clocks:
            raise RuntimeError("no node is unneeded")
        return f"{len(answer.clocks)} of {count} nodes unneeded"

    return work
