"""Groups that lose the tags by which Evenkeel finds and may write them, as Terraform's tag blocks cause it."""

import shlex
from typing import Any

import pytest

from evenkeel.domain.model.incidents import Incident, IncidentKind
from evenkeel.texts.incidents import command_line, incident_text
from tests.auto_scaling_groups import ZONES, Stage, runs_with_rights, strip, tag

MOST = 27


def fenced(**fields: Any) -> tuple[Stage, list[str]]:
    """Return three groups of at most nine nodes. The second zone refuses launches, so others have its share of max."""
    stage = Stage(**fields)
    names = [f"workers-{zone[-1]}" for zone in ZONES]
    for name, zone in zip(names, ZONES, strict=True):
        stage.put(name, zone, 0, 2, 9, team="blue", **{"evenkeel.dev__pool-max": "", "evenkeel.dev__pool-min": ""})
    stage.minutes(2)
    stage.settle()
    stage.refuse(ZONES[1])
    stage.api.set_desired_capacity(AutoScalingGroupName=names[1], DesiredCapacity=4)
    stage.minutes(3)
    stage.settle()
    assert stage.group(names[1]).maximum < 9 < stage.group(names[0]).maximum
    return stage, names


def maxima(stage: Stage, names: list[str]) -> int:
    return sum(stage.group(name).maximum for name in names)


def incident(stage: Stage) -> Incident | None:
    incidents = stage.store.load("demo").cluster_health.incidents
    return next((each for each in incidents if each.kind is IncidentKind.LOST_GROUP), None)


@pytest.mark.parametrize("which", [0, 1])
def test_a_group_without_tags_is_an_incident_and_its_max_still_counts(which: int) -> None:
    stage, names = fenced()
    bounds = stage.numbers(names[which])
    strip(stage, names[which])
    for _ in range(6):
        runs_with_rights(stage, 1)
        assert maxima(stage, names) <= MOST
    found = incident(stage)
    assert found is not None
    assert names[which] in incident_text(found, stage.clock.now())
    assert "before Evenkeel were 0 to 9" in incident_text(found, stage.clock.now())
    assert stage.numbers(names[which])[3] == bounds[3], "AWS lets nothing write it"


def test_a_group_that_grows_to_the_max_that_evenkeel_wrote_is_still_lost() -> None:
    stage, names = fenced()
    strip(stage, names[0])
    runs_with_rights(stage, 2)
    most = stage.group(names[0]).maximum
    assert most > 9
    stage.api.set_desired_capacity(AutoScalingGroupName=names[0], DesiredCapacity=most)
    for _ in range(3):
        runs_with_rights(stage, 1)
        assert maxima(stage, names) <= MOST
    assert incident(stage) is not None


@pytest.mark.parametrize("lost", [1, 3])
def test_the_pools_numbers_stay_when_no_group_has_their_tags_any_more(lost: int) -> None:
    stage = Stage()
    names = [f"workers-{zone[-1]}" for zone in ZONES]
    for number, (name, zone) in enumerate(zip(names, ZONES, strict=True)):
        numbers = {} if number < lost else {"evenkeel.dev__pool-max": "", "evenkeel.dev__pool-min": ""}
        stage.put(name, zone, 0, 2, 9, **numbers)
    stage.minutes(2)
    stage.settle()
    for name in names[:lost]:
        strip(stage, name)
    runs_with_rights(stage, 4)
    assert maxima(stage, names) == 12
    found = incident(stage)
    assert found is not None
    repair(stage, found)
    runs_with_rights(stage, 3)
    assert incident(stage) is None
    assert maxima(stage, names) == 12
    assert stage.tags(names[0])["evenkeel.dev/pool-max"] == "12"


def repair(stage: Stage, found: Incident) -> None:
    words = shlex.split(command_line(found, "demo", "evenkeel"))
    assert words[:5] == ["aws", "autoscaling", "create-or-update-tags", "--region", "eu-central-1"]
    for word in words[words.index("--tags") + 1 :]:
        fields = dict(part.split("=", 1) for part in word.split(","))
        stage.api.create_or_update_tags(Tags=[{**fields, "PropagateAtLaunch": False}])


