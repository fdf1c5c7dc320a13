"""What stands in a cluster's items: from records to our words and back, the same for every store.

A newer release may have written fields that this one does not know. They are left out where a record is read, and put
back where the same item is written again, so that a release that was rolled back loses nothing of what it may need
when it returns.
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from pydantic import BaseModel

from evenkeel.adapters.stored import (
    ClusterHealthRecord,
    GroupRecord,
    LookedAtRecord,
    OfferingRecord,
    PoolRecord,
    RolloutRecord,
    SteadyStateRecord,
    TimerRecord,
    Unknown,
    UnreachableRecord,
    keep_unknown,
    read_stored,
)
from evenkeel.application.errors import UnknownClusterError
from evenkeel.application.ports import UNREADABLE, Registered, SharedOffering, StoredCluster, Versions
from evenkeel.application.rebalancing.ports import SteadyCluster
from evenkeel.domain.fleet.check_times import SteadyState, Timer, Unreachable
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.incidents import ClusterHealth
from evenkeel.domain.model.offerings import Offering, OfferingState
from evenkeel.domain.model.states import ClusterState, GroupState, PoolState
from evenkeel.domain.model.ulids import time_of
from evenkeel.domain.model.values import BadValueError
from evenkeel.domain.rollout.waves import Rollout
from evenkeel.record import ClusterRecord, ControlRecord, Registration
from evenkeel.state_records import EventCheckRecord, ScaleRequestRecord, ZoneRecord
from evenkeel.texts.english import rfc3339
from evenkeel.validation import ConfigError, parse_json

# A day longer than it counts, whatever it is: for people who look, and so that late words are still known to be late.
# It is counted from now on, at the least: DynamoDB never deletes what ended five years ago.
_KEPT = timedelta(days=1)
# A forgotten backoff changes nothing.
_GROUP_KEPT = timedelta(days=2)
# Who contests a write should hear of it; who has not within a year will not.
_CONTESTED_KEPT = timedelta(days=365)
# EventBridge may bring an event again within a day.
_SCALE_REQUEST_KEPT = timedelta(days=1, hours=1)
# A word is forgotten three hours after its failure, whatever the clocks say of it by then.
_OFFERING_KEPT = timedelta(hours=4)
# The key of what clusters share. No cluster's own has no number sign.
OFFERING = "OFFERING"
ROLLOUT = "ROLLOUT"
# Sort keys of items that a cluster has once. The second comes after "G", so that one query reads it with all else.
META, CONTROL, EVENT_LOOK, TIMER, SILENCE = "META", "META#CONTROL", "HEARD", "LOOK", "SILENCE"
HEALTH = "HEALTH"
_DELETED_BY_TTL = (TIMER, SILENCE, HEALTH)
# Where it is said when clusters were looked at. Two hours: none is looked at less often than once an hour.
LOOKED_AT = "LOOKED"
_LOOKED_AT_KEPT = timedelta(hours=2)
_log = logging.getLogger("evenkeel.store")
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
    settled: str = ""  # of a cluster's record: what stands beside it
    fault: str = ""  # why it cannot be read; its text is empty then


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An item as it is to be written, on the version that was read; None: it must not be there yet."""

    sort_key: str
    text: str
    version: int | None = None
    expires: datetime | None = None  # None: never

    @property
    def next_version(self) -> int:
        return (self.version or 0) + 1

    def note(self, versions: Versions | None) -> None:
        """It has been written."""
        if versions is not None:
            versions[self.sort_key] = self.next_version


_Unknown = tuple[int | None, Unknown, str]
"""Of an item: the version that it was read at, or will be written as, what is unknown, and the text that was read."""


