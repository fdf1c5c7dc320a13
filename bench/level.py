"""What level shrink gives and costs: peaks that build up during an outage and ebb away, with it and without.

``python -m bench.level`` prints the figures of docs/level.md.
"""

from evenkeel_cli.simulation.engine import Run, variants_of
from evenkeel_cli.simulation.measures import Measures, measure
from tests.unit.test_level import ebb

WORLDS = 60


def measured(seed: int, level: str) -> Measures:
    """One world, played to its end."""
    found = ebb(seed, level)
    (variant,) = variants_of(found, "own")
    return measure(Run(found, variant)())


def main() -> None:
    """Play all worlds twice."""
    pairs = [(measured(seed, "off"), measured(seed, "shrink")) for seed in range(WORLDS)]
    skews = [(before.skew_recovered or 0.0, after.skew_recovered or 0.0) for before, after in pairs]
    print(f"worlds {WORLDS}")
    print(f"more level {sum(after < before for before, after in skews)}, less {sum(b > a for a, b in skews)}")
    print(f"most gained {max(a - b for a, b in skews):.2f}, most lost {max(b - a for a, b in skews):.2f}")
    for name, place in (("without", 0), ("with", 1)):
        print(f"mean skew after recovery {name}: {sum(pair[place] for pair in skews) / WORLDS:.2f}")
    hours = [after.node_hours / before.node_hours for before, after in pairs]
    print(f"node-hours: {sum(hours) / WORLDS:.4f} of those without, at most {max(hours):.4f}")
    waited = sum(after.waiting_node_hours > before.waiting_node_hours for before, after in pairs)
    print(f"pods waited longer in {waited}")


if __name__ == "__main__":
    main()
