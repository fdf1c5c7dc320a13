"""A scenario file: zones, pools, demand and events. Each bad value and each unknown field is one line of the error.

Times are whole seconds since the scenario's start, written as ``90s``, ``15m`` or ``1h30m``.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from evenkeel.capabilities.minimum_at import MinimumAtList
from evenkeel.domain.model.choices import Level
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.fleet import read_length
from evenkeel.domain.model.values import BadValueError, near, quote
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
_LONGEST = 31 * _UNITS["d"]


def read_duration(value: object) -> int:
    """Return the seconds of ``90s``, ``15m``, ``1h30m`` or ``2d``. Raises ValueError."""
    try:
        seconds = int(read_length(value, or_none=True).total_seconds())
    except BadValueError:
        raise ValueError("not a duration: write it with units, such as 90s, 15m or 1h30m") from None
    if seconds > _LONGEST:
        raise ValueError("longer than 31 days")
    return seconds


def write_duration(seconds: int) -> str:
    """Return seconds as text, such as ``1h30m``."""
    parts, rest = [], seconds
    for unit, size in _UNITS.items():
        if rest >= size:
            parts.append(f"{rest // size}{unit}")
            rest %= size
    return "".join(parts) or "0s"


def spans_where(samples: Iterable[tuple[int, bool]], end: int) -> list[tuple[int, int]]:
    """Return the spans in which samples are true. If the last sample is true, its span lasts until ``end``."""
    spans: list[tuple[int, int]] = []
    since: int | None = None
    for at, holds in samples:
        if holds and since is None:
            since = at
        elif not holds and since is not None:
            spans.append((since, at))
            since = None
    return spans if since is None else [*spans, (since, end)]


def _read_version(value: object) -> object:
    """Return the numbers of ``1.34``. Raises ValueError."""
    if isinstance(value, tuple):
        return value
    match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("not a version: write two numbers in quotes, such as '1.34'")
    return int(match[1]), int(match[2])


def _one_step(field: str) -> BeforeValidator:
    """Return a validator that reads a plain number as one step at the start."""
    return BeforeValidator(lambda value: [{"at": "0s", field: value}] if isinstance(value, int) else value)


Duration = Annotated[int, BeforeValidator(read_duration)]
Positive = Annotated[int, BeforeValidator(read_duration), Field(ge=1)]
# At most 5,000, because each node is an object in memory, in up to six runs when strategies are compared.
Nodes = Annotated[int, Field(ge=0, le=5000, strict=True)]
Amount = Annotated[Fraction, BeforeValidator(read_quantity), Field(ge=0)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$")]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class DemandStep(_Entry):
    """The number of wanted nodes from second ``at`` on."""

    at: Duration
    nodes: Nodes


class Limit(_Entry):
    """The number of available machines from second ``at`` on; None: no limit."""

    at: Duration
    nodes: Nodes | None = None


class PodStep(_Entry):
    """The number of wanted pods from second ``at`` on; for pods with a lifetime, the number of pods to add then."""

    at: Duration
    pods: Nodes


_Steps = TypeVar("_Steps", bound=Sequence[DemandStep | Limit | PodStep])


def _in_order(steps: _Steps) -> _Steps:
    if any(later.at <= earlier.at for earlier, later in pairwise(steps)):
        raise ValueError("steps are written in order of time, one per moment")
    return steps


Demands = Annotated[tuple[DemandStep, ...], _one_step("nodes"), AfterValidator(_in_order), Field(min_length=1)]
Limits = Annotated[tuple[Limit, ...], _one_step("nodes"), AfterValidator(_in_order)]
PodCounts = Annotated[tuple[PodStep, ...], _one_step("pods"), AfterValidator(_in_order), Field(min_length=1)]


class Refusal(_Entry):
    """The failure of a launch that gets no machine."""

    code: str = Field(default="InsufficientInstanceCapacity", min_length=1, max_length=128)
    message: str = Field(default="", max_length=1024)
    # event: an event and the machine's status report the failure; status: only the status does; never: nothing does
    seen: Literal["event", "status", "never"] = "event"
    retry: Positive = 60  # the machine controller's delay between attempts


class Zone(_Entry):
    """A zone of the region, and how the cloud delivers machines there."""

    name: Name
    capacity: Limits = ()
    provision: Duration = 90  # the time from a launch until its node registers
    jitter: Duration = 0  # the largest random addition to ``provision``, drawn with the scenario's seed
    answer: Duration = 5  # from a machine object, or from a desired capacity, to the cloud's answer
    # Auto Scaling: from a launch until the instance is in service. Until then, its activity is in progress.
    in_service: Duration = 32
    failure: Refusal = Refusal()


class Quota(_Entry):
    """A limit on the machines of the whole region."""

    nodes: Limits
    failure: Refusal = Refusal(code="VcpuLimitExceeded")


class NodeSize(_Entry):
    """The resources and labels of a node."""

    cpu: Annotated[Amount, Field(gt=0)]
    memory: Annotated[Amount, Field(gt=0)]
    labels: dict[str, str] = {}


class _Range(_Entry):
    min: Nodes = 0
    max: Nodes

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is larger than max {self.max}")
        return self


class GroupBounds(_Range):
    """The bounds of a node group without Evenkeel."""


class PoolSetup(_Range):
    """A pool with one node group per zone."""

    name: Name
    strategy: StrategyName = Field(default_factory=lambda: BALANCED)
    on_failure: OnFailureName | None = None
    level: LevelName | None = None
    zones: tuple[Name, ...] = ()  # empty: every zone
    start: Nodes = 0  # running nodes at the start, spread evenly
    start_in_zone: dict[Name, Nodes] = {}  # running nodes at the start by zone, instead of ``start``
    bounds: dict[Name, GroupBounds] = {}  # by zone, instead of an equal share of ``min`` and ``max``
    node: NodeSize | None = None  # required with pods
    fallback_for: Name | None = None  # as in the record
    minimum_at: MinimumAtList | None = None  # as in the record; the scenario's ``start`` is its time
    # By zone: the number of available machines of the pool's machine type. A zone's own capacity limits all pools.
    capacity: dict[Name, Limits] = {}


class Demand(_Entry):
    """The number of nodes that the pods of a pool need, in one zone or in any zone."""

    pool: Name | None = None  # optional if there is only one pool
    zone: Name | None = None
    nodes: Demands


class SpreadSetup(_Entry):
    """The largest allowed difference in pods between zones, or between nodes; None: no limit."""

    zone: Annotated[int, Field(ge=1, strict=True)] | None = None
    node: Annotated[int, Field(ge=1, strict=True)] | None = None


class PodsSetup(_Entry):
    """Equal pods. They belong to jobs if they have a lifetime, else to a deployment."""

    name: Name
    count: PodCounts
    # How long a pod runs on a node. None: pods end only when ``count`` falls.
    lifetime: Positive | None = None
    cpu: Amount = Fraction(0)
    memory: Amount = Fraction(0)
    pool: Name | None = None  # None: nodes of any pool
    zones: tuple[Name, ...] = ()  # empty: every zone
    selector: dict[str, str] = {}  # labels that a node must have
    spread: SpreadSetup = SpreadSetup()
    max_unavailable: Nodes | None = None  # of a disruption budget; None: no budget
    ready: Duration = 5  # from binding to a node until Ready


class Span(_Entry):
    """A span of time that ends just before ``until``."""

    start: Duration = Field(alias="from")
    until: Duration

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.until <= self.start:
            raise ValueError("until is not after from")
        return self


class Fence(Span):
    """An operator's fence of a zone."""

    zone: Name


