"""The check of one cluster: its errors and its time limit stay with that cluster."""

import ssl
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pytest

from evenkeel.application.errors import AccessError, ClusterUnavailableError, EvenkeelError, UnexpectedError, contained
from evenkeel.application.ports import Remaining
from evenkeel.application.rebalancing.observe import CHECK_SECONDS, observe_cluster
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.record import ClusterRecord
from tests.builders import in_backoff, key
from tests.fakes import FakeCluster, FakeClusters, plenty, record

SECRET = "s3cr3t-t0ken"
#: every family of exceptions of Python and its libraries
ANY = [
    ValueError(f"Invalid header value b'Bearer {SECRET}'"),
    TypeError(SECRET),
    UnicodeDecodeError("utf-8", SECRET.encode() + b"\xff", 12, 13, "invalid start byte"),
    KeyError(SECRET),
    RecursionError(SECRET),
    MemoryError(SECRET),
    AssertionError(SECRET),
    OSError(5, SECRET),
    ssl.SSLError(SECRET),
    StopIteration(SECRET),
    type("OfALibrary", (Exception,), {})(SECRET),
]


def broken(step: str, error: Exception) -> FakeClusters:
    cluster = FakeCluster([])
    cluster.unreadable = error.with_traceback(None)
    return FakeClusters({"demo": error if step == "opened" else cluster})


@pytest.mark.parametrize("step", ["opened", "read"])
@pytest.mark.parametrize("error", ANY, ids=lambda error: type(error).__name__)
def test_any_exception_is_reported_with_its_kind_and_place(step: str, error: Exception) -> None:
    with pytest.raises(ClusterUnavailableError) as caught:
        observe_cluster(broken(step, error), record(), plenty)
    said = str(caught.value)
    assert said.startswith(
        f"demo: {type(error).__name__} while it was {step}, at {'errors' if step == 'opened' else 'observe'}.py:"
    )
    assert isinstance(caught.value, UnexpectedError)
    assert SECRET not in repr(caught.value)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


@pytest.mark.parametrize("step", ["opened", "read"])
@pytest.mark.parametrize("error", [AccessError("demo: no"), ClusterUnavailableError("demo: away")])
def test_an_expected_error_is_raised_without_its_context(step: str, error: EvenkeelError) -> None:
    error.__context__ = ValueError(SECRET)
    with pytest.raises(type(error)) as caught:
        observe_cluster(broken(step, error), record(), plenty)
    assert caught.value is error
    assert caught.value.__context__ is None


@pytest.mark.parametrize("folder", ["/home/us/evenkeel/tests", "/opt/python/evenkeel.py", "/srv/evenkeel/.venv/lib"])
def test_a_file_below_another_folder_of_that_name_is_not_named(folder: str) -> None:
    code: dict[str, Any] = {}
    exec(compile("def call():\n    raise ValueError\n", f"{folder}/elsewhere.py", "exec"), code)
    with pytest.raises(UnexpectedError, match=r"at errors\.py:\d+: please report this"):
        contained("demo", "it was read", code["call"])


def test_an_interrupt_is_not_contained() -> None:
    with pytest.raises(KeyboardInterrupt):
        observe_cluster(broken("read", KeyboardInterrupt()), record(), plenty)  # type: ignore[arg-type]


@dataclass
class Slow:
    """Clusters that take some seconds at each step, and note the seconds left."""

    left: float
    seconds: float
    noted: list[float]

    def open(self, record: ClusterRecord, remaining: Remaining, *, consistent: bool = True, alone: bool = True) -> Any:
        self.remaining = remaining
        self.noted.append(remaining())
        self.left -= self.seconds
        return self

    def observe(self, reads_machines: Collection[GroupKey] = (), known: Collection[str] = ()) -> Observation:
        self.noted.append(self.remaining())
        self.left -= self.seconds
        return Observation(groups=())


def test_a_check_has_eight_seconds_or_what_is_left() -> None:
    clusters = Slow(left=60.0, seconds=3.0, noted=[])
    observe_cluster(clusters, record(), lambda: clusters.left)
    assert clusters.noted == [CHECK_SECONDS, CHECK_SECONDS - 3.0]
    assert clusters.remaining() == 54.0
    clusters = Slow(left=4.0, seconds=1.0, noted=[])
    observe_cluster(clusters, record(), lambda: clusters.left)
    assert clusters.noted == [4.0, 3.0]


def test_groups_in_backoff_are_read_with_machines() -> None:
    asked: list[Collection[GroupKey]] = []

    class Watched(FakeCluster):
        def observe(self, reads_machines: Collection[GroupKey] = (), known: Collection[str] = ()) -> Observation:
            asked.append(reads_machines)
            return super().observe(reads_machines, known)

    state = ClusterState(groups={key("a"): in_backoff(), key("b"): GroupState()})
    observe_cluster(FakeClusters({"demo": Watched([])}), record(), plenty, state)
    assert asked == [[key("a")]]
