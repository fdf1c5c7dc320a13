"""A simulated pool and its environment, given or drawn at random. Times are seconds from the start."""

import random
from dataclasses import dataclass, fields

from evenkeel.domain.model.choices import Strategy
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.bounds.gep24 import BACKWARD_COMPATIBLE
from tests.parts import replace

ZONES = "abcdef"


@dataclass(frozen=True, kw_only=True)
class Demand:
    """From ``at`` on: pods that run in any zone (``free``), and in one zone only (``bound``). Each needs a node."""

    at: int
    free: int
    bound: tuple[int, ...]

    @property
    def pods(self) -> int:
        return self.free + sum(self.bound)


@dataclass(frozen=True, kw_only=True)
class Span:
    """A span of time of one zone. ``end`` None: without end."""

    zone: int
    start: int
    end: int | None

    def holds(self, zone: int, at: int) -> bool:
        return zone == self.zone and self.start <= at and (self.end is None or at < self.end)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One pool, its demand, its autoscaler, and the times of Evenkeel's checks. ``strategy`` None: no Evenkeel."""

    maximum: int
    zones: int = 3
    minimum: int = 0
    strategy: Strategy | None = BALANCED
    nodes: tuple[int, ...] = ()  # at the start, per zone; empty: none
    room: tuple[int, ...] = ()  # max of each group above its nodes before Evenkeel's first check; empty: none
    demand: tuple[Demand, ...] = ()
    beyond: int = 0  # pods of the last demand that cannot be placed: all others are free too, or bound like these
    weights: tuple[int, ...] = ()
    zone_max: tuple[int | None, ...] = ()
    floor: int = 0  # least max that the owner of the bounds accepts
    frozen: tuple[Span, ...] = ()  # Evenkeel may not write the group
    paused: tuple[Span, ...] = ()  # its own controllers do not act either
    suspended: tuple[Span, ...] = ()  # the cloud launches no machine in the group
    skips_paused: bool = True  # the autoscaler leaves paused groups out (from release 1.36 on)
    refusing: tuple[Span, ...] = ()  # the zone gives no new machines
    events: bool = False  # refused launches are also reported by events
    made: int = 0  # seconds from a requested replica to its machine
    boot: int = 60
    loop: int = 10  # the autoscaler's
    autoscaler_loop: float = 10  # the same in the record
    expander: str = "random"  # or "priority": the same order each time
    balancing: bool = False
    scan: int = 60
    others: int | None = None  # seconds between checks that other pools cause
    delay: int = 2  # a write takes up to this long
    timers: bool = True  # checks after a write and at times that the plan sets; False: all these messages are lost
    deaths: float = 0  # probability that a run dies before a write
    seed: int = 0

    def __repr__(self) -> str:
        reported = [
            f"{item.name}={value!r}" for item in fields(self) if (value := getattr(self, item.name)) != item.default
        ]
        return f"Case({', '.join(reported)})"

    @property
    def wanted(self) -> Demand:
        last = self.demand[-1]
        if not self.beyond or not any(last.bound):
            return replace(last, free=last.free - self.beyond)
        return replace(last, bound=tuple(pods - self.beyond if pods else 0 for pods in last.bound))

    @property
    def settles(self) -> int:
        """Return the time of the last event that the case sets."""
        spans = (*self.frozen, *self.refusing, *self.paused, *self.suspended)
        return max(
            [0, *(at for span in spans for at in (span.start, span.end or 0)), *(step.at for step in self.demand)]
        )


def caps(case: Case) -> list[float]:
    """Return the most nodes that each zone can finally have."""
    limits = case.zone_max or (None,) * case.zones
    most = [float("inf") if limit is None else float(limit) for limit in limits]
    if case.strategy is BACKWARD_COMPATIBLE:
        share, more = divmod(case.maximum, case.zones)
        most = [min(most[i], share + (i < more)) for i in range(case.zones)]
    for zone in _frozen_for_good(case):
        most[zone] = first_max(case, zone)
    for span in case.refusing:
        if span.end is None:
            most[span.zone] = 0
    return most


def _frozen_for_good(case: Case) -> set[int]:
    return {span.zone for span in case.frozen if span.end is None}


def first_max(case: Case, zone: int) -> int:
    return max(case.floor, (case.nodes[zone] if case.nodes else 0) + (case.room[zone] if case.room else 0))


def can_be_met(case: Case, free: int, bound: tuple[int, ...]) -> bool:
    """Return True if PoolMaximum, caps and capacity allow this demand, wherever free pods were placed.

    Some nodes of PoolMaximum belong to one group, needed or not: those that a frozen group's bounds allow, an owner's
    one node of an empty group, PoolMinimum. Free pods may use them, pods bound to other zones cannot.
    """
    most = caps(case)
    frozen = _frozen_for_good(case)
    lost = {span.zone for span in case.refusing if span.end is None}
    if any(pods > cap for pods, cap in zip(bound, most, strict=True)):
        return False
    reserved = sum(case.floor for zone in lost)
    if any(bound):
        reserved += case.minimum
        reserved += sum(first_max(case, zone) - bound[zone] for zone in frozen)
        reserved += sum(max(0, case.floor - bound[zone]) for zone in range(case.zones) if zone not in frozen | lost)
    pods = free + sum(bound)
    return pods <= case.maximum - reserved and pods <= sum(most)


