"""Each channel is notified of an incident's change once, and every channel's message fits and is harmless."""

import json
import re
import socket
from collections.abc import Sequence
from typing import Any

import pytest

from evenkeel.adapters.alerts.channels import Alertmanager, ChatTopic, Opsgenie, PagerDuty, Shared, Slack, Teams
from evenkeel.adapters.alerts.https import HttpsPost
from evenkeel.adapters.aws.incident_events import read_alert
from evenkeel.application.errors import AccessError, BadRequestError
from evenkeel.application.incidents.alerting import CLAIMED_FOR, Alert, Channel, ChannelError, NotifyChannels, Received
from evenkeel.domain.model.incidents import Change, IncidentKind
from tests.alerts import FakeChannel, FakeMemory, FakePost, alert, detail_of
from tests.fakes import FakeClock

LATER = "2026-01-31T12:07:00Z"
#: the URL of the incident of `alert()` on a page at https://page.example/
INCIDENT = "https://page.example/#cluster-blue/missing/cluster-api%2Fprod%2Fworkers"


def received(*alerts: Alert, receives: int = 1) -> list[Received]:
    return [Received(message=f"m{number}", receives=receives, alert=each) for number, each in enumerate(alerts)]


def use_case(*channels: Channel, memory: FakeMemory | None = None, clock: FakeClock | None = None) -> NotifyChannels:
    return NotifyChannels(channels=channels, memory=memory or FakeMemory(), clock=clock or FakeClock())


def minute() -> float:
    return 60.0


def reported(channel: FakeChannel) -> list[str]:
    return [each.change.value for parcel in channel.reported for each in parcel]


def failing(errors: list[ChannelError], **fields: Any) -> FakeChannel:
    """Return a channel that answers with these errors, each taken off the list, and then accepts messages."""

    def before(_: Sequence[Alert]) -> None:
        if errors:
            raise errors.pop(0)

    return FakeChannel(before=before, **fields)


def test_a_change_that_is_received_twice_is_sent_once() -> None:
    channel = FakeChannel()
    send = use_case(channel)
    for batch in ([alert(), alert()], [alert()], [alert(at=LATER)]):  # the last by a run that replaces a killed one
        assert send(received(*batch), minute) == set()
    assert reported(channel) == ["opened"]


def test_a_storm_is_one_message_in_a_chat_and_one_alert_each_for_a_pager() -> None:
    chat, pager = FakeChannel(together=True, name="chat"), FakeChannel(name="pager")
    batch = [alert(key=f"c{number}/missing", cluster=f"c{number}", missing=number) for number in range(200)]
    assert use_case(chat, pager)(received(*batch), minute) == set()
    assert [len(parcel) for parcel in chat.reported] == [200]
    assert chat.reported[0][0].missing == 199, "the worst first"
    assert [len(parcel) for parcel in pager.reported] == [1] * 200


def test_a_change_is_retried_only_for_the_channel_that_failed() -> None:
    works, fails, clock = FakeChannel(name="works"), failing([ChannelError("away")], name="fails"), FakeClock()
    send = use_case(works, fails, clock=clock)
    assert send(received(alert()), minute) == {"m0"}
    assert send(received(alert()), minute) == {"m0"}, "its own claim has not ended"
    clock.sleep(CLAIMED_FOR.total_seconds())
    assert send(received(alert()), minute) == set()
    assert (reported(works), reported(fails)) == (["opened"], ["opened"])


@pytest.mark.parametrize(("is_away", "times"), [(True, 1), (False, 5)], ids=["away", "refuses an alert"])
def test_a_channel_that_is_away_gets_one_request_a_batch(is_away: bool, times: int) -> None:
    errors = [ChannelError("no", is_away=is_away) for _ in range(5)]
    batch = received(*(alert(key=f"c{number}/missing") for number in range(5)))
    assert use_case(failing(errors))(batch, minute) == {each.message for each in batch}
    assert len(errors) == 5 - times


