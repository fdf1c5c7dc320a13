"""AWS, EKS and users change groups during a drain: Evenkeel loses no pod and leaves no mark."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.auto_scaling_groups import POOL, ZONES, tag
from tests.auto_scaling_pods import PodStage
from tests.crashing import How, is_read
from tests.integration.test_auto_scaling_pods import KINDS, is_clean, make, running, unneeded

Change = Callable[[PodStage, str, str], Any]


def refresh(stage: PodStage, group: str, _node: str) -> None:
    name = stage.tags(group).get("eks:nodegroup-name")
    if name is None:
        stage.api.start_instance_refresh(AutoScalingGroupName=group)
    else:
        stage.eks.update_nodegroup_version(clusterName="demo", nodegroupName=name)


def move_to_another_pool(stage: PodStage, group: str, _node: str) -> None:
    stage.api.create_or_update_tags(Tags=[tag(group, "evenkeel.dev/pool", "others")])


def leave_the_pool(stage: PodStage, group: str, _node: str) -> None:
    stage.api.delete_tags(Tags=[tag(group, "evenkeel.dev/pool", "")])


def raise_min(stage: PodStage, group: str, _node: str) -> None:
    stage.api.update_auto_scaling_group(AutoScalingGroupName=group, MinSize=1, MaxSize=9)


def delete_group(stage: PodStage, group: str, _node: str) -> None:
    stage.api.delete_auto_scaling_group(AutoScalingGroupName=group, ForceDelete=True)


def terminate(stage: PodStage, _group: str, node: str) -> None:
    stage.api.terminate_instance_in_auto_scaling_group(InstanceId=node, ShouldDecrementDesiredCapacity=False)


def suspend_for_five_minutes(stage: PodStage, group: str, _node: str) -> None:
    stage.api.suspend_processes(AutoScalingGroupName=group, ScalingProcesses=["Launch"])
    stage.checks(5)
    assert stage.lost == []
    stage.api.resume_processes(AutoScalingGroupName=group, ScalingProcesses=["Launch"])


def want_more(stage: PodStage, _group: str, _node: str) -> None:
    stage.deploy("more", 5)


def stop_scale_down(stage: PodStage, _group: str, _node: str) -> None:
    stage.register(demand="scale-up")


KEEP_NODES = (move_to_another_pool, leave_the_pool, raise_min, suspend_for_five_minutes, want_more, stop_scale_down)
END_NODES = (refresh, delete_group, terminate)  # the pods of these nodes are lost without Evenkeel, too


@pytest.mark.deep
@pytest.mark.parametrize("check", [1, 2, 3])
@pytest.mark.parametrize("change", [*KEEP_NODES, *END_NODES], ids=lambda change: change.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_a_change_in_the_middle_of_a_drain_loses_no_pod_and_leaves_nothing(
    kind: str, change: Change, check: int
) -> None:
    stage, names = unneeded(kind)
    stage.checks(check)
    (node,) = stage.cordoned()
    group = next(name for name in names if node in stage.group(name).instances)
    change(stage, group, node)
    stage.checks(20)
    if change in KEEP_NODES:
        assert stage.lost == []
    assert (stage.below, stage.marks(), stage.cordoned()) == ([], [], [])
    left = [stage.group(name) for name in names if name in stage.api.groups.by_name]
    assert sum(len(one.instances) for one in left) >= 1
    assert not any(one.suspended for one in left)
    assert all(pod["status"]["phase"] == "Running" for pod in stage.pods())


@pytest.mark.deep
def test_managed_node_groups_grow_through_an_outage_and_an_update_and_shrink_again() -> None:
    stage, names = make("managed")
    stage.deploy("web", 15)
    stage.checks(8)
    assert sum(running(stage, names)) == 4
    stage.refuse(ZONES[1])
    stage.scale("web", 27)
    stage.checks(12)
    assert sum(running(stage, names)) == 7
    assert all(pod["status"]["phase"] == "Running" for pod in stage.pods())
    nodes = stage.numbers(names[0])[1]
    scaling = {"minSize": 0, "maxSize": 9, "desiredSize": nodes}
    stage.eks.update_nodegroup_config(clusterName="demo", nodegroupName="workers-a", scalingConfig=scaling)
    frozen = stage.observe()[names[0]].frozen_because
    stage.checks(8)
    assert frozen is None or frozen.facts["status"] == "UPDATING"
    assert stage.group(names[0]).maximum < 9  # once, EKS wins; then Evenkeel writes its bounds again
    stage.stock.accept(ZONES[1])
    stage.protect("web", 2)
    stage.scale("web", 3)
    stage.checks(70)
    assert sum(running(stage, names)) == 1
    assert is_clean(stage)
    assert not stage.store.load("demo").cluster_health.incidents


@pytest.mark.deep
def test_managed_node_groups_shrink_to_the_pools_minimum_only() -> None:
    stage, names = PodStage(), []
    for zone in ZONES[:2]:
        names.append(stage.put_managed(f"workers-{zone[-1]}", zone, 1, 2, 9))
        stage.api.create_or_update_tags(Tags=[tag(names[-1], "evenkeel.dev/pool-min", "2")])
    stage.minutes(6)
    stage.deploy("web", 2)
    stage.checks(60)
    assert sum(running(stage, names)) == 2
    assert is_clean(stage)
    assert all(set(POOL) <= set(stage.tags(name)) for name in names)


def uneven(kind: str) -> tuple[PodStage, list[str]]:
    """Return two zones with one and three nodes. Converge moves a node in check 11 and the next four."""
    stage, names = make(kind, (1, 3), level="converge", converge={"per_hour": 10}, demand="scale-up")
    stage.deploy("web", 8, cpu="1200m")
    stage.minutes(1)
    stage.protect("web", 6)
    stage.minutes(1)
    stage.checks(10)
    return stage, names


@pytest.mark.deep
@pytest.mark.parametrize("how", [How.AFTER, How.LOST])  # a death before a write is one after the previous write
@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_dies_at_any_write_of_converge_moves_one_node_and_leaves_nothing(kind: str, how: How) -> None:
    moved = 0
    for check in range(5):
        stage, _ = uneven(kind)
        stage.checks(check)
        for at, step in enumerate(stage.die_at(-1, how)):
            if is_read(step):
                continue  # a check that only reads is repeated
            stage, names = uneven(kind)
            stage.checks(check)
            stage.die_at(at, how)
            stage.minutes(1)
            stage.checks(14)
            place = f"check {check}, {step}, {how}"
            assert running(stage, names) == [2, 2], place
            assert not any(stage.group(name).suspended for name in names), place
            assert is_clean(stage), place
            moved += 1
    assert moved > 15
