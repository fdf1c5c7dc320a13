"""The record of a cluster that need not be registered."""

from evenkeel.record import ClusterPolicy, ControlFields


class ClusterFile(ClusterPolicy, ControlFields):
    """A record as ``evenkeel plan --record`` accepts it."""
