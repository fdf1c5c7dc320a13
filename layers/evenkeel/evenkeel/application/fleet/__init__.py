"""The fleet: which clusters there are, and when each is checked."""