class Leaving(Fence):
    """A zone that an operator leaves, and ends that."""

    pool: Name | None = None
    per_hour: Annotated[int, Field(ge=1, strict=True)] | None = None


class GroupSpan(Span):
    """A span of time for a pool's node group in a zone."""

    pool: Name | None = None
    zone: Name


class Loss(_Entry):
    """Running nodes that end without being asked to, such as failed machines. Their replicas stay."""

    at: Duration
    pool: Name | None = None
    zone: Name
    nodes: Annotated[int, Field(ge=1, strict=True)] = 1


class AutoscalerSetup(_Entry):
    """The autoscaler, its loop and its flags."""

    enabled: bool = True
    loop: Annotated[Positive, Field(le=600)] = 10
    balance: bool = Flags.balance
    provision_timeout: Positive = Flags.provision_timeout
    backoff: Positive = Flags.backoff
    longest_backoff: Positive = Flags.longest_backoff
    forget_after: Positive = Flags.forget_after
    unneeded: Duration = Flags.unneeded
    delay_after_add: Duration = Flags.delay_after_add
    # Versions differ in what they do after refusals and timeouts.
    version: Annotated[tuple[int, int], BeforeValidator(_read_version)] = Flags.version
    # Auto Scaling: how old the groups are that its reads return. AWS documents no limit.
    read_age: Annotated[Duration, Field(le=60)] = 0
    # --expander=priority: the pools to try first for pods. Empty: the pool with the least waste is first.
    priority: tuple[Name, ...] = ()


