"""survive-zones: a pool's kept nodes, orders and reports, setting by setting."""

from collections import Counter
from typing import Any

import pytest

from evenkeel.application.rebalancing.decisions import pool_json
from evenkeel.domain.demand.scale_down import SCALE_DOWN_DISABLED
from evenkeel.domain.model.choices import DemandStage, Level
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.workload import ZONE, Owner, Pod, Workload
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.gep24 import LAX_GREEDY
from evenkeel.domain.survival.model import HeldNodes, Survival
from evenkeel.domain.survival.setting import SurviveZones
from evenkeel.record import ClusterRecord
from evenkeel.texts.english import sentence
from evenkeel.validation import ConfigError, read_model
from tests import objects
from tests.builders import (
    MINUTE,
    NOW,
    Played,
    drafted,
    group,
    key,
    minima,
    numbers,
    pool_plan,
    problems_of,
    reasons,
    requested,
    stated,
    zones,
)
from tests.convergence import PlayedPool, convergence
from tests.pages import assert_note_is_shown
from tests.parts import replace
from tests.property.survival.test_counts_properties import arrive, result_of, surviving
from tests.stack import Stack
from tests.unit.kubernetes.test_read_groups import only
from tests.workloads import node, pod, template

ENOUGH = "the zone has enough, and others lack nodes"


def notes(pool: PoolPlan) -> list[str]:
    return [note for note in pool_json(pool).get("notes", ()) if note.startswith("survives")]


def rested(groups: Any, policy: Policy) -> PoolPlan:
    play = Played(list(groups), policy)
    for _ in range(5):
        play.check(60)
        arrive(play)
    return play.check(60)


@pytest.mark.parametrize(
    ("start", "minimum", "end"),
    [
        ((2, 2, 2), 6, (3, 3, 3)),
        ((6, 0), 6, (6, 6)),
        ((0, 0, 0, 0), 6, (2, 2, 2, 2)),
        ((10, 1, 1), 6, (10, 3, 3)),
        ((3, 3, 3), 6, (3, 3, 3)),
    ],
)
def test_a_pool_orders_what_it_lacks(start: tuple[int, ...], minimum: int, end: tuple[int, ...]) -> None:
    pool = rested(zones(start), surviving(numbers(minimum, 40)))
    assert requested(pool) == end
    assert sum(minima(pool)) - max(minima(pool)) == minimum


def test_weights_zone_max_and_frozen_zones_count() -> None:
    policy = surviving(numbers(6, 40))
    weighted = [replace(group, weight=weight) for group, weight in zip(zones((0, 0, 0)), (2, 1, 1), strict=True)]
    assert requested(rested(weighted, policy)) == (3, 3, 3)
    capped = [replace(zones((0, 0, 0))[0], zone_max=1), *zones((0, 0, 0))[1:]]
    assert requested(rested(capped, policy)) == (1, 5, 5)
    for stays in ({"frozen_because": stated("rolling out")}, {"launches_stopped": stated("Launch suspended")}):
        left = [replace(zones((2, 0, 0))[0], **stays), *zones((0, 0, 0))[1:]]
        assert requested(rested(left, policy)) == (2, 4, 4)


def weighing(nodes: tuple[int, ...], *weights: int) -> list[NodeGroup]:
    return [replace(group, weight=weight) for group, weight in zip(zones(nodes), weights, strict=True)]


@pytest.mark.parametrize("weights", [(3, 1, 1), (1000, 1, 1)])
def test_a_pool_that_survives_gets_nothing_whatever_its_weights(weights: tuple[int, ...]) -> None:
    pool = rested(weighing((3, 3, 3), *weights), surviving(numbers(6, 9)))
    assert (requested(pool), minima(pool)) == ((3, 3, 3), (3, 3, 3))
    assert notes(pool) == ["survives one zone: yes; keeps 3 more nodes for it"]


def test_weights_decide_only_between_zones_that_help_equally() -> None:
    policy = surviving(numbers(7, 40))
    assert requested(rested(weighing((0, 0, 0), 1, 3, 3), policy)) == (3, 4, 4)
    assert requested(rested(weighing((0, 0, 0), 3, 1, 3), policy)) == (4, 3, 4)


def test_two_groups_of_a_zone_share_its_nodes() -> None:
    groups = [*zones((0, 0)), group("a", 0, key=key("second"))]
    assert requested(rested(groups, surviving(numbers(8, 40)))) == (4, 4, 8)


