"""The chats and pagers that people are notified in. The sources of the fields are beside each service.

A message of a cloud or an API server may hold anything. It is cut to a length, and made one line without control
characters, links and mentions.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import quote as url_quote

from evenkeel.adapters.alerts.https import HttpsPost
from evenkeel.adapters.aws_faults import AWS_ERRORS, text_of
from evenkeel.application.errors import AccessError, AccessUnavailableError
from evenkeel.application.incidents.alerting import ROLLOUT, Alert, ChannelError
from evenkeel.domain.model.incidents import Change, IncidentKind
from evenkeel.domain.model.values import printable

# Lines of a message about many incidents; the page shows all of them.
_LINES = 20
# Twenty such lines fit into what Teams accepts (28 KB) and Slack shows unshortened (4,000 characters).
_LONGEST_LINE = 180
_LONGEST_TEXT = 600
_TITLES = {Change.OPENED: "Incident", Change.CHANGED: "Changed", Change.CLOSED: "Over"}
# As PagerDuty names them; else "error". Only missing nodes have to page an operator at night.
_SEVERITIES = {
    IncidentKind.MISSING.value: "critical",
    IncidentKind.CONTESTED.value: "warning",
    IncidentKind.OVER_COMMITTED.value: "warning",
    IncidentKind.INVALID.value: "warning",
    ROLLOUT: "warning",  # its clusters are in dry run again, as before
}
_PRIORITIES = {"critical": "P1", "error": "P2", "warning": "P3"}
_PAGE = "All of the fleet"

# A scheme, or what browsers read as one, and its host. A browser reads a backslash as a slash.
# A name alone, such as host.example/path, stays: machine types and versions look alike.
_ADDRESS = re.compile(
    r"((?<![^\W_])(?:www\.|(?:https?|ftp|mailto|tel):(?=\S)[/\\]*)|:?[/\\]{2,})([\w.@:+-]*)", re.IGNORECASE
)

# Returns the text of a secret by its name. Raises AccessError.
ReadSecret = Callable[[str], str]


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What the services that are called by HTTPS share."""

    secret: ReadSecret
    post: HttpsPost
    page: str = ""  # the published page's URL


@dataclass(frozen=True, kw_only=True)
class _Request:
    """A POST. ``accepted``: statuses beside 200 to 299 that are no error."""

    url: str
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)
    accepted: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True)
class _Service:
    """A service that is called by HTTPS: each says which request its alerts become."""

    name: ClassVar[str]
    together: ClassVar[bool]  # one message has several alerts
    shared: Shared

    def send(self, alerts: Sequence[Alert]) -> None:
        """Send the alerts. Raises ChannelError."""
        request = self._request(alerts)
        self.shared.post(request.url, json.dumps(request.body).encode(), request.headers, request.accepted)

    def _request(self, alerts: Sequence[Alert]) -> _Request:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Slack(_Service):
    """An incoming webhook: ``{"text": ...}``, with ``&``, ``<`` and ``>`` escaped; ``<url|words>`` is a link.

    Slack, *Sending messages using incoming webhooks* and *Formatting text for app surfaces*; one message a second, 429
    with ``Retry-After`` beyond (*Rate limits*).
    """

    name = "slack"
    together = True
    url_secret: str

    def _request(self, alerts: Sequence[Alert]) -> _Request:
        title, lines = _message(alerts)
        page = [f"<{_escaped(self.shared.page)}|{_PAGE}>"] if self.shared.page else []
        text = "\n".join([f"*{_escaped(title)}*", *map(_escaped, lines), *page])
        return _Request(url=_secret(self.shared, self.url_secret), body={"text": text})


@dataclass(frozen=True, kw_only=True)
class Teams(_Service):
    """A workflow's webhook (*Post to a channel when a webhook request is received*), which accepts an Adaptive Card.

    Microsoft, *Create and send messages*; the card as Prometheus Alertmanager sends it (notify/msteamsv2). The webhooks
    of Office 365 connectors, which accepted a MessageCard, are retired. 28 KB at most, four requests a second.
    """

    name = "teams"
    together = True
    url_secret: str

    def _request(self, alerts: Sequence[Alert]) -> _Request:
        title, lines = _message(alerts)
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
        if self.shared.page:
            card["actions"] = [{"type": "Action.OpenUrl", "title": _PAGE, "url": self.shared.page}]
        attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
        body = {"type": "message", "attachments": [attachment]}
        return _Request(url=_secret(self.shared, self.url_secret), body=body)


