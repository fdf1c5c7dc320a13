"""The members of a pool, and the origins of its numbers."""

from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.groups import Bounds, GroupKey, NodeGroup, PoolId
from evenkeel.domain.model.moves import Move
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.policy import Policy, PoolRule
from evenkeel.domain.model.similarity import Similarity
from evenkeel.domain.model.states import PoolState
from evenkeel.domain.model.templates import NodeTemplate
from evenkeel.domain.model.values import LARGEST_COUNT, Fault
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.bounds.gep24 import ADAPTIVE, BACKWARD_COMPATIBLE
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from evenkeel.domain.rebalancing.membership.pool_names import find_name
from evenkeel.texts.english import sentence
from tests.builders import (
    NOW,
    group,
    key,
    maxima,
    minima,
    numbers,
    plan_of,
    pool_plan,
    problems_of,
    requested,
    stated,
    zones,
)
from tests.parts import make, replace


def problem(found: PoolPlan) -> str:
    """Return the only problem of an invalid pool without changes."""
    assert not found.mode.valid
    assert not found.changes
    assert len(problems_of(found.report.problems)) == 1, problems_of(found.report.problems)
    return problems_of(found.report.problems)[0]


# -- membership


def test_a_group_without_a_pool_is_skipped_with_what_to_do() -> None:
    found = plan_of([group("a", pool=None)])
    assert found.pools == ()
    assert "set label evenkeel.dev/pool" in sentence(found.skipped[0].reason)


GPU = PoolRule(name="gpu", selector={"role": "gpu"}, max=3)


@pytest.mark.parametrize(
    ("fields", "rules", "pool"),
    [
        ({"labels": {"role": "gpu", "x": "y"}}, (GPU,), "gpu"),
        ({"labels": {}}, (GPU,), None),
        ({"labels": {"role": "cpu"}}, (GPU,), None),
        ({"labels": {"role": ""}}, (GPU,), None),
        ({"labels": {"role": "gpu"}}, (GPU, replace(GPU, name="second")), "gpu"),
        ({"labels": {"role": "gpu"}}, (replace(GPU, namespace="elsewhere"),), None),
        ({"labels": {"role": "gpu"}, "pool": "mine", "bounds": (0, 1)}, (GPU,), "mine"),
        ({}, (PoolRule(name="all", max=3),), None),
    ],
    ids=["selected", "none", "another value", "no value", "first rule", "namespace", "a pool label", "no selector"],
)
def test_a_rule_selects_groups_by_label(fields: dict[str, Any], rules: tuple[PoolRule, ...], pool: str | None) -> None:
    found = plan_of([group("a", **{"pool": None, **fields})], make(Policy, strategy=BALANCED, pools=rules))
    assert [str(one.id) for one in found.pools] == ([f"cluster-api/default/{pool}"] if pool else [])


def test_a_rule_for_another_namespace_or_name_does_not_count() -> None:
    rules = (replace(numbers(0, 9).pools[0], namespace="elsewhere"), PoolRule(name="others", min=3, max=3))
    assert pool_plan([group("a", bounds=(0, 2))], make(Policy, strategy=BALANCED, pools=rules)).max == 2
    rules = (PoolRule(name="others", min=3, max=3), PoolRule(name="workers", max=9))
    assert pool_plan(zones((1, 1)), make(Policy, strategy=BALANCED, pools=rules)).max == 9


def test_pools_of_one_name_in_two_namespaces_or_clusters_are_two_pools() -> None:
    members = [
        group("a", bounds=(0, 1)),
        group("a", bounds=(0, 1), key=key("a", namespace="other")),
        group("a", bounds=(0, 1), cluster="blue", key=GroupKey("cluster-api", "default", "blue-a")),
    ]
    assert [str(pool.id) for pool in plan_of(members).pools] == [
        "cluster-api/default/workers",
        "cluster-api/default/blue/workers",
        "cluster-api/other/workers",
    ]


def test_pools_without_bounds_or_numbers_are_skipped() -> None:
    found = plan_of([group("a", 3)])
    assert found.pools == ()
    assert "not managed" in sentence(found.skipped[0].reason)


# -- similarity

SIMILAR = make(Policy, strategy=BALANCED, similarity=Similarity())


