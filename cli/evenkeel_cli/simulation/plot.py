"""Draw runs as a picture: nodes per zone, outages, unmet demand and fences. The same runs result in the same bytes.

The colours of zones are those of Okabe and Ito, which suit all kinds of colour vision (jfly.uni-koeln.de/color).
"""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from math import inf
from pathlib import Path
from typing import Any

from evenkeel_cli.simulation.engine import LOOSE, STATIC, Record, Snapshot, fenced_spans
from evenkeel_cli.simulation.measures import measure, served
from evenkeel_cli.simulation.scenario import PoolSetup, Scenario, spans_where, write_duration

_ZONES = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#CC79A7", "#0072B2", "#999999")
_WARNING = "#B2182B"  # darker than the colour of each zone that it can touch
_HOUR, _MINUTE = 3600, 60
_BASELINES = {STATIC: "static: each max is a share", LOOSE: "loose: each max is the pool's"}


def draw(records: Sequence[Record], file: Path) -> None:
    """Draw one panel per distinct run and pool into a PNG or SVG. Raises OSError."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    scenario, runs = records[0].scenario, _folded(records)
    with matplotlib.rc_context({"svg.hashsalt": "evenkeel", "font.family": "DejaVu Sans", "font.size": 9}):
        rows, columns = len(runs), len(scenario.pools)
        figure, panels = plt.subplots(
            rows, columns, figsize=(10 * columns, 1.2 + 2.6 * rows), sharex=True, squeeze=False, layout="constrained"
        )
        for run, row in zip(runs, panels, strict=True):
            for pool, panel in zip(scenario.pools, row, strict=True):
                fenced = {zone for record in records for zone, _, _ in fenced_spans(record, [pool.name])}
                _draw_pool(panel, run[0], pool, sorted(fenced))
                panel.set_title(_title(run, pool), loc="left", fontsize=10)
        for panel in panels[-1]:
            panel.set_xlabel(f"time since {scenario.start:%Y-%m-%d %H:%M} UTC ({_unit(scenario.duration)[1]})")
        figure.suptitle(scenario.name, fontsize=13, fontweight="bold")
        legend: dict[str, Any] = {}
        for panel in panels.flat:
            for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
                legend.setdefault(label, handle)
        figure.legend(list(legend.values()), list(legend), loc="outside lower center", ncols=min(4, len(legend)))
        kind = file.suffix.lower().lstrip(".")
        # Without these values, an SVG contains the date, and a PNG the version of matplotlib.
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        try:
            figure.savefig(file, format=kind, dpi=110, metadata=metadata)
        finally:
            plt.close(figure)


def _folded(records: Sequence[Record]) -> list[list[Record]]:
    """Return the runs, those that differ in nothing that is drawn together."""
    runs: dict[Any, list[Record]] = {}
    for record in records:
        states = (
            (snapshot.at, tuple((group.requested, group.running, group.drained) for group in snapshot.groups))
            for snapshot in record.snapshots
        )
        changes = tuple(next(same) for _, same in groupby(states, key=lambda state: state[1]))
        fences = tuple(fenced_spans(record, [pool.name for pool in record.scenario.pools]))
        figures = tuple(_figures(record, pool) for pool in record.scenario.pools)
        runs.setdefault((record.variant.evenkeel, changes, fences, figures), []).append(record)
    return list(runs.values())


def _title(run: Sequence[Record], pool: PoolSetup) -> str:
    who = "Evenkeel" if run[0].variant.evenkeel else "cluster-autoscaler alone"
    names = ", ".join(dict.fromkeys(_BASELINES.get(record.variant.name, record.variant.name) for record in run))
    where = f", pool {pool.name}" if len(run[0].scenario.pools) > 1 else ""
    title, figures = f"{who} ({names}){where}:", _figures(run[0], pool)
    return f"{title} {figures}" if len(title) <= 60 else f"{textwrap.fill(title, 110)}\n{figures}"


def _figures(record: Record, pool: PoolSetup) -> str:
    """Return the measures of one pool: the longest wait for nodes, the mean skew, and node-hours."""
    scenario = record.scenario
    demand = tuple(entry for entry in scenario.demand if scenario.pool_named(entry.pool) == pool)
    snapshots = tuple(
        replace(
            snapshot,
            groups=tuple(snapshot.of_pool(pool.name)),
            demand={key: nodes for key, nodes in snapshot.demand.items() if key[0] == pool.name},
        )
        for snapshot in record.snapshots
    )
    alone = scenario.model_copy(update={"pools": (pool,), "demand": demand})
    measures = measure(replace(record, scenario=alone, snapshots=snapshots))
    wait = "never met" if measures.unmet else write_duration(measures.worst_seconds or 0)
    return f"wait {wait}, skew {measures.skew_mean:.2f}, {measures.node_hours:.1f} nodes·h"


def _unit(duration: int) -> tuple[int, str]:
    return (_HOUR, "hours") if duration > 3 * _HOUR else (_MINUTE, "minutes")


def outages(
    scenario: Scenario, zones: Sequence[str], pool: PoolSetup | None = None
) -> Iterator[tuple[str, str, int, int]]:
    """Yield (label, zone, from, until) of each span with no machines, or with fewer than at another time of the run."""

    limited = [(f"of {zone.name}", zone.name, zone.capacity) for zone in scenario.zones if zone.name in zones]
    limited += [(f"of {zone}", zone, steps) for zone, steps in (pool.capacity if pool else {}).items()]
    for name, zone, steps in [*limited, ("of the region", "", scenario.quota.nodes)]:
        limits = {0: inf} | {step.at: inf if step.nodes is None else step.nodes for step in steps}
        most = max(limits.values())
        for start, until in spans_where(((at, limit == 0) for at, limit in limits.items()), scenario.duration):
            yield f"outage {name}", zone, start, until
        for start, until in spans_where(((at, 0 < limit < most) for at, limit in limits.items()), scenario.duration):
            yield f"limit {name}", zone, start, until


def _waiting(snapshot: Snapshot, pool: PoolSetup) -> int:
    """Return the nodes that a pool's pods wait for."""
    return sum(
        nodes - served(snapshot, name, zone) for (name, zone), nodes in snapshot.demand.items() if name == pool.name
    )


