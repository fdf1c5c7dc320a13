"""How many replicas each group should request: release, take-back, and the raise to PoolMinimum.

Cluster Autoscaler does none of the three: it keeps asking a dead zone until its timeout, never raises a group to a
minimum unless told to, and never lowers one to a maximum.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.groups import NodeGroup, State
from evenkeel.domain.model.values import LARGEST_COUNT
from evenkeel.domain.model.water_fill import Bucket, water_fill


@dataclass(kw_only=True)
class Target:
    """A group on its way from what is requested to what should be."""

    group: NodeGroup
    state: State
    requested: int
    moves_elsewhere: bool  # the failure's scope is the zone: other zones may take its stuck replicas
    tie: int
    coming: int = 0  # machines without a node that are on their way
    held: int = 0  # machines without a node that say themselves that another zone would fail the same way
    replicas_are_ours: bool = True  # False: somebody keeps putting them back
    journal_delta: int = 0  # replicas taken on from another zone or on request (negative: given up)
    may_remove_running: bool = False  # on request: running nodes may go as well
    stuck_kept: int = 0  # stuck replicas that stay because nobody healthy can take them
    reasons: list[str] = field(default_factory=list)

    @property
    def room(self) -> int:
        """How far the group may be raised: the operator's cap, and what the owner of the replicas lets stand."""
        if not self.replicas_are_ours:
            return 0
        cap = LARGEST_COUNT if self.group.zone_max is None else self.group.zone_max
        if self.group.worker_range is not None:
            cap = min(cap, self.group.worker_range.max)
        return max(0, cap - self.requested)

    @property
    def probe(self) -> int:
        """How far a probing group may grow: by one machine, unless one is on its way already."""
        return 0 if self.group.running < self.requested else 1

    @property
    def owner_min(self) -> int:
        """The least that the owner of the replicas lets stand."""
        if not self.replicas_are_ours:
            return self.requested
        return self.group.worker_range.min if self.group.worker_range else 0

    @property
    def alive(self) -> int:
        """Replicas that have a node, or a machine on its way to one."""
        return min(self.group.requested, self.group.running + self.coming)

    @property
    def stuck(self) -> int:
        """Replicas that neither run nor are on their way."""
        return self.group.requested - self.alive

    @property
    def missing(self) -> int:
        """Stuck replicas that nobody takes over: kept by a fence, or held although the group is tried again."""
        if self.state in (State.HEALTHY, State.PROBING):
            return min(self.held, self.stuck)
        return self.stuck_kept

    @property
    def is_held(self) -> bool:
        """Whether its replicas stay although its machines fail: another zone would fail the same way."""
        return self.state is State.FENCED and not self.moves_elsewhere


def _raise_level(targets: Sequence[Target], amount: int) -> list[tuple[Target, int]]:
    """Raise the targets by ``amount`` together, levelled, as far as there is room. Who was raised, and by how much."""
    buckets = [
        Bucket(level=target.requested, room=target.room, weight=target.group.weight, tie=target.tie)
        for target in targets
    ]
    raised = [(target, more) for target, more in zip(targets, water_fill(buckets, amount), strict=True) if more]
    for target, more in raised:
        target.requested += more
    return raised


