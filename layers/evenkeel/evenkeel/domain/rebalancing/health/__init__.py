"""Health of node groups: failures, backoff, contested writes, and the states of groups that follow from them."""
