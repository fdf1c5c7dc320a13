"""Drills: one zone is fenced for a time, and the effect is measured."""
