"""Ports of the host: which two cannot stand on one node (plugin nodeports, framework.HostPortInfo)."""

from collections.abc import Iterable

from evenkeel.domain.model.workload import HostPort

_EVERY_ADDRESS = ("", "0.0.0.0")


def first_taken(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> HostPort | None:
    """The first port wanted that collides with one that is taken."""
    pods_on = tuple(taken)
    return next((port for port in wanted if any(_collide(port, other) for other in pods_on)), None)


def _collide(a: HostPort, b: HostPort) -> bool:
    if (a.port, a.protocol or "TCP") != (b.port, b.protocol or "TCP"):
        return False
    return a.address in _EVERY_ADDRESS or b.address in _EVERY_ADDRESS or a.address == b.address
