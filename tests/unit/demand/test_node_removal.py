"""Running machines are removed by name, and no group or pool goes below its minimum."""

from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from evenkeel.adapters.codec import dump_stored, read_stored
from evenkeel.domain.demand.offers import offer_of
from evenkeel.domain.model.groups import Machine, MachineRef, NodeGroup
from evenkeel.domain.model.moves import UNNEEDED_NODES, Move, ScaleRequest
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.problems import ProblemKind
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.removals import disagree
from evenkeel.domain.model.states import ClusterState, GroupState, PoolState
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.gep24 import BACKWARD_COMPATIBLE
from evenkeel.domain.rebalancing.journal import opened
from evenkeel.domain.rebalancing.writes import patches
from evenkeel.texts.english import sentence
from tests.builders import NOW, drafted, group, key, numbers, requested, zones
from tests.parts import replace

ID = ulid(NOW, b"0123456789")


def machine(name: str = "m", **fields: Any) -> Machine:
    return Machine(name=name, uid=f"uid-{name}", has_node=True, created_at=NOW, **fields)


def named(*names: str, zone: str = "a") -> dict[str, tuple[MachineRef, ...]]:
    return {str(key(zone)): tuple(machine(name).ref for name in names)}


def removed(members: list[NodeGroup], machines: dict[str, tuple[MachineRef, ...]], policy: Policy | None = None,
            **state: Any) -> PoolPlan:  # fmt: skip
    count = sum(map(len, machines.values()))
    request = ScaleRequest(id=UNNEEDED_NODES, nodes=-count, at=NOW, pool="workers", machines=machines)
    known = ClusterState(scale_requests=(request,), **state)
    (pool,) = plan(Observation(groups=tuple(members)), known, policy or numbers(0, 100), NOW).pools
    return pool


def test_named_machines_go_with_the_bounds_in_one_patch() -> None:
    pool = removed(zones([5, 5, 5]), named("m7"))
    assert requested(pool) == (4, 5, 5)
    gone = pool.groups[0]
    assert [ref.name for ref in gone.removal.machines] == ["m7"]
    assert not gone.removal.may_remove_running
    (patch,) = patches(gone)
    assert patch.requested == 4
    assert patch.bounds == gone.bounds
    assert pool.moves == {str(key("a")): -1}


def test_an_interrupted_removal_is_not_resumed() -> None:
    pool = removed(zones([5, 5, 5]), named("m7"))
    journal = opened(pool, ID).move
    assert journal is not None
    done = [replace(one, move=ID, requested=4) if one.key == key("a") else one for one in zones([5, 5, 5])]
    assert journal.still_unplaced(done) == 0
    again = Move(id=ID, unplaced=-1, steps={str(key("a")): -1}, request=UNNEEDED_NODES)
    state = ClusterState(pools={pool.id: replace(pool.next_state, move=again)})
    for members in (done, zones([5, 5, 5])):
        (left,) = plan(Observation(groups=tuple(members)), state, numbers(0, 100), NOW).pools
        assert [one.requested for one in left.groups] == [one.requested for one in members]
        assert left.replicas.unplaced == 0


@pytest.mark.parametrize(
    ("policy", "counts", "names", "left"),
    [
        pytest.param(numbers(0, 100), (1, 5, 5), ("m",), (0, 5, 5), id="the last"),
        pytest.param(numbers(11, 100), (1, 5, 5), ("m",), (1, 5, 5), id="PoolMinimum"),
        pytest.param(numbers(10, 100), (3, 4, 4), ("m", "n"), (2, 4, 4), id="one of two"),
        pytest.param(numbers(6, 100, strategy=BACKWARD_COMPATIBLE), (3, 5, 5), ("m", "n"), (2, 5, 5), id="the share"),
    ],
)
def test_never_below_a_minimum(
    policy: Policy, counts: tuple[int, ...], names: tuple[str, ...], left: tuple[int, ...]
) -> None:
    assert requested(removed(zones(counts), named(*names), policy)) == left
    members = [replace(one, zone_min=one.requested) for one in zones(counts)]
    assert requested(removed(members, named(*names), policy)) == counts, "the zone's own min"


