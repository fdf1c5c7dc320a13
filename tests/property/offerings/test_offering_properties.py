"""What clusters say of one another's purchases: in any order, as often as they like, and even where it is a lie."""

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import permutations

from hypothesis import example, given
from hypothesis import strategies as st

from evenkeel.adapters.codec import dump_plain, dump_stored
from evenkeel.domain.model.groups import Machine, State
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.offerings import CapacityReport, Experience, Offering, OfferingState
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.offerings.reports import REPORTS_KEPT, changes, merged, standing
from evenkeel.domain.plan import plan
from tests.builders import MINUTE, NOW, applied, numbers, zones
from tests.parts import replace

Reports = dict[int, list[tuple[str, int]]]
POLICY = BackoffPolicy()
OFFERING = Offering("aws", "eu-central-1", "euc1-az2", "m5.xlarge", "on-demand")
PROVISION = 90
LOOK = 60
STEP = 15  # seconds

minutes = st.integers(0, 400).map(lambda minute: NOW + minute * MINUTE)
words = st.builds(
    lambda failed_at, length, cluster: CapacityReport(
        failed_at=failed_at, until=failed_at + length * MINUTE, cluster=cluster
    ),
    minutes,
    st.sampled_from([5, 10, 20, 30]),
    st.sampled_from(["", "blue", "green"]),
)
# A state as any number of writers leave it, never more than is kept.
states = st.builds(
    lambda words, delivered: merged(OfferingState(reports=words, delivered_at=delivered), OfferingState()),
    st.dictionaries(st.sampled_from("ABCDEFGH"), words, max_size=6),
    st.none() | minutes,
)


@given(st.lists(states, min_size=2, max_size=4))
def test_merging_states_is_commutative_and_idempotent(found: list[OfferingState]) -> None:
    folds = set()
    for order in permutations(found):
        state = OfferingState()
        for one in order:
            state = merged(merged(state, one), one)
        folds.add(json.dumps(dump_plain(state), sort_keys=True))
    assert len(folds) == 1


@given(st.dictionaries(st.integers(0, 10_000).map(str), words, min_size=20, max_size=60))
def test_a_state_keeps_the_newest_reports(found: dict[str, CapacityReport]) -> None:
    state = merged(OfferingState(reports=found), OfferingState())
    newest = sorted((word.failed_at for word in found.values()), reverse=True)[:REPORTS_KEPT]
    assert sorted((word.failed_at for word in state.reports.values()), reverse=True) == newest


@given(states, states)
def test_a_delivery_ends_earlier_reports(one: OfferingState, other: OfferingState) -> None:
    both = merged(one, other)
    delivered = [at for at in (one.delivered_at, other.delivered_at) if at is not None]
    assert both.delivered_at == max(delivered, default=None)
    assert all(both.delivered_at is None or word.failed_at > both.delivered_at for word in both.reports.values())


def tell(state: OfferingState, server: str, experience: Experience, now: datetime) -> tuple[OfferingState, int]:
    """The state after a cluster has had its say, and whether it was written."""
    after = changes(state, server, experience, now)
    return (state, 0) if after is None else (after, 1)


@given(st.lists(st.integers(0, 59), min_size=2, max_size=400), st.integers(0, 4))
def test_a_storm_of_failures_is_a_few_small_writes(seconds: list[int], again: int) -> None:
    state, written = OfferingState(), 0
    for _ in range(1 + again):  # every look of the same minute tries again
        for i, second in enumerate(seconds):
            failed_at = NOW + timedelta(seconds=second)
            word = CapacityReport(failed_at=failed_at, until=failed_at + POLICY.initial, cluster=f"cluster-{i}")
            state, more = tell(state, f"server-{i}", Experience(report=word), NOW + MINUTE)
            written += more
    assert written <= REPORTS_KEPT
    assert len(dump_stored(state)) < 1000
    for server in [*(f"server-{i}" for i in range(len(seconds))), "bystander"]:
        others = {voice: word for voice, word in state.reports.items() if voice != server}
        expected = min(2, len(seconds) - (server != "bystander"))
        assert len(standing(OfferingState(reports=others), NOW + MINUTE, POLICY)) >= expected


