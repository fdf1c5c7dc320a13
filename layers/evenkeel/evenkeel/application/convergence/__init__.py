"""Convergence: reports of its progress, for programs and for people."""
