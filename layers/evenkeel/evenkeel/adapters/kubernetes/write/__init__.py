"""Writes to scalables, their owners, machines, events and the status ConfigMap."""
