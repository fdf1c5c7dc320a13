"""Value objects: the type checker refuses changes. Their fields decide about equality and the hash."""

import pytest
from mypy import api

from evenkeel.domain.model.groups import FieldManagers
from sandbox.template import ROOT
from tests.parts import replace

_CLASS = """
from dataclasses import replace
from evenkeel.domain.model.value_objects import value_object

@value_object
class Value:
    size: int
    name: str = ""

value = Value(size=1)
"""


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("replace(value, size=2)", ""),
        ("value.size = 2", 'Property "size" defined in "Value" is read-only  [misc]'),
        ("replace(value, length=2)", 'Unexpected keyword argument "length" for "replace" of "Value"  [call-arg]'),
        ("Value(2)", 'Too many positional arguments for "Value"  [call-arg]'),
    ],
)
def test_the_type_checker_refuses_to_change_a_value_object(
    line: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    found, _, _ = api.run(["--config-file", "pyproject.toml", "-c", _CLASS + line])
    assert (error in found) if error else found.startswith("Success")


def test_value_objects_are_equal_and_hashed_by_their_fields() -> None:
    value = FieldManagers(bounds_by="kubectl")
    assert {value, replace(value, bounds_by="kubectl"), replace(value, bounds_by="helm")} == {
        value,
        FieldManagers(bounds_by="helm"),
    }
