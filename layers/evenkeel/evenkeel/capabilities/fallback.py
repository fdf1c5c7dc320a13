"""The field about fallback pools."""

from evenkeel.validation import PoolName, Strict


class FallbackFields(Strict):
    """The field of a record's pool."""

    fallback_for: PoolName | None = None  # the pool of which this pool is a fallback
