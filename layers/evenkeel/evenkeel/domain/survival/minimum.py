"""The nodes of a pool that must survive the loss of any one zone, without knowledge of its pods.

After the loss, PoolMinimum must remain. Each zone's part of the fewest nodes with which that holds is its min. Every
rule that keeps nodes for ``evenkeel.dev/zone-min`` keeps these nodes, too.

- A zone's min is at most its nodes, and follows from the nodes of the other zones. So a pool that survives can always
  lose its spare nodes.
- While a zone is fenced or unhealthy, no node is ordered (``order_to_survive``). The pool has just lost that zone, and
  its pods need the room in the other zones. While a zone is fenced, unhealthy or probing, the zones keep only their
  shares of a level pool.
"""

from collections.abc import Sequence
from dataclasses import replace

from evenkeel.domain.model.demand import KeptEmpty
from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.holds import held_until
from evenkeel.domain.model.origins import POOL_MIN
from evenkeel.domain.model.problems import ProblemKind
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.rebalancing.replicas.changes import order
from evenkeel.domain.survival.causes import cap_of, causes_of, fixed_zones, lasting_obstacle
from evenkeel.domain.survival.counts import Share, fewest, rest
from evenkeel.domain.survival.model import HeldNodes, Survival, SurvivalDraft, SurvivalFacts
from evenkeel.domain.survival.setting import has_to_survive
from evenkeel.domain.survival.zone_loss import guard_zones


def set_survival_minima(pool: PoolDraft) -> None:
    """Set the min of each zone with which the pool survives the loss of another zone, or report that it cannot."""
    if not has_to_survive(pool.pool):
        return
    survival = SurvivalDraft(pool.parts.drafts.of(SurvivalFacts))
    pool.parts.drafts.put(SurvivalDraft, survival)
    if survival.facts is not None:
        _set_minima_for_pods(pool, survival, survival.facts)
        return
    fixed = [0 if lasting_obstacle(draft) is None else draft.requested for draft in pool.groups]
    minima = fewest(_shares(pool.groups, fixed), _least(pool))
    if not _is_possible(pool, minima) or minima is None:
        survival.result = Survival(possible=False)
        return
    if not any([draft.zone_fails or draft.state is State.PROBING for draft in pool.groups]):
        enough = _with_enough(pool, [draft.requested for draft in pool.groups])
        minima = fewest(_shares(pool.groups, fixed, enough), _least(pool)) or enough
    for draft, nodes in zip(pool.groups, minima, strict=True):
        draft.autoscaler.floors[Rule.SURVIVAL_MIN] = nodes


def _least(pool: PoolDraft) -> int:
    """Return PoolMinimum as it is set. A plan may raise it for some hours, which asks for no more after a loss."""
    return next((origin.value for origin in pool.pool.origins if origin.field == POOL_MIN), pool.pool.min)


def _set_minima_for_pods(pool: PoolDraft, survival: SurvivalDraft, facts: SurvivalFacts) -> None:
    """Set the min of each zone as the pods need it, and the nodes that a request to remove nodes must keep."""
    needs = pool.target + sum(facts.missing.values())
    survival.result = facts.result
    pool.request.pods_unread |= facts.result is None
    if facts.kept is not None and pool.request.kept is not None:
        pool.request.kept |= facts.kept
    if pool.pool.zones < 2:
        pool.problem(ProblemKind.SURVIVES_NO_ZONE)
        survival.result = Survival(possible=False)
    elif facts.missing and needs > pool.pool.max:
        pool.problem(ProblemKind.SURVIVAL_PAST_MAX, needs=needs, maximum=pool.pool.max, why=())
        survival.result = Survival(possible=False)
    elif full := [draft for draft in pool.groups if facts.missing.get(draft.key, 0) > cap_of(draft) - draft.requested]:
        zones = tuple(draft.group.identity.zone or "" for draft in full)
        pool.problem(ProblemKind.SURVIVAL_PAST_LIMITS, zones=zones)
        survival.result = Survival(possible=False)
    for draft in pool.groups if pool.pool.settings.autoscaler else ():
        published = 0 if draft.group.bounds is None else draft.group.bounds.min
        # While pods are not read, the published mins stay, so that no autoscaler removes a needed node meanwhile.
        least = published if facts.result is None else facts.minima.get(draft.key, 0)
        draft.autoscaler.mins[Rule.SURVIVAL_MIN] = least


def _is_possible(pool: PoolDraft, least: Sequence[int] | None) -> bool:
    """Report why the pool cannot survive. ``least``: the fewest nodes with which it can; None: its limits forbid it."""
    if pool.pool.zones < 2:
        pool.problem(ProblemKind.SURVIVES_NO_ZONE)
    elif least is None:
        pool.problem(ProblemKind.SURVIVAL_PAST_ZONES, minimum=_least(pool), why=fixed_zones(pool.groups))
    elif sum(least) > pool.pool.max and _short(pool, [draft.requested for draft in pool.groups]):
        needs, maximum, why = sum(least), pool.pool.max, fixed_zones(pool.groups)
        pool.problem(ProblemKind.SURVIVAL_PAST_MAX, needs=needs, maximum=maximum, why=why)
    else:
        return True
    return False


