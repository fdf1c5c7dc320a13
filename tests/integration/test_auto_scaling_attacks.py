"""Runs on Auto Scaling groups while AWS and other writers throttle, refuse, delete, and write in between."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from evenkeel.adapters.auto_scaling.cluster import AutoScalingCluster
from evenkeel.application.ports import Remaining
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.domain.fleet.check_times import is_unreachable
from evenkeel.domain.model.incidents import IncidentKind
from evenkeel.domain.model.reasons import Rule
from evenkeel.record import ClusterRecord, ControlRecord, Registration
from evenkeel.texts.english import sentence, sentences
from sandbox.auto_scaling.calls import AwsError
from sandbox.server import Response
from tests.auto_scaling_groups import POOL, REGION, ZONES, Stage, outage, over_http, tag
from tests.fakes import plenty
from tests.integration.test_auto_scaling_groups import desired, stack_of
from tests.timed import worker

WRITES = ("CreateOrUpdateTags", "SuspendProcesses", "UpdateAutoScalingGroup", "SetDesiredCapacity", "ResumeProcesses")
READ_BEFORE_WRITES = "DescribeInstanceRefreshes"
READS = ("DescribeScalingActivities", READ_BEFORE_WRITES)


def refuse(stage: Stage, operations: tuple[str, ...], code: str = "Throttling", group: str = "") -> None:
    """Refuse these operations from now on; with a group, only those that name it. Without operations, refuse none."""

    def before(operation: str, request: object) -> None:
        if operation in operations and group in str(request):
            raise AwsError(code, "Rate exceeded")

    stage.api.before = before


def runs(stage: Stage, minutes: int) -> RunSummary:
    for _ in range(minutes):
        summary = stage.run()
        stage.minutes(1)
    return summary


def once(stage: Stage, operation: str, change: Callable[[str], Any]) -> None:
    """Call ``change`` with the group's name before the first call of an operation."""

    def before(name: str, request: Any) -> None:
        group = request.get("AutoScalingGroupName") or request.get("Tags", [{}])[0].get("ResourceId")
        if name == operation and group:
            stage.api.before = lambda _name, _request: None
            change(group)

    stage.api.before = before


def before_the_second_read(stage: Stage, change: Callable[[], Any]) -> None:
    """Change something once, before a run reads the first group again in order to write it."""

    def before(name: str, request: Any) -> None:
        if name == "DescribeAutoScalingGroups" and "AutoScalingGroupNames" in request:
            stage.api.before = lambda _name, _request: None
            change()

    stage.api.before = before


def instances(stage: Stage, names: list[str]) -> set[str]:
    return {one for name in names for one in stage.group(name).instances}


def reasons(summary: RunSummary) -> dict[str, str]:
    assert summary.plan is not None
    plans = [plan for pool in summary.plan.pools for plan in pool.groups]
    return {plan.group.key.name: "; ".join(sentences(plan.reasons, plan.group.key.flavour)) for plan in plans}


def check_whole(stage: Stage, names: list[str], running: set[str]) -> None:
    """Check that the outage is over, that no write is incomplete, and that each instance still exists."""
    assert sum(desired(stage, names)) == 8
    assert desired(stage, names)[1] == 2
    assert running <= instances(stage, names)
    assert not any(stage.group(name).suspended for name in names)
    assert not any('"unfinished"' in stage.decision(name) for name in names)


@pytest.mark.parametrize("only", ["", "workers-b"], ids=["all groups", "one group"])
@pytest.mark.parametrize("operation", [*WRITES, *READS])
def test_ten_minutes_of_throttling_are_harmless_and_end_without_a_person(operation: str, only: str) -> None:
    stage, names = outage()
    running = instances(stage, names)
    refuse(stage, (operation,), group=only)
    for _ in range(10):
        runs(stage, 1)
        assert sum(desired(stage, names)) in (6, 8)  # some replicas may wait for their new zone
        assert sum(bool(stage.group(name).suspended) for name in names) <= 1
    assert not is_unreachable(stage.store.load("demo").unreachable)
    refuse(stage, ())
    runs(stage, 4)
    check_whole(stage, names, running)
    assert not stage.store.load("demo").cluster_health.incidents


