"""Rebalancing: check clusters, plan their changes, and write the changes. Only ``rebalance.py`` writes to a cluster."""
