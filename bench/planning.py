"""Benches of planning: processor time of the domain's functions by size. Sizes that are compared take turns."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar, cast

from bench.rows import Rows, timed
from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.adapters.kubernetes.client.lists import ReceivedList
from evenkeel.adapters.kubernetes.cluster import KubernetesCluster
from evenkeel.domain.demand.scale_down import scale_down
from evenkeel.domain.demand.scale_up import scale_up
from evenkeel.domain.model.demand import DemandPolicy, GroupOffer, PoolOffer, ScaleDownState
from evenkeel.domain.model.groups import Annotations, Bounds, GroupKey, Identity, NodeGroup, PoolId
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.policy import Policy, PoolSettings
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.templates import NodeTemplate
from evenkeel.domain.model.water_fill import Bucket, water_fill
from evenkeel.domain.model.workload import (
    HOSTNAME,
    ZONE,
    Container,
    Needs,
    Node,
    Owner,
    Pod,
    Requirement,
    Resources,
    TopologySpreadConstraint,
    Unscheduled,
    Workload,
)
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.record import ClusterFile
from evenkeel_cli.answers import Output
from evenkeel_cli.plan import plan_command

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Object = dict[str, Any]
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


def plan_growth(pools: tuple[int, ...] = (10, 100, 1_000, 10_000), rounds: int = 3) -> Rows:
    """Measure plan() of pools of three zones in which every group changes, with the ratio per pool to the smallest."""
    sizes = {f"{size} pools": size for size in pools}
    observations = {name: _observation(size) for name, size in sizes.items()}
    works = {
        name: lambda observed=observed: plan(
            observed, ClusterState(), Policy(settings=PoolSettings(strategy=BALANCED)), NOW
        )
        for name, observed in observations.items()
    }
    for name, seconds, ratios, made in _in_turns(works, rounds, lambda name: max(1, pools[-1] // sizes[name] // 4)):
        size = sizes[name]
        if len(made.changes) < 2 * size:
            raise RuntimeError(f"{len(made.changes)} groups would change in {size} pools")
        per_pool = [ratio * pools[0] / size for ratio in ratios]
        yield name, {"µs per pool": [1e6 * s / size for s in seconds], "ratio": per_pool}


def _observation(pools: int) -> Observation:
    """Return uneven pools of three zones."""
    groups = [
        NodeGroup(
            key=GroupKey("cluster-api", "bench", f"pool-{pool}-z{zone + 1}"),
            requested=(pool + zone * 3) % 5,
            running=(pool + zone * 3) % 5,
            bounds=Bounds(0, 7),
            identity=Identity(
                kind="MachineDeployment", pool_label=f"pool-{pool}", zone=f"eu-central-1{'abc'[zone]}", zone_index=zone
            ),
            annotations=Annotations(pool_min=3, pool_max=18),
        )
        for pool in range(pools)
        for zone in range(3)
    ]
    return Observation(groups=tuple(groups))


def growth_split(rounds: int = 5) -> Rows:
    """Measure the closed form that splits K nodes over a pool, and how much longer a loop over the nodes takes.

    The loop is Python as well, with a constant time for each node. The loop of cluster-autoscaler is Go. For 1,000
    pools of three groups it was 12 times as fast at K = 10, and slower than the closed form from K = 2,000 on.
    """
    for groups, pools in ((3, 1_000), (10, 100), (1_000, 1)):
        for nodes in (10, 1_000, 100_000):
            buckets = [Bucket(level=i % 7, room=1 if i % 5 == 0 else nodes, tie=i * 7919 % 1009) for i in range(groups)]
            works = {
                "closed": lambda buckets=buckets, nodes=nodes: water_fill(buckets, nodes),
                "loop": lambda buckets=buckets, nodes=nodes: one_by_one(buckets, nodes),
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


def demand(fleets: tuple[int, ...] = (10, 100, 1_000), rounds: int = 3) -> Rows:
    """Measure scale_up() of pending pods and scale_down() of nodes with 30 pods each, by size."""
    sizes = ((500, 50, 3), (5_000, 50, 3), (5_000, 500, 3), (5_000, 500, 30))  # pods, kinds of pods, pools
    for title, spreads in (("no kind", 0), ("every tenth kind", 10), ("every kind", 1)):
        yield f"scale_up(), {title} spread over zones"
        works = {
            f"{pending} pods of {kinds} kinds, {pools} pools": _growth(pending, kinds, pools, spreads)
            for pending, kinds, pools in sizes
        }
        yield from _work_rows(works, rounds)
    yield "scale_up() in a fleet, 30 pods a node"
    yield from _work_rows({f"{n} nodes, {5 * n} pods wait": _growth_in_a_fleet(n) for n in fleets}, rounds)
    yield "scale_down(), 30 pods a node"
    yield from _work_rows({f"{n} nodes": _shrinking(n) for n in fleets}, rounds)


def _work_rows(works: Mapping[str, Callable[[], str]], rounds: int) -> Rows:
    for name, seconds, ratios, outcome in _in_turns(works, rounds):
        yield name, {"cpu_s": seconds, "ratio": ratios, "outcome": outcome}


def _amounts(cpu: int, memory: int) -> dict[str, Fraction]:
    """Return amounts of millicores and MiB."""
    return {"cpu": Fraction(cpu, 1000), "memory": Fraction(memory * 2**20)}


def _pod(name: str, kind: int, *, node: str = "", spreads: bool = False) -> Pod:
    labels, before = {"app": f"app-{kind}"}, NOW - timedelta(hours=1)
    selector = (Requirement("app", "In", (labels["app"],)),)
    spread = (TopologySpreadConstraint(key=ZONE, max_skew=1, selector=selector),) if spreads else ()
    requests = _amounts(100 + kind % 37 * 50, 128 + kind % 41 * 64)
    return Pod(
        namespace=f"team-{kind % 20}",
        name=name,
        created_at=before,
        labels=labels,
        owner=Owner("ReplicaSet", labels["app"]),
        node=node,
        phase="Running" if node else "Pending",
        unscheduled=None if node else Unscheduled("Unschedulable", before),
        needs=Needs(spread=spread, resources=Resources(containers=(Container(requests=requests),))),
    )


def _pool(number: int, *, template: NodeTemplate | None = None, requested: int = 0) -> PoolOffer:
    """Return a pool of three zones with more headroom than needed."""
    name = f"pool-{number:02}"
    groups = tuple(
        GroupOffer(
            group=GroupKey("cluster-api", "bench", f"{name}-{zone}"),
            zone=zone,
            requested=requested,
            room=1000,
            template=template,
        )
        for zone in "abc"
    )
    return PoolOffer(pool=PoolId("cluster-api", "bench", "", name), groups=groups, room=3000)


def _growth(pending: int, kinds: int, pools: int, spreads: int) -> Callable[[], str]:
    """Return a scale_up() of pools of ever larger nodes. Every ``spreads``-th kind spreads over zones; 0: none."""
    waiting = tuple(
        _pod(f"p{number}", number % kinds, spreads=bool(spreads) and number % kinds % spreads == 0)
        for number in range(pending)
    )
    offers = []
    for number in range(pools):
        size = {**_amounts(8000 + number * 1000, (32 + number * 4) * 1024), "pods": Fraction(110)}
        offers.append(_pool(number, template=NodeTemplate(capacity=size, allocatable=size)))

    def work() -> str:
        answer = scale_up(Workload(pods=waiting), tuple(offers), DemandPolicy(), NOW)
        if answer.unmet or not answer.nodes:
            raise RuntimeError(f"{len(answer.unmet)} kinds unmet, {answer.nodes} nodes")
        return f"{answer.nodes} nodes"

    return work


def _fleet(count: int) -> tuple[Workload, PoolOffer]:
    """Return nodes with thirty pods each; every second node is little used."""
    size = {**_amounts(32_000, 128 * 1024), "pods": Fraction(110)}
    nodes, running = [], []
    for number in range(count):
        zone, name = "abc"[number % 3], f"n{number:04}"
        key = GroupKey("cluster-api", "bench", f"pool-00-{zone}")
        nodes.append(Node(name=name, labels={ZONE: zone, HOSTNAME: name}, capacity=size, allocatable=size, group=key))
        running += [_pod(f"{name}-{i}", i if number % 2 else i * 37, node=name) for i in range(30)]
    return Workload(nodes=tuple(nodes), pods=tuple(running)), _pool(0, requested=count)


def _growth_in_a_fleet(count: int) -> Callable[[], str]:
    """Return a scale_up() of five pending pods a node, of half as many kinds as nodes, which all fit on the nodes."""
    workload, pool = _fleet(count)
    waiting = tuple(_pod(f"p{number}", number % (count // 2)) for number in range(5 * count))
    workload = Workload(nodes=workload.nodes, pods=(*workload.pods, *waiting))

    def work() -> str:
        answer = scale_up(workload, (pool,), DemandPolicy(), NOW)
        if len(answer.fits_already) < len(waiting):
            raise RuntimeError(f"only {len(answer.fits_already)} of {len(waiting)} pods fit on the nodes")
        return f"{len(answer.fits_already)} pods fit on the nodes"

    return work


def _shrinking(count: int) -> Callable[[], str]:
    workload, pool = _fleet(count)

    def work() -> str:
        answer = scale_down(workload, (pool,), ScaleDownState(), DemandPolicy(), NOW)
        if not answer.clocks:
            raise RuntimeError("no node is unneeded")
        return f"{len(answer.clocks)} of {count} nodes unneeded"

    return work


# --- reading a large cluster

_API = "cluster.x-k8s.io/v1beta2"
_LABEL = "cluster.x-k8s.io/deployment-name"
_REFUSED = "InsufficientInstanceCapacity: We currently do not have sufficient m5.xlarge capacity"


class _Recorded:
    """An API server's answers as text, so that parsing the JSON counts."""

    name, clock_skew = "bench", timedelta(0)

    def __init__(self, answers: dict[str, list[Object]]) -> None:
        self._texts = {plural: json.dumps(items) for plural, items in answers.items()}
        machines: dict[str, list[Object]] = defaultdict(list)
        for item in answers["machines"]:
            machines[item["metadata"]["labels"][_LABEL]].append(item)
        self._machines = {name: json.dumps(items)[1:-1] for name, items in machines.items()}

    def begin_check(self) -> None:
        """Keep nothing between checks."""

    def confirm_clock(self, _remaining: Any) -> None:
        """Agree with the machine's clock."""

    def list_all(self, path: str, _remaining: Any, selector: str | None = None, **_: Any) -> Any:
        items = self._texts[path.rpartition("/")[2]]
        if selector is not None:
            names = selector.partition(" in ")[2].strip("()").split(",")
            items = f"[{','.join(self._machines[name] for name in names)}]"
        return ReceivedList("bench", (f'{{"items":{items}}}'.encode(),))

    def served(self, _group: str, _remaining: Any) -> list[str]:
        return ["v1beta2"]

    def now(self) -> datetime:
        return NOW


