"""Converts stored items to values, and values to stored items. Defines the items' keys and lifetimes.

A newer release may have stored fields that this release does not know. A reader keeps the texts of the items that it
has read. When it writes an item, it adds these fields again. So a rollback to this release loses no field.
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar

from evenkeel.adapters.codec import StoredPoolState, dump_stored, keep_unknown, read_stored
from evenkeel.application.errors import UNREADABLE, UnknownClusterError
from evenkeel.application.ports import CheckTimes, Registered, StoredCluster, Versions
from evenkeel.application.rebalancing.ports import SteadyCluster
from evenkeel.domain.drill.drill import Drill
from evenkeel.domain.fleet.check_times import SteadyState, Timer, Unreachable
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.incidents import ClusterHealth
from evenkeel.domain.model.states import ClusterState, GroupState, PoolState
from evenkeel.domain.model.ulids import time_of
from evenkeel.domain.model.values import BadValueError
from evenkeel.record import ClusterRecord, ControlRecord, Registration
from evenkeel.state_records import EventCheckRecord, ScaleRequestRecord, ZoneRecord, zones_with_drill
from evenkeel.texts.english import rfc3339
from evenkeel.validation import ConfigError, parse_json

# Partition keys of items that clusters share. The partition key of a cluster's own items contains a number sign.
CHECK_TIMES = "CHECKED"
# The form of a cluster's items. A change that another release cannot read or write raises it. Release 0.1.0 has none.
FORM = 1
# Sort keys of items that a cluster has at most once. All sort after "E", so that one query reads them with the other
# items of the cluster.
META, CONTROL, EVENT_CHECK, TIMER, UNREACHABLE = "META", "META#CONTROL", "EVENT_CHECK", "NEXT_CHECK", "UNREACHABLE"
HEALTH, DRILL = "HEALTH", "ZONE-DRILL"
_DELETED_BY_TTL = (TIMER, UNREACHABLE, HEALTH, DRILL)
# How long an item is kept after its effect has ended. During this time, people can read the item, and a report that
# arrives late is recognized as late. The day never starts in the past, because DynamoDB does not delete items that
# expired more than five years ago.
_DAY = timedelta(days=1)
# Together with _DAY, this keeps a request for nodes for longer than the day in which EventBridge may repeat its event.
_REPEATS = timedelta(hours=1)
# A contested write is reported for a year at most.
_CONTESTED_KEPT = timedelta(days=365)
# How long a drill is kept after its end, with its report. It is as long as for decisions.
_DRILL_KEPT = timedelta(days=30)
# How long the time of a check is kept. Every cluster is checked at least once an hour.
_CHECK_TIMES_KEPT = timedelta(hours=2)
_log = logging.getLogger("evenkeel.store")
_Kind = TypeVar("_Kind")


class StoredRegistration(Registration):
    """A registration, as META contains it."""

    form: int = FORM


@dataclass(frozen=True, kw_only=True)
class _Form:
    """The form of a cluster's items, from the registration's text."""

    form: int = 0


class _OtherFormError(ConfigError):
    """The items of a cluster have the form of another release."""

    def __init__(self, cluster: str, form: int) -> None:
        problem = (
            f"its items have form {form}, and this release reads form {FORM}: deploy the release that wrote them"
            if form
            else "its items are of release 0.1.0, which this release cannot read: run restore with release 0.1.0, then "
            "register the cluster in a new stack (docs/operate/upgrade.md)"
        )
        super().__init__([f"cluster {cluster}: {problem}"])


@dataclass(frozen=True, kw_only=True)
class StoredPoolId:
    """The id of a pool, as its item contains it."""

    flavour: str
    namespace: str
    cluster: str
    name: str


@dataclass(frozen=True, kw_only=True)
class StoredPool:
    """A pool's item. It contains the id, because names may contain slashes, so the sort key cannot be parsed."""

    id: StoredPoolId
    state: StoredPoolState

    @classmethod
    def of(cls, id: PoolId, state: PoolState) -> Self:
        """Return the item of a pool."""
        return cls(id=StoredPoolId(**id._asdict()), state=state)

    @property
    def pool(self) -> PoolId:
        """Return the id of the pool."""
        return PoolId(**vars(self.id))


@dataclass(frozen=True, kw_only=True)
class CheckedAt:
    """The clusters that one call of ``check`` has read, and the time."""

    at: datetime
    clusters: tuple[str, ...]
    resting: tuple[str, ...] = ()  # further clusters, which are checked every five minutes


