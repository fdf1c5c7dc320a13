"""Notify channels of incident changes, once per channel and in order. A message may contain several changes.

The queue may deliver changes twice, late and out of order. Evenkeel stores the last change that each channel was
notified of. It skips repeats and older changes, so a late message does not reopen an incident that has ended.

A worker claims a change before it sends it, and clears the claim afterwards. Another worker that finds the claim leaves
the change on the queue. If the first worker is killed, the claim expires and the change is sent again. So each change
is sent at least once, and never out of order.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from evenkeel.application.errors import BadRequestError, EvenkeelError, StateConflictError, StateUnavailableError
from evenkeel.application.ports import RUNBOOKS, Clock, Remaining
from evenkeel.domain.model.holds import held_until
from evenkeel.domain.model.incidents import Change, IncidentKind, Severity
from evenkeel.domain.model.values import quote

_log = logging.getLogger("evenkeel.alerts")
# How long a claim lasts: longer than the function may run, and shorter than the queue's visibility timeout, so that a
# retry finds no old claim.
CLAIMED_FOR = timedelta(seconds=90)
# After a failed message, a change that was received more often than this is sent alone, so that it delays no other.
_RECEIVES_TOGETHER = 3
# The seconds that are reserved to send a message; the same time is reserved to clear its claims.
_RESERVED_SECONDS = 10.0
# Seconds. If a channel's Retry-After is longer, the changes remain on the queue.
_LONGEST_PAUSE = 15.0
# PagerDuty accepts 255 characters as a dedup_key, Opsgenie 512 as an alias.
_LONGEST_KEY = 255
_KINDS = [kind.value for kind in IncidentKind]  # the worst first


@dataclass(frozen=True, kw_only=True)
class Alert:
    """One change of one incident, as the bus delivered it."""

    key: str  # the incident's key
    change: Change
    cluster: str
    at: str  # RFC 3339 in UTC with whole seconds, so that it sorts as text
    order: int = 0  # sorts changes with the same ``at``
    kind: str
    pool: str = ""
    since: str
    missing: int = 0
    zones: tuple[str, ...] = ()
    is_outage: bool = False  # True: no zone of the pool is known to deliver nodes
    failure_class: str = ""
    message: str
    todo: str = ""  # what to do about the incident, with the command and the runbook for it
    command: str = ""
    runbook: str = ""

    @property
    def dedup(self) -> str:
        """Return the incident's key, shortened so that every channel accepts it."""
        if len(self.key) <= _LONGEST_KEY:
            return self.key
        digest = hashlib.sha256(self.key.encode()).hexdigest()[:32]
        return f"{self.key[: _LONGEST_KEY - 33]}#{digest}"

    @property
    def moment(self) -> tuple[str, int]:
        """Return the sort key by time. A later change of an incident has a greater key."""
        return self.at, self.order

    @property
    def print(self) -> str:
        """Return the fingerprint of the change. A repeat at another time has the same fingerprint."""
        matter = (self.change.value, self.since, self.missing, self.zones, self.failure_class)
        return hashlib.sha256(json.dumps(matter).encode()).hexdigest()[:16]

    @property
    def is_over(self) -> bool:
        """Return True if the incident is closed."""
        return self.change is Change.CLOSED

    @property
    def severity(self) -> Severity:
        """Return how urgent the change is."""
        return IncidentKind(self.kind).severity if self.kind in _KINDS else Severity.WARNING

    @property
    def sort_key(self) -> tuple[bool, int, int, str]:
        """Return the sort key: the worst first, closed incidents last."""
        rank = _KINDS.index(self.kind) if self.kind in _KINDS else len(_KINDS)
        return self.is_over, rank, -self.missing, self.key


@dataclass(frozen=True, kw_only=True)
class LastNotified:
    """The last change of an incident that a channel was notified of, or that a worker has claimed for the channel."""

    moment: tuple[str, int] = ("", 0)
    print: str = ""
    claimed_until: datetime | None = None  # the end of the claim; None: the channel was notified
    version: int = 0  # 0: nothing is stored yet


class AlertMemory(Protocol):
    """The stored notifications of all channels."""

    def last_notified(self, channel: str, key: str) -> LastNotified:
        """Return the last notification, from a consistent read. Raises StateUnavailableError."""

    def save_notified(self, channel: str, key: str, notified: LastNotified) -> None:
        """Store the notification with the next version, if the stored version is still ``notified.version``.

        Raises:
            StateConflictError: The stored version has changed.
            StateUnavailableError: The notification cannot be written.
        """


class ChannelError(EvenkeelError):
    """A channel did not accept a message.

    ``is_away``: True: the channel accepts no message now; False: it refuses this message. ``pause``: the seconds that
    the channel asks to wait before a retry; None: it names no time.
    """

    def __init__(self, text: str, *, is_away: bool = True, pause: float | None = None) -> None:
        super().__init__(text)
        self.is_away = is_away
        self.pause = pause


class Channel(Protocol):
    """A chat or pager. A repeated message is harmless."""

    @property
    def name(self) -> str:
        """Return the name under which notifications are stored."""

    @property
    def together(self) -> bool:
        """Return True if one message may contain several changes."""

    def send(self, alerts: Sequence[Alert]) -> None:
        """Send one message with the newest change of each incident, the worst first. Raises ChannelError."""


@dataclass(frozen=True, kw_only=True)
class Received:
    """An alert, and the queue message that contained it."""

    message: str
    receives: int
    alert: Alert