@pytest.mark.parametrize(
    ("pause", "left", "slept"),
    [
        pytest.param(2.0, 60.0, [2.0], id="short"),
        pytest.param(30.0, 60.0, [], id="too long"),
        pytest.param(10.0, 31.0, [10.0], id="time left to report"),
        pytest.param(10.0, 29.0, [], id="no time left to report"),
    ],
)
def test_only_a_short_retry_after_is_awaited(pause: float, left: float, slept: list[float]) -> None:
    channel, clock = failing([ChannelError("429", pause=pause)]), FakeClock()
    back = use_case(channel, clock=clock)(received(alert()), lambda: left)
    assert (back, clock.slept) == (set() if slept else {"m0"}, slept)


def test_no_message_is_sent_when_time_runs_out() -> None:
    batch = received(alert(key="a/missing"), alert(key="b/missing"), alert(key="c/missing"))
    for together in (False, True):
        left = iter([60.0, 15.0, 15.0])
        channel = FakeChannel(together=together)
        assert use_case(channel)(batch, lambda left=left: next(left)) == {"m1", "m2"}  # type: ignore[misc]
        assert [[each.key for each in parcel] for parcel in channel.reported] == [["a/missing"]]


def storm(clusters: int, receives: int = 1) -> list[Received]:
    return received(
        *(alert(key=f"c{number}/missing", cluster=f"c{number}") for number in range(clusters)), receives=receives
    )


def breaking(on: str, *, is_away: bool) -> FakeChannel:
    """Return a chat that accepts no message about this cluster."""

    def before(alerts: Sequence[Alert]) -> None:
        if on in {each.cluster for each in alerts}:
            raise ChannelError("no", is_away=is_away)

    return FakeChannel(together=True, before=before)


def test_an_alert_that_a_chat_refuses_does_not_delay_the_others() -> None:
    channel, batch = breaking("c17", is_away=False), storm(64)
    assert use_case(channel)(batch, minute) == {"m17"}
    assert sorted(len(parcel) for parcel in channel.reported) == [1, 2, 4, 8, 16, 32]


def test_an_alert_that_breaks_a_chat_delays_new_ones_for_three_tries_at_most() -> None:
    channel = breaking("c3", is_away=True)
    batch = [*storm(5, receives=4), *received(alert(key="new/missing", cluster="new"))]
    back = use_case(channel)(batch, minute)
    assert "m3" in back
    assert {each.key for parcel in channel.reported for each in parcel} >= {"new/missing", "c0/missing", "c2/missing"}


def test_a_storm_is_one_message_after_the_chat_was_away_for_an_hour() -> None:
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
    assert [len(parcel) for parcel in channel.reported] == [200]


def sent_by(
    channel: type[Slack] | type[Teams] | type[PagerDuty] | type[Opsgenie] | type[Alertmanager],
    *alerts: Alert,
    **fields: Any,
) -> Any:
    post = FakePost()
    page = fields.pop("page", "")
    shared = Shared(secret=lambda name: f"text-of-{name}", post=post, page=page)  # type: ignore[arg-type]
    channel(shared=shared, **fields).send(alerts)
    ((url, body, headers),) = post.sent
    return url, json.loads(body), headers


def test_pagerduty_gets_trigger_and_resolve_with_one_key() -> None:
    fields = {"key_secret": "pd", "url": "https://events.example/v2/enqueue", "page": "https://page.example/"}
    url, body, _ = sent_by(PagerDuty, alert(runbook="https://docs.example/runbooks#capacity"), **fields)
    assert (url, body["routing_key"], body["event_action"]) == (fields["url"], "text-of-pd", "trigger")
    assert body["links"] == [
        {"href": "https://docs.example/runbooks#capacity", "text": "Runbook"},
        {"href": INCIDENT, "text": "Incident on the status page"},
    ]
    assert body["client_url"] == INCIDENT
    keys = {body["dedup_key"]}
    for change, action in ((Change.CHANGED, "trigger"), (Change.CLOSED, "resolve")):
        _, body, _ = sent_by(PagerDuty, alert(change), **fields)
        assert body["event_action"] == action
        keys.add(body["dedup_key"])
    assert keys == {alert().key}
    assert set(body) == {"routing_key", "event_action", "dedup_key"}, "a resolve needs no payload"


