"""The definition of an operator action, and the input of its handler."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property, partial
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from evenkeel.access_config import AutoScalingAccess
from evenkeel.application.actions.ports import ActionPorts
from evenkeel.application.errors import BadRequestError, EvenkeelError, UnknownClusterError, contained
from evenkeel.application.incidents.notify import incident_json, kind_of
from evenkeel.application.ports import Remaining, StoredCluster
from evenkeel.application.rebalancing.observe import within_check
from evenkeel.application.rebalancing.preview import Preview, preview_of
from evenkeel.domain.incidents.health import evaluate, evaluate_unread, with_stopped
from evenkeel.domain.model.fleet import Selector, read_length
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.incidents import ClusterHealth, Incident
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.values import BadValueError, quote
from evenkeel.domain.rebalancing.dry_run import is_pool_dry
from evenkeel.record import ClusterRecord, ControlRecord, Registration
from evenkeel.texts.english import problem_text, rfc3339
from evenkeel.validation import ConfigError, Moment, read_model

_LONGEST_NAME = 600
_SECONDS_TO_ANSWER = 2
PLANNED_ONLY = "planned only: dry run"
# For an action whose request is stored, and takes effect as soon as the cluster or pool is live.
_STORED_ONLY = "dry run: stored, applies from going live"

Answer = dict[str, Any]
"""A JSON object. It has at least ``message``, which is one line for people."""


class Right(StrEnum):
    """The rights of callers. An action requires one of them. Each right includes the rights listed before it."""

    READ = "read"
    WRITE = "write"  # on-call actions, which can be undone
    ADMINISTER = "administer"  # registration and access of clusters, and whether Evenkeel writes to them

    def covers(self, other: "Right") -> bool:
        """Return True if this right includes the other."""
        rights = [*Right]
        return rights.index(other) <= rights.index(self)


class Fields(BaseModel):
    """The fields of an event, except action, cluster and caller. A field's description is its option's help text."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def names(cls) -> dict[str, str]:
        """Return the mapping from a field's name in events and options to its name in this class."""
        return {field.alias or name: name for name, field in cls.model_fields.items()}

    @property
    def clusters(self) -> list[str]:
        """Return the ids of the clusters that these fields name."""
        return []

    def of(self, _cluster: str) -> Self:
        """Return the fields for one of several clusters."""
        return self


def _place(record: ClusterRecord) -> str:
    """Return the account and Region of a record's Auto Scaling groups; for other records, the kind of access."""
    return record.access.place if isinstance(record.access, AutoScalingAccess) else record.access.kind


