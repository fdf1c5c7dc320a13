"""What each channel was told last of each trouble, in the one table, under keys that only ``alert`` may write."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from evenkeel.application.alerting import LastTold
from evenkeel.application.errors import StateConflictError, StateUnavailableError

# Far longer than a message may wait, dead letters included (14 days): older news than that does not come.
_KEPT = timedelta(days=30)
_Answer = TypeVar("_Answer")


class DynamoAlertMemory:
    """:class:`evenkeel.application.alerting.AlertMemory` on DynamoDB."""

    def __init__(self, client: Any, table: str, now: Callable[[], datetime]) -> None:
        self._client = client
        self._table = table
        self._now = now

    def last_told(self, channel: str, key: str) -> LastTold:
        answer = self._ask(
            lambda: self._client.get_item(TableName=self._table, Key=_key(channel, key), ConsistentRead=True)
        )
        item = answer.get("Item")
        if item is None:
            return LastTold()
        until = int(item["claimed_until"]["N"])
        return LastTold(
            moment=(_text(item, "at"), int(item["order"]["N"])),
            print=_text(item, "print"),
            claimed_until=datetime.fromtimestamp(until, UTC) if until else None,
            version=int(item["version"]["N"]),
        )

    def save_told(self, channel: str, key: str, told: LastTold) -> None:
        at, order = told.moment
        until = 0 if told.claimed_until is None else int(told.claimed_until.timestamp())
        numbers = {"order": order, "claimed_until": until, "version": told.version + 1}
        numbers["expires_at"] = int((self._now() + _KEPT).timestamp())
        item = {
            **_key(channel, key),
            # DynamoDB Local takes no empty text, and a first claim has been told nothing yet
            **{name: {"S": text} for name, text in (("at", at), ("print", told.print)) if text},
            **{name: {"N": str(number)} for name, number in numbers.items()},
        }
        condition = (
            {"ConditionExpression": "version = :version", "ExpressionAttributeValues": {":version": _n(told.version)}}
            if told.version
            else {"ConditionExpression": "attribute_not_exists(pk)"}
        )
        self._ask(lambda: self._client.put_item(TableName=self._table, Item=item, **condition))

    def _ask(self, call: Callable[[], _Answer]) -> _Answer:
        try:
            return call()
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "ConditionalCheckFailedException":
                raise StateConflictError("somebody else is telling it") from None
            raise StateUnavailableError(f"table {self._table}: {error}") from None
        except BotoCoreError as error:
            raise StateUnavailableError(f"table {self._table}: {error}") from None


def _key(channel: str, key: str) -> dict[str, Any]:
    return {"pk": {"S": f"ALERTED#{channel}"}, "sk": {"S": key}}


def _text(item: dict[str, Any], name: str) -> str:
    return str(item[name]["S"]) if name in item else ""


def _n(number: int) -> dict[str, str]:
    return {"N": str(number)}
