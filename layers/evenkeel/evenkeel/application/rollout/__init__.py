"""Rollout: readiness of clusters in dry run."""
