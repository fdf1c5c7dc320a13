"""When a Shoot's maximum is raised for dead zones, when it is not, and when it returns."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import (
    Bounds,
    GroupKey,
    Machine,
    NodeGroup,
    OwnerNumbers,
    OwnerRef,
    PoolId,
    ShootWorker,
)
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.parts import Parts
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState, GroupState, PoolState
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.relief.model import Relief, ReliefStep, Shoot, Shoots
from evenkeel.domain.relief.relief import PATIENCE, shares, shoots_asked_for
from evenkeel.texts.english import problem_text, sentence
from evenkeel.validation import read_model
from evenkeel_cli.cluster_file import ClusterFile
from evenkeel_cli.objects import read_objects
from tests.builders import NOW, POOL, group
from tests.parts import make, replace

SEED = "shoot--demo--main"
ID = PoolId("gardener", SEED, "", POOL)
ON = make(Policy, strategy=BALANCED, shoot_relief=True)
OFF = make(Policy, strategy=BALANCED)
MINUTE = timedelta(minutes=1)
SHOOT = OwnerRef(kind="Shoot", namespace="garden-demo", name="main", uid="shoot")


class Seed:
    """A pool of three zones with one worker, its Shoot and its stored state, over several checks."""

    def __init__(self, *replicas: int, maximum: int = 9, minimum: int = 0, policy: Policy = ON) -> None:
        self.zones = "abcdef"[: len(replicas)]
        self.replicas = dict(zip(self.zones, replicas, strict=True))
        self.running = dict(self.replicas)
        self.minimum, self.maximum, self.copied = minimum, maximum, maximum
        self.policy = policy
        self.dead: dict[str, FailureClass] = {}
        self.backoff = 5 * MINUTE
        self.state = ClusterState()
        self.now: datetime = NOW
        self.shoot_fields: dict[str, Any] = {}
        self.group_fields: dict[str, dict[str, Any]] = {}
        self.unread: Reason | None = None
        self.seen: Plan | None = None

    def groups(self) -> list[NodeGroup]:
        ref = OwnerRef(kind="Worker", namespace=SEED, name="main", part=POOL, uid="worker")
        bounds = Bounds(self.minimum, self.copied)
        owner = OwnerNumbers(ref=ref, bounds=bounds, min_field="minimum", max_field="maximum")
        low, high = (shares(number, len(self.zones)) for number in (self.minimum, self.copied))
        return [
            replace(
                group(
                    zone,
                    self.replicas[zone],
                    running=self.running[zone],
                    key=GroupKey("gardener", SEED, f"{POOL}-z{index + 1}"),
                    zone_index=index,
                    owner=owner,
                    allowed_replicas=Bounds(min(low[index], high[index]), high[index]),
                    bounds_are_read=False,
                ),
                **self.group_fields.get(zone, {}),
            )
            for index, zone in enumerate(self.zones)
        ]

    @property
    def shoot(self) -> Shoot:
        worker = ShootWorker(name=POOL, minimum=self.minimum, maximum=self.maximum, zones=tuple(self.zones))
        return replace(Shoot(ref=SHOOT, workers=(worker,), generation=1), **self.shoot_fields)

    def check(self, minutes: float = 0) -> PoolPlan:
        """Check after so many minutes. The plan is stored, and nothing is written."""
        self.now += minutes * MINUTE
        groups = self.groups()
        health = {
            found.key: make(
                GroupState,
                failures=1,
                last_failure=self.now - MINUTE,
                backoff_until=self.now - MINUTE + self.backoff,
                failure_class=self.dead[str(found.identity.zone)],
            )
            for found in groups
            if found.identity.zone in self.dead
        }
        self.state = replace(self.state, groups=health)
        asked_for = shoots_asked_for(self.state, self.now)
        shoots = {SEED: self.unread or self.shoot} if SEED in asked_for else {}
        self.seen = plan(
            Observation(groups=tuple(groups), parts=Parts({Shoots: Shoots(of=shoots)})),
            self.state,
            self.policy,
            self.now,
        )
        (pool,) = self.seen.pools
        self.state = replace(self.state, pools={pool.id: pool.next_state})
        return pool

    def write(self, minutes: float = 0, *, dies: str = "") -> int | None:
        """Check and write, by a run that may die "before" or "after" the patch. Return the written maximum."""
        step = self.check(minutes).parts.of(ReliefStep)
        if step is None:
            return None
        self.remember(step.before)
        if dies != "before":
            self.maximum = step.maximum
            if dies != "after":
                self.remember(step.after)
        return step.maximum

    def remember(self, relief: Relief) -> None:
        state = self.state.pools.get(ID, PoolState())
        self.state = replace(self.state, pools={ID: replace(state, parts=state.parts.plus(Relief, relief))})

    def nodes(self, **counts: int) -> None:
        self.replicas |= counts
        self.running |= counts

    def follow(self) -> None:
        """Let Gardener reconcile the Shoot: its Worker, and the replicas."""
        self.copied = self.maximum
        for index, zone in enumerate(self.zones):
            self.replicas[zone] = min(self.replicas[zone], shares(self.copied, len(self.zones))[index])

    def own(self, zone: str, ref: OwnerRef) -> None:
        owner = self.groups()[0].owner.numbers
        assert owner is not None
        self.group_fields = {zone: {"owner": replace(owner, ref=ref)}}

    def outage(self, *zones: str, kind: FailureClass = FailureClass.CAPACITY) -> None:
        self.dead = dict.fromkeys(zones, kind)


def notes(pool: PoolPlan) -> list[Rule]:
    """Return the rules of relief's notes, and of the obstacle if any."""
    reported = [note for note in pool.report.notes if note.rule not in (Rule.BOUNDS_UNREAD, Rule.ZONES_DIFFER)]
    assert all(sentence(note) for note in reported)
    return [why.rule if isinstance(why := note.facts.get("why"), Reason) else note.rule for note in reported]


