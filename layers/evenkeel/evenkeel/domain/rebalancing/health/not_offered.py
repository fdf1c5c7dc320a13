"""Failures of a machine type that a zone does not offer. Waiting does not help, so the group is tried once a day.

The fence ends earlier if the group's machine template changes. As after every failure, it also ends once a machine that
was launched later, such as by hand, has a node.
"""

import re
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache

from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import FailureHistory, GroupState

TRIED_EVERY = timedelta(days=1)
# EC2, Google Cloud and Alibaba Cloud. Other clouds answer alike if they have only run out of the type.
_NOT_OFFERED = re.compile(
    r"is not supported in your requested Availability Zone"
    r"|type (with name )?['\"][^'\"]{1,80}['\"] does not exist in zone"
    r"|InvalidInstanceType\.ZoneNotSupported|zone does not support this instance ?type",
    re.IGNORECASE,
)


@lru_cache(maxsize=1024)  # a check asks several times for each failed group, and the next check again
def is_not_offered(message: str) -> bool:
    """Return True if the message says that the zone does not offer the machine type."""
    return _NOT_OFFERED.search(message[:1024]) is not None


def backoff_after(message: str, policy: BackoffPolicy) -> BackoffPolicy:
    """Return the backoff after a failure with this message."""
    return replace(policy, initial=TRIED_EVERY, longest=TRIED_EVERY) if is_not_offered(message) else policy


def has_new_template(group: NodeGroup, failure: FailureHistory) -> bool:
    """Return True if the group creates other machines than those that its zone does not offer."""
    return bool(failure.template and group.template.key) and failure.template != group.template.key


def follow_template(group: NodeGroup, before: GroupState, after: GroupState, now: datetime) -> GroupState:
    """Return the state, with the template that the zone does not offer. Another template ends the fence."""
    failure, known = after.failure, before.failure.last_failure
    if failure.last_failure is None or not group.template.key or not is_not_offered(failure.message):
        return after
    if failure.last_failure != known or not failure.template:
        return replace(after, failure=replace(failure, template=group.template.key))
    if has_new_template(group, failure) and not after.fence_ended:
        return replace(after, arrivals=replace(after.arrivals, ended=(*after.arrivals.ended, now)))
    return after
