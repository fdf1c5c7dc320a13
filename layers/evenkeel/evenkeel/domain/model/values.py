"""Values of annotations and records, read strictly.

Cluster Autoscaler reads bounds with Go's ``strconv.Atoi``. A bound that Atoi refuses hides every node group of the
cluster from Cluster Autoscaler (clusterapi_utils.go:191-215). So this module accepts only what Atoi accepts.
"""

import re
import reprlib
import unicodedata
from collections.abc import Container, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

# spec.replicas is an int32 in all three machine APIs.
LARGEST_COUNT = 2**31 - 1
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_SHOWN = 60


def quote(value: object) -> str:
    """Return a value for an error text: short, printable, on one line."""
    if not isinstance(value, str):
        # Containers are shortened, because YAML's aliases could make their full text fill the memory.
        value = reprlib.repr(value) if isinstance(value, Container) else str(value)
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 4] + "...'"


# Terminal sequences for colours and cursor moves. Other sequences lose only their control characters, so that
# their text remains visible.
_SEQUENCE = re.compile(r"(?:\x1b\[|\x9b)[0-9;?]+[A-Za-z]")


def printable(text: str) -> str:
    """Return an untrusted text as one line that is safe for a terminal or a page.

    A white space character becomes a space, and half a surrogate pair becomes a question mark. Escape sequences,
    control characters and direction marks are removed.
    """
    if text.isprintable():
        return text
    return "".join(_printable(character) for character in _SEQUENCE.sub("", text))


def _printable(character: str) -> str:
    if character.isspace():
        return " "
    category = unicodedata.category(character)
    return "?" if category == "Cs" else "" if category in ("Cc", "Cf") else character


def near(unknown: object, names: Iterable[str]) -> str:
    """Return the end of an error text about an unknown name: a question with the nearest known name.

    The result is empty if no known name is near. A name with other numbers is another object, not a typing error.
    """
    text = str(unknown)[:100]
    numbers = re.findall(r"\d+", text)
    alike = [name for name in names if name and (not numbers or re.findall(r"\d+", name) == numbers)]
    nearest = get_close_matches(text, alike, n=1)
    return f"; did you mean {nearest[0]}?" if nearest else ""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One bad value: its object and field, the value, and what to do."""

    object: str
    field: str
    value: str
    problem: str

    def __str__(self) -> str:
        return f"{self.object}: {self.field} is {self.value}: {self.problem}"


class BadValueError(ValueError):
    """A value that cannot be read. The text names the fault and the valid form.

    ``choices`` are the valid words, if there are only a few.
    """

    def __init__(self, problem: str, choices: Iterable[str] = ()) -> None:
        self.choices = tuple(choices)
        super().__init__(f"{problem}: choose one of {', '.join(self.choices)}" if self.choices else problem)


def read_count(value: object) -> int:
    """Return a count of nodes, 0 to 2^31-1, from an annotation (text) or a field (integer).

    Raises:
        BadValueError: not an integer, negative, or larger than ``spec.replicas`` can hold.
    """
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        # int() raises an error for thousands of digits. A number with more than 20 characters is too large anyway.
        value = int(value) if len(value) <= 20 else (-1 if value.startswith("-") else LARGEST_COUNT + 1)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadValueError("not an integer: write a whole number of nodes")
    if value < 0:
        raise BadValueError("negative: write 0 or more")
    if value > LARGEST_COUNT:
        raise BadValueError(f"larger than {LARGEST_COUNT}, the most that spec.replicas can hold")
    return value


def read_step(value: object) -> int:
    """Return how many nodes one run may add, 1 to 2^31-1.

    Raises:
        BadValueError: not an integer, or outside that range.
    """
    step = read_count(value)
    if step < 1:
        raise BadValueError("no node could ever be added: write 1 or more, or remove it for any number")
    return step


def read_flag(value: object) -> bool:
    """Return the boolean of ``"true"`` or ``"false"`` in any case, as in annotations.

    Raises:
        BadValueError: anything else.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise BadValueError('neither "true" nor "false"')


def read_pool_name(value: object) -> str:
    """Return the name or the id of a pool.

    Raises:
        BadValueError: The value has spaces, or more characters than a name.
    """
    if not isinstance(value, str) or not re.fullmatch(r"[^\s]{1,600}", value):
        raise BadValueError("not a name: set it to the name of a pool")
    return value


_PERCENT = re.compile(r"([0-9]{1,3})%", re.ASCII)


def read_percent(value: object) -> int | None:
    """Return the number of a percentage such as ``40%``, 1 to 100; None: the value is no percentage.

    Raises:
        BadValueError: a percentage outside that range.
    """
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if match is not None and not 1 <= int(match[1]) <= 100:
        raise BadValueError("a percentage is 1% to 100%")
    return None if match is None else int(match[1])


def read_weight(value: object) -> int:
    """Return a zone's weight, 1 to 1000.

    Raises:
        BadValueError: not an integer, or outside that range.
    """
    weight = read_count(value)
    if not 1 <= weight <= 1000:
        raise BadValueError("a weight is 1 to 1000")
    return weight


def excerpt(text: str, longest: int = 300) -> str:
    """Return the text on one line, with an ellipsis where it is cut off."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


# Parts of a provider's message that may be secret, or that differ between two messages about one matter.
_SECRETS = re.compile(
    r"(?<=://)[^\s/@]+@"  # user and password of an address
    r"|\beyJ[\w-]{8,}\.[\w.-]+"  # a JSON Web Token
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"  # an access key of AWS
    r"|\b(?=[a-z0-9+/=_]*[0-9])[a-z0-9+/=_]{40,}"  # a secret key, or an encoded message
    r"|\bbearer \S+"
    r"|\b[\w-]{0,20}(?:token|secret|password|passwd|signature|key|\bsig)[\"']?(?:=|: ?(?=[\"']))[\"']?[^\s\"'&,;]+"
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",  # a request id
    re.IGNORECASE,
)
# What machine-controller-manager puts before the provider's own words.
_BEFORE_WORDS = re.compile(r"Cloud provider message - |machine codes error: code = \[\w*\] message = \[")
_WORDS = 140


# Texts are cut after their secrets are removed, because a part of a secret is not found.
_with_long_texts = reprlib.Repr()
_with_long_texts.maxstring = _with_long_texts.maxother = 2048
_with_long_texts.maxlevel = 2


def quote_without_secrets(value: object) -> str:
    """Return a value for a log: as ``quote``, without parts that may be secret."""
    text = value[:2048] if isinstance(value, str) else _with_long_texts.repr(value)
    return quote(_SECRETS.sub("…", text))


@lru_cache(maxsize=1024)  # in an outage, many groups have one message, and each check reads it again
def provider_words(message: str) -> str:
    """Return a provider's message for a plan: one printable line of at most 140 characters, without secrets."""
    line = " ".join(printable(message[:2048]).split()).removeprefix("Failed: ")  # the code of a launch without one
    words, wrapped = _BEFORE_WORDS.subn("", line)
    words = words.removesuffix("]") if wrapped else words
    return excerpt(_SECRETS.sub("…", words).strip(" :"), _WORDS)
