"""The application's ports in memory. The store passes the same tests as the table (integration/test_store.py)."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from evenkeel.adapters.aws import records
from evenkeel.adapters.aws.records import (
    CHECK_TIMES,
    CONTROL,
    EVENT_CHECK,
    HEALTH,
    META,
    TIMER,
    UNREACHABLE,
    Entry,
    Stored,
    StoredPool,
)
from evenkeel.adapters.codec import dump_stored
from evenkeel.application.actions.ports import ActionStore
from evenkeel.application.errors import ConflictError, LeaseHeldError, StateConflictError, StateUnavailableError
from evenkeel.application.fleet.ports import Shard
from evenkeel.application.ports import (
    CheckResult,
    CheckTimes,
    Clock,
    Lease,
    Registered,
    Remaining,
    StoredCluster,
    Versions,
)
from evenkeel.application.rebalancing.decisions import fit
from evenkeel.application.rebalancing.ports import Others, SteadyCluster
from evenkeel.domain.drill.drill import Drill
from evenkeel.domain.fleet.check_times import Chunk, SteadyState, Timer, Unreachable
from evenkeel.domain.model.groups import Bounds, GroupKey, NodeGroup, OwnerNumbers, PoolId
from evenkeel.domain.model.incidents import ClusterHealth
from evenkeel.domain.model.observations import MachineNode, Observation
from evenkeel.domain.model.plans import GroupPlan
from evenkeel.domain.model.states import GroupState, PoolState
from evenkeel.domain.model.workload import Workload
from evenkeel.domain.rebalancing.annotations import read_adopted, read_published
from evenkeel.domain.rebalancing.replicas.deletion import MarksLeft, deletion_candidates, marks_left
from evenkeel.domain.rebalancing.writes import Patch
from evenkeel.record import ClusterRecord, ControlRecord, Registration
from evenkeel.state_records import EventCheckRecord, ScaleRequestRecord, ZoneRecord
from tests.parts import replace

NOW = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
PROVISION_TIMEOUT = timedelta(minutes=15)  # the record's default
NEVER = datetime.min.replace(tzinfo=UTC)
_T = TypeVar("_T")
_STALE = "the record has been written since it was read"


def plenty() -> float:
    """Return the seconds left at the start of an invocation."""
    return 60.0


def record(cluster: str = "demo", **fields: Any) -> ClusterRecord:
    """Return a record of a cluster that is written (no dry run). Further fields are the record's."""
    given = {"flavours": ["cluster-api"], "access": {"kind": "kubeconfig", "secret": "evenkeel/demo"}, "dry_run": False}
    return ClusterRecord.model_validate({"id": cluster, **given, **fields})


def with_form(text: str) -> str:
    """Return a registration's text with the form of this release. A text that is no JSON is unchanged."""
    try:
        return json.dumps({"form": records.FORM, **json.loads(text)})
    except ValueError:
        return text


def register(
    store: ActionStore, cluster: str = "demo", versions: Versions | None = None, **fields: Any
) -> ClusterRecord:
    """Store a cluster's record, and the pauses, restores and fixes among its fields. Return the record."""
    plain = {name: value for name, value in fields.items() if name in ClusterRecord.model_fields}
    registered = record(cluster, **plain)
    controls = {name: value for name, value in fields.items() if name not in plain}
    control = Registration.model_validate({**registered.model_dump(exclude_unset=True), **controls}).control()
    store.save_record(registered, control, versions)
    return registered


def register_again(store: ActionStore, record: ClusterRecord) -> None:
    """Replace the cluster's record. Settings of actions are kept."""
    stored = store.load(record.id)
    store.save_record(record, stored.control, stored.versions)


def adopt(store: ActionStore, cluster: str, keys: Iterable[GroupKey], pool: str = "adopted") -> None:
    """Store these node groups as written by Evenkeel before."""
    state = PoolState(adopted={str(key): None for key in keys})
    store.save_pool(cluster, PoolId("cluster-api", "default", "", pool), state, None)


@dataclass
class Journal:
    """The calls of all fakes, in order: ("load", ...), ("apply", ...)."""

    entries: list[str] = field(default_factory=list)

    def note(self, what: str) -> None:
        self.entries.append(what)

    def count(self, what: str) -> int:
        return sum(entry == what for entry in self.entries)


