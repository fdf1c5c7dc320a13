"""Every reason, problem and incident has a text with facts of its rule, and no decision reads a text."""

import ast
import json
import re
import shlex
import tarfile
import tomllib
from collections.abc import Iterator
from enum import StrEnum
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from deploy.package import plugin_archive
from evenkeel.application.actions.table import ACTIONS
from evenkeel.application.rebalancing.decisions import pool_json
from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Bounds
from evenkeel.domain.model.incidents import Incident, IncidentKind
from evenkeel.domain.model.problems import ProblemKind
from evenkeel.domain.model.reasons import Fact, Reason, Rule
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from evenkeel.domain.rebalancing.membership.numbers import Unfixable
from evenkeel.texts import english, incidents
from evenkeel.texts.english import DERIVED, fact_names, fill, texts
from sandbox.template import ROOT, Template
from tests.builders import NOW, key, numbers, pool_plan, stated, zones
from tests.stack import Stack

PRODUCT = ROOT / "layers" / "evenkeel" / "evenkeel"
# The facts that a derived fact needs.
NEEDED = {
    "what": {"request", "nodes"},
    "removes": {"nodes"},
    "remedy": {"manager"},
    "waiting": {"pods", "count"},
    "daemon_sets": {"daemons", "claims"},
    "several": {"pods"},
    "sizing": {"strategy"},
}
# The calls that make a reason or a problem.
MAKERS = ("of", "add_reason", "problem")
# The fields of answers and decisions that are sentences.
SENTENCES = {
    "notes",
    "timeouts",
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


def needed_facts(template: str) -> set[str]:
    """Return the facts that a template needs, those behind derived facts included."""
    names = fact_names(re.sub(r"[\[\]|]", "", template))
    return set().union(*(NEEDED.get(name, {name}) for name in names))


def given_facts() -> Iterator[tuple[str, str, set[str], bool]]:
    """Yield each reason and problem that the product makes: its kind, its facts, and whether these are complete."""
    for path in PRODUCT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Attribute):
                continue
            owner, member = node.args[0].value, node.args[0].attr
            makes = getattr(node.func, "attr", getattr(node.func, "id", "")) in MAKERS
            if makes and isinstance(owner, ast.Name) and owner.id in ("Rule", "ProblemKind"):
                names = {keyword.arg for keyword in node.keywords if keyword.arg is not None}
                whole = all(keyword.arg is not None for keyword in node.keywords)
                yield owner.id, member, names, whole


@pytest.mark.parametrize(
    ("section", "kinds"),
    [("rules", Rule), ("problems", ProblemKind), ("incidents", IncidentKind)],
    ids=["rules", "problems", "incidents"],
)
def test_every_kind_has_one_text(section: str, kinds: type[StrEnum]) -> None:
    assert set(texts()[section]) == {kind.value for kind in kinds}


def test_a_kind_has_one_text_in_one_file() -> None:
    folder = Path(english.__file__).parent
    keys = [
        (section, key)
        for path in folder.glob("*.json")
        for section, entries in json.loads(path.read_text(encoding="utf-8")).items()
        for key in entries
    ]
    assert len(keys) == len(set(keys)) == sum(map(len, texts().values()))


def test_each_class_of_failure_has_a_text() -> None:
    assert set(texts()["missing"]) == {*FailureClass, "not_reordered", "rollout"}
    assert {fault.value for fault in Unfixable} == set(texts()["unfixable"])


def test_data_files_are_in_the_wheel_and_in_the_plugin() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"][
        "package-data"
    ]
    data = {file for file in PRODUCT.rglob("*.*") if file.suffix not in (".py", ".pyc", ".typed")}
    packed = {
        file
        for package, globs in patterns.items()
        for pattern in globs
        for file in (PRODUCT.parent / package.replace(".", "/")).glob(pattern)
    }
    assert len(data) > 10
    assert packed == data
    with tarfile.open(fileobj=BytesIO(plugin_archive())) as archive:
        assert {str(file.relative_to(PRODUCT.parent)) for file in data} <= set(archive.getnames())