def dead_for_long(*replicas: int, zone: str = "a", **fields: Any) -> Seed:
    """Return a seed whose zone has been dead for as long as relief waits."""
    seed = Seed(*replicas, **fields)
    seed.outage(zone)
    assert notes(seed.check()) == [Rule.RELIEF_WAITS]
    seed.now += PATIENCE
    return seed


def relieved() -> Seed:
    """Return a seed with a dead zone, whose raised maximum Gardener has reconciled."""
    seed = dead_for_long(1, 3, 3)
    assert seed.write() == 12
    seed.follow()
    return seed


def test_relief_waits_and_then_lets_healthy_zones_have_all_the_pool_may_have() -> None:
    seed = Seed(1, 3, 3)
    seed.outage("a")
    pool = seed.check()
    assert (pool.parts.of(ReliefStep), notes(pool)) == (None, [Rule.RELIEF_WAITS])
    assert seed.seen is not None
    assert seed.seen.check_at is not None
    assert seed.seen.check_at <= NOW + PATIENCE
    assert seed.check(4).parts.of(ReliefStep) is None
    assert seed.write(1) == 12
    assert sum(shares(12, 3)[1:]) == 9 - 1


def test_a_raised_maximum_is_written_once_and_is_no_desired_bound() -> None:
    seed = relieved()
    for _ in range(3):
        pool = seed.check(3)
        assert (pool.parts.of(ReliefStep), pool.max, notes(pool)) == (None, 9, [Rule.RELIEF_STANDS])
    assert [share.desired for origin in pool.report.origins for share in origin.owners] == [0, 9]


def test_the_shoot_is_read_only_for_a_zone_dead_for_long_or_a_raised_maximum() -> None:
    seed = Seed(1, 3, 3)
    seed.check()
    assert shoots_asked_for(seed.state, seed.now) == frozenset()
    seed.outage("a")
    seed.check()
    assert shoots_asked_for(seed.state, seed.now) == frozenset()
    assert shoots_asked_for(seed.state, seed.now + PATIENCE) == {SEED}
    seed.write(5)
    seed.dead = {}
    seed.check()
    assert shoots_asked_for(seed.state, seed.now) == {SEED}


def test_switched_off_nothing_is_stored() -> None:
    seed = Seed(1, 3, 3, policy=OFF)
    seed.outage("a")
    for _ in range(3):
        pool = seed.check(10)
        assert (pool.parts.of(ReliefStep), pool.next_state.parts.of(Relief), notes(pool)) == (None, None, [])


