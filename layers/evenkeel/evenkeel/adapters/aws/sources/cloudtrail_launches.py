"""Reads CloudTrail's records of failed launches of EC2 instances. The account needs a trail of management events."""

from collections.abc import Iterator, Mapping
from typing import Any

from evenkeel.adapters.aws.signals import CloudTrailCall, Envelope, Rows, ignored, one_line
from evenkeel.application.rebalancing.events import Failure, InboundEvent
from evenkeel.domain.model.values import quote
from evenkeel.validation import read_model

# The prefixes of tags that name a cluster. CAPA sets the first; machine-controller-manager, OpenShift and EKS set the
# second.
_CLUSTER_TAGS = ("sigs.k8s.io/cluster-api-provider-aws/cluster/", "kubernetes.io/cluster/")


def _failure(event: Mapping[str, Any]) -> InboundEvent:
    envelope = read_model(Envelope, event, "CloudTrail event")
    detail = read_model(CloudTrailCall, event.get("detail"), "CloudTrail event: detail")
    call = f"{detail.eventSource} {detail.eventName}"
    if call not in ("ec2.amazonaws.com RunInstances", "ec2.amazonaws.com CreateFleet"):
        return ignored("no failure", f"CloudTrail event: {quote(call)} launches no instances")
    errors = [(detail.errorCode, detail.errorMessage or "")] if detail.errorCode else list(_fleet_errors(detail))
    if not errors or errors[0][0] == "Client.DryRunOperation":
        return ignored("no failure", f"CloudTrail event: {detail.eventName} did not fail")
    request = detail.requestParameters or {}
    tags = dict(_tags([value for key, value in _inside(request).items() if key.lower().startswith("tagspecification")]))
    names = [key.removeprefix(prefix) for prefix in _CLUSTER_TAGS for key in tags if key.startswith(prefix)]
    called = tuple(dict.fromkeys(name for name in names if name))[:16]
    if not called:
        why = "no tag kubernetes.io/cluster/<name>, so no cluster is known to be meant"
        return ignored("unknown cluster", f"CloudTrail event: {detail.eventName} has {why}")
    return Failure(
        called=called,
        machine=tags.get("Name"),
        code=errors[0][0],
        message=one_line("; ".join(message for _, message in errors[:8]), 2048),
        occurred_at=envelope.time,
        id=detail.eventID or envelope.id,
    )


def _inside(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of a call. CreateFleet nests them one level deeper, under the name of the request."""
    inner = request.get("CreateFleetRequest")
    return inner if isinstance(inner, Mapping) else request


def _fleet_errors(detail: CloudTrailCall) -> Iterator[tuple[str, str]]:
    """Return the errors of CreateFleet. Its answer may have errors although some instances were launched."""
    answer = (detail.responseElements or {}).get("CreateFleetResponse")
    errors = answer.get("errorSet") if isinstance(answer, Mapping) else None
    items = errors.get("item") if isinstance(errors, Mapping) else None
    for item in items if isinstance(items, list) else [items]:  # CloudTrail writes a list with one entry as an object
        if isinstance(item, Mapping) and isinstance(item.get("errorCode"), str):
            yield one_line(item["errorCode"], 128), one_line(str(item.get("errorMessage", "")), 1024)


def _tags(value: object) -> Iterator[tuple[str, str]]:
    """Return all tags inside a value. RunInstances names their parts key and value, CreateFleet Key and Value."""
    values = [value]
    while values:
        inner = values.pop()
        if isinstance(inner, list):
            values.extend(inner)
        elif isinstance(inner, Mapping):
            key, text = inner.get("key", inner.get("Key")), inner.get("value", inner.get("Value"))
            if isinstance(key, str) and isinstance(text, str):
                yield one_line(key, 256), one_line(text, 256)
            else:
                values.extend(inner.values())


ROWS: Rows = {("aws.ec2", "AWS API Call via CloudTrail"): _failure}