@pytest.mark.parametrize("kind", IncidentKind)
def test_every_kind_of_incident_has_words_remedy_and_command(kind: IncidentKind) -> None:
    incident = Incident(kind=kind, since=NOW, pool="" if kind.of_cluster else "cluster-api/prod/workers", missing=3)
    assert incidents.incident_text(incident, NOW)
    assert not incidents.todo(incident).endswith(".")
    arguments = shlex.split(incidents.command_line(incident, "blue", "evenkeel"))
    if kind is IncidentKind.STOPPED:
        assert arguments == ["aws", "logs", "tail", "/aws/lambda/evenkeel-check", "--since", "30m"]
        group = Template().body["Resources"]["CheckLogGroup"]["Properties"]["LogGroupName"]
        assert group == {"Fn::Sub": "/aws/lambda/${AWS::StackName}-check"}
        return
    if kind is IncidentKind.LOST_GROUP:
        assert arguments[:3] == ["aws", "autoscaling", "create-or-update-tags"]
        return
    assert arguments[:2] == ["evenkeel", arguments[1]]
    assert arguments[1] in ACTIONS
    assert arguments[2:6] == ["--stack", "evenkeel", "--cluster", "blue"]


@pytest.mark.parametrize("failure_class", [*FailureClass, None])
def test_every_class_of_failure_has_a_remedy(failure_class: FailureClass | None) -> None:
    incident = Incident(kind=IncidentKind.MISSING, since=NOW, pool="p", missing=1, failure_class=failure_class)
    assert incidents.todo(incident)


def test_a_template_names_only_facts_that_its_rule_has() -> None:
    made = list(given_facts())
    assert len(made) > 200
    assert set(NEEDED) == set(DERIVED)
    for owner, member, names, is_all in made:
        kind = Rule[member] if owner == "Rule" else ProblemKind[member]
        needed = needed_facts(texts()["rules" if owner == "Rule" else "problems"][kind.value])
        if is_all:
            assert needed <= names, f"{owner}.{member} lacks {needed - names}"


@pytest.mark.parametrize(
    ("template", "facts", "text"),
    [
        ("{n:replica}", {"n": 1}, "1 replica"),
        ("{n:replica}", {"n": -2}, "2 replicas"),
        ("{n:pod waits/pods wait}", {"n": 1}, "1 pod waits"),
        ("{n:pod waits/pods wait}", {"n": 3}, "3 pods wait"),
        ("{names}", {"names": ("a", "b")}, "a, b"),
        ("{names:and}", {"names": ("a", "b")}, "a and b"),
        ("{names:;}", {"names": ("a", "b")}, "a; b"),
        ("{names:quoted}", {"names": ("a", "b\n")}, "'a', 'b\\n'"),
        ("{name:quoted}", {"name": "[x] {y}"}, "'[x] {y}'"),
        ("{why}", {"why": Reason.of(Rule.OBJECT_PAUSED)}, "the object is paused"),
        ("until [{until}|resumed]", {"until": NOW}, "until 2026-01-15T12:00:00Z"),
        ("until [{until}|resumed]", {"until": None}, "until resumed"),
        ("a[ and {n}]", {"n": 0}, "a"),
        ("a[ and {n}]", {}, "a"),
        ("a[{n:?} and b] c", {"n": 1}, "a and b c"),
        ("{what}", {"request": "r", "nodes": -1}, "request r to remove 1 node"),
    ],
)
def test_a_template_is_filled_in(template: str, facts: dict[str, Fact], text: str) -> None:
    assert fill(template, facts) == text


