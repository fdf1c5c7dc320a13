"""Trouble is told in order, each end once, whoever dies and whatever is away meanwhile; and it does not flap."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Machine, Observation
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.domain.model.troubles import News, Trouble, TroubleKind, Verdict
from evenkeel.domain.plan import plan
from evenkeel.domain.trouble import judge, untold, with_news
from tests.builders import MINUTE, NOW, numbers, zones

AFTER = timedelta(minutes=5)

TROUBLES = st.builds(
    Trouble,
    kind=st.sampled_from([TroubleKind.MISSING, TroubleKind.CONTESTED, TroubleKind.INVALID]),
    pool=st.sampled_from(["a", "b"]),
    since=st.sampled_from([NOW, NOW + MINUTE]),
    missing=st.integers(0, 9),
    zones=st.sampled_from([(), ("a",), ("a", "b")]),
    failure_class=st.sampled_from([None, FailureClass.CAPACITY, FailureClass.QUOTA]),
)
#: at each run: what there is, by key; whether the bus answers; when the run dies
DEATHS = st.sampled_from(["", "", "before all", "before telling", "before striking out"])
RUNS = st.lists(st.tuples(st.lists(TROUBLES, max_size=4), st.booleans(), DEATHS), max_size=12)


def distinct(troubles: Sequence[Trouble]) -> list[Trouble]:
    return list({trouble.key: trouble for trouble in troubles}.values())


Said = list[tuple[str, News]]


def run(verdict: Verdict, troubles: Sequence[Trouble], answers: bool, dies: str) -> tuple[Verdict, Said]:
    """As a run does it: remembers what is to be told, tells it, strikes it out; or dies before one of the three."""
    after = with_news(verdict.with_troubles(distinct(troubles)))
    if dies == "before all":
        return verdict, []
    if dies == "before telling" or not answers:
        return after, []
    said = [(news.key, news.news) for news in after.outbox]
    return (after if dies == "before striking out" else replace(after, outbox=())), said


@given(RUNS)
def test_each_trouble_is_told_to_begin_before_it_is_told_to_end_and_nothing_stays_open(
    runs: list[tuple[list[Trouble], bool, str]],
) -> None:
    verdict, said = Verdict(), Said()
    for troubles, answers, dies in [*runs, ([], True, "")]:
        verdict, news = run(verdict, troubles, answers, dies)
        said += news
    assert verdict == Verdict()
    for key in {key for key, _ in said}:
        story = [news for each, news in said if each == key]
        assert (story[0], story[-1]) == (News.OPENED, News.CLOSED)


@given(RUNS)
def test_while_nobody_dies_each_beginning_has_one_end_and_nothing_is_told_twice(
    runs: list[tuple[list[Trouble], bool, str]],
) -> None:
    verdict, is_open = Verdict(), set[str]()
    for troubles, answers, _ in [*runs, ([], True, "")]:
        verdict, news = run(verdict, troubles, answers, "")
        for key, what in news:
            assert (key in is_open) is (what is not News.OPENED)
            is_open = is_open - {key} if what is News.CLOSED else is_open | {key}
        assert untold(verdict) == ()
    assert is_open == set()


#: of each zone: nodes that are requested beside the two that run, minutes since the last failure, a machine on its way
ZONES = st.tuples(st.integers(0, 3), st.integers(0, 100), st.booleans())
STEPS = st.lists(st.tuples(st.integers(1, 30), st.lists(ZONES, min_size=3, max_size=3)), min_size=1, max_size=12)


@given(STEPS, st.sampled_from(list(FailureClass)))
def test_while_all_zones_fail_trouble_neither_ends_nor_begins_anew_whatever_is_ordered_or_given_up(
    steps: list[tuple[int, list[tuple[int, int, bool]]]], kind: FailureClass
) -> None:
    """Backoffs run and end, machines are tried, an autoscaler gives up and orders anew. No node comes."""
    verdict, now, since = Verdict(), NOW, None
    for minutes, shape in steps:
        now += minutes * MINUTE
        groups, states = [], {}
        for found, (more, age, booting) in zip(zones((2, 2, 2), bounds=[(1, 9)] * 3), shape, strict=True):
            machines = (Machine(name="new", has_node=False, created_at=now - MINUTE),) if booting and more else ()
            groups.append(replace(found, requested=2 + more, machines=machines))
            failed = now - age * MINUTE
            states[found.key] = GroupState(
                failures=1,
                last_failure=failed,
                backoff_until=failed + 5 * MINUTE,
                failure_class=kind,
                running_seen=2,
                reports=(failed,),
            )
        planned = plan(Observation(groups=tuple(groups)), ClusterState(groups=states), numbers(3, 12), now)
        verdict = judge(verdict, planned, {**states, **planned.states}, AFTER)
        missing = [trouble for trouble in verdict.troubles if trouble.kind is TroubleKind.MISSING]
        assert len(missing) == 1 or since is None
        if missing:
            since = since or missing[0].since
            assert missing[0].since == since


@given(STEPS)
def test_the_same_sight_is_the_same_verdict(steps: list[tuple[int, list[tuple[int, int, bool]]]]) -> None:
    now = NOW + steps[0][0] * MINUTE
    groups = [
        replace(found, requested=2 + more, machines=())
        for found, (more, _, _) in zip(zones((2, 2, 2), bounds=[(1, 9)] * 3), steps[0][1], strict=True)
    ]
    waiting = {found.key: GroupState(waiting_since=now - 9 * MINUTE, waiting_running=2) for found in groups}
    planned = plan(Observation(groups=tuple(groups)), ClusterState(groups=waiting), numbers(3, 12), now)
    states = {**waiting, **planned.states}
    once = judge(Verdict(), planned, states, AFTER)
    assert judge(once, planned, states, AFTER) == once
