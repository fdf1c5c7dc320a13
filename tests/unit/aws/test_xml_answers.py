"""Answers in XML are read as botocore's own parser reads them."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from xml.etree.ElementTree import Element, tostring

import pytest
from botocore.model import Shape
from botocore.parsers import QueryParser, ResponseParserError
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters.aws.session import open_session
from sandbox.auto_scaling.server import _write_xml

OPERATIONS = [
    ("autoscaling", "DescribeAutoScalingGroups"),
    ("autoscaling", "DescribeScalingActivities"),
    ("autoscaling", "DescribeInstanceRefreshes"),
    ("sts", "AssumeRole"),
]
MODELS = {service: open_session().get_service_model(service) for service in ("autoscaling", "sts")}


def drawn(shape: Shape, chance: Random) -> Any:
    """A value of a shape. Members are missing now and then."""
    match shape.type_name:
        case "structure":
            return {name: drawn(member, chance) for name, member in shape.members.items() if chance.random() < 0.7}
        case "list":
            return [drawn(shape.member, chance) for _ in range(chance.randrange(3))]
        case "map":
            return {f"key{i}": drawn(shape.value, chance) for i in range(chance.randrange(3))}
        case "timestamp":
            return datetime(2026, 1, 15, tzinfo=UTC) + timedelta(milliseconds=chance.randrange(10**9))
        case "boolean":
            return chance.random() < 0.5
        case "integer" | "long":
            return chance.randrange(-9, 10**6)
        case "float" | "double":
            return chance.random()
    return chance.choice(["", "a", "ü <&>", "2026"])


def answer(service: str, operation: str, content: str) -> dict[str, Any]:
    namespace = MODELS[service].metadata["xmlNamespace"]
    metadata = "<ResponseMetadata><RequestId>1</RequestId></ResponseMetadata>"
    body = f'<{operation}Response xmlns="{namespace}">{content}{metadata}</{operation}Response>'
    return {"status_code": 200, "headers": {}, "body": body.encode(), "context": {"operation_name": operation}}


def read(service: str, operation: str, content: str) -> tuple[Any, Any]:
    """What our parser reads, and what botocore's does; None: it cannot read the answer."""
    shape, parsed = MODELS[service].operation_model(operation).output_shape, []
    for parser in (open_session().get_component("response_parser_factory").create_parser("query"), QueryParser()):
        try:
            parsed.append(parser.parse(answer(service, operation, content), shape))
        except (ResponseParserError, AttributeError, KeyError, TypeError, ValueError):
            parsed.append(None)
    return plain(parsed[0]), plain(parsed[1])


def plain(value: Any) -> Any:
    """The value with XML elements as text. A repeated scalar is such an element, which equals only itself."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return tostring(value) if isinstance(value, Element) else value


@pytest.mark.parametrize(("service", "operation"), OPERATIONS)
@given(chance=st.randoms(use_true_random=False))
def test_an_answer_is_read_as_botocore_reads_it(service: str, operation: str, chance: Random) -> None:
    shape = MODELS[service].operation_model(operation).output_shape
    content = _write_xml(shape, drawn(shape, chance), f"{operation}Result")
    parts = content.split("<")
    for _ in range(chance.choice([0, 0, 1, 2])):  # an element is unknown, or a part is missing or comes twice
        place = chance.randrange(1, len(parts))
        parts[place:place] = [["Other>x", "/Other>"], [parts[place]], parts[place : place + 2]][chance.randrange(3)]
    ours, theirs = read(service, operation, "<".join(parts))
    assert ours == theirs


def test_a_time_is_read_in_each_form() -> None:
    name = "DescribeScalingActivities"
    for text in ("2026-01-15T12:00:00.123Z", "2026-01-15T12:00:00Z", "2026-01-15T12:00:00+01:00", "1768478400"):
        activity = f"<member><StartTime>{text}</StartTime></member>"
        ours, theirs = read("autoscaling", name, f"<{name}Result><Activities>{activity}</Activities></{name}Result>")
        assert ours["Activities"][0]["StartTime"] == theirs["Activities"][0]["StartTime"]


@pytest.mark.parametrize("element", ["<MinSize>1</MinSize>", "<Tags></Tags>"])
def test_a_repeated_element_is_read_as_botocore_reads_it(element: str) -> None:
    name = "DescribeAutoScalingGroups"
    group = f"<AutoScalingGroups><member>{element}{element}</member></AutoScalingGroups>"
    ours, theirs = read("autoscaling", name, f"<{name}Result>{group}</{name}Result>")
    assert ours == theirs
