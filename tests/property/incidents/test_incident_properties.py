"""Incidents are reported in order, each end once, although processes die and services fail. They do not flap."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from evenkeel.adapters.aws.incident_events import read_alert
from evenkeel.adapters.codec import dump_stored, read_stored
from evenkeel.application.incidents.alerting import Alert, NotifyChannels, Received
from evenkeel.application.incidents.notify import store_cluster_health
from evenkeel.application.incidents.ports import HealthPorts
from evenkeel.domain.incidents.health import evaluate
from evenkeel.domain.model.demand import Advice, HangingDrain, NodeAdvice, PoolAdvice, PoolDemand
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Machine
from evenkeel.domain.model.incidents import Change, ClusterHealth, Incident, IncidentKind
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.domain.plan import plan
from tests.alerts import FakeChannel, FakeMemory
from tests.builders import MINUTE, NOW, numbers, plan_of, zones
from tests.builders import key as key_of
from tests.fakes import FakeClock
from tests.parts import make, replace

AFTER = timedelta(minutes=5)


Steps = list[tuple[int, list[tuple[int, int, bool]]]]
#: of each zone: requested nodes without the two that run, minutes since the last failure, an upcoming machine
ZONES = st.tuples(st.integers(0, 3), st.integers(0, 100), st.booleans())
STEPS = st.lists(st.tuples(st.integers(1, 30), st.lists(ZONES, min_size=3, max_size=3)), min_size=1, max_size=12)


@given(STEPS, st.sampled_from(list(FailureClass)))
def test_the_incident_stays_open_while_all_zones_fail(steps: Steps, kind: FailureClass) -> None:
    """Backoffs run and end, machines are tried, an autoscaler gives up and orders again. No node joins."""
    cluster_health, now, since = ClusterHealth(), NOW, None
    for minutes, shape in steps:
        now += minutes * MINUTE
        groups, states = [], {}
        for found, (more, age, booting) in zip(zones((2, 2, 2), bounds=[(1, 9)] * 3), shape, strict=True):
            machines = (Machine(name="new", has_node=False, created_at=now - MINUTE),) if booting and more else ()
            groups.append(replace(found, requested=2 + more, machines=machines))
            failed = now - age * MINUTE
            states[found.key] = make(
                GroupState,
                failures=1,
                last_failure=failed,
                backoff_until=failed + 5 * MINUTE,
                failure_class=kind,
                running_seen=2,
                reports=(failed,),
            )
        planned = plan(Observation(groups=tuple(groups)), ClusterState(groups=states), numbers(3, 12), now)
        cluster_health = evaluate(cluster_health, planned, {**states, **planned.states}, AFTER)
        missing = [incident for incident in cluster_health.incidents if incident.kind is IncidentKind.MISSING]
        assert len(missing) == 1 or since is None
        if missing:
            since = since or missing[0].since
            assert missing[0].since == since


@given(STEPS)
def test_evaluating_a_plan_twice_changes_nothing(steps: Steps) -> None:
    now = NOW + steps[0][0] * MINUTE
    groups = [
        replace(found, requested=2 + more, machines=())
        for found, (more, _, _) in zip(zones((2, 2, 2), bounds=[(1, 9)] * 3), steps[0][1], strict=True)
    ]
    waiting = {found.key: make(GroupState, waiting_since=now - 9 * MINUTE, waiting_running=2) for found in groups}
    planned = plan(Observation(groups=tuple(groups)), ClusterState(groups=waiting), numbers(3, 12), now)
    states = {**waiting, **planned.states}
    once = evaluate(ClusterHealth(), planned, states, AFTER)
    assert evaluate(once, planned, states, AFTER) == once


class Killed(BaseException):
    """The run's process ended."""


@dataclass
class Stack:
    """A table with one verdict and a bus. At any request, either may fail or the process may end."""

    clock: FakeClock = field(default_factory=FakeClock)
    cluster_health: ClusterHealth = field(default_factory=ClusterHealth)
    published: list[Alert] = field(default_factory=list)
    mishaps: list[str] = field(default_factory=list)
    stack: str = "prod"
    judged: int = 0

    def _next(self) -> str:
        mishap = self.mishaps.pop(0) if self.mishaps else ""
        if mishap == "dies before":
            raise Killed
        return mishap

    def save_cluster_health(self, _: str, cluster_health: ClusterHealth, __: object) -> None:
        mishap = self._next()
        self.cluster_health = read_stored(ClusterHealth, dump_stored(cluster_health), "HEALTH")
        if mishap == "dies after":
            raise Killed

    def send(self, detail: Mapping[str, Any]) -> bool:
        mishap = self._next()
        if mishap == "refused":
            return False
        self.published.append(read_alert(json.dumps(detail)))
        if mishap == "dies after":
            raise Killed
        return True

    def publish(self, _: str, __: Mapping[str, Any]) -> bool:
        return self._next() != "refused"

    def evaluate(self, missing: Mapping[str, int]) -> None:
        """Evaluate pools that lack so many nodes. No two incidents open in one second."""
        self.judged += 1
        known = {incident.pool: incident.since for incident in self.cluster_health.incidents}
        incidents = [
            Incident(
                kind=IncidentKind.MISSING, pool=pool, since=known.get(pool, NOW + self.judged * MINUTE), missing=number
            )
            for pool, number in missing.items()
        ]
        this: Any = self  # the parts of table, queue and bus that this needs
        ports = HealthPorts(store=this, bus=this, alerts=this, clock=self.clock, stack=self.stack)
        with suppress(Killed):
            store_cluster_health(ports, "blue", self.cluster_health, self.cluster_health.with_incidents(incidents), {})


