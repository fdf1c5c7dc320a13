"""What the stages of integration and end-to-end tests share: a deployment, its functions, and clusters beside it."""

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
#: pools of which one zone holds too much: there is something to write
UNEVEN: dict[str, Sequence[Pool]] = {
    flavour: [Pool(name=pool.name, minimum=3, maximum=12, replicas=(4, 1, 1))] for flavour, (pool,) in POOLS.items()
}


def function_of(event: str) -> str:
    return target_of(event).function


def patches(cluster: Cluster) -> int:
    return sum(request.method == "PATCH" and request.user == "evenkeel" for request in cluster.api.requests)


def eventually(holds: Callable[[], bool]) -> None:
    """Returns when this holds: the buses and topics of some emulators hand over after they have answered."""
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
        """A scan, and the worker handles all that has been asked for."""
        self.triggers.tick()
        self.triggers.drain()

    def take(self, queue: str) -> list[dict[str, Any]]:
        """The messages that are visible in a queue, a logical id of the template or a URL; they are taken out."""
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
        """The clusters of each check that was asked for and is due, taken from the queue."""
        return [json.loads(message["Body"])["clusters"] for message in self.take("ChecksQueue")]

    def checks(self) -> list[str]:
        """Clusters for which a check was requested; taken out of the queue."""
        return sorted(json.loads(message["Body"])["cluster"] for message in self.take("RebalanceQueue"))

    def receive(self, queue: str, is_last: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """The events that a queue has got, to the last that is waited for; they are taken out."""
        received: list[dict[str, Any]] = []

        def is_there() -> bool:
            received.extend(json.loads(message["Body"]) for message in self.take(queue))
            return any(is_last(event) for event in received)

        eventually(is_there)
        return received

    def put_event(self, event: dict[str, Any], **detail: Any) -> None:
        """As ``put_events``; ``detail`` replaces fields of the event's detail."""
        self.put_events({**event, "detail": {**event["detail"], **detail}})

    def put_events(self, *events: dict[str, Any]) -> None:
        """Events of ours onto the stack's bus, which has let one of them through when this returns."""
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
        """A native failure event about the group of that zone onto the bus; its detail."""
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
    """A cluster's kubeconfig into Secrets Manager; the access of its record."""
    secret = f"evenkeel/{deployment.stack}-{name}"
    kubeconfig = json.dumps(cluster.api.kubeconfig("evenkeel"))
    deployment.aws.client("secretsmanager").create_secret(Name=secret, SecretString=kubeconfig)
    return {"kind": "kubeconfig", "secret": secret}
