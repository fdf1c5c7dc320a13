"""`make demo`: four kinds of clusters in one outage, the real functions, and a table of what happens.

Nothing is played to the audience: the handlers are those of functions/, called through the queues, schedules and rules
of template.yaml; they reach the clusters over TLS with a kubeconfig from Secrets Manager, as the user that the
ecosystems' folders below deploy/kubernetes describe. Two of the clusters are as their own tools make them, with nothing
of Evenkeel's on any object, and beside each run its owners' controllers, which put back what is theirs. The last has
pods and no autoscaler: Evenkeel orders nodes for those that wait there, and takes away what nobody needs. Only time
runs faster.
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
from evenkeel.texts.english import READERS
from evenkeel_cli.simulation.autoscaler_model import Flags
from sandbox.aws import AwsEndpoints, Deployment
from sandbox.kube.access import Rule
from sandbox.kube.api import Request
from sandbox.kube.controllers.life import Timing
from sandbox.kube.controllers.objects import USERS_POOL_LABEL
from sandbox.kube.controllers.shoots import OPERATION, SHOOTS
from sandbox.kube.world import Cluster, GroupView, Pool, World
from sandbox.triggers import InProcess, Triggers

SPEED = 22  # simulated seconds in a second
SECONDS = 48  # how long the audience sits
_LOOP = timedelta(seconds=10)  # Cluster Autoscaler's scan interval
_DEPLOY = Path(__file__).parent.parent / "deploy" / "kubernetes"
_WIDE = 120  # columns of a terminal
_STYLES = {"healthy": "green", "fenced": "bold red", "probing": "yellow", "frozen": "blue"}


_TIMING = Timing(provision=timedelta(seconds=45))
_POOL = Pool(name="workers", minimum=3, maximum=12)
_UNNEEDED = 240  # seconds, of every node in all clusters
# Where no autoscaler has it as a flag, it stands on the groups.
_FLAGGED_POOL = replace(
    _POOL,
    annotations={"cluster.x-k8s.io/autoscaling-options-scaledownunneededtime": f"{_UNNEEDED}s"},
)
_SHARE = _POOL.maximum // len(_POOL.zones)  # of a zone, as somebody has dealt it out


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of cluster: its folder of rights, what its record says besides, and what it is, for the audience."""

    folder: str
    says: str
    record: Mapping[str, Any]


KINDS = {
    "gardener-plain": Kind(
        folder="gardener",
        says="a Gardener seed as Gardener makes it: a Shoot, its Worker, a MachineDeployment for each zone",
        # Its autoscaler has its bounds from flags: what a zone cannot deliver we order elsewhere ourselves.
        record={"on_failure": "move"},
    ),
    "hypershift": Kind(
        folder="hypershift",
        says="a HyperShift management cluster: a NodePool for each zone, with a label of their users",
        record={"pools": [{"name": _POOL.name, "selector": {USERS_POOL_LABEL: _POOL.name}}]},
    ),
    "cluster-api": Kind(
        folder="cluster-api",
        says="plain Cluster API: MachineDeployments, with a pool's label and numbers on them",
        # Its pods are a number here, so nobody can say which of them may move.
        record={"level": "converge", "converge": {"blind": True}},
    ),
    "self-managed": Kind(
        folder="cluster-api",
        says="a Cluster API cluster that manages itself, with pods of its own and without any autoscaler",
        record={"autoscaler": "none", "demand": "full", "workload": {"access": {"kind": "same"}}},
    ),
}


