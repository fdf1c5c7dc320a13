"""The strategies that a pool can be sized by. A new one is an object of its own, and an entry here."""

from evenkeel.domain.model.choices import Strategy
from evenkeel.domain.model.values import BadValueError
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.bounds.gep24 import ADAPTIVE, BACKWARD_COMPATIBLE, LAX_GREEDY

STRATEGIES = [LAX_GREEDY, BACKWARD_COMPATIBLE, ADAPTIVE, BALANCED]


def _folded(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def read_strategy(value: object) -> Strategy:
    """A strategy from its name or an alias, in any case, with or without hyphens.

    Raises:
        BadValueError: no such strategy.
    """
    for strategy in STRATEGIES:
        if _folded(str(value)) in map(_folded, (strategy.name, *strategy.aliases)):
            return strategy
    raise BadValueError("no such strategy", [strategy.name for strategy in STRATEGIES])
