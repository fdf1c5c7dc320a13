"""The health of a group after one check. It follows from failures in events, and from failures that only a check finds.

A machine's status may report a failure. A node that does not register in time counts as a failure, too (``waiting``).
A new machine with a node is a success. A frozen group is not evaluated, because machines wait by design in a rolling
update.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from evenkeel.domain.model.failures import FailureClass, class_of
from evenkeel.domain.model.flavours import READS_MAY_BE_OLD
from evenkeel.domain.model.groups import GroupKey, MachineFailure, NodeGroup, PublishedBounds, State
from evenkeel.domain.model.holds import held_until
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.overwritten import Found, found
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.reasons import ROLLOUTS, Rule
from evenkeel.domain.model.states import UNKNOWN, ClusterState, ContestHistory, FailureHistory, GroupState, changed
from evenkeel.domain.rebalancing.health.backoff import (
    impaired_until,
    observe_running,
    own_state,
    record_failure,
    state_at,
)
from evenkeel.domain.rebalancing.health.not_offered import follow_template
from evenkeel.domain.rebalancing.health.provision_times import order_timeout
from evenkeel.domain.rebalancing.health.slow_start import count_arrivals
from evenkeel.domain.rebalancing.health.unhealthy import with_unhealthy_since
from evenkeel.domain.rebalancing.health.waiting import (
    Clock,
    ended_unseen,
    late,
    late_failure,
    time_waited,
)

# Three reverts within an hour are not manual edits. Another writer, such as a GitOps tool or a controller, owns the
# field.
CONTEST_REVERTS = 3
CONTEST_WITHIN = timedelta(hours=1)

# An autoscaler that has not used a publication for so long does not read it. A loop of a large cluster takes a minute.
_UNREAD_AFTER = timedelta(minutes=3)

# The most stored announced failures per group (``announce_failure``). Few are enough, because several events report the
# same failure.
_ANNOUNCED_KEPT = 4

# The most stored names of failed machines per group. They are enough to recognize most machines that are relaunched.
_REFUSED_KEPT = 100


def changed_states(pools: Iterable[AnyPool], check: Check) -> dict[GroupKey, GroupState]:
    """Return the group states that this check changes."""
    stored = check.state.groups
    changes = {}
    for pool in pools:
        for key, after in _observed(pool, check):
            before = stored.get(key, UNKNOWN)
            if after is not before and after != before:  # an unchanged state mostly is the same object
                changes[key] = after
    return changes


def _observed(pool: AnyPool, check: Check) -> list[tuple[GroupKey, GroupState]]:
    """Return the state of each group after this check. Clocks whose end no check has seen fence no whole pool."""
    # Of a group whose launches cannot be read, only the stored state is known.
    groups = [
        group
        for group in pool.groups
        if group.frozen_because is None or group.frozen_because.rule is not Rule.LAUNCHES_UNREAD
    ]

    unseen = {group.key for group in groups if _ended_unseen(pool, group, check)}
    known = [group for group in groups if group.key not in unseen]
    states = {group.key: _after_check(pool, group, check) for group in known}
    others_deliver = not unseen or any(_delivers(pool, group, states[group.key], check) for group in known)
    for group in groups:
        if group.key in unseen:
            states[group.key] = _after_check(pool, group, check, others_deliver=others_deliver)
    return [(group.key, states[group.key]) for group in groups]


def _after_check(pool: AnyPool, group: NodeGroup, check: Check, *, others_deliver: bool = True) -> GroupState:
    stored, now, timeout = check.state, check.now, pool.timeout_of(group)
    before, of_sets = stored.groups.get(group.key, UNKNOWN), _of_sets(group, stored) if group.identity.sets else ()
    after = observe_nodeless(group, observe_reader(pool, group, observe_appliers(group, before)))
    backoff = pool.settings.backoff
    # A group without a wait has no order that could be silent.
    silent = order_timeout(pool, group, now) if group.requested > group.running else timeout
    after = observe_health(group, after, now, backoff, timeout, of_sets, silent, others_deliver=others_deliver)
    return count_arrivals(pool, group, before, with_unhealthy_since(group, after, now), now)


def _ended_unseen(pool: AnyPool, group: NodeGroup, check: Check) -> bool:
    if group.requested <= group.running:  # most groups
        return False
    state = check.state.groups.get(group.key, UNKNOWN)
    return ended_unseen(group, state.arrivals, check.now, order_timeout(pool, group, check.now))


def _delivers(pool: AnyPool, group: NodeGroup, state: GroupState, check: Check) -> bool:
    impaired = impaired_until(group, check.state.zones, check.now)
    own = own_state(group, state, check.now, impaired, pool.settings.backoff)
    return own is State.HEALTHY and group.status.unhealthy is None


def _of_sets(group: NodeGroup, state: ClusterState) -> list[GroupState]:
    keys = [GroupKey(group.key.flavour, group.key.namespace, name) for name in group.identity.sets]
    return [state.groups[key] for key in keys if key in state.groups]


def observe_health(  # noqa: PLR0913  the group and what is stored of it, the time, two durations, and its pool
    group: NodeGroup,
    state: GroupState,
    now: datetime,
    backoff: BackoffPolicy,
    provision_timeout: timedelta,
    of_sets: Sequence[GroupState] = (),
    order_timeout: timedelta | None = None,
    *,
    others_deliver: bool = True,
) -> GroupState:
    """Return the state after this check. If nothing has changed, this is ``state`` itself.

    ``of_sets`` are the states of the group's MachineSets. Their failures count as failures of the group. An order may
    be silent for ``order_timeout``; None: ``provision_timeout``. ``others_deliver``: another group is healthy.
    """
    if group.frozen_because is not None:
        return _stalled(group, state, now, provision_timeout)
    put_back = _is_put_back(group, now)
    status = group.status
    if state is UNKNOWN and not (
        put_back or of_sets or status.never_ready or status.autoscaler_failure is not None or group.waiting
    ):
        return state
    silent = order_timeout or provision_timeout
    clock, is_late = time_waited(group, state.arrivals, now, silent, others_deliver=others_deliver)
    after = observe_running(state, group.delivered, _launched_since(group, state.failure, now), now, backoff)
    if is_late:
        after = record_failure(after, now, *late_failure(group, silent), backoff, overrides=True)
    for at, kind, message, policy in _failures(group, state, now, backoff, provision_timeout, of_sets):
        if not policy.is_forgotten(at, now):
            after = record_failure(after, at, kind, message, policy, now=now)
    after = follow_template(group, state, after, now)
    contest = _put_back(group, state.contest, now) if put_back else state.contest
    is_failing = after.is_failing and state_at(after, now, backoff) is not State.HEALTHY
    return _with_facts(after, group, clock, contest, is_failing=is_failing)


def _with_facts(
    state: GroupState, group: NodeGroup, clock: Clock, contest: ContestHistory, *, is_failing: bool
) -> GroupState:
    """Return the state with all that does not depend on when failures were: clock, refused machines, other writers.

    If the group has failed in this check, nodes that register later are new.
    """
    failure, arrivals = state.failure, state.arrivals
    names = _refused_names(group, failure.refused) if is_failing else failure.refused
    if failure.announced or names != failure.refused:
        failure = changed(failure, announced=(), refused=names)
    seen = group.delivered if is_failing and arrivals.running_seen is None else arrivals.running_seen
    is_same = clock == (arrivals.waiting_since, arrivals.waiting_running) and seen == arrivals.running_seen
    if not is_same or arrivals.stalled_since is not None:
        since, running = clock
        arrivals = changed(
            arrivals, waiting_since=since, waiting_running=running, running_seen=seen, stalled_since=None
        )
    if failure is state.failure and arrivals is state.arrivals and contest is state.contest:
        return state
    return changed(state, failure=failure, arrivals=arrivals, contest=contest)


def _stalled(group: NodeGroup, state: GroupState, now: datetime, provision_timeout: timedelta) -> GroupState:
    """Return the state. ``stalled_since`` is set while a rollout is stalled: its launches fail, and nodes are missing.

    Evenkeel only reports a stalled rollout. The failures of its launches count as failures of the group only after the
    rollout has ended.
    """
    if state.arrivals.waiting_since is not None:
        state = replace(state, arrivals=replace(state.arrivals, waiting_since=None))
    rolls = group.frozen_because is not None and group.frozen_because.rule in ROLLOUTS
    refused = [machine.failure for machine in group.refused_machines if machine.failure is not None]
    fails = refused or state.is_failing or (rolls and late(group, now, provision_timeout))
    if not (rolls and fails and group.missing_in_rollout(now, provision_timeout)):
        if state.arrivals.stalled_since is None:
            return state
        return replace(state, arrivals=replace(state.arrivals, stalled_since=None))
    if state.arrivals.stalled_since is not None:
        return state
    if not state.is_failing:
        kind, text = late_failure(group, provision_timeout)
        if refused:
            kind, text = class_of(refused[0]), refused[0].text[:1024]
        state = replace(state, failure=replace(state.failure, failure_class=kind, message=text))
    return replace(state, arrivals=replace(state.arrivals, stalled_since=now))


def announce_failure(state: GroupState, failure: MachineFailure) -> GroupState:
    """Return the state with a failure that is dated later than the receiver's clock.

    The next check sets the time of the failure, because only a check has the API server's time. If a slow clock set the
    time of the failure, the fence would end at once.
    """
    known = [failure.at for failure in state.failure.announced]
    if failure.at in known or failure.at in state.failure.ahead or len(known) >= _ANNOUNCED_KEPT:
        return state
    announced = (*state.failure.announced, failure)
    return replace(state, failure=replace(state.failure, announced=announced))


def observe_appliers(group: NodeGroup, state: GroupState) -> GroupState:
    """Return the state with the field managers that apply the group's fields and would revert Evenkeel's writes.

    A run reads these managers before it writes. A check does not read them, and keeps the managers that the last run
    found.
    """
    bounds, replicas = group.managers.bounds_applied_by, group.managers.replicas_applied_by
    if bounds is None and replicas is None:
        return state
    contest = replace(
        state.contest,
        bounds_applied_by=state.contest.bounds_applied_by if bounds is None else bounds,
        replicas_applied_by=state.contest.replicas_applied_by if replicas is None else replicas,
    )
    return state if contest == state.contest else replace(state, contest=contest)


def observe_reader(pool: AnyPool, group: NodeGroup, state: GroupState) -> GroupState:
    """Return the state with the bounds that the autoscaler uses, if it does not follow those that Evenkeel has written.

    Its status must be newer than the last write by more than the time for which it keeps bounds. They count until it
    uses other bounds, or an operator resumes the group.
    """
    used, at = group.status.autoscaler_bounds, group.status.autoscaler_at
    if used is None or at is None:
        return state
    wrote, unread = group.ours.published, state.contest.unread_bounds
    if used == unread:
        return state
    after = max(_UNREAD_AFTER, pool.autoscaler_reads)
    is_late = wrote is not None and wrote.bounds == group.bounds != used and at - wrote.at > after
    if not is_late or not pool.settings.autoscaler:
        used = None  # it follows the written bounds, or may not have read them yet
    if used == unread:
        return state
    return replace(state, contest=replace(state.contest, unread_bounds=used))


def observe_nodeless(group: NodeGroup, state: GroupState) -> GroupState:
    """Return the state with the group's instances that have no Node."""
    if state.arrivals.nodeless == group.status.nodeless:
        return state
    return replace(state, arrivals=replace(state.arrivals, nodeless=group.status.nodeless))


