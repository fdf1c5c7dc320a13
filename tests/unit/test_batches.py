"""A message that is handled says nothing; one that is not leaves a line and a count, whatever went wrong."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from evenkeel.adapters.aws.batches import Inbox, SqsRecord
from evenkeel.adapters.aws.messages import Request
from evenkeel.application.errors import QueueUnavailableError, StateUnavailableError, UnknownClusterError


class Desk:
    """Queue, logger and metrics of a function, as far as a message meets them."""

    def __init__(self, buries: Exception | None = None, *, tries_soon: bool = False) -> None:
        self._tries_soon = tries_soon
        self.tried_soon: list[tuple[str, int]] = []
        self.buried: list[tuple[str, str]] = []
        self.lines: list[str] = []
        self.counts: list[str] = []
        self._buries = buries

    def dead_letter(self, body: str, reason: str, message_id: str) -> None:
        if self._buries is not None:
            raise self._buries
        self.buried.append((body, reason))

    def try_soon(self, receipt_handle: str, receives: int) -> None:
        self.tried_soon.append((receipt_handle, receives))

    def error(self, line: str, *values: Any) -> None:
        self.lines.append(line % values)

    def add_metric(self, name: str, unit: Any, value: int) -> None:
        self.counts.append(name)

    def handle(self, body: str, work: Callable[[Request], None]) -> None:
        received = {"ApproximateReceiveCount": "2"}
        record = SqsRecord.read({"body": body, "messageId": "m-1", "receiptHandle": "r-1", "attributes": received})
        me: Any = self
        Inbox(queue=me, tries_soon=self._tries_soon).handle(record, work, me, me)


def asks(cluster: str) -> str:
    return json.dumps({"cluster": cluster, "reason": "scan"})


def fails(error: Exception) -> Callable[[Request], None]:
    def work(request: Request) -> None:
        raise error

    return work


def test_what_is_handled_leaves_no_trace_here() -> None:
    done: list[Request] = []
    desk = Desk()
    desk.handle(asks("demo"), done.append)
    assert done == [Request(cluster="demo", reason="scan")]
    assert (desk.buried, desk.lines, desk.counts) == ([], [], [])


@pytest.mark.parametrize("body", ["{", asks("demo")])
def test_poison_is_buried_with_its_reason_and_acknowledged(body: str) -> None:
    desk = Desk()
    desk.handle(body, fails(UnknownClusterError("cluster 'demo' is not registered")))
    ((buried, reason),) = desk.buried
    assert (buried, desk.counts) == (body, ["PoisonMessages"])
    assert reason in desk.lines[0]


@pytest.mark.parametrize("error", [StateUnavailableError("table: no answer"), ValueError("a bug")])
def test_what_may_become_right_is_counted_and_comes_back(error: Exception) -> None:
    desk = Desk()
    with pytest.raises(type(error)):
        desk.handle(asks("demo"), fails(error))
    assert (desk.buried, desk.counts) == ([], ["RunsFailed"])
    assert str(error) in desk.lines[0]


def test_poison_that_cannot_be_buried_comes_back_and_is_counted() -> None:
    desk = Desk(buries=QueueUnavailableError("queue: no answer"))
    with pytest.raises(QueueUnavailableError):
        desk.handle("{", fails(AssertionError("not reached")))
    assert desk.counts == ["RunsFailed"]


@pytest.mark.parametrize(("tries_soon", "tried"), [(True, [("r-1", 2)]), (False, [])])
def test_only_a_message_of_the_rebalance_queue_is_asked_to_come_back_earlier(
    tries_soon: bool, tried: list[tuple[str, int]]
) -> None:
    desk = Desk(tries_soon=tries_soon)
    with pytest.raises(StateUnavailableError):
        desk.handle(asks("demo"), fails(StateUnavailableError("table: no answer")))
    assert desk.tried_soon == tried
