"""The rest of a request beyond max_step waits in the queue: it delays nothing else, and is not lost."""

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters.codec import pack
from evenkeel.application.operate import Operate
from evenkeel.domain.model.workload import ZONE
from evenkeel.state_records import ScaleRequestRecord, ZoneRecord, ZoneStatement
from tests.builders import key
from tests.crashing import How, Life
from tests.fakes import FakeClusters, plenty
from tests.property.rebalancing.test_max_step_properties import Steps
from tests.workloads import pod
from tests.world import CHECK

Asked = list[tuple[str, Any, tuple[str, ...]]]
CRASHES = st.tuples(st.integers(0, 30), st.sampled_from([How.BEFORE, How.AFTER, How.LOST]))
ASKED = st.one_of(
    st.tuples(st.just("ask"), st.integers(-9, 9).filter(bool), st.sampled_from([(), ("workers-a",), ("workers-b",)])),
    st.tuples(st.just("pod"), st.sampled_from("abc"), st.just(())),
    st.tuples(st.just("fail"), st.sampled_from("abc"), st.just(())),
    st.tuples(st.just("die"), CRASHES, st.just(())),
    st.tuples(st.just("run"), st.integers(1, 3), st.just(())),
)


class Queue(Steps):
    """A world whose operators request nodes, remove some and start pods, while zones fail and runs die."""

    def fail(self, zone: str, lasts: timedelta = timedelta(minutes=20)) -> None:
        self.dead.add(zone)
        until = self.clock.at + lasts
        record = ZoneRecord(statements={"operator": ZoneStatement(until=until, stated_at=self.clock.at)})
        self.store.save_zone("demo", "eu-central-1", zone, record, None)

    def act(self, action: str, **fields: Any) -> str:
        operate = Operate(
            store=self.store,
            clusters=FakeClusters({"demo": self.cluster}),
            queue=self.queue,
            clock=self.clock,
            random_bytes=bytes,
            pack=pack,
            dry_run=False,
        )
        return str(operate({"cluster": "demo", "action": action, "by": "test", **fields}, plenty)["message"])

    def step(self, life: Life | None = None) -> None:
        self.run(life)
        self.pass_time()


def play(town: Queue, asked_for: Asked) -> None:
    for number, (what, value, only) in enumerate(asked_for):
        if what == "ask":
            town.request(f"r{number}", value, only)
        elif what == "pod":
            town.add(pod(f"p{number}", cpu="3", node_selector={ZONE: value}))
        elif what == "fail" and not town.dead:
            town.fail(value)
        elif what == "die":
            town.step(Life(at=value[0], how=value[1]))
        elif what == "run":
            for _ in range(value):
                town.step()


def numbers_in(result: str) -> list[int]:
    return [int(word) for word in result.replace(",", "").split() if word.isdigit()]


def placed(request: ScaleRequestRecord) -> int:
    """Return by how many nodes a request has changed its pool, by its result. Check the result's other nodes."""
    found = numbers_in(request.result)
    if request.result.startswith("refused"):
        return 0
    if request.nodes > 0 and "refused" not in request.result:
        unplaced = found[1] if "could not be placed" in request.result else 0
        assert found[0] + unplaced == request.nodes, request.result
    return found[0] if request.nodes > 0 else -found[0]


@given(st.integers(1, 5), st.sampled_from(["hold", "move"]), st.lists(ASKED, max_size=14))
def test_every_request_ends_and_adds_what_its_answer_says(step: int, on_failure: str, asked_for: Asked) -> None:
    town = Queue(max_step=step, takes=CHECK, on_failure=on_failure)
    play(town, [one for one in asked_for if one[0] != "pod"])
    town.until(lambda: all(request.done for request in town.scale_requests().values()), 90)
    if on_failure == "hold":
        assert max(town.runs, default=0) <= step
    assert town.faults == []
    town.step()
    assert town.total == 3 + sum(placed(request) for request in town.scale_requests().values())
    assert not town.has_open_move() or town.dead


@given(st.integers(1, 5), st.lists(ASKED, max_size=14))
def test_pods_do_not_wait_for_the_rest_of_a_request(step: int, asked_for: Asked) -> None:
    town = Queue(max_step=step, takes=CHECK, maximum=300)
    town.request("long", 150, ("workers-a",))
    play(town, asked_for)
    town.add(pod("last", cpu="3", node_selector={ZONE: "c"}))
    asked = 1 + sum(one[0] == "ask" for one in asked_for)
    pods = len(town.waiting())

    def served() -> bool:
        return not [name for name in town.waiting() if town.pods[name].needs.node_selector[ZONE] not in town.dead]

    town.until(served, 2 * (asked + pods) + 6)
    assert max(town.runs, default=0) <= step


@given(st.integers(1, 5), st.integers(0, 3), st.none() | CRASHES, st.booleans())
def test_a_restore_adds_only_what_was_started(step: int, runs: int, crash: tuple[int, How] | None, whole: bool) -> None:
    town = Queue(max_step=step, maximum=300)
    town.request("long", 100)
    for _ in range(runs):
        town.step()
    before = town.total
    if crash is not None:
        town.step(Life(at=crash[0], how=crash[1]))
    at = town.total
    begun = 0 if crash is None else step - (at - before)
    assert begun >= 0
    town.act("restore", **({} if whole else {"pool": "workers"}))
    town.until(lambda: not town.store.load("demo").control.restoring, 6) if whole else [town.step() for _ in range(6)]
    assert at <= town.total <= at + begun


