"""Pools: the groups that participate, their pools and the numbers of each pool."""
