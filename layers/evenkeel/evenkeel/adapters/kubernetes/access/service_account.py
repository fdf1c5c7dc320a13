"""A ServiceAccount whose token renews itself: for API servers that nothing can be told.

The first token is handed in with the record, encrypted. From half of a token's life on, a run asks the API server for
a new one, and for one of the account that only looks, and keeps both encrypted. Nothing is taken back before: what a
crash leaves behind, or a second run at the same time, are tokens that are good.
"""

import base64
import binascii
import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from evenkeel.access_config import ServiceAccountAccess
from evenkeel.adapters.kubernetes.access.ttl_cache import Shared
from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.application.errors import AccessError, EvenkeelError
from evenkeel.application.fleet.tokens import SealedToken, TokenVault
from evenkeel.application.ports import Remaining

_log = logging.getLogger("evenkeel.kubernetes")
# The admission policy fences the first name; the second may only list (deploy/kubernetes/rbac-service-account.yaml).
WRITER, LOOKER = "evenkeel", "evenkeel-readers"
_LIFE = timedelta(days=1)
# What is decrypted is kept in memory, so that a look asks neither the table nor KMS.
_KEPT = timedelta(hours=6)
_HOW = "encrypt a new one and register the cluster again (docs/access-service-account.md)"


@dataclass(frozen=True, kw_only=True)
class Token:
    """A token, and when it was made and ends, as far as that is known."""

    text: str = field(repr=False)
    expires: datetime
    due: datetime  # half of its life is over then: a run renews it


class ServiceAccountCredential:
    """The token of one cluster for one purpose. ``tokens`` are those that were decrypted lately, of all clusters."""

    def __init__(
        self,
        cluster: str,
        access: ServiceAccountAccess,
        vault: TokenVault,
        tokens: Shared[Token],
        now: Callable[[], datetime],
        *,
        writes: bool,
    ) -> None:
        self._cluster = cluster
        self._access = access
        self._vault = vault
        self._tokens = tokens
        self._now = now
        self._writes = writes
        self._seed = hashlib.sha256(access.token.encode()).hexdigest()
        self._last: Token | None = None

    def token(self, *, fresh: bool) -> str | None:
        """Raises AccessError, also where the token has ended."""
        self._last = self._current(self._last if fresh else None)
        if self._now() >= self._last.expires:
            ended = self._last.expires.strftime("%Y-%m-%dT%H:%M:%SZ")
            raise AccessError(f"cluster {self._cluster}: its token ended at {ended} and was not renewed: {_HOW}")
        return self._last.text

    def is_due(self) -> bool:
        """Whether a run is to renew it. Raises AccessError."""
        known = self._current(None)
        # What is known may be hours old: somebody else has renewed it since, or nobody has.
        return self._now() >= known.due and self._now() >= self._current(known).due

    def renew(self, api: KubernetesApi, remaining: Remaining) -> None:
        """New tokens for both accounts, of each from half of its life on. A failure is logged: there is time.

        Raises AccessError where there is no token to ask with.
        """
        if not self._writes:
            return
        self._current(None)
        for writes, name in ((False, LOOKER), (True, WRITER)):
            try:
                kept = self._vault.load(self._cluster, writes=writes)
                if kept is None or kept.seed != self._seed or self._now() >= kept.due:
                    self._renew(api, remaining, name, kept.version if kept else 0, writes=writes)
            except EvenkeelError as error:
                text = f"its token of {name} is not renewed yet: {error}"
                _log.warning("%s: %s", self._cluster, text, extra={"cluster": self._cluster})

    def _renew(self, api: KubernetesApi, remaining: Remaining, name: str, version: int, *, writes: bool) -> None:
        path = f"/api/v1/namespaces/{self._access.namespace}/serviceaccounts/{name}/token"
        spec = {"expirationSeconds": int(_LIFE.total_seconds())}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        before, now = self._current(None), self._now()
        status = api.create(path, body, remaining).get("status")
        status = status if isinstance(status, dict) else {}
        text, expires = status.get("token"), _moment(status.get("expirationTimestamp"))
        if not isinstance(text, str) or expires is None or expires <= now:
            raise AccessError(f"POST {path}: the answer holds no token")
        sealed = self._vault.seal(text, self._access.endpoint, writes=writes)
        kept = SealedToken(sealed=sealed, seed=self._seed, issued=now, expires=expires, version=version)
        self._vault.save(self._cluster, kept, writes=writes)
        if writes:
            self._tokens.get(self._key, self._read, before)

    @property
    def _key(self) -> tuple[str, str, bool]:
        return self._cluster, self._seed, self._writes

    def _current(self, refused: Token | None) -> Token:
        return self._tokens.get(self._key, self._read, refused)

    def _kept(self, token: Token) -> timedelta:
        return max(timedelta(), min(_KEPT, (token.expires - self._now()) / 2))

    def _read(self) -> tuple[Token, timedelta]:
        where, server = f"cluster {self._cluster}", self._access.endpoint
        try:
            kept = self._vault.load(self._cluster, writes=self._writes)
            # One that has ended is of no use to a writer; the first one may last longer.
            if kept is not None and kept.seed == self._seed and not (self._writes and self._now() >= kept.expires):
                text = self._vault.unseal(kept.sealed, server, writes=self._writes)
                token = Token(text=text, expires=kept.expires, due=kept.due)
            elif self._writes:
                token = _first(self._vault.unseal(self._access.token, server, writes=True), self._now())
            else:
                raise AccessError("there is no token for looks yet: the next run asks for one")
        except AccessError as error:
            kind, problem = type(error), str(error)
        else:
            return token, self._kept(token)
        raise kind(f"{where}: {problem}")


def _first(text: str, now: datetime) -> Token:
    """The token that came with the record: when it ends stands in it. Of one that does not say so, nothing is known."""
    try:
        part = text.split(".")[1]
        claims: Any = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        issued, expires = (datetime.fromtimestamp(claims[name], UTC) for name in ("iat", "exp"))
        return Token(text=text, expires=expires, due=issued + (expires - issued) / 2)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, OSError, binascii.Error):
        pass
    return Token(text=text, expires=now + _LIFE, due=now)


def _moment(value: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
