"""How much of a node a pod asks for (component-helpers resource/helpers.go:151-322).

Cores are counted in thousandths, rounded up, everything else in whole bytes or pieces, rounded up: so the scheduler
counts them, and so they are integers from here on.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil

from evenkeel.domain.model.workload import Amounts, Container, HostPort, Needs, Pod

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"

Counts = Mapping[str, int]
"""Amounts by resource: thousandths of a core, bytes, pieces."""


def counts(amounts: Amounts) -> dict[str, int]:
    """Amounts as the scheduler counts them."""
    return {name: ceil(amount * 1000) if name == CPU else ceil(amount) for name, amount in amounts.items()}


def amount_text(resource: str, count: int) -> str:
    """A count as Kubernetes writes it: 1500m, 2, 6Gi."""
    if resource == CPU:
        return f"{count // 1000}" if count % 1000 == 0 else f"{count}m"
    for unit, size in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if count >= size and count % size == 0:
            return f"{count // size}{unit}"
    return str(count)


def request_of(pod: Pod) -> dict[str, int]:
    """What a pod takes of a node; resources of which it takes nothing are left out. Limits play no part.

    Containers and sidecars together, or what the start needs where that is more: an init container runs beside the
    sidecars listed before it. What the pod as a whole asks for (cpu, memory, huge pages) takes the place of that sum.
    Overhead comes on top.
    """
    needs = pod.needs
    total = _sum(_of_container(container, pod) for container in needs.containers)
    sidecars: dict[str, Fraction] = {}
    start: dict[str, Fraction] = {}
    for container in needs.init_containers:
        if container.stays:
            sidecars = _sum((sidecars, _of_container(container, pod)))
            start = _most(start, sidecars)
        else:
            start = _most(start, _sum((sidecars, container.requests)))
    total = _most(_sum((total, sidecars)), start)
    total |= _of_pod(pod)
    total = _sum((total, needs.overhead))
    return {name: count for name, count in counts(total).items() if count > 0}


def _of_container(container: Container, pod: Pod) -> Amounts:
    """A container that is being resized takes the most of what it has and what it wants, unless that is infeasible."""
    if container.running_with is None:
        return container.requests
    actual = _most(container.running_with, container.allocated or {})
    return actual if pod.resize_infeasible else _most(container.requests, actual)


def _of_pod(pod: Pod) -> dict[str, Fraction]:
    """Return what a pod asks for as a whole; nothing where only its containers ask.

    While it is resized, it takes the most of what it has, was granted and wants, unless that is infeasible. The status
    counts the overhead as well, which comes on top of all.
    """
    needs = pod.needs
    if not any(map(_may_be_asked_by_pod, needs.pod_requests)):
        return {}
    has = [_without(part, needs.overhead) for part in (needs.pod_running_with, needs.pod_allocated) if part is not None]
    most: Amounts = {} if has and pod.resize_infeasible else needs.pod_requests
    for part in has:
        most = _most(most, part)
    return {name: amount for name, amount in most.items() if _may_be_asked_by_pod(name)}


def _without(amounts: Amounts, part: Amounts) -> dict[str, Fraction]:
    return {name: max(Fraction(0), amount - part.get(name, Fraction(0))) for name, amount in amounts.items()}


def _may_be_asked_by_pod(resource: str) -> bool:
    return resource in (CPU, MEMORY) or resource.startswith("hugepages-")


def _sum(parts: Iterable[Amounts]) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, Fraction(0)) + amount
    return total


def _most(a: Amounts, b: Amounts) -> dict[str, Fraction]:
    return {name: max(a.get(name, Fraction(0)), b.get(name, Fraction(0))) for name in {**a, **b}}


def host_ports(needs: Needs) -> tuple[HostPort, ...]:
    """The ports of the host that a pod takes: of its containers and sidecars, not of what only runs at the start."""
    staying = (*needs.containers, *(container for container in needs.init_containers if container.stays))
    return tuple(dict.fromkeys(port for container in staying for port in container.ports if port.port > 0))
