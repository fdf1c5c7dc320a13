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

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import CLOCKS_AGREE, KUBERNETES_SINCE, GroupKey, Machine, NodeGroup
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.provision_times import FEWEST, SHORTEST, ProvisionTimes
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import UNKNOWN, GroupState, PoolState, changed
from evenkeel.domain.model.workload import Node, Workload
from evenkeel.domain.rebalancing.health.waiting import awaited, late

_LONE = 1.5  # how much longer a lone machine waits, and what a machine that was given up counts
_NAME_KEPT = 128  # characters, so that the times of one kind stay small


def kind_of(group: NodeGroup) -> str:
    """Return the machine type and capacity type, or else the machine template; empty: unknown."""
    return (group.template.machine_type or group.template.key)[:_NAME_KEPT]


def learned_timeout(pool: AnyPool, group: NodeGroup) -> timedelta | None:
    """Return the timeout that the times of the group's machines have taught; None: the set one applies."""
    times = pool.state.replicas.provision_times.get(kind_of(group))
    return None if times is None or pool.settings.timeout_mode != "auto" else times.timeout


def provision_time(pool: AnyPool, group: NodeGroup) -> timedelta:
    """Return within which time machines that the group orders may be expected to run: learned, else set."""
    most, learned = pool.timeout_of(group), learned_timeout(pool, group)
    return most if learned is None else min(most, max(learned, group.options.provision_timeout or timedelta(0)))


def order_timeout(pool: AnyPool, group: NodeGroup, now: datetime) -> timedelta:
    """Return how long the group's present order may be silent. An owner's longer timeout applies."""
    most, learned = pool.timeout_of(group), learned_timeout(pool, group)
    if learned is None:
        return most
    if len(late(group, now, learned)) + group.unmade <= 1:
        learned *= _LONE
    return min(most, max(learned, group.options.provision_timeout or timedelta(0)))


def machine_timeout(pool: AnyPool, group: NodeGroup, state: GroupState, now: datetime) -> timedelta:
    """Return the age from which a machine without a node is late: in a silent group, that of the silent order.

    A machine that was given up stays late, although it makes the learned timeout longer.
    """
    if not _is_silent(state):
        return pool.timeout_of(group)
    timeout, until = order_timeout(pool, group, now), _counted_until(pool, group, now + CLOCKS_AGREE)
    if until is None or all(machine.awaited_from(now) >= until for machine in awaited(group)):
        return timeout
    # A machine that was created at ``until`` was not given up, nor was one that is younger than any timeout.
    least = max(SHORTEST, group.options.provision_timeout or timedelta(0))
    return min(timeout, max(least, now - until + timedelta.resolution))


def _counted_until(pool: AnyPool, group: NodeGroup, latest: datetime) -> datetime | None:
    """Return until when the group's machines are counted; None: unknown, or after ``latest``: a clock was ahead."""
    until = pool.state.replicas.counted_until.get(str(group.key))
    return until if until is not None and until <= latest else None


def nodes_by_group(workload: Workload | None) -> Mapping[GroupKey, Sequence[Node]]:
    """Return the nodes of each group, so that no group has to look through the nodes of the others."""
    nodes: dict[GroupKey, list[Node]] = defaultdict(list)
    for node in workload.nodes if workload is not None else ():
        if node.group is not None:
            nodes[node.group].append(node)
    return nodes


def learn(
    pool: AnyPool,
    check: Check,
    before: Mapping[GroupKey, GroupState],
    nodes: Mapping[GroupKey, Sequence[Node]],
    state: PoolState,
) -> tuple[PoolState, int]:
    """Return the pool's state with the times of new machines. Also return how many new nodes have no usable times.

    The states of the groups in ``check`` are those after the check. ``nodes`` has the nodes of each group. ``state`` is
    the pool's next state without these times.
    """
    stored, untimed, learns = state.replicas, 0, pool.settings.timeout_mode == "auto"
    times, until = (stored.provision_times, stored.counted_until) if learns else ({}, {})
    found, seen = defaultdict[str, list[timedelta]](list), dict[str, datetime]()
    # A launch of an instance ends before its node joins. Without pending pods, a check reads only the names of nodes.
    needs_nodes = pool.id.flavour == AUTO_SCALING and check.policy.demand.orders
    workload, latest = check.observation.workload, check.now + CLOCKS_AGREE
    for group in pool.groups if learns and not (needs_nodes and (workload is None or not workload.nodes)) else ():
        new = _new_machines(pool, group, latest)
        if new and (kind := kind_of(group)):
            refused = before.get(group.key, UNKNOWN).failure.refused
            joined = _joined(new, nodes.get(group.key, ()))
            of_group, last, without = _count(pool, group, check, new, joined, refused)
            untimed += without
            if of_group:
                found[kind] += of_group
            if last is not None:
                seen[str(group.key)] = last
    if found:
        times = {**times, **{kind: times.get(kind, ProvisionTimes()).with_times(new) for kind, new in found.items()}}
    if seen:
        until = {**until, **seen}
    if (times, until) == (stored.provision_times, stored.counted_until):
        return state, untimed
    kinds, members = {kind_of(group) for group in pool.groups}, {str(group.key) for group in pool.groups}
    times = {kind: known for kind, known in times.items() if kind in kinds}
    until = {key: last for key, last in until.items() if key in members}
    return changed(state, replicas=replace(stored, provision_times=times, counted_until=until)), untimed