def test_opsgenie_alerts_are_opened_and_closed_by_alias() -> None:
    fields = {"key_secret": "og", "url": "https://api.example/v2/alerts"}
    url, body, headers = sent_by(Opsgenie, alert(), **fields)
    assert (url, headers["Authorization"], body["alias"]) == (fields["url"], "GenieKey text-of-og", alert().key)
    assert len(body["message"]) <= 130
    assert body["priority"] == "P1"
    url, body, _ = sent_by(Opsgenie, alert(Change.CLOSED), **fields)
    quoted = "blue%2Fcluster-api%2Fprod%2Fworkers%2Fmissing"
    assert url == f"https://api.example/v2/alerts/{quoted}/close?identifierType=alias"


def test_alertmanager_gets_one_list_and_an_incident_ends_by_its_labels() -> None:
    fields = {"url": "https://am.example/prefix/", "header_secret": "am"}
    one, other = alert(runbook="https://docs.example/r#capacity"), alert(key="green/access", kind="access", pool="")
    url, body, headers = sent_by(Alertmanager, one, other, **fields)
    assert (url, headers["Authorization"]) == ("https://am.example/prefix/api/v2/alerts", "text-of-am")
    first, second = body
    assert first["labels"] == {
        "alertname": "EvenkeelMissing",
        "severity": "critical",
        "cluster": "blue",
        "pool": "cluster-api/prod/workers",
        "incident": one.key,
    }
    assert (first["startsAt"], first["endsAt"]) == (one.since, "2027-01-31T12:00:01Z")
    assert first["generatorURL"] == first["annotations"]["runbook_url"] == one.runbook
    assert first["annotations"]["summary"] == f"blue: {one.message}"
    assert "pool" not in second["labels"]
    assert "generatorURL" not in second
    assert "runbook_url" not in second["annotations"], "a file of the repository is no URL"
    _, (closed,), headers = sent_by(
        Alertmanager, alert(Change.CLOSED, message="it is over"), **{**fields, "header_secret": ""}
    )
    assert closed["labels"] == first["labels"]
    assert (closed["endsAt"], headers) == ("2026-01-31T12:00:01Z", {})


@pytest.mark.parametrize("kind", IncidentKind)
def test_alertmanager_takes_every_kind(kind: IncidentKind) -> None:
    """As its OpenAPI says: labels and annotations are texts, times are in RFC 3339, the end is not before the start."""
    for news in Change:
        _, (body,), _ = sent_by(Alertmanager, alert(news, kind=kind.value), url="https://am.example", header_secret="")
        assert set(body) <= {"labels", "annotations", "startsAt", "endsAt", "generatorURL"}
        assert all(isinstance(text, str) and text for part in ("labels", "annotations") for text in body[part].values())
        assert re.fullmatch(r"Evenkeel[A-Za-z]+", body["labels"]["alertname"])
        assert body["startsAt"] <= body["endsAt"]


def test_a_header_that_cannot_be_sent_is_named_and_not_shown() -> None:
    shared = Shared(secret=lambda _: "Bearer a\nb", post=FakePost())  # type: ignore[arg-type]
    with pytest.raises(ChannelError, match="evenkeel/am") as caught:
        Alertmanager(shared=shared, header_secret="evenkeel/am", url="https://am.example").send([alert()])
    assert "Bearer a" not in str(caught.value)


@pytest.mark.parametrize("kind", IncidentKind)
def test_every_kind_has_a_severity_that_pagerduty_knows(kind: IncidentKind) -> None:
    _, body, _ = sent_by(PagerDuty, alert(kind=kind.value), key_secret="pd", url="https://x.example/")
    assert body["payload"]["severity"] in {"critical", "error", "warning", "info"}


