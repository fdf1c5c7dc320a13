"""Evenkeel keeps the zones of a Kubernetes node pool even and whole."""

__version__ = "0.2.0"
"""Of the package, of the template and of what `make package` writes: tests/unit/test_release.py compares them."""
