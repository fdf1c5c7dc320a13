"""Secrets are read every five minutes or on demand; an unreadable one is named, never shown."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from evenkeel.adapters.aws.secrets import Secrets
from evenkeel.application.errors import AccessError

START = datetime(2026, 1, 1, tzinfo=UTC)


class Manager:
    """The part of a client for Secrets Manager that is called."""

    def __init__(self) -> None:
        self.answer: dict[str, Any] | Exception = {"SecretString": "first"}
        self.asked: list[str] = []
        self.now = START
        self.secrets = Secrets(self, lambda: self.now)

    def get_secret_value(self, *, SecretId: str) -> dict[str, Any]:  # noqa: N803  the name that AWS gives it
        self.asked.append(SecretId)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_secret_is_read_again_after_five_minutes() -> None:
    manager = Manager()
    assert manager.secrets("one", False) == "first"
    manager.answer = {"SecretString": "second"}
    manager.now = START + timedelta(seconds=299)
    assert manager.secrets("one", False) == "first"
    manager.now = START + timedelta(seconds=300)
    assert manager.secrets("one", False) == "second"
    assert manager.asked == ["one", "one"]


def test_a_fresh_secret_is_read_at_once_and_kept_by_its_name() -> None:
    manager = Manager()
    manager.secrets("one", False)
    manager.answer = {"SecretString": "second"}
    assert (manager.secrets("two", False), manager.secrets("one", False)) == ("second", "first")
    assert manager.secrets("one", True) == "second"
    assert manager.secrets("one", False) == "second"
    assert manager.asked == ["one", "two", "one"]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (
            ClientError({"Error": {"Code": "ResourceNotFoundException", "Message": "no such"}}, "GetSecretValue"),
            "ResourceNotFoundException",
        ),
        (EndpointConnectionError(endpoint_url="https://secretsmanager"), "https://secretsmanager"),
        ({"SecretBinary": b"kept to itself"}, "it is binary: store the text itself"),
    ],
    ids=["refused", "away", "binary"],
)
def test_an_unreadable_secret_is_named_and_not_kept(answer: Any, problem: str) -> None:
    manager = Manager()
    manager.answer = answer
    with pytest.raises(AccessError) as raised:
        manager.secrets("one", False)
    assert str(raised.value).startswith("secret one cannot be read: ")
    assert problem in str(raised.value)
    assert "kept to itself" not in str(raised.value)
    assert raised.value.__context__ is None  # a library's error may quote its input
    manager.answer = {"SecretString": "first"}
    assert manager.secrets("one", False) == "first"
