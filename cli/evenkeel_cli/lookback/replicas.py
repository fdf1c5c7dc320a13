"""Read what samples of a group's replicas tell: requested ones, and those that run.

A rise of the requested replicas is an order. If they fall while nodes are missing, an order is given up.
Each time is that of the first sample that shows a change, so all times are late by the same half of a step.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import attrgetter
from statistics import fmean

from evenkeel_cli.lookback.history import Launch, Level, Levels, Order
from evenkeel_cli.simulation.autoscaler_model import Flags

GIVEN_UP_AFTER = Flags.provision_timeout - 60  # seconds; sooner, the autoscaler must have read a refusal
_ANSWER = 5  # seconds from an order to the cloud's answer; no metric tells them
_RETRY = 60  # seconds between two attempts of a machine controller
_REPLACED_WITHIN = 600  # seconds; nodes that run again sooner were replaced, or not ready for a while
_SEVERAL = 2  # nodes that are lost in the same second
_UNKNOWN_BOOT = 2**31


@dataclass
class Replicas:
    """What the samples of a group show. ``boot``: seconds from an order to a node that the cloud delivers at once."""

    zone: str
    boot: int
    step: int
    requested: Levels = ()
    running: Levels = ()
    orders: list[Order] = field(default_factory=list)
    removals: list[int] = field(default_factory=list)
    losses: list[int] = field(default_factory=list)
    given_up: list[int] = field(default_factory=list)
    refused: list[tuple[int, int]] = field(default_factory=list)  # when a node was refused first and last
    launches: list[Launch] = field(default_factory=list)
    #: The nodes that come: since when, and True if the autoscaler ordered them.
    coming: deque[tuple[int, bool]] = field(default_factory=deque)

    def read(self, requested: Mapping[int, int], running: Mapping[int, int]) -> "Replicas":
        """Read samples, and return what they show."""
        times = sorted(requested)
        wanted = [requested[at] for at in times]
        runs = _without_dips(times, wanted, _at(times, running))
        self.requested, self.running = _levels(times, wanted), _levels(times, runs)
        states = pairwise(zip(times, wanted, runs, strict=True))
        for (_, wanted_before, ran), (at, wants, run) in states:
            if (wants, run) != (wanted_before, ran):
                self._change(at, (wanted_before, wants), (ran, run))
        for since, is_ordered in self.coming:
            if times[-1] - since > self.latest:
                self._refuse(since, times[-1], is_ordered)
        self.launches.sort(key=attrgetter("began"))
        self.refused.sort()
        return self

    @property
    def latest(self) -> int:
        """Return the seconds after which a node comes that was not refused before."""
        return self.boot * 3 // 2 + _RETRY + 2 * self.step

    def _change(self, at: int, wanted: tuple[int, int], runs: tuple[int, int]) -> None:
        more, joined = wanted[1] - wanted[0], runs[1] - runs[0]
        given_up = min(len(self.coming), max(0, -more - max(0, -joined)))
        for _ in range(given_up):
            is_late = at - self.coming[0][0] >= GIVEN_UP_AFTER
            since, is_ordered = self.coming.popleft() if is_late else self.coming.pop()
            if not is_ordered and at - since <= 2 * self.step:  # its replica fell one sample after the node
                self.losses.remove(since)
                self.removals.append(at)
                continue
            self.given_up.append(at)
            self._refuse(since, at, is_ordered)
        self.removals += [at] * (-more - given_up)
        lost = wanted[1] - runs[1] - len(self.coming) - max(0, more) if joined < 0 else 0
        self.losses += [at] * lost
        self.coming.extend([(at, False)] * lost)
        for _ in range(min(len(self.coming), joined)):
            self._join(*self.coming.popleft(), at)
        if more > 0:
            self.orders.append(Order(at, more, wanted[1]))
            self.coming.extend([(at, True)] * more)

    def _join(self, since: int, is_ordered: bool, at: int) -> None:
        if at - since > self.latest:
            began = at - self.boot + _ANSWER
            self._refuse(since, began - _RETRY, is_ordered)
            self.launches.append(Launch(self.zone, None, began, at))
        elif is_ordered:
            self.launches.append(Launch(self.zone, since, since + _ANSWER, at))

    def _refuse(self, since: int, last: int, is_ordered: bool) -> None:
        if not is_ordered and self.losses.count(since) < _SEVERAL:
            return  # a node that was not ready for long is like one that was lost, and nothing was refused
        self.refused.append((since + _ANSWER, max(since + _ANSWER, last)))


def usual_boot(groups: Sequence[tuple[Mapping[int, int], Mapping[int, int]]], step: int) -> int:
    """Return the seconds from an order to a node that the cloud delivers at once."""
    boots = sorted(
        launch.runs - launch.ordered
        for requested, running in groups
        for launch in Replicas("", _UNKNOWN_BOOT, step).read(requested, running).launches
        if launch.ordered is not None
    )
    if not boots:
        return 120
    # Many nodes may have come late. Those that did not are among the quickest ones.
    latest = Replicas("", boots[len(boots) // 10], step).latest
    return round(fmean(boot for boot in boots if boot <= latest))


def _levels(times: Sequence[int], nodes: Sequence[int]) -> Levels:
    changes = groupby(zip(times, nodes, strict=True), key=lambda sample: sample[1])
    return tuple(Level(next(samples)[0], number) for number, samples in changes)


def _at(times: Sequence[int], samples: Mapping[int, int]) -> list[int]:
    """Return the last sample at each time."""
    known = sorted(samples)
    places = (bisect_right(known, at) for at in times)
    return [samples[known[place - 1]] if place else 0 for place in places]


def _without_dips(times: Sequence[int], wanted: Sequence[int], runs: Sequence[int]) -> list[int]:
    """Return the nodes that run, where one that soon runs again has never stopped."""
    found = [*runs]
    for i in range(1, len(times)):
        before = min(found[i - 1], wanted[i])
        if found[i] >= before or wanted[i] < wanted[i - 1]:
            continue
        end = i
        while end < len(times) and times[end] - times[i] <= _REPLACED_WITHIN and found[end] < before:
            end += 1
        if end < len(times) and found[end] >= before:
            found[i:end] = [before] * (end - i)
    return found