def alike(zone: str, requested: int = 1, *, memory: int = 16, **fields: Any) -> NodeGroup:
    """Return a group without a pool label, with nodes of 4 cores and this many GiB."""
    template = NodeTemplate(capacity={"cpu": Fraction(4), "memory": Fraction(memory * 2**30)})
    return group(zone, requested, **{"pool": None, "bounds": (0, 4), "template": template, **fields})


def members(found: Plan) -> dict[str, list[str]]:
    """Return pool -> its groups, by name."""
    return {str(pool.id): [plan.group.key.name for plan in pool.groups] for pool in found.pools}


def test_similar_groups_are_a_pool_with_the_common_part_of_their_names() -> None:
    assert members(plan_of([alike("a"), alike("b")])) == {}
    for order in ("abc", "cba", "bca"):
        found = plan_of([alike(zone) for zone in order] + [alike("d", memory=32)], SIMILAR)
        assert members(found) == {
            "cluster-api/default/loose": ["loose-a", "loose-b", "loose-c"],
            "cluster-api/default/loose-d": ["loose-d"],
        }
        assert [(pool.min, pool.max) for pool in found.pools] == [(0, 12), (0, 4)]


@pytest.mark.parametrize(
    ("names", "taken", "name"),
    [
        (["workers-a", "workers-b"], (), "workers"),
        (["workers-eu-central-1a", "workers-eu-central-1b"], (), "workers-eu-central"),
        (["blue-1a-workers", "blue-1b-workers"], (), "blue-workers"),
        (["workersa", "workersb"], (), "workers"),
        (["only-a"], (), "only-a"),
        (["north", "south"], (), "north"),
        (["a.a", "a.a.a"], (), "a.a"),
        (["workers-a", "workers-b"], ("workers",), "workers-a"),
        (["workers-a", "workers-b"], ("workers", "workers-a", "workers-a-2"), "workers-a-3"),
    ],
)
def test_the_name_of_a_discovered_pool_is_short_never_empty_and_free(
    names: list[str], taken: tuple[str, ...], name: str
) -> None:
    assert find_name(names, taken) == name


def test_a_rule_of_the_common_name_gives_the_pool_its_numbers() -> None:
    policy = replace(SIMILAR, pools=(PoolRule(name="loose", min=2, max=9),))
    (pool,) = plan_of([alike("a"), alike("b")], policy).pools
    assert (pool.min, pool.max) == (2, 9)
    (pool,) = plan_of([alike("a"), alike("b", pool_max=7)], policy).pools
    assert (pool.min, pool.max) == (2, 7)


def test_labels_and_selectors_precede_similarity() -> None:
    policy = replace(SIMILAR, pools=(PoolRule(name="picked", selector={"x": "1"}),))
    found = plan_of([alike("a", pool="mine"), alike("b", labels={"x": "1"}), alike("c")], policy)
    assert members(found) == {
        "cluster-api/default/loose-c": ["loose-c"],
        "cluster-api/default/mine": ["mine-a"],
        "cluster-api/default/picked": ["loose-b"],
    }


def test_groups_of_two_namespaces_clusters_or_flavours_are_never_similar() -> None:
    others = [
        alike("b", key=key("b", pool="loose", namespace="other")),
        alike("c", cluster="blue"),
        alike("d", key=key("d", pool="loose", flavour="openshift")),
    ]
    assert all(len(names) == 1 for names in members(plan_of([alike("a"), *others], SIMILAR)).values())
    assert len(plan_of([alike("a"), *others], SIMILAR).pools) == 4


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"requested": 0, "template": None, "closed_because": stated("at zero, and so on")}, "at zero, and so on"),
        ({"template": None}, "annotate capacity.cluster-autoscaler.kubernetes.io/cpu"),
        ({"template": NodeTemplate(capacity={"cpu": Fraction(4)})}, "annotate capacity.cluster-autoscaler"),
        ({"template_faults": (Fault(object="MD x", field="f", value="'v'", problem="p"),)}, "MD x: f is 'v': p"),
        ({"bounds": None}, "no bounds are set, or max is 0"),
        ({"bounds": (0, 0)}, "no bounds are set, or max is 0"),
        ({"bounds": (0, 4), "has_adopted": True, "adopted": Bounds(0, 0)}, "no bounds are set, or max is 0"),
    ],
)
def test_a_group_that_cannot_be_compared_is_skipped_with_what_to_do(fields: dict[str, Any], says: str) -> None:
    found = plan_of([alike("a"), alike("b", **fields)], SIMILAR)
    assert members(found)["cluster-api/default/loose-a"] == ["loose-a"]
    (skipped,) = found.skipped
    assert skipped.name == "loose-b"
    assert sentence(skipped.reason).startswith("in no pool: ")
    assert says in sentence(skipped.reason)


