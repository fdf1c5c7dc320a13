"""Invoke the functions of a deployed stack with the caller's own credentials and region.

The caller needs two permissions: cloudformation:DescribeStackResource to find the function, and lambda:InvokeFunction
to call it. Each of the stack's ReaderPolicy, OperatorPolicy and AdminPolicy allows one function. A function acts with
its own rights, not with those of the caller.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from botocore import exceptions as botocore
from botocore.config import Config
from botocore.exceptions import ClientError

from evenkeel.adapters.aws_faults import AWS_ERRORS, UNREADABLE, code_of, text_of
from evenkeel.domain.model.values import quote
from evenkeel_cli.console import progress
from evenkeel_cli.terminal import BAD_INPUT, CANNOT_READ, INTERRUPTED, CommandError, fail, say

# The size of the largest event in characters of JSON, enough for several hundred records. Lambda accepts 6 MB, but the
# DynamoDB transactions for so many records would take too long.
_LARGEST_EVENT = 200_000
# The actions that only read, whatever their fields. The table of actions says the same, but with the classes of every
# plan and record, which a command that only prints an answer does not need.
READERS = frozenset({"status", "explain", "history", "record", "plan", "readiness", "export"})
# Logical ids of functions in template.yaml, by ``Right``. The function with the most rights is first.
_READ = "read"
_FUNCTIONS = {"administer": "AdminFunction", "write": "OperatorFunction", _READ: "WidgetFunction"}
# The functions that a stack has only with a parameter, and what to do for them.
_OPTIONAL_FUNCTIONS = {
    "NotifyFunction": "deploy it with an alert channel, such as ChatTopicArn",
    "StatusPageFunction": "deploy it with PageBucket",
}
# The function's timeout is 60 s. There are no retries: after a lost answer, a retry would request nodes twice.
_CONFIG = Config(connect_timeout=5, read_timeout=75, retries={"total_max_attempts": 1})
# For completion of names: a shell waits for the answer.
_QUICK_CONFIG = Config(connect_timeout=1, read_timeout=2, retries={"total_max_attempts": 1})
_IDENTITY_CONFIG = Config(connect_timeout=3, read_timeout=5, retries={"total_max_attempts": 1})
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_UNKNOWN_CALLER = {"InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "AuthFailure"}
_DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
_EXPIRED_LOGIN = (
    botocore.SSOTokenLoadError,
    botocore.UnauthorizedSSOTokenError,
    botocore.TokenRetrievalError,
    botocore.LoginTokenLoadError,
)


class CannotAskError(CommandError):
    """A stack did not answer. The message is the reason in one sentence; ``code`` is the exit code."""

    def __init__(self, message: str, code: int = CANNOT_READ) -> None:
        super().__init__([message], code)


class _Fields(dict[str, Any]):
    """An object in a stack's answer. A missing field raises CannotAskError: another program or release answered."""

    def __missing__(self, field: str) -> NoReturn:
        raise CannotAskError(f"the stack's answer has no {field}: use the command line of the stack's release")


def session() -> Any:
    """Return a session with the caller's credentials, in the region of the variables or of the profile."""
    import boto3  # slow (a quarter of a second), and not needed by commands without a stack

    # boto3 reads only AWS_DEFAULT_REGION. Other AWS tools also read AWS_REGION.
    return boto3.Session(region_name=os.environ.get("EVENKEEL_REGION") or os.environ.get("AWS_REGION"))


