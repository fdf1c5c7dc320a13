"""Templates of a group's nodes: resources, labels and taints, as far as an object names them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from evenkeel.domain.model.templates import NodeTemplate, Taint
from evenkeel.domain.model.values import quote

# The syntax of names and values of labels and taints (apimachinery, pkg/util/validation: IsQualifiedName,
# IsValidLabelValue). No node can have other names or values.
_NAME = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_PREFIX = r"(?=[^/]{1,253}/)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/"
_KEY = re.compile(f"({_PREFIX})?{_NAME}", re.ASCII)
_VALUE = re.compile(f"({_NAME})?", re.ASCII)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_WRITE_TAINTS = f"write key=value:Effect, Effect one of {', '.join(_EFFECTS)}"


def merged(stronger: NodeTemplate, weaker: NodeTemplate) -> NodeTemplate:
    """Return both templates as one. Where both have a value, the value of ``stronger`` is used.

    Values are compared for each resource, each label, and each pair of a taint's key and effect. The precedence is
    Cluster Autoscaler's: annotations override everything else (clusterapi_unstructured.go, Labels, Taints and
    InstanceCapacity).
    """
    return NodeTemplate(
        capacity={**weaker.capacity, **stronger.capacity},
        allocatable=_both(stronger.allocatable, weaker.allocatable),
        free=_both(stronger.free, weaker.free),
        labels={**weaker.labels, **stronger.labels},
        taints=_last_of_each((*weaker.taints, *stronger.taints)),
        source=", then ".join(dict.fromkeys(item.source for item in (stronger, weaker) if item.source)),
    )


def _both(
    stronger: Mapping[str, Fraction] | None, weaker: Mapping[str, Fraction] | None
) -> Mapping[str, Fraction] | None:
    """Return both mappings as one; None (unknown) if both are None. An empty mapping means "no resources"."""
    if stronger is None or weaker is None:
        return weaker if stronger is None else stronger
    return {**weaker, **stronger}


def _last_of_each(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """Return one taint per key and effect: the last one, at the position of the first."""
    return tuple({(taint.key, taint.effect): taint for taint in taints}.values())


def read_labels(text: str) -> tuple[dict[str, str], list[str]]:
    """Return the labels of annotation ``capacity.cluster-autoscaler.kubernetes.io/labels``, and the text's faults.

    The text is ``key=value,key2=value2``, read as Cluster Autoscaler reads it (clusterapi_unstructured.go, Labels). The
    value begins after the first ``=``. An entry without ``=`` is left out. Spaces are kept.
    """
    labels = {}
    problems = []
    for part in _parts(text):
        key, equals, value = part.partition("=")
        if not equals:
            problems.append(f"{quote(part)} is no label and left out: write key=value, separated by commas")
            continue
        problems += _odd(part, key, value)
        labels[key] = value
    return labels, problems


def read_taints(text: str) -> tuple[tuple[Taint, ...], list[str]]:
    """Return the taints of annotation ``capacity.cluster-autoscaler.kubernetes.io/taints``, and the text's faults.

    The text is ``key=value:Effect,key2:Effect``, read as Cluster Autoscaler reads it (clusterapi_unstructured.go,
    parseTaint). Value and effect may be missing, and the effect may be any word. An entry is left out if it has another
    form, or a key or value that no node can have. Of entries with the same key and effect, the last one is used.
    """
    taints = []
    problems = []
    for part in _parts(text):
        spec, colon, effect = part.partition(":")
        key, _, value = spec.partition("=") if colon else (spec, "", "")
        if ":" in effect or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            problems.append(f"{quote(part)} is no taint and left out: {_WRITE_TAINTS}")
            continue
        if effect not in _EFFECTS:
            problems.append(f"{quote(part)} keeps no pod away: {_WRITE_TAINTS}")
        taints.append(Taint(key, value, effect))
    return _last_of_each(taints), problems


def _parts(text: str) -> Iterator[str]:
    return (part for part in text.split(",") if part)


def _odd(part: str, key: str, value: str) -> list[str]:
    """Return why no node can have this label, although Cluster Autoscaler accepts it."""
    if not _KEY.fullmatch(key):
        return [f"{quote(part)}: {quote(key)} is no key that a node can have: write name or prefix/name"]
    if not _VALUE.fullmatch(value):
        return [
            f"{quote(part)}: {quote(value)} is no value that a node can have: "
            "at most 63 letters, digits, '-', '_' and '.', ends alphanumeric"
        ]
    return []
