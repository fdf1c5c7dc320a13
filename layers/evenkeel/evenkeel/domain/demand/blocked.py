"""Pods that no pool can serve only because of the DaemonSets that come with each new node.

Nothing is ordered for them, so no order shows it. Pods that fit no node by their own spec are not among them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from evenkeel.domain.demand.pod_groups import PodGroup
from evenkeel.domain.demand.pods import is_daemon
from evenkeel.domain.demand.requests import amount_text, request_of
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.model.demand import PoolOffer
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.past_orders import BlockedPods
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.workload import Pod

Left = Mapping[PodGroup, Sequence[Pod]]
# DaemonSets that are named, the one that claims most first.
_MOST_NAMED = 3


class Blocked:
    """Pods that fit a new node of no pool, and that DaemonSets keep from one. Full and fenced groups count as well."""

    def __init__(self, simulation: Simulation, left: Left) -> None:
        self._world, self._left = simulation, left
        self._misfits = {group: self._misfits_of(group) for group in simulation.template_nodes} if left else {}
        self._fit_none = [kind for kind in left if all(kind in found for found in self._misfits.values())]

    def of_pool(self, pool: PoolOffer) -> tuple[BlockedPods, ...]:
        """Return the pods that a new node of a pool would hold without its DaemonSets."""
        known = [offer.group for offer in pool.groups if offer.group in self._misfits]
        found = []
        for kind in self._fit_none:
            groups = [group for group in known if self._fits_without_daemons(kind, group)]
            if groups:
                why = self._misfits[groups[0]][kind]
                daemons = self._daemons(groups[0], str(why.facts.get("resource", "")))
                names = tuple(str(pod) for pod in self._left[kind])
                found.append(BlockedPods(pods=names, why=why, daemons=daemons, groups=tuple(map(str, groups))))
        return tuple(sorted(found, key=lambda each: each.pods))

    def _misfits_of(self, group: GroupKey) -> dict[PodGroup, Reason]:
        """Return the kinds that a new node of a group does not hold, each with the first rule that says so."""
        snapshot = self._world.snapshot
        fork = snapshot.fork()
        room = self._world.add_template_node(group)
        found = {kind: why for kind in self._left if (why := snapshot.failing_filter(kind, room)) is not None}
        snapshot.revert(fork)
        return found

    def _fits_without_daemons(self, kind: PodGroup, group: GroupKey) -> bool:
        snapshot, template_nodes = self._world.snapshot, self._world.template_nodes[group]
        others = Counter(self._world.pod_groups.of(pod) for pod in template_nodes.pods if not is_daemon(pod))
        fork = snapshot.fork()
        room = snapshot.add(template_nodes.named(f"{group} (without DaemonSets)"), others)
        fits = snapshot.failing_filter(kind, room) is None
        snapshot.revert(fork)
        return fits

    def _daemons(self, group: GroupKey, resource: str) -> tuple[tuple[str, str], ...]:
        """Return the DaemonSets of a new node by name, each with what it claims of a resource, the largest first."""
        pods = [pod for pod in self._world.template_nodes[group].pods if is_daemon(pod)]
        claims = Counter({_owner(pod): request_of(pod).get(resource, 0) for pod in pods})
        named = sorted(claims.items(), key=lambda item: (-item[1], item[0]))
        return tuple((name, amount_text(resource, claim) if claim else "") for name, claim in named[:_MOST_NAMED])


def _owner(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.owner.name if pod.owner is not None else pod.name}"
