"""What a run and a look have in common: the cluster is read, and planned for with what is remembered of it."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from evenkeel.application.errors import contained
from evenkeel.application.offerings.sharing import is_affected
from evenkeel.application.ports import Clock, Remaining, StoredCluster
from evenkeel.application.rebalancing.observe import observe, see_all_pods
from evenkeel.application.rebalancing.plan import plan_for
from evenkeel.application.rebalancing.ports import Cluster, Clusters
from evenkeel.domain.fleet.check_times import SteadyState
from evenkeel.domain.incidents.health import evaluate
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.groups import CLOCKS_AGREE, GroupKey
from evenkeel.domain.model.incidents import ClusterHealth
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState
from evenkeel.record import ControlRecord
from evenkeel.texts.english import clock_words

_log = logging.getLogger("evenkeel.look")

SeePods = Callable[[Observation], Observation]
"""Adds to a look all that says which node may go and which pods wait, where that can be read."""

# A group whose write was refused is left alone for so long. Tried at every look, and planned around each time, its pool
# would be written to and fro.
_REFUSED_FOR = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True)
class PlannedObservation:
    """A cluster that was read, and its plan. ``refused``: groups that are planned around, with the API's words."""

    api: Cluster
    observation: Observation
    plan: Plan
    refused: dict[GroupKey, str]

    def settled(self, remembered: StoredCluster) -> SteadyState | None:
        """What is worth remembering of this look, where time alone changes nothing about its plan; else None.

        A plan follows from what was seen, what is remembered, and the time. Where nothing that is remembered has an
        end, no machine is waited for and nothing is wrong, the same sight is the same plan.
        """
        seen, plan = self.api.seen(), self.plan
        if not seen or not is_settled(remembered, self.observation, plan):
            return None
        return SteadyState(
            at=plan.now,
            seen=seen,
            zones=zones_of(self.observation),
            headroom=sum(pool.headroom for pool in plan.pools),
            imbalance=max((pool.imbalance for pool in plan.pools), default=0),
        )


@dataclass(frozen=True, kw_only=True)
class ClusterObserver:
    """The ports of whoever looks. ``consistent``: what is read must be the newest, since writes follow from it."""

    clusters: Clusters
    clock: Clock
    dry_run: bool  # of clusters whose record does not say
    consistent: bool = True
    _skews: dict[str, timedelta] = field(default_factory=dict)  # by cluster, as they were last logged

    def look(
        self, remembered: StoredCluster, remaining: Remaining, refused: Mapping[GroupKey, str]
    ) -> PlannedObservation:
        """Read and plan; ``refused`` are groups whose writes have been refused since the state was read.

        Raises:
            AccessError, ClusterUnavailableError: whatever went wrong, of any kind.
        """
        api, observation = self.observe(remembered, remaining)
        return self.plan(remembered, api, observation, refused, remaining)

    def observe(
        self, remembered: StoredCluster, remaining: Remaining, *, alone: bool = True
    ) -> tuple[Cluster, Observation]:
        """Read. ``alone``: as of ``open``. Raises as ``look``."""
        # What only would be told is read for those who ask, and not every minute.
        how = {
            "judges_nodes": remembered.record.demand_stage.removes,
            "consistent": self.consistent,
            "alone": alone,
        }
        return observe(self.clusters, remembered, remaining, self.clock.now, **how)

    def plan(
        self,
        remembered: StoredCluster,
        api: Cluster,
        observation: Observation,
        refused: Mapping[GroupKey, str],
        remaining: Remaining,
        *,
        alone: bool = True,
    ) -> PlannedObservation:
        """Plan. Raises as ``look``, and TooLargeError where others are looked at beside it."""
        now = self.clock.now() + observation.clock_skew
        self._log_skew(remembered.record.id, observation.clock_skew)
        refused = {**_refused_lately(remembered.state, now), **refused}
        observation = _without(observation, refused)
        see_pods = partial(see_all_pods, self.clusters, remembered.record, api, remaining=remaining, alone=alone)
        paused = remembered.control.is_paused(now)
        policy = replace(remembered.policy, is_paused=paused, is_dry=remembered.is_dry(self.dry_run))
        observation, plan = planned(remembered, policy, observation, now, see_pods)
        plan = plan.of_paused if paused else plan
        return PlannedObservation(api=api, observation=observation, plan=plan, refused=refused)

    def _log_skew(self, cluster: str, skew: timedelta) -> None:
        """Log once that two clocks differ, and again only where the difference is another."""
        if abs(skew - self._skews.get(cluster, timedelta(0))) <= CLOCKS_AGREE:
            return
        self._skews[cluster] = skew
        words = clock_words(skew) or "agrees with ours again"
        _log.warning("%s: its API server's clock %s", cluster, words, extra={"cluster": cluster})


