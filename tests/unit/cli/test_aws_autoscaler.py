"""The model of cluster-autoscaler's aws provider behaves like the provider's sources and measurements."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from evenkeel.domain.model.groups import Bounds
from evenkeel_cli.simulation.autoscaler_model import Demand, Flags
from evenkeel_cli.simulation.aws_autoscaler import (
    Activity,
    AutoScalingGroup,
    AwsAutoscaler,
    Instance,
    Order,
    SetDesired,
    Terminate,
)

MINUTE = 60


@dataclass
class Account:
    """Groups a and b of one pool. The test sets launches and AWS's rejections."""

    pods: int = 0
    asgs: dict[str, AutoScalingGroup] = field(default_factory=dict)
    log: dict[str, list[Activity]] = field(default_factory=dict)
    fails: bool = False  # every read
    now: float = 0

    @property
    def demand(self) -> Demand:
        return {("workers", None): self.pods}

    def has_node(self, instance: str) -> bool:
        return not instance.endswith("pending")

    def groups(self) -> Sequence[AutoScalingGroup] | None:
        return None if self.fails else list(self.asgs.values())

    def count_instances(self, group: str) -> int | None:
        return None if self.fails else len(self.asgs[group].instances)

    def activities(self, group: str) -> Sequence[Activity] | None:
        return None if self.fails else sorted(self.log.get(group, ()), key=lambda each: each.status != "InProgress")

    def change(self, group: str, **fields: object) -> None:
        self.asgs[group] = replace(self.asgs[group], **fields)

    def launch(self, group: str, count: int, state: str = "") -> None:
        old = self.asgs[group].instances
        new = [Instance(f"i-{group}{len(old) + number}{state}") for number in range(count)]
        self.change(group, instances=[*old, *new])

    def refuse(self, group: str) -> None:
        self.log.setdefault(group, []).insert(0, Activity(self.now, "Failed"))

    def loop(self, autoscaler: AwsAutoscaler, now: float, *, rejects: bool = False) -> list[Order]:
        self.now = now
        orders = []
        for order in autoscaler.decide(now, self):
            orders.append(order)
            found = self.asgs[order.group]
            match order:
                case _ if rejects:
                    autoscaler.reject()
                case SetDesired(_, size) if found.bounds.min <= size <= found.bounds.max:
                    self.change(order.group, desired=size)
                case Terminate(_, name) if found.desired > found.bounds.min:
                    rest = [each for each in found.instances if each.name != name]
                    self.change(order.group, desired=found.desired - 1, instances=rest)
                case _:
                    autoscaler.reject()
        return orders


def account(pods: int, a: tuple[int, int] = (0, 9), b: tuple[int, int] = (0, 9)) -> Account:
    made = Account(pods)
    for zone, bounds in (("a", a), ("b", b)):
        made.asgs[zone] = AutoScalingGroup(
            name=zone, pool="workers", zone=zone, desired=0, bounds=Bounds(*bounds), instances=()
        )
    return made


def desired(made: Account) -> tuple[int, int]:
    return made.asgs["a"].desired, made.asgs["b"].desired


def test_a_refusal_is_seen_at_the_next_read_and_the_other_group_gets_the_nodes() -> None:
    aws, autoscaler = account(4), AwsAutoscaler(Flags())
    assert aws.loop(autoscaler, 0) == [SetDesired("a", 2), SetDesired("b", 2)]
    aws.launch("b", 2)
    aws.now = 5
    aws.refuse("a")
    assert [aws.loop(autoscaler, second) for second in range(10, 60, 10)] == [[]] * 5
    assert aws.loop(autoscaler, 60) == [SetDesired("a", 0), SetDesired("b", 4)]


