"""The DynamoDB table. Writes are conditional on the version that was read, and no code scans the table.

    pk                 sk                              content
    CLUSTER#<id>       AUTO_SCALING#<name>             the last decision about a group (``group_decisions``)
                       CACHE#NODE_GROUPS               EKS's descriptions of node groups (``node_group_store``)
                       DECISION#<ulid>                 a decision and its outcome (30 days)
                       EVENT_CHECK                     the last check that an event has requested; proof of events
                       GROUP#<flavour>/<ns>/<name>     backoff of a node group
                       HEALTH                          incidents, and the notifications about them
                       LEASE                           owner, fencing token, expiry, groups being written; never deleted
                       META                            the cluster's record; in the sparse index `due`
                       META#CONTROL                    pauses, restores, and fixes that the next run writes
                       NEXT_CHECK                      when a check is due in addition to the scans
                       POOL#<flavour>/<ns>/<name>      adopted bounds, digest of the last change
                       SCALE_REQUEST#<id>              a request for nodes
                       UNREACHABLE                     since when the cluster is unreachable, and its next check
                       ZONE-DRILL                      the last drill, which fences its zone while it is open
                       ZONE#<region>/<zone>            until when the zone is impaired, for each source
    DUE#<shard>        CLUSTER#<id>                    a copy of META, for `scan`; until when the cluster rests
    NAME#<name>        CLUSTER#<id>                    clusters whose record lists, or listed, this name
                                                   or this place: auto-scaling/<account>/<region>
    CHECKED            <digest of a chunk>             when the clusters of this chunk were last checked
    HEALTH_BY_CLUSTER  CLUSTER#<id>                    a copy of HEALTH, for readers of all clusters

A hash of a cluster's id selects its shard. Readers of all records use the sparse index `due`.

One query with ``sk >= "E"`` reads all items of a cluster except its decisions, tokens and node groups.

The function that receives events writes the items EVENT_CHECK, GROUP#, SCALE_REQUEST# and ZONE#. These items have the
attributes ``state`` and ``revision``; all other items have ``record`` and ``version``. So an IAM policy can
deny this function the attributes of all other items.

The attribute ``steady`` of META contains the cluster's steady state. The attribute ``rests`` of META's copy contains
the end of the cluster's rest. Every write of the record or the control record removes both.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from evenkeel.adapters.aws import records
from evenkeel.adapters.aws.records import CHECK_TIMES, CONTROL, HEALTH, META, Entry, Stored, StoredPool
from evenkeel.adapters.aws.table import Item, Table, key, moment, number, seconds, text, texts, unchanged, whole
from evenkeel.adapters.codec import dump_stored
from evenkeel.application.errors import LeaseHeldError, StateConflictError
from evenkeel.application.fleet.ports import Shard
from evenkeel.application.ports import CheckTimes, Lease, Registered, StoredCluster, Versions
from evenkeel.application.rebalancing.ports import SteadyCluster
from evenkeel.domain.drill.drill import Drill
from evenkeel.domain.fleet.check_times import SteadyState, Timer, Unreachable
from evenkeel.domain.incidents.health import unreadable
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.incidents import ClusterHealth
from evenkeel.domain.model.states import GroupState, PoolState
from evenkeel.record import ClusterRecord, ControlRecord, Registration
from evenkeel.state_records import EventCheckRecord, ScaleRequestRecord, ZoneRecord
from evenkeel.validation import ConfigError

_log = logging.getLogger("evenkeel.store")
_DUE = "DUE"
_DECISION = "DECISION#"
_LEASE = "LEASE"
_HEALTH_BY_CLUSTER = "HEALTH_BY_CLUSTER"
# Each shard costs each scan a request and half a read unit. 10,000 clusters are two pages in each of four shards.
SHARDS = tuple("0123")
# The largest number of keys in a BatchGetItem.
_KEYS_AT_ONCE = 100
# The longest stored name of a cluster, in bytes. DynamoDB allows keys of 2,048 bytes. Real names, also in tags, are
# shorter.
_LONGEST_NAME = 1024
_OF_EVENTS = ("GROUP", "SCALE_REQUEST", "EVENT_CHECK", "ZONE")
# A lease has both attributes. The function that receives events may have created an item without them. Such an item
# counts as no lease.
_NO_LEASE = "attribute_not_exists(fence) AND attribute_not_exists(ends)"
_LEASE_IS_FREE = f"({_NO_LEASE}) OR (fence = :seen AND ends <= :now)"
_OF_PK = "pk = :pk"


def _now() -> datetime:
    return datetime.now(UTC)


def _pk(cluster: str) -> str:
    return f"CLUSTER#{cluster}"


def due_pk(cluster: str) -> str:
    digest = hashlib.sha256(cluster.encode()).hexdigest()
    return f"DUE#{SHARDS[int(digest, 16) % len(SHARDS)]}"


def _due_item(cluster: str, text: str) -> Item:
    return {**key(due_pk(cluster), _pk(cluster)), "record": {"S": text}}


class DynamoStore:
    """Implements all store ports of the use cases with DynamoDB. A write raises StateConflictError if its item changed.

    Items that have expired are ignored, even if DynamoDB has not deleted them yet.
    """

    shards: Sequence[str] = SHARDS

    def __init__(self, client: Any, table: str, now: Callable[[], datetime] = _now) -> None:
        self._table = Table(client, table)
        self._now = now

    # ---------------------------------------------------------------- all of one cluster

    def load(self, cluster: str, *, consistent: bool = True) -> StoredCluster:
        """Return the stored items of a cluster. Each MiB takes one query."""
        values = {":pk": _pk(cluster), ":after": "E"}
        items = self._table.query(f"{_OF_PK} AND sk >= :after", values, ConsistentRead=consistent)
        lease = next((item for item in items if item["sk"]["S"] == _LEASE and {"fence", "ends"} & item.keys()), None)
        fencing_token = whole(lease, "fence") if lease and seconds(lease, "ends") else 0
        has_ended = lease is not None and fencing_token > 0 and seconds(lease, "ends") <= self._now().timestamp()
        unfinished = texts(lease, "writes") if lease is not None and has_ended else ()
        return records.stored_cluster(cluster, _by_key(items), fencing_token, self._now(), unfinished)

    def save_pool(self, cluster: str, pool: PoolId, state: PoolState, versions: Versions | None) -> None:
        """Store the state of a pool."""
        self._save(cluster, f"POOL#{pool}", StoredPool.of(pool, state), versions)

    def save_group(self, cluster: str, key: GroupKey, state: GroupState, versions: Versions | None) -> None:
        """Store the state of a node group."""
        self._save(cluster, f"GROUP#{key}", state, versions)

    def save_zone(self, cluster: str, region: str, zone: str, record: ZoneRecord, versions: Versions | None) -> None:
        """Store the statements about a zone."""
        self._save(cluster, f"ZONE#{region}/{zone}", record, versions)

    def save_drill(self, cluster: str, drill: Drill, versions: Versions | None) -> None:
        """Store the last drill."""
        self._save(cluster, records.DRILL, drill, versions)

    def save_scale_request(self, cluster: str, record: ScaleRequestRecord, versions: Versions | None) -> None:
        """Store a request for nodes."""
        self._save(cluster, f"SCALE_REQUEST#{record.id}", record, versions)

    def save_event_check(self, cluster: str, record: EventCheckRecord, versions: Versions | None) -> None:
        """Store the last check that an event requested, and what the events of the cluster have shown."""
        self._save(cluster, records.EVENT_CHECK, record, versions)

    def save_timer(self, cluster: str, timer: Timer, versions: Versions | None) -> None:
        """Store when a check is due in addition to the scans."""
        self._save(cluster, records.TIMER, timer, versions)

    def save_unreachable(self, cluster: str, unreachable: Unreachable, versions: Versions | None) -> None:
        """Store that the cluster does not answer, or that it answers again."""
        self._save(cluster, records.UNREACHABLE, unreachable, versions)

    def forget(self, cluster: str, expired: str, versions: Versions) -> None:
        """Delete an expired item if it is unchanged since it was read."""
        condition = unchanged("revision", versions[expired])
        self._table.call("delete_item", Key=key(_pk(cluster), expired), **condition)

    # ---------------------------------------------------------------- records and their index

    def save_record(self, record: ClusterRecord, control: ControlRecord, versions: Versions | None) -> None:
        """Store the record, the copy of the record for ``scan``, and the control record in one transaction.

        The items of the cluster's names are stored first. If the transaction then fails, these items are harmless.
        """
        self._list_names(record)
        meta, controls = records.record_entries(record, control, versions, self._now())
        self._table.transact(
            # A transaction makes all of its writes or none. So the condition of the first write applies to all.
            ("Put", self._put_of(_pk(record.id), meta, due={"S": _DUE}) | unchanged("version", meta.version)),
            ("Put", self._put_of(_pk(record.id), controls)),
            ("Put", {"Item": _due_item(record.id, meta.text)}),
        )
        meta.note(versions)

    def remove_record(self, cluster: str, versions: Versions) -> None:
        """Delete the record and the control record in one transaction.

        The items of the cluster's names remain, which is harmless.
        """
        condition = unchanged("version", versions.get(META, 0))
        self._table.transact(
            ("Delete", {"Key": key(_pk(cluster), META), **condition}),
            ("Delete", {"Key": key(_pk(cluster), CONTROL)}),
            ("Delete", {"Key": key(due_pk(cluster), _pk(cluster))}),
        )

    def registered(self, cluster: str) -> Registered | None:
        """Return the registration of a cluster, from one consistent query; None: the cluster is not registered."""
        values = {":pk": _pk(cluster), ":meta": META}
        items = self._table.query(f"{_OF_PK} AND begins_with(sk, :meta)", values, ConsistentRead=True)
        return records.registered(cluster, _by_key(items))

    def registrations(self) -> Sequence[tuple[str, Registration | str]]:
        """Return the registrations in the sparse index, by cluster id. A record with a fault becomes an error text."""
        items = self._table.query("due = :due", {":due": _DUE}, IndexName="due")
        return [self._registration(_cluster_of(item["pk"]), item) for item in items]

    def due(self, shard: str) -> Shard:
        """Return a shard's registrations. A record with a fault becomes an error text."""
        listed = [item for item in self._table.query(_OF_PK, {":pk": f"DUE#{shard}"}) if "record" in item]
        return Shard(
            registrations=[self._registration(_cluster_of(item["sk"]), item) for item in listed],
            resting=_resting(listed),
        )

    def called(self, name: str) -> Sequence[str]:
        """Return the ids of the clusters that have this name, from one query of the name's partition."""
        if not _can_be_listed(name):
            return []
        return [_cluster_of(item["sk"]) for item in self._table.query(_OF_PK, {":pk": f"NAME#{name}"})]

    def _registration(self, cluster: str, item: Item) -> tuple[str, Registration | str]:
        stored = _stored(META, item)
        return cluster, stored.fault or records.registration_of(cluster, stored)

    def _list_names(self, record: ClusterRecord) -> None:
        for name in filter(_can_be_listed, record.listed_names):
            self._table.call("put_item", Item=key(f"NAME#{name}", _pk(record.id)))

    # ---------------------------------------------------------------- steady states and last checks

    def steady_clusters(self, clusters: Sequence[str]) -> dict[str, SteadyCluster]:
        """Return the steady clusters among these clusters. One request reads a hundred clusters.

        A cluster that is missing from the answer counts as not steady.
        """
        steady: dict[str, SteadyCluster] = {}
        for start in range(0, len(clusters), _KEYS_AT_ONCE):
            chunk = dict.fromkeys(clusters[start : start + _KEYS_AT_ONCE])
            keys = [key(_pk(cluster), META) for cluster in chunk]
            answer = self._table.call("batch_get_item", RequestItems={self._table.name: {"Keys": keys}})
            for item in answer["Responses"].get(self._table.name, []):
                cluster = _cluster_of(item["pk"])
                if (state := records.steady_clusters(cluster, _stored(META, item))) is not None:
                    steady[cluster] = state
        return steady

    def save_steady(self, cluster: str, steady: SteadyState, versions: Versions) -> None:
        """Store the steady state in the record's item, if the record is unchanged. The record keeps its version."""
        condition = unchanged("version", versions.get(META, 0))
        values = {**condition["ExpressionAttributeValues"], ":steady": {"S": dump_stored(steady)}}
        self._table.call(
            "update_item",
            Key=key(_pk(cluster), META),
            UpdateExpression="SET steady = :steady",
            **condition | {"ExpressionAttributeValues": values},
        )

    def save_rest(self, cluster: str, until: datetime | None, versions: Versions) -> None:
        """Store until when the cluster rests, for ``scan``, if the record is unchanged; None: it does not rest."""
        if (text := records.text_of(META, versions)) is None:
            raise StateConflictError(f"record of cluster {cluster!r} was not read")
        rests = {} if until is None else {"rests": number(until.timestamp())}
        self._table.call(
            "put_item",
            Item={**_due_item(cluster, text), **rests},
            ConditionExpression="#record = :record",
            ExpressionAttributeNames={"#record": "record"},
            ExpressionAttributeValues={":record": {"S": text}},
        )

    def save_checked_at(self, clusters: Sequence[str], at: datetime, resting: Sequence[str] = ()) -> None:
        """Store when these clusters were checked, and which clusters rested then.

        The write has no condition, because the times of parallel writes differ only by seconds.
        """
        self._table.call("put_item", **self._put_of(CHECK_TIMES, records.check_times_entry(clusters, at, resting)))

    def checked_at(self) -> CheckTimes:
        """Return when each cluster was last checked, from one eventually consistent query."""
        return records.last_check_times(_by_key(self._table.query(_OF_PK, {":pk": CHECK_TIMES})), self._now())

    # ---------------------------------------------------------------- cluster health

    def save_cluster_health(self, cluster: str, cluster_health: ClusterHealth, versions: Versions | None) -> None:
        """Store the cluster's health, and its copy for readers of all clusters. One transaction keeps both equal."""
        entry = records.entry(HEALTH, cluster_health, versions, self._now())
        self._table.transact(
            ("Put", self._put_of(_pk(cluster), entry) | unchanged("version", entry.version)),
            ("Put", self._put_of(_HEALTH_BY_CLUSTER, replace(entry, sort_key=_pk(cluster)))),
        )
        entry.note(versions)

    def cluster_health(self, cluster: str) -> tuple[ClusterHealth, Versions]:
        """Return a cluster's health, from one consistent read."""
        return records.cluster_health_of(cluster, _by_key(self._table.get(_pk(cluster), HEALTH)).get(HEALTH))

    def cluster_healths(self) -> Mapping[str, ClusterHealth]:
        """Return the health of all clusters, from one eventually consistent query."""
        healths = {}
        for sort_key, item in _by_key(self._table.query(_OF_PK, {":pk": _HEALTH_BY_CLUSTER})).items():
            cluster = sort_key.removeprefix("CLUSTER#")
            health, _ = records.cluster_health_of(cluster, item)
            healths[cluster] = unreadable(health, item.fault, self._now()) if item.fault else health
        return healths

    # ---------------------------------------------------------------- the lease

    def take_lease(
        self,
        cluster: str,
        owner: str,
        seen_token: int,
        now: datetime,
        expires: datetime,
        writes: Collection[str] = (),
    ) -> Lease:
        """Take the lease if it has ended and no other run took it after this run read ``seen_token``.

            seen          another run         now
        -----*---------------[token + 1)--------*-----> the token is higher, so the plan is stale
        -----*-----------------------[==========*=====> the other run still has the lease
        """
        fencing_token = seen_token + 1
        lease: dict[str, Any] = {
            "owner": {"S": owner},
            "fence": number(fencing_token),
            "ends": number(expires.timestamp()),
        }
        if writes:
            lease["writes"] = {"SS": [*writes]}
        try:
            self._table.call(
                "put_item",
                Item={**key(_pk(cluster), _LEASE), **lease},
                ConditionExpression=_LEASE_IS_FREE,
                ExpressionAttributeValues={":seen": number(seen_token), ":now": number(now.timestamp())},
            )
        except StateConflictError:
            for item in self._table.get(_pk(cluster), _LEASE):
                if "ends" in item and seconds(item, "ends") > now.timestamp():
                    raise LeaseHeldError(f"cluster {cluster!r} is being written by another run") from None
            raise
        return Lease(owner=owner, fencing_token=fencing_token, expires=expires)

    def give_back_lease(self, cluster: str, lease: Lease, now: datetime, unfinished: Collection[str] = ()) -> None:
        """End the lease now, if this run still has it. The item remains, so that fencing tokens only rise."""
        left = {":left": {"SS": [*unfinished]}} if unfinished else {}
        with suppress(StateConflictError):
            self._table.call(
                "update_item",
                Key=key(_pk(cluster), _LEASE),
                UpdateExpression="SET ends = :now, writes = :left" if left else "SET ends = :now REMOVE writes",
                ConditionExpression="#owner = :owner AND fence = :fence",
                ExpressionAttributeNames={"#owner": "owner"},
                ExpressionAttributeValues={
                    **left,
                    ":now": number(now.timestamp()),
                    ":owner": {"S": lease.owner},
                    ":fence": number(lease.fencing_token),
                },
            )

    def unfinished(self, cluster: str) -> Sequence[str]:
        """Return the groups whose writes have not ended, also those of a run that has the lease. Raises ConfigError."""
        return [name for item in self._table.get(_pk(cluster), _LEASE) for name in texts(item, "writes")]

    # ---------------------------------------------------------------- decisions

    def save_decision(self, cluster: str, ulid: str, decision: Mapping[str, Any], expires: datetime) -> None:
        """Add a decision, truncated to fit into an item. DynamoDB deletes the item after ``expires``."""
        from evenkeel.application.rebalancing.decisions import fit  # not every function that has a store decides

        text = json.dumps(fit(decision), ensure_ascii=False, separators=(",", ":"))  # each KiB is billed
        self._put(_pk(cluster), Entry(sort_key=f"{_DECISION}{ulid}", text=text, expires=expires))

    def decisions(self, cluster: str, limit: int) -> Sequence[Mapping[str, Any]]:
        """Return up to ``limit`` decisions that have not expired, the newest first."""
        values = {":pk": _pk(cluster), ":decision": _DECISION}
        condition = f"{_OF_PK} AND begins_with(sk, :decision)"
        return self._decisions(
            cluster, self._table.page(condition, values, ScanIndexForward=False, Limit=limit)["Items"]
        )

    def decisions_after(self, cluster: str, ulid: str) -> tuple[Sequence[Mapping[str, Any]], bool]:
        """Return a page of the decisions after ``ulid``, and True if more decisions follow.

        A page has 1 MiB at most, which fits into the answer of a Lambda function.
        """
        # With a space added, the ULID sorts after its own decision and before the next. A tilde sorts after all ULIDs.
        values = {":pk": _pk(cluster), ":after": f"{_DECISION}{ulid} ", ":last": f"{_DECISION}~"}
        answer = self._table.page(f"{_OF_PK} AND sk BETWEEN :after AND :last", values)
        return self._decisions(cluster, answer["Items"]), "LastEvaluatedKey" in answer

    def _decisions(self, cluster: str, items: Iterable[Item]) -> list[Mapping[str, Any]]:
        """Return the decisions that have not expired. DynamoDB may delete expired decisions days late."""
        decisions = ((item["sk"]["S"].removeprefix(_DECISION), _stored(_DECISION, item)) for item in items)
        return [
            records.decision_of(cluster, id, stored) for id, stored in decisions if not stored.has_expired(self._now())
        ]

    # ---------------------------------------------------------------- conditional writes

    def _save(self, cluster: str, sort_key: str, value: object, versions: Versions | None) -> None:
        """Write one of a cluster's own items, if it still has the version that was read."""
        entry = records.entry(sort_key, value, versions, self._now())
        write = self._update if _is_of_events(sort_key) else self._put
        write(_pk(cluster), entry)
        entry.note(versions)

    def _put(self, pk: str, entry: Entry) -> None:
        self._table.call("put_item", **self._put_of(pk, entry) | unchanged("version", entry.version))

    @staticmethod
    def _put_of(pk: str, entry: Entry, **attributes: Any) -> dict[str, Any]:
        item = {**key(pk, entry.sort_key), "record": {"S": entry.text}, "version": number(entry.next_version)}
        if entry.expires is not None:
            item["expires_at"] = number(int(entry.expires.timestamp()))
        return {"Item": {**item, **attributes}}

    def _update(self, pk: str, entry: Entry) -> None:
        """Write an item of events. The function that receives events may write only the attributes that are set here.

        It may not set ``expires_at``, because DynamoDB deletes an item after this time. So a run deletes expired
        items of events (``forget``).
        """
        values: Item = {":state": {"S": entry.text}, ":revision": number(entry.next_version)}
        condition = unchanged("revision", entry.version)
        if entry.expires is not None:
            values = {**values, ":until": number(int(entry.expires.timestamp()))}
        until = " REMOVE kept_until" if entry.expires is None else ", kept_until = :until"
        self._table.call(
            "update_item",
            Key=key(pk, entry.sort_key),
            UpdateExpression=f"SET #state = :state, revision = :revision{until}",
            ExpressionAttributeNames={"#state": "state"},  # "state" is a reserved word of DynamoDB
            **condition | {"ExpressionAttributeValues": {**values, **condition.get("ExpressionAttributeValues", {})}},
        )


