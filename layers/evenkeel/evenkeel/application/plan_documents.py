"""The JSON of plans and decisions. The same classes write and read the JSON.

The field names are a contract (docs/reference/schemas). Readers ignore fields that a newer release has added.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Annotated, Any, TypeVar, dataclass_transform

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, TypeAdapter
from pydantic.alias_generators import to_camel

from evenkeel.application.errors import UNREADABLE
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.outcomes import Outcome, Result
from evenkeel.domain.model.problems import Problem
from evenkeel.domain.model.reasons import Fact, Reason, Rule
from evenkeel.domain.model.values import LARGEST_COUNT
from evenkeel.texts.english import outcome_text, rfc3339
from evenkeel.validation import ConfigError, Count, Moment, read_model, validated

Number = Annotated[int, Field(ge=-LARGEST_COUNT, le=LARGEST_COUNT, strict=True)]
_Facts = Annotated[dict[str, Any], Field(json_schema_extra={"required": ["rule"]})]
Timestamp = Annotated[Moment, PlainSerializer(rfc3339, return_type=str)]
_Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
ONLY_WHEN_KNOWN = Field(exclude_if=lambda value: value is None)
ONLY_WHEN_SET = Field(exclude_if=lambda value: not value)


@dataclass_transform(kw_only_default=True)
class Document:
    """The base class of documents, which are dataclasses that become JSON with camelCase names."""

    __pydantic_config__ = ConfigDict(extra="ignore", alias_generator=to_camel)

    def __init_subclass__(cls) -> None:
        dataclass(kw_only=True)(cls)


AnyDocument = TypeVar("AnyDocument", bound=Document)


class ReplicaChange(Document):
    """Requested replicas before and after the plan."""

    before: Annotated[Count, Field(alias="from")]
    after: Annotated[Count, Field(alias="to")]


class BoundChange(Document):
    """A bound before and after the plan; null if it is unset or cannot be read."""

    before: Annotated[Number | None, Field(alias="from")]
    after: Annotated[Number | None, Field(alias="to")]


class GroupDocument(Document):
    """One node group of a plan. In a decision, it also has the outcome of its write."""

    flavour: str
    namespace: str
    name: str
    zone: str | None
    state: State
    requested: ReplicaChange
    min: BoundChange
    max: BoundChange
    reasons: tuple[str, ...] = ()
    rules: tuple[_Facts, ...] = ()  # for each reason, its rule and its facts by name
    outcome: Annotated[str | None, ONLY_WHEN_KNOWN] = None  # a sentence; only in decisions
    result: Annotated[str | None, ONLY_WHEN_KNOWN] = None  # a value of Result; a newer release may add values
    running: Annotated[Count | None, ONLY_WHEN_KNOWN] = None

    @property
    def key(self) -> str:
        """Return the group's GroupKey as text."""
        return f"{self.flavour}/{self.namespace}/{self.name}"

    @property
    def changes(self) -> Mapping[str, ReplicaChange | BoundChange]:
        """Return the numbers that change, by name."""
        numbers: dict[str, ReplicaChange | BoundChange] = {
            "requested": self.requested,
            "min": self.min,
            "max": self.max,
        }
        return {name: number for name, number in numbers.items() if number.before != number.after}

    @property
    def is_left_alone(self) -> bool:
        """Return True if no write was planned."""
        return self.result in (None, Result.LEFT_ALONE)

    def facts(self, rule: Rule) -> Mapping[str, Any] | None:
        """Return the facts of the first reason of this rule; None if the group has no such reason."""
        return next((facts for facts in self.rules if facts.get("rule") == rule.value), None)


class ScaleRequestDocument(Document):
    """The unfinished part of a request for nodes.

    ``missing``: the number of nodes that cannot be added or removed. ``later``: the number that is left to later runs.
    """

    request: str
    nodes: Number
    missing: Count
    later: Annotated[Count, ONLY_WHEN_SET] = 0


class OwnerDocument(Document):
    """The part of PoolMinimum or PoolMaximum that one owner sets."""

    kind: str
    namespace: str
    name: str
    field: str
    value: Count  # the value in the owner's object
    wanted: Count  # the value that users want; Evenkeel may have set ``value`` itself
    part: Annotated[str, ONLY_WHEN_SET] = ""
    set_by: Annotated[str, ONLY_WHEN_SET] = ""


class OriginDocument(Document):
    """The source of a number of a pool. ``source`` is a Source; a newer release may add values."""

    source: str
    says: str  # a sentence
    groups: tuple[str, ...] = ()  # groups with the annotation, or groups whose former bounds are added up
    owners: tuple[OwnerDocument, ...] = ()


