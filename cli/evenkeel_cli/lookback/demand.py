"""Rebuild how many nodes the pods of a pool needed, from what cluster-autoscaler ordered and removed.

An order shows the need: the nodes that run, those that come, and those of the order. A removed node was not needed for
ten minutes. Between an order that was refused and the next one, the need is assumed to stay.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from evenkeel_cli.lookback.history import GroupHistory, Level, Levels, Order, level_at
from evenkeel_cli.simulation.autoscaler_model import Flags

UNNEEDED = Flags.unneeded + 5  # seconds that a node was not needed before its removal, with half a loop
_SAMPLE = 60  # seconds between two samples, at most
_WAVE = 5  # seconds: increases of one loop follow each other
_NOTICED = 75  # seconds until the autoscaler has read a refusal, at the latest
_REFUSED_WITHIN, _REFUSED_LATE = 600, 60  # seconds after an order: at most, and still if another order follows
# Seconds after an order. If pods still need nodes, the autoscaler orders again within its longest backoff.
_SILENT = Flags.longest_backoff + 180


@dataclass(frozen=True)
class Wave:
    """The orders of one loop."""

    at: int
    end: int
    orders: tuple[tuple[GroupHistory, Order], ...]


@dataclass(frozen=True)
class Need:
    """The nodes that a pool's pods needed, and orders that only pods bound to a zone explain, as sentences."""

    levels: Levels
    bound: tuple[str, ...]
    bound_full: tuple[str, ...]  # those of them that filled their group: more pods may have waited
    balances: bool  # the autoscaler spreads an order over zones (--balance-similar-node-groups)


def need_of(groups: Sequence[GroupHistory], since: int, until: int) -> Need:
    """Return what a pool's pods needed between two seconds."""
    return _Reader(groups, since, until).read()


def waves_of(groups: Sequence[GroupHistory], since: int, until: int) -> list[Wave]:
    """Return the orders between two seconds, by loop of the autoscaler."""
    orders = sorted(
        ((order.at, group, order) for group in groups for order in group.orders if since <= order.at < until),
        key=lambda entry: (entry[0], entry[1].name),
    )
    waves: list[Wave] = []
    for at, group, order in orders:
        if waves and _are_together(waves[-1], group, at):
            waves[-1] = Wave(waves[-1].at, at, (*waves[-1].orders, (group, order)))
        else:
            waves.append(Wave(at, at, ((group, order),)))
    return waves


def _are_together(wave: Wave, group: GroupHistory, at: int) -> bool:
    """Return True if an order belongs to a wave. Two samples may share the orders of one loop."""
    if group.requested:
        return at - wave.at <= _SAMPLE and all(other is not group for other, _ in wave.orders)
    return at - wave.end <= _WAVE


def balances(groups: Sequence[GroupHistory]) -> bool:
    """Return True unless orders of several nodes each went to one group only, more than once."""
    waves = [wave for wave in waves_of(groups, 0, 2**62) if sum(order.nodes for _, order in wave.orders) > 1]
    return len(waves) < 3 or any(len(wave.orders) > 1 for wave in waves)


