"""Replicas of each group: released, moved, raised, added and given back."""