def test_a_template_fault_does_no_harm_to_a_labelled_pool() -> None:
    fault = Fault(object="MD x", field="f", value="'v'", problem="p")
    found = pool_plan(zones((1, 1), bounds=((0, 4), (0, 4)), template_faults=(fault,)), SIMILAR)
    assert found.mode.valid
    assert problems_of(found.report.problems) == ()


def test_an_unreadable_bound_makes_the_pool_of_similar_groups_invalid() -> None:
    fault = Fault(object="MD x", field="min", value="'v'", problem="p")
    found = pool_plan([alike("a"), alike("b", bounds=None, faults=(fault,))], SIMILAR)
    assert problem(found) == "MD x: min is 'v': p"


def test_two_pools_never_have_one_name() -> None:
    labelled = [group("z", bounds=(0, 1), pool=name) for name in ("loose", "loose-a")]
    found = plan_of([*labelled, alike("a"), alike("b")], SIMILAR)
    assert members(found) == {
        "cluster-api/default/loose": ["loose-z"],
        "cluster-api/default/loose-a": ["loose-a-z"],
        "cluster-api/default/loose-a-2": ["loose-a", "loose-b"],
    }
    found = plan_of([alike("a"), alike("c"), alike("b", memory=32), alike("d", memory=32)], SIMILAR)
    assert members(found) == {
        "cluster-api/default/loose": ["loose-a", "loose-c"],
        "cluster-api/default/loose-b": ["loose-b", "loose-d"],
    }


def test_with_a_list_of_labels_only_these_are_compared() -> None:
    def labelled(zone: str, team: str) -> NodeGroup:
        return alike(zone, template=NodeTemplate(labels={"team": team}))

    policy = make(Policy, strategy=BALANCED, similarity=Similarity(labels=("team",)))
    found = plan_of([labelled("a", "x"), labelled("b", "y"), labelled("c", "x"), alike("d", template=None)], policy)
    assert sorted(members(found).values()) == [["loose-a", "loose-c"], ["loose-b"], ["loose-d"]]


# -- zone order


@pytest.mark.parametrize(("indices", "order"), [((0, 2, 1), "bac"), ((0, None, None), "abc")])
def test_zones_are_ordered_by_index_or_else_by_name(indices: tuple[int | None, ...], order: str) -> None:
    members = [group(zone, bounds=(0, 2), zone_index=index) for zone, index in zip("bca", indices, strict=True)]
    found = pool_plan(members, numbers(0, 4, BACKWARD_COMPATIBLE))
    assert "".join(str(plan.group.identity.zone) for plan in found.groups) == order
    assert maxima(found) == (2, 1, 1)


# -- numbers


def test_annotations_on_any_member_precede_the_record() -> None:
    members = [group("a", bounds=(0, 1)), group("b", pool_min=1, pool_max=7, strategy=ADAPTIVE)]
    found = pool_plan(members, numbers(0, 12))
    assert (found.min, found.max, found.strategy) == (1, 7, ADAPTIVE)


def test_the_cluster_decides_what_neither_member_nor_rule_sets() -> None:
    policy = make(Policy, strategy=ADAPTIVE, on_failure=OnFailure.HOLD, pools=(PoolRule(name="workers", max=9),))
    stuck = zones((5, 3), running=(2, 3))
    found = pool_plan(stuck, policy, fenced=("a",))
    assert found.strategy is ADAPTIVE
    assert requested(found) == (5, 3)
    said = [replace(stuck[0], on_failure=OnFailure.RELEASE), stuck[1]]
    assert requested(pool_plan(said, policy, fenced=("a",))) == (2, 3)