class OriginsDocument(Document):
    """The sources of PoolMinimum and PoolMaximum; null: the number is unset."""

    min: OriginDocument | None = None
    max: OriginDocument | None = None


class WaitingDocument(Document):
    """Pending pods with equal requirements, which need nodes of the pool."""

    pods: tuple[str, ...]  # the oldest few, the oldest first
    count: Count
    since: Timestamp
    zones: tuple[str, ...] = ()  # the zones in which their nodes may be


class UnfitDocument(Document):
    """Pods that get no node, grouped by their requirements or by the reason."""

    pods: tuple[str, ...]
    count: Count
    since: Annotated[Timestamp | None, ONLY_WHEN_KNOWN] = None
    reason: str
    rule: str
    groups: Annotated[dict[str, str], ONLY_WHEN_SET] = field(default_factory=dict)


class NodeDocument(Document):
    """A node of a pool, needed or unneeded."""

    node: str
    group: str
    # Why the node is needed or, for an unneeded node, why it is not removed yet.
    reason: Annotated[str | None, ONLY_WHEN_KNOWN] = None
    rule: Annotated[str | None, ONLY_WHEN_KNOWN] = None
    since: Annotated[Timestamp | None, ONLY_WHEN_KNOWN] = None  # since when the node is unneeded
    goes_at: Annotated[Timestamp | None, ONLY_WHEN_KNOWN] = None  # when an unneeded node may be removed


class DemandDocument(Document):
    """Demand's advice for a pool: nodes for its pending pods, and its unneeded nodes."""

    pending: tuple[WaitingDocument, ...] = ()
    nodes: dict[str, Count] = field(default_factory=dict)  # the number of nodes for the pending pods, by group
    unfit: tuple[UnfitDocument, ...] = ()  # pods that get no node of this pool, or that are not counted
    unneeded: tuple[NodeDocument, ...] = ()
    needed: tuple[NodeDocument, ...] = ()
    says: tuple[str, ...] = ()  # the advice in sentences


class ClusterDemandDocument(Document):
    """Demand's advice for a cluster as a whole. ``unread``: why there is no advice."""

    unread: Annotated[str | None, ONLY_WHEN_KNOWN] = None
    unmet: tuple[UnfitDocument, ...] = ()  # pods that get no node from any pool
    not_counted: tuple[UnfitDocument, ...] = ()
    fit_already: Count = 0
    check_again: Annotated[Timestamp | None, ONLY_WHEN_KNOWN] = None
    says: tuple[str, ...] = ()


class StepDocument(Document):
    """A convergence step that is in progress, or starts with this plan. Source and destination are keys of groups."""

    source: str
    destination: str
    begun_at: Timestamp
    machine: Annotated[str | None, ONLY_WHEN_KNOWN] = None  # the machine that is drained
    delete_requested_at: Annotated[Timestamp | None, ONLY_WHEN_KNOWN] = None


class LevelDocument(Document):
    """The convergence of a pool."""

    step: Annotated[StepDocument | None, ONLY_WHEN_KNOWN] = None
    waits: Annotated[str | None, ONLY_WHEN_KNOWN] = None  # what the step waits for, or why none starts
    rule: Annotated[str | None, ONLY_WHEN_KNOWN] = None
    hangs_since: Annotated[Timestamp | None, ONLY_WHEN_KNOWN] = None
    left: Count = 0  # steps that the budget of this hour still allows
    course: tuple[tuple[str, str], ...] = ()  # source and destination of each step until the zones are level
    says: tuple[str, ...] = ()


class PoolDocument(Document):
    """One pool of a plan."""

    name: str
    strategy: str
    min: Number | None
    max: Number | None
    valid: bool = True
    problems: tuple[str, ...] = ()
    problem_rules: tuple[_Facts, ...] = ()  # one per problem
    starved: Count = 0
    overcommitted: bool = False
    numbers_from: Annotated[OriginsDocument | None, ONLY_WHEN_KNOWN] = None
    notes: Annotated[tuple[str, ...], ONLY_WHEN_SET] = ()  # sentences
    note_rules: Annotated[tuple[_Facts, ...], ONLY_WHEN_SET] = ()
    growth: Annotated[ScaleRequestDocument | None, ONLY_WHEN_KNOWN] = None
    groups: tuple[GroupDocument, ...]


