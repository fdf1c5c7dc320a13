"""The API server's time, from the Date header of its answers, is used where the clocks differ."""

import io
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
import urllib3

from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.domain.model.groups import CLOCKS_AGREE, Machine, MachineFailure
from evenkeel.domain.model.observations import Observation
from tests.builders import MINUTE, key
from tests.fakes import NOW, FakeClock, plenty
from tests.parts import replace
from tests.stack import Stack

SECOND = timedelta(seconds=1)
OFF = 10 * MINUTE


@dataclass
class Answers:
    """A transport whose every answer is an empty list with these headers."""

    headers: list[Mapping[str, str]]
    configuration: Any = field(
        default_factory=lambda: SimpleNamespace(host="https://demo", get_api_key_with_prefix=lambda _: None)
    )

    def request(self, *_: Any, **__: Any) -> Any:
        headers = self.headers.pop(0)
        body = json.dumps({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []}).encode()
        response = urllib3.HTTPResponse(io.BytesIO(body), preload_content=False)
        return SimpleNamespace(status=200, response=response, getheaders=lambda: headers)


def api_of(*headers: Mapping[str, str]) -> KubernetesApi:
    return KubernetesApi("demo", cast("Any", Answers(list(headers))), None, FakeClock())


def check(api: KubernetesApi, lists: int = 1) -> timedelta:
    """Return the skew of a check that reads so many lists."""
    api.begin_check()
    for _ in range(lists):
        api.list_all("/apis/example.com/v1/things", plenty)
    api.confirm_clock(plenty)
    assert api.now() == NOW + api.clock_skew
    return api.clock_skew


def skew_after(*headers: Mapping[str, str]) -> timedelta:
    """Return the skew of a check with one list, to which the server answers like this, and then like the last."""
    return check(api_of(*headers, *[headers[-1]] * 4), len(headers))


def date(ahead: timedelta) -> str:
    return format_datetime(NOW + ahead, usegmt=True)


HOUR = timedelta(hours=1)


@pytest.mark.parametrize("ahead", [OFF, -OFF, CLOCKS_AGREE + SECOND, -CLOCKS_AGREE - SECOND, HOUR])
def test_the_servers_clock_is_used_where_it_differs(ahead: timedelta) -> None:
    assert skew_after({"Date": date(ahead)}) == ahead
    assert skew_after({"date": date(ahead)}) == ahead


@pytest.mark.parametrize("ahead", [0 * HOUR, CLOCKS_AGREE, -CLOCKS_AGREE, HOUR + SECOND, 5 * HOUR, -9000 * 24 * HOUR])
def test_a_clock_that_agrees_or_is_impossible_is_not_used(ahead: timedelta) -> None:
    assert skew_after({"Date": date(ahead)}) == timedelta(0)


@pytest.mark.parametrize(
    "text", [None, "", "yesterday", "0", "\x00", "Thu, 99 Jan 2026 12:00:00 GMT", "Thu, 15 Jan 99999 12:00:00 GMT"]
)
def test_without_a_valid_date_our_own_clock_is_used(text: str | None) -> None:
    assert skew_after({} if text is None else {"Date": text}) == timedelta(0)


def test_a_cached_answer_is_dated_by_its_age() -> None:
    assert skew_after({"Date": date(-5 * MINUTE), "Age": "300"}) == timedelta(0)
    assert skew_after({"Date": date(-5 * MINUTE), "Age": "soon"}) == -5 * MINUTE


WRONG = [5 * OFF, -5 * OFF, timedelta(hours=5)]


@pytest.mark.parametrize("right", [timedelta(0), OFF, -OFF])
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("lists", [1, 2, 5, 7])
def test_one_wrong_answer_among_several_changes_nothing(right: timedelta, wrong: timedelta, lists: int) -> None:
    count = max(5, lists)
    for place in range(count):
        dates = [right] * count
        dates[place] = wrong
        assert check(api_of(*({"Date": date(ahead)} for ahead in dates)), lists) == right


