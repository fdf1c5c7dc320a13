"""Machines that Gardener preserves: no healthy node is removed instead of them, by Gardener's order of deletion."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.adapters.kubernetes.read.groups import Listing, read_groups
from evenkeel.adapters.kubernetes.read.machines import with_machines
from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.groups import Machine, NodeGroup
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import GroupPlan
from evenkeel.domain.model.policy import BackoffPolicy, Policy, PoolRule
from evenkeel.domain.model.states import UNKNOWN, ClusterState
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.health.observed import observe_health
from evenkeel.domain.rebalancing.replicas.deletion import deletion_candidates
from sandbox.kube.controllers.gardener import PRESERVE, PRESERVE_OF_NODE, PRIORITY, gardener_deletion_order
from tests import objects
from tests.builders import MINUTE, NOW, in_backoff
from tests.parts import make

GARDENER = FLAVOURS["gardener"]
Object = dict[str, Any]
Pool = tuple[list[NodeGroup], dict[str, list[Object]]]
REFUSED = {"type": "Create", "state": "Failed", "errorCode": "ResourceExhausted", "description": "no capacity"}
#: A kind of Gardener machine: phase, hours until its preservation ends, its annotation, its node's annotation.
KINDS: dict[str, tuple[str, int | None, str, str]] = {
    "running": ("Running", None, "", ""),
    "unwell": ("Unknown", None, "", ""),
    "running-preserved": ("Running", 9, "now", ""),
    "pending": ("Pending", None, "when-failed", ""),
    "crashing": ("CrashLoopBackOff", None, "", ""),
    "failed": ("Failed", None, "", ""),
    "failed-let-go": ("Failed", None, "now", "false"),
    "failed-over": ("Failed", -1, "now", ""),
    "failed-preserved": ("Failed", 9, "when-failed", ""),
    "failed-by-itself": ("Failed", 20, "auto-preserved", ""),
    "failed-by-node": ("Failed", 9, "", "now"),
}
NODES = {name for name, (phase, *_) in KINDS.items() if phase in ("Running", "Unknown")}
PRESERVED = {name for name, (_, hours, *_) in KINDS.items() if hours is not None and hours > 0}
HELD = PRESERVED - NODES


def machine(scalable: Object, number: int, kind: str, minutes: int) -> Object:
    phase, hours, asks, node_asks = KINDS[kind]
    item = objects.machine(scalable, number, node=False)
    notes = {key: value for key, value in ((PRESERVE, asks), (PRESERVE_OF_NODE, node_asks)) if value}
    created = (NOW - minutes * MINUTE).isoformat().replace("+00:00", "Z")
    item["metadata"] |= {"annotations": notes, "creationTimestamp": created, "kind": kind, "namespace": "shoot"}
    expires = {} if hours is None else {"preserveExpiryTime": (NOW + timedelta(hours=hours)).isoformat()}
    item["status"] = {"currentStatus": {"phase": phase, **expires}}
    if phase in ("CrashLoopBackOff", "Failed"):
        item["status"]["lastOperation"] = REFUSED
    return item


@st.composite
def zones(draw: st.DrawFn) -> Pool:
    groups, machines = [], {}
    for zone in objects.ZONES[: draw(st.integers(1, 3))]:
        found = draw(st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.integers(0, 40)), max_size=6))
        kinds = [kind for kind, _ in found]
        unmade = draw(st.integers(0, 2))
        scalable = objects.gardener(zone, len(kinds) + unmade, sum(kind in NODES for kind in kinds))
        scalable["metadata"]["namespace"] = "shoot"
        scalable["status"]["preservedFailedReplicas"] = sum(kind in HELD for kind in kinds)
        items = [machine(scalable, number, *each) for number, each in enumerate(found)]
        (member,), _ = read_groups(Listing(flavour=GARDENER, objects={"MachineDeployment": [scalable]}))
        group = member.group
        if group.requested != group.running or draw(st.booleans()):
            group = with_machines(group, read(items))
        groups.append(group)
        machines[group.key.name] = items
    return groups, machines


def read(items: list[Object]) -> list[Machine]:
    api = GARDENER.machines
    return [api.read(item).read(api.mark, NOW) for item in items]


def gone(planned: GroupPlan, items: list[Object]) -> list[str]:
    """Return the kinds of machines that machine-controller-manager deletes after the marks and lower replicas."""
    names = deletion_candidates(
        read(items),
        planned.requested,
        may_remove_running=planned.removal.may_remove_running,
        provision_timeout=planned.provision_timeout,
        now=NOW,
    )
    for item in items:
        if item["metadata"]["name"] in names:
            item["metadata"]["annotations"] = {**item["metadata"]["annotations"], PRIORITY: "1"}
    order = gardener_deletion_order(items, NOW)[: max(0, len(items) - planned.requested)]
    return [item["metadata"]["kind"] for item in order]


@given(
    pool=zones(),
    maximum=st.integers(3, 20),
    on_failure=st.sampled_from(OnFailure),
    failing=st.sets(st.sampled_from(objects.ZONES)),
    gives_back=st.integers(0, 6),
)
def test_no_healthy_node_is_deleted_for_a_preserved_machine(
    pool: Pool, maximum: int, on_failure: OnFailure, failing: set[str], gives_back: int
) -> None:
    groups, machines = pool
    policy = make(Policy, strategy=BALANCED, pools=(PoolRule(name="main", min=0, max=maximum, on_failure=on_failure),))
    request = ScaleRequest(id="r", nodes=-gives_back, at=NOW - MINUTE, pool="main")
    state = ClusterState(
        groups={group.key: in_backoff() for group in groups if group.identity.zone in failing},
        scale_requests=(request,) if gives_back else (),
    )
    listed = [group if group.machines is not None else _listed(group, machines) for group in groups]
    (found,) = plan(Observation(groups=tuple(listed)), state, policy, NOW).pools
    nodes_gone = 0
    for planned in found.groups:
        if planned.requested >= planned.group.requested:
            continue
        kinds = gone(planned, machines[planned.group.key.name])
        assert not PRESERVED & set(kinds)
        nodes_gone += sum(kind in NODES for kind in kinds)
        if not planned.removal.may_remove_running:
            assert not NODES & set(kinds)
    assert nodes_gone <= gives_back


def _listed(group: NodeGroup, machines: dict[str, list[Object]]) -> NodeGroup:
    return with_machines(group, read(machines[group.key.name]))


@given(pool=zones(), waits=st.integers(0, 600))
def test_a_preserved_machine_is_not_waited_for(pool: Pool, waits: int) -> None:
    for group in pool[0]:
        held = sum(item["metadata"]["kind"] in HELD for item in pool[1][group.key.name])
        assert group.preserved == min(held, group.requested - group.running)
        assert group.waiting == group.requested - group.running - group.preserved
        alone = replace(group, requested=group.running + group.preserved)
        state = UNKNOWN
        for minutes in (0, waits):
            state = observe_health(alone, state, NOW + minutes * MINUTE, BackoffPolicy(), 15 * MINUTE)
        assert state.arrivals.waiting_since is None


@given(pool=zones())
def test_machines_preserved_by_status_alone_hold_a_replica(pool: Pool) -> None:
    for group in pool[0]:
        unlisted = replace(group, machines=None)
        assert unlisted.preserved == group.preserved
