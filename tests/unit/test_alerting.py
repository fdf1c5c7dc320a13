"""News of trouble is told once per channel, the newest last, however it comes in."""

import json
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.adapters.alerts.channels import ChatTopic, Opsgenie, PagerDuty, Shared, Slack, Teams
from evenkeel.adapters.alerts.https import HttpsPost
from evenkeel.adapters.aws.incident_events import read_alert
from evenkeel.application.errors import AccessError, BadRequestError
from evenkeel.application.incidents.alerting import CLAIMED_FOR, Alert, Channel, ChannelError, NotifyChannels, Received
from evenkeel.application.rollout.rollout import rollout_json
from evenkeel.domain.model.incidents import Change, IncidentKind
from evenkeel.domain.rollout.waves import Halt, Phase, Rollout
from tests.alerts import FakeChannel, FakeMemory, FakePost, alert, detail_of
from tests.builders import MINUTE, NOW
from tests.fakes import FakeClock

LATER = "2026-01-31T12:07:00Z"


def received(*alerts: Alert, receives: int = 1) -> list[Received]:
    return [Received(message=f"m{number}", receives=receives, alert=each) for number, each in enumerate(alerts)]


def use_case(*channels: Channel, memory: FakeMemory | None = None, clock: FakeClock | None = None) -> NotifyChannels:
    return NotifyChannels(channels=channels, memory=memory or FakeMemory(), clock=clock or FakeClock())


def minute() -> float:
    return 60.0


def told(channel: FakeChannel) -> list[str]:
    return [each.change.value for parcel in channel.told for each in parcel]


def test_the_same_news_twice_is_told_once() -> None:
    channel = FakeChannel()
    send = use_case(channel)
    assert send(received(alert(), alert()), minute) == set()
    assert send(received(alert()), minute) == set()
    assert send(received(alert(at=LATER)), minute) == set(), "told once more by a run that came after a killed one"
    assert told(channel) == ["opened"]


def test_what_has_ended_is_not_opened_by_its_beginning_that_comes_late() -> None:
    channel = FakeChannel()
    send = use_case(channel)
    assert send(received(alert(Change.CLOSED, at=LATER)), minute) == set()
    assert send(received(alert()), minute) == set()
    assert told(channel) == ["closed"]


def test_of_what_was_told_in_one_second_the_order_says_which_came_last() -> None:
    channel = FakeChannel()
    send = use_case(channel)
    send(received(alert(Change.CLOSED, order=1), alert(order=0)), minute)
    assert told(channel) == ["closed"]
    send(received(alert(order=2, since=LATER)), minute)
    assert told(channel) == ["closed", "opened"]


def test_what_begins_anew_is_told_anew() -> None:
    channel = FakeChannel()
    send = use_case(channel)
    for news in (alert(), alert(Change.CLOSED, at=LATER), alert(at="2026-01-31T13:00:00Z", since=LATER)):
        assert send(received(news), minute) == set()
    assert told(channel) == ["opened", "closed", "opened"]


def test_a_storm_is_one_message_in_a_chat_and_an_alert_each_for_who_pages() -> None:
    chat, pager = FakeChannel(together=True, name="chat"), FakeChannel(name="pager")
    storm = [alert(key=f"c{number}/missing", cluster=f"c{number}", missing=number) for number in range(200)]
    assert use_case(chat, pager)(received(*storm), minute) == set()
    assert [len(parcel) for parcel in chat.told] == [200]
    assert chat.told[0][0].missing == 199, "the worst first"
    assert [len(parcel) for parcel in pager.told] == [1] * 200


def test_what_one_channel_does_not_take_comes_back_and_the_other_is_not_told_again() -> None:
    down = [True]

    def before(_: Sequence[Alert]) -> None:
        if down[0]:
            raise ChannelError("away")

    works, fails, clock = FakeChannel(name="works"), FakeChannel(name="fails", before=before), FakeClock()
    send = use_case(works, fails, clock=clock)
    assert send(received(alert()), minute) == {"m0"}
    down[0] = False
    assert send(received(alert()), minute) == {"m0"}, "its own claim has not ended"
    clock.sleep(CLAIMED_FOR.total_seconds())
    assert send(received(alert()), minute) == set()
    assert (told(works), told(fails)) == (["opened"], ["opened"])


