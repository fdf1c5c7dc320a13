"""Stored ServiceAccount tokens: encrypted, each for one server and one purpose."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class SealedToken:
    """A renewed token as it is stored."""

    sealed: str  # base64 of the encrypted token
    seed: str  # the record's token from which this one was renewed; if the record's changes, renewal starts over
    issued: datetime
    expires: datetime
    version: int = 0  # the stored item's version; 0: there was no item

    @property
    def due(self) -> datetime:
        """Return when half of the token's lifetime is over. From then on, runs renew it."""
        return self.issued + (self.expires - self.issued) / 2


class TokenVault(Protocol):
    """The store of tokens and its key. No error contains a part of a token.

    A token is sealed for one server and purpose, and cannot be unsealed for another. So a record with a copied
    token and another address gets no usable token.
    """

    def load(self, cluster: str, *, writes: bool) -> SealedToken | None:
        """Return the token, or None if none was renewed yet. Raises AccessError."""

    def save(self, cluster: str, token: SealedToken, *, writes: bool) -> None:
        """Replace the stored token if its version is still ``token.version``. Raises AccessError."""

    def seal(self, token: str, server: str, *, writes: bool) -> str:
        """Return the sealed token. Raises AccessError."""

    def unseal(self, sealed: str, server: str, *, writes: bool) -> str:
        """Return the token. Raises AccessError, also if it was sealed for another server or purpose."""
