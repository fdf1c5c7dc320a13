"""An outage of 300 node groups with 3,000 stuck machines is fenced in the first run and released with the second."""

from tests.big_outage import INVOCATION, BigOutage


def test_every_fence_is_published_in_the_first_run_and_no_machine_is_marked_twice() -> None:
    outage = BigOutage()
    first = outage.run()
    assert (first.fences, first.open_groups) == (300, 0)
    assert first.marks > 1000
    assert first.seconds < INVOCATION
    second = outage.run()
    assert (second.open_groups, second.stuck) == (0, 0)
    assert second.seconds < INVOCATION
    assert len(outage.marked) == 3000
    assert set(outage.marked.values()) == {1}
    assert outage.run().groups == 0


def test_one_after_the_other_fences_come_before_the_first_mark_as_well() -> None:
    outage = BigOutage(pools=80, stuck=2, workers=1)
    first = outage.run()
    assert (first.open_groups > 0, first.marks) == (True, 0)
    second = outage.run()
    assert second.open_groups == 0
    assert second.marks > 0
