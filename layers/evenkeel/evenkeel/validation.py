"""Strict validation of input from people, other programs and operator actions.

One error reports all bad values. It has a line for each, with the object, the field, the value and what to do.
"""

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from evenkeel.domain.model.values import LARGEST_COUNT, near, quote


class ConfigError(ValueError):
    """A record, an item or a setting has bad values. ``faults`` has one line for each value."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class Strict(BaseModel):
    """A model that rejects unknown fields and is immutable."""

    # defer_build: each model is built at its first use, because a starting function uses only a few models.
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, defer_build=True)


Model = TypeVar("Model", bound=BaseModel)
_T = TypeVar("_T")
# The most lines of one error. In a file of the wrong kind, every line may be a fault.
MOST_LINES = 50


def read_model(model: type[Model], data: object, where: str) -> Model:
    """Return ``data`` as ``model``. Raises ConfigError: one line per bad value, each starting with ``where``."""
    return validated(lambda: model.model_validate(data), where, model.model_json_schema)


def validated(read: Callable[[], _T], where: str, json_schema: Callable[[], dict[str, Any]]) -> _T:
    """Return the result of ``read``. An error about an unknown field suggests a similar field of the schema.

    Raises:
        ConfigError: one line per bad value, each starting with ``where``.
    """
    try:
        return read()
    except ValidationError as error:
        faults: list[dict[str, Any]] = [dict(fault) for fault in error.errors(include_url=False)]
        # Pydantic also reports a list as "too short" if its only entry is wrong. The line about the entry is enough.
        inside = {fault["loc"][:end] for fault in faults for end in range(len(fault["loc"]))}
        faults = [fault for fault in faults if fault["type"] != "too_short" or fault["loc"] not in inside]
        lines = [_line(where, fault, json_schema) for fault in faults[:MOST_LINES]]
        more = len(faults) - len(lines)
        raise ConfigError([*lines, *([f"{where}: {more} more values are bad"] if more else [])]) from None


def _fields_at(root: dict[str, Any], path: Sequence[str | int]) -> list[str]:
    """Return the valid field names at a path of a JSON schema; none if the schema has no such path."""
    schema = root
    form: dict[str, Any]
    for part in (*path, None):
        while "$ref" in schema or "anyOf" in schema:
            # If the schema has several forms, the form with fields or entries is used.
            forms = schema.get("anyOf", [schema])
            form = next((form for form in forms if "$ref" in form or form.get("type") in ("object", "array")), {})
            schema = root["$defs"][form["$ref"].rpartition("/")[2]] if "$ref" in form else form
        if part is not None:
            inner = schema.get("items") if isinstance(part, int) else schema.get("properties", {}).get(part)
            schema = inner or {}
    return list(schema.get("properties", ()))


def read_json(model: type[Model], text: str, where: str) -> Model:
    """Return a JSON text as ``model``. Raises ConfigError if it is not JSON or has a bad value."""
    return read_model(model, parse_json(text, where), where)


def parse_json(text: str, where: str) -> Any:
    """Return the value of a JSON text. Raises ConfigError if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError([f"{where}: not JSON: {error}"]) from None


_ACCESSES = (("access",), ("garden",))  # the fields that say how a cluster is reached
_KINDS = "'eks', 'aws-oidc', 'service-account', 'kubeconfig', 'auto-scaling'"
# Pydantic's paths contain these names for the two forms of a record's ``pools`` and ``scan_interval``, but no record
# contains them.
LISTED, DISCOVERED, WORD, NUMBER = _FORMS = ("<list>", "<object>", "<word>", "<number>")
# No error quotes the values of these fields, because they may contain a password, a token or a key by mistake.
_SECRET = ("endpoint", "ca_data", "token", "shoot_relief")
NO_MOMENT = "no moment with a time zone: write RFC 3339, such as 2026-01-31T12:00:00Z"
# The fields of records that former releases had, with what to do instead.
REMOVED_FIELDS = {
    "look_role_arn": "is now check_role_arn: rename it",
    "share_offerings": "is gone: clusters no longer share capacity reports; delete it",
    "suspect_provision_time": "is gone: set the autoscaler's --max-node-provision-time instead",
}
_PROBLEMS = {
    "datetime": NO_MOMENT,
    "timezone": NO_MOMENT,
    "model": "no object: write it with named fields",
    "dataclass": "no object: write it with named fields",
    "dict": "no object: write it with named fields",
    "tuple": "no list: write it as one",
    "list": "no list: write it as one",
}


def _line(where: str, fault: dict[str, Any], json_schema: Callable[[], dict[str, Any]]) -> str:
    kind, loc = fault["type"], fault["loc"]
    if kind.startswith("union_tag_"):
        return _unknown_kind(where, fault)
    # Pydantic's path also contains the access's kind, although the record has no field of that name.
    parts = [part for place, part in enumerate(loc) if part not in _FORMS and loc[place - 1 : place] not in _ACCESSES]
    path = ".".join(map(str, parts)) or "the whole"
    if kind == "json_invalid":
        return f"{where}: not JSON: {fault['ctx']['error']}"
    if kind == "missing":
        return f"{where}: {path} is missing"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        if loc[-1] in REMOVED_FIELDS:
            return f"{where}: {path} {REMOVED_FIELDS[loc[-1]]}"
        hint = near(loc[-1], _fields_at(json_schema(), loc[:-1]))
        return f"{where}: {path} is not a field of this record: remove it or correct its name{hint}"
    problem = _PROBLEMS.get(kind.partition("_")[0], str(fault["msg"]).removeprefix("Value error, "))
    if kind == "too_short" and not fault["input"]:
        problem = "empty: write one or more"
    if kind == "string_too_short" and not fault["input"]:
        problem = "empty: write a value"
    if loc[-1:] in _ACCESSES or (loc and loc[-1] in _SECRET):
        return f"{where}: {path}: {problem}"
    if kind == "value_error" and fault["input"] is None:
        return f"{where}: {path} is missing: {problem}"
    choices = re.findall("'([^']+)'", str(fault.get("ctx", {}).get("expected", "")))
    choices = choices or list(getattr(fault.get("ctx", {}).get("error"), "choices", ()))
    return f"{where}: {path} is {quote(fault['input'])}: {problem}{near(fault['input'], choices)}"


def _unknown_kind(where: str, fault: dict[str, Any]) -> str:
    """Return the line about an access of an unknown kind. It quotes only the kind: other fields may contain a token."""
    choices = re.findall("'([^']+)'", str(fault.get("ctx", {}).get("expected_tags", _KINDS)))
    kinds, path = ", ".join(choices), ".".join(map(str, fault["loc"]))
    if fault["type"] == "union_tag_not_found":
        return f"{where}: {path}.kind is missing: it is one of {kinds}"
    kind = fault["ctx"]["tag"]
    return f"{where}: {path}.kind is {quote(kind)}: it is one of {kinds}{near(kind, choices)}"


# Beyond these times, adding a backoff or an offset could overflow.
EARLIEST, LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)


Moment = Annotated[AwareDatetime, Field(gt=EARLIEST, lt=LATEST), AfterValidator(lambda moment: moment.astimezone(UTC))]
Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT, strict=True)]
KubernetesName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
PoolName = Annotated[str, Field(min_length=1, max_length=600)]
ClusterId = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9._]{0,98}[a-z0-9])?$")]
