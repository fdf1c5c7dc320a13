"""Stores EKS's descriptions of a cluster's managed node groups in one item of the table, as compressed JSON."""

import json
import logging
import zlib
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from evenkeel.adapters.aws.table import Table, key, number
from evenkeel.application.errors import EvenkeelError

_log = logging.getLogger("evenkeel.store")
# This key sorts before "E", so that the query of a check skips the item.
_SORT_KEY = "CACHE#NODE_GROUPS"
_KEPT = timedelta(days=30)


class DynamoNodeGroups:
    """Implements ``NodeGroupStore``. An error is logged, because EKS has the descriptions, too."""

    def __init__(self, client: Any, table: str, now: Callable[[], datetime]) -> None:
        """``client``: a boto3 DynamoDB client."""
        self._table = Table(client, table)
        self._now = now

    def load(self, cluster: str) -> Mapping[tuple[str, str], Mapping[str, Any]]:
        """Return the stored descriptions; empty: there are none, or they are unreadable."""
        values = {":pk": f"CLUSTER#{cluster}", ":sk": _SORT_KEY}
        try:
            items = self._table.query("pk = :pk AND sk = :sk", values)
            texts = [zlib.decompress(item["record"]["B"]) for item in items]
            return {
                (str(eks), str(name)): dict(node_group) for text in texts for eks, name, node_group in json.loads(text)
            }
        except (EvenkeelError, KeyError, TypeError, ValueError, zlib.error) as error:
            _log.warning("node groups not loaded: %s", error, extra={"cluster": cluster})
            return {}

    def save(self, cluster: str, descriptions: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
        """Store the descriptions."""
        text = json.dumps([[*names, node_group] for names, node_group in sorted(descriptions.items())])
        item = {
            **key(f"CLUSTER#{cluster}", _SORT_KEY),
            "record": {"B": zlib.compress(text.encode())},
            "expires_at": number(int((self._now() + _KEPT).timestamp())),
        }
        try:
            self._table.call("put_item", Item=item)
        except EvenkeelError as error:
            _log.warning("node groups not stored: %s", error, extra={"cluster": cluster})
