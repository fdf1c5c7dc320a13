"""Convergence: running nodes are moved until the zones of a pool are level."""
