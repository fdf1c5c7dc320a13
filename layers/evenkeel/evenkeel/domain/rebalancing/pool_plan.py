"""The plan of one pool: its draft, the steps that change the draft, and the result. Some pools are left unchanged."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache, partial

from evenkeel.domain.model.choices import Level
from evenkeel.domain.model.drafts import (
    BoundsDraft,
    ConvergenceDraft,
    Draft,
    PartsDraft,
    PoolDraft,
    PoolInput,
    ReplicasDraft,
    RequestDraft,
)
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import Bounds, PoolId, State
from evenkeel.domain.model.moves import FOR_PODS
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.parts import Parts
from evenkeel.domain.model.past_orders import PastOrder
from evenkeel.domain.model.plans import (
    ConvergencePlan,
    DemandPlan,
    PoolMode,
    PoolPlan,
    PoolReport,
    ReleasePlan,
    ReplicasPlan,
    RequestPlan,
)
from evenkeel.domain.model.pools import AnyPool, InvalidPool, Pool, rule_of
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import MemberSnapshot, PoolState, ReplicasState, changed
from evenkeel.domain.rebalancing.bounds.safety import stays_closed
from evenkeel.domain.rebalancing.capability import Capability, PlannedPool
from evenkeel.domain.rebalancing.health.states import assess, without_drill
from evenkeel.domain.rebalancing.membership.members import FoundMembers, created_again
from evenkeel.domain.rebalancing.replicas.release import not_reordered
from evenkeel.domain.rebalancing.replicas.thaw import reserved_after, thaw_note
from evenkeel.domain.rebalancing.restore import restore
from evenkeel.domain.rebalancing.steps import opening_steps, steps_of

# The delay of the next check after another controller has changed replicas. Cluster Autoscaler's loop takes 10 s. So a
# /scale patch that was in progress has arrived after this delay.
SECOND_CHECK = timedelta(seconds=15)
# The difference between the largest and the smallest zone from which a plan speaks about it. One node may be odd.
_UNEVEN = 2


class PoolPlanner:
    """Plans the pools of one check, one by one, with the steps of its capabilities.

    Args:
        check: The check.
        members: The members of all pools, compared with the last check.
        opened: The pools that are paused or in dry run, and whose bounds Evenkeel first opens to autoscalers.
        restored: The pools that are being restored.
        capabilities: The capabilities that plug into the plan of a pool.
    """

    def __init__(
        self,
        check: Check,
        members: FoundMembers,
        opened: Collection[PoolId],
        restored: Collection[PoolId],
        capabilities: Sequence[Capability],
    ) -> None:
        self._check = check
        self._members = members
        self._opened = opened
        self._restored = restored
        self._opening = opening_steps(capabilities)
        self._finishing = [capability.finish for capability in capabilities if capability.finish is not None]
        self._steps_of = cache(partial(steps_of, capabilities=capabilities))

    def plan(self, pool: AnyPool, given: PoolInput) -> PlannedPool:
        """Return the plan of one pool with this input."""
        planned = self._plan_steps(pool, given)
        plan, check_at = planned.plan, planned.check_at
        if plan.mode.opens:
            return planned
        is_restored = pool.id in self._restored
        plan = restore(plan, pool.state, self._check.observation, whole=is_restored)
        if is_restored:
            check_at = []
        for finish in self._finishing:
            plan, changes_at = finish(self._check, plan)
            if changes_at is not None:
                check_at = [*check_at, changes_at]
        return PlannedPool(pool, planned.draft, plan, check_at)

    def _plan_steps(self, pool: AnyPool, given: PoolInput) -> PlannedPool:
        check, now = self._check, self._check.now
        opens = pool.id in self._opened
        groups = assess(pool, without_drill(check.state) if opens else check.state, now)
        if check.state.drill_zone:
            for group in groups:
                group.health.is_drilled = check.state.drill_zone in group.group.identity.zone_names
        if isinstance(pool, InvalidPool):
            return PlannedPool(pool, None, _left_alone(pool, groups, Rule.POOL_INVALID), [])
        if (few := self._members.few.get(pool.id)) is not None:
            waiting = replace(pool, state=replace(pool.state, seen=few))
            return PlannedPool(pool, None, _left_alone(waiting, groups, Rule.FEW_MEMBERS), [few.second_check_at])
        snapshot, others_changed, grower = self._members.complete[pool.id]
        draft = PoolDraft(
            pool=pool,
            now=now,
            observation=check.observation,
            groups=groups,
            snapshot=snapshot,
            given=given,
            opens=opens,
            check_at=[now + SECOND_CHECK] if others_changed else [],
            bounds=BoundsDraft(grower=grower),
            request=RequestDraft(current=None if opens else given.request),
            convergence=ConvergenceDraft(state=pool.state.convergence),
            parts=PartsDraft(drafts=Parts(given.parts), stored=Parts(pool.state.parts)),
            replicas=ReplicasDraft(unplaced=pool.unplaced if opens else 0),
        )
        for step in self._opening if opens else self._steps_of(pool.settings.strategy):
            step(draft)
        # Only advice needs the draft. Otherwise it is not kept, because the garbage collector visits all that is kept.
        kept = draft if check.observation.workload is not None or check.observation.workload_unread else None
        return PlannedPool(pool, kept, to_plan(draft), draft.check_at)


def to_plan(draft: PoolDraft) -> PoolPlan:
    """Return the plan that a draft describes after its last step. Parts without content are the class's defaults."""
    pool = draft.pool
    plan = PoolPlan(
        id=pool.id,
        strategy=pool.settings.strategy,
        min=pool.min,
        max=pool.max,
        groups=tuple(draft.groups),
        next_state=_next_state(draft),
        known_as=pool.known_as,
        provision_timeout=pool.settings.provision_timeout,
        parts=draft.parts.results,
        asks_pods=draft.demand.asks_pods,
        report=PoolReport(
            problems=tuple(draft.problems),
            starved=draft.starved,
            overcommitted=draft.overcommitted,
            origins=pool.origins,
            notes=_notes(draft),
            contested=tuple([group.key for group in draft.groups if group.health.contested]),
            unmet_minimum=draft.replicas.missing,
            uncounted=sum([each.requested - each.target for each in draft.groups if not each.may_grow]),
        ),
        mode=PoolMode(
            dry_run=pool.dry_run, autoscaler=pool.settings.autoscaler, closes=_closes(draft), opens=draft.opens
        ),
    )
    replicas, request, convergence, demand = draft.replicas, draft.request, draft.convergence, draft.demand
    if replicas.added or replicas.unplaced or pool.unplaced:
        counts = bool(replicas.added) and pool.settings.max_step is not None
        plan.replicas = ReplicasPlan(
            unplaced_before=pool.unplaced,
            unplaced=replicas.unplaced,
            added=draft.added_lately + replicas.added if counts else 0,
        )
    if request.current is not None:
        plan.request = RequestPlan(current=request.current, missing=request.unmet, later=request.later)
    if convergence.step or convergence.report or convergence.asks or convergence.gives_to:
        plan.convergence = ConvergencePlan(
            step=convergence.step, report=convergence.report, asks=convergence.asks, gives_to=convergence.gives_to
        )
    if demand.asks_idle or draft.given.demand is not None:
        plan.demand = DemandPlan(asks_idle=demand.asks_idle, orders=_orders_after(draft))
    if draft.release.stored or draft.release.planned or draft.release.asks_waiting:
        plan.release = _release(draft)
    return plan


