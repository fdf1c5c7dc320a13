"""Bounds to publish for each group: the strategies, the owners and the safety pass."""
