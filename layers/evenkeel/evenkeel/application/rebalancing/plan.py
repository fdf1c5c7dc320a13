"""Plan a cluster from its observation and its stored state, for a check, a run or a preview."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from evenkeel.application.errors import contained
from evenkeel.application.ports import Clock, Remaining, StoredCluster
from evenkeel.application.rebalancing.observe import observe, see_all_pods
from evenkeel.application.rebalancing.ports import Cluster, Clusters
from evenkeel.application.rebalancing.see_pods import SeePods, with_pods
from evenkeel.domain.fleet.check_times import SteadyState, is_unreachable
from evenkeel.domain.fleet.event_source import rests_until
from evenkeel.domain.incidents.health import evaluate
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.groups import CLOCKS_AGREE, GroupKey
from evenkeel.domain.model.holds import held_until
from evenkeel.domain.model.incidents import ClusterHealth
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import figures_of
from evenkeel.domain.plan import plan as make_plan
from evenkeel.record import ControlRecord
from evenkeel.texts.english import clock_text

_log = logging.getLogger("evenkeel.check")

# How long a group is not written after the API server has refused a write to it. If every check retried the
# write, plans with this group and plans without it would alternate, and each plan would revert the writes of the plan
# before.
_REFUSED_FOR = timedelta(minutes=5)
# A control without pauses, restores and fixes. Creating it this way does not build the schema at the import.
_FREE = ControlRecord()


@dataclass(frozen=True, kw_only=True)
class PlannedObservation:
    """A cluster's observation and plan.

    ``refused``: groups that Evenkeel froze after a refused write, with the API server's message.
    """

    api: Cluster
    observation: Observation
    plan: Plan
    refused: dict[GroupKey, str]

    def steady(self, stored: StoredCluster, now: datetime) -> SteadyState | None:
        """Return the steady state to store; None: the plan may change merely because time passes.

        A plan depends on the observation, the stored state and the time. If no stored state expires, no machine is
        pending and nothing is wrong, then the time has no effect. The same observation then always leads to the same
        plan. ``now`` is the time of Evenkeel's clock.
        """
        seen, plan = self.api.seen(), self.plan
        if not seen or not is_steady(stored, self.observation, plan):
            return None
        return SteadyState(
            at=plan.now,
            seen=seen,
            headroom=sum(pool.headroom for pool in plan.pools),
            imbalance=max((pool.imbalance for pool in plan.pools), default=0),
            figures=figures_of(plan.pools),
            rests_until=rest_of(stored, now),
        )


def rest_of(stored: StoredCluster, now: datetime) -> datetime | None:
    """Return until when the cluster rests if it is steady; None: it does not."""
    event = stored.event_check
    return None if event is None else rests_until(stored.record.scan_interval, event.source, event.at, now)


@dataclass(frozen=True, kw_only=True)
class ClusterObserver:
    """Reads and plans a cluster. ``consistent``: read the newest state, because writes follow."""

    clusters: Clusters
    clock: Clock
    dry_run: bool  # the default for records that do not set it
    consistent: bool = True
    _skews: dict[str, timedelta] = field(default_factory=dict)  # by cluster: the clock skew that was last logged

    def observe(
        self, stored: StoredCluster, remaining: Remaining, *, alone: bool = True
    ) -> tuple[Cluster, Observation]:
        """Read the cluster. Raises as ``observe.observe`` does."""
        # A check looks for unneeded nodes only if the record allows Evenkeel to remove nodes; `status` always looks for
        # them. While a group is unhealthy, each check must see whether its nodes are Ready again.
        is_unhealthy = any(group.unhealthy_since is not None for group in stored.state.groups.values())
        judges = stored.record.demand_stage.removes or is_unhealthy
        return observe(
            self.clusters,
            stored,
            remaining,
            self.clock.now,
            judges_nodes=judges,
            consistent=self.consistent,
            alone=alone,
        )

    def plan(
        self,
        stored: StoredCluster,
        observed: tuple[Cluster, Observation],
        refused: Mapping[GroupKey, str],
        remaining: Remaining,
        *,
        alone: bool = True,
    ) -> PlannedObservation:
        """Plan the cluster. ``refused``: groups whose writes were refused since the stored state was read.

        Raises as ``observe.observe`` does.
        """
        api, observation = observed
        now = self.clock.now() + observation.clock_skew
        self._log_skew(stored.record.id, observation.clock_skew)
        refused = {**_refused_lately(stored.state, now), **refused}
        observation = _with_frozen(observation, refused)
        see_pods = partial(see_all_pods, self.clusters, stored.record, api, remaining=remaining, alone=alone)
        paused = stored.control.is_paused(now)
        is_dry = stored.control.writes_nothing(stored.record, self.dry_run)
        policy = replace(stored.policy, is_paused=paused, is_dry=is_dry)
        observation, plan = planned(stored, policy, observation, now, see_pods)
        drill = stored.drill
        if drill is not None and drill.is_open(self.clock.now()) and observation.workload is None:
            observation = see_pods(observation)  # the drill counts the pods that wait
        plan = plan.of_paused if paused else plan
        return PlannedObservation(api=api, observation=observation, plan=plan, refused=refused)

    def _log_skew(self, cluster: str, skew: timedelta) -> None:
        """Log a clock skew once, and again if it changes."""
        if abs(skew - self._skews.get(cluster, timedelta(0))) <= CLOCKS_AGREE:
            return
        self._skews[cluster] = skew
        words = clock_text(skew) or "agrees with ours again"
        _log.warning("%s: its API server's clock %s", cluster, words, extra={"cluster": cluster})


def _refused_lately(state: ClusterState, now: datetime) -> dict[GroupKey, str]:
    return {
        key: group.contest.write_refused
        for key, group in state.groups.items()
        if held_until(group.contest.write_refused_at, now, _REFUSED_FOR) is not None
    }


def _with_frozen(observation: Observation, refused: Mapping[GroupKey, str]) -> Observation:
    """Return the observation with the refused groups frozen, so that the plan changes only other groups."""
    if not refused:
        return observation
    groups = tuple(
        group.frozen(Reason.of(Rule.WRITE_REFUSED, error=refused[group.key])) if group.key in refused else group
        for group in observation.groups
    )
    return replace(observation, groups=groups)


def planned(
    stored: StoredCluster,
    policy: Policy,
    observation: Observation,
    now: datetime,
    see_pods: SeePods,
) -> tuple[Observation, Plan]:
    """Return the observation and the plan made from it. Pods are read only if the plan depends on them."""
    make = partial(contained, stored.record.id, "it was planned")
    return with_pods(lambda seen: make(lambda: plan_for(stored, policy, seen, now)), observation, see_pods)


def plan_for(stored: StoredCluster, policy: Policy, observation: Observation, now: datetime) -> Plan:
    """Return the plan. If planning fails because of the workload, report the error and plan without the workload."""
    state = stored.state
    try:
        return make_plan(observation, state, policy, now)
    except Exception as error:  # if the workload is not the cause, ``make_plan`` below raises the error again
        if observation.workload is None:
            raise
        problem = f"{type(error).__name__} while it was judged: please report this"
    _log.error("%s: its workload: %s", stored.record.id, problem, extra={"cluster": stored.record.id})
    unread = Reason.of(Rule.WORKLOAD_UNJUDGED, error=problem)
    return make_plan(replace(observation, workload=None, workload_unread=unread), state, policy, now)


def is_steady(stored: StoredCluster, observation: Observation, plan: Plan) -> bool:
    """Return True if the plan has nothing to report, and cannot change merely because time passes."""
    state = stored.state
    ends = any(pool.next_state.parts for pool in plan.pools)
    awaited = any(group.machines is not None or group.requested != group.running for group in observation.groups)
    has_ends = state.groups or state.zones or state.scale_requests or stored.expired or stored.unfinished
    wrong = any(not pool.mode.valid or pool.report.starved or pool.report.overcommitted for pool in plan.pools)
    control = stored.control.model_copy(update={"live": None})  # this field does not expire
    # A quick check does not read pods, which may change while the node groups do not.
    awaited = awaited or is_unreachable(stored.unreachable) or stored.record.demand_stage is not DemandStage.OFF
    if control != _FREE or ends or awaited or has_ends or wrong or plan.check_at or plan.states:
        return False
    # Incidents are evaluated without their delay, because quick checks could not open an incident once its delay is
    # over.
    return stored.cluster_health.is_empty and not evaluate(ClusterHealth(), plan, state.groups, timedelta(0)).incidents
