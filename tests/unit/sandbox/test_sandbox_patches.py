"""Patches and selectors of the simulated API, as properties."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.kube.errors import ApiError
from sandbox.kube.patches import clone, merge_patch
from sandbox.kube.selectors import parse_field_selector, parse_label_selector

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=4)
keys = st.sampled_from(["a", "b", "a/b", "~", ""])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)
objects = st.dictionaries(keys, values, max_size=4)
labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"), max_size=3)


def without_nulls(value: Any) -> Any:
    """Objects that hold no null: what a merge patch can express."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return value


def merge_diff(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    patch = {key: None for key in old if key not in new}
    return patch | {key: merge_diff(old.get(key), item) for key, item in new.items() if old.get(key) != item}


@given(objects, objects)
def test_a_merge_patch_leads_from_any_object_to_any_other(old: Any, new: Any) -> None:
    old, new = without_nulls(old), without_nulls(new)
    assert merge_patch(old, merge_diff(old, new)) == new


@given(objects, objects)
def test_merging_is_idempotent_and_keeps_its_target(target: Any, patch: Any) -> None:
    before = clone(target)
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once
    assert target == before


@given(labels, st.sampled_from("abc"), st.sets(st.sampled_from("xyz"), min_size=1))
def test_selectors_agree_with_each_other(given_labels: dict[str, str], key: str, wanted: set[str]) -> None:
    listed = ",".join(sorted(wanted))
    inside = parse_label_selector(f"{key} in ({listed})")(given_labels)
    assert inside == (given_labels.get(key) in wanted)
    assert parse_label_selector(f"{key} notin ({listed})")(given_labels) != inside
    assert parse_label_selector(key)(given_labels) != parse_label_selector(f"!{key}")(given_labels)
    each = [parse_label_selector(f"{key}={value}")(given_labels) for value in wanted]
    assert any(each) == inside
    both = parse_label_selector(f"{key} in ({listed}),{key}!=x")(given_labels)
    assert both == (inside and given_labels.get(key) != "x")


@pytest.mark.parametrize("text", ["a in b", "a in (b", "a b", "=b", "a=b=c", "a;b"])
def test_an_invalid_label_selector_is_400(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_label_selector(text)
    assert caught.value.code == 400


def test_custom_objects_are_selected_by_name_only() -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Machine"}}
    assert parse_field_selector("involvedObject.kind=Machine,metadata.name!=x", ["involvedObject.kind"])(event)
    assert not parse_field_selector("involvedObject.kind!=Machine", ["involvedObject.kind"])(event)
    with pytest.raises(ApiError, match="field label not supported"):
        parse_field_selector("spec.replicas=1", [])
