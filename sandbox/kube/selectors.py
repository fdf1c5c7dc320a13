"""Label and field selectors of list requests, and the selectors in objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from sandbox.kube.errors import ApiError
from sandbox.kube.schema import Json, Object

Labels = Mapping[str, str]

_KEY = r"[A-Za-z0-9][A-Za-z0-9._/-]*"
_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?\Z")
_SET = re.compile(rf"^({_KEY})\s+(in|notin)\s+\(([^()]*)\)$")
_EQUAL = re.compile(rf"^({_KEY})\s*(==|=|!=)\s*([A-Za-z0-9._-]*)$")
_EXISTS = re.compile(rf"^(!?)\s*({_KEY})$")


def parse_label_selector(text: str) -> Callable[[Labels], bool]:
    """Return a predicate for equality and set based terms, joined by commas. Raises ApiError 400 for other texts."""
    # a comma inside parentheses belongs to the set
    terms = [term.strip() for term in re.split(r",(?![^()]*\))", text) if text.strip()]
    checks = [_label_term(term) for term in terms]
    return lambda labels: all(check(labels) for check in checks)


def _label_term(term: str) -> Callable[[Labels], bool]:
    if match := _SET.match(term):
        key, operator, values = match[1], match[2], {value.strip() for value in match[3].split(",")}
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _EQUAL.match(term):
        key, operator, value = match[1], match[2], match[3]
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if match := _EXISTS.match(term):
        key, absent = match[2], bool(match[1])
        return lambda labels: (key in labels) != absent
    raise ApiError(400, f"unable to parse requirement: {term!r} is no label requirement")


def selects(selector: Object | None, labels: Labels) -> bool:
    """Return whether a label selector matches; None matches nothing, an empty selector matches everything."""
    if selector is None:
        return False
    equal = (labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return all(equal) and all(
        is_readable(item) and holds(item, labels) for item in selector.get("matchExpressions") or ()
    )


def is_readable(requirement: Object) -> bool:
    """Return whether every value of an expression is valid for a label; an invalid expression matches nothing."""
    return all(len(value) <= 63 and _VALUE.match(value) for value in requirement.get("values") or ())


def holds(requirement: Object, labels: Labels) -> bool:
    """Return whether one expression of a selector holds."""
    key, operator, values = requirement["key"], requirement["operator"], requirement.get("values") or []
    if operator in ("NotIn", "DoesNotExist"):
        return key not in labels or (operator == "NotIn" and labels[key] not in values)
    if key not in labels or operator == "Exists":
        return key in labels
    if operator == "In":
        return labels[key] in values
    try:
        number, limit = int(labels[key]), int(values[0])
    except ValueError:
        return False
    return number > limit if operator == "Gt" else number < limit


def parse_field_selector(text: str, selectable: Collection[str]) -> Callable[[Json], bool]:
    """Return a predicate. Every kind has metadata.name and metadata.namespace; few have more fields (`selectable`)."""
    checks: list[Callable[[Json], bool]] = []
    for term in filter(None, (part.strip() for part in text.split(","))):
        match = re.match(r"^([A-Za-z0-9_.\[\]-]+)(!=|==|=)(.*)$", term)
        if match is None:
            raise ApiError(400, f"invalid selector: '{term}'; can't understand '{term}'")
        path, negated, value = match[1], match[2] == "!=", match[3]
        if path not in ("metadata.name", "metadata.namespace", *selectable):
            raise ApiError(400, f"field label not supported: {path}")
        checks.append(_field_check(path.split("."), negated, value))
    return lambda item: all(check(item) for check in checks)


def _field_check(path: list[str], negated: bool, value: str) -> Callable[[Json], bool]:
    def check(item: Json) -> bool:
        for part in path:
            item = item.get(part, "") if isinstance(item, dict) else ""
        text = str(item).lower() if isinstance(item, bool) else str(item)
        return (text == value) != negated

    return check
