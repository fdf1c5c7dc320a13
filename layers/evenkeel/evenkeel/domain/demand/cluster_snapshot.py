"""Nodes and what stands on them while places are sought; every step can be taken back.

A pod fits where no rule says otherwise: the rules are asked in the order of the scheduler's default profile, and the
first that fails is the answer.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from evenkeel.domain.demand import node_affinity, ports, resources, spread, taints, volumes
from evenkeel.domain.demand.node_info import NodeInfo, Shapes
from evenkeel.domain.demand.pod_affinity import Namespaces, PodAffinity
from evenkeel.domain.demand.pod_groups import PodGroup
from evenkeel.domain.demand.topology_counts import TopologyCounts
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import Node

NOTHING: Mapping[str, int] = {}


class _Step(NamedTuple):
    room: NodeInfo
    kind: PodGroup | None  # None: the room itself
    number: int  # put there (negative: taken from there); of a room 1 added, -1 removed


class ClusterSnapshot:
    """Rooms by the names of their nodes, in the order in which they were added."""

    def __init__(self, namespaces: Namespaces) -> None:
        self.node_infos: dict[str, NodeInfo] = {}
        self._tallies = TopologyCounts()
        self._affinity = PodAffinity(self._tallies, namespaces)
        self._shapes = Shapes()
        self._users: Counter[str] = Counter()  # of claims that no second pod may use
        self._steps: list[_Step] = []

    def add(self, node: Node, pods_on: Mapping[PodGroup, int], attached: Mapping[str, int] = NOTHING) -> NodeInfo:
        """A node with these pods on it, whether or not they fit.

        ``attached``: volumes by CSI driver that are attached to it beside those of the pods.
        """
        room = NodeInfo(node, self._shapes.of(node), attached)
        for kind, count in pods_on.items():
            room.change(kind, count)
        self._do(_Step(room, None, 1))
        return room

    def remove(self, room: NodeInfo) -> None:
        """The node is gone, with all that stands on it."""
        self._do(_Step(room, None, -1))

    def put(self, kind: PodGroup, room: NodeInfo, count: int = 1) -> None:
        """Pods of a kind stand there from now on, whether or not they fit; negative: do not any more."""
        self._do(_Step(room, kind, count))

    def fork(self) -> int:
        """A point to which ``revert`` leads."""
        return len(self._steps)

    def revert(self, fork: int) -> None:
        """As if nothing had happened since."""
        while len(self._steps) > fork:
            step = self._steps.pop()
            self._carry_out(step._replace(number=-step.number))

    def _do(self, step: _Step) -> None:
        self._steps.append(step)
        self._carry_out(step)

    def _carry_out(self, step: _Step) -> None:
        room, kind, count = step
        if kind is not None:
            room.change(kind, count)
            self._tallies.change(room, kind, count)
            self._use(kind, count)
            return
        if count > 0:
            self.node_infos[room.name] = room
            self._tallies.add_room(room)
        else:
            del self.node_infos[room.name]
            self._tallies.remove_room(room)
        for pods_on, number in room.pod_groups.items():
            self._use(pods_on, count * number)

    def _use(self, kind: PodGroup, count: int) -> None:
        for claim in kind.volumes.exclusive:
            self._users[claim] += count

    def depends_on_others(self, kind: PodGroup) -> bool:
        """Whether where a pod of this kind fits changes with where other pods are placed."""
        return bool(kind.spread or kind.volumes.exclusive) or self._affinity.depends_on_others(kind)

    def failing_filter(self, kind: PodGroup, room: NodeInfo) -> Reason | None:
        """The first rule by which one more pod of this kind cannot stand there; None: it can."""
        return (
            self.obstacle(kind)
            or self.standing_misfit(kind, room)
            or self._port_taken(kind, room)
            or resources.failing_filter(kind, room)
            or self._claim_in_use(kind)
            or resources.too_many_volumes(kind, room)
            or self._volume_misfit(kind, room)
            or (spread.failing_filter(kind, room, self._tallies) if kind.spread else None)
            or self._affinity.failing_filter(kind, room)
        )

    @staticmethod
    def obstacle(kind: PodGroup) -> Reason | None:
        """Why no node at all will do."""
        return kind.volumes.obstacle

    @staticmethod
    def standing_misfit(kind: PodGroup, room: NodeInfo) -> Reason | None:
        """What keeps a kind from a node whatever stands on it: cordon, taints, labels. Found out once per shape."""
        if kind.by_node:
            return _standing_misfit(kind, room)
        answers = room.shape.pods_on
        if kind not in answers:
            answers[kind] = _standing_misfit(kind, room)
        return answers[kind]

    @staticmethod
    def _volume_misfit(kind: PodGroup, room: NodeInfo) -> Reason | None:
        if not kind.volumes.reaches:
            return None
        if kind.by_node:
            return volumes.failing_filter(kind.volumes, room.labels, room.name)
        answers = room.shape.volumes
        if kind not in answers:
            answers[kind] = volumes.failing_filter(kind.volumes, room.labels, room.name)
        return answers[kind]

    @staticmethod
    def _port_taken(kind: PodGroup, room: NodeInfo) -> Reason | None:
        taken = ports.first_taken(kind.ports, room.taken_ports) if kind.ports else None
        return None if taken is None else Reason.of(Rule.HOST_PORT_TAKEN, port=taken.port, protocol=taken.protocol)

    def _claim_in_use(self, kind: PodGroup) -> Reason | None:
        used = next((claim for claim in sorted(kind.volumes.exclusive) if self._users[claim] > 0), None)
        return None if used is None else Reason.of(Rule.CLAIM_IN_USE, claim=used)

    def fill(self, kind: PodGroup, room: NodeInfo, wanted: int) -> int:
        """Put as many pods of a kind there as fit, at most as many as wanted. Returns how many."""
        if not self.depends_on_others(kind):
            count = 0 if self.failing_filter(kind, room) else resources.how_many(kind, room, wanted)
            if count:
                self.put(kind, room, count)
            return count
        count = 0
        while count < wanted and self.failing_filter(kind, room) is None:
            self.put(kind, room)
            count += 1
        return count

    def find(self, kind: PodGroup, node_infos: Iterable[NodeInfo]) -> NodeInfo | None:
        """Put one pod of a kind into the first room where it fits, and say which; None: it fits none."""
        return next((room for room in node_infos if self.fill_any(kind, (room,), 1)), None)

    def fill_any(self, kind: PodGroup, node_infos: Iterable[NodeInfo], wanted: int) -> int:
        """Put pods of a kind into the first rooms where they fit. Returns how many were put."""
        put = 0
        cpu, memory = kind.cpu, kind.memory
        for room in node_infos:
            if put >= wanted:
                break
            if (not cpu or room.cpu >= cpu) and (not memory or room.memory >= memory) and room.pods > 0:
                put += self.fill(kind, room, wanted - put)
        return put


def _standing_misfit(kind: PodGroup, room: NodeInfo) -> Reason | None:
    if room.node.unschedulable and taints.first_not_tolerated([taints.UNSCHEDULABLE], kind.needs.tolerations):
        return Reason.of(Rule.NODE_CORDONED)
    taint = taints.first_not_tolerated(room.node.taints, kind.needs.tolerations)
    if taint is not None:
        return Reason.of(Rule.TAINT_NOT_TOLERATED, taint=f"{taint.key}={taint.value}:{taint.effect}")
    return node_affinity.failing_filter(kind.needs, room.labels, room.name)
