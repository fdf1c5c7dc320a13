"""The state of each group of a pool. The state and its reasons are the first draft of the group.

The first cause that applies decides the state.

    cause                                                          state       effect
    the object is frozen, or another writer owns the bounds        frozen      Evenkeel writes nothing.
    the cloud launches nothing in the group                        fenced      No growth. Stuck replicas are given up.
    the zone is impaired, or a launch failed and backoff runs      fenced      No growth. Stuck replicas are given up.
    the same, but a write was refused since it began               fenced      The same, so that a retry gives them up.
    backoff is over, or a machine launched since has a node        probing     One more machine.
    too many nodes of the group or its zone are not Ready          unhealthy   No growth, except one node at a time.
    the same for 5 min, next to an autoscaler                      probing     One more machine.
    the zone delivers again (``slow_start``)                       slow start  As many more nodes as have registered.
    none of these                                                  healthy     Growth as the strategy sizes it.

Slow start is not a value of ``State``. It is a cap on a healthy group, because sizing, raising, requests and moves
respect caps. One result depends on the pool's other groups: a fenced group probes early if no group is healthy. With
this early probe, a pool recovers sooner from an outage of seconds in all zones (measured: 77 s instead of 366 s).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from evenkeel.domain.model.drafts import Draft, MachineCounts
from evenkeel.domain.model.failures import class_of
from evenkeel.domain.model.flavours import BOUNDS_KEPT, GIVEN_UP_WITHIN
from evenkeel.domain.model.groups import Machine, NodeGroup, State
from evenkeel.domain.model.holds import held_until
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.pools import AnyPool, Pool
from evenkeel.domain.model.reasons import Fact, Reason, Rule
from evenkeel.domain.model.states import UNKNOWN, ClusterState, ContestHistory, FailureHistory, GroupState
from evenkeel.domain.model.values import provider_words
from evenkeel.domain.rebalancing.health.backoff import impaired_until, own_state
from evenkeel.domain.rebalancing.health.not_offered import backoff_after, has_new_template, is_not_offered
from evenkeel.domain.rebalancing.health.observed import CONTEST_REVERTS
from evenkeel.domain.rebalancing.health.provision_times import machine_timeout
from evenkeel.domain.rebalancing.health.unhealthy import PROBE_AFTER

# How long a write that was refused during a fence keeps the group fenced. Evenkeel retries it after five minutes.
_RETRIED_WITHIN = timedelta(minutes=10)


@dataclass(slots=True)
class _Health:
    """The health of one group at the time of the check."""

    group: NodeGroup
    state: GroupState
    impaired_until: datetime | None  # the end of the zone's impairment; None: not impaired
    own: State  # the group's state without regard to the pool's other groups
    starts_slowly: bool = True

    @property
    def _is_trusted(self) -> bool:
        return self.own is State.HEALTHY and self.group.annotations.fencing_enabled

    @property
    def slow_start(self) -> int:
        """Return the limit of provisioning machines in slow start; 0: no limit."""
        nodes = self.state.arrivals.slow_start
        return nodes if nodes and self.starts_slowly and self._is_trusted else 0

    @property
    def may_probe(self) -> bool:
        """Return True if a node of the fenced group has registered since its last failure, and all replicas run."""
        group = self.group
        status = group.status
        launches = self.impaired_until is None and status.launches_stopped is None
        delivers = self.state.has_arrivals and launches and status.unhealthy is None
        return delivers and not group.waiting and min(group.running, group.requested) > 0


def assess(pool: AnyPool, state: ClusterState, now: datetime) -> list[Draft]:
    """Return a draft for each group of the pool: the group as found, with its state and the reasons for the state."""
    healths = [_health(pool, group, state, now) for group in pool.groups]
    states = _states(healths)
    if not _starts_slowly(pool, healths, states):
        healths = [replace(health, starts_slowly=False) for health in healths]
    return [_draft(pool, health, group_state, now) for health, group_state in zip(healths, states, strict=True)]


def _starts_slowly(pool: AnyPool, healths: Sequence[_Health], states: Sequence[State]) -> bool:
    """Return False if the autoscaler keeps the bounds that it has read, and no group is healthy without slow start.

    Slow start protects pods that could run in another zone. Here, no other zone can take them, and each step costs the
    time for which the autoscaler keeps the bounds.
    """
    if pool.id.flavour not in BOUNDS_KEPT or not pool.settings.autoscaler:
        return True
    return any([state is State.HEALTHY and not one.slow_start for one, state in zip(healths, states, strict=True)])


def fenced_groups(pools: Iterable[AnyPool], state: ClusterState, now: datetime) -> list[NodeGroup]:
    """Return the groups that are fenced, and whose annotations do not disable fencing."""
    drafts = [draft for pool in pools if isinstance(pool, Pool) for draft in assess(pool, state, now)]
    fenced = [draft.group for draft in drafts if draft.state is State.FENCED]
    return [group for group in fenced if group.annotations.fencing_enabled]


def by_clock_of_cluster(state: ClusterState, skew: timedelta) -> ClusterState:
    """Return the state with the ends of impairments in the API server's time, as a plan needs them.

    Events, operators and drills set the ends in Evenkeel's time. ``skew``: the API server's clock minus Evenkeel's.
    """
    return replace(state, zones={zone: until + skew for zone, until in state.zones.items()}) if skew else state


def without_drill(state: ClusterState) -> ClusterState:
    """Return the state without the fence of a drill."""
    zones = {zone: until for zone, until in state.zones.items() if zone != state.drill_zone}
    return replace(state, zones=zones, drill_zone="")


def _health(pool: AnyPool, group: NodeGroup, state: ClusterState, now: datetime) -> _Health:
    stored = state.groups.get(group.key, UNKNOWN)
    impaired = impaired_until(group, state.zones, now)
    own = own_state(group, stored, now, impaired, pool.settings.backoff)
    if own is State.PROBING and _retries_until(stored, now) is not None:
        own = State.FENCED
    unhealthy = group.status.unhealthy
    if unhealthy is not None and own in (State.HEALTHY, State.PROBING):
        # A check that has not read the nodes does not know if a node is being tried.
        may_probe = pool.settings.autoscaler and unhealthy.facts.get("tried") == 0
        probes = may_probe and now >= _probe_at(stored, now)
        own = State.PROBING if probes else State.UNHEALTHY
    return _Health(group, stored, impaired, own)


def _retries_until(state: GroupState, now: datetime) -> datetime | None:
    """Return until when a failing group stays fenced because a write was refused; None: no write was.

    Its stuck replicas are given up only while it is fenced. Without this, they would stay until the zone fails again,
    which takes MCM its whole creation timeout.
    """
    return held_until(state.contest.write_refused_at, now, _RETRIED_WITHIN) if state.is_failing else None


def _probe_at(state: GroupState, now: datetime) -> datetime:
    """Return when an autoscaler may order one node in an unhealthy group."""
    return (state.unhealthy_since or now) + PROBE_AFTER


def _may_grow(group: NodeGroup, state: State, *, autoscaler: bool) -> bool:
    """Return True if the group may get machines: Evenkeel writes it, or other controllers add machines to it.

    Nothing adds machines to a frozen group without an autoscaler. An autoscaler cannot add any while the group is
    paused, hibernated or being deleted, or while the cloud launches none.
    """
    return state is not State.FROZEN or (autoscaler and group.makes_machines)


def _states(healths: Sequence[_Health]) -> list[State]:
    """Return the state of each group, including the early probe, which depends on the other groups.

    If the early probe of a fenced group fails, the group is fenced anew. It probes early again only after another node
    has registered.
    """
    states = [health.own for health in healths]
    if State.FENCED in states and State.HEALTHY not in states:
        return [State.PROBING if health.own is State.FENCED and health.may_probe else health.own for health in healths]
    return states


def _draft(pool: AnyPool, health: _Health, state: State, now: datetime) -> Draft:
    group, stored = health.group, health.state
    timeout = machine_timeout(pool, group, stored, now)
    contest = stored.contest
    never_ready = group.status.never_ready
    draft = Draft(
        group,
        state,
        group.requested,
        group.bounds,
        pool_id=pool.id,
        provision_timeout=timeout,
        may_grow=_may_grow(group, state, autoscaler=pool.settings.autoscaler),
        pins=group.ours.pinned,
    )
    draft.health.contested = contest.contested_since is not None
    refused = [machine for machine in group.refused_machines if not machine.preserved]
    if never_ready or stored.marked or group.requested > group.running or refused:
        draft.machines = MachineCounts(
            coming=group.on_its_way(now, timeout),
            starting=sum(now < ready_by for ready_by in never_ready.values()),
            preserved=group.preserved,
            held=_held(refused),
            lost=_lost(refused, health, state, pool.settings.backoff, now),
            marked=stored.marked,
        )
    _set_limits(draft, contest)
    if state is not State.HEALTHY:
        _explain_state(draft, health, now)
    if health.slow_start:
        draft.limits[Rule.SLOW_START_MAX] = group.running - draft.machines.starting + health.slow_start
        draft.add_reason(Rule.SLOW_START, nodes=health.slow_start)
    if group.frozen_because is None and not draft.replicas_are_ours:
        _explain_replicas(draft, contest)
    return draft


def _set_limits(draft: Draft, contest: ContestHistory) -> None:
    """Set the limits and floors that the group's owner, other writers and its annotations give."""
    owner, annotations = draft.group.owner, draft.group.annotations
    if owner.allowed_replicas is not None:
        draft.limits[Rule.WORKER_SHARE] = owner.allowed_replicas.max
        draft.floors[Rule.WORKER_SHARE] = owner.allowed_replicas.min
    if owner.least_min:
        draft.floors[Rule.OWNER_MIN_MIN] = owner.least_min
    if owner.max_only or contest.contested_replicas or contest.replicas_applied_by:
        draft.floors[Rule.REPLICAS_OF_OTHERS] = draft.requested
    if annotations.zone_max is not None:
        draft.limits[Rule.ZONE_MAX] = annotations.zone_max
    if annotations.zone_min is not None:
        draft.floors[Rule.ZONE_MIN] = annotations.zone_min


