"""Which node groups make a pool, and which numbers it has.

A group belongs to a pool by, in this order: label ``evenkeel.dev/pool``, the flavour's own pool label, a selector in
the cluster's record, similarity where the record asks for it. PoolMinimum, PoolMaximum and strategy: annotations on
any member, else the record, else the sums of the bounds found at adoption.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from evenkeel.domain.membership.similarity import find_sets
from evenkeel.domain.model.choices import OnFailure, Strategy
from evenkeel.domain.model.groups import Bounds, GroupKey, NodeGroup, PoolId, Skipped
from evenkeel.domain.model.moves import Move, ScaleRequest
from evenkeel.domain.model.policy import Policy, PoolRule
from evenkeel.domain.model.pools import Pool, adopted_bounds, rule_of
from evenkeel.domain.model.similarity import Similarity
from evenkeel.domain.model.states import PoolState
from evenkeel.domain.model.templates import NodeTemplate
from evenkeel.domain.model.ulids import time_of
from evenkeel.domain.model.values import LARGEST_COUNT


def find_pools(
    groups: Iterable[NodeGroup], policy: Policy, states: Mapping[PoolId, PoolState]
) -> tuple[list[Pool], list[Skipped]]:
    """All pools, by id, and the groups that are in none, each with the reason."""
    members: dict[PoolId, list[NodeGroup]] = {}
    left: list[NodeGroup] = []
    everybody = list(groups)
    for group in everybody:
        name = group.pool_label or next((rule.name for rule in policy.pools if rule.selects(group)), None)
        if name is None:
            left.append(group)
            continue
        pool = PoolId(group.key.flavour, group.key.namespace, group.cluster, name)
        members.setdefault(pool, []).append(group)
    if policy.similarity is None:
        skipped = [
            _in_none(group, "label it evenkeel.dev/pool, or select it in the cluster's record") for group in left
        ]
    else:
        alike, skipped = _by_similarity(left, policy.similarity, members.keys(), states)
        members |= alike
    pools = []
    known = _states_of(members, states)
    for id, found in sorted(members.items()):
        pool_or_reason = _pool(id, found, policy, *known.get(id, (PoolState(), None)), everybody)
        if isinstance(pool_or_reason, Pool):
            pools.append(pool_or_reason)
        else:
            skipped += [
                Skipped(namespace=group.key.namespace, name=group.key.name, reason=pool_or_reason) for group in found
            ]
    return pools, skipped


def _states_of(
    members: Mapping[PoolId, Sequence[NodeGroup]], states: Mapping[PoolId, PoolState]
) -> dict[PoolId, tuple[PoolState, PoolId | None]]:
    """What is remembered of each pool: under its own name, else under a former one, found again by its members.

    A former name is one that no pool has now. What stands there goes to the pool with most of its members. A pool that
    has got an old name back may find an older state there than under the name it had meanwhile: the later one counts.
    """
    known: dict[PoolId, tuple[PoolState, PoolId | None]] = {id: (states[id], None) for id in members if id in states}
    if known.keys() == states.keys():
        return known
    pool_of = {str(group.key): id for id, groups in members.items() for group in groups}
    for former, state in sorted(states.items()):
        if former in members or not (state.members or state.move):
            continue
        heirs = Counter(
            pool_of[key]
            for key in state.members
            if key in pool_of and (pool_of[key] not in known or _is_later(state, known[pool_of[key]][0]))
        )
        if heirs:
            heir = min(heirs, key=lambda id: (-heirs[id], id))
            known[heir] = (state, former)
    return known


def _is_later(state: PoolState, other: PoolState) -> bool:
    """Whether both are of the same groups, and this one was seen later."""
    same = 2 * len(state.members & other.members) > len(other.members)
    return same and state.seen is not None and (other.seen is None or state.seen.since > other.seen.since)


def _in_none(group: NodeGroup, why: str) -> Skipped:
    why = "; ".join([why, *(str(fault) for fault in group.faults)])  # a slip of the pen may be why it is in none
    return Skipped(namespace=group.key.namespace, name=group.key.name, reason=f"in no pool: {why}")


def _by_similarity(
    groups: Iterable[NodeGroup], rule: Similarity, taken: Collection[PoolId], states: Mapping[PoolId, PoolState]
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
    for place, found in places.items():
        templates = {key: group.template or NodeTemplate() for key, group in found.items()}
        for keys in find_sets(templates, rule):
            id = PoolId(*place, keys[0].name)
            members = [found[key] for key in keys]
            former = [
                (-len(state.members & {str(key) for key in keys}), known)
                for known, state in states.items()
                if (known.flavour, known.namespace, known.cluster) == place
                and known not in taken
                and known not in pools
                and not state.members.isdisjoint([str(key) for key in keys])
            ]
            if id not in states and former:
                id = min(former)[1]
            if id in taken:
                why = f"another pool is called {id.name}, as this one would be: label it evenkeel.dev/pool"
                skipped += [_in_none(group, why) for group in members]
            else:
                pools[id] = members
    return pools, skipped


def _why_not_compared(group: NodeGroup, rule: Similarity) -> str | None:
    """Why similarity leaves a group out, and what would bring it in."""
    if group.closed_because is not None:
        return group.closed_because
    if group.template_faults:
        return "; ".join(str(fault) for fault in group.template_faults)
    bounds = group.adopted if group.has_adopted else group.bounds
    if (bounds is None or bounds.max == 0) and group.pool_max is None and not group.faults:
        # Nobody has said that it may grow; Cluster Autoscaler does not balance it either.
        return "it has no bounds, or a max of 0: set them, or label it evenkeel.dev/pool"
    if not rule.labels and not (group.template is not None and group.template.complete):
        return (
            "nothing says what cpu and memory its nodes have: annotate capacity.cluster-autoscaler.kubernetes.io/cpu "
            "and capacity.cluster-autoscaler.kubernetes.io/memory, or label it evenkeel.dev/pool"
        )
    return None


def _by_zone(groups: Iterable[NodeGroup]) -> tuple[NodeGroup, ...]:
    """Zone order: the index in the names where all have one, else the zones' names. Never the order of a list."""
    found = list(groups)
    if all(group.zone_index is not None for group in found):
        return tuple(sorted(found, key=lambda group: (group.zone_index, group.key)))
    return tuple(sorted(found, key=lambda group: (group.zone or "", group.key)))


