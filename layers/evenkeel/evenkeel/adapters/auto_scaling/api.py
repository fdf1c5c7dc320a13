"""Calls EC2 Auto Scaling and EKS. Each error becomes one line: the call, its object, AWS's code, and what to do."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, NoReturn

from botocore.exceptions import BotoCoreError, ClientError

from evenkeel.adapters.auto_scaling.instance_types import InstanceTypes
from evenkeel.adapters.auto_scaling.node_groups import NodeGroups
from evenkeel.adapters.auto_scaling.read import Described
from evenkeel.adapters.aws_faults import AWS_ERRORS, code_of, part_of
from evenkeel.adapters.own_annotations import POOL_LABEL
from evenkeel.adapters.thread_pool import THREADS
from evenkeel.application.errors import (
    AccessRefusedError,
    ClusterUnavailableError,
    ConflictError,
    EvenkeelError,
    ForbiddenError,
    RejectedError,
)
from evenkeel.application.ports import Clock, Remaining
from evenkeel.domain.model.values import printable

_log = logging.getLogger("evenkeel.auto_scaling")
_NAMES = 50  # the most names of one call
_OTHER_SERVICES = {"describe_nodegroup": "eks", "describe_instance_types": "ec2"}
_TYPES = 200  # the most values of a filter of EC2
_PAGE = 100  # the most groups, and the most activities, of one answer
# AWS retries a refused launch within 15 minutes. What an older launch has shown is stored.
_ACTIVITIES_READ = timedelta(minutes=20)
# Seconds before a throttled call is repeated, doubled each time. The account's calls are throttled together with those
# of cluster-autoscaler, so few calls are repeated.
_FIRST_WAIT, _MOST_REPEATS = 0.5, 3
_LONGEST_WAIT_TO_RESUME, _MOST_REPEATS_TO_RESUME = 1.0, 600  # as long as time is left
# Seconds from one call to the next after a throttled call, at first and at most.
_FIRST_APART, _SLOWEST = 0.05, 0.4
# Seconds from one call to the next for work that is not urgent: an account has at least five calls a second.
_UNHURRIED = 0.25
_USUAL_CALL_SECONDS = 0.3
_CALL_SECONDS = 4.0  # the longest time of one call: 1.5 s to connect, 2 s to read
ENDED_REFRESHES = ("Successful", "Failed", "Cancelled", "RollbackFailed", "RollbackSuccessful")
_KEPT_FOR_WRITES = 20.0  # seconds for the calls that end a write
# Seconds for ResumeProcesses. While a process is suspended, all other calls leave it this time.
_KEPT_TO_RESUME = 8.0
_SUSPEND, _RESUME = "suspend_processes", "resume_processes"

_DENIED = ("AccessDenied", "UnauthorizedOperation", "Unauthorized", "AuthFailure", "InvalidClientTokenId")
_EXPIRED = ("ExpiredToken", "UnrecognizedClient", "SignatureDoesNotMatch", "IncompleteSignature", "MissingAuth")
_THROTTLED = ("Throttl", "RequestLimitExceeded", "TooManyRequests")
# Another change of the group is in progress, so the group must be read again.
_BUSY = ("ScalingActivityInProgress", "ResourceContention", "ResourceInUse", "InstanceRefreshInProgress")

Filters = Sequence[Mapping[str, Any]]
"""The tag filters of a record; all must match."""


class _Pace:
    """Delays the calls of all threads of a run while AWS throttles the account.

    Otherwise the threads would use each token as soon as there is one, and cluster-autoscaler would get none.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._apart = 0.0  # seconds from one call to the next
        self._least = 0.0  # the smallest value of ``_apart``
        self._next = clock.now()

    def slow_down(self) -> None:
        """Make no more calls than the smallest known limit allows."""
        self._least = _UNHURRIED

    def wait(self, most: float) -> bool:
        """Wait until the next call may be made, and return True; False: that takes longer than ``most`` seconds."""
        with self._lock:
            now = self._clock.now()
            begin = max(now, self._next)
            seconds = (begin - now).total_seconds()
            if seconds > most:
                return False
            self._next = begin + timedelta(seconds=max(self._apart, self._least))
        if seconds:
            self._clock.sleep(seconds)
        return True

    def seconds_for(self, calls: int) -> float:
        """Return how long a thread needs for so many calls, each of them after one of each other thread."""
        with self._lock:
            return calls * (_USUAL_CALL_SECONDS + THREADS * self._apart)

    def note(self, *, throttled: bool) -> None:
        """Make calls rarer after a throttled one, and by and by more frequent after others."""
        with self._lock:
            self._apart = min(_SLOWEST, max(_FIRST_APART, self._apart * 2)) if throttled else self._apart * 0.99


class ThrottledError(ClusterUnavailableError):
    """AWS throttles the account. Further calls would also throttle cluster-autoscaler."""


