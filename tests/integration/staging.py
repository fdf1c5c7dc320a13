"""The shared stage of integration and end-to-end tests: a deployment, its functions, and clusters."""

import json
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from evenkeel_cli.send import target_of
from sandbox.aws import Deployment
from sandbox.kube.world import POOLS, Cluster, Pool
from sandbox.template import ROOT
from sandbox.triggers import Triggers

EVENTS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "events").glob("*.json"))
}
#: uneven pools, for which Evenkeel has writes
UNEVEN: dict[str, Sequence[Pool]] = {
    flavour: [Pool(name=pool.name, minimum=3, maximum=12, replicas=(4, 1, 1))] for flavour, (pool,) in POOLS.items()
}


def function_of(event: str) -> str:
    return target_of(event).function


def patches(cluster: Cluster) -> int:
    return sum(request.method == "PATCH" and request.user == "evenkeel" for request in cluster.api.requests)


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until this holds: the buses and topics of some emulators deliver after their answer."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "what was waited for has not happened within 20 s"
        time.sleep(0.05)


class Stage:
    """A deployment whose functions are called with ``call``, by their logical ids."""

    def __init__(self, deployment: Deployment, call: Callable[[str, Any], Any]) -> None:
        self.deployment = deployment
        self.call = call
        self.triggers = Triggers(deployment, call)
        self.sqs = deployment.aws.client("sqs")

    def operator(self, action: str, cluster: str, **more: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.call("AdminFunction", {"action": action, "cluster": cluster, **more})
        return answer

    def register_cluster(self, name: str, cluster: Cluster, **fields: Any) -> None:
        access = put_kubeconfig(self.deployment, name, cluster)
        answer = self.operator("register", name, record={"flavours": [cluster.flavour], "access": access, **fields})
        assert answer["ok"], answer

    def check(self) -> None:
        """Run a scan, the checks that it requests and the runs that these request."""
        self.triggers.tick()
        self.triggers.drain()

    def take(self, queue: str) -> list[dict[str, Any]]:
        """Remove and return the visible messages of a queue, given by logical id or URL."""
        url = queue if queue.startswith("http") else self.deployment.physical(queue)
        taken: list[dict[str, Any]] = []
        while messages := self.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"]
        ).get("Messages"):
            for message in messages:
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                taken.append(message)
        return taken

    def chunks(self) -> list[list[str]]:
        """Remove the requested checks that are due from the queue, and return the clusters of each."""
        return [json.loads(message["Body"])["clusters"] for message in self.take("ChecksQueue")]

    def checks(self) -> list[str]:
        """Remove the requests for runs from the queue, and return their clusters."""
        return sorted(json.loads(message["Body"])["cluster"] for message in self.take("RebalanceQueue"))

    def receive(self, queue: str, is_last: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Remove and return the events of a queue, up to the one that is waited for."""
        received: list[dict[str, Any]] = []

        def is_there() -> bool:
            received.extend(json.loads(message["Body"]) for message in self.take(queue))
            return any(is_last(event) for event in received)

        eventually(is_there)
        return received

    def put_event(self, event: dict[str, Any], **detail: Any) -> None:
        """Do ``put_events`` with one event. ``detail`` replaces fields of its detail."""
        self.put_events({**event, "detail": {**event["detail"], **detail}})

    def put_events(self, *events: dict[str, Any]) -> None:
        """Put events on the stack's bus, and wait until it has delivered one of them."""
        entries = [
            {
                "EventBusName": self.deployment.bus,
                "Source": event["source"],
                "DetailType": event["detail-type"],
                "Detail": json.dumps(event["detail"]),
            }
            for event in events
        ]
        before = self.triggers.undelivered()
        self.deployment.aws.client("events").put_events(Entries=entries)
        eventually(lambda: self.triggers.undelivered() > before)

    def report_failure(self, name: str, cluster: Cluster, zone: str, at: datetime, **fields: Any) -> dict[str, Any]:
        """Put a native failure event about the group of that zone on the bus. Return its detail."""
        group = next(view for view in cluster.groups() if view.zone == zone)
        detail = {
            **EVENTS["provisioning-failure"]["detail"],
            "cluster": name,
            "namespace": group.namespace,
            "kind": "MachineSet" if cluster.flavour == "openshift" else "MachineDeployment",
            "name": group.name,
            "zone": zone,
            "occurredAt": at.isoformat(),
            "id": f"{self.deployment.stack}-{group.name}",
            **fields,
        }
        self.put_event(EVENTS["provisioning-failure"], **detail)
        return detail


def put_kubeconfig(deployment: Deployment, name: str, cluster: Cluster) -> dict[str, str]:
    """Store a cluster's kubeconfig in Secrets Manager. Return the access for its record."""
    secret = f"evenkeel/{deployment.stack}-{name}"
    kubeconfig = json.dumps(cluster.api.kubeconfig("evenkeel"))
    deployment.aws.client("secretsmanager").create_secret(Name=secret, SecretString=kubeconfig)
    return {"kind": "kubeconfig", "secret": secret}
