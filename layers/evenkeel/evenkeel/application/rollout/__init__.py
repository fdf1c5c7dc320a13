"""Rollouts: readiness of clusters in dry run, and waves of clusters that go live."""
