"""What each channel was told last of each trouble, in the one table, under keys that only ``alert`` may write."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from evenkeel.adapters.aws.items import moment, text, whole
from evenkeel.adapters.aws_faults import AWS_ERRORS, code_of, text_of
from evenkeel.application.errors import StateConflictError, StateUnavailableError
from evenkeel.application.incidents.alerting import LastNotified
from evenkeel.validation import ConfigError

_log = logging.getLogger("evenkeel.alerts")
# Far longer than a message may wait, dead letters included (14 days): older news than that does not come.
_KEPT = timedelta(days=30)


class DynamoAlertMemory:
    """``AlertMemory`` on DynamoDB."""

    def __init__(self, client: Any, table: str, now: Callable[[], datetime]) -> None:
        self._client = client
        self._table = table
        self._now = now

    def last_notified(self, channel: str, key: str) -> LastNotified:
        answer = self._ask(
            lambda: self._client.get_item(TableName=self._table, Key=_key(channel, key), ConsistentRead=True)
        )
        item = answer.get("Item")
        if item is None:
            return LastNotified()
        try:
            version = whole(item, "version")
        except ConfigError as error:  # no write of it could succeed
            raise StateUnavailableError(f"table {self._table}: {error}") from None
        try:
            return _last_notified(item, version)
        except ConfigError as error:  # a repeat is better than an alert that is never sent
            _log.error("not read: %s", error)
            return LastNotified(version=version)

    def save_notified(self, channel: str, key: str, told: LastNotified) -> None:
        at, order = told.moment
        until = 0 if told.claimed_until is None else int(told.claimed_until.timestamp())
        numbers = {"order": order, "claimed_until": until, "version": told.version + 1}
        numbers["expires_at"] = int((self._now() + _KEPT).timestamp())
        item = {
            **_key(channel, key),
            # DynamoDB Local takes no empty text, and a first claim has been told nothing yet
            **{name: {"S": value} for name, value in (("at", at), ("print", told.print)) if value},
            **{name: {"N": str(number)} for name, number in numbers.items()},
        }
        condition = (
            {"ConditionExpression": "version = :version", "ExpressionAttributeValues": {":version": _n(told.version)}}
            if told.version
            else {"ConditionExpression": "attribute_not_exists(pk)"}
        )
        self._ask(lambda: self._client.put_item(TableName=self._table, Item=item, **condition))

    def _ask(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except AWS_ERRORS as error:
            if code_of(error) == "ConditionalCheckFailedException":
                raise StateConflictError("somebody else is telling it") from None
            raise StateUnavailableError(f"table {self._table}: {text_of(error)}") from None


def _key(channel: str, key: str) -> dict[str, Any]:
    return {"pk": {"S": f"ALERTED#{channel}"}, "sk": {"S": key}}


def _last_notified(item: dict[str, Any], version: int) -> LastNotified:
    until = moment(item, "claimed_until") if whole(item, "claimed_until") else None
    at, fingerprint = (text(item, name) if name in item else "" for name in ("at", "print"))
    return LastNotified(moment=(at, whole(item, "order")), print=fingerprint, claimed_until=until, version=version)


def _n(number: int) -> dict[str, str]:
    return {"N": str(number)}
