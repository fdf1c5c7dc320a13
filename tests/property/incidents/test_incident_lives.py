"""One cluster over many minutes: flapping zones, no answers, no access, garbage, and a table and bus that fail"""

from collections import defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.application.errors import AccessError, ClusterUnavailableError, EvenkeelError
from tests.builders import key
from tests.stack import Stack

MINUTES = st.lists(
    st.tuples(
        st.sampled_from(["as before", "short", "shorter", "well", "dark", "closed", "garbage", "fixed"]),
        st.one_of(st.none(), st.none(), st.integers(1, 12)),  # the table is away from this call on
        st.booleans(),  # the bus is away
        st.integers(1, 4),  # minutes that it lasts
    ),
    max_size=10,
)


def stand(stack: Stack, what: str, whole: str) -> None:
    match what:
        case "short" | "shorter" | "well":
            running = {"short": 3, "shorter": 1, "well": 4}[what]
            stack.cluster.change(key("a"), requested=4, running=running, machines=())
        case "dark":
            stack.cluster.unreadable = ClusterUnavailableError("demo does not answer")
        case "closed":
            stack.cluster.unreadable = AccessError("secret evenkeel/demo: there is none")
        case "garbage":
            stack.store.plant("demo", '{"access": {"kind": "telepathy"}}')
        case "fixed":
            stack.cluster.unreadable = None
            stack.store.plant("demo", whole)


@given(MINUTES)
def test_each_incident_opens_once_and_closes_once(minutes: list[tuple[str, int | None, bool, int]]) -> None:
    stack = Stack()
    whole = stack.store.text("demo", "META")

    def run() -> None:
        try:
            stack.run()
        except EvenkeelError:
            stack.store.away_from = None

    for what, dies_at, stack.bus.away, times in minutes:
        stand(stack, what, whole)
        for _ in range(times):
            stack.store.away_from = None if dies_at is None else stack.store.calls + dies_at
            run()
            stack.store.away_from = None
    stack.bus.away = False
    stand(stack, "fixed", whole)
    stand(stack, "well", whole)
    for _ in range(30):
        run()
    story: dict[str, list[Any]] = defaultdict(list)
    for detail_type, detail in stack.bus.published:
        if detail_type.startswith("Incident ") and detail not in story[detail["key"]]:
            story[detail["key"]].append(detail)
    for reported in story.values():
        open_since = None
        seen = set()
        for detail in reported:
            if (detail["at"], detail["order"]) in seen:
                continue  # reported once more after a kill: the same alert
            seen.add((detail["at"], detail["order"]))
            assert (open_since is None) is (detail["change"] == "opened")
            assert open_since in (None, detail["since"]), "it began when it began"
            open_since = None if detail["change"] == "closed" else detail["since"]
        assert open_since is None, "nothing stays open"
    assert stack.store.load("demo").cluster_health.is_empty
