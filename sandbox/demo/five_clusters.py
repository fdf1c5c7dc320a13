"""`make demo-all`: five kinds of clusters in one zone outage.

Two clusters are as their own tools create them, without an object of Evenkeel. In each, the controllers of its owners
run too and restore their own fields. Another cluster has pods and no autoscaler: Evenkeel adds nodes for pending pods
and removes unneeded nodes. The last cluster is on EKS: Evenkeel reaches only its Auto Scaling groups.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from rich.console import Console
from rich.text import Text

from sandbox.demo.node_groups import EksCluster, EksSide
from sandbox.demo.stage import HEADING, LEGEND, NEXT, POOL, SHARE, TIMING, UNNEEDED, Act, Kind, Stage
from sandbox.kube.controllers.objects import USERS_POOL_LABEL
from sandbox.kube.controllers.shoots import OPERATION, SHOOTS
from sandbox.kube.world import REGION

SPEED = 22  # simulated seconds in a second
MINUTES = 17.5  # simulated length of the demo
# A cluster without cluster-autoscaler has this flag as an annotation of its groups.
_ANNOTATED_POOL = replace(
    POOL, annotations={"cluster.x-k8s.io/autoscaling-options-scaledownunneededtime": f"{UNNEEDED}s"}
)
_ZONE, _OTHER_ZONE = POOL.zones[:2]

KINDS = {
    "gardener-plain": Kind(
        folder="gardener",
        pool=POOL,
        description="a Gardener seed: a Shoot, its Worker, and a MachineDeployment for each zone",
        # Its autoscaler has its bounds from flags, so Evenkeel itself moves replicas away from a failed zone.
        record={"on_failure": "move"},
    ),
    "hypershift": Kind(
        folder="hypershift",
        pool=POOL,
        description="a HyperShift management cluster: a NodePool for each zone, with a label of its users",
        record={"pools": [{"name": POOL.name, "selector": {USERS_POOL_LABEL: POOL.name}}]},
    ),
    "cluster-api": Kind(
        folder="cluster-api",
        pool=POOL,
        description="Cluster API: MachineDeployments with the label and the bounds of a pool",
        # Its pods are a number here, so no one can check which of them may move.
        record={"level": "converge", "converge": {"blind": True}},
    ),
    "self-managed": Kind(
        folder="cluster-api",
        pool=_ANNOTATED_POOL,
        description="a self-managed Cluster API cluster, with pods and without an autoscaler",
        record={"autoscaler": "none", "demand": "full", "workload": {"access": {"kind": "same"}}},
    ),
}


EKS = "eks"
_DESCRIPTIONS = {name: kind.description for name, kind in KINDS.items()} | {
    EKS: "EKS: a managed node group for each zone, and no autoscaler; an operator requests nodes"
}


class FiveClusters(Stage):
    """The stage with a cluster of each kind."""

    def __init__(self, console: Console, speed: float = SPEED) -> None:
        super().__init__(KINDS, console, speed)
        self.eks = EksCluster(EKS, POOL, self.clock.now())
        self.eks_side = EksSide(self.eks, pods=POOL.minimum)
        self.sides[EKS] = self.eks_side

    def __enter__(self) -> Self:
        super().__enter__()
        self._stack.enter_context(self.eks)
        access = {"kind": "auto-scaling", "region": REGION}
        level = {"level": "converge", "converge": {"blind": True}}
        self.register(EKS, {"access": access, "autoscaler": "none", "dry_run": False, **level})
        return self

    def _step(self) -> None:
        for event in self.eks.step(self.clock.now()):
            self.send(event)
        super()._step()

    def print_heading(self) -> None:
        """Print the headings of the columns."""
        self.print_row("minute  ", Text(f"{'cluster':<16}{HEADING.format('nodes')}  max", "bold"))

    def print_state(self) -> None:
        """Print each cluster in a line."""
        label = f"{self.clock.minutes:4.1f}    "
        for name, side in self.sides.items():
            bounds = (view.maximum for view in side.cluster.groups())
            limits = " / ".join("-" if bound is None else str(bound) for bound in bounds)
            self.print_row(label, Text(name.ljust(16)), *side.cells(), Text(limits))
            label = " " * len(label)

    def print_result(self) -> None:
        """Print the result of each cluster, and the next command."""
        for name, side in self.sides.items():
            waited, nodes, patches, maximum = side.texts()
            self.print_row("", Text(self.operator("status", name)["message"], "bold"))
            self.print_row("  ", Text(_DESCRIPTIONS[name]))
            self.print_row("  ", Text(f"pods waited {waited}; nodes {nodes}; patches {patches}; PoolMaximum {maximum}"))
        self.print_row("\nnext, read-only: ", Text(NEXT))

    # -- what the acts do -----------------------------------------------------------------------------------------

    def want(self, **pods: int) -> None:
        """Set the number of pods of clusters, each of which needs a node."""
        for name, number in pods.items():
            self.world.set_demand(name.replace("_", "-"), POOL.name, number)

    def request_nodes(self, nodes: int) -> None:
        """Request nodes for the EKS cluster, as an operator does."""
        self.eks_side.pods += nodes
        self.operator("scale-up", EKS, pool=POOL.name, nodes=nodes)

    def deploy(self) -> None:
        """Create a Deployment, of whose pods three fit on a node, and a budget that allows one disruption."""
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


_APP, _PODS = "web", (6, 18, 24, 6, 7)  # at first, by day, at the peak, at night, and later
_BOUND = SHARE + 2  # pods that only one zone can serve
# A headline reports the changes of its act and rules that always hold. The tables show the effects.
ACTS = (
    Act(
        0,
        f"Five clusters, each with at most {SHARE} nodes per zone. A Worker, NodePools or annotations set the limit. "
        "The first two have no settings for Evenkeel. self-managed has pods and no autoscaler; eks has tags on its "
        "Auto Scaling groups, and Evenkeel cannot reach its API server. Evenkeel starts now. "
        f"{LEGEND}",
        (FiveClusters.deploy,),
    ),
    Act(
        1,
        "More load in gardener-plain and cluster-api, for any zone. In self-managed, a Deployment grows from "
        f"{_PODS[0]} to {_PODS[1]} pods. Three fit on a node, and only Evenkeel adds nodes there. In eks, an operator "
        "requests three nodes.",
        (
            lambda demo: demo.want(gardener_plain=9, cluster_api=6),
            lambda demo: demo.scale(_PODS[1]),
            lambda demo: demo.request_nodes(3),
        ),
    ),
    Act(
        2.3,
        f"hypershift needs {_BOUND} nodes that only zone {_OTHER_ZONE[-1]} can serve. The NodePool of that zone allows "
        f"{SHARE}.",
        (lambda demo: demo.world.set_demand("hypershift", POOL.name, _BOUND, _OTHER_ZONE),),
    ),
    Act(
        3.2,
        f"The cloud is out of machines in zone {_ZONE[-1]}. At the same time load rises in cluster-api, and in "
        f"self-managed to {_PODS[2]} pods, and in eks by three nodes. A cluster that gets no machine warns the others, "
        "which buy the same type.",
        (
            lambda demo: [demo.world.exhaust_zone(name, _ZONE) for name in demo.world.clusters],
            lambda demo: demo.eks.cloud.exhaust_zone(_ZONE),
            lambda demo: demo.request_nodes(3),
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
        (FiveClusters.reconcile_shoot, lambda demo: demo.scale(_PODS[4])),
    ),
    Act(
        12.5,
        f"Zone {_ZONE[-1]} has machines again, and hypershift needs one more node. Evenkeel probes a failed zone with "
        "one node. In cluster-api and eks the load is constant: after ten minutes out of balance, a pool may move one "
        "node, launch before drain. Gardener retries a refused machine every "
        f"{TIMING.resource_exhausted_retry.seconds // 60} minutes.",
        (
            lambda demo: [demo.world.restore_zone(name, _ZONE) for name in demo.world.clusters],
            lambda demo: demo.eks.cloud.restore_zone(_ZONE),
            lambda demo: demo.want(hypershift=6),
        ),
    ),
    Act(
        17,
        "In cluster-api, a user sets evenkeel.dev/pool-max to 'many'. Evenkeel skips the invalid pool and no other.",
        (FiveClusters.set_invalid_maximum,),
    ),
)


def main(console: Console) -> int:
    """Play the demo; return the exit code."""
    with FiveClusters(console) as demo:
        return demo.play(ACTS, MINUTES)
