"""The application's ports in memory. The store passes the same tests as the table (integration/test_store.py)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from evenkeel.application.errors import (
    ConflictError,
    LeaseHeldError,
    StateConflictError,
    StateUnavailableError,
    UnknownClusterError,
)
from evenkeel.application.ports import Lease, Remaining, Remembered
from evenkeel.config import ClusterRecord, ConfigError, GroupRecord, GrowthRecord, ZoneRecord, read_json
from evenkeel.domain.backoff import GroupState
from evenkeel.domain.looks import Timer
from evenkeel.domain.model import GroupKey, NodeGroup, Observation, PoolId
from evenkeel.domain.offer import read_adopted, read_offer
from evenkeel.domain.plan import ClusterState, GroupPlan
from evenkeel.domain.pools import PoolState
from evenkeel.domain.writes import Patch

NOW = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
NEVER = datetime.min.replace(tzinfo=UTC)


def plenty() -> float:
    """An invocation with all its time left, in seconds."""
    return 60.0


def record(cluster: str = "demo", **fields: Any) -> ClusterRecord:
    """A registered cluster that is really written; further fields as in the record."""
    given = {"flavours": ["cluster-api"], "access": {"kind": "kubeconfig", "secret": "evenkeel/demo"}, "dry_run": False}
    return ClusterRecord.model_validate({"id": cluster, **given, **fields})


@dataclass
class Journal:
    """What the fakes were asked, in order, across all of them: ("load", ...), ("apply", ...)."""

    entries: list[str] = field(default_factory=list)

    def note(self, what: str) -> None:
        self.entries.append(what)

    def count(self, what: str) -> int:
        return sum(entry == what for entry in self.entries)


@dataclass
class FakeClock:
    """Stands still, unless somebody sleeps."""

    at: datetime = NOW
    slept: list[float] = field(default_factory=list)

    def now(self) -> datetime:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += timedelta(seconds=seconds)


class InMemoryStore:
    """The table, as a dictionary. ``away_from`` is the number of the first call that gets no answer any more."""

    def __init__(self, journal: Journal | None = None) -> None:
        self.journal = journal or Journal()
        self.away_from: int | None = None
        self.page = 100  # decisions that one answer holds
        self.calls = 0
        self.before_write: list[Callable[[str], None]] = []  # called once each, with the sort key, before a write
        self._records: dict[str, tuple[int, str]] = {}
        self._groups: dict[str, dict[GroupKey, tuple[int, GroupState]]] = {}
        self._pools: dict[str, dict[PoolId, tuple[int, PoolState]]] = {}
        self._zones: dict[str, dict[str, tuple[int, ZoneRecord]]] = {}
        self._growths: dict[str, dict[str, tuple[int, GrowthRecord]]] = {}
        self._timers: dict[str, tuple[int, Timer]] = {}
        self._leases: dict[str, Lease] = {}
        self._decisions: dict[str, dict[str, Mapping[str, Any]]] = {}

    def plant(self, cluster: str, text: str) -> None:
        """A record as somebody else wrote it, readable or not."""
        version = self._records.get(cluster, (0, ""))[0]
        self._records[cluster] = (version + 1, text)

    def load(self, cluster: str) -> Remembered:
        self._asked("load")
        if cluster not in self._records:
            raise UnknownClusterError(f"cluster {cluster!r} is not registered")
        version, text = self._records[cluster]
        groups, pools = self._groups.get(cluster, {}), self._pools.get(cluster, {})
        versions = {f"GROUP#{key}": number for key, (number, _) in groups.items()}
        versions |= {f"POOL#{pool}": number for pool, (number, _) in pools.items()}
        zones = self._zones.get(cluster, {})
        versions |= {f"ZONE#{where}": number for where, (number, _) in zones.items()}
        growths = self._growths.get(cluster, {})
        versions |= {f"GROWTH#{id}": number for id, (number, _) in growths.items()}
        told = sorted(
            zones.items(), key=lambda item: item[1][1].said_at or NEVER
        )  # the newest word about a zone counts
        by_name = {where.rpartition("/")[2]: record for where, (_, record) in told}
        lease = self._leases.get(cluster)
        timer = self._timers.get(cluster)
        if timer is not None:
            versions["LOOK"] = timer[0]
        return Remembered(
            record=read_json(ClusterRecord, text, f"record of cluster {cluster}"),
            state=ClusterState(
                groups={key: state for key, (_, state) in groups.items()},
                pools={pool: state for pool, (_, state) in pools.items()},
                zones={zone: record.impaired_until for zone, record in by_name.items()},
                growths=tuple(growth.growth() for _, growth in growths.values() if not growth.done),
            ),
            zones=by_name,
            growths={id: growth for id, (_, growth) in growths.items()},
            versions={"META": version, **versions},
            fence=lease.fence if lease else 0,
            timer=timer[1] if timer else None,
        )

    def due(self) -> Sequence[tuple[str, ClusterRecord | str]]:
        self._asked("due")
        found: list[tuple[str, ClusterRecord | str]] = []
        for cluster, (_, text) in sorted(self._records.items()):
            try:
                found.append((cluster, read_json(ClusterRecord, text, f"record of cluster {cluster}")))
            except ConfigError as error:
                found.append((cluster, str(error)))
        return found

    def record_version(self, cluster: str) -> int | None:
        self._asked("record_version")
        return self._records[cluster][0] if cluster in self._records else None

    def save_record(self, record: ClusterRecord, version: int | None) -> None:
        self._write("META")
        stored = self._records.get(record.id)
        self._records[record.id] = (self._next(stored, version), record.model_dump_json(exclude_none=True))

    def save_group(self, cluster: str, key: GroupKey, state: GroupState, version: int | None) -> None:
        self._write(f"GROUP#{key}")
        kept = GroupRecord.of(state).state()  # what cannot be stored must fail here as well
        groups = self._groups.setdefault(cluster, {})
        groups[key] = (self._next(groups.get(key), version), kept)

    def save_pool(self, cluster: str, pool: PoolId, state: PoolState, version: int | None) -> None:
        self._write(f"POOL#{pool}")
        pools = self._pools.setdefault(cluster, {})
        pools[pool] = (self._next(pools.get(pool), version), replace(state, adopted=dict(state.adopted)))

    def save_zone(self, cluster: str, region: str, zone: str, record: ZoneRecord, version: int | None) -> None:
        self._write(f"ZONE#{region}/{zone}")
        zones = self._zones.setdefault(cluster, {})
        where = f"{region}/{zone}"
        zones[where] = (self._next(zones.get(where), version), record)

    def save_growth(self, cluster: str, record: GrowthRecord, version: int | None) -> None:
        self._write(f"GROWTH#{record.id}")
        growths = self._growths.setdefault(cluster, {})
        growths[record.id] = (self._next(growths.get(record.id), version), record)

    def save_timer(self, cluster: str, timer: Timer, version: int | None) -> None:
        self._write("LOOK")
        self._timers[cluster] = (self._next(self._timers.get(cluster), version), timer)

    def take_lease(self, cluster: str, owner: str, seen_fence: int, now: datetime, expires: datetime) -> Lease:
        self._write("LEASE")
        held = self._leases.get(cluster)
        if held is not None and held.expires > now:
            raise LeaseHeldError(f"cluster {cluster!r} is being written by another run")
        if (held.fence if held else seen_fence) != seen_fence:
            raise StateConflictError("the record has been written since it was read")
        lease = Lease(owner=owner, fence=seen_fence + 1, expires=expires)
        self._leases[cluster] = lease
        return lease

    def give_back_lease(self, cluster: str, lease: Lease, now: datetime) -> None:
        self._asked("give_back_lease")
        if self._leases.get(cluster) == lease:
            self._leases[cluster] = replace(lease, expires=now)

    def save_decision(self, cluster: str, ulid: str, decision: Mapping[str, Any], expires: datetime) -> None:
        self._write("DECISION")
        decisions = self._decisions.setdefault(cluster, {})
        if ulid in decisions:
            raise StateConflictError("the record has been written since it was read")
        decisions[ulid] = dict(decision)

    def decisions_after(self, cluster: str, ulid: str) -> tuple[Sequence[Mapping[str, Any]], bool]:
        self._asked("decisions")
        found = self._decisions.get(cluster, {})
        later = sorted(id for id in found if id > ulid)
        return [found[id] for id in later[: self.page]], len(later) > self.page

    def decisions(self, cluster: str, limit: int) -> Sequence[Mapping[str, Any]]:
        self._asked("decisions")
        found = self._decisions.get(cluster, {})
        return [found[ulid] for ulid in sorted(found, reverse=True)[:limit]]

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

    @staticmethod
    def _next(stored: tuple[int, Any] | None, version: int | None) -> int:
        if (stored[0] if stored else None) != version:
            raise StateConflictError("the record has been written since it was read")
        return (version or 0) + 1


class FakeCluster:
    """A cluster's groups; a patch to one that has changed since the look is a conflict, as with a resourceVersion."""

    def __init__(self, groups: Sequence[NodeGroup], journal: Journal | None = None) -> None:
        self.journal = journal or Journal()
        self.groups = {group.key: group for group in groups}
        self.applied: list[Patch] = []
        self.told: list[tuple[str, str]] = []
        self.marked: list[Patch] = []
        self.unmarked: list[tuple[GroupKey, tuple[str, ...]]] = []
        self.looks = 0
        self.unreadable: Exception | None = None
        #: called before each write, with the patch; what it raises is what the API answers
        self.before_apply: Callable[[Patch], None] = lambda patch: None
        self._versions = dict.fromkeys(self.groups, 1)
        self._seen: dict[GroupKey, int] = {}

    def change(self, key: GroupKey, **fields: Any) -> None:
        """Somebody else writes a group."""
        self.groups[key] = replace(self.groups[key], **fields)
        self._versions[key] += 1

    def observe(self, closely: Collection[GroupKey] = ()) -> Observation:
        self.journal.note("observe")
        self.looks += 1
        if self.unreadable is not None:
            raise self.unreadable
        self._seen = dict(self._versions)
        return Observation(groups=tuple(self.groups.values()))

    def object_of(self, key: GroupKey) -> str:
        return str(key)

    def going(self, patch: Patch) -> tuple[str, ...]:
        staying = [machine for machine in self.groups[patch.plan.group.key].machines or () if not machine.deleting]
        order = sorted(staying, key=lambda machine: (machine.has_node, machine.ready))
        going = max(0, len(staying) - (patch.requested or 0))
        return tuple(machine.name for machine in order[:going] if patch.plan.gives_back or not machine.has_node)

    def mark(self, patch: Patch, names: Collection[str], ours: Collection[str]) -> None:
        self.journal.note("mark")
        self.marked.append(patch)

    def unmark(self, group: NodeGroup, names: Collection[str]) -> bool:
        self.journal.note("unmark")
        self.unmarked.append((group.key, tuple(names)))
        return len([machine for machine in group.machines or () if not machine.deleting]) <= group.requested

    def write_pool_maximum(self, key: GroupKey, maximum: int) -> None:
        if self._versions[key] != self._seen[key]:
            raise ConflictError(f"{key} has been modified")
        self.journal.note("write pool-max")
        self.change(key, pool_max=maximum)
        self._seen[key] = self._versions[key]

    def tell(self, plan: GroupPlan, decision: str) -> None:
        self.told.append((str(plan.group.key), decision))

    def apply(self, patch: Patch, decision: str, adopted: str, move: str | None = None) -> None:
        self.before_apply(patch)
        key = patch.plan.group.key
        if self._versions[key] != self._seen[key]:
            raise ConflictError(f"{key} has been modified")
        self.journal.note("apply")
        self.applied.append(patch)
        before = self.groups[key]
        new_adopted = {} if before.has_adopted else {"adopted": read_adopted(adopted), "has_adopted": True}
        self.change(
            key,
            requested=before.requested if patch.requested is None else patch.requested,
            bounds=patch.bounds or before.bounds,
            offer=read_offer(decision),
            move=move or before.move,
            **(new_adopted if patch.bounds is not None else {}),
        )
        self._seen[key] = self._versions[key]


