"""Whatever another writer does between two calls of Evenkeel, no call of Evenkeel ends an instance in service."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters.auto_scaling.cluster import AutoScalingCluster
from evenkeel.application.errors import ConflictError, RejectedError
from evenkeel.domain.model.groups import Bounds, NodeGroup, PublishedBounds, State
from evenkeel.domain.model.plans import GroupPlan
from evenkeel.domain.rebalancing.annotations import write_adopted, write_published
from evenkeel.domain.rebalancing.writes import Patch
from tests.auto_scaling_groups import ZONES, Stage
from tests.fakes import plenty

_NAME = "workers-a"
_NAMES = ("workers-a", "workers-b", "workers-c")
_SIZES = st.integers(0, 9)


class _Watched:
    """Evenkeel's client. Others act before each call, and the instances that each call ends are noted."""

    def __init__(self, client: Any, stage: Stage, others: Iterator[Callable[[Stage], None]], ended: list[str]) -> None:
        self._client, self._stage, self._others, self._ended = client, stage, others, ended

    def __getattr__(self, name: str) -> Any:
        def call(**request: Any) -> Any:
            next(self._others, lambda _stage: None)(self._stage)
            running = _in_service(self._stage)
            try:
                return getattr(self._client, name)(**request)
            finally:
                self._ended += running - _in_service(self._stage)

        return call


def _in_service(stage: Stage) -> set[str]:
    return {one.id for one in stage.group(_NAME).instances.values() if one.state == "InService"}


# Acts of others. None of them ends an instance in service.


def _raise_desired(more: int) -> Callable[[Stage], None]:
    def act(stage: Stage) -> None:
        group = stage.group(_NAME)
        desired = group.desired + more
        stage.api.update_auto_scaling_group(
            AutoScalingGroupName=_NAME, MaxSize=max(group.maximum, desired), DesiredCapacity=desired
        )

    return act


def _forget_launches(stage: Stage) -> None:
    """Delete placeholders as Cluster Autoscaler: the desired capacity becomes the number of instances."""
    group = stage.group(_NAME)
    desired = min(max(len(group.counted), group.minimum), group.maximum)
    if desired >= len(group.counted):
        stage.api.set_desired_capacity(AutoScalingGroupName=_NAME, DesiredCapacity=desired)


def _widen(stage: Stage) -> None:
    stage.api.update_auto_scaling_group(AutoScalingGroupName=_NAME, MinSize=0, MaxSize=20)


def _pass(seconds: int) -> Callable[[Stage], None]:
    return lambda stage: stage.api.clock.run(timedelta(seconds=seconds))


def _refuse(stage: Stage) -> None:
    stage.refuse(ZONES[0])


def _accept(stage: Stage) -> None:
    stage.stock.accept(ZONES[0])


_OTHERS = st.one_of(
    st.builds(_raise_desired, st.integers(1, 4)),
    st.builds(_pass, st.integers(1, 120)),
    st.sampled_from([_forget_launches, _widen, _refuse, _accept, lambda _stage: None]),
)


@pytest.mark.parametrize("leaves", [False, True])
@given(
    desired=_SIZES,
    maximum=_SIZES,
    is_refused=st.booleans(),
    planned=st.lists(st.tuples(_SIZES, _SIZES, st.none() | _SIZES), min_size=1, max_size=3),
    others=st.lists(_OTHERS, max_size=30),
)
def test_no_write_ends_an_instance_in_service(
    leaves: bool,
    desired: int,
    maximum: int,
    is_refused: bool,
    planned: list[tuple[int, int, int | None]],
    others: list[Callable[[Stage], None]],
) -> None:
    stage, ended = Stage(), list[str]()
    stage.put(_NAME, ZONES[0], 0, desired, max(desired, maximum))
    stage.minutes(2)
    if is_refused:
        stage.refuse(ZONES[0])
        _raise_desired(2)(stage)
    acts = iter(others)
    stage.clusters.wrap = lambda client: _Watched(client, stage, acts, ended)
    for low, high, requested in planned:
        cluster = stage.clusters.open(stage.record, plenty)
        (group,) = cluster.observe().groups
        bounds = Bounds(min(low, high), max(low, high))
        _write(cluster, group, bounds, requested, leaves=leaves)
        stage.minutes(1)
    assert not ended
    assert "Terminate" not in stage.group(_NAME).suspended or _is_unfinished(stage)


