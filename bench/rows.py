"""The shape of every bench, and the one way to print and keep its figures.

A bench is a generator. It yields rows, a figure's name with a value for each unit, and a text where a new table begins.
A list of samples prints as median (least-most), and its median is kept.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandbox.template import ROOT, Template

FILE = ROOT / "build" / "figures.json"
Value = float | str | Sequence[float]
Rows = Iterator[str | tuple[str, Mapping[str, Value]]]
_WHOLE_PROCESSOR = 1769  # MB of memory for which Lambda gives a whole processor


def share_of(function: str) -> float:
    """Return the share of a processor that a function of the template has. Python uses one processor at most."""
    return min(1.0, Template().functions()[function].memory / _WHOLE_PROCESSOR)


def peak() -> float:
    """Return the most memory that this process has had, in MiB. ``ru_maxrss`` begins with that of its parent."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def number(value: float) -> str:
    """Return a number with three digits, or as many as its whole part has."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def text(value: Value) -> str:
    """Return a cell: the value, or of samples median (least-most)."""
    if isinstance(value, str):
        return value
    if not isinstance(value, Sequence):
        return number(value)
    if len(value) < 2:
        return number(value[0]) if value else "-"
    return f"{number(statistics.median(value))} ({number(min(value))}-{number(max(value))})"


def print_rows(rows: Rows) -> dict[str, dict[str, float]]:
    """Print Markdown tables row by row, and return the figures in numbers."""
    title, columns = "figure", None
    figures: dict[str, dict[str, float]] = {}
    for row in rows:
        if isinstance(row, str):
            title, columns = row, None
            continue
        name, values = row
        if list(values) != columns:
            columns = list(values)
            print(f"\n| {' | '.join([title, *columns])} |\n|--|{'--|' * len(columns)}")
        print(f"| {' | '.join([name, *map(text, values.values())])} |", flush=True)
        kept = {unit: value for unit, value in values.items() if not isinstance(value, str)}
        medians = {unit: statistics.median(v) if isinstance(v, Sequence) else v for unit, v in kept.items() if v != []}
        figures.setdefault(name, {}).update(medians)
    return figures


def read() -> dict[str, Any]:
    """Return all kept figures, by the names of their rows."""
    figures: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return figures


def keep(figures: Mapping[str, Mapping[str, float]]) -> None:
    """Add figures to those in build/figures.json."""
    kept = read()
    for name, values in figures.items():
        kept.setdefault(name, {}).update(values)
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


class Samples(dict[str, dict[str, list[float]]]):
    """Rows of samples."""

    def add(self, name: str, **values: float) -> None:
        """Add one sample of each unit to a row."""
        for unit, value in values.items():
            self.setdefault(name, {}).setdefault(unit, []).append(value)


class Timer:
    """Seconds of a block: ``cpu`` of this process, and ``wall``."""

    cpu = wall = 0.0


@contextmanager
def timed() -> Iterator[Timer]:
    """Measure a block."""
    timer, cpu, wall = Timer(), time.process_time(), time.perf_counter()
    yield timer
    timer.cpu, timer.wall = time.process_time() - cpu, time.perf_counter() - wall