def test_a_channel_that_is_away_is_asked_once_a_batch_and_one_that_refuses_an_alert_gets_the_others() -> None:
    def refuses(*, is_away: bool) -> tuple[FakeChannel, list[str]]:
        asked: list[str] = []

        def before(alerts: Sequence[Alert]) -> None:
            asked.append(alerts[0].key)
            raise ChannelError("no", is_away=is_away)

        return FakeChannel(before=before), asked

    batch = received(*(alert(key=f"c{number}/missing") for number in range(5)))
    for is_away, times in ((True, 1), (False, 5)):
        channel, asked = refuses(is_away=is_away)
        assert use_case(channel)(batch, minute) == {each.message for each in batch}
        assert len(asked) == times


def test_a_short_retry_after_is_waited_for_and_a_long_one_waits_on_the_queue() -> None:
    for pause, slept, back in ((2.0, [2.0], set()), (30.0, [], {"m0"})):
        answers = iter([ChannelError("429", pause=pause), None])

        def before(_: Sequence[Alert], answers: Any = answers) -> None:
            if error := next(answers):
                raise error

        clock, channel = FakeClock(), FakeChannel(before=before)
        assert use_case(channel, clock=clock)(received(alert()), minute) == back
        assert clock.slept == slept


@pytest.mark.parametrize(("left", "slept"), [(31.0, [10.0]), (29.0, [])])
def test_a_retry_after_is_waited_for_only_where_time_is_left_to_report(left: float, slept: list[float]) -> None:
    def before(_: Sequence[Alert]) -> None:
        raise ChannelError("429", pause=10.0)

    clock = FakeClock()
    assert use_case(FakeChannel(before=before), clock=clock)(received(alert()), lambda: left) == {"m0"}
    assert clock.slept == slept


def test_nothing_new_is_begun_when_time_runs_out() -> None:
    batch = received(alert(key="a/missing"), alert(key="b/missing"), alert(key="c/missing"))
    for together in (False, True):
        left = iter([60.0, 15.0, 15.0])
        channel = FakeChannel(together=together)
        assert use_case(channel)(batch, lambda left=left: next(left)) == {"m1", "m2"}  # type: ignore[misc]
        assert [[each.key for each in parcel] for parcel in channel.told] == [["a/missing"]]


def storm(clusters: int, receives: int = 1) -> list[Received]:
    return received(
        *(alert(key=f"c{number}/missing", cluster=f"c{number}") for number in range(clusters)), receives=receives
    )


def breaking(on: str, *, is_away: bool) -> FakeChannel:
    """A chat that takes no message with news of this cluster in it."""

    def before(alerts: Sequence[Alert]) -> None:
        if on in {each.cluster for each in alerts}:
            raise ChannelError("no", is_away=is_away)

    return FakeChannel(together=True, before=before)


def test_whom_a_chat_refuses_holds_up_no_other_and_the_rest_are_a_few_messages() -> None:
    channel, batch = breaking("c17", is_away=False), storm(64)
    assert use_case(channel)(batch, minute) == {"m17"}
    assert sorted(len(parcel) for parcel in channel.told) == [1, 2, 4, 8, 16, 32]


def test_one_that_breaks_a_chat_holds_up_what_is_new_no_longer_than_three_tries() -> None:
    channel = breaking("c3", is_away=True)
    batch = [*storm(5, receives=4), *received(alert(key="new/missing", cluster="new"))]
    back = use_case(channel)(batch, minute)
    assert "m3" in back
    assert {each.key for parcel in channel.told for each in parcel} >= {"new/missing", "c0/missing", "c2/missing"}


def test_a_storm_is_one_message_also_when_the_chat_was_away_for_an_hour() -> None:
    away = [True]
    asked: list[int] = []

    def before(alerts: Sequence[Alert]) -> None:
        asked.append(len(alerts))
        if away[0]:
            raise ChannelError("500")

    channel, clock = FakeChannel(together=True, before=before), FakeClock()
    send = use_case(channel, clock=clock)
    for receives in range(1, 21):
        assert len(send(storm(200, receives=receives), minute)) == 200
        clock.sleep(180)
    assert len(asked) <= 2 * 20, "a chat that is away is asked once or twice for each batch"
    away[0] = False
    assert send(storm(200, receives=21), minute) == set()
    assert [len(parcel) for parcel in channel.told] == [200]


