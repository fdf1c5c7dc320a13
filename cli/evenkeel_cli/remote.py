"""The functions of a deployed stack, asked from a laptop.

With the caller's own credentials and region. They need cloudformation:DescribeStackResource, to find the function, and
lambda:InvokeFunction on it: on the one that only reads, on the one for who is on duty, or on the operator function (the
stack's ReaderPolicy, OperatorPolicy and AdminPolicy give just that). What happens then, the function does with its own
rights.
"""

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from botocore.config import Config
from botocore.exceptions import (
    ClientError,
    CredentialRetrievalError,
    InvalidRegionError,
    LoginTokenLoadError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOTokenLoadError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)

from evenkeel.adapters.aws_faults import AWS_ERRORS, text_of
from evenkeel.application.actions.call import Right
from evenkeel.application.actions.table import right_needed
from evenkeel.domain.model.values import quote
from evenkeel_cli.terminal import BAD_INPUT, CANNOT_READ

# Logical ids in template.yaml, each with less to invoke it for.
_FUNCTIONS = {Right.ADMINISTER: "AdminFunction", Right.WRITE: "OperatorFunction", Right.READ: "WidgetFunction"}
# The function has 60 s; and an answer that got lost is no reason to ask for 5 nodes a second time.
_CONFIG = Config(connect_timeout=5, read_timeout=75, retries={"total_max_attempts": 1})
_IDENTITY_CONFIG = Config(connect_timeout=3, read_timeout=5, retries={"total_max_attempts": 1})
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_UNKNOWN_CALLER = {"InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "AuthFailure"}
_DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
_OLD_LOGIN = (SSOTokenLoadError, UnauthorizedSSOTokenError, TokenRetrievalError, LoginTokenLoadError)


class CannotAskError(Exception):
    """Why a stack gave no answer, in one sentence, and the exit code of that."""

    def __init__(self, message: str, code: int = CANNOT_READ) -> None:
        super().__init__(message)
        self.code = code


def ask(stack: str, event: Mapping[str, Any]) -> dict[str, Any]:
    """A function's answer, whether ok or not; with who asks, where something is to be written.

    Raises:
        CannotAskError: no stack of that name, no credentials or rights, no answer, or the function failed.
    """
    import boto3  # a quarter of a second that commands without a stack need not wait for

    service, action = "CloudFormation", "cloudformation:DescribeStackResource"
    right = right_needed(event)
    function = _FUNCTIONS[right]
    try:
        # boto3 knows AWS_DEFAULT_REGION only; every other tool of AWS reads this one too.
        session = boto3.Session(region_name=os.environ.get("AWS_REGION"))
        stacks = session.client("cloudformation", config=_CONFIG)
        resource = stacks.describe_stack_resource(StackName=stack, LogicalResourceId=function)
        if right is not Right.READ:
            event = {**event, **_caller(session)}
        service, action = "Lambda", "lambda:InvokeFunction"
        answer = session.client("lambda", config=_CONFIG).invoke(
            FunctionName=resource["StackResourceDetail"]["PhysicalResourceId"], Payload=json.dumps(event).encode()
        )
        payload = json.loads(answer["Payload"].read())
    except (*AWS_ERRORS, OSError, ValueError, KeyError) as error:
        raise _why(error, stack, function, service, action) from None
    if "FunctionError" in answer:
        failure = payload.get("errorMessage") if isinstance(payload, Mapping) else payload
        raise CannotAskError(f"{function} of stack {stack} failed: {failure}: see its log")
    if not isinstance(payload, dict) or not isinstance(payload.get("message"), str):
        raise CannotAskError(f"{function} of stack {stack} answered {quote(payload)}: that is none of Evenkeel's")
    return payload


def role_arns(stack: str, roles: Iterable[str]) -> dict[str, str]:
    """The ARNs of a stack's roles, by their logical ids. Raises CannotAskError."""
    import boto3

    found = {}
    try:
        client = boto3.Session(region_name=os.environ.get("AWS_REGION")).client("cloudformation", config=_CONFIG)
        for role in roles:
            detail = client.describe_stack_resource(StackName=stack, LogicalResourceId=role)["StackResourceDetail"]
            _, partition, _, _, account, _ = detail["StackId"].split(":", 5)
            found[role] = f"arn:{partition}:iam::{account}:role/{detail['PhysicalResourceId']}"
    except (*AWS_ERRORS, OSError, ValueError, KeyError) as error:
        raise _why(error, stack, "role", "CloudFormation", "cloudformation:DescribeStackResource") from None
    return found


def _caller(session: Any) -> dict[str, str]:
    """Who asks, for the record of the action. Nothing hangs on it: CloudTrail knows who invoked the function."""
    try:
        return {"by": str(session.client("sts", config=_IDENTITY_CONFIG).get_caller_identity()["Arn"])}
    except (*AWS_ERRORS, OSError, KeyError):
        return {}


def of_caller(error: Exception) -> CannotAskError | None:
    """What whoever asks has to mend at their own end: credentials, region, profile. None: it is something else."""
    text = " ".join(text_of(error).split())
    if isinstance(error, ClientError):
        code = error.response.get("Error", {}).get("Code", "")
        if code in _EXPIRED:
            return CannotAskError("the AWS credentials have expired: renew them and ask again")
        if code in _UNKNOWN_CALLER:
            return CannotAskError(f"AWS does not accept the credentials: {_message(error)}")
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return CannotAskError(f"no AWS credentials: {text}: log in, or name a profile in AWS_PROFILE")
    if isinstance(error, _OLD_LOGIN):
        return CannotAskError(f"the AWS credentials have expired: log in again ({text})")
    if isinstance(error, CredentialRetrievalError):
        return CannotAskError(f"the AWS credentials cannot be read: {text}")
    if isinstance(error, NoRegionError):
        return CannotAskError("no AWS region: set AWS_REGION, or a region in the profile", BAD_INPUT)
    if isinstance(error, ProfileNotFound | InvalidRegionError):
        return CannotAskError(text, BAD_INPUT)
    return None


def _why(error: Exception, stack: str, function: str, service: str, action: str) -> CannotAskError:
    if (found := of_caller(error)) is not None:
        return found
    text = " ".join(text_of(error).split())
    if not isinstance(error, ClientError):
        return CannotAskError(f"{service} does not answer: {text}")
    code = error.response.get("Error", {}).get("Code", "")
    if code in _DENIED:
        return CannotAskError(f"missing permission {action} for stack {stack}: {_message(error)}")
    if code == "ValidationError" and "does not exist" in text:
        problem = f"it has no {function}" if function in _message(error) else "no stack of that name is here"
        return CannotAskError(f"stack is {quote(stack)}: {problem}: check name, region and account", BAD_INPUT)
    return CannotAskError(f"{service} refused: {code}: {_message(error)}")


def _message(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Message", ""))
