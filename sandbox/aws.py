"""AWS endpoints for the demo and the tests, and our table, queues and bus on them, made from template.yaml.

Without more ado the endpoints are moto's server, in this process, on a free loopback port. Whoever sets
AWS_ENDPOINT_URL (and AWS_ENDPOINT_URL_DYNAMODB or any other service's) uses that emulator instead.

    with AwsEndpoints() as aws, aws.deploy() as deployment:
        environment = deployment.environment("RebalanceFunction")   # exactly the variables of the deployment
        aws.client("sqs").send_message(QueueUrl=environment["EVENKEEL_REBALANCE_QUEUE_URL"], ...)

No environment variable is changed. Clients come from localstack-client's session, for moto as for LocalStack.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from botocore.config import Config
from localstack_client.session import Session

from sandbox.template import TEMPLATE, Function, Template

REGION = "eu-central-1"
_OWN_ENDPOINT = "AWS_ENDPOINT_URL_"
_LOOPBACK = {"127.0.0.1", "localhost", "::1", "host.docker.internal", "localhost.localstack.cloud"}


@dataclass(frozen=True)
class Mapped:
    """A queue that the template maps to a function."""

    function: str
    queue_url: str
    queue_arn: str
    batch_size: int
    partial_responses: bool


@dataclass(frozen=True)
class Subscription:
    """A rule of the template. What it matches arrives on a queue of the sandbox: emulators cannot call functions."""

    function: str
    event: str
    bus: str
    pattern: Mapping[str, Any]
    queue_url: str


@dataclass(frozen=True)
class Schedule:
    """A schedule of the template; `input` still holds the scheduler's own placeholders."""

    function: str
    expression: str
    input: str


class AwsEndpoints(AbstractContextManager["AwsEndpoints"]):
    """Endpoints that answer like AWS. `region` and `account` are what they believe to be in."""

    def __init__(self, *, region: str = REGION) -> None:
        self.region = region
        self._stack = ExitStack()
        self._clients: dict[str, Any] = {}
        self.url = ""
        self.account = ""

    def __enter__(self) -> AwsEndpoints:
        self.url = os.environ.get("AWS_ENDPOINT_URL") or self._stack.enter_context(_moto_server())
        if urlsplit(self.url).hostname not in _LOOPBACK and not os.environ.get("EVENKEEL_SANDBOX_REMOTE"):
            raise ValueError(
                f"AWS_ENDPOINT_URL is {self.url}: the sandbox makes and deletes tables and queues, so it only talks "
                "to this machine; set EVENKEEL_SANDBOX_REMOTE=1 for an emulator elsewhere"
            )
        self._session = _open_session(self.url, self.region)
        self.account = self.client("sts").get_caller_identity()["Account"]
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        self._stack.close()

    def client(self, service: str) -> Any:
        """A boto3 client for one service at these endpoints; made once."""
        if service not in self._clients:
            self._clients[service] = self._session.client(
                service,
                config=Config(retries={"mode": "standard", "max_attempts": 2}, connect_timeout=3, read_timeout=30),
            )
        return self._clients[service]

    def environment(self) -> dict[str, str]:
        """The variables with which a process, or our own code in this one, ends up at these endpoints."""
        return {f"{_OWN_ENDPOINT}{service.upper()}": url for service, url in _own_endpoints().items()} | {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "sandbox",
            "AWS_SECRET_ACCESS_KEY": "sandbox",
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "EVENKEEL_ALLOW_LOOPBACK": "true",  # where the sandbox's clusters are
        }

    @contextmanager
    def deploy(
        self, path: Path = TEMPLATE, *, parameters: Mapping[str, str] | None = None, stack: str | None = None
    ) -> Iterator[Deployment]:
        """Our table, queues, bus and rules, for as long as the block lasts; `parameters` as at `sam deploy`."""
        deployment = self.create_from_template(path, parameters=parameters, stack=stack)
        try:
            yield deployment
        finally:
            deployment.delete()

    def create_from_template(
        self, path: Path = TEMPLATE, *, parameters: Mapping[str, str] | None = None, stack: str | None = None
    ) -> Deployment:
        """The same without an end. Names carry a random part, so that runs beside each other do not meet."""
        deployment = self.prepare(path, parameters=parameters, stack=stack)
        deployment.make_all()
        return deployment

    def prepare(
        self, path: Path = TEMPLATE, *, parameters: Mapping[str, str] | None = None, stack: str | None = None
    ) -> Deployment:
        """The same, of which nothing is made yet but what somebody asks for: for who wants the table alone."""
        return Deployment(self, Template(path, parameters=parameters), stack or f"evenkeel-{uuid.uuid4().hex[:8]}")