@dataclass(frozen=True, kw_only=True)
class NotifyChannels:
    """The use case, for one batch of messages. ``runbooks``: the URL or file of the stack's runbooks."""

    channels: Sequence[Channel]
    memory: AlertMemory
    clock: Clock
    runbooks: str = RUNBOOKS

    def checked(self, alert: Alert) -> Alert:
        """Return the alert. Raises BadRequestError if it links to another page than the stack's runbooks."""
        if alert.runbook and not alert.runbook.startswith(f"{self.runbooks}#"):
            advice = f"it must be a section of {self.runbooks}"
            raise BadRequestError(f"incident {quote(alert.key)}: runbook is {quote(alert.runbook)}: {advice}")
        return alert

    def __call__(self, received: Sequence[Received], remaining: Remaining) -> set[str]:
        """Notify the channels. Return the messages to retry.

        These are all messages about incidents whose newest change was not accepted by every channel.
        """
        newest: dict[str, Received] = {}
        for each in sorted(received, key=lambda each: each.alert.moment):
            newest[each.alert.key] = each
        worst_first = sorted(newest.values(), key=lambda each: each.alert.sort_key)
        retries: set[str] = set()
        for channel in self.channels:
            retries |= _Notification(channel, self.memory, self.clock, remaining).send(worst_first)
        return {each.message for each in received if each.alert.key in retries}


_Claim = tuple[Received, LastNotified]


@dataclass
class _Notification:
    """Sends a batch to one channel. The methods return the keys of the incidents to retry."""

    channel: Channel
    memory: AlertMemory
    clock: Clock
    remaining: Remaining
    is_away: bool = False

    def send(self, received: Sequence[Received]) -> set[str]:
        messages = [received] if self.channel.together else [[each] for each in received]
        return set[str]().union(*map(self._claim_and_send, messages))

    @property
    def _must_stop(self) -> bool:
        return self.is_away or self.remaining() < 2 * _RESERVED_SECONDS

    def _claim_and_send(self, received: Sequence[Received]) -> set[str]:
        retries: set[str] = set()
        claims: list[_Claim] = []
        for each in received:
            # After slow claims, the remaining time is reserved for the changes that are already claimed.
            if self._must_stop:
                retries.add(each.alert.key)
                continue
            try:
                claim = self._claim(each.alert)
            except (StateUnavailableError, StateConflictError) as error:
                _log.warning("%s: not notified of %s yet: %s", self.channel.name, each.alert.key, error)
                retries.add(each.alert.key)
                continue
            if claim is not None:
                claims.append((each, claim))
        return retries | (self._send_claimed(claims) if claims else set())

    def _send_claimed(self, claims: Sequence[_Claim]) -> set[str]:
        """Send the changes in one message. If the channel does not accept it, send several smaller messages."""
        if self._is_accepted([each.alert for each, _ in claims]):
            for each, claim in claims:
                self._clear_claim(each.alert, claim)
            return set()
        keys = {each.alert.key for each, _ in claims}
        if len(claims) == 1:
            return keys
        retries: set[str] = set()
        for part in self._parts(claims):
            retries |= {each.alert.key for each, _ in part} if self._must_stop else self._send_claimed(part)
        return retries

    def _parts(self, claims: Sequence[_Claim]) -> list[Sequence[_Claim]]:
        """Return the parts of a failed message to send next.

        If the channel refuses this message, the parts are its halves, to find the refused change. If the channel
        accepts no message now, the cause may be a change that the queue has already delivered several times. Each such
        change is sent alone, and all others together. Without such changes, nothing more is sent.
        """
        if not self.is_away:
            half = len(claims) // 2
            return [claims[:half], claims[half:]]
        alone = [[claim] for claim in claims if claim[0].receives > _RECEIVES_TOGETHER]
        fresh = [claim for claim in claims if claim[0].receives <= _RECEIVES_TOGETHER]
        self.is_away = not alone
        return [*([fresh] if fresh else []), *alone]

    def _claim(self, alert: Alert) -> LastNotified | None:
        """Claim the change and return the claim; None: the channel was already notified of this change or a newer one.

        Raises:
            StateConflictError: Another worker has claimed a change of the incident for this channel.
            StateUnavailableError: The last notification cannot be read or stored.
        """
        last, now = self.memory.last_notified(self.channel.name, alert.dedup), self.clock.now()
        if last.moment > alert.moment or (last.claimed_until is None and last.print == alert.print):
            return None
        if held_until(last.claimed_until, now) is not None:
            raise StateConflictError("another worker is sending it")
        claim = replace(last, moment=alert.moment, print=alert.print, claimed_until=now + CLAIMED_FOR)
        self.memory.save_notified(self.channel.name, alert.dedup, claim)
        return replace(claim, version=last.version + 1)

    def _is_accepted(self, alerts: Sequence[Alert]) -> bool:
        try:
            try:
                self.channel.send(alerts)
            except ChannelError as error:
                if error.pause is None or error.pause > min(_LONGEST_PAUSE, self.remaining() - 2 * _RESERVED_SECONDS):
                    raise
                self.clock.sleep(error.pause)
                self.channel.send(alerts)
        except ChannelError as error:
            _log.error("%s: %s changes not sent: %s", self.channel.name, len(alerts), error)
            self.is_away = error.is_away
            return False
        return True

    def _clear_claim(self, alert: Alert, claim: LastNotified) -> None:
        """Store that the channel was notified. If the write fails, the claim expires, and the change is sent again."""
        try:
            self.memory.save_notified(self.channel.name, alert.dedup, replace(claim, claimed_until=None))
        except (StateUnavailableError, StateConflictError) as error:
            _log.warning("%s: notification of %s not stored: %s", self.channel.name, alert.key, error)