class EvenkeelSetup(_Entry):
    """Evenkeel's intervals, and fields of the cluster record."""

    scan_interval: Annotated[Positive, Field(ge=15, le=3600)] = 60
    event_latency: Duration = 2
    provision_timeout: Literal["auto"] | Annotated[Positive, Field(ge=60, le=7200)] = "auto"
    # Only for scenarios with an autoscaler and pods. advise: Evenkeel reports what pods wait for. Converge with level
    # shrink then knows how many nodes are needed.
    demand: Literal["off", "advise"] = "off"
    converge: ConvergeEntry = ConvergeEntry()
    expander: Expander | None = None  # as in the record; it has no effect if an autoscaler runs
    expander_order: ExpanderOrder | None = Field(default=None, validate_default=True)
    max_step: MaxStep | None = None

    _order = field_validator("expander_order")(with_expander)


class Scenario(_Entry):
    """A scenario file."""

    name: str = Field(min_length=1, max_length=100)
    about: str = ""
    # auto-scaling: EC2 Auto Scaling groups, and cluster-autoscaler with its aws provider; else with clusterapi
    flavour: Literal["cluster-api", "auto-scaling"] = "cluster-api"
    start: Moment = datetime(2026, 1, 1, tzinfo=UTC)
    duration: Positive
    seed: Annotated[int, Field(strict=True)] = 1
    zones: tuple[Zone, ...] = Field(min_length=1, max_length=20)
    quota: Quota = Quota(nodes=())
    pools: tuple[PoolSetup, ...] = Field(min_length=1, max_length=20)
    demand: tuple[Demand, ...] = ()
    pods: tuple[PodsSetup, ...] = Field(default=(), max_length=50)  # given instead of ``demand``
    evenkeel: EvenkeelSetup = EvenkeelSetup()
    autoscaler: AutoscalerSetup = AutoscalerSetup()
    fences: tuple[Fence, ...] = ()
    leaves: tuple[Leaving, ...] = ()
    lost: tuple[Loss, ...] = ()
    frozen: tuple[GroupSpan, ...] = ()
    bad_bounds: tuple[GroupSpan, ...] = ()  # another writer sets unreadable bounds

    @property
    def converges(self) -> bool:
        """Return True if at least one pool has level converge, or a zone is left."""
        return bool(self.leaves) or any(pool.level is Level.CONVERGE for pool in self.pools)

    @property
    def recovered_at(self) -> int | None:
        """Return the last second in which a limit rises or a fence ends; None: neither happens."""
        limits = [zone.capacity for zone in self.zones] + [self.quota.nodes]
        limits += [steps for pool in self.pools for steps in pool.capacity.values()]
        rises = [
            later.at
            for steps in limits
            for earlier, later in pairwise(steps)
            if earlier.nodes is not None and (later.nodes is None or later.nodes > earlier.nodes)
        ]
        return max([*rises, *(fence.until for fence in self.fences)], default=None)

    def zones_of(self, pool: PoolSetup) -> tuple[str, ...]:
        """Return a pool's zones, sorted by name. Shares of nodes are assigned in this order."""
        return tuple(sorted(pool.zones or (zone.name for zone in self.zones)))

    def start_of(self, pool: PoolSetup) -> dict[str, int]:
        """Return a pool's nodes at the start, per zone."""
        names = self.zones_of(pool)
        if pool.start_in_zone:
            return {name: pool.start_in_zone.get(name, 0) for name in names}
        return {name: distribute_over_zones(i, pool.start, len(names)) for i, name in enumerate(names)}

    def pool_named(self, name: str | None) -> PoolSetup:
        """Return the pool with this name; for None, the only pool."""
        return next(pool for pool in self.pools if name in (None, pool.name))


def read_scenario(data: object, where: str) -> Scenario:
    """Return a scenario. Raises ConfigError with a line per bad value, which suggests the nearest valid name."""
    scenario = read_model(Scenario, data, where)
    faults = [*_twice(scenario), *_unknown_names(scenario), *_faults_of_pods(scenario)]
    if scenario.bad_bounds and scenario.flavour == AUTO_SCALING:
        faults.append(f"bad_bounds is given with flavour {AUTO_SCALING}: AWS accepts no such bounds: leave it out")
    if faults:
        raise ConfigError([f"{where}: {fault}" for fault in faults])
    return scenario


