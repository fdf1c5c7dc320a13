"""Rebalancing: from observation and stored state to the replicas and bounds to write."""