@dataclass
class FakeClock:
    """A clock that advances only when a caller sleeps."""

    at: datetime = NOW
    slept: list[float] = field(default_factory=list)

    def now(self) -> datetime:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += timedelta(seconds=seconds)


class InMemoryStore:
    """The table as a dictionary of texts. ``away_from``: from this call on, no call is answered.

    Without a clock, no item expires.
    """

    def __init__(self, journal: Journal | None = None, clock: Clock | None = None) -> None:
        self.journal = journal or Journal()
        self.away_from: int | None = None
        self.page = 100  # decisions in one answer
        self.calls = 0
        self.before_write: list[Callable[[str], None]] = []  # called once each, with the sort key, before a write
        self._clock = clock
        self._items: dict[str, dict[str, Stored]] = {}
        self._leases: dict[str, Lease] = {}
        self._unfinished: dict[str, tuple[str, ...]] = {}
        self._due: dict[str, str] = {}
        self._rests: dict[str, datetime] = {}
        self._names: set[tuple[str, str]] = set()
        self._decisions: dict[str, dict[str, tuple[datetime, Mapping[str, Any]]]] = {}

    def plant(self, cluster: str, text: str, sort_key: str = META, *, has_form: bool = True) -> None:
        """Store a text as another release wrote it, readable or not. Without ``has_form``: as release 0.1.0."""
        text = with_form(text) if sort_key == META and has_form else text
        items = self._items.setdefault(cluster, {})
        before = items.get(sort_key)
        items[sort_key] = Stored(text=text, version=((before.version if before else None) or 0) + 1)
        if sort_key == META:
            self._due[cluster] = text

    def text(self, cluster: str, sort_key: str) -> str:
        """Return the stored text of an item."""
        return self._items[cluster][sort_key].text

    def texts(self, cluster: str) -> Mapping[str, str]:
        """Return all stored items of a cluster, by sort key."""
        return {sort_key: item.text for sort_key, item in sorted(self._items.get(cluster, {}).items())}

    def load(self, cluster: str, *, consistent: bool = True) -> StoredCluster:
        self._asked("load")
        return self._remembered(cluster)

    def _remembered(self, cluster: str) -> StoredCluster:
        lease, now = self._leases.get(cluster), self._time()
        items = dict(self._items.get(cluster, {}))
        unfinished = self._unfinished.get(cluster, ()) if lease and lease.expires <= now else ()
        return records.stored_cluster(cluster, items, lease.fencing_token if lease else 0, now, unfinished)

    shards: Sequence[str] = ("0", "1")

    def due(self, shard: str) -> Shard:
        self._asked("due")
        listed = [cluster for cluster in sorted(self._due) if self.shards[len(cluster) % 2] == shard]
        return Shard(
            resting={cluster: self._rests[cluster] for cluster in listed if cluster in self._rests},
            registrations=[(cluster, self._registration(cluster, self._due[cluster])) for cluster in listed],
        )

    def called(self, name: str) -> Sequence[str]:
        self._asked("called")
        return sorted(cluster for listed, cluster in self._names if listed == name)

    def registrations(self) -> Sequence[tuple[str, Registration | str]]:
        self._asked("registrations")
        return [
            (cluster, self._registration(cluster, items[META].text))
            for cluster, items in sorted(self._items.items())
            if META in items
        ]

    @staticmethod
    def _registration(cluster: str, text: str) -> Registration | str:
        return records.registration_of(cluster, Stored(text=text, version=None))

    def registered(self, cluster: str) -> Registered | None:
        self._asked("registered")
        return records.registered(cluster, self._items.get(cluster, {}))

    def save_record(self, record: ClusterRecord, control: ControlRecord, versions: Versions | None) -> None:
        self._write(META)
        meta, controls = records.record_entries(record, control, versions, self._now())
        self._put(record.id, meta, versions)
        self._items[record.id][CONTROL] = Stored(text=controls.text, version=controls.next_version)
        self._due[record.id] = meta.text
        self._rests.pop(record.id, None)
        self._names |= {(name, record.id) for name in record.listed_names}

    def remove_record(self, cluster: str, versions: Versions) -> None:
        self._write("remove")
        self._meta(cluster, versions)
        for sort_key in (META, CONTROL):
            self._items[cluster].pop(sort_key, None)
        self._due.pop(cluster, None)

    def save_group(self, cluster: str, key: GroupKey, state: GroupState, versions: Versions | None) -> None:
        self._save(cluster, f"GROUP#{key}", state, versions)

    def save_pool(self, cluster: str, pool: PoolId, state: PoolState, versions: Versions | None) -> None:
        self._save(cluster, f"POOL#{pool}", StoredPool.of(pool, state), versions)

    def save_zone(self, cluster: str, region: str, zone: str, record: ZoneRecord, versions: Versions | None) -> None:
        self._save(cluster, f"ZONE#{region}/{zone}", record, versions)

    def save_drill(self, cluster: str, drill: Drill, versions: Versions | None) -> None:
        self._save(cluster, records.DRILL, drill, versions)

    def save_scale_request(self, cluster: str, record: ScaleRequestRecord, versions: Versions | None) -> None:
        self._save(cluster, f"SCALE_REQUEST#{record.id}", record, versions)

    def save_event_check(self, cluster: str, record: EventCheckRecord, versions: Versions | None) -> None:
        self._save(cluster, EVENT_CHECK, record, versions)

    def save_timer(self, cluster: str, timer: Timer, versions: Versions | None) -> None:
        self._save(cluster, TIMER, timer, versions)

    def save_unreachable(self, cluster: str, unreachable: Unreachable, versions: Versions | None) -> None:
        self._save(cluster, UNREACHABLE, unreachable, versions)

    def save_cluster_health(self, cluster: str, cluster_health: ClusterHealth, versions: Versions | None) -> None:
        self._save(cluster, HEALTH, cluster_health, versions)

    def _save(self, cluster: str, sort_key: str, value: object, versions: Versions | None) -> None:
        self._write(sort_key)
        self._put(cluster, records.entry(sort_key, value, versions, self._now()), versions)

    def cluster_health(self, cluster: str) -> tuple[ClusterHealth, Versions]:
        self._asked("cluster_health")
        return records.cluster_health_of(cluster, self._items.get(cluster, {}).get(HEALTH))

    def cluster_healths(self) -> Mapping[str, ClusterHealth]:
        self._asked("cluster_healths")
        healths = {cluster: items[HEALTH] for cluster, items in self._items.items() if HEALTH in items}
        return {cluster: records.cluster_health_of(cluster, item)[0] for cluster, item in healths.items()}

    def save_rest(self, cluster: str, until: datetime | None, versions: Versions) -> None:
        self._write("rest")
        self._meta(cluster, versions)
        self._rests.pop(cluster, None)
        if until is not None:
            self._rests[cluster] = until

    def save_checked_at(self, clusters: Sequence[str], at: datetime, resting: Sequence[str] = ()) -> None:
        self._write(CHECK_TIMES)
        entry = records.check_times_entry(clusters, at, resting)
        checked_at = self._items.setdefault(CHECK_TIMES, {})
        checked_at[entry.sort_key] = Stored(text=entry.text, version=entry.next_version, expires=entry.expires)

    def checked_at(self) -> CheckTimes:
        self._asked("checked")
        return records.last_check_times(self._items.get(CHECK_TIMES, {}), self._time())

    def steady_clusters(self, clusters: Sequence[str]) -> Mapping[str, SteadyCluster]:
        self._asked("at rest")
        items = {cluster: self._items[cluster][META] for cluster in clusters if META in self._items.get(cluster, {})}
        found = {cluster: records.steady_clusters(cluster, item) for cluster, item in items.items()}
        return {cluster: rest for cluster, rest in found.items() if rest is not None}

    def save_steady(self, cluster: str, steady: SteadyState, versions: Versions) -> None:
        self._write("steady")
        self._items[cluster][META] = replace(self._meta(cluster, versions), steady=dump_stored(steady))

    def _meta(self, cluster: str, versions: Versions) -> Stored:
        item = self._items.get(cluster, {}).get(META)
        if item is None or item.version != versions.get(META):
            raise StateConflictError(_STALE)
        return item

    def _now(self) -> datetime:
        return self._clock.now() if self._clock else NOW

    def _time(self) -> datetime:
        """Return the time for expiry. Without a clock, no item expires."""
        return self._clock.now() if self._clock else NEVER

    def _put(self, cluster: str, entry: Entry, versions: Versions | None) -> None:
        items = self._items.setdefault(cluster, {})
        there = items.get(entry.sort_key)
        if (there.version if there else None) != entry.version:
            raise StateConflictError(_STALE)
        items[entry.sort_key] = Stored(text=entry.text, version=entry.next_version, expires=entry.expires)
        entry.note(versions)

    def forget(self, cluster: str, expired: str, versions: Versions) -> None:
        self._write(expired)
        item = self._items.get(cluster, {}).get(expired)
        if item is None or item.version != versions[expired]:
            raise StateConflictError(_STALE)
        del self._items[cluster][expired]

    def take_lease(
        self, cluster: str, owner: str, seen_token: int, now: datetime, expires: datetime, writes: Collection[str] = ()
    ) -> Lease:
        self._write("LEASE")
        held = self._leases.get(cluster)
        if held is not None and held.expires > now:
            raise LeaseHeldError(f"cluster {cluster!r} is being written by another run")
        if (held.fencing_token if held else seen_token) != seen_token:
            raise StateConflictError(_STALE)
        lease = Lease(owner=owner, fencing_token=seen_token + 1, expires=expires)
        self._leases[cluster], self._unfinished[cluster] = lease, tuple(sorted(writes))
        return lease

    def give_back_lease(self, cluster: str, lease: Lease, now: datetime, unfinished: Collection[str] = ()) -> None:
        self._asked("give_back_lease")
        if self._leases.get(cluster) == lease:
            self._leases[cluster], self._unfinished[cluster] = replace(lease, expires=now), tuple(sorted(unfinished))

    def unfinished(self, cluster: str) -> Sequence[str]:
        return self._unfinished.get(cluster, ())

    def save_decision(self, cluster: str, ulid: str, decision: Mapping[str, Any], expires: datetime) -> None:
        self._write("DECISION")
        decisions = self._decisions.setdefault(cluster, {})
        if ulid in decisions:
            raise StateConflictError(_STALE)
        decisions[ulid] = expires, dict(fit(decision))

    def decisions_after(self, cluster: str, ulid: str) -> tuple[Sequence[Mapping[str, Any]], bool]:
        self._asked("decisions")
        later = [decision for id, decision in self._reported(cluster) if id > ulid]
        return later[: self.page], len(later) > self.page

    def decisions(self, cluster: str, limit: int) -> Sequence[Mapping[str, Any]]:
        self._asked("decisions")
        return [decision for _, decision in reversed(self._reported(cluster))][:limit]

    def _reported(self, cluster: str) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the decisions that have not expired, oldest first."""
        decisions = sorted(self._decisions.get(cluster, {}).items())
        return [(id, decision) for id, (expires, decision) in decisions if expires > self._time()]

    def _asked(self, what: str) -> None:
        self.calls += 1
        if self.away_from is not None and self.calls > self.away_from:
            self.journal.note("no answer")
            raise StateUnavailableError("table: no answer")
        self.journal.note(what)

    def _write(self, sort_key: str) -> None:
        for hook in list(self.before_write):
            self.before_write.remove(hook)
            hook(sort_key)
        self._asked(f"save {sort_key.partition('#')[0]}")


class FakeCluster:
    """A cluster's groups; a patch to one that has changed since the check is a conflict, as with a resourceVersion."""

    def __init__(self, groups: Sequence[NodeGroup], journal: Journal | None = None) -> None:
        self.others: Mapping[type[Any], Others] = {}
        self.journal = journal or Journal()
        self.groups = {group.key: group for group in groups}
        self.applied: list[Patch] = []
        self.reported: list[tuple[str, str]] = []
        self.reported_dry = 0
        self.quote: list[tuple[str, str]] = []
        self.takes_status = True
        self.marked: list[Patch] = []
        self.unmarked: list[tuple[GroupKey, tuple[str, ...]]] = []
        self.checks = 0
        self.unreadable: Exception | None = None
        self.ids: dict[str, str] = {}  # of zones
        self.rights_missing: list[str] = []  # rights that the identity of checks lacks
        #: called with each patch before its write; an error that it raises is the API's answer
        self.before_apply: Callable[[Patch], None] = lambda patch: None
        self._versions = dict.fromkeys(self.groups, 1)
        self._seen: dict[GroupKey, int] = {}

    def change(self, key: GroupKey, **fields: Any) -> None:
        """Change a group as another writer."""
        self.groups[key] = replace(self.groups[key], **fields)
        self._versions[key] += 1

    def observe(self, reads_machines: Collection[GroupKey] = (), known: Collection[str] = ()) -> Observation:
        self.journal.note("observe")
        self.checks += 1
        if self.unreadable is not None:
            raise self.unreadable
        self._seen = dict(self._versions)
        return Observation(groups=tuple(self.groups.values()))

    def seen(self) -> Mapping[str, str]:
        return {"fake": repr(list(self.groups.values()))}

    def shows(self, seen: Mapping[str, str]) -> bool:
        self.journal.note("quick check")
        if self.unreadable is not None:
            raise self.unreadable
        return seen == self.seen()

    def nodes(self) -> Mapping[str, MachineNode]:
        self.journal.note("nodes")
        return {}

    def turn_of(self, key: GroupKey) -> str:
        return str(key)

    def deletion_candidates(self, patch: Patch) -> tuple[str, ...]:
        if patch.plan.removal.machines:
            return tuple(machine.name for machine in patch.plan.removal.machines)
        return deletion_candidates(
            self.groups[patch.plan.group.key].machines or (),
            patch.requested or 0,
            may_remove_running=patch.plan.removal.may_remove_running,
            keeps=patch.plan.removal.keeps,
            provision_timeout=PROVISION_TIMEOUT,
            now=NOW,
        )

    def mark(self, patch: Patch, names: Collection[str], ours: Collection[str]) -> None:
        self.journal.note("mark")
        self.marked.append(patch)

    def unmark(self, group: NodeGroup, names: Collection[str], doubted: Collection[str] | None) -> MarksLeft | None:
        self.journal.note("unmark")
        self.unmarked.append((group.key, tuple(names)))
        if group.machines is None:  # a real cluster would list them
            return None
        return marks_left(group.machines, group.requested, names, doubted)

    def write_pool_maximum(self, key: GroupKey, maximum: int) -> None:
        self._write(key, "write pool-max", pool_max=maximum)

    def write_owner_numbers(self, key: GroupKey, bounds: Bounds) -> None:
        owner = self.groups[key].owner.numbers
        self._write(key, "write owner", bounds=bounds, owner=replace(owner, bounds=bounds))

    def _write(self, key: GroupKey, what: str, **fields: Any) -> None:
        if self._versions[key] != self._seen[key]:
            raise ConflictError(f"{key} has been modified")
        self.journal.note(what)
        self.change(key, **fields)
        self._seen[key] = self._versions[key]

    def unfinished(self, begun: Collection[str]) -> Collection[str]:
        return ()

    def show_status(self, place: str, text: str) -> bool:
        self.journal.note("show status")
        self.quote.append((place, text))
        return self.takes_status

    def emit_event(self, plan: GroupPlan, decision: str, *, dry_run: bool) -> None:
        self.reported.append((str(plan.group.key), decision))
        self.reported_dry += dry_run

    def confirm(self, groups: Collection[GroupKey]) -> None:
        pass

    def apply(self, patch: Patch, decision: str, adopted: str, move: str | None = None) -> None:
        self.before_apply(patch)
        key = patch.plan.group.key
        before = self.groups[key]
        new_adopted = {} if before.ours.has_adopted else {"adopted": read_adopted(adopted), "has_adopted": True}
        alone = patch.bounds is None and (before.owner.two_objects or patch.requested is None)
        self._write(
            key,
            "apply",
            requested=before.requested if patch.requested is None else patch.requested,
            pinned=before.ours.pinned if patch.bounds is None else patch.pins,
            bounds=patch.bounds or before.bounds,
            owner=_holding(before, patch.bounds),
            published=before.ours.published if alone else read_published(decision),
            move=move or before.ours.move,
            **(new_adopted if patch.bounds is not None else {}),
        )
        self.applied.append(patch)
        if patch.leaves:
            self.change(key, published=None, adopted=None, has_adopted=False, move=None)
            self._seen[key] = self._versions[key]


