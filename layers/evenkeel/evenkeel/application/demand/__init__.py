"""Demand: reports of its advice, for programs and for people."""