def _release(draft: PoolDraft) -> ReleasePlan:
    lacking, order_due = not_reordered(draft)
    return ReleasePlan(
        asks_waiting=draft.release.asks_waiting,
        planned=draft.release.planned,
        not_reordered=lacking,
        order_due=order_due,
    )


def _next_state(draft: PoolDraft) -> PoolState:
    state = draft.pool.state
    after = {
        "adopted": _adopted(draft),
        "seen": draft.snapshot,
        "published": draft.bounds.publication,
        "held_until": draft.bounds.held_until,
        "convergence": draft.convergence.state,
        "held_nodes": draft.given.held,
        "release": draft.release.stored,
        "orders": state.orders if draft.given.demand is None else draft.given.demand.orders,
        "parts": draft.parts.stored,
        "replicas": _replicas_after(draft, state.replicas),
    }
    if after.items() <= vars(state).items():
        return state
    return changed(state, **after)


def _replicas_after(draft: PoolDraft, before: ReplicasState) -> ReplicasState:
    requested, reserved = draft.request.requested_nodes, reserved_after(draft)
    if (requested, reserved) == (before.requested_nodes, before.reserved):
        return before
    return replace(before, requested_nodes=requested, reserved=reserved)


def _adopted(draft: PoolDraft) -> Mapping[str, Bounds | None]:
    """Return the adopted bounds, except those of groups that were created again: a former group had them.

    A known Auto Scaling group is read by name, so one that is absent does not exist any more.
    """
    adopted = draft.pool.state.adopted
    if draft.snapshot is draft.pool.state.seen:
        return adopted  # the groups are unchanged since the last check
    anew = created_again(draft.pool)
    if draft.pool.id.flavour == AUTO_SCALING:
        read = {group.key.name for group in draft.observation.groups}
        read |= {item.name for item in draft.observation.skipped}
        anew |= {key for key in adopted if key.rpartition("/")[2] not in read}
    return {key: bounds for key, bounds in adopted.items() if key not in anew} if anew else adopted