def plans() -> Iterator[dict[str, Any]]:
    """Yield plans with many rules: fences, moves, caps, minima, overshoots, requests without room."""
    for strategy in STRATEGIES:
        for on_failure in OnFailure:
            policy = numbers(4, 12, strategy, on_failure)
            for fenced in ((), ("a",), ("a", "b", "c")):
                for requested in ((5, 3, 2), (9, 9, 0), (0, 0, 0)):
                    groups = zones(requested, running=(2, 2, 0), bounds=((0, 9), (1, 4), (0, 2)), zone_max=8)
                    plan = pool_plan(groups, policy, fenced=fenced)
                    yield {"plan": pool_json(plan), "writes": [(g.requested, g.bounds) for g in plan.groups]}
    yield {"plan": pool_json(pool_plan(zones((1, 1)), numbers(9, 3))), "writes": []}
    for limited in ({"allowed_replicas": Bounds(0, 2)}, {"least_max": 1}, {"frozen_because": stated("it is rolling")}):
        plan = pool_plan(zones((0, 1, 3), **limited), numbers(0, 3))
        yield {"plan": pool_json(plan), "writes": [(g.requested, g.bounds) for g in plan.groups]}


def replace_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = {section: {kind: f"noise {kind}" for kind in texts()[section]} for section in ("rules", "problems")}
    changed = {**texts(), **noise}
    monkeypatch.setattr(english, "texts", lambda: changed)


def without_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_text(part) for name, part in value.items() if name not in SENTENCES}
    return [without_text(part) for part in value] if isinstance(value, list | tuple) else value


def test_other_texts_change_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(plans())
    replace_texts(monkeypatch)
    after = list(plans())
    assert without_text(after) == without_text(before)
    assert after != before
    reasons = [text for plan in after for group in plan["plan"]["groups"] for text in group["reasons"]]
    assert reasons
    assert all(re.fullmatch(r"noise [\w-]+", text) for text in reasons)


def story() -> list[Any]:
    """Return a stack's events and answers while a zone fails, nodes are requested, and a pool is invalid."""
    stack = Stack(zones((5, 2, 2), running=(2, 2, 2), bounds=[(1, 9)] * 3, machines=()))
    stack.fail("a")
    stack.ask("scale-up", nodes=2, pool="workers", id="r1")
    runs = [stack.run() for _ in range(4)]
    stack.cluster.change(key("b"), zone=None)
    answers = [stack.ask(action) for action in ("status", "plan", "validate")]
    explained = stack.ask("explain", pool="workers")
    return [
        [(run.written, run.conflicts, run.rejected, run.metrics()) for run in runs],
        [(patch.plan.group.key.name, patch.bounds, patch.requested) for patch in stack.cluster.applied],
        stack.bus.published,
        stack.decisions(),
        answers,
        sorted(explained["groups"]),
    ]


def test_other_texts_change_nothing_that_a_stack_does(monkeypatch: pytest.MonkeyPatch) -> None:
    before = story()
    replace_texts(monkeypatch)
    after = story()
    assert len(before[1]) > 2
    assert "noise fence" in str(after)
    assert without_text(after) == without_text(before)


def test_texts_about_auto_scaling_groups_have_the_words_of_aws() -> None:
    words = {"annotation", "annotations", "annotate", "label", "labels", "replica", "replicas"}
    for section in ("rules", "problems"):
        for kind, template in texts()[section].items():
            changed = english.in_words(template, "auto-scaling")
            assert not words & set(re.findall(r"(?<![\w./{-])[a-z]+(?![\w/-])", changed)), kind
            assert fact_names(changed.replace("[", "").replace("]", "")) == fact_names(
                template.replace("[", "").replace("]", "")
            )


def test_facts_keep_their_words_and_nested_reasons_get_those_of_the_flavour() -> None:
    said = Reason.of(Rule.SAID, text="label the replica")
    frozen = Reason.of(Rule.IN_NO_POOL, why=Reason.of(Rule.NOT_SELECTED), faults=("a label",))
    assert english.sentence(said, "auto-scaling") == "label the replica"
    assert english.sentence(frozen, "auto-scaling") == "in no pool: set tag evenkeel.dev/pool; a label"
    assert english.sentence(frozen).startswith("in no pool: set label evenkeel.dev/pool")