def _explain_state(draft: Draft, health: _Health, now: datetime) -> None:
    failure = health.state.failure
    if draft.state is State.FROZEN:
        _freeze(draft, health.state.contest)
    elif draft.state is State.FENCED:
        _fence(draft, health, now)
    elif draft.group.status.unhealthy is not None:
        draft.reasons.append(draft.group.status.unhealthy)
        draft.health.fence_ends = held_until(_probe_at(health.state, now), now)
    else:
        is_early = failure.backoff_until is not None and now <= failure.backoff_until
        draft.health.doubted_since, draft.health.probes_slowly = failure.last_failure, health.starts_slowly
        draft.health.is_proven = health.state.fence_ended
        rule = Rule.PROBING_AFTER_ARRIVAL if is_early else Rule.PROBING_AFTER_BACKOFF
        rule = Rule.PROBING_AFTER_CHANGE if has_new_template(draft.group, failure) else rule
        is_former = health.state.fence_ended
        draft.add_reason(rule, **_facts(failure), **({} if is_former else _not_offered(draft, failure)))


def _held(refused: Sequence[Machine]) -> int:
    """Return the number of machines that report a quota or configuration failure, whatever the cause of the fence."""
    return sum([not class_of(machine.failure).moves_elsewhere for machine in refused if machine.failure is not None])


