"""What each group may do: failures, backoff, contested writes."""
