"""Evenkeel in a simulation: the deployed plan, its order of writes and its journal, on groups that are numbers.

A look and its patches take no time. What is written is read back from the same annotations as on real objects.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from evenkeel.application.words import problem_words, sentences
from evenkeel.cli.simulation.scenario import Scenario
from evenkeel.cli.simulation.world import Group, World
from evenkeel.domain.annotations import write_adopted, write_decision
from evenkeel.domain.bounds.balanced import BALANCED
from evenkeel.domain.health.backoff import record_failure
from evenkeel.domain.health.failures import classify
from evenkeel.domain.looks import Timer, next_timer
from evenkeel.domain.model.choices import OnFailure, Strategy
from evenkeel.domain.model.groups import MachineFailure, Observation
from evenkeel.domain.model.moves import Move
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.policy import Policy, PoolRule
from evenkeel.domain.model.states import ClusterState, GroupState, PoolState
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.plan import plan
from evenkeel.domain.writes import in_safe_order, patches


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What was decided for a pool, when it was news."""

    at: int
    pool: str
    reasons: tuple[str, ...]


def policy_of(scenario: Scenario, strategy: Strategy | None, *, autoscaler: bool) -> Policy:
    """The cluster's record; ``strategy`` takes the place of every pool's own."""
    default = OnFailure.RELEASE if autoscaler else OnFailure.MOVE
    return Policy(
        strategy=BALANCED,
        autoscaler=autoscaler,
        on_failure=default,
        provision_timeout=timedelta(seconds=scenario.evenkeel.provision_timeout),
        pools=tuple(
            PoolRule(
                name=pool.name,
                min=pool.min,
                max=pool.max,
                strategy=strategy or pool.strategy,
                on_failure=pool.on_failure or default,
            )
            for pool in scenario.pools
        ),
    )


class Evenkeel:
    """Its memory and its writes. ``look_again`` asks for a look after so many seconds."""

    def __init__(self, world: World, policy: Policy, look_again: Callable[[int], None]) -> None:
        self.state = ClusterState()
        self.patches = 0
        self.decisions: list[Decision] = []
        self._world = world
        self._policy = policy
        self._look_again = look_again
        self._timer: Timer | None = None
        self._groups = {group.key: group for group in world.groups}
        self._chance = random.Random(f"{world.scenario.seed}/ids")

    def hear(self, group: Group, failure: MachineFailure) -> None:
        """A failure event has arrived; a look follows it."""
        if failure.at is None:
            return
        known = self.state.groups.get(group.key, GroupState())
        kind = classify(failure.code, failure.message)
        after = record_failure(
            known, failure.at, kind, f"{failure.code}: {failure.message}", self._policy.backoff, now=self._world.time
        )
        self.state = replace(self.state, groups={**self.state.groups, group.key: after})

    def fence_zone(self, zone: str, until: int) -> None:
        """An operator has fenced a zone."""
        self.state = replace(self.state, zones={**self.state.zones, zone: self._world.moment(until)})

    def look(self) -> Plan:
        """One run: observe, plan, write, remember."""
        now = self._world.time
        observation = Observation(groups=tuple(self._world.observe(group) for group in self._world.groups))
        planned = plan(observation, self.state, self._policy, now)
        self.state = replace(
            self.state,
            groups={**self.state.groups, **planned.states},
            pools={**self.state.pools, **planned.pool_states},
        )
        written = self.patches
        for pool in planned.pools:
            known = self._write_down(pool)
            for patch in [patch for change in in_safe_order(pool.changes) for patch in patches(change)]:
                group = self._groups[patch.plan.group.key]
                why = "; ".join(sentences(patch.plan.reasons))
                if patch.bounds is not None:
                    group.bounds = patch.bounds
                    group.adopted = group.adopted or write_adopted(pool.adopted[str(group.key)])
                before = patch.plan.group.requested
                group.decision = write_decision(
                    patch.plan.offer,
                    now,
                    why,
                    group.bounds,
                    requested=before if patch.requested is None else patch.requested,
                    before=None if patch.requested is None else before,
                )
                if patch.requested is not None:
                    group.move = known.move.id if known.move and patch.plan.journal_delta else group.move
                    self._world.shrink(group, patch.requested)
                    self._world.order(group, patch.requested - group.requested)
                self.patches += 1
            for group_plan in pool.groups:
                self._groups[group_plan.group.key].state = group_plan.state
            self._close(pool, known)
        self._world.changed = True
        wrote = self.patches > written
        self._timer, seconds = next_timer(self._timer, now, wrote=wrote, doubtful=False, wanted=planned.look_at)
        if seconds is not None:
            self._look_again(seconds)
        return planned

    def _write_down(self, pool: PoolPlan) -> PoolState:
        """What must not be lost, before the first patch: the bounds before us, and a move that begins."""
        known = self.state.pools.get(pool.id, PoolState())
        if pool.changes:
            known = replace(known, adopted={**pool.adopted, **known.adopted})
        if pool.moves:
            id = ulid(self._world.time, self._chance.randbytes(10))
            known = replace(known, move=Move(id=id, unplaced=pool.unplaced_before, steps=pool.moves))
        return known

    def _close(self, pool: PoolPlan, known: PoolState) -> None:
        """Every step of a move is done: what is left of it is what found no place. News becomes a decision."""
        move = known.move
        if move is not None and pool.valid:
            move = replace(move, unplaced=pool.unplaced, steps={}) if pool.unplaced else None
        digest = pool.digest(applied=bool(pool.changes))
        if pool.changes or digest != known.digest:
            reasons = [f"{change.group.zone}: {'; '.join(sentences(change.reasons))}" for change in pool.changes]
            decision = Decision(
                at=self._world.now, pool=pool.id.name, reasons=(*map(problem_words, pool.problems), *reasons)
            )
            self.decisions.append(decision)
        known = replace(known, digest=digest, move=move)
        self.state = replace(self.state, pools={**self.state.pools, pool.id: known})