def test_a_key_that_is_too_long_is_cut_and_stays_unique() -> None:
    one, other = (alert(key=f"{'x' * 300}{end}/missing") for end in "ab")
    assert len(one.dedup) == len(other.dedup) == 255
    assert one.dedup != other.dedup


def test_an_error_text_makes_no_link_mention_or_second_line_in_a_chat() -> None:
    hostile = "no <!channel> & <https://evil.example|click>\n[here](https://evil.example) " + "x" * 10_000
    _, slack, _ = sent_by(Slack, alert(message=hostile), url_secret="s", page="https://page.example/?a=1&b=2")
    (link,) = [line for line in slack["text"].splitlines() if "<" in line]
    url = INCIDENT.replace("/#", "/?a=1&amp;b=2#")
    assert link == f"<{url}|Incident on the status page>"
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
    def __init__(self) -> None:
        self.messages: list[Any] = []

    def publish(self, **message: str) -> None:
        self.messages.append(json.loads(message["Message"]))


def texts_reported(name: str, alerts: Sequence[Alert]) -> list[str]:
    """Return all texts that readers of a message see, without Evenkeel's links."""
    if name == "topic":
        topic = Topic()
        ChatTopic(client=topic, topic="arn").send(alerts)
        (message,) = topic.messages
        return texts_of({**message, "metadata": message.get("metadata", {}).get("summary")})
    channels: dict[str, Any] = {"slack": Slack, "teams": Teams, "pagerduty": PagerDuty, "opsgenie": Opsgenie}
    fields = {"url_secret": "s"} if name in ("slack", "teams") else {"key_secret": "k", "url": "https://x.example"}
    if name == "alertmanager":
        _, body, _ = sent_by(Alertmanager, *alerts, url="https://x.example", header_secret="")
        return texts_of([one["annotations"] for one in body])
    _, body, _ = sent_by(channels[name], *alerts, **fields)
    return texts_of(body["attachments"][0]["content"]["body"] if name == "teams" else body)


LINKS = ("://", ":\\", "mailto:", "tel:", "www.", "evil.example", "](")


def texts_of(value: Any) -> list[str]:
    if isinstance(value, dict):
        return texts_of([*value, *value.values()])
    if isinstance(value, list):
        return [text for each in value for text in texts_of(each)]
    return value.split("\n") if isinstance(value, str) else []


def test_clusters_without_capacity_in_any_zone_are_the_first_cause_of_a_message() -> None:
    zones = ("eu-central-1a", "eu-central-1b")
    everywhere = [alert(key=f"e{n}/missing", cluster=f"e{n}", zones=zones, is_outage=True) for n in range(3)]
    read = [read_alert(json.dumps(detail_of(one))) for one in everywhere]
    assert [one.is_outage for one in read] == [True] * 3
    text = " ".join(texts_reported("slack", [alert(key=f"f{n}/missing", cluster=f"f{n}") for n in range(4)] + read))
    assert text.index("no zone has capacity: 3 clusters") < text.index("zone eu-central-1a: 4 clusters")


@pytest.mark.parametrize("name", ["slack", "teams", "topic", "pagerduty", "opsgenie", "alertmanager"])
@pytest.mark.parametrize("change", [Change.OPENED, Change.CHANGED, Change.CLOSED])
@pytest.mark.parametrize("count", [1, 3])
def test_no_text_of_a_failure_is_a_link_or_a_command_in_any_channel(name: str, change: Change, count: int) -> None:
    fields = {"message": HOSTILE, "pool": HOSTILE, "zones": (HOSTILE,), "todo": HOSTILE, "command": HOSTILE}
    alerts = [alert(change, key=f"demo/{number}", **fields) for number in range(count)]
    for each in [[one] for one in alerts] if name in ("pagerduty", "opsgenie") else [alerts]:
        for text in texts_reported(name, each):
            assert text.isprintable(), text
            assert not [link for link in LINKS if link in text.lower()], text


