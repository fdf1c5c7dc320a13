"""Stores the last decision about each Auto Scaling group: one item of the table for each group."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from evenkeel.adapters.aws.table import Table, key, number, text
from evenkeel.application.errors import AccessUnavailableError, EvenkeelError
from evenkeel.validation import ConfigError

_log = logging.getLogger("evenkeel.store")
# This key sorts before "E", so that the query of a check skips the items.
_SORT_KEY = "AUTO_SCALING#"
# Then the decision of a group that no longer exists is deleted. Without its decision, a group is written as before.
_KEPT = timedelta(days=365)


class DynamoGroupDecisions:
    """Implements ``DecisionStore``. A group without a decision may have an item without a record."""

    def __init__(self, client: Any, table: str, now: Callable[[], datetime]) -> None:
        """``client``: a boto3 DynamoDB client."""
        self._table = Table(client, table)
        self._now = now

    def load(self, cluster: str) -> Mapping[str, str]:
        """Return the decisions by name of the group. An unreadable one is left out, and the error is logged."""
        values = {":pk": f"CLUSTER#{cluster}", ":sk": _SORT_KEY}
        try:
            items = self._table.query("pk = :pk AND begins_with(sk, :sk)", values, ConsistentRead=True)
        except EvenkeelError as error:
            raise AccessUnavailableError(f"{cluster}: decisions about its groups not read: {error}") from None
        decisions = {}
        for item in items:
            if "record" not in item:
                continue
            try:
                decisions[text(item, "sk").removeprefix(_SORT_KEY)] = text(item, "record")
            except ConfigError as error:
                _log.warning("decision not loaded: %s", error, extra={"cluster": cluster})
        return decisions

    def save(self, cluster: str, group: str, decision: str, before: str) -> None:
        """Store a decision, unless another run has stored one. A repeated call is no conflict with itself."""
        # DynamoDB Local does not accept empty texts.
        known = {name: {"S": text} for name, text in ((":now", decision), (":before", before)) if text}
        conditions = [f"#record = {name}" for name in known]
        if not (decision and before):
            conditions.append("NOT attribute_type(#record, :text)")  # there is none, or an unreadable one
            known[":text"] = {"S": "S"}
        item = {
            **key(f"CLUSTER#{cluster}", f"{_SORT_KEY}{group}"),
            **({"record": {"S": decision}} if decision else {}),
            "expires_at": number(int((self._now() + _KEPT).timestamp())),
        }
        self._table.call(
            "put_item",
            Item=item,
            ConditionExpression=" OR ".join(conditions),
            ExpressionAttributeNames={"#record": "record"},
            ExpressionAttributeValues=known,
        )
