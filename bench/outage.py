"""What an outage costs, in simulated time: until the redistribution is written, and patches per hour.

The real use cases against simulated clusters; the clock is the simulation's, so the figures are the same at every run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

from evenkeel import bootstrap
from evenkeel.application.events import Failure
from sandbox.aws import AwsEndpoints
from sandbox.kube.world import World

_CLUSTER, _POOL, _ZONE = "cluster-api", "workers", "eu-central-1a"
_LOOP = timedelta(seconds=10)
_START = datetime(2026, 1, 1, tzinfo=UTC)
# EventBridge and Lambda together; measured latencies are well below a second, the exporter's own are not.
_TRAVEL = timedelta(seconds=2)


@dataclass
class _Clock:
    at: datetime = _START

    def now(self) -> datetime:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@dataclass
class _Scene:
    world: World
    container: bootstrap.Container
    clock: _Clock

    def run(self, until: timedelta, *, scan: bool = True) -> None:
        """Autoscaler loops and controllers every 10 s, a scan every minute, up to a moment after the start."""
        while self.clock.at < _START + until:
            self.clock.at += _LOOP
            self.world.step(self.clock.at)
            if scan and (self.clock.at - _START).seconds % 60 == 0:
                self.look()

    def look(self) -> None:
        self.container.rebalance(_CLUSTER, "bench", lambda: 60.0)

    @property
    def patches(self) -> int:
        api = self.world.clusters[_CLUSTER].api
        return sum(call.method == "PATCH" and call.manager == "evenkeel" for call in api.requests)


@contextmanager
def _scene() -> Iterator[_Scene]:
    clock = _Clock()
    with World(clusters=[_CLUSTER], clock=clock.now) as world, AwsEndpoints() as aws, aws.deploy() as stack:
        secret = json.dumps(world.clusters[_CLUSTER].api.kubeconfig("evenkeel"))
        name = f"evenkeel/{stack.stack}"  # moto's state outlives its server
        aws.client("secretsmanager").create_secret(Name=name, SecretString=secret)
        with patch.dict(os.environ, stack.environment("RebalanceFunction")):
            container = bootstrap.Container(clock=clock)
            record = {
                "flavours": [_CLUSTER],
                "access": {"kind": "kubeconfig", "secret": name},
                "dry_run": False,
            }
            container.operate({"action": "register", "cluster": _CLUSTER, "record": record}, lambda: 60.0)
            scene = _Scene(world, container, clock)
            scene.run(timedelta(minutes=5))
            world.clusters[_CLUSTER].api.requests.clear()
            yield scene


def _redistribution(*, events: bool) -> float:
    """Seconds from the first failed launch to the last patch that takes the dead zone's replicas elsewhere."""
    with _scene() as scene:
        scene.world.take_away(_CLUSTER, _ZONE)
        scene.world.set_demand(_CLUSTER, _POOL, 9)
        failed_at = None
        while scene.clock.at < _START + timedelta(minutes=30):
            scene.clock.at += _LOOP
            scene.world.step(scene.clock.at)
            store = scene.world.clusters[_CLUSTER].store
            warnings = [event for event in store.list("events") if event.get("type") == "Warning"]
            if failed_at is None and warnings:
                failed_at = scene.clock.at
                if events:
                    scene.clock.at += _TRAVEL
                    group = next(view for view in scene.world.groups() if view.zone == _ZONE)
                    scene.container.record_failure(
                        Failure(
                            cluster=_CLUSTER,
                            namespace=group.namespace,
                            name=group.name,
                            code="InsufficientInstanceCapacity",
                            message="",
                            occurred_at=failed_at,
                            id="bench",
                        )
                    )
                    scene.look()
            if (scene.clock.at - _START).seconds % 60 == 0:
                scene.look()
            dead = next(view for view in scene.world.groups() if view.zone == _ZONE)
            if failed_at is not None and dead.requested == dead.running and dead.maximum == dead.running:
                return (scene.clock.at - failed_at).total_seconds()
    raise RuntimeError("the dead zone's replicas were not taken elsewhere within 30 minutes")


def _patches_in_an_hour(*, flapping: bool) -> int:
    """Patches in an hour, after five minutes to settle."""
    with _scene() as scene:
        if flapping:
            scene.world.set_demand(_CLUSTER, _POOL, 9)
        for ten in range(6):
            if flapping:
                turn = scene.world.take_away if ten % 2 == 0 else scene.world.give_back
                turn(_CLUSTER, _ZONE)
                scene.world.set_demand(_CLUSTER, _POOL, 9 + ten % 3)
            scene.run(timedelta(minutes=5 + 10 * (ten + 1)))
        return scene.patches


def main() -> None:
    """Four figures."""
    print("an outage of one zone of three, in simulated time")
    for events in (True, False):
        how = "with an event" if events else "by the scan alone"
        seconds = _redistribution(events=events)
        print(f"  from the first failed launch to the last patch of the redistribution, {how}: {seconds:.0f} s")
    print(f"  patches in an hour of a quiet world: {_patches_in_an_hour(flapping=False)}")
    print(f"  patches in an hour of a zone that goes and comes every ten minutes: {_patches_in_an_hour(flapping=True)}")


if __name__ == "__main__":
    main()
