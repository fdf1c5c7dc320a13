"""Convergence: Evenkeel moves running nodes until the zones of a pool are level."""