def redistribute(
    targets: Sequence[Target],
    on_failure: OnFailure,
    maximum: int,
    owed: int,
    *,
    waits: bool = False,
    autoscaler: bool = False,
) -> int:
    """What is stuck in fenced groups goes elsewhere; returns how many of the ``owed`` replicas found no place.

    Release: Cluster Autoscaler forgets its order and places the pods in its next loop within the new bounds: measured,
    13 s from the patch to running pods, and nothing ordered twice. Move: the machines are ordered elsewhere by us, as
    many as there is room for. Either way, only replicas whose machine neither runs nor is on its way leave a group: one
    refused launch says nothing against those that boot beside it. A move ``waits`` where growth on request is under way
    in the pool: one journal tells one story.

    Beside an ``autoscaler`` a release leaves as many replicas as the owner of the bounds insists on offering: each that
    went would be ordered there again in its next loop, for as long as pods wait.
    """
    if not owed and not any(target.state is State.FENCED and target.stuck for target in targets):
        return 0
    takers = [target for target in targets if target.state is State.HEALTHY and target.room > 0]
    room = sum(target.room for target in takers)
    moving = on_failure is OnFailure.MOVE
    requested = sum(target.requested for target in targets)
    # What an interrupted move gave up comes first. What does not fit under PoolMaximum is no longer wanted.
    owed = min(owed, max(0, maximum - requested))
    placed = min(owed, room)
    offered = autoscaler and on_failure is OnFailure.RELEASE
    given = _give_up(targets, on_failure, room - placed if moving else None, waits=moving and waits, offered=offered)
    if moving:
        placed += min(given, max(0, maximum - (requested - given) - placed))
    for target, more in _raise_level(takers, placed):
        target.journal_delta = more
        target.reasons.append(f"takes on {more} replicas that another zone cannot deliver")
    return max(0, owed - placed)


def _give_up(targets: Sequence[Target], on_failure: OnFailure, room: int | None, *, waits: bool, offered: bool) -> int:
    """Fenced groups give up stuck replicas, ``room`` of them at most (None: no limit). Returns how many.

    ``offered``: but for those that the owner of the bounds insists on offering.
    """
    takers = any(target.state is State.HEALTHY and target.room > 0 for target in targets)
    given = 0
    for target in targets:
        stuck = target.stuck
        if target.state is not State.FENCED or not stuck:
            continue
        if on_failure is OnFailure.HOLD:
            target.reasons.append(f"{stuck} stuck replicas stay: evenkeel.dev/on-failure is hold")
        elif not target.moves_elsewhere:
            target.stuck_kept = stuck
            target.reasons.append(f"{stuck} stuck replicas stay: another zone would fail the same way")
        elif waits:
            target.reasons.append(f"{stuck} stuck replicas stay for now: growth on request is under way in the pool")
        elif not takers or (room is not None and given >= room):
            target.stuck_kept = stuck
            target.reasons.append(f"{stuck} stuck replicas stay: no healthy zone can take them")
        else:
            kept = min(stuck, target.held)
            if kept:
                target.stuck_kept = kept
                target.reasons.append(f"{kept} stuck replicas stay: another zone would fail the same way")
            lowest = max(target.alive + kept, min(target.owner_min, target.requested))
            if lowest > target.alive + kept:
                owner = f"the Worker wants {lowest} in this zone" if target.replicas_are_ours else "they are put back"
                target.reasons.append(f"{lowest - target.alive - kept} stuck replicas stay: {owner}")
            floor = min(target.group.owner_min_max, target.requested) if offered and target.group.fencing_enabled else 0
            if floor > lowest:
                target.stuck_kept += floor - lowest
                target.reasons.append(
                    f"{floor - lowest} stuck replicas stay: the owner of the bounds offers {floor} here whatever "
                    "happens, so Cluster Autoscaler would order them again"
                )
                lowest = floor
            if room is not None and target.requested - lowest > room - given:
                homeless = target.requested - lowest - (room - given)
                target.stuck_kept += homeless
                lowest += homeless
                target.reasons.append(f"{homeless} stuck replicas stay: no healthy zone can take them")
            if lowest < target.requested:
                word = "moved" if on_failure is OnFailure.MOVE else "released"
                coming = f" and the {target.coming} on their way" if target.coming else ""
                less = target.requested - lowest
                target.reasons.append(f"{word} {less} stuck replicas: the {target.group.running} running{coming} stay")
                given += less
                if on_failure is OnFailure.MOVE:
                    target.journal_delta = lowest - target.requested
                target.requested = lowest
    return given


