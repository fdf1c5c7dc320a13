"""Reads objects as structs, which name each field that Evenkeel reads, with its type and its default."""

import logging
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin

from msgspec import Struct, ValidationError, convert, structs

from evenkeel.adapters.kubernetes.objects import name_of
from evenkeel.domain.model.values import printable, quote_without_secrets

_log = logging.getLogger("evenkeel.kubernetes")


class Fields(Struct, frozen=True, gc=False, rename="camel"):
    """The fields of an object that Evenkeel reads. Each field has a default, which also replaces null."""


_Fields = TypeVar("_Fields", bound=Fields)


def read_fields(wanted: type[_Fields], item: Mapping[str, Any]) -> _Fields:
    """Return the fields of an object. A field with a value of a wrong type is logged, and counts as missing.

    An object's wrong fields are one line of the log, which shows the first of them.
    """
    try:
        return convert(item, wanted)
    except ValidationError:
        wrong: list[str] = []
        found: _Fields = _fitting(item, wanted, "", wrong)
        if wrong:
            ignored = "the field is" if len(wrong) == 1 else f"all {len(wrong)} fields of a wrong type are"
            _log.warning("%s: %s; %s ignored", _name(item), wrong[0], ignored)
        return found


def _name(item: Mapping[str, Any]) -> str:
    """Return an object's kind and name on one line. Objects of files can have any text as a name."""
    parts = (item.get("kind"), "/".join(name_of(item)))
    return " ".join(printable(part[:300]) for part in parts if isinstance(part, str))


def _fitting(value: Any, wanted: Any, where: str, wrong: list[str]) -> Any:
    """Return the parts of a value that have the wanted type, or None. Describe the other parts in ``wrong``."""
    if value is None:
        return None
    if get_origin(wanted) is tuple and isinstance(value, list):
        entries = [_fitting(entry, get_args(wanted)[0], f"{where}[{i}]", wrong) for i, entry in enumerate(value)]
        return tuple(entry for entry in entries if entry is not None)
    if isinstance(wanted, type) and issubclass(wanted, Fields) and isinstance(value, dict):
        parts = {
            field.name: _fitting(value.get(field.encode_name), field.type, f"{where}.{field.encode_name}", wrong)
            for field in structs.fields(wanted)
        }
        return wanted(**{name: part for name, part in parts.items() if part is not None})
    try:
        return convert(value, wanted)
    except ValidationError as error:
        wrong.append(f"{where.removeprefix('.')} is {quote_without_secrets(value)}: {error}")
        return None
