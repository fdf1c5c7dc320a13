"""Rebalancing: from what is observed and stored to the replicas and bounds to write."""
