"""Quantities are read as the API server reads them, or refused with the probable correction."""

from decimal import ROUND_UP, Context, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.model.values import BadValueError
from evenkeel.domain.rebalancing.membership.quantities import read_duration, read_quantity

LARGEST = 2**63 - 1
NANO = Fraction(1, 10**9)

# From apimachinery's own tests (pkg/api/resource/quantity_test.go, TestQuantityParse).
PUBLISHED = {
    "0": 0,
    "3m": Fraction(3, 1000),
    "50k": 50_000,
    "1E-3": Fraction(1, 1000),
    "0.5e-2": Fraction(1, 200),
    "1.01E": 101 * 10**16,
    "3.001n": 4 * NANO,
    "0.0000000001": NANO,
    "0.9n": NANO,
    "0.00000012345": 124 * NANO,
    "0.00000012354": 124 * NANO,
    "9Ei": LARGEST,
    "9223372036854775807Ki": LARGEST,
    "12E": 12 * 10**18,
    "0.000000000001Ki": 2 * NANO,
    ".001": Fraction(1, 1000),
    "1.": 1,
    "1.G": 10**9,
}


@pytest.mark.parametrize(("text", "amount"), PUBLISHED.items())
def test_published_quantities_are_read_with_either_sign(text: str, amount: Fraction) -> None:
    assert read_quantity(text) == read_quantity(f"+{text}") == amount
    assert read_quantity(f"-{text}") == -amount


UNITS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY_UNITS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
digits = st.text("0123456789", max_size=25)
numbers = st.tuples(digits, st.sampled_from(["", "."]), digits).filter(lambda parts: parts[0] or all(parts[1:]))
suffixes = st.one_of(
    st.sampled_from([*UNITS, *BINARY_UNITS]),
    st.tuples(st.sampled_from("eE"), st.sampled_from(["", "+", "-", "-0"]), st.integers(0, 30)).map(
        lambda parts: "{}{}{}".format(*parts)
    ),
)


def _by_decimals(sign: str, number: str, suffix: str) -> Decimal:
    """Return the same amount, calculated in decimals of a thousand places in another order of steps."""
    context = Context(prec=1000)
    amount = Decimal(number)
    if suffix in BINARY_UNITS:
        for _ in range(BINARY_UNITS[suffix]):
            amount = context.add(amount, amount)
    else:
        amount = amount.scaleb(UNITS[suffix] if suffix in UNITS else int(suffix[1:]), context)
    amount = amount.quantize(Decimal("1e-9"), rounding=ROUND_UP, context=context)
    if suffix in BINARY_UNITS:
        amount = min(amount, Decimal(LARGEST))
    return amount.copy_negate() if sign == "-" else amount


@given(st.sampled_from(["", "+", "-"]), numbers.map("".join), suffixes)
def test_any_quantity_equals_decimal_arithmetic(sign: str, number: str, suffix: str) -> None:
    assert read_quantity(sign + number + suffix) == Fraction(_by_decimals(sign, number, suffix))


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_of_json_is_read_like_its_text(number: float) -> None:
    assert read_quantity(number) == read_quantity(str(number))


@given(
    st.text("0123456789.+-eEinumkKMGTPb ,", max_size=12)
    | st.text()
    | st.none()
    | st.booleans()
    | st.binary()
    | st.floats()
    | st.lists(st.integers())
)
def test_anything_is_read_or_refused_in_one_line(value: object) -> None:
    try:
        assert isinstance(read_quantity(value), Fraction)
    except BadValueError as error:
        reported = str(error)
        assert reported.isprintable()
        assert len(reported) < 120


@pytest.mark.parametrize(
    "text",
    [
        *("1.1.M", "1+1.0M", "0.1mi", "0.1am", "aoeu", ".5i", "1i", "-3.01i", "-3.01e-"),  # from quantity_test.go
        *("", "e", "1e", "1E+", "1ee3", "1e3e3", "1e1.5", "1e3Ki", "1KiKi", "--1", "+-1", "1_000", "0x10", "٤"),
        *("1\x00", "inf", "nan", "1 000"),
        *(".", "+", "-", "+.", "Gi", "m", "-Gi", ".k", "e3"),  # without a digit: the Go parser reads zero
    ],
)
def test_an_invalid_quantity_is_refused(text: str) -> None:
    with pytest.raises(BadValueError, match="not a quantity"):
        read_quantity(text)


@pytest.mark.parametrize("value", [None, True, False, [], {}, b"4", float("nan"), float("inf")])
def test_a_field_of_another_type_is_no_quantity(value: object) -> None:
    with pytest.raises(BadValueError, match="write a number"):
        read_quantity(value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("500mb", "write 500M or 500Mi"),
        ("500MB", "write 500M or 500Mi"),
        ("16GB", "write 16G or 16Gi"),
        ("16g", "write 16G or 16Gi"),
        ("16GiB", "write 16Gi"),
        ("16gi", "write 16Gi"),
        ("8K", "write 8k or 8Ki"),
        ("8kb", "write 8k or 8Ki"),
        ("8ki", "write 8Ki"),
        ("1.5tb", "write 1.5T or 1.5Ti"),
        ("1024b", "write 1024, bytes have no unit"),
        ("1024 bytes", "without spaces"),
        (" 1", "without spaces"),
        ("1 ", "without spaces"),
        ("1\n", "without spaces"),
        ("16 Gi", "without spaces"),
        ("1,5Gi", "a point before decimals"),
        ("1,000", "no comma"),
        ("4 cores", "without spaces"),
        ("lots", "such as 4, 500m, 16Gi or 2e9"),
        ("9" * 500 + "GB", "such as 4, 500m, 16Gi or 2e9"),
    ],
)
def test_the_error_has_a_hint(text: str, hint: str) -> None:
    with pytest.raises(BadValueError, match=hint):
        read_quantity(text)


@pytest.mark.parametrize("text", ["9" * 100_000, "1." + "0" * 100_000, "1e99999999", "1e-99999999", "1e1001"])
def test_a_quantity_that_is_too_long_is_refused(text: str) -> None:
    with pytest.raises(BadValueError, match="such as 16Gi"):
        read_quantity(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15m", 900),
        ("1h30m", 5400),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("5.s", 5),
        ("+3m", 180),
        ("1m1m", 120),
        ("1500ms", 1.5),
        ("100us", 0.0001),
        ("100\u00b5s", 0.0001),
        ("1ns", 0.000001),
        ("0s", 0),
        ("0", 0),
        ("+0", 0),
        ("-0", 0),
        ("0h0m", 0),
    ],
)
def test_a_duration_is_read_as_go_reads_it(text: str, seconds: float) -> None:
    assert read_duration(text).total_seconds() == seconds


@pytest.mark.parametrize(
    "text", ["", "15", "m", "15 m", "15M", "1h 3m", "-3m", "-", "1d", "1_0s", ".s", "99999999h", "9" * 2000, 15]
)
def test_an_invalid_duration_is_refused(text: object) -> None:
    with pytest.raises(BadValueError, match="duration"):
        read_duration(text)
