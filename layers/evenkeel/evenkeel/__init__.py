"""Evenkeel keeps the zones of a Kubernetes node pool even and whole."""
