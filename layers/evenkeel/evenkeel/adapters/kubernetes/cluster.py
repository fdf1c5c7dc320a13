"""Implements the port to a cluster's machine objects. Each method delegates to a reader or a writer."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.adapters.kubernetes.client.transport import MOST_BYTES, Allowance
from evenkeel.adapters.kubernetes.read.cluster import ClusterObjects, ClusterReader
from evenkeel.adapters.kubernetes.read.rights import missing_rights
from evenkeel.adapters.kubernetes.write.marker import Marker
from evenkeel.adapters.kubernetes.write.patcher import Patcher, identity
from evenkeel.adapters.kubernetes.write.status import emit_event, write_status
from evenkeel.application.ports import Remaining
from evenkeel.application.rebalancing.ports import Others
from evenkeel.domain.model.groups import Bounds, GroupKey, NodeGroup
from evenkeel.domain.model.observations import MachineNode, Observation
from evenkeel.domain.model.plans import GroupPlan
from evenkeel.domain.rebalancing.replicas.deletion import MarksLeft
from evenkeel.domain.rebalancing.writes import Patch
from evenkeel.record import ClusterPolicy

_NO_OTHERS: Mapping[type[Any], Others] = {}


class KubernetesCluster:
    """One cluster during one run or check. Its methods write to the objects that ``observe`` has read."""

    def __init__(
        self,
        api: KubernetesApi,
        policy: ClusterPolicy,
        remaining: Remaining,
        *,
        consistent: bool = True,
        max_bytes: int = MOST_BYTES,
        others: Mapping[type[Any], Others] = _NO_OTHERS,
    ) -> None:
        """``consistent`` False: a check, which receives at most ``max_bytes``."""
        self._api = api
        self._policy = policy
        self._remaining = remaining
        self._most_bytes = None if consistent else max_bytes
        self.others = others
        self._objects = ClusterObjects(members={}, machines={}, skipped=(), fingerprints={})

    def _new_reader(self) -> ClusterReader:
        allowance = None if self._most_bytes is None else Allowance(self._most_bytes)
        return ClusterReader(self._api, self._policy, self._remaining, allowance)

    def observe(
        self,
        reads_machines: Collection[GroupKey] = (),
        known: Collection[str] = (),  # noqa: ARG002  the lists have every group, whatever its labels
    ) -> Observation:
        """Read every node group. ``reads_machines``: groups whose machines are listed even if all their nodes run."""
        self._reader = self._new_reader()
        self._objects = objects = self._reader.read(reads_machines)
        self._patcher = Patcher(self._api, self._remaining, write_topology=bool(self._policy.write_topology))
        self._marker = Marker(self._api, objects, self._reader.lister, self._patcher, self._remaining)
        groups = tuple(member.group for member in objects.members.values())
        return Observation(groups=groups, skipped=objects.skipped, clock_skew=self._api.clock_skew)

    def seen(self) -> Mapping[str, str]:
        """Return the fingerprints of the lists of groups and owners, by flavour, kind and version."""
        return self._objects.fingerprints

    def shows(self, seen: Mapping[str, str]) -> bool:
        """Return True where the lists still have these fingerprints. Sends one LIST of metadata per kind."""
        return self._new_reader().is_unchanged(seen)

    def nodes(self) -> Mapping[str, MachineNode]:
        """Return the nodes of every group. Lists the machines that ``observe`` did not list."""
        return self._reader.nodes(self._objects)

    def zone_ids(self) -> Mapping[str, str]:
        """Return the zone names by AWS zone id. Sends one LIST of nodes and one of machines for each flavour."""
        return self._reader.zone_ids(self._objects)

    def refused(self, *, writes: bool) -> Sequence[str]:
        """Return a sentence for each right that a check lacks or, where ``writes`` is True, that a run lacks."""
        return missing_rights(self._api, self._policy, self._remaining, writes=writes)

    def turn_of(self, key: GroupKey) -> str:
        """Return the identity of the object that has the group's bounds, which several groups can share."""
        member = self._objects.members[key]
        return identity(member.owner_object or member.scalable)

    def deletion_candidates(self, patch: Patch) -> tuple[str, ...]:
        """Return the names of the machines that will be deleted, in the order of deletion."""
        return self._marker.candidates(patch)

    def mark(self, patch: Patch, names: Collection[str], ours: Collection[str]) -> None:
        """Mark these machines for deletion, and remove Evenkeel's marks from the group's other machines."""
        self._marker.mark(patch, names, ours)

    def unmark(self, group: NodeGroup, names: Collection[str], doubted: Collection[str] | None) -> MarksLeft | None:
        """Remove Evenkeel's marks from these machines, as the port says."""
        return self._marker.unmark(group, names, doubted)

    def confirm(self, groups: Collection[GroupKey]) -> None:
        """Do nothing: cluster-autoscaler, the usual other writer, writes no bounds, and patches are conditional."""

    def apply(self, patch: Patch, decision: str, adopted: str, move: str | None = None) -> None:
        """Write one planned patch to the group's objects."""
        self._patcher.apply(self._objects.members[patch.plan.group.key], patch, decision, adopted, move)

    def unfinished(self, begun: Collection[str]) -> Collection[str]:  # noqa: ARG002  a patch is one request
        """Return nothing: each patch is written as a whole."""
        return ()

    def write_pool_maximum(self, key: GroupKey, maximum: int) -> None:
        """Write annotation pool-max."""
        self._patcher.write_pool_maximum(self._objects.members[key], maximum)

    def write_owner_numbers(self, key: GroupKey, bounds: Bounds) -> None:
        """Write these bounds to the object that owns the group's bounds."""
        self._patcher.write_owner_numbers(self._objects.members[key], bounds)

    def emit_event(self, plan: GroupPlan, decision: str, *, dry_run: bool) -> None:
        """Create a Kubernetes Event about the group's object."""
        scalable = self._objects.members[plan.group.key].scalable
        emit_event(self._api, scalable, plan, decision, self._remaining, dry_run=dry_run)

    def show_status(self, place: str, text: str) -> bool:
        """Write the status into a ConfigMap; return False where the write failed."""
        return write_status(self._api, place, text, self._remaining)
