"""What max_step leaves of a request waits in the queue: nothing else waits for it, and nothing of it is lost."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.application.operate import Operate
from evenkeel.config import ScaleRequestRecord, Statement, ZoneRecord
from evenkeel.domain.model.workload import ZONE
from tests.crashing import How, Life
from tests.fakes import FakeClusters, plenty
from tests.property.test_max_step_properties import Steps
from tests.workloads import pod

CRASHES = st.tuples(st.integers(0, 30), st.sampled_from([How.BEFORE, How.AFTER, How.LOST]))
WISHES = st.one_of(
    st.tuples(st.just("ask"), st.integers(-9, 9).filter(bool), st.sampled_from([(), ("workers-a",), ("workers-b",)])),
    st.tuples(st.just("pod"), st.sampled_from("abc"), st.just(())),
    st.tuples(st.just("fail"), st.sampled_from("abc"), st.just(())),
    st.tuples(st.just("die"), CRASHES, st.just(())),
    st.tuples(st.just("run"), st.integers(1, 3), st.just(())),
)


class Queue(Steps):
    """A town whose people ask for nodes, give some back and start pods, while its zones fail and its runs die."""

    def ask(self, id: str, nodes: int, only: tuple[str, ...] = ()) -> None:
        record = ScaleRequestRecord(id=id, nodes=nodes, pool="workers", only=only, at=self.clock.at)
        self.store.save_scale_request("demo", record, None)

    @property
    def requests(self) -> dict[str, ScaleRequestRecord]:
        return dict(self.store.load("demo").scale_requests)

    def fail(self, zone: str, lasts: timedelta = timedelta(minutes=20)) -> None:
        self.dead.add(zone)
        until = self.clock.at + lasts
        record = ZoneRecord(words={"operator": Statement(until=until, said_at=self.clock.at)})
        self.store.save_zone("demo", "eu-central-1", zone, record, None)

    def act(self, action: str, **fields: Any) -> str:
        operate = Operate(
            store=self.store,
            clusters=FakeClusters({"demo": self.cluster}),
            queue=self.queue,
            clock=self.clock,
            random_bytes=bytes,
            dry_run=False,
        )
        return str(operate({"cluster": "demo", "action": action, "by": "test", **fields}, plenty)["message"])

    def step(self, life: Life | None = None) -> None:
        self.run(life)
        self.pass_time()

    def until(self, is_so: Callable[[], bool], most: int) -> int:
        """Return how many runs it took."""
        for number in range(most):
            if is_so():
                return number
            self.step()
        assert is_so(), f"not after {most} runs"
        return most


def play(town: Queue, wishes: list[tuple[str, Any, tuple[str, ...]]]) -> None:
    for number, (what, value, only) in enumerate(wishes):
        if what == "ask":
            town.ask(f"r{number}", value, only)
        elif what == "pod":
            town.waiting.append(pod(f"p{number}", cpu="3", node_selector={ZONE: value}))
        elif what == "fail" and not town.dead:
            town.fail(value)
        elif what == "die":
            town.step(Life(at=value[0], how=value[1]))
        elif what == "run":
            for _ in range(value):
                town.step()


def numbers_in(result: str) -> list[int]:
    return [int(word) for word in result.replace(",", "").split() if word.isdigit()]
