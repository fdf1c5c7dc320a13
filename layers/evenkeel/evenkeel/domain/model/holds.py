"""What holds for a time, such as the wait after a failure, and how this time grows with each further failure.

An operator's pause is different: without an end, it holds until it is ended (``membership.pausing``).
"""

from datetime import datetime, timedelta

_MOST_DOUBLINGS = 20  # a larger exponent would overflow, and so many doublings are longer than any limit


def held_until(at: datetime | None, now: datetime, length: timedelta = timedelta(0)) -> datetime | None:
    """Return when the hold ends that ends ``length`` after a time; None: there was no hold, or it is over."""
    if at is None or now >= at + length:
        return None
    return at + length


def doubled(first: timedelta, times: int, longest: timedelta) -> timedelta:
    """Return the length of a hold that has doubled this many times."""
    return min(longest, first * (1 << min(times, _MOST_DOUBLINGS)))


def next_length(
    since: datetime | None, until: datetime | None, now: datetime, first: timedelta, longest: timedelta
) -> timedelta:
    """Return the length of a hold that begins now: that of the last one doubled, if it ended within ``longest``.

    Args:
        since: When the last hold began; None: there was none.
        until: When it ended.
        now: The present time.
        first: The length of a hold that follows no other.
        longest: The longest length. A hold that was longer had another reason, and does not count.
    """
    if since is not None and until is not None:
        last = until - since
        if last <= longest and now - until <= longest:
            return min(max(first, 2 * last), longest)
    return first
