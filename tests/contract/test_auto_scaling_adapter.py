"""The adapter of Auto Scaling groups over HTTP: with boto3's clients, which validate shapes, on the simulated API.

Where moto is right, it is read too.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from evenkeel.adapters.auto_scaling.api import ThrottledError
from evenkeel.adapters.auto_scaling.clusters import writer_name
from evenkeel.adapters.auto_scaling.write import GroupWriter
from evenkeel.application.errors import (
    AccessRefusedError,
    ClusterUnavailableError,
    ConflictError,
    EvenkeelError,
    ForbiddenError,
    RejectedError,
    TooLateError,
)
from evenkeel.domain.model.groups import Bounds, MachineRef, NodeGroup, PublishedBounds, State
from evenkeel.domain.model.plans import GroupPlan, Removal
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.rebalancing.annotations import for_tag, write_adopted, write_published
from evenkeel.domain.rebalancing.writes import Patch
from evenkeel.texts.english import sentence
from sandbox.auto_scaling.behavior import Behavior, slow
from sandbox.auto_scaling.calls import AwsError
from tests.auto_scaling_groups import REGION, ZONES, InProcess, Stage, over_http, tag
from tests.fakes import plenty

NAME = "workers-a"
READS = ("DescribeAutoScalingGroups", "DescribeScalingActivities", "DescribeInstanceRefreshes", "DescribeNodegroup")


@pytest.fixture(params=[Behavior, slow])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    stage = Stage(request.param(), autoscaler="none")
    with over_http(stage):
        yield stage


def patch_of(group: NodeGroup, bounds: Bounds | None, requested: int | None = None, **more: Any) -> Patch:
    target = group.requested if requested is None else requested
    plan = GroupPlan(
        group=group, state=State.HEALTHY, requested=target, bounds=bounds or group.bounds, reasons=(), **more
    )
    return Patch(plan=plan, bounds=bounds, requested=requested)


def write(stage: Stage, bounds: Bounds | None, requested: int | None = None, name: str = NAME, **more: Any) -> None:
    """Read the groups, mark what the patch removes, and write one patch, as a run does."""
    cluster = stage.clusters.open(stage.record, more.pop("remaining", plenty))
    (group,) = (group for group in cluster.observe().groups if group.key.name == name)
    more.setdefault("meanwhile", lambda: None)()
    move, patch = more.pop("move", None), patch_of(group, bounds, requested, removal=more.get("removal", Removal()))
    if patch.lowers_requested:
        cluster.mark(patch, cluster.deletion_candidates(patch), ())
    published = PublishedBounds(at=stage.clock.now(), bounds=bounds or group.bounds, requested=patch.plan.requested)
    cluster.apply(patch, write_published(published, 0, "a test"), write_adopted(group.bounds), move)


def writes_of(stage: Stage) -> list[str]:
    """Return the operations that changed something since the last call of this function."""
    operations = [name for name, _ in stage.api.calls if name not in READS]
    stage.api.calls.clear()
    return operations


class TestReading:
    def test_groups_are_read_with_zone_pool_bounds_requested_and_running(self, stage: Stage) -> None:
        names = stage.pool()
        groups = stage.observe()
        assert list(groups) == names
        assert [group.identity.zone for group in groups.values()] == list(ZONES)
        assert {(group.requested, group.running, group.bounds) for group in groups.values()} == {(2, 2, Bounds(0, 9))}
        assert {group.identity.pool_label for group in groups.values()} == {"workers"}
        assert {str(group.key) for group in groups.values()} == {f"auto-scaling/{REGION}/{name}" for name in names}

    def test_failed_launches_are_machines_with_the_clouds_message(self, stage: Stage) -> None:
        stage.refuse(ZONES[0])
        stage.put(NAME, ZONES[0], 0, 2, 9)
        stage.minutes(4)
        group = stage.observe()[NAME]
        assert (group.requested, group.running, group.on_its_way(stage.clock.now(), timedelta(minutes=15))) == (2, 0, 0)
        assert all(
            "sufficient m5.xlarge capacity" in one.failure.message for one in group.refused_machines if one.failure
        )
        assert len(group.refused_machines) == 2

    def test_another_writers_order_is_neither_coming_nor_failed_before_aws_begins_its_launches(
        self, stage: Stage
    ) -> None:
        stage.api.behavior.launch_delay = stage.api.behavior.activity_delay = (timedelta(seconds=9),) * 2
        stage.put(NAME, ZONES[0], 0, 2, 9)
        group = stage.observe()[NAME]
        assert (group.running, group.on_its_way(stage.clock.now(), timedelta(minutes=15))) == (0, 0)
        assert not group.refused_machines
        assert group.frozen_because is None

    def test_instances_that_start_are_on_their_way(self, stage: Stage) -> None:
        stage.put(NAME, ZONES[0], 0, 2, 9)
        stage.minutes(0.2)  # AWS begins a launch up to five seconds after the order, and lists it later
        group = stage.observe()[NAME]
        assert (group.running, group.on_its_way(stage.clock.now(), timedelta(minutes=15))) == (0, 2)

    def test_discovery_strings_select_groups_without_a_pool_tag(self, stage: Stage) -> None:
        discovery = ["asg:tag=k8s.io/cluster-autoscaler/enabled,k8s.io/cluster-autoscaler/demo=owned"]
        stage.register(discovery=discovery, pools=[{"name": "all", "min": 0, "max": 9, "selector": {}}])
        stage.put("mine", ZONES[0], 0, 1, 9, **{"evenkeel.dev/pool": ""}, **_discovered("demo"))
        stage.put("others", ZONES[0], 0, 1, 9, **_discovered("other"))
        assert list(stage.observe()) == ["mine"]

    def test_a_managed_group_is_frozen_while_eks_updates_it_and_not_while_it_is_degraded(self, stage: Stage) -> None:
        name = stage.put_managed("workers", ZONES[0], 0, 1, 9)
        group = stage.observe()[name]
        assert group.frozen_because is not None
        assert (group.frozen_because.rule, group.identity.cluster) == (Rule.NODE_GROUP_BUSY, "demo")
        stage.refuse(ZONES[0])
        stage.api.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=2)
        stage.minutes(6)
        described = stage.eks.describe_nodegroup(clusterName="demo", nodegroupName="workers")
        assert described["nodegroup"]["status"] == "DEGRADED"
        assert stage.observe()[name].frozen_because is None

    def test_eks_is_asked_once_in_eight_minutes(self, stage: Stage) -> None:
        stage.put_managed("workers", ZONES[0], 0, 1, 9)
        stage.minutes(2)
        for _ in range(8):
            stage.observe()
            stage.minutes(1)
        asked = [name for name, _ in stage.eks.calls if name == "DescribeNodegroup"]
        assert len(asked) == 1 + 1  # the stage's own

    def test_nodes_are_named_as_the_cloud_provider_names_them(self, stage: Stage) -> None:
        stage.pool(desired=1)
        cluster = stage.clusters.open(stage.record, plenty)
        cluster.observe()
        instances = [one for name in stage.api.groups.by_name for one in stage.group(name).instances.values()]
        assert set(cluster.nodes()) == {f"aws:///{one.zone}/{one.id}" for one in instances}


class TestQuickChecks:
    def test_a_quiet_full_check_reads_nothing_but_the_groups(self, stage: Stage) -> None:
        stage.pool()
        stage.api.calls.clear()
        stage.observe()
        assert [name for name, _ in stage.api.calls] == ["DescribeAutoScalingGroups"]


class TestWriting:
    def test_only_what_differs_is_written(self, stage: Stage) -> None:
        stage.pool()
        stage.api.calls.clear()
        write(stage, Bounds(0, 9))
        assert writes_of(stage) == []
        write(stage, Bounds(1, 9))
        assert writes_of(stage) == ["CreateOrUpdateTags", "UpdateAutoScalingGroup"]
        write(stage, Bounds(2, 9))
        assert writes_of(stage) == ["UpdateAutoScalingGroup"]

    def test_a_change_of_bounds_is_at_most_three_calls_that_change_something(self, stage: Stage) -> None:
        stage.pool()
        write(stage, Bounds(1, 9))
        writes_of(stage)
        write(stage, Bounds(1, 4))
        assert writes_of(stage) == ["SuspendProcesses", "UpdateAutoScalingGroup", "ResumeProcesses"]
        write(stage, Bounds(0, 6))
        assert writes_of(stage) == ["CreateOrUpdateTags", "UpdateAutoScalingGroup"]

    def test_a_write_that_may_not_end_in_time_is_not_begun(self, stage: Stage) -> None:
        stage.pool()
        write(stage, Bounds(1, 9))
        writes_of(stage)
        with pytest.raises(TooLateError):
            write(stage, Bounds(1, 4), remaining=lambda: 9.0)
        assert writes_of(stage) == []
        assert '"unfinished"' not in stage.decision(NAME)
        write(stage, Bounds(0, 9), remaining=lambda: 9.0)
        assert writes_of(stage) == ["UpdateAutoScalingGroup"], "no process is suspended"

    def test_a_process_is_resumed_while_aws_throttles_longer_than_other_calls_are_repeated(self, stage: Stage) -> None:
        stage.pool()
        throttled: list[str] = []

        def before(name: str, _request: object) -> None:
            if name == "ResumeProcesses" and len(throttled) < 9:
                throttled.append(name)
                raise AwsError("Throttling", "Rate exceeded")

        stage.api.before = before
        write(stage, Bounds(1, 4))
        assert len(throttled) == 9
        assert not stage.group(NAME).suspended

    def test_bounds_are_one_request_without_a_desired_capacity(self, stage: Stage) -> None:
        stage.pool()
        stage.api.calls.clear()
        write(stage, Bounds(1, 4))
        requests = [request for name, request in stage.api.calls if name == "UpdateAutoScalingGroup"]
        assert requests == [{"AutoScalingGroupName": NAME, "MinSize": 1, "MaxSize": 4}]
        assert "SetDesiredCapacity" not in writes_of(stage)
        assert not stage.group(NAME).suspended

    def test_min_never_passes_what_runs_and_max_never_falls_below_what_is_desired(self, stage: Stage) -> None:
        stage.refuse(ZONES[0])
        stage.put(NAME, ZONES[0], 0, 3, 9)
        stage.minutes(1)
        write(stage, Bounds(2, 2))
        assert stage.numbers(NAME) == (0, 3, 0, 3)

    def test_min_never_passes_what_runs_once_a_named_instance_is_gone(self, stage: Stage) -> None:
        name = stage.put_managed("workers", ZONES[0], 0, 2, 9)
        stage.minutes(6)
        stage.refuse(ZONES[0])
        stage.api.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=4)
        stage.minutes(1)
        goes, *_ = sorted(stage.group(name).instances)
        write(stage, Bounds(3, 9), 3, name, removal=Removal(machines=(MachineRef(goes, goes),)))
        assert stage.group(name).minimum == 1

    def test_a_release_never_ends_an_instance(self, stage: Stage) -> None:
        stage.pool(desired=3)
        with pytest.raises(RejectedError, match="would drain its node"):
            write(stage, Bounds(0, 2), requested=2, removal=Removal(may_remove_running=True))
        with pytest.raises(RejectedError, match="would terminate some of its 3 instances"):
            write(stage, Bounds(0, 2), requested=2)
        assert stage.numbers(NAME) == (0, 3, 3, 9)

    def test_a_named_node_of_a_managed_group_goes_and_no_other(self, stage: Stage) -> None:
        name = stage.put_managed("workers", ZONES[0], 0, 3, 9)
        stage.minutes(6)
        goes, *stays = sorted(stage.group(name).instances)
        stage.api.calls.clear()
        write(
            stage,
            Bounds(0, 9),
            2,
            name,
            move="01J0000000000000000000MOVE",
            removal=Removal(machines=(MachineRef(goes, goes),)),
        )
        assert "SetDesiredCapacity" not in writes_of(stage)
        stage.minutes(10)
        assert sorted(stage.group(name).instances) == stays
        assert stage.numbers(name) == (0, 2, 2, 9)
        assert stage.observe()[name].ours.move == "01J0000000000000000000MOVE"

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"MaxSize": 8}, "MaxSize"),
            ({"MinSize": 1}, "MinSize"),
            ({"DesiredCapacity": 3}, "DesiredCapacity(, Instances)?"),
        ],
    )
    def test_a_group_that_changes_after_the_read_is_not_written(
        self, stage: Stage, change: dict[str, int], field: str
    ) -> None:
        stage.pool()
        writes_of(stage)
        stage_change = lambda: stage.api.update_auto_scaling_group(AutoScalingGroupName=NAME, **change)  # noqa: E731
        with pytest.raises(ConflictError, match=f"has changed since it was read: {field}$"):
            write(stage, Bounds(0, 4), meanwhile=stage_change)
        assert writes_of(stage) == ["UpdateAutoScalingGroup"]

    def test_a_tag_of_ours_that_changes_after_the_read_is_a_conflict(self, stage: Stage) -> None:
        stage.pool()
        changed = [tag(NAME, "evenkeel.dev/pool-max", "7")]
        with pytest.raises(ConflictError, match=r"since it was read: Tags$"):
            write(stage, Bounds(0, 4), meanwhile=lambda: stage.api.create_or_update_tags(Tags=changed))

    def test_a_group_that_is_deleted_after_the_read_is_a_conflict(self, stage: Stage) -> None:
        stage.pool(desired=0)
        with pytest.raises(ConflictError, match=f"Auto Scaling group {NAME} is gone since it was read"):
            write(stage, Bounds(0, 4), meanwhile=lambda: stage.api.delete_auto_scaling_group(AutoScalingGroupName=NAME))

    def test_an_instance_refresh_that_begins_after_the_read_is_a_conflict_and_then_freezes(self, stage: Stage) -> None:
        stage.pool()
        stage.api.suspend_processes(AutoScalingGroupName=NAME, ScalingProcesses=["InstanceRefresh"])
        start = lambda: stage.api.start_instance_refresh(AutoScalingGroupName=NAME)  # noqa: E731
        with pytest.raises(ConflictError):
            write(stage, Bounds(0, 4), meanwhile=start)
        group = stage.observe()[NAME]
        assert group.frozen_because is not None
        assert group.frozen_because.rule is Rule.REFRESHING

    def test_a_group_without_room_for_tags_is_frozen_and_not_written(self, stage: Stage) -> None:
        stage.pool()
        stage.api.create_or_update_tags(Tags=[tag(NAME, f"team/{number}", "x") for number in range(25)])
        stage.api.create_or_update_tags(Tags=[tag(NAME, f"cost/{number}", "x") for number in range(20)])
        frozen = stage.observe()[NAME].frozen_because
        assert frozen is not None
        assert sentence(frozen).startswith("it has 48 tags, and AWS accepts 50")
        writes_of(stage)
        with pytest.raises(RejectedError, match="no room for Evenkeel's tags"):
            write(stage, Bounds(1, 4))
        assert writes_of(stage) == []

    def test_too_many_instances_for_the_move_tag_are_refused_in_one_line(self, stage: Stage) -> None:
        named = tuple(f"i-{number:017x}" for number in range(20))
        change = SimpleNamespace(named=named, newest={"DesiredCapacity": 20})
        with pytest.raises(RejectedError, match="20 instances at once do not fit tag"):
            GroupWriter(None, {}, None, {})._announced(SimpleNamespace(name=NAME), "01J0000000000000000000MOVE", change)

    def test_the_decision_fits_a_tag(self, stage: Stage) -> None:
        stage.pool()
        cluster = stage.clusters.open(stage.record, plenty)
        (group, *_) = cluster.observe().groups
        published = PublishedBounds(at=stage.clock.now(), bounds=Bounds(1, 4), requested=2, before=3)
        cluster.apply(patch_of(group, Bounds(1, 4)), write_published(published, 2, '"why" ü ' * 200), "0,9")
        assert len(stage.tags(NAME)["evenkeel.dev/decision"]) <= 256
        assert "why" not in stage.tags(NAME)["evenkeel.dev/decision"], "later writes leave the tag as it is"
        ended = stage.clock.now().replace(microsecond=0)
        stage.minutes(1)  # until each read shows the write
        shown = stage.observe()[NAME].ours.published
        assert shown is not None
        assert published.at <= shown.at <= ended, "the write may have waited for old reads"
        assert shown == replace(published, at=shown.at, state=State.HEALTHY)

    def test_the_longest_names_fit_the_tag_of_a_decision_and_stay_different(self) -> None:
        names = [writer_name("s" * 128, "c" * 99 + end) for end in "ab"]
        assert len({*names}) == 2
        bounds, at = Bounds(100_000, 100_000), datetime(2026, 1, 1, tzinfo=UTC)
        published = PublishedBounds(at=at, bounds=bounds, state=max(State, key=len), requested=100_000, before=99_999)
        text = write_published(published, 100_000, "why")
        assert len(for_tag(text, writer=names[0])) <= 256
        assert writer_name("evenkeel", "prod") == "evenkeel/prod"


class TestErrors:
    @staticmethod
    def refuse(stage: Stage, operation: str, code: str, status: int = 400) -> None:
        def before(name: str, _request: object) -> None:
            if name == operation:
                raise AwsError(code, "a reason of AWS", status)

        stage.api.before = before

    @pytest.mark.parametrize(
        ("operation", "code", "status", "error"),
        [
            ("DescribeAutoScalingGroups", "AccessDenied", 403, AccessRefusedError),
            ("DescribeAutoScalingGroups", "ExpiredToken", 403, AccessRefusedError),
            ("DescribeAutoScalingGroups", "Throttling", 400, ThrottledError),
            ("DescribeAutoScalingGroups", "InternalFailure", 500, ClusterUnavailableError),
            ("UpdateAutoScalingGroup", "AccessDenied", 403, ForbiddenError),
            ("CreateOrUpdateTags", "AccessDenied", 403, ForbiddenError),
            ("SuspendProcesses", "AccessDenied", 403, ForbiddenError),
            ("UpdateAutoScalingGroup", "ValidationError", 400, RejectedError),
            ("UpdateAutoScalingGroup", "ScalingActivityInProgress", 400, ConflictError),
            ("UpdateAutoScalingGroup", "ResourceContention", 500, ConflictError),
            ("UpdateAutoScalingGroup", "InternalFailure", 500, ClusterUnavailableError),
        ],
    )
    def test_each_error_is_one_line_and_nothing_is_half_written(
        self, stage: Stage, operation: str, code: str, status: int, error: type[EvenkeelError]
    ) -> None:
        stage.pool()
        self.refuse(stage, operation, code, status)
        with pytest.raises(error) as raised:
            write(stage, Bounds(0, 4))
        assert type(raised.value) is error
        assert str(raised.value).startswith(f"demo: autoscaling:{operation}")
        assert code in str(raised.value)
        assert "\n" not in str(raised.value)
        assert raised.value.__cause__ is None
        assert stage.numbers(NAME) == (0, 2, 2, 9)
        assert not stage.group(NAME).suspended

    def test_a_throttled_call_is_repeated(self, stage: Stage) -> None:
        stage.pool()
        refusals = iter([True, True])

        def before(name: str, _request: object) -> None:
            if name == "UpdateAutoScalingGroup" and next(refusals, False):
                raise AwsError("Throttling", "Rate exceeded")

        stage.api.before = before
        write(stage, Bounds(0, 4))
        assert stage.numbers(NAME) == (0, 2, 2, 4)

    def test_an_answer_that_does_not_come_in_time_is_one_line(self, stage: Stage) -> None:
        in_process = InProcess(stage.api, stage.eks)
        stage.api.behavior.latency = timedelta(seconds=3)
        with pytest.raises(ClusterUnavailableError, match="DescribeAutoScalingGroups was not answered: ReadTimeout"):
            in_process.open(stage.record, plenty).observe()

    def test_without_time_nothing_is_sent(self, stage: Stage) -> None:
        with pytest.raises(ClusterUnavailableError, match="no time left"):
            stage.clusters.open(stage.record, lambda: 1.0).observe()
        assert stage.api.calls == []


def _discovered(cluster: str) -> dict[str, str]:
    return {"k8s.io/cluster-autoscaler/enabled": "true", f"k8s.io/cluster-autoscaler/{cluster}": "owned"}
