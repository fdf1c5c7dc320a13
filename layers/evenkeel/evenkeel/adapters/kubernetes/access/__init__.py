"""Access to clusters: addresses, credentials and tokens."""
