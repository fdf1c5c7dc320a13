"""Settings that accept only a few values: sizing strategy, leveling, demand, and the treatment of failures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Self, TypeVar

from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.values import BadValueError

_Choice = TypeVar("_Choice", bound=StrEnum)


class Size(NamedTuple):
    """The unchecked bounds that a strategy proposes for a group: a number may be negative, and min may exceed max."""

    min: int
    max: int
    why: Reason


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Strategy:
    """A sizing strategy. It computes the bounds of a pool's groups from PoolMinimum and PoolMaximum."""

    name: str
    aliases: tuple[str, ...] = ()
    # Returns one size for each group of a PoolDraft. The type is Any, because the module of PoolDraft imports this one.
    size: Callable[[Any], Sequence[Size]]
    publishes_minima: bool  # True: the strategy sets a min for each zone, and the plan raises healthy groups to it
    adds_up: bool  # True: the maxima add up to PoolMaximum, so no autoscaler can exceed PoolMaximum
    # True: the maxima divide the part of the pool's headroom that frozen groups and owners do not reserve.
    reserves: bool = False
    sentence: str  # the text that explains max; its placeholders are the facts of Rule.STRATEGY
    sentence_of_min: str  # the text that explains min; its placeholder is {minimum}

    def __repr__(self) -> str:
        return self.name


def read_choice(kind: type[_Choice], value: object, title: str) -> _Choice:
    """Return the member with the name in the text. Raises BadValueError if there is no such member."""
    try:
        return kind("off" if value is False else str(value).lower())  # YAML reads off as False
    except ValueError:
        raise BadValueError(f"no such {title}", [member.value for member in kind]) from None


class _Setting(StrEnum):
    """A setting that accepts only a few values."""

    @classmethod
    def read(cls, value: object) -> Self:
        """Return the member with the name in the text. Raises BadValueError if there is no such member."""
        return read_choice(cls, value, _TITLES[cls.__name__])


_TITLES = {
    "Level": "levelling",
    "DemandStage": "stage of demand",
    "OnFailure": "treatment of failures",
}


class Level(_Setting):
    """How Evenkeel levels the zones of a pool after an outage."""

    OFF = "off"
    SHRINK = "shrink"  # when an autoscaler removes nodes, it removes them from the fuller zones
    # As SHRINK. In addition, Evenkeel replaces nodes of fuller zones by nodes in smaller zones, one at a time.
    CONVERGE = "converge"


class DemandStage(_Setting):
    """What Evenkeel does about pending pods and unneeded nodes. Each stage includes the stages before it."""

    OFF = "off"
    ADVISE = "advise"  # Evenkeel reports its advice, and gives headroom to the groups that pending pods need
    SCALE_UP = "scale-up"  # Evenkeel also orders nodes for pending pods
    FULL = "full"  # Evenkeel also removes unneeded nodes

    @property
    def orders(self) -> bool:
        """Return True if Evenkeel orders nodes in this stage. No autoscaler may run at the same time."""
        return self in (DemandStage.SCALE_UP, DemandStage.FULL)

    @property
    def removes(self) -> bool:
        """Return True if Evenkeel removes unneeded nodes."""
        return self is DemandStage.FULL

    @property
    def judges_nodes(self) -> bool:
        """Return True if checks look for unneeded nodes."""
        return self in (DemandStage.ADVISE, DemandStage.FULL)


class OnFailure(_Setting):
    """What Evenkeel does with replicas for which a failing zone delivers no node."""

    RELEASE = "release"  # remove these replicas; Cluster Autoscaler orders nodes for their pods in other zones
    MOVE = "move"  # remove these replicas, and add the same number in other zones
    HOLD = "hold"  # keep these replicas, and only fence the group
