"""How long the last machines of one type took to become nodes, from their creation until their node joined.

The times are a text with one letter for each machine, newest last. Each letter stands for times that differ by 5 %. So
the text is small, and the rule of the last 200 machines is exact. Times of at most 40 s share a letter, and so do times
of more than 450 s, because the timeout is the same for all of them.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from math import ceil
from string import ascii_letters
from typing import Self

from evenkeel.domain.model.groups import PROVISION_TIMEOUT

SHORTEST, LONGEST = timedelta(minutes=2), PROVISION_TIMEOUT
FEWEST = 50  # machines, before their times decide the timeout
KEPT = 200  # machines, of which the newest decide it
_LETTERS = frozenset(ascii_letters)
# The longest time of each letter, in seconds. A longer time than the last but one needs the longest timeout.
_SPANS = [ceil(40 * 1.05**number) for number in range(len(ascii_letters) - 1)] + [int(LONGEST.total_seconds())]
_LAST = len(_SPANS) - 1


@dataclass(frozen=True, kw_only=True)
class ProvisionTimes:
    """The provision times of the last machines of one machine type and capacity type in a pool."""

    letters: str = ""

    def __post_init__(self) -> None:
        if len(self.letters) > KEPT or not _LETTERS.issuperset(self.letters):
            raise ValueError(f"letters are at most {KEPT} of {ascii_letters[0]} to {ascii_letters[-1]}")

    @property
    def longest(self) -> timedelta:
        """Return the longest time, rounded up to the end of its span; zero without machines."""
        return self._times[-1] if self.letters else timedelta(0)

    @property
    def p95(self) -> timedelta:
        """Return the time within which 95 % of the machines joined, rounded up; zero without machines."""
        return self._times[ceil(0.95 * len(self.letters)) - 1] if self.letters else timedelta(0)

    @property
    def timeout(self) -> timedelta | None:
        """Return how long a machine of this type may take; None: too few machines are known."""
        if len(self.letters) < FEWEST:
            return None
        return min(LONGEST, max(SHORTEST, 3 * self.p95, 2 * self.longest))

    def with_times(self, times: Iterable[timedelta]) -> Self:
        """Return the times of the newest machines after these, in their order, have been added."""
        added = "".join([ascii_letters[bisect_left(_SPANS, time.total_seconds(), 0, _LAST)] for time in times])
        return type(self)(letters=(self.letters + added)[-KEPT:])

    @cached_property  # each group of a pool asks for its timeout
    def _times(self) -> list[timedelta]:
        return [timedelta(seconds=_SPANS[number]) for number in sorted(map(ascii_letters.index, self.letters))]