def test_the_heaviest_group_of_a_zone_decides_its_weight() -> None:
    groups = [
        group("a", 0, weight=5),
        group("a", 0, key=key("second")),
        group("b", 0, weight=3),
        group("c", 0, weight=3),
    ]
    pool = rested(groups, surviving(numbers(7, 40)))
    nodes = Counter[str | None]()
    for each in pool.groups:
        nodes[each.group.identity.zone] += each.requested
    assert nodes["a"] == 4
    assert nodes.total() == 11


def test_a_pool_above_its_maximum_that_survives_is_not_said_to_be_lost() -> None:
    groups = [replace(group("a", 10), frozen_because=stated("rolling out")), group("b", 3), group("c", 3)]
    pool = pool_plan(groups, surviving(numbers(6, 12)))
    assert notes(pool) == ["survives one zone: yes; keeps 10 more nodes for it"]


def test_without_an_autoscaler_the_same_nodes_are_ordered() -> None:
    policy = surviving(numbers(6, 40))
    policy = replace(policy, settings=replace(policy.settings, autoscaler=False, level=Level.CONVERGE))
    assert requested(rested(zones((2, 2, 2)), policy)) == (3, 3, 3)


def test_a_strategy_without_mins_publishes_them_to_survive() -> None:
    pool = rested(zones((3, 3, 3)), surviving(numbers(6, 40, LAX_GREEDY)))
    assert minima(pool) == (3, 3, 3)
    assert "min raised to 3: without these nodes, the pool would not survive the loss of another zone" in reasons(
        pool, "a"
    )


@pytest.mark.parametrize(
    ("groups", "policy", "problem"),
    [
        (zones((3, 3, 3)), numbers(10, 12), "cannot survive: needs 15, PoolMaximum is 12"),
        (zones((6,)), numbers(6, 12), "cannot survive: the pool has one zone"),
        (zones((2, 2, 2), zone_max=2), numbers(6, 12), "cannot survive: the limits of the zones"),
    ],
)
def test_a_pool_that_cannot_survive_is_planned_as_without_the_setting(
    groups: Any, policy: Policy, problem: str
) -> None:
    usual, pool = pool_plan(groups, policy), pool_plan(groups, surviving(policy))
    assert any(text.startswith(problem) for text in problems_of(pool.report.problems))
    assert (requested(pool), minima(pool)) == (requested(usual), minima(usual))
    assert not result_of(pool).survives
    assert notes(pool) == []


@pytest.mark.parametrize(
    ("groups", "policy", "says"),
    [
        (
            zones((10, 1, 1)),
            numbers(6, 12),
            f"short of 4 nodes; no node is ordered in a: {ENOUGH}; "
            "no node is ordered in b: the pool is at its max; no node is ordered in c: the pool is at its max",
        ),
        (
            [replace(group("a", 1), frozen_because=stated("paused")), group("b", 9), group("c", 2)],
            numbers(6, 12),
            "short of 3 nodes; no node is ordered in a: the group is frozen; "
            f"no node is ordered in b: {ENOUGH}; "
            "no node is ordered in c: the pool is at its max",
        ),
        (
            [group("a", 1, zone_max=1), group("b", 9), group("c", 2)],
            numbers(6, 12),
            "short of 3 nodes; no node is ordered in a: the group is at its max; "
            f"no node is ordered in b: {ENOUGH}; "
            "no node is ordered in c: the pool is at its max",
        ),
    ],
)
def test_each_zone_without_a_node_says_why(groups: Any, policy: Policy, says: str) -> None:
    assert notes(rested(groups, surviving(policy)))[0].startswith(f"survives one zone: {says}")


def test_held_bounds_are_a_cause_and_nodes_on_their_way_none() -> None:
    held = [replace(each, bounds_held=True) for each in zones((1,), bounds=[(0, 1)])]
    policy = surviving(numbers(6, 12))
    (says,) = notes(rested([*held, group("b", 9), group("c", 2)], policy))
    assert "; no node is ordered in a: the group is at its max; " in says
    (says,) = notes(pool_plan(zones((2, 2, 3)), surviving(numbers(7, 40))))
    assert says.startswith("survives one zone: short of 4 nodes; keeps ")


def test_a_recent_change_and_max_step_are_causes() -> None:
    policy = surviving(numbers(6, 40))
    changed = Played(zones((2, 2, 2)), replace(policy, settings=replace(policy.settings, max_step=1)))
    (survives,) = notes(changed.check())
    assert "; no node is ordered in b: max_step is 1: later runs add 2 more nodes; " in survives
    (survives,) = notes(changed.check(10))
    assert "; no node is ordered in b: the pool's replicas have just changed; " in survives


