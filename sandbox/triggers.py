"""Calls the functions as AWS would: queues, rules and schedules of the template lead to handlers.

Lambda's own part is played here: an SQS batch in Lambda's shape, deletion of what was handled and of nothing else,
retries of asynchronous events and the queue for those that failed for good.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import itertools
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any, TextIO

from evenkeel.bootstrap import container
from sandbox.aws import Deployment, Mapped, Subscription

# Calls a function by its logical id with an event and returns its answer; raises what the handler raises.
Invoke = Callable[[str, Any], Any]

# The account that the functions believe to be in, and that their events come from.
ACCOUNT = "123456789012"
_SCHEDULED_TIME = "<aws.scheduler.scheduled-time>"
_module_numbers = itertools.count()


@dataclass(frozen=True)
class LambdaContext:
    """What Lambda hands to a handler beside the event."""

    function_name: str
    timeout: float
    memory_limit_in_mb: int = 512
    function_version: str = "$LATEST"
    aws_request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    started: float = field(default_factory=time.monotonic)

    @property
    def invoked_function_arn(self) -> str:
        return f"arn:aws:lambda:{os.environ.get('AWS_REGION', 'eu-central-1')}:{ACCOUNT}:function:{self.function_name}"

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int((self.timeout - (time.monotonic() - self.started)) * 1000))


class InProcess(AbstractContextManager["InProcess"]):
    """The handlers in this process, with the environment that the template gives them; for demo and integration tests.

    Inside the block os.environ holds the functions' variables; afterwards it is as it was. One call at a time, as in a
    Lambda environment. `log` receives what handlers print (log lines, metrics); without it they go to standard output.
    """

    def __init__(self, deployment: Deployment, *, log: TextIO | None = None) -> None:
        self._deployment = deployment
        self._log = log
        self._stack = ExitStack()
        self._modules: dict[str, ModuleType] = {}

    def __enter__(self) -> InProcess:
        self._stack.enter_context(_environment_restored())
        for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN"):
            os.environ.pop(name, None)  # the caller's own account is no business of the handlers
        container.cache_clear()  # a cold start: what another deployment's handlers have made leads to its resources
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        for module in self._modules.values():
            sys.modules.pop(module.__name__, None)
        self._modules.clear()

    def __call__(self, logical_id: str, event: Any) -> Any:
        function = self._deployment.function(logical_id)
        os.environ.update(self._deployment.environment(logical_id), AWS_LAMBDA_FUNCTION_NAME=logical_id)
        event = json.loads(json.dumps(event))  # what cannot be JSON cannot reach a real function either
        with contextlib.redirect_stdout(self._log) if self._log else contextlib.nullcontext():
            handler = getattr(self._load(logical_id), function.handler.rsplit(".", 1)[1])
            answer = handler(event, LambdaContext(logical_id, function.timeout, function.memory))
        return json.loads(json.dumps(answer))

    def _load(self, logical_id: str) -> ModuleType:
        """The function's module under a name of its own: all four are called `app`."""
        if logical_id not in self._modules:
            function = self._deployment.function(logical_id)
            path = function.code / f"{function.handler.rsplit('.', 1)[0]}.py"
            name = f"_sandbox_{logical_id}_{next(_module_numbers)}"
            spec = importlib.util.spec_from_file_location(name, path)
            if spec is None or spec.loader is None or not path.exists():
                raise FileNotFoundError(f"{logical_id}: {path} is not there; template.yaml says it is")
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
            self._modules[logical_id] = module
        return self._modules[logical_id]


@dataclass(frozen=True)
class Failure:
    """A call that failed: whose, with what, and why."""

    function: str
    event: Any
    error: BaseException


