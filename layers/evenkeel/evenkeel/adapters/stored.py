"""The shapes in which what is remembered is stored, in the table and in the files of ``evenkeel plan --state``.

A newer release may have written fields that this one does not know: see `read_stored`.
"""
# ruff: noqa: RUF012  (pydantic copies its defaults)

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import timedelta
from typing import Any, Self, get_args

from pydantic import Field, ValidationError, field_validator, model_validator

from evenkeel.domain.fleet.check_times import SteadyState, Timer, Unreachable
from evenkeel.domain.model.convergence import ConvergenceState, LastDrain, Order, Step
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Bounds, GroupKey, MachineFailure, MachineRef, PoolId
from evenkeel.domain.model.incidents import (
    Change,
    ClusterHealth,
    Incident,
    IncidentChange,
    IncidentKind,
    Notified,
    PublishedStatus,
)
from evenkeel.domain.model.moves import Move
from evenkeel.domain.model.offerings import CapacityReport, OfferingState
from evenkeel.domain.model.past_orders import PastOrder
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.reasons import Fact, Reason, Rule
from evenkeel.domain.model.relief import RefusedMaximum, Relief
from evenkeel.domain.model.states import (
    ClusterState,
    DesiredBounds,
    GroupState,
    MemberSnapshot,
    PoolState,
    Publication,
    Release,
)
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.model.values import BadValueError, quote
from evenkeel.domain.rebalancing.journal import closed, opened
from evenkeel.domain.rollout.waves import Halt, LeftOut, Phase, Rollout
from evenkeel.state_records import ImpairedZone
from evenkeel.validation import Count, Model, Moment, Strict, parse_json, read_model

_log = logging.getLogger("evenkeel.stored")

Unknown = Sequence[tuple[tuple[str | int, ...], Any]]
"""Fields of a stored record that only a newer release knows: where each stands, and its value."""


def read_stored(model: type[Model], text: str, where: str) -> tuple[Model, Unknown]:
    """A record that this program, or a newer release of it, has stored. Unlike what people hand in, it may have fields
    that nobody here knows: they are left out, and returned so that `keep_unknown` can put them back.

    Raises:
        ConfigError: a field that is known has a bad value.
    """
    unknown: list[tuple[tuple[str | int, ...], Any]] = []
    data = parse_json(text, where)
    while True:
        try:
            return model.model_validate(data), unknown
        except ValidationError as error:
            paths = [fault["loc"] for fault in error.errors() if fault["type"] == "extra_forbidden"]
        if not paths:
            return read_model(model, data, where), unknown  # raises, in our words
        for path in paths:
            parent, place = _parent(data, path)
            unknown.append(((*place, path[-1]), parent.pop(path[-1])))


def keep_unknown(text: str, unknown: Unknown, before: str) -> str:
    """A record's new text with the fields that only a newer release knows; ``before``: the text they were found in.

    A field goes back to where it stood, unless something else stands there by now: another pool, another access.
    """
    data, old = json.loads(text), json.loads(before)
    for path, value in unknown:
        parent, old_parent = data, old
        try:
            for part in path[:-1]:
                parent, old_parent = parent[part], old_parent[part]
        except (LookupError, TypeError):
            continue
        if isinstance(parent, dict) and all(parent.get(name) == old_parent.get(name) for name in ("kind", "name")):
            parent.setdefault(str(path[-1]), value)
    return json.dumps(data, ensure_ascii=False)


def _parent(data: Any, path: Sequence[str | int]) -> tuple[Any, tuple[str | int, ...]]:
    """The object in which a path's last name stands, and the path to it without pydantic's names of forms."""
    place: list[str | int] = []
    for part in path[:-1]:
        if isinstance(part, str) and part not in data:
            continue  # the form of a union, such as kubeconfig in access.kubeconfig.region
        data = data[part]
        place.append(part)
    return data, tuple(place)


class MachineFailureRecord(Strict):
    """A failure that an event has reported, as it is stored."""

    code: str
    message: str
    at: Moment | None = None


