"""The machine controllers of the three flavours."""

from collections.abc import Callable

from sandbox.kube.controllers.cluster_api import ClusterAPIControllers
from sandbox.kube.controllers.gardener import GardenerControllers
from sandbox.kube.controllers.machine_controller import MachineControllers
from sandbox.kube.controllers.openshift import OpenShiftControllers

CONTROLLERS: dict[str, Callable[..., MachineControllers]] = {
    "gardener": GardenerControllers,
    "cluster-api": ClusterAPIControllers,
    "openshift": OpenShiftControllers,
}
