"""A model of cluster-autoscaler with its aws provider: the part between its decisions and Auto Scaling.

``AwsAutoscaler.decide(now, observation)`` runs one loop and yields orders. It has no I/O and no clock. ``evenkeel
simulate`` carries the orders out on simulated groups, and the sandbox with an API client. ``autoscaler_model`` decides
how many nodes which group gets, and keeps orders and backoffs.

- Groups are read every 60 s, and in the loop after a deletion (cloudprovider/aws/aws_manager.go, refreshInterval and
  DeleteInstances). A read that fails ends the loop. So bounds and sizes are up to a minute old.
- Desired capacity is written as an absolute number, computed from the size that was read (auto_scaling_groups.go,
  setAsgSizeNoLock; aws_cloud_provider.go, IncreaseSize). It undoes what others have written since.
- Desired capacity without an instance is a placeholder. Since 1.24, placeholders are refused if a launch has failed
  that began after the last write of this autoscaler (isNodeGroupAvailable). An older activity ends this search, and
  AWS lists activities in progress first. The texts of failures have no effect. A group is first asked at the second
  read, and then any old failure counts.
- Refused placeholders start a backoff, if this autoscaler has an order there (clusterstate/clusterstate.go,
  handleInstanceCreationErrors). They are deleted in each loop (core/static_autoscaler.go,
  deleteCreatedNodesWithErrors): desired capacity becomes the number of instances that are listed, those that end
  included; before 1.30, the size that was read without the placeholders, which may end instances in service.
- No size at or below the minimum falls (aws_cloud_provider.go, DeleteNodes). Refused placeholders that stay therefore
  end each loop after the provision timeout: no group gets or loses nodes (static_autoscaler.go, fixNodeGroupSize;
  kubernetes/autoscaler#4760).
- A timeout starts a backoff, but does not lower the size, because DecreaseTargetSize counts placeholders as nodes. The
  loop then deletes the placeholders as nodes that never registered (removeOldUnregisteredNodes).
- The only option of a group's tags that this model reads is ``scaledownunneededtime`` (GetAsgOptions).

Not modelled: the delay of scale-down after a failed deletion. All files are under cluster-autoscaler/ in
kubernetes/autoscaler, branch cluster-autoscaler-release-1.37.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from evenkeel.domain.model.flavours import PLACEHOLDER
from evenkeel.domain.model.groups import Bounds
from evenkeel_cli.simulation import autoscaler_model as model
from evenkeel_cli.simulation.autoscaler_model import ClusterAutoscaler, Delete, Demand, Flags, Increase

REFRESH = 60  # seconds between two reads of the groups
# Versions. Since NOTICES_REFUSALS, refused launches are noticed. Since LISTS_ANEW, the instances are counted anew
# before placeholders are deleted.
NOTICES_REFUSALS, LISTS_ANEW = (1, 24), (1, 30)
_NEVER = float("-inf")


class Activity(NamedTuple):
    """A scaling activity: the time at which it began, and its StatusCode."""

    start: float
    status: str


class Instance(NamedTuple):
    """An instance that Auto Scaling lists. ``ending``: its termination has begun."""

    name: str
    ending: bool = False


@dataclass(frozen=True, kw_only=True)
class AutoScalingGroup:
    """An Auto Scaling group as DescribeAutoScalingGroups returns it."""

    name: str
    pool: str
    zone: str
    desired: int
    bounds: Bounds
    instances: Sequence[Instance]
    is_managed: bool = False  # by EKS: its name is a label of its template as long as it is empty
    unneeded: float | None = None  # the tag scaledownunneededtime in seconds; None: no such tag


class Observation(Protocol):
    """What the autoscaler can read from the cluster and from AWS. It reads only what the real one reads."""

    @property
    def demand(self) -> Demand:
        """Return the pods of the cluster."""

    def has_node(self, instance: str) -> bool:
        """Return True if the cluster has a ready node of an instance."""

    def groups(self) -> Sequence[AutoScalingGroup] | None:
        """Return the groups (DescribeAutoScalingGroups); None: the read failed."""

    def count_instances(self, group: str) -> int | None:
        """Return the number of instances that a group lists (DescribeAutoScalingGroups); None: the read failed."""

    def activities(self, group: str) -> Sequence[Activity] | None:
        """Return a group's activities as AWS lists them (DescribeScalingActivities); None: the read failed."""


class SetDesired(NamedTuple):
    """SetDesiredCapacity without a cooldown. AWS rejects a size outside of the group's bounds."""

    group: str
    size: int