@pytest.mark.parametrize(
    "text",
    [
        "eu-central-1a: m5.xlarge of default/workers, 1.27.3, i-0a1b2c: InsufficientInstanceCapacity",
        "http: server gave HTTP response to HTTPS client; read /var/run/x.sock: 10.0.0.1:443 refused",
        "halted by jane@corp.example; hotel:5, scale-up of registry.k8s.io/pause:3.9",
    ],
)
def test_names_and_errors_that_are_no_addresses_are_unchanged(text: str) -> None:
    _, body, _ = sent_by(Slack, alert(message=text), url_secret="s")
    assert text in body["text"]


def test_the_page_and_the_runbook_stay_links() -> None:
    one = alert(runbook="https://docs.example/runbooks")
    _, slack, _ = sent_by(Slack, one, url_secret="s", page="https://page.example/")
    assert f"<{INCIDENT}|Incident on the status page>" in slack["text"]
    assert "Runbook: https://docs.example/runbooks" in slack["text"]
    _, pagerduty, _ = sent_by(PagerDuty, one, key_secret="k", url="https://x.example")
    assert pagerduty["payload"]["custom_details"]["runbook"] == one.runbook


def test_without_a_page_no_channel_has_a_link_to_one() -> None:
    for name in ("slack", "teams", "topic", "pagerduty", "opsgenie", "alertmanager"):
        assert not [text for text in texts_reported(name, [alert()]) if "tatus page" in text or "#cluster-" in text]


@pytest.mark.parametrize("count", [1, 2, 20, 21, 500])
def test_a_message_fits_into_what_each_chat_takes(count: int) -> None:
    kinds = {"kind": "writes-refused", "pool": "", "message": "m" * 10_000}
    alerts = [alert(key=f"{n}/x", cluster=f"{'c' * 60}{n % 2}", **kinds) for n in range(count)]
    _, slack, _ = sent_by(Slack, *alerts, url_secret="s")
    assert len(slack["text"]) < 5_000
    _, teams, _ = sent_by(Teams, *alerts, url_secret="t", page="https://page.example/" + "x" * 480)
    assert len(json.dumps(teams)) < 28_000
    assert ("more: evenkeel status" in slack["text"]) is (count > 20)


def test_what_many_clusters_share_is_reported_once_with_its_severity_and_remedy() -> None:
    runbook = "https://docs.example/runbooks#"
    alerts = [
        *(alert(key=f"c{n}/missing", cluster=f"c{n}", runbook=f"{runbook}capacity") for n in range(300)),
        *(alert(key=f"d{n}/access", cluster=f"d{n}", kind="access", pool="", missing=0, zones=()) for n in range(3)),
        alert(key="e/access", cluster="e", kind="stopped", pool="", message="not checked for 13 min"),
        *(alert(Change.CLOSED, key=f"f{n}/missing", cluster=f"f{n}") for n in range(30)),
    ]
    _, slack, _ = sent_by(Slack, *alerts, url_secret="s")
    lines = slack["text"].splitlines()
    assert lines[0] == "*304 incidents (300 critical, 4 warning), 30 over in 334 clusters*"
    assert lines[1] == (
        "critical: zone eu-central-1a: 300 clusters, 900 nodes missing for 5 min, since 2026-01-31T11:55:00Z: capacity"
    )
    assert lines[2].endswith("and 288 more")
    assert lines[3].endswith("by the fence-zone command that status shows: evenkeel status")
    assert lines[4] == f"Runbook: {runbook}capacity"
    assert lines[5].startswith("warning: access refused: capacity: 3 clusters for 5 min")
    assert lines[7] == "What to do: The cloud has no such machines there: evenkeel explain --stack NAME --cluster blue"
    assert lines[9] == "Incident (warning): e: not checked for 13 min"
    assert lines[10].startswith("Over: zone eu-central-1a: f0, f1, ")
    assert len(lines) == 11