def drawn(seed: int, strategy: Strategy = BALANCED) -> Case:
    chance = random.Random(f"{strategy.name}/{seed}")
    zones = chance.randint(2, 6)
    maximum = chance.choice(
        [chance.randint(zones, 3 * zones), chance.randint(zones, 30), chance.randint(20, 60), chance.randint(60, 150)]
    )
    if chance.random() < 0.05 and strategy is BALANCED:
        maximum = chance.randint(1, zones)
    case = Case(
        seed=seed,
        strategy=strategy,
        zones=zones,
        maximum=maximum,
        nodes=(0,) * zones,
        room=(0,) * zones,
        boot=chance.choice([8, 60, 240]),
        loop=chance.choice([10, 30, 60]),
        expander=chance.choice(["random", "priority"]),
        balancing=chance.random() < 0.5,
        scan=chance.choice([60, 300]),
        others=chance.choice([2, 5, 10, 15]) if chance.random() < 0.25 else None,
        delay=chance.randint(0, 2),
        events=chance.random() < 0.5,
    )
    case = replace(case, autoscaler_loop=chance.choice([10, case.loop]))
    if chance.random() < 0.2:
        case = replace(case, timers=chance.random() < 0.5, deaths=chance.choice([0, 0.1, 0.3]))
    if chance.random() < 0.25:
        case = replace(case, weights=tuple(chance.randint(1, 3) for _ in range(zones)))
    if chance.random() < 0.2 and maximum >= 2 * zones:
        case = replace(case, floor=1)
    if chance.random() < 0.2:
        limits = tuple(chance.choice([None, chance.randint(1, maximum)]) for _ in range(zones))
        case = replace(case, zone_max=limits)
    if chance.random() < 0.2:
        case = replace(case, minimum=chance.randint(1, max(1, maximum // 3)))
    if chance.random() < 0.2 and maximum > zones:
        case = _with_a_frozen_group(case, chance)
    if chance.random() < 0.35:
        case = replace(case, refusing=_refusals(case, chance))
    return _with_demand(_with_nodes(case, chance), chance)


def drawn_with_thaws(seed: int) -> Case:
    """Return a pool that fills up while one or two groups repeatedly cannot grow; some thaw into a rollout."""
    chance = random.Random(f"thaws/{seed}")
    zones = chance.randint(2, 4)
    maximum = chance.randint(zones, 8 * zones)
    nodes = tuple(chance.randint(0, maximum // zones) for _ in range(zones))
    first = Demand(at=0, free=sum(nodes), bound=(0,) * zones)
    case = Case(
        seed=seed,
        zones=zones,
        maximum=maximum,
        minimum=chance.choice([0, 0, chance.randint(0, maximum // 2)]),
        nodes=nodes,
        room=tuple(chance.randint(0, maximum) for _ in range(zones)),
        demand=(first,),
        skips_paused=chance.random() < 0.3,
        made=chance.choice([0, 3, 20]),
        boot=chance.choice([8, 60, 240]),
        loop=chance.choice([10, 30, 60]),
        expander=chance.choice(["random", "priority"]),
        balancing=chance.random() < 0.5,
        scan=chance.choice([60, 300]),
        delay=chance.randint(0, 2),
        timers=chance.random() < 0.9,
        deaths=chance.choice([0, 0, 0, 0.2]),
        floor=chance.choice([0, 0, 1]),
    )
    spans: dict[str, list[Span]] = {"paused": [], "suspended": [], "frozen": []}
    for zone in chance.sample(range(zones), chance.randint(1, 2)):
        start = chance.choice([0, chance.randint(1, 900)])
        for _ in range(chance.randint(1, 4)):
            end = start + chance.choice([chance.randint(1, 90), chance.randint(30, 900)])
            spans[chance.choice(["paused", "paused", "suspended"])].append(Span(zone=zone, start=start, end=end))
            start = end + chance.choice([0, chance.randint(1, 60), chance.randint(1, 900)])
            if chance.random() < 0.25:
                spans["frozen"].append(Span(zone=zone, start=end, end=end + chance.randint(5, 900)))
                start = max(start, end + 905)
    free, steps = first.free, [first]
    for at in sorted(chance.sample(range(1, 1200), chance.randint(1, 6))):
        free = chance.choice([maximum, chance.randint(0, maximum), min(maximum, free + chance.randint(0, 3))])
        steps.append(Demand(at=at, free=free, bound=first.bound))
    return replace(case, demand=tuple(steps), **{name: tuple(found) for name, found in spans.items()})


def _with_a_frozen_group(case: Case, chance: random.Random) -> Case:
    """Freeze a group from the start with drawn bounds, or later for a while with its bounds then."""
    zone = chance.randrange(case.zones)
    if chance.random() < 0.5:
        start = chance.randint(100, 2000)
        return replace(case, frozen=(Span(zone=zone, start=start, end=start + chance.randint(30, 3600)),))
    most = chance.randint(0, case.maximum // 2)
    nodes, room = list(case.nodes), list(case.room)
    nodes[zone] = chance.randint(0, most)
    room[zone] = most - nodes[zone]
    end = chance.choice([None, chance.randint(600, 7200)])
    return replace(case, nodes=tuple(nodes), room=tuple(room), frozen=(Span(zone=zone, start=0, end=end),))


def _refusals(case: Case, chance: random.Random) -> tuple[Span, ...]:
    start = chance.randint(0, 2400)
    if chance.random() < 0.15:
        end = start + chance.randint(10, 600)
        return tuple(Span(zone=zone, start=start, end=end) for zone in range(case.zones))
    zone = chance.choice([zone for zone in range(case.zones) if zone not in {span.zone for span in case.frozen}])
    return (Span(zone=zone, start=start, end=chance.choice([None, *[start + chance.randint(30, 3600)] * 4])),)


def _with_nodes(case: Case, chance: random.Random) -> Case:
    nodes = list(case.nodes)
    if chance.random() < 0.6:
        nodes = [have or chance.randint(0, max(1, case.maximum // case.zones)) for have in nodes]
    frozen = {span.zone for span in case.frozen if span.start == 0}
    bound = [have if chance.random() < 0.5 else 0 for have in nodes]
    for zone in sorted(range(case.zones), key=lambda zone: -nodes[zone]):  # lower the number until it is allowed
        while nodes[zone] and zone not in frozen:
            allowed = sum(nodes) + sum(case.room) <= case.maximum
            if allowed and can_be_met(replace(case, nodes=tuple(nodes)), sum(nodes) - sum(bound), tuple(bound)):
                break
            nodes[zone] -= 1
            bound[zone] = max(0, bound[zone] - 1)
    case = replace(case, nodes=tuple(nodes))
    if not can_be_met(case, sum(nodes) - sum(bound), tuple(bound)):
        bound = [0] * case.zones
    return replace(case, demand=(Demand(at=0, free=sum(nodes) - sum(bound), bound=tuple(bound)),))


def _with_demand(case: Case, chance: random.Random) -> Case:
    """Add bursts or trickles of pods, free, bound or mixed; half of them up to the last possible node."""
    kinds: list[int | None] = chance.choice(
        [
            [None],
            [chance.randrange(case.zones)],
            [*range(case.zones)],
            [None, chance.randrange(case.zones)],
            [None, *range(case.zones)],
        ]
    )
    first = case.demand[0]
    free, bound = first.free, list(first.bound)
    steps = [first]
    at = chance.randint(0, 400)
    if chance.random() < 0.2 and first.pods:  # first, demand falls
        free, bound = chance.randint(0, free), [chance.randint(0, pods) for pods in bound]
        steps.append(Demand(at=at, free=free, bound=tuple(bound)))
        at += chance.randint(60, 1800)
    trickle = chance.random() < 0.4
    largest = chance.randint(1, 3) if trickle else max(1, case.maximum)
    goal = case.maximum if chance.random() < 0.6 else chance.randint(0, case.maximum)
    size = largest
    while size and len(steps) < 150 and free + sum(bound) < goal:
        kind = chance.choice(kinds)
        pods = min(chance.randint(1, size), goal - free - sum(bound))
        more_free = free + pods * (kind is None)
        more_bound = tuple(have + pods * (zone == kind) for zone, have in enumerate(bound))
        if not can_be_met(case, more_free, more_bound):
            size //= 2  # the rest is smaller
            if not size and len(kinds) > 1:
                kinds, size = [other for other in kinds if other != kind], largest
            continue
        free, bound = more_free, list(more_bound)
        steps.append(Demand(at=at, free=free, bound=tuple(bound)))
        at += chance.randint(5, 90) if trickle else chance.choice([0, 0, chance.randint(1, 1200)])
    case = replace(case, demand=tuple({step.at: step for step in steps}.values()))
    return _with_more_than_fits(case, chance) if chance.random() < 0.5 else case


def _with_more_than_fits(case: Case, chance: random.Random) -> Case:
    """Add pods that cannot be placed, if all pods are of one kind and need all possible nodes."""
    last, beyond = case.demand[-1], chance.randint(1, case.maximum)
    if last.pods not in (last.free, max(last.bound)):
        return case
    if last.free:
        one, more = replace(last, free=last.free + 1), replace(last, free=last.free + beyond)
    else:
        one = replace(last, bound=tuple(pods and pods + 1 for pods in last.bound))
        more = replace(last, bound=tuple(pods and pods + beyond for pods in last.bound))
    if not last.pods or can_be_met(case, one.free, one.bound):
        return case
    return replace(case, demand=(*case.demand[:-1], more), beyond=beyond)
