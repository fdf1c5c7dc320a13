"""A drill ends at its time or at an incident that it does not cause, and never at one that it causes."""

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters.codec import dump_stored, read_stored
from evenkeel.domain.drill.drill import Drill, End, Ended, Facts, PoolZones, Span, ZoneNodes
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.incidents import Incident, IncidentKind
from tests.builders import MINUTE, NOW

ZONE, OTHERS = "a", ("b", "c")
POOL = "cluster-api/default/workers"

drills = st.builds(
    lambda minutes: Drill(
        id="d", zone=ZONE, at=NOW, until=NOW + minutes * MINUTE, by="jane", reason="a rehearsal", start={}
    ),
    st.integers(5, 240),
)
other_zones = st.frozensets(st.sampled_from(OTHERS))
own_incidents = st.builds(
    lambda zones, missing: Incident(kind=IncidentKind.MISSING, pool=POOL, zones=zones, missing=missing, since=NOW),
    st.sampled_from([(), (ZONE,)]),
    st.integers(0, 9),
)
own_pools = st.builds(
    lambda others, closed, failing: {POOL: PoolZones(zones=others | {ZONE}, closed=closed, failing=failing)},
    other_zones,
    st.sampled_from([frozenset(), frozenset({ZONE})]),
    st.sampled_from([frozenset(), frozenset({ZONE})]),
)
counts = st.dictionaries(
    st.sampled_from((ZONE, *OTHERS)), st.builds(ZoneNodes, requested=st.integers(0, 9), running=st.integers(0, 9))
)


@st.composite
def own_facts(draw: st.DrawFn) -> Facts:
    """Draw facts of a check that do not end the drill."""
    return Facts(
        incidents=tuple(draw(st.lists(own_incidents, max_size=1))),
        pools=draw(own_pools),
        zones=draw(st.none() | counts),
        unready=draw(st.booleans()),
        waiting=draw(st.none() | st.lists(st.integers(-9, 30).map(lambda m: NOW + m * MINUTE)).map(tuple)),
    )


@st.composite
def foreign(draw: st.DrawFn) -> tuple[Facts, End]:
    """Draw facts of a check that end the drill, and the end's reason."""
    if draw(st.booleans()):
        return draw(
            st.sampled_from(
                [
                    (Facts(is_paused=True), End.STOPPED),
                    (Facts(opened=(POOL,), pools={POOL: PoolZones(zones=frozenset({ZONE}))}), End.STOPPED),
                ]
            )
        )
    if draw(st.booleans()):
        return Facts(fences=frozenset({draw(st.sampled_from((ZONE, *OTHERS)))})), End.OTHER_FENCE
    incident, pools = draw(own_incidents), draw(own_pools)
    other = draw(st.sampled_from(OTHERS))
    changes: list[dict[str, Any]] = [
        {"kind": draw(st.sampled_from([kind for kind in IncidentKind if kind is not IncidentKind.MISSING]))},
        {"failure_class": draw(st.sampled_from(FailureClass))},
        {"zones": (*incident.zones, other)},
        {"is_rollout": True},
        {"pool": "cluster-api/default/another"},
    ]
    change = draw(st.sampled_from([*changes, {}]))
    if not change:  # another zone of the pool is also fenced
        pools = {POOL: PoolZones(zones=pools[POOL].zones | {other}, closed=frozenset({other}))}
        if draw(st.booleans()):
            pools["another"] = PoolZones(failing=frozenset({other}))
            return Facts(pools=pools), End.OTHER_FAILURE
    fields = {name: getattr(incident, name) for name in incident.__dataclass_fields__} | change
    return Facts(incidents=(Incident(**fields),), pools=pools), End.INCIDENT


minutes = st.integers(0, 300)


@given(drills, st.lists(st.tuples(minutes, own_facts())))
def test_a_drill_without_a_foreign_incident_ends_exactly_at_its_time(
    drill: Drill, checks: list[tuple[int, Facts]]
) -> None:
    for minute, facts in sorted(checks, key=lambda check: check[0]):
        now = NOW + minute * MINUTE
        drill = drill.after(facts, now)
        assert drill.is_open(now) is (now < drill.until)
        assert (drill.ended is None) is (now < drill.until)
    end = drill.as_of(drill.until).ended
    assert end == Ended(at=drill.until, why=End.TIME)


@given(drills, st.lists(st.tuples(minutes, own_facts())), minutes, foreign())
def test_a_foreign_incident_or_fence_ends_it_at_once(
    drill: Drill, checks: list[tuple[int, Facts]], minute: int, found: tuple[Facts, End]
) -> None:
    facts, why = found
    for before, own in sorted(checks, key=lambda check: check[0]):
        if before <= minute:
            drill = drill.after(own, NOW + before * MINUTE)
    now = NOW + minute * MINUTE
    after = drill.after(facts, now)
    assert after.ended is not None
    assert not after.is_open(now)
    assert after.ended.why is (End.TIME if now >= drill.until else why)
    assert after.fenced_until == min(now, drill.until)


@given(drills, st.lists(st.tuples(minutes, st.one_of(own_facts(), foreign().map(lambda found: found[0])))))
def test_an_ended_drill_never_opens_again_and_its_report_stays(drill: Drill, checks: list[tuple[int, Facts]]) -> None:
    ended: Drill | None = None
    for minute, facts in sorted(checks, key=lambda check: check[0]):
        drill = drill.after(facts, NOW + minute * MINUTE)
        if ended is not None:
            assert drill == ended
        ended = drill if drill.ended is not None else None
        assert drill.fenced_until <= drill.until


@given(drills, st.lists(st.tuples(minutes, own_facts())))
def test_what_is_measured_lies_within_the_drill(drill: Drill, checks: list[tuple[int, Facts]]) -> None:
    for minute, facts in sorted(checks, key=lambda check: check[0]):
        drill = drill.after(facts, NOW + minute * MINUTE)
        assert read_stored(Drill, dump_stored(drill), "drill") == drill
    measured, length = drill.as_of(drill.until).measured, drill.until - drill.at
    for span in (measured.waits, measured.unready):
        assert span.since is None
        assert timedelta(0) <= span.longest <= length
    assert all(nodes > 0 for nodes in measured.ordered.values())


@given(st.lists(st.tuples(st.integers(1, 20), st.booleans()), max_size=20))
def test_a_span_is_the_longest_time_without_a_break(changes: list[tuple[int, bool]]) -> None:
    span, now, since, longest = Span(), NOW, None, timedelta(0)
    for step, holds in changes:
        now += step * MINUTE
        if since is not None:
            longest = max(longest, now - since)
        since = (since or now) if holds else None
        span = span.followed_by(since, now)
    assert span.length(now) == longest
