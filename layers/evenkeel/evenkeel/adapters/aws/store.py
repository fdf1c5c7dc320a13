"""The one table. Every write is conditional on the version that was read; nothing ever scans.

    pk                 sk                              record
    CLUSTER#<id>       DECISION#<ulid>                 what was decided, and what came of it (30 days)
                       GROUP#<flavour>/<ns>/<name>     backoff of a node group
                       GROWTH#<id>                     nodes asked for on request
                       HEARD                           the last look that an event has asked for
                       LEASE                           owner, fencing token, expiry; never deleted
                       LOOK                            when the cluster is looked at besides its scans
                       META                            what a person registered; the sparse index `due` is on this
                       META#CONTROL                    what is paused, what is being restored, fixes to be written
                       POOL#<flavour>/<ns>/<name>      adopted bounds, digest of the last news
                       SILENCE                         since when it does not answer, and when it is asked next
                       HEALTH                         what trouble there is, and what was told of it
                       ZONE#<region>/<zone>            impaired until, by source
    DUE#<shard>        CLUSTER#<id>                    the same record once more, for `scan`
    NAME#<name>        CLUSTER#<id>                    clusters whose record lists, or listed, this name
    LOOKED             <digest of a chunk>             when these clusters were last looked at
    ROLLOUT            ROLLOUT                         clusters that go live in waves: the last such rollout
    OFFERING           <provider>/<region>/<zone>/...  what clusters say of what they buy, where that is trouble
    VERDICTS           CLUSTER#<id>                    the verdict once more, for who asks for all of them

Which shard a cluster is in follows from its id. The sparse index `due` has all records as well.

One query with ``sk >= "G"`` reads everything but the decisions.

What events lead to (GROUP#, GROWTH#, HEARD, ZONE#) stands in the attributes ``state`` and ``revision``, all else in
``record`` and ``version``: a policy can so keep the function that hears events from writing a cluster's record. Beside
a cluster's record stands ``settled``, what was seen when nothing was to be done; a record is always written without it.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any

from botocore.exceptions import ClientError

from evenkeel.adapters.aws.items import moment, seconds, text, whole
from evenkeel.adapters.aws.records import (
    CONTROL,
    HEALTH,
    LOOKED_AT,
    META,
    OFFERING,
    ROLLOUT,
    Entry,
    Records,
    Stored,
)
from evenkeel.adapters.aws_faults import AWS_ERRORS, part_of, text_of
from evenkeel.application.errors import LeaseHeldError, StateConflictError, StateUnavailableError
from evenkeel.application.fleet.ports import DuePage
from evenkeel.application.ports import Lease, Offerings, Registered, SharedOffering, StoredCluster, Versions
from evenkeel.application.rebalancing.decisions import fit
from evenkeel.application.rebalancing.ports import SteadyCluster
from evenkeel.domain.fleet.check_times import SteadyState, Timer, Unreachable
from evenkeel.domain.incidents.health import unreadable
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.incidents import ClusterHealth
from evenkeel.domain.model.offerings import Offering, OfferingState
from evenkeel.domain.model.states import GroupState, PoolState
from evenkeel.domain.model.values import BadValueError
from evenkeel.domain.rollout.waves import Rollout
from evenkeel.record import ClusterRecord, ControlRecord, Registration
from evenkeel.state_records import EventCheckRecord, ScaleRequestRecord, ZoneRecord
from evenkeel.validation import ConfigError

_log = logging.getLogger("evenkeel.store")
_DUE = "DUE"
_DECISION = "DECISION#"
_VERDICTS = "VERDICTS"
SHARDS = tuple("0123456789abcdef")
# Of one page, so that the answer to a tick with all shards at once, and what becomes of it, stays small.
_DUE_PAGE = 1000
# What BatchGetItem takes.
_KEYS_AT_ONCE = 100
# DynamoDB takes keys of 2,048 bytes. No tag and no cluster is called by so long a name.
_LONGEST_NAME = 1024
# Of 1 MiB each, some thousand offerings: more than there are zones and machine types in trouble at one time.
_OFFERING_PAGES = 8
_OF_EVENTS = ("GROUP", "GROWTH", "HEARD", "ZONE")
# An item without both is none: whoever hears events could make such.
_NO_LEASE = "attribute_not_exists(fence) AND attribute_not_exists(ends)"
_LEASE_IS_FREE = f"({_NO_LEASE}) OR (fence = :seen AND ends <= :now)"
Item = dict[str, Any]


def _now() -> datetime:
    return datetime.now(UTC)


def _pk(cluster: str) -> str:
    return f"CLUSTER#{cluster}"


def _due_pk(cluster: str) -> str:
    digest = hashlib.sha256(cluster.encode()).hexdigest()
    return f"DUE#{SHARDS[int(digest, 16) % len(SHARDS)]}"


class DynamoStore:
    """``Store`` on DynamoDB.

    Args:
        client: A boto3 DynamoDB client.
        table: The table's name.
        now: The time, for what has expired and is not deleted yet.
    """

    shards: Sequence[str] = SHARDS

    def __init__(self, client: Any, table: str, now: Callable[[], datetime] = _now) -> None:
        self._client = client
        self._table = table
        self._now = now
        self._records = Records()

    def load(self, cluster: str, *, consistent: bool = True) -> StoredCluster:
        """One query (and one more per MiB)."""
        items = self._query(
            KeyConditionExpression="pk = :pk AND sk >= :after",
            ExpressionAttributeValues={":pk": {"S": _pk(cluster)}, ":after": {"S": "G"}},
            ConsistentRead=consistent,
        )
        return self._remembered(cluster, items)

    def load_with_decisions(self, cluster: str, ulid: str) -> tuple[StoredCluster, Sequence[Mapping[str, Any]] | None]:
        """One query where all of it fits into a page: of a thousand clusters, each is to be asked for no more."""
        answer = self._ask(
            lambda: self._client.query(
                TableName=self._table,
                KeyConditionExpression="pk = :pk AND sk >= :after",
                ExpressionAttributeValues={":pk": {"S": _pk(cluster)}, ":after": {"S": f"{_DECISION}{ulid} "}},
                ConsistentRead=True,
            ),
            "Items",
        )
        if "LastEvaluatedKey" in answer:
            return self.load(cluster), None
        items = answer["Items"]
        decisions = self._decisions(cluster, (item for item in items if item["sk"]["S"].startswith(_DECISION)))
        return self._remembered(cluster, [item for item in items if item["sk"]["S"] >= "G"]), decisions

    def _remembered(self, cluster: str, items: Sequence[Item]) -> StoredCluster:
        # An item without both is none: whoever hears events could make such.
        lease = next((item for item in items if item["sk"]["S"] == "LEASE" and {"fence", "ends"} & item.keys()), None)
        fencing_token = whole(lease, "fence") if lease and seconds(lease, "ends") else 0
        return self._records.remembered(cluster, _by_key(items), fencing_token, self._now())

    def steady_clusters(self, clusters: Sequence[str]) -> dict[str, SteadyCluster]:
        """One request for a hundred. What DynamoDB leaves out of an answer counts as not known."""
        found: dict[str, SteadyCluster] = {}
        for start in range(0, len(clusters), _KEYS_AT_ONCE):
            some = dict.fromkeys(clusters[start : start + _KEYS_AT_ONCE])
            keys = [{"pk": {"S": _pk(cluster)}, "sk": {"S": META}} for cluster in some]
            request = {"RequestItems": {self._table: {"Keys": keys}}}
            ask = partial(self._client.batch_get_item, **request)
            answer = self._ask(ask, "Responses")
            for item in answer["Responses"].get(self._table, []):
                cluster = _cluster_of(item["pk"])
                if (rest := self._records.steady_clusters(cluster, _stored(META, item))) is not None:
                    found[cluster] = rest
        return found

    def save_settled(self, cluster: str, settled: SteadyState, versions: Versions) -> None:
        """An attribute of its own, on the record as it was read. The record's version stays."""
        self._ask(
            lambda: self._client.update_item(
                TableName=self._table,
                Key={"pk": {"S": _pk(cluster)}, "sk": {"S": META}},
                UpdateExpression="SET settled = :settled",
                ConditionExpression="version = :version",
                ExpressionAttributeValues={
                    ":settled": {"S": self._records.settled(settled)},
                    ":version": {"N": str(versions.get(META, 0))},
                },
            )
        )

    def due(self, shard: str, after: str | None = None) -> DuePage:
        """One query. A bad record is told, not raised: the other clusters go on."""
        pk = f"DUE#{shard}"
        start = {} if after is None else {"ExclusiveStartKey": {"pk": {"S": pk}, "sk": {"S": _pk(after)}}}
        answer = self._ask(
            lambda: self._client.query(
                TableName=self._table,
                KeyConditionExpression="pk = :pk",
                ExpressionAttributeValues={":pk": {"S": pk}},
                Limit=_DUE_PAGE,
                **start,
            ),
            "Items",
        )
        registrations = [
            (cluster := _cluster_of(item["sk"]), self._registration(cluster, item))
            for item in answer["Items"]
            if "record" in item
        ]
        last = answer.get("LastEvaluatedKey")
        return DuePage(registrations=registrations, after=_cluster_of(last["sk"]) if last else None)

    def called(self, name: str) -> Sequence[str]:
        """One query, of a partition of the name's own."""
        if not name or len(name.encode()) > _LONGEST_NAME:
            return []
        items = self._query(KeyConditionExpression="pk = :pk", ExpressionAttributeValues={":pk": {"S": f"NAME#{name}"}})
        return [_cluster_of(item["sk"]) for item in items]

    def registrations(self) -> Sequence[tuple[str, Registration | str]]:
        """Every cluster in the sparse index. A bad record is told, not raised: the other clusters go on."""
        registrations: list[tuple[str, Registration | str]] = []
        for item in self._query(
            IndexName="due",
            KeyConditionExpression="due = :due",
            ExpressionAttributeValues={":due": {"S": _DUE}},
        ):
            cluster = _cluster_of(item["pk"])
            registrations.append((cluster, self._registration(cluster, item)))
        return registrations

    def _registration(self, cluster: str, item: Item) -> Registration | str:
        stored = _stored(META, item)
        return stored.fault or self._records.registration(cluster, stored.text)

    def registered(self, cluster: str) -> Registered | None:
        """One consistent query of the cluster's own items."""
        items = self._query(
            KeyConditionExpression="pk = :pk AND begins_with(sk, :meta)",
            ExpressionAttributeValues={":pk": {"S": _pk(cluster)}, ":meta": {"S": META}},
            ConsistentRead=True,
        )
        return self._records.registered(cluster, _by_key(items))

    def save_record(self, record: ClusterRecord, control: ControlRecord, versions: Versions | None) -> None:
        """One transaction, which also puts the cluster into the index that ``scan`` reads.

        Its names are listed before: a name that leads to a cluster without it does no harm.
        """
        self._list_names(record)
        meta, controls = self._records.record(record, control, versions)
        puts = [
            {**self._put_of(record.id, meta, due={"S": _DUE}), **_condition("version", meta)},
            # The first one's condition stands for all.
            self._put_of(record.id, controls),
            self._due_put(record.id, meta.text),
        ]
        self._ask(lambda: self._client.transact_write_items(TransactItems=[{"Put": put} for put in puts]))
        meta.note(versions)

    def save_control(self, cluster: str, control: ControlRecord, versions: Versions) -> None:
        """One transaction, since the version of both says that they belong together."""
        controls = self._records.control(cluster, control, versions)
        update = {
            "TableName": self._table,
            "Key": {"pk": {"S": _pk(cluster)}, "sk": {"S": META}},
            "UpdateExpression": "SET version = :next REMOVE settled",
            "ConditionExpression": "version = :version",
            "ExpressionAttributeValues": {
                ":next": {"N": str(controls.next_version)},
                ":version": {"N": str(versions.get(META, 0))},
            },
        }
        # The first one's condition stands for both.
        items = [{"Update": update}, {"Put": self._put_of(cluster, controls)}]
        self._ask(lambda: self._client.transact_write_items(TransactItems=items))

    def remove_record(self, cluster: str, versions: Versions) -> None:
        """One transaction. Its names stay listed: that does no harm."""
        condition = {
            "ConditionExpression": "version = :version",
            "ExpressionAttributeValues": {":version": {"N": str(versions.get(META, 0))}},
        }
        keys = [(_pk(cluster), META), (_pk(cluster), CONTROL), (_due_pk(cluster), _pk(cluster))]
        deletes = [{"TableName": self._table, "Key": {"pk": {"S": pk}, "sk": {"S": sk}}} for pk, sk in keys]
        items = [{"Delete": {**deletes[0], **condition}}, *({"Delete": delete} for delete in deletes[1:])]
        self._ask(lambda: self._client.transact_write_items(TransactItems=items))

    def _list_names(self, record: ClusterRecord) -> None:
        for name in record.names:
            if name and len(name.encode()) <= _LONGEST_NAME:
                item = {"pk": {"S": f"NAME#{name}"}, "sk": {"S": _pk(record.id)}}
                self._ask(lambda item=item: self._client.put_item(TableName=self._table, Item=item))  # type: ignore[misc]

    def _due_put(self, cluster: str, text: str) -> dict[str, Any]:
        item = {"pk": {"S": _due_pk(cluster)}, "sk": {"S": _pk(cluster)}, "record": {"S": text}}
        return {"TableName": self._table, "Item": item}

    def save_pool(self, cluster: str, pool: PoolId, state: PoolState, versions: Versions | None) -> None:
        self._put(cluster, self._records.pool(cluster, pool, state, versions), versions)

    def save_group(self, cluster: str, key: GroupKey, state: GroupState, versions: Versions | None) -> None:
        """Of the item, only what events lead to."""
        self._update(cluster, self._records.group(cluster, key, state, versions, self._now()), versions)

    def save_zone(self, cluster: str, region: str, zone: str, record: ZoneRecord, versions: Versions | None) -> None:
        self._update(cluster, self._records.zone(cluster, region, zone, record, versions, self._now()), versions)

    def save_scale_request(self, cluster: str, record: ScaleRequestRecord, versions: Versions | None) -> None:
        self._update(cluster, self._records.scale_request(cluster, record, versions, self._now()), versions)

    def save_event_check(self, cluster: str, record: EventCheckRecord, versions: Versions | None) -> None:
        self._update(cluster, self._records.event_check(cluster, record, versions, self._now()), versions)

    def save_timer(self, cluster: str, timer: Timer, versions: Versions | None) -> None:
        self._put(cluster, self._records.timer(cluster, timer, versions, self._now()), versions)

    def save_silence(self, cluster: str, silence: Unreachable, versions: Versions | None) -> None:
        self._put(cluster, self._records.silence(cluster, silence, versions, self._now()), versions)

    def save_cluster_health(self, cluster: str, cluster_health: ClusterHealth, versions: Versions | None) -> None:
        """One transaction: whoever reads all verdicts reads what the cluster's own items say."""
        entry = self._records.cluster_health(cluster, cluster_health, versions, self._now())
        again = self._item_of(_VERDICTS, replace(entry, sort_key=_pk(cluster)))
        puts = [{**self._put_of(cluster, entry), **_condition("version", entry)}, again]
        self._ask(lambda: self._client.transact_write_items(TransactItems=[{"Put": put} for put in puts]))
        entry.note(versions)

    def cluster_health(self, cluster: str) -> tuple[ClusterHealth, Versions]:
        """One consistent read."""
        key = {"pk": {"S": _pk(cluster)}, "sk": {"S": HEALTH}}
        answer = self._ask(lambda: self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True))
        item = _by_key([answer["Item"]] if "Item" in answer else []).get(HEALTH)
        version = None if item is None else item.version
        return self._records.cluster_health_of(cluster, None if item is None else item.text), Versions(
            {} if version is None else {HEALTH: version}
        )

    def cluster_healths(self) -> Mapping[str, ClusterHealth]:
        """One eventually consistent query."""
        items = self._query(KeyConditionExpression="pk = :pk", ExpressionAttributeValues={":pk": {"S": _VERDICTS}})
        found = {}
        for key, stored in _by_key(items).items():
            cluster = key.removeprefix("CLUSTER#")
            cluster_health = self._records.cluster_health_of(cluster, stored.text)
            found[cluster] = unreadable(cluster_health, stored.fault, self._now()) if stored.fault else cluster_health
        return found

    def save_looked_at(self, clusters: Sequence[str], at: datetime) -> None:
        """In the place of what is there: the latest look counts, and a moment more or less does not."""
        request = self._item_of(LOOKED_AT, self._records.looked_at(clusters, at))
        self._ask(lambda: self._client.put_item(**request))

    def looked_at(self) -> Mapping[str, datetime]:
        """One eventually consistent query."""
        items = self._query(KeyConditionExpression="pk = :pk", ExpressionAttributeValues={":pk": {"S": LOOKED_AT}})
        return self._records.when_looked_at(_by_key(items), self._now())

    def offerings(self) -> Offerings:
        """One eventually consistent query: half a read unit where there is no trouble anywhere."""
        items = self._query(
            pages=_OFFERING_PAGES,
            KeyConditionExpression="pk = :pk",
            ExpressionAttributeValues={":pk": {"S": OFFERING}},
        )
        found: dict[Offering, SharedOffering] = {}
        for sort_key, item in _by_key(items).items():
            shared = self._records.shared(sort_key, item, self._now())
            if shared.state != OfferingState():
                with suppress(BadValueError):  # a newer release's kind of offering
                    found[Offering.read(sort_key)] = shared
        return found

    def offering(self, offering: Offering) -> SharedOffering:
        """One consistent read."""
        key = {"pk": {"S": OFFERING}, "sk": {"S": str(offering)}}
        answer = self._ask(lambda: self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True))
        items = _by_key([answer["Item"]] if "Item" in answer else [])
        if str(offering) not in items:
            return SharedOffering(state=OfferingState(), version=None)
        return self._records.shared(str(offering), items[str(offering)], self._now())

    def save_offering(self, offering: Offering, state: OfferingState, version: int | None) -> None:
        entry = self._records.offering(offering, state, version, self._now())
        request = {**self._item_of(OFFERING, entry), **_condition("version", entry)}
        self._ask(lambda: self._client.put_item(**request))

    def rollout(self) -> tuple[Rollout | None, int | None]:
        """One consistent query, which is all that `scan` may ask."""
        items = self._query(
            KeyConditionExpression="pk = :pk", ExpressionAttributeValues={":pk": {"S": ROLLOUT}}, ConsistentRead=True
        )
        item = _by_key(items).get(ROLLOUT)
        return (None, None) if item is None else (self._records.rollout_of(item), item.version)

    def save_rollout(self, rollout: Rollout, version: int | None) -> int:
        entry = self._records.rollout(rollout, version)
        request = {**self._item_of(ROLLOUT, entry), **_condition("version", entry)}
        self._ask(lambda: self._client.put_item(**request))
        return entry.next_version

    def forget(self, cluster: str, expired: str, versions: Versions) -> None:
        """What has been written since stays."""
        self._ask(
            lambda: self._client.delete_item(
                TableName=self._table,
                Key={"pk": {"S": _pk(cluster)}, "sk": {"S": expired}},
                ConditionExpression="revision = :version",
                ExpressionAttributeValues={":version": {"N": str(versions[expired])}},
            )
        )

    def take_lease(self, cluster: str, owner: str, seen_token: int, now: datetime, expires: datetime) -> Lease:
        """Take the lease if it is over and nobody has had it since ``seen_token``.

            seen          another run         now
        -----*---------------[token + 1)--------*-----> the token has moved: what was planned is stale
        -----*-----------------------[==========*=====> still running: held
        """
        fencing_token = seen_token + 1
        try:
            self._ask(
                lambda: self._client.put_item(
                    TableName=self._table,
                    Item={
                        "pk": {"S": _pk(cluster)},
                        "sk": {"S": "LEASE"},
                        "owner": {"S": owner},
                        "fence": {"N": str(fencing_token)},
                        "ends": {"N": repr(expires.timestamp())},
                    },
                    ConditionExpression=_LEASE_IS_FREE,
                    ExpressionAttributeValues={
                        ":seen": {"N": str(seen_token)},
                        ":now": {"N": repr(now.timestamp())},
                    },
                )
            )
        except StateConflictError:
            key = {"pk": {"S": _pk(cluster)}, "sk": {"S": "LEASE"}}
            answer = self._ask(lambda: self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True))
            if "ends" in (item := answer.get("Item", {})) and seconds(item, "ends") > now.timestamp():
                raise LeaseHeldError(f"cluster {cluster!r} is being written by another run") from None
            raise
        return Lease(owner=owner, fencing_token=fencing_token, expires=expires)

    def give_back_lease(self, cluster: str, lease: Lease, now: datetime) -> None:
        """End it now, if it is still ours. The item stays, so that fencing tokens only ever rise."""
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
                        ":fence": {"N": str(lease.fencing_token)},
                    },
                )
            )
        except StateConflictError:
            return

    def save_decision(self, cluster: str, ulid: str, decision: Mapping[str, Any], expires: datetime) -> None:
        text = json.dumps(fit(decision), ensure_ascii=False)
        self._put(cluster, Entry(sort_key=f"{_DECISION}{ulid}", text=text, expires=expires), None)

    def decisions(self, cluster: str, limit: int) -> Sequence[Mapping[str, Any]]:
        answer = self._ask(
            lambda: self._client.query(
                TableName=self._table,
                KeyConditionExpression="pk = :pk AND begins_with(sk, :decision)",
                ExpressionAttributeValues={":pk": {"S": _pk(cluster)}, ":decision": {"S": _DECISION}},
                ScanIndexForward=False,
                Limit=limit,
            ),
            "Items",
        )
        return self._decisions(cluster, answer["Items"])

    def decisions_after(self, cluster: str, ulid: str) -> tuple[Sequence[Mapping[str, Any]], bool]:
        """One query: DynamoDB's page is at most 1 MiB, which a Lambda function can answer with."""
        answer = self._ask(
            lambda: self._client.query(
                TableName=self._table,
                KeyConditionExpression="pk = :pk AND sk BETWEEN :after AND :last",
                ExpressionAttributeValues={
                    ":pk": {"S": _pk(cluster)},
                    ":after": {"S": f"{_DECISION}{ulid} "},  # a blank comes before every other character
                    ":last": {"S": f"{_DECISION}~"},
                },
            ),
            "Items",
        )
        return self._decisions(cluster, answer["Items"]), "LastEvaluatedKey" in answer

    def _decisions(self, cluster: str, items: Iterable[Item]) -> list[Mapping[str, Any]]:
        """Those that have not expired: DynamoDB deletes late, within days."""
        found = ((item["sk"]["S"].removeprefix(_DECISION), _stored(_DECISION, item)) for item in items)
        live = ((id, stored) for id, stored in found if stored.expires is None or stored.expires > self._now())
        return [self._records.decision(cluster, id, stored) for id, stored in live]

    def _put(self, cluster: str, entry: Entry, versions: Versions | None) -> None:
        request = {**self._put_of(cluster, entry), **_condition("version", entry)}
        self._ask(lambda: self._client.put_item(**request))
        entry.note(versions)

    def _put_of(self, cluster: str, entry: Entry, **extra: Any) -> dict[str, Any]:
        return self._item_of(_pk(cluster), entry, **extra)

    def _item_of(self, pk: str, entry: Entry, **extra: Any) -> dict[str, Any]:
        item = {
            "pk": {"S": pk},
            "sk": {"S": entry.sort_key},
            "record": {"S": entry.text},
            "version": {"N": str(entry.next_version)},
            **({} if entry.expires is None else {"expires_at": _seconds(entry.expires)}),
            **extra,
        }
        return {"TableName": self._table, "Item": item}

    def _update(self, cluster: str, entry: Entry, versions: Versions | None) -> None:
        """Names no attribute but these: whoever may write only them can write every item that events lead to.

        Not ``expires_at`` either, by which DynamoDB would delete whatever it is put on: the worker deletes what is
        over (``forget``). An item of a release before this one has a ``record`` and no ``revision``: it is written
        like a new one, and what stands in ``record`` counts no more.
        """
        values = {":state": {"S": entry.text}, ":revision": {"N": str(entry.next_version)}}
        update, condition = "SET #state = :state, revision = :revision", _condition("revision", entry)
        if entry.expires is None:
            update += " REMOVE kept_until"
        else:
            update += ", kept_until = :until"
            values[":until"] = _seconds(entry.expires)
        self._ask(
            lambda: self._client.update_item(
                TableName=self._table,
                Key={"pk": {"S": _pk(cluster)}, "sk": {"S": entry.sort_key}},
                UpdateExpression=update,
                ConditionExpression=condition["ConditionExpression"],
                ExpressionAttributeNames={"#state": "state"},  # a reserved word
                ExpressionAttributeValues={**values, **condition.get("ExpressionAttributeValues", {})},
            )
        )
        entry.note(versions)

    def _query(self, pages: int | None = None, **query: Any) -> list[Item]:
        """All pages, or so many of them."""
        items: list[Item] = []
        start: dict[str, Any] = {}
        for page in count(1):
            request = {"TableName": self._table, **query, **start}
            answer = self._ask(partial(self._client.query, **request), "Items")
            items += answer["Items"]
            if "LastEvaluatedKey" not in answer or page == pages:
                break
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
        return items

    def _ask(self, call: Callable[[], Any], *parts: str) -> Any:
        """The answer, which has these parts."""
        try:
            answer = call()
            for part in parts:
                part_of(answer, part)
        except AWS_ERRORS as error:
            if isinstance(error, ClientError) and _is_conflict(error):
                raise StateConflictError("the record has been written since it was read") from None
            raise StateUnavailableError(f"table {self._table}: {text_of(error)}") from None
        return answer


