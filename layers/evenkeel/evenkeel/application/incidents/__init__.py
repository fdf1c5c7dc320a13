"""Incidents: store cluster health, publish events, and notify channels."""
