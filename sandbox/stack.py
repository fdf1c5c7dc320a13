"""A deployed stack for `evenkeel ACTION --stack`: the endpoints of CloudFormation, Lambda and STS.

    with StackEndpoint("evenkeel", invoke) as stack:
        run(env=stack.environment())        # boto3 uses this endpoint for the three services

`invoke` gets a logical id and an event, as `triggers.InProcess` does. An exception of `invoke` becomes an error of the
function.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape

from sandbox.aws import Deployment
from sandbox.server import HttpRequest, LoopbackServer, Response
from sandbox.template import Template
from sandbox.triggers import ACCOUNT, Invoke

CALLER = "arn:aws:sts::123456789012:assumed-role/platform/jane"


@dataclass
class RefusalError(Exception):
    """An error of a service."""

    status: int
    code: str
    message: str


class StackEndpoint(AbstractContextManager["StackEndpoint"]):
    """The endpoint of the stack on a free loopback port.

    Without a deployment, it has the functions of the template's default parameters, and a bus of an invented name.
    `invoked` has the events that arrived, and `called` the logical ids of their functions.
    """

    def __init__(self, name: str, invoke: Invoke, deployment: Deployment | None = None) -> None:
        self.invoked: list[Any] = []
        self.called: list[str] = []
        self._name = name
        self._invoke = invoke
        self._functions = set((deployment.template if deployment else Template()).functions())
        self._bus = deployment.bus if deployment else f"{name}-bus"
        self._deployment = deployment
        self._refusals: dict[str, RefusalError] = {}
        self._server = LoopbackServer(self._respond)

    def refuse(self, service: str, status: int, code: str, message: str) -> None:
        """Make a service (`cloudformation`, `lambda` or `sts`) refuse every further request."""
        self._refusals[service] = RefusalError(status, code, message)

    def forget(self, function: str) -> None:
        """Remove a function, as in the stack of a release that does not have this function."""
        self._functions.discard(function)

    def environment(self) -> dict[str, str]:
        """Return the environment variables that make boto3 use this endpoint, with invented credentials."""
        services = ("CLOUDFORMATION", "LAMBDA", "STS")
        return {f"AWS_ENDPOINT_URL_{service}": self._server.url for service in services} | {
            "AWS_ACCESS_KEY_ID": "sandbox",
            "AWS_SECRET_ACCESS_KEY": "sandbox",
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def __enter__(self) -> StackEndpoint:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    def _respond(self, request: HttpRequest) -> Response:
        if request.target.startswith("/2015-03-31/functions/"):
            function = unquote(request.target.split("/")[3])
            if request.target.endswith("/configuration") and self._deployment:
                return _json({"Environment": {"Variables": self._deployment.environment(self._logical(function))}})
            return self._lambda(function, request.body)
        form = {key: values[0] for key, values in parse_qs(request.body.decode()).items()}
        try:
            if form.get("Action") == "GetCallerIdentity":
                self._check("sts")
                result = {"GetCallerIdentityResponse": {"GetCallerIdentityResult": {"Arn": CALLER}}}
            else:
                result = self._describe(form)
        except RefusalError as error:
            fault = {"Type": "Sender", "Code": error.code, "Message": error.message}
            return _xml(error.status, {"ErrorResponse": {"Error": fault}})
        return _xml(200, result)

    def _check(self, service: str) -> None:
        if refusal := self._refusals.get(service):
            raise refusal

    def _describe(self, form: dict[str, str]) -> dict[str, Any]:
        self._check("cloudformation")
        action, stack, resource = form.get("Action"), form.get("StackName"), form.get("LogicalResourceId", "")
        if action != "DescribeStackResource":
            raise RefusalError(400, "InvalidAction", f"no action {action}")
        if stack != self._name:
            raise RefusalError(400, "ValidationError", f"Stack '{stack}' does not exist")
        template = self._deployment.template if self._deployment else Template()
        queues, roles = template.of_type("AWS::SQS::Queue"), template.of_type("AWS::IAM::Role")
        if resource not in {*self._functions, *queues, *roles, "EventBus"}:
            raise RefusalError(400, "ValidationError", f"Resource {resource} does not exist for stack {stack}")
        name = self._bus if resource == "EventBus" else f"{stack}-{resource}-1"
        if self._deployment and resource in queues:
            name = self._deployment.physical(resource)
        detail = {
            "StackName": stack,
            "StackId": f"arn:aws:cloudformation:eu-central-1:{ACCOUNT}:stack/{stack}/1",
            "LogicalResourceId": resource,
            "PhysicalResourceId": name,
            "ResourceType": "AWS::Events::EventBus" if resource == "EventBus" else "AWS::Lambda::Function",
            "ResourceStatus": "CREATE_COMPLETE",
            "LastUpdatedTimestamp": "2026-01-01T00:00:00Z",
        }
        return {"DescribeStackResourceResponse": {"DescribeStackResourceResult": {"StackResourceDetail": detail}}}

    def _logical(self, function: str) -> str:
        return function.removeprefix(f"{self._name}-").removesuffix("-1")

    def _lambda(self, function: str, body: bytes) -> Response:
        logical = self._logical(function)
        try:
            self._check("lambda")
            if logical not in self._functions:
                raise RefusalError(404, "ResourceNotFoundException", f"Function not found: {function}")
        except RefusalError as error:
            return _json({"Message": error.message}, status=error.status, **{"x-amzn-ErrorType": error.code})
        event = json.loads(body)
        self.invoked.append(event)
        self.called.append(logical)
        try:
            return _json(self._invoke(logical, event))
        except Exception as error:
            fault = {"errorMessage": str(error), "errorType": type(error).__name__}
            return _json(fault, **{"X-Amz-Function-Error": "Unhandled"})


def _json(value: Any, *, status: int = 200, **headers: str) -> Response:
    return Response(status=status, body=json.dumps(value).encode(), headers=headers)


def _xml(status: int, tree: dict[str, Any]) -> Response:
    return Response(status=status, body=_elements(tree).encode(), content_type="text/xml")


def _elements(tree: Any) -> str:
    if not isinstance(tree, dict):
        return escape(str(tree))
    return "".join(f"<{tag}>{_elements(value)}</{tag}>" for tag, value in tree.items())