# ------------------------------------------------------------ what is said, and how


def sent_by(
    channel: type[Slack] | type[Teams] | type[PagerDuty] | type[Opsgenie], *alerts: Alert, **fields: Any
) -> Any:
    post = FakePost()
    page = fields.pop("page", "")
    shared = Shared(secret=lambda name: f"text-of-{name}", post=post, page=page)  # type: ignore[arg-type]
    channel(shared=shared, **fields).send(alerts)
    ((url, body, headers),) = post.sent
    return url, json.loads(body), headers


def test_pagerduty_is_told_by_one_key_that_it_begins_changes_and_ends() -> None:
    fields = {"key_secret": "pd", "url": "https://events.example/v2/enqueue", "page": "https://page.example/"}
    url, body, _ = sent_by(PagerDuty, alert(), **fields)
    assert (url, body["routing_key"], body["event_action"]) == (fields["url"], "text-of-pd", "trigger")
    assert body["payload"]["severity"] == "critical"
    assert body["links"] == [{"href": "https://page.example/", "text": "All of the fleet"}]
    keys = {body["dedup_key"]}
    for news, action in ((Change.CHANGED, "trigger"), (Change.CLOSED, "resolve")):
        _, body, _ = sent_by(PagerDuty, alert(news), **fields)
        assert body["event_action"] == action
        keys.add(body["dedup_key"])
    assert keys == {alert().key}
    assert set(body) == {"routing_key", "event_action", "dedup_key"}, "a resolve needs no payload"


def test_opsgenie_and_its_successor_are_opened_and_closed_by_alias() -> None:
    fields = {"key_secret": "og", "url": "https://api.example/v2/alerts"}
    url, body, headers = sent_by(Opsgenie, alert(), **fields)
    assert (url, headers["Authorization"], body["alias"]) == (fields["url"], "GenieKey text-of-og", alert().key)
    assert len(body["message"]) <= 130
    assert body["priority"] == "P1"
    url, body, _ = sent_by(Opsgenie, alert(Change.CLOSED), **fields)
    quoted = "blue%2Fcluster-api%2Fprod%2Fworkers%2Fmissing"
    assert url == f"https://api.example/v2/alerts/{quoted}/close?identifierType=alias"


@pytest.mark.parametrize("kind", IncidentKind)
def test_every_kind_has_a_severity_that_pagerduty_knows(kind: IncidentKind) -> None:
    _, body, _ = sent_by(PagerDuty, alert(kind=kind.value), key_secret="pd", url="https://x.example/")
    assert body["payload"]["severity"] in {"critical", "error", "warning", "info"}


def test_a_key_that_is_longer_than_channels_take_is_cut_and_still_names_one_trouble() -> None:
    one, other = (alert(key=f"{'x' * 300}{end}/missing") for end in "ab")
    assert len(one.dedup) == len(other.dedup) == 255
    assert one.dedup != other.dedup


def test_what_a_cloud_says_makes_no_link_no_mention_and_no_second_line_in_a_chat() -> None:
    hostile = "no <!channel> & <https://evil.example|click>\n[here](https://evil.example) " + "x" * 10_000
    _, slack, _ = sent_by(Slack, alert(message=hostile), url_secret="s", page="https://page.example/?a=1&b=2")
    (link,) = [line for line in slack["text"].splitlines() if "<" in line]
    assert link == "<https://page.example/?a=1&amp;b=2|All of the fleet>"
    _, teams, _ = sent_by(Teams, alert(message=hostile), url_secret="t")
    texts = [block["text"] for block in teams["attachments"][0]["content"]["body"]]
    assert not any(char in text for text in texts for char in "<>[]\n")


HOSTILE = (
    "\x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x07here\u202etxt.exe\u2066 \u200b\x9b2J "
    "see https://evil.example/login?a=b, HTTP://u:p@Evil.Example:8080, slack://open, www.evil.example "
    "[here](https://a.(https://b.example)) <https://evil.example|status> <!here> javascript://x "
    "mailto:a@evil.example MailTo:a@evil.example //evil.example/x https:\\\\evil.example "
    "https:\\/\\/evil.example WWW.evil.example _www.evil.example https:evil.example http:/evil.example tel:+1900 "
    "ftp:evil.example"
)


