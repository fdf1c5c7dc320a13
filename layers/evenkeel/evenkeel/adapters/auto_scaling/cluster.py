"""Implements the port to a cluster's machine objects for Auto Scaling groups."""
# ruff: noqa: ARG002  (some arguments of the port have no meaning here)

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Protocol

from evenkeel.adapters.auto_scaling.api import AutoScalingApi, Filters
from evenkeel.adapters.auto_scaling.autoscaler_status import with_autoscaler_bounds
from evenkeel.adapters.auto_scaling.bulk_reads import named_reads_of_a_check, read_launches, read_node_groups
from evenkeel.adapters.auto_scaling.decisions import DecisionsInMemory, DecisionStore
from evenkeel.adapters.auto_scaling.node_groups import Descriptions, NodeGroupKey
from evenkeel.adapters.auto_scaling.read import (
    Answers,
    Described,
    Member,
    Refreshing,
    instances_of,
    machine_nodes,
    node_group_of,
    read_groups,
    tags_of,
)
from evenkeel.adapters.auto_scaling.templates import types_of
from evenkeel.adapters.auto_scaling.write import GroupWriter
from evenkeel.adapters.own_annotations import ADOPTED, DECISION, POOL_LABEL
from evenkeel.adapters.thread_pool import run_in_threads
from evenkeel.application.errors import (
    AccessError,
    ClusterUnavailableError,
    ConflictError,
    DrainingError,
    EvenkeelError,
    RejectedError,
)
from evenkeel.application.rebalancing.ports import Others
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import Bounds, GroupKey, Machine, NodeGroup
from evenkeel.domain.model.observations import MachineNode, Observation, Skipped
from evenkeel.domain.model.origins import POOL_MAX
from evenkeel.domain.model.plans import GroupPlan
from evenkeel.domain.model.removals import disagree
from evenkeel.domain.rebalancing.membership.discovery import joined_tags
from evenkeel.domain.rebalancing.replicas.deletion import MarksLeft, deletion_candidates, doubt_of, marks_left
from evenkeel.domain.rebalancing.writes import Patch
from evenkeel.record import ClusterPolicy
from evenkeel.texts.english import sentence

_log = logging.getLogger("evenkeel.auto_scaling")
_MANY_NEW = 10  # groups. A write is some ten calls, and accounts have a reserve of about a hundred.


class Drainer(Protocol):
    """Drains nodes of the workload cluster (``adapters.kubernetes.write.drainer``), and reads its autoscaler's status.

    All methods raise AccessError, ClusterUnavailableError.
    """

    def drain(
        self, instances: Collection[str], read_at: datetime, now: datetime, nodeless: Collection[str] = ()
    ) -> None:
        """Return if no pod is left on the nodes of these instances, and none can come. Raises DrainingError.

        ``nodeless``: instances that had no node when they were read. They are drained if they have one now.
        """

    def release(self, instances: Collection[str]) -> set[str]:
        """Uncordon the nodes that Evenkeel has cordoned. Return the instances without a listed node."""

    def autoscaler_status(self, namespace: str) -> tuple[str, datetime | None]:
        """Return the text of ConfigMap ``cluster-autoscaler-status``, and when the autoscaler has written it."""


def tag_filters(policy: ClusterPolicy) -> Filters:
    """Return the filters that select the groups of a record.

    Without a discovery string, groups with a pool tag are selected, and groups that have left their pool but still have
    values that Evenkeel wrote.
    """
    tags = joined_tags(policy.discoveries)
    if not tags:
        return [{"Name": "tag-key", "Values": [POOL_LABEL, ADOPTED, DECISION]}]
    return [
        *({"Name": "tag-key", "Values": [key]} for key, value in sorted(tags.items()) if not value),
        *({"Name": f"tag:{key}", "Values": [value]} for key, value in sorted(tags.items()) if value),
    ]


