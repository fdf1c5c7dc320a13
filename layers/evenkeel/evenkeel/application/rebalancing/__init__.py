"""Rebalancing: clusters are checked and planned for; one use case writes to them."""