#: of each run: missing nodes by pool, seconds until the next, faults of its requests
LIVES = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abc"), st.integers(1, 9), max_size=3),
        st.sampled_from([0.0, 0.2, 60.0]),
        st.lists(st.sampled_from(["", "", "refused", "dies before", "dies after"]), max_size=6),
    ),
    min_size=1,
    max_size=8,
)


@given(LIVES, st.randoms(use_true_random=False))
@example([({"a": 1}, 60.0, ["", "refused"]), ({}, 60.0, ["", "refused", ""])], Random(0)).via(
    "a bus away for one event"
)
@example([({"a": 1}, 60.0, ["", "refused"]), ({}, 60.0, ["", "", "", "dies before"])], Random(1)).via("reported twice")
@example([({"a": 1, "b": 1}, 0.2, []), ({"a": 1}, 60.0, [])], Random(0)).via("two rounds within a second")
def test_a_pager_gets_each_incident_once_and_its_end_last(
    lives: list[tuple[dict[str, int], float, list[str]]], chance: Random
) -> None:
    """From the verdict to the pager, alerts are refused, killed, repeated, doubled, late and out of order."""
    stack, pager = Stack(), FakeChannel()
    for missing, seconds, mishaps in lives:
        stack.clock.at += timedelta(seconds=seconds, microseconds=1)
        stack.mishaps = list(mishaps)
        stack.evaluate(missing)
    for _ in range(2):  # finally all is healthy, whatever is unreported
        stack.clock.at += MINUTE
        stack.mishaps = []
        stack.evaluate({})
    assert stack.cluster_health == ClusterHealth()
    on_the_way = stack.published * 2
    chance.shuffle(on_the_way)
    report = NotifyChannels(channels=[pager], memory=FakeMemory(), clock=stack.clock)
    for news in on_the_way:
        assert report([Received(message="m", receives=1, alert=news)], lambda: 60.0) == set()
    reported = [each for (each,) in pager.reported]
    for key in {each.key for each in stack.published}:
        story = [each for each in reported if each.key == key]
        assert story[-1].is_over
        for began in {each.since for each in story}:
            one = [each.change for each in story if each.since == began]
            assert one.count(Change.OPENED) <= 1
            assert Change.CLOSED not in one[:-1], "nothing follows the end of a trouble"


@given(
    st.lists(st.none() | st.integers(0, 14), min_size=1, max_size=5),
    st.sampled_from([IncidentKind.CONTESTED, IncidentKind.REFUSED, IncidentKind.DRAIN_HANGS]),
)
def test_an_incident_names_all_its_zones_since_the_first(minutes: list[int | None], kind: IncidentKind) -> None:
    """``minutes``: for how long each zone has had that incident; None: it has none."""
    since = {zone: NOW - ago * MINUTE for zone, ago in zip("abcde", minutes, strict=False) if ago is not None}
    planned = plan_of(zones([2] * len(minutes)), numbers(0, 20))
    states = {}
    if kind is IncidentKind.CONTESTED:
        states = {key_of(zone): make(GroupState, contested_since=at, contested_by=zone) for zone, at in since.items()}
    elif kind is IncidentKind.REFUSED:
        states = {key_of(zone): make(GroupState, write_refused_at=at, write_refused=zone) for zone, at in since.items()}
    else:
        (pool,) = planned.pools
        hanging = [HangingDrain(node=zone, group=key_of(zone), since=at) for zone, at in since.items()]
        nodes = tuple(NodeAdvice(node=each.node, group=each.group, hangs=each) for each in hanging)
        pool = replace(pool, demand=PoolAdvice(asked=PoolDemand(pool=pool.id), nodes=nodes))
        planned = replace(planned, pools=(pool,), demand=Advice())
    found = evaluate(ClusterHealth(), planned, states, AFTER).incidents
    assert [(each.kind, each.since, each.zones) for each in found] == (
        [(kind, min(since.values()), tuple(since))] if since else []
    )
    assert not found or found[0].message == (next(iter(since)) if kind is IncidentKind.REFUSED else ", ".join(since))