@dataclass(frozen=True, kw_only=True)
class Stored:
    """An item as it was read. If ``version`` is None, the next write succeeds only if the item still has no version."""

    text: str
    version: int | None
    expires: datetime | None = None
    steady: str = ""  # the cluster's steady state; only the record's item has this attribute
    fault: str = ""  # why the item cannot be read, with an empty ``text``; empty: the item was read

    def has_expired(self, now: datetime) -> bool:
        """Return True if the item has no effect any more. DynamoDB may delete such an item days later."""
        return self.expires is not None and self.expires <= now


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An item to write. If the stored item no longer has ``version``, the write fails. None: no item may exist."""

    sort_key: str
    text: str
    version: int | None = None
    expires: datetime | None = None  # None: never

    @property
    def next_version(self) -> int:
        """Return the version that the item has after this write."""
        return (self.version or 0) + 1

    def note(self, versions: Versions | None) -> None:
        """Update the reader's versions after a successful write."""
        if versions is None:
            return
        versions[self.sort_key] = self.next_version
        if isinstance(versions, _TextVersions) and self.sort_key in versions.texts:
            versions.texts[self.sort_key] = self.text


class _TextVersions(Versions):
    """The versions that a reader has seen, with the items' texts."""

    def __init__(self, items: Mapping[str, Stored]) -> None:
        super().__init__({key: item.version for key, item in items.items() if item.version is not None})
        # Unknown fields of a cluster's health are not kept, because they describe an earlier time.
        self.texts = {key: item.text for key, item in items.items() if key != HEALTH}


def text_of(sort_key: str, versions: Versions) -> str | None:
    """Return the text of an item as the reader of these versions has read it; None: the reader has not read it."""
    return versions.texts.get(sort_key) if isinstance(versions, _TextVersions) else None


def entry(sort_key: str, value: Any, versions: Versions | None, now: datetime) -> Entry:
    """Return the entry that writes one of a cluster's own items."""
    # A record is stored with its defaults, because a later release may have other defaults.
    text = value.model_dump_json(exclude_none=True) if isinstance(value, Registration) else dump_stored(value)
    if versions is not None and (before := text_of(sort_key, versions)):
        text = keep_unknown(type(value), text, before)
    version = None if versions is None else versions.get(META if sort_key == CONTROL else sort_key)
    return Entry(sort_key=sort_key, text=text, version=version, expires=_expires(value, now))


def _expires(value: Any, now: datetime) -> datetime | None:
    """Return when an item may be deleted; None: never."""
    match value:
        case GroupState():
            return _group_expires(value, now)
        case ClusterHealth():
            return now + _DAY if value.is_empty else None
        case Timer(due=at) | Unreachable(next_check=at) | EventCheckRecord(ends_at=at) | ZoneRecord(impaired_until=at):
            return max(now, at) + _DAY
        case ScaleRequestRecord():
            return max(now, value.at + _REPEATS) + _DAY
        case Drill():
            return max(now, value.fenced_until) + _DRILL_KEPT
    return None


def _group_expires(state: GroupState, now: datetime) -> datetime | None:
    """Return a time by which no failure has an effect.

    None if machines have Evenkeel's marks, if nodes are unneeded, or if the group is unhealthy.
    """
    if state.marked or state.unneeded or state.unhealthy_since is not None:
        return None
    times = (state.failure.backoff_until, state.failure.last_failure, state.arrivals.waiting_since)
    last = max([now, *(at for at in times if at is not None)])
    if state.contest.contested_since is not None:
        last = max(last, state.contest.contested_since + _CONTESTED_KEPT)
    return last + 2 * _DAY


def check_times_entry(clusters: Sequence[str], at: datetime, resting: Sequence[str] = ()) -> Entry:
    """Return the entry that stores when these clusters were read. The same clusters always get the same sort key."""
    digest = hashlib.sha256("\n".join(sorted([*clusters, *resting])).encode()).hexdigest()[:16]
    checked = CheckedAt(at=at, clusters=tuple(clusters), resting=tuple(resting))
    return Entry(sort_key=digest, text=dump_stored(checked), expires=at + _CHECK_TIMES_KEPT)


