"""Since when nodes are unneeded, as it is remembered: with their groups, and written when one begins or ends.

With the groups and not in one item: a clock more is then a write of that group's few nodes, and not of a thousand.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from evenkeel.domain.demand.advice import Advised
from evenkeel.domain.model.demand import ScaleDownState
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.states import ClusterState, GroupState


def scale_down_state(state: ClusterState, now: datetime) -> ScaleDownState:
    """What counts of the looks and runs before. What lies in the future counts as now."""
    clocks = {name: min(since, now) for group in state.groups.values() for name, since in group.unneeded.items()}
    grew = [pool.grew_at for pool in state.pools.values() if pool.grew_at is not None]
    # A write that was refused while a machine was marked to go.
    failed = [group.write_refused_at for group in state.groups.values() if group.marked and group.write_refused_at]
    return ScaleDownState(
        clocks=clocks,
        grew_at=None if not grew else min(max(grew), now),
        failed_at=None if not failed else min(max(failed), now),
    )


def with_clocks(
    before: Mapping[GroupKey, GroupState], advised: Advised | None, observation: Observation, policy: Policy
) -> dict[GroupKey, GroupState]:
    """The states of those groups in which a clock begins or ends.

    A look that knows nothing of nodes changes none. Where nodes do not go by themselves, none runs.
    """
    clocks: dict[GroupKey, dict[str, datetime]] = {}
    if policy.demand.removes:
        if advised is None or advised.idle is None or observation.workload is None:
            return {}
        homes = {node.name: node.group for node in observation.workload.nodes}
        for name, since in sorted(advised.idle.clocks.items()):
            if (group := homes.get(name)) is not None:
                clocks.setdefault(group, {})[name] = since
    running = {key for key, state in before.items() if state.unneeded}
    found = {}
    for key in sorted(running | clocks.keys()):
        state, mine = before.get(key, GroupState()), clocks.get(key, {})
        if dict(state.unneeded) != mine:
            found[key] = replace(state, unneeded=mine)
    return found
