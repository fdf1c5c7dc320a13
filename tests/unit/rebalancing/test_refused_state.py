"""A write that the table always refuses is an incident, and a refused request is an event."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from evenkeel.adapters.aws.table import Table
from evenkeel.application.errors import StateRefusedError, StateUnavailableError
from tests.builders import zones
from tests.stack import Stack

TOO_LARGE = "table evenkeel: CLUSTER#demo POOL#x: ValidationException: Item size has exceeded the maximum allowed size"


class Client:
    """A client of DynamoDB whose every call fails in the same way."""

    def __init__(self, code: str, reasons: list[str]) -> None:
        self._answer: Any = {"Error": {"Code": code, "Message": "why"}}
        self._answer["CancellationReasons"] = [{"Code": reason} for reason in reasons]

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def fail(**_: Any) -> Any:
            raise ClientError(self._answer, operation)

        return fail


@pytest.mark.parametrize(
    ("code", "reasons"),
    [
        ("ValidationException", []),
        ("AccessDeniedException", []),
        ("ItemCollectionSizeLimitExceededException", []),
        ("TransactionCanceledException", ["None", "ValidationError"]),
    ],
)
def test_a_write_that_fails_again_is_refused_and_a_read_is_not(code: str, reasons: list[str]) -> None:
    table = Table(Client(code, reasons), "evenkeel")
    with pytest.raises(StateRefusedError, match=r"^table evenkeel: CLUSTER#demo POOL#x: .*why"):
        table.call("put_item", Item={"pk": {"S": "CLUSTER#demo"}, "sk": {"S": "POOL#x"}})
    with pytest.raises(StateRefusedError):
        table.transact(("Put", {"Item": {}}))
    with pytest.raises(StateUnavailableError) as caught:
        table.query("pk = :pk", {":pk": "CLUSTER#demo"})
    assert not isinstance(caught.value, StateRefusedError)


@pytest.mark.parametrize("code", ["ThrottlingException", "ProvisionedThroughputExceededException"])
def test_a_write_that_may_succeed_later_is_not_refused(code: str) -> None:
    with pytest.raises(StateUnavailableError) as caught:
        Table(Client(code, []), "evenkeel").call("put_item", Item={"pk": {"S": "a"}, "sk": {"S": "b"}})
    assert not isinstance(caught.value, StateRefusedError)


def refuse_pools(stack: Stack) -> None:
    """Refuse the next write of a pool's item."""

    def refuse(sort_key: str) -> None:
        if sort_key.startswith("POOL#"):
            raise StateRefusedError(TOO_LARGE)
        stack.store.before_write.append(refuse)

    stack.store.before_write.append(refuse)


def test_a_pool_item_that_is_never_stored_is_an_incident_until_it_is() -> None:
    stack = Stack(zones((3, 2, 2), bounds=[(0, 9)] * 3))
    for _ in range(2):
        refuse_pools(stack)
        summary = stack.run()
        assert summary.message == f"demo: its state is not stored: {TOO_LARGE}"
        assert summary.written == 0, "nothing is written whose journal is not stored"
    (opened,) = [detail for kind, detail in stack.bus.published if kind == "Incident Opened"]
    assert (opened["kind"], opened["pool"], opened["severity"]) == ("writes-refused", None, "warning")
    assert "Item size has exceeded" in opened["message"]
    stack.store.before_write.clear()
    stack.run()
    assert [kind for kind in stack.bus.types if kind.startswith("Incident")] == ["Incident Opened", "Incident Closed"]


def test_a_request_that_a_run_refuses_for_its_age_is_an_event() -> None:
    stack = Stack(zones((3, 2, 2), bounds=[(0, 9)] * 3))
    stack.ask("scale-up", pool="workers", nodes=2)
    stack.clock.at += timedelta(minutes=61)
    stack.run()
    (record,) = stack.store.load("demo").scale_requests.values()
    (refused,) = [detail for kind, detail in stack.bus.published if kind == "Scale Request Refused"]
    assert (refused["cluster"], refused["id"], refused["nodes"], refused["pool"]) == ("demo", record.id, 2, "workers")
    assert refused["message"] == record.result
    assert record.result.startswith("refused: ")
    stack.run()
    assert stack.bus.types.count("Scale Request Refused") == 1
