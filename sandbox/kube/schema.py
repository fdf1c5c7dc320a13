"""Structural schemas of the sandbox's custom resources: loading, pruning, defaulting, validation.

The same CustomResourceDefinition files feed the simulated API and a real kube-apiserver, so both refuse and prune the
same fields. Messages follow the real server's, because people (and error handlers) read them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, TypeAlias

import yaml

Json: TypeAlias = Any
Object = dict[str, Json]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
RULES = "x-kubernetes-validations"


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One fault of an object, as `details.causes` of a Status carries it."""

    reason: str
    field: str
    message: str

    def as_json(self) -> dict[str, str]:
        return {"reason": self.reason, "message": self.message, "field": self.field}


def load_crds(*, cluster_api_versions: Sequence[str] = ("v1beta1", "v1beta2")) -> list[dict[str, Json]]:
    """All CustomResourceDefinitions that Evenkeel meets.

    `cluster_api_versions` are the versions of `cluster.x-k8s.io` to serve; the last one is the storage version.
    """
    crds: list[dict[str, Json]] = json.loads(_files())
    for crd in crds:
        if crd["spec"]["group"] == "cluster.x-k8s.io":
            versions = [v for v in crd["spec"]["versions"] if v["name"] in cluster_api_versions]
            if not versions:
                raise ValueError(
                    f"cluster_api_versions {list(cluster_api_versions)}: none of them is v1beta1 or v1beta2"
                )
            for version in versions:
                version["storage"] = version["name"] == cluster_api_versions[-1]
            crd["spec"]["versions"] = versions
    return crds


@cache
def _files() -> str:
    """All of the files as one JSON list, which is read a hundred times faster than YAML."""
    crds: list[dict[str, Json]] = []
    for entry in sorted(files("sandbox.kube").joinpath("crds").iterdir(), key=lambda path: path.name):
        if entry.name.endswith(".yaml"):
            crds.extend(yaml.safe_load_all(entry.read_text(encoding="utf-8")))
    return json.dumps(crds)


def prune(value: Json, schema: dict[str, Json], *, root: bool = True) -> Json:
    """A copy of `value` without the fields that the schema does not know; metadata is never touched."""
    if isinstance(value, dict):
        properties: dict[str, Json] = schema.get("properties", {})
        additional = schema.get("additionalProperties")
        keep = schema.get(PRESERVE, False)
        pruned = {}
        for key, item in value.items():
            if root and key in ("apiVersion", "kind", "metadata"):
                pruned[key] = item
            elif key in properties:
                pruned[key] = prune(item, properties[key], root=False)
            elif isinstance(additional, dict):
                pruned[key] = prune(item, additional, root=False)
            elif keep or additional is True:
                pruned[key] = item
        return pruned
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [prune(item, schema["items"], root=False) for item in value]
    return value


def default(value: Json, schema: dict[str, Json]) -> None:
    """Fill absent fields with the schema's defaults, in place."""
    if isinstance(value, dict):
        for key, sub in schema.get("properties", {}).items():
            if key not in value and "default" in sub:
                value[key] = sub["default"]
            if key in value:
                default(value[key], sub)
        if isinstance(schema.get("additionalProperties"), dict):
            for item in value.values():
                default(item, schema["additionalProperties"])
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            default(item, schema["items"])


_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}


def _type_name(value: Json) -> str:
    if value is None:
        return "null"
    for name, kind in _TYPES.items():
        if isinstance(value, kind) and not (name in ("integer", "number") and isinstance(value, bool)):
            return name
    return "number"


