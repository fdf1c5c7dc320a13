"""The names of the machine APIs that Evenkeel supports. Records and the keys of node groups use these names."""

FLAVOUR_NAMES = ("gardener", "cluster-api", "openshift")
# Gardener removes autoscaling options that another controller writes to a MachineDeployment.
REMOVES_OPTIONS = frozenset({"gardener"})