def test_answers_that_disagree_are_logged_once_and_not_used(caplog: pytest.LogCaptureFixture) -> None:
    dates = [{"Date": date(ahead)} for ahead in (OFF, OFF, OFF, timedelta(0), -OFF)]
    api = api_of(*dates, *dates)
    assert check(api) == timedelta(0)
    assert check(api, 5) == timedelta(0)
    assert [record.message for record in caplog.records] == [
        "demo: the Dates of its answers disagree by more than 30 s: check the clocks of its API servers; "
        "our own clock is used"
    ]


def test_a_clock_that_is_too_far_off_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    api = api_of(*[{"Date": date(timedelta(hours=5))}] * 10)
    assert [check(api), check(api)] == [timedelta(0)] * 2
    (record,) = caplog.records
    assert "more than 1 h off" in record.message


def test_further_answers_are_read_only_where_a_clock_differs() -> None:
    assert check(api_of({"Date": date(timedelta(0))})) == timedelta(0)  # a second answer would raise
    assert check(api_of({})) == timedelta(0)
    api = api_of({"Date": date(OFF)})
    api.list_all("/apis/example.com/v1/things", plenty)
    assert api.clock_skew == timedelta(0)


def test_an_earlier_checks_skew_does_not_last() -> None:
    api = api_of(*[{"Date": date(OFF)}] * 5, {"Date": date(timedelta(0))})
    assert check(api) == OFF
    assert check(api) == timedelta(0)


class SkewedStack(Stack):
    def __init__(self, skew: timedelta, **fields: Any) -> None:
        super().__init__(**fields)
        self.skew, observe = skew, self.cluster.observe

        def skewed(*arguments: Any, **named: Any) -> Observation:
            return replace(observe(*arguments, **named), clock_skew=self.skew)

        self.cluster.observe = skewed  # type: ignore[method-assign]


@pytest.mark.parametrize("skew", [OFF, -OFF])
class TestSkewedCluster:
    def test_its_failures_fence_by_its_own_clock(self, skew: timedelta) -> None:
        stack = SkewedStack(skew)
        failed = NOW + MINUTE + skew
        failure = MachineFailure(code="InsufficientInstanceCapacity", message="no room", at=failed)
        machine = Machine(name="m", has_node=False, created_at=failed, failure=failure)
        stack.cluster.change(key("a"), requested=3, running=2, machines=(machine,))
        stack.run()
        state = stack.group_state()
        assert (state.failure.last_failure, state.failure.backoff_until) == (failed, failed + 5 * MINUTE)
        assert state.failure.ahead == ()

    def test_the_next_check_is_requested_by_our_clock(self, skew: timedelta) -> None:
        stack = SkewedStack(skew)
        stack.fail("a")
        stack.store.save_group(
            "demo",
            key("a"),
            replace(stack.group_state(), backoff_until=NOW + skew + 5 * MINUTE, last_failure=NOW + skew),
            stack.store.load("demo").versions,
        )
        stack.run()
        assert all(0 < seconds <= 301 for _, _, seconds in stack.queue.second_checks)

    def test_the_skew_is_in_status_and_logged_once(self, skew: timedelta, caplog: pytest.LogCaptureFixture) -> None:
        stack = SkewedStack(skew)
        with caplog.at_level(logging.WARNING):
            stack.runs(3)
        words = f"its API server's clock is 10 min {'ahead of' if skew > timedelta(0) else 'behind'} ours"
        assert [record.message for record in caplog.records].count(f"demo: {words}") == 1
        answer = stack.ask("status")
        assert answer["message"].endswith(words)
        assert answer["clockSkewSeconds"] == skew.total_seconds()

    def test_the_lease_is_by_our_own_clock(self, skew: timedelta) -> None:
        stack = SkewedStack(skew)
        taken = []
        take = stack.store.take_lease

        def watched(*arguments: Any) -> Any:
            taken.append(arguments[3])
            return take(*arguments)

        stack.store.take_lease = watched  # type: ignore[method-assign]
        stack.run()
        assert taken == [NOW + MINUTE]


def test_clocks_that_agree_are_not_reported() -> None:
    stack = Stack()
    stack.run()
    answer = stack.ask("status")
    assert "clock" not in answer["message"]
    assert "clockSkewSeconds" not in answer