@pytest.mark.parametrize("operation", ["DescribeAutoScalingGroups", *READS, *WRITES])
def test_a_right_that_is_missing_is_an_incident_and_nothing_is_half_written(operation: str) -> None:
    stage, names = outage()
    running = instances(stage, names)
    refuse(stage, (operation,), "AccessDenied")
    runs(stage, 6)
    incidents = stage.store.load("demo").cluster_health.incidents
    kind = IncidentKind.REFUSED if operation in (*WRITES, READ_BEFORE_WRITES) else IncidentKind.ACCESS
    (incident,) = [incident for incident in incidents if incident.kind is kind]
    assert f"autoscaling:{operation}" in incident.message
    assert "AccessDenied: allow this action in the policy of the role" in incident.message
    assert 6 <= sum(desired(stage, names)) <= 8
    refuse(stage, ())
    runs(stage, 20)
    check_whole(stage, names, running)
    assert not stage.store.load("demo").cluster_health.incidents


@pytest.mark.parametrize("autoscaler", ["none", "cluster-autoscaler"])
def test_at_no_call_do_the_maxima_exceed_the_pools(autoscaler: str) -> None:
    stage, names = outage()
    stage.register(autoscaler=autoscaler)
    sums: list[int] = []

    def before(_operation: str, _request: object) -> None:
        sums.append(sum(stage.group(name).maximum for name in names))

    stage.api.before = before
    runs(stage, 6)
    assert desired(stage, names)[1] == 2
    assert max(sums) <= 12


def test_a_pool_tag_that_is_removed_in_the_middle_of_a_write_heals_once_it_is_back() -> None:
    stage, names = outage()
    running, pool = instances(stage, names), "evenkeel.dev/pool"
    has_begun = False

    def before(operation: str, request: Any) -> None:  # IAM allows writes only to groups with the tag
        nonlocal has_begun
        if operation == "SetDesiredCapacity" and not has_begun:
            has_begun = True
            del stage.group(names[1]).tags[pool]
        group = request.get("AutoScalingGroupName") or request.get("Tags", [{}])[0].get("ResourceId")
        if operation in WRITES and pool not in stage.group(group).tags:
            raise AwsError("AccessDenied", "not authorized", 403)

    stage.api.before = before
    runs(stage, 12)
    incidents = stage.store.load("demo").cluster_health.incidents
    assert any(names[1] in one.message for one in incidents if one.kind is IncidentKind.REFUSED)
    stage.group(names[1]).tags[pool] = ("workers", False)
    runs(stage, 8)
    check_whole(stage, names, running)


@pytest.mark.parametrize("strategy", ["Balanced", "Lax-Greedy", "Backward-Compatible", "Adaptive"])
def test_each_strategy_passes_an_outage_and_leaves_no_trace(strategy: str) -> None:
    stage, names = outage(strategy=strategy)
    running = instances(stage, names)
    runs(stage, 4)
    assert stage.numbers(names[1]) == (0, 2, 2, 2)
    check_whole(stage, names, running)
    stage.stock.accept(ZONES[1])
    runs(stage, 10)
    assert stage.group(names[1]).maximum > 2
    stage.restore()
    assert {stage.numbers(name)[::3] for name in names} == {(0, 9)}
    assert all(stage.tags(name) == POOL for name in names)
    assert running <= instances(stage, names)


