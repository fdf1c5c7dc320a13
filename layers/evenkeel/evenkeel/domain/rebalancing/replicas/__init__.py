"""How many replicas each group should request."""
