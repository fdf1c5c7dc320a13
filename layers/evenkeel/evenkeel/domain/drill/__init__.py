"""Drills: one zone is fenced for a limited time, and each check measures the effect."""
