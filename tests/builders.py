"""Builders of node groups, pools and states for all suites. A test names only the fields that matter to it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from evenkeel.domain.model.choices import OnFailure, Strategy
from evenkeel.domain.model.drafts import PoolDraft, PoolInput
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import (
    Bounds,
    GroupKey,
    Machine,
    MachineFailure,
    NodeGroup,
    OwnerNumbers,
    OwnerRef,
    PoolId,
    PublishedBounds,
    State,
)
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import GroupPlan, Plan, PoolPlan
from evenkeel.domain.model.policy import Policy, PoolRule
from evenkeel.domain.model.pools import Pool
from evenkeel.domain.model.problems import Problem
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState, GroupState, MemberSnapshot, PoolState
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.model.workload import Workload
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.annotations import read_published, write_published
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.health.states import assess
from evenkeel.domain.rebalancing.journal import closed, opened
from evenkeel.domain.rebalancing.membership.pools import find_pools
from evenkeel.domain.rebalancing.replicas.deletion import deletion_candidates
from evenkeel.texts.english import problem_text, sentences
from tests.parts import make, replace

NOW = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
POOL = "workers"


def key(zone: str, *, pool: str = POOL, namespace: str = "default", flavour: str = "cluster-api") -> GroupKey:
    return GroupKey(flavour, namespace, f"{pool}-{zone}")


def group(
    zone: str = "a",
    requested: int = 0,
    *,
    running: int | None = None,
    bounds: tuple[int, int] | None = None,
    pool: str | None = POOL,
    **fields: Any,
) -> NodeGroup:
    """Return a node group without bounds. By default, as many nodes run as are requested."""
    return make(
        NodeGroup,
        key=fields.pop("key", None) or key(zone, pool=pool or "loose"),
        kind=fields.pop("kind", "MachineDeployment"),
        pool_label=pool,
        zone=fields.pop("in_zone", zone),
        requested=requested,
        running=requested if running is None else running,
        bounds=None if bounds is None else Bounds(*bounds),
        **fields,
    )


def owned(zone: str, bounds: Bounds, *, requested: int = 0, uid: str = "", takes_ours: bool = True) -> NodeGroup:
    """Return a group whose bounds are on another object, its owner."""
    ref = OwnerRef(kind="MachineAutoscaler", namespace="default", name=zone, uid=uid or f"uid-{zone}")
    owner = OwnerNumbers(
        ref=ref, bounds=bounds, min_field="spec.minReplicas", max_field="spec.maxReplicas", takes_ours=takes_ours
    )
    return replace(group(zone, requested), bounds=bounds, owner=owner, two_objects=True, copied=bounds)


def stated(text: str) -> Reason:
    """Return a reason with this text."""
    return Reason.of(Rule.SAID, text=text)


def zones(
    requested: Sequence[int],
    running: Sequence[int] | None = None,
    bounds: Sequence[tuple[int, int]] | None = None,
    **fields: Any,
) -> list[NodeGroup]:
    return [
        group(
            "abcdefghijklmnop"[i],
            nodes,
            running=None if running is None else running[i],
            bounds=None if bounds is None else bounds[i],
            **fields,
        )
        for i, nodes in enumerate(requested)
    ]


def numbers(
    minimum: int | None = None,
    maximum: int | None = None,
    strategy: Strategy = BALANCED,
    on_failure: OnFailure = OnFailure.RELEASE,
) -> Policy:
    return make(
        Policy,
        strategy=BALANCED,
        pools=(PoolRule(name=POOL, min=minimum, max=maximum, strategy=strategy, on_failure=on_failure),),
    )


def drafted(groups: Iterable[NodeGroup], policy: Policy, state: ClusterState | None = None) -> PoolDraft:
    observation = Observation(groups=tuple(groups))
    (pool,), _ = find_pools(observation.groups, policy, {})
    assert isinstance(pool, Pool)
    return PoolDraft(
        pool=pool,
        now=NOW,
        observation=observation,
        groups=assess(pool, state or ClusterState(), NOW),
        snapshot=MemberSnapshot(since=NOW),
        given=PoolInput(),
    )


def in_backoff(failure_class: FailureClass = FailureClass.CAPACITY, *, failures: int = 1) -> GroupState:
    return make(
        GroupState,
        failures=failures,
        backoff_until=NOW + 4 * MINUTE,
        last_failure=NOW - MINUTE,
        failure_class=failure_class,
        reports=(NOW - MINUTE,),
    )


def after_backoff(
    failure_class: FailureClass = FailureClass.CAPACITY, *, running_seen: int | None = None
) -> GroupState:
    """Return a group whose backoff ends at NOW, without a success yet."""
    return make(
        GroupState,
        failures=1,
        backoff_until=NOW - MINUTE,
        last_failure=NOW - 6 * MINUTE,
        failure_class=failure_class,
        running_seen=running_seen,
        reports=(NOW - 6 * MINUTE,),
    )


def in_slow_start(nodes: int, *, running_seen: int) -> GroupState:
    """Return a group whose zone has delivered for a minute, and which may have so many machines under way."""
    return replace(after_backoff(), last_success=NOW - MINUTE, slow_start=nodes, running_seen=running_seen)


def machines(group: NodeGroup, *ages: timedelta) -> NodeGroup:
    """Return the group with its machines: the running ones, and for each age one without a node."""
    found = [
        Machine(name=f"{group.key.name}-run-{i}", has_node=True, created_at=NOW - timedelta(days=1))
        for i in range(group.running)
    ] + [Machine(name=f"{group.key.name}-new-{i}", has_node=False, created_at=NOW - age) for i, age in enumerate(ages)]
    return replace(group, machines=tuple(found))


def refused(group: NodeGroup, *ages: timedelta) -> NodeGroup:
    """Return the same, but the provider has refused the machines without a node."""
    failure = MachineFailure(code="InsufficientInstanceCapacity", message="no room")
    found = [
        machine if machine.has_node else replace(machine, failure=replace(failure, at=machine.created_at))
        for machine in machines(group, *ages).machines or ()
    ]
    return replace(group, machines=tuple(found))


def offered(maximum: int, state: State = State.HEALTHY) -> PublishedBounds:
    return PublishedBounds(at=NOW, bounds=Bounds(0, maximum), state=state)


def plan_of(
    groups: Iterable[NodeGroup],
    policy: Policy | None = None,
    *,
    fenced: Collection[str] = (),
    probing: Collection[str] = (),
    states: Mapping[GroupKey, GroupState] | None = None,
    impaired: Collection[str] = (),
    adopted: Mapping[PoolId, PoolState] | None = None,
) -> Plan:
    groups = list(groups)
    known = dict(states or {})
    known.update({found.key: in_backoff() for found in groups if found.identity.zone in fenced})
    known.update({found.key: after_backoff() for found in groups if found.identity.zone in probing})
    state = ClusterState(groups=known, pools=adopted or {}, zones=dict.fromkeys(impaired, NOW + 30 * MINUTE))
    return plan(Observation(groups=tuple(groups)), state, policy or make(Policy, strategy=BALANCED), NOW)


def pool_plan(groups: Iterable[NodeGroup], policy: Policy | None = None, **state: Any) -> PoolPlan:
    found = plan_of(groups, policy, **state)
    assert len(found.pools) == 1, f"expected one pool: {found.pools}, skipped {found.skipped}"
    return found.pools[0]


def maxima(found: PoolPlan) -> tuple[int, ...]:
    return tuple(plan.bounds.max for plan in found.groups if plan.bounds is not None)


def minima(found: PoolPlan) -> tuple[int, ...]:
    return tuple(plan.bounds.min for plan in found.groups if plan.bounds is not None)


def requested(found: PoolPlan) -> tuple[int, ...]:
    return tuple(plan.requested for plan in found.groups)


def reasons(found: PoolPlan, zone: str) -> str:
    """Return all reasons of one zone's group as one text."""
    return "\n".join(
        text for plan in found.groups if plan.group.identity.zone == zone for text in sentences(plan.reasons)
    )