def _shown(value: Json) -> str:
    """A value as the real server prints it inside `Invalid value: …`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def list_map_keys(schema: dict[str, Json]) -> tuple[str, ...]:
    """The fields that tell the entries of a list apart; none for a list that is written as a whole."""
    return tuple(schema.get("x-kubernetes-list-map-keys", ())) if schema.get("x-kubernetes-list-type") == "map" else ()


def schema_at(schema: dict[str, Json], key: str) -> dict[str, Json]:
    """The schema of one field of an object; an empty one where nothing is said of it."""
    found = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
    return found if isinstance(found, dict) else {}


def validate(value: Json, schema: dict[str, Json], path: str = "", old: Json = None) -> Iterator[Cause]:
    """Every fault of `value`, in the order of the schema. `old`: the value before, for rules about changes."""
    faults = list(_faults(value, schema, path, old))
    # as on a real server, rules are asked of what has the right shape only
    yield from faults or _broken_rules(value, schema, path, old)


def _broken_rules(value: Json, schema: dict[str, Json], path: str, old: Json) -> Iterator[Cause]:
    """Rules in CEL; one that speaks of the value before holds where there was none."""
    for rule in schema.get(RULES, ()):
        changes = "oldSelf" in rule["rule"]
        given = {"self": value} | ({"oldSelf": old} if changes else {})
        if not (changes and old is None) and not _holds(rule["rule"], json.dumps(given)):
            quote = f'Invalid value: "{_type_name(value)}": {rule["message"]}'
            yield Cause(reason="FieldValueInvalid", field=path, message=quote)


@cache
def _program(rule: str) -> Any:
    import celpy  # only for kinds that have rules: it takes a third of a second

    environment = celpy.Environment()
    return environment.program(environment.compile(rule))


@lru_cache(maxsize=10_000)
def _holds(rule: str, given: str) -> bool:
    """Whether a rule holds for values, as JSON: one takes milliseconds, and few writes touch what it is about."""
    import celpy

    try:
        return bool(
            _program(rule).evaluate({name: celpy.json_to_cel(item) for name, item in json.loads(given).items()})
        )
    except celpy.CELEvalError:
        return False


def _faults(value: Json, schema: dict[str, Json], path: str, old: Json) -> Iterator[Cause]:
    wanted = _wanted_type(value, schema)
    if wanted is not None:
        yield _type_fault(value, path, wanted)
        return
    if schema.get(INT_OR_STRING):
        return
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(f'"{item}"' for item in schema["enum"])
        yield Cause(
            reason="FieldValueNotSupported",
            field=path,
            message=f"Unsupported value: {_shown(value)}: supported values: {allowed}",
        )
    if isinstance(value, str):
        yield from _text_faults(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if "minimum" in schema and value < schema["minimum"]:
            yield _limit_fault(value, path, f"greater than or equal to {schema['minimum']}")
        if "maximum" in schema and value > schema["maximum"]:
            yield _limit_fault(value, path, f"less than or equal to {schema['maximum']}")
    elif isinstance(value, dict):
        yield from _object_faults(value, schema, path, old)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        if len(value) > schema.get("maxItems", len(value)):
            message = f"Invalid value: {len(value)}: {path} in body should have at most {schema['maxItems']} items"
            yield Cause(reason="FieldValueInvalid", field=path, message=message)
        yield from _list_faults(value, schema, path)


def _wanted_type(value: Json, schema: dict[str, Json]) -> str | None:
    """The type that the value should have; None where it has it, or where any will do."""
    if schema.get(INT_OR_STRING):
        return "integer,string" if isinstance(value, bool) or not isinstance(value, int | str) else None
    wanted: str | None = schema.get("type")
    if wanted is None:
        return None
    is_type = isinstance(value, _TYPES[wanted])
    if wanted in ("integer", "number") and isinstance(value, bool):
        is_type = False
    if wanted == "integer" and isinstance(value, float) and value.is_integer():
        is_type = True  # 3.0 is an integer in JSON
    return None if is_type else wanted


def _text_faults(value: str, schema: dict[str, Json], path: str) -> Iterator[Cause]:
    if len(value) < schema.get("minLength", 0):
        rule = f"be at least {schema['minLength']} chars long"
        yield Cause(
            reason="FieldValueInvalid", field=path, message=f'Invalid value: "{value}": {path} in body should {rule}'
        )
    if len(value) > schema.get("maxLength", len(value)):
        rule = f"may not be longer than {schema['maxLength']}"
        yield Cause(reason="FieldValueTooLong", field=path, message=f"Too long: {rule}")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        rule = f"match '{schema['pattern']}'"
        yield Cause(
            reason="FieldValueInvalid", field=path, message=f'Invalid value: "{value}": {path} in body should {rule}'
        )


def _list_faults(value: list[Json], schema: dict[str, Json], path: str) -> Iterator[Cause]:
    for index, item in enumerate(value):
        yield from validate(item, schema["items"], f"{path}[{index}]")
    keys, seen = list_map_keys(schema), []
    for index, item in enumerate(value if keys else ()):
        identity = {key: item.get(key) for key in keys}
        if identity in seen:
            quote = " ".join(f'"{key}":"{item}"' for key, item in identity.items())
            message = f"Duplicate value: map[string]interface {{}}{{{quote}}}"
            yield Cause(reason="FieldValueDuplicate", field=f"{path}[{index}]", message=message)
        seen.append(identity)


def _object_faults(value: Object, schema: dict[str, Json], path: str, old: Json) -> Iterator[Cause]:
    for key in schema.get("required", ()):
        if key not in value:
            yield Cause(reason="FieldValueRequired", field=_join(path, key), message="Required value")
    additional = schema.get("additionalProperties")
    for key, item in value.items():
        sub = schema.get("properties", {}).get(key, additional)
        if isinstance(sub, dict) and not (path == "" and key == "metadata"):
            yield from validate(item, sub, _join(path, key), old.get(key) if isinstance(old, dict) else None)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _type_fault(value: Json, path: str, wanted: str) -> Cause:
    found = _type_name(value)
    return Cause(
        reason="FieldValueInvalid",
        field=path,
        message=f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"',
    )


def _limit_fault(value: Json, path: str, rule: str) -> Cause:
    return Cause(
        reason="FieldValueInvalid",
        field=path,
        message=f"Invalid value: {_shown(value)}: {path} in body should be {rule}",
    )
