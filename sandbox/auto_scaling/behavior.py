"""How fast, how fresh and how obedient the simulated AWS is. AWS publishes none of these numbers.

    auto_scaling = AutoScaling(cloud, behavior=Behavior(latency=timedelta(seconds=0.15)))
    auto_scaling.behavior.suspended_termination = Termination.REFUSED   # from now on
    auto_scaling.behavior.become(worst())

By default, AWS answers at once, and its reads are never old. `worst` has every defect that is plausible.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from random import Random

Span = tuple[timedelta, timedelta]
"""The shortest and the longest duration. Each use chooses one of them at random."""

_NONE = timedelta(0)
_AT_ONCE = (_NONE, _NONE)


class Termination(StrEnum):
    """What AWS does when it is asked to terminate an instance of a group."""

    DONE = "done"
    REFUSED = "refused"
    #: AWS answers with an activity, and nothing happens
    IGNORED = "ignored"
    #: the desired capacity falls, and the instance stays, so that scale-in may choose another one
    DECREMENTED = "decremented"


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A token bucket of an account in a Region: so many calls at once, then so many a second."""

    size: float
    per_second: float


@dataclass(kw_only=True)
class Behavior:
    """The behavior of Auto Scaling and of EKS in one account and Region. It may change at any time."""

    # Calls
    #: of each call
    latency: timedelta = _NONE
    #: in addition, of a call for the activities of all groups, which AWS documents as slower
    account_wide_latency: timedelta = _NONE
    #: the client's: AWS carries a slower call out, and the client gets no answer
    read_timeout: timedelta = timedelta(seconds=2)
    #: how many calls overlap that threads beside the thread of the world make
    parallel: int = 1
    #: the buckets that all callers of a service share (re:Post: one for all calls of EC2 Auto Scaling)
    auto_scaling_rate: Rate | None = None
    eks_rate: Rate | None = None
    #: Throttling or RequestLimitExceeded
    throttled: str = "Throttling"
    #: pages have fewer items than the call allows, as AWS documents
    short_pages: bool = False

    # Reads
    #: the age of each group and node group in an answer
    read_age: Span = _AT_ONCE
    #: from the start of an activity until it is in answers
    activity_delay: Span = _AT_ONCE

    # Writes
    termination: Termination = Termination.DONE
    #: while the process Terminate is suspended; public reports disagree (kubernetes/autoscaler#2787: it is done;
    #: hashicorp/nomad-autoscaler#1290: it is refused)
    suspended_termination: Termination = Termination.DONE
    #: ScalingActivityInProgress, ResourceContention or ValidationError
    termination_error: str = "ScalingActivityInProgress"
    #: after this time, another writer deletes the tags that a group has not been created with; None: it keeps them
    tags_kept: timedelta | None = None

    # Instances
    #: from a higher desired capacity to its launches
    launch_delay: Span = _AT_ONCE
    #: from an accepted launch to InService or to the hook
    launch: timedelta = timedelta(seconds=30)
    #: from InService to a node that is ready
    join: Span = _AT_ONCE
    #: the zones whose instances never become nodes
    never_join: frozenset[str] = frozenset()
    #: from the end of the hook to the end of the instance
    termination_time: timedelta = timedelta(seconds=30)
    #: between launches that EC2 refuses: the first delay, and the last of the delays, which double
    first_retry: timedelta = timedelta(minutes=1)
    last_retry: timedelta = timedelta(minutes=15)
    #: after this time without any launch, AWS suspends Launch
    give_up: timedelta = timedelta(hours=24)

    chance: Random = field(default_factory=lambda: Random(0))

    def become(self, other: Behavior) -> None:
        """Behave like another one from now on."""
        vars(self).update(vars(other))

    def choose(self, span: Span) -> timedelta:
        """Return a duration of a span."""
        shortest, longest = span
        return shortest if shortest == longest else shortest + (longest - shortest) * self.chance.random()


def slow() -> Behavior:
    """Return the worst behavior with reads that are never old, for a caller that reads what it has just written."""
    return replace(worst(), read_age=_AT_ONCE)


def worst(seed: int = 0) -> Behavior:
    """Return the worst behavior that is plausible: what users measured or reported, all of it together.

    Tags stay, and every zone's instances join.
    """
    return Behavior(
        latency=timedelta(milliseconds=250),
        account_wide_latency=timedelta(milliseconds=500),
        auto_scaling_rate=Rate(size=100, per_second=5),
        eks_rate=Rate(size=100, per_second=5),
        short_pages=True,
        read_age=_seconds(0.1, 30),
        activity_delay=_seconds(1, 180),
        suspended_termination=Termination.DECREMENTED,
        launch_delay=_seconds(1, 5),
        join=_seconds(20, 60),
        chance=Random(seed),
    )


def _seconds(shortest: float, longest: float) -> Span:
    return timedelta(seconds=shortest), timedelta(seconds=longest)
