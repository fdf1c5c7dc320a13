"""What people choose from: the sizing strategy of a pool, and what becomes of replicas that a zone does not deliver."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Self, TypeVar

from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.values import BadValueError

_Word = TypeVar("_Word", bound=StrEnum)


class Size(NamedTuple):
    """What a strategy says for one group. Not yet safe: may be negative, or min above max."""

    min: int
    max: int
    why: Reason


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Strategy:
    """How a pool's numbers become bounds: all there is to know of it, in one object."""

    name: str
    aliases: tuple[str, ...] = ()
    size: Callable[[Any], Sequence[Size]]  # from a PoolDraft, which has a strategy itself; one for each of its groups
    publishes_minima: bool  # a min for each zone, to which healthy groups are raised
    adds_up: bool  # the maxima add up to PoolMaximum, so that no number of autoscaler loops can pass it
    reserves: bool = False  # it deals out what is left of PoolMaximum: what others keep of that is spoken for
    sentence: str  # how it comes to a max, with the facts of Rule.STRATEGY
    sentence_of_min: str  # how it comes to a min, with {minimum}

    def __repr__(self) -> str:
        return self.name


def _word(kind: type[_Word], value: object, what: str) -> _Word:
    if value is False:  # YAML's reading of off
        return kind("off")
    try:
        return kind(str(value).lower())
    except ValueError:
        raise BadValueError(f"no such {what}", [member.value for member in kind]) from None


class Level(StrEnum):
    """What is done so that a pool is level again after an outage."""

    OFF = "off"
    SHRINK = "shrink"  # while nodes go, the fuller zones give
    CONVERGE = "converge"  # includes shrink; running nodes are moved, one by one

    @classmethod
    def read(cls, value: object) -> Self:
        """Raises BadValueError for a word that is none of them."""
        return _word(cls, value, "levelling")


class DemandStage(StrEnum):
    """What is made of pods that find no node, and of nodes that nobody needs. Each includes the ones before."""

    OFF = "off"
    ADVISE = "advise"  # it is said, and headroom goes where pods wait
    SCALE_UP = "scale-up"  # nodes are asked for
    FULL = "full"  # and nodes that nobody needs go

    @classmethod
    def read(cls, value: object) -> Self:
        """Raises BadValueError for a word that is none of them."""
        return _word(cls, value, "stage of demand")

    @property
    def orders(self) -> bool:
        """Whether anything follows from it by itself: there no autoscaler may be."""
        return self in (DemandStage.SCALE_UP, DemandStage.FULL)

    @property
    def removes(self) -> bool:
        """Whether nodes that nobody needs go."""
        return self is DemandStage.FULL

    @property
    def judges_nodes(self) -> bool:
        """Whether nodes that nobody needs are looked for."""
        return self in (DemandStage.ADVISE, DemandStage.FULL)


class OnFailure(StrEnum):
    """What happens to replicas that a failing zone does not deliver."""

    RELEASE = "release"  # requested := running; Cluster Autoscaler places the pods again
    MOVE = "move"  # the same, and we order the machines elsewhere ourselves
    HOLD = "hold"  # replicas stay as they are; the group is only fenced

    @classmethod
    def read(cls, value: object) -> Self:
        """Raises BadValueError for a word that is none of them."""
        try:
            return cls(str(value).lower())
        except ValueError:
            raise BadValueError("no such treatment of failures", [member.value for member in cls]) from None