@pytest.mark.parametrize("kind", [FailureClass.QUOTA, FailureClass.CONFIGURATION, None])
def test_quota_configuration_and_a_zone_shift_are_not_relieved(kind: FailureClass | None) -> None:
    seed = Seed(1, 3, 3)
    if kind:
        seed.outage("a", kind=kind)
    else:
        seed.state = ClusterState(zones={"a": NOW + timedelta(hours=2)})
    seed.check()
    pool = seed.check(30)
    assert (pool.parts.of(ReliefStep), kind or pool.next_state.parts.of(Relief)) == (None, kind)


def test_a_healthy_check_starts_the_wait_again() -> None:
    seed = Seed(1, 3, 3)
    for failing, minutes, relief in ((True, 0, False), (False, 4, False), (True, 1, False), (True, 4, False)):
        seed.dead = {"a": FailureClass.CAPACITY} if failing else {}
        assert (seed.check(minutes).parts.of(ReliefStep) is not None) is relief
    assert seed.check(1).parts.of(ReliefStep) is not None


@pytest.mark.parametrize(
    ("replicas", "fields", "rule"),
    [
        ((1, 2, 2), {}, Rule.RELIEF_ROOM),
        ((3, 3, 3), {}, Rule.RELIEF_SUFFICES),
        ((3, 3, 3), {"minimum": 9}, Rule.RELIEF_FIXED),
    ],
)
def test_nothing_is_written_where_it_would_not_help(
    replicas: tuple[int, ...], fields: dict[str, Any], rule: Rule
) -> None:
    seed = dead_for_long(*replicas, **fields)
    pool = seed.check()
    assert (pool.parts.of(ReliefStep), notes(pool)) == (None, [rule])


def test_relief_waits_for_a_machine_on_its_way_to_the_dead_zone() -> None:
    seed = dead_for_long(1, 3, 3)
    machine = Machine(name="m", has_node=False, created_at=seed.now)
    seed.replicas["a"] = 2
    seed.group_fields = {"a": {"machines": (machine,)}}
    seed.backoff = timedelta(0)
    assert notes(seed.check(1)) == [Rule.RELIEF_TRIED]
    seed.backoff = 4 * MINUTE
    assert seed.check(1).parts.of(ReliefStep) is not None, "its next failure"


TWO_WORKERS = OwnerRef(kind="Worker", namespace=SEED, name="main", part="other", uid="worker")
OTHER_ZONES = (ShootWorker(name=POOL, minimum=0, maximum=9, zones=("a", "b", "x")),)


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        (Rule.RELIEF_NO_ZONE, lambda seed: seed.outage("a", "b", "c")),
        (Rule.RELIEF_UNDER_WAY, lambda seed: seed.shoot_fields.update(observed=False)),
        (Rule.RELIEF_AT_LIMIT, lambda seed: seed.shoot_fields.update(most_nodes=9)),
        (Rule.SHOOT_UNREAD, lambda seed: setattr(seed, "unread", Reason.of(Rule.SHOOT_UNREAD, said="no answer"))),
        (Rule.RELIEF_NO_WORKER, lambda seed: seed.own("b", TWO_WORKERS)),
        (Rule.RELIEF_ZONES_DIFFER, lambda seed: seed.shoot_fields.update(workers=OTHER_ZONES)),
    ],
    ids=lambda value: value.value if isinstance(value, Rule) else "",
)
def test_nothing_is_written_where_it_cannot_be(rule: Rule, change: Callable[[Seed], None]) -> None:
    seed = dead_for_long(1, 3, 3)
    change(seed)
    pool = seed.check()
    assert (pool.parts.of(ReliefStep), notes(pool), pool.mode.valid) == (None, [rule], True)


OBSTACLES = [
    Reason.of(Rule.OBJECT_BEING_DELETED),
    Reason.of(Rule.SHOOT_ASLEEP),
    Reason.of(Rule.SHOOT_IGNORED),
    Reason.of(Rule.SHOOT_CONFINED),
    Reason.of(Rule.SHOOT_OPERATION, type="Migrate", state="Processing"),
]


