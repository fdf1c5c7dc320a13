"""JSON merge patch (RFC 7386) and JSON patch (RFC 6902) on plain JSON values."""

from __future__ import annotations

from typing import cast

from sandbox.kube.schema import Json


class PatchError(ValueError):
    """A JSON patch that does not fit the document, a failing `test` included."""


def clone(value: Json) -> Json:
    """A deep copy of a JSON value, several times as quick as `copy.deepcopy`."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value


def merge_patch(target: Json, patch: Json) -> Json:
    """A new value: null removes, objects merge, all else replaces."""
    if not isinstance(patch, dict):
        return clone(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for key, item in patch.items():
        if item is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), item)
    return merged


def json_patch(target: Json, operations: list[Json]) -> Json:
    """A new value after all operations, or PatchError and no change at all."""
    document = clone(target)
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise PatchError(f"operation {operation!r}: no path")
        kind, path = operation.get("op"), _split(operation["path"])
        if kind == "test":
            if _read(document, path) != operation.get("value"):
                raise PatchError(f"test of {operation['path']} failed")
        elif kind == "add":
            document = _write(document, path, clone(operation.get("value")), insert=True)
        elif kind == "replace":
            _read(document, path)
            document = _write(document, path, clone(operation.get("value")), insert=False)
        elif kind == "remove":
            _remove(document, path)
        elif kind in ("move", "copy"):
            source = _split(str(operation.get("from")))
            value = clone(_read(document, source))
            if kind == "move":
                _remove(document, source)
            document = _write(document, path, value, insert=True)
        else:
            raise PatchError(f"operation {kind!r}: unknown")
    return document


def _split(pointer: str) -> list[str]:
    if pointer == "":
        return []
    if not pointer.startswith("/"):
        raise PatchError(f"pointer {pointer!r}: must start with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]


def _index(items: list[Json], part: str, *, end: bool) -> int:
    if part == "-" and end:
        return len(items)
    if not part.isdigit() or int(part) > len(items) - (0 if end else 1):
        raise PatchError(f"index {part!r}: not in the list")
    return int(part)


def _read(document: Json, path: list[str]) -> Json:
    for part in path:
        if isinstance(document, dict):
            if part not in document:
                raise PatchError(f"{part!r}: no such field")
            document = document[part]
        elif isinstance(document, list):
            document = document[_index(document, part, end=False)]
        else:
            raise PatchError(f"{part!r}: its parent is no object and no list")
    return document


def _write(document: Json, path: list[str], value: Json, *, insert: bool) -> Json:
    if not path:
        return value
    parent = _read(document, path[:-1])
    if isinstance(parent, dict):
        parent[path[-1]] = value
    elif isinstance(parent, list):
        index = _index(parent, path[-1], end=insert)
        if insert:
            parent.insert(index, value)
        else:
            parent[index] = value
    else:
        raise PatchError(f"{path[-1]!r}: its parent is no object and no list")
    return document


def _remove(document: Json, path: list[str]) -> None:
    if not path:
        raise PatchError("the whole document cannot be removed")
    _read(document, path)
    parent = _read(document, path[:-1])
    if isinstance(parent, list):
        del parent[_index(parent, path[-1], end=False)]
    else:
        del cast("dict[str, Json]", parent)[path[-1]]
