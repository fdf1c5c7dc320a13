"""Converts stored items and state files, which are the domain's dataclasses and the records, to and from JSON.

Pydantic reads and writes both. For dataclasses, this module adds checks that type annotations do not express.
"""

import json
import logging
from collections.abc import Callable
from functools import cache
from itertools import zip_longest
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import SchemaSerializer, SchemaValidator, core_schema

from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.past_orders import PastOrder
from evenkeel.domain.model.values import LARGEST_COUNT, BadValueError, quote
from evenkeel.validation import Moment, parse_json, validated

_log = logging.getLogger("evenkeel.stored")
_Kind = TypeVar("_Kind")
# Fields whose numbers are not counts of nodes. Such a number may be negative, or larger than LARGEST_COUNT.
_ANY_NUMBER = frozenset({"facts", "generation", "maxima", "steps", "unplaced"})
_SMALLEST = {"size": 1}  # the smallest value by field: a rollout's wave has a size of at least 1; other counts may be 0


def read_stored(kind: type[_Kind], text: str, where: str) -> _Kind:
    """Return an item that this or a newer release has stored. Fields that only the newer release knows are ignored.

    Raises:
        ConfigError: a known field has a bad value.
    """
    return read_as(kind, parse_json(text, where), where)


def read_as(kind: type[_Kind], data: object, where: str, *, strict: bool = False) -> _Kind:
    """Return parsed JSON as ``kind``. With ``strict``, an unknown field is a fault.

    Raises:
        ConfigError: its text has one line for each bad value. Each line starts with ``where``.
    """
    schema, validator, _ = _codec(kind)
    extra: Any = "forbid" if strict else "ignore"
    value: _Kind = validated(
        lambda: validator.validate_python(data, extra=extra), where, lambda: GenerateJsonSchema().generate(schema)
    )
    return value


def dump_stored(value: object) -> str:
    """Return the JSON text of a value, without the fields that have their default values."""
    return _codec(type(value))[2].to_json(value, by_alias=True, exclude_defaults=True).decode()


def dump_plain(value: object) -> Any:
    """Return the content of ``dump_stored`` as plain dictionaries, lists, texts and numbers."""
    return _codec(type(value))[2].to_python(value, mode="json", by_alias=True, exclude_defaults=True)


def keep_unknown(kind: type, text: str, before: str) -> str:
    """Return the new text of an item, plus the fields of its previous text that only a newer release knows.

    Such a field is added to the object that had it before, if that object still has the same ``kind`` and ``name``.
    """
    _, validator, serializer = _codec(kind)
    try:
        old = json.loads(before)
        known = serializer.to_python(validator.validate_python(old, extra="ignore"), mode="json", by_alias=True)
    except (ValueError, RecursionError):  # an unreadable previous text is overwritten
        return text
    data = json.loads(text)
    merged = _with_unknown(data, old, known)
    return text if merged == data else json.dumps(merged, ensure_ascii=False)


def _with_unknown(data: Any, old: Any, known: Any) -> Any:
    """Return ``data`` with the fields of ``old`` that are not in ``known``."""
    match (data, old, known):
        case (list(), list(), list()):
            size = len(data)
            return [_with_unknown(*parts) for parts in zip_longest(data, old[:size], known[:size])]
        case (dict(), dict(), dict()) if all(data.get(name) == old.get(name) for name in ("kind", "name")):
            unknown = {name: value for name, value in old.items() if name not in known}
            return unknown | {name: _with_unknown(data[name], old.get(name), known.get(name)) for name in data}
    return data


def _built(kind: type) -> tuple[Any, SchemaValidator, SchemaSerializer]:
    """Return the schema of a kind with its validator and serializer."""
    if issubclass(kind, BaseModel):
        kind.model_rebuild()  # the schema of a record is built at its first use
        return kind.__pydantic_core_schema__, kind.__pydantic_validator__, kind.__pydantic_serializer__  # type: ignore[return-value]
    schema: Any = _checked(TypeAdapter(kind).core_schema)
    return schema, SchemaValidator(schema), SchemaSerializer(schema)