def written(
    planned: GroupPlan, adopted: Bounds | None = None, now: datetime = NOW, move: str | None = None
) -> NodeGroup:
    """Return the group as the next check reads it after its patch: bounds, replicas and annotation.

    Where replicas were lowered, the marked machines are gone; others keep running. ``adopted`` is the new value of the
    annotation of that name.
    """
    if not planned.changes:
        return planned.group
    before = planned.group
    if planned.leaves:
        gone = {"adopted": None, "has_adopted": False, "published": None, "move": None}
        return replace(before, bounds=planned.bounds, pinned=False, **gone)
    left = before.machines
    if left is not None and planned.requested < before.requested:
        going = deletion_candidates(
            left, planned.requested, may_remove_running=False, provision_timeout=planned.provision_timeout, now=now
        )
        left = tuple(machine for machine in left if machine.name not in going)
    published = PublishedBounds(
        at=now,
        bounds=planned.bounds,
        state=planned.state,
        requested=planned.requested,
        before=before.requested if planned.requested != before.requested else None,
        pinned=planned.pins,
    )
    decision = write_published(published, planned.requested, "; ".join(sentences(planned.reasons)))
    return replace(
        before,
        requested=planned.requested,
        bounds=planned.bounds,
        pinned=planned.pins,
        machines=left,
        adopted=adopted,
        has_adopted=True,
        published=read_published(decision),
        move=move if move and planned.journal_delta else before.ours.move,
    )


