"""A cluster of the sandbox and Evenkeel's functions, in virtual time."""

from typing import Any

from evenkeel.application.rebalancing.ports import Clusters
from evenkeel_cli.simulation.autoscaler_model import Flags
from sandbox.kube.controllers.machine_controller import Timing
from sandbox.kube.world import Pool, World
from tests.cluster_objects import ClusterObjects
from tests.crashing import Life, WirelessClusters
from tests.fakes import FakeClock, InMemoryStore, register
from tests.timed import TimedWorld, Who


class SandboxWorld(ClusterObjects, TimedWorld):
    """Pools of one cluster. Without ``settings`` it has no autoscaler. Further fields are the record's."""

    clock: FakeClock

    def __init__(
        self,
        *pools: Pool,
        flavour: str = "cluster-api",
        timing: Timing | None = None,
        settings: Flags | None = None,
        who: Who = Who.EVENTS,
        **fields: Any,
    ) -> None:
        clock, store = FakeClock(), InMemoryStore()
        world = World(clusters=[flavour], pools={flavour: pools}, clock=clock.now, timing=timing, settings=settings)
        self.cluster = world.clusters[flavour]
        ClusterObjects.__init__(self, self.cluster)
        register(store, flavours=[self.flavour], **fields)
        self.clusters = self.opened(WirelessClusters(self.api, Life(), clock))
        TimedWorld.__init__(self, self.clusters, clock, store, who=who)

    def opened(self, clusters: WirelessClusters) -> Clusters:
        """Return the port that opens the cluster."""
        return clusters

    @property
    def patches(self) -> int:
        """Return how many patches Evenkeel has sent."""
        return self.api.requests.count(method="PATCH", manager="evenkeel")
