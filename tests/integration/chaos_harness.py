"""Two clusters and the real handlers with simulated time, queues and table. Promises are checked throughout."""

from __future__ import annotations

import importlib.util
import io
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

from evenkeel.adapters.aws.batches import Inbox
from evenkeel.adapters.aws.inbound import read_event
from evenkeel.adapters.aws.queues import TRIES
from evenkeel.adapters.aws.records import CHECK_TIMES, HEALTH, TIMER, UNREACHABLE
from evenkeel.adapters.codec import dump_plain, pack
from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters
from evenkeel.adapters.kubernetes.cluster import KubernetesCluster
from evenkeel.adapters.own_annotations import ADOPTED, DECISION, MOVE
from evenkeel.application.actions.ports import ActionStore
from evenkeel.application.errors import LeaseHeldError, QueueUnavailableError, StateUnavailableError
from evenkeel.application.fleet.ports import DueStore
from evenkeel.application.fleet.scan import Scan
from evenkeel.application.operate import Operate
from evenkeel.application.ports import CheckResult, Remaining, StoredCluster, Versions, sequentially
from evenkeel.application.rebalancing.check import CheckClusters
from evenkeel.application.rebalancing.events import ReceiveEvent, ZoneShift
from evenkeel.application.rebalancing.failure import RecordFailure
from evenkeel.application.rebalancing.ports import CheckStore, RunStore
from evenkeel.application.rebalancing.rebalance import Rebalance
from evenkeel.application.rebalancing.request_scale import RequestScale
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.application.rebalancing.zones import LONGEST, OPERATOR, RecordZoneShift
from evenkeel.domain.fleet.check_times import SECOND_CHECKS, Chunk, SteadyState
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.moves import Move
from evenkeel.domain.model.states import GroupState, PoolState
from evenkeel.domain.rebalancing.writes import is_complete
from evenkeel.record import ClusterRecord, ControlRecord
from evenkeel.state_records import ScaleRequestRecord, ZoneRecord
from evenkeel_cli.simulation.autoscaler_model import Flags
from sandbox.kube import world
from sandbox.kube.api import Request
from sandbox.kube.controllers.gardener import GardenerControllers
from sandbox.kube.controllers.machine_controller import Timing
from sandbox.kube.schema import Object
from sandbox.kube.world import ZONES, Pool, World
from sandbox.template import ROOT
from sandbox.triggers import LambdaContext
from tests.cluster_objects import ClusterObjects
from tests.crashing import KilledError, Lives, Mortal
from tests.fakes import FakeBus, FakeClock, InMemoryStore
from tests.timed import worker

MINIMUM, MAXIMUM = 3, 9
#: seconds of an invocation, and of the lease
SECONDS = 60
_VISIBILITY = timedelta(seconds=90)  # less than the template's: a dead worker's message is taken over sooner
_DEDUPLICATED = timedelta(minutes=5)
_OURS = "evenkeel"
_FUNCTIONS = ("scan", "check", "provisioning_failure", "rebalance", "admin")
_SQS_RECORD = json.loads((ROOT / "events" / "rebalance.json").read_text(encoding="utf-8"))["Records"][0]
PAUSED = "cluster.x-k8s.io/paused"
_DELETE_MARK = "cluster.x-k8s.io/delete-machine"
#: AWS's zone ids -> zones
ZONE_IDS = {f"euc1-az{number}": zone for number, zone in enumerate(ZONES, 1)}