def _failures(
    group: NodeGroup,
    before: GroupState,
    now: datetime,
    backoff: BackoffPolicy,
    provision_timeout: timedelta,
    of_sets: Sequence[GroupState],
) -> Iterator[tuple[datetime, FailureClass, str, BackoffPolicy]]:
    """Yield the failures of machines, autoscaler, events, nodes and MachineSets, with their backoff policy.

    Each never-Ready node, and each instance without a node, is one failure at one fixed time, however long it exists.
    The backoff for never-Ready nodes does not double, and is at most the provision timeout, because each attempt
    already takes the provision timeout. So Evenkeel soon detects that a broken bootstrap is fixed.
    """
    for machine in group.refused_machines:
        if machine.failure is not None:
            yield machine.failure.at or machine.created_at, class_of(machine.failure), machine.failure.text, backoff
    for failure in (group.status.autoscaler_failure, *before.failure.announced):
        if failure is not None and failure.at is not None:
            yield failure.at, class_of(failure), failure.text, backoff
    minutes = int(provision_timeout.total_seconds() // 60)
    for name, ready_by in sorted(group.status.never_ready.items()):
        if ready_by <= now:
            short = replace(backoff, longest=backoff.initial)
            message = f"machine {name} has a node that was not Ready within {minutes} min"
            yield ready_by - min(backoff.initial, provision_timeout), FailureClass.TIMEOUT, message, short
    for machine in group.dead_instances(now, provision_timeout):
        message = f"instance {machine.name} has been in service without a node for {minutes} min"
        yield machine.created_at + provision_timeout, FailureClass.TIMEOUT, message, backoff
    for of_set in of_sets:
        for at in of_set.failure.reports:
            yield at, of_set.failure.failure_class, of_set.failure.message, backoff


def _launched_since(group: NodeGroup, failure: FailureHistory, now: datetime) -> int | None:
    """Return how many machines with a node were launched or relaunched after the last failure; None: unknown.

    A machine that failed before and has a node now was relaunched. For all other machines, the creation time counts,
    because the time at which the provider finished does not show when the machine was requested.
    """
    if group.machines is None or failure.last_failure is None:
        return None
    no_nodes = {*group.status.never_ready, *group.status.nodeless}
    launches = [
        (machine.launched_at or now) if machine.name in failure.refused else machine.created_at
        for machine in group.machines
        if machine.has_node and not machine.deleting and machine.name not in no_nodes
    ]
    return sum(launch > failure.last_failure for launch in launches)


def _refused_names(group: NodeGroup, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the refused machines, and then those that are known to have been refused."""
    names = {machine.name for machine in group.refused_machines}
    if names <= set(known):
        return known
    return (*sorted(names), *[name for name in known if name not in names])[:_REFUSED_KEPT]


def _is_put_back(group: NodeGroup, now: datetime) -> bool:
    """Return True if another writer has reverted Evenkeel's last write. A read that may be older shows no revert."""
    wrote = group.ours.published
    if wrote is None:
        return False
    # Replicas count as reverted if they have their number before that write again.
    replicas = wrote.before is not None and found(group.requested, wrote.before, (wrote.requested,)) is Found.THEIRS
    if not (replicas or _bounds_put_back(group, wrote)):
        return False
    return not timedelta(0) <= now - wrote.at < READS_MAY_BE_OLD.get(group.key.flavour, timedelta(0))


def _bounds_put_back(group: NodeGroup, wrote: PublishedBounds) -> bool:
    if wrote.bounds is None or group.bounds is None:
        return False
    return group.bounds != wrote.bounds or group.ours.pinned != wrote.pinned


def _put_back(group: NodeGroup, contest: ContestHistory, now: datetime) -> ContestHistory:
    """Return the history after another writer has reverted a publication. Each publication counts once."""
    publication = group.ours.published
    if publication is None or publication.at in contest.reverts or contest.contested_since is not None:
        return contest
    reverts = (*(at for at in contest.reverts if now - at < CONTEST_WITHIN), publication.at)
    contested = len(reverts) >= CONTEST_REVERTS and now - reverts[0] < CONTEST_WITHIN
    replicas = contested and not _bounds_put_back(group, publication)
    return replace(
        contest,
        reverts=reverts,
        contested_since=now if contested else None,
        contested_by=(group.managers.replicas_by if replicas else _bounds_by(group, contest, now)) if contested else "",
        contested_replicas=replicas,
    )


def _bounds_by(group: NodeGroup, contest: ContestHistory, now: datetime) -> str:
    is_recent = held_until(contest.changed_at, now, CONTEST_WITHIN) is not None
    return contest.changed_by if is_recent else group.managers.bounds_by


def note_writer(state: GroupState, writer: str, at: datetime) -> GroupState:
    """Return the state after an event has named another writer of the bounds. Its event may be minutes late."""
    contest = state.contest
    if contest.changed_at is not None and at <= contest.changed_at:
        return state
    since = contest.contested_since
    caused = since is not None and not contest.contested_replicas and at <= since
    contested_by = writer if caused else contest.contested_by
    return replace(state, contest=replace(contest, changed_by=writer, changed_at=at, contested_by=contested_by))