@dataclass
class AutoScalingApi:
    """The calls for one cluster's record during one check or run."""

    name: str  # the cluster's id, for messages
    # Returns boto3's client. It must not repeat calls itself, because a repeated termination would lower the desired
    # capacity twice.
    auto_scaling: Callable[[], Any]
    eks: Callable[[], Any]  # returns boto3's client for EKS
    node_groups: NodeGroups  # keeps answers of EKS for the next checks
    clock: Clock
    remaining: Remaining
    ec2: Callable[[], Any] | None = None  # returns boto3's client for EC2; None: instance types are not read
    types: InstanceTypes = field(default_factory=InstanceTypes)  # keeps answers of EC2 for the next checks
    _pace: _Pace = field(init=False)
    _suspended: set[str] = field(init=False, default_factory=set)  # where this run may have suspended a process

    def __post_init__(self) -> None:
        self._pace = _Pace(self.clock)

    def now(self) -> datetime:
        """Return the time."""
        return self.clock.now()

    def slow_down(self) -> None:
        """Leave calls to cluster-autoscaler before AWS throttles the account, for work that is not urgent."""
        self._pace.slow_down()

    # Reads

    def groups(self, filters: Filters) -> list[Described]:
        """Return all groups that match."""
        request = {"Filters": [*filters], "MaxRecords": _PAGE}
        pages = self._pages("describe_auto_scaling_groups", "", "AutoScalingGroups", request)
        return [group for page in pages for group in page]

    def named_groups(self, names: Sequence[str]) -> list[Described]:
        """Return the groups with these names that exist."""
        groups: list[Described] = []
        for start in range(0, len(names), _NAMES):
            request = {"AutoScalingGroupNames": [*names[start : start + _NAMES]], "MaxRecords": _NAMES}
            for page in self._pages("describe_auto_scaling_groups", "", "AutoScalingGroups", request):
                groups += page
        return groups

    def group(self, name: str) -> Described:
        """Return one group. Raises ConflictError if it does not exist any more."""
        request = {"AutoScalingGroupNames": [name], "MaxRecords": 1}
        pages = self._pages("describe_auto_scaling_groups", name, "AutoScalingGroups", request)
        for page in pages:
            for group in page:
                return group
        raise ConflictError(f"Auto Scaling group {name} is gone since it was read")

    def activities(self, name: str = "") -> Iterator[tuple[Sequence[Described], bool]]:
        """Yield the pages of the newest activities: of one group or, without a name, of the account and Region.

        With each page comes True if it is the last one.
        """
        since = (self.now() - _ACTIVITIES_READ).strftime("%Y-%m-%dT%H:%M:%SZ")
        request: dict[str, Any] = {"Filters": [{"Name": "StartTimeLowerBound", "Values": [since]}], "MaxRecords": _PAGE}
        if name:
            request["AutoScalingGroupName"] = name
        for answer in self._answers("describe_scaling_activities", name, "Activities", request):
            yield answer["Activities"], not answer.get("NextToken")

    def refresh(self, name: str) -> str | None:
        """Return the status of the group's instance refresh in progress; None: there is none.

        Only writes read it. So its errors are those of a write, and keep only this group from being written.
        """
        request, part = {"AutoScalingGroupName": name}, "InstanceRefreshes"
        answer = self._read(self.auto_scaling(), "describe_instance_refreshes", name, part, request, is_for_write=True)
        statuses = (str(refresh.get("Status")) for refresh in answer[part])
        return next((status for status in statuses if status not in ENDED_REFRESHES), None)

    def node_group(self, cluster: str, name: str) -> Described:
        """Return EKS's description of a managed node group; empty: there is no such node group."""
        request = {"clusterName": cluster, "nodegroupName": name}
        try:
            answer = self._read(self.eks(), "describe_nodegroup", f"{cluster}/{name}", "nodegroup", request)
        except ConflictError:  # the tags of a group remain after its node group is deleted
            answer = {"nodegroup": {}}
        node_group: Described = answer["nodegroup"]
        self.node_groups.keep(self.name, (cluster, name), node_group, self.now())
        return node_group

    def instance_types(self, names: Collection[str]) -> Mapping[str, Described] | None:
        """Return EC2's descriptions of these instance types; None: they were not read. Never raises an error."""
        kept, now = self.types, self.now()
        known = kept.known(self.name, names, now)
        asked = sorted(set(names).difference(known))[:_TYPES]
        if not asked:
            return known
        if self.ec2 is None or not kept.may_ask(self.name, now):
            return known or None
        # A filter leaves out the types that EC2 does not know. Their names in the call would be an error.
        request = {"Filters": [{"Name": "instance-type", "Values": asked}]}
        try:
            pages = self._pages("describe_instance_types", "", "InstanceTypes", request, self.ec2())
            kept.keep(self.name, asked, [each for page in pages for each in page], now)
        except EvenkeelError as error:
            _log.warning("sizes of instance types not read: %s", error, extra={"cluster": self.name})
            kept.fail(self.name, now)
            return known or None
        return kept.known(self.name, names, now)

    def _pages(
        self, operation: str, place: str, part: str, request: Mapping[str, Any], client: Any = None
    ) -> Iterator[Sequence[Described]]:
        return (answer[part] for answer in self._answers(operation, place, part, request, client))

    def _answers(
        self, operation: str, place: str, part: str, request: Mapping[str, Any], client: Any = None
    ) -> Iterator[Mapping[str, Any]]:
        token: dict[str, Any] = {}
        while True:
            answer = self._read(client or self.auto_scaling(), operation, place, part, {**request, **token})
            yield answer
            if not answer.get("NextToken"):
                return
            token = {"NextToken": answer["NextToken"]}

    def _read(
        self,
        client: Any,
        operation: str,
        place: str,
        part: str,
        request: Mapping[str, Any],
        *,
        is_for_write: bool = False,
    ) -> Mapping[str, Any]:
        """Return an answer that has this part. A proxy may answer with a page of its own."""
        answer = self._call(client, operation, place, request, reads=not is_for_write)
        try:
            part_of(answer, part)
        except AWS_ERRORS as error:
            self._raise(error, operation, place, reads=not is_for_write)
        return answer

    # Writes

    def write(self, operation: str, name: str, **request: Any) -> None:
        """Send one write about the group ``name``.

        Raises ConflictError, ForbiddenError, RejectedError, ClusterUnavailableError. After the last of these, it is
        unknown if AWS has carried out the write.
        """
        if operation == _SUSPEND:
            self._suspended.add(name)
        self._call(self.auto_scaling(), operation, name, request, reads=False)
        if operation == _RESUME:
            self._suspended.discard(name)

    def may_begin(self, calls: int) -> bool:
        """Return True if the time left is enough for so many calls of a write, and then to resume its process."""
        return self.remaining() > self._pace.seconds_for(calls) + _KEPT_TO_RESUME

    def wait(self, seconds: float) -> bool:
        """Wait for these seconds, and return True; return False if too little time would be left to end a write."""
        if self.remaining() < seconds + _KEPT_FOR_WRITES:
            return False
        self.clock.sleep(seconds)
        return True

    def _call(
        self, client: Any, operation: str, place: str, request: Mapping[str, Any], *, reads: bool
    ) -> Mapping[str, Any]:
        """Return the answer. A throttled call is repeated: AWS has not carried it out.

        To resume a process, the call waits for no others once little time is left, and is repeated more often.
        """
        wait, problem, is_last = _FIRST_WAIT, Exception(), operation == _RESUME
        kept = _KEPT_TO_RESUME if self._suspended or is_last else 0.0
        most = _MOST_REPEATS_TO_RESUME if is_last else _MOST_REPEATS
        for turn in range(most + 1):
            if not self._pace.wait(self.remaining() - _CALL_SECONDS - kept) and not is_last:
                raise ClusterUnavailableError(f"{self._named(operation, place)}: no time left")
            try:
                answer: Mapping[str, Any] = getattr(client, operation)(**request)
            except AWS_ERRORS as error:
                problem = error
            else:
                self._pace.note(throttled=False)
                return answer
            is_throttled = code_of(problem).startswith(_THROTTLED)
            self._pace.note(throttled=is_throttled)
            is_repeated = is_throttled and turn < most
            if not is_repeated or self.remaining() < wait + _CALL_SECONDS + (0 if is_last else kept):
                break
            self.clock.sleep(wait)
            wait = _LONGEST_WAIT_TO_RESUME if is_last else 2 * wait
        return self._raise(problem, operation, place, reads=reads)

    def _named(self, operation: str, place: str) -> str:
        service = _OTHER_SERVICES.get(operation, "autoscaling")
        call = "".join(word.title() for word in operation.split("_"))
        return f"{self.name}: {service}:{call}{f' of {place}' if place else ''}"

    def _raise(self, error: Exception, operation: str, place: str, *, reads: bool) -> NoReturn:
        code, where = code_of(error), self._named(operation, place)
        answer = getattr(error, "response", None) or {}  # errors of the HTTP client have None
        message = printable(str(answer.get("Error", {}).get("Message", "")))[:500]
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        said = f"{code}: {message}" if message and not message.startswith("<") else code
        failure: Exception
        if code.startswith(_DENIED):
            kind = AccessRefusedError if reads else ForbiddenError
            needs = "" if reads else f", which allows it for groups with the tag {POOL_LABEL} only"
            failure = kind(f"{where}: {code}: allow this action in the policy of the role that the record names{needs}")
        elif code.startswith(_EXPIRED):
            failure = AccessRefusedError(f"{where}: {code}: AWS refuses the credentials; correct the record's role")
        elif code.startswith(_THROTTLED):
            failure = ThrottledError(f"{where}: {code}: AWS throttles the account; the next check tries again")
        elif _is_foreign(error):
            failure = ClusterUnavailableError(
                f"{where}: the answer is not one of AWS: let the proxy between Evenkeel and AWS pass it on unchanged"
            )
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


def _is_foreign(error: Exception) -> bool:
    """Return True if AWS has not written the answer: it cannot be read, or refuses the call without a code of AWS."""
    if not isinstance(error, ClientError):
        return not isinstance(error, BotoCoreError)
    code = code_of(error)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status < 500 and (code in ("", "Unknown") or code.isdigit())
