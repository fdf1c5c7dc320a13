"""Node templates: annotations override, field by field, and labels and taints are read or refused."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.model.templates import NodeTemplate, Taint
from evenkeel.domain.rebalancing.membership.templates import merged, read_labels, read_taints

names = st.sampled_from("abc")
amounts = st.dictionaries(names, st.fractions(0, 9))
taints = st.lists(st.builds(Taint, names, names, st.sampled_from(["NoSchedule", "NoExecute"])), max_size=4).map(tuple)
templates = st.builds(
    NodeTemplate,
    capacity=amounts,
    allocatable=st.none() | amounts,
    free=st.none() | amounts,
    labels=st.dictionaries(names, names),
    taints=taints,
)


@pytest.mark.parametrize(
    ("capacity", "complete"),
    [({}, False), ({"cpu": 4}, False), ({"memory": 8}, False), ({"cpu": 4, "memory": 8}, True)],
)
def test_a_template_is_complete_with_cpu_and_memory(capacity: dict[str, int], complete: bool) -> None:
    assert NodeTemplate(capacity={name: Fraction(amount) for name, amount in capacity.items()}).complete is complete


@given(templates, templates, names)
def test_the_stronger_template_overrides_the_weaker_by_field(stronger, weaker, name) -> None:
    both = merged(stronger, weaker)
    for field in ("capacity", "labels"):
        strong, weak = getattr(stronger, field), getattr(weaker, field)
        assert getattr(both, field).get(name) == strong.get(name, weak.get(name))
    for field in ("allocatable", "free"):
        strong, weak, merged_field = getattr(stronger, field), getattr(weaker, field), getattr(both, field)
        assert (merged_field is None) == (strong is None and weak is None)
        assert (merged_field or {}).get(name) == (strong or {}).get(name, (weak or {}).get(name))


@given(templates, templates)
def test_the_strongest_taint_of_each_key_and_effect_is_kept(stronger, weaker) -> None:
    said = {taint[::2]: taint for taint in (*weaker.taints, *stronger.taints)}
    found = merged(stronger, weaker).taints
    assert len(found) == len(said)
    assert {taint[::2]: taint for taint in found} == said


def test_a_taint_keeps_its_place_when_the_stronger_changes_its_value() -> None:
    weaker = NodeTemplate(taints=(Taint("gpu", "old", "NoSchedule"), Taint("gpu", "old", "NoExecute")))
    stronger = NodeTemplate(taints=(Taint("spot", "", "NoSchedule"), Taint("gpu", "new", "NoSchedule")))
    assert merged(stronger, weaker).taints == (
        Taint("gpu", "new", "NoSchedule"),
        Taint("gpu", "old", "NoExecute"),
        Taint("spot", "", "NoSchedule"),
    )


@pytest.mark.parametrize(
    ("stronger", "weaker", "source"),
    [
        ("annotations", "MachineClass", "annotations, then MachineClass"),
        ("annotations", "", "annotations"),
        ("", "MachineClass", "MachineClass"),
        ("annotations", "annotations", "annotations"),
    ],
)
def test_the_stronger_source_is_named_first(stronger: str, weaker: str, source: str) -> None:
    assert merged(NodeTemplate(source=stronger), NodeTemplate(source=weaker)).source == source


@pytest.mark.parametrize(
    ("text", "labels"),
    [("", {}), ("a=b", {"a": "b"}), ("example.com/a=b,c=", {"example.com/a": "b", "c": ""}), ("a=b,a=c,", {"a": "c"})],
)
def test_labels_are_read_between_commas(text: str, labels: dict[str, str]) -> None:
    assert read_labels(text) == (labels, [])


@pytest.mark.parametrize(
    ("text", "labels", "says"),
    [
        ("a", {}, "'a' is no label and left out"),
        ("a,b=1", {"b": "1"}, "'a' is no label and left out"),
        ("a=b=c", {"a": "b=c"}, "'b=c' is no value"),
        ("a=1, b=2", {"a": "1", " b": "2"}, "' b' is no key"),
        ("=b", {"": "b"}, "'' is no key"),
        ("a/b/c=d", {"a/b/c": "d"}, "'a/b/c' is no key"),
        ("a=b c", {"a": "b c"}, "'b c' is no value"),
        ("a=-b", {"a": "-b"}, "'-b' is no value"),
        ("a=b\n", {"a": "b\n"}, "is no value"),
        (f"a={'b' * 64}", {"a": "b" * 64}, "is no value"),
        (f"{'a' * 64}=b", {"a" * 64: "b"}, "is no key"),
        (f"{'a' * 254}/b=c", {f"{'a' * 254}/b": "c"}, "is no key"),
        ("Example.com/a=b", {"Example.com/a": "b"}, "is no key"),
    ],
)
def test_an_invalid_label_is_read_as_by_cluster_autoscaler_and_reported(
    text: str, labels: dict[str, str], says: str
) -> None:
    found, (problem,) = read_labels(text)
    assert found == labels
    assert says in problem


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ()),
        ("gpu=true:NoSchedule", (Taint("gpu", "true", "NoSchedule"),)),
        ("gpu:NoExecute,", (Taint("gpu", "", "NoExecute"),)),
        (
            "example.com/a=1:NoSchedule,example.com/a=1:PreferNoSchedule,example.com/a=2:NoSchedule",
            (Taint("example.com/a", "2", "NoSchedule"), Taint("example.com/a", "1", "PreferNoSchedule")),
        ),
    ],
)
def test_taints_are_read_between_commas_one_per_key_and_effect(text: str, found: tuple[Taint, ...]) -> None:
    assert read_taints(text) == (found, [])


@pytest.mark.parametrize(
    ("text", "found", "says"),
    [
        ("gpu", (Taint("gpu", "", ""),), "'gpu' keeps no pod away"),
        ("gpu:", (Taint("gpu", "", ""),), "'gpu:' keeps no pod away"),
        ("gpu=true:Never", (Taint("gpu", "true", "Never"),), "'gpu=true:Never' keeps no pod away"),
        ("gpu=true", (), "'gpu=true' is no taint and left out"),
        ("gpu=true:NoSchedule:NoExecute", (), "is no taint and left out"),
        ("a:NoSchedule, b:NoSchedule", (Taint("a", "", "NoSchedule"),), "' b:NoSchedule' is no taint"),
        (":NoSchedule", (), "':NoSchedule' is no taint"),
        ("a=b=c:NoSchedule", (), "'a=b=c:NoSchedule' is no taint"),
        ("a=-:NoSchedule", (), "'a=-:NoSchedule' is no taint"),
    ],
)
def test_an_invalid_taint_is_read_as_by_cluster_autoscaler_and_reported(
    text: str, found: tuple[Taint, ...], says: str
) -> None:
    taints, (problem,) = read_taints(text)
    assert taints == found
    assert says in problem


@given(st.text() | st.text("ab=:,/ -.NoSchedule"))
def test_a_problem_of_any_text_is_one_line(text: str) -> None:
    for read in (read_labels, read_taints):
        _, problems = read(text)
        assert all(problem.isprintable() for problem in problems)


@pytest.mark.parametrize("text", ["=" * 100_000, "a." * 50_000 + "=b", "-" * 100_000 + "/a=b"])
def test_a_problem_of_a_long_text_is_short(text: str) -> None:
    for read in (read_labels, read_taints):
        _, problems = read(text)
        assert problems
        assert all(len(problem) < 300 for problem in problems)
