"""Surviving zones: the nodes that a pool needs so that the loss of one zone leaves enough (``survive-zones``)."""
