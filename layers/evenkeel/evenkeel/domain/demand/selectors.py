"""Label selectors and node selector terms.

Sources: apimachinery pkg/labels/selector.go; component-helpers scheduling/corev1/nodeaffinity/nodeaffinity.go:55-330.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from evenkeel.domain.model.workload import NodeSelectorTerm, Requirement, Selector

_NAME_FIELD = "metadata.name"
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_LARGEST = 2**63 - 1
# apimachinery pkg/util/validation: IsQualifiedName, IsValidLabelValue, IsDNS1123Subdomain.
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_DOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_LONGEST_DOMAIN = 253


def matches(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Return True if labels match every requirement of a selector.

    The selector None matches no labels, and an empty selector matches all labels. A selector with an invalid
    requirement matches no labels, as in disruption budgets.
    """
    return selector is not None and all(
        _holds(requirement, labels) and _parses(requirement) for requirement in selector
    )


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    number, bound = _integer(value), _integer(requirement.values[0] if requirement.values else None)
    if number is None or bound is None:
        return False
    return number > bound if requirement.operator == "Gt" else number < bound


def _integer(text: str | None) -> int | None:
    """Return the number that Go's ``strconv.ParseInt`` would return; None: it would return an error."""
    if text is None or len(text) > 20 or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -_LARGEST - 1 <= number <= _LARGEST else None


def any_term_matches(terms: Iterable[NodeSelectorTerm], labels: Mapping[str, str], name: str) -> bool:
    """Return True if any term matches a node with these labels and this name.

    A term without requirements matches no node. An invalid term is skipped.
    """
    return any(_term_matches(term, labels, name) for term in terms)


def _term_matches(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    if not term.expressions and not term.fields:
        return False
    return matches(term.expressions, labels) and all(
        _field_parses(requirement) and _holds(requirement, {_NAME_FIELD: name}) for requirement in term.fields
    )


@lru_cache(maxsize=4096)
def _parses(requirement: Requirement) -> bool:
    """Return True if the scheduler accepts a requirement as valid (labels.NewRequirement)."""
    if not _is_label_key(requirement.key) or not all(map(_is_label_value, requirement.values)):
        return False
    match requirement.operator:
        case "In" | "NotIn":
            return bool(requirement.values)
        case "Exists" | "DoesNotExist":
            return not requirement.values
        case "Gt" | "Lt":
            return len(requirement.values) == 1 and _integer(requirement.values[0]) is not None
    return False


def _is_label_key(key: str) -> bool:
    domain, slash, name = key.rpartition("/")
    if slash and (len(domain) > _LONGEST_DOMAIN or not _DOMAIN.fullmatch(domain)):
        return False
    return _NAME.fullmatch(name) is not None


def _is_label_value(value: str) -> bool:
    return not value or _NAME.fullmatch(value) is not None


def _field_parses(requirement: Requirement) -> bool:
    """Return True if a field requirement is valid. The only valid field is the node's name, with exactly one value."""
    return requirement.key == _NAME_FIELD and requirement.operator in ("In", "NotIn") and len(requirement.values) == 1


def selects_by_node(terms: Iterable[NodeSelectorTerm] | None, label: str) -> bool:
    """Return True if any term selects by node name or by this label. Such a term may match single nodes of a shape."""
    return any(bool(term.fields) or any(item.key == label for item in term.expressions) for term in terms or ())