def _freeze(draft: Draft, contest: ContestHistory) -> None:
    group = draft.group
    if group.frozen_because is not None:
        draft.add_reason(Rule.FROZEN, why=group.frozen_because)
    elif contest.bounds_applied_by:
        draft.add_reason(Rule.FROZEN, why=_not_ours(group.owner.bounds_field, contest.bounds_applied_by))
    else:
        draft.add_reason(Rule.CONTESTED_BOUNDS, by=contest.contested_by, times=CONTEST_REVERTS)


def _fence(draft: Draft, health: _Health, now: datetime) -> None:
    group, failure = health.group, health.state.failure
    if (stopped := group.status.launches_stopped) is not None:
        draft.add_reason(Rule.LAUNCHES_STOPPED, why=stopped)
        return
    draft.health.moves_elsewhere = health.impaired_until is not None or failure.failure_class.moves_elsewhere
    ends = [end for end in (failure.backoff_until, health.impaired_until) if end is not None and end > now]
    draft.health.fence_ends = max(ends) if ends else _retries_until(health.state, now)
    within, since = GIVEN_UP_WITHIN.get(group.key.flavour), health.state.arrivals.waiting_since
    if within is not None and since is not None:
        # The wait begins with a check, which is later than the refusal that it has found.
        earliest = since - within
        draft.health.refused_since = next((report for report in failure.reports if report >= earliest), since)
    if group.ours.published is None or group.ours.published.state is not State.FENCED:
        draft.failed_at = failure.last_failure
    if health.impaired_until is not None:
        draft.add_reason(Rule.ZONE_IMPAIRED, zone=group.identity.zone, until=health.impaired_until)
    else:
        missing = _not_offered(draft, failure)
        draft.health.not_offered = bool(missing)
        until = draft.health.fence_ends or failure.backoff_until
        draft.add_reason(Rule.IN_BACKOFF, **_facts(failure), until=until, **missing)


