"""Play the hours around outages without and with Evenkeel, and compare the first with what happened."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import fmean, median
from typing import Any

from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import State
from evenkeel.texts.english import rfc3339
from evenkeel_cli.lookback.activities import text_of
from evenkeel_cli.lookback.demand import Need, has_or_gets, need_of, waiting
from evenkeel_cli.lookback.history import GroupHistory, History, area, level_at, moment, total
from evenkeel_cli.lookback.outages import BEFORE, Outage, Window, nodes_in
from evenkeel_cli.simulation.autoscaler_model import Flags
from evenkeel_cli.simulation.engine import STATIC, GroupSnapshot, Record, Run, Snapshot, Variant, play, variants_of
from evenkeel_cli.simulation.history import refusal_of
from evenkeel_cli.simulation.measures import measure
from evenkeel_cli.simulation.scenario import Scenario, read_scenario, write_duration

WAITING_OFF, HOURS_OFF = 0.15, 0.03  # a replay that is further off explains nothing
_LITTLE, _SAME = 300, 0.15  # node-seconds and share of waiting that are no difference
_HOUR = 3600
# What is not known: the second in the autoscaler's interval of reads and, which matters to Evenkeel because it probes
# more often, when an outage ended.
_SHIFTS = (0, 20, 40)
_EARLIEST, _LIKELY, _LATEST = range(3)


@dataclass(frozen=True)
class Figures:
    """Node-seconds that pods waited for, and node-seconds that nodes ran."""

    waiting: int
    nodes: int


@dataclass(frozen=True)
class Answer:
    """What is known about a window: what happened, both replays, and why there is no verdict."""

    window: Window
    happened: Figures
    alone: tuple[Figures, ...] = ()
    evenkeel: tuple[Figures, ...] = ()
    missing: tuple[str, ...] = ()  # why there is no verdict, as sentences
    full: tuple[str, ...] = ()  # the pools whose pods needed all nodes that the maxima allow, and perhaps more
    records: tuple[Record, ...] = ()  # what happened, and one run with Evenkeel
    scenario: Mapping[str, Any] | None = None

    @property
    def usual(self) -> Figures:
        """Return the medians of the replays without Evenkeel."""
        return Figures(round(median(one.waiting for one in self.alone)), round(median(one.nodes for one in self.alone)))

    @property
    def verdict(self) -> str:
        """Return whether Evenkeel would have changed waiting: none, nothing, unsure or changed.

        It is unsure if it depends on what is unknown, such as when a quota had room again.
        """
        if self.missing:
            return "none"
        usual = self.usual.waiting
        same = [abs(one.waiting - usual) <= max(_LITTLE, _SAME * usual) for one in self.evenkeel]
        return "nothing" if all(same) else "unsure" if any(same) else "changed"


def answer(history: History, window: Window) -> Answer:
    """Play a window."""
    needs = {pool: need_of(history.of_pool(pool), window.since, window.until) for pool in window.pools}
    happened = _happened(history, window, needs)
    full = tuple(pool for pool, need in needs.items() if _is_full(history.of_pool(pool), need))
    missing = tuple(dict.fromkeys(_missing(history, window, needs)))
    if missing:
        return Answer(window, happened, missing=missing, full=full)
    documents = [scenario_document(history, window, needs, shift, _LIKELY) for shift in _SHIFTS]
    alone = tuple(_figures(_play(document, Variant(name=STATIC, evenkeel=False))) for document in documents)
    found = Answer(window, happened, alone=alone, full=full, scenario=documents[0])
    if off := tuple(_off(happened, found.usual)):
        return replace(found, missing=off)
    ends = [scenario_document(history, window, needs, 0, end) for end in (_EARLIEST, _LATEST)]
    runs = [_play(document, None) for document in ends]
    return replace(
        found,
        evenkeel=tuple(_figures(run) for run in runs),
        records=(_record_of(history, window, needs, runs[0].scenario), runs[0]),
    )


def unplayed(history: History, window: Window) -> Answer:
    """Return the answer about a window that would take too long to play."""
    needs = {pool: need_of(history.of_pool(pool), window.since, window.until) for pool in window.pools}
    hours = (window.until - window.since) // _HOUR
    missing = f"its {hours} hours are too many to play beside the others: choose fewer --days"
    return Answer(window, _happened(history, window, needs), missing=(missing,))


def _play(document: Mapping[str, Any], variant: Variant | None) -> Record:
    """Return a run of a scenario; ``variant`` None: with Evenkeel."""
    scenario = read_scenario(document, "lookback")
    return play(Run(scenario, variant or variants_of(scenario, "own")[0]))


def _happened(history: History, window: Window, needs: Mapping[str, Need]) -> Figures:
    waited = nodes = 0
    for pool, need in needs.items():
        running = total(group.running for group in history.of_pool(pool))
        waited += waiting(need.levels, running, window.since, window.until)
        nodes += area(running, window.since, window.until)
    return Figures(waited, nodes)


def _is_full(groups: Sequence[GroupHistory], need: Need) -> bool:
    """Return True if pods once needed all nodes that the maxima allow. What they needed above is unseen."""
    return any(level.nodes >= sum(group.bounds_at(level.at).max for group in groups) for level in need.levels)


def _missing(history: History, window: Window, needs: Mapping[str, Need]) -> Iterable[str]:
    """Yield why a window cannot be played."""
    if history.step > 60:
        yield f"samples are {history.step} s apart: query the metrics at a step of 60 s or less"
    if window.since < history.since:
        yield "it begins before the history does: print all pages of activities, or choose more --days"
    for pool, need in needs.items():
        for group in history.of_pool(pool):
            yield from (
                doubt.text for doubt in group.doubts if window.since < doubt.before and doubt.since < window.until
            )
            if len(group.zones) > 1:
                zones = ", ".join(group.zones)
                yield f"{group.name} spans {zones}, so Evenkeel writes no bounds: it changes nothing until you split it"
            if (stuck := _stuck_at(group, window)) is not None:
                yield (
                    f"refusals kept {group.name} below its minimum until {text_of(stuck)}: cluster-autoscaler then "
                    "orders nothing in any group (kubernetes/autoscaler#4760), so the need of pods is unseen"
                )
        if need.bound:
            yield f"pods of {pool} may be bound to a zone, or its zones are not balanced: {need.bound[0]}"


def _stuck_at(group: GroupHistory, window: Window) -> int | None:
    """Return a second until which refusals kept a group below its minimum for the provision timeout; None: none did."""
    found = None
    for refusal in group.refusals:
        since = refusal.at - Flags.provision_timeout
        nodes = [level.nodes for level in group.running if since < level.at <= refusal.at]
        nodes.append(level_at(group.running, since))
        if window.since <= refusal.at < window.until and max(nodes) < group.bounds_at(refusal.at).min:
            found = refusal.at
    return found


def _off(happened: Figures, usual: Figures) -> Iterable[str]:
    """Yield how far the replay without Evenkeel is from what happened, if that is too far."""
    if abs(usual.waiting - happened.waiting) > max(_LITTLE, WAITING_OFF * happened.waiting):
        yield (
            f"a replay without Evenkeel waits {usual.waiting / 60:.0f} node-minutes, {happened.waiting / 60:.0f} were "
            "seen: missing may be bound pods, former bounds, flags of the autoscaler, or another writer"
        )
    elif abs(usual.nodes - happened.nodes) > HOURS_OFF * happened.nodes:
        yield (
            f"a replay without Evenkeel has {usual.nodes / _HOUR:.1f} node-hours, {happened.nodes / _HOUR:.1f} were "
            "seen: missing may be pods that keep nodes, scale-down flags, or another writer"
        )


def _record_of(history: History, window: Window, needs: Mapping[str, Need], scenario: Scenario) -> Record:
    """Return what happened as a run, so that it can be drawn."""
    start = int(scenario.start.timestamp())
    groups = [group for pool in needs for group in history.of_pool(pool)]
    levels = [*(need.levels for need in needs.values()), *(group.running for group in groups)]
    times = {start, *(level.at for series in levels for level in series if start < level.at < window.until)}
    snapshots = tuple(
        Snapshot(
            at=at - start,
            demand={(pool, None): max(0, level_at(need.levels, at)) for pool, need in needs.items()},
            groups=tuple(
                GroupSnapshot(
                    name=group.name,
                    pool=group.pool,
                    zone=group.zones[0],
                    requested=has_or_gets(group, at),
                    running=level_at(group.running, at),
                    min=group.bounds_at(at).min,
                    max=group.bounds_at(at).max,
                    state=State.HEALTHY,
                    drained=0,
                )
                for group in sorted(groups, key=lambda group: group.zones)
            ),
            ordered=0,
            pods=None,
        )
        for at in sorted(times)
    )
    variant = Variant(name="what happened", evenkeel=False)
    return Record(
        scenario=scenario,
        variant=variant,
        snapshots=snapshots,
        decisions=(),
        failed_launches=sum(outage.refused for outage in window.outages),
        patches=0,
        moved=0,
    )


def _figures(record: Record) -> Figures:
    measures = measure(record)
    return Figures(round(measures.waiting_node_hours * _HOUR), round(measures.node_hours * _HOUR))


def scenario_document(
    history: History, window: Window, needs: Mapping[str, Need], shift: int, end: int
) -> Mapping[str, Any]:
    """Return the scenario of a window that begins ``shift`` seconds earlier. ``end``: the end of outages to assume."""
    start = window.since - shift
    zones = sorted({zone for pool in needs for group in history.of_pool(pool) for zone in group.zones})
    return {
        "name": f"{history.source} {moment(start):%Y-%m-%d %H:%M}"[:100],
        "flavour": history.flavour,
        "start": rfc3339(moment(start)),
        "duration": write_duration(window.until - start),
        "seed": shift + 1,
        "zones": [_zone(history, window, zone) for zone in zones],
        "quota": {"nodes": _limits(_quota(history, window), start, end), "failure": refusal_of(FailureClass.QUOTA)},
        "pools": [_pool(history, window, pool, start, end) for pool in needs],
        "demand": [{"pool": pool, "nodes": _steps(need, start)} for pool, need in needs.items()],
        "lost": [
            {"at": write_duration(at - start), "pool": pool, "zone": group.zones[0]}
            for pool in needs
            for group in history.of_pool(pool)
            for at in group.losses
            if start < at < window.until
        ],
        "autoscaler": {"balance": all(need.balances for need in needs.values())},
    }


def _quota(history: History, window: Window) -> list[Outage]:
    """Return the outages of the Region's quota, which the pools share. Those that overlap are one."""
    groups = [group for pool in window.pools for group in history.of_pool(pool)]
    found: list[Outage] = []
    for outage in window.outages:
        if outage.zone:
            continue
        limits = {at: nodes_in(groups, "", at) for at, _ in outage.limits}
        since = outage.since
        if found and since <= found[-1].last:
            before = found.pop()
            limits |= dict(before.limits)
            since, outage = before.since, max(before, outage, key=lambda one: one.last)
        found.append(replace(outage, since=since, limits=tuple(sorted(limits.items()))))
    return found


