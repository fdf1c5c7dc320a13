"""The cloud under the simulated clusters: zones with and without capacity.

A refusal has the code, the HTTP status and the message of EC2's RunInstances, which each machine API reports in a
different form.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import count


@cache
def subnet_in(zone: str) -> str:
    """Return the id of the only subnet of a zone."""
    return f"subnet-{hashlib.sha256(zone.encode()).hexdigest()[:17]}"


@dataclass(kw_only=True)
class LaunchError(Exception):
    """A refused launch with EC2's message. `status` is the HTTP status: 4xx: the caller's fault, 5xx: the zone's."""

    code: str
    message: str
    status: int
    request_id: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}\n\tstatus code: {self.status}, request id: {self.request_id}"


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A virtual machine. If `joins` is False, it runs but never becomes a node."""

    id: str
    zone: str
    machine_type: str
    joins: bool


@dataclass(kw_only=True)
class Cloud:
    """The zones of one region. A limit counts machines; None is no limit."""

    zones: Iterable[str]
    machine_type: str = "m5.xlarge"
    vcpus: int = 4
    limits: dict[str, int | None] = field(default_factory=dict)
    #: machines of the whole region that the account's vCPU quota allows
    quota: int | None = None

    def __post_init__(self) -> None:
        self.zones = tuple(self.zones)
        self.limits = {zone: self.limits.get(zone) for zone in self.zones}
        self._taken: dict[str, int | None] = {}
        self._refusals: dict[str, tuple[str, str, int]] = {}
        self._not_joining: dict[str, int] = {}
        self._broken_zones: set[str] = set()
        #: ids of the instances whose kubelets have stopped
        self.broken: set[str] = set()
        self._instances: dict[str, Instance] = {}
        self._ids = count(1)

    def zone_of_subnet(self, subnet: str) -> str:
        """Return the zone of a subnet; an empty text for an unknown one."""
        return next((zone for zone in self.zones if subnet_in(zone) == subnet), "")

    def exhaust_zone(self, zone: str) -> None:
        """Refuse new machines in a zone. Running machines remain."""
        self._check(zone)
        if zone not in self._taken:
            self._taken[zone] = self.limits[zone]
            self.limits[zone] = 0

    def restore_zone(self, zone: str) -> None:
        """Undo `exhaust_zone`."""
        self._check(zone)
        if zone in self._taken:
            self.limits[zone] = self._taken.pop(zone)

    def refuse(self, zone: str, *, code: str, message: str, status: int) -> None:
        """Answer every launch in a zone with this error, until `accept`."""
        self._check(zone)
        self._refusals[zone] = (code, message, status)

    def accept(self, zone: str) -> None:
        """Undo `refuse`."""
        self._refusals.pop(zone, None)

    def never_join(self, zone: str, machines: int) -> None:
        """Let the next `machines` instances of a zone never become nodes."""
        self._check(zone)
        self._not_joining[zone] = self._not_joining.get(zone, 0) + machines

    def break_nodes(self, zone: str, machines: int | None = None) -> None:
        """Stop the kubelets of so many machines of a zone; None: of all, and of each new one."""
        self._check(zone)
        if machines is None:
            self._broken_zones.add(zone)
        self.broken |= {*self._ids_in(zone, broken=False)[:machines]}

    def repair_nodes(self, zone: str, machines: int | None = None) -> None:
        """Start the kubelets of so many machines of a zone again; None: of all, and of each new one."""
        self._check(zone)
        if machines is None:
            self._broken_zones.discard(zone)
        self.broken -= {*self._ids_in(zone, broken=True)[:machines]}

    def _ids_in(self, zone: str, *, broken: bool) -> list[str]:
        ids = (id for id, instance in self._instances.items() if instance.zone == zone)
        return sorted(id for id in ids if (id in self.broken) is broken)

    def used(self) -> Mapping[str, int]:
        """Return the number of instances per zone."""
        zones = [instance.zone for instance in self._instances.values()]
        return {zone: zones.count(zone) for zone in self.zones}

    def launch(self, zone: str, machine_type: str | None = None) -> Instance:
        """Start one machine, by default of the cloud's machine type. Raises LaunchError."""
        machine_type = machine_type or self.machine_type
        if zone not in self.limits:
            raise self._error("InvalidParameterValue", f"Invalid availability zone: [{zone}]", 400)
        if zone in self._refusals:
            raise self._error(*self._refusals[zone])
        if self.quota is not None and len(self._instances) >= self.quota:
            raise self._error(
                "VcpuLimitExceeded",
                "You have requested more vCPU capacity than your current vCPU limit of "
                f"{self.quota * self.vcpus} allows for the instance bucket that the specified instance type belongs "
                "to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.",
                400,
            )
        if self._is_full(zone):
            others = ", ".join(other for other in self.zones if other != zone)
            raise self._error(
                "InsufficientInstanceCapacity",
                f"We currently do not have sufficient {machine_type} capacity in the Availability Zone you "
                f"requested ({zone}). Our system will be working on provisioning additional capacity. You can "
                f"currently get {machine_type} capacity by not specifying an Availability Zone in your request "
                f"or choosing {others}.",
                500,
            )
        skipped = self._not_joining.get(zone, 0)
        if skipped:
            self._not_joining[zone] = skipped - 1
        instance = Instance(id=f"i-{next(self._ids):017x}", zone=zone, machine_type=machine_type, joins=not skipped)
        self._instances[instance.id] = instance
        if zone in self._broken_zones:
            self.broken.add(instance.id)
        return instance

    def terminate(self, instance_id: str) -> None:
        """Stop a machine; an unknown machine is no error."""
        self._instances.pop(instance_id, None)
        self.broken.discard(instance_id)

    def _is_full(self, zone: str) -> bool:
        limit = self.limits[zone]
        return limit is not None and sum(one.zone == zone for one in self._instances.values()) >= limit

    def _check(self, zone: str) -> None:
        if zone not in self.limits:
            raise ValueError(f"zone {zone!r}: this cloud has {', '.join(self.limits)}")

    def _error(self, code: str, message: str, status: int) -> LaunchError:
        number = next(self._ids)
        return LaunchError(
            code=code, message=message, status=status, request_id=f"{number:08x}-0000-4000-8000-{number:012x}"
        )
