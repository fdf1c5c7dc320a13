"""The owners of a node group's bounds and replicas, one file for each kind (docs/guides/machine-apis.md)."""
