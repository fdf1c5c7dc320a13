"""One look at a cluster for people: what is remembered, what stands there, what the plan would be."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from evenkeel.application.errors import BadRequestError, EvenkeelError
from evenkeel.application.observing import contained, in_trouble, observe_cluster
from evenkeel.application.ports import Clusters, Remaining, Remembered
from evenkeel.application.restoring import plan_for
from evenkeel.application.words import sentence
from evenkeel.config import ClusterRecord
from evenkeel.domain.membership.pausing import hold
from evenkeel.domain.membership.pools import find_pools
from evenkeel.domain.model.groups import PoolId
from evenkeel.domain.model.plans import GroupPlan, Plan, PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.pools import AnyPool, InvalidPool
from evenkeel.domain.model.values import near, shown


@dataclass(frozen=True, kw_only=True)
class Preview:
    """A cluster as a run would find it at ``now``."""

    remembered: Remembered
    plan: Plan
    pools: tuple[AnyPool, ...]  # as the plan found them
    now: datetime

    @property
    def record(self) -> ClusterRecord:
        """The cluster's record."""
        return self.remembered.record

    def pool(self, id: PoolId) -> AnyPool:
        """A pool of the plan, with all its numbers."""
        return next(pool for pool in self.pools if pool.id == id)


def preview_of(clusters: Clusters, remembered: Remembered, now: datetime, remaining: Remaining) -> Preview:
    """Raises AccessError, ClusterUnavailableError."""
    _, observation = observe_cluster(clusters, remembered.record, remaining, in_trouble(remembered.state))
    policy = remembered.policy
    pools, _ = find_pools(observation.groups, policy, remembered.state.pools)
    planned = contained(
        remembered.record.id,
        "it was planned",
        lambda: plan_for(remembered, observation, now),
    )
    known = {pool.id for pool in pools}
    pools += [_left(pool, policy) for pool in planned.pools if pool.id not in known]
    return Preview(
        remembered=remembered,
        plan=planned,
        pools=tuple(hold(pool, policy.paused, now) for pool in pools),
        now=now,
    )


def _left(planned: PoolPlan, policy: Policy) -> InvalidPool:
    """What a restore finds of a pool that has no members any more."""
    return InvalidPool(
        id=planned.id,
        groups=tuple(plan.group for plan in planned.groups),
        min=None,
        max=None,
        strategy=planned.strategy,
        on_failure=policy.on_failure,
        backoff=policy.backoff,
        provision_timeout=policy.provision_timeout,
        autoscaler=policy.autoscaler,
        problems=(),
    )


def find_pool(look: Preview, name: str) -> PoolPlan:
    """The pool of that name or id. Raises BadRequestError where there is none, or more than one."""
    found = [pool for pool in look.plan.pools if name in pool.id.names]
    if len(found) == 1:
        return found[0]
    names = sorted({pool.id.name for pool in look.plan.pools})
    raise BadRequestError(_unclear("pool", name, look, [str(pool.id) for pool in found], names))


def find_group(look: Preview, name: str) -> tuple[PoolPlan, GroupPlan]:
    """The node group of that name or key, with its pool. Raises BadRequestError, with the reason of a skipped one."""
    found = [(pool, group) for pool in look.plan.pools for group in pool.groups if name in group.group.key.names]
    if len(found) == 1:
        return found[0]
    for skipped in look.plan.skipped:
        if not found and name.rpartition("/")[2] == skipped.name:
            raise BadRequestError(
                f"group is {shown(name)}: {skipped.namespace}/{skipped.name} is skipped: {sentence(skipped.reason)}"
            )
    names = sorted({group.group.key.name for pool in look.plan.pools for group in pool.groups})
    raise BadRequestError(_unclear("group", name, look, [str(group.group.key) for _, group in found], names))


def check_pool(clusters: Clusters, remembered: Remembered, name: str, now: datetime, remaining: Remaining) -> None:
    """Raises BadRequestError where the cluster has no such pool.

    What the record and the state know is not looked for in the cluster: a pool can be paused while it cannot be read.
    """
    known = {rule.name for rule in remembered.record.policy().pools}
    known |= {text for id in remembered.state.pools for text in id.names}
    known |= {*remembered.control.paused_pools, *remembered.control.restoring_pools}
    if name in known:
        return
    try:
        look = preview_of(clusters, remembered, now, remaining)
    except EvenkeelError as error:
        raise BadRequestError(
            f"pool is {shown(name)}: no such pool is known{near(name, known)}, and the cluster cannot be read: {error}"
        ) from None
    if not any(name in pool.id.names for pool in look.plan.pools):
        find_pool(look, name)


def _unclear(what: str, name: str, look: Preview, found: list[str], names: list[str]) -> str:
    if found:
        return (
            f"{what} is {shown(name)}: {look.record.id} has {len(found)} of that name: name one of {', '.join(found)}"
        )
    known = f"it has {', '.join(names[:20])}" if names else "it has none"
    return f"{what} is {shown(name)}: {look.record.id} has no such {what}: {known}{near(name, names)}"


def ago(length: timedelta) -> str:
    """A length of time in words, in its largest unit."""
    seconds = int(length.total_seconds())
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            number = seconds // size
            return f"{number} {unit}{'' if number == 1 else 's'} ago"
    return "just now"
