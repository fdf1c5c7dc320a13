"""Disruption budgets, counted down while nodes are taken away."""

from collections import defaultdict
from collections.abc import Iterable

from evenkeel.domain.demand.selectors import matches
from evenkeel.domain.model.workload import Pod, PodDisruptionBudget


class Budgets:
    """What every budget still allows. No budget is taken below zero."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._by_namespace: dict[str, list[PodDisruptionBudget]] = defaultdict(list)
        for budget in sorted(budgets, key=str):
            self._by_namespace[budget.namespace].append(budget)
        self.left = {str(budget): max(0, budget.allowed) for found in self._by_namespace.values() for budget in found}

    def of(self, pod: Pod) -> list[PodDisruptionBudget]:
        """The budgets that a pod falls under."""
        return [budget for budget in self._by_namespace.get(pod.namespace, ()) if matches(budget.selector, pod.labels)]

    def exhausted(self, pod: Pod) -> PodDisruptionBudget | None:
        """The first budget that allows no eviction of a pod; None: all allow one."""
        return next((budget for budget in self.of(pod) if self.left[str(budget)] < 1), None)

    def allow_all(self, pods: Iterable[Pod]) -> bool:
        """Whether all of these pods could be evicted at once."""
        wanted: dict[str, int] = defaultdict(int)
        for pod in pods:
            for budget in self.of(pod):
                wanted[str(budget)] += 1
        return all(count <= self.left[budget] for budget, count in wanted.items())

    def take(self, pods: Iterable[Pod]) -> None:
        """These pods will be evicted. What a budget does not allow at once has to wait its turn: it is used up."""
        for pod in pods:
            for budget in self.of(pod):
                self.left[str(budget)] = max(0, self.left[str(budget)] - 1)