def _holding(group: NodeGroup, bounds: Bounds | None) -> OwnerNumbers | None:
    """Return the owner with Evenkeel's bounds, if it accepts them."""
    numbers = group.owner.numbers
    return replace(numbers, bounds=bounds) if numbers and numbers.takes_ours and bounds is not None else numbers


def _or_raise(value: _T | Exception) -> _T:
    if isinstance(value, Exception):
        raise value
    return value


@dataclass
class FakeClusters:
    """Opens the given clusters. An exception instead of a cluster is raised."""

    by_id: dict[str, FakeCluster | Exception]
    to_renew: set[str] = field(default_factory=set)
    workloads: dict[str, "FakeWorkload | Exception"] = field(default_factory=dict)
    seconds_for_workload: float | None = None  # seconds left when one was last opened

    def open(
        self, record: ClusterRecord, remaining: Remaining, *, consistent: bool = True, alone: bool = True
    ) -> FakeCluster:
        return _or_raise(self.by_id[record.id])

    def open_workload(self, record: ClusterRecord, remaining: Remaining, *, alone: bool = True) -> "FakeWorkload":
        self.seconds_for_workload = remaining()
        return _or_raise(self.workloads[record.id])

    def zone_ids(self, record: ClusterRecord, remaining: Remaining) -> Mapping[str, str]:
        found = self.open(record, remaining)
        found.observe()
        return found.ids

    def refused(self, record: ClusterRecord, remaining: Remaining, *, writes: bool) -> Sequence[str]:
        found = self.open(record, remaining)
        found.journal.note(f"rights to {'write' if writes else 'check'}")
        if found.unreadable is not None:
            raise found.unreadable
        return found.rights_missing

    def autoscaler_at(self, record: ClusterRecord, remaining: Remaining) -> datetime | None:
        if record.id not in self.workloads:
            return None
        return _or_raise(self.open_workload(record, remaining).found).autoscaler_at

    def needs_run(self, record: ClusterRecord) -> bool:
        return record.id in self.to_renew