class TestChecks:
    """Checks of two clusters, of two accounts, in one chunk."""

    def test_a_throttled_account_does_not_hide_its_neighbor_and_recovers_by_itself(self) -> None:
        stage, calm = Stage(autoscaler="none", dry_run=False), Stage(autoscaler="none", dry_run=False)
        stage.pool()
        names = calm.pool()
        record = calm.record.model_copy(update={"id": "calm"})
        stage.store.save_record(record, ControlRecord(), None)
        stack = stack_of(stage)
        of_clusters = {"demo": stage.clusters, "calm": calm.clusters}

        class Both:
            def open(self, record: ClusterRecord, remaining: Remaining, **more: Any) -> AutoScalingCluster:
                cluster: AutoScalingCluster = of_clusters[record.id].open(record, remaining, **more)
                return cluster

            def needs_run(self, _record: ClusterRecord) -> bool:
                return False

        for use_case in (stack.check, stack.rebalance):
            object.__setattr__(use_case, "clusters", Both())

        def minutes(count: int) -> None:
            for _ in range(count):
                stack.check(["demo", "calm"], plenty)
                stack.carry_out()
                stage.minutes(1)
                calm.minutes(1)

        minutes(20)
        refuse(stage, ("DescribeAutoScalingGroups",))
        nodes = calm.numbers(names[1])[1]
        calm.refuse(ZONES[1])
        calm.api.set_desired_capacity(AutoScalingGroupName=names[1], DesiredCapacity=nodes + 1)
        minutes(10)
        assert is_unreachable(stage.store.load("demo").unreachable)
        assert calm.numbers(names[1])[1:3] == (nodes, nodes)
        assert not stage.store.load("calm").cluster_health.incidents
        refuse(stage, ())
        minutes(10)
        assert not stage.store.load("demo").cluster_health.incidents

    def test_a_page_that_fails_or_moves_leads_to_no_write(self) -> None:
        stage = Stage(autoscaler="none")
        for number in range(301):
            stage.put(f"group-{number:03}", ZONES[number % 3], 0, 1, 9)
        stage.minutes(2)
        stage.api.calls.clear()
        assert len(stage.observe()) == 301
        assert len(stage.api.calls) == 4
        runs(stage, 12)  # the first writes of many groups take several runs

        def before(operation: str, request: Any) -> None:
            if operation == "DescribeAutoScalingGroups" and request.get("NextToken"):
                delete_first()

        def delete_first() -> None:
            stage.api.before = lambda _name, _request: None
            delete_now(stage, "group-000")

        stage.api.before = before  # the next page begins after a group that is then on no page
        stage.refuse(ZONES[1])
        summary = stage.run()
        assert not summary.written
        assert len(reasons(summary)) == 301, "the group on no page is read by its name"
        for code in ("Throttling", "InvalidNextToken"):
            stage.api.before = partial(_fail_page, code)
            assert stage.run().unreachable
        stage.api.before = lambda _name, _request: None


def _fail_page(code: str, operation: str, request: Any) -> None:
    if operation == "DescribeAutoScalingGroups" and request.get("NextToken"):
        raise AwsError(code, "this page fails")


@pytest.mark.parametrize("code", ["ScalingActivityInProgress", "ResourceContention"])
@pytest.mark.parametrize("operation", WRITES)
def test_a_busy_group_is_written_once_it_is_not_busy(operation: str, code: str) -> None:
    stage, names = outage()
    running = instances(stage, names)
    refuse(stage, (operation,), code, "workers-b")
    runs(stage, 4)
    refuse(stage, ())
    runs(stage, 4)
    check_whole(stage, names, running)


@pytest.mark.parametrize("bounds", [(5, 12), (0, 2), (0, 3), (3, 3), (8, 20)])
@pytest.mark.parametrize("operation", WRITES)
def test_bounds_that_others_write_in_the_middle_of_a_write_are_a_conflict_and_no_refusal(
    operation: str, bounds: tuple[int, int]
) -> None:
    stage, names = outage()
    running = instances(stage, names)
    minimum, maximum = bounds

    def write(group: str) -> None:
        stage.api.update_auto_scaling_group(AutoScalingGroupName=group, MinSize=minimum, MaxSize=maximum)

    once(stage, operation, write)
    runs(stage, 4)
    assert not any(state.contest.write_refused for state in stage.store.load("demo").state.groups.values())
    assert running <= instances(stage, names)
    assert not any(stage.group(name).suspended for name in names)
    assert desired(stage, names)[1] == 2
    assert sum(stage.numbers(name)[3] for name in names) <= max(12, sum(desired(stage, names)))


@pytest.mark.parametrize("operation", READS)
def test_a_group_that_is_deleted_while_the_groups_are_read_does_not_hide_the_others(operation: str) -> None:
    stage, _ = outage()
    once(stage, operation, lambda group: stage.api.groups.by_name.pop(group))
    assert not stage.run().unreachable


def delete_now(stage: Stage, name: str) -> None:
    del stage.api.groups.by_name[name]


def delete_slowly(stage: Stage, name: str) -> None:
    stage.api.delete_auto_scaling_group(AutoScalingGroupName=name, ForceDelete=True)
    stage.minutes(0.25)
    assert "frozen: the object is being deleted" in reasons(stage.run())[name]
    stage.minutes(3)


