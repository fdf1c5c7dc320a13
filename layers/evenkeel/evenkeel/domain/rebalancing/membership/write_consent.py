"""Bounds that stand where the record does not let us write: they are held, and replicas stay within them."""

from dataclasses import replace

from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.policy import Policy


def with_write_consent(observation: Observation, policy: Policy) -> Observation:
    """The observation, with the bounds held of groups whose owner is written with leave only, where none is given."""
    if policy.write_topology:
        return observation
    groups = tuple([_held(group) for group in observation.groups])
    return observation if groups == observation.groups else replace(observation, groups=groups)


def _held(group: NodeGroup) -> NodeGroup:
    owner = group.owner
    if owner is None or not owner.needs_consent:
        return group
    # While anything of ours is there, what people want is what stood there before; after that, what stands there.
    owner = replace(owner, takes_ours=group.has_ours_with_bounds)
    return replace(group, owner=owner, bounds_held=True, worker_range=group.bounds)
