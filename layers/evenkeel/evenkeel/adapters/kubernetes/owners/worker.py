"""Gardener's Worker: every reconciliation of it puts replicas back into the zone's share of the pool.

Source: extensions/pkg/controller/worker/genericactuator/actuator_reconcile.go:243-273. It is never written.
"""

from collections.abc import Iterable, Mapping

from evenkeel.adapters.kubernetes.objects import Kind, Object, entries_of, get_path, name_of
from evenkeel.adapters.kubernetes.owners.base import ReplicasOwner
from evenkeel.domain.bounds.distribute import distribute_over_zones
from evenkeel.domain.model.groups import Bounds, GroupKey, NodeGroup
from evenkeel.domain.model.reasons import Reason, Rule, because
from evenkeel.domain.model.values import BadValueError, read_count


class Worker(ReplicasOwner):
    """The ranges of a namespace's pools, zone by zone."""

    kind = Kind("extensions.gardener.cloud", ("v1alpha1",), "Worker", "workers", optional=True)

    def __init__(self, items: Iterable[Object]) -> None:
        self._ranges: dict[tuple[str, str, str], Bounds] = {}
        for item in items:
            namespace, _ = name_of(item)
            for pool in entries_of(item, ("spec", "pools")):
                zones = zones if isinstance(zones := pool.get("zones"), list) else []
                try:
                    low, high = read_count(pool.get("minimum")), read_count(pool.get("maximum"))
                except BadValueError:
                    continue
                for index, zone in enumerate(zones):
                    share = [distribute_over_zones(index, size, len(zones)) for size in (low, high)]
                    place = namespace, str(get_path(pool, ("name",))), str(zone)
                    self._ranges[place] = Bounds(min(share), max(share))

    def range(self, namespace: str, pool: str, zone: str) -> Bounds | None:
        return self._ranges.get((namespace, pool, zone))

    def frozen(self, groups: Iterable[NodeGroup]) -> Mapping[GroupKey, Reason]:
        """Pools of hibernated shoots: no replicas at all, although their Worker's minimum asks for some.

        Awake, Gardener would have put the replicas back long ago; raising them to PoolMinimum would wake the shoot.
        """
        pools: dict[tuple[str, str | None], list[NodeGroup]] = {}
        for group in groups:
            if group.worker_range is not None:
                pools.setdefault((group.key.namespace, group.pool_label), []).append(group)
        return {
            member.key: because(Rule.HIBERNATED)
            for members in pools.values()
            if not any(member.requested for member in members)
            and any(member.worker_range and member.worker_range.min for member in members)
            for member in members
        }