class GroupRecord(Strict):
    """A node group's backoff as it is stored, and as ``--state`` files have it."""

    failures: Count = 1  # where an entry is written by hand, it stands for a failure
    backoff_until: Moment | None = None
    last_failure: Moment | None = None
    failure_class: FailureClass = Field(default=FailureClass.UNKNOWN, alias="class")
    message: str = ""
    last_success: Moment | None = None
    running_seen: Count | None = None
    waiting_since: Moment | None = None
    waiting_running: Count | None = None
    stalled_since: Moment | None = None
    reverts: tuple[Moment, ...] = ()
    contested_since: Moment | None = None
    contested_by: str = ""
    contested_replicas: bool = False
    reports: tuple[Moment, ...] = ()
    marked: tuple[str, ...] = ()
    unneeded: dict[str, Moment] = {}
    bounds_applied_by: str = ""
    replicas_applied_by: str = ""
    arrived_at: Moment | None = None
    ended: tuple[Moment, ...] = ()
    refused: tuple[str, ...] = ()
    ahead: tuple[Moment, ...] = ()
    announced: tuple[MachineFailureRecord, ...] = ()
    write_refused_at: Moment | None = None
    write_refused: str = ""
    slow_start: Count = 0
    throttled_requested: Count | None = None
    throttled_until: Moment | None = None
    cleared_at: Moment | None = None

    def state(self) -> GroupState:
        """The same in the domain's words. A backoff without its failure began, at the latest, when it could have."""
        last = self.last_failure
        if last is None and self.backoff_until is not None:
            last = self.backoff_until - BackoffPolicy().initial
        announced = tuple(MachineFailure(**dict(failure)) for failure in self.announced)
        return GroupState(**{**dict(self), "last_failure": last, "announced": announced})

    @classmethod
    def of(cls, state: GroupState) -> Self:
        announced = tuple(MachineFailureRecord(**vars(failure)) for failure in state.announced)
        return cls(**{**vars(state), "announced": announced})


class CapacityReportRecord(Strict):
    """One cluster's last failure to buy an offering."""

    failed_at: Moment
    until: Moment
    cluster: str = ""


class OfferingRecord(Strict):
    """What clusters say of an offering, as it is stored. Words by API server."""

    reports: dict[str, CapacityReportRecord] = {}
    delivered_at: Moment | None = None

    def state(self) -> OfferingState:
        reports = {server: CapacityReport(**dict(report)) for server, report in self.reports.items()}
        return OfferingState(reports=reports, delivered_at=self.delivered_at)

    @classmethod
    def of(cls, state: OfferingState) -> Self:
        reports = {server: CapacityReportRecord(**vars(report)) for server, report in state.reports.items()}
        return cls(reports=reports, delivered_at=state.delivered_at)


class BoundsRecord(Strict):
    min: Count
    max: Count

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is larger than max {self.max}")
        return self


class DesiredBoundsRecord(Strict):
    """What is wanted at the owner of a group's bounds, and what we have written over it."""

    bounds: BoundsRecord
    ours: tuple[BoundsRecord, ...] = ()

    def wish(self) -> DesiredBounds:
        ours = tuple(Bounds(**dict(bounds)) for bounds in self.ours)
        return DesiredBounds(bounds=Bounds(**dict(self.bounds)), ours=ours)

    @classmethod
    def of(cls, wish: DesiredBounds) -> Self:
        ours = tuple(BoundsRecord(**vars(bounds)) for bounds in wish.ours)
        return cls(bounds=BoundsRecord(**vars(wish.bounds)), ours=ours)


class MoveRecord(Strict):
    """A move between zones, or growth on request, from before its first patch until after its last."""

    id: str
    unplaced: int = Field(default=0, alias="carried")  # as releases before this one call it
    steps: dict[str, int] = {}
    request: str = ""
    only: tuple[str, ...] = ()
    later: Count = 0

    def move(self) -> Move:
        return Move(**{**dict(self), "only": frozenset(self.only)})


class MemberSnapshotRecord(Strict):
    """What was requested in a pool, and since when it has been seen so."""

    since: Moment
    requested: dict[str, Count] = {}
    planned: dict[str, Count] = {}
    owners: tuple[str, ...] = ()
    few_since: Moment | None = None


