"""Learned provision timeouts: how long the machines of a pool may take, from the times of its own machines.

With ``provision_timeout: auto``, the last 200 machines of a machine type and capacity type decide, from 50 on
(``ProvisionTimes.timeout``). Below that, and for machines without a known type, the 15 minutes stay. The timeout judges
an order, not a machine: an order is silent if none of its machines has joined (``waiting``). A lone machine waits 1.5
times as long, because it has no other machine that could join. Single instances and nodes keep the 15 minutes.

Machines are counted in the order of their creation, up to the oldest that is still awaited. So each counts once,
however often a check repeats, and slow machines count as well as quick ones. A machine that was given up counts with
1.5 times the timeout, because its own time is unknown.

    created before       counted now                 awaited    later
    ---------------------|----*-----*-------*--------|----------------> creation
                         counted until               counted until, from now on
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import CLOCKS_AGREE, KUBERNETES_SINCE, GroupKey, Machine, NodeGroup
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.plans import GroupPlan, PoolPlan
from evenkeel.domain.model.policy import TimeoutMode
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.provision_times import FEWEST, ProvisionTimes
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import GroupState, PoolState
from evenkeel.domain.rebalancing.health.waiting import is_awaited

_LONE = 1.5  # how much longer a lone machine waits, and what a machine that was given up counts
_KINDS_KEPT = 8  # of machines, for each pool
_NAME_KEPT = 128  # characters, so that the times of one kind stay small
_UNKNOWN = GroupState()
_NEVER = datetime.max.replace(tzinfo=UTC)


def kind_of(group: NodeGroup) -> str:
    """Return the machine type and capacity type, or else the machine template; empty: unknown."""
    return (group.template.machine_type or group.template.key)[:_NAME_KEPT]


def learned_timeout(pool: AnyPool, group: NodeGroup) -> timedelta | None:
    """Return the timeout that the group's machines have shown; None: the set timeout applies."""
    times = pool.state.replicas.provision_times.get(kind_of(group))
    return None if times is None or pool.settings.timeout_mode is not TimeoutMode.AUTO else times.timeout


def order_timeout(pool: AnyPool, group: NodeGroup, now: datetime) -> timedelta:
    """Return how long the group's present order may be silent. An owner's longer timeout applies."""
    most, learned = pool.timeout_of(group), learned_timeout(pool, group)
    if learned is None:
        return most
    late = [machine for machine in _awaited(group) if now - machine.awaited_from(now) >= learned]
    if len(late) + group.unmade <= 1:
        learned *= _LONE
    return min(most, max(learned, group.options.provision_timeout or timedelta(0)))


def machine_timeout(pool: AnyPool, group: NodeGroup, state: GroupState | None, now: datetime) -> timedelta:
    """Return the age from which a machine without a node is late: in a silent group, that of the silent order.

    A machine that was given up stays late, although it makes the learned timeout longer.
    """
    if not _is_silent(state):
        return pool.timeout_of(group)
    until = pool.state.replicas.counted_until.get(str(group.key))
    timeout = order_timeout(pool, group, now)
    is_given_up = until is not None and any(machine.awaited_from(now) < until for machine in _awaited(group))
    # A machine that was created at ``until`` was not given up.
    return min(timeout, now - until + timedelta.resolution) if is_given_up and until is not None else timeout


class Learned(NamedTuple):
    """The stored state of a pool after a check, and how many new nodes the check could not count."""

    state: PoolState
    untimed: int = 0


def learn(pool: AnyPool, check: Check, before: Mapping[GroupKey, GroupState], state: PoolState) -> Learned:
    """Return the pool's next state with the provision times of the machines that have joined or were given up.

    Args:
        pool: The pool.
        check: The check, with the states of the groups after it.
        before: The states of the groups before the check.
        state: The pool's next state without these times.
    """
    stored = state.replicas
    if pool.settings.timeout_mode is not TimeoutMode.AUTO:
        has_times = stored.provision_times or stored.counted_until
        return Learned(_with(state, {}, {}) if has_times else state)
    times, until, untimed = dict(stored.provision_times), dict(stored.counted_until), 0
    for group in pool.groups:
        kind, key = kind_of(group), str(group.key)
        if not (kind and group.machines) or _lacks_nodes(group, check):
            continue
        refused = before.get(group.key, _UNKNOWN).failure.refused
        found = _count(pool, group, check, until.get(key), refused)
        untimed += found.untimed
        if found.until is not None:
            times[kind] = times.get(kind, ProvisionTimes()).with_times(found.times)
            until[key] = found.until
    if until == stored.counted_until:
        return Learned(state, untimed)
    members, kinds = {str(group.key) for group in pool.groups}, set(map(kind_of, pool.groups))
    former = [kind for kind in times if kind not in kinds][: max(0, len(times) - _KINDS_KEPT)]
    times = {kind: found for kind, found in times.items() if kind not in former}
    until = {key: moment for key, moment in until.items() if key in members}
    return Learned(_with(state, times, until), untimed)


