"""The stored descriptions of node groups: one item, which nothing depends on."""

import logging
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from evenkeel.adapters.aws.node_group_store import DynamoNodeGroups
from evenkeel.adapters.codec import pack

NOW = datetime(2026, 11, 28, tzinfo=UTC)
LARGEST_ITEM = 400_000
GROUPS = {
    ("demo", f"workers-{number:03}"): {
        "nodegroupName": f"workers-{number:03}",
        "status": "ACTIVE",
        "scalingConfig": {"minSize": 0, "maxSize": 9, "desiredSize": number},
        "resources": {"autoScalingGroups": [{"name": f"eks-workers-{number:03}-{number:08x}-0000-4000-d000"}]},
        "labels": {"team": f"team-{number % 7}"},
        "taints": [{"key": "dedicated", "value": "gpu", "effect": "NO_SCHEDULE"}],
    }
    for number in range(500)
}


class Client:
    """A table of one item, or of an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.items: list[dict[str, Any]] = []
        self.error = error

    def query(self, **_request: Any) -> dict[str, Any]:
        if self.error:
            raise self.error
        return {"Items": self.items}

    def put_item(self, *, Item: dict[str, Any], **_request: Any) -> dict[str, Any]:  # noqa: N803  boto3's name
        if self.error:
            raise self.error
        self.items = [Item]
        return {}


def store(client: Client) -> DynamoNodeGroups:
    return DynamoNodeGroups(client, "table", lambda: NOW)


def test_what_is_stored_is_loaded_and_500_node_groups_fit_an_item() -> None:
    client = Client()
    assert store(client).load("demo") == {}
    store(client).save("demo", GROUPS)
    assert store(client).load("demo") == GROUPS
    (item,) = client.items
    assert (item["pk"], item["sk"]) == ({"S": "CLUSTER#demo"}, {"S": "CACHE#NODE_GROUPS"})
    assert len(item["record"]["S"]) < LARGEST_ITEM / 4


@pytest.mark.parametrize(
    "record", [{}, {"record": {"B": b"x"}}, {"record": {"S": "x"}}, {"record": {"S": pack([["demo", 7]])}}]
)
def test_an_unreadable_item_counts_as_none(record: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    client.items = [{"pk": {"S": "CLUSTER#demo"}, "sk": {"S": "CACHE#NODE_GROUPS"}, **record}]
    with caplog.at_level(logging.WARNING):
        assert store(client).load("demo") == {}
    assert "node groups not loaded" in caplog.text


@pytest.mark.parametrize(
    "error", [ClientError({"Error": {"Code": "AccessDeniedException"}}, "Query"), ReadTimeoutError(endpoint_url="x")]
)
def test_a_table_that_does_not_answer_stops_nothing(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        store(Client(error)).save("demo", GROUPS)
        assert store(Client(error)).load("demo") == {}
    assert caplog.text.count("node groups not") == 2
