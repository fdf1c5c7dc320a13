"""Rollouts: clusters that go live in waves, and whether a cluster is ready to."""
