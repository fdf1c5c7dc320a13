"""What converge gives and costs where load comes and goes, whenever an outage ends.

``python -m bench.going_home [WORLDS]`` prints the figures of docs/level.md. The scenario that ships
ends its outage at one moment, and how long a zone then waits to be tried again is chance; so it is played with others.
"""

import random
import sys
from collections.abc import Iterator
from typing import Any

import yaml

from evenkeel_cli.simulation.engine import Run, variants_of
from evenkeel_cli.simulation.measures import Measures, measure
from evenkeel_cli.simulation.scenario import read_scenario
from sandbox.template import ROOT

WORLDS = 80
SHIPPED = ROOT / "scenarios" / "recovery-and-going-home.yaml"


def shipped() -> dict[str, Any]:
    """The scenario of docs/level.md."""
    found: dict[str, Any] = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    return found


def out(world: dict[str, Any], zone: int, start: int, end: int) -> dict[str, Any]:
    """The world with one of its zones out between two minutes, and no other."""
    zones = [{"name": each["name"]} for each in world["zones"]]
    capacity = [{"at": "0s"}, {"at": f"{start}m", "nodes": 0}, {"at": f"{end}m"}]
    zones[zone] = {**zones[zone], "capacity": capacity}
    return {**world, "zones": zones}


def moved_ends() -> Iterator[dict[str, Any]]:
    """The scenario that ships, with the end of its outage at every fifth minute of two hours."""
    for end in range(125, 245, 5):
        yield out(shipped(), 1, 60, end)


def drawn(seed: int) -> dict[str, Any]:
    """Eight hours like it, with another outage and another load."""
    chance = random.Random(seed)
    start = chance.randint(30, 120)
    world = out(shipped(), chance.randrange(3), start, start + chance.randint(60, 180))
    minute, nodes = 0, []
    while minute < 8 * 60:
        nodes.append({"at": f"{minute}m", "nodes": chance.randint(5, 20)})
        minute += chance.randint(25, 110)
    return {**world, "demand": [{"nodes": nodes}]}


def measured(world: dict[str, Any], level: str) -> Measures:
    """One world, played to its end."""
    pools = [{**pool, "level": level} for pool in world["pools"]]
    found = read_scenario({**world, "pools": pools}, SHIPPED.name)
    (variant,) = variants_of(found, "own")
    return measure(Run(found, variant)())


def show(name: str, worlds: list[dict[str, Any]]) -> None:
    """Means over the worlds, without converge and with it."""
    print(f"{name}: {len(worlds)} worlds")
    for level in ("off", "converge"):
        found = [measured(world, level) for world in worlds]
        skews = [each.skew_recovered or 0.0 for each in found]
        means = {
            "failed launches": sum(each.failed_launches for each in found) / len(found),
            "moved": sum(each.moved for each in found) / len(found),
            "waiting": sum(each.waiting_node_hours for each in found) / len(found),
            "node-hours": sum(each.node_hours for each in found) / len(found),
        }
        rest = ", ".join(f"{what} {value:.2f}" for what, value in means.items())
        print(f"  {level}: skew after recovery {sum(skews) / len(skews):.2f}, worst {max(skews):.2f}; {rest}")


def main(worlds: int = WORLDS) -> None:
    """Play all of them twice."""
    show("the outage that ships, ended at other moments", list(moved_ends()))
    show("drawn", [drawn(seed) for seed in range(worlds)])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