# A codec is built when its kind is first read or written, because a starting function needs only a few codecs.
_codec: Callable[[type], tuple[Any, SchemaValidator, SchemaSerializer]] = cache(_built)


def _checked(schema: Any, field: str = "") -> Any:
    """Return a dataclass's schema with the valid ranges of numbers and times. ``field``: the field that has the schema.

    In JSON, the field ``failure_class`` has the name ``class``, and a set is a sorted list.
    """
    if isinstance(schema, list | tuple):
        return type(schema)(_checked(part, field) for part in schema)
    if not isinstance(schema, dict):
        return schema
    match schema.get("type"):
        case "datetime":
            return _moment()
        case "int":
            count = {"ge": _SMALLEST.get(field, 0), "le": LARGEST_COUNT}
            return {"type": "int", "strict": True, **({} if field in _ANY_NUMBER else count)}
        case "frozenset":
            schema = {**schema, "serialization": core_schema.plain_serializer_function_ser_schema(sorted)}
        case "union" if tags := [_tag_of(choice) for choice in schema["choices"]]:
            if None not in tags:  # so a bad value causes one fault, from the member with the value's tag
                choices = dict(zip(tags, schema["choices"], strict=True))
                schema = core_schema.tagged_union_schema(choices, discriminator="phase")
        case "dataclass-field":
            field = schema["name"]
            if field == "failure_class":
                schema = {**schema, "validation_alias": "class", "serialization_alias": "class"}
            if schema["schema"]["type"] == "default" and schema["schema"]["schema"]["type"] == "literal":
                # A union's tag must be stored, but the JSON omits default values. So the tag's default is removed.
                schema = {**schema, "schema": schema["schema"]["schema"]}
            if field in _FIELD_CHECKS:
                schema = {**schema, "schema": _with_check(schema["schema"], _FIELD_CHECKS[field])}
    return {name: _checked(part, field) for name, part in schema.items()}


def _tag_of(choice: Any) -> str | None:
    """Return the literal ``phase`` of one dataclass of a union; None if the dataclass has no field ``phase``."""
    fields = choice["schema"]["fields"] if isinstance(choice, dict) and choice["type"] == "dataclass" else ()
    tags = [field["schema"]["default"] for field in fields if field["name"] == "phase"]
    return tags[0] if tags else None


def _with_check(schema: Any, check: Callable[[Any], Any]) -> Any:
    has_default = schema["type"] == "default"
    return {**schema, "schema": check(schema["schema"])} if has_default else check(schema)


@cache
def _moment() -> Any:
    return TypeAdapter(Moment).core_schema


def _group_key(text: str) -> str:
    try:
        return str(GroupKey.read(text))
    except BadValueError as error:
        raise ValueError(f"it names group {quote(text)}: {error}") from None


def _readable_orders(orders: Any) -> Any:
    """Return the readable orders. At worst, a node is ordered too early because an unreadable order was dropped."""
    if not isinstance(orders, dict):
        _log.warning("dropped a stored order list that cannot be read: not an object")
        return {}
    for key, order in list(orders.items()):
        try:
            _codec(PastOrder)[1].validate_python(order, extra="ignore")
        except ValidationError as error:
            _log.warning("dropped a stored order that cannot be read: %s: %s", quote(key), error.errors()[0]["msg"])
            del orders[key]
    return orders


_FIELD_CHECKS: dict[str, Callable[[Any], Any]] = {
    "orders": lambda schema: core_schema.no_info_before_validator_function(_readable_orders, schema),
    **dict.fromkeys(
        ("source", "destination", "draining_group"),
        lambda schema: core_schema.no_info_after_validator_function(_group_key, schema),
    ),
}
