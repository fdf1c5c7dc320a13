"""Every interleaving of one write of Evenkeel with three calls of cluster-autoscaler, EKS or Terraform.

No call of Evenkeel ends an instance in service. A stale number of cluster-autoscaler may end some. Such an end is
counted separately, and must also occur without Evenkeel's write.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache
from itertools import combinations_with_replacement, product
from typing import Any

import pytest
from botocore.exceptions import ClientError

from evenkeel.application.errors import ConflictError, RejectedError
from evenkeel.domain.model.groups import Bounds, PublishedBounds, State
from evenkeel.domain.model.plans import GroupPlan
from evenkeel.domain.rebalancing.annotations import write_adopted, write_published
from evenkeel.domain.rebalancing.writes import Patch
from evenkeel_cli.simulation.autoscaler_model import Flags
from sandbox.auto_scaling.autoscaler import AwsAutoscaler
from sandbox.auto_scaling.behavior import Span, worst
from tests.auto_scaling_groups import ZONES, Stage
from tests.fakes import plenty

_NAME = "workers-a"
_NEW: Span = (timedelta(0), timedelta(0))  # reads are not stale
Play = Callable[[Stage, AwsAutoscaler], None]


def _in_service(stage: Stage) -> set[str]:
    return {one.id for one in stage.group(_NAME).instances.values() if one.state == "InService"}


def _read(stage: Stage, autoscaler: AwsAutoscaler) -> None:
    autoscaler.refresh(stage.clock.now())


def _grow(stage: Stage, autoscaler: AwsAutoscaler) -> None:
    group = autoscaler.groups[0]
    autoscaler.set_size(group, group.requested + 2, stage.clock.now())
    stage.api.clock.run(timedelta(minutes=1))


def _forget(stage: Stage, autoscaler: AwsAutoscaler) -> None:
    """Delete the placeholders that the last read has found, if any."""
    group = autoscaler.groups[0]
    if group.placeholders:
        autoscaler.delete_placeholders(group, stage.clock.now())


def _put_back(stage: Stage, _autoscaler: AwsAutoscaler) -> None:
    """Write bounds as EKS or Terraform, wide enough for the existing instances."""
    high = max(9, stage.group(_NAME).desired)
    low = min(1, stage.group(_NAME).desired)
    stage.api.update_auto_scaling_group(AutoScalingGroupName=_NAME, MinSize=low, MaxSize=high)


_CALLS: tuple[Play, ...] = (_read, _grow, _forget, _put_back)
#: Evenkeel's calls whose order with a call of the others matters; its other calls share no data with the others
_ORDERED = frozenset(
    {
        "describe_auto_scaling_groups",
        "resume_processes",
        "set_desired_capacity",
        "suspend_processes",
        "terminate_instance_in_auto_scaling_group",
        "update_auto_scaling_group",
    }
)
#: name -> (bounds, desired capacity) that Evenkeel writes to a group of 2 instances with desired capacity 4
_WRITES = {
    "fence": (Bounds(0, 4), None),
    "release": (Bounds(0, 2), 2),
    "widen": (Bounds(2, 9), None),
    "raise": (Bounds(0, 12), None),
    "remove": (Bounds(0, 3), 3),  # of a named instance in service
}


class _Watched:
    """Evenkeel's client. Others act before each call, and the instances in service that a call ends are noted."""

    def __init__(self, client: Any, play: "_Interleaving") -> None:
        self._client, self._play = client, play

    def __getattr__(self, name: str) -> Any:
        def call(**request: Any) -> Any:
            if name in _ORDERED:
                self._play.others_act()
                self._play.calls.append(name)
            before = _in_service(self._play.stage)
            try:
                return getattr(self._client, name)(**request)
            finally:
                ended = len(before - _in_service(self._play.stage) - self._play.named)
                if name == "resume_processes" and self._play.lowered:
                    self._play.ended_by_others += ended  # AWS carries out earlier writes of the others
                elif name.startswith("terminate") and not before & self._play.named:
                    pass  # the others have ended the named instance, and AWS lowers the desired capacity once more
                else:
                    self._play.ended_by_us += ended
                if name in ("set_desired_capacity", "update_auto_scaling_group"):
                    self._play.lowered = False

        return call


