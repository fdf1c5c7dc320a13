"""Stored ServiceAccount tokens. Each is encrypted for one API server and one purpose: to read, or to write."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class SealedToken:
    """A renewed token as it is stored."""

    sealed: str  # base64 of the encrypted token
    # The record's token from which this token was renewed. If the record gets another token, renewal starts again.
    seed: str
    issued: datetime
    expires: datetime
    version: int = 0  # the stored item's version; 0: there was no item

    @property
    def due(self) -> datetime:
        """Return when half of the token's lifetime is over. From then on, runs renew it."""
        return self.issued + (self.expires - self.issued) / 2


class TokenVault(Protocol):
    """The store of tokens, with its encryption key. No error text contains a part of a token.

    A token is sealed for one server and purpose, and cannot be unsealed for another server or purpose. So a copied
    token is useless in a record with another server address.
    """

    def load(self, cluster: str, *, writes: bool) -> SealedToken | None:
        """Return the stored token; None if no token was renewed yet. Raises AccessError."""

    def save(self, cluster: str, token: SealedToken, *, writes: bool) -> None:
        """Replace the stored token if its version is still ``token.version``. Raises AccessError."""

    def seal(self, token: str, server: str, *, writes: bool) -> str:
        """Return the sealed token. Raises AccessError."""

    def unseal(self, sealed: str, server: str, *, writes: bool) -> str:
        """Return the token. Raises AccessError, also if it was sealed for another server or purpose."""
