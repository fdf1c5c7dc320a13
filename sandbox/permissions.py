"""Judges requests to AWS by the policies of template.yaml, as IAM would: emulators let everything through.

What is understood is what our policies use: Allow, actions by name, resources with wildcards, and the condition
operators below. What is not understood is an error, never a guess. Which names a DynamoDB request counts as
`dynamodb:Attributes`: all that stand in its key, item and expressions, whether read, written or compared (DynamoDB
Developer Guide, "Using IAM policy conditions for fine-grained access control").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from botocore.client import BaseClient

from sandbox.aws import Deployment
from sandbox.triggers import InProcess

_EXPRESSIONS = tuple(f"{name}Expression" for name in ("Condition", "Filter", "KeyCondition", "Projection", "Update"))
# What stands in expressions and is no attribute: DynamoDB Developer Guide, condition and update expressions.
_WORDS = frozenset(
    (
        *("add", "and", "attribute_exists", "attribute_not_exists", "attribute_type", "begins_with", "between"),
        *("contains", "delete", "if_not_exists", "in", "list_append", "not", "or", "remove", "set", "size"),
    )
)
_NAME = re.compile(r"(?<![:\w])[#A-Za-z_][\w#]*")


@dataclass(frozen=True)
class Request:
    """One call, as a policy sees it."""

    action: str
    resource: str
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # condition keys; absent: not in the request

    def __str__(self) -> str:
        told = "".join(f" {key}={','.join(values)}" for key, values in self.keys.items())
        return f"{self.action} on {self.resource}{told}"


class Permissions:
    """What the role of one function allows, or a policy for people."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        """``name``: of a function or a managed policy, by its logical id."""
        template = deployment.template
        managed = template.of_type("AWS::IAM::ManagedPolicy").get(name)

        def lookup(name: str, attribute: str | None) -> str:
            try:
                return deployment.physical(name, attribute)
            except ValueError:  # a log group, say, which the sandbox does not make
                return f"{name}.{attribute}"

        if managed is None:
            role = template.of_type("AWS::Serverless::Function")[name]["Role"]["Fn::GetAtt"][0]
            written = template.of_type("AWS::IAM::Role")[role]["Policies"]
        else:
            written = [managed]
        policies = template.resolve(written, lookup)
        self.statements: list[dict[str, Any]] = []
        for policy in policies:
            self.statements += policy["PolicyDocument"]["Statement"]

    def allows(self, request: Request) -> bool:
        """Whether some statement allows it; nothing else does."""
        return any(
            request.action in _listed(statement["Action"])
            and any(fnmatchcase(request.resource, pattern) for pattern in _listed(statement["Resource"]))
            and all(
                _holds(operator, key, _listed(wanted), request.keys.get(key))
                for operator, keys in statement.get("Condition", {}).items()
                for key, wanted in keys.items()
            )
            for statement in self.statements
            if statement["Effect"] == "Allow" or _unknown(f"Effect {statement['Effect']}")
        )


class Recorded(InProcess):
    """The handlers, with every request that one of them sends to AWS."""

    def __init__(self, deployment: Deployment, **more: Any) -> None:
        super().__init__(deployment, **more)
        self._where = deployment
        self.sent: dict[str, list[Request]] = {}

    def __call__(self, logical_id: str, event: Any) -> Any:
        sent = self.sent.setdefault(logical_id, [])
        with _listening(lambda *call: sent.extend(requests_of(self._where, *call))):
            return super().__call__(logical_id, event)

    def refused(self) -> list[str]:
        """What IAM would have refused, a line each."""
        found = []
        for function, requests in self.sent.items():
            permissions = Permissions(self._where, function)
            found += [f"{function}: {request}" for request in requests if not permissions.allows(request)]
        return found


def requests_of(deployment: Deployment, service: str, operation: str, params: Mapping[str, Any]) -> list[Request]:
    """A call as policies see it: of a transaction each write by itself (DynamoDB Developer Guide, "Using IAM with
    DynamoDB transactions").
    """
    if operation == "BatchGetItem":
        asked = [(table, key) for table, entry in params["RequestItems"].items() for key in entry["Keys"]]
        reads = [{"TableName": table, "Key": key} for table, key in asked]
        return [request_of(deployment, service, operation, read) for read in reads]
    if operation != "TransactWriteItems":
        return [request_of(deployment, service, operation, params)]
    writes = [(name, write) for entry in params["TransactItems"] for name, write in entry.items()]
    return [request_of(deployment, service, f"{name}Item", write) for name, write in writes]


def request_of(deployment: Deployment, service: str, operation: str, params: Mapping[str, Any]) -> Request:
    """A call of a boto3 client as a policy sees it."""
    aws = deployment.aws
    arn = f"arn:aws:{{}}:{aws.region}:{aws.account}:{{}}"
    action = f"{service}:{operation.removesuffix('Batch') if service == 'sqs' else operation}"
    match service:
        case "dynamodb":
            index = f"/index/{params['IndexName']}" if "IndexName" in params else ""
            keys = {"dynamodb:Attributes": attributes(params)}
            if leading := _leading_key(params):
                keys["dynamodb:LeadingKeys"] = (leading,)
            return Request(action, arn.format("dynamodb", f"table/{params['TableName']}{index}"), keys)
        case "sqs":
            return Request(action, arn.format("sqs", params["QueueUrl"].rpartition("/")[2]))
        case "secretsmanager":  # Secrets Manager appends six characters to a name
            return Request(action, arn.format("secretsmanager", f"secret:{params['SecretId']}-a1B2c3"))
        case "sns":
            return Request(action, params["TopicArn"])
        case "events":
            (bus,) = {entry["EventBusName"] for entry in params["Entries"]}
            return Request(action, arn.format("events", f"event-bus/{bus}"))
        case "eks":
            return Request(action, arn.format("eks", f"cluster/{params['name']}"))
        case "s3":
            return Request(action, f"arn:aws:s3:::{params['Bucket']}/{params['Key']}")
        case "ec2" if operation == "DescribeAvailabilityZones":
            return Request(action, "*")
        case "kms":
            context = params.get("EncryptionContext", {})
            return Request(
                action, params["KeyId"], {f"kms:EncryptionContext:{name}": (value,) for name, value in context.items()}
            )
        case "sts" if operation == "AssumeRole":
            return Request(action, params["RoleArn"])
        case "sts" if operation == "GetWebIdentityToken":
            keys = {"sts:SigningAlgorithm": (params["SigningAlgorithm"],)}
            keys |= {"sts:DurationSeconds": (str(params.get("DurationSeconds", 300)),)}
            if params["Audience"]:
                keys["sts:IdentityTokenAudience"] = tuple(params["Audience"])
            return Request(action, "*", keys)
    return _unknown(f"service {service}")


def attributes(params: Mapping[str, Any]) -> tuple[str, ...]:
    """Every attribute that a DynamoDB request names."""
    aliases = params.get("ExpressionAttributeNames", {})
    names = {*params.get("Key", {}), *params.get("Item", {}), *aliases.values()}
    for expression in _EXPRESSIONS:
        for name in _NAME.findall(params.get(expression, "")):
            if name.lower() not in _WORDS:
                names.add(aliases.get(name, name))
    return tuple(sorted(names))


def _leading_key(params: Mapping[str, Any]) -> str | None:
    key = params.get("Key") or params.get("Item")
    if key:
        return str(key["pk"]["S"])
    values = params.get("ExpressionAttributeValues", {})
    found = re.match(r"\w+ = (:\w+)", params.get("KeyConditionExpression", ""))
    return str(values[found[1]]["S"]) if found else None


def _holds(operator: str, key: str, wanted: list[str], values: tuple[str, ...] | None) -> bool:
    match operator:
        case "Null":
            return (values is None) == (wanted == ["true"])
        case "ForAllValues:StringEquals":  # holds for a request without that key
            return all(value in wanted for value in values or ())
        case "ForAllValues:StringLike":
            return all(any(fnmatchcase(value, pattern) for pattern in wanted) for value in values or ())
        case "NumericLessThanEquals":
            return values is not None and all(float(value) <= float(wanted[0]) for value in values)
        case "ForAnyValue:StringEquals":
            return any(value in wanted for value in values or ())
        case "StringEquals":
            return values is not None and len(values) == 1 and values[0] in wanted
    return _unknown(f"condition {operator} of {key}")


def _unknown(what: str) -> Any:
    raise ValueError(f"the sandbox does not know {what}; add it to sandbox/permissions.py")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@contextmanager
def _listening(hear: Callable[[str, str, Mapping[str, Any]], None]) -> Iterator[None]:
    """Every call of every boto3 client of this process, for as long as the block lasts."""
    send = BaseClient._make_api_call  # type: ignore[attr-defined]

    def heard(client: Any, operation: str, params: dict[str, Any]) -> Any:
        hear(client.meta.service_model.service_name, operation, params)
        return send(client, operation, params)

    BaseClient._make_api_call = heard  # type: ignore[attr-defined]
    try:
        yield
    finally:
        BaseClient._make_api_call = send  # type: ignore[attr-defined]
