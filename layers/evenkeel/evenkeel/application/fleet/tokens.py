"""Tokens of ServiceAccounts as they are kept: encrypted, each for one server and one purpose."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class SealedToken:
    """A token that was renewed, as it is kept."""

    sealed: str  # base64 of what the key made of it
    seed: str  # which first token it descends from: a cluster that is registered with another begins anew
    issued: datetime
    expires: datetime
    version: int = 0  # of the item; 0: there was none

    @property
    def due(self) -> datetime:
        """When half of its life is over: from then on it is renewed."""
        return self.issued + (self.expires - self.issued) / 2


class TokenVault(Protocol):
    """Where tokens are kept, and the key that they are kept under. Nothing of a token is ever in an error.

    What was sealed for one server or purpose cannot be opened for another: a record with a copied text and an address
    of its own is sent nothing.
    """

    def load(self, cluster: str, *, writes: bool) -> SealedToken | None:
        """None: none was renewed yet. Raises AccessError."""

    def save(self, cluster: str, token: SealedToken, *, writes: bool) -> None:
        """In the place of that version; nothing happens where there is a newer one. Raises AccessError."""

    def seal(self, token: str, server: str, *, writes: bool) -> str:
        """Raises AccessError."""

    def unseal(self, sealed: str, server: str, *, writes: bool) -> str:
        """Raises AccessError, also where it was sealed for something else."""
