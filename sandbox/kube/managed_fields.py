"""Who owns which field of an object: `metadata.managedFields`, and server-side apply, which goes by it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from sandbox.kube.patches import clone
from sandbox.kube.rules import SYSTEM_METADATA
from sandbox.kube.schema import Json, Object, list_map_keys, schema_at

Path = tuple[str, ...]
_ENTRY = "k:"  # begins the part of a path that names an entry of a list by its keys


@dataclass(frozen=True, kw_only=True)
class Owner:
    """What one writer owns of an object."""

    manager: str
    subresource: str
    api_version: str
    time: str
    paths: set[Path]
    operation: str = "Update"


def _entry(item: Json, keys: tuple[str, ...]) -> str:
    """`k:{"name":"a"}`: how managedFields name an entry of a list whose entries have keys."""
    return _ENTRY + json.dumps({key: item.get(key) for key in keys}, separators=(",", ":"))


def _leaves(value: Json, schema: Object) -> dict[Path, Json]:
    """Every field that can be owned: scalars and lists written as a whole; an empty object or list is a leaf, too."""
    found: dict[Path, Json] = {}
    _add_leaves(found, value, schema, ())
    return found


def _add_leaves(found: dict[Path, Json], value: Json, schema: Object, prefix: Path) -> None:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            if key in SYSTEM_METADATA and prefix == ("metadata",):
                continue
            _add_leaves(found, item, schema_at(schema, key), (*prefix, key))
    elif isinstance(value, list) and value and (keys := list_map_keys(schema)):
        for item in value:
            _add_leaves(found, item, schema["items"], (*prefix, _entry(item, keys)))
    elif prefix and prefix != ("metadata",):
        found[prefix] = value


def attribute(
    managed: list[Owner],
    old: Object,
    new: Object,
    manager: str,
    subresource: str,
    api_version: str,
    now: str,
    *,
    schema: Object | None = None,
) -> list[Owner]:
    """Who wrote which field last: the writer of a changed field takes it from whoever had it before."""
    before, after = _leaves(old, schema or {}), _leaves(new, schema or {})
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    gone = set(before) - set(after)
    if not changed and not gone:
        return managed
    mine = (manager, subresource, api_version)
    owners: list[Owner] = []
    own = set(changed)
    for item in managed:
        paths = item.paths - changed - gone
        if item.operation == "Update" and (item.manager, item.subresource, item.api_version) == mine:
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
    """A field that somebody else owns, with another value than the one that is applied."""

    owner: Owner
    path: Path

    @property
    def field(self) -> str:
        """`.spec.replicas`, `.spec.workers[name="a"].replicas`."""
        text = ""
        for part in self.path:
            if part.startswith(_ENTRY):
                keys = json.loads(part.removeprefix(_ENTRY))
                text += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in keys.items()) + "]"
            else:
                text += f".{part}"
        return text

    @property
    def who(self) -> str:
        at = f" at {self.owner.time}" if self.owner.operation == "Update" else ""
        return f'"{self.owner.manager}" using {self.owner.api_version}{at}'


class Applied:
    """One server-side apply by `manager`: what it makes of an object, with whom it conflicts, who owns what after it.

    Fields that this manager applied before and leaves out now go, unless somebody else owns them as well; fields that
    it never applied stay. ``body`` has no system metadata.
    """

    def __init__(self, managed: list[Owner], current: Object, body: Object, manager: str, schema: Object) -> None:
        self._managed, self._manager = managed, manager
        self._wanted = _leaves({key: body[key] for key in body if key not in ("apiVersion", "kind")}, schema)
        before = _leaves(current, schema)
        self._others = [item for item in managed if not self._is_mine(item)]
        self._changed = {path for path, value in self._wanted.items() if path not in before or before[path] != value}
        self.conflicts = [
            Conflict(owner=owner, path=path)
            for owner in self._others
            for path in sorted(self._changed)
            if path in owner.paths
        ]
        dropped = {path for item in managed if self._is_mine(item) for path in item.paths} - set(self._wanted)
        self._dropped = {path for path in dropped if not any(path in item.paths for item in self._others)}
        self.result: Object = _merged(current, body, schema)
        for path in sorted(self._dropped, key=_is_key):
            _take_out(self.result, path)
        self._after = set(_leaves(self.result, schema))

    def _is_mine(self, item: Owner) -> bool:
        return (item.operation, item.manager, item.subresource) == ("Apply", self._manager, "")

    def owners(self, api_version: str, now: str) -> list[Owner]:
        """Who owns what afterwards. A value that others have written too belongs to all of them."""
        own, known = set(self._wanted), [item for item in self._managed if self._is_mine(item)]
        if known and (known[0].paths, known[0].api_version) == (own, api_version) and not self._changed:
            return self._managed
        others = [replace(item, paths=item.paths & self._after - self._changed) for item in self._others]
        mine = Owner(
            manager=self._manager, subresource="", api_version=api_version, time=now, paths=own, operation="Apply"
        )
        return [*(item for item in others if item.paths), *([mine] if own else [])]


def _merged(current: Json, applied: Json, schema: Object) -> Json:
    """The applied fields over the present ones; entries of a list with keys are matched by these."""
    if isinstance(current, dict) and isinstance(applied, dict):
        return clone(current) | {
            key: _merged(current.get(key), item, schema_at(schema, key)) for key, item in applied.items()
        }
    keys = list_map_keys(schema)
    if isinstance(current, list) and isinstance(applied, list) and keys:
        given = {_entry(item, keys): item for item in applied}
        kept = [_merged(item, given.pop(_entry(item, keys), item), schema["items"]) for item in current]
        return [*kept, *map(clone, given.values())]
    return clone(applied)


def _is_key(path: Path) -> bool:
    """Whether a path leads to a key of a list's entry, which goes after the entry's other fields."""
    return len(path) > 1 and path[-2].startswith(_ENTRY) and path[-1] in json.loads(path[-2].removeprefix(_ENTRY))


def _take_out(value: Json, path: Path) -> None:
    """Remove a field, and what is empty without it."""
    part, rest = path[0], path[1:]
    if part.startswith(_ENTRY):
        keys = json.loads(part.removeprefix(_ENTRY))
        for index, item in enumerate(value):
            if all(item.get(key) == wanted for key, wanted in keys.items()):
                if rest:
                    _take_out(item, rest)
                if not item:
                    del value[index]
                return
    elif isinstance(value, dict) and part in value:
        if rest:
            _take_out(value[part], rest)
        if not rest or value[part] in ({}, []):
            del value[part]