def applied(found: Plan, state: ClusterState, now: datetime = NOW) -> tuple[Observation, ClusterState]:
    """Return the groups after every patch of a plan, and the state then. Groups outside pools are left out."""
    id = ulid(now, bytes(10))
    return (
        Observation(
            groups=tuple(
                written(planned, pool.adopted.get(str(planned.group.key)), now, id)
                for pool in found.pools
                for planned in pool.groups
            )
        ),
        replace(
            state,
            groups={**state.groups, **found.states},
            pools={**state.pools, **{pool.id: closed(pool, opened(pool, id)) for pool in found.pools}},
        ),
    )


def remembered(state: ClusterState, found: Plan) -> ClusterState:
    """Return the state after a check that stores its observations and writes nothing."""
    return replace(state, groups={**state.groups, **found.states}, pools={**state.pools, **found.pool_states})


@dataclass
class Played:
    """A pool over several checks. Each check's plan is written and stored before the next check."""

    groups: list[NodeGroup]
    policy: Policy
    state: ClusterState = field(default_factory=ClusterState)
    now: datetime = NOW
    seen: Plan | None = None  # of the last check
    workload: Workload | None = None  # of the next check

    def check(self, seconds: float = 0, /, **others: int) -> PoolPlan:
        """Check after so many seconds. ``others``: requested nodes by zone, set by another writer; all of them run."""
        self.now += timedelta(seconds=seconds)
        self.groups = [
            replace(found, requested=others[found.identity.zone], running=others[found.identity.zone])
            if found.identity.zone in others
            else found
            for found in self.groups
        ]
        self.seen = plan(
            Observation(groups=tuple(self.groups), workload=self.workload), self.state, self.policy, self.now
        )
        (pool,) = self.seen.pools
        observation, self.state = applied(self.seen, self.state, self.now)
        self.groups = list(observation.groups)
        return pool

    def next_check(self) -> float | None:
        moment = self.seen.check_at if self.seen else None
        return None if moment is None else (moment - self.now).total_seconds()


def problems_of(problems: Iterable[Problem]) -> tuple[str, ...]:
    return tuple(map(problem_text, problems))


def json_values(*scalars: st.SearchStrategy[Any], keys: st.SearchStrategy[str] | None = None) -> st.SearchStrategy[Any]:
    """Return any JSON values, with further scalars. Objects have these keys, or any."""
    leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), *scalars)
    names = st.text(max_size=8) if keys is None else keys
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4), max_leaves=8
    )


def change_one_value(data: st.DataObject, document: Any) -> None:
    """Replace one value of a JSON document, at any depth."""
    place = document
    while True:
        step = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[step], dict | list) or not place[step] or data.draw(st.booleans()):
            place[step] = data.draw(json_values())
            return
        place = place[step]
