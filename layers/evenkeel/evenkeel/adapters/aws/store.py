"""The one table. Every write is conditional on the version that was read; nothing ever scans.

    pk                 sk                              record
    CLUSTER#<id>       DECISION#<ulid>                 what was decided, and what came of it (30 days)
                       GROUP#<flavour>/<ns>/<name>     backoff of a node group
                       GROWTH#<id>                     nodes asked for on request
                       LEASE                           owner, fence, expiry; never deleted
                       LOOK                            when the cluster is looked at besides its scans
                       META                            the cluster's record; the sparse index `due` is on this
                       POOL#<flavour>/<ns>/<name>      adopted bounds, digest of the last news
                       ZONE#<region>/<zone>            impaired until

One query with ``sk >= "G"`` reads everything but the decisions.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from evenkeel.application.errors import (
    LeaseHeldError,
    StateConflictError,
    StateUnavailableError,
    UnknownClusterError,
)
from evenkeel.application.ports import Lease, Remembered
from evenkeel.config import (
    ClusterRecord,
    ConfigError,
    GroupRecord,
    GrowthRecord,
    PoolRecord,
    TimerRecord,
    ZoneRecord,
    read_json,
)
from evenkeel.domain.backoff import GroupState
from evenkeel.domain.looks import Timer
from evenkeel.domain.model import GroupKey, PoolId
from evenkeel.domain.plan import ClusterState
from evenkeel.domain.pools import PoolState
from evenkeel.domain.values import BadValueError

_DUE = "DUE"
# A forgotten backoff changes nothing; it is kept a day longer for people who look.
_GROUP_KEPT = timedelta(days=1)
# Who contests a write should hear of it; who has not within a year will not.
_CONTESTED_KEPT = timedelta(days=365)
# EventBridge may bring an event again within a day.
_GROWTH_KEPT = timedelta(days=1, hours=1)
_TIMER_KEPT = timedelta(days=1)
_NEVER = datetime.fromtimestamp(0, UTC)
_Answer = TypeVar("_Answer")
Item = dict[str, Any]


class _PoolRecord(PoolRecord):
    """A pool as it is stored. Its id is spelled out: the sort key cannot be taken apart where no cluster is named."""

    flavour: str
    namespace: str
    cluster: str
    name: str


def _pk(cluster: str) -> str:
    return f"CLUSTER#{cluster}"


class DynamoStore:
    """:class:`evenkeel.application.ports.Store` on DynamoDB.

    Args:
        client: A boto3 DynamoDB client.
        table: The table's name.
    """

    def __init__(self, client: Any, table: str) -> None:
        self._client = client
        self._table = table

    def load(self, cluster: str) -> Remembered:
        """One consistent query (and one more per MiB)."""
        items = self._query(
            KeyConditionExpression="pk = :pk AND sk >= :after",
            ExpressionAttributeValues={":pk": {"S": _pk(cluster)}, ":after": {"S": "G"}},
            ConsistentRead=True,
        )
        by_key = {item["sk"]["S"]: item for item in items}
        if "META" not in by_key:
            raise UnknownClusterError(f"cluster {cluster!r} is not registered")
        groups: dict[GroupKey, GroupState] = {}
        pools: dict[PoolId, PoolState] = {}
        zones: dict[str, ZoneRecord] = {}
        growths: dict[str, GrowthRecord] = {}
        for key, item in by_key.items():
            where = f"{_pk(cluster)} {key}"
            if key.startswith("GROUP#"):
                groups[_group_key(key, where)] = read_json(GroupRecord, _text(item), where).state()
            elif key.startswith("POOL#"):
                pool = read_json(_PoolRecord, _text(item), where)
                pools[PoolId(pool.flavour, pool.namespace, pool.cluster, pool.name)] = pool.state()
            elif key.startswith("GROWTH#"):
                growth = read_json(GrowthRecord, _text(item), where)
                growths[growth.id] = growth
            elif key.startswith("ZONE#"):
                zone, told = key.rpartition("/")[2], read_json(ZoneRecord, _text(item), where)
                if zone not in zones or (told.said_at or _NEVER) > (zones[zone].said_at or _NEVER):
                    zones[zone] = told  # a record that has got a region since may have two items: the newest counts
        return Remembered(
            record=read_json(ClusterRecord, _text(by_key["META"]), f"record of cluster {cluster}"),
            state=ClusterState(
                groups=groups,
                pools=pools,
                zones={zone: record.impaired_until for zone, record in zones.items()},
                growths=tuple(growth.growth() for growth in growths.values() if not growth.done),
            ),
            zones=zones,
            growths=growths,
            versions={key: int(item["version"]["N"]) for key, item in by_key.items() if "version" in item},
            fence=int(by_key["LEASE"]["fence"]["N"]) if "LEASE" in by_key else 0,
            timer=read_json(TimerRecord, _text(by_key["LOOK"]), f"{_pk(cluster)} LOOK").timer()
            if "LOOK" in by_key
            else None,
        )

    def due(self) -> Sequence[tuple[str, ClusterRecord | str]]:
        """Every cluster in the sparse index. A bad record is told, not raised: the other clusters go on."""
        found: list[tuple[str, ClusterRecord | str]] = []
        for item in self._query(
            IndexName="due",
            KeyConditionExpression="due = :due",
            ExpressionAttributeValues={":due": {"S": _DUE}},
        ):
            cluster = item["pk"]["S"].removeprefix("CLUSTER#")
            try:
                found.append((cluster, read_json(ClusterRecord, _text(item), f"record of cluster {cluster}")))
            except ConfigError as error:
                found.append((cluster, str(error)))
        return found

    def record_version(self, cluster: str) -> int | None:
        """One consistent read."""
        key = {"pk": {"S": _pk(cluster)}, "sk": {"S": "META"}}
        answer = self._ask(lambda: self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True))
        item = answer.get("Item")
        return int(item["version"]["N"]) if item else None

    def save_record(self, record: ClusterRecord, version: int | None) -> None:
        """Also puts the cluster into the index that ``scan`` reads."""
        self._put(_pk(record.id), "META", record.model_dump_json(exclude_none=True), version, due={"S": _DUE})

    def save_group(self, cluster: str, key: GroupKey, state: GroupState, version: int | None) -> None:
        """Kept until a day after the failure is forgotten, and while machines carry marks of ours."""
        last = max(state.backoff_until or _NEVER, state.last_failure or _NEVER, state.waiting_since or _NEVER)
        if state.contested_since is not None:
            last = max(last, state.contested_since + _CONTESTED_KEPT)
        expires = last + timedelta(days=1) + _GROUP_KEPT
        record = GroupRecord.of(state).model_dump_json(by_alias=True, exclude_none=True)
        # A group may stay frozen for longer than its failure counts; its marks must be found again all the same.
        ends = {} if state.marked else {"expires_at": {"N": str(int(expires.timestamp()))}}
        self._put(_pk(cluster), f"GROUP#{key}", record, version, **ends)

    def save_pool(self, cluster: str, pool: PoolId, state: PoolState, version: int | None) -> None:
        """Never expires: the adopted bounds are what ``restore`` puts back."""
        id = {"flavour": pool.flavour, "namespace": pool.namespace, "cluster": pool.cluster, "name": pool.name}
        record = _PoolRecord(**{**dict(PoolRecord.of(state)), **id})
        self._put(_pk(cluster), f"POOL#{pool}", record.model_dump_json(exclude_defaults=True), version)

    def save_zone(self, cluster: str, region: str, zone: str, record: ZoneRecord, version: int | None) -> None:
        """Kept a day longer than it holds, so that late words about it are still known to be late."""
        expires = {"N": str(int((record.impaired_until + timedelta(days=1)).timestamp()))}
        self._put(_pk(cluster), f"ZONE#{region}/{zone}", record.model_dump_json(), version, expires_at=expires)

    def save_growth(self, cluster: str, record: GrowthRecord, version: int | None) -> None:
        """Kept for a day after it was asked for, so that the same request is known when it comes again."""
        expires = {"N": str(int((record.at + _GROWTH_KEPT).timestamp()))}
        self._put(_pk(cluster), f"GROWTH#{record.id}", record.model_dump_json(), version, expires_at=expires)

    def save_timer(self, cluster: str, timer: Timer, version: int | None) -> None:
        """Kept while it may still keep a look from being asked for twice."""
        expires = {"N": str(int((timer.due + _TIMER_KEPT).timestamp()))}
        record = TimerRecord(due=timer.due, step=timer.step).model_dump_json()
        self._put(_pk(cluster), "LOOK", record, version, expires_at=expires)

    def take_lease(self, cluster: str, owner: str, seen_fence: int, now: datetime, expires: datetime) -> Lease:
        """Take the lease if it is over and nobody has had it since ``seen_fence``.

            seen          another run         now
        -----*---------------[fence + 1)--------*-----> the fence has moved: what was planned is stale
        -----*-----------------------[==========*=====> still running: held
        """
        fence = seen_fence + 1
        try:
            self._ask(
                lambda: self._client.put_item(
                    TableName=self._table,
                    Item={
                        "pk": {"S": _pk(cluster)},
                        "sk": {"S": "LEASE"},
                        "owner": {"S": owner},
                        "fence": {"N": str(fence)},
                        "ends": {"N": repr(expires.timestamp())},
                    },
                    ConditionExpression="attribute_not_exists(pk) OR (fence = :seen AND ends <= :now)",
                    ExpressionAttributeValues={
                        ":seen": {"N": str(seen_fence)},
                        ":now": {"N": repr(now.timestamp())},
                    },
                )
            )
        except StateConflictError:
            key = {"pk": {"S": _pk(cluster)}, "sk": {"S": "LEASE"}}
            answer = self._ask(lambda: self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True))
            if float(answer.get("Item", {}).get("ends", {"N": "0"})["N"]) > now.timestamp():
                raise LeaseHeldError(f"cluster {cluster!r} is being written by another run") from None
            raise
        return Lease(owner=owner, fence=fence, expires=expires)

    def give_back_lease(self, cluster: str, lease: Lease, now: datetime) -> None:
        """End it now, if it is still ours. The item stays, so that fences only ever rise."""
        try:
            self._ask(
                lambda: self._client.update_item(
                    TableName=self._table,
                    Key={"pk": {"S": _pk(cluster)}, "sk": {"S": "LEASE"}},
                    UpdateExpression="SET ends = :now",
                    ConditionExpression="#owner = :owner AND fence = :fence",
                    ExpressionAttributeNames={"#owner": "owner"},
                    ExpressionAttributeValues={
                        ":now": {"N": repr(now.timestamp())},
                        ":owner": {"S": lease.owner},
                        ":fence": {"N": str(lease.fence)},
                    },
                )
            )
        except StateConflictError:
            return

    def save_decision(self, cluster: str, ulid: str, decision: Mapping[str, Any], expires: datetime) -> None:
        """Added, never changed."""
        self._put(
            _pk(cluster),
            f"DECISION#{ulid}",
            json.dumps(decision, ensure_ascii=False),
            None,
            expires_at={"N": str(int(expires.timestamp()))},
        )

    def decisions(self, cluster: str, limit: int) -> Sequence[Mapping[str, Any]]:
        """The newest first."""
        answer = self._ask(
            lambda: self._client.query(
                TableName=self._table,
                KeyConditionExpression="pk = :pk AND begins_with(sk, :decision)",
                ExpressionAttributeValues={":pk": {"S": _pk(cluster)}, ":decision": {"S": "DECISION#"}},
                ScanIndexForward=False,
                Limit=limit,
            )
        )
        return [json.loads(_text(item)) for item in answer["Items"]]

    def decisions_after(self, cluster: str, ulid: str) -> tuple[Sequence[Mapping[str, Any]], bool]:
        """One query: DynamoDB's page is at most 1 MiB, which a Lambda function can answer with."""
        answer = self._ask(
            lambda: self._client.query(
                TableName=self._table,
                KeyConditionExpression="pk = :pk AND sk BETWEEN :after AND :last",
                ExpressionAttributeValues={
                    ":pk": {"S": _pk(cluster)},
                    ":after": {"S": f"DECISION#{ulid} "},  # a blank comes before every other character
                    ":last": {"S": "DECISION#~"},
                },
            )
        )
        return [json.loads(_text(item)) for item in answer["Items"]], "LastEvaluatedKey" in answer

    def _put(self, pk: str, sk: str, record: str, version: int | None, **extra: Any) -> None:
        item = {"pk": {"S": pk}, "sk": {"S": sk}, "record": {"S": record}, "version": {"N": str((version or 0) + 1)}}
        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(pk)"}
        if version is not None:
            condition = {
                "ConditionExpression": "version = :version",
                "ExpressionAttributeValues": {":version": {"N": str(version)}},
            }
        self._ask(lambda: self._client.put_item(TableName=self._table, Item={**item, **extra}, **condition))

    def _query(self, **query: Any) -> list[Item]:
        items: list[Item] = []
        start: dict[str, Any] = {}
        while True:
            request = {"TableName": self._table, **query, **start}
            answer = self._ask(lambda request=request: self._client.query(**request))  # type: ignore[misc]
            items += answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return items
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def _ask(self, call: Callable[[], _Answer]) -> _Answer:
        try:
            return call()
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "ConditionalCheckFailedException":
                raise StateConflictError("the record has been written since it was read") from None
            raise StateUnavailableError(f"table {self._table}: {error}") from None
        except BotoCoreError as error:
            raise StateUnavailableError(f"table {self._table}: {error}") from None


def _group_key(sort_key: str, where: str) -> GroupKey:
    try:
        return GroupKey.read(sort_key.removeprefix("GROUP#"))
    except BadValueError as error:
        raise ConfigError([f"{where}: {error}"]) from None


def _text(item: Item) -> str:
    return str(item.get("record", {}).get("S", ""))
