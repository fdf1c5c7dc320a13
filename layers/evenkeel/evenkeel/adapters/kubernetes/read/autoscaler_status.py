"""ConfigMap ``cluster-autoscaler-status``: which groups Cluster Autoscaler backs off from."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import yaml

from evenkeel.adapters.kubernetes.flavours.base import Flavour
from evenkeel.adapters.kubernetes.objects import entries_of, failure_of, get_path
from evenkeel.adapters.kubernetes.read.groups import GroupObjects
from evenkeel.domain.model.groups import MachineFailure

# The autoscaler's own request for nodes failed: the API server was away, or our bounds forbade it
# (core/scaleup/orchestrator/executor.go, IncreaseSize). It says nothing of the zone.
_OWN_REQUEST_FAILED = "cloudProviderError"


def with_autoscaler_status(groups: list[GroupObjects], flavour: Flavour, status: str) -> list[GroupObjects]:
    """The groups, with what ``cluster-autoscaler-status`` says of those that it backs off from.

    Its silence says nothing: the autoscaler's timeout often gives no backoff at all.
    """
    failures = _failures(status)
    return [_with_failure(group, flavour, failures) for group in groups] if failures else groups


def _failures(status: str) -> dict[str, MachineFailure]:
    """By the name that the autoscaler has for the group."""
    try:
        document = yaml.safe_load(status)
    except (yaml.YAMLError, RecursionError, ValueError):  # ValueError: a date that does not exist
        return {}
    failures = {}
    for entry in entries_of(document, ("nodeGroups",)):
        if get_path(entry, ("scaleUp", "status")) != "Backoff":
            continue
        if get_path(entry, ("scaleUp", "backoffInfo", "errorCode")) == _OWN_REQUEST_FAILED:
            continue
        code, message = (get_path(entry, ("scaleUp", "backoffInfo", key)) for key in ("errorCode", "errorMessage"))
        since = get_path(entry, ("scaleUp", "lastTransitionTime"))
        since = since.isoformat() if isinstance(since, datetime) else since
        failures[str(entry.get("name"))] = failure_of(code, message, since)
    return failures


def _with_failure(member: GroupObjects, flavour: Flavour, failures: Mapping[str, MachineFailure]) -> GroupObjects:
    key = member.group.key
    name = flavour.status_name.format(kind=member.group.kind, namespace=key.namespace, name=key.name)
    failure = failures.get(name)
    return replace(member, group=replace(member.group, autoscaler_failure=failure)) if failure else member