def test_a_machine_that_cannot_be_named_stays_for_a_reason() -> None:
    def why(member: NodeGroup, **state: Any) -> str:
        known = ClusterState(**state)
        draft = drafted([member], numbers(0, 100), known).groups[0]
        reason = draft.drain_blocked_by
        return "it may" if reason is None else sentence(reason)

    here = group("a", 2)
    there = (machine("m"), machine("n"))
    assert why(here) == "it may"
    assert why(replace(here, machines=there)) == "it may"
    assert why(replace(here, launched=2)) == "Evenkeel cannot choose which machine a MachineDeployment removes"
    assert why(replace(here, max_only=True)) == "another controller writes the replicas of the group"
    assert why(here.frozen(Reason.of(Rule.OBJECT_PAUSED))) == "the group is frozen"
    going = (machine("m"), machine("n", deleting=True))
    assert why(replace(here, machines=going)) == "the group requests 2 replicas and has 1 machine"
    marked = (machine("m", marked=True), machine("n"))
    others = "another controller has marked machine m of the group to be deleted first"
    assert why(replace(here, machines=marked)) == others
    assert why(replace(here, machines=marked), groups={here.key: GroupState(marked=("m",))}) == "it may"
    assert disagree((machine("m", marked=True, marked_by_us=True),), 1, ()) is None


def test_no_machine_goes_while_the_pool_changes() -> None:
    pool = removed(zones([5, 1, 0]), named("m"), numbers(8, 100))
    assert sum(requested(pool)) == 8
    assert requested(pool)[0] == 5
    kinds = {problem.kind for problem in pool.report.problems}
    assert not kinds & {ProblemKind.REQUEST_UNMET, ProblemKind.REQUEST_EXPIRED}


def test_marks_clocks_and_growth_are_stored() -> None:
    assert read_stored(GroupState, '{"failures": 0, "marked": ["m"]}', "GROUP") == GroupState(marked=("m",))
    state = GroupState(unneeded={"n1": NOW})
    assert read_stored(GroupState, dump_stored(state), "GROUP") == state
    pool = PoolState(grew_at=NOW)
    assert read_stored(PoolState, dump_stored(pool), "POOL") == pool
    assert read_stored(PoolState, "{}", "POOL") == PoolState()


def test_an_offer_is_held_or_waits() -> None:
    def offered(member: NodeGroup, **state: Any) -> tuple[str, str]:
        pool = drafted([member], numbers(0, 100), ClusterState(**state))
        (found,) = offer_of(pool).groups
        return tuple("" if reason is None else reason.rule.value for reason in (found.held, found.waits))  # type: ignore[return-value]

    here = group("a", 2)
    assert offered(here) == ("", "")
    assert offered(replace(here, launched=2))[0] == "no-machine-can-be-named"
    assert offered(here.frozen(Reason.of(Rule.OBJECT_PAUSED)))[0] == "frozen"
    assert offered(here.frozen(Reason.of(Rule.WRITE_REFUSED, error="no"))) == ("", "in-state")
    assert offered(replace(here, machines=(machine("m"),))) == ("", "machines-awaited")


def test_a_groups_own_options_count() -> None:
    member = replace(
        group("a", 2),
        unneeded_time=timedelta(minutes=3),
        unready_time=timedelta(0),
        utilization_threshold=0.25,
        gpu_utilization_threshold=0.75,
    )
    (found,) = offer_of(drafted([member], numbers(0, 100))).groups
    assert (found.options.unneeded_for, found.options.unready_for) == (timedelta(minutes=3), timedelta(0))
    assert (found.options.threshold, found.options.gpu_threshold) == (Fraction(1, 4), Fraction(3, 4))