class Stack:
    """A deployed stack, with the caller's credentials. Every method raises CannotAskError."""

    def __init__(self, name: str) -> None:
        self.name = name
        with self._errors("stack", "AWS", ""):
            self._aws = session()

    @contextmanager
    def _errors(self, resource: str, service: str, action: str) -> Iterator[None]:
        try:
            yield
        except (*AWS_ERRORS, OSError) as error:
            raise _error(error, self.name, resource, service, action) from None

    def resource(self, logical_id: str) -> dict[str, Any]:
        """Return CloudFormation's description of a resource, with ``PhysicalResourceId`` and ``StackId``."""
        with self._errors(logical_id, "CloudFormation", "cloudformation:DescribeStackResource"):
            stacks = self._aws.client("cloudformation", config=_CONFIG)
            found = stacks.describe_stack_resource(StackName=self.name, LogicalResourceId=logical_id)
            return dict(found["StackResourceDetail"])

    def account_of(self, logical_id: str) -> str:
        """Return the AWS account of a resource."""
        return str(self.resource(logical_id)["StackId"]).split(":")[4]

    def caller(self) -> dict[str, str]:
        """Return the event field with the caller's ARN; empty if STS does not answer. CloudTrail has the ARN, too."""
        try:
            return {"by": str(self._aws.client("sts", config=_IDENTITY_CONFIG).get_caller_identity()["Arn"])}
        except (*AWS_ERRORS, OSError):
            return {}

    def invoke(self, function: str, event: Mapping[str, Any]) -> Any:
        """Return the answer of a function, by its logical id."""
        name = self.resource(function)["PhysicalResourceId"]
        with self._errors(function, "Lambda", "lambda:InvokeFunction"):
            client = self._aws.client("lambda", config=_CONFIG)
            answer = client.invoke(FunctionName=name, Payload=json.dumps(event).encode())
            payload = json.loads(answer["Payload"].read(), object_hook=_Fields)
        if "FunctionError" in answer:
            failure = payload.get("errorMessage") if isinstance(payload, Mapping) else payload
            raise CannotAskError(f"{function} of stack {self.name} failed: {failure}: see its log")
        return payload

    def put_event(self, event: Mapping[str, Any]) -> str:
        """Put an event on the stack's bus, and return the bus's name."""
        bus = str(self.resource("EventBus")["PhysicalResourceId"])
        entry = {
            "EventBusName": bus,
            "Source": str(event["source"]),
            "DetailType": str(event["detail-type"]),
            "Detail": json.dumps(event["detail"]),
        }
        with self._errors("EventBus", "EventBridge", "events:PutEvents"):
            answer = self._aws.client("events", config=_CONFIG).put_events(Entries=[entry])
        if answer["FailedEntryCount"]:
            (refusal,) = answer["Entries"]
            why = f"{refusal.get('ErrorCode')}: {refusal.get('ErrorMessage')}"
            raise CannotAskError(f"event bus {bus} refused the event: {why}: correct the file, or send it again")
        return bus


def ask(stack: str, event: Mapping[str, Any]) -> dict[str, Any]:
    """Return a function's answer, which may report a failure. For an action that writes, add the caller to the event.

    Raises:
        CannotAskError: no stack of that name, no credentials or rights, no answer, or the function failed.
    """
    right = _right(event)
    function, deployed = _FUNCTIONS[right], Stack(stack)
    if right != _READ:
        event = {**event, **deployed.caller()}
    payload = deployed.invoke(function, event)
    if not isinstance(payload, dict) or not isinstance(payload.get("message"), str) or not _has_objects(payload):
        raise CannotAskError(f"{function} of stack {stack} answered {quote(payload)}: that is none of Evenkeel's")
    return payload


def _right(event: Mapping[str, Any]) -> str:
    if event["action"] in READERS:
        return _READ
    from evenkeel.application.actions.table import right_needed

    return right_needed(event)


def _has_objects(answer: Mapping[str, Any]) -> bool:
    clusters = answer.get("clusters", [])
    return isinstance(clusters, list) and all(isinstance(cluster, dict) for cluster in clusters)


