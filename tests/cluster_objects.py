"""A sandbox cluster's node groups by zone, as operators, GitOps tools and Cluster Autoscaler read and write them."""

from collections.abc import Mapping

from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from sandbox.kube.controllers.node_pools import NODE_POOL, NODE_POOLS
from sandbox.kube.schema import Object
from sandbox.kube.world import Cluster

AUTOSCALERS = "machineautoscalers.autoscaling.openshift.io"
CLUSTERS = "clusters.cluster.x-k8s.io"


class ClusterObjects:
    """One pool with one node group per zone. ``cluster_class``: the bounds are in the Cluster's topology."""

    cluster_class = False

    def __init__(self, cluster: Cluster) -> None:
        self.zones = tuple(cluster.cloud.zones)
        self.flavour = cluster.flavour
        self.machine_api = FLAVOURS[cluster.flavour]
        self.namespace = cluster.namespace
        self.api = cluster.api
        self.objects = cluster.store
        self.controllers = cluster.controllers
        self.cloud = cluster.cloud
        self.scalables = f"{self.machine_api.scalables[0].plural}.{self.machine_api.group}"
        self.machine_resource = f"{self.machine_api.machines.kind.plural}.{self.machine_api.group}"

    # -- reading
    def items(self) -> dict[str, Object]:
        return {self._zone(item): item for item in self.objects.list(self.scalables)}

    def item(self, zone: str) -> Object:
        return self.items()[zone]

    def name_of(self, zone: str) -> str:
        return str(self.item(zone)["metadata"]["name"])

    def replicas(self) -> dict[str, int]:
        """Return requested nodes by zone."""
        return {zone: item["spec"].get("replicas", 0) for zone, item in self.items().items()}

    def machines(self) -> dict[str, Object]:
        return {item["metadata"]["name"]: item for item in self.objects.list(self.machine_resource)}

    def owners(self, items: Mapping[str, Object]) -> dict[str, Object]:
        """Return the owner of the bounds by zone: the scalable, MachineAutoscaler, NodePool or Cluster."""
        if self.cluster_class:
            (cluster,) = self.objects.list(CLUSTERS)
            return dict.fromkeys(items, cluster)
        pools = {item["metadata"]["name"]: item for item in self.objects.list(NODE_POOLS)}
        if pools:
            made_from = {zone: item["metadata"]["annotations"][NODE_POOL] for zone, item in items.items()}
            return {zone: pools[name.rpartition("/")[2]] for zone, name in made_from.items()}
        scalers = self.objects.list(AUTOSCALERS) if self.flavour == "openshift" else []
        by_target = {scaler["spec"]["scaleTargetRef"]["name"]: scaler for scaler in scalers}
        return {zone: by_target.get(item["metadata"]["name"], item) for zone, item in items.items()}

    def owner(self, zone: str) -> Object:
        return self.owners({zone: self.item(zone)})[zone]

    def bounds(self, zone: str, owner: Object | None = None) -> tuple[int, int]:
        """Return the bounds of a zone's group from their owner. Raise KeyError or ValueError if they are unreadable."""
        owner = owner or self.owner(zone)
        if owner["kind"] == "MachineAutoscaler":
            return owner["spec"].get("minReplicas", 0), owner["spec"]["maxReplicas"]
        if owner["kind"] == "NodePool":
            scaling = owner["spec"].get("autoScaling") or {"min": 0, "max": owner["spec"].get("replicas", 0)}
            return scaling["min"], scaling["max"]
        annotations = self.annotations(zone, owner)
        return int(annotations[self.machine_api.min_key]), int(annotations[self.machine_api.max_key])

    def sizes(self) -> dict[str, tuple[int, int, int]]:
        """Return requested nodes, min and max by zone, from one list of each kind."""
        items = self.items()
        owners = self.owners(items)
        return {
            zone: (item["spec"].get("replicas", 0), *self.bounds(zone, owners[zone])) for zone, item in items.items()
        }

    def annotations(self, zone: str, owner: Object | None = None) -> dict[str, str]:
        """Return the annotations of the object that has a zone's bounds."""
        owner = owner or self.owner(zone)
        if owner["kind"] == "Cluster":
            owner = next(entry for entry in topology_entries(owner) if entry["name"] == zone)
        return dict(owner["metadata"].get("annotations") or {})

    # -- writing
    def change(self, zone: str, patch: Object, manager: str = "test") -> None:
        self.patch(self.item(zone), patch, manager)

    def set_bounds(self, zone: str, low: int, high: int, manager: str = "test") -> None:
        """Set the bounds of a zone's group as another writer."""
        owner = self.owner(zone)
        if owner["kind"] == "MachineAutoscaler":
            self.patch(owner, {"spec": {"minReplicas": low, "maxReplicas": high}}, manager)
        elif owner["kind"] == "NodePool":
            self.patch(owner, {"spec": {"autoScaling": {"min": low, "max": high}, "replicas": None}}, manager)
        else:
            bounds = {self.machine_api.min_key: str(low), self.machine_api.max_key: str(high)}
            self.annotate(zone, bounds, manager)

    def annotate(self, zone: str, annotations: Mapping[str, str], manager: str = "test") -> None:
        """Edit the annotations of the object that has a zone's bounds, as another writer."""
        owner = self.owner(zone)
        patch: Object = {"metadata": {"annotations": dict(annotations)}}
        if owner["kind"] == "Cluster":
            entries = topology_entries(owner)
            next(entry for entry in entries if entry["name"] == zone)["metadata"]["annotations"] |= annotations
            patch = {"spec": {"topology": {"workers": {"machineDeployments": entries}}}}
        self.patch(owner, patch, manager)

    def scale(self, zone: str, replicas: int, manager: str = "cluster-autoscaler") -> None:
        """Write the scale subresource without a version, as Cluster Autoscaler and kubectl do."""
        self.objects.scale(self.scalables, self.namespace, self.name_of(zone), replicas, manager=manager)

    def patch(self, item: Object, patch: Object, manager: str = "test") -> None:
        resource = f"{item['kind'].lower()}s.{item['apiVersion'].partition('/')[0]}"
        metadata = item["metadata"]
        self.objects.patch(resource, metadata["namespace"], metadata["name"], patch, manager=manager)

    def _zone(self, item: Object) -> str:
        name: str = item["metadata"]["name"]
        if self.flavour == "gardener":
            return self.zones[int(name[-1]) - 1]
        return next(zone for zone in self.zones if name.endswith(zone))


def topology_entries(cluster: Object) -> list[Object]:
    """Return the machine deployments of a Cluster's topology."""
    entries: list[Object] = cluster["spec"]["topology"]["workers"]["machineDeployments"]
    return entries
