"""Read objects from files in the format of kubectl's output: a List, one object, or several documents."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from evenkeel.adapters.documents import UnreadableError, read_documents
from evenkeel.adapters.kubernetes.flavours import FLAVOURS, flavours_of
from evenkeel.adapters.kubernetes.flavours.base import Flavour
from evenkeel.adapters.kubernetes.garden import shoots_in
from evenkeel.adapters.kubernetes.machine_object import MachineObject
from evenkeel.adapters.kubernetes.objects import NODE, controller_of, get_path, name_of
from evenkeel.adapters.kubernetes.owners.worker import SHOOT
from evenkeel.adapters.kubernetes.read.dedupe import counted_once
from evenkeel.adapters.kubernetes.read.groups import GroupObjects, Listing, read_groups
from evenkeel.adapters.kubernetes.read.machines import (
    ScalableId,
    nodes_of,
    scalable_of,
    scalables_of,
    with_machines,
)
from evenkeel.adapters.kubernetes.read.node_templates import (
    NodeSources,
    described,
    is_template,
    running_nodes,
    template_of,
)
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.observations import MachineNode, Observation, Skipped
from evenkeel.domain.model.parts import Parts
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.relief.model import Shoot, Shoots
from evenkeel.validation import ConfigError
from evenkeel_cli.aws_documents import KIND, AwsDocuments, answer_of
from evenkeel_cli.cluster_file import ClusterFile

if TYPE_CHECKING:
    from evenkeel_cli.workload_files import WorkloadFiles

# How the AWS command line is asked for other answers than objects, by type.
_OF_AWS = {
    "list": ": of the AWS command line, give a whole answer, without --query",
    "str": ": of the AWS command line, give an answer with --output json",
}


@dataclass(kw_only=True)
class _Sorted:
    """The objects of the files, sorted by kind."""

    listings: dict[str, Listing]  # by flavour
    # By flavour. Each machine is read once, because reading it can log a wrong field.
    machines: dict[str, list[tuple[Mapping[str, Any], MachineObject]]] = field(default_factory=dict)
    # By API group, kind, namespace and name.
    templates: dict[tuple[str, str, str, str], Mapping[str, Any]] = field(default_factory=dict)
    nodes: list[Mapping[str, Any]] = field(default_factory=list)
    workload: "WorkloadFiles | None" = None  # None: the record has neither demand nor workload
    of_aws: AwsDocuments = field(default_factory=AwsDocuments)
    skipped: list[Skipped] = field(default_factory=list)
    # The objects that are skipped because of their kind, by apiVersion and kind: their number, and the rule.
    unused: dict[tuple[str, str], tuple[int, Reason]] = field(default_factory=dict)

    def skip_kind(self, item: Mapping[str, Any], reason: Reason) -> None:
        """Count an object that is skipped because of its kind."""
        key = (str(item["apiVersion"]), str(item["kind"]))
        self.unused[key] = (self.unused.get(key, (0, reason))[0] + 1, reason)

    def skipped_kinds(self) -> Iterable[Skipped]:
        """Yield each skipped kind once, with the number of its objects."""
        for (_, kind), (count, reason) in sorted(self.unused.items(), key=lambda entry: entry[0]):
            yield Skipped(namespace="", name=kind, reason=Reason.of(reason.rule, **{**reason.facts, "count": count}))


def read_objects(
    files: Iterable[tuple[str, str]], policy: ClusterFile, now: datetime, of_aws: AwsDocuments | None = None
) -> Observation:
    """Return an observation from (name, text) pairs. Add the answers of AWS to ``of_aws``.

    Raises:
        ConfigError: a text is not YAML or JSON, or a document is no Kubernetes object.
    """
    discovered = policy.discovered_pools
    by_node = discovered is not None and discovered.discover != "off" and discovered.nodes
    listings = {flavour.name: Listing(flavour=flavour) for flavour in flavours_of(policy.flavours)}
    objects = _Sorted(listings=listings, of_aws=of_aws or AwsDocuments())
    if policy.demand_stage is not DemandStage.OFF or policy.workload is not None:
        from evenkeel_cli.workload_files import WorkloadFiles

        objects.workload = WorkloadFiles(needs_pods=policy.demand_stage is DemandStage.OFF)
    _read_files(files, objects, by_node)
    for listing in objects.listings.values():
        for item in _alone(listing, objects):
            objects.skip_kind(item, Reason.of(Rule.KIND_ALONE))
    objects.skipped += objects.skipped_kinds()
    members_read: list[GroupObjects] = []
    for listing in objects.listings.values():
        members, others = read_groups(listing, policy.discoveries)
        objects.skipped += others
        members_read += members
    counted, twins = counted_once(members_read)
    objects.skipped += twins
    groups: list[NodeGroup] = []
    nodes: dict[str, MachineNode] = {}
    shoots: dict[str, Shoot | Reason] = {}
    for name, listing in objects.listings.items():
        members = [member for member in counted if member.group.key.flavour == name]
        groups += _complete(members, listing.flavour, objects, now, by_node, nodes)
        if SHOOT in listing.flavour.copies:
            shoots |= shoots_in(listing.of("Cluster"), listing.of(SHOOT.kind))
    objects.skipped += objects.of_aws.skipped()
    if objects.of_aws.groups and AUTO_SCALING not in policy.flavours:
        reason = Reason.of(Rule.FLAVOUR_NOT_LISTED, flavour=AUTO_SCALING, count=len(objects.of_aws.groups))
        objects.skipped.append(Skipped(namespace="", name=KIND, reason=reason))
    elif objects.of_aws.groups:
        from evenkeel.adapters.auto_scaling.read import machine_nodes

        of_clusters, others = objects.of_aws.read(policy, now)
        groups += [member.group for member in of_clusters]
        nodes |= machine_nodes(of_clusters, orders=policy.demand_stage.orders)
        objects.skipped += others
    workload = objects.workload.read(nodes) if objects.workload else None
    parts = Parts({Shoots: Shoots(of=shoots)})
    return Observation(groups=tuple(groups), skipped=tuple(objects.skipped), parts=parts, workload=workload)


def _read_files(files: Iterable[tuple[str, str]], objects: _Sorted, by_node: bool) -> None:
    """Add the objects of the files to ``objects``. Raises ConfigError, as ``read_objects``."""
    faults: list[str] = []
    seen: set[tuple[str, str, str, str]] = set()
    for file, text in files:
        for where, item in objects_of(file, text, faults, objects.of_aws):
            group, kind = str(item["apiVersion"]).partition("/")[0], item["kind"]
            namespace, name = name_of(item)
            identity = (group, kind, namespace, name)
            reason: Reason | None = None
            if name and identity in seen:
                reason = Reason.of(Rule.SECOND_COPY, kind=kind)
            else:
                try:
                    reason = _sort(item, identity, objects, by_node)
                except ConfigError as error:
                    faults += [f"{file}: {where}: {fault}" for fault in error.faults]
            seen.add(identity)
            if reason is None:
                continue
            if reason.rule is Rule.SECOND_COPY:
                objects.skipped.append(Skipped(namespace=namespace, name=name or where, reason=reason))
            else:
                objects.skip_kind(item, reason)
    if faults:
        raise ConfigError(faults)


def _sort(
    item: Mapping[str, Any], identity: tuple[str, str, str, str], objects: _Sorted, by_node: bool
) -> Reason | None:
    """Add an object to the objects of its kind. If the object is skipped, return the reason; otherwise None."""
    group, kind, _, _ = identity
    version = str(item["apiVersion"]).partition("/")[2]
    if (kind, item["apiVersion"]) == (NODE.kind, "v1"):
        objects.nodes.append(item)
        if objects.workload is not None:
            objects.workload.take(item)
        return None if by_node or objects.workload is not None else Reason.of(Rule.NODES_NOT_READ)
    flavour = _flavour_with(group, version, kind)
    if flavour is None:
        return _sort_other(item, group, objects)
    if flavour.name not in objects.listings:
        return Reason.of(Rule.FLAVOUR_NOT_LISTED, flavour=flavour.name)
    if is_template(flavour, group, version, kind):
        objects.templates[identity] = item
    elif (group, kind) == (flavour.machines.kind.group, flavour.machines.kind.kind):
        objects.machines.setdefault(flavour.name, []).append((item, flavour.machines.read(item)))
    else:
        objects.listings[flavour.name].objects.setdefault(kind, []).append(item)
    return None


def _sort_other(item: Mapping[str, Any], group: str, objects: _Sorted) -> Reason | None:
    """Add an object of a workload cluster. If it is skipped, return the reason; otherwise None."""
    from evenkeel_cli.workload_files import SHAPES  # few files have such objects

    kind = str(item["kind"])
    if (group, kind) not in SHAPES:
        return Reason.of(Rule.UNKNOWN_KIND, kind=kind, version=item["apiVersion"] or "no apiVersion")
    if objects.workload is None:
        return Reason.of(Rule.DEMAND_OFF, kind=kind)
    objects.workload.take(item)
    return None


def _alone(listing: Listing, objects: _Sorted) -> Iterable[Mapping[str, Any]]:
    """Yield the objects of each kind of which no object belongs to a node group, and MachineSets without their owner.

    A file often has machines and templates of control planes, too. So a kind of which one object is used is not named.
    """
    flavour = listing.flavour
    deployments = {name_of(item) for item in listing.of("MachineDeployment")}
    scalables: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for kind in flavour.scalables:
        for item in listing.of(kind.kind):
            (namespace, name), controller = name_of(item), controller_of(item)
            if (
                controller
                and controller.kind == "MachineDeployment"
                and (namespace, controller.name) not in deployments
            ):
                yield item
            else:
                scalables[namespace, kind.kind, name] = item
    if not scalables:
        for kind in (*flavour.companions, *flavour.copies):
            yield from listing.of(kind.kind)
    machines = objects.machines.get(flavour.name, ())
    owners = (scalables_of(flavour, machine) for _, machine in machines)
    if not any(scalable in scalables for of_machine in owners for scalable in of_machine):
        yield from (item for item, _ in machines)
    references = (template_of(flavour, item) for item in scalables.values())
    used = {(reference.kind.group, reference.kind.kind) for reference in references if reference is not None}
    for (group, of_kind, _, _), item in objects.templates.items():
        version = str(item["apiVersion"]).partition("/")[2]
        if (group, of_kind) not in used and is_template(flavour, group, version, of_kind):
            yield item


def _complete(
    members: list[GroupObjects],
    flavour: Flavour,
    objects: _Sorted,
    now: datetime,
    by_node: bool,
    nodes: dict[str, MachineNode],
) -> Iterable[NodeGroup]:
    """Return the groups with node templates and machines from the files. Add the groups' nodes to ``nodes``."""
    machines = [machine for _, machine in objects.machines.get(flavour.name, ())]
    owned: dict[ScalableId, list[MachineObject]] = {}
    for machine in machines:
        for scalable in scalables_of(flavour, machine):
            owned.setdefault(scalable, []).append(machine)
    for number, member in enumerate(members) if machines else ():
        items = owned.get(scalable_of(member.group), ())
        group = with_machines(member.group, [item.read(flavour.machines.mark, now) for item in items])
        members[number] = replace(member, group=group)
        if objects.workload is not None:
            nodes |= nodes_of(flavour, group.key, member.scalable, items, now)
    running = running_nodes(flavour, members, machines, objects.nodes) if by_node else {}
    sources = NodeSources(templates=objects.templates, nodes=running)
    return [described(member, flavour, sources).group for member in members]


