"""The steps of a pool are data, and safety follows every step that sets a number."""

import ast
import re
from pathlib import Path

import pytest

from evenkeel.domain.model.choices import Size, Strategy
from evenkeel.domain.model.drafts import PoolDraft
from evenkeel.domain.model.groups import Bounds
from evenkeel.domain.model.observations import Check, Observation
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import CAPABILITIES
from evenkeel.domain.rebalancing.bounds import strategies
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.bounds.gep24 import ADAPTIVE, BACKWARD_COMPATIBLE, LAX_GREEDY
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES, read_strategy
from evenkeel.domain.rebalancing.capability import Capability, Extension, Inputs, Planned, Point, Rank
from evenkeel.domain.rebalancing.plan import run_pipeline
from evenkeel.domain.rebalancing.steps import steps_of
from evenkeel.texts.english import sentences
from sandbox.template import ROOT
from tests.builders import MINUTE, NOW, maxima, numbers, pool_plan, zones
from tests.parts import replace

BEFORE = [
    "set_minimum",
    "keep_unplaceable",
    "set_survival_minima",
    "fence",
    "recall_release",
    "recall_requested",
    "update_step",
    "redistribute",
    "order_released",
    "take_back_overshoot",
    "set_unchanged_since",
    "probe_the_unseen",
]
AFTER = [
    "remember_rest",
    "report_survival",
    "note_progress",
    "hold_level",
    "publish",
    "share_rolling",
    "note",
    "report",
    "remember",
]
ORDERS = ["raise_to_minimum", "begin_request", "carry_out_request", "order_to_survive", "name_moves", "converge"]
LEVELLED = [*ORDERS, "size"]
MINIMA_FIRST = ["size", "raise_to_strategy_minima", *ORDERS]


@pytest.mark.parametrize(
    ("strategy", "middle"),
    [(BALANCED, LEVELLED), (LAX_GREEDY, LEVELLED), (BACKWARD_COMPATIBLE, MINIMA_FIRST), (ADAPTIVE, MINIMA_FIRST)],
    ids=str,
)
def test_the_order_of_the_steps(strategy: Strategy, middle: list[str]) -> None:
    assert [step.__name__ for step in steps_of(strategy, CAPABILITIES)] == [*BEFORE, *middle, *AFTER]


def test_each_rank_has_a_reason() -> None:
    assert [rank.name for rank in Rank if not re.fullmatch(r"[A-Z].{30,}\.", rank.value)] == []


def written(path: Path) -> set[str]:
    """Return the names among ``requested`` and ``journal_delta`` that a file assigns as attributes of other objects."""
    targets = [
        target
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    found = {each for target in targets for each in ast.walk(target) if isinstance(each, ast.Attribute)}
    return {each.attr for each in found if ast.unparse(each.value) != "self"} & {"requested", "journal_delta"}


def test_only_order_give_and_take_write_replicas_and_the_change_of_the_journal() -> None:
    domain = ROOT / "layers" / "evenkeel" / "evenkeel" / "domain"
    writers = {str(path.relative_to(domain)): names for path in domain.rglob("*.py") if (names := written(path))}
    assert writers == {"rebalancing/replicas/changes.py": {"requested", "journal_delta"}}


def halves(pool: PoolDraft) -> list[Size]:
    """Return the sizes of a test strategy: every zone may have half of PoolMaximum."""
    half = pool.pool.max // 2
    return [Size(0, half, Reason.of(Rule.STRATEGY, strategy="Halves", half=half)) for _ in pool.groups]


HALVES = Strategy(
    name="Halves",
    size=halves,
    publishes_minima=False,
    adds_up=False,
    sentence="half of PoolMaximum is {half}",
    sentence_of_min="Halves has no min",
)


def test_a_fifth_strategy_is_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies, "STRATEGIES", [*STRATEGIES, HALVES])
    assert read_strategy("halves") is HALVES
    found = pool_plan(zones((1, 6, 2)), numbers(0, 8, read_strategy("HALVES")), fenced=("c",))
    assert maxima(found) == (4, 6, 2), "what is requested and the fence go before any strategy"
    assert "Halves: half of PoolMaximum is 4" in sentences(found.groups[0].reasons)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_published_bounds_are_safe_under_any_strategy(strategy: Strategy) -> None:
    wild = replace(strategy, size=lambda pool: [Size(99, -99, Reason.of(Rule.SAID, text="wild")) for _ in pool.groups])
    found = pool_plan(zones((1, 2, 0)), numbers(0, 9, wild))
    assert [plan.bounds for plan in found.groups] == [Bounds(plan.requested, plan.requested) for plan in found.groups]


def test_a_capability_plugs_in_at_named_points() -> None:
    seen: list[tuple[str, int]] = []

    def step(pool: PoolDraft) -> None:
        seen.append(("bounds", len(pool.given.waited_for or ())))

    def answer(check: Check, planned: Planned, inputs: Inputs) -> Inputs:
        return {id: given._replace(waited_for={"a": 1}) for id, given in inputs.items()}

    def advise(check: Check, planned: Planned, inputs: Inputs) -> tuple[Inputs, Extension]:
        return {}, lambda plan: replace(plan, clock_skew=MINUTE)

    capability = Capability(steps={Point.BOUNDS: step}, advise=advise, answer=answer)
    check = Check(Observation(groups=tuple(zones((1, 2, 2)))), ClusterState(), numbers(0, 9), NOW)
    plan = run_pipeline(check, [capability])
    assert seen == [("bounds", 0), ("bounds", 1)], "once without an answer, once with it"
    assert plan.clock_skew == MINUTE
    assert maxima(plan.pools[0]) == maxima(pool_plan(zones((1, 2, 2)), numbers(0, 9)))
