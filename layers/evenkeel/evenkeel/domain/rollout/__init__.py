"""Rollouts: the rules of waves and of readiness."""