class Deployment:
    """What the template describes, made on the endpoints: the resources a function's variables and triggers lead to."""

    def __init__(self, aws: AwsEndpoints, template: Template, stack: str) -> None:
        self.aws = aws
        self.template = template
        self.stack = stack
        self._made: dict[str, dict[str | None, str]] = {}
        self._rules: list[tuple[str, str]] = []
        self._listeners: list[str] = []
        self.subscriptions: list[Subscription] = []

    def make_all(self) -> None:
        """Every table, queue and bus that is not there yet, and the rules."""
        for kind in ("AWS::DynamoDB::Table", "AWS::SQS::Queue", "AWS::Events::EventBus"):
            for logical_id in self.template.of_type(kind):
                self._lookup(logical_id, None)
        self.subscriptions += [
            self._subscribe(function, name, event["Properties"])
            for function in self.template.functions().values()
            for name, event in function.events.items()
            if event["Type"] == "EventBridgeRule"
        ]

    # ------------------------------------------------------------ what there is
    def physical(self, logical_id: str, attribute: str | None = None) -> str:
        """What Ref (or GetAtt) of a resource gives: a table's name, a queue's URL, a bus's name."""
        return self._lookup(logical_id, attribute)

    @property
    def table(self) -> str:
        return self.physical(next(iter(self.template.of_type("AWS::DynamoDB::Table"))))

    @property
    def bus(self) -> str:
        return self.physical(next(iter(self.template.of_type("AWS::Events::EventBus"))))

    def function(self, logical_id: str) -> Function:
        functions = self.template.functions()
        if logical_id not in functions:
            raise KeyError(f"{self.template.path.name} has no function {logical_id}; it has {', '.join(functions)}")
        return functions[logical_id]

    def environment(self, logical_id: str) -> dict[str, str]:
        """Everything that a function finds in its environment: its own variables and the way to the endpoints."""
        own = self.template.resolve(self.function(logical_id).variables, self._lookup)
        return self.aws.environment() | {name: str(value) for name, value in own.items()}

    def event_source_mappings(self) -> list[Mapped]:
        mapped = []
        for function in self.template.functions().values():
            for event in function.events.values():
                if event["Type"] != "SQS":
                    continue
                properties = self.template.resolve(event["Properties"], self._lookup)
                mapped.append(
                    Mapped(
                        function=function.logical_id,
                        queue_url=self._queue_url(properties["Queue"]),
                        queue_arn=properties["Queue"],
                        batch_size=properties.get("BatchSize", 10),
                        partial_responses="ReportBatchItemFailures" in properties.get("FunctionResponseTypes", []),
                    )
                )
        return mapped

    def schedules(self) -> list[Schedule]:
        found = []
        for function in self.template.functions().values():
            for event in function.events.values():
                if event["Type"] == "ScheduleV2":
                    properties = self.template.resolve(event["Properties"], self._lookup)
                    found.append(Schedule(function.logical_id, properties["ScheduleExpression"], properties["Input"]))
        return found

    def on_failure(self, logical_id: str) -> tuple[int, str | None]:
        """How often Lambda retries an asynchronous event of this function, and the queue for what fails for good."""
        config = self.template.resolve(self.function(logical_id).invoke_config, self._lookup) or {}
        arn = config.get("DestinationConfig", {}).get("OnFailure", {}).get("Destination")
        return config.get("MaximumRetryAttempts", 2), self._queue_url(arn) if arn else None

    def listen(self, pattern: Mapping[str, Any]) -> str:
        """The URL of a new queue that receives what our bus matches against `pattern`, decision events for example."""
        return self._route(self.bus, pattern)

    def delete(self) -> None:
        """Takes everything away again; matters with an emulator that outlives the run."""
        events, sqs = self.aws.client("events"), self.aws.client("sqs")
        for bus, rule in self._rules:
            events.remove_targets(Rule=rule, EventBusName=bus, Ids=["queue"])
            events.delete_rule(Name=rule, EventBusName=bus)
        for url in self._listeners:
            sqs.delete_queue(QueueUrl=url)
        for logical_id, names in self._made.items():
            name = names[None]
            match self.template.resources[logical_id]["Type"]:
                case "AWS::DynamoDB::Table":
                    self.aws.client("dynamodb").delete_table(TableName=name)
                case "AWS::SQS::Queue":
                    sqs.delete_queue(QueueUrl=name)
                case "AWS::Events::EventBus":
                    events.delete_event_bus(Name=name)
                case "AWS::KMS::Key":
                    self.aws.client("kms").schedule_key_deletion(KeyId=name, PendingWindowInDays=7)
        self._made.clear()

    # ------------------------------------------------------------ how it is made
    def _lookup(self, logical_id: str, attribute: str | None) -> str:
        pseudo = {
            "AWS::Region": self.aws.region,
            "AWS::AccountId": self.aws.account,
            "AWS::Partition": "aws",
            "AWS::URLSuffix": "amazonaws.com",
            "AWS::StackName": self.stack,
        }
        if logical_id in pseudo:
            return pseudo[logical_id]
        if logical_id not in self.template.resources:
            raise KeyError(f"{self.template.path.name} refers to {logical_id}, which it does not declare")
        if logical_id not in self._made:  # made when first asked for, so a queue's dead-letter queue comes before it
            self._made[logical_id] = self._make(logical_id)
        return self._made[logical_id][attribute]

    def _make(self, logical_id: str) -> dict[str | None, str]:
        resource = self.template.resources[logical_id]
        properties = self.template.resolve(resource.get("Properties", {}), self._lookup)
        match resource["Type"]:
            case "AWS::DynamoDB::Table":
                return self._make_table(f"{self.stack}-{logical_id}", properties)
            case "AWS::SQS::Queue":
                return self._make_queue(f"{self.stack}-{logical_id}", properties)
            case "AWS::Events::EventBus":
                made = self.aws.client("events").create_event_bus(Name=properties["Name"])
                return {None: properties["Name"], "Name": properties["Name"], "Arn": made["EventBusArn"]}
            case "AWS::KMS::Key":
                key = self.aws.client("kms").create_key(Description=properties["Description"])["KeyMetadata"]
                return {None: key["KeyId"], "Arn": key["Arn"]}
        raise ValueError(f"{logical_id}: the sandbox cannot make a {resource['Type']}")

    def _make_table(self, name: str, properties: Mapping[str, Any]) -> dict[str | None, str]:
        dynamodb = self.aws.client("dynamodb")
        # Same names and shapes as in the API. Recovery, encryption and protection mean nothing on an emulator.
        shared = ("AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes", "BillingMode")
        dynamodb.create_table(TableName=name, **{key: properties[key] for key in shared if key in properties})
        dynamodb.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 20})
        if "TimeToLiveSpecification" in properties:
            dynamodb.update_time_to_live(TableName=name, TimeToLiveSpecification=properties["TimeToLiveSpecification"])
        # Not what is answered: DynamoDB Local has a region of its own in it.
        return {None: name, "Arn": f"arn:aws:dynamodb:{self.aws.region}:{self.aws.account}:table/{name}"}

    def _make_queue(self, name: str, properties: Mapping[str, Any]) -> dict[str | None, str]:
        sqs = self.aws.client("sqs")
        # CloudFormation's property names are the API's attribute names; the API wants all values as text.
        attributes = {
            key: json.dumps(value)
            if isinstance(value, dict)
            else str(value).lower()
            if isinstance(value, bool)
            else str(value)
            for key, value in properties.items()
        }
        if not properties.get("FifoQueue"):
            attributes.pop("FifoQueue", None)
        name += ".fifo" if properties.get("FifoQueue") else ""
        url = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        return {None: url, "Arn": self._queue_arn(name), "QueueName": name}

    def _queue_arn(self, name: str) -> str:
        return f"arn:aws:sqs:{self.aws.region}:{self.aws.account}:{name}"

    def _queue_url(self, arn: str) -> str:
        """Of a queue that the template makes."""
        return next(str(names[None]) for names in self._made.values() if names.get("Arn") == arn)

    def _subscribe(self, function: Function, name: str, raw: Mapping[str, Any]) -> Subscription:
        properties = self.template.resolve(raw, self._lookup)
        bus = properties.get("EventBusName", "default")
        return Subscription(
            function.logical_id, name, bus, properties["Pattern"], self._route(bus, properties["Pattern"])
        )

    def _route(self, bus: str, pattern: Mapping[str, Any]) -> str:
        events, sqs = self.aws.client("events"), self.aws.client("sqs")
        name = f"{self.stack}-listener-{len(self._listeners)}"
        url: str = sqs.create_queue(QueueName=name)["QueueUrl"]
        self._listeners.append(url)
        events.put_rule(Name=name, EventBusName=bus, EventPattern=json.dumps(pattern), State="ENABLED")
        events.put_targets(Rule=name, EventBusName=bus, Targets=[{"Id": "queue", "Arn": self._queue_arn(name)}])
        self._rules.append((bus, name))
        return url


def _open_session(url: str, region: str) -> Session:
    """A session with made-up credentials that asks `url`, and a service with an endpoint of its own there."""
    session = Session("sandbox", "sandbox", region_name=region, localstack_host=urlsplit(url).netloc)
    # The library leads all services to one endpoint and has no argument for another.
    session._service_endpoint_mapping |= _own_endpoints()
    return session


def _own_endpoints() -> dict[str, str]:
    """Services to the URLs that AWS_ENDPOINT_URL_DYNAMODB and its like name."""
    return {
        name.removeprefix(_OWN_ENDPOINT).lower(): url
        for name, url in os.environ.items()
        if name.startswith(_OWN_ENDPOINT)
    }


@contextmanager
def _moto_server() -> Iterator[str]:
    from moto import backends  # half a second that users of another emulator need not spend
    from moto.server import ThreadedMotoServer

    # It lists its own folder at every request to see which services there are: a third of what a request takes.
    services = frozenset(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: services
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line per request would drown the demo
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()