class FastClock:
    """Time that began now and runs SPEED times as fast, but in each turn no further than a loop.

    So a busy machine shows the same, only later: what takes its time here would be minutes there.
    """

    def __init__(self) -> None:
        self._began = datetime.now(UTC)
        self._turn = timedelta(0), time.monotonic()

    def turn(self) -> None:
        """The next loop begins."""
        self._turn = self.elapsed(), time.monotonic()

    def elapsed(self) -> timedelta:
        before, start = self._turn
        return before + min(timedelta(seconds=(time.monotonic() - start) * SPEED), _LOOP)

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
        self.heights: dict[str, list[int]] = {}  # by cluster: nodes in its zones when there were most

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
                    **KINDS[name].record,
                },
            )
            if not answer["ok"]:
                raise RuntimeError(answer["message"])

    def operator(self, action: str, cluster: str, **more: Any) -> dict[str, Any]:
        """One operator event and its answer."""
        answer: dict[str, Any] = self.invoke("AdminFunction", {"action": action, "cluster": cluster, **more})
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
                if event["detail-type"].startswith("Incident "):  # of several pools' decisions, for people
                    continue
                decision = event["detail"]
                self.decisions.append(decision)
                for group in decision["pool"].get("groups", []):
                    self._latest[(decision["cluster"], group["namespace"], group["name"])] = group

    def table(self, width: int) -> Group:
        """Pools x zones as they are now; with the last reason, where there is room for it."""
        minutes = self.clock.elapsed().total_seconds() / 60
        is_wide = width >= _WIDE
        new = Table if is_wide else partial(Table, box=None, padding=(0, 1, 0, 0), pad_edge=False)
        table = new(title=f"minute {minutes:4.1f}", title_justify="left", expand=is_wide)
        for heading in ("cluster", "pool", "zone"):
            table.add_column(heading, no_wrap=True)
        for heading in ("running", "requested", "min", "max"):
            table.add_column(heading, justify="right")
        table.add_column("state", no_wrap=True)
        if is_wide:
            table.add_column("last reason", overflow="ellipsis", no_wrap=True, ratio=1)
        before = ""
        for view in self.world.groups():
            table.add_row(*islice(self._row(view, first=view.cluster != before), len(table.columns)))
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
        yield Text(next(_reasons(latest), "") if latest else "", style="dim")

    def step(self) -> None:
        """Ten simulated seconds: autoscalers, controllers, schedule, queues."""
        now = self.clock.now()
        self.world.step(now)
        for name, cluster in self.world.clusters.items():
            running = [view.running for view in cluster.groups()]
            self.heights[name] = max(self.heights.get(name, []), running, key=sum)
        self.export_events()
        self.triggers.poll()
        self.hear()


_ZONE, _OTHER = _POOL.zones[:2]
_RESOURCES = {"AWSMachine": "awsmachines.infrastructure.cluster.x-k8s.io"}


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


_NAMES = {"machinedeployments": "MachineDeployment", "machines": "Machine", "nodepools": "NodePool"}
_DECISIONS_SHOWN = 2  # of each cluster, the last
_BOUND = _SHARE + 2  # pods that only one zone can serve


def _want(demo: Demo, **pods: int) -> None:
    for name, number in pods.items():
        demo.world.set_demand(name.replace("_", "-"), _POOL.name, number)


def _rise(demo: Demo) -> None:
    _want(demo, gardener_plain=9, cluster_api=6)
    _scale(demo, _PODS[1])


def _outage(demo: Demo) -> None:
    for name in demo.world.clusters:
        demo.world.take_away(name, _ZONE)
    _want(demo, cluster_api=10)
    _scale(demo, _PODS[2])


def _turn(demo: Demo) -> None:
    _want(demo, gardener_plain=11, hypershift=5)
    _scale(demo, _PODS[3])


def _recovery(demo: Demo) -> None:
    for name in demo.world.clusters:
        demo.world.give_back(name, _ZONE)
    _want(demo, hypershift=6)


def _reconcile(demo: Demo) -> None:
    store = demo.world.clusters["gardener-plain"].store
    (shoot,) = store.list(SHOOTS)
    asked = {"metadata": {"annotations": {OPERATION: "reconcile"}}}
    store.patch(SHOOTS, shoot["metadata"]["namespace"], shoot["metadata"]["name"], asked, manager="kubectl")
    _scale(demo, _PODS[4])