def test_chatbot_gets_its_custom_notification_and_one_thread_per_incident() -> None:
    topic = Topic()
    channel = ChatTopic(client=topic, topic="arn:aws:sns:eu-central-1:123456789012:t", page="https://page.example/")
    for alerts in ([alert()], [alert(Change.CLOSED)], [alert(), alert(key="other/missing")]):
        channel.send(alerts)
    opened, closed, many = topic.messages
    assert (opened["version"], opened["source"], opened["content"]["textType"]) == ("1.0", "custom", "client-markdown")
    assert opened["metadata"]["threadId"] == closed["metadata"]["threadId"] == alert().key
    assert "metadata" not in many
    assert opened["content"]["nextSteps"] == [f"Incident on the status page: {INCIDENT}"]
    for message in (closed, many):
        assert message["content"]["nextSteps"] == ["Status page: https://page.example/"]


@pytest.mark.parametrize("text", ["", "two words", "with\nline", "umlaut-ü", "x" * 300])
@pytest.mark.parametrize("channel", [PagerDuty, Opsgenie])
def test_a_secret_that_is_no_key_is_named_and_not_shown(text: str, channel: type[PagerDuty] | type[Opsgenie]) -> None:
    shared = Shared(secret=lambda _: text, post=FakePost())  # type: ignore[arg-type]
    with pytest.raises(ChannelError, match="evenkeel/key") as caught:
        channel(shared=shared, key_secret="evenkeel/key", url="https://x.example/").send([alert()])
    assert not text or text not in str(caught.value)


def test_an_unreadable_secret_leaves_the_change_on_the_queue() -> None:
    def missing(name: str) -> str:
        raise AccessError(f"secret {name} cannot be read: not found")

    shared = Shared(secret=missing, post=FakePost())  # type: ignore[arg-type]
    assert use_case(Slack(shared=shared, url_secret="s"))(received(alert()), minute) == {"m0"}


@pytest.mark.parametrize("address", ["169.254.169.254", "127.0.0.1", "::1", "100.100.100.200", "64:ff9b:1::1"])
def test_a_local_or_link_local_service_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [[(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 443))] for each in (address, "10.0.0.7")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found.pop(0))
    made: list[object] = []
    monkeypatch.setattr(socket, "socket", lambda *_: made.append(_))
    with pytest.raises(ChannelError, match=f"^hooks.example leads to {address} ") as caught:
        HttpsPost()("https://hooks.example/SECRET", b"{}", {}, frozenset())
    assert (made, caught.value.is_away, "SECRET" in str(caught.value)) == ([], False, False)
    assert len(found) == 1, "the name is resolved once"


@pytest.mark.parametrize(
    "url",
    [
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
    ],
)
def test_only_https_is_used_and_no_error_shows_the_address(url: str) -> None:
    with pytest.raises(ChannelError) as caught:
        HttpsPost()(url, b"{}", {}, frozenset())
    assert "CRET" not in str(caught.value)


def test_a_change_is_read_from_the_bus_with_unknown_fields_and_without_order() -> None:
    detail = {**detail_of(alert()), "groups": [], "said": "x", "new in the next release": {}}
    assert read_alert(json.dumps(detail)) == alert()
    del detail["order"]
    assert read_alert(json.dumps(detail)) == alert()


@pytest.mark.parametrize(
    "body",
    [
        *("", "[]", "{}", "null", '{"key": 7}', "[" * 5_000, json.dumps({"change": "opened"})),
        *(json.dumps({**detail_of(alert()), **change}) for change in ({"key": ""}, {"at": "noon"})),
        json.dumps({"key": "rollout/prod", "rollout": "01", "phase": "halted", "at": "2026-01-15T12:00:00Z"}),
    ],
)
def test_any_other_body_is_a_bad_request(body: str) -> None:
    with pytest.raises(BadRequestError):
        read_alert(body)


def test_the_stored_print_of_an_incident_is_stable() -> None:
    assert alert().print == "751eecbf04fa3ff4"
