"""`make demo`: three simulated clusters, the real functions, and a table of what happens.

Nothing is played to the audience: the handlers are those of functions/, called through the queues, schedules and rules
of template.yaml; they reach the clusters over TLS with a kubeconfig from Secrets Manager, as the user that
deploy/kubernetes/rbac.yaml describes. Only time runs faster.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from evenkeel.bootstrap import SystemClock, use_clock
from evenkeel.cli.simulation.autoscaler_model import Flags
from evenkeel.domain.model.reasons import Rule as Reasons
from sandbox.aws import AwsEndpoints, Deployment
from sandbox.kube.access import Rule
from sandbox.kube.controllers.life import Timing
from sandbox.kube.world import Cluster, GroupView, World
from sandbox.triggers import InProcess, Triggers

SPEED = 20  # simulated seconds in a second
SECONDS = 50  # how long the audience sits
_LOOP = timedelta(seconds=10)  # Cluster Autoscaler's scan interval
_RBAC = Path(__file__).parent.parent / "deploy" / "kubernetes" / "rbac.yaml"
_STYLES = {"healthy": "green", "fenced": "bold red", "probing": "yellow", "frozen": "blue"}


class FastClock:
    """Time that began now and runs SPEED times as fast."""

    def __init__(self) -> None:
        self._began = datetime.now(UTC)
        self._start = time.monotonic()

    def elapsed(self) -> timedelta:
        return timedelta(seconds=(time.monotonic() - self._start) * SPEED)

    def now(self) -> datetime:
        return self._began + self.elapsed()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / SPEED)


@dataclass(frozen=True)
class Act:
    """Something happens at a simulated minute."""

    minute: float
    says: str
    do: Callable[[Demo], None]


class Demo:
    """The stage: a world of clusters, a deployment on AWS endpoints, and what has been decided so far."""

    def __init__(self, world: World, deployment: Deployment, triggers: Triggers, invoke: InProcess, clock: FastClock):
        self.world = world
        self.deployment = deployment
        self.triggers = triggers
        self.invoke = invoke
        self.clock = clock
        self.headline = ""
        self.decisions: list[dict[str, Any]] = []
        self._events = deployment.listen({"source": ["evenkeel"]})
        self._latest: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._exported: set[tuple[str, str]] = set()

    def register(self) -> None:
        """Secrets and records for every cluster, through the operator function. Evenkeel is switched on."""
        for name, cluster in self.world.clusters.items():
            secret = f"evenkeel/demo-{name}"
            kubeconfig = json.dumps(cluster.api.kubeconfig("evenkeel"))
            self.deployment.aws.client("secretsmanager").create_secret(Name=secret, SecretString=kubeconfig)
            answer = self.operator(
                "register",
                name,
                record={
                    "flavours": [cluster.flavour],
                    "access": {"kind": "kubeconfig", "secret": secret},
                    "dry_run": False,
                },
            )
            if not answer["ok"]:
                raise RuntimeError(answer["message"])

    def operator(self, action: str, cluster: str, **more: Any) -> dict[str, Any]:
        """One operator event and its answer."""
        answer: dict[str, Any] = self.invoke("OperatorFunction", {"action": action, "cluster": cluster, **more})
        return answer

    def export_events(self) -> None:
        """What kubernetes-event-exporter does in each cluster: Warning events onto the bus, but twice and backwards."""
        for name, cluster in self.world.clusters.items():
            fresh = [
                event
                for event in cluster.store.list("events")
                if event.get("type") == "Warning" and (name, event["metadata"]["uid"]) not in self._exported
            ]
            self._exported |= {(name, event["metadata"]["uid"]) for event in fresh}
            for event in [*reversed(fresh), *fresh]:
                entry = {
                    "Source": "kubernetes-event-exporter",
                    "DetailType": "Kubernetes Event",
                    "Detail": json.dumps(_enhanced(cluster, event) | {"clusterName": name}),
                    "EventBusName": self.deployment.bus,
                }
                self.deployment.aws.client("events").put_events(Entries=[entry])

    def hear(self) -> None:
        """Collect the decision events that have come out."""
        sqs = self.deployment.aws.client("sqs")
        while messages := sqs.receive_message(QueueUrl=self._events, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                sqs.delete_message(QueueUrl=self._events, ReceiptHandle=message["ReceiptHandle"])
                event = json.loads(message["Body"])
                if event["detail-type"].startswith("Trouble "):  # of several pools' decisions, for people
                    continue
                decision = event["detail"]
                self.decisions.append(decision)
                for group in decision["pool"].get("groups", []):
                    self._latest[(decision["cluster"], group["namespace"], group["name"])] = group

    def table(self) -> Group:
        """Pools x zones as they are now, with the last reason."""
        minutes = self.clock.elapsed().total_seconds() / 60
        table = Table(title=f"minute {minutes:4.1f}", title_justify="left", expand=True)
        for heading in ("cluster", "pool", "zone"):
            table.add_column(heading, no_wrap=True)
        for heading in ("running", "requested", "min", "max"):
            table.add_column(heading, justify="right")
        table.add_column("state", no_wrap=True)
        table.add_column("last reason", overflow="ellipsis", no_wrap=True, ratio=1)
        before = ""
        for view in self.world.groups():
            table.add_row(*self._row(view, first=view.cluster != before))
            before = view.cluster
        return Group(table, Text(self.headline, style="bold cyan"))

    def _row(self, view: GroupView, *, first: bool) -> Iterator[Text]:
        latest = self._latest.get((view.cluster, view.namespace, view.name), {})
        state = latest.get("state", "healthy")
        yield Text(view.cluster if first else "")
        yield Text(view.pool if first else "")
        yield Text(view.zone)
        yield Text(str(view.running))
        yield Text(str(view.requested), style="" if view.requested == view.running else "yellow")
        yield Text("-" if view.minimum is None else str(view.minimum))
        yield Text("-" if view.maximum is None else str(view.maximum))
        yield Text(state, style=_STYLES[state])
        yield Text(next((r for r in latest.get("reasons", []) if not r.startswith("rolling update")), ""), style="dim")

    def step(self) -> None:
        """Ten simulated seconds: autoscalers, controllers, schedule, queues."""
        now = self.clock.now()
        self.world.step(now)
        self.export_events()
        self.triggers.poll()
        self.hear()


_ZONE = "eu-central-1a"
_RESOURCES = {
    "AWSMachine": "awsmachines.infrastructure.cluster.x-k8s.io",
    "MachineSet": "machinesets.machine.openshift.io",
    "Machine": "machines.machine.openshift.io",
}


def _enhanced(cluster: Cluster, event: dict[str, Any]) -> dict[str, Any]:
    """The exporter's EnhancedEvent: the event, and its object's labels and owners."""
    involved = event["involvedObject"]
    resource = _RESOURCES.get(involved["kind"])
    found = [
        item["metadata"]
        for item in (cluster.store.list(resource) if resource else [])
        if item["metadata"]["name"] == involved["name"]
    ]
    more = {key: found[0][key] for key in ("labels", "ownerReferences") if found and key in found[0]}
    return event | {"involvedObject": involved | more}


def _load(demo: Demo) -> None:
    demo.world.set_demand("gardener", "main", 9)
    demo.world.set_demand("cluster-api", "workers", 6)


def _outage(demo: Demo) -> None:
    for name in demo.world.clusters:
        demo.world.take_away(name, _ZONE)
    demo.world.set_demand("cluster-api", "workers", 10)


def _more_load(demo: Demo) -> None:
    demo.world.set_demand("gardener", "main", 11)
    demo.world.set_demand("openshift", "worker", 5)


def _recovery(demo: Demo) -> None:
    for name, pool, pods in (("gardener", "main", 12), ("cluster-api", "workers", 11), ("openshift", "worker", 6)):
        demo.world.give_back(name, _ZONE)
        demo.world.set_demand(name, pool, pods)


ACTS = (
    Act(0, "Three clusters with static bounds, 4 per zone. Evenkeel has just been switched on.", lambda _: None),
    Act(1, "Load rises in gardener and cluster-api. Any zone will do: the zones stay even.", _load),
    Act(
        2.5,
        "openshift: 6 nodes are wanted, and only zone b can serve them. Static bounds would stop at 4.",
        lambda d: d.world.set_demand("openshift", "worker", 6, "eu-central-1b"),
    ),
    Act(
        4.5,
        "Zone a runs out of machines for all three clusters, just as load rises in cluster-api, which fails there. The "
        "others buy the same, and hear of it.",
        _outage,
    ),
    Act(
        6.3,
        "Load rises in gardener and openshift: they try one machine in zone a. Each fails in its own way: Gardener in "
        "the machines' status only, the others also with events, which arrive twice and backwards.",
        _more_load,
    ),
    Act(
        12,
        "Zone a delivers again, and load rises by one. Backoff is over: the zone may probe with one node, then it is "
        "one of three again.",
        _recovery,
    ),
    Act(
        15,
        "openshift: somebody sets PoolMaximum to a word. That pool is left alone, the others go on.",
        lambda d: _annotate(d, "openshift", "evenkeel.dev/pool-max", "many"),
    ),
)


def _annotate(demo: Demo, cluster: str, key: str, value: str) -> None:
    view = next(iter(demo.world.clusters[cluster].groups()))
    store = demo.world.clusters[cluster].store
    kind = "machinesets.machine.openshift.io"
    store.patch(kind, view.namespace, view.name, {"metadata": {"annotations": {key: value}}}, manager="kubectl-edit")


def play(demo: Demo, show: Callable[[str], None], seconds: float = SECONDS) -> None:
    """Run the acts in simulated time; `show` is called after each step, with the headline of a new act."""
    acts = list(ACTS)
    next_minute = 0
    end = timedelta(seconds=seconds * SPEED)
    while (elapsed := demo.clock.elapsed()) < end:
        step_began = time.monotonic()
        said = ""
        while acts and elapsed >= timedelta(minutes=acts[0].minute):
            act = acts.pop(0)
            act.do(demo)
            demo.headline = said = act.says
        if elapsed >= timedelta(minutes=next_minute):
            demo.triggers.tick(demo.clock.now())
            next_minute += 1
        demo.step()
        show(said)
        time.sleep(max(0.0, _LOOP.total_seconds() / SPEED - (time.monotonic() - step_began)))


def summary(demo: Demo, console: Console) -> None:
    """What came of it, the decision records, and what to do next."""
    console.print()
    requests = [request for cluster in demo.world.clusters.values() for request in cluster.api.requests]
    patches = [request for request in requests if request.method == "PATCH"]
    over = [
        f"{name}/{pool.name}"
        for name, cluster in demo.world.clusters.items()
        for pool in cluster.pools.values()
        if sum(view.requested for view in cluster.groups() if view.pool == pool.name) > pool.maximum
    ]
    minutes = demo.clock.elapsed().total_seconds() / 60
    console.rule("What happened")
    console.print(f"{minutes:.0f} simulated minutes, {len(demo.decisions)} decision events, {len(patches)} patches.")
    console.print(
        f"Pools over their maximum: {', '.join(over) or 'none'}. Failed calls: {len(demo.triggers.failures)}."
    )
    for name in demo.world.clusters:
        status = demo.operator("status", name)
        console.print(f"\n[bold]{status['message']}[/bold]")
        for warning in dict.fromkeys(_heard(status["decisions"])):
            console.print(f"  heard from others: {warning}", style="magenta", highlight=False)
        for decision in reversed(status["decisions"][:4]):
            pool = decision["pool"]
            console.print(f"  {decision['at']}  {pool['name']}: {decision['cause']}", highlight=False)
            for problem in pool["problems"]:
                console.print(f"      ! {problem}", style="yellow", highlight=False)
            if not pool["problems"] and all(group["outcome"] == "left alone" for group in pool["groups"]):
                states = ", ".join(f"{group['zone']} {group['state']}" for group in pool["groups"])
                console.print(f"      nothing to write: {states}", highlight=False, style="dim")
            for group in pool["groups"]:
                if group["outcome"] != "left alone":
                    console.print(f"      {_told(group)}", highlight=False, style="dim")
    console.print()
    console.rule("What next")
    console.print(
        "Plan for your own cluster, read-only:   .venv/bin/evenkeel plan --context <context>", highlight=False
    )
    console.print(
        "Or from files, without any connection:  kubectl get machinedeployments -A -o yaml | "
        ".venv/bin/evenkeel plan -f -",
        highlight=False,
    )
    console.print("Run the tests:                          make test", highlight=False)
    console.print('Deploy in dry run:                      README.md, "Deploying"', highlight=False)


def _heard(decisions: list[dict[str, Any]]) -> Iterator[str]:
    """What other clusters' failures have made of a cluster's zones."""
    for decision in decisions:
        for group in decision["pool"]["groups"]:
            for rule, reason in zip(group["rules"], group["reasons"], strict=True):
                if rule["rule"] in (Reasons.CAUTIOUS, Reasons.FENCED_BY_OTHERS):
                    yield f"{group['zone']}: {reason}"


def _told(group: dict[str, Any]) -> str:
    spans = [
        f"{name} {group[name]['from']} → {group[name]['to']}"
        for name in ("requested", "min", "max")
        if group[name]["from"] != group[name]["to"]
    ]
    return (
        f"{group['zone']}: {', '.join(spans)} ({group['outcome']}): {group['reasons'][0] if group['reasons'] else ''}"
    )


def main() -> int:
    """Play it, live on a terminal, act by act into a pipe."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    clock = FastClock()
    log = io.StringIO()
    with ExitStack() as stack:
        settings = Flags(unneeded=240, delay_after_add=240)
        timing = Timing(provision=timedelta(seconds=45))
        role = next(document for document in yaml.safe_load_all(_RBAC.read_text()) if document["kind"] == "ClusterRole")
        users = {"evenkeel": Rule.of_role(role)}
        world = stack.enter_context(World(clock=clock.now, settings=settings, timing=timing, users=users))
        aws = stack.enter_context(AwsEndpoints())
        deployment = stack.enter_context(aws.deploy(parameters={"DryRun": "false"}))
        invoke = stack.enter_context(InProcess(deployment, log=log))
        use_clock(clock)
        stack.callback(use_clock, SystemClock())
        demo = Demo(world, deployment, Triggers(deployment, invoke), invoke, clock)
        demo.register()
        if console.is_terminal:
            with Live(console=console, get_renderable=demo.table, refresh_per_second=4):
                play(demo, lambda _: None)
        else:

            def show(said: str) -> None:
                if said:
                    console.print(demo.table())

            play(demo, show)
            console.print(demo.table())
        summary(demo, console)
        for failure in demo.triggers.failures:
            console.print(f"{failure.function} failed: {failure.error}", style="red")
        return 1 if demo.triggers.failures else 0


if __name__ == "__main__":
    sys.exit(main())
