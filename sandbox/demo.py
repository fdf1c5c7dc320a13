"""`make demo`: four kinds of clusters in one zone outage, the real functions, and a table of the changes.

The demo runs the handlers of functions/ with the queues, schedules and rules of template.yaml. The handlers connect to
the clusters over TLS, with kubeconfigs from Secrets Manager and the rights in deploy/kubernetes. Two clusters have only
the objects that their own tools create, and none of Evenkeel. Their controllers also run, and restore the fields that
they own. The last cluster has pods and no autoscaler, so Evenkeel adds nodes for pending pods and removes unneeded
nodes. Only time runs faster than in reality.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from textwrap import wrap
from typing import Any

import yaml
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from evenkeel.bootstrap import SystemClock, use_clock
from evenkeel.domain.model.reasons import Rule as Reasons
from evenkeel.texts.english import texts
from evenkeel_cli.simulation.autoscaler_model import Flags
from sandbox.aws import AwsEndpoints, Deployment
from sandbox.kube.access import Rule
from sandbox.kube.api import Request
from sandbox.kube.controllers.machine_controller import Timing
from sandbox.kube.controllers.objects import USERS_POOL_LABEL
from sandbox.kube.controllers.shoots import OPERATION, SHOOTS
from sandbox.kube.world import Cluster, GroupView, Pool, World
from sandbox.triggers import InProcess, Triggers

SPEED = 22  # simulated seconds per real second
SECONDS = 48  # real length of the demo
_LOOP = timedelta(seconds=10)  # Cluster Autoscaler's scan interval
_DEPLOY = Path(__file__).parent.parent / "deploy" / "kubernetes"
_WIDE = 120  # the width of a terminal, in columns, from which tables show reasons
_STYLES = {"healthy": "green", "fenced": "bold red", "probing": "yellow", "frozen": "blue"}

_TIMING = Timing(provision=timedelta(seconds=45))
_POOL = Pool(name="workers", minimum=3, maximum=12)
_UNNEEDED = 240  # seconds, in all clusters
# In a cluster without cluster-autoscaler, node groups have this value as an annotation instead of a flag.
_ANNOTATED_POOL = replace(
    _POOL, annotations={"cluster.x-k8s.io/autoscaling-options-scaledownunneededtime": f"{_UNNEEDED}s"}
)
_SHARE = _POOL.maximum // len(_POOL.zones)  # the maximum of each zone if the pool is divided evenly
_ZONE, _OTHER_ZONE = _POOL.zones[:2]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of cluster: the folder with its RBAC manifests, further fields of its record, and its description."""

    folder: str
    description: str
    record: Mapping[str, Any]


KINDS = {
    "gardener-plain": Kind(
        folder="gardener",
        description="a Gardener seed: a Shoot, its Worker, and a MachineDeployment for each zone",
        # The autoscaler here gets bounds from flags, so Evenkeel itself moves replicas away from a failed zone.
        record={"on_failure": "move"},
    ),
    "hypershift": Kind(
        folder="hypershift",
        description="a HyperShift management cluster: a NodePool for each zone, with a label of its users",
        record={"pools": [{"name": _POOL.name, "selector": {USERS_POOL_LABEL: _POOL.name}}]},
    ),
    "cluster-api": Kind(
        folder="cluster-api",
        description="Cluster API: MachineDeployments with the label and the bounds of a pool",
        # Pods are only a number in this cluster, so Evenkeel cannot check which pods may move.
        record={"level": "converge", "converge": {"blind": True}},
    ),
    "self-managed": Kind(
        folder="cluster-api",
        description="a self-managed Cluster API cluster, with pods and without an autoscaler",
        record={"autoscaler": "none", "demand": "full", "workload": {"access": {"kind": "same"}}},
    ),
}


class FastClock:
    """A clock that starts now and runs SPEED times as fast as real time.

    Between two calls of `turn`, it advances by at most one loop. So a busy machine shows the same demo, but slower.
    """

    def __init__(self) -> None:
        self._began = datetime.now(UTC)
        self._turn = timedelta(0), time.monotonic()

    def turn(self) -> None:
        """Let the clock advance by one more loop."""
        self._turn = self.elapsed(), time.monotonic()

    def elapsed(self) -> timedelta:
        """Return the time since the start, by this clock."""
        before, start = self._turn
        return before + min(timedelta(seconds=(time.monotonic() - start) * SPEED), _LOOP)

    @property
    def minutes(self) -> float:
        """Return the minutes since the start, by this clock."""
        return self.elapsed().total_seconds() / 60

    def now(self) -> datetime:
        """Return the time of this clock in UTC."""
        return self._began + self.elapsed()

    def sleep(self, seconds: float) -> None:
        """Wait for this many seconds of this clock."""
        time.sleep(seconds / SPEED)