def outage_growth(groups: tuple[int, ...] = (225, 450, 900, 1_800), files: int = 1_200) -> Rows:
    """Measure reading a cluster of which every group waits for machines, and `plan -f` of 6 machines a group."""
    for size in groups:
        machines = size * 23 // 3
        api = cast("KubernetesApi", _Recorded(_outage(size, machines)))
        policy, spent = ClusterFile.model_validate({"flavours": ["cluster-api"]}), []
        for _ in range(3):
            with timed() as timer:
                observation = KubernetesCluster(api, policy, lambda: 60.0).observe()
            spent.append(timer.cpu)
        if sum(len(group.machines or ()) for group in observation.groups) != machines:
            raise RuntimeError("a machine has no group")
        yield f"read {size} groups, {machines} machines", {"cpu_s": spent}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "objects.json"
        items = [item for items in _outage(files, 6 * files).values() for item in items]
        file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
        with timed() as timer, contextlib.redirect_stdout(io.StringIO()):
            plan_command(file=[str(file)], now=NOW.isoformat(), output=Output.JSON)
    yield f"plan -f, {files} groups, {6 * files} machines", {"cpu_s": timer.cpu, "wall_s": timer.wall}


def _outage(groups: int, machines: int) -> dict[str, list[Object]]:
    """Return the objects of pools of three zones; every other machine was refused."""
    answers: dict[str, list[Object]] = {
        plural: [] for plural in ("machinedeployments", "machinesets", "machinepools", "clusters", "machines")
    }
    for number in range(groups):
        pool, zone = f"pool-{number // 3:05}", "abc"[number % 3]
        name = f"{pool}-{zone}"
        share = machines * (number + 1) // groups - machines * number // groups
        labels = {"cluster.x-k8s.io/cluster-name": "bench", _LABEL: name}
        template = {"metadata": {"labels": labels}, "spec": {"failureDomain": f"eu-central-1{zone}"}}
        maximum = {"cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "9", "evenkeel.dev/pool-max": "30"}
        owner = {"kind": "MachineDeployment", "name": name, "controller": True}
        body = {
            "apiVersion": _API,
            "spec": {"clusterName": "bench", "replicas": share, "template": template},
            "status": {"replicas": share, "readyReplicas": share // 2},
        }
        metadata = {"name": name, "namespace": "bench", "resourceVersion": "1", "annotations": maximum}
        metadata["labels"] = {"evenkeel.dev/pool": pool}
        answers["machinedeployments"].append({**body, "kind": "MachineDeployment", "metadata": metadata})
        metadata = {"name": f"{name}-x", "namespace": "bench", "labels": labels, "ownerReferences": [owner]}
        answers["machinesets"].append({**body, "kind": "MachineSet", "metadata": metadata})
        answers["machines"] += [_machine(f"{name}-x-{i:03}", labels, refused=i % 2 == 0) for i in range(share)]
    return answers


def _machine(name: str, labels: dict[str, str], *, refused: bool) -> Object:
    moment = (NOW - timedelta(minutes=2)).isoformat()
    condition = {"type": "InfrastructureReady", "status": "False" if refused else "True", "lastTransitionTime": moment}
    if refused:
        condition |= {"reason": "InstanceProvisionFailed", "message": _REFUSED}
    status = {"conditions": [condition]} if refused else {"conditions": [condition], "nodeRef": {"name": name}}
    metadata = {"name": name, "namespace": "bench", "labels": labels, "creationTimestamp": moment}
    return {"apiVersion": _API, "kind": "Machine", "metadata": metadata, "spec": {}, "status": status}
