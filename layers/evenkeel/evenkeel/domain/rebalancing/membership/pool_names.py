"""Names of discovered pools: what the names of their node groups have in common."""

import re
from collections.abc import Collection, Sequence
from itertools import count, takewhile

_WORD = re.compile(r"[^-._]+[-._]*|[-._]+")  # with the separators after it
_SEPARATORS = "-._"


def find_name(names: Sequence[str], taken: Collection[str]) -> str:
    """Return a name for a pool of groups with these names, which are sorted and not empty.

    It is what the names have in common, such as ``workers`` of ``workers-a`` and ``workers-b``. If that is empty or
    taken, it is the first name, with a number if that is taken, too.
    """
    numbered = (f"{names[0]}-{number}" for number in count(2))
    for name in (_common_part(names), names[0]):
        if name and name not in taken:
            return name
    return next(name for name in numbered if name not in taken)


def _common_part(names: Sequence[str]) -> str:
    """Return the first and the last words that all names have, or else the first characters; it may be empty."""
    if len(names) == 1:
        return names[0]
    words = [_WORD.findall(name) for name in names]
    first = _same(words)
    last = _same([of_name[len(first) :][::-1] for of_name in words])
    return "".join([*first, *reversed(last)]).strip(_SEPARATORS) or "".join(_same(names)).strip(_SEPARATORS)


def _same(sequences: Sequence[Sequence[str]]) -> list[str]:
    """Return the items with which all sequences begin."""
    aligned = zip(*sequences, strict=False)
    return [items[0] for items in takewhile(lambda items: len({*items}) == 1, aligned)]
