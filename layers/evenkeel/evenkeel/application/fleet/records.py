"""Cluster records in files: the differences of records, fleet files, and JSON Schemas for editors.

A fleet file lists clusters. The file's defaults, labels and included files apply to all of these clusters.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from evenkeel.domain.model.choices import DemandStage, Level, OnFailure
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.values import quote
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from evenkeel.record import OTHER_NAMES, ClusterLabels, ClusterRecord, Registration
from evenkeel.validation import ConfigError, Strict, read_model

Json = dict[str, Any]
# Fields whose values are not shown, because they are long. One of them is an encrypted token.
_UNSHOWN = ("ca_data", "token")
_MOST_INCLUDED = 1000
_LONGEST_SHOWN = 100
_ORDER = " (order)"


class FleetFile(Strict):
    """A fleet file. A cluster overrides the labels and defaults of its file.

    A file overrides its includes, and a later include overrides an earlier include. Objects are merged by field. All
    other values are replaced.
    """

    include: tuple[str, ...] = ()  # paths, relative to this file
    defaults: dict[str, Any] = Field(default_factory=dict)  # record fields for all clusters of the file
    labels: ClusterLabels = Field(default_factory=dict)
    clusters: tuple[dict[str, Any], ...] = Field(default=())


def record_json(record: ClusterRecord) -> Json:
    """Return a record as an operator would write it: without defaults, and in the usual order."""
    document = record.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    usual = {
        name: field.get_default(call_default_factory=True)
        for name, field in ClusterRecord.model_fields.items()
        if field.default_factory is not None
    }
    same = {name for name, value in usual.items() if getattr(record, name) == value and name != "flavours"}
    return {"id": record.id, **{name: value for name, value in document.items() if name not in same}}


def digest_of(record: ClusterRecord | str | None) -> str | None:
    """Return the fingerprint of a record, or of the fault of an invalid record; None if there is no record."""
    if record is None:
        return None
    text = record if isinstance(record, str) else json.dumps(record_json(record), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def changes(before: ClusterRecord | None, after: ClusterRecord) -> list[Json]:
    """Return the differences. ``from`` and ``to`` are short texts, or null if a record lacks the ``field``."""
    old = {} if before is None else dict(_fields(record_json(before)))
    new = dict(_fields(record_json(after)))
    return [
        {"field": field, "from": _shown(field, old), "to": _shown(field, new)}
        for field in dict.fromkeys((*old, *new))
        if old.get(field) != new.get(field) and not _is_reported_otherwise(field, old, new)
    ]


def _fields(document: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        place = f"{path}.{name}" if path else name
        if named := _by_name(value):
            yield from _fields(named, place)
            if isinstance(value, list):
                yield f"{place}{_ORDER}", list(named)
        else:
            yield place, value


def _is_reported_otherwise(field: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return True for the order of a list if ``changes`` already reports that entries were added or removed."""
    return field.endswith(_ORDER) and sorted(old.get(field, ())) != sorted(new.get(field, ()))


def _shown(field: str, values: Mapping[str, Any]) -> str | None:
    if field not in values:
        return None
    value = values[field]
    text = value if isinstance(value, str) else json.dumps(value)
    if field.rpartition(".")[2] in _UNSHOWN:
        return f"not shown, {hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}... ({len(text)} characters)"


def _by_name(value: object) -> Mapping[str, Any]:
    """Return the parts of an object or of a list of pools, by name; empty if the value is compared as a whole."""
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) and "name" in entry for entry in value):
        return {}
    named = {"/".join(filter(None, (entry.get("namespace"), entry["name"]))): entry for entry in value}
    return named if len(named) == len(value) else {str(place): entry for place, entry in enumerate(value)}


def read_fleet(files: Sequence[str], read: Callable[[str], object], join: Callable[[str, str], str]) -> Json:
    """Return the complete records of all clusters by id, in the order of their files.

    Args:
        files: Names of files. Their includes are read as well.
        read: Returns the document of a file. Raises ConfigError.
        join: Returns an included file's name. Its arguments: the including file's name, and the path in ``include``.

    Raises:
        ConfigError: One line per fault, with its file. If any file has a fault, no record is returned.
    """
    return _Fleet(read, join).records(files)