class Records:
    """Reads and writes the texts of items. Remembers of those it has read what only a newer release understands."""

    def __init__(self) -> None:
        self._unknown: dict[str, dict[str, _Unknown]] = {}  # by cluster and sort key

    def remembered(self, cluster: str, items: Mapping[str, Stored], fencing_token: int, now: datetime) -> StoredCluster:
        """A cluster's items by sort key, but its lease and decisions, in our words.

        What has expired counts no more, also where it has not been deleted yet; its version does, for the next write.

        Raises:
            UnknownClusterError: there is no record of the cluster.
            ConfigError: a record has a bad value.
        """
        if META not in items:
            raise UnknownClusterError(f"cluster {cluster!r} is not registered")
        self._unknown.pop(cluster, None)  # as when it is read: what was to be written since has not been
        live = {key: item for key, item in items.items() if item.expires is None or now < item.expires}

        def read(model: type[_Model], sort_key: str) -> dict[str, _Model]:
            """Of one sort key, or of all that begin with one that ends in "#"."""
            keys = [key for key in live if key == sort_key or (sort_key.endswith("#") and key.startswith(sort_key))]
            return {key: self._read(model, cluster, key, live[key]) for key in keys}

        groups = {_group_key(cluster, key): record.state() for key, record in read(GroupRecord, "GROUP#").items()}
        pools = {record.id: record.state() for record in read(_PoolRecord, "POOL#").values()}
        scale_requests = {record.id: record for record in read(ScaleRequestRecord, "GROWTH#").values()}
        zones = _by_zone(read(ZoneRecord, "ZONE#"))
        timer = read(TimerRecord, TIMER).get(TIMER)
        silence = read(UnreachableRecord, SILENCE).get(SILENCE)
        registration = self._read(Registration, cluster, META, items[META])
        versions = _versions(items)
        return StoredCluster(
            record=registration.record,
            control=self._control(cluster, items, registration.control()),
            state=ClusterState(
                groups=groups,
                pools=pools,
                zones={zone: record.impaired_until for zone, record in zones.items()},
                scale_requests=tuple(
                    request.scale_request() for request in scale_requests.values() if not request.done
                ),
            ),
            zones=zones,
            scale_requests=scale_requests,
            timer=timer.timer() if timer else None,
            event_check=read(EventCheckRecord, EVENT_LOOK).get(EVENT_LOOK),
            silence=silence.silence() if silence else None,
            cluster_health=self.cluster_health_of(cluster, items[HEALTH].text if HEALTH in items else None),
            settled=_settled(items[META].settled),
            versions=versions,
            expired=[key for key in items if key not in live and key in versions and key not in _DELETED_BY_TTL],
            fencing_token=fencing_token,
        )

    def registration(self, cluster: str, text: str) -> Registration | str:
        """A record from the index; a string is what is wrong with it."""
        try:
            return read_stored(Registration, text, _name(cluster, META))[0]
        except ConfigError as error:
            return str(error)

    def steady_clusters(self, cluster: str, item: Stored) -> SteadyCluster | None:
        """Of a cluster's record. None: it is not known to be settled, or its record cannot be read."""
        settled = _settled(item.settled)
        registration = None if settled is None or item.fault else self.registration(cluster, item.text)
        if settled is None or not settled.seen or registration is None or isinstance(registration, str):
            return None
        return SteadyCluster(record=registration.record, settled=settled)

    def settled(self, settled: SteadyState) -> str:
        return SteadyStateRecord.of(settled).model_dump_json(exclude_defaults=True)

    def registered(self, cluster: str, items: Mapping[str, Stored]) -> Registered | None:
        """Of these, a cluster's own items, what can be read."""
        if META not in items:
            return None
        found = items[META].fault or self.registration(cluster, items[META].text)
        control = ControlRecord() if isinstance(found, str) else found.control()
        with _left_out():  # what stands in the record then says most of it
            control = self._control(cluster, items, control)
        record = found if isinstance(found, str) else found.record
        return Registered(record=record, control=control, versions=_versions(items))

    def record(self, record: ClusterRecord, control: ControlRecord, versions: Versions | None) -> tuple[Entry, Entry]:
        """A cluster's own items, which are written together and so have one version.

        The record says once more what is paused and what is being restored: the index, which `scan` reads, shows
        nothing else; and a release without control records, if one is rolled back to, leaves alone what is paused.
        """
        version = None if versions is None else versions.get(META)
        registration = Registration.of(record, control).model_dump_json(exclude_none=True)
        return self._entry(record.id, META, registration, version), self.control(record.id, control, versions)

    def control(self, cluster: str, control: ControlRecord, versions: Versions | None) -> Entry:
        """Has the version of the record."""
        version = None if versions is None else versions.get(META)
        return self._entry(cluster, CONTROL, control.model_dump_json(), version)

    def _control(self, cluster: str, items: Mapping[str, Stored], otherwise: ControlRecord) -> ControlRecord:
        """What actions have said; ``otherwise``: what the record itself says.

        That counts where a release without control records has written it last: their versions then differ. So they do
        for who reads between the writes of the two, and is refused any of its own.
        """
        item = items.get(CONTROL)
        if item is None or (item.version != items[META].version and not item.fault):
            return otherwise
        return self._read(ControlRecord, cluster, CONTROL, item)

    def group(self, cluster: str, key: GroupKey, state: GroupState, versions: Versions | None, now: datetime) -> Entry:
        """Kept until its failure is forgotten, and while machines carry marks of ours."""
        times = (state.backoff_until, state.last_failure, state.waiting_since)
        last = max([now, *(at for at in times if at is not None)])
        if state.contested_since is not None:
            last = max(last, state.contested_since + _CONTESTED_KEPT)
        # A group may stay frozen for longer than its failure counts; its marks must be found again all the same.
        # So must a clock that has run for longer than that.
        expires = None if state.marked or state.unneeded else last + _GROUP_KEPT
        text = GroupRecord.of(state).model_dump_json(by_alias=True, exclude_none=True)
        return self._of(cluster, f"GROUP#{key}", text, versions, expires)

    def pool(self, cluster: str, pool: PoolId, state: PoolState, versions: Versions | None) -> Entry:
        """Never expires: the adopted bounds are what ``restore`` puts back."""
        record = _PoolRecord(**{**dict(PoolRecord.of(state)), **vars(pool)})
        return self._of(cluster, f"POOL#{pool}", record.model_dump_json(by_alias=True, exclude_defaults=True), versions)

    def zone(
        self, cluster: str, region: str, zone: str, record: ZoneRecord, versions: Versions | None, now: datetime
    ) -> Entry:
        """Kept longer than it holds, so that late words about it are still known to be late."""
        expires = max(now, record.impaired_until) + _KEPT
        return self._of(cluster, f"ZONE#{region}/{zone}", record.model_dump_json(), versions, expires)

    def scale_request(
        self, cluster: str, record: ScaleRequestRecord, versions: Versions | None, now: datetime
    ) -> Entry:
        """Kept for a day after it was asked for, so that the same request is known when it comes again."""
        expires = max(now + _KEPT, record.at + _SCALE_REQUEST_KEPT)
        return self._of(cluster, f"GROWTH#{record.id}", record.model_dump_json(), versions, expires)

    def offering(self, offering: Offering, state: OfferingState, version: int | None, now: datetime) -> Entry:
        """Kept for as long as any of it may count."""
        times = [report.failed_at for report in state.reports.values()]
        last = max([now, *times, *([state.delivered_at] if state.delivered_at is not None else [])])
        text = OfferingRecord.of(state).model_dump_json(exclude_defaults=True)
        return self._entry(OFFERING, str(offering), text, version, last + _OFFERING_KEPT)

    def shared(self, sort_key: str, item: Stored, now: datetime) -> SharedOffering:
        """An offering's item. One that is over, or that nobody can read, says nothing and may be written over."""
        state = OfferingState()
        if item.expires is None or now < item.expires:
            with _left_out():
                state = self._read(OfferingRecord, OFFERING, sort_key, item).state()
        return SharedOffering(state=state, version=item.version)

    def event_check(self, cluster: str, record: EventCheckRecord, versions: Versions | None, now: datetime) -> Entry:
        """Of interest for seconds."""
        return self._of(cluster, EVENT_LOOK, record.model_dump_json(), versions, max(now, record.at) + _KEPT)

    def timer(self, cluster: str, timer: Timer, versions: Versions | None, now: datetime) -> Entry:
        """Kept while it may still keep a look from being asked for twice."""
        return self._of(
            cluster, TIMER, TimerRecord(**vars(timer)).model_dump_json(), versions, max(now, timer.due) + _KEPT
        )

    def silence(self, cluster: str, silence: Unreachable, versions: Versions | None, now: datetime) -> Entry:
        """Kept while it is known when the cluster is looked at next, and then some."""
        text = UnreachableRecord(**vars(silence)).model_dump_json()
        return self._of(cluster, SILENCE, text, versions, max(now, silence.next_check) + _KEPT)

    def cluster_health(
        self, cluster: str, cluster_health: ClusterHealth, versions: Versions | None, now: datetime
    ) -> Entry:
        """Never expires while there is trouble; a day after it has ended nobody asks any more."""
        text = ClusterHealthRecord.of(cluster_health).model_dump_json(by_alias=True, exclude_defaults=True)
        return self._of(cluster, HEALTH, text, versions, now + _KEPT if cluster_health.is_empty else None)

    def cluster_health_of(self, cluster: str, text: str | None) -> ClusterHealth:
        """One that nobody can read, as of a newer release, says nothing: what there is of trouble is found anew.

        Nor are a newer release's fields kept: they would be of another moment than what is written beside them.
        """
        if text is not None:
            with _left_out():
                return read_stored(ClusterHealthRecord, text, _name(cluster, HEALTH))[0].cluster_health()
        return ClusterHealth()

    def rollout(self, rollout: Rollout, version: int | None) -> Entry:
        """Never expires: it says which clusters it has switched on."""
        text = RolloutRecord.of(rollout).model_dump_json(exclude_defaults=True)
        return Entry(sort_key=ROLLOUT, text=text, version=version)

    def rollout_of(self, item: Stored) -> Rollout:
        """Raises ConfigError: what nobody can read nobody goes on with. A newer release's fields are not kept."""
        if item.fault:
            raise ConfigError([item.fault])
        return read_stored(RolloutRecord, item.text, "rollout")[0].rollout()

    def decision(self, cluster: str, id: str, item: Stored) -> Mapping[str, Any]:
        """A decision as it was recorded. In the place of one that cannot be read: which it is, and why."""
        try:
            return {**_read_decision(item, _name(cluster, f"DECISION#{id}")), "id": id}
        except ConfigError as error:
            _log.error("not read: %s", error)
            at = rfc3339(time_of(id))
            return {"id": id, "at": at, "cluster": cluster, "cause": UNREADABLE, "by": None, "what": str(error)}

    def looked_at(self, clusters: Sequence[str], at: datetime) -> Entry:
        """In the place of what was said of the same clusters before."""
        text = LookedAtRecord(at=at, clusters=tuple(clusters)).model_dump_json()
        digest = hashlib.sha256("\n".join(clusters).encode()).hexdigest()[:16]
        return Entry(sort_key=digest, text=text, expires=at + _LOOKED_AT_KEPT)

    def when_looked_at(self, items: Mapping[str, Stored], now: datetime) -> Mapping[str, datetime]:
        """The latest moment at which each cluster was read."""
        latest: dict[str, datetime] = {}
        for key, item in items.items():
            if item.expires is None or now < item.expires:
                with _left_out():
                    record, _ = read_stored(LookedAtRecord, item.text, f"{LOOKED_AT} {key}")
                    latest |= {cluster: max(record.at, latest.get(cluster, record.at)) for cluster in record.clusters}
        return latest

    def _read(self, model: type[_Model], cluster: str, key: str, item: Stored) -> _Model:
        if item.fault:
            raise ConfigError([item.fault])
        record, unknown = read_stored(model, item.text, _name(cluster, key))
        if unknown:
            self._unknown.setdefault(cluster, {})[key] = (item.version, unknown, item.text)
        else:
            self._unknown.get(cluster, {}).pop(key, None)
        return record

    def _of(
        self, cluster: str, key: str, text: str, versions: Versions | None, expires: datetime | None = None
    ) -> Entry:
        return self._entry(cluster, key, text, None if versions is None else versions.get(key), expires)

    def _entry(self, cluster: str, key: str, text: str, version: int | None, expires: datetime | None = None) -> Entry:
        unknown = self._unknown.get(cluster, {}).get(key)
        if unknown is not None and unknown[0] == version:
            text = keep_unknown(text, unknown[1], unknown[2])
        entry = Entry(sort_key=key, text=text, version=version, expires=expires)
        if unknown is not None and unknown[0] == version:
            self._unknown[cluster][key] = (entry.next_version, unknown[1], unknown[2])  # it may be written again
        return entry