class PublicationRecord(Strict):
    """What Balanced has dealt out last."""

    at: Moment
    basis: str
    targets: dict[str, Count] = {}
    maxima: dict[str, int] = {}
    grower: str = ""
    turn: Count = 0
    lent: bool = False


class RefusedMaximumRecord(Strict):
    """A Shoot's maximum that the garden has refused."""

    number: Count
    generation: int
    at: Moment
    said: str = ""


class ReliefRecord(Strict):
    """Zones that are dead, and what we have written to a Shoot for their sake."""

    dead: dict[str, Moment] = {}
    owner: str = ""
    wish: Count = 0
    ours: tuple[Count, ...] = ()
    stands: Count | None = None
    written_at: Moment | None = None
    taken_back: bool = False
    put_back: bool = False
    refused: RefusedMaximumRecord | None = None

    def relief(self) -> Relief:
        refused = RefusedMaximum(**dict(self.refused)) if self.refused else None
        return Relief(**{**dict(self), "refused": refused})

    @classmethod
    def of(cls, relief: Relief) -> Self:
        refused = RefusedMaximumRecord(**vars(relief.refused)) if relief.refused else None
        return cls(**{**vars(relief), "refused": refused})


class MachineRefRecord(Strict):
    """One machine."""

    name: str
    uid: str = ""


class OrderRecord(Strict):
    """The order of a step of converge."""

    source: str
    destination: str
    begun_at: Moment
    target_replicas: Count
    source_replicas: Count
    excused_replicas: Count

    @model_validator(mode="after")
    def _groups(self) -> Self:
        for key in (self.source, self.destination):
            try:
                GroupKey.read(key)
            except BadValueError as error:
                raise ValueError(f"it names group {quote(key)}: {error}") from None
        return self


_PHASES: Mapping[str, type[Step]] = {phase.phase: phase for phase in get_args(Step)}


class StepRecord(Strict):
    """A step of converge in one of its phases."""

    phase: str
    order: OrderRecord
    move_id: str | None = None
    replicas_after_cancel: Count | None = None
    draining_group: str | None = None
    machine: MachineRefRecord | None = None
    delete_move_id: str | None = None
    delete_requested_at: Moment | None = None

    @model_validator(mode="after")
    def _has_the_fields_of_its_phase(self) -> Self:
        if self.phase not in _PHASES:
            raise ValueError(f"phase {quote(self.phase)} is none of {', '.join(_PHASES)}")
        missing = [each.name for each in fields(_PHASES[self.phase]) if getattr(self, each.name) is None]
        if missing:
            raise ValueError(f"a step in phase {self.phase} needs {', '.join(missing)}")
        return self

    def step(self) -> Step:
        phase = _PHASES[self.phase]
        values = {each.name: getattr(self, each.name) for each in fields(phase)}
        values["order"] = Order(**dict(self.order))
        if self.machine is not None and "machine" in values:
            values["machine"] = MachineRef(**dict(self.machine))
        return phase(**values)

    @classmethod
    def of(cls, step: Step) -> Self:
        return cls.model_validate(asdict(step))


class LastDrainRecord(Strict):
    """The source of the last step of converge."""

    source: str
    requested: Count
    at: Moment


class ConvergenceStateRecord(Strict):
    """The state of converge for one pool."""

    uneven_since: Moment | None = None
    step: StepRecord | None = None
    begun: tuple[Moment, ...] = ()
    last_drain: LastDrainRecord | None = None
    held_since: Moment | None = None
    held_until: Moment | None = None

    def convergence(self) -> ConvergenceState:
        step = self.step.step() if self.step else None
        last_drain = LastDrain(**dict(self.last_drain)) if self.last_drain else None
        return ConvergenceState(**{**dict(self), "step": step, "last_drain": last_drain})

    @classmethod
    def of(cls, convergence: ConvergenceState) -> Self:
        step = StepRecord.of(convergence.step) if convergence.step else None
        last_drain = LastDrainRecord(**vars(convergence.last_drain)) if convergence.last_drain else None
        return cls(**{**vars(convergence), "step": step, "last_drain": last_drain})