def _by_key(items: Sequence[Item]) -> dict[str, Stored]:
    """Return the items by sort key, without the lease and without items that lack the attributes of their kind."""
    by_key = {item["sk"]["S"]: item for item in items}
    return {
        sort_key: _stored(sort_key, item)
        for sort_key, item in by_key.items()
        if item.keys() & ({"state", "revision"} if _is_of_events(sort_key) else {"record", "version"})
    }


def _is_of_events(sort_key: str) -> bool:
    return sort_key.partition("#")[0] in _OF_EVENTS


def _stored(sort_key: str, item: Item) -> Stored:
    """Return an item's text, and the version on which its next write is conditional.

    If an attribute cannot be read, the error is logged and returned as ``fault``. The version is returned if it can be
    read, so that the item can be overwritten.
    """
    # The function that receives events could add its attributes to any item. They count only in items of events.
    content, revision, until = (
        ("state", "revision", "kept_until") if _is_of_events(sort_key) else ("record", "version", "expires_at")
    )
    version = expires = None
    fault = body = ""
    try:
        version = whole(item, revision) if revision in item else None
        expires = moment(item, until) if until in item else None
        body = text(item, content)
    except ConfigError as error:
        _log.error("not read: %s", error)
        fault = str(error)
    steady = item.get("steady", {}).get("S", "") if sort_key == META else ""
    return Stored(text=body, version=version, expires=expires, steady=steady, fault=fault)


def _resting(items: Sequence[Item]) -> dict[str, datetime]:
    resting = {}
    for item in items:
        with suppress(ConfigError):  # a cluster whose rest cannot be read does not rest
            resting[_cluster_of(item["sk"])] = moment(item, "rests")
    return resting


def _can_be_listed(name: str) -> bool:
    return bool(name) and len(name.encode()) <= _LONGEST_NAME


def _cluster_of(attribute: Mapping[str, str]) -> str:
    return attribute["S"].removeprefix("CLUSTER#")
