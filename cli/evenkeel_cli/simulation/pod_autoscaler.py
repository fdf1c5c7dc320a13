"""Cluster Autoscaler where pods have sizes: it packs them onto imagined nodes, and seeks places for those of others.

What it remembers of orders and failures is that of the model for numbers. Predicates are the simulated scheduler's, as
the real one asks the real scheduler's. Sources: core/podlistprocessor, core/scaleup/orchestrator/orchestrator.go,
estimator/binpacking_estimator.go, expander/waste/waste.go, core/scaledown, all under cluster-autoscaler/. Left out:
hints of where pods went in the loop before, limits on time and on candidates, and its own eviction: machine
controllers drain.
"""

# ruff: noqa: ARG002  demand as the model for numbers has it says nothing here

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from evenkeel_cli.simulation.autoscaler_model import Action, ClusterAutoscaler, Delete, Demand, Flags, balance
from evenkeel_cli.simulation.pods import Pods
from evenkeel_cli.simulation.scheduling import Board, Kind, Room
from evenkeel_cli.simulation.world import Group, SimulatedMachine, World

_TOO_NEW = 2  # seconds: while even the oldest pod is younger, it neither grows nor shrinks
_THRESHOLD = 0.5  # --scale-down-utilization-threshold
_MOST_EMPTY = 10  # --max-scale-down-parallelism; with pods to be moved, one at a time


@dataclass(frozen=True)
class _Option:
    """What one group, with those like it, could do for the pods that wait."""

    group: Group
    similar: list[Group]
    nodes: int
    waste: float


@dataclass(frozen=True)
class _Removable:
    """A node that could go, with whom."""

    group: Group
    machine: SimulatedMachine
    is_empty: bool