_STORE_PORT = frozenset(
    name
    for store in (ActionStore, RunStore, CheckStore, DueStore)
    for port in store.__mro__
    for name in vars(port)
    if not name.startswith("_")
)
_API_CALLS = frozenset({"list_all", "patch", "create"})
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class WatchedStore(InMemoryStore):
    """A store that reports shortened backoffs and counts writes."""

    def __init__(self, harness: ChaosHarness) -> None:
        super().__init__()
        self.writes = self.words = 0  # words: writes of timers, unreachability and health
        self.away = False
        self._harness = harness
        self._read: dict[str, tuple[object, StoredCluster]] = {}

    def save_group(self, cluster: str, key: GroupKey, state: GroupState, versions: Versions | None) -> None:
        before = self.stored(cluster).state.groups.get(key)
        super().save_group(cluster, key, state, versions)
        known = before.failure.backoff_until if before else None
        if known is not None and (state.failure.backoff_until is None or state.failure.backoff_until < known):
            self._harness.broken.append(f"{key}: backoff_until went from {known} back to {state.failure.backoff_until}")

    def save_pool(self, cluster: str, pool: PoolId, state: PoolState, versions: Versions | None) -> None:
        stored = self.stored(cluster)
        before = stored.state.pools.get(pool)
        super().save_pool(cluster, pool, state, versions)
        written = self._harness.clusters[cluster]
        for key in set(state.adopted) - set(before.adopted if before else ()):
            written.adopted(key.rpartition("/")[2])
        move = before.move if before else None
        if state.move is not None and state.move.request and (move is None or move.id != state.move.id):
            written.grows(state.move, move)
        if move is not None and move.request and (state.move is None or state.move.request != move.request):
            written.grown(move, stored.scale_requests[move.request])

    def stored(self, cluster: str) -> StoredCluster:
        """Return the stored cluster, cached until it changes. Reading it is no step of a worker."""
        lease = self._leases.get(cluster)
        found = (dict(self._items.get(cluster, {})), lease.fencing_token if lease else 0)
        known = self._read.get(cluster)
        if known is None or known[0] != found:
            self._read[cluster] = known = (found, self._remembered(cluster))
        return known[1]

    def growing(self, cluster: str) -> bool:
        """Return True if requested nodes are being added."""
        return any(state.move is not None and state.move.request for state in self._pools(cluster))

    def open_requests(self, cluster: str) -> list[str]:
        """Return ids of the open requests for nodes."""
        return [id for id, record in self.stored(cluster).scale_requests.items() if not record.done]

    def contested(self, cluster: str) -> set[str]:
        """Return names of the groups that Evenkeel no longer writes."""
        groups = self.stored(cluster).state.groups
        return {key.name for key, state in groups.items() if state.contest.contested_since is not None}

    def statement_about(self, cluster: str, zone: str) -> ZoneRecord | None:
        return self.stored(cluster).zones.get(zone)

    def still_unplaced(self, cluster: str, done: Callable[[str], str | None]) -> int:
        """Return the nodes that open moves still have to place. `done` returns the move in a group's annotation."""
        total = 0
        for state in self._pools(cluster):
            if state.move is not None:
                total += state.move.unplaced
                total -= sum(more for key, more in state.move.steps.items() if done(key) == state.move.id)
        return total

    def _pools(self, cluster: str) -> Collection[PoolState]:
        return self.stored(cluster).state.pools.values() if cluster in self._items else ()

    def lease_ends(self, cluster: str) -> datetime | None:
        lease = self._leases.get(cluster)
        return lease.expires if lease else None

    def _write(self, sort_key: str) -> None:
        super()._write(sort_key)
        # A steady state and the times of checks are also stored for quiet clusters.
        self.writes += sort_key not in ("steady", CHECK_TIMES)
        self.words += sort_key in (TIMER, UNREACHABLE, HEALTH)

    def _asked(self, what: str) -> None:
        if self.away:
            raise StateUnavailableError("table: no answer")
        super()._asked(what)


@dataclass
class Message:
    """A message in a queue."""

    cluster: str
    body: str
    id: str
    visible_at: datetime
    receives: int = 0


class Queues:
    """The queues as in SQS: one message group per cluster, five minutes of deduplication, delays."""

    def __init__(self, clock: FakeClock) -> None:
        self.rebalance: list[Message] = []
        self.checks: list[Message] = []
        self.dead: list[tuple[str, str]] = []
        self.away = False
        self.asked: Counter[str] = Counter()  # requests per cluster, with duplicates
        self.asked_again: Counter[str] = Counter()  # second checks
        self._clock = clock
        self._seen: dict[str, datetime] = {}
        self._ids = itertools.count()

    def request(
        self,
        cluster: str,
        reason: str,
        deduplication: str,
        found: CheckResult | None = None,
        steady: SteadyState | None = None,
    ) -> None:
        self._answers()
        now = self._clock.now()
        self.asked[cluster] += 1
        if deduplication in self._seen and now < self._seen[deduplication] + _DEDUPLICATED:
            return
        self._seen[deduplication] = now
        body = {"cluster": cluster, "reason": reason[:200]} | ({"found": found} if found else {})
        if steady is not None:
            body["steady"] = dump_plain(steady)
        self.rebalance.append(self._message(cluster, body, now))

    def check_again(self, cluster: str, reason: str, seconds: int) -> None:
        self._answers()
        self.asked_again[cluster] += 1
        body, due = {"cluster": cluster, "reason": reason}, self._clock.now() + timedelta(seconds=seconds)
        self.checks.append(self._message(cluster, body, due))

    def request_checks(self, chunks: Sequence[Chunk]) -> None:
        self._answers()
        for chunk in chunks:
            due = self._clock.now() + timedelta(seconds=chunk.delay)
            self.checks.append(self._message(chunk.clusters[0], {"clusters": chunk.clusters}, due))

    def try_soon(self, receipt_handle: str, receives: int) -> None:
        for message in self.rebalance:
            if message.id == receipt_handle and not self.away:
                message.visible_at = self._clock.now() + timedelta(seconds=min(80, 5 * 4 ** (receives - 1)))

    def dead_letter(self, body: str, reason: str) -> None:
        self._answers()
        self.dead.append((body, reason))

    def _answers(self) -> None:
        if self.away:
            raise QueueUnavailableError("queue: no answer")

    def _message(self, cluster: str, body: Mapping[str, Any], visible_at: datetime) -> Message:
        return Message(cluster=cluster, body=json.dumps(body), id=f"message-{next(self._ids)}", visible_at=visible_at)


@dataclass(frozen=True)
class Group:
    """A node group as in its API server."""

    name: str
    zone: str
    requested: int
    running: tuple[str, ...]  # names of the machines that have a node and are not being deleted
    bounds: tuple[int, int] | None  # of the object that owns them; None where they cannot be read
    move: str | None
    frozen: bool
    contested: bool
    ours: bool  # it has an annotation of Evenkeel
    has_adopted: bool  # it has the annotation that Evenkeel writes with bounds
    body: str