def _name(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_NAME:
        raise BadRequestError(f"{info.field_name} is {quote(value)}: name the {info.field_name}")
    return value


def _flag(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, bool):
        raise BadRequestError(f"{info.field_name} is {quote(value)}: neither true nor false")
    return value


def length(value: object, *, or_none: bool = False) -> object:
    """Return the duration of a text such as 2h. Raises BadRequestError."""
    try:
        return value if value is None else read_length(value, or_none=or_none)
    except BadValueError as error:
        raise BadRequestError(f"for is {quote(value)}: {error}") from None


def read_selector(value: object) -> Selector:
    """Return the selector. Raises BadRequestError."""
    try:
        return Selector.read(value if isinstance(value, str) else "")
    except BadValueError as error:
        raise BadRequestError(f"selector is {quote(value)}: {error}") from None


Name = Annotated[str, BeforeValidator(_name)]
Flag = Annotated[bool, BeforeValidator(_flag)]
PoolName = Annotated[Name | None, Field(description="One pool, by name or id.")]
GroupName = Annotated[Name | None, Field(description="One node group, by name or key.")]
Digests = Annotated[dict[str, str | None], Field(description="Digests that were shown, by id.", default_factory=dict)]


class Ending(Fields):
    """The fields of an action whose effect ends at a given time."""

    until: Annotated[Moment | None, Field(description="The end, in RFC 3339.")] = None
    lasting: Annotated[
        timedelta | None, BeforeValidator(length), Field(alias="for", description="How long: 2h, 90m, 1d.")
    ] = None

    def end(self, now: datetime) -> datetime | None:
        """Return the end; None if the event has neither ``until`` nor ``for``. Raises BadRequestError for both."""
        if self.until is not None and self.lasting is not None:
            raise BadRequestError(f"until is '{rfc3339(self.until)}', and for is there too: name one of the two")
        return self.until if self.lasting is None else now + self.lasting

    def future_end(self, now: datetime) -> datetime | None:
        """Return the end. Raises BadRequestError for one that is past, too."""
        if (end := self.end(now)) is None or end > now:
            return end
        raise BadRequestError(f"until is '{rfc3339(end)}': that is past: choose a time in the future, or leave it out")


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """A cluster and its present health. ``preview`` is None if the cluster cannot be read; ``unread`` says why."""

    stored: StoredCluster
    cluster_health: ClusterHealth
    # The time by the cluster's clock, which its incidents use. If the cluster cannot be read, by Evenkeel's clock.
    now: datetime
    preview: Preview | None = None
    unread: str | None = None


@dataclass(frozen=True, kw_only=True)
class Call:
    """One action, for one cluster or for all clusters."""

    ports: ActionPorts
    cluster: str  # the cluster's id; empty: the event names no single cluster
    selector: Selector | None  # selects registered clusters by label; None: the event has no selector
    right: Right  # the right that this event needs
    by: str | None  # the caller, unverified
    reason: str | None  # the caller's reason
    now: datetime
    remaining: Remaining  # seconds that are left for this call; an invocation may have several calls
    of_invocation: Remaining  # seconds that are left for all calls of the invocation together

    def load(self) -> StoredCluster:
        """Return the cluster's stored items. Raises UnknownClusterError, ConfigError, StateUnavailableError."""
        return self.ports.store.load(self.cluster)

    def registrations(self) -> Sequence[tuple[str, Registration | str]]:
        """Return the registrations of all clusters, or of the clusters that match the selector."""
        all_of_them, selector = self._registered, self.selector
        if selector is None:
            return all_of_them
        return [(id, one) for id, one in all_of_them if not isinstance(one, str) and selector.selects(one.labels or {})]

    def unknown(self) -> Sequence[str]:
        """Return the clusters that may match the selector, but whose labels cannot be read."""
        return [] if self.selector is None else [id for id, one in self._registered if isinstance(one, str)]

    @cached_property
    def _registered(self) -> Sequence[tuple[str, Registration | str]]:
        return self.ports.store.registrations()

    def preview(self, stored: StoredCluster | None = None, *, with_demand: bool = False) -> Preview:
        """Read the cluster and return its plan. Raises the errors of ``load``, AccessError, ClusterUnavailableError.

        ``stored``: its stored items, as the caller has loaded or changed them; None: they are loaded.
        """
        stored = stored or self.load()
        return preview_of(self.ports.clusters, stored, self.now, self.remaining, with_demand=with_demand)

    def evaluate(self, *, with_demand: bool = False) -> Evaluated:
        """Read the cluster and return its health. If the cluster cannot be read, only its stored items are used.

        Raises the errors of ``load``.
        """
        stored = self.load()
        # Reserves the time to answer from stored items if the cluster does not answer.
        left = lambda: self.remaining() - _SECONDS_TO_ANSWER  # noqa: E731
        try:
            preview = preview_of(self.ports.clusters, stored, self.now, left, with_demand=with_demand)
        except EvenkeelError as error:
            unreachable = stored.unreachable
            since = unreachable.since if unreachable is not None and not unreachable.is_over else self.now
            known = stored.cluster_health
            health = evaluate_unread(known, kind_of(error), str(error), since, self.now, timedelta())
            return Evaluated(stored=stored, cluster_health=health, now=self.now, unread=str(error))
        return Evaluated(stored=stored, cluster_health=self.health(preview), now=preview.now, preview=preview)

    def health(self, preview: Preview) -> ClusterHealth:
        """Return the health of a cluster that was read."""
        stored, plan = preview.stored, preview.plan
        dry = {pool.id for pool in self.dry_pools(stored, plan.pools)}
        groups, after = {**stored.state.groups, **plan.states}, stored.record.opens_trouble_after
        health = evaluate(stored.cluster_health, plan, groups, after, dry)
        if not stored.control.is_paused(self.now):  # scheduled checks may have stopped, although this read succeeded
            times = self.ports.store.checked_at()
            health = with_stopped(health, times.stopped_since(self.cluster, stored.record.scan_interval, self.now))
        return health

    def in_dry_run(self, record: ClusterRecord, control: ControlRecord) -> str:
        """Return the end of a message: that dry run keeps the action from writing, and which pools it does not."""
        if not control.is_dry(record, self.ports.dry_run):
            pools = own_pools(record, dry_run=True)
            return f"; in dry run: pool {', '.join(pools)}" if pools else ""
        live = own_pools(record, dry_run=False)
        return "; in dry run: nothing is written" + (f" but to pool {', '.join(live)}" if live else "")

    def dry_pools(self, stored: StoredCluster, pools: Iterable[PoolPlan]) -> list[PoolPlan]:
        """Return the pools in dry run, except pools being restored."""
        control = stored.control
        is_dry = control.writes_nothing(stored.record, self.ports.dry_run)
        return [pool for pool in pools if is_pool_dry(pool.mode.dry_run, is_dry, restoring=control.restores(pool.id))]

    def with_dry_run(
        self, answer: Answer, stored: StoredCluster, pools: Sequence[PoolPlan], planned: Answer | None = None
    ) -> Answer:
        """Return the answer. If dry run or a pause prevents writes, the answer says so.

        ``pools``: those that the action is about. If there are none, the cluster's dry-run setting applies.
        ``planned``: the answer if the effect is only stored now; None: nothing is stored.
        """
        held = PLANNED_ONLY if planned is None else _STORED_ONLY
        is_paused = stored.control.is_paused(self.now)
        dry = self.dry_pools(stored, pools)
        is_dry = stored.control.writes_nothing(stored.record, self.ports.dry_run)
        everything = len(dry) == len(pools) if pools else is_dry
        names = sorted({pool.id.name for pool in dry})
        answer = planned if (everything or is_paused) and planned is not None else answer
        before = f"{held}: " if everything else ""
        after = f"; {held} of pool {', '.join(names)}" if dry and not everything else ""
        after += ". The cluster is paused: nothing happens before it is resumed" if is_paused else ""
        words: Answer = {name: f"{before}{answer[name]}{after}" for name in ("message", "alike") if name in answer}
        only = {"plannedOnly": names} if dry or everything else {}
        return {**answer, **words, "dryRun": everything, **only}

    def incident_json(self, incident: Incident, now: datetime, cause: str = "") -> Answer:
        """Return an incident of the cluster for programs, with its texts for people, and the title of its cause."""
        document = incident_json(incident, self.cluster, now, self.ports.stack, self.ports.runbooks)
        return document | ({"cause": cause} if cause else {})

    def change_control(self, stored: StoredCluster, fields: Mapping[str, object]) -> ControlRecord:
        """Store the control record with these fields changed, and return it. Raises StateConflictError."""
        # The control record is validated, because ``fields`` may contain values from an event.
        where = f"record of cluster {self.cluster}"
        control = read_model(ControlRecord, {**stored.control.model_dump(), **fields}, where)
        self.ports.store.save_record(stored.record, control, stored.versions)
        return control

    def another_autoscaler(self, record: ClusterRecord) -> Reason | None:
        """Return a reason if this record makes Evenkeel order nodes, but another autoscaler orders nodes already.

        Raises AccessError, ClusterUnavailableError.
        """
        if not record.demand_stage.orders:
            return None
        from evenkeel.domain.demand.advice import is_at_work  # as in preview_of

        ask = partial(self.ports.clusters.autoscaler_at, record, within_check(self.remaining))
        at = contained(record.id, "another autoscaler was sought", ask)
        return Reason.of(Rule.TWO_AUTOSCALERS, at=at) if at is not None and is_at_work(at, self.now) else None

    def refused_rights(self, record: ClusterRecord, *, writes: bool) -> Sequence[str]:
        """Return, as text, the rights that Evenkeel lacks. Raises AccessError, ClusterUnavailableError."""
        ask = partial(self.ports.clusters.refused, record, self.remaining, writes=writes)
        return contained(record.id, "its rights were asked for", ask)

    def lost_access(self, record: ClusterRecord) -> Sequence[str]:
        """Return, as text, the changes of Auto Scaling groups that Evenkeel could not undo with this record."""
        try:
            stored = self.load()
        except (UnknownClusterError, ConfigError):
            return []
        before, faults = stored.record, list[str]()
        if stored.unfinished and _place(record) != _place(before):
            names = ", ".join(GroupKey.read(key).name for key in stored.unfinished)
            faults.append(
                f"access: a run was killed while it wrote {names}, so process Terminate may be suspended there: keep "
                "the former account and Region for two minutes"
            )
        accesses = [each.workload and each.workload.access for each in (record, before)]
        drained = stored.state.marked_instances if before.workload is not None else []
        if drained and accesses[0] != accesses[1]:
            faults.append(
                f"workload: Evenkeel has cordoned the node of {', '.join(drained)}, and could not uncordon it "
                "any more: first turn off demand and level for two minutes, without a pause or dry run"
            )
        return faults

    def request_run(self, reason: str) -> None:
        """Request a run of the cluster."""
        self.ports.queue.request(self.cluster, reason, f"{reason}-{self.cluster}-{self.now.timestamp()}")

    def still_held(self, control: ControlRecord) -> str:
        """Return text for the end of a message. It names each part that is still paused or being restored."""
        paused = control.pools_paused(self.now)
        restoring = [name for name in control.restoring_pools if name not in paused]
        notes = "; it is still being restored" if control.restoring else ""
        if control.is_paused(self.now):
            until = control.paused_until
            notes = f"; it is still paused{f' until {rfc3339(until)}' if until else ''}"
        notes += f"; still paused: pool {', '.join(sorted(paused))}" if paused else ""
        return notes + (f"; still being restored: pool {', '.join(sorted(restoring))}" if restoring else "")


def own_pools(record: ClusterRecord, *, dry_run: bool) -> list[str]:
    """Return the pools whose entry in the record has this setting. Annotations of node groups may set it, too."""
    return sorted({pool.name for pool in record.pool_entries if pool.dry_run is dry_run})


def misfits_text(record: ClusterRecord) -> str:
    """Return the end of a message: the settings of the record that do not fit together."""
    return "".join(f"; {problem_text(problem)}" for problem in record.misfits())


Handler = Callable[[Call, Any], Answer]


@dataclass(frozen=True)
class Action:
    """One row of the table of actions."""

    name: str
    summary: str  # the help text of its command
    fields: type[Fields]
    right: Right
    handler: Handler
    of_all: bool = False  # True: an event without a cluster is about all registered clusters
    # Answers an event about all clusters from stored items. None: ``handler`` answers for each cluster.
    overview: Handler | None = None
    looks_with: str = ""  # if an event has this field, ``handler`` answers for each cluster instead of ``overview``
    # Field -> the right that an event with this field needs.
    rights_with: Mapping[str, Right] = field(default_factory=dict)
    # Returns the action's effect on a cluster, without carrying out the action; None: no effect. An action with this
    # function accepts several clusters, and the field `list`.
    touches: Callable[[Call, Any], Answer | str | None] | None = None
    spares: str = ""  # why the action has no effect on clusters for which ``touches`` returns None
    of_records: bool = False  # True: the action's own fields name the clusters

    @property
    def scopes(self) -> tuple[str, ...]:
        """Return the event fields that name clusters, and ``list``. An event with ``list`` only shows the effect."""
        if self.of_records:
            return ("list",)
        several = ("clusters", "selector") if self.of_all or self.touches else ()
        return ("cluster", *several, *(("all", "list") if self.touches else ()))

    def listed(self, call: Call, fields: Fields) -> Answer | None:
        """Return the action's effect on a cluster, without carrying out the action; None: no effect."""
        effect = self.touches(call, fields) if self.touches else None
        return {"message": effect} if isinstance(effect, str) else effect

    def overview_for(self, event: Mapping[str, Any]) -> Handler | None:
        """Return the handler that answers this event once for all clusters; None: ``handler`` answers per cluster."""
        return None if event.get(self.looks_with) is True else self.overview

    def right_for(self, event: Mapping[str, Any]) -> Right:
        """Return the right that this event needs, even if a field has a bad value."""
        rights = [right for name, right in self.rights_with.items() if event.get(name, False) not in (False, None)]
        return max([self.right, *rights], key=[*Right].index)


def action(fields: type[Fields], right: Right, **row: Any) -> Callable[[Handler], Action]:
    """Return a decorator that makes a handler an ``Action``. The docstring's first line is the command's help text."""

    def row_of(handler: Handler) -> Action:
        summary = (handler.__doc__ or "").partition("\n")[0]
        return Action(handler.__name__.replace("_", "-"), summary, fields, right, handler, **row)

    return row_of
