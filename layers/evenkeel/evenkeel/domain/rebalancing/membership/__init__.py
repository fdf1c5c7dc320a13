"""Pools: the groups that participate, and the groups, PoolMinimum and PoolMaximum of each pool."""
