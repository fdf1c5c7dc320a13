"""Whether a node has what a pod asks for (plugins noderesources/fit.go:678-765 and nodevolumelimits/csi.go)."""

from evenkeel.domain.demand.node_info import NodeInfo
from evenkeel.domain.demand.pod_groups import PodGroup
from evenkeel.domain.demand.requests import CPU, MEMORY, PODS, amount_text
from evenkeel.domain.model.reasons import Reason, Rule


def failing_filter(kind: PodGroup, room: NodeInfo) -> Reason | None:
    """The first resource of which too little is free; what is not asked for is not looked at."""
    if room.pods < 1:
        return Reason.of(Rule.NODE_FULL_OF_PODS, pods=room.allocatable.get(PODS, 0))
    if 0 < kind.cpu > room.cpu:
        return _too_little(CPU, kind.cpu, room.cpu, room)
    if 0 < kind.memory > room.memory:
        return _too_little(MEMORY, kind.memory, room.memory, room)
    for name, asked in kind.rest:
        if asked > (free := room.free.get(name, 0)):
            return _too_little(name, asked, free, room)
    return None


def _too_little(resource: str, asked: int, free: int, room: NodeInfo) -> Reason:
    return Reason.of(
        Rule.TOO_LITTLE_FREE,
        resource=resource,
        asked=amount_text(resource, asked),
        free=amount_text(resource, max(0, free)),
        allocatable=amount_text(resource, room.allocatable.get(resource, 0)),
    )


def too_many_volumes(kind: PodGroup, room: NodeInfo) -> Reason | None:
    """The first CSI driver that cannot attach so many more volumes; one without a limit can."""
    for driver, count in kind.volumes.drivers:
        limit = room.limits.get(driver)
        if limit is not None and room.attached[driver] + count > limit:
            attached = room.attached[driver]
            return Reason.of(Rule.VOLUME_LIMIT, driver=driver, wanted=count, attached=attached, limit=limit)
    return None


def how_many(kind: PodGroup, room: NodeInfo, wanted: int) -> int:
    """How many pods of a kind the amounts of a node hold, at most as many as wanted."""
    most = min(wanted, room.pods)
    if kind.cpu:
        most = min(most, room.cpu // kind.cpu)
    if kind.memory:
        most = min(most, room.memory // kind.memory)
    for name, asked in kind.rest:
        most = min(most, room.free.get(name, 0) // asked)
    for driver, count in kind.volumes.drivers:
        if driver in room.limits:
            most = min(most, (room.limits[driver] - room.attached[driver]) // count)
    if kind.ports or kind.volumes.exclusive:
        most = min(most, 1)
    return max(0, most)