@given(st.integers(1, 4), st.integers(1, 60), st.lists(CRASHES, max_size=3))
def test_a_request_to_give_back_is_refused_while_one_adds_and_cancels_nothing(
    step: int, back: int, crashes: list[tuple[int, How]]
) -> None:
    town = Queue(max_step=step, takes=CHECK, maximum=300)
    town.request("long", 40)
    town.step()
    town.request("back", -back)
    for at, how in crashes:
        town.step(Life(at=at, how=how))
    town.until(lambda: town.scale_requests()["back"].done, 3)
    answer = town.scale_requests()["back"].result
    assert answer.startswith("refused: request back ")
    assert answer.endswith("request long of the same pool adds nodes: wait until it is done, then request again")
    town.until(lambda: town.scale_requests()["long"].done, 90)
    assert min(town.runs) >= 0
    assert (town.total, placed(town.scale_requests()["long"])) == (43, 40)
    assert town.scale_requests()["back"].result == answer, "it is answered once"
    town.request("again", -back)
    town.until(lambda: town.scale_requests()["again"].done, 3)
    assert town.total == 43 + placed(town.scale_requests()["again"]) < 43


@given(
    st.lists(st.integers(-9, 9).filter(bool), min_size=2, max_size=6), st.integers(1, 5), st.lists(CRASHES, max_size=3)
)
def test_of_requests_made_together_the_first_decides_the_direction(
    asked: list[int], step: int, crashes: list[tuple[int, How]]
) -> None:
    town = Queue(nodes=(20, 20, 20), max_step=step, takes=CHECK, maximum=300)
    for number, nodes in enumerate(asked):
        town.request(f"r{number}", nodes)
    before = town.total
    town.step()
    for at, how in crashes:
        town.step(Life(at=at, how=how))
    town.until(lambda: all(request.done for request in town.scale_requests().values()), 60)
    against = {f"r{number}" for number, nodes in enumerate(asked) if nodes * asked[0] < 0}
    assert {id for id, request in town.scale_requests().items() if request.result.startswith("refused")} == against
    assert town.total == before + sum(nodes for nodes in asked if nodes * asked[0] > 0)


def test_two_requests_take_turns() -> None:
    town = Queue(max_step=2, takes=CHECK, maximum=300)
    town.request("first", 60)
    town.step()
    town.request("second", 60)
    town.until(lambda: town.scale_requests()["second"].added >= 20, 24)
    assert 18 <= town.scale_requests()["first"].added <= 24


def test_rests_continue_without_a_scan() -> None:
    town = Queue(max_step=2, takes=CHECK)
    for number, only in enumerate([(), ("workers-a",), ("workers-b",)]):
        town.request(f"r{number}", 7, only)
    assert town.follow()
    assert town.total == 3 + 21
    assert all(request.done for request in town.scale_requests().values())


def test_a_patch_that_arrives_after_the_next_run_is_counted() -> None:
    def asked() -> Queue:
        town = Queue(max_step=3, takes=CHECK, maximum=300, strategy="Backward-Compatible")
        town.step()
        town.step()
        town.request("long", 30)
        return town

    undisturbed = Life()
    asked().run(undisturbed)
    patch = next(number for number, step in enumerate(undisturbed.steps) if "apply" in step)
    town = asked()
    before = dict(town.cluster.groups)
    town.run(Life(at=patch, how=How.LOST))
    late = dict(list(town.cluster.groups.items())[:1])
    town.cluster.groups.update({key: before[key] for key in late})
    assert town.run() is not None
    assert all(town.cluster.groups[key] == before[key] for key in late)
    town.cluster.groups.update(late)
    town.pass_time()
    town.until(lambda: town.scale_requests()["long"].done, 20)
    assert town.total == 33


def test_requests_do_not_expire_while_a_pool_is_raised() -> None:
    lives = Life()
    for at in (None, 6, 8, 10, 12):
        town = Queue(max_step=1, takes=CHECK, maximum=700, minimum=260)
        town.request("more", 4)
        town.until(lambda: town.total >= 260, 300)  # noqa: B023
        town.run(lives if at is None else Life(at=at, how=How.AFTER))
        town.pass_time()
        town.until(lambda: town.scale_requests()["more"].done, 20)  # noqa: B023
        assert (town.total, town.scale_requests()["more"].result[:13]) == (264, "4 nodes in po"), (at, lives.steps)


def test_requests_do_not_expire_while_one_continues() -> None:
    town = Queue(max_step=1, takes=CHECK, maximum=700)
    town.request("long", 300)
    town.step()
    town.request("next", 10)
    town.until(lambda: all(request.done for request in town.scale_requests().values()), 330)
    assert town.total == 313
    assert town.scale_requests()["long"].result.startswith("300 nodes in pool")


def test_a_rest_expires_an_hour_after_its_last_step() -> None:
    town = Queue(max_step=3, takes=CHECK, maximum=300)
    town.request("long", 30)
    town.step()
    town.pass_time(timedelta(minutes=61))
    town.step()
    assert town.scale_requests()["long"].done
    assert town.scale_requests()["long"].result.startswith(
        "3 nodes added, the rest is refused: request long for 27 nodes"
    )
    assert town.total == 6


def test_while_a_request_has_a_rest_its_refused_node_moves_and_other_stuck_replicas_are_released() -> None:
    town = Queue(nodes=(4, 4, 4), max_step=1, takes=CHECK, maximum=300, on_failure="move")
    town.request("long", 150)
    town.step()
    for name in town.in_zone("c")[1:]:
        town.cluster.set(key("c"), name, has_node=False, created_at=town.clock.now())
    town.fail("c")
    town.refusing.add("c")
    town.step()  # the machines are refused
    before, request = town.total, 1
    assert town.requested()["c"] == 1 + 3 + request
    town.step()
    assert town.requested()["c"] == 1
    assert town.total == before - 3  # no pod waits for the three removed nodes
    added = town.scale_requests()["long"].added
    town.until(lambda: town.scale_requests()["long"].added > added, 4)
