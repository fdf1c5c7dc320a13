"""Auto Scaling groups whose instances are nodes with pods: simulated APIs of AWS and Kubernetes."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import yaml
from botocore.exceptions import ReadTimeoutError

from evenkeel.adapters.kubernetes.read.workload import KubernetesWorkload
from evenkeel.adapters.kubernetes.write.drainer import NodeDrainer
from evenkeel.adapters.own_annotations import DRAIN
from evenkeel.application.errors import EvenkeelError
from evenkeel.application.ports import Remaining
from evenkeel.record import ClusterRecord
from sandbox.auto_scaling.groups import Instance
from sandbox.kube.access import Rule
from sandbox.kube.api import KubernetesAPI, Request
from sandbox.kube.schema import Object
from sandbox.kube.workloads import Workloads
from sandbox.template import ROOT
from tests.auto_scaling_groups import REGION, Stage
from tests.crashing import How, KilledError, Life, Mortal, WirelessClusters

_STEP = timedelta(seconds=15)
_SIZE = {"cpu": "4", "memory": "16Gi", "pods": "110"}
_READY = {"conditions": [{"type": "Ready", "status": "True"}], "capacity": _SIZE, "allocatable": _SIZE}
_WORKLOAD = {"access": {"kind": "eks", "name": "demo", "region": REGION}}


def rights(*names: str) -> list[Rule]:
    """Return the rules of the roles in `deploy/kubernetes`."""
    files = [ROOT / "deploy" / "kubernetes" / f"rbac-{name}.yaml" for name in names]
    objects = [one for file in files for one in yaml.safe_load_all(file.read_text(encoding="utf-8"))]
    return [rule for one in objects if one["kind"].endswith("Role") for rule in Rule.of_role(one)]


class PodStage(Stage):
    """A stage whose cluster has pods. `lost` has each pod that was on a node when its instance ended."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**{"demand": "full", "autoscaler": "none", "workload": _WORKLOAD, **fields})
        self.kube = KubernetesAPI(clock=self.clock.now, users={"evenkeel": rights("workload", "drain")})
        self.workloads = Workloads(self.kube.store)
        self.life = Life()
        self.lost: list[str] = []
        self.below: list[str] = []  # budgets with fewer healthy pods than they demand
        self.exceeded: list[str] = []  # pods that were deleted past the eviction API
        self.clusters.drainer = lambda record, remaining: NodeDrainer(self.open_workload(record, remaining), remaining)
        self.clusters.open_workload = self.open_workload
        self.kube.after.append(self._check_over)

    def open_workload(self, record: ClusterRecord, remaining: Remaining, *, alone: bool = True) -> KubernetesWorkload:
        clusters = WirelessClusters(self.kube, self.life, self.clock)  # type: ignore[arg-type]
        workload = clusters.open_workload(record, remaining, alone=alone)
        assert isinstance(workload, KubernetesWorkload)
        return workload

    # The world

    def minutes(self, minutes: float) -> None:
        for _ in range(int(timedelta(minutes=minutes) / _STEP)):
            self.api.clock.run(_STEP)
            self._run_kubelets()
            self.workloads.step(self.clock.now())
            self._count_budgets()

    def deploy(self, name: str, replicas: int, cpu: str = "1", **spec: Any) -> None:
        labels = {"app": name}
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        body = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], **spec}},
            },
        }
        self.kube.store.create("deployments.apps", body)

    def run_on_each_node(self, name: str, cpu: str = "100m", **spec: Any) -> None:
        """Create a DaemonSet."""
        labels = {"app": name}
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container], **spec}}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        self.kube.store.create("daemonsets.apps", {"metadata": {"name": name, "namespace": "default"}, "spec": spec})

    def scale(self, name: str, replicas: int) -> None:
        self.kube.store.patch("deployments.apps", "default", name, {"spec": {"replicas": replicas}})

    def protect(self, name: str, minimum: int) -> None:
        """Create a disruption budget for the pods of a Deployment."""
        spec = {"minAvailable": minimum, "selector": {"matchLabels": {"app": name}}}
        body = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
        self.kube.store.create("poddisruptionbudgets.policy", body)

    def pods(self, node: str = "") -> list[Object]:
        return self.kube.store.list("pods", fields=f"spec.nodeName={node}" if node else "")

    def nodes(self) -> dict[str, Object]:
        return {node["metadata"]["name"]: node for node in self.kube.store.list("nodes")}

    def cordoned(self) -> list[str]:
        return [name for name, node in self.nodes().items() if node["spec"].get("unschedulable")]

    def marks(self) -> list[str]:
        return [name for name, node in self.nodes().items() if DRAIN in (node["metadata"].get("annotations") or {})]

    def evicted(self) -> int:
        return self.kube.requests.count(method="POST", path_contains="/eviction")

    def _check_over(self, request: Request) -> None:
        if request.method == "DELETE":
            self.exceeded.append(request.path)

    def _run_kubelets(self) -> None:
        instances = {id: one for group in self.api.groups.by_name.values() for id, one in group.instances.items()}
        nodes = self.nodes()
        for id, instance in instances.items():
            if instance.has_joined(self.clock.now()) and id not in nodes:
                self._join(instance)
        for name in nodes:
            if name not in instances or instances[name].ends:
                for pod in self.pods(name):
                    if pod["metadata"]["ownerReferences"][0]["kind"] != "DaemonSet":
                        self.lost.append(pod["metadata"]["name"])
                    self.kube.store.delete("pods", "default", pod["metadata"]["name"], grace=0)
                self.kube.store.delete("nodes", "", name)

    def _join(self, instance: Instance) -> None:
        labels = {"kubernetes.io/hostname": instance.id, "topology.kubernetes.io/zone": instance.zone}
        labels |= {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        labels["topology.ebs.csi.aws.com/zone"] = instance.zone
        spec = {"providerID": f"aws:///{instance.zone}/{instance.id}"}
        metadata = {"name": instance.id, "labels": labels}
        self.kube.store.create("nodes", {"metadata": metadata, "spec": spec, "status": _READY})

    def _count_budgets(self) -> None:
        for budget in self.kube.store.list("poddisruptionbudgets.policy"):
            status = budget.get("status") or {}
            if status.get("currentHealthy", 0) < status.get("desiredHealthy", 0):
                self.below.append(f"{budget['metadata']['name']} at {self.clock.now()}")

    def checks(self, minutes: int) -> None:
        """Run each minute."""
        for _ in range(minutes):
            self.run()
            self.minutes(1)

    def die_at(self, at: int, how: How) -> list[str]:
        """Run with a fault at this call of AWS, the API server or the table. Return the calls."""
        life, store = Life(at=at, how=how), self.store
        self.life, self.store = life, Mortal(store, life, "table")  # type: ignore[assignment]
        self.clusters.wrap = lambda client: MortalClient(client, life)
        self.clusters.wrap_store = lambda decisions: Mortal(decisions, life, "decisions")
        with suppress(KilledError, EvenkeelError):
            self.run()
        self.life, self.store = Life(), store
        self.clusters.wrap = self.clusters.wrap_store = lambda same: same
        return life.steps


class MortalClient:
    """A client of AWS whose calls are steps of a life."""

    def __init__(self, client: Any, life: Life) -> None:
        self._client, self._life = client, life

    def __getattr__(self, name: str) -> Any:
        def lost() -> Exception:
            return ReadTimeoutError(endpoint_url="https://autoscaling")

        return lambda **request: self._life.step(name, lambda: getattr(self._client, name)(**request), lost)
