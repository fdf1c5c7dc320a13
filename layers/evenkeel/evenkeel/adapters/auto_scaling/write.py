"""Writes to Auto Scaling groups. AWS has no conditional writes, so a write must be harmless after any change by others.

Each write reads the group again, and raises ConflictError if anything has changed on which the plan depends. Between
that read and the write, another writer can still raise the desired capacity and max. A max, or a desired capacity,
below theirs then makes AWS terminate instances that run. So Evenkeel suspends the group's process Terminate during such
a write, and raises the desired capacity to the instances that exist before it resumes the process. A raise of max
needs neither: others order up to the lower max. If others raise max, too, the read directly before shows it.

    table   tags   terminate   suspend   read   bounds   desired capacity   max   read   resume   tags   table
    --*-------*--------*----------*--------*------*-------------*------------*-----*-------*-------*-------*-->
      |       |        |                   |                                       |               |       |
      |       |        named instances     shows that it is suspended              |         the move       |
      |       |                                                                    |         as done        |
      |       |                                                   shows the numbers that were sent          |
      |       what is missing of: adopted bounds, writer, the move as announced                             |
      the decision with the former bounds, as unfinished                                     the decision

AWS shares its limit on calls with cluster-autoscaler. So the decision is in the table, and a lower max is three calls:
suspend, bounds, resume. Another change of bounds is one call, or two for a higher max. Tags are written before a
group's first write, for a move, and where a read must be no older than a write.

A read may be older than the write before it. So each of these reads is repeated until it shows what was sent, for up to
40 s. Whatever it shows, the process is resumed: by this run or, if too little time is left, by a later one. A process
that another writer has suspended stays suspended (``suspensions``). Named instances are terminated while no process is
suspended, because AWS may refuse or ignore a termination otherwise.

After a crash, the stored decision shows that the write has not ended, and if it suspends a process. The adopted bounds
are stored before the first change. An announced move is done if the desired capacity, or the named instances, have
changed. ``resume`` ends an unfinished write.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from evenkeel.adapters.auto_scaling.api import AutoScalingApi
from evenkeel.adapters.auto_scaling.decisions import DecisionStore, decision_of
from evenkeel.adapters.auto_scaling.read import (
    OWN_TAGS,
    Described,
    Member,
    Refreshing,
    busy_status,
    instances_of,
    is_running,
    is_terminating,
    no_room,
    node_group_of,
    tags_of,
)
from evenkeel.adapters.auto_scaling.suspensions import (
    TERMINATE,
    is_suspended,
    is_suspended_by_others,
    suspended_at,
)
from evenkeel.adapters.own_annotations import ADOPTED, DECISION, MOVE
from evenkeel.application.errors import (
    ClusterUnavailableError,
    ConflictError,
    ForbiddenError,
    RejectedError,
    StateConflictError,
    StateUnavailableError,
    TooLateError,
)
from evenkeel.domain.model.groups import Bounds
from evenkeel.domain.rebalancing.annotations import (
    begun,
    ended,
    ended_at,
    for_tag,
    is_unfinished,
    may_be_suspended,
    read_published,
    suspends_since,
    writer_of,
)
from evenkeel.domain.rebalancing.writes import Patch

_VALUE_LENGTH = 256  # of a tag
# A plan depends on these fields of a group, and on its tags, processes and instances.
_PLANNED_FROM = (
    *("AutoScalingGroupARN", "AvailabilityZones", "DesiredCapacityType", "MixedInstancesPolicy"),
    *("MinSize", "MaxSize", "DesiredCapacity", "Status", "Operator"),
)
_UPDATE = "update_auto_scaling_group"
# Another run may still carry out an unfinished write that is younger.
_UNFINISHED_AFTER = timedelta(seconds=60)
_CALLS_SUSPENDED = 5  # of a write, from a tag until it resumes the process
_REPAIRS = 3  # how often the desired capacity is raised to the instances before the process is resumed anyway
# Seconds between reads of a group that do not show yet what was sent. Auto Scaling's documentation does not say how old
# a read may be; EC2's says that reads are old for seconds. Together, these waits are longer than the oldest known read.
_WAITS = (0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0)


@dataclass(frozen=True, kw_only=True)
class _Change:
    """The values that one write sets, computed from the group that was read just before."""

    newest: Described
    former: str | None  # the decision of the write before
    interim_bounds: Bounds  # until the desired capacity has changed, which they cover before and after
    bounds: Bounds  # after the write
    desired: int  # after the write
    named: tuple[str, ...] = ()  # instances to terminate, each of which lowers the desired capacity by one

    @property
    def before(self) -> Bounds:
        """Return the bounds before the write."""
        return _bounds(self.newest)

    @property
    def surplus(self) -> int:
        """Return how many instances AWS keeps above the desired capacity: protected ones, or ones that it replaces."""
        return _surplus(self.newest)

    @property
    def changes_desired(self) -> bool:
        """Return True if the desired capacity changes."""
        return self.desired != int(self.newest["DesiredCapacity"])

    @property
    def may_terminate(self) -> bool:
        """Return True if AWS may terminate instances after the write.

        A max that rises never does: others may order up to the lower max only.
        """
        sets_desired = self.desired != int(self.newest["DesiredCapacity"]) - len(self.named)
        return sets_desired or self.bounds.max < self.before.max

    @property
    def raises_max(self) -> bool:
        """Return True if max rises."""
        return self.bounds.max > self.before.max

    @property
    def only_raises_max(self) -> bool:
        """Return True if max rises while no process is suspended."""
        return self.raises_max and not self.may_terminate


@dataclass(kw_only=True)
class _Sent:
    """The numbers that one write has sent. Only a read that shows them is certainly no older than they are."""

    decision: str  # of the write, which has not ended
    after: datetime | None = None  # when the write before it has ended, which a read may still show
    newest: Described = field(default_factory=dict)
    surplus: int = 0  # the instances that AWS keeps above the desired capacity
    numbers: dict[str, int] = field(default_factory=dict)

    def add(self, **numbers: int) -> None:
        """Note numbers that have been sent."""
        self.numbers.update(numbers)

    def is_too_old(self, group: Described) -> bool:
        """Return True if a read shows the process as the write before has suspended it."""
        at = suspended_at(group)
        return at is not None and self.after is not None and at < self.after.replace(microsecond=0)

    def is_suspended_by_others(self, group: Described) -> bool:
        """Return True if another writer has suspended the process Terminate."""
        return is_suspended_by_others(group, self.decision) and not self.is_too_old(group)

    def is_shown_by(self, group: Described) -> bool:
        """Return True if a read shows the numbers."""
        return all(group[name] == number for name, number in self.numbers.items())


@dataclass
class GroupWriter:
    """Writes to the groups that one check has read."""

    api: AutoScalingApi
    refreshing: Refreshing  # gets the groups whose instances are replaced
    store: DecisionStore
    decisions: dict[str, str]  # the stored ones, by name of the group. Writes change them, too.
    writer: str = ""  # names the stack and the cluster in each decision
    # The max of writes that may not have ended, because groups are written in parallel.
    _sent_max: dict[str, int] = field(init=False, default_factory=dict)
    _sent_desired: set[str] = field(
        init=False, default_factory=set
    )  # the groups whose desired capacity a write has set
    _written: dict[str, Described] = field(init=False, default_factory=dict)  # the groups as the last writes left them
    # The error of a resume that was refused or not answered. Then the process would stay suspended in other groups.
    _not_resumed: ForbiddenError | ClusterUnavailableError | None = field(init=False, default=None)

    def apply(
        self,
        member: Member,
        patch: Patch,
        named: Collection[str],
        decision: str,
        adopted: str,
        move: str | None,
    ) -> None:
        """Write bounds, desired capacity, tags and the decision. ``named``: the instances that the patch removes."""
        newest, name = self._unchanged(member), member.name
        change = _change(newest, self._decision_of(newest), patch, named)
        tags, tags_before = tags_of(change.newest), dict[str, str]()
        if patch.leaves:
            self._send(member, change, decision, tags_before)
            self._save(name, "")
            self._delete_tags(name, {**tags, **tags_before})
            return
        if no_room(tags) is not None:
            raise RejectedError(f"{self._place(member)}: no room for Evenkeel's tags: remove tags of the group")
        if change.bounds == change.before and not change.changes_desired:
            return
        if ADOPTED not in tags and patch.bounds is not None:
            tags_before[ADOPTED] = adopted
        if move is not None:
            tags_before[MOVE] = self._announced(member, move, change)
        is_new = DECISION not in tags or not self.decisions.get(name)
        written = self._send(member, change, decision, tags_before, is_new=is_new)
        self._confirm_gone(member, change, tags)
        last = {} if move is None else {MOVE: move}
        self._write_tags(name, last)
        # Reads of the next seconds are old. A launch after an order may have failed by now, and is no earlier than it.
        at = None if change.changes_desired else self.api.now()
        self._end(name, decision, change.bounds, at=at)
        self._written[name] = _with_tags(written, {**tags, **tags_before, **last})

    def _send(
        self, member: Member, change: _Change, decision: str, tags: dict[str, str], *, is_new: bool = False
    ) -> Described:
        """Write tags and numbers, and return the group as it is then.

        The writer is added to ``tags`` for a new group, with other tags, or where a read must be no older than a write.
        """
        if is_new or tags or change.named or change.only_raises_max:
            tags[DECISION] = for_tag(decision, writer=self.writer)
        earlier = self._begin(member, change, decision)
        self._write_tags(member.name, tags)
        try:
            self._confirm_named(member, change, tags)
            self._confirm_raise(member, change, tags)
            written = self._write_numbers(member.name, change)
        except ConflictError:
            self._withdraw(member.name, change, tags)
            raise
        return self._resume(member.name, _Sent(decision=self.decisions[member.name])) if earlier else written

    def _withdraw(self, name: str, change: _Change, tags: Mapping[str, str]) -> None:
        """Withdraw an announced move, if others have changed the desired capacity before this write did."""
        if MOVE in tags and not change.named and name not in self._sent_desired and self.api.may_begin(1):
            self._write_tags(name, {MOVE: tags_of(change.newest).get(MOVE, "")})

    # The decision, in the table

    def _begin(self, member: Member, change: _Change, decision: str) -> bool:
        """Store that the write of a group begins. Raises TooLateError.

        Return True if an earlier write may have left a process suspended, which this write does not resume by itself.
        """
        name, earlier = member.name, may_be_suspended(change.former)
        if change.may_terminate and not self.api.may_begin(_CALLS_SUSPENDED):
            raise TooLateError(f"{self._place(member)}: too little time is left to end a write")
        suspends, since = change.may_terminate or earlier, suspends_since(change.former)
        unfinished = begun(decision, change.before, writer=self.writer, suspends=suspends, since=since)
        try:
            self._save(name, unfinished)
        except StateUnavailableError:  # it may be stored, so the next run looks
            self.decisions[name] = unfinished
            raise
        return earlier and not change.may_terminate

    def _end(self, name: str, decision: str, bounds: Bounds, *, at: datetime | None = None) -> None:
        """Store that the write of a group has ended."""
        self._save(name, ended(decision, bounds, writer=self.writer, at=at, now=self.api.now()))

    def _save(self, name: str, decision: str) -> None:
        try:
            self.store.save(self.api.name, name, decision, self.decisions.get(name, ""))
        except StateConflictError:
            raise ConflictError(f"Auto Scaling group {name}: another run has written it since it was read") from None
        self.decisions[name] = decision

    def _decision_of(self, described: Described) -> str | None:
        stored = self.decisions.get(str(described["AutoScalingGroupName"]))
        return decision_of(tags_of(described).get(DECISION), stored, self.writer)

    def has_unfinished(self, described: Described) -> bool:
        """Return True if a write of the group has begun and not ended."""
        decision = self._decision_of(described)
        return is_unfinished(decision) and writer_of(decision) in ("", self.writer)

    def _announced(self, member: Member, move: str, change: _Change) -> str:
        """Return the value of the move tag before the change. Raises RejectedError if the tag is too short for it."""
        value = f"{move} {','.join(change.named) or change.newest['DesiredCapacity']}"
        if len(value) > _VALUE_LENGTH:
            problem = f"{len(change.named)} instances at once do not fit tag {MOVE}: give back fewer nodes"
            raise RejectedError(f"{self._place(member)}: {problem}")
        return value

    def _confirm_named(self, member: Member, change: _Change, written: Mapping[str, str]) -> None:
        """Raise ConflictError if a named instance is going already: AWS would count its termination twice.

        A read that shows the tags that were written is no older than they are.
        """
        if not change.named:
            return
        group = self._read_until(member.name, lambda group: written.items() <= tags_of(group).items())
        same = group["DesiredCapacity"] == change.newest["DesiredCapacity"]
        if not (same and written.items() <= tags_of(group).items() and _staying(group).issuperset(change.named)):
            raise ConflictError(f"{self._place(member)}: others have changed its capacity since it was read")

    def _confirm_raise(self, member: Member, change: _Change, written: Mapping[str, str]) -> None:
        """Raise ConflictError if another writer has changed the bounds: it may order more than the new max allows.

        No process is suspended for a raise. So this read must be no older than the tags that were written.
        """
        if not change.only_raises_max:
            return
        group = self._read_until(member.name, lambda group: written.items() <= tags_of(group).items())
        if _bounds(group) != change.before or not written.items() <= tags_of(group).items():
            raise ConflictError(f"{self._place(member)}: another writer has changed its bounds since it was read")

    def _confirm_gone(self, member: Member, change: _Change, tags: Mapping[str, str]) -> None:
        """Raise ConflictError if AWS has accepted a termination and not begun it; the second time, RejectedError."""
        if not change.named:
            return
        group = self._read_until(member.name, lambda group: _staying(group).isdisjoint(change.named))
        if left := sorted(_staying(group).intersection(change.named)):
            problem = (
                f"{self._place(member)}: instance {left[0]} is still in service after AWS accepted its termination"
            )
            if left[0] in tags.get(MOVE, ""):  # the move tag of the first attempt names it, too
                raise RejectedError(
                    f"{problem} twice: end it with aws ec2 terminate-instances, or ask AWS why it stays"
                )
            raise ConflictError(problem)

    def confirm(self, siblings: Collection[Member]) -> None:
        """Raise ConflictError if another writer has raised the max of one of these groups since it was read."""
        known = {
            one.name: max(int(self._written.get(one.name, one.described)["MaxSize"]), self._sent_max.get(one.name, 0))
            for one in siblings
        }
        for wait in _WAITS:
            maxima = {group["AutoScalingGroupName"]: group["MaxSize"] for group in self.api.named_groups([*known])}
            raised = [name for name, maximum in maxima.items() if maximum > known[name]]
            # A read may be older than Evenkeel's own last write of the group.
            if not raised or (wait > _WAITS[0] and self._written.keys().isdisjoint(raised)) or not self.api.wait(wait):
                break
        if raised:
            raise ConflictError(f"Auto Scaling group {raised[0]}: another writer has raised its max since it was read")

    def write_tag(self, member: Member, key: str, value: str) -> None:
        """Write one tag of a group."""
        newest = self._unchanged(member)
        self._write_tags(member.name, {key: value})
        self._written[member.name] = _with_tags(newest, {**tags_of(newest), key: value})

    def resume(self, described: Described, now: datetime) -> bool:
        """End the unfinished write of a group, and return True; return False where there is none."""
        decision, name = self._decision_of(described), str(described["AutoScalingGroupName"])
        if decision is None or not self.has_unfinished(described):
            return False
        published = read_published(decision)
        if published is not None and abs(now - published.at) < _UNFINISHED_AFTER:
            return False
        group = self._resume(name, _Sent(decision=decision)) if may_be_suspended(decision) else self.api.group(name)
        self._end(name, decision, _bounds(group))
        return True

    def _place(self, member: Member) -> str:
        return f"Auto Scaling group {member.name}"

    # The state of the group

    def _unchanged(self, member: Member) -> Described:
        """Return the group as it is now. Raises ConflictError if it has changed since it was read."""
        name = member.name
        before = _state(self._written.get(name, member.described))
        # A read may be older than the one before, and older than Evenkeel's own last write.
        waits = _WAITS if name in self._written else _WAITS[:1]
        newest = self._read_until(name, lambda group: _state(group) == before, waits)
        changed = [field for field, value in _state(newest).items() if value != before[field]]
        if changed:
            raise ConflictError(f"{self._place(member)} has changed since it was read: {', '.join(changed)}")
        if refresh := self.api.refresh(name):
            self.refreshing[name] = (refresh, self.api.now())
            raise ConflictError(f"{self._place(member)} has an instance refresh, {refresh}, since it was read")
        managed = node_group_of(newest)
        node_group = {} if managed is None else self.api.node_group(*managed)
        if node_group and (status := busy_status(node_group)):
            raise ConflictError(f"{self._place(member)}: EKS changes its node group since it was read: {status}")
        return newest

    def _read_until(self, name: str, shows: Callable[[Described], bool], waits: Sequence[float] = _WAITS) -> Described:
        """Return the group as soon as a read shows something, or else the last read."""
        group = self.api.group(name)
        for wait in waits:
            if shows(group) or not self.api.wait(wait):
                break
            group = self.api.group(name)
        return group

    # The requests of one write

    def _write_numbers(self, name: str, change: _Change) -> Described:
        """Write what differs, and return the group as it is then. Raises ConflictError if others write, too."""
        if change.bounds == change.before and not change.changes_desired:
            return change.newest
        if self._not_resumed is not None and change.may_terminate:
            raise type(self._not_resumed)(f"Auto Scaling group {name} is not written: {self._not_resumed}")
        refused: RejectedError | None = None
        try:
            self._end_named(name, change)
            written = self._write_suspended(name, change) if change.may_terminate else self._write_bounds(name, change)
        except RejectedError as error:
            refused, written = error, self.api.group(name)
        # AWS refuses numbers that do not fit the bounds which others have written meanwhile. That is a conflict.
        if refused is not None and _bounds(written) in (change.before, change.interim_bounds, change.bounds):
            raise refused
        if _bounds(written) != change.bounds:
            raise ConflictError(f"Auto Scaling group {name}: another writer has changed its bounds")
        return written

    def _end_named(self, name: str, change: _Change) -> None:
        """Terminate the named instances. No process is suspended: AWS may refuse or ignore a termination then.

        If another writer has just terminated one of them, AWS would lower the desired capacity twice, and terminate
        another instance. It refuses that below min.
        """
        if not change.named:
            return
        if change.interim_bounds.min != change.before.min:
            self.api.write(_UPDATE, name, AutoScalingGroupName=name, MinSize=change.interim_bounds.min)
        try:
            for instance in change.named:
                self.api.write(
                    "terminate_instance_in_auto_scaling_group",
                    name,
                    InstanceId=instance,
                    ShouldDecrementDesiredCapacity=True,
                )
        except RejectedError as error:
            if self.api.group(name)["DesiredCapacity"] > change.interim_bounds.min:
                raise
            raise ConflictError(str(error)) from None

    def _write_bounds(self, name: str, change: _Change) -> Described:
        if change.raises_max:
            self._send_bounds(name, change.bounds)
        elif change.bounds.min != (change.interim_bounds.min if change.named else change.before.min):
            self.api.write(_UPDATE, name, AutoScalingGroupName=name, MinSize=change.bounds.min)
        return self._read_until(name, lambda group: _bounds(group) == change.bounds)

    def _write_suspended(self, name: str, change: _Change) -> Described:
        """Write max or the desired capacity while Terminate is suspended. Resume it whatever reads show."""
        self.api.write("suspend_processes", name, AutoScalingGroupName=name, ScalingProcesses=[TERMINATE])
        sent = _Sent(decision=self.decisions[name], after=ended_at(change.former))
        try:
            # A read that shows the suspended process is no older than it. So it shows all earlier orders of others.
            before = self._read_until(name, lambda group: is_suspended(group, TERMINATE) and not sent.is_too_old(group))
            sent.newest, sent.surplus = before, min(change.surplus, _surplus(before))
            self._send_numbers(name, change, sent)
        finally:
            written = self._resume(name, sent)
        return written

    def _send_numbers(self, name: str, change: _Change, sent: "_Sent") -> None:
        group = sent.newest
        expected = change.newest["DesiredCapacity"] - len(change.named)
        low = change.interim_bounds.min if change.named else change.before.min
        if _bounds(group) not in (change.before, Bounds(low, change.before.max)):
            raise ConflictError(f"Auto Scaling group {name}: another writer has changed its bounds since it was read")
        is_same = group["DesiredCapacity"] == expected and _surplus(group) == change.surplus
        is_others = sent.is_suspended_by_others(group) or sent.is_too_old(group)
        if not is_same or is_others or not is_suspended(group, TERMINATE):
            # Its order would be lost, and Cluster Autoscaler could write the lower number that it reads meanwhile.
            raise ConflictError(f"Auto Scaling group {name}: others have changed its capacity since it was read")
        if change.interim_bounds != _bounds(group):
            self._send_bounds(name, change.interim_bounds)
            sent.add(MinSize=change.interim_bounds.min, MaxSize=change.interim_bounds.max)
        if change.desired != expected:
            group = self._newest(name, sent)
            if group["DesiredCapacity"] != expected or len(instances_of(group)) > change.desired:
                raise ConflictError(f"Auto Scaling group {name}: others have changed its capacity since it was read")
            self._sent_desired.add(name)
            self._send_desired(name, change.desired)
            sent.add(DesiredCapacity=change.desired)
        if change.bounds != change.interim_bounds:
            # Before other zones may grow, max follows the desired capacity down, unless others have written meanwhile.
            group = self._newest(name, sent)
            if _bounds(group) == change.interim_bounds and group["DesiredCapacity"] <= change.bounds.max:
                self._send_bounds(name, change.bounds)
                sent.add(MinSize=change.bounds.min, MaxSize=change.bounds.max)

    def _newest(self, name: str, sent: "_Sent") -> Described:
        """Return the group in a read that is no older than the numbers that were sent."""
        if sent.numbers or not sent.newest:
            sent.newest = self._read_until(name, sent.is_shown_by)
        return sent.newest

    def _resume(self, name: str, sent: "_Sent") -> Described:
        """Resume the process Terminate, once the desired capacity covers all instances. Return the group.

        Others have raised the desired capacity if there are more instances. Without this, AWS would terminate some.
        A process that another writer has suspended stays suspended.
        """
        try:
            group = self._newest(name, sent)
            for _ in range(_REPAIRS):
                count = len(instances_of(group)) - sent.surplus
                if count <= group["DesiredCapacity"] or sent.is_suspended_by_others(group):
                    break
                if count > group["MaxSize"]:
                    self._send_bounds(name, Bounds(group["MinSize"], count))
                    sent.add(MinSize=group["MinSize"], MaxSize=count)
                self._send_desired(name, count)
                sent.add(DesiredCapacity=count)
                group = self._newest(name, sent)
        finally:
            is_ours = not sent.is_suspended_by_others(sent.newest)
            if is_ours:
                self._send_resume(name)
        if not is_ours:
            return group
        suspended = [each for each in group.get("SuspendedProcesses") or () if each.get("ProcessName") != TERMINATE]
        return {**group, "SuspendedProcesses": suspended}

    def _send_resume(self, name: str) -> None:
        try:
            self.api.write("resume_processes", name, AutoScalingGroupName=name, ScalingProcesses=[TERMINATE])
        except (ForbiddenError, ClusterUnavailableError) as error:
            self._not_resumed = error
            raise

    def _send_bounds(self, name: str, bounds: Bounds) -> None:
        self._sent_max[name] = bounds.max
        self.api.write(_UPDATE, name, AutoScalingGroupName=name, MinSize=bounds.min, MaxSize=bounds.max)

    def _send_desired(self, name: str, desired: int) -> None:
        self.api.write(
            "set_desired_capacity", name, AutoScalingGroupName=name, DesiredCapacity=desired, HonorCooldown=False
        )

    # Tags

    def _write_tags(self, name: str, tags: Mapping[str, str]) -> None:
        written = [{**_tag(name, key), "Value": value, "PropagateAtLaunch": False} for key, value in tags.items()]
        if written:
            self.api.write("create_or_update_tags", name, Tags=written)

    def _delete_tags(self, name: str, tags: Mapping[str, str]) -> None:
        own = [key for key in OWN_TAGS if key in tags]
        if own:
            self.api.write("delete_tags", name, Tags=[_tag(name, key) for key in own])


def _staying(described: Described) -> set[str]:
    return {str(one["InstanceId"]) for one in described.get("Instances") or () if not is_terminating(one)}


def _surplus(described: Described) -> int:
    return max(0, len(instances_of(described)) - int(described["DesiredCapacity"]))


def _bounds(described: Described) -> Bounds:
    return Bounds(described["MinSize"], described["MaxSize"])


def _tag(name: str, key: str) -> dict[str, Any]:
    return {"ResourceId": name, "ResourceType": "auto-scaling-group", "Key": key}


def _with_tags(described: Described, tags: Mapping[str, str]) -> Described:
    return {**described, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}


def _state(described: Described) -> dict[str, object]:
    """Return the parts of a group on which a plan depends, by field."""
    return {
        **{field: described.get(field) for field in _PLANNED_FROM},
        "Tags": tags_of(described),  # also those by which the record selects the group
        "SuspendedProcesses": [is_suspended(described, process) for process in ("Launch", TERMINATE)],
        "Instances": {
            instance["InstanceId"]: (is_running(instance), is_terminating(instance))
            for instance in described.get("Instances") or ()
        },
    }


def _change(newest: Described, former: str | None, patch: Patch, named: Collection[str]) -> _Change:
    """Return the values to write. They are safe for the group as it is now, whatever the plan says.

    Raises RejectedError if the patch would make AWS select instances to terminate.
    """
    instances = instances_of(newest)
    present = {str(instance["InstanceId"]) for instance in instances}
    ids = tuple(sorted(present.intersection(named)))  # the others are launches that failed
    before = int(newest["DesiredCapacity"])
    desired = before if patch.requested is None else patch.requested
    if desired < before and desired < len(instances) - len(ids):
        raise RejectedError(
            f"Auto Scaling group {newest['AutoScalingGroupName']}: DesiredCapacity {desired} would terminate some of "
            f"its {len(instances)} instances: give back fewer nodes"
        )
    bounds = patch.bounds or _bounds(newest)
    # A max below the desired capacity terminates instances, and a min above the running ones keeps Cluster Autoscaler
    # from removing launches that failed (kubernetes/autoscaler#9043). A restore writes the user's own min.
    running = sum(map(is_running, instances))
    minimum = min(bounds.min, desired, before, *([] if patch.leaves else [running - len(ids)]))
    minimum = max(0, minimum)
    # While named instances end, min is what then runs, so that desired capacity falls no further.
    interim_min = max(0, min(desired, running - len(ids))) if ids else minimum
    return _Change(
        newest=newest,
        former=former,
        interim_bounds=Bounds(interim_min, max(bounds.max, desired, before)),
        bounds=Bounds(minimum, max(bounds.max, desired)),
        desired=desired,
        named=ids,
    )
