"""AWS endpoints for the demo and the tests, with the table, queues and bus of template.yaml on them.

By default, moto's server provides the endpoints, in this process and on a free loopback port. AWS_ENDPOINT_URL selects
another emulator for all services. A variable such as AWS_ENDPOINT_URL_DYNAMODB selects another one for one service.

    with AwsEndpoints() as aws, aws.deploy() as deployment:
        environment = deployment.environment("RebalanceFunction")   # exactly the variables of the deployment
        aws.client("sqs").send_message(QueueUrl=environment["EVENKEEL_REBALANCE_QUEUE_URL"], ...)

This module changes no environment variable. localstack-client's session creates the clients, also for moto.
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

import boto3
from botocore.config import Config
from localstack_client.session import Session

from sandbox.template import TEMPLATE, Function, Template

REGION = "eu-central-1"
# The access key and the secret key of every emulator.
_KEY = "sandbox"
_OWN_ENDPOINT = "AWS_ENDPOINT_URL_"
_LOOPBACK = {"127.0.0.1", "localhost", "::1", "host.docker.internal", "localhost.localstack.cloud"}


@dataclass(frozen=True)
class EventSourceMapping:
    """A queue that the template maps to a function."""

    function: str
    queue_url: str
    queue_arn: str
    batch_size: int
    partial_responses: bool


@dataclass(frozen=True)
class Subscription:
    """A rule of the template. Its events arrive on a queue of the sandbox, because emulators cannot call functions."""

    function: str
    event: str
    bus: str
    pattern: Mapping[str, Any]
    queue_url: str


@dataclass(frozen=True)
class Schedule:
    """A schedule of the template; `input` still contains the placeholders of the scheduler."""

    function: str
    expression: str
    input: str


class AwsEndpoints(AbstractContextManager["AwsEndpoints"]):
    """Endpoints that answer like AWS in `region` and `account`."""

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
        host = urlsplit(self.url).netloc
        self._session = Session(_KEY, _KEY, region_name=self.region, localstack_host=host)
        self.account = self.client("sts").get_caller_identity()["Account"]
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        self._stack.close()

    def client(self, service: str) -> Any:
        """Return the boto3 client for one service at these endpoints."""
        if service not in self._clients:
            retries = {"mode": "standard", "max_attempts": 2}
            config = Config(retries=retries, connect_timeout=3, read_timeout=30)
            url = _own_endpoints().get(service)
            self._clients[service] = (
                self._client_at(url, service, config) if url else self._session.client(service, config=config)
            )
        return self._clients[service]

    def _client_at(self, url: str, service: str, config: Config) -> Any:
        """Return a client of a service with an endpoint of its own. localstack-client knows one endpoint for all."""
        keys = {"aws_access_key_id": _KEY, "aws_secret_access_key": _KEY}
        return boto3.client(service, endpoint_url=url, region_name=self.region, config=config, **keys)

    def environment(self) -> dict[str, str]:
        """Return the environment variables that make a process use these endpoints."""
        return {f"{_OWN_ENDPOINT}{service.upper()}": url for service, url in _own_endpoints().items()} | {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _KEY,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "EVENKEEL_ALLOW_LOOPBACK": "true",  # the sandbox's clusters have loopback addresses
        }

    @contextmanager
    def deploy(
        self, path: Path = TEMPLATE, *, parameters: Mapping[str, str] | None = None, stack: str | None = None
    ) -> Iterator[Deployment]:
        """Create table, queues, bus and rules, and delete them after the block. `parameters`: as for `sam deploy`."""
        deployment = self.prepare(path, parameters=parameters, stack=stack)
        deployment.create_all()
        try:
            yield deployment
        finally:
            deployment.delete()

    def prepare(
        self, path: Path = TEMPLATE, *, parameters: Mapping[str, str] | None = None, stack: str | None = None
    ) -> Deployment:
        """Return a deployment, which creates each resource at its first use. A random name separates parallel runs."""
        return Deployment(self, Template(path, parameters=parameters), stack or f"evenkeel-{uuid.uuid4().hex[:8]}")


class Deployment:
    """The template's resources at the endpoints. It has only those that the functions' variables and triggers use."""

    def __init__(self, aws: AwsEndpoints, template: Template, stack: str) -> None:
        self.aws = aws
        self.template = template
        self.stack = stack
        self._created: dict[str, dict[str | None, str]] = {}
        self._rules: list[tuple[str, str]] = []
        self._listeners: list[str] = []
        self.subscriptions: list[Subscription] = []

    def create_all(self) -> None:
        """Create every table, queue and bus that does not exist yet, and the rules."""
        for kind in ("AWS::DynamoDB::Table", "AWS::SQS::Queue", "AWS::Events::EventBus"):
            for logical_id in self.template.of_type(kind):
                self.physical(logical_id, None)
        self.subscriptions += [
            self._subscribe(function, name, event["Properties"])
            for function in self.template.functions().values()
            for name, event in function.events.items()
            if event["Type"] == "EventBridgeRule"
        ]

    @property
    def table(self) -> str:
        """Return the name of the table; the first use creates it."""
        return self.physical(next(iter(self.template.of_type("AWS::DynamoDB::Table"))))

    @property
    def bus(self) -> str:
        """Return the name of the event bus; the first use creates it."""
        return self.physical(next(iter(self.template.of_type("AWS::Events::EventBus"))))

    def function(self, logical_id: str) -> Function:
        """Return a function of the template. Raises KeyError for an unknown one."""
        functions = self.template.functions()
        if logical_id not in functions:
            raise KeyError(f"{self.template.path.name} has no function {logical_id}; it has {', '.join(functions)}")
        return functions[logical_id]

    def environment(self, logical_id: str) -> dict[str, str]:
        """Return a function's environment: its own variables and those of the endpoints."""
        own = self.template.resolve(self.function(logical_id).variables, self.physical)
        return self.aws.environment() | {name: str(value) for name, value in own.items()}

    def _events(self, event_type: str) -> Iterator[tuple[str, Any]]:
        """Yield the logical id of a function and the properties of each event of a type."""
        for function in self.template.functions().values():
            for event in function.events.values():
                if event["Type"] == event_type:
                    yield function.logical_id, self.template.resolve(event["Properties"], self.physical)

    def event_source_mappings(self) -> list[EventSourceMapping]:
        """Return the mappings of queues to functions."""
        return [
            EventSourceMapping(
                function=function,
                queue_url=self._queue_url(properties["Queue"]),
                queue_arn=properties["Queue"],
                batch_size=properties.get("BatchSize", 10),
                partial_responses="ReportBatchItemFailures" in properties.get("FunctionResponseTypes", []),
            )
            for function, properties in self._events("SQS")
        ]

    def schedules(self) -> list[Schedule]:
        """Return the schedules of functions."""
        return [
            Schedule(function, properties["ScheduleExpression"], properties["Input"])
            for function, properties in self._events("ScheduleV2")
        ]

    def on_failure(self, logical_id: str) -> tuple[int, str | None]:
        """Return how often Lambda retries an asynchronous event, and the queue for events that fail every time."""
        config = self.template.resolve(self.function(logical_id).invoke_config, self.physical) or {}
        arn = config.get("DestinationConfig", {}).get("OnFailure", {}).get("Destination")
        return config.get("MaximumRetryAttempts", 2), self._queue_url(arn) if arn else None

    def listen(self, pattern: Mapping[str, Any]) -> str:
        """Return the URL of a new queue for the events of the bus that match `pattern`."""
        return self._route(self.bus, pattern)

    def delete(self) -> None:
        """Delete all resources, for an emulator that outlives the run."""
        events, sqs = self.aws.client("events"), self.aws.client("sqs")
        for bus, rule in self._rules:
            events.remove_targets(Rule=rule, EventBusName=bus, Ids=["queue"])
            events.delete_rule(Name=rule, EventBusName=bus)
        for url in self._listeners:
            sqs.delete_queue(QueueUrl=url)
        for logical_id, names in self._created.items():
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
        self._created.clear()

    def physical(self, logical_id: str, attribute: str | None = None) -> str:
        """Return Ref or GetAtt of a resource, such as a table's name. Create the resource if it does not exist."""
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
        if logical_id not in self._created:  # created at first use, so a dead-letter queue exists before its queue
            self._created[logical_id] = self._create(logical_id)
        return self._created[logical_id][attribute]

    def _create(self, logical_id: str) -> dict[str | None, str]:
        resource = self.template.resources[logical_id]
        if resource["Type"] == "AWS::IAM::Role":  # emulators allow everything, so a name is enough
            return {None: logical_id, "Arn": f"arn:aws:iam::{self.aws.account}:role/{self.stack}-{logical_id}"}
        properties = self.template.resolve(resource.get("Properties", {}), self.physical)
        match resource["Type"]:
            case "AWS::DynamoDB::Table":
                return self._create_table(f"{self.stack}-{logical_id}", properties)
            case "AWS::SQS::Queue":
                return self._create_queue(f"{self.stack}-{logical_id}", properties)
            case "AWS::Events::EventBus":
                bus = self.aws.client("events").create_event_bus(Name=properties["Name"])
                return {None: properties["Name"], "Name": properties["Name"], "Arn": bus["EventBusArn"]}
            case "AWS::KMS::Key":
                key = self.aws.client("kms").create_key(Description=properties["Description"])["KeyMetadata"]
                return {None: key["KeyId"], "Arn": key["Arn"]}
        raise ValueError(f"{logical_id}: the sandbox cannot create a {resource['Type']}")

    def _create_table(self, name: str, properties: Mapping[str, Any]) -> dict[str | None, str]:
        dynamodb = self.aws.client("dynamodb")
        # These names are the same in CloudFormation and in the API. Emulators ignore recovery, encryption and
        # protection.
        shared = ("AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes", "BillingMode")
        dynamodb.create_table(TableName=name, **{key: properties[key] for key in shared if key in properties})
        dynamodb.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 20})
        if "TimeToLiveSpecification" in properties:
            dynamodb.update_time_to_live(TableName=name, TimeToLiveSpecification=properties["TimeToLiveSpecification"])
        # The ARN in the answer of DynamoDB Local names another region.
        return {None: name, "Arn": f"arn:aws:dynamodb:{self.aws.region}:{self.aws.account}:table/{name}"}

    def _create_queue(self, name: str, properties: Mapping[str, Any]) -> dict[str | None, str]:
        sqs = self.aws.client("sqs")
        # CloudFormation's property names are the API's attribute names, whose values are texts.
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
        return next(str(names[None]) for names in self._created.values() if names.get("Arn") == arn)

    def _subscribe(self, function: Function, name: str, raw: Mapping[str, Any]) -> Subscription:
        properties = self.template.resolve(raw, self.physical)
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


def _own_endpoints() -> dict[str, str]:
    """Return the URLs in AWS_ENDPOINT_URL_DYNAMODB and similar variables by service."""
    return {
        name.removeprefix(_OWN_ENDPOINT).lower(): url
        for name, url in os.environ.items()
        if name.startswith(_OWN_ENDPOINT)
    }


@contextmanager
def _moto_server() -> Iterator[str]:
    from moto.server import ThreadedMotoServer  # takes half a second; only this emulator needs it

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it logs a line per request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()
