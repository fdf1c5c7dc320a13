"""The machine APIs that Evenkeel supports, by the names that records and keys of node groups use."""

FLAVOUR_NAMES = ("gardener", "cluster-api", "openshift")
# Gardener takes autoscaling options off again that another controller writes to a MachineDeployment.
REMOVES_OPTIONS = frozenset({"gardener"})