def _twice(scenario: Scenario) -> Iterator[str]:
    """Yield a fault for each name and each demand that is given twice, and for each leave that begins in another."""
    for field in ("zones", "pools", "pods"):
        names = [entry.name for entry in getattr(scenario, field)]
        for i, name in enumerate(names):
            if name in names[:i]:
                yield f"{field}.{i}.name is {quote(name)}: given twice"
    places = [(demand.pool, demand.zone) for demand in scenario.demand]
    for i, (pool, zone) in enumerate(places):
        if (pool, zone) in places[:i]:
            yield f"demand.{i}.pool is {quote(pool)}: given twice for one zone: write one with steps"
    for i, span in enumerate(scenario.leaves):
        if any(span.start < other.until and other.start < span.until for other in scenario.leaves[:i]):
            yield f"leaves.{i}.zone is {quote(span.zone)}: an earlier leave is not over then: end it first"


def _unknown_names(scenario: Scenario) -> Iterator[str]:
    """Yield a fault for each reference to a zone or pool that does not exist."""
    zones, pools = [zone.name for zone in scenario.zones], [pool.name for pool in scenario.pools]
    for i, pool in enumerate(scenario.pools):
        yield from _unknown(f"pools.{i}.zones.{{}}", "zone", pool.zones, zones)
        yield from _unknown(f"pools.{i}.capacity", "zone", pool.capacity, scenario.zones_of(pool))
        yield from _unknown(f"pools.{i}.bounds", "zone", pool.bounds, scenario.zones_of(pool))
        yield from _unknown(f"pools.{i}.start_in_zone", "zone", pool.start_in_zone, scenario.zones_of(pool))
    for i, demand in enumerate(scenario.demand):
        yield from _unknown_group(scenario, f"demand.{i}", demand.pool, demand.zone)
    yield from _unknown("fences.{}.zone", "zone", [fence.zone for fence in scenario.fences], zones)
    yield from _unknown("leaves.{}.zone", "zone", [span.zone for span in scenario.leaves], zones)
    yield from _unknown("leaves.{}.pool", "pool", [span.pool for span in scenario.leaves if span.pool], pools)
    for field in ("frozen", "bad_bounds", "lost"):
        spans: Sequence[GroupSpan | Loss] = getattr(scenario, field)
        for i, span in enumerate(spans):
            yield from _unknown_group(scenario, f"{field}.{i}", span.pool, span.zone)
    yield from _unknown("evenkeel.expander_order.{}", "pool", scenario.evenkeel.expander_order or (), pools)
    yield from _unknown("autoscaler.priority.{}", "pool", scenario.autoscaler.priority, pools)
    for i, pods in enumerate(scenario.pods):
        yield from _unknown(f"pods.{i}.pool", "pool", () if pods.pool is None else (pods.pool,), pools)
        yield from _unknown(f"pods.{i}.zones.{{}}", "zone", pods.zones, zones)


def _faults_of_pods(scenario: Scenario) -> Iterator[str]:
    if scenario.pods and scenario.demand:
        yield "demand is given beside pods: leave one of them out"
    for i, pool in enumerate(scenario.pools):
        if scenario.pods and pool.node is None:
            yield f"pools.{i}.node is missing: say what a node has for pods, such as {{cpu: 4, memory: 16Gi}}"
    if scenario.evenkeel.demand != "off" and not scenario.pods:
        yield "evenkeel.demand is given without pods: describe pods, or leave it out"


def _unknown_group(scenario: Scenario, where: str, pool: str | None, zone: str | None) -> Iterator[str]:
    pools = [setup.name for setup in scenario.pools]
    if pool is None and len(pools) > 1:
        yield f"{where}.pool is missing: there are {len(pools)} pools"
    elif pool is not None and pool not in pools:
        yield from _unknown(f"{where}.pool", "pool", (pool,), pools)
    elif zone is not None:
        yield from _unknown(f"{where}.zone", "zone", (zone,), scenario.zones_of(scenario.pool_named(pool)))


def _unknown(field: str, kind: str, names: Iterable[str], known: Sequence[str]) -> Iterator[str]:
    """Yield a fault for each unknown name. ``{}`` in ``field`` is replaced by the index of the name."""
    for i, name in enumerate(names):
        if name not in known:
            place = field.format(i)
            yield f"{place} is {quote(name)}: no such {kind}: choose one of {', '.join(known)}{near(name, known)}"
