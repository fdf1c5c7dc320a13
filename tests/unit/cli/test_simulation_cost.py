"""The work of a simulation: it is counted, because time depends on the machine."""

from collections.abc import Callable
from typing import Any

import pytest

from bench.forecast import forecast
from evenkeel_cli.simulation.engine import Run, variants_of
from evenkeel_cli.simulation.evenkeel import Evenkeel
from evenkeel_cli.simulation.scenario import read_scenario
from evenkeel_cli.simulation.scheduling import NodeInfo


@pytest.fixture
def calls_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[type, str], list[object]]:
    """Return a function that returns the list to which each call of a method is added."""

    def watch(owner: type, name: str) -> list[object]:
        calls: list[object] = []
        original = getattr(owner, name)

        def counted(self: object, *args: Any) -> Any:
            calls.append(self)
            return original(self, *args)

        monkeypatch.setattr(owner, name, counted)
        return calls

    return watch


def test_a_quiet_day_is_checked_every_quarter_of_an_hour(calls_of: Callable[[type, str], list[object]]) -> None:
    given = {
        "name": "quiet",
        "duration": "1d",
        "zones": [{"name": name} for name in "abc"],
        "pools": [{"name": "workers", "min": 3, "max": 12, "start": 3}],
        "demand": [{"nodes": 3}],
    }
    checks = calls_of(Evenkeel, "check")
    found = read_scenario(given, "test.yaml")
    (variant,) = variants_of(found, "own")
    Run(found, variant)()
    assert len(checks) <= 4 * 24 + 4  # at first, a check and its follow-up checks


def test_loops_with_pending_pods_copy_no_node(calls_of: Callable[[type, str], list[object]]) -> None:
    copies = calls_of(NodeInfo, "copy")
    groups, nodes = 18, 60
    list(forecast((groups,)))
    # Only scale-down copies nodes, in at most eleven loops after the last order. A larger cluster has more loops with
    # pending pods, so that copies in these would grow with the square of the groups.
    assert len(copies) <= 11 * (nodes + groups)
