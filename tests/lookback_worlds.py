"""Weeks of a cluster on simulated Auto Scaling groups with cluster-autoscaler alone, and the true demand."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

from evenkeel.domain.rebalancing.bounds.distribute import distribute_over_zones
from evenkeel_cli.simulation.scenario import Scenario, read_scenario, write_duration
from evenkeel_cli.simulation.world import limit_at
from sandbox.auto_scaling.api import AutoScaling
from sandbox.auto_scaling.autoscaler import AwsAutoscaler
from sandbox.auto_scaling.behavior import Behavior
from sandbox.auto_scaling.clock import VirtualClock
from sandbox.kube.cloud import Cloud

_LOOP = 10
_CALM = 3600  # seconds before the scenario
_TYPE = "m5.xlarge"


@dataclass
class Past:
    """The answers of AWS afterwards, and the unmet demand, which they do not show."""

    files: list[tuple[str, str]]
    now: Any
    #: second, nodes that pods waited for, and nodes that ran; booting replacements count as nodes
    samples: list[tuple[int, int, int]] = field(default_factory=list)

    def between(self, since: int, until: int) -> tuple[int, int]:
        """Return node-seconds of waiting and of running nodes."""
        seen = [sample for sample in self.samples if since <= sample[0] < until]
        return sum(sample[1] for sample in seen) * _LOOP, sum(sample[2] for sample in seen) * _LOOP


def groups_of(scenario: Scenario) -> list[dict[str, Any]]:
    """Return the groups of a scenario, each with a static share of its pool's bounds."""
    found = []
    for pool in scenario.pools:
        zones = scenario.zones_of(pool)
        for number, zone in enumerate(zones):
            least, most = (distribute_over_zones(number, size, len(zones)) for size in (pool.min, pool.max))
            name = f"{pool.name}-{zone}"
            found.append({"name": name, "pool": pool.name, "zone": zone, "min": least, "max": most})
            found[-1]["start"] = scenario.start_of(pool)[zone]
    return found


def live(scenario: Scenario, *, seed: int = 1, replaced: int = 2, late: tuple[int, int] = (5, 45)) -> Past:
    """Play a scenario on the simulated API, with launches that begin late and instances that are replaced."""
    chance = Random(seed)
    delays = (timedelta(seconds=late[0]), timedelta(seconds=late[1]))
    behavior = Behavior(launch_delay=delays, launch=timedelta(seconds=60), chance=Random(seed))
    stock = Cloud(zones=[zone.name for zone in scenario.zones], machine_type=_TYPE)
    api = AutoScaling(stock, clock=VirtualClock(scenario.start - timedelta(seconds=_CALM + 900)), behavior=behavior)
    groups = groups_of(scenario)
    for group in groups:
        tags = {"evenkeel.dev/pool": group["pool"], "k8s.io/cluster-autoscaler/enabled": "true"}
        api.create_auto_scaling_group(
            AutoScalingGroupName=group["name"],
            MinSize=group["min"],
            MaxSize=group["max"],
            DesiredCapacity=group["start"],
            AvailabilityZones=[group["zone"]],
            LaunchTemplate={"LaunchTemplateName": "web", "Version": "1"},
            Tags=[{"ResourceId": group["name"], "Key": key, "Value": value} for key, value in tags.items()],
        )
    api.clock.step(scenario.start - timedelta(seconds=_CALM))
    api.log._activities.clear()  # the groups are older than the history
    autoscaler = AwsAutoscaler(client=api, names=[group["name"] for group in groups], seed=seed)
    broken = sorted(chance.sample(range(600, scenario.duration - 600), replaced))
    past = Past([], None)
    for at in range(-_CALM, scenario.duration, _LOOP):
        api.clock.step(scenario.start + timedelta(seconds=at))
        _deliver(stock, scenario, max(0, at))
        demand = _demand(scenario, max(0, at))
        autoscaler.demand = demand
        autoscaler.step(api.clock.now)
        while broken and broken[0] <= at:
            broken.pop(0)
            serving = [one for group in api.groups.by_name.values() for one in group.instances.values()]
            chosen = chance.choice([one for one in serving if one.state == "InService"])
            api.groups.fail(chosen.id)
        _measure(past, api, groups, demand)
    past.now = scenario.start + timedelta(seconds=scenario.duration)
    api.clock.step(past.now)
    past.files = answers(api)
    return past


