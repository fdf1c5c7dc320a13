"""`make demo`: a zone outage without and with Evenkeel, side by side.

Both clusters have the same pods, the same cluster-autoscaler and the same cloud. The deployed functions check only the
second one. Every figure comes from the clusters' objects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.text import Text

from sandbox.demo.stage import HEADING, LEGEND, NEXT, POOL, SHARE, SIDE, Act, Kind, Side, Stage, padded
from sandbox.kube.world import World

SPEED = 40  # simulated seconds in a second
MINUTES = 12  # simulated length of the demo
_NAME = "cluster-api"
_TITLES = ("WITHOUT EVENKEEL", "WITH EVENKEEL")
_ZONE = POOL.zones[0]


class SideBySide(Stage):
    """The stage with one cluster, and an equal one without Evenkeel."""

    loops_per_row = 3

    def __init__(self, console: Console, speed: float = SPEED) -> None:
        super().__init__({_NAME: Kind(folder=_NAME, pool=replace(POOL, replicas=(2, 2, 2)))}, console, speed)
        self.others = [self.build_world()]
        self.without, self.evenkeel = Side(self.others[0].clusters[_NAME]), self.sides[_NAME]
        self.sides = {"without": self.without, _NAME: self.evenkeel}

    def each(self, change: Callable[..., object], *arguments: Any) -> None:
        """Apply a change to both clusters."""
        for world in (*self.others, self.world):
            change(world, _NAME, *arguments)

    def print_heading(self) -> None:
        """Print the headings of both clusters."""
        self.print_row("minute  ", *(padded(Text(HEADING.format(title), "bold"), SIDE) for title in _TITLES))

    def print_state(self) -> None:
        """Print both clusters in a line."""
        cells = (cell for side in self.sides.values() for cell in side.cells())
        self.print_row(f"{self.clock.minutes:4.1f}    ", *cells)

    def print_result(self) -> None:
        """Print five lines: waiting pods, nodes, patches, PoolMaximum, and the next command."""
        self.print_row(" " * 16, *(padded(Text(title, "bold"), SIDE - 4) for title in _TITLES))
        labels = ("pods waited", "nodes", "patches", f"PoolMaximum {POOL.maximum}")
        for label, *texts in zip(labels, self.without.texts(), self.evenkeel.texts(), strict=True):
            self.print_row(label.ljust(16), *(padded(Text(text), SIDE - 4) for text in texts))
        self.print_row("next, read-only".ljust(16), Text(NEXT))


ACTS = (
    Act(
        0,
        f"Two equal clusters: a pool of {POOL.minimum} to {POOL.maximum} nodes over three zones, one pod per node, "
        f"and a cluster-autoscaler. Its owner allows {SHARE} nodes per zone, so that the pool never exceeds "
        f"{POOL.maximum}. With {POOL.maximum} per zone, cluster-autoscaler alone would grow in the other zones, too, "
        f"but nothing would hold the maximum: README.md has the times of both. {LEGEND}",
    ),
    Act(
        1,
        f"Zone {_ZONE[-1]} is out of machines. Running nodes stay.",
        (lambda demo: demo.each(World.exhaust_zone, _ZONE),),
    ),
    Act(
        1.5,
        "Load rises from 6 to 10 pods, which may run in any zone.",
        (lambda demo: demo.each(World.set_demand, POOL.name, 10),),
    ),
    Act(5, "Load rises to 11 pods.", (lambda demo: demo.each(World.set_demand, POOL.name, 11),)),
    Act(
        8.5,
        f"Zone {_ZONE[-1]} has machines again. Evenkeel probes a failed zone with one node.",
        (lambda demo: demo.each(World.restore_zone, _ZONE),),
    ),
    Act(
        10,
        f"Load rises to {POOL.maximum} pods, PoolMaximum.",
        (lambda demo: demo.each(World.set_demand, POOL.name, POOL.maximum),),
    ),
)


def main(console: Console) -> int:
    """Play the demo; return the exit code."""
    with SideBySide(console) as demo:
        return demo.play(ACTS, MINUTES)
