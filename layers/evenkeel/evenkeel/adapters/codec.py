"""Converts stored items, state files and observations, which are dataclasses and records, to and from JSON."""

import base64
import json
import logging
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, fields, is_dataclass, make_dataclass
from datetime import datetime
from functools import cache
from itertools import islice, zip_longest
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, GetPydanticSchema, PlainSerializer, TypeAdapter, ValidationError

from evenkeel.capabilities import OBSERVED_PARTS, STORED_PARTS
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.parts import Parts
from evenkeel.domain.model.states import ArrivalHistory, ContestHistory, FailureHistory, GroupState, PoolState
from evenkeel.domain.model.values import LARGEST_COUNT, quote
from evenkeel.validation import EARLIEST, LATEST, MOST_LINES, NO_MOMENT, ConfigError, validated

_log = logging.getLogger("evenkeel.stored")
_Kind = TypeVar("_Kind")
# Fields whose numbers are not counts of nodes. Such a number may be negative, or larger than LARGEST_COUNT.
_ANY_NUMBER = frozenset({"facts", "generation", "maxima", "steps", "unplaced"})
# Fields of a PoolState whose entries are dropped if they cannot be read. At worst, a node is ordered too early, or
# provision times are learned anew.
_DROPPED = (("orders",), ("replicas", "provision_times"), ("replicas", "counted_until"))


# A class variable is no field. So the JSON forms below have all fields of their base, except its parts.
_HISTORIES = {"failure": FailureHistory, "arrivals": ArrivalHistory, "contest": ContestHistory}
_FlatGroup: Any = make_dataclass(
    "FlatGroupState",
    [(name, ClassVar[None]) for name in _HISTORIES],
    bases=(GroupState, *_HISTORIES.values()),
    kw_only=True,
)


def _flat_group(state: GroupState) -> Any:
    """Return the JSON form of a group's state: one object with its fields and those of its histories."""
    own = {name: value for name, value in vars(state).items() if name not in _HISTORIES}
    return _FlatGroup(**own, **vars(state.failure), **vars(state.arrivals), **vars(state.contest))


def _group(flat: Any) -> GroupState:
    values = {**vars(flat)}
    for name, kind in _HISTORIES.items():
        values[name] = kind(**{part.name: values.pop(part.name) for part in fields(kind)})
    return GroupState(**values)


def _schema(form: Any, read: Callable[[Any], Any], write: Callable[[Any], Any]) -> GetPydanticSchema:
    annotated: Any = Annotated[form, AfterValidator(read), PlainSerializer(write, return_type=form)]
    return GetPydanticSchema(lambda _, handler: handler(annotated))


def _flat_form(
    kind: type[Any], parts: Mapping[str, type[Any]], *, frozen: bool = False
) -> tuple[Callable[[Any], Any], GetPydanticSchema]:
    """Return the JSON form of a class with parts, which is one object with its fields and its parts.

    Returns the function that returns the form of a value, and the schema of a field with such values.
    """
    fields: list[Any] = [("parts", ClassVar[None])]
    fields += [(name, part | None, field(default=None)) for name, part in parts.items()]
    form: Any = make_dataclass(f"Flat{kind.__name__}", fields, bases=(kind,), kw_only=True, frozen=frozen)

    def flat(value: Any) -> Any:
        own = {name: item for name, item in vars(value).items() if name != "parts"}
        return form(**own, **{name: value.parts.of(part) for name, part in parts.items()})

    def with_parts(flat: Any) -> Any:
        values = vars(flat)
        found = Parts({part: value for name, part in parts.items() if (value := values[name]) is not None})
        return kind(**{name: value for name, value in values.items() if name not in parts}, parts=found)

    return flat, _schema(form, with_parts, flat)


_flat_pool, _POOL = _flat_form(PoolState, STORED_PARTS)
_, _OBSERVATION = _flat_form(Observation, OBSERVED_PARTS, frozen=True)
StoredGroupState = Annotated[GroupState, _schema(_FlatGroup, _group, _flat_group)]
"""The type of a field with the state of a group. Its JSON is flat."""
StoredPoolState = Annotated[PoolState, _POOL]
"""The type of a field with the state of a pool. Its JSON is flat."""
_FORMS: Mapping[type, Any] = {
    GroupState: StoredGroupState,
    PoolState: StoredPoolState,
    Observation: Annotated[Observation, _OBSERVATION],
}
_FLAT: Mapping[type, Callable[[Any], Any]] = {GroupState: _flat_group, PoolState: _flat_pool}


def read_stored(kind: type[_Kind], text: str, where: str) -> _Kind:
    """Return an item that this or a newer release has stored. Fields that only the newer release knows are ignored.

    Raises:
        ConfigError: its text has one line for each bad value. Each line starts with ``where``.
    """
    value: _Kind = _read(kind, text, where)[0]
    return value


def read_as(kind: type[_Kind], data: object, where: str, *, strict: bool = False) -> _Kind:
    """Return parsed JSON as ``kind``. With ``strict``, an unknown field is a fault.

    Raises:
        ConfigError: its text has one line for each bad value. Each line starts with ``where``.
    """
    value: _Kind = _read(kind, json.dumps(data), where, "forbid" if strict else "ignore")[0]
    return value


