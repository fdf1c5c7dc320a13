"""The owners of node groups' bounds and replicas: one file for each kind of owner (docs/guides/machine-apis.md)."""