@dataclass(frozen=True, kw_only=True)
class PagerDuty(_Service):
    """Events API v2: ``routing_key``, ``event_action``, ``dedup_key``, ``payload``, ``links``, ``client``.

    PagerDuty, *Send an alert event*: summary of 1,024 characters, dedup_key of 255, 429 when there are too many. A
    resolve of a closed alert does nothing; a trigger of an open alert pages no one again.
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
                "summary": _line(_subject(alert), 1024),
                "source": _name(alert.cluster),
                "severity": _SEVERITIES.get(alert.kind, "error"),
                "timestamp": alert.since,
                "component": _name(alert.pool or alert.cluster),
                "group": _name(alert.cluster),
                "class": _name(alert.kind),
                "custom_details": _details(alert),
            }
            event["client"] = "Evenkeel"
            if self.shared.page:
                event["client_url"] = self.shared.page
                event["links"] = [{"href": self.shared.page, "text": _PAGE}]
        return _Request(url=self.url, body=event)


@dataclass(frozen=True, kw_only=True)
class Opsgenie(_Service):
    """Alerts of Jira Service Management, and of Opsgenie, whose API it has taken over.

    Atlassian, *Integration events API* and Opsgenie's *Alert API*: ``message`` of 130 characters, ``alias`` (512) by
    which an alert is one and is closed, ``description`` (15,000), ``priority`` P1 to P5, ``details``; key in the header
    ``Authorization: GenieKey``. Opsgenie itself ends on 5 April 2027 (support.atlassian.com/opsgenie).
    """

    name = "opsgenie"
    together = False
    key_secret: str
    url: str  # of alerts

    def _request(self, alerts: Sequence[Alert]) -> _Request:
        (alert,) = alerts
        headers = {"Authorization": f"GenieKey {_key(self.shared, self.key_secret)}"}
        if alert.is_over:
            url = f"{self.url}/{url_quote(alert.dedup, safe='')}/close?identifierType=alias"
            body = {"source": "evenkeel", "note": "It is over."}
            # 404: no such alert is open.
            return _Request(url=url, body=body, headers=headers, accepted=frozenset({404}))
        return _Request(
            url=self.url,
            headers=headers,
            body={
                "message": _line(_subject(alert), 130),
                "alias": alert.dedup,
                "description": "\n".join(_about(alert)),
                "priority": _PRIORITIES[_SEVERITIES.get(alert.kind, "error")],
                "entity": _name(alert.cluster),
                "source": "evenkeel",
                "details": {**_details(alert), **({"page": self.shared.page} if self.shared.page else {})},
            },
        )


@dataclass(frozen=True, kw_only=True)
class ChatTopic:
    """An SNS topic that AWS Chatbot (now Amazon Q Developer in chat applications) reads.

    Its administrator guide, *Custom notifications*: ``version``, ``source``, ``id``, ``content`` with ``textType``,
    ``title``, ``description``, ``nextSteps``, ``keywords``, and ``metadata`` with ``threadId``, ``summary``.
    """

    name: ClassVar[str] = "topic"
    together: ClassVar[bool] = True
    client: Any
    topic: str
    page: str = ""

    def send(self, alerts: Sequence[Alert]) -> None:
        """Publish the alerts. Raises ChannelError."""
        title, lines = _message(alerts)
        message: dict[str, Any] = {
            "version": "1.0",
            "source": "custom",
            "content": {"textType": "client-markdown", "title": title, "description": "\n".join(lines)},
        }
        if self.page:
            message["content"]["nextSteps"] = [f"{_PAGE}: {self.page}"]
        if len(alerts) == 1:  # later notifications of one incident appear in its thread
            message["metadata"] = {"threadId": alerts[0].dedup, "summary": title}
        try:
            self.client.publish(TopicArn=self.topic, Message=json.dumps(message))
        except AWS_ERRORS as error:
            raise ChannelError(f"topic {self.topic}: {text_of(error)}") from None


def _message(alerts: Sequence[Alert]) -> tuple[str, list[str]]:
    """Return a title and lines: of one alert all that is known, of many a line each for the worst."""
    if len(alerts) == 1:
        return _titled(alerts[0]), _about(alerts[0])
    incidents = [alert for alert in alerts if not alert.heading]
    over = sum(alert.is_over for alert in incidents)
    counts = [f"{number} {noun}" for number, noun in ((len(incidents) - over, "incidents"), (over, "over")) if number]
    clusters = len({alert.cluster for alert in incidents})
    titles = [f"{', '.join(counts)} in {clusters} clusters"] if incidents else []
    titles += sorted({alert.heading for alert in alerts if alert.heading})
    more = [f"and {len(alerts) - _LINES} more: evenkeel status"] if len(alerts) > _LINES else []
    return "; ".join(titles), [*map(_titled, alerts[:_LINES]), *more]


def _titled(alert: Alert) -> str:
    return _line(f"{alert.heading or _TITLES[alert.change]}: {_subject(alert)}", _LONGEST_LINE)


def _subject(alert: Alert) -> str:
    return _plain(f"{alert.cluster}: {alert.message}" if alert.cluster else alert.message)


def _about(alert: Alert) -> list[str]:
    """Return the lines below the title of one alert."""
    lines = [_subject(alert)]
    if not alert.is_over:
        lines += [_plain(alert.todo), _plain(alert.command), f"Runbook: {alert.runbook}" if alert.runbook else ""]
    return [_line(line, _LONGEST_TEXT) for line in lines if line]


def _details(alert: Alert) -> dict[str, str]:
    details = {
        "pool": _plain(alert.pool),
        "zones": _plain(", ".join(alert.zones)),
        "missing": str(alert.missing) if alert.missing else "",
        "what to do": _plain(alert.todo),
        "command": _plain(alert.command),
        "runbook": alert.runbook,
    }
    return {name: _line(text, _LONGEST_TEXT) for name, text in details.items() if text}


def _name(text: str) -> str:
    return _line(_plain(text), _LONGEST_LINE) or "evenkeel"


def _line(text: str, longest: int) -> str:
    text = " ".join(printable(text).split())
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _plain(text: str) -> str:
    """Return the text without links and mentions. Evenkeel's own links do not pass through here."""
    text = _ADDRESS.sub(lambda match: f"{match[1].replace(':', '[:]')}{match[2]}".replace(".", "[.]"), printable(text))
    return text.translate(str.maketrans("<>[]", "‹›()"))


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _secret(shared: Shared, name: str) -> str:
    """Return the text of a secret. Raises ChannelError, which names the secret and not its text."""
    try:
        return shared.secret(name).strip()
    except AccessError as error:
        raise ChannelError(str(error), is_away=isinstance(error, AccessUnavailableError)) from None


def _key(shared: Shared, name: str) -> str:
    """Return a key of characters that a header may hold. Raises ChannelError."""
    key = _secret(shared, name)
    if not (0 < len(key) <= 256 and key.isascii() and key.isprintable() and " " not in key):
        raise ChannelError(f"secret {name} holds no key: store only the key's text", is_away=False)
    return key