def _zone(history: History, window: Window, zone: str) -> dict[str, Any]:
    """Return a zone with the times that its launches took."""
    kinds = [outage.kind for outage in window.outages if outage.zone == zone]
    every = [launch for group in history.groups for launch in group.launches if launch.ordered is not None]
    launches = [launch for launch in every if launch.zone == zone] or every
    waits = [launch.began - launch.ordered for launch in launches if launch.ordered is not None] or [15]
    boots = sorted(launch.runs - launch.began for launch in launches) or [60]
    least = boots[len(boots) // 20]
    return {
        "name": zone,
        "answer": write_duration(round(fmean(waits))),
        "provision": write_duration(least),
        "in_service": write_duration(least),
        "jitter": write_duration(max(0, round(2 * (fmean(boots) - least)))),
        "failure": refusal_of(kinds[0] if kinds else FailureClass.CAPACITY),
    }


def _pool(history: History, window: Window, name: str, start: int, end: int) -> dict[str, Any]:
    groups = history.of_pool(name)
    bounds, first, capacity = {}, {}, {}
    for zone in sorted({zone for group in groups for zone in group.zones}):
        members = [group for group in groups if zone in group.zones]
        bounds[zone] = _bounds(members, window)
        first[zone] = sum(level_at(group.running, start) for group in members)
        outages = [outage for outage in window.outages if (outage.pool, outage.zone) == (name, zone)]
        capacity[zone] = _limits(outages, start, end)
    return {
        "name": name,
        "min": sum(least for least, _ in bounds.values()),
        "max": sum(most for _, most in bounds.values()),
        "bounds": {zone: {"min": least, "max": most} for zone, (least, most) in bounds.items()},
        "zones": sorted(bounds),
        "start_in_zone": first,
        "capacity": {zone: limits for zone, limits in capacity.items() if limits},
    }


def _bounds(groups: Sequence[GroupHistory], window: Window) -> tuple[int, int]:
    """Return the bounds of a zone. Nodes that ran show that they were wider than they are now."""
    least = most = 0
    for group in groups:
        known = group.bounds_at(window.since)
        ran = [level.nodes for level in group.running if window.since <= level.at < window.until]
        ran.append(level_at(group.running, window.since))
        ordered = [order.total for order in group.orders if window.since <= order.at < window.until]
        least += min(known.min, *ran)
        most += max(known.max, *ran, *ordered)
    return least, most


def _limits(outages: Sequence[Outage], start: int, end: int) -> list[dict[str, Any]]:
    """Return the machines that a zone has: those that existed at a refusal, until the outage ends."""
    limits: dict[int, int | None] = {}
    for outage in outages:
        before, left = outage.since - BEFORE, outage.limits[0][1]
        for at, nodes in outage.limits:
            # A zone that refused before and after a node was lost would have refused in between, too.
            limits[max(0, (before if nodes <= left else at) - start)] = nodes
            before, left = at + 1, nodes
        if (until := outage.ends[end]) is not None:
            limits[until - start] = None
    found: list[dict[str, Any]] = []
    for at, most in sorted(limits.items()):
        if not found or found[-1].get("nodes") != most:
            found.append({"at": write_duration(at), **({} if most is None else {"nodes": most})})
    return found


def _steps(need: Need, start: int) -> list[dict[str, Any]]:
    changes = [next(same) for _, same in groupby(need.levels, key=lambda level: level.nodes)]
    times = [0, *(level.at - start for level in changes[1:])]
    return [{"at": write_duration(at), "nodes": max(0, level.nodes)} for at, level in zip(times, changes, strict=True)]
