"""Relief: raise a Shoot's maximum while zones are dead, so that healthy zones may grow further, and lower it later.

Gardener divides a worker's maximum among its zones (``distribute_over_zones``). Cluster-autoscaler gets the shares as
its bounds, and each reconciliation of the Worker resets replicas to these shares. So while d of n zones are dead, the
healthy zones cannot grow beyond their shares. If R nodes still run in the dead zones, the healthy zones need shares
that add up to PoolMaximum - R. The least maximum with such shares is at most n * ceil((PoolMaximum - R) / (n - d)).
With this least maximum, the healthy zones' shares add up to exactly PoolMaximum - R.

    zones            healthy   dead        dead for 5 min, others at their shares   healthy, and all nodes fit
    Shoot's maximum  [ users' number ..... [ Evenkeel's number .................... [ users' number .......
                                           written; takes minutes                   written; takes minutes

Each write reconciles the whole Shoot and restarts cluster-autoscaler, which then forgets its backoffs. A lower maximum
deletes every node beyond its zone's share. So Evenkeel writes only if a zone is dead for some time and the healthy
zones have no room. It writes no maximum that would delete a node.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from evenkeel.domain.model.groups import GroupKey, OwnerRef, ShootWorker, State
from evenkeel.domain.model.holds import held_until
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.overwritten import Found, found
from evenkeel.domain.model.plans import GroupPlan, PoolPlan
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.domain.model.values import LARGEST_COUNT
from evenkeel.domain.rebalancing.bounds.distribute import distribute_over_zones
from evenkeel.domain.rebalancing.restore import is_restored
from evenkeel.domain.relief.model import SHOOT_RELIEF, Relief, ReliefStep, Shoot, Shoots

# How long a zone must be dead before a write, and the least time between two writes. It equals the first backoff, so
# that a short failure does not restart cluster-autoscaler. A write takes effect within this time.
PATIENCE = timedelta(minutes=5)
# After this time, Evenkeel retries a refused write, because the Shoot's generation does not show that a quota was
# raised.
_REFUSED_FOR = timedelta(hours=1)
# Gardener reconciles a Shoot at least once an hour. After this time, the Shoot's Worker has copied the last write.
_FOLLOWED = timedelta(hours=2)


def shares(maximum: int, zones: int) -> tuple[int, ...]:
    """Return each zone's share of a worker's maximum."""
    return tuple(distribute_over_zones(index, maximum, zones) for index in range(zones))


def least_that_keeps(replicas: Sequence[int]) -> int:
    """Return the least maximum at which no zone's share is below its replicas; 0: there are no replicas.

    Zone i of n has a share of at least r >= 1 if and only if the maximum is at least n * (r - 1) + i + 1.
    """
    zones = len(replicas)
    return max((zones * (count - 1) + index + 1 for index, count in enumerate(replicas) if count), default=0)


def least_that_suffices(nodes: int, zones: int, alive: Sequence[int]) -> int:
    """Return the least maximum at which the shares of the zones ``alive`` add up to ``nodes``.

    ``alive`` are indices of zones in ascending order. The sum is exact, because each further node raises one share by
    one.
    """
    if nodes <= 0:
        return 0
    rounds, last = divmod(nodes - 1, len(alive))
    return zones * rounds + alive[last] + 1


def shoots_asked_for(state: ClusterState, now: datetime) -> frozenset[str]:
    """Return the seed's namespaces whose Shoots a check has to read.

    These are the namespaces of pools with zones that are dead for ``PATIENCE``, or with a raised maximum.
    """
    return frozenset(
        id.namespace
        for id, pool in state.pools.items()
        if (relief := pool.parts.of(Relief)) is not None and (relief.begun or _ripe(relief, now))
    )


def relieve(check: Check, planned: PoolPlan) -> tuple[PoolPlan, datetime | None]:
    """Return the pool's plan with the Shoot's next maximum, and when it may change even if the cluster does not.

    If the record does not enable relief, or the pool is being restored, Evenkeel restores the users' maximum as soon as
    the restored maximum deletes no node.
    """
    policy, now, before = check.policy, check.now, planned.next_state.parts.of(Relief)
    restored = is_restored(planned.id, policy)
    on = SHOOT_RELIEF.of(policy.settings.own) and not restored
    if before is None and not on:
        return planned, None
    if not planned.mode.judged and not restored:
        return planned, None  # the list of groups may be incomplete, so the relief remains unchanged
    relief = _watched(planned, before, check.state.groups, now, on=on)
    if relief is None:
        return (planned if before is None else _storing(planned, None)), None
    if not relief.begun and not _ripe(relief, now):
        begins = min(relief.dead.values()) + PATIENCE
        waits = Reason.of(Rule.RELIEF_WAITS, zones=tuple(sorted(relief.dead)), until=begins)
        return _storing(planned, relief, waits), begins
    owner = _only_owner(planned)
    shoot = (check.observation.parts.of(Shoots) or Shoots()).of.get(planned.id.namespace)
    ended = Relief(dead=relief.dead) if relief.dead else None
    if shoot is None and relief.begun and _has_followed(relief, _copied(planned), now):
        return _storing(planned, ended), None
    if owner is None or not isinstance(shoot, Shoot):
        return _storing(planned, relief, _unknown(relief, shoot, owner)), None
    worker = shoot.worker(owner.part)
    if worker is None or (relief.begun and relief.owner != _id_of(shoot, worker)):
        return _storing(planned, ended), None  # a recreated Shoot or worker has no maximum that Evenkeel wrote
    return _Case(planned, shoot, worker, now, on).decide(relief)


def _id_of(shoot: Shoot, worker: ShootWorker) -> str:
    return replace(shoot.ref, part=worker.name).id


def _storing(planned: PoolPlan, relief: Relief | None, *notes: Reason | None) -> PoolPlan:
    added = tuple(note for note in notes if note is not None)
    next_state = planned.next_state
    if relief != next_state.parts.of(Relief):
        next_state = replace(next_state, parts=next_state.parts.plus(Relief, relief))
    return replace(planned, next_state=next_state, report=replace(planned.report, notes=planned.report.notes + added))


def _watched(
    planned: PoolPlan, before: Relief | None, health: Mapping[GroupKey, GroupState], now: datetime, *, on: bool
) -> Relief | None:
    """Return the relief to store, with the zones that are dead now; None: there is nothing to store."""
    known: Mapping[str, datetime] = {} if before is None else before.dead
    zones = (
        {plan.group.identity.zone for plan in planned.groups if _is_dead(plan, health.get(plan.group.key))}
        if on
        else set()
    )
    dead = {zone: known.get(zone, now) for zone in sorted(zone for zone in zones if zone)}
    if before is None:
        return Relief(dead=dead) if dead and _only_owner(planned) is not None else None
    relief = before if dead == before.dead else replace(before, dead=dead)
    return relief if dead or relief.begun else None


def _is_dead(plan: GroupPlan, state: GroupState | None) -> bool:
    """Return True if machines of the group fail for a reason that another zone may not have.

    An impaired zone may still deliver machines. Cluster-autoscaler does not know that the zone is impaired, and may
    order there. So only failing machines make a zone dead. A probing zone is dead until it delivers a machine.
    """
    fails = state is not None and state.is_failing and state.failure.failure_class.moves_elsewhere
    return fails and plan.state in (State.FENCED, State.PROBING)


def _ripe(relief: Relief, now: datetime) -> frozenset[str]:
    return frozenset(zone for zone, since in relief.dead.items() if now - since >= PATIENCE)


def _only_owner(planned: PoolPlan) -> OwnerRef | None:
    """Return the one worker that all groups of the pool belong to; None: there is no such worker, or more than one."""
    owners = {
        plan.group.owner.numbers.ref
        if plan.group.owner.numbers is not None and plan.group.owner.allowed_replicas is not None
        else None
        for plan in planned.groups
    }
    return owners.pop() if len(owners) == 1 else None


def _copied(planned: PoolPlan) -> int:
    """Return the maximum that the Worker has copied from the Shoot, which limits replicas; 0: there is no Worker."""
    return next(
        (plan.group.owner.numbers.bounds.max for plan in planned.groups if plan.group.owner.numbers is not None), 0
    )


def _has_followed(relief: Relief, copied: int, now: datetime) -> bool:
    """Return True if the Worker shows that its unreadable Shoot no longer has a maximum that Evenkeel wrote."""
    return copied not in relief.ours and held_until(relief.written_at, now, _FOLLOWED) is None


def _unknown(relief: Relief, shoot: Shoot | Reason | None, owner: OwnerRef | None) -> Reason | None:
    if owner is None:
        return Reason.of(Rule.RELIEF_NOT, why=Reason.of(Rule.RELIEF_NO_WORKER))
    if isinstance(shoot, Reason):
        return Reason.of(Rule.RELIEF_NOT, why=shoot)
    if relief.is_left:
        return Reason.of(Rule.RELIEF_LEFT, number=relief.last_known or max(relief.ours), wish=relief.user_max)
    return None


@dataclass(frozen=True)
class _Case:
    """One pool whose Shoot was read."""

    planned: PoolPlan
    shoot: Shoot
    worker: ShootWorker
    now: datetime
    on: bool  # False: relief is off, or the pool is being restored; Evenkeel then only keeps nodes and restores

    @property
    def place(self) -> str:
        return f"spec.provider.workers[{self.worker.name}].maximum of {self.shoot.ref}"

    def decide(self, relief: Relief) -> tuple[PoolPlan, datetime | None]:
        """Return the pool's plan with the next write, and when it may change even if the cluster does not."""
        relief, problems = self._with_found(relief)
        if self._is_over(relief):
            relief = Relief(dead=relief.dead)
            if not relief.dead:
                return self._finish(None, problems), None
        number, note = self._wanted(relief)
        if number is None or number == self.worker.maximum:
            return self._finish(relief, problems, note), None
        if (obstacle := self._obstacle(relief, number)) is not None:
            return self._finish(relief, problems, Reason.of(Rule.RELIEF_NOT, why=obstacle)), self._next(relief)
        planned = self._finish(relief, problems, note)
        return replace(planned, parts=planned.parts.plus(ReliefStep, self._step(relief, number))), None

    def _finish(self, relief: Relief | None, problems: Sequence[Problem], *notes: Reason | None) -> PoolPlan:
        planned = _storing(self.planned, relief, *notes)
        return replace(planned, report=replace(planned.report, problems=(*planned.report.problems, *problems)))

    def _next(self, relief: Relief) -> datetime | None:
        """Return until when the next write has to wait for the effect of the last write; None: no wait is needed."""
        return held_until(relief.written_at, self.now, PATIENCE)

    def _with_found(self, relief: Relief) -> tuple[Relief, list[Problem]]:
        """Return the relief after reading the Shoot, and a report if users have changed the maximum."""
        number = self.worker.maximum
        if not relief.begun or number == relief.last_known:
            return relief, []
        whose = found(number, relief.user_max, relief.ours)
        if whose is Found.THEIRS:
            # If an earlier check saw Evenkeel's maximum in the Shoot, users have reverted it. Otherwise a run ended
            # before it wrote Evenkeel's maximum.
            reverted_by_user = relief.reverted_by_user or relief.last_known is not None
            return replace(relief, last_known=number, reverted_by_user=reverted_by_user, restored=False), []
        if whose is Found.OURS:
            return replace(relief, last_known=number, restored=False), []
        # Evenkeel accepts a new maximum of the users. The wait for dead zones starts again, because a person is working
        # on the Shoot.
        dead = dict.fromkeys(relief.dead, self.now)
        renewed = replace(
            relief, user_max=number, last_known=number, dead=dead, restored=False, reverted_by_user=False, refused=None
        )
        report = Problem.of(ProblemKind.NEW_INTENT, owner=str(self.shoot.ref), min=self.worker.minimum, max=number)
        return renewed, [report]

    def _is_over(self, relief: Relief) -> bool:
        """Return True if neither the Shoot nor the Worker that copies it still has a maximum that Evenkeel wrote."""
        if not relief.begun or self.worker.maximum != relief.user_max or _copied(self.planned) in relief.ours:
            return False
        # Until every zone is healthy, Evenkeel remembers that users reverted its maximum, or that the garden refused
        # it.
        return not (relief.dead and (relief.reverted_by_user or relief.refused))

    def _wanted(self, relief: Relief) -> tuple[int | None, Reason | None]:
        """Return the maximum to write (None: no write), and the reason for it (None: nothing to report)."""
        replicas = self._replicas
        if replicas is None:
            return None, Reason.of(Rule.RELIEF_NOT, why=Reason.of(Rule.RELIEF_ZONES_DIFFER))
        found, keeps = self.worker.maximum, least_that_keeps(replicas)
        if self._is_urgent(relief) and keeps > found:
            return max(_copied(self.planned), keeps), Reason.of(
                Rule.RELIEF_KEEPS, place=self.place, least=keeps, wish=relief.user_max
            )
        ripe = _ripe(relief, self.now)
        if self.on and ripe:
            return self._raised(relief, replicas, ripe)
        if not relief.begun or found == relief.user_max:
            return None, None
        if self.on and any(plan.state is not State.HEALTHY for plan in self.planned.groups):
            return None, Reason.of(Rule.RELIEF_STANDS, place=self.place, number=found, wish=relief.user_max)
        if keeps > relief.user_max:
            return None, Reason.of(Rule.RELIEF_KEEPS, place=self.place, least=keeps, wish=relief.user_max)
        return relief.user_max, Reason.of(Rule.RELIEF_ENDS, place=self.place, number=found, wish=relief.user_max)

    def _raised(self, relief: Relief, replicas: Sequence[int], ripe: Collection[str]) -> tuple[int | None, Reason]:
        """Return the maximum with which the healthy zones can run the whole pool (None: no change), and the reason."""
        found, zones = self.worker.maximum, len(replicas)
        user_max = relief.user_max if relief.begun else found
        pool_max = user_max if self.planned.max is None else min(user_max, self.planned.max)
        left = {
            self.worker.zones.index(str(plan.group.identity.zone)): plan.group.running
            for plan in self.planned.groups
            if plan.group.identity.zone in ripe
        }
        standing = (
            Reason.of(Rule.RELIEF_STANDS, place=self.place, number=found, wish=user_max) if found != user_max else None
        )
        useless = self._no_use(relief, user_max, pool_max, replicas, left)
        if useless is not None:
            return None, standing or Reason.of(Rule.RELIEF_NOT, why=useless)
        # While a zone is dead, Evenkeel keeps the maximum that it has set, because it may need that maximum again.
        alive = [index for index in range(zones) if index not in left]
        enough = least_that_suffices(pool_max - sum(left.values()), zones, alive)
        number = min(LARGEST_COUNT, max(found, enough, least_that_keeps(replicas)))
        if self.shoot.most_nodes is not None and number > self.shoot.most_nodes:
            number = self.shoot.most_nodes
        if number <= found:
            return None, standing or Reason.of(Rule.RELIEF_NOT, why=Reason.of(Rule.RELIEF_AT_LIMIT, limit=number))
        dead = tuple(sorted(ripe))
        share = shares(number, zones)[alive[0]]
        raised = Reason.of(Rule.RELIEF_RAISES, place=self.place, found=found, number=number, zones=dead, share=share)
        return number, raised

    def _no_use(
        self, relief: Relief, user_max: int, pool_max: int, replicas: Sequence[int], left: Mapping[int, int]
    ) -> Reason | None:
        """Return why a higher maximum would not help, or is not wanted; None: it would help."""
        if relief.reverted_by_user:
            return Reason.of(Rule.RELIEF_PUT_BACK)
        if self.worker.minimum >= user_max:
            # Cluster-autoscaler does not scale a worker whose minimum equals its maximum. If this is true of all
            # workers, there is no autoscaler.
            return Reason.of(Rule.RELIEF_FIXED)
        healthy = [plan for plan in self.planned.groups if plan.state is State.HEALTHY]
        if not healthy:
            return Reason.of(Rule.RELIEF_NO_ZONE)
        may = shares(self.worker.maximum, len(replicas))
        alive = sum(share for index, share in enumerate(may) if index not in left)
        if alive >= pool_max - sum(left.values()):
            return Reason.of(Rule.RELIEF_SUFFICES, alive=alive)
        if any(self._is_tried(plan) for plan in self.planned.groups if plan.group.identity.zone in relief.dead):
            return Reason.of(Rule.RELIEF_TRIED)
        index_of = self.worker.zones.index
        if all(plan.group.requested < may[index_of(str(plan.group.identity.zone))] for plan in healthy):
            return Reason.of(Rule.RELIEF_ROOM)
        return None

    def _is_tried(self, plan: GroupPlan) -> bool:
        """Return True if a machine is provisioning in a zone whose backoff is over. The zone may deliver again."""
        coming = plan.group.on_its_way(self.now, plan.provision_timeout)
        return plan.state is State.PROBING and coming > 0

    @property
    def _replicas(self) -> tuple[int, ...] | None:
        """Return the replicas of each zone, in the worker's order; None: the zones and the groups do not match."""
        counts = dict.fromkeys(self.worker.zones, 0)
        zones = [plan.group.identity.zone for plan in self.planned.groups]
        if len(counts) != len(self.worker.zones) or len(set(zones)) != len(zones) or not set(zones) <= set(counts):
            return None
        for plan in self.planned.groups:
            counts[str(plan.group.identity.zone)] = max(plan.group.requested, plan.group.running, plan.requested)
        return tuple(counts.values())

    def _is_urgent(self, relief: Relief) -> bool:
        """Return True if Evenkeel has restored the users' maximum, and the Worker has not copied it yet.

        New nodes may register until first the Worker and then cluster-autoscaler have read the lower maximum. This
        maximum would delete those nodes.
        """
        return relief.restored and self.worker.maximum == relief.user_max and _copied(self.planned) in relief.ours

    def _obstacle(self, relief: Relief, number: int) -> Reason | None:
        """Return why this maximum cannot be written now; None: it can be written."""
        if self.shoot.obstacle is not None:
            return self.shoot.obstacle
        # If an interrupted run stored a raise but never wrote it, there is no effect to wait for.
        happened = relief.restored or self.worker.maximum != relief.user_max
        recently = happened and self._next(relief) is not None
        if (recently or not self.shoot.observed) and not self._is_urgent(relief):
            return Reason.of(Rule.RELIEF_UNDER_WAY)
        known = relief.refused
        if (
            known is not None
            and (known.number, known.generation) == (number, self.shoot.generation)
            and self.now - known.at < _REFUSED_FOR
        ):
            return Reason.of(Rule.RELIEF_REFUSED, number=number, said=known.message)
        return None

    def _step(self, relief: Relief, number: int) -> ReliefStep:
        """Return the write, with the relief to store before it and after it."""
        found = self.worker.maximum
        started = relief if relief.begun else replace(relief, owner=_id_of(self.shoot, self.worker), user_max=found)
        is_ours = number != started.user_max
        # Until the write arrives, the Shoot has the number that was found. The next check must not treat the users'
        # maximum as a revert.
        last_known = started.last_known if found != started.user_max else None
        before = replace(
            started,
            ours=tuple(dict.fromkeys((*started.ours, number))) if is_ours else started.ours,
            last_known=last_known if is_ours else number,
            written_at=self.now,
            restored=not is_ours,
        )
        after = replace(before, last_known=number, refused=None)
        return ReliefStep(
            name=f"{self.shoot.ref}, {self.worker.name}",
            shoot=self.shoot,
            worker=self.worker.name,
            maximum=number,
            before=before,
            after=after,
        )