def test_a_group_closed_to_pods_keeps_no_room_for_them() -> None:
    """Other zones get the nodes instead."""
    closed = group("a", 0, closed_because=stated("no cpu"))
    pool = rested([closed, group("b", 3), group("c", 3)], surviving(numbers(6, 40)))
    assert requested(pool) == (0, 6, 6)
    (draft,) = drafted([closed], numbers(0, 40)).groups
    assert draft.room > draft.room_for_pods == 0


def test_only_running_nodes_count_as_holding_a_survivor() -> None:
    policy = surviving(numbers(6, 9))
    pool = pool_plan(zones((3, 3, 3), running=(3, 3, 2)), policy)
    assert notes(pool) == ["survives one zone: short of 1 node; keeps 3 more nodes for it"]
    more_than_requested = pool_plan(zones((3, 3, 2), running=(3, 3, 4)), policy, fenced=["a"])
    assert notes(more_than_requested)[0].startswith("survives one zone: short of 1 node; ")


def test_a_probing_zone_does_not_count_for_the_minimum() -> None:
    """The node that it gets may fail. So the other zones keep only their shares of a level pool."""
    policy = surviving(numbers(6, 40))
    assert minima(pool_plan(zones((0, 6, 6)), policy)) == (0, 6, 6)
    assert minima(pool_plan(zones((0, 6, 6)), policy, probing=["a"])) == (0, 3, 3)


def test_no_needed_node_is_removed_however_many_trials_were_made() -> None:
    """Of 33 nodes with one pod in each of two zones, 17 in each zone have places for all 66 pods."""
    a, b = (group(zone, 33, bounds=(0, 99), template=template()) for zone in "ab")
    nodes = [node(f"{zone}{i:02}", zone, group=each.key) for zone, each in (("a", a), ("b", b)) for i in range(33)]
    pods = [pod(f"p-{each.name}", cpu="1", memory="1", node=each.name) for each in nodes]
    policy = replace(surviving(numbers(0, 99)), demand=DemandStage.ADVISE)
    observation = Observation(groups=(a, b), workload=Workload(nodes=tuple(nodes), pods=tuple(pods), whole=True))
    (pool,) = plan(observation, ClusterState(), policy, NOW).pools
    assert pool.demand.advice is not None
    needed = Counter(each.group for each in pool.demand.advice.nodes if each.needed is not None)
    assert min(needed[a.key], needed[b.key]) >= 17
    assert needed.total() < 66


def test_a_pool_that_cannot_survive_names_the_zones_that_keep_their_nodes() -> None:
    frozen = replace(group("a", 0), frozen_because=stated("paused"))
    policy = surviving(numbers(6, 9))
    (past_max,) = problems_of(pool_plan([frozen, group("b", 3), group("c", 3)], policy).report.problems)
    assert past_max == ("cannot survive: needs 12, PoolMaximum is 9; no node is ordered in a: the group is frozen")
    (past_zones,) = problems_of(pool_plan([frozen, group("b", 3)], policy).report.problems)
    assert past_zones.endswith("without the largest zone; no node is ordered in a: the group is frozen")


def test_an_outage_orders_nothing_and_its_end_one_machine_at_first() -> None:
    policy = surviving(numbers(6, 40))
    assert requested(pool_plan(zones((0, 3, 3)), policy, fenced=["a"])) == (0, 3, 3)
    assert requested(pool_plan(zones((0, 3, 3)), policy, probing=["a"])) == (1, 3, 3)
    held = pool_plan(zones((0, 3, 3)), policy, fenced=["a"])
    assert minima(held) == (0, 3, 3)
    assert notes(held)[0].startswith("survives one zone: short of 3 nodes; no node is ordered while a is fenced")


def test_members_that_disagree_make_the_pool_invalid() -> None:
    groups = zones((3, 3, 3), survive_zones=SurviveZones.ONE)
    groups[1] = replace(groups[1], survive_zones=SurviveZones.NONE)
    pool = pool_plan(groups, numbers(6, 40))
    assert not pool.mode.valid
    assert "members disagree on evenkeel.dev/survive-zones: 1 on " in problems_of(pool.report.problems)[0]