class ClusterUnderTest(ClusterObjects):
    """One cluster: its objects, and the changes of other writers."""

    def __init__(self, harness: ChaosHarness, name: str, cluster: world.Cluster, *, moving: bool) -> None:
        super().__init__(cluster)
        self.harness, self.name, self.moving = harness, name, moving
        self.autoscaler = cluster.autoscaler
        self.maximum = MAXIMUM
        self.lowest_maximum = MAXIMUM  # since the ledger was last compared
        self.ledger = self.requested
        self.touched = False  # another writer wrote since the last check
        self.down = False
        self.patches = 0
        self.rewritten = 0  # patches that changed a group
        self.floor = 1 if name == "openshift" else 0  # least max that is accepted
        self.original: dict[str, tuple[int, int] | None] = {}  # bounds before Evenkeel
        self.asked: Counter[str] = Counter()  # nodes, by request
        self.begun: Counter[str] = Counter()
        self.statements: dict[tuple[str, str], datetime] = {}  # time of a source's newest statement about a zone
        self._before: dict[str, Group] = {}
        cluster.api.before.append(self._before_request)
        cluster.api.after.append(self._after_request)

    # ------------------------------------------------------------ reading
    def groups(self) -> list[Group]:
        label = self.machine_api.machines.labels[self.machine_api.scalables[0].kind]
        running: dict[str, list[str]] = {}
        for name, machine in self.machines().items():
            if "deletionTimestamp" not in machine["metadata"] and self.controllers.has_node(machine):
                running.setdefault(machine["metadata"]["labels"][label], []).append(name)
        contested = self.harness.store.contested(self.name)
        groups, items = [], self.items()
        owners = self.owners(items)
        for zone, item in items.items():
            name, annotations = item["metadata"]["name"], item["metadata"].get("annotations") or {}
            with_owners = {**annotations, **self.annotations(zone, owners[zone])}
            groups.append(
                Group(
                    name=name,
                    zone=zone,
                    requested=item["spec"].get("replicas", 0),
                    running=tuple(running.get(name, ())),
                    bounds=self._readable_bounds(zone, owners[zone]),
                    move=annotations.get(MOVE),
                    frozen=PAUSED in annotations,
                    contested=name in contested,
                    ours=not {ADOPTED, DECISION, MOVE}.isdisjoint(with_owners),
                    has_adopted=ADOPTED in with_owners,
                    body=json.dumps(item, sort_keys=True),
                )
            )
        return groups

    @property
    def requested(self) -> int:
        return sum(self.replicas().values())

    def in_zone(self, zone: str) -> Group:
        return next(group for group in self.groups() if group.zone == zone)

    def _readable_bounds(self, zone: str, owner: Object) -> tuple[int, int] | None:
        try:
            return self.bounds(zone, owner)
        except (KeyError, ValueError):
            return None

    # ------------------------------------------------------------ other writers
    @contextmanager
    def others(self) -> Iterator[None]:
        """Let another writer write: the ledger follows its change of the sum of replicas."""
        before = self.requested
        if self.ledger < (now := self._requested_or_owed()) <= MINIMUM:
            self.ledger = now  # Evenkeel has raised it to PoolMinimum since the ledger was last compared
        yield
        self.ledger += self.requested - before
        self.touched = True

    def edit(self, zone: str, key: str, value: str | None) -> None:
        with self.others():
            self.change(zone, {"metadata": {"annotations": {key: value}}}, manager="kubectl-edit")

    def set_maximum(self, maximum: int) -> None:
        for zone in ZONES:
            self.edit(zone, "evenkeel.dev/pool-max", str(maximum))
        self.maximum = maximum
        self.lowest_maximum = min(self.lowest_maximum, maximum)

    def scale_by(self, zone: str, delta: int, manager: str) -> None:
        with self.others():
            self.scale(zone, max(0, self.replicas()[zone] + delta), manager)

    def put_back(self, zone: str, bounds: tuple[int, int]) -> None:
        """Write the bounds of a GitOps tool's repository."""
        low, high = bounds
        with self.others():
            self.set_bounds(zone, low, max(self.floor, high), manager="argocd")
        group = self.in_zone(zone)
        if group.name in self.original and not group.has_adopted:
            self.original[group.name] = group.bounds  # Evenkeel has not written bounds here, but perhaps replicas

    def workers_are_reconciled(self) -> None:
        """Let Gardener's extension put replicas back into the Worker's bounds."""
        if isinstance(self.controllers, GardenerControllers):
            with self.others():
                self.controllers.reconcile_workers()

    def set_of(self, group: Group) -> str:
        """Return the name of the group's MachineSet. On OpenShift the group is one."""
        for item in self.objects.list(f"machinesets.{self.machine_api.group}"):
            if any(owner["name"] == group.name for owner in item["metadata"].get("ownerReferences") or ()):
                return str(item["metadata"]["name"])
        return group.name

    def adopted(self, name: str) -> None:
        """Keep the bounds of a group that Evenkeel is about to adopt."""
        group = next(group for group in self.groups() if group.name == name)
        if not group.ours:
            self.original[name] = group.bounds

    def grows(self, move: Move, before: Move | None) -> None:
        """Count the requested nodes that a move begins to add; each is added once."""
        more = move.unplaced
        if before is not None and before.request == move.request:  # a worker died in the middle
            more -= self._undone(before)
        self.ledger += more
        self.begun[move.request] += more
        if self.begun[move.request] > self.asked[move.request]:
            self.harness.broken.append(
                f"{self.name}: {self.begun[move.request]} nodes begun of {self.asked[move.request]} asked for"
            )

    def grown(self, move: Move, record: ScaleRequestRecord) -> None:
        """Check that the request's result reports nodes that were not added, for lack of room or time."""
        undone = self._undone(move)
        self.ledger -= undone
        if undone and not (record.done and "could not be placed" in record.result):
            self.harness.broken.append(f"{self.name}: {undone} nodes not added, and the answer is {record.result!r}")

    def _undone(self, move: Move) -> int:
        key = f"{self.name}/{self.namespace}/{{}}"
        done = sum(move.steps.get(key.format(one.name), 0) for one in self.groups() if one.move == move.id)
        return move.unplaced - done

    def step(self) -> None:
        """Play one loop of the autoscaler, then of the controllers. Check that no other node is removed."""
        now = self.harness.clock.now()
        with self.others():
            if self.autoscaler is not None:
                self.autoscaler.step(now)
        before = self.groups()
        condemned = self._condemned()
        with self.others():
            self.controllers.step(now)
        after = {group.name: set(group.running) for group in self.groups()}
        for group in before:
            gone = set(group.running) - after[group.name] - condemned
            surplus = max(0, len(group.running) - group.requested)
            if len(gone) > surplus:
                self.harness.broken.append(
                    f"{self.name}/{group.name}: running nodes {sorted(gone)} went, "
                    f"with {group.requested} requested and {len(group.running)} running"
                )

    def _condemned(self) -> set[str]:
        """Return the machines that Cluster Autoscaler has marked for removal."""
        marks = {
            name: (machine["metadata"].get("annotations") or {}).get(_DELETE_MARK)
            for name, machine in self.machines().items()
        }
        return {name for name, mark in marks.items() if mark not in (None, _OURS)}

    # ------------------------------------------------------------ requests of Evenkeel
    def _before_request(self, request: Request) -> None:
        if request.method == "GET" and request.user == _OURS and "continue" not in request.query:
            return
        self._before = {group.name: group for group in self.groups()}

    def _after_request(self, request: Request) -> None:
        if request.method != "PATCH" or request.user != _OURS:
            return
        self.patches += 1
        stored = self.harness.store.stored(self.name)
        record, control = stored.record, stored.control
        if control.is_paused(self.harness.clock.now()):
            self._broke(request, "a patch to a paused cluster")
        if record.dry_run and not control.restoring:
            self._broke(request, "a patch in dry run")
        if not self.harness.lives.disturbed:
            ends = self.harness.store.lease_ends(self.name)
            if ends is None or ends <= self.harness.clock.now():
                self._broke(request, "a patch without the lease")
        if self.harness.store.away and not self.harness.away_meanwhile:
            self._broke(request, "a patch while the table is away")
        old, new = self._before, {group.name: group for group in self.groups()}
        for name, group in new.items():
            before = old[name]
            if before.frozen and before.body != group.body:
                self._broke(request, f"frozen {name} was written")
            if (before.requested, before.bounds) != (group.requested, group.bounds):
                self.rewritten += 1
                self._check_group(request, before, group, control)
            if before.ours and not group.ours:
                self._check_restored(request, before, group)
        total, was = (sum(group.requested for group in groups.values()) for groups in (new, old))
        if total > max(was, self.maximum) and not self.touched:
            self._broke(request, f"{total} requested, PoolMaximum is {self.maximum}")
        growing = self.harness.store.growing(self.name)
        if not self.moving and total > max(was, MINIMUM) and not self.touched and not growing:
            self._broke(request, f"requested raised from {was} to {total} where Cluster Autoscaler orders")
        room = self._sum_of_maxima(new.values())
        # Another writer may have scaled a group beyond its max before.
        had = sum(max(group.requested, group.bounds[1] if group.bounds else 0) for group in old.values())
        # The room of a frozen group cannot be taken back, not even where PoolMinimum asks for a node elsewhere.
        frozen = any(group.frozen or group.contested for group in new.values())
        least = sum(max(self.floor, group.requested) for group in new.values())
        if room > max(had, self.maximum, least) and not self.touched and not frozen and not control.restoring:
            self._broke(request, f"maxima went from {had} to {room}, PoolMaximum is {self.maximum}")

    def _check_restored(self, request: Request, before: Group, group: Group) -> None:
        """Check that the bounds from before adoption are back, widened to hold the requested nodes."""
        original = self.original[group.name]
        if original is not None and not self.touched:
            original = min(original[0], group.requested), max(original[1], group.requested)
        if not self.touched and (group.bounds, group.requested) != (original, before.requested):
            self._broke(request, f"{group.name}: left with {group.requested} in {group.bounds}, not in {original}")

    def _check_group(self, request: Request, before: Group, group: Group, control: ControlRecord) -> None:
        if before.contested and not control.restoring:
            self._broke(request, f"contested {group.name} was written")
        if group.bounds is None or not 0 <= group.bounds[0] <= group.bounds[1]:
            self._broke(request, f"{group.name}: bounds {group.bounds}")
        elif group.bounds[1] < group.requested and not (self.name == "openshift" and self.touched):
            # On OpenShift, replicas are on another object, and a write to them after the check is no fault of Evenkeel.
            self._broke(request, f"{group.name}: max {group.bounds[1]} below the {group.requested} requested")
        if group.requested < before.requested and group.requested < len(group.running):
            self._broke(request, f"{group.name}: {group.requested} requested, {len(group.running)} are running")

    @staticmethod
    def _sum_of_maxima(groups: Any) -> int:
        return sum(group.bounds[1] if group.bounds else 0 for group in groups)

    def _broke(self, request: Request, what: str) -> None:
        self.harness.broken.append(f"{self.name}: {what}, by PATCH {request.path} {json.dumps(request.body)[:600]}")

    # ------------------------------------------------------------ promises between runs
    def received(self, zone: str, source: str, stated_at: datetime) -> None:
        self.statements[zone, source] = max(stated_at, self.statements.get((zone, source), stated_at))

    def check_zones(self) -> None:
        """Check that a source's newest statement about a zone counts, in any order of arrival, for limited time."""
        for (zone, source), stated_at in self.statements.items():
            record = self.harness.store.statement_about(self.name, zone)
            word = record.statements.get(source) if record else None
            known = word.stated_at if word else None
            if known != stated_at:
                self.harness.broken.append(f"{self.name}: {source} spoke of {zone} at {stated_at}, not at {known}")
            elif word is not None and source != OPERATOR and word.until > stated_at + LONGEST:
                self.harness.broken.append(f"{self.name}: {zone} is fenced until {word.until}, since {stated_at}")

    def _requested_or_owed(self) -> int:
        groups = self.groups()
        carried = {f"{self.name}/{self.namespace}/{group.name}": group.move for group in groups}
        return sum(group.requested for group in groups) + self.harness.store.still_unplaced(self.name, carried.get)

    def check_ledger(self) -> None:
        """Check that a move keeps the sum of requested nodes and nodes still to place."""
        if not self.moving:
            return
        groups = self.groups()
        now = self._requested_or_owed()
        overshoot = now < self.ledger and now >= min(self.ledger, self.lowest_maximum)
        minimum = now > self.ledger and now <= MINIMUM
        if now != self.ledger and not overshoot and not minimum:
            self.harness.broken.append(
                f"{self.name}: {now} requested or owed, {self.ledger} were ({[group.requested for group in groups]})"
            )
        self.ledger = now
        self.lowest_maximum = self.maximum

    def check_after_run(self) -> None:
        """Check after a complete, undisturbed run that no number of autoscaler loops can pass PoolMaximum."""
        groups, store, now = self.groups(), self.harness.store, self.harness.clock.now()
        stored = store.stored(self.name)
        control = stored.control
        if stored.record.dry_run or control.restoring or control.is_paused(now):
            return
        if any(group.bounds is None or group.frozen or group.contested for group in groups):
            return
        for group in groups:
            word = store.statement_about(self.name, group.zone)
            high = group.bounds[1] if group.bounds else 0
            if word is not None and now < word.impaired_until and high > max(self.floor, group.requested):
                found = f"{group.bounds}, {group.requested} requested; {word}"
                self.harness.broken.append(f"{self.name}/{group.name}: {found}")
        wanted = sum(max(self.floor, group.requested) for group in groups)
        if wanted <= self.maximum < self._sum_of_maxima(groups):
            self.harness.broken.append(
                f"{self.name}: maxima {[group.bounds for group in groups]} pass PoolMaximum {self.maximum}"
            )


