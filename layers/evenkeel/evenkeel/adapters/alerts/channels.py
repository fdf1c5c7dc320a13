"""What each service wants to be told, and how. Sources of the fields stand with each.

What the cloud or an API server said may be anything: it is cut, its line ends, orders to a terminal and marks that turn
the direction of writing are taken, and what a service would take for a link or a mention is taken from it.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote as url_quote

from evenkeel.adapters.alerts.https import HttpsPost
from evenkeel.adapters.aws_faults import AWS_ERRORS, text_of
from evenkeel.application.errors import AccessError, AccessUnavailableError
from evenkeel.application.incidents.alerting import ROLLOUT, Alert, ChannelError
from evenkeel.domain.model.incidents import Change, IncidentKind
from evenkeel.domain.model.values import printable

# Lines of a message that tells many: more is what a page is for.
_LINES = 20
# Of a line, so that twenty fit into what Teams takes (28 KB) and Slack shows unshortened (4,000 characters).
_LONGEST_LINE = 180
_LONGEST_TEXT = 600
_WORDS = {Change.OPENED: "Incident", Change.CHANGED: "Changed", Change.CLOSED: "Over"}
# What keeps nodes from those who wait pages somebody; what only keeps Evenkeel from its work does not have to by night.
_CRITICAL = {IncidentKind.MISSING.value}
_WARNING = {kind.value for kind in (IncidentKind.CONTESTED, IncidentKind.OVER_COMMITTED, IncidentKind.INVALID)}
_WARNING.add(ROLLOUT)  # its clusters are back in dry run, where they came from

# What follows a scheme, or stands without one, and its host. A browser reads a backslash as a slash.
# A name alone, such as host.example/path, stays: machine types and versions look alike.
_ADDRESS = re.compile(
    r"((?<![^\W_])(?:www\.|(?:https?|ftp|mailto|tel):(?=\S)[/\\]*)|:?[/\\]{2,})([\w.@:+-]*)", re.IGNORECASE
)

# The text of a secret, by its name. Raises AccessError.
ReadSecret = Callable[[str], str]


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What all channels need."""

    secret: ReadSecret
    post: HttpsPost
    page: str = ""  # the published page's URL


@dataclass(frozen=True, kw_only=True)
class Slack:
    """An incoming webhook: ``{"text": ...}``, with ``&``, ``<`` and ``>`` escaped; ``<url|words>`` is a link.

    Slack, *Sending messages using incoming webhooks* and *Formatting text for app surfaces*; one message a second, 429
    with ``Retry-After`` beyond (*Rate limits*).
    """

    shared: Shared
    url_secret: str
    name: str = "slack"
    together: bool = True

    def send(self, alerts: Sequence[Alert]) -> None:
        title, lines = _told(alerts)
        page = [f"<{_escaped(self.shared.page)}|All of the fleet>"] if self.shared.page else []
        text = "\n".join([f"*{_escaped(title)}*", *map(_escaped, lines), *page])
        _post(self.shared, _secret(self.shared, self.url_secret), {"text": text})


@dataclass(frozen=True, kw_only=True)
class Teams:
    """A workflow's webhook (*Post to a channel when a webhook request is received*), which takes an Adaptive Card.

    Microsoft, *Create and send messages*; the card as Prometheus Alertmanager sends it (notify/msteamsv2). The webhooks
    of Office 365 connectors, which took a MessageCard, are retired. 28 KB at most, four requests a second.
    """

    shared: Shared
    url_secret: str
    name: str = "teams"
    together: bool = True

    def send(self, alerts: Sequence[Alert]) -> None:
        title, lines = _told(alerts)
        over = all(alert.is_over for alert in alerts)
        heading = {"weight": "Bolder", "size": "Medium", "color": "Good" if over else "Attention"}
        blocks = [{"text": title, **heading}, *({"text": line} for line in lines)]
        card: dict[str, Any] = {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard",
            "version": "1.2",
            "body": [{"type": "TextBlock", "wrap": True, **block} for block in blocks],
        }
        if self.shared.page:
            card["actions"] = [{"type": "Action.OpenUrl", "title": "All of the fleet", "url": self.shared.page}]
        attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
        url = _secret(self.shared, self.url_secret)
        _post(self.shared, url, {"type": "message", "attachments": [attachment]})