def _deploy(demo: Demo) -> None:
    """A Deployment of pods that may stand in any zone, three of them on a node, and a budget that lets one go."""
    labels = {"app": _APP}
    container = {"name": _APP, "image": "registry.example/web", "resources": {"requests": {"cpu": "1200m"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    selector = {"matchLabels": labels}
    for resource, spec in (
        ("deployments.apps", {"replicas": _PODS[0], "selector": selector, "template": template}),
        ("poddisruptionbudgets.policy", {"maxUnavailable": 1, "selector": selector}),
    ):
        body = {"metadata": {"name": _APP}, "spec": spec}
        demo.world.clusters["self-managed"].store.create(resource, body, manager="kubectl-client-side-apply")


def _scale(demo: Demo, pods: int) -> None:
    store = demo.world.clusters["self-managed"].store
    store.scale("deployments.apps", "default", _APP, pods, manager="kubectl")


_APP, _PODS = "web", (6, 18, 24, 6, 7)  # at first, of a day, at its height, at night, and a little later
# What is said of an act is so when it is shown, however busy the machine: what has just been done, and rules that hold
# at any time. What comes of it the tables show.
ACTS = (
    Act(
        0,
        f"Four clusters, each with {_SHARE} nodes at most in a zone: by a Worker, by NodePools, by annotations. The "
        "first two know nothing of Evenkeel, which has just been switched on. The last has no autoscaler, but pods.",
        _deploy,
    ),
    Act(
        1,
        "Load has risen in gardener-plain and cluster-api, and any zone will do. In self-managed a Deployment was "
        f"scaled from {_PODS[0]} pods to {_PODS[1]}: three fit on a node, and nobody but Evenkeel orders nodes there.",
        _rise,
    ),
    Act(
        2.3,
        f"hypershift: {_BOUND} nodes are wanted that only zone {_OTHER[-1]} can serve. By itself its NodePool stops "
        f"at {_SHARE}.",
        lambda d: d.world.set_demand("hypershift", _POOL.name, _BOUND, _OTHER),
    ),
    Act(
        3.2,
        f"Zone {_ZONE[-1]} has no more machines for any of them, and load has just risen in cluster-api, and to "
        f"{_PODS[2]} pods in self-managed. All four buy the same: one that cannot get it warns the others.",
        _outage,
    ),
    Act(
        5,
        "Load has risen in gardener-plain and hypershift. That a machine failed Gardener says in its status only, "
        "HyperShift also by events, which are brought twice and backwards here. In self-managed the peak has gone by: "
        f"{_PODS[3]} pods are wanted. A node that nobody needs may go ten minutes after the last order.",
        _turn,
    ),
    Act(
        8,
        "Gardener was asked to reconcile its Shoot, as it does every hour: inside the Worker's shares replicas are not "
        "its own. HyperShift's operator puts back what is its own every moment. One pod more is wanted in "
        "self-managed: a node with a pod goes only by being drained.",
        _reconcile,
    ),
    Act(
        12.5,
        f"Zone {_ZONE[-1]} has machines again, and load has risen by one in hypershift. A zone that failed is tried "
        "with one node first. In cluster-api nobody wants a node more: a pool whose zones have differed for ten "
        "minutes may bring one home there, launch before drain. Gardener tries a machine that was refused every "
        f"{_TIMING.resource_exhausted_retry.seconds // 60} min.",
        _recovery,
    ),
    Act(
        17,
        "cluster-api: somebody has set PoolMaximum to a word. An invalid pool is left alone, and no other for it.",
        lambda d: _annotate(d, "cluster-api", "evenkeel.dev/pool-max", "many"),
    ),
)


def _annotate(demo: Demo, cluster: str, key: str, value: str) -> None:
    view = next(iter(demo.world.clusters[cluster].groups()))
    patch = {"metadata": {"annotations": {key: value}}}
    kind = "machinedeployments.cluster.x-k8s.io"
    demo.world.clusters[cluster].store.patch(kind, view.namespace, view.name, patch, manager="kubectl-edit")


def play(demo: Demo, show: Callable[[str], None], seconds: float = SECONDS) -> None:
    """Run the acts in simulated time; `show` is called after each step, with the headline of a new act."""
    acts = list(ACTS)
    next_minute = 0
    end = timedelta(seconds=seconds * SPEED)
    while (elapsed := demo.clock.elapsed()) < end:
        demo.clock.turn()
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
    patches = [request for request in requests if request.has_patched]
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
        for line in _story(demo, name):
            _hang(console, f"  {line}", 14)
        for warning in dict.fromkeys(_heard(status["decisions"])):
            _hang(console, f"  heard from others: {warning}", 4, "magenta")
        for decision in reversed(status["decisions"][:_DECISIONS_SHOWN]):
            pool = decision["pool"]
            console.print(f"  {decision['at']}  {pool['name']}: {decision['cause']}", highlight=False)
            for problem in pool["problems"]:
                _hang(console, f"      ! {problem}", 8, "yellow")
            if not pool["problems"] and all(group["outcome"] == "left alone" for group in pool["groups"]):
                states = ", ".join(f"{group['zone']} {group['state']}" for group in pool["groups"])
                _hang(console, f"      nothing to write: {states}", 8, "dim")
            for group in pool["groups"]:
                if group["outcome"] != "left alone":
                    _hang(console, f"      {_told(group)}", 8, "dim")
    console.print()
    console.rule("What next")
    console.print(
        "Plan for your own cluster, read-only:\n  .venv/bin/evenkeel plan --context <context>", highlight=False
    )
    console.print(
        "Or from files, without any connection:\n"
        "  kubectl get machinedeployments -A -o yaml | .venv/bin/evenkeel plan -f -",
        highlight=False,
    )
    console.print("Run the tests:\n  make test", highlight=False)
    console.print('Deploy in dry run:\n  README.md, "Deploying"', highlight=False)


def _hang(console: Console, line: str, indent: int, style: str = "") -> None:
    """Lines that go on are set in, so that the eye finds where the next begins."""
    lines = wrap(line, console.width, subsequent_indent=" " * indent, break_on_hyphens=False)
    console.print("\n".join(lines), style=style, highlight=False, markup=False, soft_wrap=True)


def _story(demo: Demo, name: str) -> Iterator[str]:
    """Where a cluster's numbers came from, what was written where, who reads that, and what came of it."""
    cluster = demo.world.clusters[name]
    decided = [decision for decision in demo.decisions if decision["cluster"] == name]
    pool = next(decision["pool"] for decision in reversed(decided) if decision["pool"]["valid"])
    origins = pool.get("numbersFrom") or {}
    yield f"is          {KINDS[name].says}"
    if maximum := origins.get("max"):
        yield f"numbers     {pool['min']} to {pool['max']} nodes; max is {maximum['says']}"
    written = Counter(place for request in cluster.api.requests if _is_ours(request) for place in _places(request))
    yield f"written     {', '.join(f'{times} x {place}' for place, times in sorted(written.items())) or 'nothing'}"
    if cluster.workloads is not None:
        yield from _circle(demo, name)
        return
    owners = [owner["kind"] for origin in origins.values() for owner in origin.get("owners") or ()]
    yield f"read by     {READERS[owners[0]] if owners else 'cluster-autoscaler, where they are written'}"
    for note in pool.get("notes") or ():
        yield f"            {note}"
    autoscaler = cluster.autoscaler
    wanted = sum(autoscaler.demand.values()) if autoscaler else 0
    nodes = " / ".join(str(view.running) for view in cluster.groups())
    waiting = demo.world.pending(name, _POOL.name)
    fights = [rule for decision in decided for rule in _rules(decision)]
    fought = sum(rule in (Reasons.CONTESTED_BOUNDS, Reasons.CONTESTED_REPLICAS) for rule in fights)
    yield (
        f"came of it  {nodes} nodes in the zones, {wanted - waiting} of {wanted} pods have one, "
        f"{fought or 'nothing'} fought over"
    )


def _circle(demo: Demo, name: str) -> Iterator[str]:
    """Nodes at the height and in the end, and pods; in the scheduler's words and ours, why any still waits."""
    cluster = demo.world.clusters[name]
    nodes = " / ".join(str(view.running) for view in cluster.groups())
    at_most = " / ".join(map(str, demo.heights[name]))
    yield f"came of it  {at_most} nodes in the zones at the height, {nodes} in the end"
    pods = cluster.store.list("pods")
    waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
    yield f"pods        {len(pods) - len(waiting)} run, {len(waiting)} wait"
    for said, number in Counter(pod["status"]["conditions"][0]["message"] for pod in waiting).items():
        yield f"            {number} x {said}"
    status = demo.operator("status", name)
    for pool in status["pools"]:
        yield from (f"demand      {sentence}" for sentence in pool["demand"]["says"])


def _is_ours(request: Request) -> bool:
    return request.has_patched and request.user == "evenkeel"


def _places(request: Request) -> Iterator[str]:
    """What a patch of ours has written, as people call it; our own annotations aside."""
    kind = _NAMES[request.path.rstrip("/").split("/")[-2]]
    body = request.body if isinstance(request.body, dict) else {}
    yield from (f"{kind} spec.{field}" for field in body.get("spec") or {})
    annotations = (body.get("metadata") or {}).get("annotations") or {}
    if any(key.endswith("-max-size") for key in annotations):
        yield f"{kind} bounds annotations"
    if kind == "Machine":
        yield f"{kind} delete mark"


def _rules(decision: Mapping[str, Any]) -> Iterator[str]:
    return (rule["rule"] for group in decision["pool"].get("groups", []) for rule in group["rules"])


def _heard(decisions: list[dict[str, Any]]) -> Iterator[str]:
    """What other clusters' failures have made of a cluster's zones."""
    for decision in decisions:
        for group in decision["pool"]["groups"]:
            for rule, reason in zip(group["rules"], group["reasons"], strict=True):
                if rule["rule"] in (Reasons.THROTTLED, Reasons.FENCED_BY_OTHERS):
                    yield f"{group['zone']}: {reason}"


def _reasons(group: Mapping[str, Any]) -> Iterator[str]:
    """All but a rolling update's share, which is reported and not written."""
    for rule, reason in zip(group["rules"], group["reasons"], strict=True):
        if rule["rule"] != Reasons.ROLLING_SHARE:
            yield reason


def _told(group: dict[str, Any]) -> str:
    spans = [
        f"{name} {group[name]['from']} → {group[name]['to']}"
        for name in ("requested", "min", "max")
        if group[name]["from"] != group[name]["to"]
    ]
    return f"{group['zone']}: {', '.join(spans)} ({group['outcome']}): {'; '.join(_reasons(group))}"


def _rights(kind: Kind) -> list[Rule]:
    """What Evenkeel may do in a cluster of this kind."""
    files = [_DEPLOY / kind.folder / "rbac.yaml"] + (
        [_DEPLOY / "rbac-workload.yaml"] if "workload" in kind.record else []
    )
    roles = [next(_roles(file.read_text())) for file in files]
    return [rule for role in roles for rule in Rule.of_role(role)]


def _roles(manifest: str) -> Iterator[dict[str, Any]]:
    return (document for document in yaml.safe_load_all(manifest) if document["kind"] == "ClusterRole")


def main() -> int:
    """Play it, live on a terminal, act by act into a pipe."""
    console = Console()  # as wide as the terminal, or as COLUMNS says; into a pipe 80
    clock = FastClock()
    log = io.StringIO()
    with ExitStack() as stack:
        settings = Flags(unneeded=_UNNEEDED, delay_after_add=240)
        world = stack.enter_context(
            World(
                clusters=KINDS,
                pools={name: [_FLAGGED_POOL if "demand" in kind.record else _POOL] for name, kind in KINDS.items()},
                clock=clock.now,
                settings=settings,
                timing=_TIMING,
                users={"evenkeel": [rule for kind in KINDS.values() for rule in _rights(kind)]},
            )
        )
        aws = stack.enter_context(AwsEndpoints())
        deployment = stack.enter_context(aws.deploy(parameters={"DryRun": "false"}))
        invoke = stack.enter_context(InProcess(deployment, log=log))
        use_clock(clock)
        stack.callback(use_clock, SystemClock())
        demo = Demo(world, deployment, Triggers(deployment, invoke), invoke, clock)
        demo.register()
        if console.is_terminal:
            with Live(console=console, get_renderable=lambda: demo.table(console.width), refresh_per_second=4):
                play(demo, lambda _: None)
        else:

            def show(said: str) -> None:
                if said:
                    console.print(demo.table(console.width))

            play(demo, show)
            demo.headline = ""  # it stands above already, with the act's own table
            console.print(demo.table(console.width))
        summary(demo, console)
        for failure in demo.triggers.failures:
            console.print(f"{failure.function} failed: {failure.error}", style="red")
        return 1 if demo.triggers.failures else 0


if __name__ == "__main__":
    sys.exit(main())