class _Fleet:
    """The files of a fleet, each read once."""

    def __init__(self, read: Callable[[str], object], join: Callable[[str, str], str]) -> None:
        self._read = read
        self._join = join
        self._files: dict[str, FleetFile] = {}
        self._faults: list[str] = []
        self._known_defaults: dict[str, Json] = {}

    def records(self, files: Sequence[str]) -> Json:
        records: Json = {}
        places: dict[str, str] = {}
        for file in files:
            self._load(file, ())
        for file, content in self._files.items():
            defaults = self._defaults(file)
            for number, cluster in enumerate(content.clusters, 1):
                id = cluster.get("id")
                where = f"{file}: cluster {id if isinstance(id, str) else number}"
                if isinstance(id, str) and id in records:
                    self._faults.append(f"{where} is in {places[id]} too: keep one of the two")
                    continue
                try:
                    record = read_model(ClusterRecord, _merged(defaults, cluster), where)
                except ConfigError as error:
                    self._faults += error.faults
                else:
                    records[record.id], places[record.id] = record_json(record), file
        if self._faults:
            raise ConfigError(self._faults)
        return records

    def _load(self, file: str, including: tuple[str, ...]) -> None:
        if file in including:
            self._faults.append(f"{file}: it includes itself, by way of {' and '.join(including)}")
        if file in self._files or file in including or len(self._files) >= _MOST_INCLUDED:
            return
        try:
            document = self._read(file)
            if not isinstance(document, Mapping):  # the error does not quote the content
                raise ConfigError([f"{file}: no file of a fleet: write an object with clusters"])
            content = read_model(FleetFile, document, file)
            if "id" in content.defaults:
                raise ConfigError([f"{file}: defaults.id is {quote(content.defaults['id'])}: each cluster has its own"])
        except ConfigError as error:
            self._faults += error.faults
            content = FleetFile()
        for path in content.include:
            self._load(self._join(file, path), (*including, file))
        self._files[file] = content

    def _defaults(self, file: str, including: tuple[str, ...] = ()) -> Json:
        if file in self._known_defaults:
            return self._known_defaults[file]
        content = self._files.get(file, FleetFile())
        defaults: Json = {}
        for path in content.include:
            included = self._join(file, path)
            if included not in (*including, file):  # ``_load`` has already reported a cycle
                defaults = _merged(defaults, self._defaults(included, (*including, file)))
        labels = {"labels": content.labels} if content.labels else {}
        self._known_defaults[file] = _merged(_merged(defaults, content.defaults), labels)
        return self._known_defaults[file]


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Json:
    """Return ``below``, overridden by ``above``. Null removes a field. Accesses of two kinds are not merged."""
    names = {OTHER_NAMES.get(name, name) for name in above}
    merged = {name: value for name, value in below.items() if name in above or OTHER_NAMES.get(name, name) not in names}
    for name, value in above.items():
        before = merged.get(name)
        if isinstance(before, Mapping) and isinstance(value, Mapping) and not _is_another_kind(before, value):
            merged[name] = _merged(before, value)
        elif value is None:
            merged.pop(name, None)
        else:
            merged[name] = value
    return merged


def _is_another_kind(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return "kind" in before and "kind" in after and before["kind"] != after["kind"]


# ---------------------------------------------------------------- schemas, for editors

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def record_schema() -> Json:
    """Return the schema of a record as ``register`` accepts it."""
    of_groups = {"properties": {"access": {"properties": {"kind": {"const": AUTO_SCALING}}}}}  # its flavour is certain
    has_flavours = {"anyOf": [{"required": ["flavours"]}, of_groups]}
    return {"$schema": _DRAFT, **_schema(Registration, required=["access"]), **has_flavours}


def fleet_schema() -> Json:
    """Return the schema of a fleet file. A cluster requires only its id, because defaults may have the other fields."""
    record = _schema(ClusterRecord, required=[])
    definitions = record.pop("$defs")
    for access in definitions.values():  # no field is required, because the defaults may contain the kind of access
        if "kind" in access.get("properties", {}):
            del access["required"]
    record["properties"]["access"] = {"anyOf": record["properties"]["access"]["oneOf"]}
    fleet = FleetFile.model_json_schema()
    properties = fleet["properties"]
    properties["defaults"] = {**record, "properties": {**record["properties"]}, "title": "Defaults"}
    del properties["defaults"]["properties"]["id"]
    properties["clusters"]["items"] = {**record, "required": ["id"]}
    return {"$schema": _DRAFT, **fleet, "$defs": {**fleet.get("$defs", {}), **definitions}}


def _schema(model: type[ClusterRecord], required: Sequence[str]) -> Json:
    """Return the model's schema, with GEP-24's field names, and with examples of values that ignore letter case."""
    schema = model.model_json_schema()
    for part in (schema, *schema["$defs"].values()):
        properties = part.get("properties", {})
        words: dict[str, list[str]] = {
            "strategy": [one.name for one in STRATEGIES],
            "on_failure": [one.value for one in OnFailure],
            "level": [one.value for one in Level],
            "demand": [one.value for one in DemandStage],
        }
        for field, examples in words.items():
            if field in properties:
                properties[field]["examples"] = examples
        for other, name in OTHER_NAMES.items():
            if name in properties:
                properties[other] = {**properties[name], "description": f"another name of {name}"}
    schema["required"] = list(required)
    return schema
