"""Read and plan a cluster for an operator's action; find its pools and groups by name."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self

from evenkeel.application.errors import BadRequestError, EvenkeelError
from evenkeel.application.ports import Remaining, StoredCluster
from evenkeel.application.rebalancing.observe import observe, see_all_pods
from evenkeel.application.rebalancing.ports import Clusters
from evenkeel.domain.model.groups import GroupKey, PoolId, State
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import GroupPlan, Plan, PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.pools import AnyPool, InvalidPool
from evenkeel.domain.model.states import UNKNOWN, GroupState
from evenkeel.domain.model.values import near, quote
from evenkeel.domain.rebalancing.health.not_offered import backoff_after
from evenkeel.domain.rebalancing.membership.pausing import freeze_paused
from evenkeel.domain.rebalancing.membership.pools import find_pools
from evenkeel.record import ClusterRecord
from evenkeel.state_records import zones_with_drill
from evenkeel.texts.english import sentence


@dataclass(frozen=True, kw_only=True)
class Preview:
    """A cluster as a run would find it now: its stored state, its pools and its plan."""

    stored: StoredCluster
    plan: Plan
    pools: tuple[AnyPool, ...]  # with PoolMinimum and PoolMaximum

    @classmethod
    def of(cls, stored: StoredCluster, observation: Observation, plan: Plan) -> Self:
        """Return the preview of an observation and its plan."""
        policy = stored.policy
        pools, _ = find_pools(observation.groups, policy, stored.state.pools)
        ids = {pool.id for pool in pools}
        pools += [_pool_without_members(pool, policy) for pool in plan.pools if pool.id not in ids]
        return cls(
            stored=stored,
            plan=plan,
            pools=tuple(freeze_paused(pool, policy.paused, plan.now) for pool in pools),
        )

    @property
    def now(self) -> datetime:
        """Return the time of the plan."""
        return self.plan.now

    @property
    def record(self) -> ClusterRecord:
        """Return the cluster's stored record."""
        return self.stored.record

    def state_of(self, key: GroupKey) -> GroupState:
        """Return the state of a group as a run would store it."""
        return self.plan.states.get(key) or self.stored.state.groups.get(key, UNKNOWN)

    def pool(self, id: PoolId) -> AnyPool:
        """Return the pool with this id, with PoolMinimum and PoolMaximum."""
        return next(pool for pool in self.pools if pool.id == id)

    def span(self, pool: PoolPlan, plan: GroupPlan) -> tuple[datetime | None, datetime | None]:
        """Return when a group's state began (None: unknown), and when it ends (None: it has no end)."""
        zones = zones_with_drill(self.stored.zones, self.stored.drill)
        state = self.state_of(plan.group.key)
        statements = [zones[name] for name in plan.group.identity.zone_names if name in zones]
        since: list[datetime] = []
        until: list[datetime] = []
        if plan.state is State.FENCED:
            skew = self.plan.clock_skew  # the statements have times of Evenkeel's clock
            for zone in statements:
                if self.now < zone.impaired_until + skew:
                    until.append(zone.impaired_until + skew)
                    since += [stated_at + skew] if (stated_at := zone.since(self.now - skew)) else []
            backoff_until = state.failure.backoff_until
            if backoff_until is not None and self.now <= backoff_until:
                until.append(backoff_until)
                backoff = backoff_after(state.failure.message, self.pool(pool.id).settings.backoff)
                since.append(backoff_until - backoff.length(state.failure.failures))
        else:
            is_unhealthy = plan.group.status.unhealthy is not None
            began = {
                State.PROBING: state.unhealthy_since if is_unhealthy else state.failure.backoff_until,
                State.FROZEN: state.contest.contested_since,
                State.UNHEALTHY: state.unhealthy_since,
                State.HEALTHY: state.arrivals.last_success,
            }[plan.state]
            since += [began] if began else []
        return min(since, default=None), max(until, default=None)


