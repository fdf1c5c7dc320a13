"""Settings with few values: sizing strategy, leveling, demand, and the treatment of failures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Self

from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.values import BadValueError


class Size(NamedTuple):
    """The bounds that a strategy proposes for one group, unchecked: a number may be negative, or min above max."""

    min: int
    max: int
    why: Reason


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Strategy:
    """A sizing strategy: how a pool's numbers become bounds."""

    name: str
    aliases: tuple[str, ...] = ()
    # Returns one size for each group of a PoolDraft. The type is Any, because a PoolDraft refers to its strategy.
    size: Callable[[Any], Sequence[Size]]
    publishes_minima: bool  # True: it sets a min for each zone, and the plan raises healthy groups to that min
    adds_up: bool  # True: the maxima add up to PoolMaximum, so no autoscaler can exceed PoolMaximum
    # True: the maxima divide the pool's headroom, minus the room that frozen groups and owners reserve.
    reserves: bool = False
    sentence: str  # explains max, with the facts of Rule.STRATEGY
    sentence_of_min: str  # explains min, with {minimum}

    def __repr__(self) -> str:
        return self.name


class _Setting(StrEnum):
    """A setting with few values."""

    @classmethod
    def read(cls, value: object) -> Self:
        """Return the setting that a text names. Raises BadValueError if there is none."""
        try:
            return cls("off" if value is False else str(value).lower())  # YAML reads off as False
        except ValueError:
            raise BadValueError(f"no such {_TITLES[cls.__name__]}", [member.value for member in cls]) from None


_TITLES = {"Level": "levelling", "DemandStage": "stage of demand", "OnFailure": "treatment of failures"}


class Level(_Setting):
    """How the zones of a pool become level again after an outage."""

    OFF = "off"
    SHRINK = "shrink"  # when nodes are removed, the fuller zones lose them
    CONVERGE = "converge"  # as shrink; also, nodes of fuller zones are replaced by nodes in smaller zones, one by one


class DemandStage(_Setting):
    """What Evenkeel does about pending pods and unneeded nodes. Each stage includes the stages before it."""

    OFF = "off"
    ADVISE = "advise"  # reports, and gives headroom to the groups that pending pods need
    SCALE_UP = "scale-up"  # orders nodes
    FULL = "full"  # removes unneeded nodes, too

    @property
    def orders(self) -> bool:
        """Return True if Evenkeel orders nodes. No autoscaler may run then."""
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

    RELEASE = "release"  # give these replicas up; Cluster Autoscaler orders nodes for their pods in other zones
    MOVE = "move"  # give these replicas up, and order their machines in other zones
    HOLD = "hold"  # keep these replicas, and only fence the group
