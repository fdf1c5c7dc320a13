"""Next to a cluster-autoscaler, refused launches of Auto Scaling groups are given up two minutes after the refusal."""

from datetime import timedelta

import pytest

from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import MachineFailure, NodeGroup
from tests.builders import NOW, Played, group, key, machines, numbers
from tests.parts import replace

SECOND = timedelta(seconds=1)
SCAN = 60


def of_aws(zone: str) -> NodeGroup:
    return group(zone, 1, bounds=(0, 4), key=key(zone, flavour=AUTO_SCALING), kind="AutoScalingGroup")


def refused(found: NodeGroup, seconds: float) -> NodeGroup:
    """Return the group with one more instance, whose newest launch was refused so long after NOW."""
    (*ran, new) = machines(replace(found, requested=2, running=1), timedelta()).machines or ()
    at = NOW + seconds * SECOND
    failure = MachineFailure(code="InsufficientInstanceCapacity", message="no room", at=at)
    return replace(found, requested=2, running=1, machines=(*ran, replace(new, created_at=at, failure=failure)))


@pytest.mark.parametrize("retried", [0, 40], ids=["refused once", "refused again every 40 s"])
@pytest.mark.parametrize("second", range(1, SCAN, 7))
def test_two_minutes_after_a_refusal_are_two_minutes(second: int, retried: int) -> None:
    """Scans are a minute apart, and a check follows when the plan requests it."""
    played = Played([of_aws(zone) for zone in "abc"], numbers(0, 12))
    played.check()
    first_seen, elapsed, scan = None, 0.0, float(SCAN)
    while elapsed < 10 * SCAN:
        wanted = played.next_check()
        elapsed = min(scan, elapsed + wanted) if wanted is not None and wanted > 0 else scan
        scan = scan + SCAN if elapsed == scan else scan
        newest = second + retried * ((elapsed - second) // retried) if retried else second
        first_seen = newest if first_seen is None else first_seen
        (found,) = [each for each in played.groups if each.identity.zone == "a"]
        others = [each for each in played.groups if each is not found]
        played.groups = [refused(found, newest), *others]
        (planned, *_) = played.check((NOW + elapsed * SECOND - played.now).total_seconds()).groups
        if planned.requested == 1:
            break
    assert planned.requested == 1
    assert 120 <= elapsed - first_seen <= 121
