"""Incidents: cluster health is stored, events are published, channels are notified."""
