"""The stage of both demos: clusters, AWS endpoints, the functions of template.yaml, and a fast clock.

The demos run the handlers of functions/ with the queues, schedules and rules of template.yaml. They reach the clusters
over TLS with a kubeconfig from Secrets Manager, and with the rights in deploy/kubernetes. Only the time is faster.
"""

from __future__ import annotations

import io
import json
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn, Self

import yaml
from rich.console import Console
from rich.text import Text

from evenkeel.application.plan_documents import DecisionDocument, read_decisions
from evenkeel.bootstrap import SystemClock, use_clock
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.outcomes import Result
from evenkeel.texts.english import counted
from evenkeel_cli.console import terminal
from evenkeel_cli.simulation.autoscaler_model import Flags
from sandbox.aws import AwsEndpoints
from sandbox.kube.access import Rule
from sandbox.kube.controllers.machine_controller import Timing
from sandbox.kube.world import Cluster, Pool, World
from sandbox.triggers import InProcess, Triggers

UNNEEDED = 240  # seconds, in all clusters
TIMING = Timing(provision=timedelta(seconds=45))
LOOP = 10  # seconds: cluster-autoscaler's scan interval
POOL = Pool(name="workers", minimum=3, maximum=12)
SHARE = POOL.maximum // len(POOL.zones)  # the maximum of a zone, as its owner divides the pool
LEGEND = "# is a node, . is a requested node. A fenced zone gets no new nodes, a probing zone one, as a test."
NEXT = ".venv/bin/evenkeel plan --context <cluster-of-machine-objects>"  # at most 64 columns
_CELL = 9  # columns of a zone
_BARS = _CELL * len(POOL.zones)
SIDE = _BARS + 9  # columns of a cluster
HEADING = f"{{:<{_BARS}}}waiting"
_DEPLOY = Path(__file__).parents[2] / "deploy" / "kubernetes"
_INFRASTRUCTURE = {"AWSMachine": "awsmachines.infrastructure.cluster.x-k8s.io"}


class _Pipe(Console):
    """A console that leaves a closed pipe to its caller; Rich would exit with 1."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def open_console() -> Console:
    """Return a console for standard output. In a pipe, on a dumb terminal or with NO_COLOR it prints plain text."""
    return _Pipe(width=terminal().width, color_system=None if os.environ.get("NO_COLOR") else "auto")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of cluster: its folder of rights, its pool, further fields of its record, and its description."""

    folder: str
    pool: Pool
    record: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""

    def rights(self) -> Iterator[Rule]:
        """Yield Evenkeel's rights in a cluster of this kind."""
        files = [_DEPLOY / self.folder / "rbac.yaml"]
        files += [_DEPLOY / "rbac-workload.yaml"] if "workload" in self.record else []
        for file in files:
            role = next(item for item in yaml.safe_load_all(file.read_text()) if item["kind"] == "ClusterRole")
            yield from Rule.of_role(role)


@dataclass(frozen=True)
class Act:
    """Changes at a simulated minute, and their headline."""

    minute: float
    headline: str
    changes: tuple[Callable[[Any], object], ...] = ()


class StepClock:
    """A clock that only `sleep` moves. So a busy machine shows the same demo, only later."""

    def __init__(self) -> None:
        self.start = self._now = datetime.now(UTC)

    def now(self) -> datetime:
        """Return the time of this clock in UTC."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Move the clock."""
        self._now += timedelta(seconds=seconds)

    @property
    def minutes(self) -> float:
        """Return the minutes since the start."""
        return (self._now - self.start).total_seconds() / 60


