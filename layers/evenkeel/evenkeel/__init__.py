"""Evenkeel balances a Kubernetes node pool over its zones, and keeps its capacity if a zone fails."""

__version__ = "0.2.0"
"""The version of the package, the template and the archives. tests/unit/project/test_release.py compares all three."""
