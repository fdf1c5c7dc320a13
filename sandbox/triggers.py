"""Calls the functions as AWS does, for the queues, rules and schedules of the template.

This module does the work of Lambda. It builds SQS batches, deletes only handled messages, and retries asynchronous
events. It sends an event that fails every time to the on-failure destination.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any, TextIO

from evenkeel.bootstrap import container
from sandbox.aws import Deployment, EventSourceMapping, Subscription

# Calls the function with this logical id and an event, and returns its answer. Raises the handler's exceptions.
Invoke = Callable[[str, Any], Any]

# The account of the functions and of their events.
ACCOUNT = "123456789012"
_SCHEDULED_TIME = "<aws.scheduler.scheduled-time>"


@dataclass(frozen=True)
class LambdaContext:
    """The context argument of a handler."""

    function_name: str
    timeout: float
    memory_limit_in_mb: int = 512
    function_version: str = "$LATEST"
    aws_request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    started: float = field(default_factory=time.monotonic)

    @property
    def invoked_function_arn(self) -> str:
        """Return the function's ARN."""
        return f"arn:aws:lambda:{os.environ.get('AWS_REGION', 'eu-central-1')}:{ACCOUNT}:function:{self.function_name}"

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until the timeout, at least 0."""
        return max(0, int((self.timeout - (time.monotonic() - self.started)) * 1000))


class InProcess(AbstractContextManager["InProcess"]):
    """The handlers in this process, with the environment of the template, for the demo and integration tests.

    Inside the block, os.environ has the functions' variables. The end of the block restores os.environ. One call runs
    at a time, as in a Lambda environment. `log` receives the output of handlers (log lines, metrics); the default is
    standard output.
    """

    def __init__(self, deployment: Deployment, *, log: TextIO | None = None) -> None:
        self._deployment = deployment
        self._log = log
        self._stack = ExitStack()
        self._modules: dict[str, ModuleType] = {}

    def __enter__(self) -> InProcess:
        self._stack.callback(_restore_environment, dict(os.environ))
        for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN"):
            os.environ.pop(name, None)  # handlers must not use the caller's account
        container.cache_clear()  # a cold start: the container may belong to another deployment
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._modules.clear()

    def __call__(self, logical_id: str, event: Any) -> Any:
        function = self._deployment.function(logical_id)
        os.environ.update(self._deployment.environment(logical_id), AWS_LAMBDA_FUNCTION_NAME=logical_id)
        event = json.loads(json.dumps(event))  # a real function gets JSON only
        with contextlib.redirect_stdout(self._log) if self._log else contextlib.nullcontext():
            handler = getattr(self._load(logical_id), function.handler.rsplit(".", 1)[1])
            answer = handler(event, LambdaContext(logical_id, function.timeout, function.memory))
        return json.loads(json.dumps(answer))

    def _load(self, logical_id: str) -> ModuleType:
        """Return the function's module, which `import` cannot tell from others: each is named `app`."""
        if logical_id not in self._modules:
            function = self._deployment.function(logical_id)
            path = function.code / f"{function.handler.rsplit('.', 1)[0]}.py"
            spec = importlib.util.spec_from_file_location(logical_id, path)
            if spec is None or spec.loader is None or not path.exists():
                raise FileNotFoundError(f"{logical_id}: {path}, which template.yaml names, does not exist")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            self._modules[logical_id] = module
        return self._modules[logical_id]


@dataclass(frozen=True)
class Failure:
    """A failed call of a function."""

    function: str
    event: Any
    error: BaseException


