"""Every reason and problem has words, made of facts that its rule gives; and nobody decides by words."""

import ast
import re
import shlex
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evenkeel.application.actions.table import ACTIONS
from evenkeel.application.rebalancing.decisions import pool_json
from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Bounds
from evenkeel.domain.model.incidents import Incident, IncidentKind
from evenkeel.domain.model.problems import ProblemKind
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from evenkeel.texts import english as words
from tests.builders import NOW, key, numbers, pool_plan, stated, zones
from tests.house import House

PRODUCT = Path(__file__).parents[2] / "layers" / "evenkeel" / "evenkeel"
# What the templates of some rules add to the facts by themselves.
MADE_BY_WORDS = {"what"}
# Where sentences stand in answers and decisions.
SENTENCES = {
    "reasons",
    "problems",
    "warnings",
    "left",
    "message",
    "held",
    "sentences",
    "history",
    "frozen",
    "todo",
    "says",
    "headline",
}


def fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name} - MADE_BY_WORDS


def given_facts() -> Iterator[tuple[str, str, set[str], bool]]:
    """Where the product makes a reason or a problem: its rule, the names of its facts, and whether that is all."""
    for path in PRODUCT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Attribute):
                continue
            owner, member = node.args[0].value, node.args[0].attr
            makes = getattr(node.func, "attr", getattr(node.func, "id", "")) in ("because", "of", "problem")
            if makes and isinstance(owner, ast.Name) and owner.id in ("Rule", "ProblemKind"):
                names = {keyword.arg for keyword in node.keywords if keyword.arg is not None}
                whole = all(keyword.arg is not None for keyword in node.keywords)
                yield owner.id, member, names, whole


@pytest.mark.parametrize("rule", Rule)
def test_every_rule_has_words(rule: Rule) -> None:
    assert rule in words.WORDS


@pytest.mark.parametrize("kind", ProblemKind)
def test_every_kind_of_problem_has_words(kind: ProblemKind) -> None:
    assert kind in words.WORDS_OF_PROBLEMS


@pytest.mark.parametrize("kind", IncidentKind)
def test_every_kind_of_trouble_has_words_what_to_do_a_command_and_a_runbook(kind: IncidentKind) -> None:
    incident = Incident(kind=kind, since=NOW, pool="" if kind.of_cluster else "cluster-api/prod/workers", missing=3)
    assert words.incident_words(incident, NOW)
    assert not words.todo(incident).endswith(".")
    arguments = shlex.split(words.command_line(incident, "blue", "evenkeel"))
    assert arguments[:2] == ["evenkeel", arguments[1]]
    assert arguments[1] in ACTIONS
    assert arguments[2:6] == ["--stack", "evenkeel", "--cluster", "blue"]


@pytest.mark.parametrize("failure_class", [*FailureClass, None])
def test_every_class_of_failure_has_something_to_do_about_it(failure_class: FailureClass | None) -> None:
    incident = Incident(kind=IncidentKind.MISSING, since=NOW, pool="p", missing=1, failure_class=failure_class)
    assert words.todo(incident)


def test_whoever_makes_a_reason_gives_the_facts_that_its_words_use() -> None:
    seen = list(given_facts())
    assert len(seen) > 60
    for owner, member, names, whole in seen:
        table: dict[Any, Any] = {"Rule": words.WORDS, "ProblemKind": words.WORDS_OF_PROBLEMS}[owner]
        template = table[Rule[member] if owner == "Rule" else ProblemKind[member]]
        if isinstance(template, str) and whole:
            assert fields(template) <= names, f"{owner}.{member} lacks {fields(template) - names}"


def plans() -> Iterator[dict[str, Any]]:
    """Plans in which many rules speak: fences, moves, caps, minima, overshoots, requests that nobody can meet."""
    for strategy in STRATEGIES:
        for on_failure in OnFailure:
            policy = numbers(4, 12, strategy, on_failure)
            for fenced in ((), ("a",), ("a", "b", "c")):
                for requested in ((5, 3, 2), (9, 9, 0), (0, 0, 0)):
                    groups = zones(requested, running=(2, 2, 0), bounds=((0, 9), (1, 4), (0, 2)), zone_max=8)
                    plan = pool_plan(groups, policy, fenced=fenced)
                    yield {"plan": pool_json(plan), "writes": [(g.requested, g.bounds) for g in plan.groups]}
    yield {"plan": pool_json(pool_plan(zones((1, 1)), numbers(9, 3))), "writes": []}
    for limited in ({"worker_range": Bounds(0, 2)}, {"owner_min_max": 1}, {"frozen_because": stated("it is rolling")}):
        plan = pool_plan(zones((0, 1, 3), **limited), numbers(0, 3))
        yield {"plan": pool_json(plan), "writes": [(g.requested, g.bounds) for g in plan.groups]}


def without_words(value: Any) -> Any:
    """An answer without its sentences."""
    if isinstance(value, dict):
        return {name: without_words(part) for name, part in value.items() if name not in SENTENCES}
    return [without_words(part) for part in value] if isinstance(value, list | tuple) else value


def test_other_words_change_nothing_but_words(monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(plans())
    noise = [f"noise {number}" for number in range(500)]
    monkeypatch.setattr(words, "WORDS", {rule: noise.pop() for rule in words.WORDS})
    monkeypatch.setattr(words, "WORDS_OF_PROBLEMS", {kind: noise.pop() for kind in words.WORDS_OF_PROBLEMS})
    after = list(plans())
    assert without_words(after) == without_words(before)
    assert after != before
    told = [text for found in after for group in found["plan"]["groups"] for text in group["reasons"]]
    assert told
    assert all(re.fullmatch(r"noise \d+", text) for text in told)


def story() -> list[Any]:
    """What a stack does and answers while a zone fails, somebody asks for nodes, and a pool is invalid."""
    house = House(zones((5, 2, 2), running=(2, 2, 2), bounds=[(1, 9)] * 3, machines=()))
    house.fail("a")
    house.ask("scale-up", nodes=2, pool="workers", id="r1")
    runs = [house.run() for _ in range(4)]
    house.cluster.change(key("b"), zone=None)
    answers = [house.ask(action) for action in ("status", "plan", "validate")]
    explained = house.ask("explain", pool="workers")
    return [
        [(run.written, run.conflicts, run.rejected, run.metrics()) for run in runs],
        [(patch.plan.group.key.name, patch.bounds, patch.requested) for patch in house.cluster.applied],
        house.bus.published,
        house.decisions(),
        answers,
        sorted(explained["groups"]),
    ]


def test_other_words_change_nothing_that_a_stack_does(monkeypatch: pytest.MonkeyPatch) -> None:
    before = story()
    monkeypatch.setattr(words, "WORDS", {rule: f"noise {rule.value}" for rule in words.WORDS})
    monkeypatch.setattr(words, "WORDS_OF_PROBLEMS", {kind: f"noise {kind.value}" for kind in words.WORDS_OF_PROBLEMS})
    after = story()
    assert len(before[1]) > 2
    assert "noise fence" in str(after)
    assert without_words(after) == without_words(before)
