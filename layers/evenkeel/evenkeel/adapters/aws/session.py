"""A botocore session that starts quickly: boto3 makes the same clients, and brings along what nobody uses here."""

from pathlib import Path
from typing import Any

from botocore.loaders import Loader
from botocore.parsers import ResponseParserError, ResponseParserFactory
from botocore.session import Session

from evenkeel.adapters.aws_faults import UNREADABLE


class _ModelsOfServices(Loader):  # type: ignore[misc]
    """Finds the model of a service by the name of its folder."""

    def list_available_services(self, type_name: str) -> list[str]:  # noqa: ARG002  botocore's signature
        """Every service that has a folder.

        Before it loads one model, botocore opens the folders of all four hundred services, to see which has a model of
        this type. A service without one is told all the same, when its model is not found.
        """
        folders = [Path(path) for path in self.search_paths]
        return sorted({service.name for folder in folders if folder.is_dir() for service in folder.iterdir()})


class _Parsers(ResponseParserFactory):  # type: ignore[misc]
    """Makes parsers that raise one error for every answer that they cannot read.

    Botocore's raise AttributeError, KeyError, TypeError or UnicodeDecodeError as well, and quote the answer.
    """

    def create_parser(self, protocol_name: str) -> Any:
        """Return the parser of a protocol."""
        parser = super().create_parser(protocol_name)
        parse = parser.parse

        def parse_or_refuse(response: Any, shape: Any) -> Any:
            try:
                parsed = parse(response, shape)
            except Exception:  # whatever the parser makes of it, the answer is at fault
                parsed = None
            if parsed is None:
                raise ResponseParserError(UNREADABLE)
            return parsed

        parser.parse = parse_or_refuse
        return parser


def open_session() -> Session:
    """With the credentials, the region and the endpoints that the environment names."""
    session = Session()
    session.register_component("data_loader", _ModelsOfServices())
    session.register_component("response_parser_factory", _Parsers())
    return session
