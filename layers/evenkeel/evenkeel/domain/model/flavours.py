"""The names of the machine APIs that Evenkeel supports. Records and the keys of node groups use these names."""

from datetime import timedelta
from typing import Literal, get_args

AUTO_SCALING = "auto-scaling"  # EC2 Auto Scaling groups; the other flavours are APIs of Kubernetes
FlavourName = Literal["gardener", "cluster-api", "openshift", "auto-scaling"]
FLAVOUR_NAMES: tuple[FlavourName, ...] = get_args(FlavourName)
# For so long, Cluster Autoscaler uses bounds that it has read (aws_manager.go, refreshInterval). It reads the bounds of
# other flavours in each loop.
BOUNDS_KEPT = {AUTO_SCALING: timedelta(minutes=1)}
# Since 1.24, Cluster Autoscaler itself gives up launches that these APIs refuse, at its first refresh afterwards
# (auto_scaling_groups.go). Evenkeel gives them up only where the autoscaler has not done so within this time.
GIVEN_UP_WITHIN = {AUTO_SCALING: timedelta(minutes=2)}
# A read of these APIs may be as old as this, also in a part of its answer. AWS documents no limit; this is the oldest
# read that was reported.
READS_MAY_BE_OLD = {AUTO_SCALING: timedelta(seconds=30)}
# A write to these APIs is several requests. Until the last one, a process of the group is suspended.
WRITTEN_IN_STEPS = frozenset({AUTO_SCALING})
# The name of a machine of Auto Scaling groups begins with this if its launch has failed or has no instance yet.
PLACEHOLDER = "i-placeholder-"
# The most running machines that one write to a group may remove. The ids of the machines must fit one tag.
MOST_REMOVED = {AUTO_SCALING: 10}
# The tags that say how large a node of an empty group is.
_SIZES = "k8s.io/cluster-autoscaler/node-template/resources/"
SIZE_TAGS = {AUTO_SCALING: (f"{_SIZES}cpu", f"{_SIZES}memory")}
# The field of a MachineDeployment's zone. It is part of the machines' template, so a change replaces all machines.
ZONE_FIELDS = {"cluster-api": "spec.template.spec.failureDomain"}
