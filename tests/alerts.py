"""Alerts for tests, and fakes of a channel and of the alerts' memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evenkeel.application.errors import StateConflictError
from evenkeel.application.incidents.alerting import Alert, LastNotified
from evenkeel.domain.model.incidents import Change
from tests.parts import replace

KEY = "blue/cluster-api/prod/workers/missing"


def alert(news: Change = Change.OPENED, **fields: Any) -> Alert:
    """Return an alert about one of three nodes that is missing, at 12:00:01."""
    base = Alert(
        key=KEY,
        change=news,
        cluster="blue",
        at="2026-01-31T12:00:01Z",
        kind="missing",
        pool="cluster-api/prod/workers",
        since="2026-01-31T11:55:00Z",
        missing=3,
        zones=("eu-central-1a",),
        failure_class="capacity",
        message="workers: 3 of 9 nodes missing for 5 min: capacity in eu-central-1a",
        todo="The cloud has no such machines there",
        command="evenkeel explain --stack NAME --cluster blue",
        runbook="docs/operate/runbooks.md#capacity",
    )
    return replace(base, **fields)


def detail_of(reported: Alert) -> dict[str, Any]:
    fields = {
        name: getattr(reported, name) for name in ("key", "cluster", "at", "order", "kind", "pool", "since", "missing")
    }
    words = {name: getattr(reported, name) for name in ("message", "todo", "command", "runbook")}
    return {
        **fields,
        **words,
        "change": reported.change.value,
        "zones": list(reported.zones),
        "class": reported.failure_class or None,
        "outage": reported.is_outage,
    }


@dataclass
class FakeMemory:
    """``AlertMemory`` in memory."""

    items: dict[tuple[str, str], LastNotified] = field(default_factory=dict)

    def last_notified(self, channel: str, key: str) -> LastNotified:
        return self.items.get((channel, key), LastNotified())

    def save_notified(self, channel: str, key: str, reported: LastNotified) -> None:
        if self.last_notified(channel, key).version != reported.version:
            raise StateConflictError("written since")
        self.items[channel, key] = replace(reported, version=reported.version + 1)


@dataclass
class FakeChannel:
    """A channel that keeps its messages. ``before`` is called with each message before it is kept, and may raise."""

    together: bool = False
    name: str = "fake"
    before: Callable[[Sequence[Alert]], None] = lambda _: None
    after: Callable[[Sequence[Alert]], None] = lambda _: None
    reported: list[Sequence[Alert]] = field(default_factory=list)

    def send(self, alerts: Sequence[Alert]) -> None:
        self.before(alerts)
        self.reported.append(list(alerts))
        self.after(alerts)


@dataclass
class FakePost:
    sent: list[tuple[str, bytes, Mapping[str, str]]] = field(default_factory=list)

    def __call__(self, url: str, body: bytes, headers: Mapping[str, str], accepted: frozenset[int]) -> None:
        self.sent.append((url, body, headers))