def _is_conflict(error: ClientError) -> bool:
    """Whether a condition of a write, or of one of a transaction's, does not hold; or somebody writes just now."""
    reasons: list[dict[str, Any]] = [*error.response.get("CancellationReasons", []), error.response.get("Error", {})]
    conflicts = ("ConditionalCheckFailed", "ConditionalCheckFailedException", "TransactionConflict")
    return any(reason.get("Code") in conflicts for reason in reasons)


def _condition(attribute: str, entry: Entry) -> dict[str, Any]:
    """That an item is as it was read. One without a version is none: whoever hears events could make such."""
    if entry.version is None:
        return {"ConditionExpression": f"attribute_not_exists({attribute})"}
    return {
        "ConditionExpression": f"{attribute} = :version",
        "ExpressionAttributeValues": {":version": {"N": str(entry.version)}},
    }


def _by_key(items: Sequence[Item]) -> dict[str, Stored]:
    """A cluster's items by sort key, but its lease; those that nothing of ours is in do not count."""
    by_key = {item["sk"]["S"]: item for item in items}
    return {
        key: _stored(key, item)
        for key, item in by_key.items()
        if item.keys() & ({"record", "state", "revision"} if _is_of_events(key) else {"record", "version"})
    }


def _is_of_events(sort_key: str) -> bool:
    return sort_key.partition("#")[0] in _OF_EVENTS


def _stored(sort_key: str, item: Item) -> Stored:
    """An item's text, preferably of its newer form, and the version that its next write is conditional on.

    What cannot be read of it is its fault, and logged: a version that can be read stays, so that it can be written.
    """
    # Whoever hears events could add their attributes to any item: they count for nothing elsewhere.
    is_new = _is_of_events(sort_key) and ("state" in item or "record" not in item)
    name, until = ("state", "kept_until") if is_new else ("record", "expires_at")
    version, expires, faults = None, None, []
    content = ""
    try:
        version = _version(item, "revision" if _is_of_events(sort_key) else "version")
        expires = moment(item, until) if until in item else None
        content = text(item, name)
    except ConfigError as error:
        _log.error("not read: %s", error)
        faults = error.faults
    settled = item.get("settled", {}).get("S", "") if sort_key == META else ""
    return Stored(text=content, version=version, expires=expires, settled=settled, fault="; ".join(faults))


def _version(item: Item, name: str) -> int | None:
    return whole(item, name) if name in item else None


def _seconds(at: datetime) -> dict[str, str]:
    return {"N": str(int(at.timestamp()))}


def _cluster_of(key: Mapping[str, str]) -> str:
    return key["S"].removeprefix("CLUSTER#")
