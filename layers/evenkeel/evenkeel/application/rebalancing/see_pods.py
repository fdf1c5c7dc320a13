"""Make a plan, and make it again with all pods if the plan asks for them."""

from collections.abc import Callable

from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan

SeePods = Callable[[Observation], Observation]
"""A function that returns the observation with all pods and nodes added, if they can be read."""


def with_pods(
    make: Callable[[Observation], Plan], observation: Observation, see_pods: SeePods
) -> tuple[Observation, Plan]:
    """Return the observation and the plan made from it. Pods are read only if the plan asks for them."""
    plan = make(observation)
    if plan.asks and (seen := see_pods(observation)) is not observation:
        return seen, make(seen)
    return observation, plan
