"""Reads attributes of DynamoDB items. An item that cannot be read concerns only its own cluster, offering or alert.

Every read of an attribute goes through here, so that a missing one, or one of another type, is one kind of error.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from evenkeel.domain.model.values import quote
from evenkeel.validation import ConfigError

Item = Mapping[str, Any]


def text(item: Item, name: str) -> str:
    """Return an attribute of type S. Raises ConfigError."""
    value = item[name].get("S") if isinstance(item.get(name), Mapping) else None
    if isinstance(value, str):
        return value
    raise _unreadable(item, name, "a string (S)")


def whole(item: Item, name: str) -> int:
    """Return an attribute of type N that is a whole number. Raises ConfigError."""
    number = seconds(item, name)
    if number.is_integer():
        return int(item[name]["N"]) if item[name]["N"].isdigit() else int(number)
    raise _unreadable(item, name, "a whole number (N)")


def seconds(item: Item, name: str) -> float:
    """Return an attribute of type N. Raises ConfigError."""
    value = item[name].get("N") if isinstance(item.get(name), Mapping) else None
    try:
        if isinstance(value, str):
            return float(value)
    except ValueError:
        pass
    raise _unreadable(item, name, "a number (N)")


def moment(item: Item, name: str) -> datetime:
    """Return an attribute of type N that is a time, in seconds since 1970. Raises ConfigError."""
    try:
        return datetime.fromtimestamp(seconds(item, name), UTC)
    except (ValueError, OverflowError, OSError):
        raise _unreadable(item, name, "a time in seconds since 1970 (N)") from None


def key_of(item: Item) -> str:
    """Return the item's two keys, for people. The table's schema gives both their type."""
    return f"{item['pk']['S']} {item['sk']['S']}"


def _unreadable(item: Item, name: str, wanted: str) -> ConfigError:
    """Quotes no text: it may be large, and some of it is nobody's business."""
    value = item.get(name) or {}
    found = f"is {quote(value['N'])}" if "N" in value else f"has type {next(iter(value))}" if value else "is missing"
    return ConfigError([f"{key_of(item)}: {name} {found}: write {wanted}"])