@dataclass
class Side:
    """One cluster of the demo, and its measures so far."""

    cluster: Cluster
    pod_minutes: float = 0  # the waiting time of all pods in sum
    minutes: float = 0  # time with a pending pod
    most: int = 0  # the most requested or running nodes
    states: dict[str, State] = field(default_factory=dict)  # of each zone, as Evenkeel decided last

    def measure(self) -> None:
        """Add the loop that has ended."""
        minutes, views, pending = LOOP / 60, self.cluster.groups(), self.pending()
        self.pod_minutes += pending * minutes
        self.minutes += minutes if pending else 0
        self.most = max(self.most, sum(view.requested for view in views), sum(view.running for view in views))

    def pending(self) -> int:
        """Return the number of pending pods."""
        if self.cluster.autoscaler is not None:
            return self.cluster.autoscaler.pending(POOL.name)
        return sum(not pod["spec"].get("nodeName") for pod in self.cluster.store.list("pods"))

    def patches(self) -> int:
        """Return the number of Evenkeel's patches."""
        return sum(request.has_patched and request.user == "evenkeel" for request in self.cluster.api.requests)

    def texts(self) -> tuple[str, str, str, str]:
        """Return the waiting time, the nodes at the end, the patches, and whether PoolMaximum was kept."""
        nodes = [view.running for view in self.cluster.groups()]
        return (
            f"{self.pod_minutes:.0f} pod-minutes in {self.minutes:.1f} min",
            f"{sum(nodes)} ({' / '.join(map(str, nodes))})",
            f"{self.patches() or 'none'} by Evenkeel",
            f"{'kept' if self.most <= POOL.maximum else 'EXCEEDED'}: at most {self.most} nodes",
        )

    def cells(self) -> Iterator[Text]:
        """Yield the nodes of each zone, and the pending pods: together `SIDE` columns."""
        for view in self.cluster.groups():
            cell = Text.assemble(f"{view.zone[-1]} ", ("#" * view.running, "green"))
            cell.append("." * (view.requested - view.running), "bold red")
            yield padded(cell, _CELL)
        pending = self.pending()
        yield padded(Text(counted(pending, "pod") if pending else "-", "bold red" if pending else ""), SIDE - _BARS)

    def changes(self, decision: DecisionDocument) -> Iterator[str]:
        """Yield a text for each zone with a new state or written numbers."""
        for group in decision.pool.groups:
            zone = (group.zone or "?")[-1]
            before, self.states[zone] = self.states.get(zone, State.HEALTHY), group.state
            changes = [group.state.value] if group.state != before else []
            if group.result == Result.WRITTEN:
                numbers = ((name, number.before, number.after) for name, number in group.changes.items())
                changes += [f"{name} {'unset' if old is None else old} to {new}" for name, old, new in numbers]
            if changes:
                yield f"{zone} {', '.join(changes)}"
        yield from decision.pool.problems


def padded(text: Text, width: int) -> Text:
    """Return the text with spaces up to a width."""
    text.pad_right(width - len(text))
    return text