@pytest.mark.parametrize(
    ("field", "annotation", "values"),
    [
        ("pool_min", "evenkeel.dev/pool-min", (0, 1)),
        ("pool_max", "evenkeel.dev/pool-max", (4, 5)),
        ("max_step", "evenkeel.dev/max-step", (4, 5)),
        ("strategy", "evenkeel.dev/strategy", (BALANCED, ADAPTIVE)),
        ("on_failure", "evenkeel.dev/on-failure", (OnFailure.HOLD, OnFailure.RELEASE)),
    ],
)
def test_members_that_disagree_make_the_pool_invalid(field, annotation, values) -> None:
    members = [group(zone, bounds=(0, 1), **{field: value}) for zone, value in zip("ab", values, strict=True)]
    reported = problem(pool_plan(members, numbers(0, 12)))
    assert f"members disagree on {annotation}" in reported
    assert all(str(value) in reported for value in values)


def test_without_numbers_the_bounds_found_at_adoption_are_added_up() -> None:
    members = [group("a", bounds=(1, 4)), group("b", bounds=(0, 3)), group("c")]
    found = pool_plan(members)
    assert (found.min, found.max) == (1, 7)
    assert found.adopted == {str(key("a")): Bounds(1, 4), str(key("b")): Bounds(0, 3), str(key("c")): None}
    found = pool_plan(members, numbers(None, 20))
    assert (found.min, found.max) == (1, 20)
    annotated = [
        group(zone, bounds=(0, 9), has_adopted=True, adopted=adopted)
        for zone, adopted in (("a", Bounds(1, 4)), ("b", None))
    ]
    found = pool_plan([*annotated, group("c", bounds=(0, 2))])
    assert (found.min, found.max) == (1, 6)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_sum_of_adopted_bounds_is_limited(strategy) -> None:
    members = [group(zone, 1, bounds=(0, LARGEST_COUNT), strategy=strategy) for zone in "abc"]
    found = pool_plan(members)
    assert found.max == LARGEST_COUNT
    assert max(maxima(found)) <= LARGEST_COUNT


def test_adopted_bounds_count_and_not_published_ones() -> None:
    ours = [group(zone, bounds=(0, 5)) for zone in "ab"]
    pool = PoolId("cluster-api", "default", "", "workers")
    state = PoolState(adopted={str(key("a")): Bounds(1, 4), str(key("b")): None})
    found = pool_plan(ours, adopted={pool: state})
    assert (found.min, found.max) == (1, 4)
    assert found.adopted == state.adopted


# -- validation


def test_a_new_pool_smaller_than_its_zones_or_with_min_above_max_is_invalid() -> None:
    text = problem(pool_plan(zones((0, 0, 0)), numbers(0, 2)))
    assert "PoolMaximum 2 is smaller than the number of zones, 3" in text
    assert "raise PoolMaximum to 3" in text
    assert "PoolMinimum 5 is larger than PoolMaximum 4" in problem(pool_plan(zones((1, 1)), numbers(5, 4)))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("trace", ["bounds", "nodes"])
def test_an_existing_pool_smaller_than_its_zones_has_a_warning(strategy, trace) -> None:
    members = zones((0, 1, 0)) if trace == "nodes" else zones((0, 0, 0), bounds=[(0, 1)] * 3)
    found = pool_plan(members, numbers(0, 2, strategy))
    assert found.mode.valid
    assert "accepted because the pool already exists" in problems_of(found.report.problems)[0]


@pytest.mark.parametrize(
    ("nodes", "low", "high", "state", "expected_minima", "expected_maxima"),
    [
        ((0, 1, 0), 0, 2, {"fenced": "a"}, (0, 0, 0), (0, 1, 1)),
        ((0, 1, 1), 0, 2, {}, (0, 0, 0), (0, 1, 1)),
        ((1, 1, 0), 2, 3, {"fenced": "a"}, (1, 1, 0), (1, 1, 1)),
    ],
    ids=["to zones that are not fenced", "to zones with nodes", "one node per zone"],
)
def test_a_small_existing_pool_has_static_shares(
    nodes: Any, low: int, high: int, state: Any, expected_minima: Any, expected_maxima: Any
) -> None:
    found = pool_plan(zones(nodes, bounds=[(0, 1)] * 3), numbers(low, high, BACKWARD_COMPATIBLE), **state)
    assert (minima(found), maxima(found)) == (expected_minima, expected_maxima)


# -- stored state


