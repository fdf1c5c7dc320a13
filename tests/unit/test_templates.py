"""Node templates: what an annotation says wins, field by field, and labels and taints are read or refused."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.templates import NodeTemplate, Taint, merged, read_labels, read_taints
from evenkeel.domain.values import BadValueError

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
def test_the_stronger_wins_field_by_field_and_the_weaker_fills_what_it_leaves(stronger, weaker, name) -> None:
    both = merged(stronger, weaker)
    for field in ("capacity", "labels"):
        strong, weak = getattr(stronger, field), getattr(weaker, field)
        assert getattr(both, field).get(name) == strong.get(name, weak.get(name))
    for field in ("allocatable", "free"):
        strong, weak, merged_field = getattr(stronger, field), getattr(weaker, field), getattr(both, field)
        assert (merged_field is None) == (strong is None and weak is None)
        assert (merged_field or {}).get(name) == (strong or {}).get(name, (weak or {}).get(name))


@given(templates, templates)
def test_of_each_key_and_effect_one_taint_is_left_the_strongest(stronger, weaker) -> None:
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
def test_both_sources_are_named_the_stronger_first(stronger: str, weaker: str, source: str) -> None:
    assert merged(NodeTemplate(source=stronger), NodeTemplate(source=weaker)).source == source


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("example.com/a=b,c=", {"example.com/a": "b", "c": ""}),
        ("a=b,a=c,", {"a": "c"}),
    ],
)
def test_labels_are_read_between_commas(text: str, labels: dict[str, str]) -> None:
    assert read_labels(text) == labels


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a", "'a' is no label"),
        ("a=b,c", "'c' is no label"),
        ("a=b, c=d", "' c' is no key"),
        ("=b", "'' is no key"),
        ("a/b/c=d", "'a/b/c' is no key"),
        ("a=b=c", "'b=c' is no value"),
        ("a=b c", "'b c' is no value"),
        ("a=-b", "'-b' is no value"),
        ("a=b\n", r"'b\\n' is no value"),
        (f"a={'b' * 64}", "is no value"),
        (f"{'a' * 64}=b", "is no key"),
        (f"{'a' * 254}/b=c", "is no key"),
        ("Example.com/a=b", "is no key"),
    ],
)
def test_a_part_that_no_node_can_have_as_a_label_is_named(text: str, part: str) -> None:
    with pytest.raises(BadValueError, match=part):
        read_labels(text)


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
    assert read_taints(text) == found


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("gpu", "'gpu' is no taint"),
        ("gpu=true", "'gpu=true' is no taint"),
        ("gpu=true:Never", "'gpu=true:Never' is no taint"),
        ("gpu=true:NoSchedule:NoExecute", "is no taint"),
        ("a:NoSchedule, b:NoSchedule", "' b' is no key"),
        (":NoSchedule", "'' is no key"),
        ("a=b=c:NoSchedule", "'b=c' is no value"),
    ],
)
def test_a_taint_that_keeps_nothing_away_is_refused(text: str, part: str) -> None:
    with pytest.raises(BadValueError, match=part):
        read_taints(text)


@given(st.text() | st.text("ab=:,/ -.NoSchedule"))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    for read in (read_labels, read_taints):
        told = ""
        try:
            read(text)
        except BadValueError as error:
            told = str(error)
        assert told.isprintable()


@pytest.mark.parametrize("text", ["a" * 100_000, "a." * 50_000 + "=b", "-" * 100_000 + "/a=b"])
def test_a_long_text_is_refused_at_once(text: str) -> None:
    for read in (read_labels, read_taints):
        with pytest.raises(BadValueError):
            read(text)