class PodAutoscaler(ClusterAutoscaler[Group]):
    """The autoscaler of a world with pods."""

    def __init__(self, world: World, pods: Pods, flags: Flags, *, seed: str) -> None:
        super().__init__(flags, seed=seed)
        self._world = world
        self._pods = pods
        self._clocks: dict[str, float] = {}  # node -> unneeded since
        self._found: tuple[object, list[_Removable]] = (None, [])

    def _is_too_new(self, now: float) -> bool:
        waiting = self._pods.waiting()
        return bool(waiting) and now - waiting[0].created < _TOO_NEW

    # Scale-up

    def _scale_up(
        self, pools: Mapping[str, list[Group]], visible: Sequence[Group], demand: Demand, now: float
    ) -> list[tuple[Group, int]]:
        """One option per loop, that with the least waste."""
        if not self._pods.waiting() or self._is_too_new(now):
            return []
        board = self._pods.board.copy()
        for group in visible:
            for number in range(self._upcoming(group, now)):
                self._add(board, group, f"upcoming {number}")
        left = self._left(board)
        if not left:
            return []
        able = [group for group in visible if self._may_grow(group, now)]
        options = [option for group in able if (option := self._option(board, group, able, left)) is not None]
        if not options:
            return []
        least = min(option.waste for option in options)
        best = self._expander.choice([option for option in options if option.waste == least])
        return balance(best.similar if self._flags.balance else [best.group], best.nodes)

    def _left(self, board: Board) -> Counter[Kind]:
        """Pods for whom there is no room on nodes that are there or on their way. The others take theirs."""
        homeless = Counter(pod.kind for pod in self._pods.waiting())
        for room in board.rooms.values():
            if not room.is_open:
                homeless.update(room.kinds)  # of nodes that are being drained
        rooms = list(board.rooms.values())
        return Counter(
            {kind: more for kind, count in homeless.items() if (more := count - _fill(board, kind, rooms, count))}
        )

    def _add(self, board: Board, group: Group, name: str) -> Room:
        room = self._world.room(group, f"{group.key} {name}")
        board.rooms[room.name] = room
        return room

    def _fitting(self, board: Board, group: Group, kinds: Iterable[Kind]) -> set[Kind]:
        """Of which kinds one pod would stand on a new node of the group."""
        room = self._add(board, group, "sample")
        found = {kind for kind in kinds if board.fits(kind, room)}
        del board.rooms[room.name]
        return found

    def _option(self, board: Board, group: Group, able: Sequence[Group], left: Counter[Kind]) -> _Option | None:
        kinds = self._fitting(board, group, left)
        if not kinds:
            return None
        similar = [
            other
            for other in able
            if other.pool == group.pool and (other is group or kinds <= self._fitting(board, other, kinds))
        ]
        counted = similar if self._flags.balance else [group]
        most = sum(other.bounds.max - other.requested for other in counted)
        return self._estimate(board.copy(), group, similar, {kind: left[kind] for kind in kinds}, most)

    def _estimate(
        self, board: Board, group: Group, similar: list[Group], pods: Mapping[Kind, int], most: int
    ) -> _Option | None:
        """First fit, the largest first, on nodes of this one group. A node that holds nobody is no node."""
        size = self._world.room(group, "")
        new: list[Room] = []
        placed: Counter[Kind] = Counter()
        for kind in sorted(pods, key=lambda kind: (-(kind.cpu / size.cpu + kind.memory / size.memory), kind.name)):
            placed[kind] = _fill(board, kind, new, pods[kind])
            while placed[kind] < pods[kind] and len(new) < most:
                room = self._add(board, group, f"new {len(new)}")
                more = _fill(board, kind, [room], pods[kind] - placed[kind])
                if not more:
                    del board.rooms[room.name]
                    break
                new.append(room)
                placed[kind] += more
        if not new:
            return None
        cpu = sum(kind.cpu * count for kind, count in placed.items()) / (size.cpu * len(new))
        memory = sum(kind.memory * count for kind, count in placed.items()) / (size.memory * len(new))
        return _Option(group, similar, len(new), 2 - cpu - memory)

    # Scale-down

    def _scale_down(self, pools: Mapping[str, list[Group]], demand: Demand, now: float) -> Iterator[Action[Group]]:
        """Empty nodes together, others one by one, each after it was unneeded for long enough."""
        if self._is_too_new(now):
            return
        found = self._removable(pools)
        self._clocks = {each.machine.name: self._clocks.get(each.machine.name, now) for each in found}
        if self._has_just_added(now):
            return
        drained = bool(self._world.leaving)
        empty = _MOST_EMPTY - len(self._world.leaving)
        for each in found:
            bounds = each.group.readable_bounds
            is_ripe = now - self._clocks[each.machine.name] > self._flags.unneeded
            if not is_ripe or bounds is None or each.group.requested <= bounds.min:
                continue
            if each.is_empty and empty > 0:
                empty -= 1
            elif not each.is_empty and not drained:
                drained = True
            else:
                continue
            yield Delete(each.group, each.machine)

    def _removable(self, pools: Mapping[str, list[Group]]) -> list[_Removable]:
        """Every node that could go, the empty ones first; found out again only where something has changed."""
        groups = [group for members in pools.values() for group in members]
        seen = (self._pods.version, tuple((group.requested, group.readable_bounds) for group in groups))
        if self._found[0] != seen:
            self._found = seen, list(self._find_removable(groups))
        return self._found[1]

    def _find_removable(self, groups: Sequence[Group]) -> Iterator[_Removable]:
        board = self._pods.board.copy()
        # Who waits, and fits already, has its room first.
        self._left(board)
        allowed = {kind: self._pods.allowed(kind) for kind in self._pods.kinds}
        candidates = [
            _Removable(group, machine, is_empty=not board.rooms[machine.name].pods)
            for group in groups
            if (bounds := group.readable_bounds) is not None and bounds.max > 0 and group.requested > bounds.min
            for machine in group.nodes()
            if board.rooms[machine.name].used <= _THRESHOLD
        ]
        candidates.sort(key=lambda each: (not each.is_empty, each.machine.name not in self._clocks))
        for each in candidates:
            room = board.rooms[each.machine.name]
            moving = +room.kinds
            if any(allowed[kind] == 0 for kind in moving):
                continue
            if _has_moved(board, room, moving):
                for kind, count in moving.items():
                    left = allowed[kind]
                    allowed[kind] = None if left is None else max(0, left - count)
                yield each


def _has_moved(board: Board, room: Room, moving: Counter[Kind]) -> bool:
    """Whether there was a place for each of a node's pods; then they stand there, and the node is closed and empty."""
    room.is_open = False
    done: list[tuple[Kind, Room]] = []
    for kind in sorted(moving, key=lambda kind: (-kind.cpu, -kind.memory, kind.name)):
        for _ in range(moving[kind]):
            room.put(kind, -1)
            place = board.first(kind, board.rooms.values())
            if place is None:
                room.put(kind)
                for other, taken in done:
                    taken.put(other, -1)
                    room.put(other)
                room.is_open = True
                return False
            place.put(kind)
            done.append((kind, place))
    return True


def _fill(board: Board, kind: Kind, rooms: Sequence[Room], wanted: int) -> int:
    """Put pods into the first rooms where they fit. Returns how many."""
    put = 0
    while put < wanted and (room := board.first(kind, rooms)) is not None:
        room.put(kind)
        put += 1
    return put