def ask_quickly(stack: str, event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to an event that only reads, for completion. Raises whatever goes wrong."""
    aws, function = session(), _FUNCTIONS[_READ]
    stacks = aws.client("cloudformation", config=_QUICK_CONFIG)
    name = stacks.describe_stack_resource(StackName=stack, LogicalResourceId=function)["StackResourceDetail"]
    functions = aws.client("lambda", config=_QUICK_CONFIG)
    answer = functions.invoke(FunctionName=name["PhysicalResourceId"], Payload=json.dumps(event).encode())
    payload = json.loads(answer["Payload"].read())
    return payload if isinstance(payload, dict) else {}


def role_arns(stack: str, roles: Iterable[str]) -> dict[str, str]:
    """Return the ARNs of a stack's roles by logical id. Raises CannotAskError."""
    deployed, arns = Stack(stack), {}
    for role in roles:
        detail = deployed.resource(role)
        _, partition, _, _, account, _ = detail["StackId"].split(":", 5)
        arns[role] = f"arn:{partition}:iam::{account}:role/{detail['PhysicalResourceId']}"
    return arns


def credentials_error(error: Exception) -> CannotAskError | None:
    """Return the error to raise for a fault that the caller can fix (credentials, region, profile); else None."""
    text = " ".join(text_of(error).split())
    if isinstance(error, ClientError):
        if code_of(error) in _EXPIRED:
            return CannotAskError("the AWS credentials have expired: renew them and ask again")
        if code_of(error) in _UNKNOWN_CALLER:
            return CannotAskError(f"AWS does not accept the credentials: {_message(error)}")
    if isinstance(error, botocore.NoCredentialsError | botocore.PartialCredentialsError):
        return CannotAskError(f"no AWS credentials: {text}: log in, or name a profile in AWS_PROFILE")
    if isinstance(error, _EXPIRED_LOGIN):
        return CannotAskError(f"the AWS credentials have expired: log in again ({text})")
    if isinstance(error, botocore.CredentialRetrievalError):
        return CannotAskError(f"the AWS credentials cannot be read: {text}")
    if isinstance(error, botocore.NoRegionError):
        return CannotAskError("no AWS region: give --region, or set AWS_REGION or the region of the profile", BAD_INPUT)
    if isinstance(error, botocore.ProfileNotFound | botocore.InvalidRegionError):
        return CannotAskError(text, BAD_INPUT)
    return None


def service_error(error: Exception, service: str, action: str, place: str = "") -> CannotAskError | None:
    """Return the error to raise for a fault of the caller's credentials, rights or network; else None.

    ``place``: what the action is missing for, such as " for stack blue".
    """
    if (fault := credentials_error(error)) is not None:
        return fault
    if not isinstance(error, ClientError):
        return CannotAskError(f"{service} does not answer: {_connection_fault(error)}")
    if code_of(error) in _DENIED:
        return CannotAskError(f"missing permission {action}{place}: {_message(error)}")
    return None


def _error(error: Exception, stack: str, function: str, service: str, action: str) -> CannotAskError:
    if (fault := service_error(error, service, action, f" for stack {stack}")) is not None:
        return fault
    assert isinstance(error, ClientError)  # service_error has handled all others
    code, message = code_of(error), _message(error)
    if code == "ValidationError" and "does not exist" in message:
        if function in message:
            advice = _OPTIONAL_FUNCTIONS.get(function, "check name, region and account")
            problem = f"it has no {function}: {advice}"
        else:
            problem = "no stack of that name is here: check name, region and account"
        return CannotAskError(f"stack is {quote(stack)}: {problem}", BAD_INPUT)
    return CannotAskError(f"{service} refused: {code}: {message}")


def _message(error: ClientError) -> str:
    """Return AWS's message. A proxy may answer with an HTML page, which is not shown."""
    text = str(error.response.get("Error", {}).get("Message", ""))
    if "<html" not in text.lower():
        return text
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", "unknown")
    return f"an HTML page with status {status}: check the proxy between here and AWS"


def _connection_fault(error: Exception) -> str:
    """Return what to do about a connection that failed, instead of botocore's text with its URLs."""
    match error:
        case botocore.ProxyConnectionError():
            return "the proxy cannot be reached: check HTTPS_PROXY"
        case botocore.SSLError():
            return "its certificate is not trusted: check AWS_CA_BUNDLE, and the proxy"
        case botocore.ReadTimeoutError():
            return "it took too long: ask again"
        case botocore.EndpointConnectionError() | botocore.ConnectTimeoutError() | botocore.ConnectionClosedError():
            if own_endpoints := sorted(name for name in os.environ if name.startswith("AWS_ENDPOINT_URL")):
                return f"no connection: start LocalStack, or unset {', '.join(own_endpoints)}"
            return "no connection: check the network and the region"
        case ValueError():  # of boto3 before it asks AWS, such as about an endpoint that is no URL
            return " ".join(str(error).split())
    text = " ".join(text_of(error).split())
    return f"{text}: check the proxy between here and AWS" if text == UNREADABLE else text


def ask_or_fail(
    action: str, stack: str, cluster: str | None, fields: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the stack's answer. Exit if there is no answer, or if the answer reports a failure."""
    values = {name: value for name, value in (fields or {}).items() if value not in (None, [])}
    if values.get("selector") is not None and cluster == "*":
        cluster = None
    event = {"action": action, **({} if cluster is None else {"cluster": cluster}), **values}
    try:
        answer = ask(stack, event)
    except KeyboardInterrupt:
        if _right(event) == _READ or values.get("list"):
            raise
        history = f"evenkeel history --stack {stack} tells"
        say(f"evenkeel: interrupted: the stack goes on with what it was asked for by then: {history}", err=True)
        raise SystemExit(INTERRUPTED) from None
    if not answer.get("ok"):
        fail([answer["message"]], CANNOT_READ if answer.get("retry") else BAD_INPUT)
    if answer.get("unknown") and "after" not in values:  # only for the first page
        from evenkeel.texts.english import unknown_text

        say(f"evenkeel: {unknown_text(answer['unknown'])}", err=True)
    return answer


def pages(
    action: str, stack: str, cluster: str | None, fields: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return all pages of an answer."""
    read: list[dict[str, Any]] = []
    with progress(action, "pages") as report:
        while not read or read[-1]["next"] is not None:
            after = read[-1]["next"] if read else None
            read.append(ask_or_fail(action, stack, cluster, {**(fields or {}), "after": after}))
            report(len(read))
    return read


def ask_of_all(action: str, stack: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return one answer for all clusters. Records are sent in parts, each small enough for one event.

    Repeat the action for the clusters that an answer lists as ``left``, until no cluster is left or their number no
    longer falls.
    """
    named = fields.get("records") or fields.get("clusters")
    answers: list[dict[str, Any]] = []
    with progress(action, "clusters", None if named is None else len(named)) as report:
        for event in _events(fields):
            answers.append(_ask_until_done(action, stack, event))
            report(sum(len(answer.get("clusters", ())) for answer in answers))
    if len(answers) == 1:
        return answers[0]
    clusters = [cluster for answer in answers for cluster in answer["clusters"]]
    return {**answers[0], "clusters": clusters}


def _events(fields: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the fields of each event: the same, but for the records."""
    if "records" not in fields:
        yield dict(fields)
        return
    for part in in_parts(fields["records"]):
        before = {"before": {id: fields["before"][id] for id in part}} if "before" in fields else {}
        yield {**fields, "records": part, **before}


def _ask_until_done(action: str, stack: str, event: dict[str, Any]) -> dict[str, Any]:
    answer = ask_or_fail(action, stack, event.pop("cluster", None), event)
    left = answer.get("left") or []
    while left:
        if "records" in event:
            event["records"] = {id: event["records"][id] for id in left}
        else:
            event = {name: value for name, value in event.items() if name not in ("all", "selector")}
            event["clusters"] = left
        rest = ask_or_fail(action, stack, None, event)
        others = [cluster for cluster in answer["clusters"] if cluster["cluster"] not in left]
        untouched = answer.get("untouched", 0) + rest.get("untouched", 0)
        answer = {**answer, "clusters": others + rest["clusters"], "left": rest["left"], "untouched": untouched}
        if len(rest["left"]) == len(left):
            break
        left = rest["left"]
    return answer


def unchanged_since(listed: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the event field that makes an action skip records that changed after they were listed."""
    before = {cluster["cluster"]: cluster["before"] for cluster in listed if "before" in cluster}
    return {"before": before} if before else {}


def in_parts(records: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the records in parts, each small enough for one event."""
    part: dict[str, Any] = {}
    size = 0
    for id, record in records.items():
        length = len(json.dumps({id: record}))
        if part and size + length > _LARGEST_EVENT:
            yield part
            part, size = {}, 0
        part[id] = record
        size += length
    if part:
        yield part
