"""What each group of a pool may do now, and why: the first draft of each group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from evenkeel.domain.model.drafts import Draft
from evenkeel.domain.model.failures import FailureClass, class_of
from evenkeel.domain.model.groups import NodeGroup, State
from evenkeel.domain.model.offerings import CapacityReport
from evenkeel.domain.model.pools import AnyPool, tie_of
from evenkeel.domain.model.reasons import Fact, Reason, Rule
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.domain.offerings.reports import reports_about
from evenkeel.domain.rebalancing.health.backoff import state_at
from evenkeel.domain.rebalancing.health.observed import CONTEST_REVERTS


@dataclass(frozen=True)
class _Health:
    """What is known of one group's failures, at one moment."""

    group: NodeGroup
    state: GroupState | None
    impaired_until: datetime | None  # of its zone; None: the zone is well
    own: State  # by itself, whatever becomes of the pool's other groups
    words: Sequence[CapacityReport] = ()  # of other clusters, about what it buys

    @property
    def is_contested(self) -> bool:
        """Whether somebody keeps putting our bounds back."""
        return _is_contested(self.state)

    @property
    def throttled_requested(self) -> int | None:
        """What it requested when other clusters' words made it cautious; None: they did not, or there is worse."""
        if self.state is None or self.own is not State.HEALTHY or not self.group.fencing_enabled:
            return None
        return self.state.throttled_requested

    @property
    def slow_start(self) -> int:
        """How many machines may be on their way since its zone delivers again; 0: as many as there may."""
        if self.state is None or self.own is not State.HEALTHY or not self.group.fencing_enabled:
            return 0
        return self.state.slow_start

    @property
    def can_grow(self) -> bool:
        """Whether it is well, nobody says otherwise, and neither operator nor owner holds it where it is."""
        group = self.group
        caps = (group.zone_max, None if group.worker_range is None else group.worker_range.max)
        has_room = all(cap is None or cap > group.requested for cap in caps)
        return self.own is State.HEALTHY and self.throttled_requested is None and has_room

    def is_fenced_by_others(self, now: datetime) -> bool:
        """Whether so many could not buy what it buys that it does not try either, where another group can grow."""
        until = None if self.state is None or self.throttled_requested is None else self.state.throttled_until
        return until is not None and now < until


def assess(pool: AnyPool, state: ClusterState, now: datetime) -> list[Draft]:
    """A draft for each group of the pool, as it stands, with its state and the reasons for that."""
    name = str(pool.id)
    healths = [_health(pool, group, state, now) for group in pool.groups]
    states = _states(healths, now)
    return [
        _draft(pool, health, group_state, tie_of(name, health.group), now)
        for health, group_state in zip(healths, states, strict=True)
    ]


def _health(pool: AnyPool, group: NodeGroup, state: ClusterState, now: datetime) -> _Health:
    remembered, impaired_until = state.groups.get(group.key), state.zones.get(group.zone or "")
    if impaired_until is not None and impaired_until <= now:
        impaired_until = None
    is_frozen = group.frozen_because is not None or _is_contested(remembered)
    own = State.FROZEN if is_frozen else state_at(remembered, now, impaired_until, pool.backoff)
    words = reports_about(group, state.offerings or {}, now, pool.backoff)
    return _Health(group, remembered, impaired_until, own, words)


def _is_contested(state: GroupState | None) -> bool:
    return state is not None and state.is_frozen


def _states(healths: Sequence[_Health], now: datetime) -> list[State]:
    """Of each by itself, with two exceptions.

    Where no group is healthy, a fenced one is tried to which a node has come. So a hiccup that all zones had at once is
    over as soon as one delivers; a trial that fails fences it anew, and only another node that comes gives it another.

    Where another group can grow, one is fenced that several clusters say cannot.
    """
    states = [health.own for health in healths]
    if State.HEALTHY in states:
        if not any(health.can_grow for health in healths):
            return states
        return [
            State.FENCED if health.is_fenced_by_others(now) else state
            for health, state in zip(healths, states, strict=True)
        ]
    if State.FENCED not in states:
        return states
    return [
        State.PROBING if state is State.FENCED and _may_be_tried(health) else state
        for health, state in zip(healths, states, strict=True)
    ]


def _may_be_tried(health: _Health) -> bool:
    delivers = health.state is not None and health.state.has_arrivals and health.impaired_until is None
    group = health.group
    return delivers and not group.waiting and min(group.running, group.requested) > 0