_Value = TypeVar("_Value", int, Strategy, OnFailure)


def _agreed(
    groups: Iterable[NodeGroup], annotation: str, read: Callable[[NodeGroup], _Value | None], problems: list[str]
) -> _Value | None:
    """What the members' annotations say, where they say it and agree."""
    said: dict[_Value, NodeGroup] = {}
    for group in groups:
        value = read(group)
        if value is not None:
            said.setdefault(value, group)
    if len(said) > 1:
        each = ", ".join(f"{value} on {group.key}" for value, group in said.items())
        problems.append(f"members disagree on {annotation}: {each}: make them equal, or keep it on one member")
    return next(iter(said), None)


def _pool(
    id: PoolId,
    found: list[NodeGroup],
    policy: Policy,
    state: PoolState,
    state_of: PoolId | None,
    everybody: Iterable[NodeGroup],
) -> Pool | str:
    """The pool, or the reason why these groups are none of ours."""
    groups = _by_zone(found)
    problems = [str(fault) for group in groups for fault in group.faults]
    rule = rule_of(id, policy) or PoolRule(name=id.name)
    minimum = _agreed(groups, "evenkeel.dev/pool-min", lambda group: group.pool_min, problems)
    maximum = _agreed(groups, "evenkeel.dev/pool-max", lambda group: group.pool_max, problems)
    strategy = _agreed(groups, "evenkeel.dev/strategy", lambda group: group.strategy, problems)
    on_failure = _agreed(groups, "evenkeel.dev/on-failure", lambda group: group.on_failure, problems)
    minimum = minimum if minimum is not None else rule.min
    maximum = maximum if maximum is not None else rule.max
    adopted: list[Bounds] = []
    if minimum is None or maximum is None:
        adopted = [bounds for group in groups if (bounds := adopted_bounds(group, state)) is not None]
    if maximum is None and not adopted and not problems:
        return "takes no part: it has neither bounds nor pool numbers (evenkeel.dev/pool-min, evenkeel.dev/pool-max)"
    if not problems:
        # What replicas cannot hold could be published, but never read back.
        minimum = minimum if minimum is not None else min(LARGEST_COUNT, sum(bounds.min for bounds in adopted))
        maximum = maximum if maximum is not None else min(LARGEST_COUNT, sum(bounds.max for bounds in adopted))
        if minimum > maximum:
            problems.append(f"PoolMinimum {minimum} is larger than PoolMaximum {maximum}: lower one or raise the other")
    problems += [
        f"{group.key}: has no zone: set the flavour's zone field, or label topology.kubernetes.io/zone"
        for group in groups
        if group.zone is None and not any(fault.field == "zone" for fault in group.faults)
    ]
    warnings = [str(note) for group in groups for note in group.notes]
    zones = len({group.zone for group in groups})
    if not problems and maximum is not None and maximum < zones:
        fewer = f"PoolMaximum {maximum} is smaller than the number of zones, {zones}"
        if state.adopted or any(group.bounds is not None or group.requested for group in groups):
            warnings.append(f"{fewer}: sized all the same, because the pool exists; raise it to {zones}")
        else:
            problems.append(f"{fewer}: some zone could never have a node; raise it to {zones}")
    return Pool(
        id=id,
        groups=groups,
        min=minimum,
        max=maximum,
        strategy=strategy or rule.strategy or policy.strategy,
        on_failure=on_failure or rule.on_failure or policy.on_failure,
        backoff=rule.backoff or policy.backoff,
        provision_timeout=rule.provision_timeout or policy.provision_timeout,
        autoscaler=policy.autoscaler,
        still=policy.autoscaler_loop * 1.5,
        state=state,
        state_of=state_of,
        # From all groups of the cluster: a step that was done counts also where the group has left the pool since.
        owed=state.move.owed(everybody) if state.move and not state.move.request else 0,
        scale_request=_begun(state.move, everybody) if state.move and state.move.request else None,
        problems=tuple(problems),
        warnings=tuple(warnings),
    )


def _begun(move: Move, groups: Iterable[NodeGroup]) -> ScaleRequest:
    """What is left of growth on request, as far as its journal and the groups themselves tell."""
    return ScaleRequest(id=move.request, nodes=move.owed(groups), at=time_of(move.id), only=move.only)
