"""The stored items of this release are read to the values that they were written from (tests/stored_items.py)."""

import re
from unittest.mock import Mock

from evenkeel.adapters.aws.store import DynamoStore
from sandbox.template import ROOT
from tests.stored_items import (
    FIXTURES,
    ITEMS,
    OTHERS,
    InProcess,
    fixture,
    read_every_kind,
    store_of,
    text_of,
    write_every_kind,
)


def test_every_item_is_read_to_the_value_it_was_written_from() -> None:
    items, others = read_every_kind(InProcess(fixture("every-kind")))
    assert items == {name: item.value for name, item in ITEMS.items()}
    assert others == OTHERS


def test_every_item_is_written_again_to_the_same_bytes_by_every_method_that_saves() -> None:
    client = InProcess()
    store = Mock(wraps=store_of(client))
    write_every_kind(client, store)
    stored = (FIXTURES / "every-kind.json").read_text()
    assert text_of(client.items()) == stored, "the form has changed: python -m tests.stored_items"
    called = {name for name, _, _ in store.method_calls}
    assert {name for name in vars(DynamoStore) if name.startswith("save_")} <= called


def test_the_fixture_has_every_documented_kind() -> None:
    rows = re.findall(r"^\| (`.*?) \| ", (ROOT / "docs/reference/stored-state.md").read_text(), re.MULTILINE)
    kinds = {name.partition("<")[0] for row in rows for name in re.findall("`(.*?)`", row)}
    pairs = InProcess(fixture("every-kind")).key_pairs()
    keys = [sk if pk.startswith("CLUSTER#") else pk for pk, sk in pairs]
    assert {key if key in kinds else f"{key.partition('#')[0]}#" for key in keys} == kinds
