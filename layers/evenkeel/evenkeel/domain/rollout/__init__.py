"""Rollout: clusters go live after their dry runs have shown that they are ready."""
