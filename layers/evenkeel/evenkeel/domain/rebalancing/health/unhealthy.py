"""Unhealthy groups, zones and clusters: their machines exist, but too many of their nodes are not Ready.

A node is broken if it is not Ready and was created at least a provision timeout ago. A younger node that is not Ready
is starting. It does not count, because it shows nothing yet. Nodes that are being deleted, and nodes of no group, do
not count either. A zone without nodes is not unhealthy.

- An unhealthy group, or a group in an unhealthy zone, gets no node, except one node at a time for pods that no other
  zone can take. Its nodes that were Ready are not removed, because they may become Ready again.
- The cluster rests if all its zones are unhealthy, or if the nodes outside its unhealthy zones are. Then Evenkeel
  neither orders nor removes nodes, because the cause is probably not the nodes, but their network or control plane.
- Cluster-autoscaler reads no health of zones. So its max is the requested replicas, and after ``PROBE_AFTER`` one more.

Both ends are counts, so each check finds them anew. Only the time of the beginning is stored.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.groups import GroupKey, NodeGroup
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.domain.model.workload import Node, Workload

# How long a group is unhealthy before an autoscaler may order one node there, to find out whether new nodes work.
PROBE_AFTER = timedelta(minutes=5)

# Cluster-autoscaler's numbers (--ok-total-unready-count, --max-total-unready-percentage). In addition, a few nodes that
# are all broken are unhealthy, because cluster-autoscaler's numbers accept three dead nodes of three.
_OK_BROKEN, _OK_PERCENT, _FEWEST = 3, 45, 2


class _Count(NamedTuple):
    """The nodes of a group, a zone or a cluster."""

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
    reasons = _remembered(pools, check.state) if workload is None else _reasons(pools, workload, check.now)
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


def _reasons(pools: Iterable[AnyPool], workload: Workload, now: datetime) -> dict[GroupKey, Reason]:
    groups = {group.key: group for pool in pools for group in pool.groups}
    timeouts = {group.key: pool.timeout_of(group) for pool in pools for group in pool.groups}
    counts = _counts(workload.nodes, timeouts, now)
    if not any(count.broken for count in counts.values()):
        return {}
    zone_of = {key: group.identity.zone or str(key) for key, group in groups.items()}
    by_zone: dict[str, list[_Count]] = defaultdict(list)
    for key, zone in zone_of.items():
        by_zone[zone].append(counts[key])
    zones = {zone: _sum(found) for zone, found in by_zone.items()}
    unhealthy = {zone: count for zone, count in zones.items() if count.is_unhealthy}
    rest = _sum(count for zone, count in zones.items() if zone not in unhealthy)
    if len(unhealthy) == len(zones) or rest.is_unhealthy:
        of_cluster = _sum(zones.values())
        reason = Reason.of(Rule.CLUSTER_UNHEALTHY, broken=of_cluster.broken, nodes=of_cluster.nodes)
        return dict.fromkeys(groups, reason)
    reasons = {}
    for key, group in groups.items():
        if (of_zone := unhealthy.get(zone_of[key])) is not None and group.identity.zone is not None:
            zone, nodes, broken = group.identity.zone, *of_zone
            reasons[key] = Reason.of(Rule.ZONE_UNHEALTHY, zone=zone, broken=broken, nodes=nodes)
        elif counts[key].is_unhealthy:
            reasons[key] = Reason.of(Rule.GROUP_UNHEALTHY, broken=counts[key].broken, nodes=counts[key].nodes)
    return reasons


def _counts(nodes: Iterable[Node], timeouts: Mapping[GroupKey, timedelta], now: datetime) -> dict[GroupKey, _Count]:
    """Return the nodes of each group. Two nodes of one machine count as one, which is broken if none is Ready."""
    broken: dict[tuple[GroupKey, str], bool] = {}
    for node in nodes:
        if node.group is None or node.group not in timeouts or node.deleting:
            continue
        if node.ready or is_broken(node, timeouts[node.group], now):
            one = node.group, node.name if node.machine is None else node.machine.name
            broken[one] = broken.get(one, True) and not node.ready
    totals = Counter(group for group, _ in broken)
    bad = Counter(group for (group, _), is_bad in broken.items() if is_bad)
    return defaultdict(lambda: _Count(0, 0), {group: _Count(totals[group], bad[group]) for group in totals})


def _sum(counts: Iterable[_Count]) -> _Count:
    nodes = broken = 0
    for count in counts:
        nodes, broken = nodes + count.nodes, broken + count.broken
    return _Count(nodes, broken)


def with_unhealthy_since(group: NodeGroup, state: GroupState | None, now: datetime) -> GroupState | None:
    """Return the state with the time since which the group is unhealthy. An unchanged state is returned itself."""
    since = None if state is None else state.unhealthy_since
    if (group.status.unhealthy is not None) == (since is not None):
        return state
    return replace(state or GroupState(), unhealthy_since=now if since is None else None)