@dataclass
class ChaosHarness:
    """Both clusters, the table, the queues and the functions. A context manager."""

    second: str = "openshift"  # the cluster without an autoscaler, where stuck replicas are moved
    broken: list[str] = field(default_factory=list)
    away_meanwhile: bool = False  # the table failed during a run
    failures: list[dict[str, Any]] = field(default_factory=list)  # events, to be delivered any number of times
    shifts: list[dict[str, Any]] = field(default_factory=list)  # the same about zones
    postponed: list[Mapping[str, Any]] = field(default_factory=list)  # events that could not request a check

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.at_once = Timing(provision=timedelta(0))
        self.lives = Lives()
        self.store = WatchedStore(self)
        self.queues = Queues(self.clock)
        self.bus = FakeBus()
        self.outcomes: list[RunSummary] = []
        self._ids = itertools.count()
        self._chance = random.Random(7)
        pools = {
            name: [Pool(name="workers", minimum=MINIMUM, maximum=MAXIMUM, replicas=(2, 2, 1))]
            for name in ("cluster-api", self.second)
        }
        settings = Flags(unneeded=240, delay_after_add=0)
        self.world = World(clusters=tuple(pools), pools=pools, clock=self.clock.now, settings=settings)
        self.world.clusters[self.second].autoscaler = None

    def __enter__(self) -> ChaosHarness:
        self.world.__enter__()
        self.clusters = {
            name: ClusterUnderTest(self, name, cluster, moving=name == self.second)
            for name, cluster in self.world.clusters.items()
        }
        kubeconfigs = {name: json.dumps(cluster.api.kubeconfig(_OURS)) for name, cluster in self.world.clusters.items()}
        self._recorded_clusters = RecordedClusters(
            session=None, secret=lambda name, fresh: kubeconfigs[name], clock=self.clock, allow_loopback=True
        )
        self._functions = {name: self._load(name) for name in _FUNCTIONS}
        self._functions["rebalance beside"] = self._load("rebalance")
        for name in self.clusters:
            self.register(name, dry_run=False)
        return self

    def register(self, cluster: str, *, dry_run: bool) -> None:
        """Register the cluster again, neither paused nor being left."""
        record = {
            "flavours": [cluster],
            "access": {"kind": "kubeconfig", "secret": cluster},
            "dry_run": dry_run,
            "region": world.REGION,
            "zone_ids": ZONE_IDS,
            "autoscaler": "none" if self.clusters[cluster].moving else "cluster-autoscaler",
            "paused": False,
            "leaving": False,
        }
        assert self.operator("register", cluster, record=record)["ok"]

    def __exit__(self, *_: object) -> None:
        self.world.__exit__(None, None, None)

    # ------------------------------------------------------------ the functions
    def _load(self, name: str) -> ModuleType:
        path = ROOT / "functions" / name / "app.py"
        spec = importlib.util.spec_from_file_location(f"_chaos_{name}_{next(_numbers)}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.container = self._container  # type: ignore[attr-defined]
        return module

    def _container(self, *, writes: bool = True) -> SimpleNamespace:
        """Return the container as bootstrap composes it, on this harness."""
        store: Any = Mortal(self.store, self.lives, "table", only=_STORE_PORT)
        queue: Any = Mortal(self.queues, self.lives, "queue", only={"request", "check_again", "request_checks"})
        ports: dict[str, Any] = {"store": store, "queue": queue, "clock": self.clock}
        clusters: Any = SimpleNamespace(open=self._open, needs_run=self._recorded_clusters.needs_run)
        chance: dict[str, Any] = {"random_bytes": self._chance.randbytes}
        rebalance = worker(store, clusters, self.clock, queue, bus=self.bus, **chance)
        return SimpleNamespace(
            scan=Scan(**ports, together=sequentially),
            check=CheckClusters(**ports, clusters=clusters, dry_run=False, together=sequentially),
            rebalance=partial(self._watched, rebalance),
            receive_event=ReceiveEvent(
                record_failure=RecordFailure(**ports),
                record_zone_shift=RecordZoneShift(**ports),
                request_scale=RequestScale(**ports),
                idempotent=lambda key, remaining, work: work(),
            ),
            operate=Operate(**ports, **chance, clusters=clusters, pack=pack, dry_run=False),
            inbox=Inbox(queue=queue),
            rebalance_inbox=Inbox(queue=queue, tries=TRIES),
        )

    def _open(self, record: ClusterRecord, remaining: Remaining, **how: bool) -> KubernetesCluster:
        opened = self._recorded_clusters.open(record, remaining, **how)
        assert isinstance(opened, KubernetesCluster)
        opened._api = Mortal(opened._api, self.lives, "api", only=_API_CALLS)  # type: ignore[assignment]
        self.clusters[record.id].touched &= not how.get("consistent", True)  # only a run's own read counts
        return opened

    def _watched(
        self,
        rebalance: Rebalance,
        cluster: str,
        why: str,
        remaining: Remaining,
        found: CheckResult | None = None,
        steady: SteadyState | None = None,
    ) -> RunSummary:
        started = self.clock.now()
        try:
            left: Remaining = lambda: SECONDS - (self.clock.now() - started).total_seconds()  # noqa: E731
            outcome = rebalance(cluster, why, left, found, steady)
        except (StateUnavailableError, LeaseHeldError, QueueUnavailableError):
            raise
        except Exception as error:
            self.broken.append(f"{cluster}: a run failed with {type(error).__name__}: {error}")
            raise
        self.outcomes.append(outcome)
        return outcome

    def call(self, function: str, event: Any, happenings: Mapping[tuple[int, str], Callable[[], None]] = {}) -> Any:
        """Invoke a real handler. Raise KilledError if it dies."""
        with self.lives.begin(happenings), redirect_stdout(io.StringIO()):  # metrics are printed
            handler = self._functions[function].handler
            return handler(json.loads(json.dumps(event)), LambdaContext(function, timeout=SECONDS))

    def fence(self, name: str, zone: str, time: timedelta) -> None:
        """Fence a zone for this time as an operator, or lift its fence."""
        self.clock.at += timedelta(seconds=1)  # a second after any earlier statement
        now = self.clock.now()
        assert self.operator("fence-zone", name, zone=zone, until=(now + time).isoformat())["ok"]
        self.clusters[name].received(zone, OPERATOR, now)

    def operator(self, action: str, cluster: str, **more: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.call("admin", {"action": action, "cluster": cluster, **more})
        return answer

    # ------------------------------------------------------------ messages and events
    def tick(self) -> None:
        at = f"{self.clock.now() - timedelta(minutes=1):{_TIME}}"  # late, so no check waits for its second
        try:
            self.call("scan", {"source": "evenkeel.schedule", "time": at})
        except StateUnavailableError:
            assert self.store.away
        except QueueUnavailableError:
            assert self.queues.away

    def deliver(
        self,
        message: Message,
        *,
        again: bool = False,
        happenings: Mapping[tuple[int, str], Callable[[], None]] = {},
        function: str = "rebalance",
    ) -> bool:
        """Hand a message to a worker, and return True if it was handled. `again` leaves it in the queue."""
        message.receives += 1
        message.visible_at = self.clock.now() + _VISIBILITY
        queue = self.queues.checks if function == "check" else self.queues.rebalance
        event = {"Records": [_record(message)]}
        cluster = self.clusters[message.cluster]
        rewritten, asked_again = cluster.rewritten, self.queues.asked_again[message.cluster]
        try:
            refused = self.call(function, event, happenings)["batchItemFailures"]
        except KilledError:
            refused = [message.id]
        is_redriven = function == "check" and message.receives >= TRIES  # the worker itself counts the tries of runs
        if (not refused or is_redriven) and not again and message in queue:
            queue.remove(message)
        asked = self.queues.asked_again[message.cluster] > asked_again or self.check_is_due(message.cluster)
        if not refused and cluster.rewritten > rewritten and not asked:
            self.broken.append(f"{message.cluster}: a run wrote, and nobody takes a second check")
        return not refused

    def run_now(self, cluster: str, **more: Any) -> bool:
        """Deliver a new message for a cluster, ahead of others, and return the result of `deliver`."""
        self.queues.request(cluster, "now", f"now-{next(self._ids)}")
        return self.deliver(self.queues.rebalance[-1], **more)

    def check_is_due(self, cluster: str) -> bool:
        """Return True if a check is due no later than a second check would be."""
        timer, now = self.store.stored(cluster).timer, self.clock.now()
        return timer is not None and now < timer.due <= now + SECOND_CHECKS[0]

    def drain(self) -> None:
        """Deliver all visible messages in order, undisturbed. An invisible message delays only its cluster."""
        if self.queues.away:
            return
        for _ in range(100):
            now = self.clock.now()
            due = [message for message in self.queues.checks if message.visible_at <= now]
            for message in due:
                self.deliver(message, function="check")
            heads: dict[str, Message] = {}
            for message in self.queues.rebalance:
                heads.setdefault(message.cluster, message)
            ready = [message for message in heads.values() if message.visible_at <= now]
            if not ready and not due:
                return
            for message in ready:
                self.run_undisturbed(message)
        self.broken.append("the queues never become empty")

    def run_undisturbed(self, message: Message, *, again: bool = False) -> None:
        """Play one undisturbed run, and check the promises that hold after a complete run."""
        reported = len(self.outcomes)
        cluster = self.clusters[message.cluster]
        whole = self.deliver(message, again=again) and len(self.outcomes) > reported
        if whole and not cluster.down:
            outcome = self.outcomes[-1]
            # Where bounds are on another object, a run may end before its controller has copied them.
            planned = outcome.plan is not None and all(
                pool.mode.valid and all(is_complete(group) for group in pool.changes) for pool in outcome.plan.pools
            )
            if planned and not outcome.unreachable and not outcome.rejected:
                cluster.check_after_run()

    def fail(self, name: str, zone: str, code: str, age: timedelta, *, of_set: bool = False) -> None:
        """Create a native event about a failed launch. `receive` delivers it, any number of times.

        `of_set`: it names the MachineSet of the group's MachineDeployment, if it has one.
        """
        cluster, at = self.clusters[name], f"{self.clock.now() - age:{_TIME}}"
        group = cluster.in_zone(zone)
        detail = {
            "cluster": name,
            "namespace": cluster.namespace,
            "kind": "MachineSet" if name == "openshift" or of_set else "MachineDeployment",
            "name": cluster.set_of(group) if of_set else group.name,
            "zone": zone,
            "code": code,
            "message": f"{code} in {zone}",
            "occurredAt": at,
            "id": f"{group.name}-{at}",
        }
        self.failures.append(self._event("evenkeel.provisioning", "Machine Provisioning Failed", detail, age))

    def shift(self, kind: str, zone: str, age: timedelta, *, region: str = world.REGION) -> None:
        """Create a statement of ARC, which `receive` delivers. "call" is CloudTrail's, with the expiry of a shift."""
        id = next(away_from for away_from, name in ZONE_IDS.items() if name == zone)
        detail: dict[str, Any] = {"version": "0.0.1", "data": "", "metadata": {"awayFrom": id, "notes": ""}}
        if kind == "call":
            kind = "AWS API Call via CloudTrail"
            asked = {"awayFrom": id, "expiresIn": "20m", "resourceIdentifier": "arn"}
            detail = {"eventSource": "arc-zonal-shift.amazonaws.com", "eventName": "StartZonalShift"}
            detail["requestParameters"] = asked
        self.shifts.append({**self._event("aws.arc-zonal-shift", kind, detail, age), "region": region})

    def ask(self, name: str, nodes: int, zone: str) -> dict[str, Any]:
        """Return the event in which an operator requests nodes in the pool of a zone's group."""
        cluster, id = self.clusters[name], f"request-{next(self._ids)}"
        cluster.asked[id] = nodes
        detail = {"cluster": name, "group": cluster.name_of(zone), "nodes": nodes, "id": id}
        return self._event("evenkeel.provisioning", "Scale-Up Requested", detail)

    def _event(self, source: str, kind: str, detail: dict[str, Any], age: timedelta = timedelta()) -> dict[str, Any]:
        """Return an event as EventBridge delivers it."""
        return {
            "version": "0",
            "id": f"event-{next(self._ids)}",
            "source": source,
            "detail-type": kind,
            "account": "123456789012",
            "time": f"{self.clock.now() - age:{_TIME}}",
            "region": world.REGION,
            "resources": [],
            "detail": detail,
        }

    def receive(self, event: Mapping[str, Any]) -> None:
        """Deliver an event to its function. If it cannot request a check, `receive_postponed` retries it."""
        try:
            self.call("provisioning_failure", event)
        except StateUnavailableError:
            assert self.store.away
            return
        except QueueUnavailableError:
            assert self.queues.away
            self.postponed.append(event)
            return
        if event["source"] == "aws.arc-zonal-shift" and event["region"] == world.REGION:
            word = read_event(event)
            assert isinstance(word, ZoneShift)
            for cluster in self.clusters.values():
                cluster.received(ZONE_IDS[word.zone], word.by, word.at)

    def receive_postponed(self) -> None:
        """Retry, as Lambda does, the events that could not request a check."""
        for event in self.postponed:
            asked = self.queues.asked.copy()
            self.receive(event)
            detail = event["detail"]
            lost = {detail["cluster"]} if "cluster" in detail else set(self.clusters)
            for cluster in lost:
                if self.queues.asked[cluster] == asked[cluster]:
                    self.broken.append(f"{cluster}: no check is requested, although it received {json.dumps(event)}")
        self.postponed = []

    # ------------------------------------------------------------ time and faults
    def pass_time(self, time: timedelta, *, steps: int = 1) -> None:
        """Let time pass for autoscalers and controllers, without calls of Evenkeel."""
        for _ in range(steps):
            self.clock.at += time / steps
            for cluster in self.clusters.values():
                cluster.step()

    def minute(self) -> None:
        """Play an ordinary minute: the clusters act, the schedule fires, the queues are drained."""
        self.pass_time(timedelta(minutes=1), steps=2)
        self.tick()
        self.drain()

    def set_down(self, name: str, down: bool) -> None:
        """Let the API server drop every connection, or answer again."""
        cluster = self.clusters[name]
        cluster.down = down
        cluster.api.faults.clear()
        if down:
            cluster.api.faults.add(times=1_000_000)

    def check(self) -> None:
        for cluster in self.clusters.values():
            cluster.check_ledger()
            cluster.check_zones()
        assert not self.broken, "\n".join(self.broken)

    def calm(self) -> None:
        """Restore zones, table, API servers and annotations, and give every pool a feasible demand."""
        self.store.away = self.queues.away = False
        for name, cluster in self.clusters.items():
            self.set_down(name, False)
            self.register(name, dry_run=False)
            for zone in ZONES:
                self.world.restore_zone(name, zone)
                self.fence(name, zone, -timedelta(minutes=1))
                notes = {PAUSED: None, "evenkeel.dev/zone-max": None, "evenkeel.dev/pool-min": str(MINIMUM)}
                for key, value in notes.items():
                    cluster.edit(zone, key, value)
                self.world.set_demand(name, "workers", 0, zone)
            cluster.set_maximum(MAXIMUM)
            self.world.set_demand(name, "workers", 6)

    def settle(self, rounds: int = 40) -> int:
        """Play five-minute rounds until three in a row change nothing. Return their number."""
        quiet = 0
        for number in range(rounds):
            before = self._picture()
            self.pass_time(timedelta(minutes=5), steps=3)
            if number % 5 == 0:  # contested groups and pauses wait for `resume`
                for name in self.clusters:
                    assert self.operator("resume", name)["ok"]
            self.tick()
            self.drain()
            self.check()
            quiet = quiet + 1 if self._picture() == before else 0
            if quiet >= 3 and number > 8:
                return number
        raise AssertionError(f"not settled after {rounds} rounds: {self._picture()}")

    def _picture(self) -> Any:
        return [
            (name, group.name, group.requested, len(group.running), group.bounds, cluster.patches)
            for name, cluster in self.clusters.items()
            for group in cluster.groups()
        ]


_numbers = itertools.count()


def _record(message: Message) -> dict[str, Any]:
    attributes = {
        **_SQS_RECORD["attributes"],
        "ApproximateReceiveCount": str(message.receives),
        "MessageGroupId": message.cluster,
        "MessageDeduplicationId": message.id,
    }
    named = {"messageId": message.id, "receiptHandle": message.id, "body": message.body, "attributes": attributes}
    return {**_SQS_RECORD, **named}