def _draw_pool(panel: Any, record: Record, pool: PoolSetup, lanes: Sequence[str]) -> None:
    scenario, snapshots = record.scenario, record.snapshots
    unit, _ = _unit(scenario.duration)
    times = [snapshot.at / unit for snapshot in snapshots] + [scenario.duration / unit]

    def line(numbers: Sequence[int]) -> list[int]:
        return [*numbers, numbers[-1]]

    names = [group.zone for group in snapshots[0].of_pool(pool.name)]
    colours = {zone.name: _ZONES[i % len(_ZONES)] for i, zone in enumerate(scenario.zones)}
    for label, zone, start, until in outages(scenario, names, pool):
        panel.axvspan(
            start / unit, until / unit, color=colours.get(zone, "black"), alpha=0.18, linewidth=0, label=label
        )
    running = [line([snapshot.of_pool(pool.name)[i].running for snapshot in snapshots]) for i in range(len(names))]
    labels = [f"running in {name}" for name in names]
    looks = {"step": "post", "edgecolor": "white", "linewidth": 0.4}
    panel.stackplot(times, running, labels=labels, colors=[colours[name] for name in names], **looks)
    requested = line([sum(group.requested for group in snapshot.of_pool(pool.name)) for snapshot in snapshots])
    panel.step(times, requested, where="post", color="#555555", linewidth=1, linestyle=":", label="requested")
    demand = _draw_demand(panel, times, snapshots, pool)
    panel.axhline(pool.max, color="black", linewidth=1, linestyle="--", label="PoolMaximum")
    top = max(pool.max, *requested, *demand) * 1.12 + 0.5
    lane = top * 0.06
    for zone, start, until in fenced_spans(record, [pool.name]):
        panel.broken_barh(
            [(start / unit, (until - start) / unit)],
            (-lane * (lanes.index(zone) + 1), lane * 0.8),
            facecolor=colours[zone],
            edgecolor="black",
            hatch="////",
            linewidth=0.5,
            label=f"{zone} fenced",
        )
    panel.axhline(0, color="black", linewidth=0.6)
    panel.set_ylim(-lane * (len(lanes) + 0.2) * bool(lanes), top)
    panel.set_xlim(0, scenario.duration / unit)
    _draw_axes(panel, "nodes and pods" if scenario.pods else "nodes")


def _draw_demand(panel: Any, times: Sequence[float], snapshots: Sequence[Snapshot], pool: PoolSetup) -> list[int]:
    """Draw the demand and fill the unmet part. Return the demand, which may be the highest line of the panel."""
    if snapshots[0].pods is None:
        lower = [sum(group.running for group in snapshot.of_pool(pool.name)) for snapshot in snapshots]
        unmet = [_waiting(snapshot, pool) for snapshot in snapshots]
        demand = [snapshot.wanted(pool.name) for snapshot in snapshots]
        label = "unmet demand: pods wait"
        panel.step(times, [*demand, demand[-1]], where="post", color="black", linewidth=1.6, label="demand")
    else:  # with pods, demand in nodes depends on the run
        lower = [0] * len(snapshots)
        demand = unmet = [sum(snapshot.pods.waiting.values()) if snapshot.pods else 0 for snapshot in snapshots]
        label = "pods waiting"
    upper = [nodes + more for nodes, more in zip(lower, unmet, strict=True)]
    span = [*lower, lower[-1]], [*upper, upper[-1]]
    panel.fill_between(times, *span, step="post", color=_WARNING, linewidth=0, label=label)
    return demand


def _draw_axes(panel: Any, counted: str) -> None:
    panel.yaxis.get_major_locator().set_params(integer=True)
    panel.yaxis.set_major_formatter(lambda value, _: "" if value < 0 else f"{value:g}")
    panel.set_ylabel(counted)
    panel.grid(axis="x", color="#dddddd", linewidth=0.5)
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