def _deliver(stock: Cloud, scenario: Scenario, at: int) -> None:
    for zone in scenario.zones:
        stock.limits[zone.name] = limit_at(zone.capacity, at)
    stock.quota = limit_at(scenario.quota.nodes, at)


def _demand(scenario: Scenario, at: int) -> dict[tuple[str, str | None], int]:
    return {
        (scenario.pool_named(demand.pool).name, demand.zone): next(
            (step.nodes for step in reversed(demand.nodes) if step.at <= at), 0
        )
        for demand in scenario.demand
    }


def _measure(past: Past, api: AutoScaling, groups: list[dict[str, Any]], demand: dict[Any, int]) -> None:
    running: dict[str, dict[str, int]] = {}
    replacing = 0
    for group in groups:
        instances = api.groups.by_name[group["name"]].instances.values()
        serving = sum(one.state == "InService" for one in instances)
        replacing += sum(one.state == "Pending" and "needing to be replaced" in one.activity.cause for one in instances)
        running.setdefault(group["pool"], {})[group["zone"]] = serving
    missing = 0
    for pool, zones in running.items():
        bound = {zone: demand.get((pool, zone), 0) for zone in zones}
        served = sum(min(nodes, bound[zone]) for zone, nodes in zones.items())
        free = sum(zones.values()) - served
        missing += sum(bound.values()) - served + max(0, demand.get((pool, None), 0) - free)
    nodes = sum(sum(zones.values()) for zones in running.values())
    second = int(api.clock.now.timestamp())
    past.samples.append((second, max(0, missing - replacing), nodes + replacing))


def answers(api: AutoScaling) -> list[tuple[str, str]]:
    """Return the AWS command line's output about the groups, as files."""
    groups = api.describe_auto_scaling_groups(MaxRecords=100)["AutoScalingGroups"]
    activities: list[Any] = []
    request: dict[str, Any] = {}
    while True:
        page = api.describe_scaling_activities(IncludeDeletedGroups=True, **request)
        activities += page["Activities"]
        if "NextToken" not in page:
            break
        request = {"NextToken": page["NextToken"]}
    dump = lambda value: json.dumps(value, default=lambda moment: moment.isoformat())  # noqa: E731
    return [("groups.json", dump({"AutoScalingGroups": groups})), ("activities.json", dump({"Activities": activities}))]


def week(pools: int = 1, days: int = 7) -> Scenario:
    """Return days whose load rises each morning and falls each evening. Every other day, a zone is out."""
    zones = [f"eu-central-1{letter}" for letter in "abc"]
    hour, day = 3600, 86400
    capacity: dict[str, list[dict[str, Any]]] = {zone: [{"at": "0s"}] for zone in zones}
    for number, start in enumerate(range(day, days * day, 2 * day)):
        lasts = (4 + 3 * number % 7) * hour
        steps = ({"at": write_duration(start + 7 * hour), "nodes": 0}, {"at": write_duration(start + 7 * hour + lasts)})
        capacity[zones[number % 3]] += steps
    demand = []
    for pool in range(pools):
        steps = [{"at": "0s", "nodes": 6}]
        for start in range(0, days * day, day):
            for at, nodes in ((8 + pool % 2, 9), (10, 16), (12, 11 + pool % 3), (19, 6)):
                steps.append({"at": write_duration(start + at * hour), "nodes": nodes})
        demand.append({"pool": f"workers-{pool}", "nodes": steps})
    return read_scenario(
        {
            "name": "week",
            "duration": f"{days}d",
            "zones": [{"name": zone, "capacity": capacity[zone]} for zone in zones],
            "pools": [{"name": f"workers-{pool}", "min": 3, "max": 18, "start": 6} for pool in range(pools)],
            "demand": demand,
        },
        "week",
    )