class Topic:
    """Where a topic's messages go."""

    def publish(self, **message: str) -> None:
        self.message = json.loads(message["Message"])


def texts_told(name: str, alerts: Sequence[Alert]) -> list[str]:
    """All that people are shown of what a channel is sent, but for links of our own."""
    channels: dict[str, Any] = {"slack": Slack, "teams": Teams, "pagerduty": PagerDuty, "opsgenie": Opsgenie}
    if name == "topic":
        topic = Topic()
        ChatTopic(client=topic, topic="arn").send(alerts)
        return texts_of({**topic.message, "metadata": topic.message.get("metadata", {}).get("summary")})
    fields = {"url_secret": "s"} if name in ("slack", "teams") else {"key_secret": "k", "url": "https://x.example"}
    _, body, _ = sent_by(channels[name], *alerts, **fields)
    if name == "teams":
        body = body["attachments"][0]["content"]["body"]
    return texts_of(body)


def texts_of(value: Any) -> list[str]:
    if isinstance(value, dict):
        return texts_of([*value, *value.values()])
    if isinstance(value, list):
        return [text for each in value for text in texts_of(each)]
    return value.split("\n") if isinstance(value, str) else []


@pytest.mark.parametrize("name", ["slack", "teams", "topic", "pagerduty", "opsgenie"])
@pytest.mark.parametrize("news", [Change.OPENED, Change.CHANGED, Change.CLOSED])
@pytest.mark.parametrize("count", [1, 3])
def test_nothing_that_a_failure_says_is_a_link_or_an_order_in_any_channel(name: str, news: Change, count: int) -> None:
    said = {"message": HOSTILE, "pool": HOSTILE, "zones": (HOSTILE,), "todo": HOSTILE, "command": HOSTILE}
    alerts = [alert(news, key=f"demo/{number}", **said) for number in range(count)]
    for each in [[one] for one in alerts] if name in ("pagerduty", "opsgenie") else [alerts]:
        for text in texts_told(name, each):
            assert text.isprintable(), text
            assert not [
                part for part in ("://", ":\\", "mailto:", "tel:", "www.", "evil.example", "](") if part in text.lower()
            ], text


@pytest.mark.parametrize(
    "text",
    [
        "eu-central-1a: m5.xlarge of default/workers, 1.27.3, i-0a1b2c: InsufficientInstanceCapacity",
        "http: server gave HTTP response to HTTPS client; read /var/run/x.sock: 10.0.0.1:443 refused",
        "halted by jane@corp.example; hotel:5, scale-up of registry.k8s.io/pause:3.9",
    ],
)
def test_names_and_errors_that_are_no_addresses_are_shown_as_they_are(text: str) -> None:
    _, body, _ = sent_by(Slack, alert(message=text), url_secret="s")
    assert text in body["text"]


def test_the_page_and_the_runbook_stay_links() -> None:
    one = alert(runbook="https://docs.example/runbooks")
    _, slack, _ = sent_by(Slack, one, url_secret="s", page="https://page.example/")
    assert "<https://page.example/|All of the fleet>" in slack["text"]
    assert "Runbook: https://docs.example/runbooks" in slack["text"]
    _, pagerduty, _ = sent_by(PagerDuty, one, key_secret="k", url="https://x.example")
    assert pagerduty["payload"]["custom_details"]["runbook"] == one.runbook


@pytest.mark.parametrize("count", [1, 2, 20, 21, 500])
def test_a_message_fits_into_what_each_chat_takes(count: int) -> None:
    alerts = [alert(key=f"{n}/missing", cluster=f"{'c' * 60}{n}", message="m" * 10_000) for n in range(count)]
    _, slack, _ = sent_by(Slack, *alerts, url_secret="s")
    assert len(slack["text"]) < 5_000
    _, teams, _ = sent_by(Teams, *alerts, url_secret="t", page="https://page.example/" + "x" * 480)
    assert len(json.dumps(teams)) < 28_000
    assert ("more: evenkeel status" in slack["text"]) is (count > 20)


