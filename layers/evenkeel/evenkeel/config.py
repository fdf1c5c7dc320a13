"""Settings and records: everything that people and other programs write down for us, checked in one place.

Every bad value is named in one error, one line each: where it stands, what it is, what is wrong with it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    InstanceOf,
    PlainSerializer,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.domain.bounds.balanced import BALANCED
from evenkeel.domain.bounds.strategies import read_strategy
from evenkeel.domain.journal import closed, opened
from evenkeel.domain.looks import Timer
from evenkeel.domain.membership.discovery import Discovery
from evenkeel.domain.model.choices import OnFailure, Strategy
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Bounds, GroupKey, PoolId
from evenkeel.domain.model.moves import Move, ScaleRequest
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.policy import BackoffPolicy, Policy, PoolRule
from evenkeel.domain.model.similarity import GARDENER, Similarity
from evenkeel.domain.model.states import ClusterState, GroupState, PoolState, Publication, Sighting
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.model.values import LARGEST_COUNT, BadValueError, shown


class ConfigError(ValueError):
    """Something written down is wrong. ``faults`` has one line per bad value."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


_Model = TypeVar("_Model", bound=BaseModel)


def read_model(model: type[_Model], data: object, where: str) -> _Model:
    """``data`` as ``model``.

    Raises:
        ConfigError: one line per bad value, each starting with ``where``.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        faults: list[dict[str, Any]] = [dict(fault) for fault in error.errors(include_url=False)]
        # A list whose only entry is wrong is also "too short": said once, by the entry.
        inside = {fault["loc"][:end] for fault in faults for end in range(len(fault["loc"]))}
        faults = [fault for fault in faults if fault["type"] != "too_short" or fault["loc"] not in inside]
        raise ConfigError([_line(where, fault, model) for fault in faults]) from None


def near(word: object, known: Sequence[str]) -> str:
    """A suggestion to end an error with, where one of the known words is close to what was written; else nothing."""
    from difflib import get_close_matches  # only errors need it

    found = get_close_matches(str(word)[:100], [name for name in known if name], 1)
    return f"; did you mean {found[0]}?" if found else ""


def _fields_at(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """The names that are valid at a place of a model; none where the place cannot be told."""
    root = schema = model.model_json_schema()
    form: dict[str, Any]
    for part in (*path, None):
        while "$ref" in schema or "anyOf" in schema:
            # Of several forms, an error speaks of the one with fields.
            forms = schema.get("anyOf", [schema])
            form = next((form for form in forms if "$ref" in form or form.get("type") in ("object", "array")), {})
            schema = root["$defs"][form["$ref"].rpartition("/")[2]] if "$ref" in form else form
        if part is not None:
            inner = schema.get("items") if isinstance(part, int) else schema.get("properties", {}).get(part)
            schema = inner or {}
    return list(schema.get("properties", ()))


def read_json(model: type[_Model], text: str, where: str) -> _Model:
    """A JSON text as ``model``; raises ConfigError also where it is no JSON."""
    return read_model(model, _json(text, where), where)


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError([f"{where}: not JSON: {error}"]) from None


Unknown = Sequence[tuple[tuple[str | int, ...], Any]]
"""Fields of a stored record that only a newer release knows: where each stands, and its value."""


def read_stored(model: type[_Model], text: str, where: str) -> tuple[_Model, Unknown]:
    """A record that this program, or a newer release of it, has stored. Unlike what people hand in, it may have fields
    that nobody here knows: they are left out, and returned so that `keep_unknown` can put them back.

    Raises:
        ConfigError: a field that is known has a bad value.
    """
    unknown: list[tuple[tuple[str | int, ...], Any]] = []
    data = _json(text, where)
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
        parent, was = data, old
        try:
            for part in path[:-1]:
                parent, was = parent[part], was[part]
        except (LookupError, TypeError):
            continue
        if isinstance(parent, dict) and all(parent.get(name) == was.get(name) for name in ("kind", "name")):
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


# Names of the two forms of a record's pools. They stand in pydantic's paths, and nowhere in what people write.
_LISTED, _DISCOVERED = _FORMS = ("<list>", "<object>")


def _line(where: str, fault: dict[str, Any], model: type[BaseModel]) -> str:
    path = ".".join(str(part) for part in fault["loc"] if part not in _FORMS) or "the whole"
    problem = str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"].startswith(("datetime_", "timezone_")):
        problem = "no moment with a time zone: write RFC 3339, such as 2026-01-31T12:00:00Z"
    if fault["type"] in ("model_type", "model_attributes_type", "dataclass_type", "dict_type"):
        problem = "no object: write it with named fields"
    if fault["type"] == "missing":
        return f"{where}: {path} is missing"
    if fault["type"] == "extra_forbidden":
        *parents, name = fault["loc"]
        hint = near(name, _fields_at(model, parents))
        return f"{where}: {path} is not a field of this record: remove it or correct its name{hint}"
    choices = re.findall("'([^']+)'", str(fault.get("ctx", {}).get("expected", "")))
    choices = choices or problem.partition("choose one of ")[2].split(", ")
    return f"{where}: {path} is {shown(fault['input'])}: {problem}{near(fault['input'], choices)}"


def _strategy(value: object) -> object:
    return value if isinstance(value, Strategy) else read_strategy(value)


def _on_failure(value: object) -> object:
    return value if isinstance(value, OnFailure) else OnFailure.read(value)


def _flavour(value: str) -> str:
    if value not in FLAVOURS:
        *names, last = (f"'{name}'" for name in FLAVOURS)
        raise PydanticKnownError("literal_error", {"expected": f"{', '.join(names)} or {last}"})
    return value


FlavourName = Annotated[str, AfterValidator(_flavour)]


def _discovery(value: str) -> str:
    Discovery.read(value)
    return value


_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
# A moment with its time zone, kept in UTC. Beyond these years, adding a backoff or an offset could leave the calendar.
Moment = Annotated[
    AwareDatetime,
    Field(gt=_LONG_AGO, lt=datetime(2200, 1, 1, tzinfo=UTC)),
    AfterValidator(lambda moment: moment.astimezone(UTC)),
]
Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT, strict=True)]
StrategyName = Annotated[
    InstanceOf[Strategy],
    BeforeValidator(_strategy, json_schema_input_type=str),
    PlainSerializer(lambda strategy: strategy.name, return_type=str),
]
OnFailureName = Annotated[OnFailure, BeforeValidator(_on_failure)]
KubernetesName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
ProvisionTimeout = Annotated[int, Field(ge=60, le=7200, description="seconds until a node must have come")]
LabelKey = Annotated[str, Field(min_length=1, max_length=317)]  # prefix of 253, a slash, name of 63
ClusterId = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9._]{0,98}[a-z0-9])?$")]
AccountId = Annotated[str, Field(pattern=r"^[0-9]{12}$")]


class Settings(_Strict):
    """What the template tells every function."""

    table: str = Field(min_length=1)
    rebalance_queue_url: str = Field(min_length=1)
    rebalance_dlq_url: str = Field(min_length=1)
    recheck_queue_url: str = Field(min_length=1)
    bus: str = Field(min_length=1)
    dry_run: bool
    allow_loopback: bool = False  # clusters on this machine: the sandbox's alone, no deployment sets it

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        """Raises ConfigError that names each variable that is missing or wrong."""
        faults, values = [], {}
        for field, about in cls.model_fields.items():
            name = f"EVENKEEL_{field.upper()}"
            if env.get(name):
                values[field] = env[name]
            elif about.is_required():
                faults.append(f"environment variable {name} is missing")
        if faults:
            raise ConfigError(faults)
        return read_model(cls, values, "environment")


class EksAccess(_Strict):
    """An EKS cluster of this account: AWS says where it is, and a presigned STS token says who we are."""

    kind: Literal["eks"]
    name: str = Field(pattern=r"^[0-9A-Za-z][A-Za-z0-9_-]{0,99}$")
    region: str = Field(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]+$")

    @model_validator(mode="before")
    @classmethod
    def _as_aws_says(cls, data: object) -> object:
        # Older records name both, and could name anything: whoever wrote them would be sent our token.
        obsolete = ("endpoint", "ca_data")
        return {key: data[key] for key in data if key not in obsolete} if isinstance(data, Mapping) else data


class KubeconfigAccess(_Strict):
    """A kubeconfig in Secrets Manager. Only inline data is taken from it."""

    kind: Literal["kubeconfig"]
    secret: str = Field(min_length=1, max_length=2048, description="name or ARN of the secret")
    context: str | None = None


class BackoffEntry(_Strict):
    """Durations of the backoff, in seconds. The defaults are Cluster Autoscaler's."""

    initial: int = Field(default=300, ge=30, le=3600)
    longest: int = Field(default=1800, ge=30, le=21600)
    forget_after: int = Field(default=10800, ge=300, le=86400)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.initial <= self.longest <= self.forget_after:
            raise ValueError("it must hold that initial <= longest <= forget_after")
        return self

    def policy(self) -> BackoffPolicy:
        """The same in the domain's words."""
        return BackoffPolicy(
            initial=timedelta(seconds=self.initial),
            longest=timedelta(seconds=self.longest),
            forget_after=timedelta(seconds=self.forget_after),
        )


