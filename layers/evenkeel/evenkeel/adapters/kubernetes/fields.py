"""Reads objects as structs, which name each field that Evenkeel reads, with its type and its default."""

import logging
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin

from msgspec import Struct, ValidationError, convert, structs

from evenkeel.adapters.kubernetes.objects import name_of
from evenkeel.domain.model.values import quote

_log = logging.getLogger("evenkeel.kubernetes")


class Fields(Struct, frozen=True, gc=False, rename="camel"):
    """The fields of an object that Evenkeel reads. Each field has a default, which also replaces null."""


_Fields = TypeVar("_Fields", bound=Fields)


def read_fields(wanted: type[_Fields], item: Mapping[str, Any]) -> _Fields:
    """Return the fields of an object. A field with a value of a wrong type is logged, and counts as missing."""
    try:
        return convert(item, wanted)
    except ValidationError:
        wrong: list[str] = []
        found: _Fields = _fitting(item, wanted, "", wrong)
        for problem in wrong:
            _log.warning("%s %s: %s; the field is ignored", item.get("kind"), "/".join(name_of(item)), problem)
        return found


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
        wrong.append(f"{where.removeprefix('.')} is {quote(value)}: {error}")
        return None