def record_entries(
    record: ClusterRecord, control: ControlRecord, versions: Versions | None, now: datetime
) -> tuple[Entry, Entry]:
    """Return the entries of a cluster's record and control record, which are written together and share one version.

    The record's entry repeats the pauses and restores, because ``scan`` reads only the index.
    """
    meta = entry(META, StoredRegistration.of(record, control), versions, now)
    return meta, entry(CONTROL, control, versions, now)


def stored_cluster(
    cluster: str, items: Mapping[str, Stored], fencing_token: int, now: datetime, unfinished: Sequence[str] = ()
) -> StoredCluster:
    """Return the values of a cluster's items. ``items`` has no lease and no decisions; its keys are the sort keys.

    An expired item has no effect, but the next write of this item needs its version. Raises UnknownClusterError if the
    cluster has no record, ConfigError if an item has a bad value.
    """
    if META not in items:
        raise UnknownClusterError(f"cluster {cluster!r} is not registered")
    registration = _registration(cluster, items[META])  # first, because items of another form have no other fault
    live = {key: item for key, item in items.items() if not item.has_expired(now)}

    def read(kind: type[_Kind], sort_key: str) -> dict[str, _Kind]:
        """Return the item with this sort key; if the key ends in "#", all items whose keys begin with it."""
        keys = [key for key in live if key == sort_key or (sort_key.endswith("#") and key.startswith(sort_key))]
        return {key: _read(kind, live[key], _name(cluster, key)) for key in keys}

    # After a node has arrived, its group's item has only defaults. It would prevent quick checks until it expires.
    groups = {_group_key(cluster, key): state for key, state in read(GroupState, "GROUP#").items()}
    scale_requests = {record.id: record for record in read(ScaleRequestRecord, "SCALE_REQUEST#").values()}
    zones = _by_zone(read(ZoneRecord, "ZONE#"))
    drill = _drill(cluster, live.get(DRILL))
    versions = _TextVersions(items)
    return StoredCluster(
        record=registration.record,
        control=_control(cluster, items, registration.control()),
        state=ClusterState(
            groups={key: state for key, state in groups.items() if state != GroupState()},
            pools={stored.pool: stored.state for stored in read(StoredPool, "POOL#").values()},
            zones={zone: record.impaired_until for zone, record in zones_with_drill(zones, drill).items()},
            drill_zone=_drill_zone(drill, zones, now),
            scale_requests=tuple(request.scale_request() for request in scale_requests.values() if not request.done),
        ),
        zones=zones,
        scale_requests=scale_requests,
        timer=read(Timer, TIMER).get(TIMER),
        event_check=read(EventCheckRecord, EVENT_CHECK).get(EVENT_CHECK),
        unreachable=read(Unreachable, UNREACHABLE).get(UNREACHABLE),
        cluster_health=cluster_health_of(cluster, items.get(HEALTH))[0],
        steady=_steady(items[META].steady),
        drill=drill,
        versions=versions,
        expired=[key for key in items if key not in live and key in versions and key not in _DELETED_BY_TTL],
        fencing_token=fencing_token,
        unfinished=unfinished,
    )


def _drill(cluster: str, item: Stored | None) -> Drill | None:
    """Return the last drill. One that cannot be read fences no zone, and the next drill replaces it."""
    if item is not None:
        with _dropped():
            return _read(Drill, item, _name(cluster, DRILL))
    return None


def _drill_zone(drill: Drill | None, zones: Mapping[str, ZoneRecord], now: datetime) -> str:
    if drill is None or drill.ended is not None or (drill.zone in zones and zones[drill.zone].holding(now)):
        return ""
    return drill.zone


def registration_of(cluster: str, item: Stored) -> Registration | str:
    """Return a cluster's registration, or the error if its record cannot be read."""
    try:
        return _registration(cluster, item)
    except ConfigError as error:
        return str(error)


def _registration(cluster: str, item: Stored) -> Registration:
    where = _name(cluster, META)
    if (form := _read(_Form, item, where).form) != FORM:
        raise _OtherFormError(cluster, form)
    return _read(Registration, item, where)


def steady_clusters(cluster: str, item: Stored) -> SteadyCluster | None:
    """Return a cluster's steady state; None if the cluster is not steady, or its record cannot be read."""
    steady = _steady(item.steady)
    if steady is None or not steady.seen:
        return None
    registration = registration_of(cluster, item)
    return None if isinstance(registration, str) else SteadyCluster(record=registration.record, steady=steady)