@pytest.mark.parametrize("value", ["2", "yes", "-1", 2, True])
def test_another_value_of_the_record_is_one_line(value: object) -> None:
    data = {
        "flavours": ["gardener"],
        "id": "x",
        "access": {"kind": "kubeconfig", "secret": "a/b"},
        "pools": [{"name": "p", "survive_zones": value}],
    }
    with pytest.raises(ConfigError) as error:
        read_model(ClusterRecord, data, "record")
    (fault,) = error.value.faults
    assert "pools.0.survive_zones" in fault
    assert "no such number of zones to survive: choose one of 0, 1" in fault


def test_plan_status_page_and_explain_show_it() -> None:
    stack = Stack(
        zones((2, 2, 2), bounds=[(0, 9)] * 3), pools=[{"name": "workers", "min": 6, "max": 40, "survive_zones": "1"}]
    )
    says = "survives one zone: short of 3 nodes; keeps 3 more nodes for it"
    assert_note_is_shown(stack, says, "workers")
    (pool,) = stack.ask("plan")["plan"]["pools"]
    (rule,) = [rule for rule in pool["noteRules"] if rule["rule"] == "survives-zone"]
    assert (rule["short"], rule["held"]) == (3, 3)


@pytest.mark.parametrize("value", ["2", "one", ""])
def test_another_value_of_the_annotation_is_one_fault(value: str) -> None:
    item = objects.cluster_api(objects.ZONES[0], 1, annotations={"evenkeel.dev/survive-zones": value})
    (fault,) = only("cluster-api", item).unreadable.faults
    assert str(fault).endswith("no such number of zones to survive: choose one of 0, 1")


def test_nodes_are_held_for_half_an_hour_after_they_were_last_needed() -> None:
    held = HeldNodes(at=NOW).renewed({"a": 2}, NOW)
    assert held.nodes == {"a": 2}
    assert held.renewed({}, NOW + 30 * MINUTE) is held
    assert held.renewed({"a": 2}, NOW + 9 * MINUTE) is held
    assert held.renewed({"a": 2}, NOW + 10 * MINUTE).at == NOW + 10 * MINUTE
    assert held.renewed({"a": 1, "b": 1}, NOW + 5 * MINUTE).nodes == {"a": 2, "b": 1}
    assert held.renewed({}, NOW + 40 * MINUTE).nodes == {}
    assert held.at_check(NOW + 40 * MINUTE, lost=False).is_over(NOW + 40 * MINUTE)


def test_after_a_drain_that_did_not_help_the_pool_drains_no_node_for_an_hour_then_for_two() -> None:
    lost = HeldNodes(at=NOW).at_check(NOW, lost=True)
    held = lost.after_order(NOW + 29 * MINUTE)
    assert (held.drains_held_until, held.lost_at) == (NOW + 89 * MINUTE, None)
    assert held.after_order(NOW + 90 * MINUTE) == held  # no node was lost
    for hours, length in ((2, 2), (13, 2), (14, 1)):  # after half a day, the last hold no longer counts
        later = NOW + 60 * hours * MINUTE
        again = held.at_check(later, lost=True).after_order(later)
        assert again.drains_held_until == later + 60 * length * MINUTE
    during = held.at_check(NOW + 60 * MINUTE, lost=True).after_order(NOW + 60 * MINUTE)
    assert during.drains_held_until == held.drains_held_until


def test_a_node_that_is_ordered_long_after_a_loss_begins_no_hold() -> None:
    lost = HeldNodes(at=NOW).at_check(NOW, lost=True)
    assert not lost.is_over(NOW)
    later = lost.at_check(NOW + 30 * MINUTE, lost=False)
    assert later.is_over(NOW + 30 * MINUTE)
    assert later.after_order(NOW + 30 * MINUTE).drains_held_until is None


def test_while_pods_are_not_read_the_mins_stay() -> None:
    policy = replace(surviving(numbers(0, 40)), demand=DemandStage.ADVISE)
    observation = Observation(groups=tuple(zones((3, 3, 3), bounds=[(3, 9)] * 3)), workload_unread="away")
    unread = plan(observation, ClusterState(), policy, NOW)
    assert minima(unread.pools[0]) == (3, 3, 3)
    assert unread.asks
    assert notes(unread.pools[0]) == []


