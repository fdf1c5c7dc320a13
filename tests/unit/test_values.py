"""Numbers and words in annotations: as strict as Cluster Autoscaler, and clear about it."""

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
def test_what_strconv_reads_is_read(text, value) -> None:
    assert read_count(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", " 4", "4 ", "4\n", "4.0", "4e1", "1_000", "1,000", "0x10", "four", "٤", "４", "²"),
        *("--4", "+", "+-4", "∞"),
    ],
)
def test_what_strconv_refuses_is_refused(text) -> None:
    with pytest.raises(BadValueError, match="not an integer"):
        read_count(text)


@pytest.mark.parametrize("value", [None, 4.0, True, False, [], {}, b"4"])
def test_a_field_of_another_type_is_no_count(value) -> None:
    with pytest.raises(BadValueError, match="not an integer"):
        read_count(value)


@pytest.mark.parametrize("value", ["-1", -1, "-2147483649", "-" + "9" * 30])
def test_a_negative_count_is_called_negative(value) -> None:
    with pytest.raises(BadValueError, match="negative"):
        read_count(value)


@pytest.mark.parametrize("value", ["2147483648", 2**31, 2**80, "9" * 25, "9" * 100_000])
def test_a_count_that_replicas_cannot_hold_is_too_large(value) -> None:
    with pytest.raises(BadValueError, match="larger than 2147483647"):
        read_count(value)


@pytest.mark.parametrize(("value", "read"), [("true", True), ("False", False), ("TRUE", True), (True, True)])
def test_a_flag_is_true_or_false_in_any_case(value, read) -> None:
    assert read_flag(value) is read


@pytest.mark.parametrize("value", ["", "yes", "1", "0", 1, None, "truе"])  # the last one ends in a Cyrillic letter
def test_anything_else_is_no_flag(value) -> None:
    with pytest.raises(BadValueError, match="neither"):
        read_flag(value)


@pytest.mark.parametrize("value", ["1", "1000", 7])
def test_a_weight_is_one_to_a_thousand(value) -> None:
    assert read_weight(value) == int(value)


@pytest.mark.parametrize("value", ["0", "1001", "-1", "0.5", "heavy"])
def test_a_weight_outside_that_is_refused(value) -> None:
    with pytest.raises(BadValueError):
        read_weight(value)


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("balanced", BALANCED),
        ("Lax-Greedy", LAX_GREEDY),
        ("laxgreedy", LAX_GREEDY),
        ("BACKWARD_COMPATIBLE", BACKWARD_COMPATIBLE),
        ("Equitable", BACKWARD_COMPATIBLE),
        ("aDaPtIvE", ADAPTIVE),
    ],
)
def test_a_strategy_is_named_in_any_case_with_or_without_hyphens(name, strategy) -> None:
    assert read_strategy(name) is strategy


@pytest.mark.parametrize("name", ["", "greedy", "Balanced!", None, 3])
def test_a_strategy_that_there_is_not_is_answered_with_those_that_there_are(name) -> None:
    with pytest.raises(BadValueError, match="Lax-Greedy, Backward-Compatible, Adaptive, Balanced"):
        read_strategy(name)


def test_a_treatment_of_failures_is_named_in_any_case() -> None:
    assert OnFailure.read("Hold") is OnFailure.HOLD
    with pytest.raises(BadValueError, match="release, move, hold"):
        OnFailure.read("panic")


def test_a_group_is_named_in_three_parts() -> None:
    assert str(GroupKey.read("gardener/shoot--x/pool-z1")) == "gardener/shoot--x/pool-z1"


@pytest.mark.parametrize("text", ["", "a/b", "a/b/c/d", "a//c", "/b/c"])
def test_a_group_that_is_named_otherwise_is_refused(text) -> None:
    with pytest.raises(BadValueError, match="<flavour>/<namespace>/<name>"):
        GroupKey.read(text)


def test_a_value_in_an_error_is_short_and_printable() -> None:
    assert quote("4\n5") == "'4\\n5'"
    assert quote(7) == "'7'"
    assert len(quote("9" * 100_000)) == 60


def test_a_fault_names_object_field_value_and_what_to_do() -> None:
    fault = Fault(object="default/a", field="max-size", value=quote("x"), problem="not an integer: write a number")
    assert str(fault) == "default/a: max-size is 'x': not an integer: write a number"
