"""Sets of similar node groups, by Cluster Autoscaler's rule for balancing."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from fractions import Fraction
from typing import Any, Generic, Protocol, TypeVar

from evenkeel.domain.model.similarity import Similarity
from evenkeel.domain.model.templates import NodeTemplate


class _Ordered(Hashable, Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=_Ordered)


class _Set(Generic[K]):
    """Groups of one kind that are all similar to one another.

    A group that is near the least and the most of every amount in it is near everything between. So two comparisons
    replace one with every member.
    """

    def __init__(self, key: K, template: NodeTemplate) -> None:
        self.keys = [key]
        self.least = self.most = template

    def takes(self, template: NodeTemplate, rule: Similarity) -> bool:
        return rule.near(self.least, template) and (self.most is self.least or rule.near(self.most, template))

    def add(self, key: K, template: NodeTemplate) -> None:
        self.keys.append(key)
        self.least = _extreme(min, self.least, template)
        self.most = _extreme(max, self.most, template)


def _extreme(pick: Callable[[Fraction, Fraction], Fraction], a: NodeTemplate, b: NodeTemplate) -> NodeTemplate:
    """Return a template with the lesser, or the larger, of every amount in which two near nodes may differ."""

    def picked(a: Mapping[str, Fraction] | None, b: Mapping[str, Fraction] | None) -> Mapping[str, Fraction] | None:
        if a is None or b is None:
            return b if a is None else a
        return {resource: pick(amount, b[resource]) for resource, amount in a.items()}

    return NodeTemplate(
        capacity={"memory": pick(a.capacity["memory"], b.capacity["memory"])},
        allocatable=picked(a.allocatable, b.allocatable),
        free=picked(a.free, b.free),
    )


def find_sets(templates: Mapping[K, NodeTemplate], rule: Similarity) -> list[tuple[K, ...]]:
    """Return the groups in sets, each in exactly one. Sets and members are in the order of their keys.

    "Similar" is no equivalence: of three groups the first may be similar to the second and the second to the third,
    but not the first to the third. Cluster Autoscaler compares anew for each group that it grows; a pool needs one
    answer. Here all members of a set are similar to one another. Within a kind (labels and exact amounts), each group
    joins the first set that it fits, from the least memory up, equals by allocatable and free. Names do not count. If
    similarity is an equivalence, the sets are its classes.
    """
    kinds: dict[Hashable, list[K]] = defaultdict(list)
    sets: list[list[K]] = []
    for key, template in templates.items():
        kind = rule.kind(template)
        if kind is None:
            sets.append([key])
        else:
            kinds[kind].append(key)
    for keys in kinds.values():
        sets += [keys] if rule.labels else _sets_of_one_kind({key: templates[key] for key in keys}, rule)
    return sorted(tuple(sorted(keys)) for keys in sets)


def _sets_of_one_kind(templates: Mapping[K, NodeTemplate], rule: Similarity) -> list[list[K]]:
    sets: list[_Set[K]] = []
    open_: list[_Set[K]] = []
    for key in sorted(templates, key=lambda key: _amounts(templates[key])):
        template = templates[key]
        # Memory only grows from here: a set whose least is too far below stays so.
        open_ = [candidate for candidate in open_ if rule.near_in_memory(candidate.least, template)]
        home = next((candidate for candidate in open_ if candidate.takes(template, rule)), None)
        if home is None:
            home = _Set(key, template)
            sets.append(home)
            open_.append(home)
        else:
            home.add(key, template)
    return [candidate.keys for candidate in sets]


def _amounts(template: NodeTemplate) -> Any:
    """Return the sort key of the groups of a kind. Equals fit the same sets."""
    return (
        template.capacity["memory"],
        sorted((template.allocatable or {}).items()),
        sorted((template.free or {}).items()),
    )
