"""The sizing strategies of a pool. To add one, define a ``Strategy`` and list it here."""

from evenkeel.domain.model.choices import Strategy
from evenkeel.domain.model.values import BadValueError
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.bounds.gep24 import ADAPTIVE, BACKWARD_COMPATIBLE, LAX_GREEDY

STRATEGIES = [LAX_GREEDY, BACKWARD_COMPATIBLE, ADAPTIVE, BALANCED]


def _folded(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def read_strategy(value: object) -> Strategy:
    """Return the strategy with this name or alias. Case, hyphens and underscores do not matter.

    Raises:
        BadValueError: No strategy has this name.
    """
    for strategy in STRATEGIES:
        if _folded(str(value)) in map(_folded, (strategy.name, *strategy.aliases)):
            return strategy
    raise BadValueError("no such strategy", [strategy.name for strategy in STRATEGIES])