class PlannedPoolDocument(PoolDocument):
    """One pool of a plan, with its demand and convergence. A decision has neither."""

    demand: Annotated[DemandDocument | None, ONLY_WHEN_KNOWN] = None
    level: Annotated[LevelDocument | None, ONLY_WHEN_KNOWN] = None
    timeouts: Annotated[tuple[str, ...], ONLY_WHEN_SET] = ()  # which provision timeouts hold, and why
    timeout_rules: Annotated[tuple[_Facts, ...], ONLY_WHEN_SET] = ()


class SkippedDocument(Document):
    """An object that is skipped, and why."""

    namespace: _Text = ""
    name: _Text = ""
    reason: str


class PlanDocument(Document):
    """The plan of a whole cluster."""

    now: Timestamp
    pools: tuple[PlannedPoolDocument, ...]
    skipped: tuple[SkippedDocument, ...] = ()
    check_at: Annotated[Timestamp | None, ONLY_WHEN_KNOWN] = None
    refused: Annotated[tuple[str, ...], ONLY_WHEN_SET] = ()
    demand: Annotated[ClusterDemandDocument | None, ONLY_WHEN_KNOWN] = None


class FixDocument(Document):
    """A fix of a PoolMaximum in an object, and the outcome of its write."""

    object: str
    before: Annotated[Any, Field(alias="from")] = None
    after: Annotated[Any, Field(alias="to")] = None
    outcome: str
    result: Annotated[str | None, ONLY_WHEN_KNOWN] = None


class DecisionDocument(Document):
    """The decision for one pool, and its outcome."""

    id: str
    at: Timestamp
    cluster: str
    cause: _Text = ""
    dry_run: bool = False
    pool: PoolDocument
    fixed: Annotated[tuple[FixDocument, ...] | None, ONLY_WHEN_KNOWN] = None
    truncated: Annotated[Count | None, ONLY_WHEN_KNOWN] = None  # the number of groups left out to limit the size


class _Decisions(BaseModel):
    model_config = ConfigDict(defer_build=True)
    decisions: tuple[DecisionDocument, ...]


def read_decisions(decisions: Iterable[Mapping[str, Any]], where: str) -> tuple[DecisionDocument, ...]:
    """Return stored decisions as documents. Raises ConfigError, whose lines start with ``where``."""
    return read_model(_Decisions, {"decisions": tuple(decisions)}, where).decisions


def or_named(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entry. A decision that cannot be read is replaced by an entry with its id and the fault."""
    if "pool" not in entry:
        return entry
    try:
        read_decisions([entry], f"decision {entry['id']}")
    except ConfigError as error:
        kept = {name: entry.get(name) for name in ("id", "at", "cluster")}
        return {**kept, "cause": UNREADABLE, "by": None, "what": error.faults[0]}
    return entry


def read_document(kind: type[AnyDocument], data: object, where: str) -> AnyDocument:
    """Return JSON data as a document. Raises ConfigError: one line per bad value, each starting with ``where``."""
    hashable: Any = kind
    adapter: TypeAdapter[AnyDocument] = _adapter(hashable)
    return validated(lambda: adapter.validate_python(data), where, adapter.json_schema)


# An adapter is built when its document is first read or written, because a starting function needs only a few adapters.
_adapter: Callable[[type], TypeAdapter[Any]] = cache(TypeAdapter)


def document_json(document: Document) -> dict[str, Any]:
    """Return the document as JSON, with the field names of the contract."""
    content: dict[str, Any] = _adapter(type(document)).dump_python(document, mode="json", by_alias=True)
    return content


def reason_json(reason: Reason) -> dict[str, Any]:
    """Return a reason as JSON: its rule, and its facts by name."""
    return {"rule": reason.rule.value, **{name: _fact_json(fact) for name, fact in reason.facts.items()}}


def _fact_json(fact: Fact) -> Any:
    if isinstance(fact, Reason):
        return reason_json(fact)
    if isinstance(fact, tuple):
        return [_fact_json(part) for part in fact]
    return rfc3339(fact) if isinstance(fact, datetime) else fact


def problem_json(problem: Problem) -> dict[str, Any]:
    """Return a problem as JSON: its kind, and its facts by name."""
    return {"rule": problem.kind.value, **{name: _fact_json(fact) for name, fact in problem.facts.items()}}


def outcome_json(outcome: Outcome) -> dict[str, str]:
    """Return the outcome of one write: a sentence, and the result for programs."""
    return {"outcome": outcome_text(outcome), "result": outcome.result.value}