#: An instance that is Pending since the last read before a write of numbers may end: AWS has no conditional write.
_WRITES_NUMBERS = (7, 9, 11)
_CASES = [
    (call, order, seconds)
    for order, seconds in ((0, 0), (2, 0), (0, 60), (2, 60))
    for call in range(13)
    if seconds or call not in _WRITES_NUMBERS
]


@pytest.mark.parametrize(("call", "order", "seconds"), _CASES)
@pytest.mark.parametrize("late", [1, 2])
def test_desired_is_never_lowered_below_the_instances_that_others_ordered(
    call: int, order: int, seconds: int, late: int
) -> None:
    """Launches are refused. Before a call of Evenkeel's release, the zone delivers them, and others may order more."""
    stage, ordered = Stage(), set[str]()
    stage.put(_NAME, ZONES[0], 0, 2, 9)
    stage.minutes(2)
    stage.refuse(ZONES[0])
    _raise_desired(late)(stage)
    stage.minutes(1)

    def deliver(stage: Stage) -> None:
        _accept(stage)
        if order:
            _raise_desired(order)(stage)
        while len(stage.group(_NAME).counted) < stage.group(_NAME).desired:
            _pass(5)(stage)
        _pass(seconds)(stage)
        ordered.update(one.id for one in stage.group(_NAME).counted)

    acts = iter([*[lambda _stage: None] * call, deliver])
    stage.clusters.wrap = lambda client: _Watched(client, stage, acts, [])
    cluster = stage.clusters.open(stage.record, plenty)
    (group,) = cluster.observe().groups
    _write(cluster, group, Bounds(0, 2), 2, leaves=False)
    if not ordered:
        deliver(stage)
    stage.minutes(5)
    found = stage.group(_NAME)
    assert ordered <= {one.id for one in found.counted}
    assert found.desired == len(found.counted)
    assert not found.suspended


def _is_unfinished(stage: Stage) -> bool:
    return '"unfinished":true' in stage.decision(_NAME)


def _write(
    cluster: AutoScalingCluster, group: NodeGroup, bounds: Bounds, requested: int | None, *, leaves: bool
) -> None:
    """Write any numbers, even if no plan has them."""
    target = group.requested if requested is None or leaves else requested
    plan = GroupPlan(group=group, state=State.HEALTHY, requested=target, bounds=bounds, reasons=())
    patch = Patch(plan=plan, bounds=bounds, requested=None if leaves else requested, leaves=leaves)
    published = PublishedBounds(at=cluster.api.now(), bounds=bounds, requested=target)
    with suppress(ConflictError, RejectedError):
        cluster.apply(patch, write_published(published, target, "a test"), write_adopted(group.bounds))


class _KilledError(BaseException):
    """The worker's process ended."""


def _die(_stage: Stage) -> None:
    raise _KilledError


def _put_back(stage: Stage) -> None:
    """Write bounds back as EKS or Terraform, which end no instance."""
    group = stage.group(_NAME)
    low, high = min(1, group.desired), max(9, group.desired)
    stage.api.update_auto_scaling_group(AutoScalingGroupName=_NAME, MinSize=low, MaxSize=high)


@pytest.mark.parametrize("autoscaler", ["none", "cluster-autoscaler"])
@given(others=st.lists(_OTHERS | st.sampled_from([_die, _put_back, _put_back]), max_size=40), data=st.data())
def test_whole_runs_end_no_instance_and_come_to_rest(
    autoscaler: str, others: list[Callable[[Stage], None]], data: st.DataObject
) -> None:
    stage, ended = Stage(autoscaler=autoscaler), list[str]()
    for name, zone in zip(_NAMES, ZONES, strict=True):
        stage.put(name, zone, 0, data.draw(st.integers(0, 3)), 9)
    stage.minutes(2)
    acts = iter(others)
    stage.clusters.wrap = lambda client: _Watched(client, stage, acts, ended)
    for _ in range(6):
        with suppress(_KilledError):
            stage.run()
        stage.minutes(2)
    stage.clusters.wrap = lambda client: _Watched(client, stage, iter(()), ended)
    _accept(stage)
    for _ in range(40):
        stage.run()
        stage.minutes(1)
    assert not ended
    for name in _NAMES:
        group = stage.group(name)
        assert not group.suspended, name
        assert group.minimum <= group.desired <= group.maximum
        assert len(group.counted) == group.desired
        assert '"unfinished"' not in stage.decision(name)
        assert stage.tags(name).get("evenkeel.dev/adopted-bounds", "0,9") in ("0,9", "1,9", "0,20")
    assert not stage.run().written
