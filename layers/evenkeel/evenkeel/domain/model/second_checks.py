"""A list may be incomplete, or empty by mistake. So what one list lacks is absent only once a second check agrees.

A check between the two that finds it ends the doubt: the stored time of the first check becomes None. The two checks
are at most five minutes apart, because a check in between may have failed, or may not have stored what it found.
"""

from datetime import datetime, timedelta

# How long after the first check the second one may confirm it. Evenkeel requests a check for this time.
SECOND_CHECK_AFTER = timedelta(minutes=1)
_CONFIRMS_UNTIL = timedelta(minutes=5)


def doubted_since(first: datetime | None, now: datetime) -> datetime:
    """Return the time of the first check of a doubt that this check shares. ``first``: as stored; None: no doubt."""
    if first is None or not timedelta(0) <= now - first <= _CONFIRMS_UNTIL:
        return now
    return first


def is_confirmed(since: datetime, now: datetime) -> bool:
    """Return True if a check at ``now`` confirms what the check at ``since`` did not find."""
    return now - since >= SECOND_CHECK_AFTER