@pytest.mark.parametrize(
    ("maximum", "zone_max", "problem"),
    [
        (3, None, "cannot survive: needs 4, PoolMaximum is 3"),
        (9, 1, "cannot survive: the limit of a leaves no room for more nodes; raise evenkeel.dev/zone-max"),
        (9, 2, None),
    ],
)
def test_with_pods_the_reason_why_a_pool_cannot_survive_is_one_line(
    maximum: int, zone_max: int | None, problem: str | None
) -> None:
    """Zone b has two full nodes, and zone a one empty node."""
    a, b = zones((1, 2), template=template())
    nodes = (node("a1", "a", group=a.key), node("b1", "b", group=b.key), node("b2", "b", group=b.key))
    pods = tuple(pod(f"p-{name}", cpu="4", node=name) for name in ("b1", "b2"))
    observation = Observation(
        groups=(replace(a, zone_max=zone_max), b), workload=Workload(nodes=nodes, pods=pods, whole=True)
    )
    policy = replace(surviving(numbers(0, maximum)), demand=DemandStage.ADVISE)
    (pool,) = plan(observation, ClusterState(), policy, NOW).pools
    found = [text for text in problems_of(pool.report.problems) if text.startswith("cannot survive")]
    assert found == ([problem] if problem else [])
    assert sum(requested(pool)) == (3 if problem else 4)
    assert not result_of(pool).survives


# With converge, and with requests to remove nodes


def view(pool: PlayedPool, *pods: Pod, **annotations: str) -> Workload:
    """Return nodes with a DaemonSet's pod of three cores, and so with one free core. Annotations are of zone c."""
    nodes = tuple(replace(each, annotations=annotations if each.name.startswith("c") else {}) for each in pool.nodes())
    agents = (
        replace(pod(f"agent-{each.name}", node=each.name, cpu="3"), owner=Owner("DaemonSet", "agent")) for each in nodes
    )
    return Workload(nodes=nodes, pods=(*agents, *pods), whole=True)


def converging(**fields: Any) -> Policy:
    return surviving(convergence(demand=DemandStage.ADVISE, **fields))


@pytest.mark.parametrize("autoscaler", [True, False])
def test_a_pool_that_survives_is_leveled(autoscaler: bool) -> None:
    pool = PlayedPool((2, 2, 5), converging(blind=False, autoscaler=autoscaler), workload=view)
    pool.until_quiet()
    assert pool.requested == (3, 3, 3)


def test_without_pods_nothing_is_drained_in_a_pool_whose_pods_must_survive() -> None:
    """Also with ``blind``: no check can tell which node survival needs."""
    pool = PlayedPool((2, 2, 5), converging(blind=True))
    pool.settled()
    assert pool.requested == (2, 2, 5)
    assert pool.why.startswith("no machine of c may be drained: the pods on the nodes are unknown")


def test_a_late_step_ends_if_survival_needs_its_new_node() -> None:
    pool = PlayedPool((1, 1, 3), converging(blind=False, autoscaler=False), workload=view)
    pool.settled()
    assert sum(pool.requested) == 6
    pool.boot()
    kept = [machine.name for zone in "ac" for machine in pool.machines(zone)[: 3 if zone == "c" else 1]]
    bound = [pod(f"bound-{name}", node=name, node_selector={ZONE: name[0]}) for name in kept]
    far = pod("far", node=pool.machines("b")[0].name)
    disabled = {SCALE_DOWN_DISABLED: "true"}
    pool.workload = lambda pool: view(pool, far, *bound, **disabled)
    for _ in range(20):
        pool.check(60)
    assert pool.memory.step is None
    assert pool.memory.held_until is not None
    assert sum(pool.requested) == 6


@pytest.mark.parametrize(
    ("survival", "text"),
    [
        (Survival(), "survives one zone: yes"),
        (Survival(short=2), "survives one zone: short of 2 nodes"),
        (Survival(bound={"a": 3}), "survives one zone: yes; 3 pods are bound to a"),
        (
            Survival(short=1, held=1, bound={"a": 3, "b": 1}),
            "survives one zone: short of 1 node; 3 pods are bound to a and 1 pod is bound to b; "
            "keeps 1 more node for it",
        ),
    ],
)
def test_the_note_of_a_pool_says_what_is_missing(survival: Survival, text: str) -> None:
    assert sentence(survival.note) == text


def test_a_value_that_only_a_newer_release_knows_is_as_if_not_set() -> None:
    """An observation by a newer release can have it."""
    newer = [replace(each, own={"survive_zones": "2", "spread": "yes"}) for each in zones((3, 3, 3))]
    assert pool_plan(newer, numbers(2, 20)).parts.of(Survival) is None