@cache
def _flavour_with(group: str, version: str, kind: str) -> Flavour | None:
    return next((flavour for flavour in FLAVOURS.values() if _knows(flavour, group, version, kind)), None)


def _knows(flavour: Flavour, group: str, version: str, kind: str) -> bool:
    return is_template(flavour, group, version, kind) or any(
        (candidate.group, candidate.kind) == (group, kind) and version in candidate.versions
        for candidate in (*flavour.kinds, *flavour.copies, flavour.machines.kind)
    )


def objects_of(
    file: str, text: str, faults: list[str], of_aws: AwsDocuments | None = None
) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Yield each object with its place in the file. Add a fault to ``faults`` for anything that is no object.

    Answers of AWS are no objects: they are added to ``of_aws``.
    """
    try:
        documents = [document for document in read_documents(text) if document is not None]
    except UnreadableError as error:
        faults.append(f"{file}: {error}")
        return
    if not documents:
        faults.append(f"{file}: it holds no object")
    for number, document in enumerate(documents, 1):
        where = f"document {number}"
        items = get_path(document, ("items",))
        if isinstance(document, Mapping) and str(document.get("kind", "")).endswith("List"):
            if not isinstance(items, list):
                faults.append(f"{file}: {where}: items is missing or no list")
                continue
            kind, version = str(document["kind"]).removesuffix("List"), document.get("apiVersion")
            for i, item in enumerate(items):
                # The items of a typed list have no kind and apiVersion of their own.
                own = {"kind": kind, "apiVersion": version, **item} if kind and isinstance(item, Mapping) else item
                yield from _object(file, f"{where}, items[{i}]", own, faults)
        elif (answer := answer_of(document)) is not None:
            faults += [f"{file}: {where}: {fault}" for fault in of_aws.add(answer)] if of_aws is not None else ()
        else:
            yield from _object(file, where, document, faults)


def _object(file: str, where: str, item: Any, faults: list[str]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    if not isinstance(item, Mapping):
        kind = type(item).__name__
        advice = _OF_AWS.get(kind, "")
        faults.append(f"{file}: {where}: not an object with fields, but {kind}{advice}")
    elif not isinstance(item.get("kind"), str) or not item["kind"]:
        faults.append(f"{file}: {where}: kind is missing")
    elif not isinstance(item.get("apiVersion"), str):
        faults.append(f"{file}: {where}: apiVersion is missing")
    else:
        yield where, item