class Triggers:
    """Delivers messages, events and ticks to the functions.

    A message that a function refuses becomes visible again at once, because the queue's visibility timeout is longer
    than a demo. The queue's redrive policy decides when the message becomes a dead letter.
    """

    def __init__(self, deployment: Deployment, invoke: Invoke) -> None:
        self.deployment = deployment
        self.failures: list[Failure] = []
        self._invoke = invoke
        self._sqs = deployment.aws.client("sqs")
        self._mappings = deployment.event_source_mappings()

    def tick(self, now: datetime | None = None) -> None:
        """Invoke every schedule once with the template's input.

        The scheduled time is a minute ago. Otherwise, each check would wait for its second within the current minute.
        """
        scheduled = ((now or datetime.now(UTC)) - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        for schedule in self.deployment.schedules():
            event = json.loads(schedule.input.replace(_SCHEDULED_TIME, scheduled))
            self._invoke_asynchronously(schedule.function, event)

    def poll(self) -> int:
        """Read every queue once; return how many messages and events the functions received."""
        rules = sum(map(self._poll_rule, self.deployment.subscriptions))
        return rules + sum(map(self._poll_queue, self._mappings))

    def drain(self, *, limit: int = 1000) -> int:
        """Poll until no message is visible, or `limit` messages are delivered. Return the number of delivered messages.

        Delayed messages remain queued. The limit stops an endless chain of messages.
        """
        total = 0
        while total < limit and (delivered := self.poll()):
            total += delivered
        return total

    def undelivered(self) -> int:
        """Return how many events have matched a rule and wait for delivery to a function."""
        name = "ApproximateNumberOfMessages"
        urls = [subscription.queue_url for subscription in self.deployment.subscriptions]
        answers = [self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name]) for url in urls]
        return sum(int(answer["Attributes"][name]) for answer in answers)

    def _poll_rule(self, subscription: Subscription) -> int:
        messages = self._receive(subscription.queue_url, 10)
        for message in messages:
            event = json.loads(message["Body"])
            event["account"] = ACCOUNT  # emulators omit or invent the account
            self._sqs.delete_message(QueueUrl=subscription.queue_url, ReceiptHandle=message["ReceiptHandle"])
            self._invoke_asynchronously(subscription.function, event)
        return len(messages)

    def _poll_queue(self, mapping: EventSourceMapping) -> int:
        messages = self._receive(mapping.queue_url, min(mapping.batch_size, 10))
        if not messages:
            return 0
        event = {"Records": [self._record(mapping, message) for message in messages]}
        refused = self._refused(mapping, event)
        for message in messages:
            handle = {"QueueUrl": mapping.queue_url, "ReceiptHandle": message["ReceiptHandle"]}
            if message["MessageId"] in refused:
                self._sqs.change_message_visibility(**handle, VisibilityTimeout=0)
            else:
                self._sqs.delete_message(**handle)
        return len(messages)

    def _refused(self, mapping: EventSourceMapping, event: Any) -> set[str]:
        """Call the function with a batch; return the ids of the messages that Lambda would not delete."""
        everything = {record["messageId"] for record in event["Records"]}
        try:
            answer = self._invoke(mapping.function, event)
        except Exception as error:  # after any exception, Lambda keeps the whole batch
            self.failures.append(Failure(mapping.function, event, error))
            return everything
        if not mapping.partial_responses or not answer:
            return set()
        refused = {item.get("itemIdentifier") for item in answer.get("batchItemFailures") or []}
        return refused if refused <= everything else everything  # an unknown id fails the whole batch

    def _invoke_asynchronously(self, function: str, event: Any) -> None:
        retries, destination = self.deployment.on_failure(function)
        for attempt in range(1, retries + 2):
            try:
                self._invoke(function, event)
                return
            except Exception as error:  # any exception is a failed attempt for Lambda
                self.failures.append(Failure(function, event, error))
                if attempt > retries and destination:
                    record = _failure_record(function, event, error, attempt)
                    self._sqs.send_message(QueueUrl=destination, MessageBody=json.dumps(record))

    def _record(self, mapping: EventSourceMapping, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return one message in the form in which a function receives it from Lambda."""
        return {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": message.get("Attributes", {}),
            "messageAttributes": {
                name: {key[0].lower() + key[1:]: value for key, value in attribute.items()}
                for name, attribute in message.get("MessageAttributes", {}).items()
            },
            "md5OfBody": hashlib.md5(message["Body"].encode(), usedforsecurity=False).hexdigest(),
            "eventSource": "aws:sqs",
            "eventSourceARN": mapping.queue_arn,
            "awsRegion": self.deployment.aws.region,
        }

    def _receive(self, url: str, count: int) -> list[dict[str, Any]]:
        answer = self._sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=count, MessageSystemAttributeNames=["All"], MessageAttributeNames=["All"]
        )
        messages: list[dict[str, Any]] = answer.get("Messages", [])
        return messages


def _failure_record(function: str, event: Any, error: Exception, attempts: int) -> dict[str, Any]:
    """Return the record that Lambda sends to the on-failure destination of an asynchronous event."""
    condition = {"condition": "RetriesExhausted", "approximateInvokeCount": attempts}
    return {
        "version": "1.0",
        "timestamp": datetime.now(UTC).isoformat(),
        "requestContext": {"functionArn": function, **condition},
        "requestPayload": event,
        "responsePayload": {"errorType": type(error).__name__, "errorMessage": str(error)},
    }


def _restore_environment(variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
