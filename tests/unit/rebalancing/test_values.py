"""Numbers and names in annotations are read as strictly as by cluster-autoscaler."""

import pytest

from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.values import LARGEST_COUNT, BadValueError, Fault, quote, read_count, read_flag, read_weight
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.bounds.gep24 import ADAPTIVE, BACKWARD_COMPATIBLE, LAX_GREEDY
from evenkeel.domain.rebalancing.bounds.strategies import read_strategy


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("4", 4), ("+4", 4), ("007", 7), ("-0", 0), ("2147483647", LARGEST_COUNT), (12, 12)]
)
def test_a_count_is_read_as_by_strconv(text, value) -> None:
    assert read_count(text) == value


MALFORMED = (
    "",
    " ",
    " 4",
    "4 ",
    "4\n",
    "4.0",
    "4e1",
    "1_000",
    "1,000",
    "0x10",
    "four",
    "٤",
    "４",
    "²",
    "--4",
    "+",
    "+-4",
)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ((*MALFORMED, "+-4", "∞"), "not an integer"),
        ((None, 4.0, True, False, [], {}, b"4"), "not an integer"),
        (("-1", -1, "-2147483649", "-" + "9" * 30), "negative"),
        (("2147483648", 2**31, 2**80, "9" * 25, "9" * 100_000), "larger than 2147483647"),
    ],
    ids=["text", "another type", "negative", "too large"],
)
def test_a_value_that_strconv_refuses_is_refused(values: tuple[object, ...], says: str) -> None:
    for value in values:
        with pytest.raises(BadValueError, match=says):
            read_count(value)


def test_a_flag_is_true_or_false_in_any_case() -> None:
    assert [read_flag(value) for value in ("true", "False", "TRUE", True)] == [True, False, True, True]
    for value in ("", "yes", "1", "0", 1, None, "truе"):  # the last one ends in a Cyrillic letter
        with pytest.raises(BadValueError, match="neither"):
            read_flag(value)


def test_a_weight_is_one_to_a_thousand() -> None:
    assert [read_weight(value) for value in ("1", "1000", 7)] == [1, 1000, 7]
    for value in ("0", "1001", "-1", "0.5", "heavy"):
        with pytest.raises(BadValueError):
            read_weight(value)


@pytest.mark.parametrize(
    ("names", "strategy"),
    [
        (("balanced",), BALANCED),
        (("Lax-Greedy", "laxgreedy"), LAX_GREEDY),
        (("BACKWARD_COMPATIBLE", "Equitable"), BACKWARD_COMPATIBLE),
        (("aDaPtIvE",), ADAPTIVE),
    ],
)
def test_a_strategy_is_named_in_any_case_with_or_without_hyphens(names: tuple[str, ...], strategy: object) -> None:
    assert {read_strategy(name) for name in names} == {strategy}


@pytest.mark.parametrize("name", ["", "greedy", "Balanced!", None, 3])
def test_an_unknown_strategy_is_refused_with_the_known_ones(name) -> None:
    with pytest.raises(BadValueError, match="Lax-Greedy, Backward-Compatible, Adaptive, Balanced"):
        read_strategy(name)


def test_a_treatment_of_failures_is_named_in_any_case() -> None:
    assert OnFailure.read("Hold") is OnFailure.HOLD
    with pytest.raises(BadValueError, match="release, move, hold"):
        OnFailure.read("panic")


def test_a_group_is_named_in_three_parts() -> None:
    assert str(GroupKey.read("gardener/shoot--x/pool-z1")) == "gardener/shoot--x/pool-z1"
    for text in ("", "a/b", "a/b/c/d", "a//c", "/b/c"):
        with pytest.raises(BadValueError, match="<flavour>/<namespace>/<name>"):
            GroupKey.read(text)


def test_a_value_in_an_error_is_short_and_printable() -> None:
    assert quote("4\n5") == "'4\\n5'"
    assert quote(7) == "'7'"
    assert len(quote("9" * 100_000)) == 60


def test_a_fault_names_object_field_value_and_what_to_do() -> None:
    fault = Fault(object="default/a", field="max-size", value=quote("x"), problem="not an integer: write a number")
    assert str(fault) == "default/a: max-size is 'x': not an integer: write a number"
