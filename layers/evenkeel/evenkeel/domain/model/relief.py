"""Relief by a Shoot's maximum: what is remembered of it, and what is to be written (``domain.rebalancing.relief``)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from evenkeel.domain.model.groups import Shoot


@dataclass(frozen=True, kw_only=True)
class RefusedMaximum:
    """A number that the garden's API has refused, by quota or otherwise."""

    number: int
    generation: int  # of the Shoot then: with what changes there, the reason may be gone
    at: datetime
    said: str = ""


@dataclass(frozen=True, kw_only=True)
class Relief:
    """What is remembered of a pool whose zones die, or whose Shoot holds a number of ours.

    ``ours`` is written down before each write, ``stands`` after it: a run that dies between the two leaves a number
    that is known to be ours. Where the people's own number stands although ours is known to have stood, they have put
    it back.
    """

    dead: Mapping[str, datetime] = field(default_factory=dict)  # zone -> since when it fails without a break
    owner: str = ""  # OwnerRef.id of the Shoot's worker; empty: nothing of ours was ever written
    wish: int = 0  # the maximum that its people want there
    ours: tuple[int, ...] = ()  # what we have written over it, or were about to
    stands: int | None = None  # what was last known to stand there
    written_at: datetime | None = None  # when we last wrote, or were about to
    taken_back: bool = False  # the last that we wrote, or were about to, was the wish
    put_back: bool = False  # its people did not want ours: not again, until every zone is well
    refused: RefusedMaximum | None = None

    @property
    def begun(self) -> bool:
        """Whether a number of ours was written, or was about to be."""
        return bool(self.owner)

    @property
    def is_left(self) -> bool:
        """Whether the Shoot may still hold a number of ours."""
        return self.begun and self.stands != self.wish

    def wanted(self, maximum: int) -> int:
        """What a maximum counts as that was copied from the Shoot: in the place of ours, what its people want."""
        return self.wish if self.begun and maximum in self.ours else maximum


@dataclass(frozen=True, kw_only=True)
class ReliefStep:
    """A number that is to be written to a Shoot's worker now, and what is remembered before and after that."""

    shoot: Shoot
    worker: str
    maximum: int
    before: Relief
    after: Relief
