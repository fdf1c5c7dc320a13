"""Lists as they are received: read as JSON, without the fields that checks do not need, and with fingerprints."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters.kubernetes.client.lists import ReceivedList, continuation_of, fingerprint_of, versions_of
from evenkeel.adapters.kubernetes.objects import name_of
from evenkeel.application.errors import ClusterUnavailableError
from tests import objects

Object = dict[str, Any]

#: what JSON can say, half characters and numbers beyond any integer among it
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


def page(items: Any, version: str = "1", token: str = "", kind: str = "MachineSetList") -> bytes:
    """As an API server writes it."""
    body = {
        "apiVersion": "v1",
        "items": items,
        "kind": kind,
        "metadata": {"continue": token, "resourceVersion": version},
    }
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def received(*pages: bytes, whole: bool = True, source: str = "GET /x of demo") -> ReceivedList:
    return ReceivedList(source, pages, whole=whole)


def said(value: Any) -> str:
    """Equal where two values are, numbers that are no numbers among them, and 1 and 1.0 not."""
    return json.dumps(value, sort_keys=True)


def readable(value: Any) -> Any:
    """What of a value can be stored: without half characters."""
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


EXAMPLES = {
    "gardener": objects.gardener("eu-central-1a", 1),
    "cluster-api": objects.cluster_api("eu-central-1a", 1),
    "openshift": objects.openshift("eu-central-1a", 1),
}


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


@given(items=ITEMS, version=st.text(), token=st.text(min_size=1))
def test_lists_of_the_same_objects_have_one_fingerprint(items: list[Object], version: str, token: str) -> None:
    one, other = received(page(items)), received(page(items, version, token))
    assert fingerprint_of([one], "") == fingerprint_of([other], "")
    assert continuation_of(other.pages[0]) == readable(token)


@given(items=ITEMS, others=ITEMS, kinds=st.tuples(st.sampled_from("ab"), st.sampled_from("ab")))
def test_lists_of_other_objects_have_other_fingerprints(
    items: list[Object], others: list[Object], kinds: tuple[str, str]
) -> None:
    one, other = (received(page(found, kind=kind)) for found, kind in zip((items, others), kinds, strict=True))
    same = fingerprint_of([one], "") == fingerprint_of([other], "")
    assert same == ((json.dumps(items), kinds[0]) == (json.dumps(others), kinds[1]))


def test_settings_sources_and_pages_change_the_fingerprint() -> None:
    items: list[Object] = [{"metadata": {"name": name}} for name in ("a", "b")]
    lists = [
        [received(page(items))],
        [received(page(items), whole=False)],
        [received(page(items), source="GET /y of demo")],
        [received(page(items[:1]), page(items[1:]))],
        [received(page(items[:1])), received(page(items[1:]))],
        [received(page(items)), received(page([]))],
    ]
    prints = [fingerprint_of(found, settings) for found in lists for settings in ("", "other")]
    assert len(set(prints)) == len(prints)


@pytest.mark.parametrize(
    "body",
    [
        b'{"items":[],"metadata":{}}',  # the list's own does not come last
        b'{"kind":"List","metadata":{"resourceVersion":"1"},"items":[]}',
        b'{"items":[],"kind":"List","metadata":{"resourceVersion":"1"},"items":[{}]}',  # nor all that comes last is it
        b'{"items":[{"spec":[],"kind":"List","metadata":{}}]}',
        b'{"items":[],"kind":"List","metadata":{}',
        b"garbage",
    ],
)
def test_a_list_without_its_metadata_at_the_end_has_no_fingerprint(body: bytes) -> None:
    assert fingerprint_of([received(body)], "") is None


def test_the_end_of_a_list_is_not_found_within_its_texts() -> None:
    text = '],"kind":"List","metadata":{}}'
    one, other = (received(page([{"metadata": {"name": name}, "spec": text}])) for name in "ab")
    assert fingerprint_of([one], "") not in (None, fingerprint_of([other], ""))
    assert one.objects()[0]["spec"] == text


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
