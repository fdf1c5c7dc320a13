"""The pools of a cluster: their node groups, their settings, PoolMinimum and PoolMaximum.

A group's pool follows from the first of these sources that exists: label ``evenkeel.dev/pool``, the flavour's own pool
label, a selector in the cluster record, similarity. A pool's settings are read from an annotation on any member, else
from the record. PoolMinimum and PoolMaximum have two further sources: the owners of the members' bounds (``numbers``),
and then the sums of the adopted bounds.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, is_
from typing import Any

from evenkeel.domain.model.flavours import AUTO_SCALING, ZONE_FIELDS
from evenkeel.domain.model.groups import GroupKey, NodeGroup, PoolId
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.observations import Skipped
from evenkeel.domain.model.origins import POOL_MAX, POOL_MIN, Origin, Source
from evenkeel.domain.model.owner_intent import is_new_intent, is_put_back
from evenkeel.domain.model.parts import annotation_of
from evenkeel.domain.model.policy import Policy, PoolRule
from evenkeel.domain.model.pools import AnyPool, InvalidPool, Pool, count_zones, is_called, rule_of
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.similarity import Similarity
from evenkeel.domain.model.states import DesiredBounds, PoolState
from evenkeel.domain.model.templates import NodeTemplate
from evenkeel.domain.model.ulids import time_of
from evenkeel.domain.model.values import Fault
from evenkeel.domain.rebalancing.dry_run import DRY_RUN, own_dry_run
from evenkeel.domain.rebalancing.membership.fallbacks import with_first_pools
from evenkeel.domain.rebalancing.membership.lost_groups import (
    lacks_tags,
    lost_from,
    with_tagged_numbers,
    without_left,
)
from evenkeel.domain.rebalancing.membership.numbers import NumberSources, find_origin, with_shares
from evenkeel.domain.rebalancing.membership.pool_names import find_name
from evenkeel.domain.rebalancing.membership.similarity import find_sets


def find_pools(
    groups: Sequence[NodeGroup], policy: Policy, states: Mapping[PoolId, PoolState]
) -> tuple[list[AnyPool], list[Skipped]]:
    """Return all pools, sorted by id, and the groups that are in no pool, each with the reason."""
    assigned: dict[tuple[str, str, str, str], list[NodeGroup]] = defaultdict(list)  # by the fields of the pool's id
    unassigned: list[NodeGroup] = []
    left: list[NodeGroup] = []
    for group in groups:
        name = group.identity.pool_label or next((rule.name for rule in policy.pools if rule.selects(group)), None)
        if lacks_tags(group, name):
            if (lost := lost_from(group, states)) is not None:
                assigned[lost[0]].append(lost[1])
            else:
                left.append(group)
                unassigned.append(group)
        elif name is None:
            unassigned.append(group)
        else:
            assigned[group.key.flavour, group.key.namespace, group.identity.cluster, name].append(group)
    members = {PoolId(*place): assigned[place] for place in sorted(assigned)}
    if policy.similarity is None:
        skipped = [_in_none(group, Reason.of(Rule.NOT_SELECTED)) for group in unassigned]
    else:
        alike, skipped = _by_similarity(unassigned, policy.similarity, members.keys(), states)
        members = dict(sorted((members | alike).items()))
    pools: list[AnyPool] = []
    stored = _states_of(members, states)
    unknown = (PoolState(), None)
    for id, unplaced in members.items():
        state, known_as = stored.get(id, unknown)
        member_groups, state = _in_known_zones(unplaced, without_left(state, left))
        member_groups, state = with_tagged_numbers(member_groups, state)
        planned = _pool(_Candidate(id, _by_zone(member_groups), policy, state, known_as), groups)
        if isinstance(planned, Reason):
            skipped += [_skipped(group, planned) for group in member_groups]
        else:
            pools.append(planned)
    return with_first_pools(pools), skipped


def _in_known_zones(groups: Sequence[NodeGroup], state: PoolState) -> tuple[Sequence[NodeGroup], PoolState]:
    """Return the groups with their zones, and the pool's state with the zones to store.

    If only machines show a group's zone, the group keeps the zone of its last machine. Otherwise the pool would become
    invalid when an autoscaler scales the group to zero.
    """
    zones: dict[str, str] = {}
    placed = []
    for group in groups:
        if group.identity.zone is None and not any(machine.zone for machine in group.machines or ()):
            zone = state.zones.get(str(group.key))
            group = replace(group, identity=replace(group.identity, zone=zone, zone_of_machines=True))
        if group.identity.zone_of_machines and group.identity.zone is not None:
            zones[str(group.key)] = group.identity.zone
        placed.append(group)
    return placed, state if zones == state.zones else replace(state, zones=zones)


def _states_of(
    members: Mapping[PoolId, Sequence[NodeGroup]], states: Mapping[PoolId, PoolState]
) -> dict[PoolId, tuple[PoolState, PoolId | None]]:
    """Return each pool's stored state, and the former id under which the state is stored; None: the present id.

    A former id is an id that no pool has now. Its state belongs to the pool that has most of the state's members. If a
    pool gets an old id back, an older state may be stored under that id. The pool then keeps the later state.
    """
    stored: dict[PoolId, tuple[PoolState, PoolId | None]] = {id: (states[id], None) for id in members if id in states}
    if stored.keys() == states.keys():
        return stored
    pool_of = {str(group.key): id for id, groups in members.items() for group in groups}
    for former, state in sorted(states.items()):
        if former in members or not (state.members or state.move):
            continue
        heirs = Counter(
            pool_of[key]
            for key in state.members
            if key in pool_of and (pool_of[key] not in stored or _is_later(state, stored[pool_of[key]][0]))
        )
        if heirs:
            heir = min(heirs, key=lambda id: (-heirs[id], id))
            stored[heir] = (state, former)
    return stored


def _is_later(state: PoolState, other: PoolState) -> bool:
    """Return True if both states have mostly the same groups, and ``state`` is the later one."""
    same = 2 * len(state.members & other.members) > len(other.members)
    return same and state.seen is not None and (other.seen is None or state.seen.since > other.seen.since)


def _skipped(group: NodeGroup, reason: Reason) -> Skipped:
    key = group.key
    return Skipped(namespace=key.namespace, name=key.name, reason=reason, flavour=key.flavour)


def _in_none(group: NodeGroup, reason: Reason) -> Skipped:
    # The group may be in no pool because a label is misspelled.
    faults = tuple(str(fault) for fault in group.unreadable.faults)
    return _skipped(group, Reason.of(Rule.IN_NO_POOL, why=reason, faults=faults))


def _by_similarity(
    groups: Iterable[NodeGroup], rule: Similarity, taken_ids: Collection[PoolId], states: Mapping[PoolId, PoolState]
) -> tuple[dict[PoolId, list[NodeGroup]], list[Skipped]]:
    """Return the pools of groups with similar nodes, and the groups in no pool.

    A pool keeps its name while it has any of its former members. A new pool gets what the names of its groups have in
    common (``find_name``).
    """
    places: dict[tuple[str, str, str], dict[GroupKey, NodeGroup]] = {}
    skipped = []
    for group in groups:
        if reason := _obstacle(group, rule):
            skipped.append(_in_none(group, reason))
        else:
            places.setdefault((group.key.flavour, group.key.namespace, group.identity.cluster), {})[group.key] = group
    pools: dict[PoolId, list[NodeGroup]] = {}
    for place, candidates in places.items():
        templates = {key: group.template.node or NodeTemplate() for key, group in candidates.items()}
        new_sets = []
        for keys in find_sets(templates, rule):
            members = {str(key) for key in keys}
            former = [
                (-len(state.members & members), id)
                for id, state in states.items()
                if id[:-1] == place and id not in taken_ids and id not in pools and state.members & members
            ]
            if former:
                pools[min(former)[1]] = [candidates[key] for key in keys]
            else:
                new_sets.append(keys)
        for keys in new_sets:  # after all known pools have their names
            names = [key.name for key in keys]
            taken = {id.name for id in (*taken_ids, *pools) if id[:-1] == place}
            taken |= {key.name for key in candidates.keys() - {*keys}}
            pools[PoolId(*place, find_name(names, taken))] = [candidates[key] for key in keys]
    return pools, skipped


def _obstacle(group: NodeGroup, rule: Similarity) -> Reason | None:
    if group.frozen_because is not None and group.frozen_because.rule is Rule.CONTROL_PLANE:
        return group.frozen_because
    if group.key.flavour == AUTO_SCALING:
        # A stack reads and writes only Auto Scaling groups with the tag.
        return Reason.of(Rule.NOT_SELECTED)
    if group.template.closed_because is not None:
        return Reason.of(Rule.CLOSED_AT_ZERO, why=group.template.closed_because)
    if group.template.faults:
        return Reason.of(Rule.TEMPLATE_UNREADABLE, faults=tuple(str(fault) for fault in group.template.faults))
    bounds = group.ours.adopted if group.ours.has_adopted else group.bounds
    if (bounds is None or bounds.max == 0) and group.annotations.pool_max is None and not group.unreadable.faults:
        # No value allows the group to grow. Cluster Autoscaler does not balance such a group either.
        return Reason.of(Rule.NO_BOUNDS)
    if not rule.labels and not (group.template.node is not None and group.template.node.complete):
        return Reason.of(Rule.NO_CPU_AND_MEMORY)
    return None


def _by_zone(groups: Sequence[NodeGroup]) -> tuple[NodeGroup, ...]:
    """Return the groups sorted by zone index if all names have one, else by zone name.

    The order of ``groups`` has no effect.
    """
    if all([group.identity.zone_index is not None for group in groups]):
        return tuple(sorted(groups, key=lambda group: (group.identity.zone_index, group.key)))
    return tuple(sorted(groups, key=lambda group: (group.identity.zone or "", group.key)))


# Annotations whose values must be equal on all members. The key is the value's field in ``group.annotations``.
_ANNOTATIONS = {
    "pool_min": POOL_MIN,
    "pool_max": POOL_MAX,
    "strategy": "evenkeel.dev/strategy",
    "on_failure": "evenkeel.dev/on-failure",
    "level": "evenkeel.dev/level",
    "max_step": "evenkeel.dev/max-step",
    "dry_run": DRY_RUN,
}
# Settings that are read from annotations, else from the record's rule for the pool, else from the record's defaults for
# all pools.
_SETTINGS = ("strategy", "on_failure", "level", "max_step", "backoff", "provision_timeout", "timeout_mode")
_values = attrgetter(*_ANNOTATIONS, "own")
_settings = attrgetter(*_SETTINGS)
_NO_RULE = PoolRule(name="")  # the rule of a pool that the record does not name


@dataclass(slots=True)
class _Candidate:
    """The groups of one pool, and the input for its numbers and settings."""

    id: PoolId
    groups: tuple[NodeGroup, ...]  # sorted by zone
    policy: Policy
    state: PoolState
    known_as: PoolId | None

    def annotated(self, problems: list[Problem]) -> dict[str, Any]:
        """Return the annotated values by field. Add a problem for each value that differs between members."""
        of_members = [_values(group.annotations) for group in self.groups]
        found = dict(zip((*_ANNOTATIONS, "own"), of_members[0], strict=True))
        if of_members.count(of_members[0]) == len(of_members):
            return found
        fields = dict(zip(_ANNOTATIONS.items(), zip(*[values[:-1] for values in of_members], strict=True), strict=True))
        own = [group.annotations.own for group in self.groups]
        names = sorted({name for of_member in own for name in of_member})
        fields |= {(name, annotation_of(name)): tuple(of_member.get(name) for of_member in own) for name in names}
        for (field, annotation), annotated in fields.items():
            values = [value for value in dict.fromkeys(annotated) if value is not None]
            if len(values) > 1:
                members = ", ".join(f"{value} on {self.groups[annotated.index(value)].key}" for value in values)
                problems.append(Problem.of(ProblemKind.MEMBERS_DISAGREE, annotation=annotation, values=members))
            found[field] = values[0] if values else None
        return found | {"own": {name: found[name] for name in names}}


def _pool(candidate: _Candidate, all_groups: Iterable[NodeGroup]) -> AnyPool | Reason:
    """Return the pool, valid or not, or the reason why its groups do not participate.

    Groups do not participate without a PoolMaximum. Empty groups do not participate if their owners want no node.
    """
    pool, new_intents = _with_new_intents(candidate)
    rule = rule_of(pool.id, pool.policy) or _NO_RULE
    unreadable = [group.unreadable for group in pool.groups if group.unreadable.faults or group.unreadable.notes]
    faults = [fault for values in unreadable for fault in values.faults]
    problems = [_unreadable(ProblemKind.UNREADABLE, fault) for fault in faults]
    weighted, weight_problems = with_shares(pool.groups)
    if weighted is not pool.groups:
        pool = replace(pool, groups=weighted)
    problems += weight_problems
    annotated = pool.annotated(problems)
    sources = NumberSources(pool.groups, rule, pool.state, readable=not problems)
    low = find_origin(POOL_MIN, annotated["pool_min"], rule.min, sources)
    top = find_origin(POOL_MAX, annotated["pool_max"], rule.max, sources)
    if top is None and not problems:
        return Reason.of(Rule.TAKES_NO_PART)
    if top is not None and _is_off(top, pool.groups) and not problems:
        fields = tuple(f"{share.owner.max_field} of {share.owner.ref}" for share in top.owners)
        return Reason.of(Rule.SWITCHED_OFF, fields=fields)
    pool_min = None if low is None else low.value
    pool_max = None if top is None else top.value
    notes = dict.fromkeys([fault for values in unreadable for fault in values.notes])
    warnings = [_unreadable(ProblemKind.UNREADABLE_AND_LEFT_OUT, fault) for fault in notes]
    warnings += _held(pool.groups)
    _check_numbers(pool, pool_min, top, problems, warnings)
    members = _members(pool, rule, annotated, all_groups)
    members["dry_run"] = own_dry_run(pool.groups, rule.dry_run)
    members["origins"] = tuple([origin for origin in (low, top) if origin is not None])
    members["warnings"] = (*warnings, *new_intents)
    if problems or pool_min is None or pool_max is None:
        return InvalidPool(**members, min=pool_min, max=pool_max, problems=tuple(problems))
    return Pool(**members, min=pool_min, max=pool_max)


def _with_new_intents(pool: _Candidate) -> tuple[_Candidate, list[Problem]]:
    """Return the pool with the new desired bounds of owners in its state, and one problem for each of these owners.

    If an owner's bounds are neither Evenkeel's nor the bounds that Evenkeel replaced, its group is planned as if
    Evenkeel had published no bounds.
    """
    if all([group.owner.numbers is None for group in pool.groups]):
        return pool, []
    reports, desired_bounds, groups = [], dict(pool.state.desired_bounds), []
    for group in pool.groups:
        owner, published = group.owner.numbers, group.ours.published
        if group.owner.bounds_held and owner is not None and not owner.takes_ours:
            desired_bounds.pop(owner.ref.id, None)  # the owner no longer has a value that Evenkeel wrote
        if owner is not None and is_new_intent(group, pool.state):
            bounds = owner.bounds
            desired_bounds[owner.ref.id] = DesiredBounds(bounds=bounds)
            reports.append(Problem.of(ProblemKind.NEW_INTENT, owner=str(owner.ref), min=bounds.min, max=bounds.max))
        is_ours = published is None or published.bounds == group.bounds or is_put_back(group, pool.state)
        if owner is not None and owner.takes_ours and published is not None and not is_ours:
            group = replace(group, ours=replace(group.ours, published=replace(published, bounds=None)))
        groups.append(group)
    if desired_bounds == pool.state.desired_bounds and all(map(is_, groups, pool.groups)):
        return pool, reports
    return replace(pool, groups=tuple(groups), state=replace(pool.state, desired_bounds=desired_bounds)), reports


def _held(groups: Iterable[NodeGroup]) -> list[Problem]:
    fields: dict[str, list[str]] = {}
    for group in groups:
        if group.owner.bounds_held and group.owner.numbers is not None:
            fields.setdefault(str(group.owner.numbers.ref), []).append(group.owner.numbers.max_field)
    return [Problem.of(ProblemKind.BOUNDS_HELD, owner=owner, fields=tuple(places)) for owner, places in fields.items()]


def _is_off(top: Origin, groups: Iterable[NodeGroup]) -> bool:
    wants_none = top.source is Source.OWNER and top.value == 0
    return wants_none and not any([group.requested or group.running for group in groups])


def _unreadable(kind: ProblemKind, fault: Fault) -> Problem:
    return Problem.of(kind, object=fault.object, field=fault.field, value=fault.value, problem=fault.problem)


def _check_numbers(
    pool: _Candidate, pool_min: int | None, top: Origin | None, problems: list[Problem], warnings: list[Problem]
) -> None:
    """Add the problems of PoolMinimum, PoolMaximum and zones.

    If the pool is in use, a PoolMaximum below the number of zones is only a warning.
    """
    pool_max = None if top is None else top.value
    if not problems and pool_min is not None and pool_max is not None and pool_min > pool_max:
        problems.append(Problem.of(ProblemKind.MIN_ABOVE_MAX, minimum=pool_min, maximum=pool_max))
    for group in pool.groups:
        if group.identity.zone is None and not any(fault.field == "zone" for fault in group.unreadable.faults):
            kind = group.identity.kind
            field = ZONE_FIELDS.get(group.key.flavour) if kind == "MachineDeployment" else None
            problems.append(Problem.of(ProblemKind.NO_ZONE, group=str(group.key), scalable=kind, field=field))
        if group.owner.max_only and (
            group.managers.replicas_by == "cluster-autoscaler" or group.status.autoscaler_failure is not None
        ):
            warnings.append(Problem.of(ProblemKind.AUTOSCALER_BESIDE_KARPENTER, group=str(group.key)))
    zones = count_zones(pool.groups)
    if not problems and pool_max is not None and pool_max < zones:
        in_use = (
            pool.state.adopted
            or any(group.bounds is not None or group.requested for group in pool.groups)
            or (top is not None and top.source is Source.OWNER)  # the owner accepts fewer nodes than zones
        )
        kind = ProblemKind.FEWER_THAN_ZONES_IN_USE if in_use else ProblemKind.FEWER_THAN_ZONES
        (warnings if in_use else problems).append(Problem.of(kind, maximum=pool_max, zones=zones))


def _members(
    pool: _Candidate, rule: PoolRule, annotated: Mapping[str, Any], all_groups: Iterable[NodeGroup]
) -> dict[str, Any]:
    """Return the fields of ``Members``, except dry_run, origins and warnings."""
    policy, move = pool.policy, pool.state.move
    # All groups of the cluster are searched, because a group may have left the pool after its part of the move was
    # done.
    unplaced = move.still_unplaced(all_groups) if move else 0
    request = None
    if move and move.request:
        request = ScaleRequest(
            id=move.request, nodes=unplaced, at=time_of(move.id), only=frozenset(move.only), later=move.later
        )
        if request.is_of_plan:
            # ``requested`` already includes the nodes that this request added. The next plan decides about the
            # remaining nodes.
            request = replace(request, nodes=0)
    requested = [at for name, at in policy.convergence_requested.items() if is_called(pool.id, [name])]
    settings = zip(_SETTINGS, map(annotated.get, _SETTINGS), _settings(rule), strict=True)
    changed = {name: value or ruled for name, value, ruled in settings if value or ruled}
    if annotated["own"] or rule.own:
        changed["own"] = {**policy.settings.own, **rule.own, **annotated["own"]}
    return {
        "settings": replace(policy.settings, **changed) if changed else policy.settings,
        "id": pool.id,
        "groups": pool.groups,
        "convergence_requested": max(requested, default=None),
        "state": pool.state,
        "known_as": pool.known_as,
        "unplaced": 0 if request else unplaced,
        "scale_request": request,
    }
