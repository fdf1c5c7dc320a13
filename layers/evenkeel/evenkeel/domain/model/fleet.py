"""Label selectors of clusters, and durations, in the form in which operators write them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from evenkeel.domain.model.values import BadValueError

# The syntax of Kubernetes labels.
LABEL_KEY = r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LABEL_VALUE = r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_TERM = re.compile(rf"(?P<not>!?)(?P<key>{LABEL_KEY})|(?P<of>{LABEL_KEY})(?P<sign>==?|!=)(?P<value>{LABEL_VALUE})")
_LENGTH = re.compile(r"(?=.)(?:([0-9]{1,4})d)?(?:([0-9]{1,4})h)?(?:([0-9]{1,5})m)?(?:([0-9]{1,6})s)?", re.ASCII)
LONGEST = timedelta(days=366)


@dataclass(frozen=True, kw_only=True)
class _Term:
    """One requirement of a selector: a label exists, or has this value. ``negated`` inverts the requirement."""

    key: str
    value: str | None  # None: any value
    negated: bool

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        return (value is not None if self.value is None else value == self.value) is not self.negated


@dataclass(frozen=True)
class Selector:
    """A label selector as in kubectl, ``env=prod,tier!=gold,team,!old``: all terms must match."""

    text: str
    terms: tuple[_Term, ...]

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the selector that a text describes. Raises BadValueError if the text is no selector."""
        terms = []
        for part in text.split(","):
            match = _TERM.fullmatch(part.strip())
            if match is None:
                raise BadValueError(
                    "no selector of labels: write env=prod, or several of env=prod, env!=test, team, !team"
                )
            key, value = match["of"] or match["key"], match["value"] if match["of"] else None
            terms.append(_Term(key=key, value=value, negated=match["sign"] == "!=" or match["not"] == "!"))
        return cls(text, tuple(terms))

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return True if the labels match all terms."""
        return all(term.holds(labels) for term in self.terms)


def read_length(text: object, *, or_none: bool = False) -> timedelta:
    """Return the duration that a text such as ``2h``, ``90m``, ``1d`` or ``1h30m`` describes, 366 days at most.

    Zero is valid only with ``or_none``. Raises BadValueError if the text has another form or is out of range.
    """
    match = _LENGTH.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise BadValueError("no length of time: write 2h, 90m or 1d")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    length = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    if not (timedelta() < length or or_none) or length > LONGEST:
        raise BadValueError(f"choose more than nothing, and {LONGEST.days}d at most")
    return length
