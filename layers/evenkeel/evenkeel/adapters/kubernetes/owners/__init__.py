"""The owners of the bounds and replicas of node groups: one file for each kind of owner (docs/guides/machine-apis.md)."""
