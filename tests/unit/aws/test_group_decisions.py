"""The stored decisions about Auto Scaling groups: one item for each group, which the query of a check skips."""

import logging
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from evenkeel.adapters.auto_scaling.decisions import DecisionsInMemory
from evenkeel.adapters.aws.group_decisions import DynamoGroupDecisions
from evenkeel.application.errors import AccessUnavailableError, StateConflictError, StateUnavailableError
from tests.stored_items import InProcess

NOW = datetime(2026, 11, 28, tzinfo=UTC)


class _Failing:
    """A table that refuses every call."""

    def __getattr__(self, operation: str) -> Any:
        def call(**_request: Any) -> Any:
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, operation)

        return call


def store(client: Any) -> DynamoGroupDecisions:
    return DynamoGroupDecisions(client, "table", lambda: NOW)


def test_what_is_stored_about_a_group_is_loaded_and_belongs_to_one_cluster() -> None:
    client = InProcess()
    store(client).save("demo", "workers-a", "first", "")
    store(client).save("demo", "workers-a", "second", "first")
    store(client).save("demo", "workers-b", "", "")
    store(client).save("green", "workers-a", "other", "")
    assert store(client).load("demo") == {"workers-a": "second"}
    assert all(item["sk"]["S"] < "E" for item in client.items())


def test_an_unreadable_decision_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    client = InProcess()
    store(client).save("demo", "workers-a", "text", "")
    client.table.put({"pk": {"S": "CLUSTER#demo"}, "sk": {"S": "AUTO_SCALING#workers-b"}, "record": {"N": "7"}})
    with caplog.at_level(logging.WARNING):
        assert store(client).load("demo") == {"workers-a": "text"}
    assert "decision not loaded" in caplog.text
    store(client).save("demo", "workers-b", "text", "")
    assert store(client).load("demo")["workers-b"] == "text"


@pytest.mark.parametrize("stored", ["", "first", "second"])
@pytest.mark.parametrize("before", ["", "first"])
@pytest.mark.parametrize("decision", ["", "second"])
def test_a_decision_is_stored_only_over_the_one_that_was_read_or_over_itself(
    stored: str, before: str, decision: str
) -> None:
    for kept in (store(InProcess()), DecisionsInMemory()):
        kept.save("demo", "workers-a", stored, "")
        if stored in (before, decision):
            kept.save("demo", "workers-a", decision, before)
            assert kept.load("demo").get("workers-a", "") == decision
        else:
            with pytest.raises(StateConflictError):
                kept.save("demo", "workers-a", decision, before)
            assert kept.load("demo").get("workers-a", "") == stored


def test_without_the_table_a_cluster_is_neither_read_nor_written() -> None:
    with pytest.raises(AccessUnavailableError, match="demo: decisions about its groups not read"):
        store(_Failing()).load("demo")
    with pytest.raises(StateUnavailableError):
        store(_Failing()).save("demo", "workers-a", "text", "")