def _with(state: PoolState, times: Mapping[str, ProvisionTimes], until: Mapping[str, datetime]) -> PoolState:
    return replace(state, replicas=replace(state.replicas, provision_times=times, counted_until=until))


class _Found(NamedTuple):
    times: list[timedelta]
    until: datetime | None  # None: no machine was counted
    untimed: int


def _count(pool: AnyPool, group: NodeGroup, check: Check, since: datetime | None, refused: Collection[str]) -> _Found:
    """Return the times of the group's machines that can be counted now, in the order of their creation.

    The time of a machine that was ``refused`` says how long its zone had no capacity.
    """
    now, joined = check.now, _joined(group, check)
    silent = order_timeout(pool, group, now) if _is_silent(check.state.groups.get(group.key)) else None
    given_up = [machine for machine in _late(group, now, silent) if machine.failure is None]
    awaited = [machine for machine in _awaited(group) if machine not in given_up]
    awaited += [machine for machine in group.machines or () if machine.name in group.status.never_ready]
    # AWS creates the machines of an Auto Scaling group anew in every read, until they are in service.
    begun = [min(machine.created_at, machine.launched_at or machine.created_at) for machine in awaited]
    until = min([at for at in begun if _is_dated(at, now)], default=None)
    times, untimed = list[tuple[datetime, timedelta]](), 0
    for machine in group.machines or ():
        created, at = machine.created_at, joined.get(machine.name, _NEVER)
        is_joined = machine.has_node and machine not in awaited and machine.name not in refused
        if since is not None and created < since:
            continue
        if is_joined and not (_is_dated(created, now) and created <= at <= now + CLOCKS_AGREE):
            untimed += 1
        elif until is not None and created >= until:
            continue
        elif is_joined:
            times.append((created, at - created))
        elif machine in given_up and silent is not None and _is_dated(created, now):
            times.append((created, _LONE * silent))
    times.sort()
    if times and until is None:
        # Not now, because API servers write whole seconds: the next machine could seem to be older than now.
        until = times[-1][0] + timedelta.resolution
    return _Found([time for _, time in times], until if times else None, untimed)


def _joined(group: NodeGroup, check: Check) -> Mapping[str, datetime]:
    """Return when each machine has become a node. A node that was created later than its machine ran counts."""
    joined = {machine.name: machine.joined_at for machine in group.machines or () if machine.joined_at is not None}
    workload = check.observation.workload
    for node in workload.nodes if workload is not None else ():
        if node.group == group.key and node.machine is not None and node.created_at is not None:
            joined[node.machine.name] = max(node.created_at, joined.get(node.machine.name, node.created_at))
    return joined


def _lacks_nodes(group: NodeGroup, check: Check) -> bool:
    """Return True if only the nodes show which instances have joined, and this check has not read them."""
    orders = group.key.flavour == AUTO_SCALING and check.policy.demand.orders
    return orders and check.observation.workload is None


def _is_silent(state: GroupState | None) -> bool:
    return state is not None and state.is_failing and state.failure.failure_class is FailureClass.TIMEOUT


def _is_dated(at: datetime, now: datetime) -> bool:
    return at.year >= KUBERNETES_SINCE and at <= now + CLOCKS_AGREE


def _awaited(group: NodeGroup) -> list[Machine]:
    return [machine for machine in group.machines or () if is_awaited(machine)]


def _late(group: NodeGroup, now: datetime, timeout: timedelta | None) -> list[Machine]:
    return [] if timeout is None else [one for one in _awaited(group) if now - one.awaited_from(now) >= timeout]


def timeouts_of(plan: PoolPlan) -> list[Reason]:
    """Return which timeout holds for each kind of machine of a pool, and why."""
    found = [_timeout_of(group, plan.next_state) for group in sorted(plan.groups, key=lambda each: each.group.key)]
    return [reason for number, reason in enumerate(found) if reason not in found[:number]]


def _timeout_of(plan: GroupPlan, state: PoolState) -> Reason:
    kind, own = kind_of(plan.group), plan.group.options.provision_timeout or timedelta(0)
    times = state.replicas.provision_times.get(kind, ProvisionTimes())
    learned = times.timeout
    if learned is not None and own <= learned:
        lengths = {"timeout": learned, "p95": times.p95, "longest": times.longest}
        seconds = {name: int(length.total_seconds()) for name, length in lengths.items()}
        return Reason.of(Rule.TIMEOUT_LEARNED, type=kind, machines=times.count, **seconds)
    if learned is not None or own == plan.provision_timeout:
        return Reason.of(Rule.TIMEOUT_OF_OWNER, type=kind, timeout=int(own.total_seconds()))
    timeout = int(plan.provision_timeout.total_seconds())
    if times.count:
        return Reason.of(Rule.TIMEOUT_NOT_LEARNED, type=kind, timeout=timeout, machines=times.count, needed=FEWEST)
    return Reason.of(Rule.TIMEOUT_SET, type=kind, timeout=timeout)