def registered(cluster: str, items: Mapping[str, Stored]) -> Registered | None:
    """Return the readable part of a cluster's registration; None if the cluster is not registered.

    Raises ConfigError if the items have the form of another release, so that no write may replace the registration.
    """
    if META not in items:
        return None
    record: ClusterRecord | str
    try:
        registration = _registration(cluster, items[META])
        record, control = registration.record, registration.control()
    except _OtherFormError:
        raise
    except ConfigError as error:
        record, control = str(error), ControlRecord()
    # If the control record cannot be read, the record's item replaces it. That item repeats most of the control record.
    with _dropped():
        control = _control(cluster, items, control)
    return Registered(record=record, control=control, versions=_TextVersions(items))


def _control(cluster: str, items: Mapping[str, Stored], otherwise: ControlRecord) -> ControlRecord:
    return _read(ControlRecord, items[CONTROL], _name(cluster, CONTROL)) if CONTROL in items else otherwise


def cluster_health_of(cluster: str, item: Stored | None) -> tuple[ClusterHealth, Versions]:
    """Return a cluster's health and its version. An unreadable health becomes empty, and the next check replaces it."""
    versions = Versions({} if item is None or item.version is None else {HEALTH: item.version})
    if item is not None:
        with _dropped():
            return read_stored(ClusterHealth, item.text, _name(cluster, HEALTH)), versions
    return ClusterHealth(), versions


def decision_of(cluster: str, id: str, item: Stored) -> Mapping[str, Any]:
    """Return a recorded decision, or an entry that says why the decision cannot be read."""
    try:
        return {**_read_decision(item, _name(cluster, f"DECISION#{id}")), "id": id}
    except ConfigError as error:
        _log.error("not read: %s", error)
        at = rfc3339(time_of(id))
        return {"id": id, "at": at, "cluster": cluster, "cause": UNREADABLE, "by": None, "what": str(error)}


def last_check_times(items: Mapping[str, Stored], now: datetime) -> CheckTimes:
    """Return when each cluster was last read, by cluster id."""
    latest = CheckTimes()
    for key, item in items.items():
        if not item.has_expired(now):
            with _dropped():
                look = read_stored(CheckedAt, item.text, f"{CHECK_TIMES} {key}")
                listed = (*look.clusters, *look.resting)
                newest = {cluster: look.at for cluster in listed if look.at >= latest.get(cluster, look.at)}
                latest.update(newest)
                latest.resting = (latest.resting - set(newest)) | (set(look.resting) & newest.keys())
    return latest


def _read(kind: type[_Kind], item: Stored, where: str) -> _Kind:
    if item.fault:
        raise ConfigError([item.fault])
    return read_stored(kind, item.text, where)


def _by_zone(records: Mapping[str, ZoneRecord]) -> dict[str, ZoneRecord]:
    """Return the records by zone.

    If the cluster's record got its region later, a zone may have two items. They are merged.
    """
    zones: dict[str, ZoneRecord] = {}
    for key, record in records.items():
        zone = key.rpartition("/")[2]
        zones[zone] = zones[zone].merged(record) if zone in zones else record
    return zones


def _steady(text: str) -> SteadyState | None:
    """Return the steady state; None if the text is empty or cannot be read. The next check is then a full check."""
    with _dropped():
        return read_stored(SteadyState, text, "steady") if text else None
    return None


def _name(cluster: str, key: str) -> str:
    return f"record of cluster {cluster}" if key == META else f"CLUSTER#{cluster} {key}"


def _group_key(cluster: str, sort_key: str) -> GroupKey:
    try:
        return GroupKey.read(sort_key.removeprefix("GROUP#"))
    except BadValueError as error:
        raise ConfigError([f"{_name(cluster, sort_key)}: {error}"]) from None


@contextmanager
def _dropped() -> Iterator[None]:
    """Log an item that cannot be read, and continue without it."""
    try:
        yield
    except ConfigError as error:
        _log.error("left out: %s", error)


def _read_decision(item: Stored, where: str) -> dict[str, Any]:
    """Return a decision or an operator's action with the fields that every reader needs. Raises ConfigError."""
    if item.fault:
        raise ConfigError([item.fault])
    decision = parse_json(item.text, where)
    if isinstance(decision, dict) and _is_time(decision.get("at")) and isinstance(decision.get("cause"), str):
        if "pool" in decision:
            return decision
        if isinstance(decision.get("what"), str):
            return {"by": None, **decision}
    raise ConfigError([f"{where}: it lacks at, cause or what: correct this item of the table"])


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False
