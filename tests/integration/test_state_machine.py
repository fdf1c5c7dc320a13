"""Random acts in any order: Evenkeel's promises hold after every step, and all clusters can settle."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from evenkeel.adapters.kubernetes.client import api as client
from sandbox.kube.world import REGION, ZONES
from tests.integration.chaos_harness import MAXIMUM, MINIMUM, PAUSED, SECONDS, ChaosHarness, ClusterUnderTest

#: the cluster without an autoscaler, where stuck replicas are moved, or the other one
CLUSTER = st.booleans()
ZONE = st.sampled_from(ZONES)
ANY = st.integers(0, 7)
CODES = st.sampled_from(["InsufficientInstanceCapacity", "InsufficientInstanceCapacity", "VcpuLimitExceeded", "Odd"])
MANUAL = (f"Manual Shift {change}" for change in ("Started", "Updated", "Canceled"))
SHIFTS = st.sampled_from(["Autoshift In Progress", "Autoshift Completed", "call", *MANUAL])
# A run that moves replicas takes about twenty steps: checks, calls of the table, patches, messages.
Incidents = list[tuple[str, int, str, str | None, int]]
INCIDENTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("killed", "killed", "answer lost", "refused", "scaled", "machines", "lease ends", "time", "table"),
                *("queue", "bounds put back"),
            ]
        ),
        st.integers(0, 21) | st.integers(-5, -1),
        st.sampled_from(["before", "after"]),
        st.sampled_from([None, None, *ZONES]),
        st.integers(-2, 3),
    ),
    min_size=1,
    max_size=3,
)
EDITS = st.sampled_from(
    [
        ("evenkeel.dev/pool-max", "4"),
        ("evenkeel.dev/pool-max", str(MAXIMUM)),
        ("evenkeel.dev/pool-max", str(MAXIMUM + 3)),
        ("evenkeel.dev/zone-max", "2"),
        ("evenkeel.dev/zone-max", None),
        ("evenkeel.dev/pool-min", "some"),
        ("evenkeel.dev/pool-min", str(MINIMUM)),
        (PAUSED, "true"),
        (PAUSED, None),
    ]
)


@contextmanager
def pages_of(size: int) -> Iterator[None]:
    """Lists come in pages so small that even these clusters need two."""
    before, client.PAGE = client.PAGE, size
    try:
        yield
    finally:
        client.PAGE = before


class EveryoneActs(RuleBasedStateMachine):
    """A random story: each rule is an act, and `ChaosHarness` checks the promises."""

    harness: ChaosHarness

    @initialize(second=st.sampled_from(["openshift", "gardener"]))
    def two_clusters(self, second: str) -> None:
        self.harness = ChaosHarness(second=second)
        self.harness.__enter__()
        self.harness.minute()

    def cluster(self, moving: bool) -> ClusterUnderTest:
        return self.harness.clusters[self.harness.second if moving else "cluster-api"]

    # ------------------------------------------------------------ ordinary life
    @rule(minutes=st.integers(1, 3))
    def minutes_pass(self, minutes: int) -> None:
        for _ in range(minutes):
            checks = {name: self.checks(name) for name in self.harness.clusters}
            self.harness.minute()
            waiting = {message.cluster for message in self.harness.queues.rebalance}
            for name, before in checks.items():
                # This cluster has been checked, in any state of the other one.
                if self.due(name) and name not in waiting:
                    assert self.checks(name) > before, f"{name} was not checked"

    def checks(self, name: str) -> int:
        return self.harness.clusters[name].api.requests.count(method="GET")

    def due(self, name: str) -> bool:
        stored = self.harness.store.stored(name)
        control, unreachable = stored.control, stored.unreachable
        if unreachable is not None and unreachable.is_left_alone(self.harness.clock.now()):
            return False  # it did not answer, and is checked separately when due
        away = self.harness.store.away or self.harness.queues.away or self.harness.clusters[name].down
        return not away and not control.paused

    @rule(seconds=st.sampled_from([10, 90, 400, 2000, 4 * 3600]), fires=st.booleans())
    def time_passes_without_us(self, seconds: int, fires: bool) -> None:
        self.harness.pass_time(timedelta(seconds=seconds), steps=2)
        if fires:
            self.harness.tick()

    @rule(pods=st.integers(2, MAXIMUM + 2), zone=st.none() | ZONE)
    def demand_changes(self, pods: int, zone: str | None) -> None:
        self.harness.world.set_demand("cluster-api", "workers", pods if zone is None else pods // 2, zone)
        self.harness.pass_time(timedelta(seconds=20), steps=2)

    # ------------------------------------------------------------ zones
    @rule(moving=CLUSTER, zone=ZONE, nodes=st.integers(1, 3))
    def a_zone_fails_when_more_is_wanted(self, moving: bool, zone: str, nodes: int) -> None:
        cluster = self.cluster(moving)
        self.harness.world.exhaust_zone(cluster.name, zone)
        if cluster.requested + nodes <= cluster.maximum:
            cluster.scale_by(zone, nodes, "kubectl")
        self.harness.pass_time(timedelta(seconds=20), steps=2)

    @rule(moving=CLUSTER, zone=ZONE)
    def a_zone_heals(self, moving: bool, zone: str) -> None:
        self.harness.world.restore_zone(self.cluster(moving).name, zone)

    @rule(
        moving=CLUSTER,
        zone=ZONE,
        code=CODES,
        age=st.sampled_from([0, 30, 400, 4000, 5 * 3600, -60]),
        which=ANY,
        of_set=st.booleans(),
    )
    def a_launch_fails_and_events_arrive(
        self, moving: bool, zone: str, code: str, age: int, which: int, of_set: bool = False
    ) -> None:
        """Early or late, once, often or never: all events are kept, and any of them may arrive."""
        self.harness.fail(self.cluster(moving).name, zone, code, timedelta(seconds=age), of_set=of_set)
        for back in {0, which // 2, which}:
            self.harness.receive(self.harness.failures[-1 - back % len(self.harness.failures)])

    @rule(kind=SHIFTS, zone=ZONE, age=st.sampled_from([0, 5, 30, 400, 4000]), which=ANY, elsewhere=st.booleans())
    def arc_says_something_about_a_zone(self, kind: str, zone: str, age: int, which: int, elsewhere: bool) -> None:
        """Both clusters receive it. Statements also arrive late, twice, in any order, and about other regions."""
        region = "eu-west-3" if elsewhere else REGION
        self.harness.shift(kind, zone, timedelta(seconds=age), region=region)
        before = [self.harness.store.statement_about(name, zone) for name in self.harness.clusters]
        self.harness.receive(self.harness.shifts[-1])
        if elsewhere:
            assert [self.harness.store.statement_about(name, zone) for name in self.harness.clusters] == before
        for back in {which // 2, which}:
            self.harness.receive(self.harness.shifts[-1 - back % len(self.harness.shifts)])
        self.harness.drain()

    @rule(
        moving=CLUSTER, zone=ZONE, nodes=st.integers(1, 4), dies_at=st.none() | st.integers(-5, -1), twice=st.booleans()
    )
    def another_asks_for_nodes(self, moving: bool, zone: str, nodes: int, dies_at: int | None, twice: bool) -> None:
        """They are added once, however often the event arrives and wherever the worker dies."""
        cluster = self.cluster(moving)
        event = self.harness.ask(cluster.name, nodes, zone)
        self.harness.receive(event)
        if dies_at is not None:
            self.harness.run_now(cluster.name, happenings={(dies_at, "after"): self.harness.lives.die})
        if twice:
            self.harness.receive(event)
        self.harness.pass_time(timedelta(seconds=100), steps=2)
        self.harness.drain()

    # ------------------------------------------------------------ messages
    @precondition(lambda self: self.harness.queues.rebalance)
    @rule(which=ANY, what=st.sampled_from(["out of turn", "twice", "lost"]))
    def a_message_goes_astray(self, which: int, what: str) -> None:
        message = self.harness.queues.rebalance[which % len(self.harness.queues.rebalance)]
        if what == "lost":
            self.harness.queues.rebalance.remove(message)
        else:
            self.harness.run_undisturbed(message, again=what == "twice")

    @precondition(lambda self: self.harness.queues.checks)
    @rule(which=ANY, lost=st.booleans())
    def a_check_comes_early_or_never(self, which: int, lost: bool) -> None:
        message = self.harness.queues.checks[which % len(self.harness.queues.checks)]
        if lost:
            self.harness.queues.checks.remove(message)
        else:
            self.harness.deliver(message, function="check")

    @rule(moving=CLUSTER, incidents=INCIDENTS, zone=ZONE, nodes=st.integers(1, 3), fresh=st.booleans())
    def a_run_is_disturbed(self, moving: bool, incidents: Incidents, zone: str, nodes: int, fresh: bool) -> None:
        """Disturb a run that has work because a zone fails."""
        cluster = self.cluster(moving)
        if fresh:  # all zones recover, and their backoffs are forgotten
            for other in ZONES:
                self.harness.world.restore_zone(cluster.name, other)
            self.harness.pass_time(timedelta(hours=4), steps=3)
            self.harness.minute()
        self.harness.world.exhaust_zone(cluster.name, zone)
        if cluster.requested + nodes > cluster.maximum:
            fullest = max(cluster.groups(), key=lambda group: group.requested)
            cluster.scale_by(fullest.zone, -nodes, "kubectl")
        cluster.scale_by(zone, nodes, "kubectl" if moving else "cluster-autoscaler")
        self.harness.pass_time(timedelta(seconds=20), steps=2)
        self.disturb(cluster, incidents, zone)

    @rule(
        moving=CLUSTER,
        zone=ZONE,
        nodes=st.integers(1, 3),
        what=st.sampled_from(["killed", "killed", "scaled", "machines"]),
        step=st.integers(-4, -1) | st.integers(3, 17),
        moment=st.sampled_from(["before", "after"]),
    )
    def one_thing_happens_to_a_run(
        self, moving: bool, zone: str, nodes: int, what: str, step: int, moment: str
    ) -> None:
        """Play the most common incidents: a worker dies, or another writer writes between its check and its patch."""
        self.a_run_is_disturbed(moving, [(what, step, moment, None, 1)], zone, nodes, fresh=True)
        self.harness.pass_time(timedelta(seconds=100), steps=2)
        self.harness.drain()

    def disturb(self, cluster: ClusterUnderTest, incidents: Incidents, failing: str) -> None:
        happenings = {
            (step, moment): self.incident(what, cluster, zone or failing, delta)
            for what, step, moment, zone, delta in incidents
        }
        self.harness.away_meanwhile = any(what == "table" for what, *_ in incidents)
        try:
            self.harness.run_now(cluster.name, happenings=happenings)
        finally:
            if self.harness.away_meanwhile:
                self.harness.store.away = self.harness.away_meanwhile = False
            self.harness.queues.away = False
            cluster.api.faults.clear()

    def incident(self, what: str, cluster: ClusterUnderTest, zone: str, delta: int) -> Callable[[], None]:
        def lease_ends() -> None:
            """Let another worker take over while this one still believes that it is alone."""
            self.harness.clock.at += timedelta(seconds=SECONDS + 1)
            self.harness.run_now(cluster.name, function="rebalance beside")
            cluster.touched = True

        def time() -> None:
            self.harness.clock.at += timedelta(seconds=50)

        def table() -> None:
            self.harness.store.away = True

        def queue() -> None:
            self.harness.queues.away = True

        def machines() -> None:
            self.harness.clock.at += timedelta(seconds=10)
            cluster.controllers.timing, timing = self.harness.at_once, cluster.controllers.timing
            cluster.step()
            cluster.controllers.timing = timing

        faults = cluster.api.faults
        happenings: Mapping[str, Callable[[], Any]] = {
            "killed": self.harness.lives.die,
            "answer lost": lambda: faults.add(method="PATCH", stage="after"),
            "refused": lambda: faults.add(method="PATCH", status=500 if delta % 2 else 422),
            "scaled": lambda: cluster.scale_by(zone, delta, "cluster-autoscaler"),
            "machines": machines,
            "lease ends": lease_ends,
            "time": time,
            "table": table,
            "queue": queue,
            "bounds put back": lambda: cluster.put_back(zone, (0, 5)),
        }
        return happenings[what]

    # ------------------------------------------------------------ operators, and Cluster Autoscaler
    @rule(moving=CLUSTER, zone=ZONE, delta=st.integers(-2, 3))
    def another_scales(self, moving: bool, zone: str, delta: int) -> None:
        self.cluster(moving).scale_by(zone, delta, "kubectl" if moving else "cluster-autoscaler")

    @rule(moving=CLUSTER, zone=ZONE, edit=EDITS)
    def another_edits(self, moving: bool, zone: str, edit: tuple[str, str | None]) -> None:
        key, value = edit
        cluster = self.cluster(moving)
        if key == "evenkeel.dev/pool-max" and value is not None:
            cluster.set_maximum(int(value))
        elif key != PAUSED or cluster.name == "cluster-api":
            cluster.edit(zone, key, value)

    @rule(moving=CLUSTER, zone=ZONE, bounds=st.sampled_from([(0, 5), (1, 3), (2, 2)]), times=st.sampled_from([1, 3]))
    def another_puts_bounds_back(self, moving: bool, zone: str, bounds: tuple[int, int], times: int) -> None:
        """Three times within an hour, it is an owner and no edit: that group is left alone until resume."""
        cluster = self.cluster(moving)
        overwritten = 0
        for _ in range(times):
            cluster.put_back(zone, bounds)
            before = cluster.in_zone(zone).bounds
            self.harness.minute()
            overwritten += cluster.in_zone(zone).bounds != before
        if overwritten == 3:
            cluster.put_back(zone, bounds)
            before = cluster.in_zone(zone).bounds
            self.harness.minute()
            assert cluster.in_zone(zone).bounds == before, "another writer's bounds were overwritten once more"
            assert cluster.in_zone(zone).contested

    @rule()
    def gardener_reconciles_its_workers(self) -> None:
        self.cluster(moving=True).workers_are_reconciled()

    @rule(moving=CLUSTER, zone=ZONE, minutes=st.sampled_from([-1, 2, 30]))
    def the_operator_fences_a_zone(self, moving: bool, zone: str, minutes: int) -> None:
        self.harness.fence(self.cluster(moving).name, zone, timedelta(minutes=minutes))

    @rule(moving=CLUSTER, action=st.sampled_from(["pause", "resume", "plan", "status"]))
    def the_operator_acts(self, moving: bool, action: str) -> None:
        self.operator(action, moving)
        if action == "pause":
            self.harness.minute()
            self.operator("resume", moving)

    @rule(moving=CLUSTER, minutes=st.integers(1, 3), zone=ZONE)
    def dry_run_is_switched_on_for_a_while(self, moving: bool, minutes: int, zone: str) -> None:
        """The cluster is checked and not written, while the zone fails."""
        cluster = self.cluster(moving)
        self.harness.register(cluster.name, dry_run=True)
        self.a_launch_fails_and_events_arrive(moving, zone, "InsufficientInstanceCapacity", 0, 0)
        self.minutes_pass(minutes)
        self.harness.register(cluster.name, dry_run=False)

    @rule(moving=CLUSTER, dry_run=st.booleans(), resumes=st.booleans())
    def the_operator_leaves(self, moving: bool, dry_run: bool, resumes: bool) -> None:
        """Restore the bounds from before adoption, without annotations of Evenkeel. Then resume."""
        cluster = self.cluster(moving)
        self.harness.register(cluster.name, dry_run=dry_run)
        self.operator("restore", moving)
        for _ in range(3):
            self.harness.minute()
        frozen = any(group.frozen for group in cluster.groups())
        control = self.harness.store.stored(cluster.name).control
        assert control.paused or frozen, f"{cluster.name}: not left: {cluster.groups()}"
        if control.paused:
            assert not any(group.ours for group in cluster.groups()), (
                f"{cluster.name}: not restored: {cluster.groups()}"
            )
        if resumes:
            self.operator("resume", moving, restored=True)
        self.harness.register(cluster.name, dry_run=False)

    def operator(self, action: str, moving: bool, **more: Any) -> None:
        answer = self.harness.operator(action, self.cluster(moving).name, **more)
        assert answer["ok"], answer

    # ------------------------------------------------------------ the services that Evenkeel uses
    @rule(moving=CLUSTER, zone=ZONE, code=CODES, kind=SHIFTS)
    def the_queues_are_away_for_a_minute(self, moving: bool, zone: str, code: str, kind: str) -> None:
        """Lambda calls a function again that could not request a check, and it requests one then."""
        self.harness.pass_time(timedelta(seconds=70))
        self.harness.fail(self.cluster(moving).name, zone, code, timedelta(0))
        self.harness.shift(kind, zone, timedelta(0))
        self.harness.queues.away = True
        self.harness.receive(self.harness.failures[-1])
        self.harness.receive(self.harness.shifts[-1])
        self.harness.minute()
        self.harness.queues.away = False
        self.harness.receive_postponed()
        self.harness.drain()

    @rule(
        moving=CLUSTER,
        how=st.sampled_from([{"status": 500}, {"status": 410}, {"status": 403}, {"cut_body": True}, {}]),
        kind=st.sampled_from(["machine", "deployments", "sets", ""]),
        zone=ZONE,
    )
    def a_list_breaks_off_after_its_first_page(self, moving: bool, how: dict[str, Any], kind: str, zone: str) -> None:
        """An incomplete list is not used: only the next check's time and the cluster's unreachability are stored."""
        cluster = self.cluster(moving)
        self.a_zone_fails_when_more_is_wanted(moving, zone, 1)
        self.harness.drain()
        fault = cluster.api.faults.add(query_contains="continue=", path_contains=kind, times=1_000_000, **how)
        store = self.harness.store
        patches, writes = cluster.patches, store.writes - store.words
        reported = len(self.harness.outcomes)
        with pages_of(2):
            self.harness.run_now(cluster.name)
        cluster.api.faults.clear()
        if fault.times < 1_000_000:
            assert (cluster.patches, store.writes - store.words) == (patches, writes)
            assert all(outcome.unreachable for outcome in self.harness.outcomes[reported:])

    @rule(moving=CLUSTER, what=st.sampled_from(["table", "api server"]), minutes=st.integers(1, 3))
    def something_is_away_for_a_while(self, moving: bool, what: str, minutes: int) -> None:
        name = self.cluster(moving).name
        self.harness.store.away = what == "table"
        self.harness.set_down(name, what != "table")
        self.minutes_pass(minutes)
        self.harness.store.away = False
        self.harness.set_down(name, False)

    # ------------------------------------------------------------ the promises
    @invariant()
    def promises_hold(self) -> None:
        if hasattr(self, "harness"):
            self.harness.check()

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        try:
            if not self.harness.broken:
                self.calm_is_found_again()
        finally:
            self.harness.__exit__(None, None, None)

    def calm_is_found_again(self) -> None:
        """Repair everything: every pod and every replica gets its node, and then nothing is written any more."""
        harness = self.harness
        harness.calm()
        harness.settle()
        for name, cluster in harness.clusters.items():
            groups = cluster.groups()
            requested = sum(group.requested for group in groups)
            running = sum(len(group.running) for group in groups)
            assert requested == running, f"{name}: {groups}"
            assert not harness.store.open_requests(name)
            assert MINIMUM <= running <= max(MAXIMUM, running), f"{name}: {groups}"
            if not cluster.moving:
                assert harness.world.pending(name, "workers") == 0, f"{name}: {groups}"
        patches = {name: cluster.patches for name, cluster in harness.clusters.items()}
        writes = harness.store.writes
        harness.minute()
        assert {name: cluster.patches for name, cluster in harness.clusters.items()} == patches
        assert harness.store.writes == writes
        harness.check()


_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@pytest.mark.usefixtures("as_deployed")
@pytest.mark.parametrize("name", ["cluster-api", "openshift", "gardener"])
def test_a_delete_mark_that_a_dead_worker_left_behind_never_costs_a_node(name: str) -> None:
    with ChaosHarness(second="gardener" if name == "gardener" else "openshift") as harness:
        cluster, zone = harness.clusters[name], ZONES[0]
        harness.world.set_demand("cluster-api", "workers", MAXIMUM)  # otherwise its autoscaler would remove nodes
        harness.minute()

        def one_more_gets_stuck() -> None:
            harness.world.exhaust_zone(name, zone)
            cluster.scale_by(zone, 1, "kubectl")
            harness.pass_time(timedelta(seconds=20), steps=2)

        one_more_gets_stuck()
        harness.run_now(name, happenings={(-1, "after"): harness.lives.die})
        assert cluster.patches == 1, "the mark, and nothing else"
        harness.world.restore_zone(name, zone)
        harness.pass_time(timedelta(minutes=5), steps=5)  # before its autoscaler gives the machine up
        harness.pass_time(timedelta(hours=4), steps=4)
        group = cluster.in_zone(zone)
        assert len(group.running) == group.requested == 3, "the marked one is a node now"
        for _ in range(3):
            one_more_gets_stuck()
            harness.minute()
            harness.world.restore_zone(name, zone)
            harness.pass_time(timedelta(hours=4), steps=4)
            harness.check()


@pytest.mark.usefixtures("as_deployed")
def test_whatever_happens_every_promise_holds_and_calm_is_found_again() -> None:
    exploring = settings().max_examples > 500
    # A story takes seconds, and shrinking one takes hundreds: this is only for the profile `explore`.
    phases = [phase for phase in Phase if exploring or phase not in (Phase.shrink, Phase.explain)]
    run_state_machine_as_test(
        EveryoneActs,
        settings=settings(
            max_examples=1000 if exploring else 12,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=_SLOW,
            phases=phases,
        ),
    )
