"""How a cluster is reached: addresses, credentials and tokens."""
