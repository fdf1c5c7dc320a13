"""Gardener's Worker, whose pools have a minimum and a maximum. Each zone has a share of these two numbers.

A reconciliation moves a zone's replicas between its shares
(extensions/pkg/controller/worker/genericactuator/actuator_reconcile.go:243-273). Evenkeel never writes a Worker,
because gardenlet replaces the Worker's pools with those of the Shoot at each reconciliation.
"""

from collections.abc import Iterable, Mapping

from evenkeel.adapters.kubernetes.objects import Kind, Object, entries_of, get_path, last_writer, mapping, name_of
from evenkeel.adapters.kubernetes.owners.base import ReplicasOwner, ref_of
from evenkeel.domain.model.groups import Bounds, GroupKey, NodeGroup, OwnerNumbers, OwnerRef, ShootWorker
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.values import BadValueError, read_count
from evenkeel.domain.rebalancing.bounds.distribute import distribute_over_zones

SHOOT = Kind("core.gardener.cloud", ("v1beta1",), "Shoot", "shoots")
_EXTENSIONS = "extensions.gardener.cloud"
# The path of the Shoot's workers in the seed's Cluster object. The Cluster has the name of the Shoot's namespace in the
# seed, and also contains the CloudProfile (pkg/apis/extensions/v1alpha1/types_cluster.go).
_WORKERS = ("spec", "shoot", "spec", "provider", "workers")
_CREATION_TIMEOUT = ("machineControllerManager", "machineCreationTimeout")
_BESIDES = (
    ("maxSurge",),
    ("maxUnavailable",),
    ("priority",),
    ("machineControllerManager", "autoPreserveFailedMachineMax"),
)


class Worker(ReplicasOwner):
    """Reads each pool's minimum and maximum, and the range of replicas in each of the pool's zones."""

    kind = Kind(_EXTENSIONS, ("v1alpha1",), "Worker", "workers", optional=True)
    copy_kind = Kind(_EXTENSIONS, ("v1alpha1",), "Cluster", "clusters", optional=True)
    source_kind = SHOOT

    def __init__(self, items: Iterable[Object], copies: Iterable[Object]) -> None:
        self._numbers: dict[tuple[str, str], OwnerNumbers] = {}
        self._zones: dict[tuple[str, str], tuple[str, ...]] = {}
        self._ranges: dict[tuple[str, str, str], Bounds] = {}
        self._creation_timeouts: dict[tuple[str, str], object] = {}
        self._machine_types: dict[tuple[str, str], object] = {}
        for item in copies:
            self._add(item, name_of(item)[1], _WORKERS, shoot_of(item))
        for item in items:  # these replace the values of the copies, because the Worker's values are in effect
            self._add(item, name_of(item)[0], ("spec", "pools"), ref_of(self.kind, item))

    def _add(self, item: Object, namespace: str, path: tuple[str, ...], ref: OwnerRef) -> None:
        for entry in entries_of(item, path):
            pool = read_worker(entry)
            if pool is None or pool.minimum > pool.maximum:  # Gardener refuses such bounds
                continue
            # The name of the field in the Shoot, where people change it.
            field = f"{'.'.join(path).removeprefix('spec.shoot.')}[{pool.name}]"
            self._zones[namespace, pool.name] = pool.zones
            self._creation_timeouts[namespace, pool.name] = get_path(entry, _CREATION_TIMEOUT)
            # A Worker has the name, a Shoot an object with the name (Gardener's types_worker.go, types_shoot.go).
            named = entry.get("machineType") or get_path(entry, ("machine", "type"))
            self._machine_types[namespace, pool.name] = named
            self._numbers[namespace, pool.name] = OwnerNumbers(
                ref=OwnerRef(**{**vars(ref), "part": pool.name}),
                bounds=Bounds(pool.minimum, pool.maximum),
                min_field=f"{field}.minimum",
                max_field=f"{field}.maximum",
                set_by=last_writer(item, tuple(f"f:{step}" for step in path)),
                besides=_besides(entry),
            )
            for index, zone in enumerate(pool.zones):
                sizes = (pool.minimum, pool.maximum)
                share = [distribute_over_zones(index, size, len(pool.zones)) for size in sizes]
                self._ranges[namespace, pool.name, zone] = Bounds(min(share), max(share))

    def numbers(self, namespace: str, pool: str) -> OwnerNumbers | None:
        """Return the minimum and maximum of a pool of the Worker or Shoot, or None for an unknown pool."""
        return self._numbers.get((namespace, pool))

    def zone(self, namespace: str, pool: str, index: int) -> str | None:
        """Return the pool's zone with this index, or None if the pool has fewer zones."""
        zones = self._zones.get((namespace, pool), ())
        return zones[index] if index < len(zones) else None

    def creation_timeout(self, namespace: str, pool: str) -> object:
        """Return how long the machine controller waits for a node, as written in the pool; None: it is not set."""
        return self._creation_timeouts.get((namespace, pool))

    def machine_type(self, namespace: str, pool: str) -> object:
        """Return the machine type, as written in the pool; None: it is not set."""
        return self._machine_types.get((namespace, pool))

    def range(self, namespace: str, pool: str, zone: str) -> Bounds | None:
        """Return a zone's shares of the pool's minimum and maximum, or None for an unknown pool or zone."""
        return self._ranges.get((namespace, pool, zone))

    def frozen(self, groups: Iterable[NodeGroup]) -> Mapping[GroupKey, Reason]:
        """Return the groups of hibernated Shoots: pools without replicas, although the Worker's minimum is above 0.

        Replicas that are raised to PoolMinimum would wake the Shoot.
        """
        pools: dict[tuple[str, str | None], list[NodeGroup]] = {}
        for group in groups:
            if group.owner.allowed_replicas is not None:
                pools.setdefault((group.key.namespace, group.identity.pool_label), []).append(group)
        return {
            member.key: Reason.of(Rule.HIBERNATED)
            for members in pools.values()
            if not any(member.requested for member in members)
            and any(member.owner.allowed_replicas and member.owner.allowed_replicas.min for member in members)
            for member in members
        }


def read_worker(entry: Object) -> ShootWorker | None:
    """Return a pool of a Worker or a Shoot, or None where its minimum or maximum is unreadable."""
    zones = entry.get("zones")
    try:
        return ShootWorker(
            name=str(entry.get("name")),
            minimum=read_count(entry.get("minimum")),
            maximum=read_count(entry.get("maximum")),
            zones=tuple(str(zone) for zone in zones) if isinstance(zones, list) else (),
        )
    except BadValueError:
        return None


def _besides(pool: Object) -> tuple[tuple[str, str], ...]:
    """Return other fields of a pool, for display only."""
    values = ((".".join(path), get_path(pool, path)) for path in _BESIDES)
    return tuple((field, str(value)[:32]) for field, value in values if isinstance(value, int | str))


def shoot_of(cluster: Object) -> OwnerRef:
    """Return the reference to the Shoot of which a seed's Cluster object has a copy."""
    shoot = get_path(cluster, ("spec", "shoot"))
    return ref_of(SHOOT, mapping(shoot))
