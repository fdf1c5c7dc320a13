"""Plans and decisions as JSON has them: one shape for whoever writes them and for whoever reads them.

The names are a contract (docs/dry-run.md, docs/decision.schema.json). Fields that only a newer release knows are left
out in reading; what a release before this one did not write yet is worked out in one place, `_carried_over`.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, TypeAdapter

from evenkeel.application.ports import UNREADABLE
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.outcomes import Outcome, Result
from evenkeel.domain.model.problems import Problem
from evenkeel.domain.model.reasons import Fact, Reason, Rule
from evenkeel.domain.model.values import LARGEST_COUNT
from evenkeel.texts.english import outcome_words, rfc3339
from evenkeel.validation import ConfigError, Count, Moment, read_model

_READ = ConfigDict(extra="ignore")
Number = Annotated[int, Field(ge=-LARGEST_COUNT, le=LARGEST_COUNT, strict=True)]
_Facts = Annotated[dict[str, Any], Field(json_schema_extra={"required": ["rule"]})]
Timestamp = Annotated[Moment, PlainSerializer(rfc3339, return_type=str)]
_Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
_ONLY_WHEN_KNOWN = Field(exclude_if=lambda value: value is None)


@dataclass(kw_only=True, slots=True)
class ReplicaChange:
    """Requested replicas as they are, and as they are to become."""

    __pydantic_config__ = _READ
    before: Annotated[Count, Field(alias="from")]
    after: Annotated[Count, Field(alias="to")]


@dataclass(kw_only=True, slots=True)
class BoundChange:
    """A bound as it is, and as it is to become; None where nobody can read it or there is none."""

    __pydantic_config__ = _READ
    before: Annotated[Number | None, Field(alias="from")]
    after: Annotated[Number | None, Field(alias="to")]


@dataclass(kw_only=True, slots=True)
class GroupDocument:
    """One node group of a plan, and in a decision what came of it."""

    __pydantic_config__ = _READ
    flavour: str
    namespace: str
    name: str
    zone: str | None
    state: State
    requested: ReplicaChange
    min: BoundChange
    max: BoundChange
    reasons: tuple[str, ...] = ()
    rules: tuple[_Facts, ...] = ()  # one per reason: which rule, and its facts by name
    outcome: Annotated[str | None, _ONLY_WHEN_KNOWN] = None  # a sentence; in decisions only, like the next
    result: Annotated[str | None, _ONLY_WHEN_KNOWN] = None  # a Result, or one that a newer release knows
    running: Annotated[Count | None, _ONLY_WHEN_KNOWN] = None

    @property
    def key(self) -> str:
        """As a GroupKey is written."""
        return f"{self.flavour}/{self.namespace}/{self.name}"

    @property
    def changes(self) -> Mapping[str, ReplicaChange | BoundChange]:
        """By name, the numbers that do not stay as they are."""
        numbers: dict[str, ReplicaChange | BoundChange] = {
            "requested": self.requested,
            "min": self.min,
            "max": self.max,
        }
        return {name: number for name, number in numbers.items() if number.before != number.after}

    @property
    def is_left_alone(self) -> bool:
        """Whether nothing was to be written; so too where nobody says what came of it."""
        return self.result in (None, Result.LEFT_ALONE)

    def facts(self, rule: Rule) -> Mapping[str, Any] | None:
        """The facts of the first reason that the rule gave; None where it gave none."""
        return next((facts for facts in self.rules if facts.get("rule") == rule.value), None)


@dataclass(kw_only=True, slots=True)
class ScaleRequestDocument:
    """What is left of a request for nodes: ``missing`` found no room, or have to stay; later runs add ``later``."""

    __pydantic_config__ = _READ
    request: str
    nodes: Number
    missing: Count
    later: Annotated[Count, Field(exclude_if=lambda value: not value)] = 0


@dataclass(kw_only=True, slots=True)
class OwnerDocument:
    """What one owner adds to a number of a pool."""

    __pydantic_config__ = _READ
    kind: str
    namespace: str
    name: str
    field: str
    value: Count  # as it stands there
    wanted: Count  # as its people want it: what stands there may be ours
    part: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    set_by: Annotated[str, Field(alias="setBy", exclude_if=lambda value: not value)] = ""


@dataclass(kw_only=True, slots=True)
class OriginDocument:
    """Where a number of a pool comes from: a Source, or one that a newer release knows."""

    __pydantic_config__ = _READ
    source: str
    says: str  # a sentence
    groups: tuple[str, ...] = ()  # whose annotation it is, or whose bounds from before us are added up
    owners: tuple[OwnerDocument, ...] = ()


@dataclass(kw_only=True, slots=True)
class OriginsDocument:
    """By number; None: nobody says it."""

    __pydantic_config__ = _READ
    min: OriginDocument | None = None
    max: OriginDocument | None = None


@dataclass(kw_only=True, slots=True)
class WaitingDocument:
    """Pods with equal needs for which a pool would be asked for nodes."""

    __pydantic_config__ = _READ
    pods: tuple[str, ...]  # the first of them, the oldest first
    count: Count
    since: Timestamp
    zones: tuple[str, ...] = ()  # where their nodes would be


@dataclass(kw_only=True, slots=True)
class UnfitDocument:
    """Pods with equal needs, or with one reason, that get no node."""

    __pydantic_config__ = _READ
    pods: tuple[str, ...]
    count: Count
    since: Annotated[Timestamp | None, _ONLY_WHEN_KNOWN] = None
    reason: str
    rule: str
    groups: Annotated[dict[str, str], Field(exclude_if=lambda value: not value)] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True)
class NodeDocument:
    """A node, and why it is needed; of one that nobody needs since when, and why and until when it stays for now."""

    __pydantic_config__ = _READ
    node: str
    group: str
    reason: Annotated[str | None, _ONLY_WHEN_KNOWN] = None
    rule: Annotated[str | None, _ONLY_WHEN_KNOWN] = None
    since: Annotated[Timestamp | None, _ONLY_WHEN_KNOWN] = None
    goes_at: Annotated[Timestamp | None, Field(alias="goesAt"), _ONLY_WHEN_KNOWN] = None


@dataclass(kw_only=True, slots=True)
class DemandDocument:
    """What pods and nodes say of a pool."""

    __pydantic_config__ = _READ
    pending: tuple[WaitingDocument, ...] = ()
    nodes: dict[str, Count] = field(default_factory=dict)  # by group, how many would be asked for
    unfit: tuple[UnfitDocument, ...] = ()  # what waits and gets no node of this pool, or is not counted at all
    unneeded: tuple[NodeDocument, ...] = ()
    needed: tuple[NodeDocument, ...] = ()
    says: tuple[str, ...] = ()  # the same in sentences


@dataclass(kw_only=True, slots=True)
class ClusterDemandDocument:
    """What pods say beside pools; ``unread`` why nothing is known."""

    __pydantic_config__ = _READ
    unread: Annotated[str | None, _ONLY_WHEN_KNOWN] = None
    unmet: tuple[UnfitDocument, ...] = ()  # no pool is asked for a node for them
    not_counted: Annotated[tuple[UnfitDocument, ...], Field(alias="notCounted")] = ()
    fit_already: Annotated[Count, Field(alias="fitAlready")] = 0
    look_again: Annotated[Timestamp | None, Field(alias="lookAgain"), _ONLY_WHEN_KNOWN] = None
    says: tuple[str, ...] = ()


@dataclass(kw_only=True, slots=True)
class StepDocument:
    """A step of converge that is under way, or begins. Groups by key."""

    __pydantic_config__ = _READ
    source: str
    destination: str
    begun_at: Annotated[Timestamp, Field(alias="begunAt")]
    machine: Annotated[str | None, _ONLY_WHEN_KNOWN] = None  # that goes
    delete_requested_at: Annotated[Timestamp | None, Field(alias="givenAt"), _ONLY_WHEN_KNOWN] = None


@dataclass(kw_only=True, slots=True)
class LevelDocument:
    """What converge makes of a pool."""

    __pydantic_config__ = _READ
    step: Annotated[StepDocument | None, _ONLY_WHEN_KNOWN] = None
    waits: Annotated[str | None, _ONLY_WHEN_KNOWN] = None  # what the step waits for, or why none begins
    rule: Annotated[str | None, _ONLY_WHEN_KNOWN] = None
    hangs_since: Annotated[Timestamp | None, Field(alias="hangsSince"), _ONLY_WHEN_KNOWN] = None
    left: Count = 0  # steps that the budget leaves within this hour
    course: tuple[tuple[str, str], ...] = ()  # source and destination of every step until zones are level
    says: tuple[str, ...] = ()


@dataclass(kw_only=True, slots=True)
class PoolDocument:
    """One pool of a plan."""

    __pydantic_config__ = _READ
    name: str
    strategy: str
    min: Number | None
    max: Number | None
    valid: bool = True
    problems: tuple[str, ...] = ()
    problem_rules: Annotated[tuple[_Facts, ...], Field(alias="problemRules")] = ()  # one per problem
    starved: Count = 0
    overcommitted: bool = False
    numbers_from: Annotated[OriginsDocument | None, Field(alias="numbersFrom"), _ONLY_WHEN_KNOWN] = None
    notes: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()  # sentences
    note_rules: Annotated[tuple[_Facts, ...], Field(alias="noteRules", exclude_if=lambda value: not value)] = ()
    growth: Annotated[ScaleRequestDocument | None, _ONLY_WHEN_KNOWN] = None
    groups: tuple[GroupDocument, ...]


@dataclass(kw_only=True, slots=True)
class PlannedPoolDocument(PoolDocument):
    """One pool of a plan, with what pods say where they were read. A decision has nothing of that."""

    demand: Annotated[DemandDocument | None, _ONLY_WHEN_KNOWN] = None
    level: Annotated[LevelDocument | None, _ONLY_WHEN_KNOWN] = None


@dataclass(kw_only=True, slots=True)
class SkippedDocument:
    """An object that takes no part, and why."""

    __pydantic_config__ = _READ
    namespace: _Text = ""
    name: _Text = ""
    reason: str


@dataclass(kw_only=True, slots=True)
class PlanDocument:
    """The plan for a whole cluster."""

    __pydantic_config__ = _READ
    now: Timestamp
    pools: tuple[PlannedPoolDocument, ...]
    skipped: tuple[SkippedDocument, ...] = ()
    look_at: Annotated[Timestamp | None, Field(alias="lookAt"), _ONLY_WHEN_KNOWN] = None
    refused: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    demand: Annotated[ClusterDemandDocument | None, _ONLY_WHEN_KNOWN] = None


@dataclass(kw_only=True, slots=True)
class FixDocument:
    """A PoolMaximum that was written to an object, or was to be, and what came of it."""

    __pydantic_config__ = _READ
    object: str
    before: Annotated[Any, Field(alias="from")] = None
    after: Annotated[Any, Field(alias="to")] = None
    outcome: str
    result: Annotated[str | None, _ONLY_WHEN_KNOWN] = None


@dataclass(kw_only=True, slots=True)
class DecisionDocument:
    """What was decided for one pool, and what came of it."""

    __pydantic_config__ = _READ
    id: str
    at: Timestamp
    cluster: str
    cause: _Text = ""
    dry_run: Annotated[bool, Field(alias="dryRun")] = False
    pool: PoolDocument
    mended: Annotated[tuple[FixDocument, ...] | None, _ONLY_WHEN_KNOWN] = None
    truncated: Annotated[Count | None, _ONLY_WHEN_KNOWN] = None  # groups that are left out, for size


_OLD_BACKOFF = re.compile(r"fenced: (\w+) failure")
_OLD_IMPAIRMENT = re.compile(r"fenced: zone .* is impaired until")


def _carried_over(decision: DecisionDocument) -> DecisionDocument:
    """A decision of a release that wrote sentences only: its results, and the rules that readers look for.

    This alone reads sentences back. Decisions are kept for 30 days, and recorded histories for as long as people like.
    """
    for group in decision.pool.groups:
        if group.result is None and group.outcome is not None:
            group.result = _old_result(group.outcome)
        if not group.rules:
            group.rules = tuple(_old_rule(reason) for reason in group.reasons)
    for change in decision.mended or ():
        change.result = change.result or _old_result(change.outcome)
    return decision


def _old_result(outcome: str) -> str | None:
    with suppress(ValueError):
        return Result(outcome.partition(":")[0])
    return None


def _old_rule(reason: str) -> dict[str, Any]:
    if backoff := _OLD_BACKOFF.match(reason):
        return {"rule": Rule.IN_BACKOFF.value, "kind": backoff[1]}
    return {"rule": Rule.ZONE_IMPAIRED.value} if _OLD_IMPAIRMENT.match(reason) else {}


DecisionDocument = Annotated[DecisionDocument, AfterValidator(_carried_over)]
"""A decision of this release, an older or a newer one."""


class _Decisions(BaseModel):
    model_config = ConfigDict(defer_build=True)
    decisions: tuple[DecisionDocument, ...]


def read_decisions(decisions: Iterable[Mapping[str, Any]], where: str) -> tuple[DecisionDocument, ...]:
    """Decisions as they are stored. Raises ConfigError: one line per bad value, each starting with ``where``."""
    return read_model(_Decisions, {"decisions": tuple(decisions)}, where).decisions


def or_named(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entry, or in the place of a decision that cannot be read one that names it and says why."""
    if "pool" not in entry:
        return entry
    try:
        read_decisions([entry], f"decision {entry['id']}")
    except ConfigError as error:
        kept = {name: entry.get(name) for name in ("id", "at", "cluster")}
        return {**kept, "cause": UNREADABLE, "by": None, "what": error.faults[0]}
    return entry


