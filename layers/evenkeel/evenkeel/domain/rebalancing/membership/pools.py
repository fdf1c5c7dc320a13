"""Which node groups make a pool, and which numbers it has.

A group belongs to a pool by, in this order: label ``evenkeel.dev/pool``, the flavour's own pool label, a selector in
the cluster's record, similarity where the record asks for it. Strategy: annotation on any member, else the record.
PoolMinimum and PoolMaximum: the same, else the owners of the members' numbers (``numbers``), else the sums of the
bounds found at adoption.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from evenkeel.domain.model.choices import Level, OnFailure, Strategy
from evenkeel.domain.model.groups import GroupKey, NodeGroup, PoolId
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.observations import Skipped
from evenkeel.domain.model.origins import POOL_MAX, POOL_MIN, Origin, Source
from evenkeel.domain.model.owner_intent import is_new_intent, is_put_back
from evenkeel.domain.model.policy import Policy, PoolRule
from evenkeel.domain.model.pools import AnyPool, InvalidPool, Pool, count_zones, is_called, rule_of
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.similarity import Similarity
from evenkeel.domain.model.states import DesiredBounds, PoolState
from evenkeel.domain.model.templates import NodeTemplate
from evenkeel.domain.model.ulids import time_of
from evenkeel.domain.model.values import Fault
from evenkeel.domain.rebalancing.membership.numbers import NumberSources, find_origin, with_shares
from evenkeel.domain.rebalancing.membership.similarity import find_sets

_DRY_RUN = "evenkeel.dev/dry-run"


def find_pools(
    groups: Sequence[NodeGroup], policy: Policy, states: Mapping[PoolId, PoolState]
) -> tuple[list[AnyPool], list[Skipped]]:
    """All pools, by id, and the groups that are in none, each with the reason."""
    members: dict[PoolId, list[NodeGroup]] = {}
    unassigned: list[NodeGroup] = []
    for group in groups:
        name = group.pool_label or next((rule.name for rule in policy.pools if rule.selects(group)), None)
        if name is None:
            unassigned.append(group)
            continue
        pool = PoolId(group.key.flavour, group.key.namespace, group.cluster, name)
        members.setdefault(pool, []).append(group)
    if policy.similarity is None:
        skipped = [_in_none(group, Reason.of(Rule.NOT_SELECTED)) for group in unassigned]
    else:
        alike, skipped = _by_similarity(unassigned, policy.similarity, members.keys(), states)
        members |= alike
    pools: list[AnyPool] = []
    remembered = _states_of(members, states)
    for id, found in sorted(members.items()):
        state, known_as = remembered.get(id, (PoolState(), None))
        member_groups, state = _in_known_zones(found, state)
        planned = _pool(_Candidate(id, _by_zone(member_groups), policy, state, known_as), groups)
        if isinstance(planned, Reason):
            skipped += [_skipped(group, planned) for group in member_groups]
        else:
            pools.append(planned)
    return pools, skipped


def _in_known_zones(groups: Sequence[NodeGroup], state: PoolState) -> tuple[Sequence[NodeGroup], PoolState]:
    """The groups, those that have lost the machines which alone say their zone in the zone of the last; and that kept.

    Else a group that an autoscaler empties would make its pool invalid, and leave every zone of it as it is.
    """
    zones: dict[str, str] = {}
    placed = []
    for group in groups:
        key = str(group.key)
        if group.zone is None and not any(machine.zone for machine in group.machines or ()):
            group = replace(group, zone=state.zones.get(key), zone_of_machines=True)
        if group.zone_of_machines and group.zone is not None:
            zones[key] = group.zone
        placed.append(group)
    return placed, state if zones == state.zones else replace(state, zones=zones)


def _states_of(
    members: Mapping[PoolId, Sequence[NodeGroup]], states: Mapping[PoolId, PoolState]
) -> dict[PoolId, tuple[PoolState, PoolId | None]]:
    """What is remembered of each pool: under its own name, else under a former one, found again by its members.

    A former name is one that no pool has now. What stands there goes to the pool with most of its members. A pool that
    has got an old name back may find an older state there than under the name it had meanwhile: the later one counts.
    """
    remembered: dict[PoolId, tuple[PoolState, PoolId | None]] = {
        id: (states[id], None) for id in members if id in states
    }
    if remembered.keys() == states.keys():
        return remembered
    pool_of = {str(group.key): id for id, groups in members.items() for group in groups}
    for former, state in sorted(states.items()):
        if former in members or not (state.members or state.move):
            continue
        heirs = Counter(
            pool_of[key]
            for key in state.members
            if key in pool_of and (pool_of[key] not in remembered or _is_later(state, remembered[pool_of[key]][0]))
        )
        if heirs:
            heir = min(heirs, key=lambda id: (-heirs[id], id))
            remembered[heir] = (state, former)
    return remembered


def _is_later(state: PoolState, other: PoolState) -> bool:
    """Whether both are of the same groups, and this one was seen later."""
    same = 2 * len(state.members & other.members) > len(other.members)
    return same and state.seen is not None and (other.seen is None or state.seen.since > other.seen.since)


def _skipped(group: NodeGroup, reason: Reason) -> Skipped:
    return Skipped(namespace=group.key.namespace, name=group.key.name, reason=reason)


def _in_none(group: NodeGroup, why: Reason) -> Skipped:
    faults = tuple(str(fault) for fault in group.faults)  # a slip of the pen may be why it is in none
    return _skipped(group, Reason.of(Rule.IN_NO_POOL, why=why, faults=faults))


def _by_similarity(
    groups: Iterable[NodeGroup], rule: Similarity, taken_ids: Collection[PoolId], states: Mapping[PoolId, PoolState]
) -> tuple[dict[PoolId, list[NodeGroup]], list[Skipped]]:
    """The pools of groups whose nodes are alike, and the groups in none.

    A pool is called after its first member, and keeps that name while a member is left that was in it.
    """
    places: dict[tuple[str, str, str], dict[GroupKey, NodeGroup]] = {}
    skipped = []
    for group in groups:
        if why := _why_not_compared(group, rule):
            skipped.append(_in_none(group, why))
        else:
            places.setdefault((group.key.flavour, group.key.namespace, group.cluster), {})[group.key] = group
    pools = {}
    for place, candidates in places.items():
        templates = {key: group.template or NodeTemplate() for key, group in candidates.items()}
        for keys in find_sets(templates, rule):
            id = PoolId(*place, keys[0].name)
            members = [candidates[key] for key in keys]
            former = [
                (-len(state.members & {str(key) for key in keys}), other)
                for other, state in states.items()
                if (other.flavour, other.namespace, other.cluster) == place
                and other not in taken_ids
                and other not in pools
                and not state.members.isdisjoint([str(key) for key in keys])
            ]
            if id not in states and former:
                id = min(former)[1]
            if id in taken_ids:
                skipped += [_in_none(group, Reason.of(Rule.POOL_NAME_TAKEN, name=id.name)) for group in members]
            else:
                pools[id] = members
    return pools, skipped


def _why_not_compared(group: NodeGroup, rule: Similarity) -> Reason | None:
    """Why similarity leaves a group out, and what would bring it in."""
    if group.closed_because is not None:
        return Reason.of(Rule.CLOSED_AT_ZERO, why=group.closed_because)
    if group.template_faults:
        return Reason.of(Rule.TEMPLATE_UNREADABLE, faults=tuple(str(fault) for fault in group.template_faults))
    bounds = group.adopted if group.has_adopted else group.bounds
    if (bounds is None or bounds.max == 0) and group.pool_max is None and not group.faults:
        # Nobody has said that it may grow; Cluster Autoscaler does not balance it either.
        return Reason.of(Rule.NO_BOUNDS)
    if not rule.labels and not (group.template is not None and group.template.complete):
        return Reason.of(Rule.NO_CPU_AND_MEMORY)
    return None


def _by_zone(groups: Sequence[NodeGroup]) -> tuple[NodeGroup, ...]:
    """Zone order: the index in the names where all have one, else the zones' names. Never the order of a list."""
    if all(group.zone_index is not None for group in groups):
        return tuple(sorted(groups, key=lambda group: (group.zone_index, group.key)))
    return tuple(sorted(groups, key=lambda group: (group.zone or "", group.key)))


