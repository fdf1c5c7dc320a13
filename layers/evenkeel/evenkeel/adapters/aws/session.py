"""A botocore session that starts quickly. boto3 makes the same clients, but takes longer to import."""

import os
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from botocore.config import Config
from botocore.handlers import BUILTIN_HANDLERS, REGISTER_FIRST, REGISTER_LAST
from botocore.hooks import HierarchicalEmitter
from botocore.loaders import Loader
from botocore.parsers import JSONParser, QueryParser, ResponseParserError, ResponseParserFactory
from botocore.session import Session
from botocore.utils import parse_timestamp

from evenkeel.adapters.aws_faults import UNREADABLE

# AWS writes the user agent into CloudTrail's events, so that Evenkeel does not react to its own calls.
USER_AGENT = "evenkeel"
# The form of an endpoint's name. Botocore wants one, but the endpoint rules of a service decide where a request goes.
_FORM = {"hostname": "{service}.{region}.{dnsSuffix}", "protocols": ["https"], "signatureVersions": ["v4"]}
_VARIANTS = (["fips"], ["dualstack"], ["dualstack", "fips"])


class _ModelsOfServices(Loader):  # type: ignore[misc]
    """Finds the model of a service by the name of its folder, and reads no list of all services' endpoints."""

    def list_available_services(self, type_name: str) -> list[str]:  # noqa: ARG002  botocore's signature
        """Return every service that has a folder.

        Botocore's own method opens the folders of all four hundred services before it loads one model. Here, a service
        that has no model of this type raises an error only when the model is loaded.
        """
        folders = filter(os.path.isdir, self.search_paths)
        return sorted({service for folder in folders for service in os.listdir(folder)})  # noqa: PTH208 (five times as fast)

    def load_data_with_path(self, name: str) -> tuple[Any, str]:
        """Return a file of botocore's data and its path.

        The file ``endpoints`` has 1.2 MB, and botocore needs it only for services without endpoint rules. All services
        that Evenkeel calls have rules. So the partitions replace this file.
        """
        if name != "endpoints":
            return super().load_data_with_path(name)  # type: ignore[no-any-return]
        data, path = super().load_data_with_path("partitions")
        return {"version": 3, "partitions": [_without_services(partition) for partition in data["partitions"]]}, path


def _without_services(partition: dict[str, Any]) -> dict[str, Any]:
    """Return a partition in the form of the file ``endpoints``. Only S3 has clients for no region, in us-east-1."""
    return {
        "partition": partition["id"],
        "dnsSuffix": partition["outputs"]["dnsSuffix"],
        "regionRegex": partition["regionRegex"],
        "regions": partition["regions"],
        "defaults": {**_FORM, "variants": [{"tags": tags, **_FORM} for tags in _VARIANTS]},
        "services": {"s3": {"endpoints": {}, "partitionEndpoint": partition["outputs"]["implicitGlobalRegion"]}},
    }


# A member of a shape: its name, and the function that reads its element.
_Member = tuple[str, Callable[[Any], Any]]


def _parse_time(value: str) -> datetime:
    """Return the time of an answer. Most are in ISO 8601, which Python reads twenty times as fast as botocore."""
    if value.endswith("Z"):
        return datetime.fromisoformat(value)
    time: datetime = parse_timestamp(value)
    return time


class _Xml(QueryParser):  # type: ignore[misc]
    """Reads answers in XML. Botocore's parser looks up all members of a shape in each structure, this one only once."""

    def __init__(self) -> None:
        super().__init__(timestamp_parser=_parse_time)
        # For each shape: its members by the names of their elements; None: botocore must read the shape.
        self._members: dict[Any, dict[str, _Member] | None] = {}

    def _handle_structure(self, shape: Any, node: Any) -> Any:
        if shape not in self._members:
            self._members[shape] = self._members_of(shape)
        members = self._members[shape]
        if members is None:
            return super()._handle_structure(shape, node)
        parsed = {}
        for element in node:
            member = members.get(element.tag)
            if member is None:
                member = members.get(element.tag.rpartition("}")[2])
                if member is None:
                    continue
                members[element.tag] = member  # the tag with its namespace
            name, read = member
            if name in parsed:  # botocore refuses most repeated elements
                return super()._handle_structure(shape, node)
            parsed[name] = read(element)
        return parsed

    def _members_of(self, shape: Any) -> dict[str, _Member] | None:
        shapes = shape.members.items()
        is_plain = all(member.serialization.keys() <= {"name"} for _, member in shapes)
        if not is_plain or shape.is_tagged_union or shape.metadata.get("exception"):
            return None
        return {self._member_key_name(member, name): (name, self._reader(member)) for name, member in shapes}

    def _reader(self, shape: Any) -> Callable[[Any], Any]:
        """Return the function that reads an element of a shape."""
        match shape.type_name:
            case "string":
                return _text
            case "integer":
                return _integer
            case "list":
                read = self._reader(shape.member)
                return lambda element: [read(each) for each in element]
        return partial(getattr(self, f"_handle_{shape.type_name}"), shape)


def _text(element: Any) -> str:
    text: str | None = element.text
    return text or ""


def _integer(element: Any) -> int:
    return int(_text(element))


class _Json(JSONParser):  # type: ignore[misc]
    """Reads answers in JSON. DynamoDB sends items of strings and numbers as a client returns them."""

    def _handle_map(self, shape: Any, value: Any) -> Any:
        if shape.value.name == "AttributeValue" and all(map(_is_text_or_number, value.values())):
            return value
        return super()._handle_map(shape, value)


def _is_text_or_number(attribute: Any) -> bool:
    is_single = isinstance(attribute, dict) and len(attribute) == 1
    return is_single and isinstance(attribute.get("S", attribute.get("N")), str)


class _Parsers(ResponseParserFactory):  # type: ignore[misc]
    """Makes parsers that raise the same error for every answer that they cannot read.

    Botocore's own parsers also raise AttributeError, KeyError, TypeError or UnicodeDecodeError, and quote the answer.
    """

    def create_parser(self, protocol_name: str) -> Any:
        """Return the parser of a protocol."""
        ours = {"query": _Xml, "json": _Json}.get(protocol_name)
        parser = super().create_parser(protocol_name) if ours is None else ours()
        parse = parser.parse

        def parse_or_refuse(response: Any, shape: Any) -> Any:
            try:
                parsed = parse(response, shape)
            except Exception:  # any exception of the parser means an unreadable answer
                parsed = None
            if parsed is None:
                raise ResponseParserError(UNREADABLE)
            return parsed

        parser.parse = parse_or_refuse
        return parser


def _events() -> HierarchicalEmitter:
    """Return an emitter with botocore's handlers, except those of its documentation.

    Botocore's own emitter first searches the name of each event for former names of services. Evenkeel calls no
    operation whose handlers have such a name. ``Session.register`` and ``emit`` still use botocore's own emitter.
    """
    emitter = HierarchicalEmitter()
    register = {REGISTER_FIRST: emitter.register_first, REGISTER_LAST: emitter.register_last, None: emitter.register}
    for event, handler, *place in BUILTIN_HANDLERS:
        if not event.startswith("docs."):
            register[place[0] if place else None](event, handler)
    return emitter


def open_session() -> Session:
    """Return a session with the credentials, the region and the endpoints from the environment."""
    session = Session(include_builtin_handlers=False)
    session.register_component("event_emitter", _events())
    # Botocore builds a longer user agent from many parts, twice for each call.
    session.set_default_client_config(Config(user_agent=USER_AGENT))
    session.register_component("data_loader", _ModelsOfServices())
    session.register_component("response_parser_factory", _Parsers())
    return session
