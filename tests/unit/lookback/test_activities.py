"""Activities are read from the texts of AWS's documentation and of public reports."""

from datetime import UTC, datetime, timedelta
from typing import Any

from evenkeel.domain.model.failures import FailureClass
from evenkeel_cli.lookback.activities import GroupActivities
from evenkeel_cli.lookback.history import Level

START = datetime(2026, 1, 1, tzinfo=UTC)
SINCE = int(START.timestamp())
CHANGE = (
    "At 2026-01-01T00:10:00Z a user request explicitly set group desired capacity changing the desired capacity from 1 "
    "to 3.  At 2026-01-01T00:10:16Z an instance was started in response to a difference between desired and actual "
    "capacity, increasing the capacity from 1 to 3."
)
UNHEALTHY = (
    "At 2026-01-01T00:10:16Z an instance was launched in response to an unhealthy instance needing to be replaced."
)
NO_CAPACITY = (
    "We currently do not have sufficient m5.large capacity in the Availability Zone you requested (eu-west-1a)."
)


def activity(description: str, cause: str, at: int, *, status: str = "Successful", lasts: int = 30) -> dict[str, Any]:
    began = START + timedelta(seconds=at)
    return {
        "ActivityId": f"{at}",
        "Description": description,
        "Cause": cause,
        "StartTime": began,
        "EndTime": began + timedelta(seconds=lasts),
        "StatusCode": status,
        "StatusMessage": NO_CAPACITY if status == "Failed" else "",
        "Details": '{"Subnet ID":"subnet-1","Availability Zone":"eu-west-1a"}',
    }


def read(*activities: dict[str, Any], listed: int = 0) -> GroupActivities:
    group = GroupActivities(SINCE)
    for each in activities:
        group.add(each)
    group.list_present([{"InstanceId": f"i-{number}", "AvailabilityZone": "eu-west-1a"} for number in range(listed)])
    return group


def seconds(levels: tuple[Level, ...]) -> list[tuple[int, int]]:
    return [(level.at - SINCE, level.nodes) for level in levels]


def test_a_launch_runs_from_its_end_and_was_ordered_when_its_cause_says() -> None:
    group = read(activity("Launching a new EC2 instance: i-9", CHANGE, 616))
    (launch,) = group.launches()
    assert (launch.ordered, launch.began, launch.runs) == (SINCE + 600, SINCE + 616, SINCE + 646)
    assert seconds(group.running()) == [(0, 0), (646, 1)]
    (order,) = group.orders()
    assert (order.at, order.nodes, order.total) == (SINCE + 600, 2, 3)


def test_instances_without_a_launch_are_older_than_the_history() -> None:
    ended = activity(
        "Terminating EC2 instance: i-77",
        "At 2026-01-01T00:20:00Z instance i-77 was taken out of service in response to a user request, shrinking the "
        "capacity from 3 to 2.",
        1200,
    )
    group = read(ended, listed=2)
    assert seconds(group.running()) == [(0, 3), (1200, 2)]
    assert group.removals() == (SINCE + 1200,)


def test_a_refusal_has_the_class_of_its_message_and_no_instance() -> None:
    group = read(activity("Launching a new EC2 instance.", CHANGE, 616, status="Failed"))
    (refusal,) = group.refusals
    assert (refusal.at, refusal.zone, refusal.kind) == (SINCE + 616, "eu-west-1a", FailureClass.CAPACITY)
    assert seconds(group.running()) == [(0, 0)]


def test_a_replaced_instance_is_neither_a_loss_nor_an_order() -> None:
    check = "At 2026-01-01T00:10:00Z an instance was taken out of service in response to an EC2 health check."
    group = read(
        activity("Terminating EC2 instance: i-0", check, 600),
        activity("Launching a new EC2 instance: i-1", UNHEALTHY, 616),
        listed=2,
    )
    assert seconds(group.running()) == [(0, 1)]
    assert (group.orders(), group.launches(), group.losses(), group.removals()) == ((), (), (), ())


def test_an_instance_that_nothing_replaces_is_lost() -> None:
    check = "At 2026-01-01T00:10:00Z an instance was taken out of service in response to an EC2 health check."
    group = read(
        activity("Terminating EC2 instance: i-0", check, 600),
        activity("Launching a new EC2 instance.", UNHEALTHY, 616, status="Failed"),
    )
    assert seconds(group.running()) == [(0, 1), (600, 0)]
    assert group.losses() == (SINCE + 600,)


def test_changes_of_one_second_are_one_order_whatever_their_order() -> None:
    causes = (
        f"At 2026-01-01T00:10:00Z a user request explicitly set group desired capacity changing the desired capacity "
        f"from {before} to {after}.  At 2026-01-01T00:10:05Z an instance was started in response to a difference "
        f"between desired and actual capacity, increasing the capacity from 1 to 4."
        for before, after in ((3, 4), (1, 3))
    )
    group = read(*(activity(f"Launching a new EC2 instance: i-{n}", cause, 605) for n, cause in enumerate(causes)))
    (order,) = group.orders()
    assert (order.nodes, order.total) == (3, 4)


def test_an_order_that_another_one_hides_is_found_by_its_launches() -> None:
    cause = CHANGE.replace("from 1 to 3", "from 2 to 3")
    group = read(*(activity(f"Launching a new EC2 instance: i-{number}", cause, 616) for number in (1, 2, 3)))
    group.find_hidden([SINCE + 580, SINCE + 600])
    assert [(order.at - SINCE, order.nodes, order.total) for order in group.orders()] == [(580, 2, 2), (600, 1, 3)]
    assert sorted((launch.ordered or 0) - SINCE for launch in group.launches()) == [580, 580, 600]


def test_an_unknown_text_is_a_doubt() -> None:
    group = read(activity("Eine neue Instanz wird gestartet: i-1", CHANGE, 616))
    assert "unknown text, such as 'Eine neue Instanz" in group.doubts("workers-a")[0].text


def test_a_termination_that_is_missing_is_a_doubt_about_what_was_before() -> None:
    group = read(
        activity("Launching a new EC2 instance: i-8", CHANGE, 616),
        activity("Launching a new EC2 instance: i-0", CHANGE, 1616),
        listed=1,
    )
    (doubt,) = group.doubts("workers-a")
    assert doubt.before == SINCE + 1616
    assert "are missing: print all pages" in doubt.text


def test_an_activity_without_a_cause_is_a_doubt() -> None:
    group = read(activity("Launching a new EC2 instance: i-1", "", 616))
    assert "unknown text, such as 'no Cause'" in group.doubts("workers-a")[0].text


def test_an_update_of_load_balancers_is_neither_a_node_nor_a_doubt() -> None:
    group = read(activity("Updating load balancers/target groups: Successful. Status Reason: Added: arn", "", 616))
    assert (seconds(group.running()), group.doubts("workers-a")) == ([(0, 0)], ())
