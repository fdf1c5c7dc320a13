"""A scenario: what happens to which zones, and when. Read strictly; every bad value is one line.

Times count from the scenario's start, in whole seconds; people write them as ``90s``, ``15m`` or ``1h30m``.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from evenkeel.domain.model.choices import Level
from evenkeel.domain.model.values import near, quote
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.bounds.distribute import distribute_over_zones
from evenkeel.domain.rebalancing.membership.quantities import read_quantity
from evenkeel.record import (
    ConvergeEntry,
    Expander,
    ExpanderOrder,
    LevelName,
    MaxStep,
    OnFailureName,
    StrategyName,
    with_expander,
)
from evenkeel.validation import ConfigError, Moment, read_model
from evenkeel_cli.simulation.autoscaler_model import Flags

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_LONGEST = 31 * _UNITS["d"]


def read_duration(value: object) -> int:
    """Seconds from ``90s``, ``15m``, ``1h30m``, ``2d``. Raises ValueError."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) and value and len(value) < 20 else None
    if match is None:
        raise ValueError("not a duration: write it with units, such as 90s, 15m or 1h30m")
    seconds = sum(int(number or 0) * size for number, size in zip(match.groups(), _UNITS.values(), strict=True))
    if seconds > _LONGEST:
        raise ValueError("longer than 31 days")
    return seconds


def write_duration(seconds: int) -> str:
    """Seconds as people write them: ``1h30m``."""
    parts, rest = [], seconds
    for unit, size in _UNITS.items():
        if rest >= size:
            parts.append(f"{rest // size}{unit}")
            rest %= size
    return "".join(parts) or "0s"


def spans_where(samples: Iterable[tuple[int, bool]], end: int) -> list[tuple[int, int]]:
    """From each second on in which something holds until the one in which it no longer does, at last ``end``."""
    spans: list[tuple[int, int]] = []
    since: int | None = None
    for at, holds in samples:
        if holds and since is None:
            since = at
        elif not holds and since is not None:
            spans.append((since, at))
            since = None
    return spans if since is None else [*spans, (since, end)]


def _constant(value: object) -> object:
    """A plain number stands for one step at the start."""
    return [{"at": "0s", "nodes": value}] if isinstance(value, int) else value


def _constant_count(value: object) -> object:
    return [{"at": "0s", "pods": value}] if isinstance(value, int) else value