class PoolEntry(_Strict):
    """A pool in the cluster's record: numbers for a labelled pool, and who belongs to it where labels are missing."""

    name: str = Field(min_length=1, max_length=253)
    namespace: str | None = None
    selector: dict[str, str] = {}
    min: Count | None = None
    max: Count | None = None
    strategy: StrategyName | None = None
    on_failure: OnFailureName | None = None
    backoff: BackoffEntry | None = None
    provision_timeout: ProvisionTimeout | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is larger than max {self.max}")
        return self

    def rule(self) -> PoolRule:
        """The same in the domain's words."""
        timeout = None if self.provision_timeout is None else timedelta(seconds=self.provision_timeout)
        backoff = self.backoff.policy() if self.backoff else None
        return PoolRule(**{**dict(self), "backoff": backoff, "provision_timeout": timeout})


class DiscoveredPools(_Strict):
    """Pools in the cluster's record, where groups that nobody assigns to a pool make pools with those like them."""

    discover: Literal["similar"]
    rules: tuple[PoolEntry, ...] = ()
    ignored_labels: tuple[LabelKey, ...] = ()  # besides those that Cluster Autoscaler ignores
    labels: tuple[LabelKey, ...] = ()  # these decide alone
    ratios: Literal["cluster-autoscaler", "gardener"] = "cluster-autoscaler"
    nodes: bool = False  # what running nodes look like goes before what templates say

    @model_validator(mode="after")
    def _alone(self) -> Self:
        if self.labels and self.ignored_labels:
            raise ValueError("labels decide alone: leave ignored_labels out, or labels")
        return self

    def similarity(self) -> Similarity:
        """The same in the domain's words."""
        usual = GARDENER if self.ratios == "gardener" else Similarity()
        return replace(usual, ignored_labels=frozenset(self.ignored_labels), labels=self.labels)


