"""Stores EKS's descriptions of a cluster's managed node groups in one item of the table, as compressed JSON."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from evenkeel.adapters.aws.table import Table, key, number, text
from evenkeel.adapters.codec import pack, unpack
from evenkeel.application.errors import EvenkeelError
from evenkeel.validation import ConfigError

_log = logging.getLogger("evenkeel.store")
# This key sorts before "E", so that the query of a check skips the item.
_SORT_KEY = "CACHE#NODE_GROUPS"
_KEPT = timedelta(days=30)
_Entries = list[tuple[str, str, dict[str, Any]]]  # EKS cluster, node group, its description


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
            entries = [entry for item in items for entry in unpack(_Entries, text(item, "record"), _SORT_KEY)]
            return {(eks_cluster, name): node_group for eks_cluster, name, node_group in entries}
        except (EvenkeelError, ConfigError) as error:
            _log.warning("node groups not loaded: %s", error, extra={"cluster": cluster})
            return {}

    def save(self, cluster: str, descriptions: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
        """Store the descriptions."""
        entries = [[*names, node_group] for names, node_group in sorted(descriptions.items())]
        item = {
            **key(f"CLUSTER#{cluster}", _SORT_KEY),
            "record": {"S": pack(entries)},
            "expires_at": number(int((self._now() + _KEPT).timestamp())),
        }
        try:
            self._table.call("put_item", Item=item)
        except EvenkeelError as error:
            _log.warning("node groups not stored: %s", error, extra={"cluster": cluster})