class _Reader:
    def __init__(self, groups: Sequence[GroupHistory], since: int, until: int) -> None:
        self._groups, self._since, self._until = groups, since, until
        self._refused = dict.fromkeys((group.name for group in groups), 0)  # when the last order was; 0: it was not
        self._balances = balances(groups)
        self._is_sampled = any(group.requested for group in groups)
        self._bound: list[str] = []
        self._bound_full: list[str] = []

    def read(self) -> Need:
        events: list[tuple[int, Wave | None]] = [(wave.at, wave) for wave in waves_of(self._groups, 0, self._until)]
        events += [(at - UNNEEDED, None) for group in self._groups for at in group.removals]
        events = sorted((event for event in events if self._since < event[0] < self._until), key=lambda event: event[0])
        need = self._needed(self._since)
        silent = _SILENT + (Flags.provision_timeout if self._is_sampled else 0)
        found = {self._since: need}
        for number, (at, wave) in enumerate(events):
            if wave is None:
                # Nodes that come may be given up soon, and then nothing shows that they were not needed.
                need = found[at] = min(need, self._needed(at, with_coming=not self._is_sampled))
                continue
            self._judge(wave)
            closed_at = self._closed_at(wave)
            shown, is_least = self._shown(wave)
            changed = max(need, shown) if is_least else shown
            when = at
            if closed_at is not None and changed != need:
                when = (closed_at + at) // 2
            need = found[max(when, max(found))] = changed
            following = events[number + 1][0] if number + 1 < len(events) else self._until
            if following - at > silent and need > self._needed(at + silent) and self._has_room(at + silent):
                need = found[at + silent // 2] = self._needed(at + silent)
        return Need(
            tuple(Level(at, nodes) for at, nodes in found.items()),
            tuple(self._bound),
            tuple(self._bound_full),
            self._balances,
        )

    def _needed(self, at: int, *, with_coming: bool = True) -> int:
        """Return the nodes that run or come at a second, without those that are removed ten minutes later."""
        removed = sum(
            bisect_right(group.removals, at + UNNEEDED) - bisect_right(group.removals, at) for group in self._groups
        )
        nodes = (has_or_gets(group, at) if with_coming else level_at(group.running, at) for group in self._groups)
        return sum(nodes) - removed

    def _has_room(self, at: int, *, only: Sequence[GroupHistory] | None = None) -> bool:
        groups = self._groups if only is None else only
        return any(has_or_gets(group, at) < group.bounds_at(at).max for group in groups)

    def _closed_at(self, wave: Wave) -> int | None:
        """Return since when no group could grow before a wave; None: one could, so the need has changed just then."""
        before = wave.at - 1
        refused = [(self._refused_at(group, before), group) for group in self._groups]
        if any(not at and self._has_room(before, only=[group]) for at, group in refused):
            return None
        return max(at for at, _ in refused) or None

    def _refused_at(self, group: GroupHistory, at: int) -> int:
        """Return when a group's last order was refused, as far as the autoscaler knows; 0: it was not."""
        if not group.requested:
            return self._refused[group.name]
        given_up = bisect_right(group.given_up, at)
        ordered = bisect_right(group.orders, at, key=attrgetter("at"))
        if not given_up or (ordered and group.orders[ordered - 1].at > group.given_up[given_up - 1]):
            return 0
        return group.given_up[given_up - 1]

    def _shown(self, wave: Wave) -> tuple[int, bool]:
        """Return the need that a wave shows, and True if pods may need more than that.

        They may if the wave fills its groups, or if the autoscaler still waits for nodes that are already refused.
        """
        is_unnoticed = any(0 <= wave.at - at <= _NOTICED for at in self._refused.values() if at)
        shown = self._needed(wave.end) - sum(self._in_backoff(group, wave.at) for group in self._groups)
        # The loop may have given these up before its orders, although a later sample shows it.
        shown -= sum(wave.end < at <= wave.end + _SAMPLE for group in self._groups for at in group.given_up)
        for group, order in wave.orders:
            # An autoscaler that gives orders up late still waits for refused nodes, and counts them as coming.
            self._refused[group.name] = 0 if group.requested else first_refusal(group, order) or 0
        is_full = all(order.total >= group.bounds_at(order.at).max for group, order in wave.orders)
        return shown, is_full or is_unnoticed

    def _in_backoff(self, group: GroupHistory, at: int) -> int:
        """Return the nodes that come in a group with a backoff. The autoscaler does not wait for them."""
        if not self._refused[group.name] or at - self._refused[group.name] > Flags.backoff:
            return 0
        return sum(at < launch.runs for launch in group.coming_at(at - 1))

    def _judge(self, wave: Wave) -> None:
        """Note a wave that passes over a group with room and fewer nodes."""
        if not self._balances:
            return
        ordered = {group.name for group, _ in wave.orders}
        others = [
            group
            for group in self._groups
            if group.name not in ordered
            and not self._refused_at(group, wave.at)
            and self._has_room(wave.at, only=[group])
        ]
        for group, order in wave.orders:
            emptier = [other for other in others if 0 < has_or_gets(other, wave.at) < order.total - 1]
            if not emptier:
                continue
            self._bound.append(
                f"{order.nodes} nodes were ordered in {group.name}, which then had {order.total}, although "
                f"{emptier[0].name} had {has_or_gets(emptier[0], wave.at)} and room"
            )
            if order.total >= group.bounds_at(order.at).max:
                self._bound_full.append(self._bound[-1])


def first_refusal(group: GroupHistory, order: Order) -> int | None:
    """Return when the first node of an order was refused; None: none was."""
    at = attrgetter("at")
    following = bisect_right(group.orders, order.at + _REFUSED_LATE, key=at)
    end = order.at + _REFUSED_WITHIN
    if following < len(group.orders):
        end = min(end, group.orders[following].at)
    place = bisect_left(group.refusals, order.at, key=at)
    return group.refusals[place].at if place < len(group.refusals) and group.refusals[place].at < end else None


def has_or_gets(group: GroupHistory, at: int) -> int:
    """Return the nodes of a group that run, or that come and are not known to be refused yet."""
    if group.requested:
        return level_at(group.requested, at)
    coming = len(group.coming_at(at))
    place = bisect_right(group.orders, at, key=attrgetter("at"))
    if place:
        last = group.orders[place - 1]
        refused = first_refusal(group, last)
        if refused is not None and (at < refused or at - last.at <= _WAVE):  # refused within the loop: not read yet
            coming += max(0, last.nodes - sum(launch.ordered == last.at for launch in group.coming_at(last.at)))
    return level_at(group.running, at) + coming


def waiting(need: Levels, running: Levels, since: int, until: int) -> int:
    """Return the node-seconds between two seconds that pods waited for."""
    times = sorted({since, *(level.at for level in (*need, *running) if since < level.at < until), until})
    return sum(
        max(0, level_at(need, start) - level_at(running, start)) * (end - start) for start, end in pairwise(times)
    )
