"""The ports of shared offerings."""

from typing import Protocol

from evenkeel.application.ports import Offerings, SharedOffering
from evenkeel.domain.model.offerings import Offering, OfferingState


class OfferingStore(Protocol):
    """The capacity reports of all clusters. All methods raise StateUnavailableError."""

    def offerings(self) -> Offerings:
        """Return all offerings with reports, from one cheap query. The answer may be a second old."""

    def offering(self, offering: Offering) -> SharedOffering:
        """Return the reports of one offering, from a consistent read."""

    def save_offering(self, offering: Offering, state: OfferingState, version: int | None) -> None:
        """Store the reports of one offering. Raises StateConflictError."""
