"""What stands in a cluster's items: from records to our words and back, the same for every store.

A newer release may have written fields that this one does not know. They are left out where a record is read, and put
back where the same item is written again, so that a release that was rolled back loses nothing of what it may need
when it returns.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from pydantic import BaseModel

from evenkeel.application.errors import UnknownClusterError
from evenkeel.application.ports import Remembered
from evenkeel.config import (
    ClusterRecord,
    ConfigError,
    EventLookRecord,
    GroupRecord,
    PoolRecord,
    ScaleRequestRecord,
    TimerRecord,
    Unknown,
    ZoneRecord,
    keep_unknown,
    read_stored,
)
from evenkeel.domain.looks import Timer
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.states import ClusterState, GroupState, PoolState
from evenkeel.domain.model.values import BadValueError

# A day longer than it counts, whatever it is: for people who look, and so that late words are still known to be late.
# It is counted from now on, at the least: DynamoDB never deletes what ended five years ago.
_KEPT = timedelta(days=1)
# A forgotten backoff changes nothing.
_GROUP_KEPT = timedelta(days=2)
# Who contests a write should hear of it; who has not within a year will not.
_CONTESTED_KEPT = timedelta(days=365)
# EventBridge may bring an event again within a day.
_SCALE_REQUEST_KEPT = timedelta(days=1, hours=1)
_Model = TypeVar("_Model", bound=BaseModel)


class _PoolRecord(PoolRecord):
    """A pool as it is stored. Its id is spelled out: the sort key cannot be taken apart where no cluster is named."""

    flavour: str
    namespace: str
    cluster: str
    name: str

    @property
    def id(self) -> PoolId:
        return PoolId(self.flavour, self.namespace, self.cluster, self.name)


@dataclass(frozen=True, kw_only=True)
class Stored:
    """An item as it is found. ``version``: None where whoever writes it must not find one."""

    text: str
    version: int | None
    expires: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An item as it is to be written, on the version that was read."""

    sort_key: str
    text: str
    version: int | None
    expires: datetime | None = None  # None: never

    @property
    def next_version(self) -> int:
        """The version after it is written."""
        return (self.version or 0) + 1


