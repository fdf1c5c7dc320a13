"""Who owns the bounds and the replicas of a node group: one file for each kind of owner (docs/flavours.md)."""