def preview_of(
    clusters: Clusters, stored: StoredCluster, now: datetime, remaining: Remaining, *, with_demand: bool = False
) -> Preview:
    """Read and plan a cluster. ``with_demand``: also read pods and nodes, if the record's ``demand`` needs them.

    Raises AccessError, ClusterUnavailableError.
    """
    # Here, because status_page needs no plan. Functions that plan import it at their start.
    from evenkeel.application.rebalancing.plan import planned

    judges = stored.record.demand_stage.judges_nodes if with_demand else None
    cluster, observation = observe(clusters, stored, remaining, lambda: now, judges_nodes=judges)

    def see_pods(seen: Observation) -> Observation:
        return see_all_pods(clusters, stored.record, cluster, seen, remaining) if with_demand else seen

    at = now + observation.clock_skew
    return Preview.of(stored, *planned(stored, stored.policy, observation, at, see_pods))


def _pool_without_members(planned: PoolPlan, policy: Policy) -> InvalidPool:
    """Return the pool of a plan if ``find_pools`` does not find it any more, as after a restore."""
    return InvalidPool(
        id=planned.id,
        groups=tuple(plan.group for plan in planned.groups),
        min=None,
        max=None,
        problems=(),
        settings=replace(policy.settings, strategy=planned.strategy),
    )


def find_pool(preview: Preview, name: str) -> PoolPlan:
    """Return the pool of that name or id. Raises BadRequestError if no pool or more than one pool matches."""
    matches = [pool for pool in preview.plan.pools if name in pool.id.names]
    if len(matches) == 1:
        return matches[0]
    names = sorted({pool.id.name for pool in preview.plan.pools})
    raise BadRequestError(_unclear("pool", name, preview, [str(pool.id) for pool in matches], names))


def find_group(preview: Preview, name: str) -> tuple[PoolPlan, GroupPlan]:
    """Return the node group of that name or key, with its pool. Raises BadRequestError if not exactly one matches."""
    matches = [(pool, group) for pool in preview.plan.pools for group in pool.groups if name in group.group.key.names]
    if len(matches) == 1:
        return matches[0]
    for skipped in preview.plan.skipped:
        if not matches and name.rpartition("/")[2] == skipped.name:
            reason = sentence(skipped.reason, skipped.flavour)
            raise BadRequestError(f"group is {quote(name)}: {skipped.namespace}/{skipped.name} is skipped: {reason}")
    names = sorted({group.group.key.name for pool in preview.plan.pools for group in pool.groups})
    raise BadRequestError(_unclear("group", name, preview, [str(group.group.key) for _, group in matches], names))


def check_pool(clusters: Clusters, stored: StoredCluster, name: str, now: datetime, remaining: Remaining) -> None:
    """Raise BadRequestError if the cluster has no such pool.

    The cluster is read only if neither its record nor its stored state has such a pool. So a known pool of an
    unreachable cluster can be paused.
    """
    names = {rule.name for rule in stored.record.policy().pools}
    names |= {text for id in stored.state.pools for text in id.names}
    names |= {*stored.control.paused_pools, *stored.control.restoring_pools}
    if name in names:
        return
    try:
        preview = preview_of(clusters, stored, now, remaining)
    except EvenkeelError as error:
        raise BadRequestError(
            f"pool is {quote(name)}: no such pool is known{near(name, names)}, and the cluster cannot be read: {error}"
        ) from None
    if not any(name in pool.id.names for pool in preview.plan.pools):
        find_pool(preview, name)


def _unclear(kind: str, name: str, preview: Preview, matches: list[str], names: list[str]) -> str:
    if matches:
        count = f"{preview.record.id} has {len(matches)} of that name"
        return f"{kind} is {quote(name)}: {count}: name one of {', '.join(matches)}"
    choices = f"it has {', '.join(names[:20])}" if names else "it has none"
    return f"{kind} is {quote(name)}: {preview.record.id} has no such {kind}: {choices}{near(name, names)}"