def _notes(draft: PoolDraft) -> tuple[Reason, ...]:
    pool = draft.pool
    notes = [] if pool.dry_run is None else [Reason.of(Rule.POOL_DRY_RUN if pool.dry_run else Rule.POOL_LIVE)]
    if draft.replicas.later and pool.settings.max_step is not None:
        notes.append(Reason.of(Rule.MAX_STEP, later=draft.replicas.later, max_step=pool.settings.max_step))
    if pool.settings.autoscaler and not any([group.owner.bounds_are_read for group in pool.groups]):
        owners = {group.owner.numbers.ref.id for group in pool.groups if group.owner.numbers is not None}
        # ``shared`` is 1 if some zones share one owner, and 0 if each zone has its own owner.
        notes.append(Reason.of(Rule.BOUNDS_UNREAD, shared=int(len(owners) < pool.zones)))
    managers = [group.owner.managed_by for group in pool.groups if group.owner.managed_by is not None]
    notes += [note for number, note in enumerate(managers) if note not in managers[:number]]
    notes += draft.parts.notes
    if draft.given.held:
        notes.append(Reason.of(Rule.HOLDS_NODES, nodes=sum(draft.given.held.values()), pool=pool.first_pools[0].name))
    notes += [note for note in (thaw_note(draft), _unevenness(draft)) if note is not None]
    return tuple(notes)


def _unevenness(draft: PoolDraft) -> Reason | None:
    """Return the difference between the zones if nothing levels them; None: they are level, or meant to differ.

    In an outage, the zones differ because of it, and a zone at its own maximum cannot catch up. Zones that only request
    different numbers may lack capacity, and zones that only run different numbers may be starting nodes.
    """
    settings = draft.pool.settings
    is_levelled = settings.level is not Level.OFF and (settings.level is Level.CONVERGE or settings.autoscaler)
    if is_levelled or draft.convergence.step is not None:
        return None
    requested: dict[str | None, int] = defaultdict(int)
    running: dict[str | None, int] = defaultdict(int)
    full = set()
    for each in draft.groups:
        if each.state is State.HEALTHY:
            zone = each.group.identity.zone
            requested[zone] += each.requested
            running[zone] += each.group.running
            if each.requested == each.group.annotations.zone_max:
                full.add(zone)
        elif each.writable:
            return None
    fewest, most = _range(running, full)
    if most - fewest < _UNEVEN:
        return None
    least, largest = _range(requested, full)
    if largest - least < _UNEVEN:
        return None
    notes = [each.group.annotations for each in draft.groups if each.state is State.HEALTHY]
    if len({note.weight for note in notes}) > 1 or any([note.weight_percent is not None for note in notes]):
        return None  # the zones are meant to differ
    return Reason.of(Rule.ZONES_DIFFER, nodes=most - fewest, fewest=fewest, most=most, level=settings.level.value)


def _range(nodes: Mapping[str | None, int], full: Collection[str | None]) -> tuple[int, int]:
    """Return the fewest and the most nodes of a zone. A full zone is not the one with the fewest."""
    most = max(nodes.values(), default=0)
    return min([count for zone, count in nodes.items() if zone not in full], default=most), most


def _closes(draft: PoolDraft) -> bool:
    """Return True if the bounds keep an autoscaler from ordering nodes once the plan is written."""
    was_closed = draft.pool.state.closed_at is not None
    return any([group.autoscaler.closes or (was_closed and stays_closed(group)) for group in draft.groups])


def _orders_after(draft: PoolDraft) -> Mapping[str, PastOrder] | None:
    request = draft.request.current
    is_order = request is not None and request.id == FOR_PODS and request.nodes > 0
    return draft.given.demand.orders_after if is_order and draft.given.demand is not None else None


def _left_alone(pool: AnyPool, drafts: list[Draft], rule: Rule) -> PoolPlan:
    """Return the plan that changes no group, for an invalid pool or a pool of which too few members were found."""
    for draft in drafts:
        draft.add_reason(rule)
    return PoolPlan(
        id=pool.id,
        strategy=pool.settings.strategy,
        min=pool.min,
        max=pool.max,
        groups=tuple(drafts),
        next_state=pool.state,
        known_as=pool.known_as,
        provision_timeout=pool.settings.provision_timeout,
        mode=PoolMode(valid=isinstance(pool, Pool), dry_run=pool.dry_run, judged=False),
        report=PoolReport(
            problems=(pool.problems if isinstance(pool, InvalidPool) else ()) + pool.warnings, origins=pool.origins
        ),
    )


def plan_absent(id: PoolId, snapshot: MemberSnapshot, check: Check) -> PoolPlan:
    """Return the plan of a stored pool without a member in this check.

    The plan applies until a second check also finds no member.
    """
    rule = rule_of(id, check.policy)
    return PoolPlan(
        id=id,
        strategy=check.policy.settings.strategy,
        next_state=replace(check.state.pools[id], seen=snapshot),
        mode=PoolMode(dry_run=None if rule is None else rule.dry_run, judged=False),
        report=PoolReport(notes=(Reason.of(Rule.FEW_MEMBERS),)),
    )
