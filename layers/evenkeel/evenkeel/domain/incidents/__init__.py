"""Incidents: which incidents a plan implies, and when each opens, changes and closes."""