@pytest.mark.parametrize("keeps_own_tags", [False, True])
def test_the_incidents_command_repairs_it(*, keeps_own_tags: bool) -> None:
    stage, names = fenced()
    kept = [key for key in stage.tags(names[1]) if key != "evenkeel.dev/pool"] if keeps_own_tags else []
    strip(stage, names[1], *kept)
    runs_with_rights(stage, 2)
    found = incident(stage)
    assert found is not None
    repair(stage, found)
    runs_with_rights(stage, 3)
    assert incident(stage) is None
    stage.restore()
    assert [stage.numbers(name)[3] for name in names] == [9, 9, 9]


def test_a_deleted_group_is_no_incident() -> None:
    stage, names = fenced()
    stage.api.delete_auto_scaling_group(AutoScalingGroupName=names[1], ForceDelete=True)
    runs_with_rights(stage, 5)
    assert incident(stage) is None


def test_a_group_with_its_own_bounds_has_left_and_later_bounds_are_its_users() -> None:
    stage, names = fenced()
    strip(stage, names[1])
    runs_with_rights(stage, 3)
    assert incident(stage) is not None
    stage.api.update_auto_scaling_group(AutoScalingGroupName=names[1], MinSize=0, MaxSize=9)
    runs_with_rights(stage, 3)
    assert incident(stage) is None
    stage.api.update_auto_scaling_group(AutoScalingGroupName=names[1], MinSize=0, MaxSize=7)
    runs_with_rights(stage, 3)
    assert incident(stage) is None
    assert maxima(stage, names[:1] + names[2:]) <= 18


def test_the_bounds_before_evenkeel_are_kept_while_a_group_spans_zones() -> None:
    stage, names = fenced()
    stage.api.update_auto_scaling_group(AutoScalingGroupName=names[2], AvailabilityZones=[*ZONES[1:]])
    runs_with_rights(stage, 4)
    (pool,) = stage.store.load("demo").state.pools.values()
    assert len(pool.adopted) == 3
    stage.api.delete_auto_scaling_group(AutoScalingGroupName=names[1], ForceDelete=True)
    runs_with_rights(stage, 4)
    (pool,) = stage.store.load("demo").state.pools.values()
    assert {key.rpartition("/")[2] for key in pool.adopted} == {names[0], names[2]}


def test_a_group_that_another_cluster_has_taken_over_is_not_lost() -> None:
    stage, names = fenced()
    strip(stage, names[1])
    decision = '{"at":"2026-01-01T00:20:00Z","state":"healthy","target":2,"min":0,"max":3,"by":"other/red"}'
    stage.api.create_or_update_tags(Tags=[tag(names[1], "evenkeel.dev/decision", decision)])
    runs_with_rights(stage, 3)
    assert incident(stage) is None


def test_a_pool_that_loses_all_tags_is_an_incident_too() -> None:
    stage, names = fenced()
    for name in names:
        strip(stage, name)
    runs_with_rights(stage, 5)
    found = incident(stage)
    assert found is not None
    assert len(found.problems) >= 2


def test_a_restore_waits_for_the_lost_group_and_names_it() -> None:
    stage, names = fenced()
    strip(stage, names[1])
    runs_with_rights(stage, 2)
    stored = stage.store.load("demo")
    stage.store.save_record(stored.record, stored.control.model_copy(update={"restoring": True}), stored.versions)
    runs_with_rights(stage, 4)
    assert [stage.numbers(name)[3] for name in (names[0], names[2])] == [9, 9]
    assert stage.store.load("demo").control.restoring
    assert incident(stage) is not None
    stage.api.create_or_update_tags(Tags=[tag(names[1], "evenkeel.dev/pool", "workers")])
    runs_with_rights(stage, 4)
    assert stage.numbers(names[1])[3] == 9
    assert stage.store.load("demo").control.restored


def test_the_tags_of_a_discovery_string_are_named_too() -> None:
    stage, names = fenced(discovery=["asg:tag=evenkeel.dev/pool,team=blue"])
    strip(stage, names[1], "evenkeel.dev/pool")
    runs_with_rights(stage, 2)
    found = incident(stage)
    assert found is not None
    words = shlex.split(command_line(found, "demo", "evenkeel"))
    pattern = "ResourceType=auto-scaling-group,ResourceId=workers-b,Key=team,Value=blue,PropagateAtLaunch=false"
    assert words[words.index("--tags") + 1 :] == [pattern]