@dataclass(frozen=True, kw_only=True)
class ChatTopic:
    """An SNS topic that AWS Chatbot (now Amazon Q Developer in chat applications) listens to.

    Its administrator guide, *Custom notifications*: ``version``, ``source``, ``id``, ``content`` with ``textType``,
    ``title``, ``description``, ``nextSteps``, ``keywords``, and ``metadata`` with ``threadId``, ``summary``.
    """

    client: Any
    topic: str
    page: str = ""
    name: str = "topic"
    together: bool = True

    def send(self, alerts: Sequence[Alert]) -> None:
        title, lines = _told(alerts)
        message: dict[str, Any] = {
            "version": "1.0",
            "source": "custom",
            "content": {"textType": "client-markdown", "title": title, "description": "\n".join(lines)},
        }
        if self.page:
            message["content"]["nextSteps"] = [f"All of the fleet: {self.page}"]
        if len(alerts) == 1:  # what is told of one trouble later is told in its thread
            message["metadata"] = {"threadId": alerts[0].dedup, "summary": title}
        try:
            self.client.publish(TopicArn=self.topic, Message=json.dumps(message))
        except AWS_ERRORS as error:
            raise ChannelError(f"topic {self.topic}: {text_of(error)}") from None


@dataclass(frozen=True, kw_only=True)
class PagerDuty:
    """Events API v2: ``routing_key``, ``event_action``, ``dedup_key``, ``payload``, ``links``, ``client``.

    PagerDuty, *Send an alert event*: summary of 1,024 characters, dedup_key of 255, 429 when there are too many. A
    resolve of what is not open is taken and does nothing; a trigger of what is open pages nobody again.
    """

    shared: Shared
    key_secret: str
    url: str
    name: str = "pagerduty"
    together: bool = False

    def send(self, alerts: Sequence[Alert]) -> None:
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
                "severity": _severity(alert),
                "timestamp": alert.since,
                "component": _name(alert.pool or alert.cluster),
                "group": _name(alert.cluster),
                "class": _name(alert.kind),
                "custom_details": _details(alert),
            }
            event["client"] = "Evenkeel"
            if self.shared.page:
                event["client_url"] = self.shared.page
                event["links"] = [{"href": self.shared.page, "text": "All of the fleet"}]
        _post(self.shared, self.url, event)


@dataclass(frozen=True, kw_only=True)
class Opsgenie:
    """Alerts of Jira Service Management, and of Opsgenie, whose API it has taken over.

    Atlassian, *Integration events API* and Opsgenie's *Alert API*: ``message`` of 130 characters, ``alias`` (512) by
    which an alert is one and is closed, ``description`` (15,000), ``priority`` P1 to P5, ``details``; key in the header
    ``Authorization: GenieKey``. Opsgenie itself ends on 5 April 2027 (support.atlassian.com/opsgenie).
    """

    shared: Shared
    key_secret: str
    url: str  # of alerts
    name: str = "opsgenie"
    together: bool = False

    def send(self, alerts: Sequence[Alert]) -> None:
        (alert,) = alerts
        headers = {"Authorization": f"GenieKey {_key(self.shared, self.key_secret)}"}
        if alert.is_over:
            url = f"{self.url}/{url_quote(alert.dedup, safe='')}/close?identifierType=alias"
            # 404: there is none, or somebody has closed it.
            _post(self.shared, url, {"source": "evenkeel", "note": "It is over."}, headers, frozenset({404}))
            return
        details = {**_details(alert), **({"page": self.shared.page} if self.shared.page else {})}
        priority = {"critical": "P1", "error": "P2", "warning": "P3"}[_severity(alert)]
        body = {
            "message": _line(_subject(alert), 130),
            "alias": alert.dedup,
            "description": "\n".join(_about(alert)),
            "priority": priority,
            "entity": _name(alert.cluster),
            "source": "evenkeel",
            "details": details,
        }
        _post(self.shared, self.url, body, headers)