@dataclass
class FakeClusters:
    """Opens the clusters it was given; an exception in the place of one is raised."""

    by_id: dict[str, FakeCluster | Exception]

    def open(self, record: ClusterRecord, remaining: Remaining) -> FakeCluster:
        found = self.by_id[record.id]
        if isinstance(found, Exception):
            raise found
        return found


@dataclass
class FakeQueue:
    """What was asked for. Requests with a deduplication id that is known are one, as within SQS's five minutes."""

    requests: dict[str, tuple[str, str]] = field(default_factory=dict)
    second_looks: list[tuple[str, str, int]] = field(default_factory=list)
    broken: Exception | None = None

    @property
    def clusters(self) -> list[str]:
        return [cluster for cluster, _ in self.requests.values()]

    def request(self, cluster: str, reason: str, deduplication: str) -> None:
        if self.broken is not None:
            raise self.broken
        self.requests.setdefault(deduplication, (cluster, reason))

    def look_again(self, cluster: str, reason: str, seconds: int) -> None:
        if self.broken is not None:
            raise self.broken
        self.second_looks.append((cluster, reason, seconds))


@dataclass
class FakeBus:
    """What was published."""

    published: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def publish(self, detail_type: str, detail: Mapping[str, Any]) -> None:
        self.published.append((detail_type, dict(detail)))

    @property
    def types(self) -> list[str]:
        return [detail_type for detail_type, _ in self.published]