class Terminate(NamedTuple):
    """TerminateInstanceInAutoScalingGroup, and lower the desired capacity by one."""

    group: str
    instance: str


Order = SetDesired | Terminate


@dataclass(frozen=True, kw_only=True)
class Machine:
    """An instance, or a placeholder. ``created``: when it was first seen. ``refused``: its launch has failed."""

    name: str
    created: float
    node: bool
    refused: bool = False

    @property
    def is_placeholder(self) -> bool:
        """Return True if no instance exists."""
        return self.name.startswith(PLACEHOLDER)


@dataclass(kw_only=True, eq=False)
class NodeGroup:
    """A group as the last read has shown it, changed by the autoscaler's own orders since then."""

    key: str
    pool: str
    zone: str
    requested: int
    readable_bounds: Bounds
    machines: list[Machine] = field(default_factory=list)  # changed by ``keep`` only
    running: int = 0  # the number of instances with a node
    placeholders: int = 0
    ending: frozenset[str] = frozenset()  # the instances whose termination has begun
    is_managed: bool = False
    unneeded: float | None = None
    has_template: bool = True

    def keep(self, machines: Iterable[Machine]) -> None:
        """Replace the machines, and count them."""
        self.machines = [*machines]
        self.running = sum(machine.node for machine in self.machines)
        self.placeholders = sum(machine.is_placeholder for machine in self.machines)

    @property
    def refused(self) -> frozenset[str]:
        """Return the names of refused placeholders."""
        return frozenset(machine.name for machine in self.machines if machine.refused)


@dataclass(kw_only=True)
class _Memory:
    """What the autoscaler knows about a group from one read to the next. Times in seconds."""

    wrote_at: float = _NEVER  # the last SetDesired
    seen: dict[str, float] = field(default_factory=dict)  # when each machine was first seen
    refused: frozenset[str] = frozenset()  # the refused placeholders of the last loop
    wrong_size: tuple[int, int] | None = None  # nodes and size of a group with such placeholders
    wrong_since: float = _NEVER


