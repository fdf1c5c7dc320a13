"""Alerts of one incident, repeated, late, out of order, with dying or parallel workers: the newest is last."""

from collections.abc import Sequence
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.application.incidents.alerting import CLAIMED_FOR, Alert, ChannelError, NotifyChannels, Received
from evenkeel.domain.model.incidents import Change
from tests.alerts import FakeChannel, FakeMemory, alert
from tests.fakes import FakeClock


class Killed(BaseException):
    """The worker's process ended."""


def story(length: int) -> list[Alert]:
    """Return alerts of one incident: opened, changed, ended, opened again. Two each are within one second."""
    news = [Change.OPENED, Change.CHANGED, Change.CLOSED]
    return [
        alert(
            news[number % 3],
            at=f"2026-01-31T12:{number // 2:02}:00Z",
            order=number % 2,
            since=f"2026-01-31T11:{number // 3:02}:00Z",
            missing=number,
        )
        for number in range(length)
    ]


BATCHES = st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=4), max_size=12)
MISHAPS = st.lists(
    st.sampled_from(["taken", "refused", "killed before", "killed after", "another worker"]), max_size=12
)


@given(length=st.integers(1, 8), batches=BATCHES, mishaps=MISHAPS, together=st.booleans())
def test_a_channel_ends_with_the_newest_alert_and_never_goes_back(
    length: int, batches: list[list[int]], mishaps: list[str], together: bool
) -> None:
    news, clock, memory = story(length), FakeClock(), FakeMemory()
    waiting = [Received(message=str(number), receives=1, alert=each) for number, each in enumerate(news)]
    left = list(mishaps)
    nested = [0]

    def before(_: Sequence[Alert]) -> None:
        match left.pop(0) if left else "taken":
            case "refused":
                raise ChannelError("away")
            case "killed before":
                raise Killed
            case "another worker" if nested[0] < 3:
                nested[0] += 1
                with suppress(Killed):
                    work(list(reversed(waiting)))  # in parallel, while this one sends
                nested[0] -= 1

    def after(_: Sequence[Alert]) -> None:
        if left and left[0] == "killed after":
            left.pop(0)
            raise Killed

    channel = FakeChannel(together=together, before=before, after=after)
    report = NotifyChannels(channels=[channel], memory=memory, clock=clock)

    def work(batch: list[Received]) -> set[str]:
        return report(batch, lambda: 60.0)

    handled: set[str] = set()
    for batch in batches:
        taken = [waiting[number % length] for number in batch]
        with suppress(Killed):
            handled |= {each.message for each in taken} - work(taken)
        clock.sleep(CLAIMED_FOR.total_seconds() / 2)
    for _ in range(3 * len(mishaps) + 3):  # the queue delivers unhandled messages again, for hours
        clock.sleep(CLAIMED_FOR.total_seconds())
        rest = [each for each in waiting if each.message not in handled]
        with suppress(Killed):
            handled |= {each.message for each in rest} - (work(rest) if rest else set())

    moments = [each.moment for parcel in channel.reported for each in parcel]
    assert moments[-1] == news[-1].moment, "what a service believes at last is how it is"
    assert moments == sorted(moments), "an old word never follows a newer one"


@given(order=st.permutations(range(6)))
def test_without_failures_no_alert_is_sent_twice(order: list[int]) -> None:
    channel, news = FakeChannel(), story(6)
    report = NotifyChannels(channels=[channel], memory=FakeMemory(), clock=FakeClock())
    for number in [*order, *order]:
        assert report([Received(message="m", receives=1, alert=news[number])], lambda: 60.0) == set()
    reported = [each for parcel in channel.reported for each in parcel]
    assert len(reported) == len(set(reported))
