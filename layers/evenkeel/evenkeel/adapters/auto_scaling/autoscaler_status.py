"""Reads the bounds that Cluster Autoscaler uses from its ConfigMap ``cluster-autoscaler-status``. Pure.

Since 1.30 the status is YAML (clusterstate/api/types.go), before that it is text (clusterstate/api/utils.go):

    nodeGroups:                          NodeGroups:
    - name: workers-a                      Name:        workers-a
      health:                              Health:      Healthy (ready=1 ... (minSize=0, maxSize=9))
        minSize: 0
        maxSize: 9
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from evenkeel.adapters.auto_scaling.read import Member
from evenkeel.adapters.documents import UnreadableError, read_document
from evenkeel.domain.model.groups import Bounds

_NAME = re.compile(r" +Name: +(\S.*?)\s*")
_HEALTH = re.compile(r" +Health: .*\(minSize=(\d{1,9}), maxSize=(\d{1,9})\)\)\s*")
_NODE_GROUPS = "\nNodeGroups:\n"


def with_autoscaler_bounds(members: list[Member], text: str, written_at: datetime | None) -> list[Member]:
    """Return the members with the bounds that the autoscaler uses, and the time at which it wrote its status."""
    known = bounds_of(text) if text and written_at is not None else {}
    return [_with(member, known[member.name], written_at) if member.name in known else member for member in members]


def _with(member: Member, bounds: Bounds, at: datetime | None) -> Member:
    status = replace(member.group.status, autoscaler_bounds=bounds, autoscaler_at=at)
    return replace(member, group=replace(member.group, status=status))


def bounds_of(status: str) -> dict[str, Bounds]:
    """Return the bounds by name of the group."""
    _, is_text, groups = status.partition(_NODE_GROUPS)
    return dict(_bounds_of_text(groups) if is_text else _bounds_of_yaml(status))


def _bounds_of_text(text: str) -> Iterator[tuple[str, Bounds]]:
    name = ""
    for line in text.splitlines():
        if found := _NAME.fullmatch(line):
            name = found[1]
        elif name and (found := _HEALTH.fullmatch(line)):
            yield name, Bounds(int(found[1]), int(found[2]))
            name = ""


def _bounds_of_yaml(text: str) -> Iterator[tuple[str, Bounds]]:
    try:
        document = read_document(text)
    except UnreadableError:
        return
    entries = document.get("nodeGroups") if isinstance(document, Mapping) else None
    for entry in entries if isinstance(entries, list) else ():
        health = entry.get("health") if isinstance(entry, Mapping) else None
        if not isinstance(health, Mapping):
            continue
        low, high = health.get("minSize"), health.get("maxSize")
        if type(low) is int and type(high) is int:
            yield str(entry.get("name")), Bounds(low, high)