class Triggers:
    """Carries messages, events and ticks to the functions until there is nothing left to do.

    Messages that a function refused come back at once instead of after the queue's visibility timeout, which would
    outlast any demo; how often they come back before they go to the dead letters is the queue's own rule.
    """

    def __init__(self, deployment: Deployment, invoke: Invoke) -> None:
        self.deployment = deployment
        self.failures: list[Failure] = []
        self._invoke = invoke
        self._sqs = deployment.aws.client("sqs")
        self._mappings = deployment.event_source_mappings()

    def tick(self, now: datetime | None = None) -> None:
        """Lets every schedule fire once, with the input that the template gives it.

        It is for the minute before: so no look waits for its second, which would be one of a real minute.
        """
        scheduled = ((now or datetime.now(UTC)) - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        for schedule in self.deployment.schedules():
            self._invoke_asynchronously(
                schedule.function, json.loads(schedule.input.replace(_SCHEDULED_TIME, scheduled))
            )

    def poll(self) -> int:
        """One look at every queue; returns how many messages and events were handed to functions."""
        return sum(self._poll_rule(s) for s in self.deployment.subscriptions) + sum(
            self._poll_queue(m) for m in self._mappings
        )

    def drain(self, *, limit: int = 1000) -> int:
        """Polls until nothing is left that is visible now; delayed messages stay. Returns how many were handed out.

        limit: gives up silently after so many messages, for a circle that would never end
        """
        total = 0
        while total < limit and (handed := self.poll()):
            total += handed
        return total

    def lying(self) -> int:
        """How many events the rules have let through and no function has had."""
        name = "ApproximateNumberOfMessages"
        urls = [subscription.queue_url for subscription in self.deployment.subscriptions]
        found = [self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"] for url in urls]
        return sum(int(one[name]) for one in found)

    def _poll_rule(self, subscription: Subscription) -> int:
        messages = self._receive(subscription.queue_url, 10)
        for message in messages:
            event = json.loads(message["Body"])
            event["account"] = ACCOUNT  # emulators leave it out, or make one up
            self._sqs.delete_message(QueueUrl=subscription.queue_url, ReceiptHandle=message["ReceiptHandle"])
            self._invoke_asynchronously(subscription.function, event)
        return len(messages)

    def _poll_queue(self, mapped: Mapped) -> int:
        messages = self._receive(mapped.queue_url, min(mapped.batch_size, 10))
        if not messages:
            return 0
        event = {"Records": [self._record(mapped, message) for message in messages]}
        refused = self._refused(mapped, event)
        for message in messages:
            handle = {"QueueUrl": mapped.queue_url, "ReceiptHandle": message["ReceiptHandle"]}
            if message["MessageId"] in refused:
                self._sqs.change_message_visibility(**handle, VisibilityTimeout=0)
            else:
                self._sqs.delete_message(**handle)
        return len(messages)

    def _refused(self, mapped: Mapped, event: Any) -> set[str]:
        """Calls the function with a batch; the ids of the messages that Lambda would not delete afterwards."""
        everything = {record["messageId"] for record in event["Records"]}
        try:
            answer = self._invoke(mapped.function, event)
        except Exception as error:  # whatever a handler raises, Lambda keeps the whole batch
            self.failures.append(Failure(mapped.function, event, error))
            return everything
        if not mapped.partial_responses or not answer:
            return set()
        refused = {item.get("itemIdentifier") for item in answer.get("batchItemFailures") or []}
        return refused if refused <= everything else everything  # an unknown id fails the batch, says Lambda's manual

    def _invoke_asynchronously(self, function: str, event: Any) -> None:
        retries, destination = self.deployment.on_failure(function)
        for attempt in range(1, retries + 2):
            try:
                self._invoke(function, event)
                return
            except Exception as error:  # any error of the handler is a failed attempt, as it is for Lambda
                self.failures.append(Failure(function, event, error))
                if attempt > retries and destination:
                    record = {
                        "version": "1.0",
                        "timestamp": datetime.now(UTC).isoformat(),
                        "requestContext": {
                            "functionArn": function,
                            "condition": "RetriesExhausted",
                            "approximateInvokeCount": attempt,
                        },
                        "requestPayload": event,
                        "responsePayload": {"errorType": type(error).__name__, "errorMessage": str(error)},
                    }
                    self._sqs.send_message(QueueUrl=destination, MessageBody=json.dumps(record))

    def _record(self, mapped: Mapped, message: Mapping[str, Any]) -> dict[str, Any]:
        """One message in the shape that Lambda's poller gives it."""
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
            "eventSourceARN": mapped.queue_arn,
            "awsRegion": self.deployment.aws.region,
        }

    def _receive(self, url: str, count: int) -> list[dict[str, Any]]:
        answer = self._sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=count, MessageSystemAttributeNames=["All"], MessageAttributeNames=["All"]
        )
        messages: list[dict[str, Any]] = answer.get("Messages", [])
        return messages


@contextlib.contextmanager
def _environment_restored() -> Iterator[None]:
    """os.environ is afterwards what it was before."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
