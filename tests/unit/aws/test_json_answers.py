"""Answers of DynamoDB are read as botocore's own parser reads them."""

import json
from typing import Any

import pytest
from botocore.parsers import JSONParser, ResponseParserError
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters.aws.session import open_session

MODEL = open_session().get_service_model("dynamodb")
TEXT = st.text(max_size=3)
ATTRIBUTE = st.one_of(
    *(st.fixed_dictionaries({kind: TEXT}) for kind in "SN"),
    st.fixed_dictionaries({"SS": st.lists(TEXT, max_size=2)}),
    st.fixed_dictionaries({"B": st.sampled_from(["", "YQ==", "a"])}),
    st.fixed_dictionaries({"M": st.dictionaries(TEXT, st.sampled_from([{"S": "a"}, {"B": "YQ=="}]), max_size=2)}),
    st.sampled_from([{"NULL": True}, {"X": "a"}, {"S": "a", "N": "1"}, {"S": None}, {"S": 1}, {}, None, "a", ["S"]]),
)
ITEM = st.one_of(st.dictionaries(TEXT, ATTRIBUTE, max_size=4), st.sampled_from([None, "a", []]))


def read(operation: str, body: object) -> tuple[Any, Any]:
    """What our parser reads, and what botocore's does; None: it cannot read the answer."""
    shape, parsed = MODEL.operation_model(operation).output_shape, []
    response = {"status_code": 200, "headers": {}, "body": json.dumps(body).encode(), "context": {}}
    for parser in (open_session().get_component("response_parser_factory").create_parser("json"), JSONParser()):
        try:
            parsed.append(parser.parse(response, shape))
        except (ResponseParserError, AttributeError, KeyError, TypeError, ValueError):
            parsed.append(None)
    return parsed[0], parsed[1]


def test_dynamodb_answers_in_the_json_that_our_parser_reads() -> None:
    assert MODEL.resolved_protocol == "json"


@given(items=st.lists(ITEM, max_size=3), key=ITEM)
def test_items_are_read_as_botocore_reads_them(items: list[Any], key: Any) -> None:
    ours, theirs = read("Query", {"Items": items, "LastEvaluatedKey": key, "Count": len(items)})
    assert ours == theirs
    ours, theirs = read("BatchGetItem", {"Responses": {"table": items}})
    assert ours == theirs


@pytest.mark.parametrize("attribute", [{"S": "a"}, {"N": "1"}, {"SS": ["a"]}])
def test_an_item_has_its_attributes(attribute: dict[str, Any]) -> None:
    ours, _ = read("GetItem", {"Item": {"record": attribute}})
    assert ours["Item"] == {"record": attribute}