def _told(alerts: Sequence[Alert]) -> tuple[str, list[str]]:
    """A title, and what follows it: of one all that is known, of many a line each for the worst."""
    if len(alerts) == 1:
        (alert,) = alerts
        return _line(_headed(alert), _LONGEST_LINE), _about(alert)
    incidents = [alert for alert in alerts if not alert.heading]
    clusters = {alert.cluster for alert in incidents}
    over = sum(alert.is_over for alert in incidents)
    numbers = [(len(incidents) - over, "incidents"), (over, "over")]
    counts = ", ".join(f"{number} {what}" for number, what in numbers if number)
    others = sorted({alert.heading for alert in alerts if alert.heading})
    title = "; ".join([*([f"{counts} in {len(clusters)} clusters"] if clusters else []), *others])
    lines = [_line(_headed(alert), _LONGEST_LINE) for alert in alerts[:_LINES]]
    more = len(alerts) - _LINES
    return title, [*lines, *([f"and {more} more: evenkeel status"] if more > 0 else [])]


def _headed(alert: Alert) -> str:
    return f"{alert.heading or _WORDS[alert.change]}: {_subject(alert)}"


def _subject(alert: Alert) -> str:
    return _plain(f"{alert.cluster}: {alert.message}" if alert.cluster else alert.message)


def _about(alert: Alert) -> list[str]:
    """Beside the title, for people."""
    lines = [_subject(alert)]
    if not alert.is_over:
        lines += [_plain(alert.todo), _plain(alert.command), f"Runbook: {alert.runbook}" if alert.runbook else ""]
    return [_line(line, _LONGEST_TEXT) for line in lines if line]


def _details(alert: Alert) -> dict[str, str]:
    found = {
        "pool": _plain(alert.pool),
        "zones": _plain(", ".join(alert.zones)),
        "missing": str(alert.missing) if alert.missing else "",
        "what to do": _plain(alert.todo),
        "command": _plain(alert.command),
        "runbook": alert.runbook,
    }
    return {name: _line(text, _LONGEST_TEXT) for name, text in found.items() if text}


def _name(text: str) -> str:
    return _line(_plain(text), _LONGEST_LINE) or "evenkeel"


def _severity(alert: Alert) -> str:
    """In PagerDuty's words."""
    if alert.kind in _CRITICAL:
        return "critical"
    return "warning" if alert.kind in _WARNING else "error"


def _line(text: str, longest: int) -> str:
    text = " ".join(printable(text).split())
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _plain(text: str) -> str:
    """The text without what a service would make a link or a mention of. Links of our own are not sent through here."""
    text = _ADDRESS.sub(lambda found: f"{found[1].replace(':', '[:]')}{found[2]}".replace(".", "[.]"), printable(text))
    return text.translate(str.maketrans("<>[]", "‹›()"))


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _secret(shared: Shared, name: str) -> str:
    """Raises ChannelError, which names the secret and none of its text."""
    try:
        return shared.secret(name).strip()
    except AccessError as error:
        raise ChannelError(str(error), is_away=isinstance(error, AccessUnavailableError)) from None


def _key(shared: Shared, name: str) -> str:
    """A key, of characters that a header may hold. Raises ChannelError."""
    key = _secret(shared, name)
    if not (0 < len(key) <= 256 and key.isascii() and key.isprintable() and " " not in key):
        raise ChannelError(f"secret {name} holds no key: store the key's text alone", is_away=False)
    return key


def _post(
    shared: Shared,
    url: str,
    body: Mapping[str, Any],
    headers: Mapping[str, str] = {},
    accepted: frozenset[int] = frozenset(),
) -> None:
    shared.post(url, json.dumps(body).encode(), headers, accepted)