_Value = TypeVar("_Value", bool, int, Strategy, OnFailure, Level)


class _Candidate(NamedTuple):
    """The groups of one pool, and what there is to know about them."""

    id: PoolId
    groups: tuple[NodeGroup, ...]  # by zone
    policy: Policy
    state: PoolState
    known_as: PoolId | None

    def agreed(
        self, annotation: str, reader: Callable[[NodeGroup], _Value | None], problems: list[Problem]
    ) -> _Value | None:
        """What the members' annotations say, where they say it and agree."""
        values: dict[_Value, NodeGroup] = {}
        for group in self.groups:
            value = reader(group)
            if value is not None:
                values.setdefault(value, group)
        if len(values) > 1:
            each = ", ".join(f"{value} on {group.key}" for value, group in values.items())
            problems.append(Problem.of(ProblemKind.MEMBERS_DISAGREE, annotation=annotation, values=each))
        return next(iter(values), None)


def _pool(found: _Candidate, all_groups: Iterable[NodeGroup]) -> AnyPool | Reason:
    """The pool, valid or not; a reason: its groups take no part, since nobody says any number, or wants any node."""
    pool, desired_bounds = _heard(found)
    rule = rule_of(pool.id, pool.policy) or PoolRule(name=pool.id.name)
    problems = [_unreadable(ProblemKind.UNREADABLE, fault) for group in pool.groups for fault in group.faults]
    weighted, past = with_shares(pool.groups)
    pool, problems = pool._replace(groups=weighted), problems + past
    minimum = pool.agreed(POOL_MIN, lambda group: group.pool_min, problems)
    maximum = pool.agreed(POOL_MAX, lambda group: group.pool_max, problems)
    strategy = pool.agreed("evenkeel.dev/strategy", lambda group: group.strategy, problems)
    on_failure = pool.agreed("evenkeel.dev/on-failure", lambda group: group.on_failure, problems)
    level = pool.agreed("evenkeel.dev/level", lambda group: group.level, problems)
    max_step = pool.agreed("evenkeel.dev/max-step", lambda group: group.max_step, problems)
    dry_run = _dry_run(pool, rule, problems)
    ways = NumberSources(pool.groups, rule, pool.state, readable=not problems)
    origins = {
        POOL_MIN: find_origin(POOL_MIN, minimum, rule.min, ways),
        POOL_MAX: find_origin(POOL_MAX, maximum, rule.max, ways),
    }
    top = origins[POOL_MAX]
    if top is None and not problems:
        return Reason.of(Rule.TAKES_NO_PART)
    if top is not None and _is_off(top, pool.groups) and not problems:
        fields = tuple(f"{share.owner.max_field} of {share.owner.ref}" for share in top.owners)
        return Reason.of(Rule.SWITCHED_OFF, fields=fields)
    low, high = (None if origin is None else origin.value for origin in origins.values())
    notes = dict.fromkeys(fault for group in pool.groups for fault in group.notes)
    warnings = [_unreadable(ProblemKind.UNREADABLE_AND_LEFT_OUT, fault) for fault in notes]
    warnings += _held(pool.groups)
    _check_numbers(pool, low, top, problems, warnings)
    members = _members(pool, rule, strategy, on_failure, all_groups)
    members["level"] = level or rule.level or pool.policy.level
    members["max_step"] = max_step or rule.max_step or pool.policy.max_step
    members["dry_run"] = dry_run
    members["origins"] = tuple(origin for origin in origins.values() if origin is not None)
    if problems or low is None or high is None:
        return InvalidPool(
            **members, min=low, max=high, problems=tuple(problems), warnings=(*warnings, *desired_bounds)
        )
    return Pool(**members, min=low, max=high, warnings=(*warnings, *desired_bounds))