class AwsAutoscaler:
    """The autoscaler and its state. A restart loses the state.

    ``core`` decides about orders; None: a ``ClusterAutoscaler`` that knows pods as numbers.
    """

    def __init__(self, flags: Flags, *, seed: int | str = 0, core: ClusterAutoscaler[NodeGroup] | None = None) -> None:
        self._version, self._timeout = flags.version, flags.provision_timeout
        self.core = core or ClusterAutoscaler(flags, seed=seed, similar=are_similar, unneeded=unneeded_time)
        self.groups: list[NodeGroup] = []
        self._memory: dict[str, _Memory] = {}
        self._nodes: set[str] = set()  # listed instances that have had a node
        self._read_at = _NEVER
        self._is_rejected = False

    def decide(self, now: float, observation: Observation) -> Iterator[Order]:
        """Yield the orders of one loop.

        The caller carries out each order before it requests the next one, and calls ``reject`` if AWS rejects it.
        """
        if now - self._read_at >= REFRESH and not self.refresh(now, observation):
            return
        self._note_nodes(observation)
        stuck = [group for group in self.groups if self._is_stuck(group, now)]
        for group in self.groups:
            yield from self._give_up_refused(group, now, observation)
        for action in self.core.loop(self.groups, observation.demand, now, only_cleans_up=bool(stuck)):
            match action:
                case Increase(group, nodes):
                    yield from self.set_desired(group, group.requested + nodes, now)
                case Delete(group, machine) if machine in group.machines:
                    yield from self.delete(group, machine, now, observation)
                case _:
                    pass  # DecreaseTargetSize fails, and so does a size outside of the bounds

    def reject(self) -> None:
        """Note that AWS has rejected the order that was yielded last."""
        self._is_rejected = True

    # Reads

    def refresh(self, now: float, observation: Observation) -> bool:
        """Read the groups, and the activities of groups with placeholders. Return False if the read failed."""
        found = observation.groups()
        if found is None:
            return False
        self._memory = {each.name: self._memory[each.name] for each in found if each.name in self._memory}
        self.groups = [self._group(each, now, observation) for each in found]
        self._nodes &= {machine.name for group in self.groups for machine in group.machines}
        self._note_nodes(observation)
        self._read_at = now
        return True

    def _group(self, found: AutoScalingGroup, now: float, observation: Observation) -> NodeGroup:
        is_refused = found.desired > len(found.instances) and self._is_refused(found.name, observation)
        memory = self._memory.setdefault(found.name, _Memory())
        missing = [f"{PLACEHOLDER}{found.name}-{number}" for number in range(len(found.instances), found.desired)]
        names = [instance.name for instance in found.instances] + missing
        # A refused placeholder is not expected to register, so it has no age (clusterstate.go, expectedToRegister).
        aged = names[: len(found.instances)] if is_refused else names
        memory.seen = {name: memory.seen.get(name, now) for name in aged}
        group = NodeGroup(
            key=found.name,
            pool=found.pool,
            zone=found.zone,
            requested=found.desired,
            readable_bounds=found.bounds,
            ending=frozenset(instance.name for instance in found.instances if instance.ending),
            is_managed=found.is_managed,
            unneeded=found.unneeded,
        )
        group.keep(
            Machine(
                name=name,
                created=memory.seen.get(name, now),
                node=name in self._nodes,
                refused=is_refused and name in missing,
            )
            for name in names
        )
        return group

    def _is_refused(self, name: str, observation: Observation) -> bool:
        if self._version < NOTICES_REFUSALS or name not in self._memory:
            return False
        for activity in observation.activities(name) or ():
            if activity.start < self._memory[name].wrote_at:
                return False
            if activity.status == "Failed":
                return True
        return False

    def _note_nodes(self, observation: Observation) -> None:
        """Note the nodes that have registered. Nodes are read in each loop, but belong to listed instances only."""
        for group in self.groups:
            if group.running + group.placeholders == len(group.machines):
                continue
            waiting = [machine.name for machine in group.machines if not machine.node and not machine.is_placeholder]
            new = {name for name in waiting if observation.has_node(name)}
            self._nodes |= new
            if new:
                group.keep(replace(one, node=one.node or one.name in new) for one in group.machines)

    # Orders

    def set_desired(self, group: NodeGroup, size: int, now: float) -> Iterator[Order]:
        """Yield the order of a size, and note it unless AWS rejects it."""
        self._is_rejected = False
        yield SetDesired(group.key, size)
        if not self._is_rejected:
            self._memory[group.key].wrote_at = now
            group.requested = size

    def delete_placeholders(self, group: NodeGroup, now: float, observation: Observation) -> Iterator[Order]:
        """Yield the order that gives up all placeholders of a group, if its size is above the minimum."""
        if group.requested <= group.readable_bounds.min:
            return
        size: int | None = group.requested - group.placeholders
        if self._version >= LISTS_ANEW:
            size = observation.count_instances(group.key)
        if size is None:
            return
        yield from self.set_desired(group, size, now)
        if not self._is_rejected:
            group.keep(machine for machine in group.machines if not machine.is_placeholder)
            self._read_at = _NEVER

    def _give_up_refused(self, group: NodeGroup, now: float, observation: Observation) -> Iterator[Order]:
        memory, refused = self._memory[group.key], group.refused if group.placeholders else frozenset()
        new, memory.refused = refused - memory.refused, refused
        if new and self.core.has_order(group.key):
            self.core.register_failure(group, len(new), now, "placeholder-cannot-be-fulfilled")
        if refused:
            yield from self.delete_placeholders(group, now, observation)

    def _is_stuck(self, group: NodeGroup, now: float) -> bool:
        """Return True if refused placeholders have kept the group's size wrong for the provision timeout."""
        memory = self._memory[group.key]
        size = (group.running, group.requested) if group.placeholders and group.refused else None
        if size is None or size != memory.wrong_size:
            memory.wrong_size, memory.wrong_since = size, now
        return size is not None and now - memory.wrong_since > self._timeout

    def delete(self, group: NodeGroup, machine: model.Machine, now: float, observation: Observation) -> Iterator[Order]:
        """Yield the order that deletes a machine. To delete an instance that ends needs no order."""
        if machine.name.startswith(PLACEHOLDER):
            yield from self.delete_placeholders(group, now, observation)
            return
        if machine.name not in group.ending:
            self._is_rejected = False
            yield Terminate(group.key, machine.name)
            if self._is_rejected:
                return
            group.requested -= 1
            group.keep(other for other in group.machines if other.name != machine.name)
        self._read_at = _NEVER


def are_similar(group: NodeGroup, other: NodeGroup) -> bool:
    """Return False if one of the groups is an empty managed node group.

    Its template then has the name of the node group as a label (aws_manager.go, buildNodeFromTemplate).
    """
    return not any(each.is_managed and not each.running for each in (group, other))


def unneeded_time(group: NodeGroup) -> float | None:
    """Return how long a node of the group is unneeded before it is removed; None: as the flag says."""
    return group.unneeded