class ReleaseRecord(Strict):
    """Replicas that a pool has released next to an autoscaler."""

    at: Moment
    replicas: Count
    requested: dict[str, Count] = {}
    ordered: dict[str, Count] = {}
    has_rest: bool = False
    idle_since: Moment | None = None


class ReasonRecord(Strict):
    """A rule with its facts, as far as text and numbers can say them."""

    rule: Rule
    facts: dict[str, int | str | tuple[str, ...] | None] = {}

    def reason(self) -> Reason:
        return Reason(self.rule, self.facts)

    @classmethod
    def of(cls, reason: Reason) -> Self:
        return cls.model_validate({"rule": reason.rule, "facts": _plain_facts(reason.facts)})


class PastOrderRecord(Strict):
    """What is remembered of an order for pods."""

    at: Moment
    seen: Moment
    groups: tuple[str, ...]
    failed_in: tuple[str, ...] = ()
    helped_in: tuple[str, ...] = ()
    is_open: bool = True
    failed: Count = 0
    node: str = ""
    why: ReasonRecord | None = None

    def order(self) -> PastOrder:
        return PastOrder(**{**dict(self), "why": self.why.reason() if self.why else None})

    @classmethod
    def of(cls, order: PastOrder) -> Self:
        return cls(**{**vars(order), "why": ReasonRecord.of(order.why) if order.why else None})


class PoolRecord(Strict):
    """A pool's memory as it is stored, and as ``--state`` files have it."""

    adopted: dict[str, BoundsRecord | None] = {}
    desired_bounds: dict[str, DesiredBoundsRecord] = {}
    digest: str = ""
    move: MoveRecord | None = None
    seen: MemberSnapshotRecord | None = None
    published: PublicationRecord | None = None
    is_failing: tuple[str, ...] = ()
    held_until: Moment | None = None
    zones: dict[str, str] = {}
    relief: ReliefRecord | None = None
    grew_at: Moment | None = None
    added_at: Moment | None = None
    added: Count = 0
    release: ReleaseRecord | None = None
    closed_at: Moment | None = None
    convergence: ConvergenceStateRecord | None = None
    orders: dict[str, PastOrderRecord] = {}

    @field_validator("orders", mode="before")
    @classmethod
    def _readable(cls, stored: Any) -> dict[str, PastOrderRecord]:
        """Orders that cannot be read are dropped: at worst, a node is ordered sooner than it would be."""
        found = {}
        entries = stored.items() if isinstance(stored, Mapping) else [("orders", stored)]
        for key, entry in entries:
            try:
                found[str(key)] = PastOrderRecord.model_validate(entry)
            except ValidationError as error:
                _log.warning("dropped a stored order that cannot be read: %s: %s", quote(key), error.errors()[0]["msg"])
        return found

    def state(self) -> PoolState:
        return PoolState(
            adopted={key: Bounds(**dict(bounds)) if bounds else None for key, bounds in self.adopted.items()},
            desired_bounds={owner: wish.wish() for owner, wish in self.desired_bounds.items()},
            digest=self.digest,
            move=self.move.move() if self.move else None,
            seen=MemberSnapshot(**dict(self.seen)) if self.seen else None,
            published=Publication(**dict(self.published)) if self.published else None,
            is_failing=self.is_failing,
            held_until=self.held_until,
            zones=self.zones,
            relief=self.relief.relief() if self.relief else None,
            grew_at=self.grew_at,
            added_at=self.added_at,
            added=self.added,
            release=Release(**dict(self.release)) if self.release else None,
            closed_at=self.closed_at,
            convergence=self.convergence.convergence() if self.convergence else ConvergenceState(),
            orders={key: order.order() for key, order in self.orders.items()},
        )

    @classmethod
    def of(cls, state: PoolState) -> Self:
        move = state.move
        fields = {
            "adopted": {key: BoundsRecord(**vars(bounds)) if bounds else None for key, bounds in state.adopted.items()},
            "desired_bounds": {owner: DesiredBoundsRecord.of(wish) for owner, wish in state.desired_bounds.items()},
            "move": MoveRecord(**{**vars(move), "only": tuple(sorted(move.only))}) if move else None,
            "seen": MemberSnapshotRecord(**vars(state.seen)) if state.seen else None,
            "published": PublicationRecord(**vars(state.published)) if state.published else None,
            "relief": ReliefRecord.of(state.relief) if state.relief else None,
            "release": ReleaseRecord(**vars(state.release)) if state.release else None,
            "convergence": None
            if state.convergence == ConvergenceState()
            else ConvergenceStateRecord.of(state.convergence),
            "orders": {key: PastOrderRecord.of(order) for key, order in state.orders.items()},
        }
        return cls(**{**vars(state), **fields})


