"""Gardener's Worker: its pools have the numbers, and every reconciliation of it puts replicas back into zones' shares.

Source: extensions/pkg/controller/worker/genericactuator/actuator_reconcile.go:243-273. It is never written: gardenlet
replaces its pools with the Shoot's at each reconciliation.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from evenkeel.adapters.kubernetes.objects import Kind, Object, entries_of, get_path, last_writer, mapping, name_of
from evenkeel.adapters.kubernetes.owners.base import ReplicasOwner, ref_of
from evenkeel.domain.model.groups import Bounds, GroupKey, NodeGroup, OwnerNumbers, OwnerRef
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.values import BadValueError, read_count
from evenkeel.domain.rebalancing.bounds.distribute import distribute_over_zones

SHOOT = Kind("core.gardener.cloud", ("v1beta1",), "Shoot", "shoots")
_EXTENSIONS = "extensions.gardener.cloud"
# The Shoot's own list in the seed (pkg/apis/extensions/v1alpha1/types_cluster.go): the Cluster of a namespace is called
# after it, and has the CloudProfile inside.
_WORKERS = ("spec", "shoot", "spec", "provider", "workers")
_BESIDES = (
    ("maxSurge",),
    ("maxUnavailable",),
    ("priority",),
    ("machineControllerManager", "autoPreserveFailedMachineMax"),
)


class Worker(ReplicasOwner):
    """The numbers and the ranges of a namespace's pools."""

    kind = Kind(_EXTENSIONS, ("v1alpha1",), "Worker", "workers", optional=True)
    copy_kind = Kind(_EXTENSIONS, ("v1alpha1",), "Cluster", "clusters", optional=True)
    source_kind = SHOOT

    def __init__(self, items: Iterable[Object], copies: Iterable[Object]) -> None:
        self._numbers: dict[tuple[str, str], OwnerNumbers] = {}
        self._pools: dict[tuple[str, str], Object] = {}
        self._ranges: dict[tuple[str, str, str], Bounds] = {}
        for item in copies:
            self._add(item, name_of(item)[1], _WORKERS, shoot_of(item))
        for item in items:  # later: they say what is carried out
            self._add(item, name_of(item)[0], ("spec", "pools"), ref_of(self.kind, item))

    def _add(self, item: Object, namespace: str, path: tuple[str, ...], ref: OwnerRef) -> None:
        for pool in entries_of(item, path):
            name = str(get_path(pool, ("name",)))
            try:
                bounds = _bounds(pool)
            except (BadValueError, ValueError):
                continue
            self._pools[namespace, name] = pool
            field = f"{'.'.join(path).removeprefix('spec.shoot.')}[{name}]"  # in the Shoot, where it can be changed
            self._numbers[namespace, name] = OwnerNumbers(
                ref=OwnerRef(**{**vars(ref), "part": name}),
                bounds=bounds,
                min_field=f"{field}.minimum",
                max_field=f"{field}.maximum",
                set_by=last_writer(item, (tuple(f"f:{step}" for step in path),)),
                besides=_besides(pool),
            )
            zones = _zones(pool)
            for index, zone in enumerate(zones):
                share = [distribute_over_zones(index, size, len(zones)) for size in (bounds.min, bounds.max)]
                self._ranges[namespace, name, str(zone)] = Bounds(min(share), max(share))

    def numbers(self, namespace: str, pool: str) -> OwnerNumbers | None:
        return self._numbers.get((namespace, pool))

    def zone(self, namespace: str, pool: str, index: int) -> str | None:
        zones = _zones(self._pools.get((namespace, pool), {}))
        return str(zones[index]) if index < len(zones) else None

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
            member.key: Reason.of(Rule.HIBERNATED)
            for members in pools.values()
            if not any(member.requested for member in members)
            and any(member.worker_range and member.worker_range.min for member in members)
            for member in members
        }


def _bounds(pool: Object) -> Bounds:
    """Raises BadValueError, or ValueError where minimum is larger than maximum, which Gardener refuses."""
    return Bounds(read_count(pool.get("minimum")), read_count(pool.get("maximum")))


def _besides(pool: Object) -> tuple[tuple[str, str], ...]:
    """What else a pool says of its machines. Nothing here goes by it; a deployment says its own surge itself."""
    values = ((".".join(path), get_path(pool, path)) for path in _BESIDES)
    return tuple((field, str(value)[:32]) for field, value in values if isinstance(value, int | str))


def _zones(pool: Object) -> list[Any]:
    zones = pool.get("zones")
    return zones if isinstance(zones, list) else []


def shoot_of(cluster: Object) -> OwnerRef:
    """The Shoot that a Cluster of the seed holds a copy of."""
    shoot = get_path(cluster, ("spec", "shoot"))
    return ref_of(SHOOT, mapping(shoot))
