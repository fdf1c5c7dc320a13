"""Incidents: which ones a plan implies, and when each opens, changes and closes."""