def test_backoff_doubles_from_5_to_30_minutes() -> None:
    aws, autoscaler = account(1, b=(0, 0)), AwsAutoscaler(Flags())
    asked = []
    for second in range(0, 4 * 3600, 10):
        if SetDesired("a", 1) in aws.loop(autoscaler, second):
            asked.append(second)
        elif aws.asgs["a"].desired:
            aws.refuse("a")
    gaps = [(later - sooner) / MINUTE for sooner, later in pairwise(asked)]
    # A refusal is read within a minute. The next order is in the first loop after the backoff's end.
    assert [int(gap // 5) * 5 for gap in gaps[:5]] == [5, 10, 20, 30, 30]


def test_what_is_launched_stays_ordered_when_the_rest_is_refused() -> None:
    aws, autoscaler = account(4, b=(0, 0)), AwsAutoscaler(Flags())
    aws.loop(autoscaler, 0)
    aws.launch("a", 2, "pending")
    aws.now = 5
    aws.refuse("a")
    assert aws.loop(autoscaler, 60) == [SetDesired("a", 2)]
    assert autoscaler.core.has_order("a")
    assert autoscaler.core.in_backoff("a", 60)


def test_nodes_on_their_way_in_a_backoff_hide_pods_only_before_1_36() -> None:
    for version, expected in (((1, 35), (2, 2)), ((1, 37), (2, 4))):
        aws, autoscaler = account(4, b=(0, 0)), AwsAutoscaler(Flags(version=version))
        aws.loop(autoscaler, 0)
        aws.launch("a", 2, "pending")
        aws.now = 5
        aws.refuse("a")
        aws.change("b", bounds=Bounds(0, 9))
        aws.loop(autoscaler, 60)
        assert desired(aws) == expected, version


def test_before_1_24_a_refusal_is_a_timeout_after_15_minutes() -> None:
    aws, autoscaler = account(1, b=(0, 0)), AwsAutoscaler(Flags(version=(1, 23)))
    aws.loop(autoscaler, 0)
    aws.now = 5
    aws.refuse("a")
    sizes = {second: (aws.loop(autoscaler, second), desired(aws)[0])[1] for second in range(10, 1000, 10)}
    given_up = min(second for second, size in sizes.items() if size == 0)
    assert 15 * MINUTE < given_up <= 17 * MINUTE
    assert autoscaler.core.in_backoff("a", given_up)


def test_an_activity_in_progress_that_began_before_the_own_order_hides_the_refusal() -> None:
    aws, autoscaler = account(1, b=(0, 0)), AwsAutoscaler(Flags())
    aws.log["a"] = [Activity(-5, "InProgress")]
    aws.loop(autoscaler, 0)
    aws.now = 5
    aws.refuse("a")
    assert aws.loop(autoscaler, 60) == []
    aws.log["a"].remove(Activity(-5, "InProgress"))
    assert aws.loop(autoscaler, 120) == [SetDesired("a", 0)]


def test_an_old_failure_counts_after_a_restart_at_the_second_read_and_starts_no_backoff() -> None:
    aws = account(0)
    aws.change("a", desired=2)
    aws.refuse("a")
    autoscaler = AwsAutoscaler(Flags())
    assert aws.loop(autoscaler, 1000) == []
    assert aws.loop(autoscaler, 1060) == [SetDesired("a", 0)]
    assert not autoscaler.core.in_backoff("a", 1060)


def test_refused_placeholders_at_the_minimum_are_kept_and_stop_all_groups_after_the_timeout() -> None:
    aws, autoscaler = account(0, a=(2, 2)), AwsAutoscaler(Flags())
    aws.change("a", desired=2)
    aws.refuse("a")
    assert [aws.loop(autoscaler, second) for second in range(0, 900, 10)] == [[]] * 90
    aws.pods = 1
    assert aws.loop(autoscaler, 950) == [SetDesired("b", 1)]
    aws.launch("b", 1)
    assert aws.loop(autoscaler, 960) == []
    aws.pods = 2
    assert [aws.loop(autoscaler, second) for second in range(970, 1800, 10)] == [[]] * 83
    aws.change("a", bounds=Bounds(0, 2))
    assert aws.loop(autoscaler, 1860) == [SetDesired("a", 0)]
    assert len(aws.loop(autoscaler, 1870)) == 1


def test_placeholders_below_a_minimum_that_more_than_runs_are_asked_for_in_vain_in_each_loop() -> None:
    aws, autoscaler = account(3, a=(2, 9), b=(0, 0)), AwsAutoscaler(Flags())
    aws.change("a", desired=2)
    aws.loop(autoscaler, 0)
    aws.now = 5
    aws.refuse("a")
    assert [aws.loop(autoscaler, second) for second in (60, 70, 80)] == [[SetDesired("a", 0)]] * 3
    assert desired(aws) == (5, 0)  # the desired capacity of others is not upcoming


@pytest.mark.parametrize(("version", "size"), [((1, 29), 2), ((1, 30), 3)])
def test_an_instance_that_launched_since_the_read_counts_since_1_30(version: tuple[int, int], size: int) -> None:
    aws, autoscaler = account(0), AwsAutoscaler(Flags(version=version))
    aws.launch("a", 2)
    aws.change("a", desired=4)
    aws.refuse("a")
    aws.loop(autoscaler, 0)
    autoscaler.refresh(60, aws)
    aws.launch("a", 1)
    assert aws.loop(autoscaler, 70) == [SetDesired("a", size)]


def test_a_lower_maximum_is_read_a_minute_later_and_until_then_a_rejected_order_starts_a_backoff() -> None:
    aws, autoscaler = account(0, b=(0, 0)), AwsAutoscaler(Flags())
    aws.loop(autoscaler, 0)
    aws.pods = 3
    aws.change("a", bounds=Bounds(0, 2))
    assert aws.loop(autoscaler, 10) == [SetDesired("a", 3)]
    assert desired(aws) == (0, 0)
    assert autoscaler.core.in_backoff("a", 10)
    assert aws.loop(autoscaler, 320) == [SetDesired("a", 2)]


def test_a_size_that_others_have_lowered_since_the_read_is_raised_again() -> None:
    aws, autoscaler = account(3, b=(0, 0)), AwsAutoscaler(Flags())
    aws.loop(autoscaler, 0)
    aws.change("a", desired=1)
    aws.pods = 4
    assert aws.loop(autoscaler, 10) == [SetDesired("a", 4)]


def test_a_read_that_fails_ends_the_loop_and_is_repeated_in_the_next() -> None:
    aws, autoscaler = account(2), AwsAutoscaler(Flags())
    aws.fails = True
    assert aws.loop(autoscaler, 0) == []
    aws.fails = False
    assert aws.loop(autoscaler, 10) == [SetDesired("a", 1), SetDesired("b", 1)]


def test_a_rejected_termination_changes_nothing_and_is_tried_again() -> None:
    aws, autoscaler = account(0, b=(0, 0)), AwsAutoscaler(Flags(unneeded=0))
    aws.launch("a", 1)
    aws.change("a", desired=1)
    assert aws.loop(autoscaler, 0, rejects=True) == [Terminate("a", "i-a0")]
    assert aws.loop(autoscaler, 10) == [Terminate("a", "i-a0")]
    assert desired(aws) == (0, 0)


def test_an_instance_that_ends_is_not_terminated_again() -> None:
    aws, autoscaler = account(0, b=(0, 0)), AwsAutoscaler(Flags(unneeded=0))
    aws.change("a", desired=1, instances=[Instance("i-a0", ending=True)])
    assert [aws.loop(autoscaler, second) for second in (0, 10, 20)] == [[]] * 3


def test_a_groups_tag_sets_its_unneeded_time() -> None:
    aws, autoscaler = account(0), AwsAutoscaler(Flags())
    for zone in "ab":
        aws.launch(zone, 1)
        aws.change(zone, desired=1)
    aws.change("b", unneeded=60)
    ended = {order: second for second in range(0, 700, 10) for order in aws.loop(autoscaler, second)}
    assert ended == {Terminate("b", "i-b0"): 60, Terminate("a", "i-a0"): 600}
