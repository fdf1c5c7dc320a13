"""What has become of a pool's members since the last look: who is missing, what others have changed, since when."""

from dataclasses import replace
from datetime import datetime, timedelta

from evenkeel.domain.model.pools import Pool, tie_of
from evenkeel.domain.model.states import Sighting

# How long a look that found no more than half of a pool's groups waits for another one.
FEW_LAST = timedelta(minutes=1)


def few_members(pool: Pool, now: datetime) -> Sighting | None:
    """The sighting to remember while no more than half of the groups are here that were here at the last look.

    Half a list, perhaps: a second look, ``FEW_LAST`` later, must find the same. None: enough are here.
    """
    before = pool.state.seen
    if before is None or not before.requested:
        return None
    present = set(before.requested) & {str(group.key) for group in pool.groups}
    since = before.few_since or now
    if 2 * len(present) > len(before.requested) or now >= since + FEW_LAST:
        return None
    return replace(before, few_since=since)


def sight(pool: Pool, now: datetime) -> tuple[Sighting, bool, str]:
    """What is requested now and since when, whether others changed it, and the group that they let grow most."""
    requested = {str(group.key): group.requested for group in pool.groups}
    before = pool.state.seen
    if before is None:
        return Sighting(since=now, requested=requested), False, ""
    expected = {**before.requested, **before.planned}
    if requested in (before.requested, expected):
        planned = before.planned if requested == before.requested else {}
        return replace(before, requested=requested, planned=planned, few_since=None), False, ""
    grown = {
        str(group.key): more
        for group in pool.groups
        if (more := group.requested - expected.get(str(group.key), group.requested)) > 0
    }
    ties = {str(group.key): tie_of(str(pool.id), group) for group in pool.groups} if len(grown) > 1 else {}
    grower = max(grown, key=lambda key: (grown[key], ties.get(key, 0)), default="")
    return Sighting(since=now, requested=requested), True, grower
