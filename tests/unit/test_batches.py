"""A message that is handled says nothing; one that is not leaves a line and a count, whatever went wrong."""

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

    def handle(self, body: str, work: Callable[[str], None]) -> None:
        received = {"ApproximateReceiveCount": "2"}
        record = SqsRecord.read({"body": body, "messageId": "m-1", "receiptHandle": "r-1", "attributes": received})
        me: Any = self
        Inbox(queue=me, tries_soon=self._tries_soon).handle(record, work, me, me)


def asks(cluster: str) -> str:
    return json.dumps({"cluster": cluster, "reason": "scan"})


def fails(error: Exception) -> Callable[[str], None]:
    def work(body: str) -> None:
        raise error

    return work


def test_what_is_handled_leaves_no_trace_here() -> None:
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
def test_what_may_become_right_is_counted_and_comes_back(error: Exception) -> None:
    desk = Desk()
    with pytest.raises(type(error)):
        desk.handle(asks("demo"), fails(error))
    assert (desk.buried, desk.counts) == ([], ["RunsFailed"])
    assert str(error) in desk.lines[0]


def test_poison_that_cannot_be_buried_comes_back_and_is_counted() -> None:
    desk = Desk(buries=QueueUnavailableError("queue: no answer"))
    with pytest.raises(QueueUnavailableError):
        desk.handle("{", fails(BadRequestError("message: not JSON")))
    assert desk.counts == ["RunsFailed"]


@pytest.mark.parametrize(("tries_soon", "tried"), [(True, [("r-1", 2)]), (False, [])])
def test_only_a_message_of_the_rebalance_queue_is_asked_to_come_back_earlier(
    tries_soon: bool, tried: list[tuple[str, int]]
) -> None:
    desk = Desk(tries_soon=tries_soon)
    with pytest.raises(StateUnavailableError):
        desk.handle(asks("demo"), fails(StateUnavailableError("table: no answer")))
    assert desk.tried_soon == tried


# ---------------------------------------------------------------- batches
def delivered(message_id: str, group: str | None) -> dict[str, Any]:
    attributes = {"ApproximateReceiveCount": "1"} | ({} if group is None else {"MessageGroupId": group})
    return {
        "messageId": message_id,
        "receiptHandle": "r-1",
        "body": "{}",
        "attributes": attributes,
        "messageAttributes": {},
        "eventSource": "aws:sqs",
    }


def test_a_failed_message_holds_back_the_later_ones_of_its_group_and_no_others() -> None:
    records = [delivered("1", "a"), delivered("2", "b"), delivered("3", "a"), delivered("4", "b"), delivered("5", None)]
    handled: list[str] = []

    def handle(record: SqsRecord) -> None:
        handled.append(record.message_id)
        if record.message_id in ("1", "5"):
            raise ValueError("as asked")

    answer = answer_batch(records, handle)
    assert answer == {"batchItemFailures": [{"itemIdentifier": name} for name in ("1", "3", "5")]}
    assert handled == ["1", "2", "4", "5"]


def test_no_group_is_held_back_in_the_next_batch() -> None:
    def fail(record: SqsRecord) -> None:
        raise ValueError("as asked")

    handled: list[SqsRecord] = []
    assert answer_batch([delivered("1", "a")], fail) == {"batchItemFailures": [{"itemIdentifier": "1"}]}
    assert answer_batch([delivered("1", "a")], handled.append) == {"batchItemFailures": []}
    assert [record.message_id for record in handled] == ["1"]


@given(st.lists(st.tuples(st.sampled_from([None, "", "a", "b", "c"]), st.booleans()), min_size=1, max_size=10))
def test_a_batch_is_answered_as_powertools_processor_for_fifo_queues_answers_it(
    messages: list[tuple[str | None, bool]],
) -> None:
    records = [delivered(str(number), group) for number, (group, _) in enumerate(messages)]

    def handling(tried: list[str]) -> Callable[[Any], None]:
        def handle(record: Any) -> None:
            tried.append(record.message_id)
            if messages[int(record.message_id)][1]:
                raise ValueError("as asked")

        return handle

    processor = SqsFifoPartialProcessor(skip_group_on_error=True)
    processor.raise_on_entire_batch_failure = False
    theirs: list[str] = []
    ours: list[str] = []
    expected = process_partial_response({"Records": records}, handling(theirs), processor)
    assert answer_batch(records, handling(ours)) == expected
    assert ours == theirs
