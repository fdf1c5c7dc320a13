"""Converts stored items and state files, which are the domain's dataclasses and the records, to and from JSON.

Pydantic reads and writes both. This module builds the schemas of dataclasses, with checks that type annotations do not
express.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from itertools import zip_longest
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import SchemaSerializer, SchemaValidator, core_schema

from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.past_orders import PastOrder
from evenkeel.domain.model.values import LARGEST_COUNT, BadValueError, quote
from evenkeel.validation import MOMENT, parse_json, validated

_log = logging.getLogger("evenkeel.stored")
_Kind = TypeVar("_Kind")
# Fields whose numbers are not counts of nodes. Such a number may be negative, or larger than LARGEST_COUNT.
_ANY_NUMBER = frozenset({"facts", "generation", "maxima", "steps", "unplaced"})
_SMALLEST = {"size": 1}  # the smallest value by field: a rollout's wave has a size of at least 1; other counts may be 0
_PLAIN = {str: "str", bool: "bool", timedelta: "timedelta"}  # the type of a schema without further rules


def read_stored(kind: type[_Kind], text: str, where: str) -> _Kind:
    """Return an item that this or a newer release has stored. Fields that only the newer release knows are ignored.

    Raises:
        ConfigError: a known field has a bad value.
    """
    try:
        value: _Kind = _codec(kind)[1].validate_json(text, extra="ignore")
    except ValidationError:
        return read_as(kind, parse_json(text, where), where)  # the error names each bad value
    return value


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
    classes: dict[type, Any] = {}
    root = _of_dataclass(kind, classes)
    schema: Any = core_schema.definitions_schema(root, [*classes.values()])
    return schema, SchemaValidator(schema), SchemaSerializer(schema)


# A codec is built when its kind is first read or written, because a starting function needs only a few codecs.
_codec: Callable[[type], tuple[Any, SchemaValidator, SchemaSerializer]] = cache(_built)


def _of_dataclass(kind: Any, classes: dict[type, Any]) -> Any:
    """Return a reference to a dataclass's schema. Its schema and those that it refers to are added to ``classes``.

    ``TypeAdapter`` returns nearly the same schema, but takes several times as long at a cold start.
    """
    ref = f"{kind.__module__}.{kind.__qualname__}"
    if kind not in classes:
        classes[kind] = None  # a class may refer to itself
        own = fields(kind)
        hints = get_type_hints(kind)
        args = [_of_field(each, _of_hint(hints[each.name], each.name, classes)) for each in own]
        checks = hasattr(kind, "__post_init__")
        classes[kind] = core_schema.dataclass_schema(
            kind,
            core_schema.dataclass_args_schema(kind.__name__, args, collect_init_only=checks),
            [each.name for each in own],
            post_init=checks,
            slots="__slots__" in vars(kind),
            ref=ref,
        )
    return core_schema.definition_reference_schema(ref)


def _of_field(each: Field[Any], schema: Any) -> Any:
    """Return the schema of a dataclass's field. In JSON, the field ``failure_class`` has the name ``class``."""
    if each.name in _FIELD_CHECKS:
        schema = _FIELD_CHECKS[each.name](schema)
    if each.default_factory is not MISSING:
        schema = core_schema.with_default_schema(schema, default_factory=each.default_factory)
    elif each.default is not MISSING and schema["type"] != "literal":
        # A union's tag must be stored, but the JSON omits default values. So the tag has no default.
        schema = core_schema.with_default_schema(schema, default=each.default)
    alias = "class" if each.name == "failure_class" else None
    return core_schema.dataclass_field(each.name, schema, validation_alias=alias, serialization_alias=alias)


def _of_hint(hint: Any, field: str, classes: dict[type, Any]) -> Any:
    """Return the schema of an annotation. ``field``: the field that has it. In JSON, a set is a sorted list."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None:
        return _of_dataclass(hint, classes) if is_dataclass(hint) else _of_value(hint, field)
    if origin is Literal:
        return core_schema.literal_schema([*arguments])
    parts = [_of_hint(part, field, classes) for part in arguments if part not in (..., NoneType)]
    if origin is Mapping:
        return core_schema.dict_schema(*parts)
    if origin is frozenset:
        return core_schema.frozenset_schema(
            *parts, serialization=core_schema.plain_serializer_function_ser_schema(sorted)
        )
    if origin is tuple:
        return core_schema.tuple_schema(parts, variadic_item_index=0 if ... in arguments else None)
    union = parts[0] if len(parts) == 1 else _of_union([part for part in arguments if part is not NoneType], parts)
    return core_schema.nullable_schema(union) if NoneType in arguments else union


def _of_union(kinds: Sequence[Any], schemas: list[Any]) -> Any:
    """Return the schema of a union. A field ``phase`` selects the dataclass.

    So a bad value causes one fault, from the dataclass with the value's phase.
    """
    if all(hasattr(kind, "phase") for kind in kinds):
        choices = {kind.phase: schema for kind, schema in zip(kinds, schemas, strict=True)}
        return core_schema.tagged_union_schema(choices, discriminator="phase")
    return core_schema.union_schema(schemas)


def _of_value(kind: Any, field: str) -> Any:
    """Return the schema of a number, a text, a time or an enum, with the valid range of numbers and times."""
    if kind is int:
        if field in _ANY_NUMBER:
            return core_schema.int_schema(strict=True)
        return core_schema.int_schema(strict=True, ge=_SMALLEST.get(field, 0), le=LARGEST_COUNT)
    if kind is datetime:
        return MOMENT
    if issubclass(kind, Enum):
        return core_schema.enum_schema(kind, [*kind], sub_type="str")
    return {"type": _PLAIN[kind]}


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
