"""Relief by a Shoot's maximum: its stored state and its write (``domain.rebalancing.relief``)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from evenkeel.domain.model.groups import Shoot


@dataclass(frozen=True, kw_only=True)
class RefusedMaximum:
    """A maximum that the garden's API has refused, by quota or otherwise."""

    number: int
    generation: int  # of the Shoot then: after a change there, the reason may be gone
    at: datetime
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Relief:
    """The stored state of a pool with dead zones, or with a number of Evenkeel's in its Shoot.

    ``ours`` is stored before each write, ``last_known`` after it, so a run that ends in between leaves a known one.
    If the users' number is there although Evenkeel's is known to have been there, they have reverted it.
    """

    dead: Mapping[str, datetime] = field(default_factory=dict)  # zone -> since when it fails without a break
    owner: str = ""  # OwnerRef.id of the Shoot's worker; empty: Evenkeel has never written it
    user_max: int = 0  # the users' maximum
    ours: tuple[int, ...] = ()  # Evenkeel's numbers, written or about to be
    last_known: int | None = None  # the last known maximum of the Shoot
    written_at: datetime | None = None  # of the last write, done or about to be
    restored: bool = False  # the last write restored the users' maximum
    reverted_by_user: bool = False  # users have reverted Evenkeel's number: no new one until every zone is healthy
    refused: RefusedMaximum | None = None

    @property
    def begun(self) -> bool:
        """Return True if a number of Evenkeel's was written, or was about to be."""
        return bool(self.owner)

    @property
    def is_left(self) -> bool:
        """Return True if the Shoot may still hold a number of Evenkeel's."""
        return self.begun and self.last_known != self.user_max

    def wanted(self, maximum: int) -> int:
        """Return the users' maximum for one that was copied from the Shoot."""
        return self.user_max if self.begun and maximum in self.ours else maximum


@dataclass(frozen=True, kw_only=True)
class ReliefStep:
    """A write of a Shoot's worker, with the relief to store before and after it."""

    shoot: Shoot
    worker: str
    maximum: int
    before: Relief
    after: Relief