class Stage(AbstractContextManager["Stage"]):
    """Clusters with and without the deployed functions; `speed`: simulated seconds in a second."""

    loops_per_row = 6

    def __init__(self, kinds: Mapping[str, Kind], console: Console, speed: float) -> None:
        self.kinds = kinds
        self.console = console
        self.speed = speed
        self.clock = StepClock()
        self.world = self.build_world()
        self.others: list[World] = []
        self.sides = {name: Side(cluster) for name, cluster in self.world.clusters.items()}
        self._decisions: set[str] = set()  # ids: an event may arrive twice
        self._exported: set[tuple[str, str]] = set()
        self._stack = ExitStack()

    def build_world(self) -> World:
        """Return a world with a cluster of each kind."""
        return World(
            clusters=self.kinds,
            pools={name: [kind.pool] for name, kind in self.kinds.items()},
            clock=self.clock.now,
            settings=Flags(unneeded=UNNEEDED, delay_after_add=UNNEEDED),
            timing=TIMING,
            users={"evenkeel": [rule for kind in self.kinds.values() for rule in kind.rights()]},
        )

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.world)
            aws = stack.enter_context(AwsEndpoints())
            self.deployment = stack.enter_context(aws.deploy(parameters={"DryRun": "false"}))
            self._invoke = stack.enter_context(InProcess(self.deployment, log=io.StringIO()))
            self.triggers = Triggers(self.deployment, self._invoke)
            self._events = self.deployment.listen({"source": ["evenkeel"]})
            use_clock(self.clock)
            stack.callback(use_clock, SystemClock())
            for name, cluster in self.world.clusters.items():
                self._register(name, cluster)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _register(self, name: str, cluster: Cluster) -> None:
        """Create a secret and a record for a cluster."""
        secret = f"evenkeel/{self.deployment.stack}-{name}"
        kubeconfig = json.dumps(cluster.api.kubeconfig("evenkeel"))
        self.deployment.aws.client("secretsmanager").create_secret(Name=secret, SecretString=kubeconfig)
        access = {"kind": "kubeconfig", "secret": secret}
        self.register(
            name, {"flavours": [cluster.flavour], "access": access, "dry_run": False, **self.kinds[name].record}
        )

    def register(self, name: str, record: Mapping[str, Any]) -> None:
        """Register a cluster."""
        answer = self.operator("register", name, record=record)
        if not answer["ok"]:
            raise RuntimeError(answer["message"])

    def send(self, event: Mapping[str, Any]) -> None:
        """Deliver an event of AWS, as the rules on the default bus do."""
        self._invoke("ProvisioningFailureFunction", event)

    def operator(self, action: str, cluster: str, **fields: Any) -> dict[str, Any]:
        """Invoke an operator action and return its answer."""
        answer: dict[str, Any] = self._invoke("AdminFunction", {"action": action, "cluster": cluster, **fields})
        return answer

    def play(self, acts: Sequence[Act], minutes: float) -> int:
        """Run the acts in simulated time and print them, then print the result; return the exit code."""
        coming = list(acts)
        for loop in range(round(minutes * 60 / LOOP)):
            began = time.monotonic()
            while coming and self.clock.minutes >= coming[0].minute:
                act = coming.pop(0)
                self.console.print(f"\n{act.headline}", style="bold cyan", highlight=False)
                self.print_heading()
                for change in act.changes:
                    change(self)
            if loop % 6 == 0:
                self.triggers.tick(self.clock.now())
            self._step()
            if loop % self.loops_per_row == 0:
                self.print_state()
            self.clock.sleep(LOOP)
            time.sleep(max(0.0, LOOP / self.speed - (time.monotonic() - began)))
        self.console.print()
        self.print_result()
        for failure in self.triggers.failures:
            self.console.print(f"{failure.function} failed: {failure.error}", style="red", markup=False)
        return 1 if self.triggers.failures else 0

    @abstractmethod
    def print_heading(self) -> None:
        """Print the headings of the state."""

    @abstractmethod
    def print_state(self) -> None:
        """Print nodes and pending pods."""

    @abstractmethod
    def print_result(self) -> None:
        """Print the result of the demo."""

    def print_row(self, label: str, *cells: Text) -> None:
        """Print a label and cells in a line."""
        line = Text.assemble(label, *cells)
        line.rstrip()
        self.console.print(line, soft_wrap=True)

    def _step(self) -> None:
        """Run ten simulated seconds: autoscalers, controllers, queues. Print Evenkeel's changes."""
        for world in (*self.others, self.world):
            world.step(self.clock.now())
        self._export_events()
        self.triggers.poll()
        for decision in self._receive():
            if changes := "; ".join(self.sides[decision.cluster].changes(decision)):
                where = f" in {decision.cluster}" if len(self.kinds) > 1 else ""
                self.console.print(f"  Evenkeel{where}: {changes}", style="magenta", highlight=False, markup=False)
        for side in self.sides.values():
            side.measure()

    def _export_events(self) -> None:
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

    def _receive(self) -> Iterator[DecisionDocument]:
        """Yield the new decisions."""
        sqs = self.deployment.aws.client("sqs")
        while messages := sqs.receive_message(QueueUrl=self._events, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                sqs.delete_message(QueueUrl=self._events, ReceiptHandle=message["ReceiptHandle"])
                event = json.loads(message["Body"])
                if event["detail-type"].startswith("Incident "):
                    continue
                (decision,) = read_decisions([event["detail"]], event["detail-type"])
                if decision.id not in self._decisions:
                    self._decisions.add(decision.id)
                    yield decision


def _enhanced(cluster: Cluster, event: dict[str, Any]) -> dict[str, Any]:
    """Return the exporter's EnhancedEvent: the event with labels and owners of its object."""
    involved = event["involvedObject"]
    resource = _INFRASTRUCTURE.get(involved["kind"])
    for item in cluster.store.list(resource) if resource else []:
        metadata = item["metadata"]
        if metadata["name"] == involved["name"]:
            involved = involved | {key: metadata[key] for key in ("labels", "ownerReferences") if key in metadata}
    return event | {"involvedObject": involved}
