"""The codec of stored items reads its own texts, and refuses all others in one line."""

import json
from dataclasses import replace
from typing import Any

import pytest

from evenkeel.adapters.aws.records import CheckedAt, StoredPool
from evenkeel.adapters.codec import dump_stored, keep_unknown, pack, read_as, read_stored, unpack
from evenkeel.capabilities import STORED_PARTS
from evenkeel.domain.fleet.check_times import SteadyState, Timer, Unreachable
from evenkeel.domain.model.convergence import (
    Cancelling,
    ConvergenceState,
    Deleting,
    Draining,
    Order,
    Ordered,
    Starting,
    Step,
)
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Bounds, GroupKey, MachineFailure, MachineRef, PoolId
from evenkeel.domain.model.incidents import ClusterHealth, Incident, IncidentKind
from evenkeel.domain.model.moves import Move, RequestedNodes
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.parts import Parts
from evenkeel.domain.model.past_orders import PastOrder
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.provision_times import ProvisionTimes
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import (
    DesiredBounds,
    GroupState,
    MemberSnapshot,
    PoolState,
    Publication,
    Release,
    ReplicasState,
)
from evenkeel.domain.relief.model import RefusedMaximum, Relief, Shoots
from evenkeel.domain.survival.model import HeldNodes
from evenkeel.validation import ConfigError
from tests.fakes import NOW
from tests.parts import make

