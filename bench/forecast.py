"""Bench of `evenkeel forecast`: the loss of a zone of a large cluster, in one process."""

from __future__ import annotations

from functools import cache
from typing import Any

from bench.rows import Rows, peak, timed
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.workload import ZONE, Needs, Node, Owner, Pod, TopologySpreadConstraint, Workload
from evenkeel.domain.plan import plan
from evenkeel.validation import read_model
from evenkeel_cli.cluster_file import ClusterFile
from evenkeel_cli.simulation.forecast import foresee
from evenkeel_cli.simulation.loss import Loss
from tests.builders import NOW, group
from tests.parts import replace
from tests.workloads import EVERYTHING, group_key, node, pod, selector, template

_SIZE = {"cpu": "16", "memory": "64Gi"}
_SHARED = 100  # deployments that run on any pool. One pod in four is one of theirs.
_OWN = 12  # deployments of each pool
_DAEMONS = 3  # pods of DaemonSets on each node
_RECORDS: dict[str, dict[str, Any]] = {
    "demand: full": {"autoscaler": "none", "demand": "full", "on_failure": "move"},
    "next to cluster-autoscaler": {"autoscaler": "cluster-autoscaler", "on_failure": "release"},
}


@cache
def _needs(number: int, pool: str) -> Needs:
    """Return what the pods of a deployment need. Every tenth deployment spreads over zones."""
    spread = TopologySpreadConstraint(key=ZONE, max_skew=1, selector=selector(f"app in {_app(number, pool)}"))
    cpu, memory = f"{200 + number % 13 * 50}m", f"{256 + number % 11 * 128}Mi"
    here = {"node_selector": {"pool": pool}} if pool else {}
    return pod(cpu=cpu, memory=memory, spread=() if number % 10 else (spread,), **here).needs


@cache
def _daemon(number: int) -> Needs:
    return pod(cpu=f"{50 + number}m", memory="64Mi", tolerations=EVERYTHING).needs


def _app(number: int, pool: str) -> str:
    return f"app-{number}-{pool}"


def _pods_on(name: str, pool: str, first: int, count: int) -> list[Pod]:
    pods = []
    for number in range(count):
        if number < _DAEMONS:
            app, needs, kind = f"agent-{number}", _daemon(number), "DaemonSet"
        elif (first + number) % 4:
            own = (first + number) * 7 % _OWN
            app, needs, kind = _app(own, pool), _needs(own, pool), "ReplicaSet"
        else:
            shared = (first + number) // 4 * 7 % _SHARED
            app, needs, kind = _app(shared, ""), _needs(shared, ""), "ReplicaSet"
        one = pod(f"{name}-{number}", owner=Owner(kind, app), labels={"app": app}, node=name)
        pods.append(replace(one, needs=needs))
    return pods


def _world(groups: int, nodes: int, pods: int) -> Observation:
    """Return pools of three zones, whose nodes are almost full."""
    pools, per_node = groups // 3, pods // nodes
    names = [(f"pool-{number:03}", zone) for number in range(pools) for zone in "abc"]
    counts = [nodes // groups + (i < nodes % groups) for i in range(groups)]
    all_groups: list[NodeGroup] = []
    all_nodes: list[Node] = []
    all_pods: list[Pod] = []
    for i, (pool, zone) in enumerate(names):
        key, labels, most = group_key(zone, pool), {"pool": pool}, 2 * nodes // pools
        shape = template(labels, **_SIZE)
        all_groups.append(
            group(zone, counts[i], bounds=(0, most), pool=pool, key=key, pool_min=0, pool_max=most, node=shape)
        )
        for number in range(counts[i]):
            name = f"{pool}-{zone}-{number}"
            all_pods += _pods_on(name, pool, len(all_nodes) * per_node, per_node)
            all_nodes.append(node(name, zone, size=_SIZE, labels=labels, group=key, created_at=NOW))
    return Observation(groups=tuple(all_groups), workload=Workload(nodes=tuple(all_nodes), pods=tuple(all_pods)))


def forecast(groups: tuple[int, ...] = (90, 300), per_group: float = 10 / 3, per_node: int = 30) -> Rows:
    """Measure the forecast of the loss of one zone of three: CPU seconds, pods that wait and nodes ordered."""
    for count in groups:
        nodes = round(count * per_group)
        for name, record in _RECORDS.items():
            observation, policy = _world(count, nodes, nodes * per_node), read_model(ClusterFile, record, "record")
            with timed() as planning:
                planned = plan(observation, ClusterState(), policy.policy(), NOW)
            with timed() as playing:
                outcome = foresee(Loss(observation, planned, NOW, "a"), policy, ClusterState())
            yield (
                f"forecast {count} groups, {nodes} nodes, {nodes * per_node} pods, {name}",
                {
                    "plan_cpu_s": planning.cpu,
                    "cpu_s": playing.cpu,
                    "peak_mib": peak(),
                    "displaced": sum(waits.pods for waits in outcome.waits),
                    "without_place": sum(waits.never for waits in outcome.waits),
                    "longest_s": max((waits.longest or 0 for waits in outcome.waits), default=0),
                    "seconds": outcome.seconds,
                },
            )
