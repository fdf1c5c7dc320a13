"""Records the requests that the functions send to AWS, so that a test can compare them with their policies."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from botocore.client import BaseClient

from sandbox.aws import Deployment
from sandbox.permissions import Permissions, Request, requests_of
from sandbox.triggers import InProcess


class Recorded(InProcess):
    """Runs the handlers, and records every request that they send to AWS."""

    def __init__(self, deployment: Deployment, **more: Any) -> None:
        super().__init__(deployment, **more)
        self._where = deployment
        self.sent: dict[str, list[Request]] = {}

    def __call__(self, logical_id: str, event: Any) -> Any:
        sent = self.sent.setdefault(logical_id, [])
        with _recording(lambda *call: sent.extend(requests_of(self._where, *call))):
            return super().__call__(logical_id, event)

    def refused(self) -> list[str]:
        """Return a line for each request that IAM denies."""
        denied = []
        for function, requests in self.sent.items():
            permissions = Permissions(self._where, function)
            denied += [f"{function}: {request}" for request in requests if not permissions.allows(request)]
        return denied


@contextmanager
def _recording(record: Callable[[str, str, Mapping[str, Any]], None]) -> Iterator[None]:
    """Report every call of every boto3 client of this process to `record`, for as long as the block lasts."""
    send = BaseClient._make_api_call  # type: ignore[attr-defined]

    def call(client: Any, operation: str, params: dict[str, Any]) -> Any:
        record(client.meta.service_model.service_name, operation, params)
        return send(client, operation, params)

    BaseClient._make_api_call = call  # type: ignore[attr-defined]
    try:
        yield
    finally:
        BaseClient._make_api_call = send  # type: ignore[attr-defined]
