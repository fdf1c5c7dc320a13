"""The resources that a pod requests from a node (component-helpers resource/helpers.go:151-322).

As in the scheduler, cpu is counted in millicores and every other resource in whole units. All amounts are rounded up.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction

from evenkeel.domain.model.workload import Amounts, Container, HostPort, Needs, Pod, Resources

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"

Counts = Mapping[str, int]
"""The amount of each resource, by name: cpu in millicores, memory and storage in bytes, other resources in pieces."""


def counts(amounts: Amounts) -> dict[str, int]:
    """Return amounts in the scheduler's units."""
    return {name: _rounded_up(amount, 1000 if name == CPU else 1) for name, amount in amounts.items()}


def _rounded_up(amount: Fraction, times: int) -> int:
    """Return a multiple of an amount, rounded up. ``ceil`` of a product of fractions takes ten times as long."""
    return -(-amount.numerator * times // amount.denominator)


def amount_text(resource: str, count: int) -> str:
    """Return a count in the notation of Kubernetes, such as 1500m, 2 or 6Gi."""
    if resource == CPU:
        return f"{count // 1000}" if count % 1000 == 0 else f"{count}m"
    for unit, size in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if count >= size and count % size == 0:
            return f"{count // size}{unit}"
    return str(count)


def is_gpu(resource: str) -> bool:
    """Return True for a GPU resource of any vendor, such as nvidia.com/gpu or amd.com/gpu."""
    return resource.endswith("/gpu")


def request_of(pod: Pod) -> dict[str, int]:
    """Return the amount of each resource that a pod requests from a node. Amounts of 0 are left out.

    Limits do not count. The amount is the larger of two: the sum for containers and sidecars, and the peak during
    startup. During startup, an init container runs together with the sidecars listed before it. Pod-level requests, if
    set, replace this amount. The pod's overhead is added to it.
    """
    needs = pod.needs.resources
    total = _sum(_of_container(container, needs) for container in needs.containers)
    sidecars: dict[str, Fraction] = {}
    start: dict[str, Fraction] = {}
    for container in needs.init_containers:
        if container.stays:
            sidecars = _sum((sidecars, _of_container(container, needs)))
            start = _most(start, sidecars)
        else:
            start = _most(start, _sum((sidecars, container.requests)))
    if start:
        total = _most(_sum((total, sidecars)), start)
    total = {**total, **_of_pod(needs)}
    return {name: count for name, count in counts(_sum((total, needs.overhead))).items() if count > 0}


def _of_container(container: Container, needs: Resources) -> Amounts:
    """Return a container's requests.

    During a resize, these are the larger of the actual and the desired requests. If the resize is infeasible, only the
    actual requests count.
    """
    if container.running_with is None:
        return container.requests
    actual = _most(container.running_with, container.allocated or {})
    return actual if needs.resize_infeasible else _most(container.requests, actual)


def _of_pod(needs: Resources) -> dict[str, Fraction]:
    """Return the pod-level requests. During a resize, the rules of ``_of_container`` apply.

    The amounts in the pod's status include the overhead. This function subtracts it.
    """
    if not any(map(_is_pod_level, needs.pod_requests)):
        return {}
    actual = [
        {name: max(Fraction(0), amount - needs.overhead.get(name, Fraction(0))) for name, amount in part.items()}
        for part in (needs.pod_running_with, needs.pod_allocated)
        if part is not None
    ]
    most: Amounts = {} if actual and needs.resize_infeasible else needs.pod_requests
    for part in actual:
        most = _most(most, part)
    return {name: amount for name, amount in most.items() if _is_pod_level(name)}


def _is_pod_level(resource: str) -> bool:
    return resource in (CPU, MEMORY) or resource.startswith("hugepages-")


def _sum(parts: Iterable[Amounts]) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total[name] + amount if name in total else amount
    return total


def _most(a: Amounts, b: Amounts) -> dict[str, Fraction]:
    return {name: max(a.get(name, Fraction(0)), b.get(name, Fraction(0))) for name in {**a, **b}}


def host_ports(needs: Needs) -> tuple[HostPort, ...]:
    """Return the host ports of a pod's containers and sidecars. Init containers that end reserve no ports."""
    running = (
        *needs.resources.containers,
        *(container for container in needs.resources.init_containers if container.stays),
    )
    return tuple(dict.fromkeys(port for container in running for port in container.ports if port.port > 0))
