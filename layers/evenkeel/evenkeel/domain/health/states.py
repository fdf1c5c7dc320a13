"""What each group of a pool may do now, and why: the first draft of each group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from evenkeel.domain.health.backoff import state_at
from evenkeel.domain.health.failures import class_of
from evenkeel.domain.health.observed import CONTEST_REVERTS
from evenkeel.domain.model.drafts import Draft
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import NodeGroup, State
from evenkeel.domain.model.pools import AnyPool, tie_of
from evenkeel.domain.model.reasons import Fact, Rule
from evenkeel.domain.model.states import ClusterState, GroupState


@dataclass(frozen=True)
class _Health:
    """What is known of one group's failures, at one moment."""

    group: NodeGroup
    state: GroupState | None
    impaired_until: datetime | None  # of its zone; None: the zone is well

    @property
    def is_contested(self) -> bool:
        """Whether somebody keeps putting our bounds back."""
        return self.state is not None and self.state.contested_since is not None and not self.state.contested_replicas


def assess(pool: AnyPool, state: ClusterState, now: datetime) -> list[Draft]:
    """A draft for each group of the pool, as it stands, with its state and the reasons for that."""
    name = str(pool.id)
    healths = [_health(group, state, now) for group in pool.groups]
    states = _states(pool, healths, now)
    return [
        _draft(pool, health, group_state, tie_of(name, health.group), now)
        for health, group_state in zip(healths, states, strict=True)
    ]


def _health(group: NodeGroup, state: ClusterState, now: datetime) -> _Health:
    impaired = state.zones.get(group.zone or "")
    return _Health(group, state.groups.get(group.key), impaired if impaired is not None and now < impaired else None)


def _states(pool: AnyPool, healths: Sequence[_Health], now: datetime) -> list[State]:
    """Where no group is healthy, a fenced one is tried to which a node has come.

    So a hiccup that all zones had at once is over as soon as one delivers; a trial that fails fences it anew, and only
    another node that comes gives it another.
    """
    states = [
        State.FROZEN
        if health.group.frozen_because is not None or health.is_contested
        else state_at(health.state, now, health.impaired_until, pool.backoff)
        for health in healths
    ]
    if State.HEALTHY in states or State.FENCED not in states:
        return states
    return [
        State.PROBING if state is State.FENCED and _may_be_tried(health) else state
        for health, state in zip(healths, states, strict=True)
    ]


def _may_be_tried(health: _Health) -> bool:
    delivers = health.state is not None and health.state.has_arrivals and health.impaired_until is None
    return delivers and health.group.running >= health.group.requested > 0


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
        held=_held(group),
        replicas_are_ours=remembered is None or not remembered.contested_replicas,
        contested=remembered is not None and remembered.contested_since is not None,
        bounds=group.bounds,
    )
    if state is State.FENCED:
        ends = (remembered.backoff_until if remembered is not None else None, health.impaired_until)
        draft.fence_ends = max((end for end in ends if end is not None and end > now), default=None)
        is_answer = group.published is not None and group.published.state is State.FENCED
        if not is_answer and remembered is not None:
            draft.failed_at = remembered.last_failure
    _explain(draft, health, now)
    return draft


def _held(group: NodeGroup) -> int:
    """Machines that tell a quota or a configuration failure themselves, whatever fences the group."""
    failures = [machine.failure for machine in group.refused_machines if machine.failure and not machine.preserved]
    return sum(not class_of(failure).moves_elsewhere for failure in failures)


def _explain(draft: Draft, health: _Health, now: datetime) -> None:
    """Why a group is not healthy, and whether its replicas are left to somebody else."""
    state, group = health.state, health.group
    if draft.state is State.FROZEN and group.frozen_because is not None:
        draft.because(Rule.FROZEN, why=group.frozen_because)
    elif draft.state is State.FROZEN and state is not None:
        draft.because(Rule.CONTESTED_BOUNDS, by=state.contested_by, times=CONTEST_REVERTS)
    elif draft.state is State.FENCED and health.impaired_until is not None:
        draft.because(Rule.ZONE_IMPAIRED, zone=group.zone, until=health.impaired_until)
    elif draft.state is not State.HEALTHY and state is not None:
        failure: Mapping[str, Fact] = {"kind": state.failure_class.value, "failures": state.failures}
        if draft.state is State.FENCED:
            draft.because(Rule.IN_BACKOFF, **failure, until=state.backoff_until)
        elif state.backoff_until is not None and now <= state.backoff_until:
            draft.because(Rule.PROBING_AFTER_ARRIVAL, **failure)
        else:
            draft.because(Rule.PROBING_AFTER_BACKOFF, **failure)
    if state is not None and state.contested_replicas and group.frozen_because is None:
        draft.because(Rule.CONTESTED_REPLICAS, by=state.contested_by, times=CONTEST_REVERTS)
