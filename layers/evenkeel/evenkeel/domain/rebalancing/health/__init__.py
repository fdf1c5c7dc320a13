"""Health of node groups: failures, backoff, contested writes, and the state that follows."""
