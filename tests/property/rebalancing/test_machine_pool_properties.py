"""In MachinePools, no client chooses the instances to remove, so Evenkeel releases none, with or without a node."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.adapters.kubernetes.read.groups import Listing, read_groups
from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.groups import NodeGroup, State
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.policy import Policy, PoolRule
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from tests import objects
from tests.builders import NOW, in_backoff
from tests.parts import make


@st.composite
def pools(draw: st.DrawFn) -> list[NodeGroup]:
    items: list[dict[str, Any]] = []
    for zone in objects.ZONES[: draw(st.integers(1, 3))]:
        requested, instances, nodes = (draw(st.integers(0, 8)) for _ in range(3))
        version = draw(st.sampled_from(["v1beta1", "v1beta2"]))
        items.append(objects.machine_pool(zone, requested, nodes, instances=instances, version=version))
    found, skipped = read_groups(Listing(flavour=FLAVOURS["cluster-api"], objects={"MachinePool": items}))
    assert not skipped
    return [member.group for member in found]


@given(
    groups=pools(),
    maximum=st.integers(3, 24),
    on_failure=st.sampled_from(OnFailure),
    failing=st.sets(st.sampled_from(objects.ZONES)),
)
def test_no_replicas_are_lowered_below_the_instances_that_are_there(
    groups: list[NodeGroup], maximum: int, on_failure: OnFailure, failing: set[str]
) -> None:
    policy = make(
        Policy, strategy=BALANCED, pools=(PoolRule(name="workers", min=0, max=maximum, on_failure=on_failure),)
    )
    state = ClusterState(groups={group.key: in_backoff() for group in groups if group.identity.zone in failing})
    (found,) = plan(Observation(groups=tuple(groups)), state, policy, NOW).pools
    for planned in found.groups:
        group = planned.group
        assert planned.requested >= min(group.requested, group.status.launched)
        if planned.state is State.FENCED and planned.requested < group.requested:
            assert planned.requested >= group.running


@given(groups=pools(), failing=st.sets(st.sampled_from(objects.ZONES), min_size=1))
def test_replicas_without_an_instance_are_released(groups: list[NodeGroup], failing: set[str]) -> None:
    policy = make(Policy, strategy=BALANCED, pools=(PoolRule(name="workers", min=0, max=99),))
    state = ClusterState(groups={group.key: in_backoff() for group in groups if group.identity.zone in failing})
    (found,) = plan(Observation(groups=tuple(groups)), state, policy, NOW).pools
    healthy = any(planned.state is State.HEALTHY for planned in found.groups)
    for planned in found.groups:
        group = planned.group
        if planned.state is State.FENCED and healthy:
            assert planned.requested == min(group.requested, group.status.launched or 0)
