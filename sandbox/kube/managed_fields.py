"""Field ownership: `metadata.managedFields`, and server-side apply, which is based on it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from sandbox.kube.patches import clone
from sandbox.kube.rules import SYSTEM_METADATA
from sandbox.kube.schema import Json, Object, list_map_keys, schema_at

Path = tuple[str, ...]
_ENTRY = "k:"  # prefix of a path element that names an entry of a list by its keys


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The fields that one field manager owns."""

    manager: str
    subresource: str
    api_version: str
    time: str
    paths: set[Path]
    operation: str = "Update"


def _entry(item: Json, keys: tuple[str, ...]) -> str:
    """Return `k:{"name":"a"}`, the path element of an entry of a list that has keys."""
    return _ENTRY + json.dumps({key: item.get(key) for key in keys}, separators=(",", ":"))


def _keys_of(part: str) -> Object:
    """Return the keys that a path element names."""
    keys: Object = json.loads(part.removeprefix(_ENTRY))
    return keys


def _leaves(value: Json, schema: Object, prefix: Path = ()) -> dict[Path, Json]:
    """Return every field that can be owned: scalars, atomic lists, and empty objects and lists."""
    leaves: dict[Path, Json] = {}
    if isinstance(value, dict) and value:
        for key, item in value.items():
            if key not in SYSTEM_METADATA or prefix != ("metadata",):
                leaves |= _leaves(item, schema_at(schema, key), (*prefix, key))
    elif isinstance(value, list) and value and (keys := list_map_keys(schema)):
        for item in value:
            leaves |= _leaves(item, schema["items"], (*prefix, _entry(item, keys)))
    elif prefix and prefix != ("metadata",):
        leaves[prefix] = value
    return leaves


def update_owners(managed: list[Owner], old: Object, new: Object, writer: Owner, schema: Object | None) -> list[Owner]:
    """Return the owners after an update: `writer` becomes the only owner of each field that it changes."""
    before, after = _leaves(old, schema or {}), _leaves(new, schema or {})
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    removed = set(before) - set(after)
    if not changed and not removed:
        return managed
    owners: list[Owner] = []
    own = set(changed)
    for item in managed:
        paths = item.paths - changed - removed
        if replace(item, paths=set(), time="") == replace(writer, paths=set(), time=""):
            own |= paths
        elif paths:
            owners.append(replace(item, paths=paths))
    return [*owners, replace(writer, paths=own)] if own else owners


def managed_json(item: Owner) -> Object:
    """Return the owner as an entry of `metadata.managedFields`."""
    tree: Object = {}
    for path in sorted(item.paths):
        node = tree
        for part in path:
            node = node.setdefault(part if part.startswith(_ENTRY) else f"f:{part}", {})
    entry: Object = {
        "apiVersion": item.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": tree,
        "manager": item.manager,
        "operation": item.operation,
        "time": item.time,
    }
    return entry | ({"subresource": item.subresource} if item.subresource else {})


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """An applied field that another field manager owns with another value."""

    owner: Owner
    path: Path

    @property
    def field(self) -> str:
        """Return the path as text, such as `.spec.replicas` or `.spec.workers[name="a"].replicas`."""
        text = ""
        for part in self.path:
            if part.startswith(_ENTRY):
                text += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in _keys_of(part).items()) + "]"
            else:
                text += f".{part}"
        return text

    @property
    def manager(self) -> str:
        """Return the owner with its API version and, for an update, its time."""
        at = f" at {self.owner.time}" if self.owner.operation == "Update" else ""
        return f'"{self.owner.manager}" using {self.owner.api_version}{at}'


class Applied:
    """One server-side apply by `manager`: the resulting object, the conflicts and the owners afterwards.

    A field that this manager applied before and now leaves out is removed, unless another manager owns it too. Fields
    that it never applied remain. ``body`` has no system metadata.
    """

    def __init__(self, managed: list[Owner], current: Object, body: Object, manager: str, schema: Object) -> None:
        self._managed, self._manager = managed, manager
        self._applied = _leaves({key: body[key] for key in body if key not in ("apiVersion", "kind")}, schema)
        before = _leaves(current, schema)
        self._own = [
            item for item in managed if (item.operation, item.manager, item.subresource) == ("Apply", manager, "")
        ]
        self._others = [item for item in managed if item not in self._own]
        self._changed = {path for path, value in self._applied.items() if path not in before or before[path] != value}
        self.conflicts = [
            Conflict(owner=owner, path=path)
            for owner in self._others
            for path in sorted(self._changed)
            if path in owner.paths
        ]
        dropped = {path for item in self._own for path in item.paths} - set(self._applied)
        dropped = {path for path in dropped if not any(path in item.paths for item in self._others)}
        self.result: Object = _merged(current, body, schema)
        for path in sorted(dropped, key=_is_key):
            _remove(self.result, path)
        self._after = set(_leaves(self.result, schema))

    def owners(self, api_version: str, now: str) -> list[Owner]:
        """Return the owners afterwards. A value that several managers wrote belongs to all of them."""
        paths, own = set(self._applied), self._own
        if own and (own[0].paths, own[0].api_version) == (paths, api_version) and not self._changed:
            return self._managed
        others = [replace(item, paths=item.paths & self._after - self._changed) for item in self._others]
        mine = Owner(
            manager=self._manager, subresource="", api_version=api_version, time=now, paths=paths, operation="Apply"
        )
        return [*(item for item in others if item.paths), *([mine] if paths else [])]


def _merged(current: Json, applied: Json, schema: Object) -> Json:
    """Return the applied fields over the current ones; list entries with keys are matched by their keys."""
    if isinstance(current, dict) and isinstance(applied, dict):
        return clone(current) | {
            key: _merged(current.get(key), item, schema_at(schema, key)) for key, item in applied.items()
        }
    keys = list_map_keys(schema)
    if isinstance(current, list) and isinstance(applied, list) and keys:
        entries = {_entry(item, keys): item for item in applied}
        kept = [_merged(item, entries.pop(_entry(item, keys), item), schema["items"]) for item in current]
        return [*kept, *map(clone, entries.values())]
    return clone(applied)


def _is_key(path: Path) -> bool:
    """Return whether a path leads to a key of a list entry. Such a key is removed after the entry's other fields."""
    return len(path) > 1 and path[-2].startswith(_ENTRY) and path[-1] in _keys_of(path[-2])


def _remove(value: Json, path: Path) -> None:
    """Remove a field, and the objects and lists that are empty without it."""
    part, rest = path[0], path[1:]
    if part.startswith(_ENTRY):
        for index, item in enumerate(value):
            if all(item.get(key) == expected for key, expected in _keys_of(part).items()):
                if rest:
                    _remove(item, rest)
                if not item:
                    del value[index]
                return
    elif isinstance(value, dict) and part in value:
        if rest:
            _remove(value[part], rest)
        if not rest or value[part] in ({}, []):
            del value[part]
