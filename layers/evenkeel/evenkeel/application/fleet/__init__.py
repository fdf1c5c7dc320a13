"""The fleet: the records of all clusters, and the times of their checks."""
