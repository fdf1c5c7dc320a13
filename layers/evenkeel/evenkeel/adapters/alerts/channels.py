"""The chats and paging services that receive notifications. Each class names the documentation of its fields."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote as url_quote

from evenkeel.adapters.alerts.https import HttpsPost
from evenkeel.adapters.alerts.wording import LONGEST_LINE, LONGEST_TEXT, about, message, one_line, plain, subject
from evenkeel.adapters.aws_faults import AWS_ERRORS, text_of
from evenkeel.adapters.page_anchors import incident_anchor
from evenkeel.application.errors import AccessError, AccessUnavailableError
from evenkeel.application.incidents.alerting import Alert, ChannelError
from evenkeel.domain.model.incidents import Severity
from evenkeel.texts.english import rfc3339

_LONGEST_HEADER = 4096
# Each severity as PagerDuty and as Opsgenie name it.
_PAGERDUTY = {Severity.CRITICAL: "critical", Severity.WARNING: "error", Severity.INFO: "warning"}
_PRIORITIES = {Severity.CRITICAL: "P1", Severity.WARNING: "P2", Severity.INFO: "P3"}
_LONGEST_INCIDENT = timedelta(days=365)

# Returns the text of a secret by its name. Raises AccessError.
ReadSecret = Callable[[str], str]


@dataclass(frozen=True, kw_only=True)
class Shared:
    """The values that all services called by HTTPS share."""

    secret: ReadSecret
    post: HttpsPost
    page: str = ""  # the published page's URL


@dataclass(frozen=True, kw_only=True)
class _Request:
    """A POST request. ``accepted``: HTTP statuses outside 200 to 299 that do not count as errors."""

    url: str
    body: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    headers: Mapping[str, str] = field(default_factory=dict)
    accepted: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True)
class _Service:
    """A service that Evenkeel calls by HTTPS. Each subclass builds the request for its alerts."""

    name: ClassVar[str]
    together: ClassVar[bool]  # True: one message can contain several alerts
    shared: Shared

    def send(self, alerts: Sequence[Alert]) -> None:
        """Send the alerts. Raises ChannelError."""
        request = self._request(alerts)
        self.shared.post(request.url, json.dumps(request.body).encode(), request.headers, request.accepted)

    def _request(self, alerts: Sequence[Alert]) -> _Request:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Slack(_Service):
    """An incoming webhook. It accepts ``{"text": ...}``, with ``&``, ``<``, ``>`` escaped; ``<url|words>`` is a link.

    Sources: Slack, *Sending messages using incoming webhooks* and *Formatting text for app surfaces*. Slack accepts one
    message a second, and answers further messages with 429 and ``Retry-After`` (*Rate limits*).
    """

    name = "slack"
    together = True
    url_secret: str

    def _request(self, alerts: Sequence[Alert]) -> _Request:
        title, lines = message(alerts)
        link = _page(alerts, self.shared.page)
        page = [f"<{_escaped(link.url)}|{link.title}>"] if link else []
        text = "\n".join([f"*{_escaped(title)}*", *map(_escaped, lines), *page])
        return _Request(url=_secret(self.shared, self.url_secret), body={"text": text})


@dataclass(frozen=True, kw_only=True)
class Teams(_Service):
    """A workflow's webhook (*Post to a channel when a webhook request is received*), which accepts an Adaptive Card.

    Sources: Microsoft, *Create and send messages*, and Prometheus Alertmanager, which sends the same card
    (notify/msteamsv2). The webhooks of Office 365 connectors, which accepted a MessageCard, are retired. Teams accepts
    messages of up to 28 KB, and four requests a second.
    """

    name = "teams"
    together = True
    url_secret: str

    def _request(self, alerts: Sequence[Alert]) -> _Request:
        title, lines = message(alerts)
        colour = "Good" if all(alert.is_over for alert in alerts) else "Attention"
        heading = {"text": title, "weight": "Bolder", "size": "Medium", "color": colour}
        card: dict[str, Any] = {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard",
            "version": "1.2",
            "body": [
                {"type": "TextBlock", "wrap": True, **block} for block in (heading, *({"text": line} for line in lines))
            ],
        }
        if links := _links(alerts, self.shared.page):
            card["actions"] = [{"type": "Action.OpenUrl", "title": title, "url": url} for title, url in links]
        attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
        body = {"type": "message", "attachments": [attachment]}
        return _Request(url=_secret(self.shared, self.url_secret), body=body)


@dataclass(frozen=True, kw_only=True)
class PagerDuty(_Service):
    """PagerDuty's Events API v2: ``routing_key``, ``event_action``, ``dedup_key``, ``payload``, ``links``, ``client``.

    Source: PagerDuty, *Send an alert event*. A summary has up to 1,024 characters, a dedup_key up to 255. PagerDuty
    answers too many requests with 429. A resolve event for a closed alert has no effect. A trigger event for an open
    alert sends no second page.
    """

    name = "pagerduty"
    together = False
    key_secret: str
    url: str

    def _request(self, alerts: Sequence[Alert]) -> _Request:
        (alert,) = alerts
        event: dict[str, Any] = {
            "routing_key": _key(self.shared, self.key_secret),
            "event_action": "resolve" if alert.is_over else "trigger",
            "dedup_key": alert.dedup,
        }
        if not alert.is_over:
            event["payload"] = {
                "summary": one_line(subject(alert), 1024),
                "source": _name(alert.cluster),
                "severity": _PAGERDUTY[alert.severity],
                "timestamp": alert.since,
                "component": _name(alert.pool or alert.cluster),
                "group": _name(alert.cluster),
                "class": _name(alert.kind),
                "custom_details": _details(alert),
            }
            event["client"] = "Evenkeel"
            if links := _links(alerts, self.shared.page):
                event["links"] = [{"href": url, "text": text} for text, url in links]
            if page := _page(alerts, self.shared.page):
                event["client_url"] = page.url
        return _Request(url=self.url, body=event)


@dataclass(frozen=True, kw_only=True)
class Opsgenie(_Service):
    """Alerts of Opsgenie, and of Jira Service Management, which has taken over Opsgenie's API.

    Sources: Atlassian, *Integration events API*, and Opsgenie's *Alert API*. Fields, with their lengths in characters:
    ``message`` (130), ``alias`` (512), ``description`` (15,000), ``priority`` (P1 to P5), ``details``. Requests that
    open or close an alert name it by its alias. The key is in the header ``Authorization: GenieKey``. The service
    Opsgenie ends on 5 April 2027 (support.atlassian.com/opsgenie).
    """

    name = "opsgenie"
    together = False
    key_secret: str
    url: str  # the URL of the alerts

    def _request(self, alerts: Sequence[Alert]) -> _Request:
        (alert,) = alerts
        headers = {"Authorization": f"GenieKey {_key(self.shared, self.key_secret)}"}
        if alert.is_over:
            url = f"{self.url}/{url_quote(alert.dedup, safe='')}/close?identifierType=alias"
            body = {"source": "evenkeel", "note": "It is over."}
            # Status 404 is accepted, because it means that no alert with this alias is open.
            return _Request(url=url, body=body, headers=headers, accepted=frozenset({404}))
        page = _page(alerts, self.shared.page)
        return _Request(
            url=self.url,
            headers=headers,
            body={
                "message": one_line(subject(alert), 130),
                "alias": alert.dedup,
                "description": "\n".join(about(alert)),
                "priority": _PRIORITIES[alert.severity],
                "entity": _name(alert.cluster),
                "source": "evenkeel",
                "details": {**_details(alert), **({"page": page.url} if page else {})},
            },
        )


@dataclass(frozen=True, kw_only=True)
class Alertmanager(_Service):
    """Prometheus Alertmanager: ``POST /api/v2/alerts`` accepts a list of alerts.

    Source: Alertmanager's api/v2/openapi.yaml, *postableAlert*: ``labels``, ``annotations``, ``startsAt``, ``endsAt``,
    ``generatorURL`` (a URI). Labels identify an alert, so they do not change while the incident is open. An alert
    without ``endsAt`` ends after Alertmanager's resolve_timeout, because clients repeat alerts. Evenkeel sends each
    change once, so an open incident ends in a year, and a closed one when it closed. Replicas share silences and
    notifications, but no alerts (Prometheus, *High Availability*): one that restarts has lost its open incidents.
    """

    name = "alertmanager"
    together = True
    url: str  # without /api/v2/alerts
    header_secret: str  # its text is the Authorization header; empty: there is none

    def _request(self, alerts: Sequence[Alert]) -> _Request:
        headers = {}
        if self.header_secret:
            headers["Authorization"] = _header(self.shared, self.header_secret)
        body = [_postable(alert) for alert in alerts]
        return _Request(url=f"{self.url.rstrip('/')}/api/v2/alerts", body=body, headers=headers)


def _postable(alert: Alert) -> dict[str, Any]:
    """Return the alert as Alertmanager accepts it. An empty label or annotation would be dropped there."""
    words = alert.kind.replace("-", " ").title().replace(" ", "")
    labels = {
        "alertname": f"Evenkeel{_name(words)}",
        "severity": alert.severity.value,
        "cluster": plain(alert.cluster),
        "pool": plain(alert.pool),
        "incident": alert.dedup,
    }
    has_url = alert.runbook.startswith("https://")
    annotations = {
        "summary": one_line(subject(alert), LONGEST_TEXT),
        "description": "\n".join(about(alert)),
        "runbook_url": alert.runbook if has_url else "",
    }
    annotations |= {name.replace(" ", "_"): text for name, text in _details(alert).items() if name != "runbook"}
    at = max(datetime.fromisoformat(alert.at), datetime.fromisoformat(alert.since))
    postable = {
        "labels": {name: text for name, text in labels.items() if text},
        "annotations": {name: text for name, text in annotations.items() if text},
        "startsAt": alert.since,
        "endsAt": rfc3339(at if alert.is_over else at + _LONGEST_INCIDENT),
    }
    return postable | ({"generatorURL": alert.runbook} if has_url else {})


@dataclass(frozen=True, kw_only=True)
class ChatTopic:
    """An SNS topic that AWS Chatbot (now Amazon Q Developer in chat applications) reads.

    Source: the administrator guide of AWS Chatbot, *Custom notifications*. The fields are ``version``, ``source``,
    ``id``, ``content`` with ``textType``, ``title``, ``description``, ``nextSteps``, ``keywords``, and ``metadata``
    with ``threadId``, ``summary``.
    """

    name: ClassVar[str] = "topic"
    together: ClassVar[bool] = True
    client: Any
    topic: str
    page: str = ""

    def send(self, alerts: Sequence[Alert]) -> None:
        """Publish the alerts. Raises ChannelError."""
        title, lines = message(alerts)
        notification: dict[str, Any] = {
            "version": "1.0",
            "source": "custom",
            "content": {"textType": "client-markdown", "title": title, "description": "\n".join(lines)},
        }
        if page := _page(alerts, self.page):
            notification["content"]["nextSteps"] = [f"{page.title}: {page.url}"]
        if len(alerts) == 1:  # so that later notifications of the incident appear in the same thread
            notification["metadata"] = {"threadId": alerts[0].dedup, "summary": title}
        try:
            self.client.publish(TopicArn=self.topic, Message=json.dumps(notification))
        except AWS_ERRORS as error:
            raise ChannelError(f"topic {self.topic}: {text_of(error)}") from None


class _Link(NamedTuple):
    title: str
    url: str


def _links(alerts: Sequence[Alert], page: str) -> list[_Link]:
    """Return the runbook of a single alert, and its place on the published page."""
    urls = [alert.runbook for alert in alerts if alert.runbook.startswith("https://")]
    runbook = [_Link("Runbook", url) for url in urls if len(alerts) == 1]
    link = _page(alerts, page)
    return [*runbook, link] if link else runbook


def _page(alerts: Sequence[Alert], page: str) -> _Link | None:
    """Return the link to a single open incident on the published page, or else to the page; None: there is no page."""
    if not page:
        return None
    if len(alerts) > 1 or alerts[0].is_over:
        return _Link("Status page", page)
    anchor = incident_anchor(alerts[0].cluster, alerts[0].kind, alerts[0].pool)
    return _Link("Incident on the status page", f"{page}#{anchor}")


def _details(alert: Alert) -> dict[str, str]:
    details = {
        "pool": plain(alert.pool),
        "zones": plain(", ".join(alert.zones)),
        "missing": str(alert.missing) if alert.missing else "",
        "what to do": plain(alert.todo),
        "command": plain(alert.command),
        "runbook": alert.runbook,
    }
    return {name: one_line(text, LONGEST_TEXT) for name, text in details.items() if text}


def _name(text: str) -> str:
    return one_line(plain(text), LONGEST_LINE) or "evenkeel"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _secret(shared: Shared, name: str) -> str:
    """Return the text of a secret. Raises ChannelError, which names the secret but does not quote it."""
    try:
        return shared.secret(name).strip()
    except AccessError as error:
        raise ChannelError(str(error), is_away=isinstance(error, AccessUnavailableError)) from None


def _header(shared: Shared, name: str) -> str:
    """Return the header in a secret. Raises ChannelError where a header must not have its characters."""
    header = _secret(shared, name)
    if not (0 < len(header) <= _LONGEST_HEADER and header.isascii() and header.isprintable()):
        raise ChannelError(f"secret {name} holds no header: store only its text, such as Bearer …", is_away=False)
    return header


def _key(shared: Shared, name: str) -> str:
    """Return the key in a secret. Raises ChannelError where the key has characters that a header must not have."""
    key = _secret(shared, name)
    if not (0 < len(key) <= 256 and key.isascii() and key.isprintable() and " " not in key):
        raise ChannelError(f"secret {name} holds no key: store only the key's text", is_away=False)
    return key
