"""What the handler of an action is given: the ports, the cluster, who asks, and the fields of the event."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from evenkeel.application.actions.ports import ActionStore, InspectableClusters
from evenkeel.application.errors import BadRequestError, EvenkeelError
from evenkeel.application.incidents.notify import kind_of
from evenkeel.application.offerings.sharing import read_offerings, with_reports
from evenkeel.application.ports import Clock, Queue, Remaining, StoredCluster
from evenkeel.application.rebalancing.preview import Preview, preview_of
from evenkeel.domain.incidents.health import evaluate, evaluate_unread, with_stopped
from evenkeel.domain.model.fleet import Selector, read_length
from evenkeel.domain.model.incidents import ClusterHealth
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.values import BadValueError, quote
from evenkeel.record import ClusterRecord, ControlRecord, Registration
from evenkeel.texts.english import rfc3339
from evenkeel.validation import Moment, read_model

_LONGEST_NAME = 600
_SECONDS_TO_ANSWER = 2
PLANNED_ONLY = "planned only: dry run"

Answer = dict[str, Any]
"""Has at least ``message``, one line for people."""


class Right(StrEnum):
    """What an action needs, and who asks may do. Who may do one may do those before it."""

    READ = "read"
    WRITE = "write"  # what somebody on duty does, and can be taken back
    ADMINISTER = "administer"  # which clusters there are, how they are reached, and whether they are written

    def covers(self, other: "Right") -> bool:
        """Whether who may do this may do the other."""
        rights = [*Right]
        return rights.index(other) <= rights.index(self)


class Fields(BaseModel):
    """What an event may say beside action, cluster and who asks. A field's description is the help of its option."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def names(cls) -> dict[str, str]:
        """The fields as events and options call them, with our names for them."""
        return {field.alias or name: name for name, field in cls.model_fields.items()}

    @property
    def clusters(self) -> list[str]:
        """Whom these fields are about, where they say that themselves."""
        return []

    def of(self, _cluster: str) -> Self:
        """What they say to one of several clusters."""
        return self


