"""Draw runs as a picture: nodes per zone, demand and fences. The same run results in the same bytes.

The colours are those of Okabe and Ito, which suit all kinds of colour vision (jfly.uni-koeln.de/color).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evenkeel_cli.simulation.engine import Record, Snapshot, fenced_spans
from evenkeel_cli.simulation.scenario import PoolSetup

_ZONES = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#CC79A7", "#0072B2", "#D55E00", "#999999")
_HOUR, _MINUTE = 3600, 60


def draw(records: Sequence[Record], file: Path) -> None:
    """Draw one panel per run and pool into a PNG or SVG. Raises OSError."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    scenario = records[0].scenario
    with matplotlib.rc_context({"svg.hashsalt": "evenkeel", "font.family": "DejaVu Sans", "font.size": 9}):
        rows, columns = len(records), len(scenario.pools)
        figure, panels = plt.subplots(
            rows, columns, figsize=(10 * columns, 1.2 + 2.6 * rows), sharex=True, squeeze=False, layout="constrained"
        )
        for record, row in zip(records, panels, strict=True):
            for pool, panel in zip(scenario.pools, row, strict=True):
                fenced = {zone for other in records for zone, _, _ in fenced_spans(other, [pool.name])}
                _draw_pool(panel, record, pool, sorted(fenced))
        for panel in panels[-1]:
            panel.set_xlabel(f"time since {scenario.start:%Y-%m-%d %H:%M} UTC ({_unit(scenario.duration)[1]})")
        figure.suptitle(scenario.name, fontsize=13, fontweight="bold")
        legend: dict[str, Any] = {}
        for panel in panels.flat:
            for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
                legend.setdefault(label, handle)
        figure.legend(list(legend.values()), list(legend), loc="outside lower center", ncols=min(5, len(legend)))
        kind = file.suffix.lower().lstrip(".")
        # Without these values, an SVG contains the date, and a PNG the version of matplotlib.
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        try:
            figure.savefig(file, format=kind, dpi=110, metadata=metadata)
        finally:
            plt.close(figure)


def _unit(duration: int) -> tuple[int, str]:
    return (_HOUR, "hours") if duration > 3 * _HOUR else (_MINUTE, "minutes")


def _wanted(snapshot: Snapshot, pool: PoolSetup) -> int:
    return snapshot.wanted(pool.name) if snapshot.pods is None else sum(snapshot.pods.waiting.values())


def _draw_pool(panel: Any, record: Record, pool: PoolSetup, lanes: Sequence[str]) -> None:
    scenario, snapshots = record.scenario, record.snapshots
    unit, _ = _unit(scenario.duration)
    times = [snapshot.at / unit for snapshot in snapshots] + [scenario.duration / unit]

    def line(numbers: Sequence[int]) -> list[int]:
        return [*numbers, numbers[-1]]

    names = [group.zone for group in snapshots[0].of_pool(pool.name)]
    colours = {zone.name: _ZONES[i % len(_ZONES)] for i, zone in enumerate(scenario.zones)}
    running = [line([snapshot.of_pool(pool.name)[i].running for snapshot in snapshots]) for i in range(len(names))]
    panel.stackplot(
        times,
        running,
        step="post",
        labels=[f"running in {name}" for name in names],
        colors=[colours[name] for name in names],
        edgecolor="white",
        linewidth=0.4,
    )
    requested = line([sum(group.requested for group in snapshot.of_pool(pool.name)) for snapshot in snapshots])
    demand = line([_wanted(snapshot, pool) for snapshot in snapshots])
    panel.step(times, requested, where="post", color="#555555", linewidth=1, linestyle=":", label="requested")
    label = "pods waiting" if scenario.pods else "demand"  # with pods, demand in nodes depends on the run
    panel.step(times, demand, where="post", color="black", linewidth=1.6, label=label)
    panel.axhline(pool.max, color="#D55E00", linewidth=1, linestyle="--", label="PoolMaximum")
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
    panel.yaxis.get_major_locator().set_params(integer=True)
    panel.yaxis.set_major_formatter(lambda value, _: "" if value < 0 else f"{value:g}")
    panel.set_ylabel("nodes")
    title = record.variant.name if len(scenario.pools) == 1 else f"{record.variant.name}: pool {pool.name}"
    panel.set_title(title, loc="left", fontsize=10)
    panel.grid(axis="x", color="#dddddd", linewidth=0.5)
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