class TimerRecord(Strict):
    """When a cluster is looked at besides its scans, as it is stored."""

    due: Moment
    step: Count = 0
    doubted: Moment | None = None

    def timer(self) -> Timer:
        return Timer(**dict(self))


class UnreachableRecord(Strict):
    """A cluster that does not answer, as it is stored."""

    since: Moment
    looks: Count
    last_check: Moment
    next_check: Moment
    why: str = ""

    def silence(self) -> Unreachable:
        return Unreachable(**dict(self))


class ProblemRecord(Strict):
    """A problem as it is stored, with the facts that words and numbers can say."""

    kind: ProblemKind
    facts: dict[str, int | str | tuple[str, ...] | ReasonRecord | None] = {}

    def problem(self) -> Problem:
        facts = {name: fact.reason() if isinstance(fact, ReasonRecord) else fact for name, fact in self.facts.items()}
        return Problem(self.kind, facts)

    @classmethod
    def of(cls, problem: Problem) -> Self:
        reasons = {name: ReasonRecord.of(fact) for name, fact in problem.facts.items() if isinstance(fact, Reason)}
        return cls.model_validate({"kind": problem.kind, "facts": {**_plain_facts(problem.facts), **reasons}})


def _plain_facts(facts: Mapping[str, Fact]) -> dict[str, object]:
    return {name: fact if isinstance(fact, int | tuple) or fact is None else str(fact) for name, fact in facts.items()}


class IncidentRecord(Strict):
    """One trouble, as it is stored."""

    kind: IncidentKind
    since: Moment
    pool: str = ""
    zones: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    missing: Count = 0
    untaken: Count = 0
    requested: Count = 0
    running: Count = 0
    wanted: Count = 0
    is_outage: bool = False
    is_rollout: bool = False
    calm_since: Moment | None = None
    failure_class: FailureClass | None = Field(default=None, alias="class")
    said: str = ""
    problems: tuple[ProblemRecord, ...] = ()

    def incident(self) -> Incident:
        return Incident(**{**dict(self), "problems": tuple(each.problem() for each in self.problems)})

    @classmethod
    def of(cls, incident: Incident) -> Self:
        return cls(**{**vars(incident), "problems": tuple(map(ProblemRecord.of, incident.problems))})


class NewsRecord(Strict):
    """Something that is to be told, as it is stored."""

    change: Change
    incident: IncidentRecord
    at: Moment | None = None
    order: Count = 0

    def to_be_told(self) -> IncidentChange:
        return IncidentChange(**{**dict(self), "incident": self.incident.incident()})

    @classmethod
    def of(cls, news: IncidentChange) -> Self:
        return cls(**{**vars(news), "incident": IncidentRecord.of(news.incident)})


class ToldRecord(Strict):
    """What was told of a trouble, as it is stored."""

    kind: IncidentKind
    since: Moment
    pool: str = ""
    missing: Count = 0
    matter: str = ""


class PublishedStatusRecord(Strict):
    """What the status ConfigMap says, as it is stored."""

    print: str
    tried_at: Moment | None = None


