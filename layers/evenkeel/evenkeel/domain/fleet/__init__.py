"""The fleet: when each cluster is checked."""
