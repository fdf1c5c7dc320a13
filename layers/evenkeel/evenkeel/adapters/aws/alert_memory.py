"""Stores the last notification of each channel about each incident. Only ``notify`` may write these items."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from evenkeel.adapters.aws.table import Item, Table, key, moment, number, text, unchanged, whole
from evenkeel.application.errors import StateUnavailableError
from evenkeel.application.incidents.alerting import LastNotified
from evenkeel.validation import ConfigError

_log = logging.getLogger("evenkeel.alerts")
# How long a notification is stored. A message waits for a shorter time, at most 14 days as a dead letter. So no message
# arrives after its notification has expired.
_KEPT = timedelta(days=30)


class DynamoAlertMemory:
    """Implements ``AlertMemory`` with DynamoDB."""

    def __init__(self, client: Any, table: str, now: Callable[[], datetime]) -> None:
        self._table = Table(client, table)
        self._now = now

    def last_notified(self, channel: str, key: str) -> LastNotified:
        """Return the channel's last notification of an incident, or an empty one. Raises StateUnavailableError."""
        for item in self._table.get(_pk(channel), key):
            try:
                version = whole(item, "version")
            except ConfigError as error:  # without its version, the item cannot be written either
                raise StateUnavailableError(f"table {self._table.name}: {error}") from None
            try:
                return _last_notified(item, version)
            except ConfigError as error:  # a repeated alert is better than a missing one
                _log.error("not read: %s", error)
                return LastNotified(version=version)
        return LastNotified()

    def save_notified(self, channel: str, incident: str, told: LastNotified) -> None:
        """Store a channel's notification of an incident. Raises StateConflictError if the version has changed."""
        at, order = told.moment
        until = 0 if told.claimed_until is None else int(told.claimed_until.timestamp())
        numbers = {"order": order, "claimed_until": until, "version": told.version + 1}
        numbers["expires_at"] = int((self._now() + _KEPT).timestamp())
        item = {
            **key(_pk(channel), incident),
            # Empty texts, as in the first claim, are left out, because DynamoDB Local does not accept them.
            **{name: {"S": value} for name, value in (("at", at), ("print", told.print)) if value},
            **{name: number(value) for name, value in numbers.items()},
        }
        self._table.call("put_item", Item=item, **unchanged("version", told.version or None))


def _pk(channel: str) -> str:
    return f"ALERTED#{channel}"


def _last_notified(item: Item, version: int) -> LastNotified:
    until = moment(item, "claimed_until") if whole(item, "claimed_until") else None
    at, fingerprint = (text(item, name) if name in item else "" for name in ("at", "print"))
    return LastNotified(moment=(at, whole(item, "order")), print=fingerprint, claimed_until=until, version=version)
