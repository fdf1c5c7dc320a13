"""Relief by a Shoot's maximum: its stored state and its write (``domain.rebalancing.relief``)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from evenkeel.domain.model.groups import Shoot


@dataclass(frozen=True, kw_only=True)
class RefusedMaximum:
    """A maximum that the garden's API has refused, by quota or otherwise."""

    number: int
    generation: int  # the Shoot's generation at the refusal; in a later one, the API may accept the number
    at: datetime
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Relief:
    """The stored state of a pool that has dead zones, or whose Shoot has a maximum from Evenkeel.

    ``ours`` is stored before each write and ``last_known`` after it. So even if a run ends between the two, Evenkeel
    recognizes its number. If the Shoot had Evenkeel's number and has the users' maximum now, users have reverted it.
    """

    dead: Mapping[str, datetime] = field(default_factory=dict)  # zone -> since when it has failed without a break
    owner: str = ""  # OwnerRef.id of the Shoot's worker; empty: Evenkeel has never written it
    user_max: int = 0  # the users' maximum
    ours: tuple[int, ...] = ()  # numbers that Evenkeel has written, or was about to write
    last_known: int | None = None  # the last known maximum of the Shoot
    written_at: datetime | None = None  # when the last write was done, or was about to be done
    restored: bool = False  # the last write restored the users' maximum
    reverted_by_user: bool = False  # True: users reverted Evenkeel's number; no new number until all zones are healthy
    refused: RefusedMaximum | None = None

    @property
    def begun(self) -> bool:
        """Return True if Evenkeel has written a number, or was about to write one."""
        return bool(self.owner)

    @property
    def is_left(self) -> bool:
        """Return True if the Shoot may still have a number from Evenkeel."""
        return self.begun and self.last_known != self.user_max

    def wanted(self, maximum: int) -> int:
        """Return the users' maximum, given a copy of the Shoot's maximum, which may be Evenkeel's number."""
        return self.user_max if self.begun and maximum in self.ours else maximum


@dataclass(frozen=True, kw_only=True)
class ReliefStep:
    """A write of a worker's maximum in a Shoot, with the relief to store before and after it."""

    shoot: Shoot
    worker: str
    maximum: int
    before: Relief
    after: Relief
