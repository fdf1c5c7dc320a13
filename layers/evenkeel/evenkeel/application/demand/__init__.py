"""Demand: its result, for programs and for people."""