@pytest.mark.parametrize("obstacle", OBSTACLES, ids=lambda reason: reason.rule.value)
def test_a_shoot_that_is_not_reconciled_is_not_written(obstacle: Reason) -> None:
    seed = dead_for_long(1, 3, 3)
    seed.shoot_fields = {"obstacle": obstacle}
    pool = seed.check()
    assert (pool.parts.of(ReliefStep), notes(pool)) == (None, [obstacle.rule])
    seed.shoot_fields = {}
    assert seed.write(1) == 12
    seed.follow()
    seed.dead, seed.shoot_fields = {}, {"obstacle": obstacle}
    assert (seed.check(10).parts.of(ReliefStep), notes(seed.check())) == (None, [obstacle.rule])


def test_a_limit_of_the_cloud_profile_is_kept() -> None:
    seed = dead_for_long(1, 3, 3)
    seed.shoot_fields = {"most_nodes": 11}
    assert seed.write() == 11


def test_a_refusal_is_reported_and_retried_after_an_hour_or_a_change() -> None:
    seed = dead_for_long(1, 3, 3)
    step = seed.check().parts.of(ReliefStep)
    assert step is not None
    seed.remember(step.refused("quota exceeded: cpu", seed.now))
    pool = seed.check(1)
    assert (pool.parts.of(ReliefStep), notes(pool)) == (None, [Rule.RELIEF_REFUSED])
    assert "quota exceeded: cpu" in sentence(pool.report.notes[-1])
    assert seed.check(58).parts.of(ReliefStep) is None
    assert seed.check(2).parts.of(ReliefStep) is not None, "after an hour it is asked again"
    seed.shoot_fields = {"generation": 2}
    seed.now -= timedelta(minutes=30)
    assert seed.check().parts.of(ReliefStep) is not None, "and once the Shoot has changed"


def test_the_maximum_rises_further_as_nodes_go_from_the_dead_zone_and_never_falls() -> None:
    seed = dead_for_long(3, 3, 3, maximum=9)
    assert notes(seed.check()) == [Rule.RELIEF_SUFFICES]
    seed.nodes(a=1)
    assert seed.write(1) == 12
    seed.follow()
    seed.nodes(a=0, b=4, c=4)
    assert seed.write(1) is None, "Gardener reconciles"
    assert seed.write(5) == 14
    seed.nodes(a=2)
    assert seed.write(6) is None


def test_the_maximum_returns_once_every_zone_is_healthy_and_no_node_is_lost() -> None:
    seed = relieved()
    seed.nodes(b=4, c=4)
    seed.dead = {}
    assert notes(seed.check(20)) == [Rule.RELIEF_KEEPS]
    seed.replicas |= {"b": 3, "c": 3}
    seed.running |= {"b": 3}
    assert notes(seed.check(1)) == [Rule.RELIEF_KEEPS], "it still runs"
    seed.running |= {"c": 3}
    assert seed.write(1) == 9
    assert notes(seed.check(1)) == []
    before = dict(seed.replicas)
    seed.follow()
    assert seed.replicas == before
    assert seed.check(1).next_state.parts.of(Relief) is None


def test_nodes_that_join_before_the_lower_maximum_is_carried_out_are_kept() -> None:
    seed = relieved()
    seed.dead = {}
    assert seed.write(10) == 9
    seed.replicas["b"] = 4
    seed.shoot_fields = {"observed": False}
    assert seed.write(1) == 12
    seed.follow()
    assert seed.replicas["b"] == 4


def test_a_new_desired_maximum_is_reported_once_and_obeyed() -> None:
    seed = relieved()
    seed.maximum = 10
    pool = seed.check(6)
    assert pool.parts.of(ReliefStep) is None
    assert [problem_text(problem) for problem in pool.new_intents] == [
        "Shoot garden-demo/main now has bounds 0 to 10, which Evenkeel did not write: "
        "Evenkeel uses these bounds from now on"
    ]
    seed.follow()
    pool = seed.check(1)
    assert (pool.parts.of(ReliefStep), pool.max, pool.new_intents) == (None, 10, ())


def test_a_desired_maximum_below_the_running_nodes_is_obeyed() -> None:
    seed = relieved()
    seed.replicas |= {"b": 4, "c": 4}
    seed.maximum = 5
    assert (seed.check(6).parts.of(ReliefStep), seed.check(1).parts.of(ReliefStep)) == (None, None)


