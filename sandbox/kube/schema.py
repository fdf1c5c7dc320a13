"""Structural schemas of the sandbox's custom resources: loading, pruning, defaulting, validation.

The same CustomResourceDefinition files feed the simulated API and a real kube-apiserver, so both refuse and prune the
same fields. Messages are as on the real server, because error handlers parse them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Self, TypeAlias

import yaml

Json: TypeAlias = Any
Object = dict[str, Json]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
RULES = "x-kubernetes-validations"


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One fault of an object, in the form of `details.causes` in a Status (apimachinery: field.Error)."""

    reason: str
    field: str
    message: str

    @classmethod
    def invalid(cls, field: str, value: str, detail: str) -> Self:
        """Return a fault of a value; `value` is the text that the message quotes."""
        return cls(reason="FieldValueInvalid", field=field, message=f"Invalid value: {value}: {detail}")

    @classmethod
    def required(cls, field: str, detail: str = "") -> Self:
        """Return the fault of a field that is missing."""
        return cls(reason="FieldValueRequired", field=field, message=f"Required value{': ' if detail else ''}{detail}")

    def as_json(self) -> dict[str, str]:
        """Return the entry of `details.causes`."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


def load_crds(*, cluster_api_versions: Sequence[str] = ("v1beta1", "v1beta2")) -> list[dict[str, Json]]:
    """Return all CustomResourceDefinitions that Evenkeel reads or writes.

    `cluster_api_versions` are the served versions of `cluster.x-k8s.io`; the last one is the storage version.
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
    """Return all files as one JSON list: JSON parses a hundred times faster than YAML."""
    crds: list[dict[str, Json]] = []
    for entry in sorted(files("sandbox.kube").joinpath("crds").iterdir(), key=lambda path: path.name):
        if entry.name.endswith(".yaml"):
            crds.extend(yaml.safe_load_all(entry.read_text(encoding="utf-8")))
    return json.dumps(crds)


def prune(value: Json, schema: dict[str, Json], *, root: bool = True) -> Json:
    """Return a copy of `value` without the fields that the schema does not declare; metadata is kept."""
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


def _quote(value: Json) -> str:
    """Return a value as the real server prints it inside `Invalid value: …`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def list_map_keys(schema: dict[str, Json]) -> tuple[str, ...]:
    """Return the key fields of a list of type map; none for an atomic list."""
    return tuple(schema.get("x-kubernetes-list-map-keys", ())) if schema.get("x-kubernetes-list-type") == "map" else ()


def schema_at(schema: dict[str, Json], key: str) -> dict[str, Json]:
    """Return the schema of one field of an object; an empty one if the field is not declared."""
    declared = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
    return declared if isinstance(declared, dict) else {}


def validate(value: Json, schema: dict[str, Json], path: str = "", old: Json = None) -> Iterator[Cause]:
    """Yield every fault of `value`, in the order of the schema. `old` is the previous value, for transition rules."""
    faults = list(_faults(value, schema, path, old))
    # A real server evaluates rules only on values of the right type.
    yield from faults or _broken_rules(value, schema, path, old)


def _broken_rules(value: Json, schema: dict[str, Json], path: str, old: Json) -> Iterator[Cause]:
    """Yield a fault for each CEL rule that does not hold; a transition rule holds if there was no value before."""
    for rule in schema.get(RULES, ()):
        is_transition = "oldSelf" in rule["rule"]
        variables = {"self": value} | ({"oldSelf": old} if is_transition else {})
        if not (is_transition and old is None) and not _holds(rule["rule"], json.dumps(variables)):
            yield Cause.invalid(path, f'"{_type_name(value)}"', rule["message"])


@cache
def _program(rule: str) -> Any:
    import celpy  # imported here because it takes a third of a second and few kinds have rules

    environment = celpy.Environment()
    return environment.program(environment.compile(rule))


@lru_cache(maxsize=10_000)
def _holds(rule: str, variables: str) -> bool:
    """Evaluate a rule on JSON. The cache saves milliseconds per evaluation, because most writes repeat one."""
    import celpy

    try:
        values = {name: celpy.json_to_cel(item) for name, item in json.loads(variables).items()}
        return bool(_program(rule).evaluate(values))
    except celpy.CELEvalError:
        return False


def _faults(value: Json, schema: dict[str, Json], path: str, old: Json) -> Iterator[Cause]:
    wanted = _wanted_type(value, schema)
    if wanted is not None:
        name = f'"{_type_name(value)}"'
        yield Cause.invalid(path, name, f"{path} in body must be of type {wanted}: {name}")
        return
    if schema.get(INT_OR_STRING):
        return
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(f'"{item}"' for item in schema["enum"])
        text = f"Unsupported value: {_quote(value)}: supported values: {allowed}"
        yield Cause(reason="FieldValueNotSupported", field=path, message=text)
    if isinstance(value, str):
        yield from _text_faults(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        for key, word, sign in (("minimum", "greater", -1), ("maximum", "less", 1)):
            if key in schema and sign * value > sign * schema[key]:
                detail = f"{path} in body should be {word} than or equal to {schema[key]}"
                yield Cause.invalid(path, _quote(value), detail)
    elif isinstance(value, dict):
        yield from _object_faults(value, schema, path, old)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        if len(value) > schema.get("maxItems", len(value)):
            detail = f"{path} in body should have at most {schema['maxItems']} items"
            yield Cause.invalid(path, str(len(value)), detail)
        yield from _list_faults(value, schema, path)


def _wanted_type(value: Json, schema: dict[str, Json]) -> str | None:
    """Return the type that the value should have; None if it has that type, or if any type is allowed."""
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
        detail = f"{path} in body should be at least {schema['minLength']} chars long"
        yield Cause.invalid(path, _quote(value), detail)
    if len(value) > schema.get("maxLength", len(value)):
        text = f"Too long: may not be longer than {schema['maxLength']}"
        yield Cause(reason="FieldValueTooLong", field=path, message=text)
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield Cause.invalid(path, _quote(value), f"{path} in body should match '{schema['pattern']}'")


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
            yield Cause.required(_join(path, key))
    additional = schema.get("additionalProperties")
    for key, item in value.items():
        sub = schema.get("properties", {}).get(key, additional)
        if isinstance(sub, dict) and not (path == "" and key == "metadata"):
            yield from validate(item, sub, _join(path, key), old.get(key) if isinstance(old, dict) else None)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
