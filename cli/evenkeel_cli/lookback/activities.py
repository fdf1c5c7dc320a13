"""Read what the activities of one Auto Scaling group tell about its nodes.

An activity names its instance only in Description, and changes of the desired capacity only in Cause. The texts are
those of "Verify a scaling activity" and "Troubleshoot EC2 Auto Scaling" in the guide of EC2 Auto Scaling. A fall of the
desired capacity that ends no instance has no activity: the next change shows it.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from evenkeel.adapters.auto_scaling.read import failure_of
from evenkeel.domain.model.failures import class_of
from evenkeel.domain.model.values import quote
from evenkeel_cli.lookback.history import Doubt, KnownBounds, Launch, Levels, Order, Refusal, levels, moment

_DESCRIPTION = re.compile(
    r"(?P<verb>Launching a new EC2 instance|Attaching an existing EC2 instance|Terminating EC2 instance"
    r"|Detaching EC2 instance)(?: from warm pool)?(?:: (?P<id>i-\w+))?"
)
# Activities that neither add nor remove a node.
_NO_NODES = ("into warm pool", "Standby", "instance refresh", "Updating load balancers")
_STATEMENT = re.compile(
    r"At (?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) (?P<text>.*?)(?=\s*At \d{4}-\d\d-\d\dT|\Z)", re.DOTALL
)
_CHANGE = re.compile(r"changing the desired capacity from (\d+) to (\d+)")
_CONSTRAINTS = re.compile(r"constraints to min: (\d+), max: (\d+)")
_BY_USER = re.compile(r"user request\b.*shrinking the capacity", re.DOTALL)
_SURPLUS = "difference between desired and actual capacity"
_REPLACES = re.compile(r"needing to be replaced|instance refresh|rebalanc|replace", re.IGNORECASE)
_REPLACED_WITHIN = 600  # seconds; a longer gap is an outage, not a replacement
_HIDDEN_WITHIN = 60  # seconds between two orders, of which a cause names the second only
_SAME_TIME = 120  # seconds in which activities may overlap


@dataclass
class _Instance:
    zone: str = ""
    began: int | None = None  # None: before the history
    runs: int | None = None  # None: it never ran, or it ran before the history
    ordered: int | None = None
    ended: int | None = None
    replaced: bool = False
    replaces: bool = False
    is_removed: bool = False


@dataclass
class GroupActivities:
    """The activities of a group, added one by one in any order, and the instances that it has now."""

    since: int
    only_zone: str = ""  # the zone of each activity, if its details have none
    instances: dict[str, _Instance] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    changes: dict[tuple[int, int, int], None] = field(default_factory=dict)  # (at, from, to), each once
    bounds: dict[int, KnownBounds] = field(default_factory=dict)
    zones: set[str] = field(default_factory=set)
    attempts: Counter[int] = field(default_factory=Counter)  # first launches for an order, by its second
    unread: list[str] = field(default_factory=list)
    newest: int = 0
    listed: set[str] = field(default_factory=set)  # the instances that DescribeAutoScalingGroups shows

    def add(self, activity: Mapping[str, Any]) -> None:
        """Add an activity as boto3 returns it."""
        began = second(activity["StartTime"])
        description, cause = str(activity.get("Description") or ""), str(activity.get("Cause") or "")
        self.newest = max(self.newest, began)
        self._read_cause(cause)
        if any(part in description for part in _NO_NODES):
            return
        found = _DESCRIPTION.match(description)
        if found is None or _STATEMENT.search(cause) is None:
            self.unread.append(description if found is None else cause or "no Cause")
        if found is None:
            return
        zone = _zone(activity) or self.only_zone
        if zone:
            self.zones.add(zone)
        if found["verb"].startswith(("Launching", "Attaching")):
            self._add_launch(activity, found["id"], zone, began, cause)
        elif found["id"]:
            instance = self.instances.setdefault(found["id"], _Instance())
            instance.zone = instance.zone or zone
            instance.ended = began
            instance.is_removed = _BY_USER.search(cause) is not None
            instance.replaced = not instance.is_removed and _SURPLUS not in cause and found["verb"][0] == "T"

    def _add_launch(self, activity: Mapping[str, Any], id: str | None, zone: str, began: int, cause: str) -> None:
        status, end = activity["StatusCode"], activity.get("EndTime")
        ordered = max((at for at, before, after in _changes(cause) if after > before), default=None)
        if ordered is not None:
            self.attempts[ordered] += 1
        if id is None:
            if status == "Failed":
                failure = failure_of(activity, activity["StartTime"])
                self.refusals.append(Refusal(began, zone, class_of(failure), failure.message))
            return
        instance = self.instances.setdefault(id, _Instance())
        instance.zone, instance.began = zone, began
        instance.ordered = ordered
        instance.replaces = instance.ordered is None and _REPLACES.search(cause) is not None
        if status == "Successful":
            instance.runs = second(end) if end else began

    def _read_cause(self, cause: str) -> None:
        for change in _changes(cause):
            self.changes[change] = None
        for statement in _STATEMENT.finditer(cause):
            if found := _CONSTRAINTS.search(statement["text"]):
                at = second(datetime.fromisoformat(statement["at"]))
                self.bounds[at] = KnownBounds(at, int(found[1]), int(found[2]))

    def list_present(self, described: Iterable[Mapping[str, Any]]) -> None:
        """Add the instances of DescribeAutoScalingGroups. Those without a launch are older than the history."""
        for item in described:
            instance = self.instances.setdefault(str(item["InstanceId"]), _Instance())
            instance.zone = instance.zone or str(item.get("AvailabilityZone") or "")
            self.listed.add(str(item["InstanceId"]))

    def add_write(self, at: int, request: Mapping[str, Any]) -> None:
        """Add a write of CloudTrail, which shows bounds, and a desired capacity that fell without an activity."""
        if "minSize" in request and "maxSize" in request:
            self.bounds[at] = KnownBounds(at, int(request["minSize"]), int(request["maxSize"]))
        if "desiredCapacity" in request and not any(abs(change[0] - at) <= 1 for change in self.changes):
            before = max((change for change in self.changes if change[0] < at), default=None)
            after = int(request["desiredCapacity"])
            if before is not None and after < before[2]:
                self.changes[at, before[2], after] = None

    def running(self) -> Levels:
        """Return the running nodes. A node that soon replaces an unhealthy one counts as that one."""
        kept = self._replacements()
        first, changes = 0, list[tuple[int, int]]()
        for id, instance in self.instances.items():
            if instance.began is None:
                first += 1
            elif instance.runs is not None and (id, "runs") not in kept:
                changes.append((instance.runs, 1))
            has_run = instance.began is None or instance.runs is not None
            if instance.ended is not None and has_run and (id, "ended") not in kept:
                changes.append((instance.ended, -1))
        return levels(self.since, first, changes)

    def _replacements(self) -> set[tuple[str, str]]:
        """Return the ends and starts that belong together, because one instance has replaced the other."""
        starts = sorted((one.runs, id) for id, one in self.instances.items() if one.replaces and one.runs is not None)
        ends = sorted((one.ended, id) for id, one in self.instances.items() if one.replaced and one.ended is not None)
        kept = set[tuple[str, str]]()
        for ended, old in ends:
            place = bisect_left(starts, (ended - _REPLACED_WITHIN, ""))
            if place < len(starts) and starts[place][0] <= ended + _REPLACED_WITHIN:
                kept |= {(old, "ended"), (starts.pop(place)[1], "runs")}
        return kept

    def removals(self) -> tuple[int, ...]:
        """Return when the autoscaler has removed running nodes."""
        return tuple(sorted(one.ended for one in self.instances.values() if one.is_removed and one.ended is not None))

    def losses(self) -> tuple[int, ...]:
        """Return when running nodes ended that nothing replaced soon."""
        kept = self._replacements()
        return tuple(
            sorted(
                one.ended
                for id, one in self.instances.items()
                if one.replaced and one.ended is not None and (id, "ended") not in kept
            )
        )

    def launches(self) -> tuple[Launch, ...]:
        """Return the nodes that were delivered, except for replacements."""
        found = (
            Launch(one.zone, one.ordered, one.began, one.runs)
            for one in self.instances.values()
            if not one.replaces and one.began is not None and one.runs is not None
        )
        return tuple(sorted(found, key=lambda launch: launch.began))

    def orders(self) -> tuple[Order, ...]:
        """Return the rises of the desired capacity. Those of one second are one order, since their order is unknown."""
        by_second: dict[int, list[tuple[int, int]]] = {}
        for at, before, after in self.changes:
            by_second.setdefault(at, []).append((before, after))
        found = []
        for at, changes in sorted(by_second.items()):
            lowest, highest = min(min(pair) for pair in changes), max(max(pair) for pair in changes)
            if any(after > before for before, after in changes):
                found.append(Order(at, highest - lowest, highest))
        return tuple(found)

    def find_hidden(self, times: Sequence[int]) -> None:
        """Add the rises that no cause names, because another one followed before the first launch.

        ``times``: when cluster-autoscaler ordered nodes in groups of the same pool, sorted.
        """
        ordered: dict[int | None, list[_Instance]] = {}
        for instance in self.instances.values():
            ordered.setdefault(instance.ordered, []).append(instance)
        known: int | None = None
        for at, before, after in sorted(self.changes):
            first = after - self.attempts[at]  # the silent fall of an earlier order may be before it
            first = min(first, before if known is None else known)
            place = bisect_left(times, at)
            if first < before and place and times[place - 1] >= at - _HIDDEN_WITHIN:
                self.changes[times[place - 1], first, before] = None
                for instance in ordered.get(at, [])[: before - first]:
                    instance.ordered = times[place - 1]
            known = after

    def doubts(self, name: str) -> tuple[Doubt, ...]:
        """Return why the activities are not whole."""
        found = []
        if self.unread:
            text = f"{len(self.unread)} activities of {name} have an unknown text, such as {quote(self.unread[0][:80])}"
            found.append(Doubt(self.newest + 1, text))
        if gap := max(self._gaps(), default=0):
            found.append(Doubt(gap, f"activities of {name} before {text_of(gap)} are missing: print all pages"))
        return tuple(found)

    def _gaps(self) -> Iterator[int]:
        """Yield until when activities are missing: instances and changes of desired capacity do not fit together."""
        every = self.instances.values()
        starts = sorted(one.began for one in every if one.began is not None)
        ends = sorted(one.ended for one in every if one.ended is not None)
        known: int | None = None
        for at, before, after in sorted(self.changes):
            is_calm = not any(_are_near(times, at) for times in (starts, ends))
            existing = len(every) - len(starts) + bisect_left(starts, at) - bisect_left(ends, at)
            if is_calm and (before < existing or (known is not None and before > known)):
                yield at
            known = after
        newest = max((self.instances[id].began or 0 for id in self.listed), default=0)
        for id, one in self.instances.items():
            if (
                one.began is not None
                and one.ended is None
                and one.runs
                and id not in self.listed
                and one.began < newest
            ):
                yield newest


def _are_near(times: Sequence[int], at: int) -> bool:
    """Return True if one of the times is within two minutes of a second, but not at it."""
    near = times[bisect_left(times, at - _SAME_TIME) : bisect_right(times, at + _SAME_TIME)]
    return any(time != at for time in near)


def _changes(cause: str) -> Sequence[tuple[int, int, int]]:
    """Return the changes of the desired capacity in a cause: when, from and to."""
    return [
        (second(datetime.fromisoformat(statement["at"])), int(found[1]), int(found[2]))
        for statement in _STATEMENT.finditer(cause)
        if (found := _CHANGE.search(statement["text"]))
    ]


def _zone(activity: Mapping[str, Any]) -> str:
    found = re.search(r'"Availability Zone"\s*:\s*"([^"]+)"', str(activity.get("Details") or ""))
    return found[1] if found else ""


def second(moment: datetime) -> int:
    """Return a time as seconds since 1970."""
    return int(moment.timestamp())


def text_of(at: int) -> str:
    """Return a second as text."""
    return f"{moment(at):%Y-%m-%d %H:%M}Z"