def _dry_run(pool: _Candidate, rule: PoolRule, problems: list[Problem]) -> bool | None:
    """What the pool itself says; None: nothing. One member that says true, or what nobody can read, is enough."""
    said = pool.agreed(_DRY_RUN, lambda group: group.dry_run, problems)
    is_held = any(group.dry_run or any(fault.field == _DRY_RUN for fault in group.faults) for group in pool.groups)
    return True if is_held else rule.dry_run if said is None else said


def _heard(pool: _Candidate) -> tuple[_Candidate, list[Problem]]:
    """The pool with new wishes of owners remembered, and what is to be told of them.

    Bounds that are no fight about ours are as if we had never published any.
    """
    told, desired_bounds, groups = [], dict(pool.state.desired_bounds), []
    for group in pool.groups:
        published = group.published
        if group.bounds_held and group.owner is not None and not group.owner.takes_ours:
            desired_bounds.pop(group.owner.ref.id, None)  # nothing of ours stands there any more
        if group.owner is not None and is_new_intent(group, pool.state):
            bounds = group.owner.bounds
            desired_bounds[group.owner.ref.id] = DesiredBounds(bounds=bounds)
            told.append(Problem.of(ProblemKind.NEW_WISH, owner=str(group.owner.ref), min=bounds.min, max=bounds.max))
        if group.owner is not None and group.owner.takes_ours and published is not None:
            fights = published.bounds == group.bounds or is_put_back(group, pool.state)
            group = group if fights else replace(group, published=replace(published, bounds=None))
        groups.append(group)
    if desired_bounds == pool.state.desired_bounds and all(
        new is old for new, old in zip(groups, pool.groups, strict=True)
    ):
        return pool, told
    return pool._replace(groups=tuple(groups), state=replace(pool.state, desired_bounds=desired_bounds)), told