class _Interleaving:
    """One write of Evenkeel. The others' calls are before its ordered calls of these numbers, or after the last."""

    def __init__(
        self, version: tuple[int, int], calls: tuple[Play, ...], places: tuple[int, ...], read_age: Span = _NEW
    ) -> None:
        self.stage = stage = Stage(autoscaler="cluster-autoscaler")
        stage.put(_NAME, ZONES[0], 0, 2, 9)
        stage.minutes(2)
        stage.refuse(ZONES[0])
        stage.api.set_desired_capacity(AutoScalingGroupName=_NAME, DesiredCapacity=4)
        stage.minutes(3)
        stage.stock.accept(ZONES[0])  # AWS's next attempt succeeds
        self.autoscaler = AwsAutoscaler(client=stage.api, names=[_NAME], flags=Flags(version=version))
        self.autoscaler.refresh(stage.clock.now())
        stage.api.behavior.read_age = read_age
        self._due = list(zip(places, calls, strict=True))
        self.named: set[str] = set()  # the instances that Evenkeel's write removes
        self.lowered = False  # the others have lowered the desired capacity below the instances
        self.calls: list[str] = []  # Evenkeel's ordered calls
        self.ended_by_us = self.ended_by_others = 0

    def others_act(self, *, finish: bool = False) -> None:
        while self._due and (finish or self._due[0][0] <= len(self.calls)):
            before, number = _in_service(self.stage), self.stage.group(_NAME).desired
            with suppress(ClientError):
                self._due.pop(0)[1](self.stage, self.autoscaler)
            self.ended_by_others += len(before - _in_service(self.stage))
            if (desired := self.stage.group(_NAME).desired) < number:
                self.lowered = desired < len(self.stage.group(_NAME).counted)

    def run(self, write: str) -> "_Interleaving":
        """Read and write once; then let the others finish, and the instances settle."""
        stage = self.stage
        stage.clusters.wrap = lambda client: _Watched(client, self)
        bounds, desired = _WRITES[write]
        with suppress(ConflictError, RejectedError):
            cluster = stage.clusters.open(stage.record, plenty)
            (group,) = cluster.observe().groups
            target = group.requested if desired is None else desired
            plan = GroupPlan(group=group, state=State.FENCED, requested=target, bounds=bounds, reasons=())
            published = PublishedBounds(at=stage.clock.now(), bounds=bounds, requested=target)
            patch = Patch(plan=plan, bounds=bounds, requested=desired)
            if write == "remove":
                self.named = {min(_in_service(stage))}
                cluster._removals[group.key] = tuple(self.named)
            cluster.apply(patch, write_published(published, target, "a test"), write_adopted(group.bounds))
        self.finish()
        return self

    def finish(self) -> None:
        """Make the others' remaining calls."""
        self.others_act(finish=True)
        before = _in_service(self.stage)
        self.stage.minutes(2)
        self.ended_by_us += len(before - _in_service(self.stage) - self.named)


def _sequences(kinds: Sequence[Play]) -> Iterator[tuple[Play, ...]]:
    """Yield three calls of the others. A first read that changes nothing makes them two.

    A read is left out as the last call, and before another read: its result would not be used.
    """
    for calls in product(kinds, repeat=3):
        if calls[-1] is not _read and calls[:2] != (_read, _read):
            yield calls


def _next_places(calls: tuple[Play, ...], places: tuple[int, ...], ours: Sequence[str]) -> tuple[int, ...] | None:
    """Return the places of the next interleaving, after one with these places and calls of Evenkeel, or None.

    The last place is after Evenkeel's last call. Adjacent reads commute, so the others' read is only played first.
    """
    for number in reversed(range(len(calls))):
        place = places[number] + 1
        while calls[number] is _read and ours[place - 1 : place] == ["describe_auto_scaling_groups"]:
            place += 1
        if place <= len(ours):
            return (*places[:number], *[place] * (len(calls) - number))
    return None


@cache
def _ends_alone(version: tuple[int, int], calls: tuple[Play, ...]) -> int:
    """Return how many instances in service end without a write of Evenkeel."""
    alone = _Interleaving(version, calls, (0, 0, 0))
    alone.finish()
    assert not alone.ended_by_us
    return alone.ended_by_others


def _played(
    write: str, version: tuple[int, int], calls: tuple[Play, ...], places: tuple[int, ...], read_age: Span = _NEW
) -> _Interleaving:
    played = _Interleaving(version, calls, places, read_age).run(write)
    where = f"{write}, {version}: {[call.__name__ for call in calls]} before our calls {places}"
    assert not played.ended_by_us, where
    assert played.ended_by_others <= _ends_alone(version, calls), where
    return played


@pytest.mark.parametrize("calls", [(_grow, _forget, _grow), (_read, _grow, _grow), (_grow, _read, _grow)])
def test_interleavings_that_differ_are_played_once(calls: tuple[Play, ...]) -> None:
    read = "describe_auto_scaling_groups"
    ours = [read, "suspend_processes", read, read, "resume_processes"]

    def trace(places: tuple[int, ...]) -> str:
        """Return the calls in their order. Of adjacent reads, those of the others are first."""
        order = list(ours)
        for place, call in reversed([*zip(places, calls, strict=True)]):
            order.insert(place, call.__name__)
        text = " ".join(order)
        while f"{read} _read" in text:
            text = text.replace(f"{read} _read", f"_read {read}")
        return text

    played: list[tuple[int, ...]] = [(0, 0, 0)]
    while (following := _next_places(calls, played[-1], ours)) is not None:
        played.append(following)
    traces = {trace(places) for places in combinations_with_replacement(range(len(ours) + 1), 3)}
    assert sorted(map(trace, played)) == sorted(traces)


_OLD = worst().read_age


@pytest.mark.parametrize("read_age", [_NEW, _OLD], ids=["new", "old"])
@pytest.mark.parametrize("write", _WRITES)
def test_no_interleaving_with_the_autoscaler_of_today_ends_an_instance(write: str, read_age: Span) -> None:
    version = (1, 36)
    places = range(len(_Interleaving(version, (), ()).run(write).calls) + 1)
    for calls in _sequences([_grow, _put_back]):
        for at in [*combinations_with_replacement(places, 3)][::23]:
            assert not _played(write, version, calls, at, read_age).ended_by_others


@pytest.mark.deep
@pytest.mark.parametrize("version", [(1, 24), (1, 30)])  # 1.36 makes the same calls as 1.30
@pytest.mark.parametrize("write", _WRITES)
def test_no_interleaving_ends_an_instance_by_our_calls(write: str, version: tuple[int, int]) -> None:
    for calls in _sequences(_CALLS):
        if version == (1, 24) and _forget not in calls:
            continue  # the versions differ in this call only
        places: tuple[int, ...] | None = (0, 0, 0)
        while places is not None:
            played = _played(write, version, calls, places)
            assert len(played.calls) > 1
            places = _next_places(calls, places, played.calls)
