"""Stack `evenkeel` on this machine: AWS endpoints, the functions of template.yaml, and the clusters of events/.

    python -m sandbox.local_stack event events/provisioning-failure.json    # make event FILE=...
    python -m sandbox.local_stack serve                                     # make localstack

`event` starts the stack on moto, sends the event with `evenkeel send`, and prints the effect. `serve` starts the stack
on LocalStack, for commands in another terminal, until Ctrl-C.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn, Self
from unittest.mock import patch

from botocore.exceptions import ClientError

from evenkeel.application.plan_documents import DecisionDocument, GroupDocument, read_decisions
from evenkeel.application.ports import DetailType
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.outcomes import Result
from evenkeel.validation import ConfigError
from evenkeel_cli.send import EFFECT, read_event
from evenkeel_cli.terminal import BAD_INPUT, CANNOT_READ, INTERRUPTED
from sandbox.auto_scaling.api import AutoScaling
from sandbox.auto_scaling.clock import WallClock
from sandbox.auto_scaling.node_groups import NodeGroups
from sandbox.auto_scaling.server import AwsServer
from sandbox.aws import AwsEndpoints, Deployment
from sandbox.kube.cloud import Cloud
from sandbox.kube.world import REGION, ZONES, World
from sandbox.localstack import emulators
from sandbox.stack import StackEndpoint
from sandbox.template import ROOT
from sandbox.triggers import InProcess, Invoke, Triggers

STACK = "evenkeel"
BUCKET = "evenkeel-page"
VARIABLES = ROOT / "build" / "localstack.env"  # exports the variables of `environment`
EVENKEEL = Path(sys.executable).with_name("evenkeel")
_EVENTS = ROOT / "events"
_EKS = "demo-eks"
_SECONDS_BETWEEN_POLLS = 0.5
# What `register_all` does to cluster demo-cluster-api, for who reads the effect of an event.
_WITHOUT_EVENT = "Without the event, max is 5 in each zone: the sandbox has raised PoolMaximum from 12 to 15."


class LocalStack(AbstractContextManager["LocalStack"]):
    """The stack with its clusters registered and live. Each has a pool `workers` in three zones.

    Args:
        aws: The endpoints of AWS.
        functions: Returns what calls the functions of a deployment; by default, they run in this process.
    """

    def __init__(self, aws: AwsEndpoints, functions: Callable[[Deployment, ExitStack], Invoke] | None = None) -> None:
        self.aws = aws
        self._functions = functions or _in_process
        self._lock = threading.Lock()  # a function handles one event at a time
        self._answers: list[str] = []  # of the function that handles the events of the bus
        self._ids: set[str] = set()  # of decisions: an event may arrive twice
        self._stack = ExitStack()
        self.world = World(clusters=["cluster-api", "openshift"], clock=lambda: datetime.now(UTC), settings=None)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.world)
            stack.enter_context(patch.dict(os.environ, stack.enter_context(_auto_scaling()).environment()))
            topic = self.aws.client("sns").create_topic(Name="incidents")["TopicArn"]
            self.aws.client("s3").create_bucket(
                Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": self.aws.region}
            )
            stack.callback(self._delete_page)
            parameters = {"DryRun": "false", "PageBucket": BUCKET, "ChatTopicArn": topic}
            self.deployment = stack.enter_context(self.aws.deploy(parameters=parameters, stack=STACK))
            self._call = self._functions(self.deployment, stack)
            self.endpoint = stack.enter_context(StackEndpoint(STACK, self.invoke, self.deployment))
            self.triggers = Triggers(self.deployment, self.invoke)
            self._decisions = self.deployment.listen({"source": ["evenkeel"]})
            for name, cluster in self.world.clusters.items():
                secret = f"{STACK}/demo-{name}"
                text = json.dumps(cluster.api.kubeconfig("evenkeel"))
                self.aws.client("secretsmanager").create_secret(Name=secret, SecretString=text)
                stack.callback(self._delete_secret, secret)
            self.register_all()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _delete_secret(self, name: str) -> None:
        self.aws.client("secretsmanager").delete_secret(SecretId=name, ForceDeleteWithoutRecovery=True)

    def _delete_page(self) -> None:
        s3 = self.aws.client("s3")
        for found in s3.list_objects_v2(Bucket=BUCKET).get("Contents", []):
            s3.delete_object(Bucket=BUCKET, Key=found["Key"])
        s3.delete_bucket(Bucket=BUCKET)

    def environment(self) -> dict[str, str]:
        """Return the variables that make `evenkeel`, `aws` and boto3 use this stack."""
        return {**self.aws.environment(), **self.endpoint.environment(), "EVENKEEL_STACK": STACK}

    def invoke(self, function: str, event: Any) -> Any:
        """Call a function by its logical id."""
        with self._lock:
            answer = self._call(function, event)
        if function == "ProvisioningFailureFunction":
            self._answers.append(answer["message"])
        return answer

    def register_all(self) -> None:
        """Register the clusters, and run them once. Then raise a PoolMaximum, so that the next run has to write."""
        self._set_maximum("12")
        zone_ids = json.loads((_EVENTS / "admin-register.json").read_text())["record"]["zone_ids"]
        common = {"region": REGION, "zone_ids": zone_ids, "dry_run": False, "autoscaler": "none"}
        for name, cluster in self.world.clusters.items():
            access = {"kind": "kubeconfig", "secret": f"{STACK}/demo-{name}"}
            self._register(f"demo-{name}", {**common, "flavours": [cluster.flavour], "access": access})
        access = {"kind": "auto-scaling", "region": REGION}
        self._register(_EKS, {**common, "flavours": ["auto-scaling"], "access": access})
        self.effects()
        self._set_maximum("15")

    def _register(self, cluster: str, record: Mapping[str, Any]) -> None:
        answer = self.invoke("AdminFunction", {"action": "register", "cluster": cluster, "record": record})
        if not answer["ok"]:
            raise RuntimeError(answer["message"])

    def _set_maximum(self, maximum: str) -> None:
        """Write a PoolMaximum to the groups of cluster demo-cluster-api, as its owner does."""
        cluster = self.world.clusters["cluster-api"]
        annotations = {"metadata": {"annotations": {"evenkeel.dev/pool-max": maximum}}}
        for view in cluster.groups():
            cluster.store.patch(cluster.scalables, view.namespace, view.name, annotations, manager="owner")

    def effects(self) -> list[str]:
        """Deliver the queued events and messages; return the answers, the failures, and the changes of each group."""
        self._answers.clear()
        self.triggers.drain()
        lines = [*self._answers, *(f"{failure.function} failed: {failure.error}" for failure in self.triggers.failures)]
        for decision in self._new_decisions():
            status = self.invoke("WidgetFunction", {"action": "status", "cluster": decision.cluster})
            for group in decision.pool.groups:
                parts = [_fence(group, status)] if group.state == State.FENCED else []
                if group.result == Result.WRITTEN:
                    parts += [f"{name} {number.before} to {number.after}" for name, number in group.changes.items()]
                if parts:
                    lines.append(f"{decision.cluster}: {group.name}: {', '.join(parts)}")
        return lines

    def _new_decisions(self) -> Iterator[DecisionDocument]:
        sqs = self.aws.client("sqs")
        while messages := sqs.receive_message(QueueUrl=self._decisions, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                sqs.delete_message(QueueUrl=self._decisions, ReceiptHandle=message["ReceiptHandle"])
                event = json.loads(message["Body"])
                if event["detail-type"].startswith(("Incident ", DetailType.REQUEST_REFUSED)):
                    continue  # no decision
                (decision,) = read_decisions([event["detail"]], event["detail-type"])
                if decision.id not in self._ids:
                    self._ids.add(decision.id)
                    yield decision


def _fence(group: GroupDocument, status: Mapping[str, Any]) -> str:
    """Return until when a node group is fenced, by its own failures or by its zone."""
    own = status["groups"].get(group.key, {}).get("backoffUntil")
    of_zone = status["zones"].get(group.zone, {}).get("impairedUntil")
    return f"fenced until {max(filter(None, (own, of_zone)), default='its zone is well again')}"


def _in_process(deployment: Deployment, stack: ExitStack) -> Invoke:
    return stack.enter_context(InProcess(deployment, log=io.StringIO()))


def _auto_scaling() -> AwsServer:
    """Return an Auto Scaling API with one group for each zone of pool `workers`, in cluster demo-eks."""
    clock = WallClock()
    clock.now -= timedelta(minutes=5)
    api = AutoScaling(Cloud(zones=ZONES), clock=clock, region=REGION)
    for zone in ZONES:
        name = f"{_EKS}-workers-{zone}"
        values = {"evenkeel.dev/pool": "workers", "evenkeel.dev/pool-min": "3", "evenkeel.dev/pool-max": "12"}
        of_group = {"ResourceId": name, "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
        api.create_auto_scaling_group(
            AutoScalingGroupName=name,
            MinSize=1,
            MaxSize=4,
            DesiredCapacity=2,
            AvailabilityZones=[zone],
            LaunchTemplate={"LaunchTemplateName": "workers", "Version": "1"},
            Tags=[{**of_group, "Key": key, "Value": value} for key, value in values.items()],
        )
    api.clock.step(datetime.now(UTC))
    services = {"autoscaling": api, "eks": NodeGroups(api)}
    return AwsServer(lambda _key, _region: services)


def send(file: str) -> int:
    """Send the event of a file on a new stack, print its effect, and return the exit code."""
    try:
        read_event(file)
    except ConfigError as error:
        print(*error.faults, sep="\n", file=sys.stderr)
        return BAD_INPUT
    for name in [name for name in os.environ if name.startswith("AWS_ENDPOINT_URL")]:
        del os.environ[name]  # of a stack on LocalStack, which has the same names
    print("Starting clusters, AWS endpoints and Evenkeel's functions (about 5 seconds)", flush=True)
    with AwsEndpoints() as aws, LocalStack(aws) as stack:
        environment = os.environ | stack.environment()
        sent = subprocess.run([EVENKEEL, "send", file], env=environment, stdout=subprocess.PIPE, text=True, check=False)
        lines = [line for line in sent.stdout.splitlines() if not line.startswith(EFFECT)]
        if sent.returncode == 0:
            effects = stack.effects() or ["no node group changes"]
            if any(line.startswith("demo-cluster-api: ") and " max " in line for line in effects):
                effects.append(_WITHOUT_EVENT)
            lines += ["Effect:", *(f"  {line}" for line in effects)]
        for line in lines:
            print(line)
        return sent.returncode


def serve() -> None:
    """Run the stack on LocalStack, until Ctrl-C or SIGTERM."""
    print("Starting LocalStack, DynamoDB Local, clusters and Evenkeel's functions (about 20 seconds)", flush=True)
    with emulators() as variables, patch.dict(os.environ, variables), AwsEndpoints() as aws, LocalStack(aws) as stack:
        exports = [f"export {name}={shlex.quote(value)}\n" for name, value in stack.environment().items()]
        VARIABLES.parent.mkdir(exist_ok=True)
        VARIABLES.write_text("".join(exports))
        print(f"Stack {STACK} runs on LocalStack. In another terminal: . {VARIABLES.relative_to(ROOT)}", flush=True)
        try:
            _deliver(stack.triggers)
        finally:
            VARIABLES.unlink(missing_ok=True)


def _deliver(triggers: Triggers) -> NoReturn:
    """Deliver messages, events and, each minute, the schedules."""
    minute = time.time() // 60
    while True:
        triggers.poll()
        if time.time() // 60 > minute:
            minute = time.time() // 60
            triggers.tick()
        time.sleep(_SECONDS_BETWEEN_POLLS)


def main(command: str, *files: str) -> int:
    """Run a command; return its exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if command == "event":
            return send(*files)
        serve()
    except KeyboardInterrupt:
        print("The stack is deleted.")
        return INTERRUPTED
    except (OSError, ClientError) as error:
        print(f"the stack of the sandbox ends: {error}", file=sys.stderr)
        return CANNOT_READ
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