def dump_stored(value: object) -> str:
    """Return the JSON text of a value, without the fields that have their default values."""
    return _dump(value).decode()


def dump_plain(value: object) -> Any:
    """Return the content of ``dump_stored`` as plain dictionaries, lists, texts and numbers."""
    return _adapter(type(value)).dump_python(value, mode="json", by_alias=True, exclude_defaults=True)


def pack(value: object) -> str:
    """Return the text of ``dump_stored``, compressed, for an answer of limited size."""
    return base64.b64encode(zlib.compress(_dump(value))).decode()


def unpack(kind: type[_Kind], text: str, where: str) -> _Kind:
    """Return the value of a text of ``pack``. Numbers and times may be any, because a cluster has them.

    Raises ConfigError as ``read_stored`` does.
    """
    try:
        content = zlib.decompress(base64.b64decode(text))
    except (ValueError, zlib.error) as error:
        raise ConfigError([f"{where}: not compressed JSON ({error}): ask again"]) from None
    adapter = _adapter(kind)
    value: _Kind = validated(
        lambda: adapter.validate_json(content, strict=True, extra="ignore"), where, adapter.json_schema
    )
    return value


def keep_unknown(kind: type, text: str, before: str) -> str:
    """Return the new text of an item, plus the fields of its previous text that only a newer release knows.

    Such a field is added to the object that had it before, if that object still has the same ``kind`` and ``name``.
    """
    try:
        value, before = _read(kind, before, "")
    except ConfigError:  # an unreadable previous text is overwritten
        return text
    known = _adapter(type(value)).dump_python(value, mode="json", by_alias=True)
    data = json.loads(text)
    merged = _with_unknown(data, json.loads(before), known)
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


# An adapter is built when its kind is first read or written, because a starting function needs only a few adapters.
_adapter: Callable[[type], TypeAdapter[Any]] = cache(lambda kind: TypeAdapter(_FORMS.get(kind, kind)))


def _dump(value: object) -> bytes:
    return _adapter(type(value)).dump_json(value, by_alias=True, exclude_defaults=True)


def _read(kind: type, text: str, where: str, extra: Literal["ignore", "forbid"] = "ignore") -> tuple[Any, str]:
    """Return a value and its text. Unless unknown fields are faults, both lack what ``_without`` drops."""
    adapter = _adapter(kind)
    strict = None if issubclass(kind, BaseModel) else True  # a record is as strict as its model says
    value: Any = None
    try:
        value = adapter.validate_json(text, strict=strict, extra=extra)
        faults = dict(islice(_faults(value, ()), MOST_LINES))
    except ValidationError as error:
        faults = {fault["loc"]: fault["msg"] for fault in error.errors()}
    if not faults:
        return value, text
    if extra == "ignore" and (kept := _without(text, faults, where)) != text:
        return _read(kind, kept, where)
    validated(lambda: adapter.validate_json(text, strict=strict, extra=extra), where, adapter.json_schema)
    raise ConfigError([f"{where}: {_joined(*path)} {problem}" for path, problem in faults.items()])


def _without(text: str, faults: Mapping[tuple[Any, ...], str], where: str) -> str:
    """Return the text of a pool's state without the entries of ``_DROPPED``, and the parts of capabilities, that have
    these faults.

    Another release may store them in another form.
    """
    places: dict[tuple[Any, ...], str] = {}
    for path, problem in faults.items():
        start = int(path[:1] == ("state",))  # a StoredPool has the PoolState in this field
        for place in _DROPPED:
            if path[start : start + len(place)] == place:
                places[path[: start + len(place) + 1]] = problem
        if path[start : start + 1] and path[start] in STORED_PARTS:
            places[path[: start + 1]] = problem
    if not places:
        return text
    data = json.loads(text)
    for place, problem in places.items():
        if where:  # else ``keep_unknown`` reads a previous text, whose reading has logged the part
            text = "dropped a stored part of a pool that cannot be read: %s: %s (of %s)"
            _log.warning(text, quote(place[-1]), problem, where)
        parent = data
        for part in place[:-1]:
            parent = parent[part]
        del parent[place[-1]]
    return json.dumps(data)


def _faults(value: object, path: tuple[object, ...]) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield the place of each number that is no count, and of each time that has no time zone or may overflow."""
    for name, part in _parts(value):
        if isinstance(part, datetime):
            if part.tzinfo is None or not EARLIEST < part < LATEST:
                problem = NO_MOMENT if part.tzinfo is None else "write a time from 2000 to 2199"
                yield (*path, name), f"is {quote(part.isoformat())}: {problem}"
        elif isinstance(part, int):
            if not 0 <= part <= LARGEST_COUNT and _ANY_NUMBER.isdisjoint((*path, name)):
                yield (*path, name), f"is {quote(part)}: write a whole number, 0 to {LARGEST_COUNT}"
        elif not isinstance(part, str | None):
            yield from _faults(part, (*path, name))


def _parts(value: object) -> Iterable[tuple[object, object]]:
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, tuple):
        return enumerate(value)
    if (flat := _FLAT.get(type(value))) is not None:
        value = flat(value)
    return [(field.name, getattr(value, field.name)) for field in fields(value)] if is_dataclass(value) else ()


def _joined(*path: object) -> str:
    return ".".join(map(str, path))
