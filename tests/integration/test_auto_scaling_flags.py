"""A cluster-autoscaler with the flag --nodes=min:max:NAME ignores the bounds of its groups: detected by its status."""

from collections.abc import Callable, Mapping
from datetime import timedelta

import pytest
import yaml

from evenkeel.domain.model.incidents import IncidentKind
from evenkeel.texts.english import sentences
from evenkeel.texts.incidents import incident_text
from tests.auto_scaling_groups import POOL, ZONES
from tests.auto_scaling_pods import PodStage
from tests.fakes import plenty
from tests.stack import Stack

HEADER = "Cluster-autoscaler status at 2026-01-01 00:00:00.000000000 +0000 UTC:\nCluster-wide:\n"
COUNTS = "ready=2 unready=0 notStarted=0 longNotStarted=0 registered=2 longUnregistered=0 cloudProviderTarget=2"


def as_text(bounds: Mapping[str, tuple[int, int]]) -> str:
    """Return the status as cluster-autoscaler writes it before 1.30."""
    lines = [HEADER + f"  Health:      Healthy ({COUNTS} (minSize=0, maxSize=0))\n\nNodeGroups:\n"]
    for name, (low, high) in bounds.items():
        lines.append(f"  Name:        {name}\n  Health:      Healthy ({COUNTS} (minSize={low}, maxSize={high}))\n")
        lines.append("               LastProbeTime:      2026-01-01 00:00:00 +0000 UTC\n\n")
    return "".join(lines)


def as_yaml(bounds: Mapping[str, tuple[int, int]]) -> str:
    """Return the status as cluster-autoscaler writes it since 1.30."""
    groups = [
        {"name": name, "health": {"status": "Healthy", "cloudProviderTarget": 2, "minSize": low, "maxSize": high}}
        for name, (low, high) in bounds.items()
    ]
    return yaml.safe_dump({"time": "2026-01-01", "autoscalerStatus": "Running", "nodeGroups": groups})


class Scene:
    """Three groups, and an autoscaler that has flags for some of them and reads the bounds of the others."""

    def __init__(
        self, flags: Mapping[str, tuple[int, int]], text: Callable[..., str] = as_yaml, loops: int = 1
    ) -> None:
        access = {"autoscaler": "cluster-autoscaler", "demand": "off", "autoscaler_status": "kube-system"}
        self.stage = PodStage(**access)
        self.names = self.stage.pool()
        self.flags, self.text = flags, text
        self.lag = timedelta(0)
        self.loops = loops  # minutes after which the autoscaler uses the bounds that it has read
        self.seen: list[Mapping[str, tuple[int, int]]] = [self.used()]
        self.kube = self.stage.kube.store

    def used(self) -> Mapping[str, tuple[int, int]]:
        """Return the bounds that the autoscaler reads now: those of its flags, else those of the groups."""
        return {name: self.flags.get(name, self.stage.numbers(name)[::3]) for name in self.names}

    def write_status(self) -> None:
        at = (self.stage.clock.now() - self.lag).strftime("%Y-%m-%d %H:%M:%S.000000001 +0000 UTC")
        metadata = {"name": "cluster-autoscaler-status", "namespace": "kube-system"}
        metadata |= {"annotations": {"cluster-autoscaler.kubernetes.io/last-updated": at}}
        if self.kube.list("configmaps"):
            self.kube.delete("configmaps", "kube-system", metadata["name"])
        self.seen.append(self.used())
        status = self.text(self.seen[max(0, len(self.seen) - 1 - self.loops)])
        self.kube.create("configmaps", {"metadata": metadata, "data": {"status": status}})

    def minutes(self, minutes: int) -> None:
        for _ in range(minutes):
            self.stage.minutes(1)
            self.write_status()
            self.stage.run()

    def bounds(self) -> list[tuple[int, int]]:
        return [self.stage.numbers(name)[::3] for name in self.names]


@pytest.mark.parametrize("text", [as_text, as_yaml])
def test_a_group_whose_flag_the_autoscaler_uses_gets_its_bounds_back_and_is_frozen(text: Callable[..., str]) -> None:
    scene = Scene({"workers-b": (0, 9)}, text)
    scene.stage.run()
    assert scene.bounds() == [(0, 4)] * 3
    scene.minutes(7)
    assert scene.stage.tags("workers-b") == POOL
    assert scene.stage.numbers("workers-b")[::3] == (0, 9)
    frozen = [group for group in scene.stage.run().plan.pools[0].groups if group.state == "frozen"]  # type: ignore[union-attr]
    assert [group.group.key.name for group in frozen] == ["workers-b"]
    assert "uses min 0 and max 9 of its flag --nodes" in "; ".join(sentences(frozen[0].reasons, "auto-scaling"))
    (incident,) = scene.stage.store.load("demo").cluster_health.incidents
    assert (incident.kind, incident.zones) == (IncidentKind.BOUNDS_UNREAD, (ZONES[1],))
    assert incident_text(incident, scene.stage.clock.now()).startswith(
        "workers: cluster-autoscaler ignores the bounds for"
    )
    writes = scene.stage.group("workers-b").tags
    scene.minutes(10)
    assert scene.stage.group("workers-b").tags == writes
    assert scene.stage.numbers("workers-b")[::3] == (0, 9)


@pytest.mark.parametrize("loops", [1, 2])
def test_an_autoscaler_that_reads_bounds_once_a_minute_is_not_accused(loops: int) -> None:
    scene = Scene({}, loops=loops)
    scene.stage.run()
    scene.minutes(4)
    scene.stage.refuse(ZONES[1])
    scene.stage.api.set_desired_capacity(AutoScalingGroupName="workers-b", DesiredCapacity=4)
    scene.minutes(12)
    assert all(state.contest.unread_bounds is None for state in scene.stage.store.load("demo").state.groups.values())
    assert all("evenkeel.dev/decision" in scene.stage.tags(name) for name in scene.names)


def test_an_autoscaler_that_is_down_is_not_accused() -> None:
    scene = Scene({"workers-b": (0, 9)})
    scene.stage.run()
    scene.lag = timedelta(hours=1)
    scene.minutes(7)
    assert scene.stage.numbers("workers-b")[3] == 4


def test_resume_writes_the_group_again() -> None:
    scene = Scene({"workers-b": (0, 9)})
    scene.stage.run()
    scene.minutes(7)
    assert scene.stage.numbers("workers-b")[3] == 9
    scene.flags = {}
    stack = Stack(store=scene.stage.store, clock=scene.stage.clock, clusters=scene.stage.clusters)  # type: ignore[arg-type]
    assert stack.ask("resume")["ok"]
    scene.minutes(6)
    assert scene.stage.store.load("demo").cluster_health.incidents == ()
    assert scene.bounds() == [(0, 4)] * 3


def test_a_missing_right_to_read_the_status_is_named() -> None:
    scene = Scene({})
    workload = scene.stage.open_workload(scene.stage.record, plenty)
    assert workload.refused_status("kube-system") == []
    scene.stage.kube._rules["evenkeel"] = []
    (missing,) = workload.refused_status("kube-system")
    assert missing == "it may not get configmaps in namespace kube-system"
    scene.stage.run()
    scene.minutes(7)  # the autoscaler's bounds are unknown, so the groups are managed
    assert scene.bounds() == [(0, 4)] * 3