def _new_machines(pool: AnyPool, group: NodeGroup, latest: datetime) -> Sequence[Machine]:
    """Return the machines that no check has counted. In a quiet group, these are none."""
    machines, since = group.machines or (), _counted_until(pool, group, latest)
    return machines if since is None else [machine for machine in machines if machine.created_at >= since]


def _count(
    pool: AnyPool,
    group: NodeGroup,
    check: Check,
    new: Iterable[Machine],
    joined: Mapping[str, datetime],
    refused: Collection[str],
) -> tuple[list[timedelta], datetime | None, int]:
    """Return the new times in the order of the machines' creation, until when they count, and the nodes without times.

    The time of a machine that was ``refused`` says how long its zone had no capacity. A node without times counts as
    seen, so that it is reported once. None: no machine was seen.
    """
    now, latest, state = check.now, check.now + CLOCKS_AGREE, check.state.groups.get(group.key, UNKNOWN)
    silent = order_timeout(pool, group, now) if _is_silent(state) else timedelta.max
    waits = {machine.name for machine in awaited(group)}
    given_up = {machine.name for machine in late(group, now, silent) if machine.failure is None} if waits else set()
    waits = waits.difference(given_up).union(group.status.never_ready)
    coming = [machine for machine in group.machines or () if machine.name in waits] if waits else []
    # AWS creates the machines of an Auto Scaling group anew in every read, until they are in service.
    begun = [min(machine.created_at, machine.launched_at or machine.created_at) for machine in coming]
    until = min([at for at in begun if _is_dated(at, latest)], default=None)
    times, untimed = list[tuple[datetime, timedelta]](), list[datetime]()
    for machine in new:
        created, name = machine.created_at, machine.name
        if machine.has_node and name not in waits and name not in refused:
            at = joined.get(name) or machine.joined_at
            if at is None or created.year < KUBERNETES_SINCE or not created <= at <= latest:
                untimed.append(created)
            elif until is None or created < until:
                times.append((created, at - created))
        elif name in given_up and _is_dated(created, latest) and (until is None or created < until):
            times.append((created, _LONE * silent))
    times.sort()
    if until is None:
        # Not now, because API servers write whole seconds: the next machine could seem to be older than now.
        seen = [created for created, _ in times[-1:]] + [created for created in untimed if _is_dated(created, latest)]
        until = max(seen, default=datetime(KUBERNETES_SINCE, 1, 1, tzinfo=UTC)) + timedelta.resolution
    return [time for _, time in times], until if times or untimed else None, len(untimed)


def _joined(machines: Iterable[Machine], nodes: Sequence[Node]) -> Mapping[str, datetime]:
    """Return when the machines with these nodes have joined. A node that was created later than its machine ran counts.

    A node that is older than its machine shows that a restore or a move has created the Machine object anew.
    """
    joined: dict[str, datetime] = {}
    known = {machine.name: machine for machine in machines} if nodes else {}
    for node in nodes:
        machine = known.get(node.machine.name) if node.machine is not None else None
        if machine is not None and (at := node.created_at) is not None:
            known_at = joined.get(machine.name) or machine.joined_at or at
            joined[machine.name] = at if at < machine.created_at else max(at, known_at)
    return joined


def _is_silent(state: GroupState) -> bool:
    return state.failure.failure_class is FailureClass.TIMEOUT and state.is_failing


def _is_dated(at: datetime, latest: datetime) -> bool:
    return at.year >= KUBERNETES_SINCE and at <= latest


def timeouts_of(plan: PoolPlan) -> list[Reason]:
    """Return which timeout holds for each kind of machine of a pool, and why."""
    found = [_timeout_of(plan, group.group) for group in sorted(plan.groups, key=lambda each: each.group.key)]
    return [reason for number, reason in enumerate(found) if reason not in found[:number]]


def _timeout_of(plan: PoolPlan, group: NodeGroup) -> Reason:
    kind, own = kind_of(group), group.options.provision_timeout or timedelta(0)
    most, times = max(own, plan.provision_timeout), plan.next_state.replicas.provision_times.get(kind, ProvisionTimes())
    learned = times.timeout
    lone = most if learned is None else min(most, max(own, _LONE * learned))
    lengths = {"timeout": most if learned is None else max(own, learned), "lone": lone}
    if learned is None and own < most:
        return Reason.of(Rule.TIMEOUT_SET, type=kind, machines=len(times.letters), needed=FEWEST, **_seconds(lengths))
    if learned is None or own > learned:
        return Reason.of(Rule.TIMEOUT_OF_OWNER, type=kind, **_seconds(lengths))
    lengths |= {"p95": times.p95, "longest": times.longest}
    return Reason.of(Rule.TIMEOUT_LEARNED, type=kind, machines=len(times.letters), **_seconds(lengths))


def _seconds(lengths: Mapping[str, timedelta]) -> dict[str, int]:
    """Return the lengths in whole seconds. A lone machine that waits no longer than an order is not mentioned."""
    seconds = {name: int(length.total_seconds()) for name, length in lengths.items()}
    return {name: count for name, count in seconds.items() if name != "lone" or count > seconds["timeout"]}
