"""`evenkeel ACTION --stack NAME --cluster ID`: the functions of a deployed stack, asked from a laptop.

With the caller's own credentials and region. They need cloudformation:DescribeStackResource, to find the function, and
lambda:InvokeFunction on it: on the one that only reads, or on the operator function (the stack's ReaderPolicy and
OperatorPolicy give just that). What happens then, the function does with its own rights.
"""

import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn

import typer
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
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

from evenkeel.application.actions.table import writes
from evenkeel.cli.answers import Output, print_answer
from evenkeel.cli.inputs import BAD_INPUT, CANNOT_READ, INVALID_POOL, fail, read_yaml
from evenkeel.cli.table import counted
from evenkeel.cli.terminal import say, say_json
from evenkeel.config import ConfigError
from evenkeel.domain.model.values import shown

# Logical ids in template.yaml: who may only read has no right to invoke the first.
_OPERATOR, _READER = "OperatorFunction", "WidgetFunction"
# The function has 60 s; and an answer that got lost is no reason to ask for 5 nodes a second time.
_CONFIG = Config(connect_timeout=5, read_timeout=75, retries={"total_max_attempts": 1})
_IDENTITY_CONFIG = Config(connect_timeout=3, read_timeout=5, retries={"total_max_attempts": 1})
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_UNKNOWN_CALLER = {"InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "AuthFailure"}
_DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
_OLD_LOGIN = (SSOTokenLoadError, UnauthorizedSSOTokenError, TokenRetrievalError, LoginTokenLoadError)

StackName = Annotated[str, typer.Option("--stack", help="Name of the CloudFormation stack.")]
ClusterId = Annotated[str, typer.Option("--cluster", help="The cluster's id in its record.")]
ClusterIdOrAll = Annotated[str, typer.Option("--cluster", help="The cluster's id; left out: all that are registered.")]
PoolName = Annotated[str | None, typer.Option("--pool", help="One pool, by name or id.")]
GroupName = Annotated[str | None, typer.Option("--group", help="One node group, by name or key.")]
OutputForm = Annotated[Output, typer.Option("-o", "--output")]


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
    function = _OPERATOR if writes(event) else _READER
    try:
        # boto3 knows AWS_DEFAULT_REGION only; every other tool of AWS reads this one too.
        session = boto3.Session(region_name=os.environ.get("AWS_REGION"))
        found = session.client("cloudformation", config=_CONFIG).describe_stack_resource(
            StackName=stack, LogicalResourceId=function
        )
        if function == _OPERATOR:
            event = {**event, **_caller(session)}
        service, action = "Lambda", "lambda:InvokeFunction"
        answer = session.client("lambda", config=_CONFIG).invoke(
            FunctionName=found["StackResourceDetail"]["PhysicalResourceId"], Payload=json.dumps(event).encode()
        )
        payload = json.loads(answer["Payload"].read())
    except (ClientError, BotoCoreError, OSError, ValueError, KeyError) as error:
        raise _why(error, stack, function, service, action) from None
    if "FunctionError" in answer:
        said = payload.get("errorMessage") if isinstance(payload, Mapping) else payload
        raise CannotAskError(f"{function} of stack {stack} failed: {said}: see its log")
    if not isinstance(payload, dict) or not isinstance(payload.get("message"), str):
        raise CannotAskError(f"{function} of stack {stack} answered {shown(payload)}: that is none of Evenkeel's")
    return payload


def _caller(session: Any) -> dict[str, str]:
    """Who asks, for the record of the action. Nothing hangs on it: CloudTrail knows who invoked the function."""
    try:
        return {"by": str(session.client("sts", config=_IDENTITY_CONFIG).get_caller_identity()["Arn"])}
    except (ClientError, BotoCoreError, OSError, KeyError):
        return {}


def _why(error: Exception, stack: str, function: str, service: str, action: str) -> CannotAskError:
    text = " ".join(str(error).split())
    if isinstance(error, ClientError):
        code = error.response.get("Error", {}).get("Code", "")
        if code in _DENIED:
            return CannotAskError(f"missing permission {action} for stack {stack}: {_said(error)}")
        if code in _EXPIRED:
            return CannotAskError("the AWS credentials have expired: renew them and ask again")
        if code in _UNKNOWN_CALLER:
            return CannotAskError(f"AWS does not accept the credentials: {_said(error)}")
        if code == "ValidationError" and "does not exist" in text:
            what = f"it has no {function}" if function in _said(error) else "no stack of that name is here"
            return CannotAskError(f"stack is {shown(stack)}: {what}: check name, region and account", BAD_INPUT)
        return CannotAskError(f"{service} refused: {code}: {_said(error)}")
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
    return CannotAskError(f"{service} does not answer: {text}")


def _said(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Message", ""))


def _act(action: str, stack: str, cluster: str, output: Output, /, **fields: Any) -> None:
    """Ask, print, and leave with the exit code that the answer stands for."""
    answer = _ask_or_fail(action, stack, cluster, **fields)
    _print(answer, answer, output)
    told = answer.get("clusters", [answer])
    if not all(one.get("ok") for one in told):
        raise typer.Exit(CANNOT_READ)
    _leave(action, *told)


def _print(answer: dict[str, Any], as_json: Mapping[str, Any], output: Output) -> None:
    if output is Output.JSON:
        say_json(as_json, indent=2)
    else:
        print_answer(answer)


def _leave(action: str, *told: Mapping[str, Any]) -> None:
    if action in ("plan", "validate") and any(not pool["valid"] for one in told for pool in one["pools"]):
        raise typer.Exit(INVALID_POOL)


def _ask_or_fail(action: str, stack: str, cluster: str, /, **fields: Any) -> dict[str, Any]:
    event = {"action": action, "cluster": cluster, **{key: value for key, value in fields.items() if value is not None}}
    try:
        answer = ask(stack, event)
    except CannotAskError as error:
        fail([str(error)], error.code)
    if not answer.get("ok"):
        _refused(answer)
    return answer


def _refused(answer: Mapping[str, Any]) -> NoReturn:
    fail([answer["message"]], CANNOT_READ if answer.get("retry") else BAD_INPUT)


def plan_of_stack(stack: str, cluster: str, output: Output) -> None:
    """`evenkeel plan --stack`: as the stack would plan now; the JSON is that of every plan."""
    answer = _ask_or_fail("plan", stack, cluster)
    _print(answer, answer["plan"], output)
    _leave("plan", answer["plan"])


def status_command(stack: StackName, cluster: ClusterIdOrAll = "*", output: OutputForm = Output.TABLE) -> None:
    """Pools and zones, who is held and why, and the last decisions."""
    _act("status", stack, cluster, output)


def explain_command(
    stack: StackName,
    cluster: ClusterId,
    group: GroupName = None,
    pool: PoolName = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Why the bounds and replicas of a group, or of a pool, are what they are."""
    _act("explain", stack, cluster, output, group=group, pool=pool)


def validate_command(
    stack: StackName,
    cluster: ClusterIdOrAll = "*",
    pool: PoolName = None,
    fix: Annotated[bool, typer.Option("--fix", help="Show what would mend the numbers.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Have it written with the next look.")] = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Pools whose numbers break a rule; exit 3 means that some pool is invalid."""
    _act("validate", stack, cluster, output, pool=pool, fix=fix, apply=apply)


def register_command(
    stack: StackName,
    cluster: ClusterId,
    record: Annotated[
        str, typer.Option("--record", help="The cluster's record, YAML or JSON; - reads standard input.")
    ],
    output: OutputForm = Output.TABLE,
) -> None:
    """Store a cluster's record, and look at the cluster now."""
    try:
        given = read_yaml(record)
    except ConfigError as error:
        fail(error.faults)
    _act("register", stack, cluster, output, record=given)


def pause_command(
    stack: StackName,
    cluster: ClusterId,
    pool: PoolName = None,
    until: Annotated[str | None, typer.Option(help="A moment, RFC 3339; left out: until resumed.")] = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Leave a cluster alone, or one pool of it."""
    _act("pause", stack, cluster, output, pool=pool, until=until)


def resume_command(
    stack: StackName, cluster: ClusterId, pool: PoolName = None, output: OutputForm = Output.TABLE
) -> None:
    """End a pause, or a restore that is still under way."""
    _act("resume", stack, cluster, output, pool=pool)


def restore_command(
    stack: StackName, cluster: ClusterId, pool: PoolName = None, output: OutputForm = Output.TABLE
) -> None:
    """Put back the bounds from before Evenkeel, take its annotations off, and pause; one pool, or all."""
    _act("restore", stack, cluster, output, pool=pool)


def fence_zone_command(
    stack: StackName,
    cluster: ClusterId,
    zone: Annotated[str, typer.Option(help="The zone's name or id.")],
    until: Annotated[str, typer.Option(help="A moment, RFC 3339; one that is over lifts the fence.")],
    output: OutputForm = Output.TABLE,
) -> None:
    """No growth in one zone until a moment."""
    _act("fence-zone", stack, cluster, output, zone=zone, until=until)


_Nodes = Annotated[int, typer.Option(help="How many nodes.")]
_Only = Annotated[list[str] | None, typer.Option(help="A group that the pods fit; may be given more than once.")]


def scale_up_command(
    stack: StackName,
    cluster: ClusterId,
    nodes: _Nodes,
    pool: PoolName = None,
    group: GroupName = None,
    only: _Only = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Nodes for a pool, split evenly over its zones."""
    _act("scale-up", stack, cluster, output, nodes=nodes, pool=pool, group=group, only=only or None)


def scale_down_command(
    stack: StackName,
    cluster: ClusterId,
    nodes: _Nodes,
    pool: PoolName = None,
    group: GroupName = None,
    only: _Only = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Give nodes of a pool back, from the largest zones first."""
    _act("scale-down", stack, cluster, output, nodes=nodes, pool=pool, group=group, only=only or None)


def record_command(
    stack: StackName,
    cluster: ClusterId,
    since: Annotated[str | None, typer.Option(help="A moment, RFC 3339; left out: all that is kept, 30 days.")] = None,
    file: Annotated[str, typer.Option("--output", "-o", help="The file to write; - is standard output.")] = "-",
) -> None:
    """The decisions of a cluster, the oldest first, as JSON."""
    decisions: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        page = _ask_or_fail("record", stack, cluster, since=since, after=after)
        decisions += page["decisions"]
        after = page["next"]
        if after is None:
            break
    end = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    begin = since or (decisions[0]["at"] if decisions else end)
    told = json.dumps({"cluster": cluster, "from": begin, "to": end, "decisions": decisions}, indent=1)
    if file == "-":
        typer.echo(told)
        return
    try:
        with open(file, "w", encoding="utf-8") as target:  # noqa: PTH123 (a name as it was given)
            target.write(told + "\n")
    except OSError as error:
        fail([f"{file}: cannot be written: {error.strerror or error}"])
    made = sum("pool" in decision for decision in decisions)
    asked = f", {counted(len(decisions) - made, 'action')}" if made < len(decisions) else ""
    say(f"{counted(made, 'decision')}{asked} of {cluster} since {begin}: {file}")


COMMANDS: dict[str, Callable[..., None]] = {
    "status": status_command,
    "explain": explain_command,
    "validate": validate_command,
    "register": register_command,
    "pause": pause_command,
    "resume": resume_command,
    "restore": restore_command,
    "fence-zone": fence_zone_command,
    "scale-up": scale_up_command,
    "scale-down": scale_down_command,
    "record": record_command,
}