@given(states, words, minutes)
def test_an_experience_is_written_once(state: OfferingState, word: CapacityReport, now: datetime) -> None:
    for experience in (
        Experience(report=word),
        Experience(delivered_at=now),
        Experience(report=word, delivered_at=now),
    ):
        after, _ = tell(state, "Z", experience, now)
        assert tell(after, "Z", experience, now) == (after, 0)


@given(states, words, minutes)
def test_a_failure_is_written_only_where_it_extends_a_fence(
    state: OfferingState, word: CapacityReport, now: datetime
) -> None:
    others = [] if state.delivered_at and word.failed_at <= state.delivered_at else standing(state, now, POLICY)
    is_known = state.delivered_at is not None and word.failed_at <= state.delivered_at
    if is_known or POLICY.is_forgotten(word.failed_at, now):
        expected = False
    elif word.until <= now:
        expected = not others  # the fence is over: it only makes others cautious
    else:
        expected = sum(each.until - now >= (word.until - now) / 2 for each in others) < REPORTS_KEPT
    assert (changes(state, "Z", Experience(report=word), now) is not None) is expected


# One zone of a pool, and what others say of it


@dataclass
class World:
    """A pool of three zones in seconds. Pods want nodes of zone a, or of any; every machine that is asked for comes."""

    wanted: int  # nodes
    bound: bool  # to zone a
    loop: int = STEP  # seconds between two orders of the autoscaler
    state: ClusterState = field(default_factory=ClusterState)
    now: int = 0
    launches: dict[str, list[int]] = field(default_factory=dict)  # zone -> seconds at which machines were asked for

    def __post_init__(self) -> None:
        self.groups = [
            replace(found, offering=OFFERING if found.identity.zone == "a" else None)
            for found in zones([0, 0, 0], bounds=[(0, 4)] * 3)
        ]

    @property
    def time(self) -> datetime:
        return NOW + timedelta(seconds=self.now)

    def look(self, said: OfferingState) -> Plan:
        self.state = replace(self.state, offerings={OFFERING: said})
        found = plan(Observation(groups=tuple(self.groups)), self.state, numbers(0, 12), self.time)
        observation, self.state = applied(found, self.state, self.time)
        self.groups = list(observation.groups)
        return found

    def step(self) -> None:
        """Machines come, then the autoscaler orders what is missing, as far as the bounds let it."""
        self.now += STEP
        missing = self.wanted - sum(g.requested for g in self.groups if g.identity.zone == "a" or not self.bound)
        for i, group in enumerate(self.groups):
            launched = self.launches.setdefault(str(group.identity.zone), [])
            top = group.bounds.max if group.bounds else 0
            orders = (group.identity.zone == "a" or not self.bound) and self.now % self.loop == 0
            more = max(0, min(missing, top - group.requested)) if orders else 0
            missing -= more
            launched += [self.now] * more
            machines = tuple(
                Machine(
                    name=f"{group.identity.zone}-{n}",
                    has_node=self.now >= at + PROVISION,
                    created_at=NOW + timedelta(seconds=at),
                )
                for n, at in enumerate(launched)
            )
            running = sum(machine.has_node for machine in machines)
            self.groups[i] = replace(
                group,
                requested=group.requested + more,
                running=running,
                machines=machines if running < len(machines) else None,
            )

    @property
    def met(self) -> bool:
        return sum(g.running for g in self.groups if g.identity.zone == "a" or not self.bound) >= self.wanted


def seconds_until_met(world: World, said: Reports, look: int = LOOK) -> int:
    """``said``: at which second which servers say that they failed, and for how many minutes they back off."""
    state = OfferingState()
    while not world.met:
        assert world.now < 7200, f"{world.wanted} nodes are still waited for"
        for server, length in said.get(world.now, []):
            word = CapacityReport(failed_at=world.time, until=world.time + length * MINUTE, cluster=server)
            state = merged(state, OfferingState(reports={server: word}))
        if world.now % look == 0:
            world.look(state)
        world.step()
    return world.now


