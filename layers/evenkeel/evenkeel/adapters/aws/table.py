"""Calls the DynamoDB table, converts its errors, and reads the attributes of its items.

Every attribute is read here, so that a missing attribute and a wrong type raise the same error, ConfigError. An item
that cannot be read affects only its own cluster or alert.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from evenkeel.adapters.aws_faults import AWS_ERRORS, part_of, text_of
from evenkeel.application.errors import StateConflictError, StateRefusedError, StateUnavailableError
from evenkeel.domain.model.values import quote
from evenkeel.validation import ConfigError

Item = Mapping[str, Any]
# Call -> the part that every valid answer to this call contains.
_PARTS = {"query": "Items", "batch_get_item": "Responses"}
_OF_SEVERAL_TABLES = ("batch_get_item", "transact_write_items")
_WRITES = ("put_item", "update_item", "delete_item", "transact_write_items")
# The codes of an error, or of one reason of a cancelled transaction, for which a retry fails, too. An item beyond the
# largest size is one of them.
_REFUSALS = (
    *("AccessDeniedException", "ItemCollectionSizeLimitExceeded", "ItemCollectionSizeLimitExceededException"),
    *("ValidationError", "ValidationException"),
)
_CONFLICTS = ("ConditionalCheckFailed", "ConditionalCheckFailedException", "TransactionConflict")


class Table:
    """One DynamoDB table, which is called with a boto3 client."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self.name = name

    def call(self, operation: str, **request: Any) -> Any:
        """Return the answer to one call.

        Raises:
            StateConflictError: the condition of a write is false, or another write of the item is in progress.
            StateRefusedError: the table would also refuse a retry of the write.
            StateUnavailableError: the call fails for another reason.
        """
        if operation not in _OF_SEVERAL_TABLES:
            request = {"TableName": self.name, **request}
        try:
            answer = getattr(self._client, operation)(**request)
            if operation in _PARTS:
                part_of(answer, _PARTS[operation])
        except AWS_ERRORS as error:
            codes = _codes(error) if isinstance(error, ClientError) else set()
            if codes.intersection(_CONFLICTS):
                raise StateConflictError("the record has been written since it was read") from None
            if operation in _WRITES and codes.intersection(_REFUSALS):
                raise StateRefusedError(f"table {self.name}: {_item_of(request)}{text_of(error)}") from None
            raise StateUnavailableError(f"table {self.name}: {text_of(error)}") from None
        return answer

    def transact(self, *writes: tuple[str, Item]) -> None:
        """Make all writes or none. A write is ``("Put", request)``, ``("Update", ...)`` or ``("Delete", ...)``."""
        items = [{operation: {"TableName": self.name, **request}} for operation, request in writes]
        self.call("transact_write_items", TransactItems=items)

    def get(self, pk: str, sk: str) -> list[Item]:
        """Return a list with the item of these keys, from a consistent read, or an empty list."""
        answer = self.call("get_item", Key=key(pk, sk), ConsistentRead=True)
        return [answer["Item"]] if "Item" in answer else []

    def query(self, condition: str, values: Mapping[str, str], **request: Any) -> list[Item]:
        """Return all items that a key condition selects."""
        items: list[Item] = []
        while True:
            answer = self.page(condition, values, **request)
            items += answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return items
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def page(self, condition: str, values: Mapping[str, str], **request: Any) -> Any:
        """Return one answer to a query. It contains at most 1 MiB of items."""
        values_of_type = {name: {"S": value} for name, value in values.items()}
        return self.call("query", KeyConditionExpression=condition, ExpressionAttributeValues=values_of_type, **request)


def key(pk: str, sk: str) -> dict[str, Any]:
    """Return the partition key and the sort key of an item, as attributes."""
    return {"pk": {"S": pk}, "sk": {"S": sk}}


def number(value: float) -> dict[str, str]:
    """Return a number as an attribute."""
    return {"N": repr(value)}


def unchanged(attribute: str, version: int | None) -> dict[str, Any]:
    """Return the condition that an item still has this version. None: the condition is that it has no version.

    An item without a version counts as missing, because the function that receives events could create such an item.
    """
    if version is None:
        return {"ConditionExpression": f"attribute_not_exists({attribute})"}
    return {
        "ConditionExpression": f"{attribute} = :version",
        "ExpressionAttributeValues": {":version": number(version)},
    }


def _codes(error: ClientError) -> set[str]:
    reasons: list[dict[str, Any]] = [*error.response.get("CancellationReasons", []), error.response.get("Error", {})]
    return {str(reason.get("Code")) for reason in reasons}


def _item_of(request: Mapping[str, Any]) -> str:
    """Return which item a request writes, for an error; empty for a transaction."""
    item = request.get("Item") or request.get("Key")
    return f"{key_of(item)}: " if item else ""


def text(item: Item, name: str) -> str:
    """Return the value of an attribute of type S. Raises ConfigError."""
    value = item[name].get("S") if isinstance(item.get(name), Mapping) else None
    if isinstance(value, str):
        return value
    raise _unreadable(item, name, "a string (S)")


def texts(item: Item, name: str) -> tuple[str, ...]:
    """Return the sorted values of an attribute of type SS; empty if the item has none. Raises ConfigError."""
    if name not in item:
        return ()
    values = item[name].get("SS") if isinstance(item[name], Mapping) else None
    if isinstance(values, list):
        return tuple(sorted(map(str, values)))
    raise _unreadable(item, name, "a set of strings (SS)")


def whole(item: Item, name: str) -> int:
    """Return the value of an attribute of type N, as a whole number. Raises ConfigError."""
    value = seconds(item, name)
    if value.is_integer():
        return int(item[name]["N"]) if item[name]["N"].isdigit() else int(value)
    raise _unreadable(item, name, "a whole number (N)")


def seconds(item: Item, name: str) -> float:
    """Return the value of an attribute of type N. Raises ConfigError."""
    value = item[name].get("N") if isinstance(item.get(name), Mapping) else None
    try:
        if isinstance(value, str):
            return float(value)
    except ValueError:
        pass
    raise _unreadable(item, name, "a number (N)")


def moment(item: Item, name: str) -> datetime:
    """Return the time that an attribute of type N contains as seconds since 1970. Raises ConfigError."""
    try:
        return datetime.fromtimestamp(seconds(item, name), UTC)
    except (ValueError, OverflowError, OSError):
        raise _unreadable(item, name, "a time in seconds since 1970 (N)") from None


def key_of(item: Item) -> str:
    """Return the item's two keys for an error text. The table's schema guarantees their types."""
    return f"{item['pk']['S']} {item['sk']['S']}"


def _unreadable(item: Item, name: str, wanted: str) -> ConfigError:
    """Return the error about an attribute. The error does not quote a string, which may be long or secret."""
    value = item.get(name) or {}
    found = f"is {quote(value['N'])}" if "N" in value else f"has type {next(iter(value))}" if value else "is missing"
    return ConfigError([f"{key_of(item)}: {name} {found}: write {wanted}"])
