"""Send a file of events/ to its function, or to the event bus of a stack, as if its event happened now.

The beginning of the file's name selects the function. The event itself selects no endpoint and no credential.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any
from uuid import uuid4

from evenkeel.adapters.aws.inbound import read_event as inbound_event
from evenkeel.adapters.documents import UnreadableError, read_document
from evenkeel.application.rebalancing.events import Ignored
from evenkeel.domain.model.values import quote
from evenkeel.validation import ConfigError
from evenkeel_cli.inputs import read_text
from evenkeel_cli.stack_client import Stack
from evenkeel_cli.terminal import BAD_INPUT, CANNOT_READ, fail, say, say_json, say_lines

# The fields with the time of an event, in any source, and those of an SQS message, in milliseconds.
_TIMES = {"time", "eventTime", "occurredAt", "StartTime", "EndTime", "at", "since"}
_TIMES |= {"firstTimestamp", "lastTimestamp", "creationTimestamp"}
_MILLISECONDS = {"SentTimestamp", "ApproximateFirstReceiveTimestamp"}
# The fields by which a repeated event is recognised: Evenkeel handles an event with a known id only once.
_IDS = {"id", "uid", "eventID", "requestID", "ActivityId", "RequestId", "messageId", "MessageDeduplicationId"}
_SCHEDULE = "evenkeel.schedule"
EFFECT = "The effect, after some seconds"  # begins the last line; the sandbox prints the effect itself
# The kinds of events that the function receives and ignores, which its answer says.
_IGNORED_ON_PURPOSE = {"spot", "practice run"}


@dataclass(frozen=True)
class Target:
    """A function, by its logical id in template.yaml, and which events are for it."""

    function: str
    accepts: Callable[[Mapping[str, Any]], bool]
    fields: str  # what an event for the function has, for an error


def _from_queue(queue: str) -> Callable[[Mapping[str, Any]], bool]:
    def accepts(event: Mapping[str, Any]) -> bool:
        records = event.get("Records")
        return (
            isinstance(records, list)
            and len(records) > 0
            and all(isinstance(one, dict) and f"-{queue}-" in str(one.get("eventSourceARN")) for one in records)
        )

    return accepts


def _messages(function: str, queue: str) -> Target:
    return Target(function, _from_queue(queue), f"Records with an eventSourceARN of {queue}")


# By the first words of a file's name, which are the name of the function's folder.
TARGETS = {
    "admin": Target("AdminFunction", lambda event: "action" in event, "action"),
    "check": _messages("CheckFunction", "ChecksQueue"),
    "notify": _messages("NotifyFunction", "AlertsQueue"),
    "operator": Target("OperatorFunction", lambda event: "action" in event, "action"),
    "provisioning-failure": Target(
        "ProvisioningFailureFunction",
        lambda event: {"source", "detail-type", "detail"} <= event.keys(),
        "source, detail-type and detail",
    ),
    "rebalance": _messages("RebalanceFunction", "RebalanceQueue"),
    "scan": Target(
        "ScanFunction",
        lambda event: "clusters" in event or event.get("source") == _SCHEDULE,
        f"clusters, or source {_SCHEDULE}",
    ),
    "status-page": Target("StatusPageFunction", lambda event: event.get("source") == _SCHEDULE, f"source {_SCHEDULE}"),
    "widget": Target(
        "WidgetFunction",
        lambda event: not event.keys().isdisjoint(("action", "describe", "widgetContext")),
        "action, describe or widgetContext",
    ),
}


def target_of(file: str) -> Target:
    """Return the function that a file's name begins with. Raises ConfigError."""
    name = PurePath(file).stem
    for beginning, target in TARGETS.items():
        if name == beginning or name.startswith(f"{beginning}-"):
            return target
    raise ConfigError([f"{file}: its name begins with no function: begin it with {', '.join(TARGETS)}"])


def read_event(file: str) -> tuple[Target, dict[str, Any]]:
    """Return the function and the event of a file. Raises ConfigError."""
    target = target_of(file)
    try:
        event = read_document(read_text(file), once=True)
    except UnreadableError as error:
        raise ConfigError([f"{file}: {error}"]) from None
    if not isinstance(event, dict):
        raise ConfigError([f"{file}: no event: write one JSON object, as the files of events/ do"])
    if not target.accepts(event):
        advice = "rename the file after the event's function, or correct the event"
        raise ConfigError([f"{file}: no event for {target.function}, which has {target.fields}: {advice}"])
    return target, event


def refreshed(event: Any, now: datetime) -> Any:
    """Return the event with all its times set to now, and with new ids. An action has no such times and ids."""
    if isinstance(event, list):
        return [refreshed(item, now) for item in event]
    if not isinstance(event, dict) or "action" in event:
        return event
    return {name: _refreshed_field(name, value, now) for name, value in event.items()}


def _refreshed_field(name: str, value: Any, now: datetime) -> Any:
    if name == "involvedObject":  # its ids are those of objects
        return value
    if name == "body" and isinstance(value, str):
        return json.dumps(refreshed(json.loads(value), now))
    if name in _MILLISECONDS:
        return str(int(now.timestamp() * 1000))
    if name in _TIMES and isinstance(value, str):
        return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if name in _IDS and isinstance(value, str):
        return str(uuid4())
    return refreshed(value, now)


def send_command(file: str, stack: str) -> None:
    """Send the event of a file, and print what happened."""
    target, event = read_event(file)
    try:
        event = refreshed(event, datetime.now(UTC))
    except ValueError:
        raise ConfigError([f"{file}: the body of a message is not JSON: write it as a JSON text"]) from None
    if target is TARGETS["provisioning-failure"]:
        _refuse_unusable(file, event)
    deployed = Stack(stack)
    if target is not TARGETS["provisioning-failure"]:
        _print_answer(target.function, deployed.invoke(target.function, event))
        return
    if str(event["source"]).startswith("aws."):  # a bus accepts such events only from AWS
        event["account"] = deployed.account_of(target.function)
        answer = deployed.invoke(target.function, event)
        _print_answer(target.function, answer)
        if isinstance(answer, dict) and answer.get("result") in ("ignored", "known"):
            return
    else:
        bus = deployed.put_event(event)
        say(f"Sent to event bus {bus}, which passes it to {target.function}.")
    detail = event["detail"] if isinstance(event["detail"], dict) else {}
    cluster = detail.get("cluster") or detail.get("clusterName")
    of_cluster = f" --cluster {cluster}" if isinstance(cluster, str) else ""
    say(f"{EFFECT}: evenkeel status --stack {stack}{of_cluster}")


def _refuse_unusable(file: str, event: Mapping[str, Any]) -> None:
    """Raise ConfigError for an event that the function cannot use. The bus would drop such an event without a word."""
    inbound = inbound_event(event)
    if isinstance(inbound, Ignored) and inbound.kind not in _IGNORED_ON_PURPOSE:
        raise ConfigError([f"{file}: {inbound.reason}"])


def _print_answer(function: str, answer: Any) -> None:
    """Print what a function answered. Exit if it reports a failure."""
    if isinstance(answer, str):  # the widget's HTML
        say_lines(answer)
        return
    say(f"{function} answered:")
    say_json(answer, indent=2)
    if not isinstance(answer, dict):
        return
    if answer.get("batchItemFailures"):
        fail([f"{function} did not handle the message {quote(answer['batchItemFailures'])}: see its log"], CANNOT_READ)
    if answer.get("ok") is False:
        fail([str(answer.get("message"))], CANNOT_READ if answer.get("retry") else BAD_INPUT)
