"""Replicas of each group: Evenkeel releases, moves, raises, adds and removes them."""
