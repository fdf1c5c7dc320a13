"""Calls EC2 Auto Scaling and EKS. Each error becomes one line: the call, its object, AWS's code, and what to do."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NoReturn

from evenkeel.adapters.auto_scaling.read import Described
from evenkeel.adapters.aws_faults import AWS_ERRORS, code_of
from evenkeel.adapters.lru import LruCache
from evenkeel.application.errors import (
    AccessRefusedError,
    ClusterUnavailableError,
    ConflictError,
    ForbiddenError,
    RejectedError,
)
from evenkeel.application.ports import Clock, Remaining
from evenkeel.domain.model.values import printable

_NAMES = 50  # the most names of one call
_PAGE = 100  # the most groups, and the most activities, of one answer
# A launch that began earlier says nothing about the launches that a group attempts now.
_ACTIVITIES_KEPT = timedelta(hours=2)
_NODE_GROUP_KEPT = timedelta(minutes=5)
# Seconds before a throttled call is repeated, doubled each time. The account's calls are throttled together with those
# of cluster-autoscaler, so few calls are repeated.
_FIRST_WAIT, _WAITS = 0.5, 3
_CALL_SECONDS = 4.0  # the longest time of one call: 1.5 s to connect, 2 s to read
_KEPT_FOR_WRITES = 20.0  # seconds for the calls that end a write
REFRESHING = ("Pending", "InProgress", "Cancelling", "RollbackInProgress", "Baking")

_DENIED = ("AccessDenied", "UnauthorizedOperation", "Unauthorized", "AuthFailure", "InvalidClientTokenId")
_EXPIRED = ("ExpiredToken", "UnrecognizedClient", "SignatureDoesNotMatch", "IncompleteSignature", "MissingAuth")
_THROTTLED = ("Throttl", "RequestLimitExceeded", "TooManyRequests")
# Another change of the group is in progress, so the group must be read again.
_BUSY = ("ScalingActivityInProgress", "ResourceContention", "ResourceInUse", "InstanceRefreshInProgress")

Filters = Sequence[Mapping[str, Any]]
"""The tag filters of a record; all must match."""

NodeGroups = LruCache[tuple[str, str, str], tuple[Described, datetime]]
"""EKS's descriptions of managed node groups with their expiry, by the cluster's id, EKS cluster and node group."""


class AutoScalingApi:
    """The calls for one cluster's record during one check or run.

    Args:
        name: The cluster's id, for messages.
        auto_scaling: Returns boto3's client. It must not repeat calls itself, because a repeated termination would
            lower the desired capacity twice.
        eks: Returns boto3's client for EKS.
        node_groups: Keeps answers of EKS for the next checks.
    """

    def __init__(
        self,
        name: str,
        *,
        auto_scaling: Callable[[], Any],
        eks: Callable[[], Any],
        node_groups: NodeGroups,
        clock: Clock,
        remaining: Remaining,
    ) -> None:
        self.name = name
        self._auto_scaling = auto_scaling
        self._eks = eks
        self._node_groups = node_groups
        self._clock = clock
        self._remaining = remaining

    def now(self) -> datetime:
        """Return the time."""
        return self._clock.now()

    # Reads

    def groups(self, filters: Filters) -> list[Described]:
        """Return all groups that match."""
        groups: list[Described] = []
        request: dict[str, Any] = {"Filters": [*filters], "MaxRecords": _PAGE}
        while True:
            answer = self._read(self._auto_scaling(), "describe_auto_scaling_groups", "", **request)
            groups += answer["AutoScalingGroups"]
            if not answer.get("NextToken"):
                return groups
            request["NextToken"] = answer["NextToken"]

    def named_groups(self, names: Sequence[str]) -> list[Described]:
        """Return the groups with these names that exist."""
        groups: list[Described] = []
        for start in range(0, len(names), _NAMES):
            request: dict[str, Any] = {"AutoScalingGroupNames": [*names[start : start + _NAMES]], "MaxRecords": _NAMES}
            while request.get("NextToken", "first"):
                answer = self._read(self._auto_scaling(), "describe_auto_scaling_groups", "", **request)
                groups += answer["AutoScalingGroups"]
                request["NextToken"] = answer.get("NextToken")
        return groups

    def group(self, name: str) -> Described:
        """Return one group. Raises ConflictError if it does not exist any more."""
        answer = self._read(
            self._auto_scaling(), "describe_auto_scaling_groups", name, AutoScalingGroupNames=[name], MaxRecords=1
        )
        if not answer["AutoScalingGroups"]:
            raise ConflictError(f"Auto Scaling group {name} is gone since it was read")
        group: Described = answer["AutoScalingGroups"][0]
        return group

    def activities(self, name: str) -> Sequence[Described]:
        """Return the newest activities of a group."""
        since = (self.now() - _ACTIVITIES_KEPT).strftime("%Y-%m-%dT%H:%M:%SZ")
        recent = [{"Name": "StartTimeLowerBound", "Values": [since]}]
        request = {"AutoScalingGroupName": name, "Filters": recent, "MaxRecords": _PAGE}
        answer = self._read(self._auto_scaling(), "describe_scaling_activities", name, **request)
        activities: Sequence[Described] = answer["Activities"]
        return activities

    def refresh(self, name: str) -> str | None:
        """Return the status of the group's instance refresh in progress; None: there is none."""
        answer = self._read(self._auto_scaling(), "describe_instance_refreshes", name, AutoScalingGroupName=name)
        statuses = (str(refresh.get("Status")) for refresh in answer["InstanceRefreshes"])
        return next((status for status in statuses if status in REFRESHING), None)

    def node_group(self, cluster: str, name: str, *, fresh: bool) -> Described | None:
        """Return EKS's description of a managed node group, at most five minutes old; None: there is no such group."""
        key, now = (self.name, cluster, name), self.now()
        kept = None if fresh else self._node_groups.get(key)
        if kept is not None and now < kept[1]:
            return kept[0] or None
        try:
            answer = self._read(
                self._eks(), "describe_nodegroup", f"{cluster}/{name}", clusterName=cluster, nodegroupName=name
            )
        except ConflictError:  # the tags of a group remain after its node group is deleted
            answer = {"nodegroup": {}}
        node_group: Described = answer["nodegroup"]
        self._node_groups.put(key, (node_group, now + _NODE_GROUP_KEPT))
        return node_group or None

    def _read(self, client: Any, operation: str, place: str, **request: Any) -> Mapping[str, Any]:
        return self._call(client, operation, place, request, reads=True)

    # Writes

    def write(self, operation: str, name: str, **request: Any) -> None:
        """Send one write about the group ``name``.

        Raises ConflictError, ForbiddenError, RejectedError, ClusterUnavailableError. After the last of these, it is
        unknown if AWS has carried out the write.
        """
        self._call(self._auto_scaling(), operation, name, request, reads=False)

    def wait(self, seconds: float) -> bool:
        """Wait for these seconds, and return True; return False if too little time would be left to end a write."""
        if self._remaining() < seconds + _KEPT_FOR_WRITES:
            return False
        self._clock.sleep(seconds)
        return True

    def _call(
        self, client: Any, operation: str, place: str, request: Mapping[str, Any], *, reads: bool
    ) -> Mapping[str, Any]:
        """Return the answer. A throttled call is repeated: AWS has not carried it out."""
        wait, problem = _FIRST_WAIT, Exception()
        for turn in range(_WAITS + 1):
            if self._remaining() < _CALL_SECONDS:
                raise ClusterUnavailableError(f"{self._named(operation, place)}: no time left")
            try:
                answer: Mapping[str, Any] = getattr(client, operation)(**request)
                return answer
            except AWS_ERRORS as error:
                problem = error
            is_repeated = code_of(problem).startswith(_THROTTLED) and turn < _WAITS
            if not is_repeated or self._remaining() < wait + _CALL_SECONDS:
                break
            self._clock.sleep(wait)
            wait *= 2
        return self._raise(problem, operation, place, reads=reads)

    def _named(self, operation: str, place: str) -> str:
        service = "eks" if operation == "describe_nodegroup" else "autoscaling"
        call = "".join(word.title() for word in operation.split("_"))
        return f"{self.name}: {service}:{call}{f' of {place}' if place else ''}"

    def _raise(self, error: Exception, operation: str, place: str, *, reads: bool) -> NoReturn:
        code, where = code_of(error), self._named(operation, place)
        answer = getattr(error, "response", None) or {}  # errors of the HTTP client have None
        message = printable(str(answer.get("Error", {}).get("Message", "")))[:500]
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        said = f"{code}: {message}" if message else code
        failure: Exception
        if code.startswith(_DENIED):
            kind = AccessRefusedError if reads else ForbiddenError
            failure = kind(f"{where}: {code}: allow this action in the policy of the role that the record names")
        elif code.startswith(_EXPIRED):
            failure = AccessRefusedError(f"{where}: {code}: AWS refuses the credentials; correct the record's role")
        elif code.startswith(_THROTTLED):
            failure = ClusterUnavailableError(f"{where}: {code}: AWS throttles the account; the next check tries again")
        elif _is_absent(code, message) or (code.startswith(_BUSY) and not reads):
            failure = ConflictError(f"{where}: {said}")
        elif 400 <= status < 500:
            failure = ClusterUnavailableError(f"{where}: {said}") if reads else RejectedError(f"{where}: {said}")
        else:
            failure = ClusterUnavailableError(f"{where} was not answered: {said}")
        raise failure from None


def _is_absent(code: str, message: str) -> bool:
    """Return True if the object of the call does not exist. EC2 Auto Scaling has no code for that."""
    return code == "ResourceNotFoundException" or (code == "ValidationError" and "not found" in message)