@pytest.mark.parametrize("delete", [delete_now, delete_slowly])
@pytest.mark.parametrize("runs_without", [0, 4])
@pytest.mark.parametrize("count", [1, 3])
def test_a_group_that_is_created_again_gets_its_own_bounds_back(
    delete: Callable[[Stage, str], None], runs_without: int, count: int
) -> None:
    stage = Stage(autoscaler="none")
    names = stage.pool()
    stage.settle()
    stage.minutes(1)
    for name in names[:count]:
        delete(stage, name)
    if runs_without:
        runs(stage, runs_without)
    for name, zone in list(zip(names, ZONES, strict=True))[:count]:
        stage.put(name, zone, 1, 2, 20)
    stage.minutes(2)
    stage.settle()
    assert {stage.numbers(name)[3] for name in names} == {4}
    stage.restore()
    assert [stage.numbers(name)[::3] for name in names] == [(1, 20)] * count + [(0, 9)] * (3 - count)
    assert all(stage.tags(name) == POOL for name in names)


def test_a_group_that_is_created_again_between_read_and_write_is_read_again() -> None:
    stage = Stage(autoscaler="none")
    names = stage.pool(desired=0)

    def recreate() -> None:
        delete_now(stage, names[0])
        stage.put(names[0], ZONES[0], 0, 0, 9)

    before_the_second_read(stage, recreate)
    assert stage.run().conflicts == 1


def test_a_group_that_gets_another_zone_between_read_and_write_is_not_written() -> None:
    stage = Stage(autoscaler="none")
    names = stage.pool()
    before_the_second_read(stage, lambda: setattr(stage.group(names[0]), "zones", [*ZONES[:2]]))
    assert stage.run().conflicts == 1
    assert stage.numbers(names[0])[3] == 9


@pytest.mark.parametrize("pool", ["others", ""])
def test_a_pool_tag_that_changes_between_read_and_write_is_read_again(pool: str) -> None:
    stage, names = outage()
    change = [tag(names[1], "evenkeel.dev/pool", pool)]
    writes = stage.api.create_or_update_tags if pool else stage.api.delete_tags
    before_the_second_read(stage, lambda: writes(Tags=change))
    stage.run()
    runs(stage, 4)
    assert stage.numbers(names[1])[1:3] == (4, 2)  # a pool of one zone keeps its requested nodes
    assert sum(desired(stage, names)) == 8


class TestTwoWriters:
    """Two records, of one stack or of two, select the same groups."""

    def run_other(self, stage: Stage) -> RunSummary:
        return worker(stage.store, stage.clusters, stage.clock, stage.queue)("other", "a test", plenty)

    def stage(self) -> tuple[Stage, list[str]]:
        stage = Stage(autoscaler="none", pools=[{"name": "workers", "min": 0, "max": 12}])
        names = stage.pool()
        for name in names:
            stage.api.delete_tags(Tags=[tag(name, f"evenkeel.dev/pool-{bound}", "") for bound in ("min", "max")])
        fields = {"id": "other", "autoscaler": "none", "pools": [{"name": "workers", "min": 0, "max": 30}]}
        access = {"kind": "auto-scaling", "region": REGION}
        record = Registration.model_validate({"access": access, **fields}).record
        stage.store.save_record(record, ControlRecord(), None)
        return stage, names

    def test_the_first_one_writes_and_the_other_reports_it(self) -> None:
        stage, names = self.stage()
        for _ in range(4):
            stage.run()
            summary = self.run_other(stage)
            assert not summary.written
            stage.minutes(1)
        assert {stage.numbers(name)[3] for name in names} == {4}
        assert "cluster demo of stack evenkeel writes the group" in reasons(summary)[names[0]]

    def test_a_stack_of_another_name_is_another_writer_with_the_same_cluster(self) -> None:
        stage, names = self.stage()
        stage.settle()
        stage.clusters.stack = "second"
        frozen = stage.observe()[names[0]].frozen_because
        assert frozen is not None
        assert frozen.rule is Rule.WRITTEN_BY_OTHER_CLUSTER

    def test_after_a_restore_the_other_one_takes_over_and_finds_the_former_bounds(self) -> None:
        stage, names = self.stage()
        stage.settle()
        self.run_other(stage)
        stage.restore()
        for _ in range(3):
            self.run_other(stage)
            stage.minutes(1)
        assert {stage.numbers(name)[3] for name in names} == {10}
        assert {stage.tags(name)["evenkeel.dev/adopted-bounds"] for name in names} == {"0,9"}

    def test_the_other_one_does_not_end_an_unfinished_write(self) -> None:
        stage, names = self.stage()
        refuse(stage, ("ResumeProcesses",))
        stage.run()
        refuse(stage, ())
        stage.minutes(5)
        assert sum(bool(stage.group(name).suspended) for name in names) == 1
        self.run_other(stage)
        assert sum(bool(stage.group(name).suspended) for name in names) == 1
        stage.run()
        assert not any(stage.group(name).suspended for name in names)