Duration = Annotated[int, BeforeValidator(read_duration)]
Positive = Annotated[int, BeforeValidator(read_duration), Field(ge=1)]
# Every node is an object in memory, six times over where strategies are compared.
Nodes = Annotated[int, Field(ge=0, le=5000, strict=True)]
Amount = Annotated[Fraction, BeforeValidator(read_quantity), Field(ge=0)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$")]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class DemandStep(_Entry):
    """From this moment on, so many nodes are wanted."""

    at: Duration
    nodes: Nodes


class Limit(_Entry):
    """From this moment on, so many machines are given out; without a number, as many as are asked for."""

    at: Duration
    nodes: Nodes | None = None


class PodStep(_Entry):
    """From this moment on, so many pods are wanted; of pods with a lifetime, so many more come."""

    at: Duration
    pods: Nodes


def _ordered(steps: Sequence[DemandStep | Limit | PodStep]) -> None:
    if any(later.at <= earlier.at for earlier, later in pairwise(steps)):
        raise ValueError("steps are written in order of time, one per moment")


Demands = Annotated[tuple[DemandStep, ...], BeforeValidator(_constant), Field(min_length=1)]
Limits = Annotated[tuple[Limit, ...], BeforeValidator(_constant)]
PodCounts = Annotated[tuple[PodStep, ...], BeforeValidator(_constant_count), Field(min_length=1)]


class Refusal(_Entry):
    """What becomes of a launch that gets no machine."""

    code: str = Field(default="InsufficientInstanceCapacity", min_length=1, max_length=128)
    message: str = Field(default="", max_length=1024)
    # event: an event is sent, and the machine's status says it; status: only that; never: nobody says anything
    seen: Literal["event", "status", "never"] = "event"
    retry: Positive = 60  # the machine's controller tries again after so long


class Zone(_Entry):
    """A zone of the region, and how it gives out machines."""

    name: Name
    capacity: Limits = ()
    provision: Duration = 90  # from a launch to a node
    jitter: Duration = 0  # up to so much is added, drawn from the scenario's seed
    answer: Duration = 5  # from a machine object to the cloud's yes or no
    failure: Refusal = Refusal()

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        _ordered(self.capacity)
        return self


class Quota(_Entry):
    """A limit on the machines of the whole region."""

    nodes: Limits
    failure: Refusal = Refusal(code="VcpuLimitExceeded")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        _ordered(self.nodes)
        return self


class NodeSize(_Entry):
    """What a node has for pods, and how they find it."""

    cpu: Annotated[Amount, Field(gt=0)]
    memory: Annotated[Amount, Field(gt=0)]
    labels: dict[str, str] = {}


class PoolSetup(_Entry):
    """A pool with one node group per zone."""

    name: Name
    min: Nodes = 0
    max: Nodes
    strategy: StrategyName = Field(default_factory=lambda: BALANCED)
    on_failure: OnFailureName | None = None
    level: LevelName | None = None
    zones: tuple[Name, ...] = ()  # none: every zone
    start: Nodes = 0  # nodes that run at the start, spread evenly
    start_in_zone: dict[Name, Nodes] = {}  # instead of that: so many per zone
    node: NodeSize | None = None  # where there are pods

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is larger than max {self.max}")
        return self


class Demand(_Entry):
    """Nodes that pods want, of one pool; bound to a zone, or free to run in any."""

    pool: Name | None = None  # may be left out where there is one pool
    zone: Name | None = None
    nodes: Demands

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        _ordered(self.nodes)
        return self


class SpreadSetup(_Entry):
    """By how many pods the fullest zone, or node, may be ahead of the emptiest; none: it does not matter."""

    zone: Annotated[int, Field(ge=1, strict=True)] | None = None
    node: Annotated[int, Field(ge=1, strict=True)] | None = None


class PodsSetup(_Entry):
    """Pods that are alike: of a deployment; with a lifetime, of jobs."""

    name: Name
    count: PodCounts
    lifetime: Positive | None = None  # each pod ends after so long on a node; none: the newest go when count falls
    cpu: Amount = Fraction(0)
    memory: Amount = Fraction(0)
    pool: Name | None = None  # none: any pool's nodes
    zones: tuple[Name, ...] = ()  # none: every zone
    selector: dict[str, str] = {}  # labels that a node must have
    spread: SpreadSetup = SpreadSetup()
    max_unavailable: Nodes | None = None  # of a disruption budget; none: there is none
    ready: Duration = 5  # from a node to serving, as a disruption budget counts

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        _ordered(self.count)
        return self


class Span(_Entry):
    """From one second until another, which no longer belongs to it."""

    start: Duration = Field(alias="from")
    until: Duration

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.until <= self.start:
            raise ValueError("until is not after from")
        return self


class Fence(Span):
    """An operator fences a zone for that time."""

    zone: Name


class GroupSpan(Span):
    """Something lasts for that time on the node group of a pool in a zone."""

    pool: Name | None = None
    zone: Name


class AutoscalerSetup(_Entry):
    """Whether it is there, how often it looks, and its flags."""

    enabled: bool = True
    loop: Positive = 10
    balance: bool = Flags.balance
    provision_timeout: Positive = Flags.provision_timeout
    backoff: Positive = Flags.backoff
    longest_backoff: Positive = Flags.longest_backoff
    forget_after: Positive = Flags.forget_after
    unneeded: Duration = Flags.unneeded
    delay_after_add: Duration = Flags.delay_after_add


class EvenkeelSetup(_Entry):
    """How often Evenkeel looks, and what it takes for late."""

    scan_interval: Annotated[Positive, Field(ge=15, le=3600)] = 60
    event_latency: Duration = 2
    provision_timeout: Annotated[Positive, Field(ge=60, le=7200)] = 900
    share_offerings: Annotated[bool, Field(strict=True)] = True  # whether the clusters of a fleet hear of one another
    # Beside an autoscaler, where there are pods: advise says what they wait for, and shrink sees which nodes are needed
    demand: Literal["off", "advise"] = "off"
    converge: ConvergeEntry = ConvergeEntry()
    expander: Expander | None = None  # as in the record, in the autoscaler's place
    expander_order: ExpanderOrder | None = Field(default=None, validate_default=True)
    max_step: MaxStep | None = None

    _order = field_validator("expander_order")(with_expander)


class Lie(_Entry):
    """A cluster says that it got no machine, where nothing was refused."""

    at: Duration
    pool: Name | None = None
    zone: Name


class ClusterSetup(_Entry):
    """One cluster of a fleet: pools and demand of the scenario, its own groups, and the zones of all."""

    name: Name
    later: Duration = 0  # what its pods want changes so much later
    lies: tuple[Lie, ...] = ()


class Scenario(_Entry):
    """What a scenario file says."""

    name: str = Field(min_length=1, max_length=100)
    about: str = ""
    start: Moment = datetime(2026, 1, 1, tzinfo=UTC)
    duration: Positive
    seed: Annotated[int, Field(strict=True)] = 1
    zones: tuple[Zone, ...] = Field(min_length=1, max_length=20)
    quota: Quota = Quota(nodes=())
    pools: tuple[PoolSetup, ...] = Field(min_length=1, max_length=20)
    demand: tuple[Demand, ...] = ()
    pods: tuple[PodsSetup, ...] = Field(default=(), max_length=50)  # instead of demand
    evenkeel: EvenkeelSetup = EvenkeelSetup()
    autoscaler: AutoscalerSetup = AutoscalerSetup()
    fences: tuple[Fence, ...] = ()
    frozen: tuple[GroupSpan, ...] = ()
    bad_bounds: tuple[GroupSpan, ...] = ()  # somebody writes bounds that nobody can read
    fleet: tuple[ClusterSetup, ...] = Field(default=(), max_length=50)  # none: one cluster

    def of_cluster(self, index: int) -> Self:
        """The part of one cluster of the fleet."""
        later = self.fleet[index].later
        demand = tuple(entry.model_copy(update={"nodes": _later(entry.nodes, later)}) for entry in self.demand)
        pods = tuple(entry.model_copy(update={"count": _later(entry.count, later)}) for entry in self.pods)
        return self.model_copy(update={"demand": demand, "pods": pods, "seed": self.seed + index})

    @property
    def converges(self) -> bool:
        """Whether running nodes of any pool are to be moved home."""
        return any(pool.level is Level.CONVERGE for pool in self.pools)

    @property
    def recovered_at(self) -> int | None:
        """When machines were given out more freely for the last time; None: they never were."""
        limits = [zone.capacity for zone in self.zones] + [self.quota.nodes]
        rises = [
            later.at
            for steps in limits
            for earlier, later in pairwise(steps)
            if earlier.nodes is not None and (later.nodes is None or later.nodes > earlier.nodes)
        ]
        return max([*rises, *(fence.until for fence in self.fences)], default=None)

    def zones_of(self, pool: PoolSetup) -> tuple[str, ...]:
        """The names of a pool's zones, sorted, as the pool's shares are dealt out."""
        return tuple(sorted(pool.zones or (zone.name for zone in self.zones)))

    def start_of(self, pool: PoolSetup) -> dict[str, int]:
        """Nodes of a pool at the start, per zone."""
        names = self.zones_of(pool)
        if pool.start_in_zone:
            return {name: pool.start_in_zone.get(name, 0) for name in names}
        return {name: distribute_over_zones(i, pool.start, len(names)) for i, name in enumerate(names)}

    def pool_named(self, name: str | None) -> PoolSetup:
        """The pool that a demand or span is about."""
        return next(pool for pool in self.pools if name in (None, pool.name))


_Step = TypeVar("_Step", DemandStep, PodStep)


def _later(steps: tuple[_Step, ...], seconds: int) -> tuple[_Step, ...]:
    """Steps so much later, but for what is there from the start."""
    return tuple(step.model_copy(update={"at": step.at + seconds if step.at else 0}) for step in steps)


def read_scenario(data: object, where: str) -> Scenario:
    """Raises ConfigError: one line per bad value, with the nearest valid name where one is close."""
    scenario = read_model(Scenario, data, where)
    found = (*_unknown_names(scenario), *_unknown_in_fleet(scenario), *_faults_of_pods(scenario))
    faults = [f"{where}: {fault}" for fault in found]
    if faults:
        raise ConfigError(faults)
    return scenario


def _unknown_names(scenario: Scenario) -> Iterator[str]:
    """What refers to zones and pools that are not there, and names that are given twice."""
    zones = [zone.name for zone in scenario.zones]
    pools = [pool.name for pool in scenario.pools]
    fleet = [cluster.name for cluster in scenario.fleet]
    for field, names in (("zones", zones), ("pools", pools), ("fleet", fleet)):
        for i, name in enumerate(names):
            if name in names[:i]:
                yield f"{field}.{i}.name is {quote(name)}: given twice"
    for i, pool in enumerate(scenario.pools):
        for j, name in enumerate(pool.zones):
            yield from _unknown(f"pools.{i}.zones.{j}", "zone", name, zones)
        for name in pool.start_in_zone:
            yield from _unknown(f"pools.{i}.start_in_zone", "zone", name, list(scenario.zones_of(pool)))
    seen: set[tuple[str | None, str | None]] = set()
    for i, demand in enumerate(scenario.demand):
        yield from _no_such_group(scenario, f"demand.{i}", demand.pool, demand.zone)
        if (demand.pool, demand.zone) in seen:
            yield f"demand.{i}.pool is {quote(demand.pool)}: given twice for one zone: write one with steps"
        seen.add((demand.pool, demand.zone))
    for i, fence in enumerate(scenario.fences):
        yield from _unknown(f"fences.{i}.zone", "zone", fence.zone, zones)
    spans: tuple[tuple[str, tuple[GroupSpan, ...]], ...] = (
        ("frozen", scenario.frozen),
        ("bad_bounds", scenario.bad_bounds),
    )
    for field, field_spans in spans:
        for i, span in enumerate(field_spans):
            yield from _no_such_group(scenario, f"{field}.{i}", span.pool, span.zone)


def _unknown_in_fleet(scenario: Scenario) -> Iterator[str]:
    for i, cluster in enumerate(scenario.fleet):
        for j, lie in enumerate(cluster.lies):
            yield from _no_such_group(scenario, f"fleet.{i}.lies.{j}", lie.pool, lie.zone)


def _faults_of_pods(scenario: Scenario) -> Iterator[str]:
    if scenario.pods and scenario.demand:
        yield "demand is given beside pods: leave one of them out"
    for i, pool in enumerate(scenario.pools):
        if scenario.pods and pool.node is None:
            yield f"pools.{i}.node is missing: say what a node has for pods, such as {{cpu: 4, memory: 16Gi}}"
    if scenario.evenkeel.demand != "off" and not scenario.pods:
        yield "evenkeel.demand is given without pods: describe pods, or leave it out"
    for i, name in enumerate(scenario.evenkeel.expander_order or ()):
        yield from _unknown(f"evenkeel.expander_order.{i}", "pool", name, [pool.name for pool in scenario.pools])
    names = [pods.name for pods in scenario.pods]
    for i, pods in enumerate(scenario.pods):
        if pods.name in names[:i]:
            yield f"pods.{i}.name is {quote(pods.name)}: given twice"
        if pods.pool is not None:
            yield from _unknown(f"pods.{i}.pool", "pool", pods.pool, [pool.name for pool in scenario.pools])
        for j, name in enumerate(pods.zones):
            yield from _unknown(f"pods.{i}.zones.{j}", "zone", name, [zone.name for zone in scenario.zones])


def _no_such_group(scenario: Scenario, where: str, pool: str | None, zone: str | None) -> Iterator[str]:
    pools = [setup.name for setup in scenario.pools]
    if pool is None and len(pools) > 1:
        yield f"{where}.pool is missing: there are {len(pools)} pools"
    elif pool is not None and pool not in pools:
        yield from _unknown(f"{where}.pool", "pool", pool, pools)
    elif zone is not None:
        yield from _unknown(f"{where}.zone", "zone", zone, list(scenario.zones_of(scenario.pool_named(pool))))


def _unknown(field: str, kind: str, name: str, names: list[str]) -> Iterator[str]:
    if name not in names:
        yield f"{field} is {quote(name)}: no such {kind}: choose one of {', '.join(names)}{near(name, names)}"