class Demo:
    """A world of clusters, a deployment on AWS endpoints, and the decisions so far."""

    def __init__(self, world: World, deployment: Deployment, triggers: Triggers, invoke: InProcess, clock: FastClock):
        self.world = world
        self.deployment = deployment
        self.triggers = triggers
        self.invoke = invoke
        self.clock = clock
        self.headline = ""
        self.decisions: list[dict[str, Any]] = []
        self.peaks: dict[str, list[int]] = {}  # by cluster: nodes per zone when the cluster had the most nodes
        self._events = deployment.listen({"source": ["evenkeel"]})
        self._latest: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._exported: set[tuple[str, str]] = set()

    def register(self) -> None:
        """Create a secret and a record for every cluster."""
        for name, cluster in self.world.clusters.items():
            secret = f"evenkeel/demo-{name}"
            kubeconfig = json.dumps(cluster.api.kubeconfig("evenkeel"))
            self.deployment.aws.client("secretsmanager").create_secret(Name=secret, SecretString=kubeconfig)
            access = {"kind": "kubeconfig", "secret": secret}
            record = {"flavours": [cluster.flavour], "access": access, "dry_run": False, **KINDS[name].record}
            answer = self.operator("register", name, record=record)
            if not answer["ok"]:
                raise RuntimeError(answer["message"])

    def operator(self, action: str, cluster: str, **fields: Any) -> dict[str, Any]:
        """Invoke an operator action and return its answer."""
        answer: dict[str, Any] = self.invoke("AdminFunction", {"action": action, "cluster": cluster, **fields})
        return answer

    def export_events(self) -> None:
        """Send new Warnings to the bus, as kubernetes-event-exporter does, but twice and in reverse order."""
        for name, cluster in self.world.clusters.items():
            new = [
                event
                for event in cluster.store.list("events")
                if event.get("type") == "Warning" and (name, event["metadata"]["uid"]) not in self._exported
            ]
            self._exported |= {(name, event["metadata"]["uid"]) for event in new}
            for event in [*reversed(new), *new]:
                entry = {
                    "Source": "kubernetes-event-exporter",
                    "DetailType": "Kubernetes Event",
                    "Detail": json.dumps(_enhanced(cluster, event) | {"clusterName": name}),
                    "EventBusName": self.deployment.bus,
                }
                self.deployment.aws.client("events").put_events(Entries=[entry])

    def receive(self) -> None:
        """Collect the new decision events."""
        sqs = self.deployment.aws.client("sqs")
        while messages := sqs.receive_message(QueueUrl=self._events, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                sqs.delete_message(QueueUrl=self._events, ReceiptHandle=message["ReceiptHandle"])
                event = json.loads(message["Body"])
                if event["detail-type"].startswith("Incident "):
                    continue
                decision = event["detail"]
                self.decisions.append(decision)
                for group in decision["pool"].get("groups", []):
                    self._latest[(decision["cluster"], group["namespace"], group["name"])] = group

    def table(self, width: int) -> Group:
        """Return a table with the zones of every pool. A wide table also shows each zone's last reason."""
        is_wide = width >= _WIDE
        new = Table if is_wide else partial(Table, box=None, padding=(0, 1, 0, 0), pad_edge=False)
        table = new(title=f"minute {self.clock.minutes:4.1f}", title_justify="left", expand=is_wide)
        for heading in ("cluster", "pool", "zone"):
            table.add_column(heading, no_wrap=True)
        for heading in ("running", "requested", "min", "max"):
            table.add_column(heading, justify="right")
        table.add_column("state", no_wrap=True)
        if is_wide:
            table.add_column("last reason", overflow="ellipsis", no_wrap=True, ratio=1)
        previous = ""
        for view in self.world.groups():
            table.add_row(*islice(self._row(view, first=view.cluster != previous), len(table.columns)))
            previous = view.cluster
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
        yield Text(next(_reasons(latest), "") if latest else "", style="dim")

    def step(self) -> None:
        """Run ten simulated seconds of autoscalers, controllers and queues."""
        self.world.step(self.clock.now())
        for name, cluster in self.world.clusters.items():
            running = [view.running for view in cluster.groups()]
            self.peaks[name] = max(self.peaks.get(name, []), running, key=sum)
        self.export_events()
        self.triggers.poll()
        self.receive()

    # -- what the acts do -----------------------------------------------------------------------------------------

    def want(self, **pods: int) -> None:
        """Set the number of pods in each named cluster. Each pod needs a node."""
        for name, number in pods.items():
            self.world.set_demand(name.replace("_", "-"), _POOL.name, number)

    def deploy(self) -> None:
        """Create a Deployment and a disruption budget that allows one disruption. Three of its pods fit on a node."""
        container = {"name": _APP, "image": "registry.example/web", "resources": {"requests": {"cpu": "1200m"}}}
        template = {"metadata": {"labels": {"app": _APP}}, "spec": {"containers": [container]}}
        selector = {"matchLabels": {"app": _APP}}
        for resource, spec in (
            ("deployments.apps", {"replicas": _PODS[0], "selector": selector, "template": template}),
            ("poddisruptionbudgets.policy", {"maxUnavailable": 1, "selector": selector}),
        ):
            body = {"metadata": {"name": _APP}, "spec": spec}
            self.world.clusters["self-managed"].store.create(resource, body, manager="kubectl-client-side-apply")

    def scale(self, pods: int) -> None:
        """Scale the app of the self-managed cluster to this many pods."""
        store = self.world.clusters["self-managed"].store
        store.scale("deployments.apps", "default", _APP, pods, manager="kubectl")

    def reconcile_shoot(self) -> None:
        """Request a reconciliation of the Shoot by annotation, as an operator does."""
        store = self.world.clusters["gardener-plain"].store
        (shoot,) = store.list(SHOOTS)
        patch = {"metadata": {"annotations": {OPERATION: "reconcile"}}}
        store.patch(SHOOTS, shoot["metadata"]["namespace"], shoot["metadata"]["name"], patch, manager="kubectl")

    def set_invalid_maximum(self) -> None:
        """Set the pool's maximum on one Cluster API group to a text, as an operator may do by mistake."""
        cluster = self.world.clusters["cluster-api"]
        view = cluster.groups()[0]
        patch = {"metadata": {"annotations": {"evenkeel.dev/pool-max": "many"}}}
        cluster.store.patch(cluster.scalables, view.namespace, view.name, patch, manager="kubectl-edit")


@dataclass(frozen=True)
class Act:
    """The changes at a simulated minute, with a headline that describes them."""

    minute: float
    headline: str
    changes: tuple[Callable[[Demo], object], ...]


_APP, _PODS = "web", (6, 18, 24, 6, 7)  # numbers of pods: at first, by day, at the peak, at night, later
_BOUND = _SHARE + 2  # the number of pods that are bound to one zone
# A headline reports the changes of its act and rules that always hold. The tables show the effects.
ACTS = (
    Act(
        0,
        f"Four clusters, each with at most {_SHARE} nodes per zone. A Worker, NodePools or annotations set the limit. "
        "The first two have no settings for Evenkeel. The last has pods and no autoscaler. Evenkeel starts now.",
        (Demo.deploy,),
    ),
    Act(
        1,
        "More load in gardener-plain and cluster-api, for any zone. In self-managed, a Deployment grows from "
        f"{_PODS[0]} to {_PODS[1]} pods. Three fit on a node, and only Evenkeel adds nodes there.",
        (lambda demo: demo.want(gardener_plain=9, cluster_api=6), lambda demo: demo.scale(_PODS[1])),
    ),
    Act(
        2.3,
        f"hypershift needs {_BOUND} nodes that only zone {_OTHER_ZONE[-1]} can serve. The NodePool of that zone allows "
        f"{_SHARE}.",
        (lambda demo: demo.world.set_demand("hypershift", _POOL.name, _BOUND, _OTHER_ZONE),),
    ),
    Act(
        3.2,
        f"The cloud is out of machines in zone {_ZONE[-1]}. At the same time load rises in cluster-api, and in "
        f"self-managed to {_PODS[2]} pods. A cluster that gets no machine warns the others, which buy the same type.",
        (
            lambda demo: [demo.world.exhaust_zone(name, _ZONE) for name in demo.world.clusters],
            lambda demo: demo.want(cluster_api=10),
            lambda demo: demo.scale(_PODS[2]),
        ),
    ),
    Act(
        5,
        "More load in gardener-plain and hypershift. Gardener reports a failed machine in its status only. HyperShift "
        "also sends events, which arrive here twice and in reverse order. In self-managed the peak is over: "
        f"{_PODS[3]} pods remain. Evenkeel removes an unneeded node ten minutes after the last scale-up.",
        (lambda demo: demo.want(gardener_plain=11, hypershift=5), lambda demo: demo.scale(_PODS[3])),
    ),
    Act(
        8,
        "Gardener reconciles its Shoot, as it does every hour; it changes no replicas within a zone's share. "
        "HyperShift's operator restores its fields all the time. self-managed needs one more pod. Evenkeel drains a "
        "node before it removes it.",
        (Demo.reconcile_shoot, lambda demo: demo.scale(_PODS[4])),
    ),
    Act(
        12.5,
        f"Zone {_ZONE[-1]} has machines again, and hypershift needs one more node. Evenkeel probes a failed zone with "
        "one node. In cluster-api the load is constant: after ten minutes out of balance, a pool may move one node, "
        "launch before drain. Gardener retries a refused machine every "
        f"{_TIMING.resource_exhausted_retry.seconds // 60} minutes.",
        (
            lambda demo: [demo.world.restore_zone(name, _ZONE) for name in demo.world.clusters],
            lambda demo: demo.want(hypershift=6),
        ),
    ),
    Act(
        17,
        "In cluster-api, a user sets evenkeel.dev/pool-max to 'many'. Evenkeel skips the invalid pool and no other.",
        (Demo.set_invalid_maximum,),
    ),
)


def play(demo: Demo, show: Callable[[str], None], seconds: float = SECONDS) -> None:
    """Run the acts in simulated time. Call `show` after each step, with the headline of an act that begins, or ""."""
    acts = list(ACTS)
    next_minute = 0
    end = timedelta(seconds=seconds * SPEED)
    while (elapsed := demo.clock.elapsed()) < end:
        demo.clock.turn()
        step_began = time.monotonic()
        headline = ""
        while acts and elapsed >= timedelta(minutes=acts[0].minute):
            act = acts.pop(0)
            for change in act.changes:
                change(demo)
            demo.headline = headline = act.headline
        if elapsed >= timedelta(minutes=next_minute):
            demo.triggers.tick(demo.clock.now())
            next_minute += 1
        demo.step()
        show(headline)
        time.sleep(max(0.0, _LOOP.total_seconds() / SPEED - (time.monotonic() - step_began)))


def summary(demo: Demo, console: Console) -> None:
    """Print the result of every cluster, its last decisions, and the next commands."""
    clusters = demo.world.clusters
    patches = sum(request.has_patched for cluster in clusters.values() for request in cluster.api.requests)
    over = [
        f"{name}/{pool.name}"
        for name, cluster in clusters.items()
        for pool in cluster.pools.values()
        if sum(view.requested for view in cluster.groups() if view.pool == pool.name) > pool.maximum
    ]
    console.print()
    console.rule("Result")
    console.print(f"{demo.clock.minutes:.0f} simulated minutes, {len(demo.decisions)} decisions, {patches} patches.")
    console.print(
        f"Pools above their maximum: {', '.join(over) or 'none'}. Failed calls: {len(demo.triggers.failures)}."
    )
    for name in clusters:
        _print_cluster(demo, name, console)
    console.print()
    console.rule("Next")
    for purpose, command in (
        ("Plan for your own cluster, read-only", ".venv/bin/evenkeel plan --context <context>"),
        (
            "Plan from files, without a connection",
            "kubectl get machinedeployments -A -o yaml | .venv/bin/evenkeel plan -f -",
        ),
        ("Run the tests", "make test"),
        ("Deploy in dry run", 'README.md, "Deploying"'),
    ):
        console.print(f"{purpose}:\n  {command}", highlight=False)


_DECISIONS_SHOWN = 2  # the number of latest decisions that are shown for each cluster


def _print_cluster(demo: Demo, name: str, console: Console) -> None:
    status = demo.operator("status", name)
    console.print(f"\n[bold]{status['message']}[/bold]")
    for label, text in _story(demo, name, status):
        _hang(console, f"  {label:<12}{text}", 14)
    for warning in dict.fromkeys(_warnings(status["decisions"])):
        _hang(console, f"  from another cluster: {warning}", 4, "magenta")
    for decision in reversed(status["decisions"][:_DECISIONS_SHOWN]):
        pool = decision["pool"]
        written = [group for group in pool["groups"] if group["outcome"] != "left alone"]
        console.print(f"  {decision['at']}  {pool['name']}: {decision['cause']}", highlight=False)
        for problem in pool["problems"]:
            _hang(console, f"      ! {problem}", 8, "yellow")
        if not pool["problems"] and not written:
            states = ", ".join(f"{group['zone']} {group['state']}" for group in pool["groups"])
            _hang(console, f"      no change: {states}", 8, "dim")
        for group in written:
            _hang(console, f"      {_change(group)}", 8, "dim")


def _hang(console: Console, line: str, indent: int, style: str = "") -> None:
    """Print a line; its continuation lines are indented."""
    lines = wrap(line, console.width, subsequent_indent=" " * indent, break_on_hyphens=False)
    console.print("\n".join(lines), style=style, highlight=False, markup=False, soft_wrap=True)


def _story(demo: Demo, name: str, status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield labelled lines about a cluster: the source of its bounds, Evenkeel's writes, their reader, the result."""
    cluster = demo.world.clusters[name]
    decisions = [decision for decision in demo.decisions if decision["cluster"] == name]
    pool = next(decision["pool"] for decision in reversed(decisions) if decision["pool"]["valid"])
    origins = pool.get("numbersFrom") or {}
    yield "cluster", KINDS[name].description
    if maximum := origins.get("max"):
        yield "bounds", f"{pool['min']} to {pool['max']} nodes; max: {maximum['says']}"
    ours = (request for request in cluster.api.requests if request.has_patched and request.user == "evenkeel")
    written = Counter(field for request in ours for field in _written_fields(request))
    yield "writes", ", ".join(f"{times} x {field}" for field, times in sorted(written.items())) or "none"
    nodes = " / ".join(str(view.running) for view in cluster.groups())
    if cluster.workloads is not None:
        yield "nodes", f"{' / '.join(map(str, demo.peaks[name]))} in the zones at the peak, {nodes} at the end"
        yield from _pods(cluster)
        for state in status["pools"]:
            yield from (("demand", sentence) for sentence in state["demand"]["says"])
        return
    owners = [owner["kind"] for origin in origins.values() for owner in origin.get("owners") or ()]
    yield "reader", texts()["readers"][owners[0]] if owners else "cluster-autoscaler reads the annotations"
    yield from (("", note) for note in pool.get("notes") or ())
    pods = sum(cluster.autoscaler.demand.values()) if cluster.autoscaler else 0
    running = pods - demo.world.pending(name, _POOL.name)
    contested = (Reasons.CONTESTED_BOUNDS, Reasons.CONTESTED_REPLICAS)
    conflicts = sum(
        rule["rule"] in contested
        for decision in decisions
        for group in decision["pool"].get("groups", [])
        for rule in group["rules"]
    )
    yield "result", f"{nodes} nodes in the zones, {running} of {pods} pods run, {conflicts} write conflicts"


def _pods(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Yield how many pods run, and the scheduler's messages for the pending ones."""
    pods = cluster.store.list("pods")
    pending = [pod for pod in pods if not pod["spec"].get("nodeName")]
    yield "pods", f"{len(pods) - len(pending)} run, {len(pending)} are pending"
    messages = Counter(pod["status"]["conditions"][0]["message"] for pod in pending)
    yield from (("", f"{number} x {message}") for message, number in messages.items())


_RESOURCES = {"AWSMachine": "awsmachines.infrastructure.cluster.x-k8s.io"}
_KINDS = {"machinedeployments": "MachineDeployment", "machines": "Machine", "nodepools": "NodePool"}


def _enhanced(cluster: Cluster, event: dict[str, Any]) -> dict[str, Any]:
    """Return the exporter's EnhancedEvent: the event with labels and owners of its object."""
    involved = event["involvedObject"]
    resource = _RESOURCES.get(involved["kind"])
    for item in cluster.store.list(resource) if resource else []:
        metadata = item["metadata"]
        if metadata["name"] == involved["name"]:
            involved = involved | {key: metadata[key] for key in ("labels", "ownerReferences") if key in metadata}
    return event | {"involvedObject": involved}


def _written_fields(request: Request) -> Iterator[str]:
    """Yield the fields that a patch writes, without Evenkeel's own annotations."""
    kind = _KINDS[request.path.rstrip("/").split("/")[-2]]
    body = request.body if isinstance(request.body, dict) else {}
    yield from (f"{kind} spec.{field}" for field in body.get("spec") or {})
    annotations = (body.get("metadata") or {}).get("annotations") or {}
    if any(key.endswith("-max-size") for key in annotations):
        yield f"{kind} bounds annotations"
    if kind == "Machine":
        yield f"{kind} delete mark"


def _warnings(decisions: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the effects of other clusters' failures on a cluster's zones."""
    for group in (group for decision in decisions for group in decision["pool"]["groups"]):
        for rule, reason in zip(group["rules"], group["reasons"], strict=True):
            if rule["rule"] in (Reasons.THROTTLED, Reasons.FENCED_BY_OTHERS):
                yield f"{group['zone']}: {reason}"


def _reasons(group: Mapping[str, Any]) -> Iterator[str]:
    """Yield all reasons, except the reason about the share of a rolling update, which Evenkeel does not write."""
    for rule, reason in zip(group["rules"], group["reasons"], strict=True):
        if rule["rule"] != Reasons.ROLLING_SHARE:
            yield reason


def _change(group: dict[str, Any]) -> str:
    spans = [
        f"{name} {group[name]['from']} → {group[name]['to']}"
        for name in ("requested", "min", "max")
        if group[name]["from"] != group[name]["to"]
    ]
    return f"{group['zone']}: {', '.join(spans)} ({group['outcome']}): {'; '.join(_reasons(group))}"


def _rights(kind: Kind) -> Iterator[Rule]:
    """Yield Evenkeel's rights in a cluster of this kind."""
    files = [_DEPLOY / kind.folder / "rbac.yaml"]
    files += [_DEPLOY / "rbac-workload.yaml"] if "workload" in kind.record else []
    for file in files:
        role = next(item for item in yaml.safe_load_all(file.read_text()) if item["kind"] == "ClusterRole")
        yield from Rule.of_role(role)


def main() -> int:
    """Play the demo. A terminal shows it live. A pipe receives one table for each act."""
    console = Console()  # as wide as the terminal or COLUMNS; 80 columns for a pipe
    clock = FastClock()
    with ExitStack() as stack:
        world = World(
            clusters=KINDS,
            pools={name: [_ANNOTATED_POOL if "demand" in kind.record else _POOL] for name, kind in KINDS.items()},
            clock=clock.now,
            settings=Flags(unneeded=_UNNEEDED, delay_after_add=240),
            timing=_TIMING,
            users={"evenkeel": [rule for kind in KINDS.values() for rule in _rights(kind)]},
        )
        stack.enter_context(world)
        aws = stack.enter_context(AwsEndpoints())
        deployment = stack.enter_context(aws.deploy(parameters={"DryRun": "false"}))
        invoke = stack.enter_context(InProcess(deployment, log=io.StringIO()))
        use_clock(clock)
        stack.callback(use_clock, SystemClock())
        demo = Demo(world, deployment, Triggers(deployment, invoke), invoke, clock)
        demo.register()
        if console.is_terminal:
            with Live(console=console, get_renderable=lambda: demo.table(console.width), refresh_per_second=4):
                play(demo, lambda _: None)
        else:
            play(demo, lambda headline: console.print(demo.table(console.width)) if headline else None)
            demo.headline = ""  # the table of the act has already shown the headline
            console.print(demo.table(console.width))
        summary(demo, console)
        for failure in demo.triggers.failures:
            console.print(f"{failure.function} failed: {failure.error}", style="red")
        return 1 if demo.triggers.failures else 0


if __name__ == "__main__":
    sys.exit(main())