def _held(groups: Iterable[NodeGroup]) -> list[Problem]:
    """For each object that holds bounds which are not written: where they stand."""
    fields: dict[str, list[str]] = {}
    for group in groups:
        if group.bounds_held and group.owner is not None:
            fields.setdefault(str(group.owner.ref), []).append(group.owner.max_field)
    return [Problem.of(ProblemKind.BOUNDS_HELD, owner=owner, fields=tuple(places)) for owner, places in fields.items()]


def _is_off(maximum: Origin, groups: Iterable[NodeGroup]) -> bool:
    """Whether the owner wants no node at all, and none is there."""
    wants_none = maximum.source is Source.OWNER and maximum.value == 0
    return wants_none and not any(group.requested or group.running for group in groups)


def _unreadable(kind: ProblemKind, fault: Fault) -> Problem:
    return Problem.of(kind, object=fault.object, field=fault.field, value=fault.value, problem=fault.problem)


def _check_numbers(
    pool: _Candidate, minimum: int | None, top: Origin | None, problems: list[Problem], warnings: list[Problem]
) -> None:
    """What the numbers and the zones say against each other. A pool in use is sized with fewer nodes than zones too."""
    maximum = None if top is None else top.value
    if not problems and minimum is not None and maximum is not None and minimum > maximum:
        problems.append(Problem.of(ProblemKind.MIN_ABOVE_MAX, minimum=minimum, maximum=maximum))
    problems += [
        Problem.of(ProblemKind.NO_ZONE, group=str(group.key))
        for group in pool.groups
        if group.zone is None and not any(fault.field == "zone" for fault in group.faults)
    ]
    warnings += [
        Problem.of(ProblemKind.AUTOSCALER_BESIDE_KARPENTER, group=str(group.key))
        for group in pool.groups
        if group.max_only and (group.replicas_by == "cluster-autoscaler" or group.autoscaler_failure is not None)
    ]
    zones = count_zones(pool.groups)
    if not problems and maximum is not None and maximum < zones:
        in_use = (
            pool.state.adopted
            or any(group.bounds is not None or group.requested for group in pool.groups)
            or (top is not None and top.source is Source.OWNER)  # it accepts such a number
        )
        kind = ProblemKind.FEWER_THAN_ZONES_IN_USE if in_use else ProblemKind.FEWER_THAN_ZONES
        (warnings if in_use else problems).append(Problem.of(kind, maximum=maximum, zones=zones))


def _members(
    pool: _Candidate,
    rule: PoolRule,
    strategy: Strategy | None,
    on_failure: OnFailure | None,
    all_groups: Iterable[NodeGroup],
) -> dict[str, Any]:
    """The fields of ``Members``, but for the warnings."""
    policy, move = pool.policy, pool.state.move
    # From all groups of the cluster: a step that was done counts also where the group has left the pool since.
    unplaced = move.still_unplaced(all_groups) if move else 0
    request = None
    if move and move.request:
        request = ScaleRequest(id=move.request, nodes=unplaced, at=time_of(move.id), only=move.only, later=move.later)
        if request.is_of_plan:
            # What was done of it is on its way, and counts; what was not, the same pods ask for again, or do not.
            request = replace(request, nodes=0)
    return {
        "id": pool.id,
        "groups": pool.groups,
        "strategy": strategy or rule.strategy or policy.strategy,
        "on_failure": on_failure or rule.on_failure or policy.on_failure,
        "backoff": rule.backoff or policy.backoff,
        "provision_timeout": rule.provision_timeout or policy.provision_timeout,
        "autoscaler": policy.autoscaler,
        "suspect_provision_time": policy.suspect_provision_time,
        "converge": policy.converge,
        "convergence_requested": max(
            (at for name, at in policy.convergence_requested.items() if is_called(pool.id, [name])), default=None
        ),
        "autoscaler_loop": policy.autoscaler_loop,
        "state": pool.state,
        "known_as": pool.known_as,
        "unplaced": 0 if request else unplaced,
        "scale_request": request,
    }
