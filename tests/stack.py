"""The use cases of a stack with all ports in memory: a registered cluster, its operator and its worker."""

import json
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest

from evenkeel.adapters.codec import pack
from evenkeel.application.errors import BadRequestError
from evenkeel.application.operate import Operate, answer_of_error
from evenkeel.application.ports import sequentially
from evenkeel.application.rebalancing.check import CheckClusters, CheckSummary
from evenkeel.application.rebalancing.failure import RecordFailure
from evenkeel.application.rebalancing.ports import Clusters
from evenkeel.application.rebalancing.rebalance import Rebalance
from evenkeel.application.rebalancing.request_scale import RequestScale
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.application.rebalancing.zones import RecordZoneShift
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.rebalancing.health.backoff import record_failure
from evenkeel.domain.rebalancing.writes import Patch
from tests.builders import MINUTE, key, zones
from tests.fakes import (
    FakeBus,
    FakeClock,
    FakeCluster,
    FakeClusters,
    FakeQueue,
    InMemoryStore,
    Journal,
    plenty,
    register,
)
from tests.parts import replace

NUMBERS = [{"name": "workers", "min": 3, "max": 12}]
RECORD = {"flavours": ["cluster-api"], "access": {"kind": "kubeconfig", "secret": "evenkeel/demo"}}


class Stack:
    """A registered cluster `demo` with one pool of three zones; further fields are the record's.

    A given ``store`` has its own registrations. ``clusters`` are opened instead of `demo`.
    """

    def __init__(
        self,
        groups: Sequence[NodeGroup] | None = None,
        *,
        stack_dry_run: bool = False,
        store: InMemoryStore | None = None,
        clock: FakeClock | None = None,
        clusters: Clusters | None = None,
        **fields: Any,
    ) -> None:
        self.journal, self.clock, self.queue, self.bus = Journal(), clock or FakeClock(), FakeQueue(), FakeBus()
        found = zones((2, 2, 2), bounds=[(1, 9)] * 3) if groups is None else groups
        self.cluster = FakeCluster(found, self.journal)
        self.clusters: Any = clusters or FakeClusters({"demo": self.cluster})
        self.store = store or InMemoryStore(self.journal)
        if store is None:
            register(self.store, **{"dry_run": None, "pools": NUMBERS, **fields})
        chance = count()
        received: dict[str, Any] = {"store": self.store, "queue": self.queue, "clock": self.clock}
        ports = {**received, "clusters": self.clusters, "dry_run": stack_dry_run}
        ports["random_bytes"] = lambda size: next(chance).to_bytes(size)
        self.rebalance = Rebalance(**ports, bus=self.bus)
        self.operate = Operate(**ports, pack=pack)
        del ports["random_bytes"]
        self.check = CheckClusters(**ports, together=sequentially)
        self.record_failure = RecordFailure(**received)
        self.record_zone_shift = RecordZoneShift(**received)
        self.request_scale = RequestScale(**received)

    def ask(self, action: str, cluster: str | None = "demo", **more: Any) -> dict[str, Any]:
        answer = self.operate({"action": action, **({} if cluster is None else {"cluster": cluster}), **more}, plenty)
        json.dumps(answer)
        assert "\n" not in answer["message"]
        return answer

    def refused(self, action: str, **more: Any) -> str:
        with pytest.raises(BadRequestError) as caught:
            self.ask(action, **more)
        answer = answer_of_error(caught.value)
        assert answer["retry"] is False
        return str(answer["message"])

    def run(self, remaining: Callable[[], float] = plenty) -> RunSummary:
        """Run the worker a minute later. Backoffs in these tests are far from their ends."""
        self.clock.at += MINUTE
        return self.rebalance("demo", "a test", remaining)

    def carry_out(self) -> None:
        requests, queue = list(self.queue.requests.items()), self.queue
        queue.requests.clear()
        for id, (cluster, why) in requests:
            self.rebalance(cluster, why, plenty, queue.found.pop(id), queue.steady.pop(id))

    def checks(self, *clusters: str) -> CheckSummary:
        """Check a chunk of these clusters, or `demo`, a minute later."""
        self.clock.at += MINUTE
        return self.check(clusters or ("demo",), plenty)

    def runs(self, times: int) -> None:
        for _ in range(times):
            self.run()

    def settle(self) -> None:
        """Run until nothing is written and no second check is requested; fail after eight runs."""
        for _ in range(8):
            asked = len(self.queue.second_checks)
            if not self.run().written and asked == len(self.queue.second_checks):
                return
        raise AssertionError("never at rest")

    def fail(self, zone: str, policy: BackoffPolicy | None = None, *, pool: str = "workers") -> None:
        policy = policy or BackoffPolicy()
        state = record_failure(GroupState(), self.clock.at, FailureClass.CAPACITY, "no room", policy)
        # A state that has expired still has its version.
        self.store.save_group("demo", key(zone, pool=pool), state, self.store.load("demo").versions)

    def register_another(self, name: str, cluster: FakeCluster | Exception) -> None:
        register(self.store, name)
        self.clusters.by_id[name] = cluster

    def answer_writes(self, error: Exception | None, names: str = "") -> list[str]:
        """Let writes to groups with this prefix end in this error or none. Return the list of the names tried."""
        tried: list[str] = []

        def answer(patch: Patch) -> None:
            tried.append(patch.plan.group.key.name)
            if error is not None and tried[-1].startswith(names):
                raise error

        self.cluster.before_apply = answer
        return tried

    def scale(self, zone: str, nodes: int, **fields: Any) -> None:
        self.cluster.change(key(zone), requested=nodes, running=nodes, **fields)

    @property
    def record(self) -> Any:
        return self.store.load("demo").record

    @property
    def control(self) -> Any:
        return self.store.load("demo").control

    @property
    def state(self) -> Any:
        return self.store.load("demo").state

    def group_state(self, zone: str = "a") -> Any:
        return self.state.groups.get(key(zone), GroupState())

    def bounds(self) -> list[tuple[int, int]]:
        groups = sorted(self.cluster.groups.values(), key=lambda group: group.key)
        return [(group.bounds.min, group.bounds.max) for group in groups if group.bounds]

    def decisions(self) -> list[dict[str, Any]]:
        return [dict(decision) for decision in self.store.decisions("demo", 100)]

    def outcomes(self) -> list[str]:
        """Return the outcomes of the newest decision, per group in zone order."""
        return [group["outcome"] for group in self.decisions()[0]["pool"]["groups"]]

    def patched(self, since: int = 0) -> set[str]:
        """Return the names of the patched groups, without the first ``since`` patches."""
        return {patch.plan.group.key.name for patch in self.cluster.applied[since:]}


def replaced_first(groups: Sequence[NodeGroup], **fields: Any) -> list[NodeGroup]:
    return [replace(groups[0], **fields), *groups[1:]]