def test_chatbot_gets_its_custom_notification_and_one_thread_for_each_trouble() -> None:
    class Topic:
        def __init__(self) -> None:
            self.published: list[dict[str, Any]] = []

        def publish(self, **asked: Any) -> None:
            self.published.append(asked)

    topic = Topic()
    channel = ChatTopic(client=topic, topic="arn:aws:sns:eu-central-1:123456789012:t", page="https://page.example/")
    channel.send([alert()])
    channel.send([alert(Change.CLOSED)])
    channel.send([alert(), alert(key="other/missing")])
    opened, closed, many = (json.loads(each["Message"]) for each in topic.published)
    assert (opened["version"], opened["source"], opened["content"]["textType"]) == ("1.0", "custom", "client-markdown")
    assert opened["metadata"]["threadId"] == closed["metadata"]["threadId"] == alert().key
    assert "metadata" not in many
    assert opened["content"]["nextSteps"] == ["All of the fleet: https://page.example/"]


SECRETS = ["", "two words", "with\nline", "umlaut-ü", "x" * 300]


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_that_is_no_key_is_named_and_not_shown(text: str) -> None:
    shared = Shared(secret=lambda _: text, post=FakePost())  # type: ignore[arg-type]
    for channel in (PagerDuty, Opsgenie):
        with pytest.raises(ChannelError) as caught:
            channel(shared=shared, key_secret="evenkeel/key", url="https://x.example/").send([alert()])
        assert "evenkeel/key" in str(caught.value)
        assert not text or text not in str(caught.value)


def test_a_secret_that_cannot_be_read_leaves_the_news_on_the_queue() -> None:
    def missing(name: str) -> str:
        raise AccessError(f"secret {name} cannot be read: not found")

    shared = Shared(secret=missing, post=FakePost())  # type: ignore[arg-type]
    assert use_case(Slack(shared=shared, url_secret="s"))(received(alert()), minute) == {"m0"}


ADDRESSES = [
    "",
    "hooks.slack.example/services/SECRET",
    "http://hooks.slack.example/SECRET",
    "file:///etc/passwd",
    "https:///SECRET",
    "https://user:SECRET@host.example/",
    "https://host.example:port/SECRET",
    "https://host.example/SE CRET",
    "https://host.example/SECRET\r\nHost: other",
    "https://[::1/SECRET",
]


@pytest.mark.parametrize("address", ["169.254.169.254", "127.0.0.1", "::1", "100.100.100.200", "64:ff9b:1::1"])
def test_a_service_is_at_no_address_of_this_machine_or_of_the_clouds_own(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [[(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 443))] for each in (address, "10.0.0.7")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found.pop(0))
    made: list[object] = []
    monkeypatch.setattr(socket, "socket", lambda *_: made.append(_))
    with pytest.raises(ChannelError, match=f"^hooks.example leads to {address} ") as caught:
        HttpsPost()("https://hooks.example/SECRET", b"{}", {}, frozenset())
    assert (made, caught.value.is_away, "SECRET" in str(caught.value)) == ([], False, False)
    assert len(found) == 1, "the name is resolved once"


@pytest.mark.parametrize("url", ADDRESSES)
def test_nothing_but_https_is_spoken_and_no_error_shows_the_address(url: str) -> None:
    with pytest.raises(ChannelError) as caught:
        HttpsPost()(url, b"{}", {}, frozenset())
    assert "SECRET" not in str(caught.value)
    assert "CRET" not in str(caught.value)


# ------------------------------------------------------------ what comes in


def test_news_is_read_as_the_bus_has_it_and_more_is_passed_over() -> None:
    news = alert()
    assert read_alert(json.dumps({**detail_of(news), "groups": [], "said": "x", "new in the next release": {}})) == news


def test_news_of_the_release_before_has_no_order() -> None:
    detail = detail_of(alert())
    del detail["order"]
    assert read_alert(json.dumps(detail)) == alert()


@pytest.mark.parametrize("body", ["", "[]", "{}", "null", '{"key": 7}', "[" * 5_000, json.dumps({"news": "opened"})])
def test_what_is_no_news_is_said_to_be_none(body: str) -> None:
    with pytest.raises(BadRequestError):
        read_alert(body)


