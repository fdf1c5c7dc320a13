"""Look back: what zone outages have cost, and what Evenkeel would have changed. Read-only."""
