import pytest

from evenkeel.domain.model.overwritten import Found, found


@pytest.mark.parametrize(
    ("value", "whose"), [(5, Found.OURS), (6, Found.OURS), (3, Found.THEIRS), (4, Found.NEW), (None, Found.NEW)]
)
def test_a_value_is_ours_theirs_or_new(value: int | None, whose: Found) -> None:
    assert found(value, 3, (5, 6)) is whose


def test_a_value_that_is_ours_and_theirs_is_ours() -> None:
    assert found(3, 3, (3,)) is Found.OURS