KEY = GroupKey("cluster-api", "demo", "workers-a")
REASON = Reason.of(Rule.POOL_BUSY, nodes=-3, names=("a", "b"), inner=Reason.of(Rule.DRAIN_HANGS), nothing=None)
REPLICAS = {"target_replicas": 2, "source_replicas": 1, "excused_replicas": 1}
ORDER = Order(source=str(KEY), destination=str(KEY), begun_at=NOW, **REPLICAS)
STEP = Deleting(phase="deleting", order=ORDER, draining_group=str(KEY), machine=MachineRef("m", "u"))
BAD_STEP = {**json.loads(dump_stored(STEP)), "draining_group": "a"}
POOL = PoolState(
    adopted={str(KEY): Bounds(1, 2), "b": None},
    desired_bounds={"o": DesiredBounds(bounds=Bounds(0, 1), ours=(Bounds(0, 2),))},
    move=Move(id="m", unplaced=-1, steps={str(KEY): -3}, only=("a", "b")),
    seen=MemberSnapshot(since=NOW, requested={str(KEY): 1}),
    published=Publication(at=NOW, basis="x", maxima={str(KEY): -1}),
    convergence=ConvergenceState(step=STEP),
    release=Release(at=NOW, replicas=3),
    replicas=ReplicasState(
        requested_nodes=(RequestedNodes(at=NOW, only=("a", "b"), nodes={str(KEY): 2}),), reserved={str(KEY): 1}
    ),
    orders={"a/b": PastOrder(at=NOW, seen=NOW, groups=(str(KEY),), why=REASON)},
    parts=Parts(
        {
            HeldNodes: HeldNodes(at=NOW, nodes={str(KEY): 2}, drains_held_since=NOW, drains_held_until=NOW),
            Relief: Relief(dead={"a": NOW}, refused=RefusedMaximum(number=3, generation=2**40, at=NOW)),
        }
    ),
)
PROBLEM = Problem(ProblemKind.STARVED, {"why": REASON, "nodes": 3})
MISSING = Incident(kind=IncidentKind.MISSING, since=NOW, failure_class=FailureClass.CAPACITY, problems=(PROBLEM,))
ANNOUNCED = (MachineFailure(code="c", message="m", at=NOW),)
PLACE = MachineRef("m", "u")
STEPS: list[Step] = [
    Starting(phase="starting", order=ORDER, move_id="m"),
    Ordered(phase="ordered", order=ORDER),
    Cancelling(phase="cancelling", order=ORDER, replicas_after_cancel=1),
    STEP,
    Draining(phase="draining", order=ORDER, draining_group=str(KEY), machine=PLACE, delete_requested_at=NOW),
]
VALUES: list[Any] = [
    POOL,
    StoredPool.of(PoolId("cluster-api", "demo", "", "a/b"), POOL),
    make(GroupState, failures=2, failure_class=FailureClass.QUOTA, announced=ANNOUNCED, unneeded={"n": NOW}),
    ClusterHealth(incidents=(MISSING,)),
    SteadyState(at=NOW, seen={"a": "b"}),
    Timer(due=NOW, step=2),
    Unreachable(since=NOW, failed_checks=1, last_check=NOW, next_check=NOW),
    CheckedAt(at=NOW, clusters=("a",)),
    *(PoolState(convergence=ConvergenceState(step=step)) for step in STEPS),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_stored_value_is_read_unchanged(value: Any) -> None:
    assert read_stored(type(value), dump_stored(value), "item") == value


def test_a_stored_text_omits_defaults_and_sorts_sets() -> None:
    assert dump_stored(make(GroupState, failure_class=FailureClass.QUOTA)) == '{"class":"quota"}'
    assert json.loads(dump_stored(POOL))["move"]["only"] == ["a", "b"]


@pytest.mark.parametrize(
    ("kind", "data", "says"),
    [
        (GroupState, {"failures": -1}, "item: failures is '-1'"),
        (GroupState, {"failures": 2**31}, "item: failures is"),
        (GroupState, {"failures": "2"}, "item: failures is '2'"),
        (GroupState, {"class": "bad luck"}, "item: class is 'bad luck'"),
        (GroupState, {"reports": ["2026-01-15T12:00:00"]}, "item: reports.0 is"),
        (GroupState, {"last_failure": "9999-12-31T23:59:59Z"}, "write a time from 2000 to 2199"),
        (GroupState, [], "item: the whole is '[]': no object"),
        (PoolState, {"adopted": {"a": {"min": 4, "max": 1}}}, "item: adopted.a is"),
        (PoolState, {"convergence": {"step": BAD_STEP}}, "it names group 'a'"),
        (PoolState, {"convergence": {"step": {**BAD_STEP, "phase": "gone"}}}, "is 'gone': it is one of starting,"),
        (Timer, {}, "item: due is missing"),
    ],
)
def test_a_bad_value_is_one_line(kind: type, data: object, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_stored(kind, json.dumps(data), "item")
    (line,) = caught.value.faults
    assert says in line


def test_the_state_of_a_group_is_one_flat_object() -> None:
    state = make(
        GroupState,
        failures=1,
        last_success=NOW,
        contested_by="argocd",
        marked=("m",),
        unneeded={"n": NOW},
        unhealthy_since=NOW,
    )
    text = dump_stored(state)
    assert json.loads(text).keys() == {
        *("failures", "last_success", "contested_by", "marked", "unneeded", "unhealthy_since")
    }
    assert read_stored(GroupState, text, "item") == state
    newer = json.dumps({**json.loads(text), "mood": "good"})
    assert json.loads(keep_unknown(GroupState, text, newer)) == json.loads(newer)


def test_a_field_of_a_newer_release_is_ignored_and_kept() -> None:
    text = dump_stored(POOL)
    newer = json.loads(text)
    newer["mood"] = "good"
    newer["adopted"][str(KEY)]["floor"] = 1
    newer["orders"]["a/b"]["why"]["since"] = "yesterday"
    assert read_stored(PoolState, json.dumps(newer), "item") == POOL
    assert json.loads(keep_unknown(PoolState, text, json.dumps(newer))) == newer
    with pytest.raises(ConfigError, match="mood is not a field of this record"):
        read_as(PoolState, newer, "item", strict=True)


def test_an_order_that_cannot_be_read_is_dropped_from_the_item_and_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stored = StoredPool.of(PoolId("cluster-api", "demo", "", "a/b"), POOL)
    newer = json.loads(dump_stored(stored))
    newer["state"]["orders"]["newer"] = {**newer["state"]["orders"]["a/b"], "why": {"rule": "of-a-newer-release"}}
    assert read_stored(StoredPool, json.dumps(newer), "item") == stored
    assert "dropped a stored part of a pool that cannot be read: 'newer'" in caplog.text
    assert keep_unknown(StoredPool, dump_stored(stored), json.dumps(newer)) == dump_stored(stored)
    with pytest.raises(ConfigError, match=r"orders\.newer\.why\.rule is 'of-a-newer-release'"):
        read_as(PoolState, newer["state"], "state file", strict=True)


def test_a_part_of_a_capability_is_one_field_of_the_pools_item() -> None:
    now = NOW.isoformat().replace("+00:00", "Z")
    expected = {"at": now, "nodes": {str(KEY): 2}, "drains_held_since": now, "drains_held_until": now}
    assert json.loads(dump_stored(POOL))["survival"] == expected
    assert "survival" not in json.loads(dump_stored(replace(POOL, parts=Parts())))


def test_a_part_of_a_capability_that_is_gone_stays_in_the_item() -> None:
    stored = StoredPool.of(PoolId("cluster-api", "demo", "", "a/b"), POOL)
    before = json.loads(dump_stored(stored))
    before["state"]["spread"] = {"since": "yesterday"}
    assert read_stored(StoredPool, json.dumps(before), "item") == stored
    assert json.loads(keep_unknown(StoredPool, dump_stored(stored), json.dumps(before))) == before


@pytest.mark.parametrize(
    "part",
    [
        *([], "yes", {"at": "2026-01-01T00:00:00Z", "nodes": ["a"]}, {"nodes": {}}),
        *({"at": "2026-01-01T00:00:00Z", "nodes": {"a": -1}}, {"at": "1969-01-01T00:00:00Z"}),
    ],
)
def test_a_part_that_cannot_be_read_is_no_fault_of_its_pool(part: object, caplog: pytest.LogCaptureFixture) -> None:
    """A newer release stores it in another form, or with other numbers."""
    stored = StoredPool.of(PoolId("cluster-api", "demo", "", "a/b"), replace(POOL, parts=Parts()))
    newer = json.loads(dump_stored(stored))
    newer["state"]["survival"] = part
    assert read_stored(StoredPool, json.dumps(newer), "item") == stored
    assert keep_unknown(StoredPool, dump_stored(stored), json.dumps(newer)) == dump_stored(stored)
    (line,) = caplog.messages
    assert line.startswith("dropped a stored part of a pool that cannot be read: 'survival': ")
    assert line.endswith(" (of item)")
    with pytest.raises(ConfigError, match="survival"):
        read_as(PoolState, newer["state"], "state file", strict=True)


def test_a_field_of_a_newer_release_in_a_known_part_is_ignored_and_kept() -> None:
    stored = StoredPool.of(PoolId("cluster-api", "demo", "", "a/b"), POOL)
    newer = json.loads(dump_stored(stored))
    newer["state"]["survival"]["mood"] = "good"
    newer["state"]["relief"]["refused"]["by"] = ["quota"]
    assert read_stored(StoredPool, json.dumps(newer), "item") == stored
    assert json.loads(keep_unknown(StoredPool, dump_stored(stored), json.dumps(newer))) == newer


@pytest.mark.parametrize("broken", [[], "yes", 7, True, {"at": [], "dead": 7}])
@pytest.mark.parametrize("names", [["survival"], ["relief"], ["relief", "survival"]])
def test_a_part_of_another_type_is_dropped_in_one_log_line_and_other_parts_stay(
    names: list[str], broken: object, caplog: pytest.LogCaptureFixture
) -> None:
    newer = json.loads(dump_stored(POOL))
    newer.update(dict.fromkeys(names, broken))
    left = Parts(
        {kind: part for kind, part in POOL.parts.items() if kind not in [STORED_PARTS[name] for name in names]}
    )
    assert read_stored(PoolState, json.dumps(newer), "item") == replace(POOL, parts=left)
    lines = [record.getMessage().partition(": ")[2].partition(":")[0] for record in caplog.records]
    assert sorted(lines) == [f"'{name}'" for name in names]


@pytest.mark.parametrize("broken", [{"letters": "a-b"}, {"letters": "a" * 201}, {"letters": 3}, 7, None])
def test_provision_times_that_cannot_be_read_are_dropped_in_one_log_line(
    broken: object, caplog: pytest.LogCaptureFixture
) -> None:
    times = {"m5.large": ProvisionTimes(letters="abc")}
    stored = PoolState(replicas=ReplicasState(provision_times=times, counted_until={str(KEY): NOW}))
    for state in (stored, StoredPool.of(PoolId("cluster-api", "demo", "", "a/b"), stored)):
        caplog.clear()
        item = json.loads(dump_stored(state))
        (item if state is stored else item["state"])["replicas"]["provision_times"]["m5.xlarge"] = broken
        assert read_stored(type(state), json.dumps(item), "item") == state
        assert [record.getMessage().partition(": '")[2][:9] for record in caplog.records] == ["m5.xlarge"]


@pytest.mark.parametrize("broken", [{str(KEY): "yesterday"}, {str(KEY): "2026-01-15T12:00:00"}, {str(KEY): None}, 7])
def test_times_until_which_machines_are_counted_are_dropped_if_they_cannot_be_read(broken: object) -> None:
    stored = PoolState(digest="x", replicas=ReplicasState(provision_times={"m": ProvisionTimes(letters="abc")}))
    item = json.loads(dump_stored(stored))
    item["replicas"]["counted_until"] = broken
    assert read_stored(PoolState, json.dumps(item), "item") == stored


def test_without_any_readable_provision_times_the_other_fields_stay() -> None:
    text = json.dumps({"digest": "x", "replicas": {"provision_times": "none"}})
    assert read_stored(PoolState, text, "item") == PoolState(digest="x")


@pytest.mark.parametrize("before", ["{", '{"digest": 3, "mood": "good"}', "[]"])
def test_unknown_fields_of_an_unreadable_item_are_dropped(before: str) -> None:
    assert keep_unknown(PoolState, "{}", before) == "{}"


def test_what_capabilities_have_read_is_part_of_a_packed_observation() -> None:
    shoots = Shoots(of={"shoot--a--b": Reason.of(Rule.SHOOT_ASLEEP)})
    for parts in (Parts(), Parts({Shoots: shoots})):
        observation = Observation(groups=(), parts=parts)
        assert unpack(Observation, pack(observation), "observation") == observation
