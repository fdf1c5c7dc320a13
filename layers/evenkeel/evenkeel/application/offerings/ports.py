"""The ports of shared offerings."""

from typing import Protocol

from evenkeel.application.ports import Offerings, SharedOffering
from evenkeel.domain.model.offerings import Offering, OfferingState


class OfferingStore(Protocol):
    """The capacity reports of all clusters. All methods raise StateUnavailableError."""

    def offerings(self) -> Offerings:
        """Read all offerings with reports, in one cheap query. The answer may be a second old."""

    def offering(self, offering: Offering) -> SharedOffering:
        """Read one offering as it is now."""

    def save_offering(self, offering: Offering, state: OfferingState, version: int | None) -> None:
        """Write one offering. Raises StateConflictError."""
