"""ULIDs: ids that sort by time as text (github.com/ulid/spec). The caller passes the time and the random bytes."""

from datetime import UTC, datetime

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def ulid(at: datetime, random_bytes: bytes) -> str:
    """Return a ULID: 26 characters that encode 48 bits of milliseconds and 80 random bits (10 bytes)."""
    number = (int(at.timestamp() * 1000) << 80) | int.from_bytes(random_bytes[:10])
    return "".join(_CROCKFORD[(number >> shift) & 31] for shift in range(125, -1, -5))


def time_of(id: str) -> datetime:
    """Return the time that a ULID contains. If the id is no ULID, return the start of 1970."""
    try:
        milliseconds = sum(_CROCKFORD.index(char) << (5 * place) for place, char in enumerate(reversed(id[:10])))
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)
