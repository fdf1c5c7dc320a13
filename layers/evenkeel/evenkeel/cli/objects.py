"""Objects from files, as kubectl prints them: a List, one object, or several documents."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from evenkeel.adapters.documents import UnreadableError, read_documents
from evenkeel.adapters.kubernetes.flavours import FLAVOURS, Flavour
from evenkeel.adapters.kubernetes.node_templates import NODE, Looked, described, is_template, running_nodes
from evenkeel.adapters.kubernetes.readers import (
    Found,
    Listing,
    by_owner,
    get_path,
    name_of,
    owner_of,
    read_groups,
    read_machine,
    with_machines,
)
from evenkeel.config import ClusterPolicy, ConfigError
from evenkeel.domain.model.groups import NodeGroup, Observation, Skipped
from evenkeel.domain.model.reasons import Rule, because


def read_objects(files: Iterable[tuple[str, str]], policy: ClusterPolicy, now: datetime) -> Observation:
    """An observation from (name, text) pairs.

    Raises:
        ConfigError: a text is not YAML or JSON, or a document is no Kubernetes object.
    """
    listings = {name: Listing(flavour=FLAVOURS[name]) for name in policy.flavours}
    machines: dict[str, list[Mapping[str, Any]]] = {}
    templates: dict[tuple[str, str, str, str], Mapping[str, Any]] = {}
    nodes: list[Mapping[str, Any]] = []
    by_node = policy.discovered_pools is not None and policy.discovered_pools.nodes
    skipped: list[Skipped] = []
    faults: list[str] = []
    seen: set[tuple[str, str, str, str]] = set()
    for file, text in files:
        for where, item in _objects(file, text, faults):
            group, _, version = str(item.get("apiVersion", "")).partition("/")
            kind = item["kind"]
            namespace, name = name_of(item)
            identity = (group, kind, namespace, name)
            if name and identity in seen:
                reason = f"a second {kind} of this name: the first one counts"
                skipped.append(Skipped(namespace=namespace, name=name, reason=because(Rule.SAID, text=reason)))
                continue
            seen.add(identity)
            flavour = next((f for f in FLAVOURS.values() if _knows(f.name, group, version, kind)), None)
            if (kind, item["apiVersion"]) == (NODE.kind, "v1"):
                nodes.append(item)
                if not by_node:
                    reason = "nodes are read only where the record's pools are discovered with nodes: true"
                    skipped.append(
                        Skipped(namespace=namespace, name=name or where, reason=because(Rule.SAID, text=reason))
                    )
            elif flavour is None:
                reason = f"{kind} of {item.get('apiVersion') or 'no apiVersion'} is no object that Evenkeel reads"
                skipped.append(Skipped(namespace=namespace, name=name or where, reason=because(Rule.SAID, text=reason)))
            elif flavour.name not in listings:
                reason = f"flavour {flavour.name} is not among the record's flavours"
                skipped.append(Skipped(namespace=namespace, name=name or where, reason=because(Rule.SAID, text=reason)))
            elif is_template(flavour, group, version, kind):
                templates[(group, kind, namespace, name)] = item
            elif kind == "Machine":
                machines.setdefault(flavour.name, []).append(item)
            else:
                listings[flavour.name].objects.setdefault(kind, []).append(item)
    if faults:
        raise ConfigError(faults)
    groups: list[NodeGroup] = []
    for listing in listings.values():
        found, left_out = read_groups(listing, policy.discoveries)
        skipped += left_out
        known = machines.get(listing.flavour.name)
        if known is not None:
            owned = by_owner(listing.flavour, known)
            found = [_with_machines(one, listing.flavour, owned.get(owner_of(one.group), ()), now) for one in found]
        running = running_nodes(listing.flavour, found, known or (), nodes) if by_node else {}
        looked = Looked(templates=templates, nodes=running)
        groups += [described(one, listing.flavour, looked).group for one in found]
    return Observation(groups=tuple(groups), skipped=tuple(skipped))


def _with_machines(one: Found, flavour: Flavour, machines: Iterable[Mapping[str, Any]], now: datetime) -> Found:
    return replace(one, group=with_machines(one.group, [read_machine(flavour, item, now) for item in machines]))


def _knows(flavour: str, group: str, version: str, kind: str) -> bool:
    known = FLAVOURS[flavour]
    return is_template(known, group, version, kind) or any(
        (one.group, one.kind) == (group, kind) and version in one.versions for one in (*known.kinds, known.machine)
    )


def _objects(file: str, text: str, faults: list[str]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Every object with its place in the file. What is none becomes a fault."""
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
                # Items of a typed list carry no kind of their own.
                own = {"kind": kind, "apiVersion": version, **item} if kind and isinstance(item, Mapping) else item
                yield from _object(file, f"{where}, items[{i}]", own, faults)
        else:
            yield from _object(file, where, document, faults)


def _object(file: str, where: str, item: Any, faults: list[str]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    if not isinstance(item, Mapping):
        faults.append(f"{file}: {where}: not an object with fields, but {type(item).__name__}")
    elif not isinstance(item.get("kind"), str) or not item["kind"]:
        faults.append(f"{file}: {where}: kind is missing")
    elif not isinstance(item.get("apiVersion"), str):
        faults.append(f"{file}: {where}: apiVersion is missing")
    else:
        yield where, item
