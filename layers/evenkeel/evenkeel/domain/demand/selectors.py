"""Label selectors and node selectors: what matches what.

apimachinery pkg/labels/selector.go; component-helpers scheduling/corev1/nodeaffinity/nodeaffinity.go:55-330.
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
    """Whether labels match every requirement. No selector matches nothing, an empty one everything.

    One of which a requirement does not parse matches nothing: so the API server has it of a disruption budget.
    """
    return selector is not None and all(
        _holds(requirement, labels) and _parses(requirement) for requirement in selector
    )


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    found = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return found in requirement.values
        case "NotIn":
            return found not in requirement.values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
    ours, theirs = _integer(found), _integer(requirement.values[0] if requirement.values else None)
    if ours is None or theirs is None:
        return False
    return ours > theirs if requirement.operator == "Gt" else ours < theirs


def _integer(text: str | None) -> int | None:
    """As Go's ``strconv.ParseInt`` reads it; None: it does not."""
    if text is None or len(text) > 20 or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -_LARGEST - 1 <= number <= _LARGEST else None


def any_term_matches(terms: Iterable[NodeSelectorTerm], labels: Mapping[str, str], name: str) -> bool:
    """Whether any of these terms matches a node of these labels and this name.

    A term without a requirement matches nothing, and one that does not parse is passed over.
    """
    return any(_term_matches(term, labels, name) for term in terms)


def _term_matches(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    if not term.expressions and not term.fields:
        return False
    of_node = {_NAME_FIELD: name}
    return matches(term.expressions, labels) and all(
        _field_parses(requirement) and _holds(requirement, of_node) for requirement in term.fields
    )


@lru_cache(maxsize=4096)
def _parses(requirement: Requirement) -> bool:
    """Return whether the scheduler can read a requirement (labels.NewRequirement).

    A value that no label can have does not parse, also where its absence is asked for.
    """
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
    """Of a node's fields only its name can be asked for, and one name at a time."""
    return requirement.key == _NAME_FIELD and requirement.operator in ("In", "NotIn") and len(requirement.values) == 1


def names_a_node(terms: Iterable[NodeSelectorTerm] | None, label: str) -> bool:
    """Whether any term speaks of a node by its name or by this label, so that nodes that look alike differ for it."""
    return any(
        bool(term.fields) or any(requirement.key == label for requirement in term.expressions) for term in terms or ()
    )
