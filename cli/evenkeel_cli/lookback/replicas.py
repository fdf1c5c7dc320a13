"""Read what samples of a group's replicas tell: requested ones, and those that run.

A rise of the requested replicas is an order. If they fall while as many nodes are missing, the autoscaler has given the
order up. Each time is that of the first sample that shows a change, so all times are late by the same half of a step.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evenkeel_cli.lookback.history import Launch, Level, Levels, Order

ANSWER = 5  # seconds from an order to the cloud's answer; no metric tells them
_REPLACED_WITHIN = 600  # seconds; nodes that run again sooner were replaced, or not ready for a while
_RETRY = 60  # seconds between two attempts of a machine controller
_GIVEN_UP_AFTER = 840  # seconds; a fall after them is about the oldest nodes that come, any other about the newest


@dataclass
class Replicas:
    """What the samples of a group show, in order of time."""

    requested: Levels = ()
    running: Levels = ()
    orders: list[Order] = field(default_factory=list)
    removals: list[int] = field(default_factory=list)
    losses: list[int] = field(default_factory=list)
    given_up: list[int] = field(default_factory=list)
    refused: list[tuple[int, int]] = field(default_factory=list)  # when a node was refused first and last
    launches: list[Launch] = field(default_factory=list)


def read_replicas(requested: Mapping[int, int], running: Mapping[int, int], zone: str, boot: int, step: int) -> Replicas:
    """Return what samples show. ``boot``: seconds from an order to its node, if the cloud delivers at once."""
    times = sorted(requested)
    wanted = [requested[at] for at in times]
    runs = _without_dips(times, wanted, _filled(times, running))
    found = Replicas(requested=_levels(times, wanted), running=_levels(times, runs))
    waiting: deque[tuple[int, bool]] = deque()  # nodes that come: since when, and True if the autoscaler ordered them
    for i in range(1, len(times)):
        at, more, joined = times[i], wanted[i] - wanted[i - 1], runs[i] - runs[i - 1]
        if more < 0:
            _fall(found, waiting, at, -more, -min(0, joined))
        for _ in range(-joined if joined < 0 and runs[i] < wanted[i] else 0):
            if len(waiting) + runs[i] < wanted[i]:
                found.losses.append(at)
                waiting.append((at, False))
        for _ in range(min(len(waiting), max(0, joined))):
            _join(found, *waiting.popleft(), at, zone, boot, step)
        if more > 0:
            found.orders.append(Order(at, more, wanted[i]))
            waiting.extend([(at, True)] * more)
    for since, _ in waiting:
        if times[-1] - since > boot + _RETRY + 2 * step:
            found.refused.append((since, times[-1]))
    found.launches.sort(key=lambda launch: launch.began)
    found.refused.sort()
    return found


def usual_boot(groups: Sequence[tuple[Mapping[int, int], Mapping[int, int]]], known: Sequence[int]) -> int:
    """Return how long a node takes that the cloud delivers at once: a known median, or a quick one of the samples."""
    if known:
        return sorted(known)[len(known) // 2]
    boots = sorted(
        launch.runs - launch.ordered
        for requested, running in groups
        for launch in read_replicas(requested, running, "", 2**31, 0).launches
        if launch.ordered is not None
    )
    return boots[len(boots) // 10] if boots else 120


def _levels(times: Sequence[int], nodes: Sequence[int]) -> Levels:
    return tuple(
        Level(at, number)
        for i, (at, number) in enumerate(zip(times, nodes, strict=True))
        if i == 0 or number != nodes[i - 1]
    )


def _filled(times: Sequence[int], samples: Mapping[int, int]) -> list[int]:
    """Return a number for each time. A missing sample is like the one before it."""
    found: list[int] = []
    for at in times:
        found.append(samples.get(at, found[-1] if found else 0))
    return found


def _without_dips(times: Sequence[int], wanted: Sequence[int], runs: Sequence[int]) -> list[int]:
    """Return the nodes that run, where one that soon runs again has never stopped."""
    found = [*runs]
    for i in range(1, len(times)):
        lost = min(found[i - 1], wanted[i]) - found[i]
        if lost <= 0 or wanted[i] < wanted[i - 1]:
            continue
        end = i
        while end < len(times) and times[end] - times[i] <= _REPLACED_WITHIN and found[end] < found[i] + lost:
            end += 1
        if end < len(times) and found[end] >= found[i] + lost and wanted[end] >= found[i] + lost:
            found[i:end] = [max(nodes, found[i - 1]) for nodes in found[i:end]]
    return found


def _fall(found: Replicas, waiting: deque[tuple[int, bool]], at: int, fewer: int, stopped: int) -> None:
    """Note that the autoscaler has taken nodes back: those that came, or those that ran."""
    given_up = min(len(waiting), max(0, fewer - stopped))
    for _ in range(given_up):
        is_old = at - waiting[0][0] >= _GIVEN_UP_AFTER
        since, _ordered = waiting.popleft() if is_old else waiting.pop()
        if at - since > 2 * _RETRY:  # a node that is taken back at once was no longer needed
            found.refused.append((since, at))
            found.given_up.append(at)
    found.removals += [at] * (fewer - given_up)


def _join(
    found: Replicas, since: int, is_ordered: bool, at: int, zone: str, boot: int, step: int
) -> None:
    began = at - boot + ANSWER
    if at - since <= 2 * boot + _RETRY + 2 * step:
        if is_ordered:
            found.launches.append(Launch(zone, since, since + ANSWER, at))
    else:
        found.refused.append((since, max(since, began - _RETRY)))
        found.launches.append(Launch(zone, None, began, at))
