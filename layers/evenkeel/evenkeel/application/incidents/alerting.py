"""Trouble, told where people are paged: each news once per channel, the newest last, a storm as one message.

News comes by a queue: twice, late, out of order. What each channel was told last of a trouble is remembered, so a
repeat is not told again, and what is older than what was told is not told at all: a trouble that has ended is not
opened by its own beginning that comes late. News is claimed before it is told and struck off after. Whoever finds a
claim of somebody who may still be telling leaves the news on the queue. A worker that was killed in between lets it
come back when its claim has ended, and it is told once more: at least once, and never an old word last.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from evenkeel.application.errors import EvenkeelError, StateConflictError, StateUnavailableError
from evenkeel.application.ports import Clock, Remaining
from evenkeel.domain.model.incidents import Change, IncidentKind

_log = logging.getLogger("evenkeel.alerts")
# Longer than the function may run, shorter than the queue hides a message: who comes back finds no claim of its own.
CLAIMED_FOR = timedelta(seconds=90)
# What has come so often is tried by itself where one message is not taken: who breaks a channel holds up no other.
_TOLD_TOGETHER = 3
# Of an invocation, kept for telling, and as long again for striking off what was told.
_KEPT_SECONDS = 10.0
# As long as a channel's Retry-After is waited for; a longer one waits on the queue.
_LONGEST_PAUSE = 15.0
# PagerDuty takes 255 characters of a dedup_key, Opsgenie 512 of an alias.
_LONGEST_KEY = 255
ROLLOUT = "rollout"  # the kind of news about clusters that go live in waves
_KINDS = [kind.value for kind in IncidentKind]  # the worst first


@dataclass(frozen=True, kw_only=True)
class Alert:
    """News of one trouble, as the bus had it."""

    key: str  # the same for all news of one trouble
    news: Change
    cluster: str
    at: str  # RFC 3339, UTC, whole seconds: sorts as text
    order: int = 0  # among what one run has told at once
    kind: str
    pool: str = ""
    since: str
    missing: int = 0
    zones: tuple[str, ...] = ()
    failure_class: str = ""
    message: str
    todo: str = ""
    command: str = ""
    runbook: str = ""
    heading: str = ""  # of news that is not about trouble: what it is called then

    @property
    def dedup(self) -> str:
        """The key, as short as every channel takes it."""
        if len(self.key) <= _LONGEST_KEY:
            return self.key
        digest = hashlib.sha256(self.key.encode()).hexdigest()[:32]
        return f"{self.key[: _LONGEST_KEY - 33]}#{digest}"

    @property
    def moment(self) -> tuple[str, int]:
        """Later news of one trouble has a greater one."""
        return self.at, self.order

    @property
    def print(self) -> str:
        """The same for the same news, also where it was told once more at another time."""
        matter: tuple[object, ...] = (self.news.value, self.since, self.missing, self.zones, self.failure_class)
        matter += (self.heading,) if self.heading else ()  # else as the release before remembers it
        return hashlib.sha256(json.dumps(matter).encode()).hexdigest()[:16]

    @property
    def is_over(self) -> bool:
        return self.news is Change.CLOSED

    @property
    def severity(self) -> tuple[bool, int, int, str]:
        """Sorts the worst first, and what is over last."""
        rank = _KINDS.index(self.kind) if self.kind in _KINDS else len(_KINDS)
        return self.is_over, rank, -self.missing, self.key


@dataclass(frozen=True, kw_only=True)
class LastNotified:
    """What a channel was told last of a trouble, or is being told until then; ``version`` 0: never anything."""

    moment: tuple[str, int] = ("", 0)
    print: str = ""
    claimed_until: datetime | None = None  # None: it was told
    version: int = 0


class AlertMemory(Protocol):
    """What channels were told."""

    def last_notified(self, channel: str, key: str) -> LastNotified:
        """Consistently read. Raises StateUnavailableError."""
        ...

    def save_notified(self, channel: str, key: str, told: LastNotified) -> None:
        """On the version that ``told`` has, which is counted up.

        Raises:
            StateConflictError: somebody else wrote it since it was read.
            StateUnavailableError: it cannot be written.
        """
        ...


class ChannelError(EvenkeelError):
    """A channel did not take it. ``pause``: seconds that it asks for, None where it says nothing.

    ``is_away``: it takes nothing now; else it refuses this alone.
    """

    def __init__(self, text: str, *, is_away: bool = True, pause: float | None = None) -> None:
        super().__init__(text)
        self.is_away = is_away
        self.pause = pause


class Channel(Protocol):
    """A place where people are told. Telling the same again does no harm beyond the repeat."""

    @property
    def name(self) -> str:
        """Under which it is remembered what was told."""
        ...

    @property
    def together(self) -> bool:
        """Whether one message tells several news; else each is told by itself."""
        ...

    def send(self, alerts: Sequence[Alert]) -> None:
        """The newest of each trouble, the worst first; one alone, where not ``together``. Raises ChannelError."""
        ...


@dataclass(frozen=True, kw_only=True)
class Received:
    """An alert and the message that brought it."""

    message: str
    receives: int
    alert: Alert


@dataclass(frozen=True, kw_only=True)
class NotifyChannels:
    """The use case, for the messages of one batch."""

    channels: Sequence[Channel]
    memory: AlertMemory
    clock: Clock

    def __call__(self, received: Sequence[Received], remaining: Remaining) -> set[str]:
        """The messages that must come back: some channel has not taken their news, or the news after it."""
        newest = _newest(received)
        missed: set[str] = set()
        for channel in self.channels:
            missed |= _Telling(channel, self.memory, self.clock, remaining).send(newest)
        return {each.message for each in received if each.alert.key in missed}


def _newest(received: Sequence[Received]) -> list[Received]:
    """Of each trouble the newest news, the worst first, and what is over last."""
    newest: dict[str, Received] = {}
    for each in received:
        known = newest.get(each.alert.key)
        if known is None or each.alert.moment >= known.alert.moment:
            newest[each.alert.key] = each
    return sorted(newest.values(), key=lambda each: each.alert.severity)


_Claim = tuple[Received, LastNotified]


@dataclass
class _Telling:
    """One channel's part of a batch."""

    channel: Channel
    memory: AlertMemory
    clock: Clock
    remaining: Remaining
    is_away: bool = False

    def send(self, received: Sequence[Received]) -> set[str]:
        """The keys of what has to come back."""
        missed: set[str] = set()
        for parcel in [received] if self.channel.together else [[each] for each in received]:
            missed |= self._tell_parcel(parcel)
        return missed

    def _tell_parcel(self, parcel: Sequence[Received]) -> set[str]:
        missed: set[str] = set()
        claims: list[_Claim] = []
        for each in parcel:
            if self.is_away or self.remaining() < 2 * _KEPT_SECONDS:  # a slow table: what is claimed is still told
                missed.add(each.alert.key)
                continue
            try:
                claim = self._claim(each.alert)
            except (StateUnavailableError, StateConflictError) as error:
                _log.warning("%s: not told of %s yet: %s", self.channel.name, each.alert.key, error)
                missed.add(each.alert.key)
                continue
            if claim is not None:
                claims.append((each, claim))
        return missed | (self._tell_claimed(claims) if claims else set())

    def _tell_claimed(self, claims: Sequence[_Claim]) -> set[str]:
        """In one message, however long the channel was away; in several where it does not take that."""
        if self._is_taken([each.alert for each, _ in claims]):
            for each, claim in claims:
                self._strike_off(each.alert, claim)
            return set()
        if len(claims) == 1:
            return {each.alert.key for each, _ in claims}
        missed: set[str] = set()
        for part in self._parts(claims):
            if self.is_away or self.remaining() < 2 * _KEPT_SECONDS:
                missed |= {each.alert.key for each, _ in part}
            else:
                missed |= self._tell_claimed(part)
        return missed

    def _parts(self, claims: Sequence[_Claim]) -> list[Sequence[_Claim]]:
        """What is tried after one message that was not taken: halves, to find whom the channel refuses.

        One that is away is left alone, unless it may be so for what has come back often.
        """
        if not self.is_away:
            half = len(claims) // 2
            return [claims[:half], claims[half:]]
        alone = [[claim] for claim in claims if claim[0].receives > _TOLD_TOGETHER]
        fresh = [claim for claim in claims if claim[0].receives <= _TOLD_TOGETHER]
        self.is_away = not alone
        return [*([fresh] if fresh else []), *alone]

    def _claim(self, alert: Alert) -> LastNotified | None:
        """The right to tell it now; None: it was told, or something newer was.

        Raises:
            StateConflictError: somebody else is telling this channel of that trouble.
            StateUnavailableError: nobody knows what it was told.
        """
        told, now = self.memory.last_notified(self.channel.name, alert.dedup), self.clock.now()
        if told.moment > alert.moment or (told.claimed_until is None and told.print == alert.print):
            return None
        if told.claimed_until is not None and now < told.claimed_until:
            raise StateConflictError("somebody is telling it")
        claim = replace(told, moment=alert.moment, print=alert.print, claimed_until=now + CLAIMED_FOR)
        self.memory.save_notified(self.channel.name, alert.dedup, claim)
        return replace(claim, version=told.version + 1)

    def _is_taken(self, alerts: Sequence[Alert]) -> bool:
        try:
            try:
                self.channel.send(alerts)
            except ChannelError as error:
                if error.pause is None or error.pause > min(_LONGEST_PAUSE, self.remaining() - 2 * _KEPT_SECONDS):
                    raise
                self.clock.sleep(error.pause)
                self.channel.send(alerts)
        except ChannelError as error:
            _log.error("%s: %s news not told: %s", self.channel.name, len(alerts), error)
            self.is_away = error.is_away
            return False
        return True

    def _strike_off(self, alert: Alert, claim: LastNotified) -> None:
        """That it was told. Where that cannot be said, the claim ends by itself, and at worst a repeat is told."""
        try:
            self.memory.save_notified(self.channel.name, alert.dedup, replace(claim, claimed_until=None))
        except (StateUnavailableError, StateConflictError) as error:
            _log.warning("%s: not remembered as told of %s: %s", self.channel.name, alert.key, error)
