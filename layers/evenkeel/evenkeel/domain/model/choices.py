"""Settings with few values: sizing strategy, leveling, demand, and the treatment of failures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Self

from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.values import BadValueError


class Size(NamedTuple):
    """The size of one group by a strategy. Not yet safe: may be negative, or min above max."""

    min: int
    max: int
    why: Reason


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Strategy:
    """A sizing strategy: how a pool's numbers become bounds."""

    name: str
    aliases: tuple[str, ...] = ()
    size: Callable[[Any], Sequence[Size]]  # from a PoolDraft, which has a strategy itself; one for each of its groups
    publishes_minima: bool  # a min for each zone, to which healthy groups are raised
    adds_up: bool  # the maxima add up to PoolMaximum, so that no number of autoscaler loops can pass it
    reserves: bool = False  # it deals out headroom, so the room that others keep is reserved
    sentence: str  # explains max, with the facts of Rule.STRATEGY
    sentence_of_min: str  # explains min, with {minimum}

    def __repr__(self) -> str:
        return self.name


class _Setting(StrEnum):
    """A setting with few values."""

    @classmethod
    def read(cls, value: object) -> Self:
        """Return the value of this text. Raises BadValueError if there is none."""
        try:
            return cls("off" if value is False else str(value).lower())  # False: YAML's reading of off
        except ValueError:
            raise BadValueError(f"no such {_TITLES[cls.__name__]}", [member.value for member in cls]) from None


_TITLES = {"Level": "levelling", "DemandStage": "stage of demand", "OnFailure": "treatment of failures"}


class Level(_Setting):
    """How a pool becomes level again after an outage."""

    OFF = "off"
    SHRINK = "shrink"  # while nodes go, they go from the fuller zones
    CONVERGE = "converge"  # includes shrink; running nodes move, one by one


class DemandStage(_Setting):
    """The treatment of pods without a node, and of unneeded nodes. Each stage includes the ones before."""

    OFF = "off"
    ADVISE = "advise"  # a report, and headroom goes where pods wait
    SCALE_UP = "scale-up"  # nodes are ordered
    FULL = "full"  # and unneeded nodes are removed

    @property
    def orders(self) -> bool:
        """Return True if Evenkeel orders nodes: then no autoscaler may run."""
        return self in (DemandStage.SCALE_UP, DemandStage.FULL)

    @property
    def removes(self) -> bool:
        """Return True if unneeded nodes are removed."""
        return self is DemandStage.FULL

    @property
    def judges_nodes(self) -> bool:
        """Return True if unneeded nodes are sought."""
        return self in (DemandStage.ADVISE, DemandStage.FULL)


class OnFailure(_Setting):
    """The treatment of replicas that a failing zone does not deliver."""

    RELEASE = "release"  # requested := running; Cluster Autoscaler places the pods again
    MOVE = "move"  # the same, and Evenkeel orders the machines elsewhere
    HOLD = "hold"  # replicas stay as they are; the group is only fenced
