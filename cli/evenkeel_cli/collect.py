"""`evenkeel objects`: print the objects of a cluster that `plan -f` reads, as one YAML List."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.adapters.kubernetes.flavours.base import Flavour
from evenkeel.adapters.kubernetes.objects import Kind, Object, get_path, mapping, name_of
from evenkeel.adapters.kubernetes.read.lister import ObjectLister
from evenkeel.adapters.kubernetes.read.machines import scalables_of
from evenkeel.adapters.kubernetes.read.node_templates import template_of
from evenkeel.application.errors import NoMachineApiError
from evenkeel.application.ports import Remaining
from evenkeel_cli.inputs import read_namespaces
from evenkeel_cli.terminal import say, say_lines

# The fields of metadata that a plan reads, besides managedFields.
_METADATA = (
    *("name", "namespace", "uid", "labels", "annotations", "ownerReferences"),
    *("creationTimestamp", "deletionTimestamp", "generation"),
)
# A plan reads the field managers of node groups and of the objects that own their bounds.
_OF_GROUP = (*_METADATA, "managedFields")
# Fields at any depth that a plan does not read, and that may contain secrets: in a Worker, a Cluster's topology.
_WITHHELD = frozenset({"userData", "variables"})
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_Dumper: Any = type(
    "_Dumper", (getattr(yaml, "CSafeDumper", yaml.SafeDumper),), {"ignore_aliases": lambda _self, _value: True}
)


def objects_command(context: str | None, kubeconfig: str | None, namespaces: Sequence[str]) -> None:
    """Print the objects as one YAML list."""
    from evenkeel_cli.live import named_context, opened  # takes half a second; a wrong option does not need it

    named = read_namespaces(namespaces)
    found = list(_collect(*opened(kubeconfig, named_context(kubeconfig, context)), named))
    say_lines("apiVersion: v1\nkind: List\nitems:" + ("" if found else " []"))
    for item in found:
        say_lines(yaml.dump([item], Dumper=_Dumper, sort_keys=False, width=120))


def _collect(api: KubernetesApi, remaining: Remaining, namespaces: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects of all served flavours, and print the count of each kind on standard error.

    Raises:
        AccessError, ClusterUnavailableError: the cluster cannot be read, or serves no machine API.
    """
    lister, served = ObjectLister(api, namespaces, remaining, None), False
    for flavour in FLAVOURS.values():
        lists = lister.list_flavour(flavour)
        if lists is None:
            continue
        served = True
        listed = {
            kind: [item for received in lists[kind.kind] for item in received.objects()]
            for kind in flavour.kinds
            if kind.kind in lists
        }
        scalables = {kind.kind: listed.get(kind, []) for kind in flavour.scalables}
        for kind, items in listed.items():
            yield from _counted(kind, (_pruned(item, _OF_GROUP, ("spec", "status")) for item in items))
        if any(scalables.values()):
            yield from _templates(lister, flavour, [item for items in scalables.values() for item in items])
            yield from _machines(lister, flavour, scalables)
    if not served:
        raise NoMachineApiError(api.name, FLAVOURS)
    for kind in sorted(lister.refused, key=lambda kind: kind.plural):
        say(f"left out: listing {kind.plural}.{kind.group} is forbidden", err=True)


def _templates(lister: ObjectLister, flavour: Flavour, scalables: Iterable[Object]) -> Iterator[dict[str, Any]]:
    """Yield the node templates that the scalables refer to."""
    named: dict[Kind, set[tuple[str, str]]] = {}
    for scalable in scalables:
        if (reference := template_of(flavour, scalable)) is not None:
            named.setdefault(reference.kind, set()).add((name_of(scalable)[0], reference.name))
    for kind, names in named.items():
        if (items := lister.list_if_allowed(kind)) is None:
            say(f"left out: {kind.plural}.{kind.group} cannot be listed", err=True)
            continue
        templates = [item for item in items if name_of(item) in names]
        yield from _counted(kind, (_pruned(item, _METADATA, ("status", "nodeTemplate")) for item in templates))


def _machines(
    lister: ObjectLister, flavour: Flavour, scalables: Mapping[str, Iterable[Object]]
) -> Iterator[dict[str, Any]]:
    """Yield the machines of the scalables."""
    kind = flavour.machines.kind
    if (items := lister.list_if_allowed(kind)) is None:
        say(f"left out: {kind.plural}.{kind.group} cannot be listed: nodes are counted from status", err=True)
        return
    known = {(*name_of(item), of_kind) for of_kind, of_group in scalables.items() for item in of_group}
    machines = [
        item
        for item in items
        if any(
            (namespace, name, of_kind) in known
            for namespace, of_kind, name in scalables_of(flavour, flavour.machines.read(item))
        )
    ]
    yield from _counted(kind, (_pruned_machine(item) for item in machines))


def _counted(kind: Kind, items: Iterable[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    found = list(items)
    say(f"{len(found)} {kind.plural}.{kind.group}", err=True)
    return found


def _pruned(item: Object, metadata: Iterable[str], fields: Iterable[str]) -> dict[str, Any]:
    """Return an object with only those fields, without fields that may contain secrets."""
    own = mapping(item.get("metadata"))
    kept = {name: own[name] for name in metadata if name in own}
    if _LAST_APPLIED in mapping(kept.get("annotations")):
        kept["annotations"] = {key: value for key, value in kept["annotations"].items() if key != _LAST_APPLIED}
    return {
        "apiVersion": item["apiVersion"],
        "kind": item["kind"],
        "metadata": kept,
        **{name: _without_secrets(item[name]) for name in fields if name in item},
    }


def _pruned_machine(item: Object) -> dict[str, Any]:
    spec = {name: value for name in ("providerID", "failureDomain") if (value := get_path(item, ("spec", name)))}
    return {**_pruned(item, _METADATA, ("status",)), "spec": spec}


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_secrets(part) for key, part in value.items() if key not in _WITHHELD}
    return [_without_secrets(part) for part in value] if isinstance(value, list) else value
