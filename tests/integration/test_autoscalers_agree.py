"""cluster-autoscaler next to the simulated Auto Scaling API, and in a simulated world: one model, equal results."""

from itertools import product

import pytest

from evenkeel_cli.simulation.engine import STATIC, Run, variants_of
from evenkeel_cli.simulation.scenario import read_scenario
from sandbox.auto_scaling.behavior import Behavior
from tests.integration.test_auto_scaling_outages import APPEAR, PODS, Outage, Result, play
from tests.timed import Who

_OUTAGES = [
    Outage(zones=zones, seconds=seconds, loop=loop, version=version)
    for (zones, seconds), loop, version in product([(1, 0), (2, 0), (3, 90)], (10, 30), ((1, 24), (1, 36)))
]


def simulated(outage: Outage) -> Result:
    """Play the outage as a scenario."""
    launch = f"{int(Behavior().launch.total_seconds())}s"
    ends = [{"at": f"{APPEAR + outage.seconds}s"}] if outage.seconds else []
    refusing = [{"at": "0s"}, {"at": f"{APPEAR}s", "nodes": 0}, *ends]
    scenario = read_scenario(
        {
            "name": "outage",
            "flavour": "auto-scaling",
            "duration": "20m",
            "zones": [
                {
                    "name": zone,
                    "answer": "0s",
                    "provision": launch,
                    "in_service": launch,
                    "capacity": refusing if number < outage.zones else [],
                }
                for number, zone in enumerate("abc")
            ],
            "pools": [{"name": "workers", "max": 12}],
            "demand": [{"nodes": [{"at": "0s", "nodes": 0}, {"at": f"{APPEAR}s", "nodes": PODS}]}],
            "autoscaler": {"loop": f"{outage.loop}s", "version": f"{outage.version[0]}.{outage.version[1]}"},
        },
        "outage.yaml",
    )
    (variant,) = variants_of(scenario, STATIC)
    nodes = [(shot.at, sum(group.running for group in shot.groups)) for shot in Run(scenario, variant)().snapshots]
    most = max(number for _, number in nodes)
    first = next(at for at, number in nodes if number == most)
    return Result(nodes=min(PODS, most), after=first - APPEAR, ended=0)


@pytest.mark.parametrize("outage", _OUTAGES, ids=str)
def test_the_same_nodes_run_after_the_same_time(outage: Outage) -> None:
    assert simulated(outage) == play(outage, Who.NOBODY, Behavior())