@cache
def _adapter(document: Any) -> TypeAdapter[Any]:
    return TypeAdapter(document)


def document_json(
    document: GroupDocument | PoolDocument | PlanDocument | DecisionDocument | ClusterDemandDocument,
) -> dict[str, Any]:
    """As JSON has it, by the names of the contract."""
    kind: Any = type(document)
    json: dict[str, Any] = _adapter(kind).dump_python(document, mode="json", by_alias=True, warnings=False)
    return json


def decision_schema() -> dict[str, Any]:
    """What a decision looks like to its readers, as JSON Schema."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_adapter(DecisionDocument).json_schema(by_alias=True, mode="serialization"),
    }


def reason_json(reason: Reason) -> dict[str, Any]:
    """A reason for programs: its rule, and beside it the facts by name."""
    return {"rule": reason.rule.value, **{name: _fact_json(fact) for name, fact in reason.facts.items()}}


def _fact_json(fact: Fact) -> Any:
    if isinstance(fact, Reason):
        return reason_json(fact)
    if isinstance(fact, tuple):
        return [_fact_json(part) for part in fact]
    return rfc3339(fact) if isinstance(fact, datetime) else fact


def problem_json(problem: Problem) -> dict[str, Any]:
    """A problem for programs: its kind, and beside it the facts by name."""
    return {"rule": problem.kind.value, **{name: _fact_json(fact) for name, fact in problem.facts.items()}}


def outcome_json(outcome: Outcome) -> dict[str, str]:
    """What came of one write: a sentence, and the result for programs."""
    return {"outcome": outcome_words(outcome), "result": outcome.result.value}
