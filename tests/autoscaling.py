"""Node groups as numbers, and a loop of the autoscaler's model on them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from evenkeel.domain.model.groups import Bounds
from evenkeel_cli.simulation.autoscaler_model import Action, ClusterAutoscaler, Decrease, Delete, Increase


@dataclass(frozen=True)
class Machine:
    name: str
    created: float
    node: bool = False


@dataclass
class Group:
    """A node group in whose zone machines become nodes when `deliver` is called."""

    zone: str
    readable_bounds: Bounds | None
    pool: str = "p"
    has_template: bool = True
    machines: list[Machine] = field(default_factory=list)
    ever: int = 0

    @property
    def key(self) -> str:
        return f"{self.pool}-{self.zone}"

    @property
    def requested(self) -> int:
        return len(self.machines)

    @property
    def running(self) -> int:
        return sum(machine.node for machine in self.machines)

    @property
    def max(self) -> int:
        return self.readable_bounds.max if self.readable_bounds else 0

    @property
    def min(self) -> int:
        return self.readable_bounds.min if self.readable_bounds else 0

    def grow(self, nodes: int, now: float) -> None:
        self.machines += [Machine(f"{self.key}-{self.ever + i}", now) for i in range(nodes)]
        self.ever += nodes

    def deliver(self) -> None:
        self.machines = [Machine(machine.name, machine.created, True) for machine in self.machines]


Seen = Callable[[Action[Group]], None]


def loop(
    model: ClusterAutoscaler[Group],
    groups: list[Group],
    demand: dict[tuple[str, str | None], int],
    now: float,
    seen: Seen = lambda _: None,
) -> list[Action[Group]]:
    actions: list[Action[Group]] = []
    for action in model.loop(groups, demand, now):
        seen(action)
        actions.append(action)
        match action:
            case Increase(group, nodes):
                group.grow(nodes, now)
            case Decrease(group, nodes):
                waiting = [machine for machine in group.machines if not machine.node]
                group.machines = [machine for machine in group.machines if machine not in waiting[:nodes]]
            case Delete(group, machine):
                group.machines = [other for other in group.machines if other != machine]
    return actions