class ClusterHealthRecord(Strict):
    """A cluster's verdict, as it is stored."""

    incidents: tuple[IncidentRecord, ...] = ()
    notified: dict[str, ToldRecord] = {}
    outbox: tuple[NewsRecord, ...] = ()
    published_status: PublishedStatusRecord | None = None

    def cluster_health(self) -> ClusterHealth:
        return ClusterHealth(
            incidents=tuple(record.incident() for record in self.incidents),
            notified={key: Notified(**dict(record)) for key, record in self.notified.items()},
            outbox=tuple(record.to_be_told() for record in self.outbox),
            published_status=None if self.published_status is None else PublishedStatus(**dict(self.published_status)),
        )

    @classmethod
    def of(cls, cluster_health: ClusterHealth) -> Self:
        return cls(
            incidents=tuple(map(IncidentRecord.of, cluster_health.incidents)),
            notified={key: ToldRecord(**vars(told)) for key, told in cluster_health.notified.items()},
            outbox=tuple(map(NewsRecord.of, cluster_health.outbox)),
            published_status=None
            if cluster_health.published_status is None
            else PublishedStatusRecord(**vars(cluster_health.published_status)),
        )


class LookedAtRecord(Strict):
    """Clusters that were read side by side, as it is stored."""

    at: Moment
    clusters: tuple[str, ...]


class SteadyStateRecord(Strict):
    """What was seen of a cluster when nothing was to be done, as it is stored, and as looks send it to runs."""

    at: Moment
    seen: dict[str, str]
    zones: tuple[str, ...] = ()
    headroom: Count = 0
    imbalance: Count = 0

    def settled(self) -> SteadyState:
        return SteadyState(**{**dict(self), "zones": frozenset(self.zones)})

    @classmethod
    def of(cls, settled: SteadyState) -> Self:
        return cls(**{**vars(settled), "zones": tuple(sorted(settled.zones))})


class HaltRecord(Strict):
    """What has halted a rollout, as it is stored."""

    cluster: str = ""
    kind: IncidentKind | None = None
    pool: str = ""


class RolloutRecord(Strict):
    """A rollout, as it is stored."""

    id: str
    at: Moment
    size: int = Field(ge=1)
    soak: timedelta
    phase: Phase
    since: Moment
    waiting: tuple[str, ...] = ()
    wave: tuple[str, ...] = ()
    read_since: Moment | None = None
    number: Count = 0
    trouble_after: timedelta | None = None
    proven: tuple[str, ...] = ()
    left_out: dict[str, LeftOut] = {}
    halts: tuple[HaltRecord, ...] = ()
    by: str = ""
    reason: str = ""
    halted_by: str = ""
    halt_reason: str = ""

    def rollout(self) -> Rollout:
        return Rollout(**{**dict(self), "halts": tuple(Halt(**dict(halt)) for halt in self.halts)})

    @classmethod
    def of(cls, rollout: Rollout) -> Self:
        return cls(**{**vars(rollout), "halts": tuple(HaltRecord(**vars(halt)) for halt in rollout.halts)})


class StateFile(Strict):
    """What ``evenkeel plan --state`` reads."""

    groups: dict[str, GroupRecord] = {}
    zones: dict[str, ImpairedZone] = {}
    pools: dict[str, PoolRecord] = {}

    @model_validator(mode="after")
    def _keys(self) -> Self:
        for key in self.groups:
            try:
                GroupKey.read(key)
            except BadValueError as error:
                raise ValueError(f"groups has key {quote(key)}: {error}") from None
        for key in self.pools:
            try:
                PoolId.read(key)
            except BadValueError as error:
                raise ValueError(f"pools has key {quote(key)}: {error}") from None
        return self

    def state(self) -> ClusterState:
        return ClusterState(
            groups={GroupKey.read(key): record.state() for key, record in self.groups.items()},
            pools={PoolId.read(key): record.state() for key, record in self.pools.items()},
            zones={zone: record.impaired_until for zone, record in self.zones.items()},
        )

    def after(self, planned: Plan) -> Self:
        """What is remembered once the plan has been carried out, so that a world can be played forward from files."""
        id = ulid(planned.now, bytes(10))  # no other move begins at that moment
        pools = {pool.id: closed(pool, opened(pool, id)) for pool in planned.pools}
        former = {str(pool.known_as) for pool in planned.pools if pool.known_as is not None}
        groups = {str(key): GroupRecord.of(state) for key, state in planned.states.items()}
        records = {id: record for id, record in self.pools.items() if id not in former}
        records |= {str(id): PoolRecord.of(state) for id, state in pools.items() if state != PoolState()}
        return self.model_copy(update={"groups": {**self.groups, **groups}, "pools": records})