def _versions(items: Mapping[str, Stored]) -> Versions:
    return Versions({key: item.version for key, item in items.items() if item.version is not None})


def _by_zone(records: Mapping[str, ZoneRecord]) -> dict[str, ZoneRecord]:
    """A record that has got a region since may have two items of a zone: of each source the later word."""
    zones: dict[str, ZoneRecord] = {}
    for key, record in records.items():
        zone = key.rpartition("/")[2]
        zones[zone] = zones[zone].merged(record) if zone in zones else record
    return zones


def _settled(text: str) -> SteadyState | None:
    """What cannot be read, a newer release's maybe, is not known: then all of the cluster is looked at."""
    with _left_out():
        return read_stored(SteadyStateRecord, text, "settled")[0].settled() if text else None
    return None


def _name(cluster: str, key: str) -> str:
    if cluster == OFFERING:
        return f"{OFFERING} {key}"
    return f"record of cluster {cluster}" if key == META else f"CLUSTER#{cluster} {key}"


def _group_key(cluster: str, sort_key: str) -> GroupKey:
    try:
        return GroupKey.read(sort_key.removeprefix("GROUP#"))
    except BadValueError as error:
        raise ConfigError([f"{_name(cluster, sort_key)}: {error}"]) from None


@contextmanager
def _left_out() -> Iterator[None]:
    """Logs what cannot be read and is done without."""
    try:
        yield
    except ConfigError as error:
        _log.error("left out: %s", error)


def _read_decision(item: Stored, where: str) -> dict[str, Any]:
    """A decision, or what somebody did, with the fields that every reader relies on. Raises ConfigError."""
    if item.fault:
        raise ConfigError([item.fault])
    found = parse_json(item.text, where)
    if isinstance(found, dict) and _is_moment(found.get("at")) and isinstance(found.get("cause"), str):
        if "pool" in found:
            return found
        if isinstance(found.get("what"), str):
            return {"by": None, **found}
    raise ConfigError([f"{where}: it lacks at, cause or what: correct this item of the table"])


def _is_moment(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False
