"""A ServiceAccount whose token Evenkeel renews, for API servers that cannot trust another issuer.

The record has the first token, encrypted. After half of a token's life, a run requests two new tokens, for its own
account and for the read-only account, and stores both encrypted. The run revokes no token, so each token remains valid
after a crash and during a parallel run.
"""

import base64
import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from evenkeel.access_config import ServiceAccountAccess
from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.adapters.kubernetes.objects import get_path, moment_of
from evenkeel.adapters.redacting import redacting
from evenkeel.adapters.ttl_cache import Shared
from evenkeel.application.errors import AccessError, EvenkeelError
from evenkeel.application.fleet.tokens import SealedToken, TokenVault
from evenkeel.application.ports import Remaining

_log = logging.getLogger("evenkeel.kubernetes")
# The ServiceAccounts for runs and for checks. The admission policy limits the first account; the second account may
# only list (deploy/kubernetes/rbac-service-account.yaml).
WRITER, READER = "evenkeel", "evenkeel-readers"
_LIFE = timedelta(days=1)
# How long a decrypted token is cached in memory, so that a check needs neither the table nor KMS.
_KEPT = timedelta(hours=6)
_EXPIRES = "expirationTimestamp"
_REMEDY = "encrypt a new one and register the cluster again"


@dataclass(frozen=True, kw_only=True)
class Token:
    """A token with its times."""

    text: str = field(repr=False)
    expires: datetime
    due: datetime  # after half of the token's life; from then on, a run renews it


class ServiceAccountCredential:
    """The token of one cluster, for writes or for checks. ``tokens``: the cached tokens of all clusters, decrypted."""

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
        """Return the token. Raises AccessError, also where the token has expired."""
        self._last = self._current(self._last if fresh else None)
        if self._now() >= self._last.expires:
            ended = self._last.expires.strftime("%Y-%m-%dT%H:%M:%SZ")
            raise AccessError(f"cluster {self._cluster}: its token ended at {ended} and was not renewed: {_REMEDY}")
        return self._last.text

    def is_due(self) -> bool:
        """Return True where a run has to renew the token. Raises AccessError."""
        known = self._current(None)
        # The cached token may be hours old. Another function may have renewed it since.
        return self._now() >= known.due and self._now() >= self._current(known).due

    def renew(self, api: KubernetesApi, remaining: Remaining) -> None:
        """Renew the due tokens of both accounts. A failure is only logged, because half of the token's life remains.

        Raises AccessError where there is no valid token to request new tokens with.
        """
        if not self._writes:
            return
        self._current(None)
        for writes, name in ((False, READER), (True, WRITER)):
            try:
                stored = self._vault.load(self._cluster, writes=writes)
                if stored is None or stored.seed != self._seed or self._now() >= stored.due:
                    self._renew(api, remaining, name, stored.version if stored else 0, writes=writes)
            except EvenkeelError as error:
                text = f"its token of {name} is not renewed yet: {error}"
                _log.warning("%s: %s", self._cluster, text, extra={"cluster": self._cluster})

    def _renew(self, api: KubernetesApi, remaining: Remaining, name: str, version: int, *, writes: bool) -> None:
        path = f"/api/v1/namespaces/{self._access.namespace}/serviceaccounts/{name}/token"
        spec = {"expirationSeconds": int(_LIFE.total_seconds())}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        before, now = self._current(None), self._now()
        answer = api.create(path, body, remaining)
        text, expires = get_path(answer, ("status", "token")), moment_of(get_path(answer, ("status", _EXPIRES)))
        if not isinstance(text, str) or expires is None or expires <= now:
            raise AccessError(f"POST {path}: the answer holds no token")
        sealed = self._vault.seal(text, self._access.endpoint, writes=writes)
        stored = SealedToken(sealed=sealed, seed=self._seed, issued=now, expires=expires, version=version)
        self._vault.save(self._cluster, stored, writes=writes)
        if writes:
            self._tokens.get(self._key, self._read, before)

    @property
    def _key(self) -> tuple[str, str, bool]:
        return self._cluster, self._seed, self._writes

    def _current(self, refused: Token | None) -> Token:
        return self._tokens.get(self._key, self._read, refused)

    def _read(self) -> tuple[Token, timedelta]:
        """Return the decrypted token, and how long to cache it."""
        where = f"cluster {self._cluster}"
        token = redacting(self._load, AccessError, lambda error: type(error)(f"{where}: {error}"))
        return token, max(timedelta(), min(_KEPT, (token.expires - self._now()) / 2))

    def _load(self) -> Token:
        server = self._access.endpoint
        stored = self._vault.load(self._cluster, writes=self._writes)
        # A run needs a valid token. Where the stored token has expired, the first token, in the record, may still be
        # valid.
        if stored is not None and stored.seed == self._seed and not (self._writes and self._now() >= stored.expires):
            text = self._vault.unseal(stored.sealed, server, writes=self._writes)
            return Token(text=text, expires=stored.expires, due=stored.due)
        if self._writes:
            return _first(self._vault.unseal(self._access.token, server, writes=True), self._now())
        raise AccessError("there is no token for checks yet: the next run requests one")


def _first(text: str, now: datetime) -> Token:
    """Return the record's token with the times in its claims. A token without these claims is due at once."""
    try:
        part = text.split(".")[1]
        claims: Any = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        issued, expires = (datetime.fromtimestamp(claims[name], UTC) for name in ("iat", "exp"))
        return Token(text=text, expires=expires, due=issued + (expires - issued) / 2)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, OSError):
        pass
    return Token(text=text, expires=now + _LIFE, due=now)
