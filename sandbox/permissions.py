"""Evaluates requests to AWS against the policies of template.yaml, as IAM does, because emulators allow everything.

It supports the parts of policies that the template uses: Allow, actions by name, resources with wildcards, and the
condition operators below. Any other part is an error, never a guess. The `dynamodb:Attributes` of a DynamoDB request
are all names in its key, item and expressions. It does not matter whether the request reads, writes or compares them
(DynamoDB Developer Guide, "Using IAM policy conditions for fine-grained access control").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from sandbox.aws import Deployment

_EXPRESSIONS = tuple(f"{name}Expression" for name in ("Condition", "Filter", "KeyCondition", "Projection", "Update"))
# Words in expressions that are not names of attributes (DynamoDB Developer Guide, condition and update expressions).
_WORDS = frozenset(
    (
        *("add", "and", "attribute_exists", "attribute_not_exists", "attribute_type", "begins_with", "between"),
        *("contains", "delete", "if_not_exists", "in", "list_append", "not", "or", "remove", "set", "size"),
    )
)
_NAME = re.compile(r"(?<![:\w])[#A-Za-z_][\w#]*")


@dataclass(frozen=True)
class Request:
    """One request to AWS, with its condition keys."""

    action: str
    resource: str
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by condition key; absent: not in the request

    def __str__(self) -> str:
        keys = "".join(f" {key}={','.join(values)}" for key, values in self.keys.items())
        return f"{self.action} on {self.resource}{keys}"


class Permissions:
    """The statements of one function's role, or of a managed policy."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        """``name``: the logical id of a function or a managed policy."""
        template = deployment.template
        managed = template.of_type("AWS::IAM::ManagedPolicy").get(name)

        def lookup(name: str, attribute: str | None) -> str:
            try:
                return deployment.physical(name, attribute)
            except ValueError:  # a resource that the sandbox does not create, such as a log group
                return f"{name}.{attribute}"

        if managed is None:
            role = template.of_type("AWS::Serverless::Function")[name]["Role"]["Fn::GetAtt"][0]
            written = template.of_type("AWS::IAM::Role")[role]["Policies"]
        else:
            written = [managed]
        policies = template.resolve(written, lookup)
        self.statements: list[dict[str, Any]] = [
            statement for policy in policies for statement in policy["PolicyDocument"]["Statement"]
        ]

    def allows(self, request: Request) -> bool:
        """Return whether a statement allows the request."""
        return any(allows(statement, request) for statement in self.statements)


def allows(statement: Mapping[str, Any], request: Request) -> bool:
    """Return whether one statement of a policy allows the request."""
    return (
        (statement["Effect"] == "Allow" or _unknown(f"Effect {statement['Effect']}"))
        and request.action in _listed(statement["Action"])
        and any(fnmatchcase(request.resource, pattern) for pattern in _listed(statement["Resource"]))
        and all(
            _holds(operator, key, _listed(wanted), request.keys.get(key))
            for operator, keys in statement.get("Condition", {}).items()
            for key, wanted in keys.items()
        )
    )


def requests_of(deployment: Deployment, service: str, operation: str, params: Mapping[str, Any]) -> list[Request]:
    """Return the requests that policies evaluate for a call: one per write of a transaction, or per key of a batch.

    See the DynamoDB Developer Guide, "Using IAM with DynamoDB transactions".
    """
    if operation == "BatchGetItem":
        tables = params["RequestItems"].items()
        reads = [{"TableName": table, "Key": key} for table, entry in tables for key in entry["Keys"]]
        return [request_of(deployment, service, operation, read) for read in reads]
    if operation != "TransactWriteItems":
        return [request_of(deployment, service, operation, params)]
    writes = [(name, write) for entry in params["TransactItems"] for name, write in entry.items()]
    return [request_of(deployment, service, f"{name}Item", write) for name, write in writes]


def request_of(deployment: Deployment, service: str, operation: str, params: Mapping[str, Any]) -> Request:
    """Return the request of one call of a boto3 client."""
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
        case "eks" if operation == "DescribeNodegroup":
            name = f"nodegroup/{params['clusterName']}/{params['nodegroupName']}/0a1b2c3d"
            return Request(action, arn.format("eks", name))
        case "eks":
            return Request(action, arn.format("eks", f"cluster/{params['name']}"))
        case "autoscaling":
            return request_to_auto_scaling(operation, params, arn)
        case "s3":
            return Request(action, f"arn:aws:s3:::{params['Bucket']}/{params['Key']}")
        case "ec2" if operation in ("DescribeAvailabilityZones", "DescribeInstanceTypes"):
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


def request_to_auto_scaling(operation: str, params: Mapping[str, Any], arn: str) -> Request:
    """Return the request of a call. A write is to a group with the tag of a pool; it may name only its instance."""
    action = f"autoscaling:{operation}"
    if operation.startswith("Describe"):
        return Request(action, "*")
    tags = params.get("Tags", ())
    name = params.get("AutoScalingGroupName") or next((tag["ResourceId"] for tag in tags), "group-of-the-instance")
    keys = {
        f"autoscaling:{field}": (str(params[field]),)
        for field in ("MinSize", "MaxSize", "LaunchConfigurationName")
        if field in params
    }
    keys |= {f"autoscaling:{key}": tuple(values) for key, values in _of_machines(params).items() if values}
    if tags:
        keys["aws:TagKeys"] = tuple(tag["Key"] for tag in tags)
    keys["aws:ResourceTag/evenkeel.dev/pool"] = ("workers",)
    return Request(action, arn.format("autoscaling", f"autoScalingGroup:0a1b2c3d:autoScalingGroupName/{name}"), keys)


def _of_machines(params: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the values of the condition keys about a group's machines (Service Authorization Reference)."""
    mixed = params.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {})
    templates = [params.get("LaunchTemplate"), mixed.get("LaunchTemplateSpecification")]
    reservation = params.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    types = [each.get("InstanceType") for each in mixed.get("Overrides", ())]
    return {
        "VPCZoneIdentifiers": [params["VPCZoneIdentifier"]] if "VPCZoneIdentifier" in params else [],
        "InstanceTypes": [name for name in types if name],
        "LaunchTemplateVersionSpecified": [str("Version" in each).lower() for each in templates if each],
        "CapacityReservationIds": reservation.get("CapacityReservationIds", []),
        "CapacityReservationResourceGroupArns": reservation.get("CapacityReservationResourceGroupArns", []),
    }


def attributes(params: Mapping[str, Any]) -> tuple[str, ...]:
    """Return every attribute that a DynamoDB request names."""
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
    match = re.match(r"\w+ = (:\w+)", params.get("KeyConditionExpression", ""))
    return str(values[match[1]]["S"]) if match else None


def _holds(operator: str, key: str, wanted: list[str], values: tuple[str, ...] | None) -> bool:
    present = values or ()
    match operator:
        case "Null":
            return (values is None) == (wanted == ["true"])
        case "ForAllValues:StringEquals":  # holds for a request without that key
            return all(value in wanted for value in present)
        case "ForAllValues:StringLike":
            return all(any(fnmatchcase(value, pattern) for pattern in wanted) for value in present)
        case "NumericLessThanEquals":
            return values is not None and all(float(value) <= float(wanted[0]) for value in present)
        case "ForAnyValue:StringEquals":
            return any(value in wanted for value in present)
        case "StringEquals":
            return len(present) == 1 and present[0] in wanted
    return _unknown(f"condition {operator} of {key}")


def _unknown(what: str) -> Any:
    raise ValueError(f"the sandbox does not know {what}; add it to sandbox/permissions.py")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