def test_a_maximum_that_was_set_back_is_left_until_the_next_outage() -> None:
    seed = dead_for_long(1, 3, 3)
    seed.write()
    seed.check(1)
    seed.maximum = 9
    assert notes(seed.check(10)) == [Rule.RELIEF_PUT_BACK]
    seed.follow()
    assert notes(seed.check(60)) == [Rule.RELIEF_PUT_BACK]
    seed.dead = {}
    assert seed.check(1).next_state.parts.of(Relief) is None
    seed.outage("a")
    seed.check(1)
    assert seed.write(5) == 12


@pytest.mark.parametrize("dies", ["before", "after"])
def test_a_run_that_dies_at_the_write_is_no_desired_bound(dies: str) -> None:
    seed = dead_for_long(1, 3, 3)
    seed.write(dies=dies)
    assert seed.check(1).max == 9
    seed.write(1)
    assert seed.maximum == 12
    seed.follow()
    assert seed.check(1).max == 9
    seed.dead = {}
    seed.write(10, dies=dies)
    assert seed.check(1).max == 9
    seed.write(6)
    assert seed.maximum == 9
    seed.follow()
    assert (seed.check(1).max, seed.state.pools[ID].parts.of(Relief)) == (9, None)


def test_switched_off_the_maximum_returns_without_waiting_for_the_zones() -> None:
    seed = relieved()
    seed.policy = OFF
    assert seed.write(6) == 9
    seed.follow()
    assert seed.check(1).next_state.parts.of(Relief) is None


def test_a_restore_returns_the_maximum_and_is_done_only_then() -> None:
    seed = relieved()
    seed.policy = replace(ON, restoring=True)
    seed.replicas["b"] = 4
    assert notes(seed.check(6)) == [Rule.RELIEF_KEEPS]
    seed.replicas["b"] = 3
    assert seed.write(1) == 9
    relief = seed.check(1).next_state.parts.of(Relief)
    assert relief is None or not relief.is_left


def test_a_raised_maximum_without_access_to_the_garden_is_reported() -> None:
    seed = relieved()
    seed.policy = OFF
    groups, now = tuple(seed.groups()), seed.now + timedelta(hours=3)
    (pool,) = plan(Observation(groups=groups), seed.state, OFF, now).pools
    assert (notes(pool), pool.max) == ([Rule.RELIEF_LEFT], 9)
    seed.maximum = seed.copied = 9
    (pool,) = plan(Observation(groups=tuple(seed.groups())), seed.state, OFF, now).pools
    assert pool.next_state.parts.of(Relief) is None


def test_a_recreated_shoot_ends_relief_and_a_frozen_zone_keeps_it() -> None:
    frozen, recreated = relieved(), relieved()
    frozen.dead = recreated.dead = {}
    frozen.group_fields = {"c": {"frozen_because": Reason.of(Rule.ROLLING_SETS, sets=2)}}
    recreated.shoot_fields = {"ref": replace(SHOOT, uid="another")}
    assert notes(frozen.check(10)) == [Rule.RELIEF_STANDS]
    assert recreated.check(10).next_state.parts.of(Relief) is None


def test_plan_from_files_shows_relief() -> None:
    directory = Path(__file__).parents[2] / "clusters"
    text = (directory / "gardener-shoot.yaml").read_text(encoding="utf-8")
    policy = read_model(ClusterFile, {"shoot_relief": {}}, "record")
    observation = read_objects([("gardener-shoot.yaml", text)], policy, NOW)
    shoot = observation.parts[Shoots].of["shoot--demo--main"]
    assert isinstance(shoot, Shoot)
    assert [worker.name for worker in shoot.workers] == ["main", "gpu", "off"]
    pool = next(
        pool for pool in plan(observation, ClusterState(), policy.policy(), NOW).pools if pool.id.name == "main"
    )
    first = pool.groups[0].group
    health = make(
        GroupState, failures=1, last_failure=NOW, backoff_until=NOW + 5 * MINUTE, failure_class=FailureClass.CAPACITY
    )
    stored = PoolState(parts=Parts({Relief: Relief(dead={str(first.identity.zone): NOW - PATIENCE})}))
    state = ClusterState(groups={first.key: health}, pools={pool.id: stored})
    reported = next(found for found in plan(observation, state, policy.policy(), NOW).pools if found.id == pool.id)
    assert len(notes(reported)) == 1
    assert notes(reported) != [Rule.RELIEF_NO_WORKER]
