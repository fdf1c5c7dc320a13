"""Kubernetes quantities and Go durations, read as Kubernetes reads them: 4, 500m, 16Gi, 1.5e9; 15m, 1h30m."""

import re
from datetime import timedelta
from fractions import Fraction
from math import ceil

from evenkeel.domain.model.values import BadValueError

_NANO = 10**9
_LARGEST_BINARY = 2**63 - 1

_DECIMAL = {
    "n": Fraction(1, _NANO),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{unit: Fraction(1000**power) for power, unit in enumerate("kMGTPE", start=1)},
}

_BINARY = {f"{unit}i": Fraction(1024**power) for power, unit in enumerate("KMGTPE", start=1)}
_NUMBER = re.compile(r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(.*)", re.ASCII | re.DOTALL)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]{1,9})", re.ASCII)
_MISTAKEN_UNIT = re.compile(r"([kmgtpe])(i?)b?", re.ASCII | re.IGNORECASE)
_BYTES = ("b", "byte", "bytes")
_LONGEST = 1000  # the most characters, and the largest power of ten; larger values would cost memory
_DURATION = re.compile(r"\+?((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|\u00b5s|\u03bcs|ms|s|m|h))+", re.ASCII)
_DURATION_PART = re.compile(r"([0-9.]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)", re.ASCII)

_NOTHING = ("0", "+0", "-0")
_SECONDS = {
    "ns": Fraction(1, _NANO),
    "us": Fraction(1, 10**6),
    "\u00b5s": Fraction(1, 10**6),
    "\u03bcs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}

_HELP = "not a quantity: write a number with or without a unit, such as 4, 500m, 16Gi or 2e9"


def read_quantity(value: object) -> Fraction:
    """Return an amount in its resource's base unit (cores, bytes, pieces), from an annotation or a field.

    The rules are those of apimachinery's ``ParseQuantity`` (pkg/api/resource/quantity.go). Suffixes are n u m k M G T P
    E, Ki to Ei, and powers of ten. Digits below a billionth are rounded away from zero. An amount with a binary suffix
    is at most 2^63-1. A JSON or YAML number is read like its text. Unlike ``ParseQuantity``, this function refuses a
    quantity without a digit, more than 1,000 characters, and powers of ten beyond 1,000.

    Raises:
        BadValueError: The value is no quantity. The message proposes the quantity that was probably meant.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadValueError(_HELP)
    if isinstance(value, int):
        return Fraction(value)
    text = str(value)
    if len(text) > _LONGEST:
        raise BadValueError(f"longer than {_LONGEST} characters: write a number and a unit, such as 16Gi")
    match = _NUMBER.fullmatch(text)
    if not match:
        raise BadValueError(_hint(text))
    sign, number, suffix = match.groups()
    whole, _, decimals = number.partition(".")
    amount = Fraction(int(whole + decimals), 10 ** len(decimals)) * _factor(text, number, suffix)
    if _NANO % amount.denominator:
        amount = Fraction(ceil(amount * _NANO), _NANO)
    if suffix in _BINARY:
        amount = min(amount, Fraction(_LARGEST_BINARY))
    return -amount if sign == "-" else amount


def read_amount(value: object) -> Fraction:
    """Return a Kubernetes quantity. Raises BadValueError, also for a negative quantity."""
    amount = read_quantity(value)
    if amount < 0:
        raise BadValueError("negative: write 0 or more")
    return amount


def read_duration(value: object) -> timedelta:
    """Return a duration as Go's ``time.ParseDuration`` reads it, such as 15m or 1h30m; 0 needs no unit.

    Raises:
        BadValueError: The value is no duration, is negative, or is larger than Go's largest duration.
    """
    if value in _NOTHING:
        return timedelta(0)
    if not isinstance(value, str) or len(value) > _LONGEST or not _DURATION.fullmatch(value):
        raise BadValueError("not a duration: write numbers with units, such as 15m or 1h30m")
    seconds = sum(Fraction(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(value))
    if seconds * _NANO > _LARGEST_BINARY:
        raise BadValueError("a duration is shorter than 292 years")
    return timedelta(microseconds=ceil(seconds * 10**6))


def _factor(text: str, number: str, suffix: str) -> Fraction:
    """Return the factor of a suffix. In ``1E``, the E is a suffix; in ``1E3``, it is a power of ten."""
    factor = _DECIMAL.get(suffix) or _BINARY.get(suffix)
    if factor:
        return factor
    power = _EXPONENT.fullmatch(suffix)
    if not power:
        raise BadValueError(_hint(text, number, suffix))
    if abs(int(power[1])) > _LONGEST:
        raise BadValueError(f"a power of ten beyond {_LONGEST}: write a number and a unit, such as 16Gi")
    return Fraction(10) ** int(power[1])


def _hint(text: str, number: str = "", suffix: str = "") -> str:
    if any(character.isspace() for character in text):
        return "not a quantity: write it without spaces"
    if "," in text:
        return "not a quantity: write a point before decimals, and no comma"
    if len(number) > 20:
        return _HELP
    if suffix.lower() in _BYTES:
        return f"not a quantity: write {number}, bytes have no unit"
    unit = _MISTAKEN_UNIT.fullmatch(suffix)
    if not unit:
        return _HELP
    letter = unit[1].upper()
    decimal = "k" if letter == "K" else letter
    return f"not a quantity: write {'' if unit[2] else f'{number}{decimal} or '}{number}{letter}i"


def read_wait(text: str) -> timedelta:
    """Return how long to wait for a machine. Raises BadValueError for 0, because every machine would be late."""
    if not (time := read_duration(text)):
        raise BadValueError("a machine needs some time to become a node: write a duration such as 15m")
    return time


def read_share(text: str) -> float:
    """Return a share from 0 to 1. Go's ParseFloat, which Cluster Autoscaler uses, checks no range."""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise BadValueError("a share is a number from 0 to 1")
    return share
