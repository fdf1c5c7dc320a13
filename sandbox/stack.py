"""A deployed stack as `evenkeel ACTION --stack` sees it: CloudFormation names the functions, Lambda calls them, and STS
says who asks.

    with StackEndpoint("evenkeel", invoke) as stack:
        run(env=stack.environment())        # boto3 finds these three here, and nothing else

`invoke` gets a logical id of the template and an event, as `triggers.InProcess` does; what it raises is an error of
the function.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape

from sandbox.template import Template

Invoke = Callable[[str, Any], Any]
CALLER = "arn:aws:sts::123456789012:assumed-role/platform/jane"


@dataclass
class Refusal:
    """What a service says instead of an answer."""

    status: int
    code: str
    message: str


@dataclass
class _Stack:
    name: str
    invoke: Invoke
    functions: set[str]
    refusals: dict[str, Refusal] = field(default_factory=dict)
    invoked: list[Any] = field(default_factory=list)
    called: list[str] = field(default_factory=list)


class StackEndpoint(AbstractContextManager["StackEndpoint"]):
    """The endpoint, for as long as the block lasts, on a free loopback port."""

    def __init__(self, name: str, invoke: Invoke) -> None:
        self._stack = _Stack(name, invoke, set(Template().functions()))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._stack))

    @property
    def invoked(self) -> list[Any]:
        """The events that arrived, in order."""
        return self._stack.invoked

    @property
    def called(self) -> list[str]:
        """The functions that they arrived at, by logical id."""
        return self._stack.called

    def refuse(self, service: str, status: int, code: str, message: str) -> None:
        """Let `cloudformation`, `lambda` or `sts` refuse from now on."""
        self._stack.refusals[service] = Refusal(status, code, message)

    def forget(self, function: str) -> None:
        """Let it be a stack of a release that had no such function."""
        self._stack.functions.discard(function)

    def environment(self) -> dict[str, str]:
        """With these variables, boto3 asks here, with made-up credentials."""
        host, port = self._server.server_address[:2]
        return {
            "AWS_ENDPOINT_URL_CLOUDFORMATION": f"http://{host!s}:{port}",
            "AWS_ENDPOINT_URL_LAMBDA": f"http://{host!s}:{port}",
            "AWS_ENDPOINT_URL_STS": f"http://{host!s}:{port}",
            "AWS_ACCESS_KEY_ID": "sandbox",
            "AWS_SECRET_ACCESS_KEY": "sandbox",
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def __enter__(self) -> StackEndpoint:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(stack: _Stack) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path.startswith("/2015-03-31/functions/"):
                self._lambda(unquote(self.path.split("/")[3]), body)
                return
            asked = {key: values[0] for key, values in parse_qs(body.decode()).items()}
            if asked.get("Action") == "GetCallerIdentity":
                self._sts()
            else:
                self._cloudformation(asked)

        def _sts(self) -> None:
            if refusal := stack.refusals.get("sts"):
                self._refuse(refusal)
                return
            result = f"<GetCallerIdentityResult><Arn>{CALLER}</Arn></GetCallerIdentityResult>"
            self._answer(200, f"<GetCallerIdentityResponse>{result}</GetCallerIdentityResponse>".encode(), "text/xml")

        def _refuse(self, refusal: Refusal) -> None:
            error = f"<Code>{refusal.code}</Code><Message>{escape(refusal.message)}</Message>"
            said = f"<ErrorResponse><Error><Type>Sender</Type>{error}</Error></ErrorResponse>"
            self._answer(refusal.status, said.encode(), "text/xml")

        def _cloudformation(self, asked: dict[str, str]) -> None:
            refusal = stack.refusals.get("cloudformation")
            resource = asked.get("LogicalResourceId", "")
            if refusal is None and asked.get("Action") != "DescribeStackResource":
                refusal = Refusal(400, "InvalidAction", f"no action {asked.get('Action')}")
            elif refusal is None and asked.get("StackName") != stack.name:
                refusal = Refusal(400, "ValidationError", f"Stack '{asked.get('StackName')}' does not exist")
            elif refusal is None and resource not in stack.functions:
                said = f"Resource {resource} does not exist for stack {stack.name}"
                refusal = Refusal(400, "ValidationError", said)
            if refusal is not None:
                self._refuse(refusal)
                return
            detail = (
                f"<StackName>{stack.name}</StackName><LogicalResourceId>{resource}</LogicalResourceId>"
                f"<PhysicalResourceId>{stack.name}-{resource}-1</PhysicalResourceId>"
                "<ResourceType>AWS::Lambda::Function</ResourceType><ResourceStatus>CREATE_COMPLETE</ResourceStatus>"
                "<LastUpdatedTimestamp>2026-01-01T00:00:00Z</LastUpdatedTimestamp>"
            )
            result = f"<StackResourceDetail>{detail}</StackResourceDetail>"
            answer = f"<DescribeStackResourceResult>{result}</DescribeStackResourceResult>"
            self._answer(
                200, f"<DescribeStackResourceResponse>{answer}</DescribeStackResourceResponse>".encode(), "text/xml"
            )

        def _lambda(self, function: str, body: bytes) -> None:
            refusal = stack.refusals.get("lambda")
            logical = function.removeprefix(f"{stack.name}-").removesuffix("-1")
            if refusal is None and logical not in stack.functions:
                refusal = Refusal(404, "ResourceNotFoundException", f"Function not found: {function}")
            if refusal is not None:
                said = json.dumps({"Message": refusal.message}).encode()
                self._answer(refusal.status, said, headers={"x-amzn-ErrorType": refusal.code})
                return
            event = json.loads(body)
            stack.invoked.append(event)
            stack.called.append(logical)
            try:
                told = stack.invoke(logical, event)
            except Exception as error:
                said = json.dumps({"errorMessage": str(error), "errorType": type(error).__name__}).encode()
                self._answer(200, said, headers={"X-Amz-Function-Error": "Unhandled"})
                return
            self._answer(200, json.dumps(told).encode())

        def _answer(
            self, status: int, body: bytes, kind: str = "application/json", headers: dict[str, str] | None = None
        ) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Silent: the command's own output is the interesting one."""

    return Handler