def _name(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_NAME:
        raise BadRequestError(f"{info.field_name} is {quote(value)}: name the {info.field_name}")
    return value


def _flag(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, bool):
        raise BadRequestError(f"{info.field_name} is {quote(value)}: neither true nor false")
    return value


def length(value: object, *, field: str = "for", or_none: bool = False) -> object:
    try:
        return value if value is None else read_length(value, or_none=or_none)
    except BadValueError as error:
        raise BadRequestError(f"{field} is {quote(value)}: {error}") from None


def read_selector(value: object) -> Selector:
    """Raises BadRequestError."""
    try:
        return Selector.read(value if isinstance(value, str) else "")
    except BadValueError as error:
        raise BadRequestError(f"selector is {quote(value)}: {error}") from None


Name = Annotated[str, BeforeValidator(_name)]
Flag = Annotated[bool, BeforeValidator(_flag)]
PoolName = Annotated[Name | None, Field(description="One pool, by name or id.")]
GroupName = Annotated[Name | None, Field(description="One node group, by name or key.")]


class Ending(Fields):
    """What lasts until a moment, or for some time."""

    until: Annotated[Moment | None, Field(description="A moment, RFC 3339.")] = None
    lasting: Annotated[
        timedelta | None, BeforeValidator(length), Field(alias="for", description="How long: 2h, 90m, 1d.")
    ] = None

    def end(self, now: datetime) -> datetime | None:
        """None: neither is said. Raises BadRequestError where both are."""
        if self.until is not None and self.lasting is not None:
            raise BadRequestError(f"until is '{rfc3339(self.until)}', and for is there too: name one of the two")
        return self.until if self.lasting is None else now + self.lasting


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A cluster as it is now, with its trouble; ``preview`` None: it cannot be read, and ``unread`` says why."""

    remembered: StoredCluster
    cluster_health: ClusterHealth
    preview: Preview | None = None
    unread: str | None = None

    @property
    def now(self) -> datetime | None:
        """Return the cluster's own time, which its incidents go by; None where it cannot be read."""
        return None if self.preview is None else self.preview.now


@dataclass(frozen=True, kw_only=True)
class Call:
    """One action, asked for one cluster."""

    store: ActionStore
    clusters: InspectableClusters
    queue: Queue
    clock: Clock
    zone_names: Callable[[str], Mapping[str, str]]  # of a region: zone ids to the names that this account has for them
    random_bytes: Callable[[int], bytes]
    stack: str  # its name
    stack_dry_run: bool  # of clusters whose record does not say
    cluster: str  # empty: all that are registered
    selector: Selector | None  # of all, those that it selects
    right: Right  # what the event asks for, which may be more than its action needs at least
    by: str | None  # who asks, and
    reason: str | None  # why; as the event says it
    now: datetime
    remaining: Remaining
    of_invocation: Remaining  # of which this call, one of several, may have a share

    def load(self) -> StoredCluster:
        """Raises UnknownClusterError, ConfigError, StateUnavailableError."""
        return with_reports(self.store.load(self.cluster), read_offerings(self.store))

    def registrations(self) -> Sequence[tuple[str, Registration | str]]:
        """All that are registered, or those that are known to be selected."""
        found, selector = self._registered, self.selector
        if selector is None:
            return found
        return [(id, one) for id, one in found if not isinstance(one, str) and selector.selects(one.labels or {})]

    def unknown(self) -> Sequence[str]:
        """Those of which nobody knows whether they are selected: their records cannot be read, and so their labels."""
        return [] if self.selector is None else [id for id, one in self._registered if isinstance(one, str)]

    @cached_property
    def _registered(self) -> Sequence[tuple[str, Registration | str]]:
        return self.store.registrations()

    def preview(self, *, with_demand: bool = False) -> Preview:
        """Raises AccessError and ClusterUnavailableError too."""
        return preview_of(self.clusters, self.load(), self.now, self.remaining, with_demand=with_demand)

    def evaluate(self, *, with_demand: bool = False) -> "Judged":
        """Look at the cluster now. Of one that cannot be read: what is remembered, and why nothing else is known.

        Raises UnknownClusterError, ConfigError, StateUnavailableError.
        """
        remembered = self.load()
        after, known = remembered.record.opens_trouble_after, remembered.cluster_health
        try:
            # A cluster that hangs must leave the time to tell what is remembered of it.
            preview = preview_of(
                self.clusters,
                remembered,
                self.now,
                lambda: self.remaining() - _SECONDS_TO_ANSWER,
                with_demand=with_demand,
            )
        except EvenkeelError as error:
            silence = remembered.silence
            since = silence.since if silence is not None and not silence.is_over else self.now
            cluster_health = evaluate_unread(known, kind_of(error), str(error), since, self.now, timedelta())
            return Judged(remembered=remembered, cluster_health=cluster_health, unread=str(error))
        groups = {**remembered.state.groups, **preview.plan.states}
        cluster_health = evaluate(known, preview.plan, groups, after)
        if not remembered.control.is_paused(self.now):  # that it can be read says nothing of who acts there
            looked_at = self.store.looked_at().get(self.cluster)
            cluster_health = with_stopped(cluster_health, remembered.record.scan_interval, looked_at, self.now)
        return Judged(remembered=remembered, cluster_health=cluster_health, preview=preview)

    def is_dry(self, record: ClusterRecord, control: ControlRecord) -> bool:
        """Whether nothing is written to the cluster."""
        return control.is_dry(record, self.stack_dry_run)

    def dry_pools(self, remembered: StoredCluster, pools: Iterable[PoolPlan]) -> list[PoolPlan]:
        """Return the pools that a run plans and does not write: in dry run by themselves, or with their cluster."""
        is_dry = remembered.is_dry(self.stack_dry_run)
        stay_dry = [pool for pool in pools if (is_dry if pool.dry_run is None else pool.dry_run)]
        return [pool for pool in stay_dry if not remembered.control.restores(pool.id)]

    def with_dry_run(
        self, answer: Answer, remembered: StoredCluster, pools: Sequence[PoolPlan], planned: Answer | None = None
    ) -> Answer:
        """Return the answer with what of it is planned only, because of dry run, and with a pause of the cluster.

        Args:
            answer: What the action says where everything is written.
            remembered: The cluster.
            pools: The pools that the action is about. Where none is known, the mode of the cluster counts.
            planned: What the action says where nothing is written now; None: ``answer`` says it.
        """
        is_paused = remembered.control.is_paused(self.now)
        dry = self.dry_pools(remembered, pools)
        everything = len(dry) == len(pools) if pools else remembered.is_dry(self.stack_dry_run)
        names = sorted({pool.id.name for pool in dry})
        answer = planned if (everything or is_paused) and planned is not None else answer
        before = f"{PLANNED_ONLY}: " if everything else ""
        after = f"; {PLANNED_ONLY} of pool {', '.join(names)}" if dry and not everything else ""
        after += ". The cluster is paused: nothing happens before it is resumed" if is_paused else ""
        words: Answer = {name: f"{before}{answer[name]}{after}" for name in ("message", "alike") if name in answer}
        only = {"plannedOnly": names} if dry or everything else {}
        return {**answer, **words, "dryRun": everything, **only}

    def change_control(self, remembered: StoredCluster, fields: Mapping[str, object]) -> ControlRecord:
        """What actions have said, with these fields changed, as it is stored now.

        Raises:
            StateConflictError: somebody changed it at the same time.
        """
        # Read again rather than copied, so that what an event brings in is checked like any other record.
        where = f"record of cluster {self.cluster}"
        control = read_model(ControlRecord, {**remembered.control.model_dump(), **fields}, where)
        self.store.save_record(remembered.record, control, remembered.versions)
        return control

    def request_look(self, reason: str) -> None:
        self.queue.request(self.cluster, reason, f"{reason}-{self.cluster}-{self.now.timestamp()}")

    def still_held(self, control: ControlRecord) -> str:
        """What must not be overlooked when a cluster is switched on: that it, or pools of it, stay as they are."""
        paused = control.pools_paused(self.now)
        restoring = [name for name in control.restoring_pools if name not in paused]
        notes = "; it is still being restored" if control.restoring else ""
        if control.is_paused(self.now):
            until = control.paused_until
            notes = f"; it is still paused{f' until {rfc3339(until)}' if until else ''}"
        notes += f"; still paused: pool {', '.join(sorted(paused))}" if paused else ""
        return notes + (f"; still being restored: pool {', '.join(sorted(restoring))}" if restoring else "")
