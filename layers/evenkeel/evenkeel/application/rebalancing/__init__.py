"""Rebalancing: check clusters, plan their changes, and write these. Only ``rebalance.py`` writes to a cluster."""
