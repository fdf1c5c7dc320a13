"""Lists as they are received: read as JSON, without the fields that checks do not need, and with fingerprints."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters.kubernetes.client.lists import ReceivedList, continuation_of, settings_of, versions_of
from evenkeel.adapters.kubernetes.objects import name_of
from evenkeel.application.errors import ClusterUnavailableError
from tests import objects

Object = dict[str, Any]

#: all JSON values, also half characters and numbers beyond any integer
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**63, max_value=2**70)
    | st.floats()
    | st.text(st.characters(exclude_categories=[])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
METADATA = st.dictionaries(st.sampled_from(["name", "labels", "uid", "managedFields", "finalizers"]), ANYTHING)
ITEMS = st.lists(
    st.dictionaries(st.sampled_from(["apiVersion", "kind", "spec", "status"]), ANYTHING)
    | st.builds(lambda item, metadata: {**item, "metadata": metadata}, st.just({"kind": "X"}), METADATA)
    | st.builds(lambda metadata: {"metadata": metadata}, ANYTHING),
    max_size=3,
)


def page(items: Any, token: str = "") -> bytes:
    """Return a list as an API server writes it."""
    metadata = {"continue": token, "resourceVersion": "1"}
    body = {"apiVersion": "v1", "items": items, "kind": "MachineSetList", "metadata": metadata}
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def received(*pages: bytes, whole: bool = True) -> ReceivedList:
    return ReceivedList("GET /x of demo", pages, whole=whole)


def said(value: Any) -> str:
    """Return a text that is equal for equal values, also for NaN, and differs for 1 and 1.0."""
    return json.dumps(value, sort_keys=True)


def readable(value: Any) -> Any:
    """Return the part of a value that can be stored: without half characters."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


@given(items=ITEMS)
def test_a_run_reads_a_list_as_json(items: list[Object]) -> None:
    expected = [{"apiVersion": "v1", "kind": "MachineSet", **readable(item)} for item in items]
    assert said(received(page(items)).objects()) == said(expected)


@given(items=ITEMS)
def test_a_check_reads_the_same_without_needless_metadata(items: list[Object]) -> None:
    def without(item: Object) -> Object:
        metadata = item.get("metadata")
        if not isinstance(metadata, dict):
            return item
        return {**item, "metadata": {key: metadata[key] for key in ("name", "labels", "uid") if key in metadata}}

    whole, checked_at = (received(page(items), whole=whole).objects() for whole in (True, False))
    whole.sort(key=name_of)
    assert [said(without(item)) for item in whole] == [said(without(item)) for item in checked_at]


def test_a_check_sorts_objects_by_name() -> None:
    places = [("b", "x"), ("a", "y"), ("a", "x")]
    items = [{"metadata": {"namespace": namespace, "name": name}} for namespace, name in places]
    assert [name_of(item) for item in received(page(items), whole=False).objects()] == sorted(places)


EXAMPLES = {flavour: make("eu-central-1a", 1) for flavour, make in objects.MAKE.items()}


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_a_check_reads_objects_without_managed_fields(example: Object) -> None:
    written = {**example, "metadata": {**example["metadata"], "managedFields": [{"manager": "kubectl"}]}}
    assert received(page([written]), whole=False).objects() == [example]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("body", [b"{", b"", b"null", b"[1]", b'{"items":3}', b'{"items":[1]}', b"[" * 99_999, b"\xff"])
def test_an_answer_that_is_no_list_is_an_error(body: bytes, whole: bool) -> None:
    assert not continuation_of(body)
    with pytest.raises(ClusterUnavailableError, match=r"^GET /x of demo: the answer is (not JSON|no list of objects)$"):
        received(body, whole=whole).objects()


@given(items=ITEMS, token=st.text(min_size=1))
def test_a_page_names_where_the_list_continues(items: list[Object], token: str) -> None:
    assert continuation_of(page(items, token)) == readable(token)


objects_of = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 3), max_size=5)


def page_of(objects: list[tuple[str, int]], **more: object) -> bytes:
    items = [{"metadata": {"uid": uid, "resourceVersion": str(version)}, **more} for uid, version in objects]
    return json.dumps({"items": items, "kind": "L", "metadata": {}}).encode()


@given(one=objects_of, other=objects_of, cut=st.integers(0, 5))
def test_the_versions_of_objects_do_not_depend_on_pages_or_order(
    one: dict[str, int], other: dict[str, int], cut: int
) -> None:
    entries = list(one.items())
    whole = versions_of([ReceivedList("x", (page_of(entries),))])
    pages = (page_of(entries[cut:][::-1], spec={"a": 1}), page_of(entries[:cut]))
    assert versions_of([ReceivedList("y", pages, whole=False)]) == whole
    assert versions_of([ReceivedList("y", (pages[0],)), ReceivedList("z", (pages[1],))]) == whole
    assert (versions_of([ReceivedList("x", (page_of(list(other.items())),))]) == whole) == (one == other)


@pytest.mark.parametrize(
    "page",
    [b"", b"{", b"[]", b'{"items":[{}]}', b'{"items":[{"metadata":{"uid":"a"}}]}', b'{"items":[{"metadata":1}]}'],
)
def test_objects_without_a_version_have_no_fingerprint(page: bytes) -> None:
    assert versions_of([ReceivedList("x", (page,))]) is None
    assert settings_of([ReceivedList("x", (page,))]) is None


OWNER = {"uid": "1", "generation": 3, "labels": {"a": "1", "b": "2"}, "annotations": {"c": "3"}}


def settings(*owners: dict[str, object]) -> str | None:
    items = [{"metadata": {"name": "x", "resourceVersion": "1", **owner}} for owner in owners]
    return settings_of([ReceivedList("x", (json.dumps({"items": items}).encode(),))])


@pytest.mark.parametrize(
    "change",
    [{"uid": "2"}, {"generation": 4}, {"labels": {"a": "2", "b": "2"}}, {"annotations": {}}, {"annotations": None}],
)
def test_the_settings_of_objects_change_with_spec_labels_and_annotations(change: dict[str, object]) -> None:
    assert None not in (settings(OWNER), settings(OWNER | change))
    assert settings(OWNER | change) != settings(OWNER)
    assert settings(OWNER, OWNER | change) == settings(OWNER | change, OWNER)


@pytest.mark.parametrize("change", [{"resourceVersion": "9"}, {"name": "y"}, {"labels": {"b": "2", "a": "1"}}])
def test_the_settings_of_objects_do_not_change_with_their_status(change: dict[str, object]) -> None:
    assert settings(OWNER | change) == settings(OWNER)