def planned(
    remembered: StoredCluster,
    policy: Policy,
    observation: Observation,
    now: datetime,
    see_pods: SeePods,
) -> tuple[Observation, Plan]:
    """The plan, and what it was made from: pods are read only where it turns on them which machine may go."""
    make = partial(contained, remembered.record.id, "it was planned")
    return with_pods(lambda seen: make(lambda: plan_for(remembered, policy, seen, now)), observation, see_pods)


def with_pods(
    make: Callable[[Observation], Plan], observation: Observation, see_pods: SeePods
) -> tuple[Observation, Plan]:
    """Return the plan and what it is made from: pods are read only where it turns on them."""
    plan = make(observation)
    if plan.asks and (seen := see_pods(observation)) is not observation:
        return seen, make(seen)
    return observation, plan


def is_settled(remembered: StoredCluster, observation: Observation, plan: Plan) -> bool:
    """Whether time alone changes nothing about this plan, and nobody has to be told of anything in it."""
    state = remembered.state
    relief = any(pool.remembered.relief for pool in plan.pools)
    awaited = any(group.machines is not None or group.requested != group.running for group in observation.groups)
    has_ends = state.groups or state.zones or state.scale_requests or remembered.expired or remembered.is_unreachable
    wrong = any(not pool.valid or pool.starved or pool.overcommitted for pool in plan.pools)
    control = remembered.control.model_copy(update={"live": None, "rollout": ""})  # no end is near in those
    is_free = control == _FREE and not is_affected(remembered.record, state.offerings, zones_of(observation))
    # What is trouble where it lasts is so at once here: a glance does not see how long it has lasted.
    incident = (
        not remembered.cluster_health.is_empty or evaluate(ClusterHealth(), plan, state.groups, timedelta(0)).incidents
    )
    # Pods come and go while the node groups stand still: a glance at those does not see it.
    awaited = awaited or remembered.record.demand_stage is not DemandStage.OFF
    return is_free and not (relief or awaited or has_ends or wrong or incident or plan.look_at or plan.states)


def zones_of(observation: Observation) -> frozenset[str]:
    """The zones that a cluster's groups are in."""
    return frozenset(group.zone for group in observation.groups if group.zone)


_FREE = ControlRecord()  # nothing paused, restored or fixed


def _refused_lately(state: ClusterState, now: datetime) -> dict[GroupKey, str]:
    """The groups whose writes have just been refused, and why."""
    return {
        key: group.write_refused
        for key, group in state.groups.items()
        if group.write_refused_at is not None and now < group.write_refused_at + _REFUSED_FOR
    }


def _without(observation: Observation, refused: Mapping[GroupKey, str]) -> Observation:
    """The observation, with groups frozen that refuse to be written: the others are planned around them."""
    if not refused:
        return observation
    groups = tuple(
        group.frozen(Reason.of(Rule.WRITE_REFUSED, error=refused[group.key])) if group.key in refused else group
        for group in observation.groups
    )
    return replace(observation, groups=groups)