def _form(pools: object) -> str:
    return _DISCOVERED if isinstance(pools, Mapping | DiscoveredPools) else _LISTED


# One form is chosen before it is read, so that a wrong entry is one fault and not one for each form.
Pools = Annotated[
    Annotated[tuple[PoolEntry, ...], Tag(_LISTED)] | Annotated[DiscoveredPools, Tag(_DISCOVERED)], Discriminator(_form)
]


class ClusterPolicy(_Strict):
    """The part of a cluster's record that plans are made from."""

    flavours: tuple[FlavourName, ...] = Field(default_factory=lambda: tuple(FLAVOURS))
    namespaces: tuple[KubernetesName, ...] = ()
    discovery: tuple[Annotated[str, AfterValidator(_discovery)], ...] = ()
    strategy: StrategyName = Field(default_factory=lambda: BALANCED)
    on_failure: OnFailureName | None = None  # release; move where there is no autoscaler
    autoscaler: Literal["cluster-autoscaler", "none"] = "cluster-autoscaler"
    autoscaler_loop: int = Field(default=10, ge=1, le=600, description="seconds; its --scan-interval")
    autoscaler_status: KubernetesName | None = None  # namespace of ConfigMap cluster-autoscaler-status, where readable
    pools: Pools = ()
    backoff: BackoffEntry = BackoffEntry()
    provision_timeout: ProvisionTimeout = 900

    @property
    def discoveries(self) -> tuple[Discovery, ...]:
        """The discovery strings, read."""
        return tuple(Discovery.read(text) for text in self.discovery)

    @property
    def pool_entries(self) -> tuple[PoolEntry, ...]:
        """The entries of ``pools``, in whichever form they are written."""
        return self.pools.rules if isinstance(self.pools, DiscoveredPools) else self.pools

    @property
    def discovered_pools(self) -> DiscoveredPools | None:
        """How pools are discovered; None where they are not."""
        return self.pools if isinstance(self.pools, DiscoveredPools) else None

    def policy(self) -> Policy:
        """The same in the domain's words."""
        return Policy(
            strategy=self.strategy,
            on_failure=self.on_failure or (OnFailure.MOVE if self.autoscaler == "none" else OnFailure.RELEASE),
            autoscaler=self.autoscaler != "none",
            pools=tuple(entry.rule() for entry in self.pool_entries),
            similarity=self.discovered_pools.similarity() if self.discovered_pools else None,
            backoff=self.backoff.policy(),
            provision_timeout=timedelta(seconds=self.provision_timeout),
            autoscaler_loop=timedelta(seconds=self.autoscaler_loop),
        )


