"""Which groups take part, which of them make a pool, and which numbers the pool has."""