def test_a_restore_over_bounds_that_others_have_changed_says_so() -> None:
    stage = Stage(autoscaler="none")
    names = stage.pool()
    stage.settle()
    stage.api.update_auto_scaling_group(AutoScalingGroupName=names[0], MinSize=1, MaxSize=20)
    stored = stage.store.load("demo")
    stage.store.save_record(stored.record, ControlRecord(restoring=True), stored.versions)
    texts = reasons(stage.run())
    assert texts[names[0]] == (
        "restored: bounds 0 to 9, as before Evenkeel, in place of 1 to 20, which another writer has set"
    )
    assert texts[names[1]] == "restored: bounds 0 to 9, as before Evenkeel"


@pytest.mark.parametrize("resets_bounds", [False, True])
def test_terraform_that_removes_foreign_tags_keeps_no_restore_from_the_former_bounds(resets_bounds: bool) -> None:
    stage, names = outage()
    running = instances(stage, names)
    for _ in range(3):
        runs(stage, 5)
        for name in names:
            own = ("decision", "adopted-bounds", "move")
            stage.api.delete_tags(Tags=[tag(name, f"evenkeel.dev/{key}", "") for key in own])
            if resets_bounds:
                stage.api.update_auto_scaling_group(AutoScalingGroupName=name, MinSize=0, MaxSize=9)
    check_whole(stage, names, running)
    stage.restore()
    assert {stage.numbers(name)[::3] for name in names} == {(0, 9)}
    assert all(stage.tags(name) == POOL for name in names)
    stage.minutes(1)
    stage.settle()
    assert stage.store.load("demo").control.paused


def test_bounds_of_a_user_who_removed_evenkeels_tags_stay() -> None:
    stage = Stage(autoscaler="none")
    names = stage.pool()
    stage.settle()
    stage.api.delete_tags(Tags=[tag(names[0], f"evenkeel.dev/{key}", "") for key in ("decision", "adopted-bounds")])
    stage.api.update_auto_scaling_group(AutoScalingGroupName=names[0], MinSize=1, MaxSize=20)
    stage.restore()
    assert [stage.numbers(name)[::3] for name in names] == [(1, 20), (0, 9), (0, 9)]


def test_a_max_that_others_lower_below_our_min_is_a_conflict() -> None:
    stage = Stage(autoscaler="none")
    names = stage.pool()
    stage.settle()
    for name in names:
        stage.api.create_or_update_tags(Tags=[tag(name, "evenkeel.dev/pool-min", "6")])
    lower = partial(stage.api.update_auto_scaling_group, MinSize=0, MaxSize=1)
    once(stage, "UpdateAutoScalingGroup", lambda group: lower(AutoScalingGroupName=group))
    assert stage.run().conflicts == 1
    runs(stage, 4)
    assert {stage.numbers(name) for name in names} == {(2, 2, 2, 4)}
    assert not any(state.contest.write_refused for state in stage.store.load("demo").state.groups.values())


def test_a_write_does_not_raise_the_desired_capacity_to_protected_instances() -> None:
    stage = Stage(autoscaler="none")
    names = stage.pool(desired=4)
    for name in names:
        ids = list(stage.group(name).instances)
        stage.api.set_instance_protection(AutoScalingGroupName=name, InstanceIds=ids, ProtectedFromScaleIn=True)
        stage.api.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=2)
    running = instances(stage, names)
    runs(stage, 4)
    assert {stage.numbers(name) for name in names} == {(0, 2, 4, 4)}
    assert running == instances(stage, names)


def test_a_group_with_copied_tags_of_eks_loses_no_node_because_nothing_would_drain_it() -> None:
    stage = Stage(autoscaler="none", level="converge", converge={"blind": True, "per_hour": 10})
    copied = {"eks:cluster-name": "demo", "eks:nodegroup-name": "workers"}
    names = [f"workers-{zone[-1]}" for zone in ZONES]
    for name, zone, nodes in zip(names, ZONES, (1, 4, 4), strict=True):
        stage.put(name, zone, 0, nodes, 9, **copied)
    stage.minutes(2)
    running = instances(stage, names)
    summary = runs(stage, 15)
    assert desired(stage, names) == [1, 4, 4]
    assert running == instances(stage, names)
    assert summary.plan is not None
    report = summary.plan.pools[0].convergence.report
    assert report is not None
    assert report.why is not None
    assert "set workload" in sentence(report.why)