PoolName = Annotated[str, Field(min_length=1, max_length=600)]


class FixEntry(_Strict):
    """A PoolMaximum that an operator has agreed to raise, until the next run has written it."""

    pool: PoolName
    group: Annotated[str, Field(max_length=600)] = ""  # whose annotation it is; empty: the record's own number
    before: Count | None = None  # as it stood when the operator agreed; None: nowhere
    after: Count


class ClusterRecord(ClusterPolicy):
    """A registered cluster."""

    id: ClusterId
    flavours: tuple[FlavourName, ...] = Field(min_length=1)
    access: Annotated[EksAccess | KubeconfigAccess, Field(discriminator="kind")]
    dry_run: bool | None = None  # None: what the stack says
    scan_interval: int = Field(default=60, ge=15, le=3600, description="seconds")
    paused: bool = False
    paused_until: Moment | None = None  # None while paused: until resumed
    region: str = Field(default="", pattern=r"^([a-z]{2}(-[a-z]+)+-[0-9]+)?$")
    zone_ids: dict[str, str] = {}  # AWS's ids to this account's names: {"use1-az1": "us-east-1a"}
    names: tuple[str, ...] = ()  # what AWS tags and event exporters call the cluster, besides its id
    event_accounts: tuple[AccountId, ...] = ()  # whose events about it are believed; none named: the stack's own
    leaving: bool = False  # adopted bounds are being put back; then the cluster is paused
    paused_pools: dict[PoolName, Moment | None] = {}  # by name or id; None: until resumed
    leaving_pools: tuple[PoolName, ...] = ()  # the same for pools; then each is paused
    mending: tuple[FixEntry, ...] = ()  # written by the next run

    def policy(self) -> Policy:
        """With the pools that are paused."""
        return replace(super().policy(), paused=self.paused_pools)

    @field_validator("scan_interval")
    @classmethod
    def _whole_minutes(cls, value: int) -> int:
        if value >= 60 and value % 60:
            raise ValueError("an interval of a minute or more must be whole minutes")
        return value


