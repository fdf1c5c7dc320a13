"""cluster-autoscaler alone with simulated Auto Scaling groups, any refusals of zones and any demand."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel_cli.simulation.engine import LOOSE, Run, play, variants_of
from evenkeel_cli.simulation.scenario import Scenario, read_scenario

ZONES = "abc"
HOUR = 3600
ANSWER, RETRY, IN_SERVICE, REFRESH = 5, 60, 32, 60  # seconds
VERSIONS = ("1.24", "1.29", "1.35", "1.37")


@dataclass
class Watched:
    """The machines of the groups before each second with an event: their numbers -> whether they have launched."""

    run: Run
    seconds: list[int] = field(default_factory=list)
    machines: list[tuple[dict[int, bool], ...]] = field(default_factory=list)

    def note(self, second: int) -> bool:
        self.seconds.append(second)
        groups = self.run.world.groups
        self.machines.append(tuple({one.number: one.launched for one in group.machines} for group in groups))
        return False


@st.composite
def outages(draw: st.DrawFn) -> Scenario:
    """Draw a scenario: up to two zones refuse launches for a while or for ever, and demand rises and falls."""
    failing = draw(st.sets(st.sampled_from(ZONES), max_size=2))
    zones: list[dict[str, Any]] = []
    for name in ZONES:
        zone: dict[str, Any] = {"name": name, "provision": f"{draw(st.sampled_from((40, 90, 200)))}s"}
        if name in failing:
            left, since = draw(st.integers(0, 3)), draw(st.integers(1, 1200))
            ends = [{"at": f"{since + draw(st.integers(300, 4000))}s"}] if draw(st.booleans()) else []
            zone["capacity"] = [{"at": "0s"}, {"at": f"{since}s", "nodes": left}, *ends]
        zones.append(zone)
    steps = draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
    return read_scenario(
        {
            "name": "outage",
            "flavour": "auto-scaling",
            "duration": "2h",
            "seed": draw(st.integers(0, 99)),
            "zones": zones,
            "pools": [{"name": "workers", "max": 12}],
            "demand": [{"nodes": [{"at": f"{number * 25}m", "nodes": nodes} for number, nodes in enumerate(steps)]}],
            "autoscaler": {
                "version": draw(st.sampled_from(VERSIONS)),
                "read_age": f"{draw(st.sampled_from((0, 30)))}s",
                "loop": f"{draw(st.sampled_from((10, 30)))}s",
                "balance": draw(st.booleans()),
            },
        },
        "outage.yaml",
    )


def watch(found: Scenario) -> Watched:
    (variant,) = variants_of(found, LOOSE)
    watched = Watched(Run(found, variant))
    play(watched.run, is_over=watched.note)
    return watched


@settings(max_examples=60)
@given(outages())
def test_a_group_that_gave_up_refused_launches_gets_no_order_for_five_minutes_and_then_for_twice_as_long(
    found: Scenario,
) -> None:
    watched = watch(found)
    for group in range(len(ZONES)):
        given_up, length, is_asked = -HOUR, 150, True
        for i, second in enumerate(watched.seconds[:-1]):
            before, after = watched.machines[i][group], watched.machines[i + 1][group]
            if any(not launched and number not in after for number, launched in before.items()):
                length = min(2 * length, 1800) if is_asked else length
                given_up, is_asked = second, False
            if after.keys() - before.keys():
                assert second - given_up > length, (group, second)
                is_asked = True


@settings(max_examples=60)
@given(outages())
def test_placeholders_are_given_back_once_their_refusal_can_be_seen(found: Scenario) -> None:
    watched = watch(found)
    setup = found.autoscaler
    # An order that another order follows is refused again. Launches in progress hide refusals until they are in
    # service.
    longest = ANSWER + RETRY + IN_SERVICE + setup.read_age + 2 * (REFRESH + setup.loop)
    for group in range(len(ZONES)):
        since = 0
        for i, second in enumerate(watched.seconds):
            machines = watched.machines[i][group]
            if all(machines.values()) or (i and machines.keys() - watched.machines[i - 1][group].keys()):
                since = second
            assert second - since <= longest, (group, second)


@settings(max_examples=60)
@given(outages())
def test_the_other_groups_get_the_orders_and_at_the_end_every_pod_has_a_node(found: Scenario) -> None:
    watched = watch(found)
    assert sum(group.running for group in watched.run.world.groups) >= watched.run.world.wanted("workers")


@given(outages())
@settings(max_examples=20)
def test_equal_scenarios_give_equal_runs(found: Scenario) -> None:
    assert watch(found).machines == watch(found).machines