def test_a_pool_of_similar_groups_keeps_its_open_move_when_its_first_member_goes() -> None:
    """A MachineDeployment that is replaced gets another name."""
    policy = replace(SIMILAR, on_failure=OnFailure.MOVE)
    a, b, c = (alike(zone, 2) for zone in "abc")
    before = plan_of([a, b, c], policy).pools[0]
    gave_up = Move(id="m", steps={str(b.key): -3, str(c.key): 3})
    assert before.next_state.seen is not None
    twice_absent = replace(before.next_state.seen, members_missing_since=NOW - timedelta(minutes=1))
    known = {before.id: replace(before.next_state, move=gave_up, seen=twice_absent)}
    renamed = [replace(a, key=GroupKey("cluster-api", "default", "new-a")), replace(b, move="m"), c]
    (after,) = plan_of(renamed, policy, adopted=known).pools
    assert after.replicas.unplaced_before == 3
    assert sum(requested(after)) == 6 + 3


def test_a_pool_that_was_named_after_its_first_member_keeps_that_name_and_its_state() -> None:
    before = plan_of([alike("a"), alike("b")], SIMILAR).pools[0]
    adopted = {str(each.group.key): Bounds(1, 3) for each in before.groups}
    known = {before.id._replace(name="loose-a"): replace(before.next_state, adopted=adopted)}
    (after,) = plan_of([alike("a"), alike("b"), alike("c")], SIMILAR, adopted=known).pools
    assert (after.id.name, after.known_as) == ("loose-a", None)
    assert {key: after.adopted[key] for key in adopted} == adopted


def test_a_new_pool_never_takes_the_name_and_the_state_of_a_known_one() -> None:
    known = {pool.id: pool.next_state for pool in plan_of([alike("b"), alike("c")], SIMILAR).pools}
    larger = [alike("a", memory=32), alike("d", memory=32)]
    found = plan_of([alike("b"), alike("c"), *larger], SIMILAR, adopted=known)
    assert members(found) == {
        "cluster-api/default/loose": ["loose-b", "loose-c"],
        "cluster-api/default/loose-a": ["loose-a", "loose-d"],
    }


def test_a_relabelled_pool_keeps_its_state() -> None:
    numbers_of_both = replace(
        numbers(0, 12), pools=(*numbers(0, 12).pools, replace(numbers(0, 12).pools[0], name="nodes"))
    )
    before = pool_plan(zones((2, 2, 2)), numbers_of_both)
    gave_up = Move(id="m", steps={str(key("a")): -3, str(key("b")): 3})
    adopted = {str(key(zone)): Bounds(1, 4) for zone in "abc"}
    known = {before.id: replace(before.next_state, move=gave_up, adopted=adopted)}
    members = [replace(found, pool_label="nodes") for found in zones((2, 2, 2))]
    (after,) = plan_of([replace(members[0], move="m"), *members[1:]], numbers_of_both, adopted=known).pools
    assert (after.id.name, after.known_as) == ("nodes", before.id)
    assert sum(requested(after)) == 6 + 3
    assert after.adopted == adopted


def test_every_member_without_a_zone_is_a_problem() -> None:
    members = [replace(member, zone=None) for member in zones((1, 1))]
    found = pool_plan(members, numbers(0, 4))
    assert not found.mode.valid
    assert [text.split(" ")[0] for text in problems_of(found.report.problems)] == [str(key("a")), str(key("b"))]


def test_a_fault_of_one_member_makes_its_pool_invalid_and_no_other() -> None:
    fault = Fault(object="default/workers-a", field="max-size", value="'x'", problem="not an integer")
    broken = [group("a", 1, faults=(fault,)), group("b", 1, bounds=(0, 9))]
    fine = [group("a", 1, bounds=(0, 9), pool="fine"), group("b", 1, bounds=(0, 1), pool="fine")]
    good, bad = plan_of(broken + fine, numbers(0, 4)).pools
    assert problem(bad) == "default/workers-a: max-size is 'x': not an integer"
    assert requested(bad) == (1, 1)
    assert good.mode.valid
    assert good.changes


def test_every_fault_of_a_pool_is_named() -> None:
    faults = [Fault(object="x", field=name, value="'?'", problem="bad") for name in ("pool-min", "pool-max")]
    members = [group("a", faults=(faults[0],), pool_max=1), group("b", faults=(faults[1],), pool_max=2)]
    assert len(pool_plan(members, numbers(0, 4)).report.problems) == 3