class ClusterFile(ClusterPolicy):
    """A record as ``evenkeel plan --cluster`` takes it: what only the deployed system needs may be left out."""

    id: ClusterId | None = None
    access: dict[str, Any] | None = None
    dry_run: bool | None = None
    scan_interval: int | None = None
    paused: bool = False
    paused_until: Moment | None = None
    region: str = ""
    zone_ids: dict[str, str] = {}
    names: tuple[str, ...] = ()
    event_accounts: tuple[AccountId, ...] = ()
    leaving: bool = False
    paused_pools: dict[PoolName, Moment | None] = {}
    leaving_pools: tuple[PoolName, ...] = ()
    mending: tuple[FixEntry, ...] = ()


class GroupRecord(_Strict):
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
    reverts: tuple[Moment, ...] = ()
    contested_since: Moment | None = None
    contested_by: str = ""
    contested_replicas: bool = False
    reports: tuple[Moment, ...] = ()
    marked: tuple[str, ...] = ()
    arrived_at: Moment | None = None
    ended: tuple[Moment, ...] = ()
    refused: tuple[str, ...] = ()
    ahead: tuple[Moment, ...] = ()
    write_refused_at: Moment | None = None
    write_refused: str = ""

    def state(self) -> GroupState:
        """The same in the domain's words. A backoff without its failure began, at the latest, when it could have."""
        last = self.last_failure
        if last is None and self.backoff_until is not None:
            last = self.backoff_until - BackoffPolicy().initial
        return GroupState(**{**dict(self), "last_failure": last})

    @classmethod
    def of(cls, state: GroupState) -> Self:
        """The record of a state."""
        return cls(**{name: getattr(state, name) for name in state.__dataclass_fields__})


class ImpairedZone(_Strict):
    """An impaired zone, as files and releases before this one have it."""

    impaired_until: Moment
    said_at: Moment | None = None
    by: str = ""


class ZoneWord(_Strict):
    """What one source last said about a zone."""

    until: Moment  # impaired until then; where that was over when it was said, the zone is well again
    said_at: Moment | None = None  # a later word of the source replaces an earlier one


class ZoneRecord(_Strict):
    """What is said about a zone, by source: an operator, ARC's autoshift, ARC's zonal shift, and so on.

    The zone is impaired while any of the words holds. Releases before this one stored a single word.
    """

    words: dict[str, ZoneWord] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _single(cls, data: object) -> object:
        if not isinstance(data, Mapping) or "impaired_until" not in data:
            return data
        single = {"until": data["impaired_until"], "said_at": data.get("said_at")}
        rest = {name: value for name, value in data.items() if name not in ImpairedZone.model_fields}
        return {**rest, "words": {str(data.get("by", "")): single}}

    @property
    def impaired_until(self) -> datetime:
        """The latest end of all words; a past one: the zone is well."""
        return max(word.until for word in self.words.values())

    def holding(self, now: datetime) -> dict[str, ZoneWord]:
        """The words that fence the zone now, by source."""
        return {source: word for source, word in self.words.items() if now < word.until}

    def since(self, now: datetime) -> datetime | None:
        """When the first of the words was said that fence the zone now."""
        return min((word.said_at for word in self.holding(now).values() if word.said_at), default=None)

    def merged(self, other: Self) -> Self:
        """The words of both; of each source the later one."""
        words = dict(self.words)
        for source, word in other.words.items():
            known = words.get(source)
            if known is None or (word.said_at or _LONG_AGO) > (known.said_at or _LONG_AGO):
                words[source] = word
        return self.model_copy(update={"words": words})


class EventLookRecord(_Strict):
    """The last look at a cluster that an event has asked for."""

    at: Moment  # when it is due
    by: str  # id of the event


