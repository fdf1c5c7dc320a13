"""Room by the clock: PoolMinimum is larger in weekly spans of local time (``minimum-at``)."""