nodes = st.integers(1, 4)
lies = st.dictionaries(
    st.integers(0, 120).map(lambda n: n * LOOK),
    st.lists(st.tuples(st.sampled_from("ABCDE"), st.sampled_from([5, 10, 30])), min_size=1, max_size=5),
    max_size=80,
)


@given(nodes, st.booleans(), st.sampled_from([5, 10, 30]))
def test_one_false_report_delays_demand_by_one_probe(wanted: int, bound: bool, length: int) -> None:
    truth = seconds_until_met(World(wanted, bound), {})
    lied_to = seconds_until_met(World(wanted, bound), {0: [("A", length)]})
    assert lied_to <= truth + PROVISION + 2 * LOOK  # the probe, the look that sees it, and that of the orders


# Every minute anew; every minute another two; once, for as long as there are backoffs.
RESTLESS = {n * LOOK: [("A", 30), ("B", 30)] for n in range(120)}
IN_TURNS = {n * LOOK: [("ABCDE"[n % 5], 5), ("ABCDE"[(n + 1) % 5], 5)] for n in range(120)}
PATIENT = {0: [("A", 30), ("B", 30)]}


@example(wanted=4, bound=True, said=RESTLESS)
@example(wanted=4, bound=True, said=IN_TURNS)
@example(wanted=4, bound=True, said=PATIENT)
@given(nodes, st.booleans(), lies)
def test_false_reports_delay_demand_by_one_fence_and_one_probe(wanted: int, bound: bool, said: Reports) -> None:
    truth = seconds_until_met(World(wanted, bound), {})
    fence = int(POLICY.initial.total_seconds())
    assert seconds_until_met(World(wanted, bound), said) <= truth + fence + PROVISION + 3 * LOOK


@example(wanted=4, said=RESTLESS)
@given(nodes, lies)
def test_false_reports_delay_no_demand_of_other_zones(wanted: int, said: Reports) -> None:
    free = seconds_until_met(World(wanted, bound=False), said)
    assert free <= seconds_until_met(World(wanted, bound=False), {}) + LOOK


@given(nodes, st.integers(1, 5))
def test_a_throttled_group_launches_one_machine_at_a_time(wanted: int, voices: int) -> None:
    world = World(wanted, bound=True)
    word = CapacityReport(failed_at=world.time, until=world.time + 30 * MINUTE, cluster="A")
    state = OfferingState(reports={f"{i}": word for i in range(voices)})
    while not world.met and world.now < 3600:
        if world.now % LOOK == 0:
            world.look(state)
        world.step()
        (zone,) = [group for group in world.groups if group.identity.zone == "a"]
        if not any(at + PROVISION <= world.now for at in world.launches["a"]):
            assert zone.requested <= 1
    assert world.met


@given(nodes)
def test_a_slow_autoscaler_orders_everything_between_reports(wanted: int) -> None:
    said = {n * STEP: [("A", 30), ("B", 30)] for n in range(480)}
    waited = seconds_until_met(World(wanted, bound=True, loop=60), said, look=STEP)
    assert waited <= POLICY.initial.total_seconds() + 2 * PROVISION + 4 * 60


@given(nodes, st.sampled_from([RESTLESS, IN_TURNS, PATIENT]))
def test_reports_about_every_zone_fence_none(wanted: int, said: Reports) -> None:
    world = World(wanted, bound=False)
    world.groups = [replace(group, offering=OFFERING) for group in world.groups]
    assert seconds_until_met(world, said) <= seconds_until_met(World(wanted, bound=False), {}) + PROVISION + 2 * LOOK


def test_a_warning_is_no_failure_of_the_group() -> None:
    world = World(0, bound=False)
    word = CapacityReport(failed_at=NOW, until=NOW + 5 * MINUTE, cluster="blue")
    found = world.look(OfferingState(reports={"A": word}))
    (zone,) = [planned for planned in found.pools[0].groups if planned.group.identity.zone == "a"]
    assert zone.state is State.HEALTHY
    assert found.experiences == {}
    assert all(not state.is_failing for state in world.state.groups.values())