class ScaleRequestRecord(_Strict):
    """Nodes that somebody asked for, or (negative) gives back, until it is done."""

    id: str = Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9._:-]+$")
    nodes: int = Field(ge=-LARGEST_COUNT, le=LARGEST_COUNT, strict=True)
    pool: str = Field(default="", max_length=600)
    group: str = Field(default="", max_length=600)
    only: tuple[Annotated[str, Field(min_length=1, max_length=600)], ...] = Field(default=(), max_length=1000)
    at: Moment
    by: str = Field(default="", max_length=2048)  # who asked, as they say it; of an event: its account and source
    done: bool = False
    result: str = ""

    @model_validator(mode="after")
    def _whose(self) -> Self:
        if bool(self.pool) == bool(self.group):
            raise ValueError("name either a pool or one of its groups")
        if not self.nodes:
            raise ValueError("nodes is 0: ask for at least one")
        return self

    def scale_request(self) -> ScaleRequest:
        """The same in the domain's words."""
        return ScaleRequest(
            id=self.id, nodes=self.nodes, at=self.at, pool=self.pool, group=self.group, only=frozenset(self.only)
        )


class BoundsRecord(_Strict):
    """Bounds as they are stored."""

    min: Count
    max: Count

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is larger than max {self.max}")
        return self


class MoveRecord(_Strict):
    """A move between zones, or growth on request, from before its first patch until after its last."""

    id: str
    unplaced: int = Field(default=0, alias="carried")
    steps: dict[str, int] = {}
    request: str = ""
    only: tuple[str, ...] = ()


class SightingRecord(_Strict):
    """What was requested in a pool, and since when it has been seen so."""

    since: Moment
    requested: dict[str, Count] = {}
    planned: dict[str, Count] = {}
    few_since: Moment | None = None


class PublicationRecord(_Strict):
    """What Balanced has dealt out last."""

    at: Moment
    basis: str
    targets: dict[str, Count] = {}
    maxima: dict[str, int] = {}
    grower: str = ""
    turn: Count = 0
    lent: bool = False


class PoolRecord(_Strict):
    """A pool's memory as it is stored, and as ``--state`` files have it."""

    adopted: dict[str, BoundsRecord | None] = {}
    digest: str = ""
    move: MoveRecord | None = None
    seen: SightingRecord | None = None
    published: PublicationRecord | None = None
    in_trouble: tuple[str, ...] = ()

    def state(self) -> PoolState:
        """The same in the domain's words."""
        return PoolState(
            adopted={key: Bounds(b.min, b.max) if b else None for key, b in self.adopted.items()},
            digest=self.digest,
            move=Move(**{**dict(self.move), "only": frozenset(self.move.only)}) if self.move else None,
            seen=Sighting(**dict(self.seen)) if self.seen else None,
            published=Publication(**dict(self.published)) if self.published else None,
            in_trouble=self.in_trouble,
        )

    @classmethod
    def of(cls, state: PoolState) -> Self:
        """The record of a state."""
        return cls(
            adopted={key: BoundsRecord(min=b.min, max=b.max) if b else None for key, b in state.adopted.items()},
            digest=state.digest,
            move=MoveRecord(**{**_fields_of(state.move), "only": tuple(sorted(state.move.only))})
            if state.move
            else None,
            seen=SightingRecord(**_fields_of(state.seen)) if state.seen else None,
            published=PublicationRecord(**_fields_of(state.published)) if state.published else None,
            in_trouble=state.in_trouble,
        )


class TimerRecord(_Strict):
    """When a cluster is looked at besides its scans, as it is stored."""

    due: Moment
    step: Count = 0
    doubted: Moment | None = None

    def timer(self) -> Timer:
        """The same in the domain's words."""
        return Timer(due=self.due, step=self.step, doubted=self.doubted)


def _fields_of(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


class StateFile(_Strict):
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
                raise ValueError(f"groups has key {shown(key)}: {error}") from None
        for key in self.pools:
            try:
                PoolId.read(key)
            except BadValueError as error:
                raise ValueError(f"pools has key {shown(key)}: {error}") from None
        return self

    def state(self) -> ClusterState:
        """The same in the domain's words."""
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
        kept = {id: record for id, record in self.pools.items() if id not in former}
        kept |= {str(id): PoolRecord.of(state) for id, state in pools.items() if state != PoolState()}
        return self.model_copy(update={"groups": {**self.groups, **groups}, "pools": kept})
