"""The names of the machine APIs that Evenkeel supports. Records and the keys of node groups use these names."""

AUTO_SCALING = "auto-scaling"  # EC2 Auto Scaling groups; the other flavours are APIs of Kubernetes
FLAVOUR_NAMES = ("gardener", "cluster-api", "openshift", AUTO_SCALING)
# Gardener removes autoscaling options that another controller writes to a MachineDeployment.
REMOVES_OPTIONS = frozenset({"gardener"})
