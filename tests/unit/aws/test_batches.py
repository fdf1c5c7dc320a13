"""A handled message leaves no trace. A failing one leaves a log line and a count."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from aws_lambda_powertools.utilities.batch import SqsFifoPartialProcessor, process_partial_response
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters.aws.batches import Inbox, SqsRecord, answer_batch
from evenkeel.application.errors import (
    BadRequestError,
    QueueUnavailableError,
    StateUnavailableError,
    UnknownClusterError,
)


class Desk:
    """The queue, logger and metrics of a function that messages use."""

    def __init__(self, buries: Exception | None = None, *, tries: int | None = None) -> None:
        self._buries, self._tries = buries, tries
        self.tried_soon: list[tuple[str, int]] = []
        self.buried: list[tuple[str, str]] = []
        self.lines: list[str] = []
        self.counts: list[str] = []

    def dead_letter(self, body: str, reason: str) -> None:
        if self._buries is not None:
            raise self._buries
        self.buried.append((body, reason))

    def try_soon(self, receipt_handle: str, receives: int) -> None:
        self.tried_soon.append((receipt_handle, receives))

    def error(self, line: str, *values: Any) -> None:
        self.lines.append(line % values)

    def add_metric(self, name: str, unit: Any, value: int) -> None:
        self.counts.append(name)

    def handle(self, body: str, work: Callable[[str], None]) -> None:
        received = {"ApproximateReceiveCount": "2"}
        record = SqsRecord.read({"body": body, "messageId": "m-1", "receiptHandle": "r-1", "attributes": received})
        me: Any = self
        Inbox(queue=me, tries=self._tries).handle(record, work, me, me)


def asks(cluster: str) -> str:
    return json.dumps({"cluster": cluster, "reason": "scan"})


def fails(error: Exception) -> Callable[[str], None]:
    def work(body: str) -> None:
        raise error

    return work


def test_a_handled_message_leaves_no_trace() -> None:
    done: list[str] = []
    desk = Desk()
    desk.handle(asks("demo"), done.append)
    assert done == [asks("demo")]
    assert (desk.buried, desk.lines, desk.counts) == ([], [], [])


@pytest.mark.parametrize("body", ["{", asks("demo")])
def test_poison_is_buried_with_its_reason_and_acknowledged(body: str) -> None:
    desk = Desk()
    desk.handle(body, fails(UnknownClusterError("cluster 'demo' is not registered")))
    ((buried, reason),) = desk.buried
    assert (buried, desk.counts) == (body, ["PoisonMessages"])
    assert reason in desk.lines[0]


@pytest.mark.parametrize("error", [StateUnavailableError("table: no answer"), ValueError("a bug")])
@pytest.mark.parametrize(("tries", "tried"), [(2, [("r-1", 2)]), (None, [])], ids=["rebalance queue", "other"])
def test_a_failed_message_is_retried(error: Exception, tries: int | None, tried: list[tuple[str, int]]) -> None:
    desk = Desk(tries=tries)
    with pytest.raises(type(error)):
        desk.handle(asks("demo"), fails(error))
    assert (desk.buried, desk.counts, desk.tried_soon) == ([], ["RunsFailed"], tried)
    assert str(error) in desk.lines[0]


def test_a_message_that_has_used_its_tries_is_buried_without_another_one() -> None:
    desk = Desk(tries=1)
    desk.handle(asks("demo"), fails(AssertionError("work that kills its worker")))
    assert desk.buried == [(asks("demo"), "not handled in 1 tries")]
    assert (desk.counts, desk.tried_soon) == (["PoisonMessages"], [])


def test_poison_that_cannot_be_buried_comes_back_and_is_counted() -> None:
    desk = Desk(buries=QueueUnavailableError("queue: no answer"))
    with pytest.raises(QueueUnavailableError):
        desk.handle("{", fails(BadRequestError("message: not JSON")))
    assert desk.counts == ["RunsFailed"]


def delivered(message_id: str, group: str | None) -> dict[str, Any]:
    attributes = {"ApproximateReceiveCount": "1"} | ({} if group is None else {"MessageGroupId": group})
    fixed = {"receiptHandle": "r-1", "body": "{}", "messageAttributes": {}, "eventSource": "aws:sqs"}
    return {**fixed, "messageId": message_id, "attributes": attributes}


@given(st.lists(st.tuples(st.sampled_from([None, "", "a", "b", "c"]), st.booleans()), min_size=1, max_size=10))
def test_a_batch_is_answered_like_powertools_fifo_processor(messages: list[tuple[str | None, bool]]) -> None:
    """A failed message holds back the later ones of its group, and no others."""
    records = [delivered(str(number), group) for number, (group, _) in enumerate(messages)]

    def handling(tried: list[str]) -> Callable[[Any], None]:
        def handle(record: Any) -> None:
            tried.append(record.message_id)
            if messages[int(record.message_id)][1]:
                raise ValueError("on purpose")

        return handle

    processor = SqsFifoPartialProcessor(skip_group_on_error=True)
    processor.raise_on_entire_batch_failure = False
    theirs: list[str] = []
    ours: list[str] = []
    expected = process_partial_response({"Records": records}, handling(theirs), processor)
    assert answer_batch(records, handling(ours)) == expected
    assert ours == theirs