class Records:
    """Reads and writes the texts of items. Remembers of those it has read what only a newer release understands."""

    def __init__(self) -> None:
        self._unknown: dict[tuple[str, str], tuple[int | None, Unknown, str]] = {}

    def remembered(self, cluster: str, items: Mapping[str, Stored], fence: int, now: datetime) -> Remembered:
        """A cluster's items by sort key, but its lease and decisions, in our words.

        What has expired counts no more, also where it has not been deleted yet; its version does, for the next write.

        Raises:
            UnknownClusterError: there is no record of the cluster.
            ConfigError: a record has a bad value.
        """
        if "META" not in items:
            raise UnknownClusterError(f"cluster {cluster!r} is not registered")
        groups: dict[GroupKey, GroupState] = {}
        pools: dict[PoolId, PoolState] = {}
        zones: dict[str, ZoneRecord] = {}
        scale_requests: dict[str, ScaleRequestRecord] = {}
        event_look = timer = None
        over: dict[str, int] = {}
        for key, item in items.items():
            if item.expires is not None and item.expires <= now:
                if item.version is not None and key != "LOOK":
                    over[key] = item.version
                continue
            if key.startswith("GROUP#"):
                groups[_group_key(cluster, key)] = self._read(GroupRecord, cluster, key, item).state()
            elif key.startswith("POOL#"):
                pool = self._read(_PoolRecord, cluster, key, item)
                pools[pool.id] = pool.state()
            elif key.startswith("GROWTH#"):
                scale_request = self._read(ScaleRequestRecord, cluster, key, item)
                scale_requests[scale_request.id] = scale_request
            elif key.startswith("ZONE#"):
                zone, said = key.rpartition("/")[2], self._read(ZoneRecord, cluster, key, item)
                # A record that has got a region since may have two items of a zone: of each source the later word.
                zones[zone] = zones[zone].merged(said) if zone in zones else said
            elif key == "HEARD":
                event_look = self._read(EventLookRecord, cluster, key, item)
            elif key == "LOOK":
                timer = self._read(TimerRecord, cluster, key, item).timer()
        return Remembered(
            record=self._read(ClusterRecord, cluster, "META", items["META"]),
            state=ClusterState(
                groups=groups,
                pools=pools,
                zones={zone: record.impaired_until for zone, record in zones.items()},
                scale_requests=tuple(
                    scale_request.scale_request() for scale_request in scale_requests.values() if not scale_request.done
                ),
            ),
            zones=zones,
            scale_requests=scale_requests,
            timer=timer,
            event_look=event_look,
            versions={key: item.version for key, item in items.items() if item.version is not None},
            over=over,
            fencing_token=fence,
        )

    def cluster_record(self, cluster: str, text: str) -> ClusterRecord | str:
        """A record from the index; a string is what is wrong with it."""
        try:
            return read_stored(ClusterRecord, text, _name(cluster, "META"))[0]
        except ConfigError as error:
            return str(error)

    def record(self, record: ClusterRecord, version: int | None) -> Entry:
        """A cluster's own."""
        return self._entry(record.id, "META", record.model_dump_json(exclude_none=True), version)

    def group(self, cluster: str, key: GroupKey, state: GroupState, version: int | None, now: datetime) -> Entry:
        """Kept until its failure is forgotten, and while machines carry marks of ours."""
        times = (state.backoff_until, state.last_failure, state.waiting_since)
        last = max([now, *(at for at in times if at is not None)])
        if state.contested_since is not None:
            last = max(last, state.contested_since + _CONTESTED_KEPT)
        # A group may stay frozen for longer than its failure counts; its marks must be found again all the same.
        expires = None if state.marked else last + _GROUP_KEPT
        text = GroupRecord.of(state).model_dump_json(by_alias=True, exclude_none=True)
        return self._entry(cluster, f"GROUP#{key}", text, version, expires)

    def pool(self, cluster: str, pool: PoolId, state: PoolState, version: int | None) -> Entry:
        """Never expires: the adopted bounds are what ``restore`` puts back."""
        id = {name: getattr(pool, name) for name in pool.__dataclass_fields__}
        record = _PoolRecord(**{**dict(PoolRecord.of(state)), **id})
        return self._entry(cluster, f"POOL#{pool}", record.model_dump_json(exclude_defaults=True), version)

    def zone(
        self, cluster: str, region: str, zone: str, record: ZoneRecord, version: int | None, now: datetime
    ) -> Entry:
        """Kept longer than it holds, so that late words about it are still known to be late."""
        expires = max(now, record.impaired_until) + _KEPT
        return self._entry(cluster, f"ZONE#{region}/{zone}", record.model_dump_json(), version, expires)

    def scale_request(self, cluster: str, record: ScaleRequestRecord, version: int | None, now: datetime) -> Entry:
        """Kept for a day after it was asked for, so that the same request is known when it comes again."""
        expires = max(now + _KEPT, record.at + _SCALE_REQUEST_KEPT)
        return self._entry(cluster, f"GROWTH#{record.id}", record.model_dump_json(), version, expires)

    def event_look(self, cluster: str, record: EventLookRecord, version: int | None, now: datetime) -> Entry:
        """Of interest for seconds."""
        return self._entry(cluster, "HEARD", record.model_dump_json(), version, max(now, record.at) + _KEPT)

    def timer(self, cluster: str, timer: Timer, version: int | None, now: datetime) -> Entry:
        """Kept while it may still keep a look from being asked for twice."""
        record = TimerRecord(due=timer.due, step=timer.step, doubted=timer.doubted)
        return self._entry(cluster, "LOOK", record.model_dump_json(), version, max(now, timer.due) + _KEPT)

    def _read(self, model: type[_Model], cluster: str, key: str, item: Stored) -> _Model:
        record, unknown = read_stored(model, item.text, _name(cluster, key))
        if unknown:
            self._unknown[cluster, key] = (item.version, unknown, item.text)
        else:
            self._unknown.pop((cluster, key), None)
        return record

    def _entry(self, cluster: str, key: str, text: str, version: int | None, expires: datetime | None = None) -> Entry:
        known = self._unknown.get((cluster, key))
        if known is not None and known[0] == version:
            text = keep_unknown(text, known[1], known[2])
        entry = Entry(sort_key=key, text=text, version=version, expires=expires)
        if known is not None and known[0] == version:
            self._unknown[cluster, key] = (entry.next_version, known[1], known[2])  # it may be written again
        return entry


def _name(cluster: str, key: str) -> str:
    return f"record of cluster {cluster}" if key == "META" else f"CLUSTER#{cluster} {key}"


def _group_key(cluster: str, sort_key: str) -> GroupKey:
    try:
        return GroupKey.read(sort_key.removeprefix("GROUP#"))
    except BadValueError as error:
        raise ConfigError([f"{_name(cluster, sort_key)}: {error}"]) from None


def moment(seconds: str) -> datetime:
    """A moment as the table has it: seconds since 1970."""
    return datetime.fromtimestamp(float(seconds), UTC)
