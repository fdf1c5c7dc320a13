"""Unhealthy groups, zones and clusters: their machines exist, but too many of their nodes are not Ready.

A node is broken if it is not Ready and was created at least a provision timeout ago. A younger node that is not Ready
is starting. It does not count, because it shows nothing yet. Nodes that are being deleted, and nodes of no group, do
not count either. Where Evenkeel orders nodes, one that was never Ready is a failed launch, and does not count. A zone
without nodes is not unhealthy.

- An unhealthy group, or a group in an unhealthy zone, gets no node, except one node at a time for pods that no other
  zone can take. Its nodes that were Ready are not removed, because they may become Ready again.
- The cluster is unhealthy if all its zones are, or if the nodes outside its unhealthy zones are. Then Evenkeel
  neither orders nor removes nodes, because the cause is probably not the nodes, but their network or control plane.
- Cluster-autoscaler reads no health of zones. So its max is the requested replicas, and after ``PROBE_AFTER`` one more.
  Cluster-autoscaler may order that node for pods that other zones can take, and these pods then wait for it. So the
  next one follows once the node is Ready or gone, or after ``TRIED_FOR``.

Beginning and end follow from the counts of one check. Only the time of the beginning is stored.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from enum import IntEnum
from typing import NamedTuple

from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.groups import GroupKey, NodeGroup
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.domain.model.workload import Node, Workload
from evenkeel.domain.rebalancing.health.never_ready import was_never_ready

# How long a group is unhealthy before an autoscaler may order one node there, to find out whether new nodes work.
PROBE_AFTER = timedelta(minutes=5)
# How long a node of that group that was never Ready keeps the autoscaler from ordering the next one.
TRIED_FOR = timedelta(hours=1)

# Cluster-autoscaler's numbers (--ok-total-unready-count, --max-total-unready-percentage). In addition, a few nodes that
# are all broken are unhealthy, because cluster-autoscaler's numbers accept three dead nodes of three.
_OK_BROKEN, _OK_PERCENT, _FEWEST = 3, 45, 2


class _Kind(IntEnum):
    """What a node shows. Of two nodes of one machine, the higher kind counts."""

    BROKEN = 0
    STARTING = 1
    READY = 2


class _Count(NamedTuple):
    """The nodes of a group, a zone or a cluster, without starting ones."""

    nodes: int
    broken: int

    @property
    def is_unhealthy(self) -> bool:
        too_many = self.broken > _OK_BROKEN and 100 * self.broken > _OK_PERCENT * self.nodes
        return too_many or self.broken == self.nodes >= _FEWEST


def is_broken(node: Node, provision_timeout: timedelta, now: datetime) -> bool:
    """Return True if a node is not Ready and not new. Without any known time, a node counts as not new."""
    if node.ready:
        return False
    created = node.created_at or (node.machine.created_at if node.machine is not None else node.not_ready_since)
    return created is None or now - created >= provision_timeout


def with_unhealthy(pools: Sequence[AnyPool], check: Check) -> list[AnyPool]:
    """Return the pools. The status of each unhealthy group has the reason.

    If this check has not read the nodes, the groups that were unhealthy at the last check remain so.
    """
    if check.policy.demand is DemandStage.OFF:
        return list(pools)
    workload = check.observation.workload
    # Without pending pods, a check that does not look for unneeded nodes reads no nodes.
    if workload is None or not (workload.nodes or workload.whole):
        reasons = _remembered(pools, check.state)
    else:
        reasons = _reasons(pools, workload, check.now, orders=check.policy.demand.orders)
    if not reasons:
        return list(pools)

    def known(group: NodeGroup) -> NodeGroup:
        reason = reasons.get(group.key)
        return group if reason is None else replace(group, status=replace(group.status, unhealthy=reason))

    return [replace(pool, groups=tuple([known(group) for group in pool.groups])) for pool in pools]


def _remembered(pools: Iterable[AnyPool], state: ClusterState) -> dict[GroupKey, Reason]:
    keys = [group.key for pool in pools for group in pool.groups]
    stored = {key: state.groups[key].unhealthy_since for key in keys if key in state.groups}
    return {key: Reason.of(Rule.UNHEALTHY_BEFORE, since=since) for key, since in stored.items() if since is not None}


def _reasons(pools: Iterable[AnyPool], workload: Workload, now: datetime, *, orders: bool) -> dict[GroupKey, Reason]:
    groups = {group.key: group for pool in pools for group in pool.groups}
    timeouts = {group.key: pool.timeout_of(group) for pool in pools for group in pool.groups}
    # Where Evenkeel orders nodes, one that was never Ready is a failed launch of its group (``never_ready``).
    nodes = [node for node in workload.nodes if not (orders and was_never_ready(node))]
    kinds = _kinds(nodes, timeouts, now)
    if not any(_Kind.BROKEN in found for found in kinds.values()):
        return {}
    by_zone: dict[str, list[_Count]] = defaultdict(list)
    for key, group in groups.items():
        by_zone[_zone_of(group)].append(_count(kinds[key]))
    zones = {zone: _sum(found) for zone, found in by_zone.items()}
    unhealthy = {zone: count for zone, count in zones.items() if count.is_unhealthy}
    other_zones = _sum(count for zone, count in zones.items() if zone not in unhealthy)
    is_cluster_unhealthy = len(unhealthy) == len(zones) or other_zones.is_unhealthy
    tried = Counter(node.group for node in workload.nodes if _is_tried(node, now))
    reasons = {}
    for key, group in groups.items():
        of_zone, own = unhealthy.get(_zone_of(group)), _count(kinds[key])
        count = _sum(zones.values()) if is_cluster_unhealthy else of_zone or own
        if is_cluster_unhealthy or count.is_unhealthy:
            zone = group.identity.zone
            of_group = Rule.ZONE_UNHEALTHY if of_zone and zone else Rule.GROUP_UNHEALTHY
            rule = Rule.CLUSTER_UNHEALTHY if is_cluster_unhealthy else of_group
            reasons[key] = Reason.of(rule, zone=zone, broken=count.broken, nodes=count.nodes, tried=tried[key])
    return reasons


def _is_tried(node: Node, now: datetime) -> bool:
    return was_never_ready(node) and node.created_at is not None and now - node.created_at < TRIED_FOR


def _zone_of(group: NodeGroup) -> str:
    return group.identity.zone or str(group.key)


def _count(kinds: Counter[_Kind]) -> _Count:
    return _Count(kinds[_Kind.READY] + kinds[_Kind.BROKEN], kinds[_Kind.BROKEN])


def _kinds(
    nodes: Iterable[Node], timeouts: Mapping[GroupKey, timedelta], now: datetime
) -> dict[GroupKey, Counter[_Kind]]:
    """Return the number of each group's nodes by kind. Two nodes of one machine count as one."""
    known: dict[tuple[GroupKey, str], _Kind] = {}
    for node in nodes:
        if node.group is None or node.group not in timeouts or node.deleting:
            continue
        broken = is_broken(node, timeouts[node.group], now)
        kind = _Kind.READY if node.ready else _Kind.BROKEN if broken else _Kind.STARTING
        one = node.group, node.name if node.machine is None else node.machine.name
        known[one] = max(kind, known.get(one, kind))
    kinds: dict[GroupKey, Counter[_Kind]] = defaultdict(Counter)
    for (group, _), kind in known.items():
        kinds[group][kind] += 1
    return kinds


def _sum(counts: Iterable[_Count]) -> _Count:
    nodes = broken = 0
    for count in counts:
        nodes, broken = nodes + count.nodes, broken + count.broken
    return _Count(nodes, broken)


def with_unhealthy_since(group: NodeGroup, state: GroupState, now: datetime) -> GroupState:
    """Return the state with the time since which the group is unhealthy. An unchanged state is returned itself."""
    since = state.unhealthy_since
    if (group.status.unhealthy is not None) == (since is not None):
        return state
    return replace(state, unhealthy_since=now if since is None else None)
