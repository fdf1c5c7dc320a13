"""Who owns which field of an object: `metadata.managedFields`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sandbox.kube.rules import SYSTEM_METADATA
from sandbox.kube.schema import Json, Object

Path = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Owner:
    """What one writer owns of an object."""

    manager: str
    subresource: str
    api_version: str
    time: str
    paths: set[Path]


def _leaves(value: Json, prefix: Path = ()) -> Iterator[tuple[Path, Json]]:
    """Every field that can be owned: scalars and lists; an empty object is a leaf, too."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            if prefix == ("metadata",) and key in SYSTEM_METADATA:
                continue
            yield from _leaves(item, (*prefix, key))
    elif prefix and prefix != ("metadata",):
        yield prefix, value


def attribute(
    managed: list[Owner],
    old: Object,
    new: Object,
    manager: str,
    subresource: str,
    api_version: str,
    now: str,
) -> list[Owner]:
    """Who wrote which field last: the writer of a changed field takes it from whoever had it before."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    gone = set(before) - set(after)
    if not changed and not gone:
        return managed
    mine = (manager, subresource, api_version)
    owners: list[Owner] = []
    own = set(changed)
    for item in managed:
        paths = item.paths - changed - gone
        if (item.manager, item.subresource, item.api_version) == mine:
            own |= paths
        elif paths:
            owners.append(replace(item, paths=paths))
    if own:
        owners.append(Owner(manager=manager, subresource=subresource, api_version=api_version, time=now, paths=own))
    return owners


def managed_json(item: Owner) -> Object:
    tree: Object = {}
    for path in sorted(item.paths):
        node = tree
        for part in path:
            node = node.setdefault(f"f:{part}", {})
    entry: Object = {
        "apiVersion": item.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": tree,
        "manager": item.manager,
        "operation": "Update",
        "time": item.time,
    }
    return entry | ({"subresource": item.subresource} if item.subresource else {})
