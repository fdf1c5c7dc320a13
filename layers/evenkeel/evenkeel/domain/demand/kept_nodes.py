"""Nodes that a request to give nodes back leaves alone: Evenkeel could not place their pods again."""

from collections import Counter
from datetime import datetime

from evenkeel.domain.demand.drainability import ends_with_node
from evenkeel.domain.demand.pods import unplaceable
from evenkeel.domain.model.demand import KeptNodes
from evenkeel.domain.model.observations import Observation


def kept_nodes(observation: Observation, now: datetime) -> KeptNodes | None:
    """Return the nodes whose pods cannot be placed again; None: not all pods were read."""
    workload = observation.workload
    if workload is None or not workload.whole:
        return None
    named = {pod.node for pod in workload.pods if pod.node and not ends_with_node(pod, now) and unplaceable(pod)}
    nodes = [node for node in workload.nodes if node.name in named]
    return KeptNodes(
        machines=frozenset(node.machine.ref for node in nodes if node.machine is not None),
        by_group=Counter(node.group for node in nodes if node.group is not None),
    )
