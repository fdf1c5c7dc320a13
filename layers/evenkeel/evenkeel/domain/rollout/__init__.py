"""Rollouts: clusters go live in waves, after their dry runs have shown that they are ready."""
