"""Patches and selectors of the simulated API, as properties."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sandbox.kube.patches import clone, merge_patch

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=4)
keys = st.sampled_from(["a", "b", "a/b", "~", ""])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)
objects = st.dictionaries(keys, values, max_size=4)


def without_nulls(value: Any) -> Any:
    """Return a value without nulls, as a merge patch can express it."""
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
