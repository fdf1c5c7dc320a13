"""Convergence: its progress, for programs and for people."""