# ------------------------------------------------------------ clusters that go live in waves


def rollout_detail(**fields: Any) -> str:
    """As the bus has it: told twice, at different times, it says the same but for when its phase began."""
    rollout = Rollout(
        id=fields.pop("id", "01KE8Z5T6W8H3Q2V9R4N7M1XCB"),
        at=fields.pop("at", NOW),
        size=2,
        soak=timedelta(minutes=15),
        since=NOW + fields.pop("later", timedelta(minutes=20)),
        number=2,
        wave=("a", "b"),
        **fields,
    )
    detail = rollout_json(rollout, "prod")
    counted = ("wave", "live", "waiting", "leftOut", "halts")
    told = {name: len(value) if name in counted else value for name, value in detail.items()}
    return json.dumps({**told, "command": "evenkeel rollout --stack prod"})


HALT = (Halt(cluster="blue", kind=IncidentKind.CONTESTED, pool="ns/workers"),)
HALTED = rollout_detail(phase=Phase.HALTED, halts=HALT)
ABORTED = rollout_detail(phase=Phase.HALTED, halted_by="jane")
DONE = rollout_detail(phase=Phase.DONE)


@pytest.mark.parametrize(
    ("detail", "title", "pages"),
    [(HALTED, "Rollout halted", True), (ABORTED, "Rollout halted", False), (DONE, "Rollout done", False)],
)
def test_a_rollout_that_trouble_has_halted_pages_and_all_else_of_it_is_told_in_chats(
    detail: str, title: str, pages: bool
) -> None:
    news = read_alert(detail)
    _, chat, _ = sent_by(Slack, news, url_secret="url")
    assert chat["text"].startswith(f"*{title}: rollout of 2026-01-15T12:00:00Z: ")
    _, paged, _ = sent_by(PagerDuty, news, key_secret="key", url="https://x")
    assert paged["event_action"] == ("trigger" if pages else "resolve")
    assert paged.get("payload", {}).get("severity") == ("warning" if pages else None)
    assert ("evenkeel rollout --stack prod" in chat["text"]) is pages


def test_a_rollout_is_told_once_though_its_end_is_told_twice_at_different_times() -> None:
    channel, memory = FakeChannel("chat"), FakeMemory()
    again = rollout_detail(phase=Phase.HALTED, halts=HALT, later=timedelta(minutes=21))
    for detail in (HALTED, again, HALTED):
        assert use_case(channel, memory=memory)(received(read_alert(detail)), minute) == set()
    assert len(told(channel)) == 1


@pytest.mark.parametrize(
    ("end", "is_next"), [(ABORTED, False), (rollout_detail(phase=Phase.DONE, id="02", at=NOW + MINUTE), True)]
)
def test_what_a_halted_rollout_has_opened_ends_when_it_is_given_up_or_the_next_one_is_done(
    end: str, is_next: bool
) -> None:
    pager, memory = FakeChannel(), FakeMemory()
    halted, ended = read_alert(HALTED), read_alert(end)
    assert (halted.dedup == ended.dedup, halted.at < ended.at) == (True, is_next)
    for news in (halted, ended, halted, ended):  # late, and twice
        assert use_case(pager, memory=memory)(received(news), minute) == set()
    assert told(pager) == ["opened", "closed"]


def test_beside_trouble_a_rollout_is_counted_as_none() -> None:
    _, chat, _ = sent_by(Slack, alert(), alert(key="x"), read_alert(DONE), url_secret="url")
    assert chat["text"].splitlines()[0] == "*2 incidents in 1 clusters; Rollout done*"


@pytest.mark.parametrize("change", [{"phase": "watching"}, {"halts": "many"}, {"key": ""}, {"at": "noon"}])
def test_what_is_no_end_of_a_rollout_is_said_to_be_none(change: dict[str, Any]) -> None:
    with pytest.raises(BadRequestError):
        read_alert(json.dumps({**json.loads(HALTED), **change}))


def test_what_a_channel_remembers_of_trouble_from_a_release_before_is_known_again() -> None:
    assert alert().print == "751eecbf04fa3ff4"