def order_to_survive(pool: PoolDraft) -> None:
    """Order the nodes without which the pool would not survive the loss of a zone.

    Each zone gets its share. A probing zone gets one machine. The rest of its share goes to no other zone.
    """
    survival = pool.parts.drafts.of(SurvivalDraft)
    if survival is None or not any(lacking := _lacking(pool, survival)):
        return
    raised = {} if any([draft.zone_fails for draft in pool.groups]) else _order(pool, lacking)
    survival.causes = causes_of(pool, lacking, raised)


def _order(pool: PoolDraft, lacking: Sequence[int]) -> dict[str, int]:
    """Order the nodes that each group lacks, as far as limits allow. Return by key how many each group gets."""
    takers = [
        (draft, min(draft.room_for_pods, nodes)) for draft, nodes in zip(pool.groups, lacking, strict=True) if nodes > 0
    ]
    if pool.free <= 0 or not any([most for _, most in takers]):
        return {}
    if not pool.may_raise:
        if pool.replicas.unchanged_since is not None:
            pool.check_at.append(pool.replicas.unchanged_since + pool.pool.standstill)
        return {}

    def why(_draft: Draft, more: int) -> Reason:
        return Reason.of(Rule.SURVIVAL_ORDER, count=more)

    ordered = order(pool, sum(most for _, most in takers), takers, why, weighted=True)
    pool.replicas.later = max(pool.replicas.later, ordered.later)
    return {draft.key: more for draft, more in ordered.raised}


def _lacking(pool: PoolDraft, survival: SurvivalDraft) -> list[int]:
    """Return the nodes that each group must get, so that the pool survives."""
    if survival.result is not None and not survival.result.possible:
        return []
    if survival.facts is not None:
        return [survival.facts.missing.get(draft.key, 0) for draft in pool.groups]
    enough = _with_enough(pool, [draft.requested for draft in pool.groups])
    return [nodes - draft.requested for nodes, draft in zip(enough, pool.groups, strict=True)]


def report_survival(pool: PoolDraft) -> None:
    """Set the result, with the reasons why zones get no node, and the nodes that stay for now."""
    facts, survival = pool.parts.drafts.of(SurvivalFacts), pool.parts.drafts.of(SurvivalDraft)
    pool.parts.stored.put(HeldNodes, None if facts is None else facts.held)
    if facts is not None:
        pool.demand.asks_pods = facts.result is None
        pool.demand.guard = guard_zones if pool.pool.zones > 1 else None
        _hold(pool, facts.held)
    if survival is None:
        return
    result = _result(pool) if survival.facts is None and survival.result is None else survival.result
    if survival.causes and result is not None:
        result = replace(result, causes=survival.causes)
    pool.parts.results.put(Survival, result)
    if result is not None and result.possible:
        pool.parts.notes.append(result.note)


def _hold(pool: PoolDraft, held: HeldNodes | None) -> None:
    """Keep the nodes that the pool lately needed to survive."""
    if held is None:
        return
    for draft in pool.groups:
        if nodes := held.nodes.get(draft.key, 0):
            pool.demand.kept_empty[draft.key] = KeptEmpty(nodes, Reason.of(Rule.HELD_TO_SURVIVE, nodes=nodes))
    if (until := held_until(held.drains_held_until, pool.now)) is not None:
        pool.demand.drains_held = Reason.of(Rule.DRAINS_HELD_TO_SURVIVE, until=until)


def _result(pool: PoolDraft) -> Survival:
    """Return by how many running nodes the pool is short of surviving, and how many it keeps for that."""
    running = [min(draft.requested, draft.group.running) for draft in pool.groups]
    short = _short(pool, running)
    if short:
        # With the next nodes, another zone may become the largest. So the pool may need more nodes than remain to be
        # replaced.
        short = max(short, sum(_with_enough(pool, running)) - sum(running))
    kept = sum(min(draft.autoscaler.floors.get(Rule.SURVIVAL_MIN, 0), draft.requested) for draft in pool.groups)
    return Survival(short=short, held=max(0, kept - _least(pool)))


def _short(pool: PoolDraft, nodes: Sequence[int]) -> int:
    """Return how many nodes of PoolMinimum are missing after the loss of the largest zone."""
    return max(0, _least(pool) - rest([draft.group.identity.zone or "" for draft in pool.groups], nodes))


def _with_enough(pool: PoolDraft, nodes: Sequence[int]) -> list[int]:
    """Return the nodes of each group after the fewest additions with which the pool survives."""
    enough = fewest(_shares(pool.groups, nodes), _least(pool))
    return list(nodes) if enough is None else enough


def _shares(drafts: Sequence[Draft], least: Sequence[int], most: Sequence[int] | None = None) -> list[Share]:
    """Return the nodes that each group may hold: at least ``least``, at most ``most``. None: the group's caps apply.

    A group that cannot get nodes holds ``least``.
    """
    return [
        Share(
            zone=draft.group.identity.zone or "",
            least=low,
            most=low if lasting_obstacle(draft) is not None else max(low, cap_of(draft) if most is None else most[i]),
            weight=draft.group.annotations.weight,
            tie=draft.tie,
        )
        for i, (draft, low) in enumerate(zip(drafts, least, strict=True))
    ]
