"""Cluster Autoscaler in a simulation: the model's actions, carried out on numbers at once."""

from evenkeel_cli.simulation.autoscaler_model import ClusterAutoscaler, Decrease, Delete, Flags, Increase, Refused
from evenkeel_cli.simulation.pod_autoscaler import PodAutoscaler
from evenkeel_cli.simulation.scenario import AutoscalerSetup
from evenkeel_cli.simulation.world import Group, SimulatedMachine, World


class SimulatedAutoscaler:
    """The autoscaler of a world, which seeds its expander."""

    def __init__(self, world: World, setup: AutoscalerSetup) -> None:
        self._world = world
        flags = Flags(**setup.model_dump(exclude={"enabled", "loop"}))
        seed = f"{world.scenario.seed}/expander"
        self._model: ClusterAutoscaler[Group] = (
            ClusterAutoscaler(flags, seed=seed)
            if world.pods is None
            else PodAutoscaler(world, world.pods, flags, seed=seed)
        )

    def loop(self) -> None:
        """One loop, at the world's present second."""
        world = self._world
        for action in self._model.loop(world.groups, world.demand, world.now):
            match action:
                case Increase(group, nodes):
                    world.order(group, nodes)
                case Decrease(group, nodes):
                    world.shrink(group, group.requested - nodes)
                case Delete(group, machine):
                    assert isinstance(machine, SimulatedMachine)
                    world.remove(group, machine)
                case Refused():
                    pass
