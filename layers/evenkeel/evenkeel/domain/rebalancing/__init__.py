"""Rebalancing: computes the replicas and bounds to write from the observation and the stored state."""
