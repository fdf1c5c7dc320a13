"""Evenkeel keeps the zones of a Kubernetes node pool even and whole."""

__version__ = "0.2.0"
"""The version of package, template and archives. tests/unit/project/test_release.py compares them."""
