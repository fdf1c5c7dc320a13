"""Evenkeel keeps the zones of a Kubernetes node pool even and whole."""

__version__ = "0.2.0"
"""The version of the package, the template and the files of `make package`. tests/unit/test_release.py compares it."""