def take_back_overshoot(targets: Sequence[Target], maximum: int, on_failure: OnFailure) -> None:
    """Above PoolMaximum, replicas without a running machine go, the newest first. What runs is left to scale-down.

    Those of fenced groups as well, unless they are held.
    """
    surplus = sum(target.requested for target in targets) - maximum
    if surplus <= 0:
        return
    before = [target.requested for target in targets]
    waiting: list[tuple[float, int, int]] = []
    for i, target in enumerate(targets):
        held = target.is_held or (target.state is State.FENCED and on_failure is OnFailure.HOLD)
        if target.state is State.FROZEN or held:
            continue
        spare = max(0, target.requested - max(target.group.running, target.owner_min))
        made = [m for m in target.group.machines or () if not m.has_node and not m.deleting]
        ages = sorted((machine.created_at.timestamp() for machine in made if not machine.preserved), reverse=True)
        # A replica that has not even a Machine object yet is the newest of all.
        newest = [float("inf")] * max(0, target.group.waiting - len(made)) + ages
        waiting += [(age, target.tie, i) for age in newest[:spare]]
    for _, _, i in sorted(waiting, reverse=True)[:surplus]:
        targets[i].requested -= 1
    for target, requested in zip(targets, before, strict=True):
        if target.requested < requested:
            target.reasons.append(
                f"took back {requested - target.requested} replicas without a machine: "
                f"the pool requests more than PoolMaximum {maximum}"
            )


def probe_the_unseen(targets: Sequence[Target], maximum: int) -> None:
    """A probing group at zero that Cluster Autoscaler cannot see gets the one machine of its probe from us.

    Without cpu and memory information a group at zero does not exist for it, whatever its max says
    (clusterapi_nodegroup.go:589-625).
    """
    for target in targets:
        unseen = target.state is State.PROBING and target.requested == 0 and target.group.invisible_at_zero
        if unseen and target.room and sum(other.requested for other in targets) < maximum:
            target.requested = 1
            target.reasons.append("raised to 1 to probe: at zero, Cluster Autoscaler does not see this group")


def raise_to_minimum(targets: Sequence[Target], minimum: int, maximum: int) -> int:
    """Below PoolMinimum, healthy groups are raised, levelled. Returns how many nodes could not be placed.

    What they cannot take is what a probing group is tried with: one machine each. ``maximum`` is PoolMaximum less what
    is spoken for.
    """
    requested = sum(target.requested for target in targets)
    missing = minimum - requested
    if missing <= 0:
        return 0
    why = f"the pool requests less than PoolMinimum {minimum}"
    allowed = max(0, min(missing, maximum - requested))
    healthy = [target for target in targets if target.state is State.HEALTHY]
    for target, more in _raise_level(healthy, allowed):
        missing -= more
        allowed -= more
        target.reasons.append(f"raised by {more}: {why}")
    probing = [target for target in targets if target.state is State.PROBING and target.probe and target.room]
    for target in sorted(probing, key=lambda target: (target.requested, target.tie))[:allowed]:
        missing -= 1
        target.requested += 1
        target.reasons.append(f"raised by 1 to probe: {why}, and no healthy zone can take it")
    return missing


def raise_to_own_minimum(targets: Sequence[Target], minima: Sequence[int], maximum: int) -> None:
    """Healthy groups below their own min are raised to it, as far as PoolMaximum allows.

    Backward-Compatible and Adaptive publish a min per zone; Cluster Autoscaler does not enforce it by default.
    """
    healthy = [i for i, target in enumerate(targets) if target.state is State.HEALTHY]
    allowed = maximum - sum(target.requested for target in targets)
    buckets = [
        Bucket(
            level=targets[i].requested,
            room=min(targets[i].room, max(0, minima[i] - targets[i].requested)),
            tie=targets[i].tie,
        )
        for i in healthy
    ]
    for i, more in zip(healthy, water_fill(buckets, allowed), strict=True):
        if more:
            targets[i].requested += more
            targets[i].reasons.append(f"raised by {more} to its own min {minima[i]}")