@dataclass
class FakeWorkload:
    """A workload cluster's pods and nodes. An exception instead of them is raised."""

    found: Workload | Exception
    reads: list[bool] = field(default_factory=list)  # each, and whether unneeded nodes were searched for

    def read(self, machines: Callable[[], Mapping[str, MachineNode]], *, judges_nodes: bool) -> Workload:
        self.reads.append(judges_nodes)
        found = _or_raise(self.found)
        machines()
        return replace(found, whole=judges_nodes)


@dataclass
class FakeQueue:
    """The requests of a queue. One with a known deduplication id is dropped, as within SQS's five minutes."""

    requests: dict[str, tuple[str, str]] = field(default_factory=dict)
    found: dict[str, CheckResult | None] = field(default_factory=dict)  # the check's result in each request
    steady: dict[str, SteadyState | None] = field(default_factory=dict)  # the steady state in each request
    second_checks: list[tuple[str, str, int]] = field(default_factory=list)
    checks: list[Chunk] = field(default_factory=list)
    broken: Exception | None = None

    @property
    def clusters(self) -> list[str]:
        return [cluster for cluster, _ in self.requests.values()]

    def request(
        self,
        cluster: str,
        reason: str,
        deduplication: str,
        found: CheckResult | None = None,
        steady: SteadyState | None = None,
    ) -> None:
        if self.broken is not None:
            raise self.broken
        self.requests.setdefault(deduplication, (cluster, reason))
        self.found.setdefault(deduplication, found)
        self.steady.setdefault(deduplication, steady)

    def request_checks(self, chunks: Sequence[Chunk]) -> None:
        if self.broken is not None:
            raise self.broken
        self.checks += chunks

    def check_again(self, cluster: str, reason: str, seconds: int) -> None:
        if self.broken is not None:
            raise self.broken
        self.second_checks.append((cluster, reason, seconds))


@dataclass
class FakeBus:
    """A bus that keeps its events."""

    published: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    away: bool = False

    def publish(self, detail_type: str, detail: Mapping[str, Any]) -> bool:
        if not self.away:
            self.published.append((detail_type, dict(detail)))
        return not self.away

    @property
    def types(self) -> list[str]:
        return [detail_type for detail_type, _ in self.published]
