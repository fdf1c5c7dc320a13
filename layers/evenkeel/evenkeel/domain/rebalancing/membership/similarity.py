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

    If a group is similar to the smallest and to the largest amounts in the set, it is similar to every member. So two
    comparisons are enough.
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
    """Return a template in which each amount that similar nodes may differ in is ``pick`` (min or max) of both."""

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
    """Return the groups in sets, each group in exactly one set. Sets and members are sorted by key.

    Similarity is not transitive: of three groups, the first may be similar to the second and the second to the third,
    but not the first to the third. Cluster Autoscaler compares groups anew at each scale-up, but a pool needs fixed
    members. So all members of a set are similar to one another. Groups of one kind have the same labels, and equal
    amounts where the rule allows no difference. They are sorted in ascending order of memory, then of allocatable and
    free. Each group joins the first set that it fits. Names have no effect on the sets. If similarity is transitive,
    the sets are its equivalence classes.
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
        # Groups are sorted by memory. So a set with too little memory for this group has too little for all later
        # groups.
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
    """Return the sort key of a group within its kind. Groups with equal keys fit the same sets."""
    return (
        template.capacity["memory"],
        sorted((template.allocatable or {}).items()),
        sorted((template.free or {}).items()),
    )