def _draft(pool: AnyPool, health: _Health, state: State, tie: int, now: datetime) -> Draft:
    group, remembered = health.group, health.state
    kind = remembered.failure_class if remembered is not None else FailureClass.UNKNOWN
    draft = Draft(
        group=group,
        state=state,
        requested=group.requested,
        moves_elsewhere=health.impaired_until is not None or kind.moves_elsewhere,
        tie=tie,
        provision_timeout=pool.timeout_of(group),
        coming=group.on_its_way(now, pool.timeout_of(group)),
        starting=sum(now < ready_by for ready_by in group.never_ready.values()),
        held=_held(group),
        replicas_are_ours=not group.max_only
        and (remembered is None or not (remembered.contested_replicas or remembered.replicas_applied_by)),
        contested=remembered is not None and remembered.contested_since is not None,
        bounds=group.bounds,
        short_provision=group.short_provision,
        pins=group.pinned,
        marked=() if remembered is None else remembered.marked,
    )
    if health.slow_start:
        draft.slow_start_max = group.running - draft.starting + health.slow_start
    if health.throttled_requested is not None and remembered is not None:
        if state is State.FENCED:
            # Nothing of its own has failed: whatever it has ordered is on its way.
            draft.moves_elsewhere, draft.coming, draft.fence_ends = True, group.waiting, remembered.throttled_until
        else:
            draft.throttled_max = health.throttled_requested + 1
    elif state is State.FENCED:
        ends = (remembered.backoff_until if remembered is not None else None, health.impaired_until)
        draft.fence_ends = max((end for end in ends if end is not None and end > now), default=None)
        is_answer = group.published is not None and group.published.state is State.FENCED
        if not is_answer and remembered is not None:
            draft.failed_at = remembered.last_failure
    elif state is State.PROBING and remembered is not None:
        draft.doubted_since = remembered.last_failure
    _explain(draft, health, now)
    return draft


def _held(group: NodeGroup) -> int:
    """Machines that tell a quota or a configuration failure themselves, whatever fences the group."""
    failures = [machine.failure for machine in group.refused_machines if machine.failure and not machine.preserved]
    return sum(not class_of(failure).moves_elsewhere for failure in failures)


def _explain(draft: Draft, health: _Health, now: datetime) -> None:
    """Why a group is not healthy, and whether its replicas are left to somebody else."""
    state, group = health.state, health.group
    if health.throttled_requested is not None and state is not None:
        words = {"offering": str(group.offering), **_whose(health.words)}
        if draft.state is State.FENCED:
            draft.add_reason(Rule.FENCED_BY_OTHERS, **words, until=state.throttled_until)
        else:
            draft.add_reason(Rule.THROTTLED, **words)
    elif draft.state is State.FROZEN and group.frozen_because is not None:
        draft.add_reason(Rule.FROZEN, why=group.frozen_because)
    elif draft.state is State.FROZEN and state is not None and state.bounds_applied_by:
        draft.add_reason(Rule.FROZEN, why=_not_ours(group.bounds_place, state.bounds_applied_by))
    elif draft.state is State.FROZEN and state is not None:
        draft.add_reason(Rule.CONTESTED_BOUNDS, by=state.contested_by, times=CONTEST_REVERTS)
    elif draft.state is State.FENCED and health.impaired_until is not None:
        draft.add_reason(Rule.ZONE_IMPAIRED, zone=group.zone, until=health.impaired_until)
    elif draft.state is not State.HEALTHY and state is not None:
        failure: Mapping[str, Fact] = {"kind": state.failure_class.value, "failures": state.failures}
        if draft.state is State.FENCED:
            draft.add_reason(Rule.IN_BACKOFF, **failure, until=state.backoff_until)
        elif state.backoff_until is not None and now <= state.backoff_until:
            draft.add_reason(Rule.PROBING_AFTER_ARRIVAL, **failure)
        else:
            draft.add_reason(Rule.PROBING_AFTER_BACKOFF, **failure)
    if health.slow_start:
        draft.add_reason(Rule.SLOW_START, nodes=health.slow_start)
    if group.frozen_because is None:
        _explain_replicas(draft, state)


def _explain_replicas(draft: Draft, state: GroupState | None) -> None:
    """Why replicas are left to somebody else."""
    if draft.group.max_only:
        draft.add_reason(Rule.REPLICAS_OF_KARPENTER)
    elif state is not None and state.replicas_applied_by:
        key = draft.group.key
        place = f"spec.replicas of {draft.group.kind} {key.namespace}/{key.name}"
        draft.add_reason(Rule.REPLICAS_NOT_OURS, why=_not_ours(place, state.replicas_applied_by))
    elif state is not None and state.contested_replicas:
        draft.add_reason(Rule.CONTESTED_REPLICAS, by=state.contested_by, times=CONTEST_REVERTS)


def _not_ours(place: str, manager: str) -> Reason:
    """That somebody applies a field, and would put it back."""
    return Reason.of(Rule.FIELD_NOT_OURS, place=place, manager=manager)


def _whose(words: Sequence[CapacityReport]) -> dict[str, Fact]:
    """Who says so: the names of clusters that may be named, and how many others there are."""
    names = sorted({word.cluster for word in words if word.cluster})
    return {"clusters": tuple(names), "others": sum(not word.cluster for word in words)}
