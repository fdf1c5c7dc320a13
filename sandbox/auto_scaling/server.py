"""The simulated services over HTTP, as boto3 calls them. Requests and answers follow botocore's service models.

with AwsServer(lambda access_key, region: {"autoscaling": auto_scaling, "eks": node_groups}) as server:
    os.environ |= server.environment()
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import botocore.session
from botocore import xform_name
from botocore.exceptions import ClientError
from botocore.model import OperationModel, ServiceModel, Shape
from botocore.validate import ParamValidator

from sandbox.auto_scaling.calls import AwsError, Service
from sandbox.server import HttpRequest, LoopbackServer, Response

_SIGNED_BY = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/")


class AwsServer:
    """One endpoint for Auto Scaling and EKS.

    Args:
        find: Returns the services of the account of an access key in a Region, by the name of their botocore model.
            May raise AwsError.
    """

    def __init__(self, find: Callable[[str, str], Mapping[str, Service]]) -> None:
        session = botocore.session.get_session()
        self._models: dict[str, ServiceModel] = {
            name: session.get_service_model(name) for name in ("autoscaling", "eks")
        }
        self._find = find
        #: what a proxy answers in place of AWS
        self.proxy: Response | None = None
        self._server = LoopbackServer(self._respond)
        self.url = self._server.url

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    def environment(self) -> dict[str, str]:
        """Return the variables that make boto3 use this endpoint."""
        return {"AWS_ENDPOINT_URL_AUTO_SCALING": self.url, "AWS_ENDPOINT_URL_EKS": self.url}

    def _respond(self, request: HttpRequest) -> Response:
        if self.proxy is not None:
            return self.proxy
        if urlsplit(request.target).path == "/":
            form = parse_qs(request.body.decode(), keep_blank_values=True)
            fields = {name: values[0] for name, values in form.items()}
            name = "autoscaling"
            operation = self._models[name].operation_model(fields["Action"])
            parameters = _read_query(operation.input_shape, fields, "") or {}
        else:
            name = "eks"
            operation, parameters = _read_rest(self._models[name], request)
        respond = _query_response if name == "autoscaling" else _json_response
        signer = _SIGNED_BY.search(request.headers.get("authorization", ""))
        access_key, region = signer.groups() if signer else ("", "")
        try:
            return respond(operation, _call(self._find(access_key, region)[name], operation, parameters), None)
        except AwsError as error:
            return respond(operation, None, error.for_client(operation.name))
        except ClientError as error:
            return respond(operation, None, error)
        except Exception as error:  # a defect of the simulation, which the caller has to see
            return respond(operation, None, AwsError("InternalFailure", repr(error), 500).for_client(operation.name))


def _call(service: Service, operation: OperationModel, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of an operation. Raises AwsError if the request or the answer differs from the model."""
    if report := _invalid(parameters, operation.input_shape):
        raise AwsError(service.invalid, report)
    call = getattr(service, xform_name(operation.name), None)
    if call is None:
        raise AwsError("InvalidAction", f"The sandbox does not simulate {operation.name}")
    answer: dict[str, Any] = call(**parameters)
    if report := _invalid(answer, operation.output_shape):
        raise AwsError("InternalFailure", f"The sandbox's answer is wrong: {report}", 500)
    return answer


def _invalid(value: Any, shape: Shape | None) -> str:
    """Return how a value differs from its shape; empty if it does not."""
    report = ParamValidator().validate(value, shape) if shape is not None else None
    return str(report.generate_report()) if report is not None and report.has_errors() else ""


def _read_query(shape: Shape | None, fields: Mapping[str, str], prefix: str) -> Any:
    """Return the value of a shape in the fields of a query; None if there is none."""
    if shape is None:
        return None
    if shape.type_name == "structure":
        dot = f"{prefix}." if prefix else ""
        members = {name: _read_query(member, fields, dot + name) for name, member in shape.members.items()}
        return {name: value for name, value in members.items() if value is not None} or None
    if shape.type_name == "list":
        values: list[Any] = []
        while (value := _read_query(shape.member, fields, f"{prefix}.member.{len(values) + 1}")) is not None:
            values.append(value)
        return values if values or prefix in fields else None
    text = fields.get(prefix)
    if text is None:
        return None
    match shape.type_name:
        case "integer":
            return int(text)
        case "boolean":
            return text == "true"
        case "double" | "float":
            return float(text)
    return text


def _read_rest(model: ServiceModel, request: HttpRequest) -> tuple[OperationModel, dict[str, Any]]:
    """Return the operation of a request and its arguments. Raises KeyError for an unknown path."""
    target = urlsplit(request.target)
    for operation in map(model.operation_model, model.operation_names):
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", urlsplit(operation.http["requestUri"]).path)
        found = re.fullmatch(pattern, target.path) if operation.http["method"] == request.method else None
        if found is None:
            continue
        query = {name: values[0] for name, values in parse_qs(target.query).items()}
        parameters: dict[str, Any] = json.loads(request.body or b"{}")
        for name, member in operation.input_shape.members.items():
            key = member.serialization.get("name", name)
            if member.serialization.get("location") == "uri":
                parameters[name] = unquote(found[key])
            elif member.serialization.get("location") == "querystring" and key in query:
                parameters[name] = int(query[key]) if member.type_name == "integer" else query[key]
        return operation, parameters
    raise KeyError(f"EKS has no operation {request.method} {request.target}")


def _query_response(operation: OperationModel, answer: Any, error: ClientError | None) -> Response:
    name, namespace = operation.name, operation.service_model.metadata["xmlNamespace"]
    tail = "<RequestId>00000000-0000-4000-8000-000000000000</RequestId>"
    if error is not None:
        fault = error.response["Error"]
        content = (
            f"<Type>Sender</Type><Code>{escape(fault['Code'])}</Code><Message>{escape(fault['Message'])}</Message>"
        )
        body = f'<ErrorResponse xmlns="{namespace}"><Error>{content}</Error>{tail}</ErrorResponse>'
    else:
        result = _write_xml(operation.output_shape, answer, f"{name}Result") if operation.output_shape else ""
        metadata = f"<ResponseMetadata>{tail}</ResponseMetadata>"
        body = f'<{name}Response xmlns="{namespace}">{result}{metadata}</{name}Response>'
    return Response(status=_status(error), body=body.encode(), content_type="text/xml")


def _write_xml(shape: Shape, value: Any, name: str) -> str:
    if shape.type_name == "structure":
        content = "".join(_write_xml(shape.members[key], item, key) for key, item in value.items())
    elif shape.type_name == "list":
        content = "".join(_write_xml(shape.member, item, "member") for item in value)
    elif shape.type_name == "boolean":
        content = "true" if value else "false"
    elif shape.type_name == "timestamp":
        content = value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    else:
        content = escape(str(value))
    return f"<{name}>{content}</{name}>"


def _json_response(_operation: OperationModel, answer: Any, error: ClientError | None) -> Response:
    if error is not None:
        fault = error.response["Error"]
        body, headers = {"message": fault["Message"]}, {"x-amzn-ErrorType": fault["Code"]}
        return Response(status=_status(error), body=json.dumps(body).encode(), headers=headers)
    return Response(status=200, body=json.dumps(answer, default=datetime.timestamp).encode())


def _status(error: ClientError | None) -> int:
    return 200 if error is None else error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