def _lost(refused: Sequence[Machine], health: _Health, state: State, backoff: BackoffPolicy, now: datetime) -> int:
    """Return how many machines have failed for good in this zone, and have not come through a whole backoff."""
    final = [machine for machine in refused if machine.failed_for_good]
    before = _lost_before(health, state, backoff, now) if final else None
    if before is None or health.group.status.launched is not None:
        return 0
    return sum(
        class_of(machine.failure).moves_elsewhere and (machine.failure.at or machine.created_at) < before
        for machine in final
        if machine.failure is not None
    )


def _lost_before(health: _Health, state: State, backoff: BackoffPolicy, now: datetime) -> datetime | None:
    """Return the time before which failed machines have not come through a whole backoff; None: no backoff has passed.

    In a probing group, this is the end of its backoff. A fenced group may have failed anew only because these machines
    are late. There, it is a shortest backoff before the start of the present one.
    """
    failure = health.state.failure
    if failure.backoff_until is None or health.impaired_until is not None:
        return None
    if state is State.PROBING:
        return failure.backoff_until if now > failure.backoff_until else None
    is_fence = state is State.FENCED and health.group.status.launches_stopped is None
    length = backoff_after(failure.message, backoff).length(failure.failures)
    return failure.backoff_until - length - backoff.initial if is_fence else None


def _facts(failure: FailureHistory) -> Mapping[str, Fact]:
    words = provider_words(failure.message)
    return {"kind": failure.failure_class.value, "failures": failure.failures, **({"words": words} if words else {})}


def _not_offered(draft: Draft, failure: FailureHistory) -> Mapping[str, Fact]:
    """Return the zone if it does not offer the group's machine type."""
    zone = draft.group.identity.zone
    return {"not_offered": zone} if zone is not None and is_not_offered(failure.message) else {}


def _explain_replicas(draft: Draft, contest: ContestHistory) -> None:
    key = draft.group.key
    if draft.group.owner.max_only:
        draft.add_reason(Rule.REPLICAS_OF_KARPENTER)
    elif contest.replicas_applied_by:
        place = f"spec.replicas of {draft.group.identity.kind} {key.namespace}/{key.name}"
        draft.add_reason(Rule.REPLICAS_NOT_OURS, why=_not_ours(place, contest.replicas_applied_by))
    else:
        draft.add_reason(Rule.CONTESTED_REPLICAS, by=contest.contested_by, times=CONTEST_REVERTS)


def _not_ours(place: str, manager: str) -> Reason:
    """Return the reason for a field that another manager applies: this manager would revert Evenkeel's value."""
    return Reason.of(Rule.FIELD_NOT_OURS, place=place, manager=manager)