@dataclass
class AutoScalingCluster:
    """The groups of one record during one run or check. Its methods write to the groups that ``observe`` has read."""

    api: AutoScalingApi
    policy: ClusterPolicy
    refreshing: Refreshing  # the instance refreshes that writes have found
    # Stores the decisions. A caller that does not write needs no table.
    store: DecisionStore = field(default_factory=DecisionsInMemory)
    name: str = ""  # of the stack and the cluster, for tags; empty: the caller does not write
    consistent: bool = True  # False for a check
    drainer: Callable[[], Drainer] | None = None  # opens the workload cluster; None: the record names none
    others: Mapping[type[Any], Others] = field(init=False, default_factory=dict)
    _members: dict[GroupKey, Member] = field(init=False, default_factory=dict)
    _described: Sequence[Described] = field(init=False, default=())
    # The machines that the next patch of a group removes.
    _removals: dict[GroupKey, tuple[str, ...]] = field(init=False, default_factory=dict)
    _writes_in_turn: bool = field(init=False, default=False)

    # Reads

    def observe(self, reads_machines: Collection[GroupKey] = (), known: Collection[str] = ()) -> Observation:
        """Read every group. ``reads_machines``: groups whose launches are read even if none is missing."""
        self._read_at = self.api.now()
        described = self._described = self.api.groups(tag_filters(self.policy))
        # The groups are read first, so that no decision is older than what AWS shows.
        self._decisions = {**self.store.load(self.api.name)}
        self._writer = GroupWriter(self.api, self.refreshing, self.store, self._decisions, self.name)
        if self.consistent:
            described = self._resumed(described)
        untagged = self._untagged(known)
        members, skipped = self._read([*described, *untagged.values()], {key.name for key in reads_machines}, untagged)
        if self.policy.autoscaler_status is not None and self.drainer is not None:
            members = with_autoscaler_bounds(members, *self._autoscaler_status(self.policy.autoscaler_status))
        self._members = {member.group.key: member for member in members}
        self._writes_in_turn = not reads_machines and _are_new(members)
        if self._writes_in_turn:
            self.api.slow_down()
        return Observation(groups=tuple(member.group for member in members), skipped=tuple(skipped))

    def _untagged(self, known: Collection[str]) -> Mapping[str, Described]:
        """Return the known groups that exist, and have lost the tags that select them."""
        selected = {str(item["AutoScalingGroupName"]) for item in self._described}
        names = sorted({key.rpartition("/")[2] for key in known if key.startswith(f"{AUTO_SCALING}/")} - selected)
        return {str(item["AutoScalingGroupName"]): item for item in self.api.named_groups(names)}

    def _read(
        self, described: Sequence[Described], named: Collection[str], untagged: Collection[str]
    ) -> tuple[list[Member], list[Skipped]]:
        """Return the groups. Launches are read only for groups that lack instances, and for ``named`` groups."""
        # Groups with several zones are skipped.
        single = {str(item["AutoScalingGroupName"]): item for item in described if len(item["AvailabilityZones"]) == 1}
        short = {name for name, item in single.items() if item["DesiredCapacity"] > len(instances_of(item))}
        # The command line, which names no writer, reads the cluster once.
        is_check = bool(self.name) and not self.consistent
        most_named = named_reads_of_a_check(len(described)) if is_check else None
        wanted = short.union(single.keys() & named)
        activities, unread = read_launches(self.api, wanted, most_named=most_named)
        managed = {name: names for name, item in single.items() if (names := node_group_of(item))}
        node_groups = read_node_groups(self.api, set(managed.values()))
        undescribed = [name for name, names in managed.items() if names not in node_groups]
        answers = Answers(
            activities=activities,
            node_groups=node_groups.values(),
            types=self._types([*single.values()], managed, node_groups),
            decisions=self._decisions,
            refreshing=self.refreshing,
            with_machines=named,
            unread=unread,
            undescribed=undescribed,
            untagged=untagged,
        )
        return read_groups(described, self.policy, self.api.now(), answers, self.name)

    def _types(
        self, described: Sequence[Described], managed: Mapping[str, NodeGroupKey], node_groups: Descriptions
    ) -> Mapping[str, Described] | None:
        """Return EC2's descriptions of the groups' first types; None: they are not needed, or not read."""
        if self.policy.demand_stage is DemandStage.OFF:
            return None
        names = set[str]()
        for item in described:
            tags, key = tags_of(item), managed.get(str(item["AutoScalingGroupName"]))
            node_group = {} if key is None else node_groups.get(key, {})
            names |= {*types_of(item, tags, node_group)[:1]}
        return self.api.instance_types(names)

    def _resumed(self, described: Sequence[Described]) -> list[Described]:
        """Return the groups, after the writes that former runs have not finished are ended.

        A write that cannot be ended never keeps the cluster from being read. The next run tries again.
        """
        resumed: dict[str, Described] = {}

        def resume(item: Described) -> None:
            name = str(item["AutoScalingGroupName"])
            try:
                if self._writer.resume(item, self.api.now()):
                    resumed[name] = self.api.group(name)
            except EvenkeelError as error:
                _log.error("unfinished write: %s", error, extra={"cluster": self.api.name, "group": name})

        unfinished = [item for item in described if self._writer.has_unfinished(item)]
        run_in_threads([partial(resume, item) for item in unfinished])  # each may take seconds
        return [resumed.get(str(item["AutoScalingGroupName"]), item) for item in described]

    def _autoscaler_status(self, namespace: str) -> tuple[str, datetime | None]:
        """Return the status, empty where it is unreadable: then it is unknown which bounds the autoscaler uses."""
        try:
            return ("", None) if self.drainer is None else self.drainer().autoscaler_status(namespace)
        except (AccessError, ClusterUnavailableError) as error:
            _log.warning("cluster-autoscaler-status not read: %s", error, extra={"cluster": self.api.name})
            return "", None

    def seen(self) -> Mapping[str, str]:
        """Return the digest of the groups."""
        return {} if self.consistent else {AUTO_SCALING: _digest(self._described)}

    def shows(self, seen: Mapping[str, str]) -> bool:
        """Return True if the groups still have this digest."""
        return bool(seen) and {**seen} == {AUTO_SCALING: _digest(self.api.groups(tag_filters(self.policy)))}

    def nodes(self) -> Mapping[str, MachineNode]:
        """Return the nodes by the provider id that the cloud provider gives them."""
        return machine_nodes(self._members.values(), orders=self.policy.demand_stage.orders)

    def zone_ids(self) -> Mapping[str, str]:
        """Return the zone names by AWS zone id, from the instances that the last read has found."""
        return {
            str(instance["AvailabilityZoneId"]): str(instance["AvailabilityZone"])
            for member in self._members.values()
            for instance in instances_of(member.described)
            if instance.get("AvailabilityZoneId")
        }

    # Writes

    def turn_of(self, key: GroupKey) -> str:
        """Return the group's own key, or one turn for all while first writes go one after the other."""
        return AUTO_SCALING if self._writes_in_turn else str(key)

    def deletion_candidates(self, patch: Patch) -> tuple[str, ...]:
        """Return the names of the machines that the patch removes. Raises RejectedError, ConflictError."""
        group, removal = patch.plan.group, patch.plan.removal
        machines = {machine.ref: machine for machine in self._machines(group)}
        names = tuple(ref.name for ref in removal.machines) or deletion_candidates(
            machines.values(),
            patch.requested or 0,
            may_remove_running=removal.may_remove_running,
            keeps=removal.keeps,
            provision_timeout=patch.plan.provision_timeout,
            now=self.api.now(),
        )
        if gone := [ref.name for ref in removal.machines if ref not in machines or machines[ref].deleting]:
            raise ConflictError(f"machine {gone[0]} of {group.key} is gone since it was read")
        running = [machine.name for machine in machines.values() if machine.has_node and machine.name in names]
        if running and not self._members[group.key].is_drained:
            raise RejectedError(
                f"{group.key}: instance {running[0]} is not removed, because nothing would drain its node: "
                "set workload in the record"
            )
        return names

    def mark(self, patch: Patch, names: Collection[str], ours: Collection[str]) -> None:
        """Select the machines that the next patch removes, and drain their nodes. AWS has no delete mark.

        Raises DrainingError until no pod is left that must move, ConflictError.
        """
        group, machines = patch.plan.group, self._machines(patch.plan.group)
        reason = disagree(machines, group.requested, ours) if patch.plan.removal.machines else None
        if reason is not None:
            raise ConflictError(f"{group.key}: {sentence(reason)}")
        running = {machine.name for machine in machines if machine.has_node and not machine.deleting}
        self._release(running.intersection(ours).difference(names))
        nodeless = set(group.status.nodeless).intersection(names) - running
        if self.drainer is not None and (drained := running.intersection(names) | nodeless):
            try:
                self.drainer().drain(drained, self._read_at, self.api.now(), nodeless)
            except (AccessError, ClusterUnavailableError) as error:
                raise DrainingError(str(error)) from None
        self._removals[group.key] = tuple(names)

    def _machines(self, group: NodeGroup) -> Sequence[Machine]:
        """Return all machines of a group. The plan knows which instances have no node."""
        return self._members[group.key].machines if group.machines is None else group.machines

    def unmark(self, group: NodeGroup, names: Collection[str], doubted: Collection[str] | None) -> MarksLeft | None:
        """Uncordon the nodes of these machines, as the port says. The list of nodes may be incomplete, too."""
        machines = self._machines(group)
        left = marks_left(machines, group.requested, names, doubted)
        if left is not None:
            return left
        staying = {machine.name for machine in machines if machine.name in names and not machine.deleting}
        return doubt_of(self._release(staying), doubted)

    def _release(self, names: Collection[str]) -> set[str]:
        """Uncordon the nodes of these machines. Return the machines without a listed node."""
        return self.drainer().release(names) if names and self.drainer is not None else set()

    def confirm(self, groups: Collection[GroupKey]) -> None:
        """Read these groups again. Raises ConflictError if another writer has raised the max of one."""
        self._writer.confirm([self._members[key] for key in groups if key in self._members])

    def apply(self, patch: Patch, decision: str, adopted: str, move: str | None = None) -> None:
        """Write one planned patch to its group."""
        key = patch.plan.group.key
        named = self._removals.pop(key, ()) if patch.requested is not None else ()
        self._writer.apply(self._members[key], patch, named, decision, adopted, move)

    def unfinished(self, begun: Collection[str]) -> Collection[str]:
        """Return the groups whose writes have begun and not ended. First end those of groups that were not read."""
        unknown, described = set(), {str(item["AutoScalingGroupName"]): item for item in self._described}
        for key in map(GroupKey.read, begun):
            if key.name not in described:  # it has lost the tags that select it
                try:
                    described[key.name] = self.api.group(key.name)
                    self._resumed([described[key.name]])
                except ConflictError:
                    continue  # it does not exist any more
                except EvenkeelError as error:
                    _log.error("unfinished write: %s", error, extra={"cluster": self.api.name, "group": key.name})
                    unknown.add(str(key))
        described |= {member.name: member.described for member in self._members.values()}
        names = [name for name, item in described.items() if self._writer.has_unfinished(item)]
        return unknown.union(str(GroupKey(AUTO_SCALING, self.policy.region, name)) for name in names)

    def write_pool_maximum(self, key: GroupKey, maximum: int) -> None:
        """Write tag pool-max."""
        self._writer.write_tag(self._members[key], POOL_MAX, str(maximum))

    def write_owner_numbers(self, key: GroupKey, bounds: Bounds) -> None:
        """Raise RejectedError: no other object owns the bounds of an Auto Scaling group."""
        raise RejectedError(f"{key} has no owner that is written")

    def show_status(self, place: str, text: str) -> bool:
        """Return False: there is no API server for a ConfigMap."""
        return False

    def emit_event(self, plan: GroupPlan, decision: str, *, dry_run: bool) -> None:
        """Do nothing: there is no API server for a Kubernetes Event."""


def _are_new(members: Sequence[Member]) -> bool:
    """Return True if many groups have never been written, and no launch has failed.

    The first writes of a registered cluster are many and not urgent. At full speed, they would use up the limit on
    calls, which cluster-autoscaler shares, for minutes.
    """
    new = sum(ADOPTED not in tags_of(member.described) for member in members)
    return new > _MANY_NEW and not any(member.group.refused_machines for member in members)


def _digest(described: Sequence[Described]) -> str:
    return hashlib.sha256(json.dumps(described, default=str).encode()).hexdigest()