def test_an_order_of_cluster_autoscaler_in_the_middle_of_a_write_is_not_cut() -> None:
    stage, names = outage()

    def order(group: str) -> None:
        stage.refuse(ZONES[0])  # no instance shows the order
        stage.api.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=4)

    once(stage, "SuspendProcesses", lambda _group: once(stage, "SuspendProcesses", order))
    assert stage.run().conflicts == 1
    assert sum(desired(stage, names)) == 10  # eight replicas, two of them moved, and the two that were ordered


def test_a_run_without_time_to_read_again_after_a_conflict_has_read_the_cluster() -> None:
    stage, _ = outage()
    seconds = [60.0]

    def put_back(group: str) -> None:
        stage.api.update_auto_scaling_group(AutoScalingGroupName=group, MinSize=0, MaxSize=9)
        once(stage, "ResumeProcesses", lambda _group: seconds.append(1.0))

    once(stage, "SuspendProcesses", put_back)
    summary = worker(stage.store, stage.clusters, stage.clock, stage.queue)("demo", "a test", lambda: seconds[-1])
    assert (summary.conflicts, seconds) == (1, [60.0, 1.0])
    assert not summary.unreachable
    assert not is_unreachable(stage.store.load("demo").unreachable)


def test_ten_minutes_in_which_aws_throttles_every_call_end_without_a_person() -> None:
    stage, names = outage()
    running = instances(stage, names)
    stage.api.throttle(timedelta(minutes=10))
    runs(stage, 10)
    assert is_unreachable(stage.store.load("demo").unreachable)
    runs(stage, 5)
    check_whole(stage, names, running)
    assert not stage.store.load("demo").cluster_health.incidents


PAGE = b"<html><head><title>Sign in</title></head><body>Sign in</body></html>"


@pytest.mark.parametrize("status", [200, 403, 502])
def test_the_html_page_of_a_proxy_is_no_answer(status: int, caplog: pytest.LogCaptureFixture) -> None:
    stage, names = outage()
    with over_http(stage) as server:
        server.proxy = Response(status=status, body=PAGE, content_type="text/html")
        assert stage.run().unreachable
        assert "please report this" not in caplog.text
        server.proxy = None
        assert desired(stage, names) == [2, 4, 2]
        assert not stage.run().unreachable


UNKNOWN: dict[str, dict[str, Any]] = {
    "group": {"Status": "Shifting"},
    "instance": {"LifecycleState": "Quarantined"},
    "ending instance": {"LifecycleState": "Terminating:Retained"},
    "health": {"HealthStatus": "Impaired"},
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_state_that_evenkeel_does_not_know_ends_no_instance_and_stops_no_other_group(kind: str) -> None:
    stage, names = outage()
    running = instances(stage, names)
    strange = names[0] if kind == "group" else next(iter(stage.group(names[0]).instances))
    stage.api.overrides[strange] = UNKNOWN[kind]
    summary = runs(stage, 4)
    assert not summary.unreachable
    assert running <= instances(stage, names)
    assert desired(stage, names)[1] == 2
    assert desired(stage, names)[0] >= 2


def test_an_unknown_state_of_a_node_group_ends_no_instance() -> None:
    stage = Stage(autoscaler="none")
    names = [stage.put_managed(f"workers-{zone[-1]}", zone, 0, 2, 9) for zone in ZONES]
    stage.minutes(2)
    running = instances(stage, names)
    stage.eks.overrides["workers-a"] = {"status": "SHIFTING"}
    assert not runs(stage, 4).unreachable
    assert running <= instances(stage, names)


@pytest.mark.parametrize("operation", ["CreateOrUpdateTags", "SuspendProcesses"])
def test_launches_that_cluster_autoscaler_orders_before_a_lower_max_go_on(operation: str) -> None:
    stage = Stage(autoscaler="none")
    names = stage.pool()
    stage.refuse(ZONES[1])
    stage.api.set_desired_capacity(AutoScalingGroupName=names[1], DesiredCapacity=4)
    stage.minutes(3)

    def before(name: str, request: object) -> None:
        if name == operation and names[1] in str(request):
            stage.api.before = lambda _name, _request: None
            stage.stock.accept(ZONES[1])
            stage.api.set_desired_capacity(AutoScalingGroupName=names[1], DesiredCapacity=6)

    stage.api.before = before
    stage.run()
    assert len(stage.group(names[1]).counted) == 6
