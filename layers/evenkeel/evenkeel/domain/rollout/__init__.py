"""Rollouts: clusters go live in waves, once their dry runs have shown that they are ready."""
